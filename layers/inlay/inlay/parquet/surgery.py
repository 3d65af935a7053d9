"""Row-group surgery: a Parquet object without some of its rows, at the price of those row groups.

Promise: `rewrite_object` writes a new object that holds the kept rows of every row group, in order;
groups it need not touch are byte for byte what they were, copied by the store itself. Schema, field
ids, key-values, `created_by` and unknown footer fields stay verbatim; every absolute offset, ordinal
and total is right. With `erase`, no byte of the new object comes from a removed row or from bytes that
nothing points at. A file it cannot do this for is refused (`UnsupportedFile`: rewrite it whole;
`UnreadableFile`: it is damaged), nothing is written, and the old object is never changed.

The steps:

1. footer    one GET of the end of the object, unless the caller has the footer
2. layout    every region the footer points at, proven sound (`layout`)
3. groups    for each group named: GET it, ask the caller which rows stay, write it anew (`edit`)
4. body      kept ranges and new groups, in file order (`assemble`)
5. index     column and offset indexes and new bloom filters, offsets shifted, in one run
6. footer    rebuilt on the old tree, checked against the layout rules like any other file's
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from inlay.errors import InlayError, ObjectGone, SourceChanged, UnreadableFile, UnsupportedFile
from inlay.parquet.assemble import SMALL_OBJECT_BYTES, Assembly, Source, Traffic
from inlay.parquet.edit import NewChunk, NewGroup, edit_group, profile_group
from inlay.parquet.fields import Chunk, File, Group, Meta, OffsetIndex, PageLocation
from inlay.parquet.footer import (
    MAGIC,
    RECODE,
    TRAILER_BYTES,
    ColumnChunk,
    Footer,
    RowGroup,
    decode_footer,
    footer_length,
    trailer,
)
from inlay.parquet.layout import (
    Fate,
    Kept,
    Layout,
    OffsetMap,
    Part,
    keep_pieces,
    read_layout,
)
from inlay.parquet.pages import BLOOM_HEADER_BYTES, bloom_length
from inlay.parquet.thrift import STRUCT, Items, Struct, ThriftError, decode_struct, encode_struct
from inlay.parquet.views import read_logical
from inlay.plan.parts import MIB, PartsError, Segment, borrowed_bytes, plan_parts
from inlay.plan.positions import PositionMap
from inlay.storage.base import Location, Missing, ObjectStore

# How much of the object's end is fetched when the footer is not at hand: a footer of a few hundred KB
# and the page index before it arrive in one request, and it is little beside any row group.
MIN_TAIL_BYTES = 64 * 1024
MAX_TAIL_BYTES = 512 * 1024
TAIL_SHARE = 1024
# Ranges of the old object this near to one another are fetched together: a request costs about as
# long as this many bytes.
MERGE_GAP_BYTES = 256 * 1024
# Page indexes are held in memory whole while offsets are shifted.
MAX_INDEX_BYTES = 64 * MIB
# One group is held whole: its bytes, its values and its new bytes.
MAX_GROUP_BYTES = 1024 * MIB
MAX_GROUP_VALUE_BYTES = 4 * MAX_GROUP_BYTES
MAX_ORDINAL = 2**15 - 1

KeepRows = Callable[[int, pa.Table], "pa.BooleanArray | pa.ChunkedArray | None"]
Progress = Callable[[str, int, int | None], None]


def _silent(what: str, done: int, total: int | None) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A new object. `positions` says where each old row went; `footer_size` has the trailer in it."""

    key: str
    etag: str
    size: int
    footer_size: int
    rows: int
    row_groups: int
    positions: PositionMap
    traffic: Traffic
    date_us: int
    footer: Footer


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """No row is left: nothing was written, the file may leave the table."""

    positions: PositionMap
    traffic: Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouched:
    """No row had to go: nothing was written, the old object stands."""

    positions: PositionMap
    traffic: Traffic


Outcome = Rewritten | Emptied | Untouched


def rewrite_object(
    store: ObjectStore,
    source: Location | str,
    key: str,
    *,
    etag: str,
    size: int,
    footer: Footer | None,
    keep: KeepRows,
    groups: Iterable[int],
    drop_groups: Iterable[int] = (),
    columns: Collection[str] | None = None,
    executor: Executor,
    erase: bool = False,
    progress: Progress = _silent,
) -> Outcome:
    """Write `source` without some of its rows as the new object `key`.

    For each row group in `groups`, `keep` is called, in file order, with its ordinal and a table of
    its top-level `columns` (None: all; none: an empty table; types by the Parquet annotations) and
    answers which rows stay: a boolean array without nulls, or None for no row at all. Groups in
    `drop_groups` go without being read. Everything is pinned to `etag`.

    Raises `UnsupportedFile`, `UnreadableFile`, `SourceChanged`, `ObjectGone`, and what `keep` raises;
    then no object was written. One of the at most nine requests that editing one group takes is a
    HEAD, for the metadata and headers that go with the new object. `executor` runs the parts: do not
    call this from one of its own tasks.
    """
    location = Location(store.scheme, store.bucket, source) if isinstance(source, str) else source
    reader = store if location.bucket == store.bucket else store.at(location.bucket)
    opened = Source(reader, location, size, etag, Traffic())
    wanted, dropped = set(groups), set(drop_groups)
    try:
        if size <= SMALL_OBJECT_BYTES:
            opened.hold(0, opened.read(0, size))
        footer = footer or _load_footer(opened)
        layout = _load_layout(opened, footer, sure=erase)
        for ordinal in wanted | dropped:
            if not 0 <= ordinal < footer.num_row_groups:
                raise ValueError(f"row group {ordinal} of {footer.num_row_groups}")
        judge = _Judge(opened, footer, layout, keep, wanted, dropped, columns, erase, progress)
        describe = partial(_description, opened)
        with Assembly(store, opened, key, executor, describe) as new:
            kept, places = _write_body(new, judge, erase=erase)
            positions = judge.positions()
            if positions.new_rows == 0:
                return Emptied(positions=positions, traffic=opened.traffic)
            if not judge.kept:
                return Untouched(positions=positions, traffic=opened.traffic)
            rebuilt = _write_index(new, judge, OffsetMap.of(kept), places)
            tree = _new_tree(footer, rebuilt, positions.new_rows)
            thrift = encode_struct(tree)
            new.add(thrift + trailer(len(thrift)))
            result = Footer(tree, new.size, len(thrift) + TRAILER_BYTES, footer.leaves)
            _must_be_sound(result, positions)
            written = new.finish()
    except InlayError as error:
        error.about(key=location.uri)
        raise
    return Rewritten(
        key=key,
        etag=written.etag,
        size=new.size,
        footer_size=result.length,
        rows=result.num_rows,
        row_groups=result.num_row_groups,
        positions=positions,
        traffic=opened.traffic,
        date_us=written.date_us,
        footer=result,
    )


# -- reading --------------------------------------------------------------------------------------


def _load_footer(source: Source) -> Footer:
    wanted = min(max(MIN_TAIL_BYTES, source.size // TAIL_SHARE), MAX_TAIL_BYTES, source.size)
    start = source.size - wanted
    tail = source.read(start, source.size)
    source.hold(start, tail)
    length = footer_length(tail)
    if length > len(tail) and length <= source.size:
        start = source.size - length
        tail = source.read(start, source.size)
        source.hold(start, tail)
    return decode_footer(tail, file_size=source.size)


def _load_layout(source: Source, footer: Footer, *, sure: bool) -> Layout:
    """The layout; with `sure`, bloom filters whose length is not told are asked for it."""
    layout = read_layout(footer)
    if not sure or not layout.unsure:
        return layout
    heads = [(at, min(at + BLOOM_HEADER_BYTES, footer.start)) for at in sorted(layout.unsure)]
    lengths = {}
    for (start, end), body in _read_spans(source, heads):
        lengths[start] = sum(bloom_length(body[: end - start]))
    return read_layout(footer, lengths)


def _description(source: Source) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The old object's metadata and headers, if it is still the one that was planned for."""
    source.traffic.add()
    head = source.store.head(source.location.key)
    if isinstance(head, Missing):
        raise ObjectGone("the object to rewrite is gone", key=source.location.key)
    if head.info.etag != source.etag:
        raise SourceChanged("the object to rewrite has changed", key=source.location.key)
    return head.info.metadata, head.info.headers


def _merge(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges near one another as one, ascending."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] <= MERGE_GAP_BYTES:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _read_spans(
    source: Source, ranges: Iterable[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Each range with its bytes, fetched together where they lie near one another."""
    wanted = sorted(ranges)
    spans = _merge(wanted)
    at = 0
    for start, end in spans:
        body = source.read(start, end)
        while at < len(wanted) and wanted[at][1] <= end:
            yield wanted[at], body[wanted[at][0] - start : wanted[at][1] - start]
            at += 1


@dataclass(slots=True)
class _Judge:
    """Decides the fate of row groups, one at a time, when asked; holds what edited groups became
    until they are placed. `kept` has the rows that stay of each group that lost some."""

    source: Source
    footer: Footer
    layout: Layout
    keep: KeepRows
    wanted: set[int]
    dropped: set[int]
    columns: Collection[str] | None
    erase: bool
    progress: Progress
    kept: dict[int, BitMap] = field(default_factory=dict)
    edited: dict[int, NewGroup] = field(default_factory=dict)
    _fates: dict[int, Fate] = field(default_factory=dict)

    def fate(self, ordinal: int) -> Fate:
        if ordinal not in self._fates:
            self._fates[ordinal] = self._decide(ordinal)
        return self._fates[ordinal]

    def positions(self) -> PositionMap:
        groups = self.footer.row_groups
        for group in groups:
            self.fate(group.ordinal)
        return PositionMap.of([group.num_rows for group in groups], self.kept)

    def _decide(self, ordinal: int) -> Fate:
        group = self.footer.row_groups[ordinal]
        named = ordinal in self.wanted or ordinal in self.dropped
        if not named or group.num_rows == 0:
            return Fate.STAYS
        if ordinal in self.dropped:
            self.kept[ordinal] = BitMap()
            return Fate.DROPPED
        self.progress("row groups", len(self._fates), len(self.wanted))
        body, moved = self._fetch(ordinal)
        profiles = profile_group(self.footer, group, body, moved)
        table = (
            pa.table({})
            if self.columns is not None and not self.columns
            else read_logical(self.footer, group, body, moved, self.columns)
        )
        mask = self.keep(ordinal, table)
        del table
        if mask is None:
            stays = 0
        else:
            _must_be_mask(mask, group.num_rows)
            stays = pc.sum(mask).as_py() or 0
        if stays == group.num_rows:
            return Fate.STAYS
        if mask is None or stays == 0:
            self.kept[ordinal] = BitMap()
            return Fate.DROPPED
        new = edit_group(self.footer, group, body, moved, mask, profiles, erase=self.erase)
        if new.rows != stays:
            raise AssertionError(f"{new.rows} rows written where {stays} stay")
        self.kept[ordinal] = positions_of(mask)
        self.edited[ordinal] = new
        return Fate.EDITED

    def _fetch(self, ordinal: int) -> tuple[bytes, list[int]]:
        """The group's chunks behind 4 bytes of magic, and how far each one moved for that."""
        chunks = self.footer.row_groups[ordinal].columns
        spans = _merge((chunk.start, chunk.end) for chunk in chunks if chunk.compressed_size)
        total = sum(end - start for start, end in spans)
        values = sum(chunk.uncompressed_size for chunk in chunks)
        if total > MAX_GROUP_BYTES or values > MAX_GROUP_VALUE_BYTES:
            raise UnsupportedFile(
                f"row group {ordinal} has {total} bytes, {values} uncompressed, more than surgery "
                f"holds in memory ({MAX_GROUP_BYTES}, {MAX_GROUP_VALUE_BYTES})",
                next_step=RECODE,
            )
        parts, shifts, at = [MAGIC], [], len(MAGIC)
        for start, end in spans:
            parts.append(self.source.read(start, end))
            shifts.append((start, end, at - start))
            at += end - start
        moved = [
            next((s for start, end, s in shifts if start <= chunk.start < end), 0)
            for chunk in chunks
        ]
        return b"".join(parts), moved


def _must_be_mask(mask: pa.BooleanArray | pa.ChunkedArray, rows: int) -> None:
    # A null would have to mean something. SQL's NULL is not TRUE, so the row stays; a keep-mask made by
    # negating a predicate says the opposite. Whoever makes the mask must decide.
    if not pa.types.is_boolean(mask.type) or len(mask) != rows or mask.null_count:
        raise ValueError(f"keep must answer {rows} booleans without nulls, not {mask.type}")


def positions_of(mask: pa.BooleanArray | pa.ChunkedArray) -> BitMap:
    """The positions at which a mask is true."""
    found = BitMap()
    offset = 0
    for chunk in mask.chunks if isinstance(mask, pa.ChunkedArray) else [mask]:
        true = pc.indices_nonzero(chunk)
        moved = pc.add(true, pa.scalar(offset, pa.uint64())).cast(pa.uint32())
        raw = array("I")
        raw.frombytes(memoryview(moved.buffers()[1])[: 4 * len(moved)])
        found |= BitMap(raw)
        offset += len(chunk)
    return found


# -- writing --------------------------------------------------------------------------------------


def _write_body(
    new: Assembly, judge: _Judge, *, erase: bool
) -> tuple[list[tuple[Kept, int]], dict[int, int]]:
    """Append everything before the index. Returns the kept ranges and the edited groups, each with
    the offset where it begins in the new file."""
    kept: list[tuple[Kept, int]] = []
    places: dict[int, int] = {}
    for piece in keep_pieces(judge.layout, judge.fate, erase=erase):
        if isinstance(piece, Kept):
            kept.append((piece, new.size))
            new.copy(piece.start, piece.end)
        else:
            places[piece.group] = new.size
            group = judge.edited[piece.group]
            # From here on the assembly alone holds the bytes, until it has sent them.
            judge.edited[piece.group] = replace(group, data=memoryview(b""))
            new.add(group.data)
    return kept, places


def _write_index(
    new: Assembly, judge: _Judge, offsets: OffsetMap, places: Mapping[int, int]
) -> list[Struct]:
    """Append bloom filters of edited groups and all column and offset indexes; returns the footer
    entries of the groups that are left, pointing at everything in its new place."""
    footer = judge.footer
    left = [g for g in footer.row_groups if judge.fate(g.ordinal) is not Fate.DROPPED]
    old = _load_indexes(judge.source, judge.layout, judge.fate)
    groups: list[Struct] = []
    chunks: list[list[Struct]] = []
    offset_indexes: list[list[bytes | None]] = []
    for ordinal, group in enumerate(left):
        if group.ordinal in places:
            at = places[group.ordinal]
            edited = judge.edited[group.ordinal]
            trees = [_placed_chunk(chunk, at) for chunk in edited.chunks]
            for tree, chunk in zip(trees, edited.chunks, strict=True):
                if chunk.bloom is not None:
                    tree[Chunk.META][Meta.BLOOM] = new.size
                    tree[Chunk.META][Meta.BLOOM_LENGTH] = len(chunk.bloom)
                    new.add(chunk.bloom)
            offset_indexes.append(
                [_placed_index(chunk.offset_index, at) for chunk in edited.chunks]
            )
            groups.append(_edited_group(group, ordinal, edited, trees))
        else:
            trees = [_shifted_chunk(chunk, offsets) for chunk in group.columns]
            offset_indexes.append(
                [
                    _shifted_index(
                        old.get((group.ordinal, leaf, Part.OFFSET_INDEX)), chunk, offsets
                    )
                    for leaf, chunk in enumerate(group.columns)
                ]
            )
            groups.append(_shifted_group(group, ordinal, trees))
        chunks.append(trees)
    for group, trees in zip(left, chunks, strict=True):
        for leaf, tree in enumerate(trees):
            if group.ordinal in places:
                body = judge.edited[group.ordinal].chunks[leaf].column_index
            else:
                body = old.get((group.ordinal, leaf, Part.COLUMN_INDEX))
            _point_at(new, tree, body, Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH)
    for trees, bodies in zip(chunks, offset_indexes, strict=True):
        for tree, body in zip(trees, bodies, strict=True):
            _point_at(new, tree, body, Chunk.OFFSET_INDEX, Chunk.OFFSET_INDEX_LENGTH)
    return groups


def _load_indexes(
    source: Source, layout: Layout, fate: Callable[[int], Fate]
) -> dict[tuple[int, int, Part], bytes]:
    """The column and offset indexes of the untouched groups, by group, leaf and kind."""
    regions = {
        (region.start, region.end): (region.group, region.leaf, region.part)
        for region in layout.regions
        if region.part in (Part.COLUMN_INDEX, Part.OFFSET_INDEX)
        and fate(region.group) is Fate.STAYS
    }
    total = sum(end - start for start, end in regions)
    if total > MAX_INDEX_BYTES:
        raise UnsupportedFile(
            f"the page index has {total} bytes, more than {MAX_INDEX_BYTES}", next_step=RECODE
        )
    return {regions[where]: body for where, body in _read_spans(source, regions)}


def _point_at(new: Assembly, tree: Struct, body: bytes | None, offset: int, length: int) -> None:
    tree.pop(offset, None)
    tree.pop(length, None)
    if body is not None:
        tree[offset], tree[length] = new.size, len(body)
        new.add(body)


# -- edited groups --------------------------------------------------------------------------------


def _placed_chunk(chunk: NewChunk, at: int) -> Struct:
    meta = dict(chunk.tree[Chunk.META])
    for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE):
        if key in meta:
            meta[key] += at
    return {**chunk.tree, Chunk.META: meta}


def _placed_index(index: Struct | None, at: int) -> bytes | None:
    return None if index is None else _move_pages(index, at)


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


def _shifted_chunk(chunk: ColumnChunk, offsets: OffsetMap) -> Struct:
    shift = _shift_of(chunk, offsets)
    meta = dict(chunk.meta)
    for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE, Meta.INDEX_PAGE):
        # An offset below the magic means "none"; any other keeps its distance to the data pages, so
        # that readers believe or disbelieve it as before.
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
    if not chunk.compressed_size:
        return offsets.shift(chunk.start) or 0
    shift = offsets.shift(chunk.start)
    assert shift is not None, "a column chunk of an untouched group was cut"
    return shift


def _file_offset(chunk: ColumnChunk, shift: int, offsets: OffsetMap) -> int:
    """Deprecated: 0, the chunk's start or a copy of its metadata behind it. Where that is gone, 0."""
    old = chunk.tree.get(Chunk.FILE_OFFSET, 0)
    if chunk.start <= old < chunk.end:
        return int(old + shift)
    moved = offsets.shift(old) if old == chunk.end else None
    return 0 if moved is None else int(old + moved)


def _shifted_index(body: bytes | None, chunk: ColumnChunk, offsets: OffsetMap) -> bytes | None:
    shift = _shift_of(chunk, offsets)
    if body is None or not shift:
        return body
    start, end = chunk.start, chunk.end
    try:
        index, _ = decode_struct(body)
        pages = [page[PageLocation.OFFSET] for page in index[OffsetIndex.PAGES]]
    except (ThriftError, KeyError, TypeError):
        raise UnreadableFile("an offset index is damaged") from None
    if pages and not (start <= min(pages) and max(pages) < end):
        raise UnreadableFile("an offset index points outside its column chunk")
    return _move_pages(index, shift)


def _move_pages(index: Struct, shift: int) -> bytes:
    moved = dict(index)
    moved[OffsetIndex.PAGES] = Items(
        STRUCT,
        [
            {**page, PageLocation.OFFSET: page[PageLocation.OFFSET] + shift}
            for page in index[OffsetIndex.PAGES]
        ],
    )
    return encode_struct(moved)


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


def _new_tree(footer: Footer, groups: list[Struct], rows: int) -> Struct:
    return {**footer.tree, File.ROWS: rows, File.GROUPS: Items(STRUCT, groups)}


def _must_be_sound(result: Footer, positions: PositionMap) -> None:
    """Hold the new file to what every file is held to. A failure here is a fault of this module: it
    must stop the write, not become somebody's data."""
    try:
        read_layout(result)
    except InlayError as error:
        raise AssertionError(f"surgery made a bad file: {error}") from error
    assert result.num_rows == positions.new_rows, "surgery lost count of the rows"


# -- what it will cost ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPlan:
    """What a rewrite will cost, told from the footer alone. New groups are taken to be as large as the
    old ones, so bytes up are an upper bound for most files."""

    requests: int
    downloaded: int
    uploaded: int
    copied: int


def plan_edit(
    footer: Footer,
    *,
    touched: Collection[int],
    dropped: Collection[int] = (),
    erase: bool = False,
) -> EditPlan:
    """The cost of `rewrite_object` with these `groups` and `drop_groups`, footer in hand. Raises what
    it would raise for a layout it cannot work on."""
    layout = read_layout(footer)

    def fate(ordinal: int) -> Fate:
        if ordinal in dropped:
            return Fate.DROPPED
        return Fate.EDITED if ordinal in touched else Fate.STAYS

    groups = footer.row_groups
    sizes = {g: groups[g].compressed_size for g in touched if g not in dropped}
    indexes = [
        region
        for region in layout.regions
        if region.part in (Part.COLUMN_INDEX, Part.OFFSET_INDEX)
        and fate(region.group) is not Fate.DROPPED
    ]
    stays = [(r.start, r.end) for r in indexes if fate(r.group) is Fate.STAYS]
    segments = [
        Segment(piece.end - piece.start, copy=True)
        if isinstance(piece, Kept)
        else Segment(sizes[piece.group], copy=False)
        for piece in keep_pieces(layout, fate, erase=erase)
    ]
    segments.append(Segment(sum(r.end - r.start for r in indexes) + footer.length, copy=False))
    total = sum(segment.length for segment in segments)
    if footer.file_size <= SMALL_OBJECT_BYTES:
        return EditPlan(requests=3, downloaded=footer.file_size, uploaded=total, copied=0)
    try:
        parts = plan_parts(segments)
    except PartsError as error:
        raise UnsupportedFile(str(error)) from None
    assert parts is not None
    borrowed = borrowed_bytes(segments, parts)
    spans = _merge(stays)
    return EditPlan(
        requests=3 + len(sizes) + len(spans) + len(parts) + (borrowed > 0),
        downloaded=sum(sizes.values()) + sum(end - start for start, end in spans) + borrowed,
        uploaded=sum(part.length for part in parts if not part.copy),
        copied=sum(part.length for part in parts if part.copy),
    )
