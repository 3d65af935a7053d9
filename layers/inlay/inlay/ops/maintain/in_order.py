"""Rows in the order of their clustering: by columns in turn, or along a z-order curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from inlay.format.schema import Schema
from inlay.parquet.arrow.pieces import take_rows
from inlay.parquet.arrow.types import to_scalar
from inlay.plan.maintain.order import Order

# Rows of a batch that the writer gets at a time.
BATCH_ROWS = 131_072
_KEY_BITS = 64


def in_order(
    batches: Iterable[pa.RecordBatch], order: Order, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Batches of `schema` with their rows in `order`.

    `sort` orders them by the columns in turn, `zorder` by the bits of all columns interleaved, so that rows
    near each other in every column end up in few files (Morton, "A computer oriented geodetic data base",
    1966). NULL and NaN come last, as in Arrow. All rows are in memory at once: the caller bounds them
    (`compact.unit_bytes`).
    """
    held = list(batches)
    if not held:
        return
    table = pa.Table.from_batches(held)
    del held
    by_id = {field.id: field.name for field in schema.fields}
    names = [by_id[column] for column in order.columns]
    match order.kind:
        case "sort":
            # By place: Arrow reads a name that begins with a dot as a path.
            places = [table.schema.get_field_index(name) for name in names]
            indices = pc.sort_indices(table, sort_keys=[(place, "ascending") for place in places])
        case "zorder":
            indices = pc.sort_indices(morton(table.select(names)))
    # In parts: the whole sorted table would exist twice.
    yield from take_rows(table, indices, at_a_time=BATCH_ROWS)


def morton(columns: pa.Table) -> pa.UInt64Array:
    """The z-order key of each row: the bits of its ranks in the columns, interleaved from the highest.

    Ranks, not values: skew and type do not matter, and every column contributes equally.
    """
    bits = _KEY_BITS // columns.num_columns
    key = pa.nulls(columns.num_rows, pa.uint64()).fill_null(0)
    for position, column in enumerate(columns.itercolumns()):
        rank = _scaled_rank(column, bits)
        for bit in range(bits):
            one = pc.bit_wise_and(pc.shift_right(rank, _number(bit)), _number(1))
            place = bit * columns.num_columns + columns.num_columns - 1 - position
            key = pc.bit_wise_or(key, pc.shift_left(one, _number(place)))
    return key


def _scaled_rank(column: pa.ChunkedArray, bits: int) -> pa.UInt64Array:
    """Ranks from 0, spread over `bits` bits; equal values have one rank, which leaves room for as many rows
    as there are of them."""
    rank = pc.rank(column, sort_keys="ascending", tiebreaker="min")  # NULL and NaN at the end
    unit = (1 << min(bits, 32)) / max(len(rank), 1)
    spread = pc.multiply(pc.cast(pc.subtract(rank, _number(1)), pa.float64()), unit)
    return pc.cast(pc.floor(spread), pa.uint64(), safe=False)


def _number(value: int) -> pa.UInt64Scalar:
    return to_scalar(value, pa.uint64())
