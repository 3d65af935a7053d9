"""Inlay tables in Spark.

`session`, `read` and `view` are the entry points: they let Spark's own Parquet reader read. `sql` and
`InlayTable` have UPDATE, DELETE and MERGE. `spark.read.format("inlay")` needs nothing from here: the module
`pyspark_inlay` registers the format.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import pyspark
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        "inlay.spark and the jobs of `pipelines` need PySpark: pip install 'inlay-tables[spark]', or run "
        "them where Spark has it, by spark-submit",
        name="pyspark",
    ) from None

from inlay.spark.releases import OLDEST, release_of

if TYPE_CHECKING:
    from inlay.spark.api import count, explain, read
    from inlay.spark.dml import InlayTable
    from inlay.spark.native_append import append
    from inlay.spark.sessions import local_session, register, session
    from inlay.spark.statements import sql
    from inlay.spark.table_function import view, views
    from inlay.spark.transactions import transaction

if release_of(pyspark.__version__) < OLDEST:
    raise ImportError(
        f"Inlay needs PySpark {OLDEST[0]}.{OLDEST[1]} or newer, and this is "
        f"{pyspark.__version__}: install 'inlay-tables[spark]' where you can choose; on a managed service "
        "choose a release with a newer Spark (docs/SPARK.md lists them)"
    )

# The public names of this package, each with its module.
_FROM = {
    "InlayTable": "dml",
    "append": "native_append",
    "count": "api",
    "explain": "api",
    "local_session": "sessions",
    "read": "api",
    "register": "sessions",
    "session": "sessions",
    "sql": "statements",
    "transaction": "transactions",
    "view": "table_function",
    "views": "table_function",
}

__all__ = [
    "InlayTable",
    "append",
    "count",
    "explain",
    "local_session",
    "read",
    "register",
    "session",
    "sql",
    "transaction",
    "view",
    "views",
]


def __getattr__(name: str) -> Any:
    """Imported on use: Spark imports this package in a separate process to look up sources."""
    if name not in _FROM:
        raise AttributeError(f"module 'inlay.spark' has no attribute {name!r}")
    return getattr(import_module(f"inlay.spark.{_FROM[name]}"), name)
