"""What a table takes over from a caller's rows before the rows: new columns, orders of categories."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from inlay.ops.context import Context
from inlay.ops.data import reader_of
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.arrow.declared import ordered_columns


def admit_rows(ctx: Context, loaded: LoadedTable, data: Any) -> tuple[LoadedTable, Any]:
    """The table with the columns and orders that the data brings, and the data, as by `admit_orders`."""
    if loaded.snapshot.settings.adds_columns:
        from inlay.ops.schema.alter import admit_columns  # few tables take columns from data

        # Only a table or batch can be inspected before it is read.
        data = data if isinstance(data, pa.Table | pa.RecordBatch) else reader_of(data)
        loaded = admit_columns(ctx, loaded, [data.schema])
    return admit_orders(ctx, loaded, data)


def admit_orders(ctx: Context, loaded: LoadedTable, data: Any) -> tuple[LoadedTable, Any]:
    """`ops.schema.categories.admit_orders`, which a table without ordered categories need not load."""
    if not ordered_columns(loaded.snapshot):
        return loaded, data
    from inlay.ops.schema import categories

    return categories.admit_orders(ctx, loaded, data)
