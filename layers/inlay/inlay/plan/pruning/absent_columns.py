"""Absent columns: the values of a field in a file that was written without it.

Promise: the statistics given here are those of the rows as read (by `parquet.arrow.conform`): the field's
default in each row, NULL where it has none or where its struct is NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlay.format.entry import ColumnStats
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, Value
from inlay.format.values import is_nan

IsThere = Callable[[Field], bool]


@dataclass(frozen=True, slots=True)
class Absent:
    """`value` None: NULL in each row. `within`: the field is in a struct that may be NULL itself."""

    value: Value | None = None
    kind: Primitive | None = None
    within: bool = False

    def stats(self, rows: int) -> ColumnStats:
        if self.value is None:
            return ColumnStats(null_count=rows, has_nan=False, kind=self.kind)
        nulls = None if self.within else 0
        if is_nan(self.value):
            return ColumnStats(null_count=nulls, has_nan=True, kind=self.kind)
        return ColumnStats(self.value, self.value, nulls, has_nan=False, kind=self.kind)


def absent(schema: Schema, field_id: int, is_there: IsThere) -> Absent | None:
    """What a file has instead of a field of `schema`; None when it has the field, or that is unknown."""
    chain = chain_of(schema, field_id)
    first = next((field for field in chain if not is_there(field)), None)
    if first is None:
        return None
    kind = chain[-1].type if isinstance(chain[-1].type, Primitive) else None
    # A missing struct is NULL as a whole, whatever the defaults of its fields.
    default = first.default if first.id == field_id else None
    return Absent(default, kind, within=len(chain) > 1)


def chain_of(schema: Schema, field_id: int) -> tuple[Field, ...]:
    """The structs that contain the field, and the field; empty when the schema does not have it."""
    for field in schema.fields:
        found = _chain(field, field_id)
        if found:
            return found
    return ()


def _chain(field: Field, field_id: int) -> tuple[Field, ...]:
    if field.id == field_id:
        return (field,)
    match field.type:
        case Struct(fields):
            inner = fields
        case ListOf(element):
            inner = (element,)
        case MapOf(key, value):
            inner = (key, value)
        case Primitive():
            return ()
    for child in inner:
        found = _chain(child, field_id)
        if found:
            return (field, *found)
    return ()
