"""Ingest: Parquet objects become data files, each exactly once.

Promise: however often an object's event is delivered, in whatever order and to however many functions at
once, its rows enter the table once; a source that cannot be ingested has its own outcome and does not
affect the others; one commit serves the whole batch (docs/FORMAT.md, section 9).

The copy is made on the server, byte for byte, pinned to the ETag that was checked. Copies whose event turns
out to be a duplicate are orphans, which garbage collection deletes.

A content is read at the version that its event names, so it counts even if the object has been overwritten
since; without a version id in the event, the content is then gone: `Superseded`. An object that is gone,
or whose current version is a delete marker, when its event is handled was taken back by its owner
(`TakenBack`): renamed and moved objects are, and their rows come in under the new name alone.

If the table is published, or `ingest.field_ids` is `stamp`, the copy gets a footer with the table's field
ids (`parquet.surgery.stamp`), unless it has them. An object in a layout that cannot be stamped is
rewritten, up to `ingest.split_bytes`; a larger one, or an adopted one, stays as it is.

CSV and JSON objects, where the table takes them (`ingest.formats`), are read and written as data files
(`ops.write.landed_text`), known by the same identity.

Where the table has a column of ordered categories and Arrow's C++ library (pyarrow, pandas, R) wrote it
as one, of texts, the dictionaries of its row groups are read, because they have all entries in their
order. Other writers list the entries as rows come, and a dictionary of numbers is not kept by Parquet:
these bring rows without an order.

Columns that only the names of an object's folders have (`month=2/`) are written into the copy, where the
table says so (property `ingest.folders`, `ops.write.folders`).

Times of old writers are held to what the table's column can hold (`parquet.read.old_times`); those stored
as INT96 for other columns than `timestamp(ns)`, or in a finer unit than the column's, are rewritten with
the object, or refused.

The statistics of the key columns are compared with the rows once, before the copy (property
`ingest.check_statistics`): from then on scans, upserts and deletes leave the file out by them. An object
whose statistics leave out a row of its own is rewritten; a larger or an adopted one is refused. With the
property `ingest.check_pages` all of its pages are read then, and a damaged one is refused.

In a partitioned table, an object whose footer proves that its rows are in one partition becomes a file of
that partition. One that spans several, or for which it is unknown, is read and rewritten, a file for each
partition, up to `ingest.split_bytes`. A larger one, or an adopted one, is kept whole as a file without
partition values, from which nothing is concluded. Compaction splits it, unless it is adopted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import pyarrow as pa

from inlay.errors import (
    ErrorKind,
    InlayError,
    InvalidRequest,
    ObjectGone,
    RequestTooOld,
    SchemaMismatch,
    SnapshotGone,
    SourceChanged,
    UnreadableFile,
    UnsupportedFile,
)
from inlay.format import keys
from inlay.format.entry import DataFile
from inlay.format.landing import HEAD_BYTES, LandedKind, LandedObject, TextKind, landed_object
from inlay.format.properties import is_published, listed
from inlay.format.snapshot import Snapshot
from inlay.notebook import Shown
from inlay.ops.cache import ObjectCache
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    Skipped,
    WriteResult,
    commit_planned,
    known_requests,
    write_result,
)
from inlay.ops.commit.group import commit_together
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.data import write_batches
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.read.check_pages import check_lists, check_pages, checks_pages
from inlay.ops.read.compare_statistics import NEXT_STEP, denied_rows
from inlay.ops.schema.alter import admit_columns, brings_columns
from inlay.ops.schema.categories import admit_file
from inlay.ops.server_copy import copy_object
from inlay.ops.write.append import IngestSource
from inlay.ops.write.content import Content
from inlay.ops.write.folders import Folders, folders_of, with_folders, without_required
from inlay.ops.write.landed_text import LandedText, TextRows, landed_kind, list_refused, rows_of
from inlay.parquet.arrow.declared import Declared, ordered_columns
from inlay.parquet.arrow.fits import check_declared, check_parquet_types
from inlay.parquet.arrow.types import paired, schema_to_arrow
from inlay.parquet.footer.footer import MAGIC, Footer
from inlay.parquet.footer.writers import Writer
from inlay.parquet.read.data_file import FooterOf, largest_group
from inlay.parquet.read.describe import (
    TAIL_BYTES,
    Described,
    doubted_lists,
    entry_of,
    parse_object_footer,
    partition_in,
    read_tail,
)
from inlay.parquet.read.old_times import NEXT_STEP as INT96_NEXT_STEP
from inlay.parquet.read.old_times import NO_TIMES, Times, as_table, check_times
from inlay.parquet.read.ranges import Cache, NoCache, Objects
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.read.unsized import largest_decoded, may_exceed
from inlay.parquet.surgery.residue import unused_entries
from inlay.parquet.surgery.stamp import stamp_object, stamped
from inlay.plan.change import AddFiles, Change, Request
from inlay.plan.pruning.compared import compared_columns
from inlay.plan.scan import FileTask
from inlay.record import Mutable, Record, field, replace
from inlay.storage.base import (
    NULL_VERSION,
    ByteRange,
    Got,
    Head,
    Location,
    Missing,
    ObjectStore,
    version_of,
)

if TYPE_CHECKING:
    from inlay.ops.write.apply_changes import ChangeCounts
    from inlay.ops.write.landed_changes import JudgedRows

T = TypeVar("T")

# A batch is copied again where another commit changed the columns or the key meanwhile, which is rare.
MAX_PLANS = 3
# Copies of one batch that the GC boundary may overtake.
MAX_UPLOADS = 3
# Memory of a decoded row group of an object that is read, in units of `ingest.split_bytes`: columns
# commonly take four times their stored size.
DECODED_SHARE = 4


class Ingested(Record):
    """`refused` records of a text are listed in the object `refused_key`, with their reasons. `changes`:
    what became of change records."""

    source: IngestSource
    rows: int
    refused: int = 0
    refused_key: str | None = None
    changes: ChangeCounts | None = None
    state: ClassVar[Literal["ingested"]] = "ingested"


class Duplicate(Record):
    """Applied before: nothing to do."""

    source: IngestSource
    state: ClassVar[Literal["duplicate"]] = "duplicate"


class Superseded(Record):
    """The object has been overwritten, and its bucket kept no version of this content: its rows are lost
    unless the newer content has them too."""

    source: IngestSource
    state: ClassVar[Literal["superseded"]] = "superseded"


class TakenBack(Record):
    """The object was deleted before its event was handled, as a copy under a temporary name is: its rows do
    not come in. `inlay landing` and the sweep leave it out, too."""

    source: IngestSource
    state: ClassVar[Literal["takenback"]] = "takenback"


class Rejected(Record):
    """Can never succeed: for the dead-letter queue, with the reason."""

    source: IngestSource
    error: InlayError
    state: ClassVar[Literal["rejected"]] = "rejected"


class Retry(Record):
    """May succeed later."""

    source: IngestSource
    error: InlayError
    state: ClassVar[Literal["retry"]] = "retry"


class Deferred(Record):
    """Not begun, because the batch's bytes or time were used up: pass it to the next batch."""

    source: IngestSource
    state: ClassVar[Literal["deferred"]] = "deferred"


# What became of one source; `state` tells them apart.
SourceOutcome = Ingested | Duplicate | Superseded | TakenBack | Rejected | Retry | Deferred


def not_ingested(source: IngestSource, error: InlayError | None = None) -> SourceOutcome:
    """The outcome of a source that failed with `error`, alone or with its batch, or was not begun."""
    if error is None:
        return Deferred(source)
    return (Retry if error.kind.is_retried else Rejected)(source, error)


class IngestResult(Record, Shown):
    """`outcomes` in the order of the sources; `write` is what was committed for the ingested ones."""

    outcomes: tuple[SourceOutcome, ...]
    write: WriteResult
    loaded: LoadedTable

    def _facts(self) -> Iterator[tuple[str, Any]]:
        for kind, number in Counter(type(outcome).__name__ for outcome in self.outcomes).items():
            yield kind.lower(), number
        yield from self.write._facts()


class _Seen(Record):
    """A source that was checked and may be copied."""

    source: IngestSource
    store: ObjectStore
    entry: DataFile
    etag: str
    modified_us: int
    spans: bool = False  # rows of several partitions, or of unknown ones
    stamp: tuple[Footer, Footer] | None = None  # its own footer, and the one with the table's ids
    recode: bool = False  # it should be stamped, but cannot be, or has times of another type
    times: Times = NO_TIMES  # its columns that are stored as INT96, or in a finer unit
    folders: Folders = field(default_factory=dict)  # columns that it lacks, by its folders' names
    # Its columns that can be read only if its statistics of them are true.
    unproven: frozenset[int] = frozenset()
    # Those that have to show that their lists can be told.
    lists: frozenset[str] = frozenset()
    group_bytes: int = 0  # its largest row group, decoded
    tail: FooterOf | None = None  # its footer as it was read; of a small object all of it
    orders: Mapping[int, int] = field(default_factory=dict)  # ordered categories: field id to leaf
    # The names its content is remembered by. An event without a version id names the current version by
    # its ETag only: an event of that version itself has the same content.
    names: tuple[Request, ...] = ()

    @property
    def in_place(self) -> DataFile:
        """Its entry as a file where it landed."""
        return replace(self.entry, key=self.source.location.uri, adopted=True, etag=self.etag)

    @property
    def size(self) -> int:
        return self.entry.size


class _SeenText(Record):
    """A text that is to be read, under the token of the event that it is remembered by."""

    source: IngestSource
    text: LandedText
    modified_us: int
    names: tuple[Request, ...]
    token: str

    @property
    def size(self) -> int:
        return self.text.content.size


class _Taken(Record):
    """The files of a source, and what of a text was refused."""

    files: tuple[DataFile, ...]
    refused: int = 0
    refused_key: str | None = None


class _Wider(Record):
    """A source with columns that the table lacks and is to get (property `schema.evolve`)."""

    arrow: pa.Schema


class _Budget(Record):
    """Limits for reading and rewriting; None means no limit."""

    cut_bytes: int | None
    deadline: float | None


class _Batch(Mutable):
    """The state of a batch on one base, by position in it: outcomes, and what is to be committed. `loaded`
    is the base; the table may have got columns meanwhile."""

    sources: Sequence[IngestSource]
    loaded: LoadedTable
    outcomes: dict[int, SourceOutcome] = field(default_factory=dict)
    seen: dict[int, _Seen | _SeenText] = field(default_factory=dict)
    wider: dict[int, _Wider] = field(default_factory=dict)
    entries: dict[int, _Taken] = field(default_factory=dict)

    def record(self, position: int, examined: SourceOutcome | _Seen | _SeenText | _Wider) -> None:
        if isinstance(examined, _Seen | _SeenText):
            self.seen[position] = examined
        elif isinstance(examined, _Wider):
            self.wider[position] = examined
        else:
            self.outcomes[position] = examined

    def change(self, adopt: bool) -> Change:
        return Change(
            operation="ingest",
            uploaded_us=None if adopt else self.loaded.date_us,
            events=tuple(name for p in self.entries for name in self.seen[p].names),
            updates=(
                # A file without rows is remembered, so that its event is not processed again, but not kept.
                AddFiles(
                    tuple(e for taken in self.entries.values() for e in taken.files),
                    {
                        e.key: self.seen[p].modified_us
                        for p, taken in self.entries.items()
                        for e in taken.files
                    },
                    frozenset(compared_columns(self.loaded.snapshot)),
                ),
            ),
        )

    def committed(self, done: Committed | Skipped) -> None:
        for position, taken in self.entries.items():
            names = {name.id for name in self.seen[position].names}
            was_known = bool(names & done.duplicates) or isinstance(done, Skipped)
            source = self.sources[position]
            rows = sum(e.rows for e in taken.files)
            self.outcomes[position] = (
                Duplicate(source)
                if was_known
                else Ingested(source, rows, taken.refused, taken.refused_key)
            )


def ingest(
    ctx: Context,
    sources: Sequence[IngestSource],
    *,
    adopt: bool = False,
    base: LoadedTable | None = None,
    cut_bytes: int | None = None,
    deadline_seconds: float | None = None,
) -> IngestResult:
    """Ingests a batch of objects. At most `cut_bytes` of them, and none after `deadline_seconds`, are read
    and rewritten, but always one; the others of that kind are `Deferred`. `adopt` leaves them where they
    are: the table then never deletes them, and their bytes must never change. Raises `StaleUpload` when the
    GC boundary overtakes MAX_UPLOADS copies: its grace is too short for this ingest."""
    loaded = base if base is not None else load_pointer(ctx)
    deadline = None if deadline_seconds is None else ctx.clock.monotonic() + deadline_seconds
    budget = _Budget(cut_bytes, deadline)
    if is_of_changes(loaded.snapshot):
        return _changes(ctx, sources, adopt, loaded, budget)
    batch = _Batch(sources, loaded)

    def plan(now: LoadedTable) -> Planned | None:
        nonlocal batch
        batch = _copied(ctx, sources, adopt, now, budget)
        return Planned(batch.change(adopt), batch.loaded) if batch.entries else None

    outcome = commit_planned(
        ctx, loaded, plan, plans=MAX_PLANS, uploads=MAX_UPLOADS, submit=commit_together
    )
    if batch.entries:
        batch.committed(outcome)
        write = write_result("ingest", outcome)
    else:
        outcome = Skipped(batch.loaded)
        write = WriteResult(
            operation="ingest", committed=False, version=outcome.loaded.snapshot.version
        )
    outcomes = tuple(batch.outcomes[n] for n in range(len(sources)))
    return IngestResult(outcomes, write, outcome.loaded)


def is_of_changes(snapshot: Snapshot) -> bool:
    """Whether what lands are change records."""
    return snapshot.settings.text("ingest.as") == "changes"


def _changes(
    ctx: Context, sources: Sequence[IngestSource], adopt: bool, loaded: LoadedTable, budget: _Budget
) -> IngestResult:
    """Applies the sources as change records, a commit for each or more; see `ops.write.landed_changes`."""
    from inlay.ops.write.landed_changes import apply_content

    batch, new = _begun(ctx, sources, loaded)
    last: Committed | Skipped = Skipped(batch.loaded)

    def apply(source: IngestSource) -> SourceOutcome:
        nonlocal last
        if adopt:
            raise UnsupportedFile(
                "a file of change records cannot be adopted: they are applied",
                next_step="Ingest it without adopting it, or set ingest.as=rows",
            )
        fetched = content_of(ctx, source, last.loaded.snapshot)
        if not isinstance(fetched, FoundContent):
            return fetched
        pinned, by_version, names = names_of(source, fetched.got)
        _, known = known_requests(ctx, last.loaded, names)
        if known:
            return Duplicate(pinned)
        try:
            applied = apply_content(
                ctx,
                fetched.content,
                fetched.text,
                last.loaded,
                by_version,
                names=names,
                identity=pinned.identity,
                landed_us=fetched.got.modified_us,
            )
        except SourceChanged:
            return Superseded(pinned)
        last = applied.outcome
        if isinstance(last, Skipped):
            return Duplicate(pinned)
        counts = applied.counts
        rows = counts.inserted + counts.updated
        return Ingested(pinned, rows, applied.refused, applied.refused_key, counts)

    spent = 0
    for position in new:
        source = sources[position]
        if spent and budget.deadline is not None and ctx.clock.monotonic() >= budget.deadline:
            batch.outcomes[position] = Deferred(source)
            continue
        spent += 1
        batch.outcomes[position] = _guarded(ctx, source, loaded.snapshot, apply)
    outcomes = tuple(batch.outcomes[n] for n in range(len(sources)))
    return IngestResult(outcomes, write_result("ingest", last), last.loaded)


def _copied(
    ctx: Context, sources: Sequence[IngestSource], adopt: bool, loaded: LoadedTable, budget: _Budget
) -> _Batch:
    """Checks every source and copies the new ones into the table."""
    batch, new = _begun(ctx, sources, loaded)
    batch.loaded = _look_at_all(ctx, batch, new, adopt)

    # Sources given without an ETag get their identity only now.
    _drop_known(ctx, batch)
    _check_rows(ctx, batch, adopt)
    compared = compared_columns(batch.loaded.snapshot)
    _learn_orders(ctx, batch)
    loaded = batch.loaded
    if compared_columns(loaded.snapshot) != compared:  # another key was set meanwhile
        _check_rows(ctx, batch, adopt)

    def take(item: tuple[int, _Seen | _SeenText]) -> tuple[int, SourceOutcome | _Taken]:
        position, seen = item
        return position, _guarded(
            ctx, seen.source, loaded.snapshot, lambda _: _taken(ctx, seen, adopt, loaded)
        )

    # Copies need no memory here; what has to be read, or split, is read one by one.
    reads = _policy(loaded.snapshot) != "keep"
    cut = {
        p
        for p, seen in batch.seen.items()
        if reads or isinstance(seen, _SeenText) or _is_cut(seen, adopt, loaded.snapshot)
    }
    copied = ctx.map(take, [item for item in batch.seen.items() if item[0] not in cut])
    rewritten = _within(ctx, budget, [(p, batch.seen[p]) for p in sorted(cut)], take)
    for position, taken in chain(copied, rewritten):
        if isinstance(taken, _Taken):
            batch.entries[position] = taken
        else:
            batch.outcomes[position] = taken
    return batch


def _begun(
    ctx: Context, sources: Sequence[IngestSource], loaded: LoadedTable
) -> tuple[_Batch, list[int]]:
    """A batch, and which of its sources are new by their names."""
    loaded, known = known_requests(ctx, loaded, [s.request for s in sources])
    batch = _Batch(sources, loaded)
    horizon_us = loaded.snapshot.ledger.horizon_us
    first: dict[str, int] = {}
    new: list[int] = []
    for position, source in enumerate(sources):
        twin = first.setdefault(source.identity, position)
        if source.request.id in known or (twin != position and source.etag is not None):
            batch.outcomes[position] = Duplicate(source)
        elif source.event_time_us is not None and source.event_time_us < horizon_us:
            too_old = RequestTooOld(
                "the event is older than this table's ledger reaches back",
                table=ctx.uri,
                key=source.location.key,
            )
            batch.outcomes[position] = Rejected(source, too_old)
        else:
            new.append(position)
    return batch, new


def _within(
    ctx: Context,
    budget: _Budget,
    items: Sequence[tuple[int, _Seen | _SeenText]],
    take: Callable[[tuple[int, _Seen | _SeenText]], tuple[int, SourceOutcome | _Taken]],
) -> Iterator[tuple[int, SourceOutcome | _Taken]]:
    """Takes one after the other, the first always, as long as bytes and time are left."""
    spent = 0
    for position, seen in items:
        size = seen.size
        full = budget.cut_bytes is not None and spent + size > budget.cut_bytes
        late = budget.deadline is not None and ctx.clock.monotonic() >= budget.deadline
        if spent and (full or late):
            yield position, Deferred(seen.source)
            continue
        spent += size
        yield take((position, seen))


def _look_at_all(ctx: Context, batch: _Batch, new: Sequence[int], adopt: bool) -> LoadedTable:
    """Decides by the objects themselves; the table may get columns by it."""
    sources, loaded = batch.sources, batch.loaded

    def look(positions: Sequence[int], table: Snapshot, extend: bool) -> None:
        def one(position: int) -> tuple[int, SourceOutcome | _Seen | _SeenText | _Wider]:
            source = sources[position]
            return position, _guarded(
                ctx, source, table, lambda s: _examine(ctx, s, table, extend, current=adopt)
            )

        for position, examined in ctx.map(one, positions):
            batch.record(position, examined)

    def extended(base: LoadedTable, position: int) -> LoadedTable:
        arrow = batch.wider.pop(position).arrow
        grown = _guarded(
            ctx, sources[position], base.snapshot, lambda _: admit_columns(ctx, base, [arrow])
        )
        if isinstance(grown, LoadedTable):
            return grown
        batch.outcomes[position] = grown
        return base

    look(new, loaded.snapshot, loaded.snapshot.settings.adds_columns)
    wider = list(batch.wider)
    for position in wider:
        loaded = extended(loaded, position)
    look([n for n in wider if n not in batch.outcomes], loaded.snapshot, False)
    return loaded


def _drop_known(ctx: Context, batch: _Batch) -> None:
    late = dict(batch.seen)
    _, known = known_requests(ctx, batch.loaded, [n for s in late.values() for n in s.names])
    names_before = set(known)
    for position, seen in late.items():
        names = {name.id for name in seen.names}
        if names & names_before:
            batch.outcomes[position] = Duplicate(seen.source)
            del batch.seen[position]
        names_before |= names


# What `inlay append` reads, by the end of a name.
_APPENDED = re.compile(r"\.(csv|tsv|json|jsonl|ndjson|arrow|feather)(\.\w{2,4})?$", re.IGNORECASE)


def identify(ctx: Context, location: Location, path: str, snapshot: Snapshot) -> LandedObject:
    """What an object is that was read in vain: by `path`, its name in the landing zone, and its first
    and last bytes (two requests)."""
    formats = listed(snapshot.settings.text("ingest.formats"))
    store = ctx.store if location.bucket == ctx.store.bucket else ctx.store.at(location.bucket)
    version = version_of(location)
    tail = store.get_suffix(location.key, HEAD_BYTES, **version)
    if isinstance(tail, Missing) or not tail.size:
        return landed_object(path, size=None if isinstance(tail, Missing) else 0)
    first = ByteRange(0, min(HEAD_BYTES, tail.size))
    head = store.get(location.key, byte_range=first, **version)
    begins = head.body if isinstance(head, Got) else None
    return landed_object(path, size=tail.size, head=begins, tail=tail.body, formats=formats)


def _refused(
    ctx: Context, source: IngestSource, snapshot: Snapshot, error: UnreadableFile
) -> UnreadableFile:
    """The error in words that say what the object is instead of Parquet."""
    try:
        identity = identify(ctx, source.content, source.location.key, snapshot)
    except InlayError:
        return error
    if identity.kind is not LandedKind.FOREIGN:
        return error
    text = _APPENDED.search(source.location.key)
    return UnreadableFile(
        f"not a Parquet file, but {identity.reason}, which is not ingested: landed files become data files "
        "as they are, in Parquet",
        next_step=f"Use inlay append TABLE FILE, which reads {text[1].upper()}"
        + (", or set ingest.formats" if text[1][:1] in "cCtTjJnN" else "")
        if text is not None
        else "Convert it to Parquet, or write it elsewhere",
    )


def _guarded(ctx: Context, source: IngestSource, snapshot: Snapshot, work):  # type: ignore[no-untyped-def]
    """One source's failure is its own."""
    try:
        return work(source)
    except InlayError as error:
        if isinstance(error, UnreadableFile):
            error = _refused(ctx, source, snapshot, error)
        error.about(table=ctx.uri, key=source.location.key)
        return not_ingested(source, error)


class FoundContent(Record):
    """The content that a source names: `got` is its end, with all of a Parquet file's footer. `kind`: as
    what text it is read if it is no Parquet."""

    store: ObjectStore
    location: Location
    kind: TextKind | None
    got: Got

    @property
    def text(self) -> TextKind | None:
        return None if self.got.body.endswith(MAGIC) else self.kind

    @property
    def content(self) -> Content:
        answer = self.got
        whole = answer.body if len(answer.body) == answer.size else None
        return Content(self.store, self.location, answer.etag, answer.size, whole)


def content_of(
    ctx: Context,
    source: IngestSource,
    snapshot: Snapshot | None,
    *,
    current: bool = False,
    own: bool = False,
) -> FoundContent | TakenBack | Superseded:
    """Reads the end of the object: whether it is still the one that is named. Without `snapshot`, that of
    the table which takes it, it is read as Parquet."""
    location = source.location if current else source.content
    if location.scheme != ctx.store.scheme:
        raise InvalidRequest(
            f"the object is on {location.scheme}://, the table on {ctx.store.scheme}://",
            next_step="Put the object on the table's store, or append its rows: "
            "t.append(pyarrow.parquet.read_table(PATH))",
        )
    if (
        not own
        and location.bucket == ctx.store.bucket
        and location.key.startswith(ctx.key(keys.DATA))
    ):
        raise InvalidRequest(
            "the object lies where the table's own data files are: its rows may be in the table already",
            next_step="Land files elsewhere. An engine's files are committed by its catalog: inlay serve "
            "ROOT --write",
        )
    store = ctx.store if location.bucket == ctx.store.bucket else ctx.store.at(location.bucket)
    kind = None if own or snapshot is None else landed_kind(location.key, snapshot)
    # S3 told of it: it may be gone since. A caller that names an object is told if it is.
    is_event = source.event_time_us is not None and not current
    answer = _tail_of_event(store, source, kind) if is_event else _end_of(store, location, kind)
    if answer is None:
        return TakenBack(source)
    if source.etag is not None and answer.etag != source.etag:
        return Superseded(source)
    if (
        None not in (source.version_id, answer.version_id)
        and answer.version_id != source.version_id
    ):
        return Superseded(source)
    return FoundContent(store, location, kind, answer)


def _examine(
    ctx: Context,
    source: IngestSource,
    snapshot: Snapshot,
    extend: bool = False,
    *,
    current: bool = False,
    own: bool = False,
) -> SourceOutcome | _Seen | _SeenText | _Wider:
    """Reads the footer and decides whether the object fits, or (`extend`) would if the table had more
    columns. `current`: only if the content is the object's current one, as an adopted file's must be.
    `own`: the caller has written it, so that the names of its folders mean nothing."""
    fetched = content_of(ctx, source, snapshot, current=current, own=own)
    if not isinstance(fetched, FoundContent):
        return fetched
    store, location, answer = fetched.store, fetched.location, fetched.got
    if fetched.text is not None:
        return _seen_text(source, fetched, fetched.text, current=current)
    described = parse_object_footer(answer.body, size=answer.size)
    check_declared(Declared.of(snapshot), described.arrow)
    group_bytes = largest_group(described.footer)
    folders: Folders = {}
    if not own:
        _check_group(group_bytes, snapshot)
        try:
            group_bytes = max(group_bytes, _unsized_bytes(fetched, described.footer, snapshot))
        except SourceChanged:
            return Superseded(source)
        _check_group(group_bytes, snapshot)
        folders = folders_of(location.key, described.arrow.names, snapshot)
    is_wider = extend and brings_columns(described.arrow, snapshot.schema)
    times = Times.of(described.footer, described.arrow, snapshot.schema, finer=True)
    entry, unproven = entry_of(
        described,
        key="",
        size=answer.size,
        schema=without_required(times.as_stored(snapshot.schema), folders),
        stats_columns=snapshot.stats_columns,
        extra_columns=is_wider,
    )
    if is_wider:  # and would fit: a refused file leaves the table unchanged
        check_parquet_types(described.metadata.schema)
        return _Wider(described.arrow)
    spec = snapshot.spec
    partition = partition_in(described, snapshot.schema, spec)
    entry = replace(entry, spec_id=spec.id, partition=partition or ())
    stamp, recode = None, times.rewrite or bool(folders)
    field_ids = snapshot.settings.text("ingest.field_ids")
    if field_ids == "stamp" or (field_ids == "auto" and is_published(snapshot.properties)):
        try:
            new = stamped(described.footer, snapshot.schema, foreign=True)
            stamp = None if new is described.footer else (described.footer, new)
        except UnsupportedFile:
            recode = True
    pinned, by_version, names = names_of(source, answer)
    return _Seen(
        pinned,
        store,
        replace(entry, event=by_version.token),
        answer.etag,
        answer.modified_us,
        spans=partition is None,
        stamp=stamp,
        recode=recode,
        times=times,
        folders=folders,
        unproven=unproven,
        lists=doubted_lists(described.footer),
        group_bytes=group_bytes,
        tail=described.footer_of(answer),
        orders=_ordered_leaves(described.arrow, snapshot) if _keeps_orders(described) else {},
        names=names,
    )


def _ordered_leaves(arrow: pa.Schema, snapshot: Snapshot) -> dict[int, int]:
    """By field id the leaves that both the file and the table have as ordered dictionaries. `arrow` is the
    file's schema as its writer left it beside the Parquet schema: a dictionary of texts or bytes."""
    ordered = ordered_columns(snapshot)
    if not ordered:
        return {}
    return {
        field.id: leaf
        for _, column, field, leaf in paired(arrow, snapshot.schema.fields)
        if field.id in ordered and pa.types.is_dictionary(column.type) and column.type.ordered
    }


def names_of(
    source: IngestSource, answer: Got
) -> tuple[IngestSource, Request, tuple[Request, ...]]:
    """The source by its ETag, its request by its version, and both names that it is remembered by."""
    pinned = replace(source, etag=answer.etag)
    version = answer.version_id if answer.version_id != NULL_VERSION else None
    by_version = replace(pinned, version_id=source.version_id or version).request
    return pinned, by_version, tuple({r.id: r for r in (pinned.request, by_version)}.values())


def _seen_text(
    source: IngestSource, fetched: FoundContent, kind: TextKind, *, current: bool
) -> _SeenText:
    if current:
        raise UnsupportedFile(
            f"a text ({kind.upper()}) is no data file, and cannot be adopted where it is",
            next_step="Ingest it without adopting it: its rows are written into the table",
        )
    pinned, by_version, names = names_of(source, fetched.got)
    text = LandedText(fetched.content, kind)
    return _SeenText(pinned, text, fetched.got.modified_us, names, by_version.token)


def _end_of(store: ObjectStore, location: Location, kind: TextKind | None) -> Got:
    """The end of the object, with all of a Parquet file's footer."""
    if kind is None:
        return read_tail(store, location)
    answer = store.get_suffix(location.key, TAIL_BYTES, **version_of(location))
    if isinstance(answer, Missing):
        raise ObjectGone(f"{location.uri} no longer exists", key=location.key)
    return read_tail(store, location) if answer.body.endswith(MAGIC) else answer


def _unsized_bytes(fetched: FoundContent, footer: Footer, snapshot: Snapshot) -> int:
    """Of the largest row group once decoded, where the footer does not say how much text it has; 0 where it
    says so."""
    limit = snapshot.settings.number("ingest.group_bytes")
    return (
        largest_decoded(fetched.content.opened(), footer, limit) if may_exceed(footer, limit) else 0
    )


def _keeps_orders(described: Described) -> bool:
    """Whether a dictionary page of texts is the dictionary that its writer was given."""
    return Writer.of(described.footer.created_by).name == "parquet-cpp-arrow"


def _learn_orders(ctx: Context, batch: _Batch) -> None:
    """The table gets the orders of categories that the objects bring. Those that contradict it are
    refused."""
    for position, seen in list(batch.seen.items()):
        if isinstance(seen, _SeenText) or not seen.orders:
            continue

        def learn(source: IngestSource, seen: _Seen = seen) -> LoadedTable | Superseded:
            reader = _outside(ctx, seen, ObjectCache())
            assert seen.tail is not None
            reader.objects.cache.put(seen.in_place.key, seen.tail, len(seen.tail.tail))
            try:
                return admit_file(ctx, batch.loaded, reader, seen.in_place, seen.orders)
            except (SnapshotGone, ObjectGone):
                raise ObjectGone(f"{source.location.uri} no longer exists") from None
            except SourceChanged:
                return Superseded(source)

        learnt = _guarded(ctx, seen.source, batch.loaded.snapshot, learn)
        if isinstance(learnt, LoadedTable):
            batch.loaded = learnt
        else:
            batch.record(position, learnt)
            del batch.seen[position]


def _check_group(group_bytes: int, snapshot: Snapshot) -> None:
    limit = snapshot.settings.number("ingest.group_bytes")
    if group_bytes > limit:
        raise UnsupportedFile(
            f"a row group takes {group_bytes >> 20:,} MiB of memory when decoded, more than the "
            f"{limit >> 20:,} of ingest.group_bytes: rewrites and erasures could not reach its rows",
            next_step="Write the file with smaller row groups",
        )


def _tail_of_event(store: ObjectStore, source: IngestSource, kind: TextKind | None) -> Got | None:
    """The end of the content that the event names; None where its owner took the object back. Most often
    it is the current one, so that one request tells both."""
    try:
        answer = _end_of(store, source.location, kind)
    except ObjectGone:
        if isinstance(store.head(source.location.key), Missing):
            return None
        return _end_of(store, source.content, kind)  # overwritten while it was read
    is_named = source.version_id in (None, answer.version_id)
    return answer if is_named else _end_of(store, source.content, kind)


class Inspected(Record):
    """The entry that an object would get, its key empty; `folders` are the ids of columns that its folders
    would give it, of which the entry knows nothing. A text has no entry before it is read."""

    entry: DataFile
    folders: frozenset[int]


class InspectedRecords(Record):
    """A text, or a file of change records: only reading it to its end says what it holds, and whether it
    is refused. Each reading begins anew."""

    rows: Callable[[], TextRows | JudgedRows]


def inspect_source(
    ctx: Context, source: IngestSource, snapshot: Snapshot
) -> Inspected | InspectedRecords | None:
    """None when the object's content is not the named one. Raises what makes `ingest` reject it."""
    inspected = _inspected(ctx, source, snapshot)
    if not isinstance(inspected, _Seen):
        return inspected
    folder_ids = frozenset(f.id for f in snapshot.schema.fields if f.name in inspected.folders)
    return Inspected(inspected.entry, folder_ids)


def _inspected(
    ctx: Context, source: IngestSource, snapshot: Snapshot
) -> _Seen | InspectedRecords | None:
    if is_of_changes(snapshot):
        from inlay.ops.write.landed_changes import judged_rows

        landed = content_of(ctx, source, snapshot)
        if not isinstance(landed, FoundContent):
            return None
        return InspectedRecords(partial(judged_rows, landed.content, landed.text, snapshot))
    examined = _examine(ctx, source, snapshot)
    if isinstance(examined, _SeenText):
        return InspectedRecords(partial(rows_of, examined.text, snapshot))
    return examined if isinstance(examined, _Seen) else None


def inspect_rows(ctx: Context, source: IngestSource, snapshot: Snapshot) -> InlayError | None:
    """Why `ingest` refuses an object that `inspect_source` lets pass: by its rows, or its size. It may
    run in a task of the executor."""
    own = replace(ctx, executor=InlineExecutor())
    try:
        inspected = _inspected(own, source, snapshot)
        if isinstance(inspected, InspectedRecords):
            for _ in inspected.rows().batches:
                pass
        elif inspected is not None:
            _checked(own, inspected, False, snapshot, compared_columns(snapshot))
    except InlayError as error:
        if error.kind.is_retried:
            raise
        return error if error.kind is ErrorKind.INPUT else None
    return None


def _taken(
    ctx: Context, seen: _Seen | _SeenText, adopt: bool, loaded: LoadedTable
) -> SourceOutcome | _Taken:
    if isinstance(seen, _SeenText):
        return _written(ctx, seen, loaded)
    taken = _take(ctx, seen, adopt, loaded)
    return _Taken(taken) if isinstance(taken, tuple) else taken


def _written(ctx: Context, seen: _SeenText, loaded: LoadedTable) -> Superseded | _Taken:
    """The rows of a text as data files. What was refused of it is listed before anything is committed."""
    try:
        rows = rows_of(seen.text, loaded.snapshot)
        files = tuple(write_batches(ctx, loaded.snapshot, rows.batches, time_us=loaded.date_us))
        key = list_refused(seen.text, seen.source.identity, rows.refused)
    except SourceChanged:
        return Superseded(seen.source)
    files = tuple(replace(entry, event=seen.token, own=True) for entry in files)
    return _Taken(files, len(rows.refused.listed), key)


def _take(
    ctx: Context, seen: _Seen, adopt: bool, loaded: LoadedTable
) -> SourceOutcome | tuple[DataFile, ...]:
    """Copies the object into the table (or adopts it in place). A file without rows makes no file."""
    if seen.entry.rows == 0:
        return ()
    if _has_unused_entries(ctx, seen, adopt, loaded.snapshot):
        seen = replace(seen, recode=True)
    if adopt:
        _refuse_of_a_table(ctx, seen.source.location)
        return (seen.in_place,)
    if _is_cut(seen, adopt, loaded.snapshot):
        return _split(ctx, loaded, seen)
    key = keys.data_key(loaded.date_us, ctx.new_id())
    if seen.stamp is not None:
        return _stamp(ctx, seen, key, *seen.stamp)
    try:
        copy_object(ctx, seen.source.content, ctx.key(key), size=seen.entry.size, etag=seen.etag)
    except SourceChanged:
        return Superseded(seen.source)
    return (replace(seen.entry, key=key),)


def _refuse_of_a_table(ctx: Context, location: Location) -> None:
    """Raises `InvalidRequest` for a file that a table calls its own: it deletes it when it no longer needs
    it, and its rows are those that the table's deletes leave. A request, for names that tables give."""
    root = keys.table_of(location.key)
    if root is not None and isinstance(
        ctx.store_at(location.bucket).head(root + keys.POINTER), Head
    ):
        raise InvalidRequest(
            f"the file is of the table at {replace(location, key=root).uri}, which deletes it when it no "
            "longer needs it",
            next_step="Append what a scan of that table returns, or make a table of it by `inlay copy` or "
            "`inlay clone`",
            key=location.key,
        )


def _check_rows(ctx: Context, batch: _Batch, adopt: bool) -> None:
    """Compares the objects' rows with what the table can hold and with what their footers say of them. One
    object after the other: a row group of a column is decoded at a time."""
    snapshot = batch.loaded.snapshot
    compared = compared_columns(snapshot)
    for position, seen in list(batch.seen.items()):
        if isinstance(seen, _SeenText):
            continue  # its values are read, and what they are is known
        doubts = (seen.times, seen.folders, seen.unproven, seen.lists)
        if not (any(doubts) or compared or checks_pages(snapshot)):
            continue

        def check(source: IngestSource, seen: _Seen = seen) -> _Seen | Superseded:
            try:
                return _checked(ctx, seen, adopt, snapshot, compared)
            except (SnapshotGone, ObjectGone):
                raise ObjectGone(f"{source.location.uri} no longer exists") from None
            except SourceChanged:
                return Superseded(source)

        checked = _guarded(ctx, seen.source, snapshot, check)
        batch.record(position, checked)
        if not isinstance(checked, _Seen):
            del batch.seen[position]


def _checked(
    ctx: Context, seen: _Seen, adopt: bool, snapshot: Snapshot, compared: Sequence[int]
) -> _Seen:
    """To be written again if its statistics leave out rows. Raises `UnsupportedFile`."""
    if seen.folders and not _is_cut(seen, adopt, snapshot):
        raise SchemaMismatch(
            f"the file lacks {', '.join(map(repr, seen.folders))}, which its folders name, and cannot be "
            f"written again: it is {'adopted' if adopt else 'larger than ingest.split_bytes'}",
            next_step="Write the columns into the file, or smaller files",
        )
    if seen.times:
        _check_times(ctx, seen, adopt, snapshot)
    reader, whole, schema = _outside(ctx, seen), seen.in_place, snapshot.schema
    task = FileTask(file=whole, schema=seen.times.read_as(schema), int96=seen.times.unit)
    check_lists(reader, task, seen.lists)
    compared = (*compared, *seen.unproven.difference(compared))
    # What is cut is read, and written with statistics of its own.
    if seen.entry.rows == 0 or _is_cut(seen, adopt, snapshot):
        return seen
    if checks_pages(snapshot):
        check_pages(reader, task)
    if not compared:
        return seen
    names = denied_rows(reader, whole, schema, schema, compared, footer=seen.tail)
    if names is None:
        return seen
    again = replace(seen, recode=True)  # with statistics of this library
    if _is_cut(again, adopt, snapshot):
        return again
    raise UnsupportedFile(
        f"its statistics leave out rows that it has (columns checked: {names})", next_step=NEXT_STEP
    )


def _check_times(ctx: Context, seen: _Seen, adopt: bool, snapshot: Snapshot) -> None:
    if seen.times.rewrite and not _is_cut(seen, adopt, snapshot):
        raise UnsupportedFile(
            f"column {seen.times.as_what}, and the file cannot be written again: it is "
            f"{'adopted' if adopt else 'larger than ingest.split_bytes'}",
            next_step=INT96_NEXT_STEP
            if seen.times.fields
            else "Write the column in the table's unit",
        )
    assert seen.tail is not None
    check_times(_outside(ctx, seen), seen.in_place, seen.times, seen.tail)


def _policy(snapshot: Snapshot) -> str:
    properties = snapshot.settings
    policy = properties.text("ingest.unused_dictionary_entries")
    if policy != "auto":
        return policy
    return "reencode" if properties.text("erasure.promised") == "yes" else "keep"


def _has_unused_entries(ctx: Context, seen: _Seen, adopt: bool, snapshot: Snapshot) -> bool:
    """Whether the file is to be rewritten because of values that only its dictionaries hold. Raises
    `UnsupportedFile` if the table refuses such files."""
    policy = _policy(snapshot)
    if policy == "keep" or (policy == "reencode" and adopt):
        return False
    opened = _outside(ctx, seen).open(FileTask(file=seen.in_place, schema=snapshot.schema))
    _, column = next(unused_entries(opened, ctx.executor), (0, None))
    if column is not None and policy == "refuse":
        raise UnsupportedFile(
            f"the dictionary of column {column} has entries that no row of the row group uses",
            next_step="Write it as plain values, or set ingest.unused_dictionary_entries to reencode",
        )
    return column is not None


def _outside(ctx: Context, seen: _Seen, cache: Cache | None = None) -> Reader:
    """Reads the object from the store, without the table's cache: unlike the table's own objects, this one
    may be overwritten."""
    source = seen.source
    versions = {} if source.version_id is None else {source.location.uri: source.version_id}
    cache = NoCache() if cache is None else cache
    return Reader(Objects(ctx.store, ctx.root, cache, versions), ctx.executor)


def _is_cut(seen: _Seen, adopt: bool, snapshot: Snapshot) -> bool:
    limit = snapshot.settings.number("ingest.split_bytes")
    # A few KB may decode to a GB, and row groups are decoded as a whole.
    fits = seen.entry.size <= limit and seen.group_bytes <= DECODED_SHARE * limit
    return (seen.spans or seen.recode) and not adopt and fits


def _stamp(
    ctx: Context, seen: _Seen, key: str, old: Footer, new: Footer
) -> Superseded | tuple[DataFile, ...]:
    """Writes the object into the table with a footer that has the table's field ids."""
    try:
        stamped = stamp_object(
            ctx.store,
            seen.source.content,
            ctx.key(key),
            etag=seen.etag,
            old=old,
            new=new,
            # This runs in a task of the executor: waiting for other tasks of it could block for ever.
            executor=InlineExecutor(),
            before_retry=ctx.back_off,
        )
    except (SnapshotGone, ObjectGone):
        raise ObjectGone(f"{seen.source.location.uri} no longer exists") from None
    except SourceChanged:
        return Superseded(seen.source)
    return (replace(seen.entry, key=key, size=stamped.size, footer_size=stamped.footer_size),)


def _split(ctx: Context, loaded: LoadedTable, seen: _Seen) -> Superseded | tuple[DataFile, ...]:
    """The rows of a landing object as files of their partitions."""
    whole, schema = seen.in_place, loaded.snapshot.schema
    read_by = without_required(seen.times.read_as(schema), seen.folders)
    projection = Projection(schema=read_by, columns=tuple(f.id for f in schema.fields))
    task = FileTask(file=whole, schema=read_by, int96=seen.times.unit)
    rows = _outside(ctx, seen).rows([task], projection)
    if seen.times:
        rows = as_table(rows, schema_to_arrow(without_required(schema, seen.folders)))
    if seen.folders:
        rows = with_folders(rows, schema_to_arrow(schema), seen.folders)
    try:
        files = tuple(write_batches(ctx, loaded.snapshot, rows, time_us=loaded.date_us))
    except (SnapshotGone, ObjectGone):
        raise ObjectGone(f"{whole.key} no longer exists") from None
    except SourceChanged:
        return Superseded(seen.source)
    if sum(entry.rows for entry in files) != whole.rows:
        raise UnreadableFile(f"{whole.key} does not have the rows that its footer states")
    return tuple(replace(entry, event=whole.event, own=True) for entry in files)


def take_over(
    ctx: Context, sources: Sequence[IngestSource], loaded: LoadedTable, *, event: str
) -> tuple[DataFile, ...]:
    """Objects that this caller has just written, as files of the table, uncommitted. `event` marks them as
    another writer's (`DataFile.is_foreign`). Raises for the first that cannot be a file of the table, also
    because its statistics leave out rows."""

    def overwritten(source: IngestSource) -> SourceChanged:
        location = source.location
        return SourceChanged(f"{location.uri} was overwritten", key=location.key)

    def look(source: IngestSource) -> _Seen:
        examined = _examine(ctx, source, loaded.snapshot, own=True)
        if not isinstance(examined, _Seen):
            raise overwritten(source)
        return examined

    def take(seen: _Seen) -> tuple[DataFile, ...]:
        taken = _take(ctx, seen, False, loaded)
        if not isinstance(taken, tuple):
            raise overwritten(seen.source)
        return taken

    compared = compared_columns(loaded.snapshot)

    # One after the other: a row group of a column is decoded at a time.
    seen = [_checked(ctx, s, False, loaded.snapshot, compared) for s in ctx.map(look, sources)]
    reads = _policy(loaded.snapshot) != "keep"
    read = [s for s in seen if reads or _is_cut(s, False, loaded.snapshot)]
    copied = ctx.map(take, [s for s in seen if s not in read])
    return tuple(replace(f, event=event) for files in chain(copied, map(take, read)) for f in files)
