"""A table as a Polars LazyFrame, so that only what a query needs is read.

Promise: the rows are those of a scan, deletes applied. Polars applies its predicate itself; the part of it
that `ops.read.polars_predicate` understands is only used to prune. What is not understood costs bytes,
never rows.

Ordered categories of texts are an `Enum`, which compares by their order, as the table does not: so nothing
is pruned by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from inlay.format.predicate import TRUE
from inlay.format.schema import Schema
from inlay.ops.read.dataset import MakeScan
from inlay.ops.read.frames import as_enums
from inlay.ops.read.polars_predicate import implied

if TYPE_CHECKING:
    import polars as pl


def lazy_frame(make_scan: MakeScan, schema: Schema) -> pl.LazyFrame:
    """A LazyFrame that reads the columns, rows and first rows that its query asks for."""
    from polars.io.plugins import register_io_source

    whole = make_scan()
    orders = whole.text_orders
    plain = Schema(
        schema.id, tuple(f for f in schema.fields if f.name not in orders), schema.version
    )

    def source(
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        names = whole.schema.names if with_columns is None else with_columns
        needed = dict.fromkeys(names)
        if predicate is not None:
            needed.update(dict.fromkeys(predicate.meta.root_names()))
        scan = make_scan(
            columns=list(needed) or [whole.schema.names[0]],
            where=TRUE if predicate is None else implied(predicate, plain),
            limit=n_rows if predicate is None else None,
            eager=n_rows is None,
        )
        remaining = n_rows
        for batch in scan.to_reader():
            frame = as_enums(pa.Table.from_batches([batch]), orders)
            if predicate is not None:
                frame = frame.filter(predicate)
            if names:
                frame = frame.select(names)
            if remaining is not None:
                frame = frame.head(remaining)
                remaining -= frame.height
            yield frame
            if remaining == 0:
                return

    # Not empty_table(), which cannot make arrays of every type.
    empty = as_enums(pa.Table.from_batches([], whole.schema), orders)
    return register_io_source(source, schema=empty.schema)
