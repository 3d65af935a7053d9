"""Columns of inspection tables: content, unit and how each is computed.

Promise: values of any type are shown as text, as SQL would write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from inlay.format.entry import ColumnStats
from inlay.format.schema import Primitive, Schema, Value
from inlay.parquet.arrow.types import to_arrow_scalar

T = TypeVar("T")

TIME = pa.timestamp("us", tz="UTC")
BOUNDS = pa.list_(
    pa.struct(
        [
            ("column", pa.string()),
            ("lower", pa.string()),
            ("upper", pa.string()),
            ("nulls", pa.int64()),
            ("exact", pa.bool_()),
        ]
    )
)
PARTITION = pa.list_(
    pa.struct([("name", pa.string()), ("transform", pa.string()), ("value", pa.string())])
)
COUNT = pa.int64()


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of an inspection table: its name, type, content, and how it is computed."""

    name: str
    type: pa.DataType
    doc: str
    of: Callable[[T], Any]


def table_of(columns: Sequence[Column[T]], rows: Iterable[T]) -> pa.Table:
    """One row for each of `rows`, in their order."""
    found = list(rows)
    schema = pa.schema([pa.field(c.name, c.type, metadata={"doc": c.doc}) for c in columns])
    arrays = [pa.array([c.of(row) for row in found], c.type) for c in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


def bounds_by_name(stats: Any, schema: Schema) -> list[dict[str, object]]:
    """Statistics by column name, in order of field id; dropped columns are left out."""
    found: list[dict[str, object]] = []
    for field_id, column in sorted(stats.items()):
        field = schema.by_id(field_id)
        path = schema.path_of(field_id)
        if field is None or path is None or not isinstance(field.type, Primitive):
            continue
        lower, upper = bounds_text(column, field.type)
        found.append(
            {
                "column": ".".join(path),
                "lower": lower,
                "upper": upper,
                "nulls": column.null_count,
                "exact": column.exact,
            }
        )
    return found


def bounds_text(column: ColumnStats, kind: Primitive) -> tuple[str | None, str | None]:
    """Both bounds as text; None where there is none."""
    kind = column.kind or kind
    lower, upper = (
        None if value is None else value_text(kind, value) for value in (column.lower, column.upper)
    )
    return lower, upper


def value_text(kind: Primitive, value: Value) -> str:
    """A value in physical form as text; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    scalar = to_arrow_scalar(kind, value)
    try:
        return str(scalar.as_py())
    except (ValueError, OverflowError):
        return str(scalar.cast(pa.string()).as_py())
