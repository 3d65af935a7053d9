"""The types of columns that hold one value: a row each.

Promise: what the format says of a type whatever its arguments is in its row, and nowhere else. Code asks
the row through `inlay.format.schema.Primitive`, or decides by the *family*: how values are held, compared,
and written as JSON (`format.values`) and in conditions (`format.binding`). So a further type of a known
family is a row here, one in `parquet/arrow/types.py`, and one in the table of each other format
(`iceberg/schema.py`, `spark/types.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from inlay.record import Record

LeafName = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "fixed",
    "date",
    "time",
    "timestamp",
    "timestamptz",
]
Family = Literal[
    "bool", "integer", "float", "decimal", "text", "bytes", "date", "time", "timestamp"
]
NUMERIC: frozenset[Family | None] = frozenset(("integer", "float", "decimal"))
TEMPORAL: frozenset[Family | None] = frozenset(("date", "time", "timestamp"))


class LeafType(Record):
    """`example`: how a literal is written. `limits`: the least and the greatest value, where values are
    whole numbers of one range. `arguments`: what the type is written with, and `units` those it has."""

    family: Family
    example: str
    limits: tuple[int, int] | None = None
    arguments: Literal["", "digits", "length", "unit"] = ""
    units: tuple[str, ...] = ()


_NUMBER = "a number without quotes"
_UNITS = ("s", "ms", "us", "ns")


def _row(name: LeafName) -> LeafType:
    match name:
        case "bool":
            return LeafType("bool", "TRUE or FALSE")
        case "int8" | "int16" | "int32" | "int64":
            return LeafType("integer", _NUMBER, _signed(int(name.removeprefix("int"))))
        case "uint8" | "uint16" | "uint32" | "uint64":
            most: int = 2 ** int(name.removeprefix("uint")) - 1
            return LeafType("integer", _NUMBER, (0, most))
        case "float" | "double":
            return LeafType("float", _NUMBER)
        case "decimal":
            return LeafType("decimal", _NUMBER, arguments="digits")
        case "string":
            return LeafType("text", "'text' in single quotes")
        case "binary":
            return LeafType("bytes", "X'0aff'")
        case "fixed":
            return LeafType("bytes", "X'0aff'", arguments="length")
        case "date":
            return LeafType("date", "DATE '2026-01-31'", _signed(32))
        case "time":
            return LeafType("time", "TIME '12:30:00'", arguments="unit", units=_UNITS[1:])
        case "timestamp":
            example = "TIMESTAMP '2026-01-31 12:30:00'"
            return LeafType("timestamp", example, _signed(64), "unit", _UNITS)
        case "timestamptz":
            example = "TIMESTAMP '2026-01-31 12:30:00Z'"
            return LeafType("timestamp", example, _signed(64), "unit", _UNITS)


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


LEAF_TYPES: Mapping[LeafName, LeafType] = {name: _row(name) for name in get_args(LeafName)}
