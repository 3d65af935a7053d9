"""Inlay tables in Spark.

`spark.read.format("inlay")` needs nothing from here: the module `pyspark_inlay` registers the format by
itself. `read` and `count` do what Spark's source API cannot: prune columns and count by metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inlay.spark.api import count, explain, read, register
    from inlay.spark.session import local_session

__all__ = ["count", "explain", "local_session", "read", "register"]


def __getattr__(name: str) -> Any:
    """Loaded when used: Spark imports this package in a process of its own to look sources up."""
    if name == "local_session":
        from inlay.spark import session

        return session.local_session
    if name in __all__:
        from inlay.spark import api

        return getattr(api, name)
    raise AttributeError(f"module 'inlay.spark' has no attribute {name!r}")
