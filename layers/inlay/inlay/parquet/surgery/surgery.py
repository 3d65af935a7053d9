"""Row-group surgery: a Parquet object without some of its rows, at the cost of the affected row groups.

Promise: `rewrite_object` writes a new object that holds the kept rows of every row group, in order;
unaffected groups are byte for byte the same, copied by the store itself. Schema, field ids, key-values and
`created_by` stay verbatim; every absolute offset, ordinal and total is correct. Fields of the footer
itself that the format does not define are left out: they may be about the old object's offsets. As an
erasure needs it, no byte of the new object comes from a removed row or from bytes that nothing points at,
and key-values known to hold bounds of rows lose them. A file that this is not possible for is refused
(`UnsupportedFile`: rewrite it whole; `UnreadableFile`: it is damaged), nothing is written, and the old
object is never changed.

The steps:

1. layout    every region the footer points at, proven sound (`footer.pages`)
2. groups    each group that is to change: GET it, write the rows that stay again (`row_group`)
3. body      kept ranges and new groups, in file order (`new_object`)
4. index     column and offset indexes and new bloom filters, offsets shifted, in one run
5. footer    rebuilt on the old tree, checked against the layout rules like any other file's
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor

from pyroaring import BitMap

from inlay.errors import InlayError, UnsupportedFile
from inlay.parquet.footer.footer import MAGIC, Footer, end_of_file
from inlay.parquet.footer.pages import (
    BLOOM_HEADER_BYTES,
    GroupFate,
    Layout,
    OffsetMap,
    Part,
    bloom_length,
    keep_pieces,
    read_layout,
)
from inlay.parquet.read.ranges import RangeFile, Source, merge_ranges
from inlay.parquet.surgery.new_object import (
    ONE_PUT_BYTES,
    Assembly,
    GroupEditor,
    kept_headers,
    must_be_sound,
    new_tree,
    write_index,
)
from inlay.plan.parts import PartsError, Segment, borrowed_bytes, plan_parts
from inlay.plan.positions import PositionMap
from inlay.plan.surgery import Cost
from inlay.record import Record, replace
from inlay.storage.base import ByteRange, Location, ObjectStore
from inlay.storage.write_once import no_wait


class Rewritten(Record, kw_only=True):
    """The new object. `positions` maps the old rows; `end` is its footer and what follows it, as they were
    written; `unfinished`: row groups were left unchanged because `goes_on` returned false."""

    etag: str
    size: int
    end: bytes
    positions: PositionMap
    footer: Footer
    unfinished: bool = False


def rewrite_object(
    store: ObjectStore,
    source: Location,
    key: str,
    *,
    etag: str,
    size: int,
    footer: Footer,
    kept: Mapping[int, BitMap],
    executor: Executor,
    texts: frozenset[str] = frozenset(),
    goes_on: Callable[[], bool] = lambda: True,
    before_retry: Callable[[int], None] = no_wait,
) -> Rewritten:
    """Write `source` without some of its rows as the new object `key`. At least one row stays.

    `kept` has, by ordinal, the rows that stay of each row group that is to change, counted from its first.
    One without any goes without being read; one of which all stay is written again, without what is in its
    dictionaries, bounds and filters and in no row. Everything is pinned to `etag`. `goes_on` is asked
    before each group that is written but the first: once it says no, the others stay as they are
    (`positions` has which). Key-values that name one of `texts` lose it (`surgery.key_values`), and gaps
    go, though no row has to.

    Raises `UnsupportedFile`, `UnreadableFile`, `SourceChanged`, `SnapshotGone`; then no object was
    written. One of the at most nine requests that editing one group takes is a
    HEAD, for the headers that go with the new object. `before_retry` is called before each
    further try to make it visible. `executor` runs the parts: do not
    call this from one of its own tasks.
    """
    reader = store if source.bucket == store.bucket else store.at(source.bucket)
    old = RangeFile(Source(reader, source.key, source.uri, size, etag, source.version_id), size)
    # Beside the first row group: waited for only once there is something to write.
    headers = executor.submit(kept_headers, old.source)
    try:
        if size <= ONE_PUT_BYTES:
            old.add([(0, old.content(ByteRange(0, size)))])
        layout = _load_layout(old, footer)
        judge = GroupEditor(old, footer, layout, kept, goes_on)
        with Assembly(store, old, key, executor, headers.result, before_retry=before_retry) as new:
            # Everything before the index: kept ranges and edited groups, each with its new offset.
            copied: list[tuple[ByteRange, int]] = []
            places: dict[int, int] = {}
            for piece in keep_pieces(layout, judge.fate):
                if isinstance(piece, ByteRange):
                    copied.append((piece, new.size))
                    new.copy(piece.start, piece.end)
                else:
                    places[piece.group] = new.size
                    group = judge.edited[piece.group]
                    # From here on only the assembly holds the bytes, until it has sent them.
                    judge.edited[piece.group] = replace(group, data=memoryview(b""))
                    new.add(group.data)
            positions = judge.positions()
            assert positions.new_rows, "a file without rows is not written"
            rebuilt = write_index(new, judge, OffsetMap.of(copied), places)
            tree = new_tree(footer, rebuilt, judge, positions.new_rows, texts)
            end = end_of_file(tree)
            new.add(end)
            result = Footer(tree, new.size, len(end), footer.leaves)
            must_be_sound(result, positions)
            written = new.finish()
    except InlayError as error:
        error.about(key=source.uri)
        raise
    return Rewritten(
        etag=written.etag,
        size=new.size,
        end=end,
        positions=positions,
        footer=result,
        unfinished=judge.is_over,
    )


# -- reading --------------------------------------------------------------------------------------


def _load_layout(old: RangeFile, footer: Footer) -> Layout:
    """The layout. The length of bloom filters is read where the footer lacks it."""
    layout = read_layout(footer)
    if not layout.unsure:
        return layout
    heads = (ByteRange(at, min(at + BLOOM_HEADER_BYTES, footer.start)) for at in layout.unsure)
    lengths = {place.start: sum(bloom_length(body)) for place, body in old.contents(heads)}
    return read_layout(footer, lengths)


# -- what it will cost ----------------------------------------------------------------------------


def plan_edit(
    footer: Footer,
    *,
    touched: Collection[int],
    dropped: Collection[int] = (),
    copies: bool = True,
) -> Cost:
    """The cost of `rewrite_object` with these `groups` and `drop_groups`, given the footer, where the store
    `copies` ranges or not. Raises what that would raise for an unsupported layout. New groups are assumed
    to be as large as the old ones, so bytes written are an upper bound for most files."""
    layout = read_layout(footer)

    def fate(ordinal: int) -> GroupFate:
        if ordinal in dropped:
            return GroupFate.DROPPED
        return GroupFate.EDITED if ordinal in touched else GroupFate.STAYS

    groups = footer.row_groups
    sizes = {g: groups[g].compressed_size for g in touched if g not in dropped}
    indexes = [
        region
        for region in layout.regions
        if region.part in (Part.COLUMN_INDEX, Part.OFFSET_INDEX)
        and fate(region.group) is not GroupFate.DROPPED
    ]
    stays = [ByteRange(r.start, r.end) for r in indexes if fate(r.group) is GroupFate.STAYS]
    pieces = list(keep_pieces(layout, fate))
    segments = [
        Segment(piece.length, copy=copies)
        if isinstance(piece, ByteRange)
        else Segment(sizes[piece.group], copy=False)
        for piece in pieces
    ]
    fetched = 0 if copies else sum(p.length for p in pieces if isinstance(p, ByteRange))
    segments.append(Segment(sum(r.end - r.start for r in indexes) + footer.length, copy=False))
    total = sum(segment.length for segment in segments)
    edited = sum(sizes.values())
    if footer.file_size <= ONE_PUT_BYTES:
        return Cost(3, footer.file_size, total, recoded_bytes=edited)
    try:
        parts = plan_parts(segments)
    except PartsError as error:
        raise UnsupportedFile(str(error)) from None
    assert parts is not None
    borrowed = borrowed_bytes(segments, parts)
    spans = merge_ranges(stays, most=None)
    index = sum(span.length for span in spans)
    return Cost(
        requests=3 + len(sizes) + len(spans) + len(parts) * (1 if copies else 2) + (borrowed > 0),
        read_bytes=edited + len(sizes) * len(MAGIC) + index + borrowed + fetched,
        written_bytes=sum(part.length for part in parts if not part.copy),
        copied_bytes=sum(part.length for part in parts if part.copy),
        recoded_bytes=edited,
    )
