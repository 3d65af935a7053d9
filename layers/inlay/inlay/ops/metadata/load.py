"""Loading: the pointer, an archived version, the segments that a plan needs, the snapshot that a handle
shows.

Promise: opening a table is one GET; a version, a tag or a branch is one more. What is read is decoded as a
whole or refused (`CorruptTable`, `NewerFormat`); segments are immutable, so loaded ones are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar, assert_never, get_args

from inlay.errors import (
    CorruptTable,
    InlayError,
    RefNotFound,
    SnapshotGone,
    TableHandedOver,
    TableNotFound,
    TableReplaced,
    VersionNotFound,
)
from inlay.format import keys
from inlay.format.codec import PREPARED, SchemaLoader, decode_head, decode_schemas, decode_snapshot
from inlay.format.entry import Types
from inlay.format.predicate import Predicate
from inlay.format.properties import handed_over
from inlay.format.schema import Schema
from inlay.format.snapshot import (
    POINTER_TARGET_BYTES,
    Content,
    HeadObject,
    Ledger,
    Ref,
    SchemaObject,
    Segment,
    Snapshot,
    Tier,
    content_of,
    with_open_times,
)
from inlay.ops.context import Context
from inlay.plan.answers import NeedSegments, SegmentKind
from inlay.plan.metadata.state import Contents, State, head_fault, open_tree, segment_fault
from inlay.plan.pruning.prune import may_match, trusted_under
from inlay.plan.refs import MAIN, held_versions, past_view, ref_view
from inlay.record import Record, aside, replace
from inlay.storage.base import Got
from inlay.storage.write_once import Stored

if TYPE_CHECKING:
    from inlay.format.transaction import Transaction
else:
    Transaction = Any  # what `help` shows; the module is loaded where there is one

T = TypeVar("T")
S = TypeVar("S", bound=Sequence[Any])

# An as-of read finds a hexadecimal digit of the version with each hop.
MAX_HOPS = 16
# Entries of leaves that a writer keeps after a commit: some 2 KB each, as objects; records of the ledger
# some 150 bytes. Others are read from the store again when needed.
CARRIED_ENTRIES = 32_768
CARRIED_RECORDS = 262_144
# Segments a plan asks for come in at most a few rounds: ledger, entries, merges.
MAX_LOADS = 12
# Memory of a decoded content, for each byte of its object.
CONTENT_BYTES = 10


@aside("archiving")
class LoadedTable(Record):
    """A table as read: `etag` and `raw` are the pointer's (of an archive: no swap is possible on it),
    `date_us` is the store's clock at the last answer, `read_at` the local monotonic clock.

    Where the pointer is prepared for a `transaction`, `raw` is that of the two frames in it which is the
    table, by what was decided. While nothing is (`undecided`) it may be read, but not swapped out."""

    state: State
    etag: str
    raw: bytes
    date_us: int
    read_at: float
    own: Snapshot | None = None  # the pointer's own snapshot, where `state` shows a branch
    # Its archive, where writing that has begun (`ops.commit.group.archive_beside`).
    archiving: Future[Stored] | None = None
    # By the local monotonic clock, when this writer last met another: in a race, or by its commits.
    raced_at: float | None = None
    # Commits of this writer in a row, each on the one before it, without a read in between.
    unread: int = 0
    transaction: Transaction | None = None
    undecided: bool = False

    def __repr__(self) -> str:
        # Snapshots hold bounds of columns and conditions: values of rows.
        return f"<version {self.snapshot.version} of the table {self.snapshot.table_id}>"

    @property
    def pointer(self) -> Snapshot:
        """The pointer's snapshot, with main's content."""
        return self.own or self.state.snapshot

    @property
    def snapshot(self) -> Snapshot:
        return self.state.snapshot

    @property
    def open_for(self) -> Transaction | None:
        """The transaction that it is prepared for, while that is undecided."""
        return self.transaction if self.undecided else None

    def without_entries(self) -> LoadedTable:
        """The table's schemas and settings, without files, deletes and ledger: what a task of another
        process needs to read or write rows."""
        snapshot = replace(
            self.snapshot, files=Tier(), markers=Tier(), ledger=Ledger(), time_index=()
        )
        return replace(self, state=State(snapshot), raw=b"", own=None)

    def refuse_handed_over(self, ctx: Context) -> None:
        """Before work that the commit would refuse (`plan.commit.apply.admit`), or that is none."""
        if handed_over(self.snapshot.properties) is not None:
            raise handed_over_elsewhere(ctx, self.snapshot)

    @property
    def has_open_times(self) -> bool:
        """Whether the stored snapshot has open times that the next commit will record."""
        known = self.pointer.schemas

        def apart(schemas: SchemaObject) -> tuple[Schema, ...]:
            return tuple(s for s in known if s.id in schemas.ids)

        stored = decode_snapshot(self.raw, key=keys.POINTER, apart=apart)
        return stored.boundary.time_us is None or any(e.time_us is None for e in stored.expired)


def load_pointer(
    ctx: Context, *, carried: Contents | None = None, before: Snapshot | None = None
) -> LoadedTable:
    """The current snapshot as this context sees it: one GET, and on a branch one more for its content,
    unless that is known. `carried` are contents of segments from earlier loads; `before`: see
    `read_main`."""
    return on_branch(ctx, read_main(ctx, before), carried=carried)


def handed_over_elsewhere(ctx: Context, snapshot: Snapshot) -> TableHandedOver:
    return TableHandedOver(
        f"{ctx.uri} was handed over to another catalog", table=ctx.uri, version=snapshot.version
    )


def load_again(ctx: Context, base: LoadedTable) -> LoadedTable:
    """As `load_pointer`, of the table of `base`, whose contents are not read again. Raises `TableReplaced`
    when another table is at its place: what was meant for one must not change the other."""
    ctx = replace(ctx, table_id=base.snapshot.table_id)
    return on_branch(ctx, read_main(ctx, base.pointer), carried=base.state.contents)


def check_same_table(ctx: Context, snapshot: Snapshot) -> None:
    """Raises `TableReplaced` when `snapshot`, the pointer, is not of the table that was opened."""
    if ctx.table_id not in (None, snapshot.table_id):
        raise TableReplaced(f"{ctx.uri} is another table now", table=ctx.uri)


def read_main(ctx: Context, before: Snapshot | None = None) -> LoadedTable:
    """The pointer, whatever the context's branch; without contents of segments. `before` is an earlier
    snapshot of the same table, if one is known: what it leaves open had landed when that was read, so what
    was uploaded since is no older than the table's boundary. Raises `TableNotFound`, and `TableReplaced`
    when it is not of the context's table."""
    answer = ctx.get(keys.POINTER)
    if answer is None:
        raise TableNotFound(f"there is no table at {ctx.uri}", table=ctx.uri)
    return resolved(ctx, answer, before)


def resolved(ctx: Context, answer: Got, before: Snapshot | None = None) -> LoadedTable:
    """What the pointer in `answer` says; `before`: see `read_main`. Of a table that is prepared for a
    transaction one more GET tells what was decided; until then it is what it was before: a reader never
    waits."""
    key = ctx.key(keys.POINTER)
    raw, transaction, committed = frame_of(ctx, answer.body)
    # What the pointer leaves open ("from now on") had certainly landed by the time of this answer.
    stored = decode_snapshot(raw, key=key, apart=schemas_of(ctx), before=before)
    check_same_table(ctx, stored)
    if before is not None and before.commit.id == stored.commit.id:
        snapshot = replace(stored, boundary=before.boundary, expired=before.expired)
    else:
        snapshot = with_open_times(stored, answer.date_us)
    return LoadedTable(
        State(snapshot),
        answer.etag,
        raw,
        answer.date_us,
        ctx.clock.monotonic(),
        transaction=transaction,
        undecided=transaction is not None and committed is None,
    )


def frame_of(ctx: Context, body: bytes) -> tuple[bytes, Transaction | None, bool | None]:
    """The frame of version 1 that a pointer's bytes stand for; the transaction that it is prepared for, if
    it is, and what was decided."""
    if not body.startswith(PREPARED):
        return body, None, None
    from inlay.format.transaction import decode_prepared
    from inlay.ops.metadata.decision import find_decision

    prepared = decode_prepared(body, key=ctx.key(keys.POINTER))
    committed = find_decision(ctx, prepared.transaction)
    return prepared.resolved(committed is True), prepared.transaction, committed


def on_branch(
    ctx: Context,
    main: LoadedTable,
    *,
    carried: Contents | None = None,
    content: Content | None = None,
) -> LoadedTable:
    """The result of `read_main`, with the content of the context's branch; `content` where it is known."""
    table = main.pointer
    if ctx.branch is None:
        return replace(main, state=State(table, retain(carried, table)), own=None)
    ref = find_ref(ctx, table, ctx.branch)
    snapshot = ref_view(table, content or load_content(ctx, table, ref), ref.since)
    return replace(main, state=State(snapshot, retain(carried, snapshot)), own=table)


def find_ref(ctx: Context, table: Snapshot, name: str) -> Ref:
    ref = table.refs.get(name)
    if ref is None:
        raise RefNotFound(
            f"{ctx.uri} has no tag or branch {name!r}",
            next_step=f"It has: {', '.join([MAIN, *sorted(table.refs)])}",
            table=ctx.uri,
        )
    return ref


def load_content(ctx: Context, table: Snapshot, ref: Ref) -> Content:
    """The content of a ref of `table`, as stored: one GET, none if it is known."""
    if ref.head is not None:
        return load_head(ctx, table, ref.head)
    if ref.version == table.version:
        return content_of(table)
    name = f"{table.table_id}/{ref.version}"
    known: Content | None = ctx.cache.get(name)
    if known is None:
        snapshot = load_version(ctx, table, ref.version)
        known = content_of(snapshot)
        ctx.cache.put(name, known, CONTENT_BYTES * POINTER_TARGET_BYTES)
    return known


def load_head(ctx: Context, table: Snapshot, head: HeadObject) -> Content:
    key = keys.segment_key(head.id)
    known: Content | None = ctx.cache.get(key)
    if known is not None:
        return known
    answer = ctx.get(key)
    if answer is None:
        raise _missing_segment(ctx, table, ctx.key(key))
    content = decode_head(answer.body, key=ctx.key(key), types=Types(table.schemas))
    fault = head_fault(table, head, content, len(answer.body))
    if fault:
        raise CorruptTable(f"head {ctx.key(key)} {fault}", table=ctx.uri, key=ctx.key(key))
    ctx.cache.put(key, content, CONTENT_BYTES * head.size)
    return content


def schemas_of(ctx: Context) -> SchemaLoader:
    """Reads schemas that are stored separately: one GET for each object, none if it is known."""

    def load(schemas: SchemaObject) -> tuple[Schema, ...]:
        key = keys.segment_key(schemas.id)
        known: tuple[Schema, ...] | None = ctx.cache.get(key)
        if known is None:
            answer = ctx.get(key)
            if answer is None:
                raise CorruptTable(
                    f"{key} is missing: the table's schemas are in it", table=ctx.uri, key=key
                )
            known = decode_schemas(answer.body, schemas, key=key)
            ctx.cache.put(key, known, CONTENT_BYTES * schemas.size)
        return known

    return load


def find_version(ctx: Context, version: int) -> Snapshot | None:
    """An archived version; None if there is no such archive. One GET."""
    body = read_archive(ctx, version)
    return None if body is None else decode_archive(ctx, version, body)


def read_archive(ctx: Context, version: int) -> bytes | None:
    """The archive of a version as it is stored; None if there is none. One GET."""
    answer = ctx.get(keys.archive_key(version))
    return None if answer is None else answer.body


def decode_archive(ctx: Context, version: int, body: bytes) -> Snapshot:
    """Raises `CorruptTable` when `body` is of another version. Reads schemas stored separately."""
    key = ctx.key(keys.archive_key(version))
    snapshot = decode_snapshot(body, key=key, apart=schemas_of(ctx))
    if snapshot.version != version:
        raise CorruptTable(f"{key} holds version {snapshot.version}", key=key, version=version)
    return snapshot


def load_version(ctx: Context, current: Snapshot, version: int) -> Snapshot:
    """The snapshot of `version`: the current one, or its archive by one GET."""
    if version == current.version:
        return current
    if not 1 <= version < current.version:
        raise VersionNotFound(
            f"{ctx.uri} has no version {version}: it is at version {current.version}",
            table=ctx.uri,
            version=version,
        )
    if version < current.oldest_version and version not in held_versions(current):
        raise VersionNotFound(
            f"version {version} of {ctx.uri} has expired; the oldest is {current.oldest_version}",
            table=ctx.uri,
            version=version,
        )
    archive = find_version(ctx, version)
    if archive is None or archive.table_id != current.table_id:
        # The reason may be that the whole table was removed, and another one created.
        read_main(replace(ctx, table_id=current.table_id))
        what = "is missing" if archive is None else "belongs to another table"
        raise CorruptTable(
            f"the archive of version {version} {what}",
            table=ctx.uri,
            key=ctx.key(keys.archive_key(version)),
            version=version,
        )
    return archive


def load_seen(ctx: Context, table: Snapshot, version: int) -> Snapshot:
    """Main, or the context's branch, at a version, as readers see it now. `table` is the pointer's."""
    return _seen(ctx, load_version(ctx, table, version), table)


def load_past(ctx: Context, *, version: int | None, as_of_us: int) -> Snapshot:
    """As `load_seen`, of the newest table, at a version or else at a time."""
    table = read_main(ctx).pointer
    if version is not None:
        return load_seen(ctx, table, version)
    return _seen(ctx, load_as_of(ctx, table, as_of_us), table)


def _seen(ctx: Context, snapshot: Snapshot, table: Snapshot) -> Snapshot:
    """A branch's content may be older than erasures that the snapshot has opened: these first, then those
    opened since."""
    if ctx.branch is not None:
        ref = find_ref(ctx, snapshot, ctx.branch)
        snapshot = ref_view(snapshot, load_content(ctx, snapshot, ref), ref.since)
    return snapshot if snapshot.version == table.version else past_view(snapshot, table)


def load_as_of(ctx: Context, current: Snapshot, time_us: int) -> Snapshot:
    """The newest version committed at or before `time_us`, by hops along the snapshots' time indexes: each
    finds the sixteenth of the remaining versions that contains the time."""
    at = current
    for _ in range(MAX_HOPS):
        if at.commit.time_us <= time_us:
            return at
        earlier = [v for v, t in at.time_index if t <= time_us and v < at.version]
        later = [v for v, t in at.time_index if t > time_us and v <= at.version]
        # The answer is in [last point before, first point after): go back from the latter.
        first_later = min(later, default=at.version)
        last_earlier = max(earlier, default=0)
        if first_later - last_earlier <= 1:
            if last_earlier < 1:
                break
            return load_version(ctx, current, last_earlier)
        at = load_version(ctx, current, max(first_later - 1, 1))
    raise VersionNotFound(
        f"{ctx.uri} has no version that old: it was created later",
        next_step="A time without a zone is UTC: write a local one with its offset, as "
        "2026-01-31T12:00:00-05:00. `inlay history` lists the versions that can be read",
        table=ctx.uri,
    )


def load_segments(ctx: Context, state: State, need: NeedSegments) -> State:
    """`state` with the contents of these segments, too, read in parallel, one GET each."""
    types = Types(state.snapshot.schemas)
    segments: list[tuple[SegmentKind, Segment]] = [
        *(("files", s) for s in need.files),
        *(("markers", s) for s in need.markers),
        *(("ledger", s) for s in need.ledger),
    ]
    by_id: dict[str, tuple[SegmentKind, Segment]] = {
        s.id: ("nodes" if s.level else kind, s) for kind, s in segments
    }

    def load(item: tuple[SegmentKind, Segment]) -> tuple[SegmentKind, str, Sequence[Any]]:
        kind, segment = item
        key = ctx.key(keys.segment_key(segment.id))
        answer = ctx.get(keys.segment_key(segment.id))
        if answer is None:
            raise _missing_segment(ctx, state.snapshot, key)
        entries = decode_segment(kind, answer.body, key=key, types=types)
        fault = segment_fault(state.snapshot, kind, segment, entries, len(answer.body))
        if fault:
            raise CorruptTable(f"segment {key} {fault}", table=ctx.uri, key=key)
        return kind, segment.id, entries

    return State(state.snapshot, grown(state.contents, ctx.map(load, by_id.values())))


def decode_segment(kind: SegmentKind, data: bytes, *, key: str, types: Types) -> Sequence[Any]:
    from inlay.format import leaves  # small tables have none

    match kind:
        case "files":
            return leaves.decode_files(data, key=key)
        case "markers":
            return leaves.decode_markers(data, key=key, types=types)
        case "ledger":
            return leaves.decode_ledger(data, key=key)
        case "nodes":
            return leaves.decode_references(data, key=key)
        case _:
            assert_never(kind)


def count_of(kind: SegmentKind, entries: Sequence[Any]) -> int:
    """Entries under a segment, according to its reference."""
    return sum(leaf.count for leaf in entries) if kind == "nodes" else len(entries)


def grown(contents: Contents, more: Iterable[tuple[SegmentKind, str, Sequence[Any]]]) -> Contents:
    """`contents` with these segments as well."""
    loaded: dict[str, dict[str, Any]] = {
        k: dict(getattr(contents, k)) for k in get_args(SegmentKind)
    }
    for kind, segment_id, entries in more:
        loaded[kind][segment_id] = entries
    return Contents(**loaded)


def _missing_segment(ctx: Context, snapshot: Snapshot, key: str) -> InlayError:
    """A reader of one snapshot for longer than the grace period may find it collected; a segment that the
    newest snapshot needs must exist."""
    if read_main(replace(ctx, table_id=snapshot.table_id)).snapshot.version != snapshot.version:
        return SnapshotGone(
            f"a segment of version {snapshot.version} is gone", table=ctx.uri, key=key
        )
    return CorruptTable(f"segment {key} is missing", table=ctx.uri, key=key)


def resolve(
    ctx: Context, state: State, ask: Callable[[State], T | NeedSegments]
) -> tuple[State, T]:
    """The answer of `ask`, once the segments that it needs are loaded, and `state` with those."""
    for _ in range(MAX_LOADS):
        answer = ask(state)
        if not isinstance(answer, NeedSegments):
            return state, answer
        state = load_segments(ctx, state, answer)
    raise CorruptTable("planning keeps requesting more segments", table=ctx.uri)


def load_entries(ctx: Context, state: State, *, files: bool = True, markers: bool = True) -> State:
    """`state` with every entry loaded, of files, of markers or of both."""

    def missing(state: State) -> NeedSegments | None:
        return needed(
            state.missing_files() if files else (), state.missing_markers() if markers else ()
        )

    return resolve(ctx, state, missing)[0]


def load_matching(
    ctx: Context, state: State, predicate: Predicate, *, by_rows: bool = False
) -> State:
    """`state` with the entries of every file that may hold a row for which `predicate` is TRUE, and every
    marker. `by_rows`: whatever other writers' statistics say."""

    def may(segments: Sequence[Segment]) -> list[bool]:
        stats = (trusted_under(s) if by_rows else s.stats for s in segments)
        return [
            may_match(predicate, known, s.rows) for known, s in zip(stats, segments, strict=True)
        ]

    def missing(state: State) -> NeedSegments | None:
        return needed(state.missing_files(may), state.missing_markers())

    return resolve(ctx, state, missing)[0]


def load_nodes(ctx: Context, state: State) -> State:
    """`state` with all nodes of files loaded, and no leaf."""
    return resolve(ctx, state, lambda s: needed(s.open_files().closed))[0]


def load_leaves(ctx: Context, state: State, leaves: Iterable[Segment]) -> State:
    """`state` with the entries of these leaves of files."""
    missing = needed(tuple(leaf for leaf in leaves if leaf.id not in state.contents.files))
    return state if missing is None else load_segments(ctx, state, missing)


def load_ledger(ctx: Context, state: State) -> State:
    """`state` with every record of the ledger loaded."""
    return resolve(ctx, state, lambda s: needed(ledger=s.missing_records()))[0]


def needed(
    files: tuple[Segment, ...] = (),
    markers: tuple[Segment, ...] = (),
    ledger: tuple[Segment, ...] = (),
) -> NeedSegments | None:
    """None when nothing is missing."""
    return NeedSegments(files, markers, ledger) if files or markers or ledger else None


def retain(contents: Contents | None, snapshot: Snapshot) -> Contents:
    """Of `contents`, what `snapshot` still refers to: the memory of a long-lived writer must not grow.
    Under a node that is not loaded there may be anything."""
    if contents is None:
        return Contents()
    nodes = contents.nodes
    tiers = (snapshot.files, snapshot.markers, snapshot.ledger.records)

    def kept(tier: Tier[Any], entries: Mapping[str, T]) -> dict[str, T]:
        opened = open_tree(tier.segments, nodes)
        leaves = {leaf.id for leaf in opened.leaves}
        return {i: e for i, e in entries.items() if opened.closed or i in leaves}

    tops = {s.id for tier in tiers for s in tier.segments}
    return Contents(
        files=kept(snapshot.files, contents.files),
        markers=kept(snapshot.markers, contents.markers),
        ledger=kept(snapshot.ledger.records, contents.ledger),
        nodes={i: n for i, n in nodes.items() if i in tops},
    )


def bounded(contents: Contents) -> Contents:
    """The newest of `contents`, up to CARRIED_ENTRIES: those grow and are read again."""
    return replace(
        contents,
        files=_newest(contents.files, CARRIED_ENTRIES),
        markers=_newest(contents.markers, CARRIED_ENTRIES),
        ledger=_newest(contents.ledger, CARRIED_RECORDS),
    )


def _newest(entries: Mapping[str, S], most: int) -> dict[str, S]:
    by_id: dict[str, S] = {}
    for segment_id in reversed(list(entries)):
        most -= len(entries[segment_id])
        if most >= 0:
            by_id[segment_id] = entries[segment_id]
    return dict(reversed(list(by_id.items())))


class Pinned(Record, kw_only=True):
    """`version` of the table with this id, on the context's branch; what is shown is `at`, an earlier
    version, or what `tag` refers to in it, if one of these was opened.

    The snapshot that an open table, a scan or a feed shows, as values that pickle. Loaded again, here or in
    another process, it is the same snapshot of the same table, with one GET while that is the newest, two
    or three otherwise; or a typed error: `TableReplaced` when another table has replaced it,
    `VersionNotFound` when the version has expired. It contains no data and no credentials.
    """

    context: Context
    table_id: str
    version: int
    at: int | None = None
    tag: str | None = None

    def load(self) -> tuple[LoadedTable, Snapshot | None]:
        """The table at `version`, and the snapshot that is shown if that is in the past."""
        ctx = replace(self.context, table_id=self.table_id)
        main = read_main(ctx)
        current = main.pointer
        table = load_version(ctx, current, self.version)
        if table is not current:
            # An older pointer cannot be swapped: without an ETag the next write reads it again.
            main = replace(main, state=State(table), etag="")
        loaded = on_branch(ctx, main)
        if self.tag is not None:
            ref = find_ref(ctx, table, self.tag)
            shown = ref_view(table, load_content(ctx, table, ref))
            return loaded, replace(shown, version=ref.version)
        if self.at is not None:
            return loaded, load_seen(ctx, table, self.at)
        return loaded, None
