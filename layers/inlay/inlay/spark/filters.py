"""Spark's pushed filters as the format's predicates.

Promise: a row that Spark's filters select is selected by the predicate made of them. Spark checks them
all again, so a filter that has no exact counterpart here is left out, never approximated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import datasource as ds

from inlay.errors import InvalidRequest
from inlay.format.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Predicate,
)
from inlay.format.schema import Field, Primitive, Schema, Value
from inlay.parquet.arrow.types import to_physical

_OPERATORS: dict[type, Operator] = {
    ds.EqualTo: "=",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
}


def predicate_of(filters: Iterable[Any], schema: Schema) -> Predicate:
    """All of the filters that can be told as a predicate, joined by AND; TRUE if none can."""
    found = [p for f in filters if (p := _translated(f, schema)) is not None]
    if not found:
        return TRUE
    return found[0] if len(found) == 1 else And(tuple(found))


def _translated(pushed: Any, schema: Schema) -> Predicate | None:
    if isinstance(pushed, ds.Not):
        inner = _translated(pushed.child, schema)
        return None if inner is None else Not(inner)
    field = schema.resolve(tuple(pushed.attribute))
    if field is None or not isinstance(field.type, Primitive):
        return None
    try:
        return _of_field(pushed, field, field.type)
    except InvalidRequest:
        # The literal is no value of the column: 3.5 for an integer, microseconds for a date.
        return None


def _of_field(pushed: Any, field: Field, kind: Primitive) -> Predicate | None:
    match pushed:
        case ds.IsNull():
            return IsNull(field.id)
        case ds.IsNotNull():
            return Not(IsNull(field.id))
        case ds.EqualNullSafe(value=None):
            return IsNull(field.id)
        case ds.EqualNullSafe(value=value):
            # Never NULL, so that its negation selects NULL as Spark's does.
            equal = Comparison(field.id, "=", _literal(value, kind))
            return And((Not(IsNull(field.id)), equal))
        case ds.In(value=values):
            return _in(field, kind, values)
        case ds.StringStartsWith(value=value) if kind.name == "string":
            return Like(field.id, f"{_quoted(value)}%")
        case ds.StringEndsWith(value=value) if kind.name == "string":
            return Like(field.id, f"%{_quoted(value)}")
        case ds.StringContains(value=value) if kind.name == "string":
            return Like(field.id, f"%{_quoted(value)}%")
        case _ if type(pushed) in _OPERATORS:
            return Comparison(field.id, _OPERATORS[type(pushed)], _literal(pushed.value, kind))
        case _:
            return None


def _literal(value: Any, kind: Primitive) -> Literal:
    return Literal(kind, _physical(value, kind))


def _physical(value: Any, kind: Primitive) -> Value:
    found = to_physical(value, kind)
    if found is None:
        raise InvalidRequest("NULL equals nothing")
    return found


def _in(field: Field, kind: Primitive, values: Iterable[Any]) -> Predicate:
    # A NULL in the list makes no row TRUE, and a negated list with NULL none at all, which Spark
    # finds out when it checks again.
    found = {_physical(value, kind) for value in values if value is not None}
    if not found:
        return FALSE
    return In(field.id, kind, tuple(sorted(found)))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
