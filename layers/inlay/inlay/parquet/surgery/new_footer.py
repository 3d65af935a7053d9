"""The index and the footer of a rewritten file, with every offset in its new place.

Promise: `write_index` appends the bloom filters of edited groups and the column and offset indexes of all
that are left, and returns their footer entries; `new_tree` makes the footer from them, all else that is
known verbatim.
An offset of an unchanged group moves with the bytes it points at (`OffsetMap`), one of an edited group with
the place of the group; nothing else decides an offset. When erasing, the file's key-values lose what a
removed row may have set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inlay.errors import InlayError, UnsupportedFile
from inlay.parquet.footer.fields import (
    Chunk,
    File,
    Group,
    Meta,
    Physical,
)
from inlay.parquet.footer.footer import MAGIC, RECODE, ColumnChunk, Footer, RowGroup, is_text
from inlay.parquet.footer.layout import GroupFate, Layout, OffsetMap, Part, read_layout
from inlay.parquet.footer.pages import move_pages
from inlay.parquet.footer.thrift import STRUCT, Items, Struct
from inlay.parquet.read.ranges import RangeFile
from inlay.parquet.surgery.assemble import Assembly
from inlay.parquet.surgery.key_values import NOTHING_PLAIN, PandasType, erased_pairs
from inlay.parquet.surgery.row_group import NewChunk, NewGroup
from inlay.parquet.surgery.surviving_rows import GroupEditor
from inlay.parquet.surgery.unknown_fields import known_of_file
from inlay.plan.pruning.readings import names_any
from inlay.plan.surgery.multipart import MIB
from inlay.plan.surgery.positions import PositionMap
from inlay.storage.base import ByteRange

# Page indexes are held in memory as a whole while offsets are shifted.
MAX_INDEX_BYTES = 64 * MIB
MAX_ORDINAL = 2**15 - 1

# By group and leaf.
_Indexes = dict[tuple[int, int], bytes]


def write_index(
    new: Assembly, judge: GroupEditor, offsets: OffsetMap, places: Mapping[int, int]
) -> list[Struct]:
    """Appends bloom filters of edited groups and all column and offset indexes; returns the footer entries
    of the groups that are left, with all offsets in their new places."""
    footer = judge.footer
    left = [g for g in footer.row_groups if judge.fate(g.ordinal) is not GroupFate.DROPPED]
    column_indexes, offset_pages = _load_indexes(
        judge.old, judge.layout, footer.num_row_groups, judge.fate
    )
    groups: list[Struct] = []
    chunks: list[list[Struct]] = []
    offset_indexes: list[list[bytes | None]] = []
    tail = bytearray()
    for ordinal, group in enumerate(left):
        if group.ordinal in places:
            at = places[group.ordinal]
            edited = judge.edited[group.ordinal]
            trees = [_placed_chunk(chunk, at) for chunk in edited.chunks]
            for tree, chunk in zip(trees, edited.chunks, strict=True):
                if chunk.bloom is not None:
                    tree[Chunk.META][Meta.BLOOM] = new.size + len(tail)
                    tree[Chunk.META][Meta.BLOOM_LENGTH] = len(chunk.bloom)
                    tail += chunk.bloom
            offset_indexes.append(
                [_placed_index(chunk.offset_index, at) for chunk in edited.chunks]
            )
            groups.append(_edited_group(group, ordinal, edited, trees))
        else:
            columns = group.columns
            shifts = [_shift_of(chunk, offsets) for chunk in columns]
            trees = [
                _shifted_chunk(chunk, shift, offsets)
                for chunk, shift in zip(columns, shifts, strict=True)
            ]
            offset_indexes.append(
                [
                    _shifted_index(offset_pages.get((group.ordinal, leaf)), chunk, shift)
                    for leaf, (chunk, shift) in enumerate(zip(columns, shifts, strict=True))
                ]
            )
            groups.append(_shifted_group(group, ordinal, trees))
        chunks.append(trees)
    for group, trees in zip(left, chunks, strict=True):
        for leaf, tree in enumerate(trees):
            if group.ordinal in places:
                body = judge.edited[group.ordinal].chunks[leaf].column_index
            else:
                body = column_indexes.get((group.ordinal, leaf))
            _point_at(new.size, tail, tree, body, Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH)
    for trees, bodies in zip(chunks, offset_indexes, strict=True):
        for tree, body in zip(trees, bodies, strict=True):
            _point_at(new.size, tail, tree, body, Chunk.OFFSET_INDEX, Chunk.OFFSET_INDEX_LENGTH)
    new.add(tail)
    return groups


def _load_indexes(
    old: RangeFile, layout: Layout, groups: int, fate: Callable[[int], GroupFate]
) -> tuple[_Indexes, _Indexes]:
    """The column and the offset indexes of the untouched groups."""
    kinds = (Part.COLUMN_INDEX, Part.OFFSET_INDEX)
    stays = {group for group in range(groups) if fate(group) is GroupFate.STAYS}
    regions = [r for r in layout.regions if r.part in kinds and r.group in stays]
    total = sum(region.end - region.start for region in regions)
    if total > MAX_INDEX_BYTES:
        raise UnsupportedFile(
            f"the page index has {total} bytes, more than {MAX_INDEX_BYTES}", next_step=RECODE
        )
    regions.sort(key=lambda region: region.start)
    bodies = old.contents(ByteRange(region.start, region.end) for region in regions)
    found: tuple[_Indexes, _Indexes] = ({}, {})
    for region, (_, body) in zip(regions, bodies, strict=True):
        found[region.part is Part.OFFSET_INDEX][region.group, region.leaf] = body
    return found


def _point_at(
    base: int, tail: bytearray, tree: Struct, body: bytes | None, offset: int, length: int
) -> None:
    tree.pop(offset, None)
    tree.pop(length, None)
    if body is not None:
        tree[offset], tree[length] = base + len(tail), len(body)
        tail += body


# -- edited groups --------------------------------------------------------------------------------


def _placed_chunk(chunk: NewChunk, at: int) -> Struct:
    meta = dict(chunk.tree[Chunk.META])
    for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE):
        if key in meta:
            meta[key] += at
    return {**chunk.tree, Chunk.META: meta}


def _placed_index(index: bytes | None, at: int) -> bytes | None:
    return None if index is None else move_pages(index, at)


def _edited_group(old: RowGroup, ordinal: int, new: NewGroup, trees: list[Struct]) -> Struct:
    metas = [tree[Chunk.META] for tree in trees]
    tree: Struct = {
        Group.COLUMNS: Items(STRUCT, trees),
        Group.BYTES: sum(meta[Meta.UNCOMPRESSED] for meta in metas),
        Group.ROWS: new.rows,
    }
    if Group.SORTING in old.tree:
        tree[Group.SORTING] = old.tree[Group.SORTING]
    if Group.FILE_OFFSET in old.tree:
        tree[Group.FILE_OFFSET] = _first_page(trees)
    if Group.COMPRESSED in old.tree:
        tree[Group.COMPRESSED] = sum(meta[Meta.COMPRESSED] for meta in metas)
    _renumber(old, tree, ordinal)
    return tree


# -- untouched groups -----------------------------------------------------------------------------


def _shifted_chunk(chunk: ColumnChunk, shift: int, offsets: OffsetMap) -> Struct:
    meta = dict(chunk.meta)
    for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE, Meta.INDEX_PAGE):
        # An offset below the magic means "none"; any other keeps its distance to the data pages, so that
        # readers use or ignore it as before.
        if key in meta and meta[key] >= len(MAGIC):
            meta[key] += shift
    if chunk.bloom_offset is not None:
        moved = offsets.shift(chunk.bloom_offset)
        assert moved is not None, "a bloom filter of an untouched group was cut"
        meta[Meta.BLOOM] = chunk.bloom_offset + moved
    tree = {**chunk.tree, Chunk.META: meta}
    tree[Chunk.FILE_OFFSET] = _file_offset(chunk, shift, offsets)
    return tree


def _shift_of(chunk: ColumnChunk, offsets: OffsetMap) -> int:
    shift = offsets.shift(chunk.start)
    if shift is None:
        assert not chunk.compressed_size, "a column chunk of an untouched group was cut"
        return 0
    return shift


def _file_offset(chunk: ColumnChunk, shift: int, offsets: OffsetMap) -> int:
    """Deprecated: 0, the chunk's start or a copy of its metadata after it. If that is gone, 0."""
    old = chunk.tree.get(Chunk.FILE_OFFSET, 0)
    if old == 0:
        return 0
    if chunk.start <= old < chunk.end:
        return int(old + shift)
    moved = offsets.shift(old) if old == chunk.end else None
    return 0 if moved is None else int(old + moved)


def _shifted_index(body: bytes | None, chunk: ColumnChunk, shift: int) -> bytes | None:
    if body is None or not shift:
        return body
    return move_pages(body, shift, within=(chunk.start, chunk.end))


def _shifted_group(old: RowGroup, ordinal: int, trees: list[Struct]) -> Struct:
    tree = {**old.tree, Group.COLUMNS: Items(STRUCT, trees)}
    if Group.FILE_OFFSET in tree:
        tree[Group.FILE_OFFSET] = _first_page(trees)
    _renumber(old, tree, ordinal)
    return tree


def _first_page(trees: list[Struct]) -> int:
    return min((ColumnChunk(tree, tree[Chunk.META]).start for tree in trees[:1]), default=0)


def _renumber(old: RowGroup, tree: Struct, ordinal: int) -> None:
    tree.pop(Group.ORDINAL, None)
    if Group.ORDINAL in old.tree and ordinal <= MAX_ORDINAL:
        tree[Group.ORDINAL] = ordinal


# -- the footer -----------------------------------------------------------------------------------


def new_tree(
    footer: Footer,
    groups: list[Struct],
    judge: GroupEditor,
    rows: int,
    texts: frozenset[str],
    *,
    erase: bool,
) -> Struct:
    tree = {**known_of_file(footer.tree), File.ROWS: rows, File.GROUPS: Items(STRUCT, groups)}
    if erase and File.KEY_VALUES in tree:
        plain = pandas_types(footer) if judge.edited else NOTHING_PLAIN
        pairs = erased_pairs(tree[File.KEY_VALUES], texts, plain)
        tree[File.KEY_VALUES] = Items(STRUCT, pairs)
    if erase and names_any(tree.get(File.CREATED_BY, b""), texts):
        del tree[File.CREATED_BY]
    return tree


_PANDAS_TYPES: Mapping[Physical, PandasType] = {
    Physical.BOOLEAN: ("bool", "bool"),
    Physical.INT32: ("int32", "int32"),
    Physical.INT64: ("int64", "int64"),
    Physical.FLOAT: ("float32", "float32"),
    Physical.DOUBLE: ("float64", "float64"),
}


def pandas_types(footer: Footer) -> dict[str, PandasType]:
    """The types of each top-level column that is not a category, in pandas' metadata."""
    found: dict[str, PandasType] = {}
    for leaf in footer.leaves:
        element = footer.schema[leaf.element]
        other = ("unicode" if is_text(element) else "bytes", "object")
        found[leaf.path[0]] = _PANDAS_TYPES.get(leaf.type, other)
    return found


def must_be_sound(result: Footer, positions: PositionMap) -> None:
    """Checks the new file like any other file. A failure here is a defect of this module: it must stop the
    write, not become data."""
    try:
        read_layout(result)
    except InlayError as error:
        raise AssertionError(f"surgery made a bad file: {error}") from error
    assert result.num_rows == positions.new_rows, "surgery lost count of the rows"
