"""Ingest: Parquet objects become data files, each exactly once.

Promise: however often an object's event is delivered, in whatever order and to however many functions
at once, its rows enter the table once; a source that cannot be ingested is told from the others by its
own outcome and harms none of them; one commit serves the whole batch (docs/FORMAT.md, section 9).

The copy is made on the server, byte for byte, pinned to the ETag that was looked at. Copies whose
event turns out to be a duplicate are orphans: garbage collection takes them.

A content is read at the version that its event names, so that it counts although the object has been
overwritten or deleted since. Of an event without a version id the content is gone by then: `Superseded`.

Where the table is published, or `ingest.field_ids` is `stamp`, the copy gets a footer with the table's
field ids (`parquet.surgery.stamp`), unless it has them. An object in a layout that cannot be stamped is
written anew, up to `ingest.split_bytes`; a larger one, or one that is adopted, stays as it is.

Of a partitioned table, an object whose footer shows that its rows lie in one partition becomes a file of
that partition. One that spans several, or does not tell, is read and written anew, a file for each
partition, up to `ingest.split_bytes`. A larger one, or one that is adopted, is kept whole as a file
without partition values: nothing is concluded from where it lies. Compaction cuts it, unless it is adopted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import pyarrow as pa

from inlay.errors import (
    InlayError,
    InvalidRequest,
    Kind,
    ObjectGone,
    RequestTooOld,
    SnapshotGone,
    SourceChanged,
    StaleUpload,
    UnreadableFile,
    UnsupportedFile,
)
from inlay.format import keys
from inlay.format.entry import DataFile
from inlay.format.properties import Properties, is_published
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import Committed, Skipped, expect_committed
from inlay.ops.commit.group import commit_together
from inlay.ops.commit.idempotency import known_requests
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.data.copy import copy_object
from inlay.ops.data.data_files import write_batches
from inlay.ops.metadata.load import Loaded, load_pointer
from inlay.ops.result import WriteResult, write_result
from inlay.ops.schema.alter import adds_columns, admit_columns, brings_columns
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.footer.decoded_size import largest_group
from inlay.parquet.footer.footer import Footer
from inlay.parquet.read.describe import describe, entry_of, partition_in, read_tail
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import Wanted, open_file, read_file
from inlay.parquet.surgery.residue import unused_entries
from inlay.parquet.surgery.stamp import stamp_object, stamped
from inlay.plan.change import Change, Request
from inlay.plan.pruning.partitions import current_spec
from inlay.plan.scan.scan import FileTask
from inlay.storage.base import Location, Missing, ObjectStore, Refused
from inlay.storage.metered import Usage

T = TypeVar("T")

# Fresh uploads after the GC boundary overtook this batch's copies.
MAX_UPLOADS = 3
# What a decoded row group of an object that is read may take, in `ingest.split_bytes`: columns are
# commonly stored in a quarter of what they take decoded.
DECODED_SHARE = 4


@dataclass(frozen=True, slots=True)
class Source:
    """One object to ingest, as an event or a caller names it. `event_time_us` is S3's eventTime."""

    location: Location
    etag: str | None = None
    version_id: str | None = None
    event_time_us: int | None = None

    @property
    def identity(self) -> str:
        """Bucket, key and content: with versioning the version id, else the ETag (docs/design/design.md,
        section 8)."""
        return f"{self.location.uri}@{self.version_id or self.etag}"

    @property
    def content(self) -> Location:
        """Where the content lies that the event names: at its version, overwritten since or not."""
        return replace(self.location, version_id=self.version_id)

    @property
    def request(self) -> Request:
        return Request.of(self.identity, time_us=self.event_time_us)


@dataclass(frozen=True, slots=True)
class Ingested:
    source: Source
    rows: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Applied before: nothing to do."""

    source: Source


@dataclass(frozen=True, slots=True)
class Superseded:
    """The object has been overwritten, and its bucket kept no version of this content: its rows are
    lost unless the newer content has them too."""

    source: Source


@dataclass(frozen=True, slots=True)
class Rejected:
    """Can never succeed: for the dead-letter queue, with the reason."""

    source: Source
    error: InlayError


@dataclass(frozen=True, slots=True)
class Retry:
    """May succeed later."""

    source: Source
    error: InlayError


@dataclass(frozen=True, slots=True)
class Deferred:
    """Not begun, because the batch's bytes or time were spent: give it to the next."""

    source: Source


SourceOutcome = Ingested | Duplicate | Superseded | Rejected | Retry | Deferred


@dataclass(frozen=True, slots=True)
class IngestResult:
    """`outcomes` in the order of the sources; `write` what was committed for those ingested."""

    outcomes: tuple[SourceOutcome, ...]
    write: WriteResult
    loaded: Loaded


@dataclass(frozen=True, slots=True)
class _Seen:
    """A source that was looked at and may be copied."""

    source: Source
    store: ObjectStore
    entry: DataFile
    etag: str
    modified_us: int
    spans: bool = False  # rows of several partitions, or of unknown ones
    stamp: tuple[Footer, Footer] | None = (
        None  # the footer it has, and the one with the table's ids
    )
    recode: bool = False  # it should be stamped and cannot
    group_bytes: int = 0  # its largest row group, decoded


@dataclass(frozen=True, slots=True)
class _Wider:
    """A source with columns that the table lacks, and is to get (property `schema.evolve`)."""

    arrow: pa.Schema


@dataclass(frozen=True, slots=True)
class _Budget:
    """What reading and writing anew may cost; None means as much as it takes."""

    cut_bytes: int | None
    deadline: float | None


@dataclass(slots=True)
class _Batch:
    """Outcomes found so far, by position in the batch."""

    outcomes: dict[int, SourceOutcome] = field(default_factory=dict)
    seen: dict[int, _Seen] = field(default_factory=dict)
    wider: dict[int, _Wider] = field(default_factory=dict)

    def settle(self, position: int, found: SourceOutcome | _Seen | _Wider) -> None:
        if isinstance(found, _Seen):
            self.seen[position] = found
        elif isinstance(found, _Wider):
            self.wider[position] = found
        else:
            self.outcomes[position] = found


def ingest(
    ctx: Context,
    sources: Sequence[Source],
    *,
    adopt: bool = False,
    base: Loaded | None = None,
    cut_bytes: int | None = None,
    deadline_seconds: float | None = None,
) -> IngestResult:
    """Ingest a batch of objects. At most `cut_bytes` of them, and none after `deadline_seconds`, are read
    and written anew, but always one; the others of that kind are `Deferred`. `adopt` leaves them where
    they are: they are then never ours to delete, and their bytes must never change."""
    loaded = base if base is not None else load_pointer(ctx)
    deadline = None if deadline_seconds is None else ctx.clock.monotonic() + deadline_seconds
    budget = _Budget(cut_bytes, deadline)
    for upload in range(1, MAX_UPLOADS + 1):
        result = _ingest(ctx, sources, adopt, loaded, budget)
        if result is not None:
            return result
        ctx.clock.sleep(upload)  # times are whole seconds: copies made now are from this second
        loaded = load_pointer(ctx, carried=loaded.state.contents)
    raise InvalidRequest(
        "the GC boundary keeps overtaking this ingest",
        next_step="Give collect_garbage a longer grace period",
        table=ctx.uri,
    )


def _ingest(
    ctx: Context, sources: Sequence[Source], adopt: bool, loaded: Loaded, budget: _Budget
) -> IngestResult | None:
    batch = _Batch()
    loaded, known = known_requests(ctx, loaded, [s.request for s in sources])
    first: dict[str, int] = {}
    fresh: list[int] = []
    for position, source in enumerate(sources):
        twin = first.setdefault(source.identity, position)
        if source.request.id in known or (twin != position and source.etag is not None):
            batch.outcomes[position] = Duplicate(source)
        elif _older_than_horizon(source, loaded.snapshot):
            batch.outcomes[position] = Rejected(source, _too_old(ctx, source))
        else:
            fresh.append(position)

    loaded = _look_at_all(ctx, batch, sources, fresh, adopt, loaded)

    # Sources given without an ETag know their identity only now.
    _drop_known(ctx, batch, loaded)

    def take(item: tuple[int, _Seen]) -> tuple[int, SourceOutcome | tuple[DataFile, ...]]:
        position, seen = item
        return position, _guarded(ctx, seen.source, lambda _: _take(ctx, seen, adopt, loaded))

    entries: dict[int, tuple[DataFile, ...]] = {}
    # Copies cost no memory here; what has to be cut is read, so one by one.
    reads = _policy(loaded.snapshot) != "keep"
    cut = {p for p, seen in batch.seen.items() if reads or _is_cut(seen, adopt, loaded.snapshot)}
    copied = ctx.map(take, [item for item in batch.seen.items() if item[0] not in cut])
    rewritten = _within(ctx, budget, [(p, batch.seen[p]) for p in sorted(cut)], take)
    for position, taken in chain(copied, rewritten):
        if isinstance(taken, tuple):
            entries[position] = taken
        else:
            batch.outcomes[position] = taken
    if not entries:
        write = WriteResult(operation="ingest", committed=False, version=loaded.snapshot.version)
        return IngestResult(_ordered(batch, sources), write, loaded)

    change = Change(
        operation="ingest",
        uploaded_us=None if adopt else loaded.date_us,
        # A file without rows is remembered, so that its event is not looked at again, but not kept.
        add=tuple(e for files in entries.values() for e in files),
        events=tuple(batch.seen[p].source.request for p in entries),
        sources_us={
            e.key: batch.seen[p].modified_us for p, files in entries.items() for e in files
        },
    )
    try:
        done = expect_committed(ctx, commit_together(ctx, change, base=loaded))
    except StaleUpload:
        return None
    for position, files in entries.items():
        source = batch.seen[position].source
        batch.outcomes[position] = (
            Duplicate(sources[position])
            if _was_known(done, source.request)
            else Ingested(sources[position], sum(e.rows for e in files))
        )
    write = write_result("ingest", done, Usage({}, 0, 0))
    return IngestResult(_ordered(batch, sources), write, done.loaded)


def _within(
    ctx: Context,
    budget: _Budget,
    items: Sequence[tuple[int, _Seen]],
    take: Callable[[tuple[int, _Seen]], tuple[int, SourceOutcome | tuple[DataFile, ...]]],
) -> Iterator[tuple[int, SourceOutcome | tuple[DataFile, ...]]]:
    """Take one after the other, the first always, for as long as bytes and time are left."""
    spent = 0
    for position, seen in items:
        size = seen.entry.size
        full = budget.cut_bytes is not None and spent + size > budget.cut_bytes
        late = budget.deadline is not None and ctx.clock.monotonic() >= budget.deadline
        if spent and (full or late):
            yield position, Deferred(seen.source)
            continue
        spent += size
        yield take((position, seen))


def _look_at_all(
    ctx: Context,
    batch: _Batch,
    sources: Sequence[Source],
    fresh: Sequence[int],
    adopt: bool,
    loaded: Loaded,
) -> Loaded:
    """Settle what the objects themselves say; the table may get columns by it."""

    def look(positions: Sequence[int], table: Snapshot, extend: bool) -> None:
        def one(position: int) -> tuple[int, SourceOutcome | _Seen | _Wider]:
            source = sources[position]
            return position, _guarded(
                ctx, source, lambda s: _look(ctx, s, table, extend, current=adopt)
            )

        for position, found in ctx.map(one, positions):
            batch.settle(position, found)

    def extended(base: Loaded, position: int) -> Loaded:
        arrow = batch.wider.pop(position).arrow
        grown = _guarded(ctx, sources[position], lambda _: admit_columns(ctx, base, [arrow]))
        if isinstance(grown, Loaded):
            return grown
        batch.outcomes[position] = grown
        return base

    look(fresh, loaded.snapshot, adds_columns(loaded))
    wider = list(batch.wider)
    for position in wider:
        loaded = extended(loaded, position)
    look([n for n in wider if n not in batch.outcomes], loaded.snapshot, False)
    return loaded


def _was_known(done: Committed | Skipped, request: Request) -> bool:
    return request.id in done.duplicates or isinstance(done, Skipped)


def _ordered(batch: _Batch, sources: Sequence[Source]) -> tuple[SourceOutcome, ...]:
    return tuple(batch.outcomes[n] for n in range(len(sources)))


def _older_than_horizon(source: Source, snapshot: Snapshot) -> bool:
    return source.event_time_us is not None and source.event_time_us < snapshot.ledger.horizon_us


def _too_old(ctx: Context, source: Source) -> RequestTooOld:
    return RequestTooOld(
        "the event is older than this table's ledger remembers",
        table=ctx.uri,
        key=source.location.key,
    )


def _drop_known(ctx: Context, batch: _Batch, loaded: Loaded) -> None:
    late = dict(batch.seen)
    _, known = known_requests(ctx, loaded, [s.source.request for s in late.values()])
    taken: set[bytes] = set()
    for position, seen in late.items():
        request = seen.source.request.id
        if request in known or request in taken:
            batch.outcomes[position] = Duplicate(seen.source)
            del batch.seen[position]
        taken.add(request)


def _guarded(ctx: Context, source: Source, work):  # type: ignore[no-untyped-def]
    """One source's failure is its own."""
    try:
        return work(source)
    except InlayError as error:
        error.about(table=ctx.uri, key=source.location.key)
        return (Retry if error.kind in (Kind.RETRY, Kind.REBASE) else Rejected)(source, error)


def _look(
    ctx: Context,
    source: Source,
    snapshot: Snapshot,
    extend: bool = False,
    *,
    current: bool = False,
) -> SourceOutcome | _Seen | _Wider:
    """Read the footer and decide whether the object fits, or (`extend`) would if the table had more
    columns. `current`: only if the content is the object's current one, as an adopted file's must be."""
    location = source.location if current else source.content
    store = ctx.store if location.bucket == ctx.store.bucket else ctx.store.at(location.bucket)
    got = read_tail(store, location)
    if source.etag is not None and got.etag != source.etag:
        return Superseded(source)
    if None not in (source.version_id, got.version_id) and got.version_id != source.version_id:
        return Superseded(source)
    described = describe(got.body, size=got.size)
    Declared.of(snapshot).check_file(described.arrow)
    is_wider = extend and brings_columns(described.arrow, snapshot.schema)
    entry = entry_of(
        described,
        key="",
        size=got.size,
        schema=snapshot.schema,
        stats_columns=snapshot.stats_columns,
        extra_columns=is_wider,
    )
    if is_wider:  # and would fit: a file that is refused leaves the table as it is
        return _Wider(described.arrow)
    spec = current_spec(snapshot)
    partition = partition_in(described, snapshot.schema, spec)
    entry = replace(entry, spec_id=spec.id, partition=partition or ())
    stamp, recode = None, False
    if stamps_ids(snapshot):
        try:
            new = stamped(described.footer, snapshot.schema)
            stamp = None if new is described.footer else (described.footer, new)
        except UnsupportedFile:
            recode = True
    pinned = replace(source, etag=got.etag)
    return _Seen(
        pinned,
        store,
        replace(entry, event=pinned.request.token),
        got.etag,
        got.modified_us,
        spans=partition is None,
        stamp=stamp,
        recode=recode,
        group_bytes=largest_group(described.footer),
    )


def inspect_source(ctx: Context, source: Source, snapshot: Snapshot) -> DataFile | None:
    """The entry an object would get, its key empty; None when its content is not the one named.
    Raises what makes `ingest` reject it."""
    found = _look(ctx, source, snapshot)
    return found.entry if isinstance(found, _Seen) else None


def _take(
    ctx: Context, seen: _Seen, adopt: bool, loaded: Loaded
) -> SourceOutcome | tuple[DataFile, ...]:
    """Make the object the table's own (or adopt it in place). A file without rows makes no file."""
    if seen.entry.rows == 0:
        return ()
    in_place = replace(seen.entry, key=seen.source.location.uri, adopted=True, etag=seen.etag)
    if _has_unused_entries(ctx, in_place, adopt, loaded, seen.source):
        seen = replace(seen, recode=True)
    if adopt:
        return (in_place,)
    if _is_cut(seen, adopt, loaded.snapshot):
        return _split(ctx, in_place, loaded, seen.source)
    key = keys.data_key(loaded.date_us, ctx.new_id())
    if seen.stamp is not None:
        return _stamp(ctx, seen, key, *seen.stamp)
    copied = copy_object(
        ctx, seen.source.content, ctx.key(key), size=seen.entry.size, etag=seen.etag
    )
    match copied:
        case Missing():
            raise ObjectGone(f"{seen.source.location.uri} no longer exists")
        case Refused():
            return Superseded(seen.source)
        case _:
            return (replace(seen.entry, key=key),)


def _policy(snapshot: Snapshot) -> str:
    properties = Properties(snapshot.properties)
    policy = properties.text("ingest.unused_dictionary_entries")
    if policy != "auto":
        return policy
    return "reencode" if properties.text("erasure.promised") == "yes" else "keep"


def _has_unused_entries(
    ctx: Context, whole: DataFile, adopt: bool, loaded: Loaded, source: Source
) -> bool:
    """Whether the file is to be written anew for what only its dictionaries name. Raises `UnsupportedFile`
    where the table refuses such files."""
    policy = _policy(loaded.snapshot)
    if policy == "keep" or (policy == "reencode" and adopt):
        return False
    task = FileTask(file=whole, schema=loaded.snapshot.schema)
    wanted = Wanted(schema=loaded.snapshot.schema, columns=())
    opened = open_file(_outside(ctx, whole, source), task, wanted, ctx.executor)
    _, column = next(unused_entries(opened, ctx.executor), (0, None))
    if column is not None and policy == "refuse":
        raise UnsupportedFile(
            f"the dictionary of column {column} has entries that no row of their row group has",
            next_step="Write it as plain values, or set ingest.unused_dictionary_entries to reencode",
        )
    return column is not None


def _outside(ctx: Context, whole: DataFile, source: Source) -> Objects:
    """The store, without the cache: unlike the table's own objects, this one may be overwritten."""
    versions = {} if source.version_id is None else {whole.key: source.version_id}
    return Objects(ctx.store, ctx.root, versions=versions)


def _is_cut(seen: _Seen, adopt: bool, snapshot: Snapshot) -> bool:
    limit = Properties(snapshot.properties).number("ingest.split_bytes")
    # Some KB may be a GB once decoded, and row groups are decoded whole.
    fits = seen.entry.size <= limit and seen.group_bytes <= DECODED_SHARE * limit
    return (seen.spans or seen.recode) and not adopt and fits


def stamps_ids(snapshot: Snapshot) -> bool:
    """Whether landed files get the table's field ids."""
    wanted = Properties(snapshot.properties).text("ingest.field_ids")
    return wanted == "stamp" or (wanted == "auto" and is_published(snapshot.properties))


def _stamp(
    ctx: Context, seen: _Seen, key: str, old: Footer, new: Footer
) -> Superseded | tuple[DataFile, ...]:
    """The object as the table's own, under a footer with the table's field ids."""
    try:
        done = stamp_object(
            ctx.store,
            seen.source.content,
            ctx.key(key),
            etag=seen.etag,
            old=old,
            new=new,
            # This runs in a task of the executor: waiting for others of its tasks could last for ever.
            executor=InlineExecutor(),
        )
    except SourceChanged:
        return Superseded(seen.source)
    return (replace(seen.entry, key=key, size=done.size, footer_size=done.footer_size),)


def _split(
    ctx: Context, whole: DataFile, loaded: Loaded, source: Source
) -> Superseded | tuple[DataFile, ...]:
    """The rows of a landing object as files of their partitions."""
    schema = loaded.snapshot.schema
    columns = Wanted(schema=schema, columns=tuple(f.id for f in schema.fields))
    objects = _outside(ctx, whole, source)
    rows = read_file(objects, FileTask(file=whole, schema=schema), columns, ctx.executor)
    try:
        files = tuple(write_batches(ctx, loaded.snapshot, rows, time_us=loaded.date_us))
    except SnapshotGone:
        raise ObjectGone(f"{whole.key} no longer exists") from None
    except SourceChanged:
        return Superseded(source)
    if sum(entry.rows for entry in files) != whole.rows:
        raise UnreadableFile(f"{whole.key} does not have the rows its footer promises")
    return tuple(replace(entry, event=whole.event, own=True) for entry in files)
