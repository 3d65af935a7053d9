"""Which files a change from Spark must read, by what statistics can say of its condition.

Promise: a row that a condition of Spark's can be TRUE for is in a file that is read. The condition is
taken as Spark has analysed it, so a name, a literal and a comparison have Spark's meaning; a part without
an exact counterpart here counts as TRUE for every row. Times such as `current_date()` are such parts:
Spark evaluates them later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from inlay.engine import Field, FileTask, PartedChange, Predicate, Primitive, Schema
from inlay.spark.batches import collect_pickled, pickled_batch
from inlay.spark.conditions import PREDICATES, TRUE, column_of, plan_of
from inlay.spark.context import java_class
from inlay.spark.types import spark_leaf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Parts of a condition that are looked at: each takes some calls from Python to the JVM.
MAX_PARTS = 500
# Levels of AND in OR in AND that are looked at: predicates are walked by recursion.
MAX_DEPTH = 50
Operator = Literal["=", "<", "<=", ">", ">="]
_OPERATORS: Mapping[str, tuple[Operator, Operator]] = {
    # With the column on the left, and on the right.
    "EqualTo": ("=", "="),
    "EqualNullSafe": ("=", "="),
    "LessThan": ("<", ">"),
    "LessThanOrEqual": ("<=", ">="),
    "GreaterThan": (">", "<"),
    "GreaterThanOrEqual": (">=", "<="),
}


@dataclass(frozen=True, slots=True)
class Affected:
    """The rows of a table for which `predicate` is TRUE and that have, in each column of `keys`, a value
    that the source has in the expression beside it."""

    predicate: Predicate
    keys: tuple[tuple[Field, Any], ...] = ()


def affected_by(filtered: DataFrame, schema: Schema) -> Affected:
    """What the condition of a filter, or of a join with a source, can be TRUE for. The plan's first outputs
    are the columns of `schema`, in order."""
    plan = plan_of(filtered)
    condition = plan.condition()
    if plan.getClass().getSimpleName() == "Join":
        condition = condition.get() if condition.isDefined() else None
    if condition is None:
        return Affected(TRUE)
    output = plan.output()
    fields = {output.apply(n).exprId().id(): f for n, f in enumerate(schema.fields)}
    read = _Reading(fields, filtered.sparkSession)
    return Affected(read.covering(condition), tuple(read.keys(condition)))


class _Reading:
    def __init__(self, fields: Mapping[int, Field], spark: Any) -> None:
        self._fields = fields
        self._left = MAX_PARTS
        self._defined: dict[int, Any] = {}
        patterns = java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern")
        self._now = patterns.CURRENT_LIKE()

    def covering(self, node: Any, depth: int = 0) -> Predicate:
        """A predicate that is TRUE wherever the expression is."""
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            return TRUE
        match _kind(node):
            case "And" | "Or" as kind:
                parts = tuple(self.covering(part, depth + 1) for part in _parts(node, kind))
                return (PREDICATES.all_of if kind == "And" else PREDICATES.any_of)(parts)
            case "Between":
                return self.covering(node.replacement(), depth + 1)
            case "With":
                # What BETWEEN is made of: an expression that its two comparisons refer to.
                defined = node.defs()
                for attribute in map(defined.apply, range(defined.length())):
                    self._defined[attribute.id().id()] = attribute.child()
                return self.covering(node.child(), depth + 1)
            case "IsNull" if (field := self._field(node.child())) is not None:
                return PREDICATES.is_null(field.id)
            case "IsNotNull" if (field := self._field(node.child())) is not None:
                return PREDICATES.negated(PREDICATES.is_null(field.id))
            case "In" if (field := self._field(node.value())) is not None:
                return self._among(field, node.value(), node.list())
            case kind if kind in _OPERATORS:
                return self._compared(node.left(), node.right(), *_OPERATORS[kind])
            case _:  # TRUE covers everything
                return TRUE

    def keys(self, node: Any) -> Iterator[tuple[Field, Any]]:
        """Columns that must equal an expression over other columns than the table's."""
        for part in _parts(node, "And"):
            if _kind(part) != "EqualTo":
                continue
            left, right = part.left(), part.right()
            for ours, theirs in ((left, right), (right, left)):
                field = self._field(ours)
                if field is not None and _is_key(field.type) and self._is_others(ours, theirs):
                    yield field, theirs

    def _field(self, node: Any) -> Field | None:
        if _kind(node) == "CommonExpressionRef" and node.id().id() in self._defined:
            node = self._defined[node.id().id()]
        while _kind(node) == "Cast" and node.dataType().json() == node.child().dataType().json():
            node = node.child()  # a list of IN with other types makes Spark cast all of it
        if _kind(node) != "AttributeReference":
            return None
        return self._fields.get(node.exprId().id())

    def _is_others(self, ours: Any, node: Any) -> bool:
        used = node.references().toSeq()
        ids = [used.apply(n).exprId().id() for n in range(used.length())]
        same = node.dataType().json() == ours.dataType().json()
        return bool(ids and same and node.deterministic() and not self._fields.keys() & ids)

    def _compared(self, left: Any, right: Any, op: Operator, mirrored: Operator) -> Predicate:
        if (field := self._field(left)) is not None:
            return self._comparison(field, op, left, right)
        if (field := self._field(right)) is not None:
            return self._comparison(field, mirrored, right, left)
        return TRUE

    def _comparison(self, field: Field, op: Operator, column: Any, node: Any) -> Predicate:
        value = self._value(field, column, node)
        if value is None or not isinstance(field.type, Primitive):
            return TRUE
        return PREDICATES.comparison(field.id, op, field.type, value)

    def _among(self, field: Field, column: Any, nodes: Any) -> Predicate:
        self._left -= nodes.length()
        if self._left < 0 or not isinstance(field.type, Primitive):
            return TRUE
        literals = [self._value(field, column, nodes.apply(n)) for n in range(nodes.length())]
        values = tuple(value for value in literals if value is not None)
        if not values or len(values) < len(literals):
            return TRUE
        return PREDICATES.among(field.id, field.type, values)

    def _value(self, field: Field, column: Any, node: Any) -> Any:
        """The value of an expression that needs no row, in the column's physical form."""
        if not (node.resolved() and node.foldable() and node.deterministic()):
            return None
        if node.containsPattern(self._now) or node.dataType().json() != column.dataType().json():
            return None
        value = node.eval(None)
        if value is None:
            return None
        match field.type:
            case Primitive(name="string"):
                # Other bytes than UTF-8 would become other characters, with another place in the order.
                return str(value.toString()) if value.isValid() else None
            case Primitive(name="decimal"):
                return value.toJavaBigDecimal()
            case Primitive(name="bool" | "double") as kind:
                return bool(value) if kind.name == "bool" else float(value)
            case Primitive(unit="" | "us") as kind if spark_leaf(kind).bounds:
                return int(value)
            case _:  # no key of another type bounds the files
                return None


def _parts(node: Any, kind: str) -> Iterator[Any]:
    """The parts of a chain of ANDs or ORs, however Spark has nested it."""
    pending = [node]
    while pending:
        part = pending.pop()
        if _kind(part) == kind:
            pending += (part.right(), part.left())
        else:
            yield part


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _is_key(kind: Any) -> bool:
    leaf = isinstance(kind, Primitive) and kind.unit in ("", "us")
    return leaf and spark_leaf(kind).bounds


# -- files that a source can hit ------------------------------------------------------------------

# For each key, the least and greatest value of each file; None where they are not known.
_Bounds = tuple[tuple[tuple[Any, Any] | None, ...], ...]


def files_matched(
    source: DataFrame, affected: Affected, tasks: Sequence[FileTask], change: PartedChange
) -> list[FileTask]:
    """The tasks whose files, by their bounds, can have a key of the source. One pass over the source."""
    spark = source.sparkSession
    keys = [column_of(spark, key).alias(f"k{n}") for n, (_, key) in enumerate(affected.keys)]
    bounds = tuple(
        tuple(change.bounds(task, field) for task in tasks) for field, _ in affected.keys
    )
    looking = partial(_look_up, bounds, len(tasks))
    hit = reduce(or_, collect_pickled(source.select(*keys), looking), frozenset[int]())
    return [task for n, task in enumerate(tasks) if n in hit]


def _look_up(
    bounds: _Bounds, number: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On an executor: the ordinals of the files that rows of a task can match."""
    hit: set[int] = set()
    for batch in batches:
        remaining = set(range(number)) - hit
        for column, of_files in zip(batch.columns, bounds, strict=True):
            values = sorted(_physical(column))
            remaining = {n for n in remaining if _is_between(values, of_files[n])}
        hit |= remaining
    yield pickled_batch(frozenset(hit))


def _physical(column: pa.Array) -> list[Any]:
    distinct = column.drop_null().unique()
    if pa.types.is_string(distinct.type):
        return [
            text
            for value in distinct.cast(pa.binary()).to_pylist()
            if (text := _text(value)) is not None
        ]
    if pa.types.is_date32(distinct.type):
        distinct = distinct.cast(pa.int32())
    elif pa.types.is_timestamp(distinct.type):
        distinct = distinct.cast(pa.int64())
    values: list[Any] = distinct.to_pylist()
    return values


def _text(value: bytes) -> str | None:
    """None where no column of text has the value: Spark takes any bytes for text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _is_between(values: Sequence[Any], bounds: tuple[Any, Any] | None) -> bool:
    if not values:
        return False  # NULLs match nothing
    if bounds is None:
        return True
    place = bisect_left(values, bounds[0])
    return place < len(values) and values[place] <= bounds[1]
