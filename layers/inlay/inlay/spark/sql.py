"""Tables in SQL: a table function, and views that are of the newest version whenever they are queried.

::

    view(spark, "events", "s3://bucket/tables/events")
    spark.sql("SELECT count(*) FROM events")
    spark.sql("SELECT * FROM inlay('s3://bucket/tables/events', ref => 'before')")

Promise: the rows of a query are those `read` gives when the query is analysed, by the same plan: Spark's
own Parquet reader where that is exact, with its statistics. Every mention of a table in one query is of
one version. A DataFrame keeps the version it was made with.

Spark asks for a table function's plan while it analyses a query, and a view that was made by SQL is
analysed in each query. So the function is one of Spark's registry that calls back into this process, as
the functions of `foreachBatch` do; through Spark Connect there is no such way.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest
from inlay.format.keys import POINTER
from inlay.spark.conditions import quoted
from inlay.spark.connect import at_ref, load_state
from inlay.spark.sessions import context_of
from inlay.storage.base import Head
from inlay.storage.open import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTION = "inlay"
# What the function takes beside the table's place.
_NAMED = ("version", "as_of", "ref")


def view(
    spark: SparkSession,
    name: str,
    uri: str,
    *,
    version: int | None = None,
    as_of: str | datetime | None = None,
    ref: str | None = None,
) -> None:
    """Make the table at `uri` a temporary view: its newest version, or what `version`, `as_of` (ISO 8601,
    UTC unless it says otherwise) or the tag or branch `ref` stands for, whenever the view is queried.

    Raises what `read` raises; `InvalidRequest` for a session of Spark Connect.
    """
    register_function(spark)
    load_state(at_ref(uri, ref))  # found missing here, it is an error of its own type
    given: dict[str, object] = {"version": version, "as_of": as_of, "ref": ref}
    named = "".join(f", {key} => {_literal(v)}" for key, v in given.items() if v is not None)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {quoted(name)} AS SELECT * FROM "
        f"{FUNCTION}({_literal(uri)}{named})"
    )


def views(spark: SparkSession, prefix: str) -> tuple[str, ...]:
    """Make every table right below `prefix` a view of its folder's name; the names, in order."""
    store, root = open_store(prefix)
    found = []
    for folder in sorted(store.list_prefixes(f"{root}/" if root else "")):
        if isinstance(store.head(f"{folder.rstrip('/')}/{POINTER}"), Head):
            name = folder.rstrip("/").rpartition("/")[2]
            view(spark, name, f"{prefix.rstrip('/')}/{name}")
            found.append(name)
    if not found:
        raise InvalidRequest(
            f"there are no tables right below {prefix}",
            next_step="Name the folder that the tables' folders are in",
        )
    return tuple(found)


def register_function(spark: SparkSession) -> None:
    """Make `inlay(…)` a table function of the session."""
    from pyspark.java_gateway import ensure_callback_server_started

    context = context_of(spark, "the table function inlay(…)")
    ensure_callback_server_started(context._gateway)
    registry = spark._jsparkSession.sessionState().tableFunctionRegistry()
    registry.createOrReplaceTempFunction(FUNCTION, _Function(spark), "python_udf")


class _Function:
    """Spark's `Seq[Expression] => LogicalPlan`, called while a query is analysed."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: Any = None  # what tells the query that is being analysed from others
        self._pinned: dict[tuple[object, ...], int] = {}

    def apply(self, arguments: Any) -> Any:
        """The name and the arguments are Spark's."""
        from inlay.spark.api import read

        expressions = [arguments.apply(place) for place in range(arguments.length())]
        uri, asked = self._called(expressions)
        frame = read(self._spark, uri, version=self._version(uri, asked), ref=_text(asked, "ref"))
        return frame._jdf.queryExecution().analyzed()

    def _called(self, expressions: list[Any]) -> tuple[str, Mapping[str, object]]:
        places, asked = [], {}
        for expression in expressions:
            if expression.getClass().getSimpleName() == "NamedArgumentExpression":
                asked[expression.key().lower()] = self._value(expression.value())
            else:
                places.append(self._value(expression))
        unknown = asked.keys() - set(_NAMED)
        if len(places) != 1 or not isinstance(places[0], str) or unknown:
            raise InvalidRequest(
                "a table is named by its place, and what is asked of it by name",
                next_step=f"{FUNCTION}('s3://bucket/tables/name', {', '.join(_NAMED)} => …)",
            )
        return places[0], asked

    def _value(self, expression: Any) -> object:
        """A literal, or what else needs no row to be evaluated."""
        if not (expression.resolved() and expression.foldable()):
            raise InvalidRequest(
                f"{expression.sql()[:100]} is not known before the query runs",
                next_step=f"Give {FUNCTION}(…) literals",
            )
        value = expression.eval(None)
        kind = expression.dataType().simpleString()
        if kind == "string":
            return str(value.toString())
        if kind.startswith("timestamp"):
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        return value

    def _version(self, uri: str, asked: Mapping[str, object]) -> int:
        """The version that this query reads. Spark analyses all of a query, views included, with one cache
        of relations, so what was found for that cache is of this query."""
        jvm = self._spark._jvm
        cache = jvm.org.apache.spark.sql.catalyst.analysis.AnalysisContext.get().relationCache()
        identity = jvm.java.lang.System.identityHashCode
        if self._query is None or identity(self._query) != identity(cache):
            # Kept, so that no other object can be taken for it.
            self._query, self._pinned = cache, {}
        key = (uri, *(asked.get(name) for name in _NAMED))
        if key not in self._pinned:
            self._pinned[key] = _find_version(uri, asked)
        return self._pinned[key]

    def toString(self) -> str:  # noqa: N802 - Java's name
        return FUNCTION

    class Java:
        implements = ("scala.Function1",)


def _find_version(uri: str, asked: Mapping[str, object]) -> int:
    version, as_of = asked.get("version"), asked.get("as_of")
    if version is not None and as_of is not None:
        raise InvalidRequest("give one of version and as_of")
    if version is not None and (not isinstance(version, int) or version < 1):
        raise InvalidRequest("version is a whole number from 1")
    as_of_us = None
    if as_of is not None:
        from inlay.arguments import time_us

        as_of_us = time_us(as_of if isinstance(as_of, datetime) else str(as_of))
    state = load_state(at_ref(uri, _text(asked, "ref")), version=version, as_of_us=as_of_us)
    return state.snapshot.version


def _text(asked: Mapping[str, object], name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{name} is a text")
    return value


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
