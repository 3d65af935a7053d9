"""The schema that changes are read under: the one they are told in, and whatever else deletes look at.

Promise: every field that a delete of the two states names is there, also one that was dropped since, and
the columns asked for keep their ids: what is there besides can be left out again by id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from inlay.format.entry import KeyRange, Keys, Marker, Where
from inlay.format.predicate import field_ids
from inlay.format.schema import Field, ListOf, MapOf, Schema, Struct, Type
from inlay.format.snapshot import Snapshot

# Of a schema that no commit made.
_NO_ID = -1


def reading_schema(
    schema: Schema, markers: Iterable[Marker], before: Snapshot, after: Snapshot
) -> Schema:
    """`schema`, and with it, where a delete looks at a column that was dropped since, the columns of
    these states."""
    looked_at = frozenset[int]().union(*map(_looked_at, markers))
    if looked_at <= {found.id for _, found in schema.walk()}:
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
    """`fields`, with what they lack of `older` at every level, under names that nothing else has."""
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
