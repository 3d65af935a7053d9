"""Finds NaN in what is written, and leaves out the bounds beside it (`footer.float_bounds`).

The table's own metadata keeps these bounds, and says that there is NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from inlay.parquet.footer.columns import leaf_count
from inlay.parquet.footer.fields import Chunk, Meta
from inlay.parquet.footer.float_bounds import without_bounds
from inlay.parquet.footer.footer import decode_footer, trailer


def nan_leaves(rows: pa.Table) -> Iterator[int]:
    """The leaf columns that have NaN; those within lists and maps, which nobody filters by, are not looked
    at."""
    first = 0
    for column in rows.columns:
        yield from _within(column, first)
        first += leaf_count(column.type)


def _within(column: pa.ChunkedArray, first: int) -> Iterator[int]:
    if pa.types.is_floating(column.type):
        if pc.any(pc.is_nan(column)).as_py():
            yield first
    elif pa.types.is_struct(column.type):
        for n in range(column.type.num_fields):
            child = pc.struct_field(column, [n])
            yield from _within(child, first)
            first += leaf_count(child.type)


def end_without_bounds(end: bytes, file_size: int, chunks: Collection[tuple[int, int]]) -> bytes:
    """The end of a file, which has its page indexes and its footer, without the bounds of the (row group,
    leaf) in `chunks`, also in the column indexes."""
    footer = decode_footer(end, file_size=file_size)
    groups = footer.row_groups
    found = (groups[group].column(leaf).column_index for group, leaf in chunks)
    gone = sorted(place for place in found if place is not None)
    new = without_bounds(footer, chunks)
    for group in new.row_groups:
        for chunk in group.columns:
            for tree, key in (
                (chunk.tree, Chunk.COLUMN_INDEX),
                (chunk.tree, Chunk.OFFSET_INDEX),
                (chunk.meta, Meta.BLOOM),
            ):
                if key in tree:
                    tree[key] -= sum(stop - start for start, stop in gone if start < tree[key])
    # What lies between, and before the footer.
    starts = (file_size - len(end), *(stop for _, stop in gone))
    stops = (*(start for start, _ in gone), footer.start)
    kept = (end[a - starts[0] : b - starts[0]] for a, b in zip(starts, stops, strict=True))
    thrift = new.encode()
    return b"".join(kept) + thrift + trailer(len(thrift))
