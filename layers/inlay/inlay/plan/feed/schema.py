"""The schemas of a change feed: the one of the reported rows, and the one that files are read under, which
has the other columns that deletes need.

Promise: the type of a reported column holds all its values over the range, even if a restore went back to a
narrower type. Every field that a delete of the two states names is included, even if dropped since, and
requested columns keep their ids, so that the others can be removed again by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from inlay.format.entry import KeyRange, Keys, Marker, Where
from inlay.format.predicate import field_ids
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, Type
from inlay.format.snapshot import Snapshot
from inlay.format.widening import widened, widens

# Of a schema that no commit made.
_NO_ID = -1


def reported_schema(to: Snapshot, since: int) -> Schema:
    """The columns of `to`. Only a restore, or a branch that replaced main, makes columns narrower; after
    one, they are as wide as any schema the table had by then."""
    fields = to.schema.fields
    if to.replaced > since:
        for other in to.schemas:
            fields = tuple(_wide_enough(fields, other.fields))
    return to.schema if fields == to.schema.fields else Schema(_NO_ID, fields)


def _wide_enough(fields: tuple[Field, ...], others: tuple[Field, ...]) -> Iterator[Field]:
    """`fields`, each widened to hold the values of the field of `others` with its id."""
    by_id = {field.id: field for field in others}
    for field in fields:
        other = by_id.get(field.id)
        yield field if other is None else _with_room(field, other)


def _with_room(field: Field, other: Field) -> Field:
    field = replace(field, nullable=field.nullable or other.nullable)
    match field.type, other.type:
        case Primitive() as kind, Primitive() as wider if kind != wider and widens(kind, wider):
            default = None if field.default is None else widened(field.default, kind, wider)
            return replace(field, type=wider, default=default)
        case Struct(fields), Struct(others):
            return replace(field, type=Struct(tuple(_wide_enough(fields, others))))
        case ListOf(element), ListOf(of):
            return replace(field, type=ListOf(_with_room(element, of)))
        case MapOf(key, value), MapOf(of_key, of_value):
            return replace(field, type=MapOf(_with_room(key, of_key), _with_room(value, of_value)))
        case _:
            return field


def reading_schema(
    schema: Schema, markers: Iterable[Marker], before: Snapshot, after: Snapshot
) -> Schema:
    """`schema` and, where a delete reads a column that was dropped since, the columns of these states."""
    looked_at = frozenset[int]().union(*map(_looked_at, markers))
    if looked_at <= schema.fields_by_id.keys():
        return schema
    fields = schema.fields
    for older in (after.schema, before.schema):
        fields = _union(fields, older.fields)
    return Schema(_NO_ID, fields)


def _looked_at(marker: Marker) -> frozenset[int]:
    match marker.body:
        case Where(predicate):
            return field_ids(predicate)
        case KeyRange(field_id=field_id):
            return frozenset((field_id,))
        case Keys(field_ids=ids):
            return frozenset(ids)
        case _:
            return frozenset()


def _union(fields: tuple[Field, ...], older: tuple[Field, ...]) -> tuple[Field, ...]:
    """`fields`, with the fields of `older` that they lack at every level, under unique names."""
    by_id = {field.id: field for field in older}
    found = [
        replace(field, type=_union_of(field.type, by_id[field.id].type))
        if field.id in by_id
        else field
        for field in fields
    ]
    known = {field.id for field in fields}
    dropped = (field for field in older if field.id not in known)
    return (*found, *(replace(f, name=f"{f.name} (dropped, field {f.id})") for f in dropped))


def _union_of(newer: Type, older: Type) -> Type:
    match newer, older:
        case Struct(fields), Struct(others):
            return Struct(_union(fields, others))
        case ListOf(element), ListOf(other):
            return ListOf(_merged(element, other))
        case MapOf(key, value), MapOf(other_key, other_value):
            return MapOf(_merged(key, other_key), _merged(value, other_value))
        case _:
            return newer


def _merged(newer: Field, older: Field) -> Field:
    return replace(newer, type=_union_of(newer.type, older.type))
