"""What each release of PySpark has of what Inlay needs.

Promise: on a release that lacks something, the verb that needs it is refused by its name, and everything
else works. `tests/sparks` runs each verb on each release and holds the table of docs/SPARK.md.
"""

from __future__ import annotations

import pyspark

from inlay.errors import InvalidRequest

Release = tuple[int, int]

# The first with Python sources that write Arrow.
OLDEST: Release = (4, 0)
# Streams into a Python source by Arrow; out of one with a limit on what a micro-batch reads.
STREAM_WRITERS: Release = (4, 1)
STREAM_READERS: Release = (4, 2)


def release_of(version: str) -> Release:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def check_release(needed: Release, verb: str, instead: str) -> None:
    """Raises `InvalidRequest` for a verb that this PySpark is too old for."""
    if release_of(pyspark.__version__) < needed:
        raise InvalidRequest(
            f"{verb} needs PySpark {needed[0]}.{needed[1]} or newer, and this is {pyspark.__version__}",
            next_step=instead,
        )
