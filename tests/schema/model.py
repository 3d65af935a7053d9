"""Rows by field, in plain Python: what a table must read as, whatever happened to its schema.

A field is a token that never changes; a schema change is applied to every row at once, which is what
readers must see although no file was changed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

EPOCH = datetime(1970, 1, 1)

# Each family from narrow to wide.
FAMILIES: tuple[tuple[pa.DataType, ...], ...] = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.uint8(), pa.int16(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.decimal128(5, 1), pa.decimal128(7, 2), pa.decimal128(12, 4)),
    (pa.date32(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns")),
    (pa.string(),),
    (pa.bool_(),),
)


@dataclass
class Leaf:
    token: int
    name: str
    type: pa.DataType
    wider: tuple[pa.DataType, ...] = ()
    nullable: bool = True


@dataclass
class Group:
    """A struct, or a list of structs."""

    token: int
    name: str
    members: list[Leaf]
    listed: bool = False
    nullable: bool = True


Column = Leaf | Group


@dataclass
class Model:
    columns: list[Column]
    rows: list[dict[int, Any]] = field(default_factory=list)

    def copy(self) -> Model:
        return copy.deepcopy(self)

    @property
    def leaves(self) -> list[Leaf]:
        return [c for c in self.columns if isinstance(c, Leaf)]

    @property
    def groups(self) -> list[Group]:
        return [c for c in self.columns if isinstance(c, Group)]

    def schema(self) -> pa.Schema:
        return pa.schema([arrow_field(c) for c in self.columns])

    def named(self) -> list[dict[str, Any]]:
        """The rows as a scan gives them."""
        return [named(self.columns, row) for row in self.rows]


def arrow_field(column: Column) -> pa.Field:
    if isinstance(column, Leaf):
        return pa.field(column.name, column.type, column.nullable)
    kind: pa.DataType = pa.struct([arrow_field(m) for m in column.members])
    if column.listed:
        kind = pa.list_(pa.field("element", kind))
    return pa.field(column.name, kind, column.nullable)


def named(columns: list[Column], row: dict[int, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column in columns:
        value = row.get(column.token)
        if isinstance(column, Leaf) or value is None:
            found[column.name] = value
        elif column.listed:
            found[column.name] = [_named_member(column, item) for item in value]
        else:
            found[column.name] = _named_member(column, value)
    return found


def _named_member(group: Group, item: dict[int, Any] | None) -> dict[str, Any] | None:
    return None if item is None else {m.name: item.get(m.token) for m in group.members}


def items_of(value: Any) -> list[dict[int, Any]]:
    """The structs in a group's value."""
    if value is None:
        return []
    return [item for item in (value if isinstance(value, list) else [value]) if item is not None]


def widened(value: Any, kind: pa.DataType) -> Any:
    """The value as a wider type reads."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind) and type(value) is date:
        return datetime(value.year, value.month, value.day)
    if pa.types.is_decimal(kind):
        return value.quantize(Decimal(1).scaleb(-kind.scale))
    return value


def sql(value: Any) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case float():
            return repr(value) + ("" if "e" in repr(value) or "." in repr(value) else ".0")
        case _:
            return str(value)


def day(n: int) -> date:
    return date(1970, 1, 1) + timedelta(days=n)
