"""The process that Spark forks its Python workers from, in sessions that Inlay starts on this machine.

Promise: the same as `pyspark.daemon`, with what tasks need imported before: else each worker imports it
again.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

from pyspark import daemon

_USED = ("pandas", "inlay.spark.dml")

# The processes in which Spark plans a source are forked from others of the kind, and need less.
if __name__ == "__main__":
    if sys.argv[1:] == ["pyspark.worker"]:
        # What is missing, the task that needs it says.
        for name in _USED:
            with suppress(ImportError):
                import_module(name)
    daemon.manager()
