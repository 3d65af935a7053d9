"""Tables in SQL: a table function, and views that read the newest version in each query.

::

    view(spark, "events", "s3://bucket/tables/events")
    spark.sql("SELECT count(*) FROM events")
    spark.sql("SELECT * FROM inlay('s3://bucket/tables/events', ref => 'before')")

Promise: the rows of a query are those that `read` gives when the query is analysed, by the same plan:
Spark's own Parquet reader where that is exact, with its statistics. All references to a table in one query
read one version. A DataFrame keeps the version it was made with.

Spark requests a table function's plan while it analyses a query, and a view that was created by SQL is
analysed in each query. So the function is registered with Spark and calls back into this process, as the
functions of `foreachBatch` do; Spark Connect has no such way.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any

from inlay.engine import POINTER, ScanParts
from inlay.errors import InvalidRequest
from inlay.spark.api import read
from inlay.spark.conditions import plan_of, quoted
from inlay.spark.connect import at_ref, connect, load_snapshot
from inlay.spark.context import CalledBack, context_of, is_set, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTION = "inlay"
# Queries whose versions are kept: more than are analysed at the same time.
MAX_QUERIES = 64
# With it Spark keeps the plan of a view that was made, and with that the version.
_FIXED_VIEWS = "spark.sql.legacy.storeAnalyzedPlanForView"
# Characters of a literal that settings of the session read otherwise: `spark.sql.variable.substitute`,
# `spark.sql.parser.escapedStringLiterals`.
_READ_OTHERWISE = frozenset("\\'$")
_IN_BACKTICKS = re.compile(r"`(?:[^`]|``)+`")
# The arguments of the function after the table's location.
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
    """Makes the table at `uri` a temporary view: of its newest version, or of what `version`, `as_of` (ISO
    8601, UTC without a zone) or the tag or branch `ref` refers to whenever the view is queried.

    A temporary view is in no database: as Spark's own methods do, this one refuses a name with a dot,
    unless it is in backticks. Raises what `read` raises; `InvalidRequest` for a session of Spark Connect.
    """
    if _IN_BACKTICKS.fullmatch(name) is None:
        if not name or "." in name:
            raise InvalidRequest(
                f"{name[:100]!r} is no name of a temporary view, which is in no database",
                next_step=f"view(spark, {name.rpartition('.')[2][:100] or 'name'!r}, uri); in backticks a "
                "name may have dots",
            )
        name = quoted(name)
    register_function(spark)
    if is_set(spark, _FIXED_VIEWS):
        raise InvalidRequest(
            f"with {_FIXED_VIEWS} the view would stay at the version that it was made with",
            next_step="Unset it, or use read(spark, uri).createOrReplaceTempView(name) for a fixed view",
        )
    load_snapshot(at_ref(uri, ref))  # raises here if the table does not exist
    given: dict[str, object] = {"version": version, "as_of": as_of, "ref": ref}
    named = "".join(f", {key} => {_literal(v)}" for key, v in given.items() if v is not None)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM "
        f"{FUNCTION}({_literal(uri)}{named})"
    )


def views(spark: SparkSession, prefix: str) -> tuple[str, ...]:
    """Makes every table directly under `prefix` a view named after its folder; the names, in order."""
    within = connect(prefix)
    folders = sorted(within.store.list_prefixes(within.key("")))
    names = [folder.rstrip("/").rpartition("/")[2] for folder in folders]
    tables = [name for name in names if within.has(f"{name}/{POINTER}")]
    if not tables:
        raise InvalidRequest(
            f"there are no tables directly under {prefix}",
            next_step="Give the folder that contains the tables' folders",
        )
    has_case = is_set(spark, "spark.sql.caseSensitive")
    named: dict[str, str] = {}
    for name in tables:
        other = named.setdefault(name if has_case else name.lower(), name)
        if other != name:
            raise InvalidRequest(
                f"the tables {other[:100]!r} and {name[:100]!r} would be one view",
                next_step="Name each by view(spark, name, uri), or set spark.sql.caseSensitive",
            )
    for name in tables:
        view(spark, quoted(name), within.below(name).uri)
    return tuple(tables)


def register_function(spark: SparkSession) -> TableFunction:
    """Registers `inlay(…)` as a table function of the session."""
    from pyspark.java_gateway import ensure_callback_server_started

    context = context_of(spark, "the table function inlay(…)")
    ensure_callback_server_started(context._gateway)
    registry = spark._jsparkSession.sessionState().tableFunctionRegistry()
    function = TableFunction(spark)
    registry.createOrReplaceTempFunction(FUNCTION, function, "python_udf")
    return function


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A query, which Spark identifies by its cache of relations, and the versions that it reads."""

    cache: Any
    versions: dict[tuple[object, ...], int] = field(default_factory=dict)


class TableFunction(CalledBack):
    """Spark's `Seq[Expression] => LogicalPlan`, called while a query is analysed."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # The queries that are being analysed, by identity; the newest last.
        self._numbers: Any = java_class(spark, "java.util.IdentityHashMap")()
        self._pinned: OrderedDict[int, _Pinned] = OrderedDict()
        self._next = count()
        self._lock = Lock()

    def apply(self, arguments: Any) -> Any:
        """Name and arguments are defined by Spark."""
        expressions = [arguments.apply(place) for place in range(arguments.length())]
        with self.noting():
            uri, asked = called(expressions)
            version = self._version(uri, asked)
            frame = read(self._spark, uri, version=version, ref=_text(asked, "ref"))
        return plan_of(frame)

    def _version(self, uri: str, asked: Mapping[str, object]) -> int:
        """The version that this query reads. Spark analyses a whole query, views included, with one cache
        of relations, so a version found for that cache belongs to this query."""
        contexts = "org.apache.spark.sql.catalyst.analysis.AnalysisContext"
        cache = java_class(self._spark, contexts).get().relationCache()
        # Threads of a notebook analyse queries at the same time, each in its own callback.
        with self._lock:
            number = self._numbers.get(cache)
            if number is None:
                number = next(self._next)
                self._numbers.put(cache, number)
                self._pinned[number] = _Pinned(cache)
                if len(self._pinned) > MAX_QUERIES:
                    _, oldest = self._pinned.popitem(last=False)
                    self._numbers.remove(oldest.cache)
            pinned = self._pinned[number].versions
        key = (uri, *(asked.get(name) for name in _NAMED))
        if key not in pinned:
            pinned[key] = _find_version(uri, asked)
        return pinned[key]

    def toString(self) -> str:  # noqa: N802 - Java's name
        return FUNCTION

    class Java:
        implements = ("scala.Function1",)


def called(expressions: Sequence[Any]) -> tuple[str, Mapping[str, object]]:
    """The location and the options in the function's arguments, Spark's expressions. Raises
    `InvalidRequest`."""
    places, asked = [], {}
    for expression in expressions:
        if expression.getClass().getSimpleName() == "NamedArgumentExpression":
            name, value = expression.key().lower(), _value(expression.value())
            if name in asked or value is None:
                what = "is given twice" if name in asked else "is NULL"
                raise InvalidRequest(
                    f"{name[:80]} {what}", next_step="Leave it out, or give a value"
                )
            asked[name] = value
        else:
            places.append(_value(expression))
    unknown = asked.keys() - set(_NAMED)
    if len(places) != 1 or not isinstance(places[0], str) or unknown:
        raise InvalidRequest(
            "give the table's location by position, and options by name",
            next_step=f"{FUNCTION}('s3://bucket/tables/name', {', '.join(_NAMED)} => …)",
        )
    return places[0], asked


def _value(expression: Any) -> object:
    """The value of a literal, or of another expression that needs no row."""
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


def _find_version(uri: str, asked: Mapping[str, object]) -> int:
    version, as_of = asked.get("version"), asked.get("as_of")
    if version is not None and as_of is not None:
        raise InvalidRequest("give one of version and as_of")
    if version is not None and (type(version) is not int or version < 1):
        raise InvalidRequest("version is a whole number from 1")
    as_of_us = None
    if as_of is not None:
        as_of_us = ScanParts.as_of_us(as_of if isinstance(as_of, datetime) else str(as_of))
    snapshot = load_snapshot(at_ref(uri, _text(asked, "ref")), version=version, as_of_us=as_of_us)
    return snapshot.version


def _text(asked: Mapping[str, object], name: str) -> str | None:
    value = asked.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{name} must be text")
    return value


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(value)
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if not _READ_OTHERWISE.isdisjoint(text):
        return f"CAST(X'{text.encode().hex()}' AS STRING)"
    return f"'{text}'"
