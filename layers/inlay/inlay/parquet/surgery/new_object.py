"""The new object of a rewrite: ranges of the old one and new bytes, the edited row groups among them, then
the index and the footer.

Promise: an `Assembly` writes the given pieces, in order, to a new key; the store copies what it already
holds, this process sends the rest, and downloads only what S3's part rules force it to borrow (all of it,
where the store copies no ranges). The object appears whole or not at all: any failure aborts the upload.
Every read and copy is pinned to the source's ETag.

Memory: at most `WINDOW_BYTES` of new bytes wait before the parts planned so far are sent, so an object
whose every piece is new passes through without being held.

Not for use inside a task of `executor` itself: parts wait for free threads there.

A `GroupEditor` reads a row group that is to change when its fate is first requested, checks its pages
against the footer, and keeps the edited group until it is placed. All of its parts are made from the rows
that stay, also where all do. One group is in memory at a time, besides the new bytes that wait to be
placed.

Index and footer have every offset in its new place: `write_index` appends the bloom filters of edited
groups and the column and offset indexes of all that are left, and returns their footer entries; `new_tree`
makes the footer from them, all else that is known verbatim. An offset of an unchanged group moves with the
bytes it points at (`OffsetMap`), one of an edited group with the place of the group; nothing else decides
an offset. When erasing, the file's key-values lose what a removed row may have set.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Self

from pyroaring import BitMap

from inlay.errors import InlayError, UnsupportedFile
from inlay.parquet.arrow.types import positions_array
from inlay.parquet.footer.fields import Chunk, File, Group, Meta, Physical
from inlay.parquet.footer.footer import MAGIC, RECODE, ColumnChunk, Footer, RowGroup, is_text
from inlay.parquet.footer.pages import GroupFate, Layout, OffsetMap, Part, move_pages, read_layout
from inlay.parquet.footer.thrift import STRUCT, Items, Struct
from inlay.parquet.read.deleted_rows import marks_at
from inlay.parquet.read.ranges import RangeFile, Source, merge_ranges
from inlay.parquet.surgery.key_values import (
    FILE_FIELDS,
    GROUP_FIELDS,
    NOTHING_PLAIN,
    PandasType,
    erased_pairs,
    known,
)
from inlay.parquet.surgery.row_group import (
    NewGroup,
    edit_group,
    profile_group,
)
from inlay.plan.parts import (
    MIB,
    PartsError,
    PlannedPart,
    Segment,
    plan_parts,
)
from inlay.plan.positions import PositionMap
from inlay.plan.pruning.mentions import names_any
from inlay.record import LATER, Mutable, field
from inlay.storage.base import ByteRange, Missing, ObjectStore, Written, version_of
from inlay.storage.rules import KEEPING_HEADERS
from inlay.storage.write_once import Multipart, no_wait, write_once

# Enough that parts go out in parallel, little enough for the smallest Lambda.
WINDOW_BYTES = 32 * MIB
# Parts of up to 64 MiB that are downloaded to be sent, where the store cannot copy them.
SENT_AT_ONCE = 2
# Below this, one GET and one PUT beat four requests of a multipart upload, whatever it would save.
ONE_PUT_BYTES = 8 * MIB


# A range of the old object, or new bytes.
_Piece = ByteRange | memoryview


def kept_headers(source: Source) -> Mapping[str, str]:
    """Those headers of the old object, if it is still the one that was planned for, that say how the store
    is to keep it: the others and its metadata may name rows."""
    with source.asking():
        head = source.store.head(source.key, **version_of(source.location))
    if isinstance(head, Missing):
        raise source.gone()
    if head.info.etag != source.etag:
        raise source.changed()
    return {name: v for name, v in head.info.headers.items() if name in KEEPING_HEADERS}


class Assembly(Mutable):
    """A new object under construction. Use as a context manager: leaving it by an exception aborts.

    `headers` is called once, before anything is written, for those of the new object.
    `size` counts what was added so far.
    """

    store: ObjectStore
    old: RangeFile
    key: str
    executor: Executor
    headers: Callable[[], Mapping[str, str]]
    window_bytes: int = WINDOW_BYTES
    before_retry: Callable[[int], None] = no_wait
    size: int = 0
    _pieces: list[_Piece] = field(default_factory=list)
    _waiting: int = 0
    _upload: Multipart = LATER

    def __post_init__(self) -> None:
        self._upload = Multipart(
            self.store,
            self.key,
            self.executor,
            headers=self.headers,
            # Of a store without copies every part is in memory, twice while it is joined.
            in_flight=None if self.store.copies_ranges else SENT_AT_ONCE,
            before_retry=self.before_retry,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._upload.abort()

    def copy(self, start: int, end: int) -> None:
        """Appends bytes `start` … `end - 1` of the source."""
        if start == end:
            return
        if not 0 <= start < end <= self.old.size:
            # S3 refuses such a range, but other stores clamp it and write a shorter object.
            raise ValueError(f"range {start}..{end} of an object of {self.old.size} bytes")
        if self.old.size <= ONE_PUT_BYTES:
            # S3 copies ranges only from objects over 5 MiB, and these are at hand anyway.
            self.add(self.old.content(ByteRange(start, end)))
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, ByteRange) and last.end == start:
            self._pieces[-1] = ByteRange(last.start, end)
        else:
            self._pieces.append(ByteRange(start, end))
        self.size += end - start

    def add(self, body: bytes | bytearray | memoryview) -> None:
        """Appends new bytes."""
        if not len(body):
            return
        self._pieces.append(memoryview(body))
        self.size += len(body)
        self._waiting += len(body)
        if self._waiting > self.window_bytes:
            self._send_window()

    def finish(self) -> Written:
        """Writes what is left and makes the object appear."""
        parts = self._plan(final=True)
        assert parts is not None
        small = self.size <= ONE_PUT_BYTES
        # Of a store without copies all parts are sent: one is a PUT, more would be too much at once.
        at_hand = len(parts) == 1 or self.store.copies_ranges
        at_hand &= not any(part.copy for part in parts)
        if not self._upload.begun and (small or at_hand):
            return write_once(
                self.store,
                self.key,
                self._gather(self._pieces),
                headers=self.headers(),
                before_retry=self.before_retry,
            )
        self._send(parts)
        return self._upload.finish(self.size)

    def _plan(self, *, final: bool) -> tuple[PlannedPart, ...] | None:
        copies = self.store.copies_ranges
        segments = [Segment(_length(p), copies and isinstance(p, ByteRange)) for p in self._pieces]
        try:
            return plan_parts(segments, final=final)
        except PartsError as error:
            raise UnsupportedFile(
                str(error), key=self.key, next_step="Rewrite it into several smaller files"
            ) from None

    def _send_window(self) -> None:
        """Sends everything that waits, though more will follow; unless it is too little for a part."""
        parts = self._plan(final=False)
        if parts is not None:
            self._send(parts)
            # Parts hold their bytes until they are sent: wait, or the window would bound nothing.
            self._upload.drain()

    def _send(self, parts: tuple[PlannedPart, ...]) -> None:
        pieces = self._pieces
        self._pieces, self._waiting = [], 0
        for part in parts:
            covered = _slice(pieces, part)
            if part.copy:
                (copied,) = covered
                source = self.old.source
                assert isinstance(copied, ByteRange) and source.etag is not None
                self._upload.copy(source.location, copied, source.etag)
            else:
                self._upload.send(partial(self._gather, covered))

    def _gather(self, pieces: list[_Piece]) -> bytes | memoryview:
        bodies = [p if isinstance(p, memoryview) else self.old.content(p) for p in pieces]
        return bodies[0] if len(bodies) == 1 else b"".join(bodies)


def _length(piece: _Piece) -> int:
    return piece.length if isinstance(piece, ByteRange) else len(piece)


def _slice(pieces: list[_Piece], part: PlannedPart) -> list[_Piece]:
    """The pieces that make bytes `part.start` … `part.end - 1` of this window."""
    cut: list[_Piece] = []
    at = 0
    for piece in pieces:
        start, end = max(part.start - at, 0), min(part.end - at, _length(piece))
        if start < end:
            cut.append(
                ByteRange(piece.start + start, piece.start + end)
                if isinstance(piece, ByteRange)
                else piece[start:end]
            )
        at += _length(piece)
    return cut


# One group is held whole: its bytes, its values and its new bytes.
MAX_GROUP_BYTES = 1024 * MIB
MAX_GROUP_VALUE_BYTES = 4 * MAX_GROUP_BYTES


class GroupEditor(Mutable):
    """Edits row groups, one at a time, on demand; holds them until they are placed. `kept` has the rows
    that stay of each group that is to change. `is_over`: groups were left unchanged for lack of time."""

    old: RangeFile
    footer: Footer
    layout: Layout
    kept: Mapping[int, BitMap]
    goes_on: Callable[[], bool]
    edited: dict[int, NewGroup] = field(default_factory=dict)
    _fates: dict[int, GroupFate] = field(default_factory=dict)
    _begun: int = 0
    is_over: bool = False

    def fate(self, ordinal: int) -> GroupFate:
        """What happens to a group, which is read and written again when this is first asked."""
        if ordinal in self._fates:
            return self._fates[ordinal]
        group, kept = self.footer.row_group(ordinal), self.kept.get(ordinal)
        fate = GroupFate.STAYS
        if kept is not None and group.num_rows:
            if not kept:
                fate = GroupFate.DROPPED
            elif not self._stops():
                fate = GroupFate.EDITED
                body, moved = self._fetch(ordinal)
                profiles = profile_group(self.footer, group, body, moved)
                mask = marks_at(positions_array(kept), group.num_rows).is_valid()
                new = edit_group(self.footer, group, body, moved, mask, profiles)
                if new.rows != len(kept):
                    raise AssertionError(f"{new.rows} rows written where {len(kept)} stay")
                self.edited[ordinal] = new
        self._fates[ordinal] = fate
        return fate

    def positions(self) -> PositionMap:
        """Once every group has its fate."""
        changed = {n: kept for n, kept in self.kept.items() if self.fate(n) is not GroupFate.STAYS}
        return PositionMap.of([group.num_rows for group in self.footer.row_groups], changed)

    def _stops(self) -> bool:
        """Whether there is no time for one more group."""
        self.is_over = self.is_over or (self._begun > 0 and not self.goes_on())
        self._begun += not self.is_over
        return self.is_over

    def _fetch(self, ordinal: int) -> tuple[bytes, list[int]]:
        """The group's chunks after 4 arbitrary bytes, and the resulting shift of each."""
        chunks = self.footer.row_group(ordinal).columns
        stored = (ByteRange(c.start, c.end) for c in chunks if c.compressed_size)
        spans = merge_ranges(stored, most=None)
        total = sum(span.length for span in spans)
        values = sum(chunk.uncompressed_size for chunk in chunks)
        if total > MAX_GROUP_BYTES or values > MAX_GROUP_VALUE_BYTES:
            raise UnsupportedFile(
                f"row group {ordinal} has {total} bytes, {values} uncompressed, more than surgery "
                f"holds in memory ({MAX_GROUP_BYTES}, {MAX_GROUP_VALUE_BYTES})",
                next_step=RECODE,
            )
        if not spans:
            return MAGIC, [0] * len(chunks)
        # Readers take offset 0 for "none". So the four bytes before the first chunk are read as well;
        # putting four of our own there would copy the whole group.
        spans = (ByteRange(spans[0].start - len(MAGIC), spans[0].end), *spans[1:])
        parts = [self.old.content(span) for span in spans]
        shifts, size = [], 0
        for span in spans:
            shifts.append((span, size - span.start))
            size += span.length
        moved = [
            next((s for span, s in shifts if span.start <= chunk.start < span.end), 0)
            for chunk in chunks
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts), moved


# Page indexes are held in memory as a whole while offsets are shifted.
MAX_INDEX_BYTES = 64 * MIB
MAX_ORDINAL = 2**15 - 1

# The bytes of an index of an untouched group, if it has one, by where that was.
_Indexes = Callable[[tuple[int, int] | None], bytes | None]


def write_index(
    new: Assembly, judge: GroupEditor, offsets: OffsetMap, places: Mapping[int, int]
) -> list[Struct]:
    """Appends bloom filters of edited groups and all column and offset indexes; returns the footer entries
    of the groups that are left, with all offsets in their new places."""
    footer = judge.footer
    remaining = [g for g in footer.row_groups if judge.fate(g.ordinal) is not GroupFate.DROPPED]
    indexes = _load_indexes(judge.old, judge.layout, judge.fate)
    groups: list[Struct] = []
    indexed: list[tuple[Struct, bytes | None, bytes | None]] = []  # column and offset index of each
    tail = bytearray()
    for ordinal, group in enumerate(remaining):
        trees: list[Struct] = []
        if group.ordinal in places:
            edited = judge.edited[group.ordinal]
            by = places[group.ordinal] - edited.start
            for new_chunk in edited.chunks:
                tree = {**new_chunk.tree, Chunk.META: _moved_meta(new_chunk.tree[Chunk.META], by)}
                if new_chunk.bloom is not None:
                    tree[Chunk.META][Meta.BLOOM] = new.size + len(tail)
                    tree[Chunk.META][Meta.BLOOM_LENGTH] = len(new_chunk.bloom)
                    tail += new_chunk.bloom
                pages = _moved_index(new_chunk.offset_index, by)
                trees.append(tree)
                indexed.append((tree, new_chunk.column_index, pages))
        else:
            for chunk in group.columns:
                start, end = chunk.start, chunk.end
                kept = offsets.shift(start)
                assert kept is not None or not chunk.compressed_size, "a kept column chunk was cut"
                shift = kept or 0
                tree = _shifted_chunk(chunk, (start, end), shift, offsets)
                pages = _moved_index(indexes(chunk.offset_index), shift, (start, end))
                trees.append(tree)
                indexed.append((tree, indexes(chunk.column_index), pages))
        groups.append(_group_tree(group, ordinal, trees, judge.edited.get(group.ordinal)))
    for tree, body, _ in indexed:
        _point_at(new.size, tail, tree, body, Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH)
    for tree, _, body in indexed:
        _point_at(new.size, tail, tree, body, Chunk.OFFSET_INDEX, Chunk.OFFSET_INDEX_LENGTH)
    new.add(tail)
    return groups


def _load_indexes(old: RangeFile, layout: Layout, fate: Callable[[int], GroupFate]) -> _Indexes:
    """The column and the offset indexes of the untouched groups."""
    kinds = (Part.COLUMN_INDEX, Part.OFFSET_INDEX)
    places = [
        ByteRange(region.start, region.end)
        for region in layout.regions
        if region.part in kinds and fate(region.group) is GroupFate.STAYS
    ]
    total = sum(place.length for place in places)
    if total > MAX_INDEX_BYTES:
        raise UnsupportedFile(
            f"the page index has {total} bytes, more than {MAX_INDEX_BYTES}", next_step=RECODE
        )
    starts = [place.start for place in places]
    bodies = [body for _, body in old.contents(places)]

    def index(place: tuple[int, int] | None) -> bytes | None:
        if place is None:
            return None
        start, end = place
        at = bisect_right(starts, start) - 1
        return bodies[at][start - starts[at] : end - starts[at]]

    return index


def _point_at(
    base: int, tail: bytearray, tree: Struct, body: bytes | None, offset: int, length: int
) -> None:
    if body is None:
        tree.pop(offset, None)
        tree.pop(length, None)
    else:
        tree[offset], tree[length] = base + len(tail), len(body)
        tail += body


# -- edited groups --------------------------------------------------------------------------------


def _moved_meta(meta: Struct, by: int) -> Struct:
    """The metadata of a chunk that is `by` bytes further in the new object. An offset below the magic means
    "none"; any other keeps its distance to the data pages, so that readers use or ignore it as before."""
    moved = dict(meta)
    for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE, Meta.INDEX_PAGE):
        if key in moved and moved[key] >= len(MAGIC):
            moved[key] += by
    return moved


def _moved_index(
    index: bytes | None, by: int, within: tuple[int, int] | None = None
) -> bytes | None:
    """An offset index of pages that are `by` bytes further in the new object."""
    if index is None or not by:
        return index
    return move_pages(index, by, within=within)


def _group_tree(
    old: RowGroup, ordinal: int, trees: list[Struct], edited: NewGroup | None
) -> Struct:
    """The entry of a group that is left; `edited`: written again, and what is not known here may be of
    rows that it had."""
    tree: Struct = {**old.tree, Group.COLUMNS: Items(STRUCT, trees)}
    if edited is not None:
        metas = [chunk[Chunk.META] for chunk in trees]
        tree = known(tree, GROUP_FIELDS)
        tree[Group.BYTES] = sum(meta[Meta.UNCOMPRESSED] for meta in metas)
        tree[Group.ROWS] = edited.rows
        if Group.COMPRESSED in tree:
            tree[Group.COMPRESSED] = sum(meta[Meta.COMPRESSED] for meta in metas)
    if Group.FILE_OFFSET in tree:
        first = ColumnChunk(trees[0], trees[0][Chunk.META]) if trees else None
        tree[Group.FILE_OFFSET] = 0 if first is None else first.start
    if tree.pop(Group.ORDINAL, None) is not None and ordinal <= MAX_ORDINAL:
        tree[Group.ORDINAL] = ordinal
    return tree


# -- untouched groups -----------------------------------------------------------------------------


def _shifted_chunk(
    chunk: ColumnChunk, place: tuple[int, int], shift: int, offsets: OffsetMap
) -> Struct:
    """The entry of a chunk that was at `place`."""
    meta = _moved_meta(chunk.meta, shift) if shift else chunk.meta
    if chunk.bloom_offset is not None:
        moved = offsets.shift(chunk.bloom_offset)
        assert moved is not None, "a bloom filter of an untouched group was cut"
        meta = {**meta, Meta.BLOOM: chunk.bloom_offset + moved}
    tree = {**chunk.tree, Chunk.META: meta}
    tree[Chunk.FILE_OFFSET] = _file_offset(chunk, place, shift, offsets)
    return tree


def _file_offset(chunk: ColumnChunk, place: tuple[int, int], shift: int, offsets: OffsetMap) -> int:
    """Deprecated: 0, the chunk's start or a copy of its metadata after it. If that is gone, 0."""
    old = chunk.tree.get(Chunk.FILE_OFFSET, 0)
    if old == 0:
        return 0
    start, end = place
    if start <= old < end:
        return int(old + shift)
    moved = offsets.shift(old) if old == end else None
    return 0 if moved is None else int(old + moved)


# -- the footer -----------------------------------------------------------------------------------


def new_tree(
    footer: Footer,
    groups: list[Struct],
    judge: GroupEditor,
    rows: int,
    texts: frozenset[str],
) -> Struct:
    tree = {**known(footer.tree, FILE_FIELDS), File.ROWS: rows, File.GROUPS: Items(STRUCT, groups)}
    if File.KEY_VALUES in tree:
        plain = pandas_types(footer) if judge.edited else NOTHING_PLAIN
        pairs = erased_pairs(tree[File.KEY_VALUES], texts, plain)
        tree[File.KEY_VALUES] = Items(STRUCT, pairs)
    if names_any(tree.get(File.CREATED_BY, b""), texts):
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
    types: dict[str, PandasType] = {}
    for leaf in footer.leaves:
        element = footer.schema[leaf.element]
        other = ("unicode" if is_text(element) else "bytes", "object")
        types[leaf.path[0]] = _PANDAS_TYPES.get(leaf.type, other)
    return types


def must_be_sound(result: Footer, positions: PositionMap) -> None:
    """Checks the new file like any other file. A failure here is a defect of this module: it must stop the
    write, not become data."""
    try:
        read_layout(result)
    except InlayError as error:
        raise AssertionError(f"surgery made a bad file: {error}") from error
    assert result.num_rows == positions.new_rows, "surgery lost count of the rows"
