"""Inlay tables in Spark.

`spark.read.format("inlay")` needs nothing from here: the module `pyspark_inlay` registers the format by
itself. `read` and `count` do what Spark's source API cannot: prune columns and count by metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from inlay.spark.api import count, explain, read, register
    from inlay.spark.dml import InlayTable
    from inlay.spark.session import local_session
    from inlay.spark.sql import view, views

# The first release that runs all of it: Arrow writers, admission control of streams.
OLDEST_PYSPARK = (4, 2)

if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < OLDEST_PYSPARK:
    raise ImportError(
        f"Inlay needs PySpark {OLDEST_PYSPARK[0]}.{OLDEST_PYSPARK[1]} or newer, and this is "
        f"{pyspark.__version__}: install 'inlay[spark]' where there is a choice, and on a service take a "
        "release with a newer Spark (docs/SPARK.md lists them)"
    )

__all__ = ["InlayTable", "count", "explain", "local_session", "read", "register", "view", "views"]


def __getattr__(name: str) -> Any:
    """Loaded when used: Spark imports this package in a process of its own to look sources up."""
    if name == "local_session":
        from inlay.spark import session

        return session.local_session
    if name == "InlayTable":
        from inlay.spark import dml

        return dml.InlayTable
    if name in ("view", "views"):
        from inlay.spark import sql

        return getattr(sql, name)
    if name in __all__:
        from inlay.spark import api

        return getattr(api, name)
    raise AttributeError(f"module 'inlay.spark' has no attribute {name!r}")
