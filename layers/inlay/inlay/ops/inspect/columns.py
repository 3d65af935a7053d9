"""Columns of inspection tables: name, type and content.

Promise: values of any type are shown as text, as SQL would write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from inlay.format.entry import ColumnStats
from inlay.format.schema import Primitive, Schema, Value
from inlay.parquet.arrow.types import to_arrow_scalar
from inlay.text.written import moment_text

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


Row = Mapping[str, object]


def columns(*described: tuple[str, pa.DataType, str]) -> pa.Schema:
    """The schema of an inspection table: the name, type and content (`doc`) of each column."""
    return pa.schema([pa.field(n, kind, metadata={"doc": doc}) for n, kind, doc in described])


def table_of(schema: pa.Schema, rows: Iterable[Row]) -> pa.Table:
    """One row for each of `rows`, in their order. Each has a value for every column."""
    records = list(rows)
    named = zip(schema.names, schema.types, strict=True)
    arrays = [pa.array([row[name] for row in records], kind) for name, kind in named]
    return pa.Table.from_arrays(arrays, schema=schema)


def bounds_by_name(stats: Mapping[int, ColumnStats], schema: Schema) -> list[dict[str, object]]:
    """Statistics by column name, in order of field id; dropped columns are left out."""
    bounds: list[dict[str, object]] = []
    for field_id, column in sorted(stats.items()):
        field = schema.by_id(field_id)
        path = schema.path_of(field_id)
        if field is None or path is None or not isinstance(field.type, Primitive):
            continue
        kind = column.kind or field.type
        lower, upper = column.lower, column.upper
        bounds.append(
            {
                "column": ".".join(path),
                "lower": None if lower is None else value_text(kind, lower),
                "upper": None if upper is None else value_text(kind, upper),
                "nulls": column.null_count,
                "exact": column.exact,
            }
        )
    return bounds


def value_text(kind: Primitive, value: Value) -> str:
    """A value in physical form as text; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    try:
        return str(to_arrow_scalar(kind, value).as_py())
    except (ValueError, OverflowError):  # Python, or Arrow, has no such date or time
        if kind.name in ("date", "timestamp", "timestamptz"):
            return moment_text(int(str(value)), kind.unit, zoned=kind.name == "timestamptz")
        return str(to_arrow_scalar(kind, value).cast(pa.string()).as_py())
