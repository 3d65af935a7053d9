"""Bounds of floats beside NaN, which Parquet leaves out of them.

To DuckDB and Daft NaN is above all numbers, as it is to Inlay. All the same they conclude from bounds that
a chunk has no row above the upper one, and leave out rows with NaN. So chunks that have NaN get no bounds,
as parquet-mr and DuckDB write them; of another writer's, chunks that may have some.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from inlay.parquet.footer.fields import Chunk, File, Group, Meta, Physical, Stats
from inlay.parquet.footer.footer import Footer, decode_footer, end_of_file
from inlay.parquet.footer.thrift import Items, Struct, unpack
from inlay.record import replace

# They write no bounds beside NaN.
_CAREFUL = ("parquet-mr", "duckdb")
_BOUNDS = frozenset(
    {Stats.OLD_MIN, Stats.OLD_MAX, Stats.MIN, Stats.MAX, Stats.MIN_EXACT, Stats.MAX_EXACT}
)


def doubtful(footer: Footer) -> Iterator[tuple[int, int]]:
    """The (row group, leaf) of a file of another writer whose bounds may stand beside NaN."""
    if (footer.created_by or "").lower().startswith(_CAREFUL):
        return
    floats = [n.index for n in footer.leaves if n.type in (Physical.FLOAT, Physical.DOUBLE)]
    for group in footer.row_groups if floats else ():
        for leaf in floats:
            chunk = group.column(leaf)
            bounded = not _BOUNDS.isdisjoint(chunk.statistics or ())
            if bounded or chunk.column_index is not None:
                yield group.ordinal, leaf


def without_bounds(footer: Footer, chunks: Collection[tuple[int, int]]) -> Footer:
    """A footer of the same data without the bounds of these (row group, leaf), nor the places of their
    column indexes. Its length is not known until it is encoded."""
    old = footer.tree[File.GROUPS]
    groups = Items(old.element, old)
    for ordinal in {group for group, _ in chunks}:
        columns = old[ordinal][Group.COLUMNS]
        leaves = {leaf for group, leaf in chunks if group == ordinal}
        new = (_bare(tree) if n in leaves else tree for n, tree in enumerate(columns))
        kept = Items(columns.element, new)
        groups[ordinal] = {**old[ordinal], Group.COLUMNS: kept}
    return replace(footer, tree={**footer.tree, File.GROUPS: groups})


def end_without_bounds(end: bytes, file_size: int, chunks: Collection[tuple[int, int]]) -> bytes:
    """The end of a file, which has its page indexes and its footer, without the bounds of the (row group,
    leaf) in `chunks`, also in the column indexes."""
    footer = decode_footer(end, file_size=file_size)
    groups = footer.row_groups
    indexes = (groups[group].column(leaf).column_index for group, leaf in chunks)
    indexed = sorted(place for place in indexes if place is not None)
    new = without_bounds(footer, chunks)
    for group in new.row_groups:
        for chunk in group.columns:
            for tree, key in (
                (chunk.tree, Chunk.COLUMN_INDEX),
                (chunk.tree, Chunk.OFFSET_INDEX),
                (chunk.meta, Meta.BLOOM),
            ):
                if key in tree:
                    tree[key] -= sum(stop - start for start, stop in indexed if start < tree[key])
    # What is between them, and before the footer.
    starts = (file_size - len(end), *(stop for _, stop in indexed))
    stops = (*(start for start, _ in indexed), footer.start)
    kept = (end[a - starts[0] : b - starts[0]] for a, b in zip(starts, stops, strict=True))
    return b"".join((*kept, end_of_file(new.tree)))


def _bare(tree: Struct) -> Struct:
    index = (Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH)
    bare = {key: value for key, value in tree.items() if key not in index}
    meta: Struct = dict(tree[Chunk.META])
    if Meta.STATISTICS in meta:
        statistics = unpack(meta[Meta.STATISTICS])
        meta[Meta.STATISTICS] = {k: v for k, v in statistics.items() if k not in _BOUNDS}
    bare[Chunk.META] = meta
    return bare
