"""Predicates as SQL text.

Promise: `parse_predicate(format_predicate(p, s), s)` means what `p` means, and equals `p` if
`parse_predicate` returned `p`. The text contains row values: it is for the caller, not for logs.
"""

from __future__ import annotations

import math
from decimal import Decimal

from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
)
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.values import NANOS_PER_UNIT, encode_value
from inlay.parse.grammar import quote_path
from inlay.parse.times import write_clock, write_day, write_moment

_CONSTANTS = {True: "TRUE", False: "FALSE", None: "NULL"}


def format_predicate(predicate: Predicate, schema: Schema) -> str:
    """The predicate as a WHERE text; a field that the schema no longer has is shown as "#id"."""
    names = {field.id: quote_path(path) for path, field in schema.walk()}
    return _show(predicate, names)


def _show(node: Predicate, names: dict[int, str], negated: str = "") -> str:
    """`negated`: "NOT ", for a condition that says so itself."""
    match node:
        case And(parts):
            return _join(" AND ", parts, names) if parts else "TRUE"
        case Or(parts):
            return _join(" OR ", parts, names) if parts else "FALSE"
        case Not(IsNull() | In() | Like() as part):
            return _show(part, names, "NOT ")
        case Not(part):
            return f"NOT {_inner(part, names)}"
        case Constant(value):
            return _CONSTANTS[value]
        case IsNull(field_id):
            return f"{_name(field_id, names)} IS {negated}NULL"
        case Comparison(field_id, op, literal):
            return f"{_name(field_id, names)} {op} {format_value(literal.type, literal.value)}"
        case Like(field_id, pattern):
            return f"{_name(field_id, names)} {negated}LIKE {_text(pattern)}"
        case In(field_id, kind, values):
            shown = ", ".join(format_value(kind, value) for value in values)
            return f"{_name(field_id, names)} {negated}IN ({shown})"


def _join(word: str, parts: tuple[Predicate, ...], names: dict[int, str]) -> str:
    return word.join(_inner(part, names) for part in parts)


def _inner(node: Predicate, names: dict[int, str]) -> str:
    shown = _show(node, names)
    compound = isinstance(node, And | Or) and len(node.parts) > 1
    return f"({shown})" if compound else shown


def _name(field_id: int, names: dict[int, str]) -> str:
    return names.get(field_id) or quote_path((f"#{field_id}",))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def format_value(kind: Primitive, value: Value) -> str:
    """A literal as `parse_predicate` reads it back next to a column of this type."""
    if isinstance(value, bool):
        return _CONSTANTS[value]
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"DOUBLE '{encode_value(kind, value)}'"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    match kind.family:
        case "date":
            return f"DATE '{write_day(value)}'"
        case "time":
            return f"TIME '{write_clock(value * NANOS_PER_UNIT[kind.unit])}'"
        case "timestamp":
            nanos = value * NANOS_PER_UNIT[kind.unit]
            return f"TIMESTAMP '{write_moment(nanos, zoned=kind.name == 'timestamptz')}'"
        case "bool" | "integer" | "float" | "decimal" | "text" | "bytes":
            return str(value)
