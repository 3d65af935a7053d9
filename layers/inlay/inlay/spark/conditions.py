"""Predicates as Spark conditions, for files that Spark reads itself.

Promise: the condition is TRUE for exactly the rows that the predicate selects. Spark's NULL logic, its
order of strings, bytes and NaN and its LIKE are those of docs/format/predicates.md; a node for which that
is not certain has no condition, and then neither has the predicate.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from inlay.engine import Field, Predicate, PredicateBuilder, PredicateFold, Primitive, Schema
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.context import java_class

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

PREDICATES = PredicateBuilder()
TRUE = PREDICATES.constant(True)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# What names of columns begin with that are added to rows on the way of a merge.
_ADDED = "__inlay_"
_EPOCH = datetime(1970, 1, 1)
_DAY = 86_400_000_000
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
# Spark processes conditions recursively, and each node is a call from Python to the JVM.
MAX_NODES = 500


class _NoCondition(Exception):
    """A node without an equivalent in Spark."""


def condition_of(predicate: Predicate, schema: Schema) -> Column | None:
    """The predicate as a condition on a DataFrame with the table's columns; None if there is none."""
    translated = _Translated(schema)
    make = translated.of(predicate)
    if translated.nodes > MAX_NODES:
        return None
    try:
        return make()
    except _NoCondition:
        return None


def quoted(name: str) -> str:
    """A column's name, quoted for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def in_sql(name: str) -> str:
    """A column's name, quoted for the library's SQL."""
    return '"' + name.replace('"', '""') + '"'


def attribute(frame: Any, name: str) -> Column:
    """The column of this very name. `frame[…]` takes a quoted name for a pattern where the session says so
    (`spark.sql.parser.quotedRegexColumnNames`). Raises `SchemaMismatch` for one of several."""
    return column_of(frame.sparkSession, attributes(frame, [name])[0])


def attributes(frame: Any, names: Iterable[str]) -> list[Any]:
    """The columns of these very names, as `attribute` finds them, as Spark's expressions."""
    output, columns = plan_of(frame).output(), frame.columns
    outputs = []
    for name in names:
        if columns.count(name) != 1:
            raise SchemaMismatch(
                f"{columns.count(name)} columns of the DataFrame are named {name[:100]!r}",
                next_step="Rename them apart",
            )
        outputs.append(output.apply(columns.index(name)))
    return outputs


def attribute_at(frame: Any, place: int) -> Column:
    """The column at this place, whatever its name."""
    return column_of(frame.sparkSession, plan_of(frame).output().apply(place))


def column_of(spark: Any, expression: Any) -> Column:
    """One of Spark's expressions as a Column."""
    from pyspark.sql.classic.column import Column

    expressions = java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    return Column(expressions.column(expression))


def column_named(spark: Any, name: str) -> Column:
    """The column of this name, in Spark's notation: by one call. Of PySpark's functions and methods of
    columns each asks the JVM ten times, to note from where it was called."""
    return _by_functions(spark, "col", name)


def column_as(spark: Any, text: str) -> Column:
    """The column of this SQL, by one call."""
    return _by_functions(spark, "expr", text)


def _by_functions(spark: Any, function: str, text: str) -> Column:
    from pyspark.sql.classic.column import Column

    functions = java_class(spark, "org.apache.spark.sql.functions")
    return Column(getattr(functions, function)(text))


def renamed(column: Any, name: str) -> Column:
    """The column by this name, by one call."""
    from pyspark.sql.classic.column import Column

    return Column(getattr(column._jc, "as")(name))


def expression_of(spark: Any, column: Any) -> Any:
    """A Column as one of Spark's expressions, the names in it not yet resolved."""
    return spark._jsparkSession.expression(column._jc)


def plan_of(frame: Any) -> Any:
    """A DataFrame's plan, as Spark has analysed it."""
    return frame._jdf.queryExecution().analyzed()


def filtered(spark: Any, where: Column, plan: Any) -> Any:
    """The plan of those rows of a plan for which a condition is TRUE. Several steps on plans are analysed
    once (`frame_of`); of a DataFrame each step is, with all below it."""
    condition = expression_of(spark, where)
    return java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.Filter")(condition, plan)


def projected(spark: Any, columns: Any, plan: Any) -> Any:
    """The plan of these columns, a sequence of expressions, of a plan's rows."""
    return java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.Project")(columns, plan)


def frame_of(spark: Any, plan: Any) -> DataFrame:
    """The rows of one of Spark's plans; of a command, what it returns."""
    from pyspark.sql.classic.dataframe import DataFrame

    datasets = java_class(spark, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(spark._jsparkSession, plan), spark)


def check_frame(given: object, verb: str) -> None:
    """Raises `InvalidRequest` for what is no DataFrame of Spark's, and for one of a stream."""
    from pyspark.sql import DataFrame

    if not isinstance(given, DataFrame):
        kind = type(given)
        raise InvalidRequest(
            f"{verb} takes a DataFrame of Spark's, and this is a {kind.__module__}.{kind.__qualname__}",
            next_step="spark.createDataFrame(rows) makes one; inlay.open(uri) has append and upsert for "
            "Arrow's tables",
        )
    if given.isStreaming:
        raise InvalidRequest(
            f"{verb} takes a DataFrame of rows that are there, and this one is a stream",
            next_step='writeStream.format("inlay"), or foreachBatch, as docs/SPARK.md shows',
        )


def check_names(*sides: Iterable[str]) -> None:
    """Raises `InvalidRequest` for a column named as those that a merge adds to rows on their way."""
    for name in chain(*sides):
        if name.lower().startswith(_ADDED):
            raise InvalidRequest(
                f"the column {name[:100]!r} has a name that merges use for columns of their own",
                next_step=f"Rename it: names from {_ADDED!r} on are taken",
            )


class _Translated(PredicateFold[Callable[[], Any]]):
    """Each part as what makes its Column: none is made before it is known how many there are."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.nodes = 0

    def of(self, predicate: Predicate) -> Callable[[], Any]:
        self.nodes += 1
        return super().of(predicate)

    def comparison(
        self, field_id: int, operator: str, kind: Primitive, value: Any
    ) -> Callable[[], Any]:
        return lambda: _COMPARE[operator](self._column(field_id), value_of(kind, value))

    def among(self, field_id: int, kind: Primitive, values: Sequence[Any]) -> Callable[[], Any]:
        self.nodes += len(values) - 1

        def make() -> Any:
            if kind.is_float:
                # Long lists become sets of bit patterns in Spark, in which -0.0 is not 0.0.
                raise _NoCondition
            return self._column(field_id).isin(*[value_of(kind, value) for value in values])

        return make

    def like(self, field_id: int, pattern: str) -> Callable[[], Any]:
        # Spark refuses escapes that are not necessary: there are none.
        return lambda: self._column(field_id).like(pattern)

    def is_null(self, field_id: int) -> Callable[[], Any]:
        return lambda: self._column(field_id).isNull()

    def all_of(self, parts: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
        return lambda: reduce(operator.and_, (part() for part in parts), _literal(True))

    def any_of(self, parts: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
        return lambda: reduce(operator.or_, (part() for part in parts), _literal(False))

    def negated(self, part: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: ~part()

    def constant(self, value: bool | None) -> Callable[[], Any]:
        return lambda: _literal(value).cast("boolean")

    def _column(self, field_id: int) -> Any:
        from pyspark.sql import functions as f

        path = self._schema.path_of(field_id)
        if path is None:
            raise _NoCondition
        return f.col(".".join(quoted(name) for name in path))


def _literal(value: bool | None) -> Any:
    from pyspark.sql import functions as f

    return f.lit(value)


def value_of(kind: Primitive, value: Any) -> Any:
    from pyspark.sql import functions as f

    from inlay.spark.types import SPARK_TYPES

    literal: Any = value
    match kind.name:
        case (
            "bool"
            | "string"
            | "decimal"
            | "float"
            | "double"
            | "int8"
            | "int16"
            | "int32"
            | "int64"
        ):
            pass
        case "binary":
            literal = bytearray(literal)
        case "date":
            literal = _time(int(value) * _DAY).date().isoformat()
        case "timestamptz" if kind.unit in _PER_UNIT:
            return f.timestamp_micros(f.lit(int(value) * _PER_UNIT[kind.unit]))
        case "timestamp" if kind.unit in _PER_UNIT:
            # As text: a Python datetime would be converted by the session's time zone.
            literal = _time(int(value) * _PER_UNIT[kind.unit]).isoformat(" ")
        case _:
            raise _NoCondition
    return f.lit(literal).cast(SPARK_TYPES.of(kind))


def default_of(field: Field, kind: DataType) -> Any:
    """The value, of Spark's type `kind`, of a column that new rows do not have."""
    from pyspark.sql import functions as f

    if field.default is not None and isinstance(field.type, Primitive):
        return value_of(field.type, field.default)
    return f.lit(None).cast(kind)


def _time(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise _NoCondition from None
