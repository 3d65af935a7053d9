"""Schemas to JSON and back.

Promise: exact in both directions. A schema that could make a reader confuse columns (a duplicate id or
name), or with parts this library does not know, is refused: reading on would give wrong rows.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from inlay.errors import CorruptTable, NewerFormat
from inlay.format.json_values import as_count, as_text
from inlay.format.schema import (
    Field,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    parse_primitive,
)
from inlay.format.values import decode_value, encode_value

_FIELD = frozenset(("id", "name", "type", "required", "doc", "default"))
_SCHEMA = frozenset(("id", "fields", "version"))


def schema_to_json(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {"id": schema.id, "fields": list(map(_field_to_json, schema.fields))}
    if schema.version != 1:
        found["version"] = schema.version
    return found


def schema_from_json(found: dict[str, Any]) -> Schema:
    _known(found, _SCHEMA, "a schema")
    fields = _fields_from_json(found["fields"])
    schema = Schema(as_count(found["id"]), fields, as_count(found.get("version", 1)))
    ids = [field.id for _, field in schema.walk()]
    if len(set(ids)) < len(ids):
        raise CorruptTable(f"schema {schema.id} has a field id twice")
    return schema


def _field_to_json(field: Field) -> dict[str, Any]:
    match field.type:
        case Primitive():
            kind: Any = str(field.type)
        case Struct(fields):
            kind = {"struct": list(map(_field_to_json, fields))}
        case ListOf(element):
            kind = {"list": _field_to_json(element)}
        case MapOf(key, value):
            kind = {"map": [_field_to_json(key), _field_to_json(value)]}
    found: dict[str, Any] = {"id": field.id, "name": field.name, "type": kind}
    if not field.nullable:
        found["required"] = True
    if field.doc:
        found["doc"] = field.doc
    if field.default is not None and isinstance(field.type, Primitive):
        found["default"] = encode_value(field.type, field.default)
    return found


def _field_from_json(found: dict[str, Any]) -> Field:
    _known(found, _FIELD, "a field")
    kind = _type_from_json(found["type"])
    default = found.get("default")
    if default is not None and not isinstance(kind, Primitive):
        raise CorruptTable("a field that is not a primitive has a default")
    return Field(
        id=as_count(found["id"]),
        name=as_text(found["name"]),
        type=kind,
        nullable=not found.get("required", False),
        doc=as_text(found.get("doc", "")),
        default=decode_value(kind, default)
        if default is not None and isinstance(kind, Primitive)
        else None,
    )


def _fields_from_json(found: list[Any]) -> tuple[Field, ...]:
    fields = tuple(_field_from_json(f) for f in found)
    if len({f.name for f in fields}) < len(fields):
        raise CorruptTable("two sibling columns have the same name")
    return fields


def _type_from_json(found: Any) -> Type:
    if isinstance(found, str):
        return parse_primitive(found)
    if isinstance(found, dict) and len(found) == 1:
        if "struct" in found:
            return Struct(_fields_from_json(found["struct"]))
        if "list" in found:
            return ListOf(_field_from_json(found["list"]))
        if "map" in found:
            key, value = found["map"]
            return MapOf(_field_from_json(key), _field_from_json(value))
    raise CorruptTable(f"not a type: {str(found)[:80]}")


def _known(found: dict[str, Any], members: Collection[str], what: str) -> None:
    unknown = found.keys() - members
    if unknown:
        raise NewerFormat(f"{what} has members this library does not know: {sorted(unknown)}")
