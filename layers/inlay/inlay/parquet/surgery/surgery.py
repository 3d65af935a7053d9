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
2. groups    for each group named: GET it, ask the caller which rows stay, write it again (`row_group`)
3. body      kept ranges and new groups, in file order (`new_object`)
4. index     column and offset indexes and new bloom filters, offsets shifted, in one run
5. footer    rebuilt on the old tree, checked against the layout rules like any other file's
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from inlay.errors import InlayError, UnsupportedFile
from inlay.parquet.footer.footer import MAGIC, Footer, end_of_file
from inlay.parquet.footer.pages import (
    BLOOM_HEADER_BYTES,
    GroupFate,
    Layout,
    OffsetMap,
    Part,
    bloom_length,
    find_gaps,
    keep_pieces,
    read_layout,
)
from inlay.parquet.read.ranges import RangeFile, Source, merge_ranges
from inlay.parquet.surgery.key_values import named_by_file, unknown_of_file
from inlay.parquet.surgery.new_object import (
    ONE_PUT_BYTES,
    Assembly,
    GroupEditor,
    KeepRows,
    description,
    must_be_sound,
    new_tree,
    write_index,
)
from inlay.plan.parts import PartsError, Segment, borrowed_bytes, plan_parts
from inlay.plan.positions import PositionMap
from inlay.plan.surgery import Cost
from inlay.storage.base import ByteRange, Location, ObjectStore
from inlay.storage.write_once import no_wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The new object. `positions` maps the old rows; `end` is its footer and what follows it, as they were
    written; `unfinished`: row groups were left unchanged because `goes_on` returned false."""

    etag: str
    size: int
    end: bytes
    positions: PositionMap
    footer: Footer
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """No row is left: nothing was written, the file may leave the table."""

    positions: PositionMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Untouched:
    """No row had to be removed: nothing was written, the old object stays."""

    positions: PositionMap


Outcome = Rewritten | Emptied | Untouched


def rewrite_object(
    store: ObjectStore,
    source: Location | str,
    key: str,
    *,
    etag: str,
    size: int,
    footer: Footer,
    keep: KeepRows,
    groups: Iterable[int],
    drop_groups: Iterable[int] = (),
    executor: Executor,
    recode: Collection[int] = (),
    texts: frozenset[str] = frozenset(),
    goes_on: Callable[[], bool] = lambda: True,
    before_retry: Callable[[int], None] = no_wait,
) -> Outcome:
    """Write `source` without some of its rows as the new object `key`.

    For each row group in `groups`, `keep` is called, in file order, with its ordinal, and answers which
    rows stay: a boolean array without nulls. Groups in `drop_groups` go without being read. Everything is
    pinned to `etag`. `goes_on` is asked before each of `groups` but the first: once it says no, the others
    stay as they are (`positions` has which).

    Groups of `recode`, which are among `groups`, are rewritten even if all of their rows stay: without
    what is in their dictionaries, bounds and filters and in no row. Key-values that name one of `texts`
    lose it (`surgery.key_values`), and gaps go, though no row has to.

    Raises `UnsupportedFile`, `UnreadableFile`, `SourceChanged`, `SnapshotGone`, and what `keep` raises;
    then no object was written. One of the at most nine requests that editing one group takes is a
    HEAD, for the metadata and headers that go with the new object. `before_retry` is called before each
    further try to make it visible. `executor` runs the parts: do not
    call this from one of its own tasks.
    """
    location = Location(store.scheme, store.bucket, source) if isinstance(source, str) else source
    reader = store if location.bucket == store.bucket else store.at(location.bucket)
    old = RangeFile(
        Source(reader, location.key, location.uri, size, etag, location.version_id), size
    )
    edited, dropped = set(groups), set(drop_groups)
    # Beside the first row group: waited for only once there is something to write.
    described = executor.submit(description, old.source)
    try:
        if 0 < size <= ONE_PUT_BYTES:
            old.add([(0, old.content(ByteRange(0, size)))])
        layout = _load_layout(old, footer)
        for ordinal in edited | dropped:
            if not 0 <= ordinal < footer.num_row_groups:
                raise ValueError(f"row group {ordinal} of {footer.num_row_groups}")
        judge = GroupEditor(
            old,
            footer,
            layout,
            keep,
            edited,
            dropped,
            goes_on,
            frozenset(recode),
        )
        names = _names(footer, layout, texts)
        with Assembly(
            store, old, key, executor, described.result, before_retry=before_retry
        ) as new:
            # Everything before the index: kept ranges and edited groups, each with its new offset.
            kept: list[tuple[ByteRange, int]] = []
            places: dict[int, int] = {}
            for piece in keep_pieces(layout, judge.fate):
                if isinstance(piece, ByteRange):
                    kept.append((piece, new.size))
                    new.copy(piece.start, piece.end)
                else:
                    places[piece.group] = new.size
                    group = judge.edited[piece.group]
                    # From here on only the assembly holds the bytes, until it has sent them.
                    judge.edited[piece.group] = replace(group, data=memoryview(b""))
                    new.add(group.data)
            positions = judge.positions()
            if positions.new_rows == 0:
                return Emptied(positions=positions)
            if not judge.kept and not names:
                return Untouched(positions=positions)
            rebuilt = write_index(new, judge, OffsetMap.of(kept), places)
            tree = new_tree(footer, rebuilt, judge, positions.new_rows, texts)
            end = end_of_file(tree)
            new.add(end)
            result = Footer(tree, new.size, len(end), footer.leaves)
            must_be_sound(result, positions)
            written = new.finish()
    except InlayError as error:
        error.about(key=location.uri)
        raise
    return Rewritten(
        etag=written.etag,
        size=new.size,
        end=end,
        positions=positions,
        footer=result,
        unfinished=judge.is_over,
    )


def _names(footer: Footer, layout: Layout, texts: frozenset[str]) -> bool:
    """Whether the file may name one of `texts` beside its row groups."""
    if not texts:
        return False
    gaps = any(gap.group is None for gap in find_gaps(footer, layout))
    unknown = bool(unknown_of_file(footer.tree))
    return gaps or unknown or any(goes for _, goes in named_by_file(footer.tree, texts))


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
