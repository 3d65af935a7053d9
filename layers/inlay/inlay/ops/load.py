"""Load: the pointer, an archived version, the segments a plan asks for.

Promise: opening a table is one GET; a version, a tag or a branch is one more. What is read is decoded
whole or refused (`CorruptTable`, `NewerFormat`); segments are immutable, so those loaded once are
carried along.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from inlay.errors import (
    CorruptTable,
    InlayError,
    RefNotFound,
    SnapshotGone,
    TableNotFound,
    VersionNotFound,
)
from inlay.format import keys
from inlay.format.codec import decode_head, decode_snapshot
from inlay.format.content import Content, content_of
from inlay.format.entry_json import Types
from inlay.format.leaves import decode_files, decode_ledger, decode_markers
from inlay.format.snapshot import (
    POINTER_TARGET_BYTES,
    HeadObject,
    Ref,
    Segment,
    Snapshot,
    observed,
)
from inlay.ops.context import Context
from inlay.plan.change import NeedSegments
from inlay.plan.refs import MAIN, held_versions, seen
from inlay.plan.state import Contents, State
from inlay.storage.base import Missing, Refused

# An as-of read finds a hexadecimal digit of the version with each hop.
MAX_HOPS = 16
# What a decoded content takes in memory, for each byte of its object.
CONTENT_BYTES = 10


@dataclass(frozen=True, slots=True)
class Loaded:
    """A state as read: `etag` and `raw` are the pointer's (of an archive: no swap is possible on it),
    `date_us` the store's clock at the last answer, `read_at` the local monotonic clock."""

    state: State
    etag: str
    raw: bytes
    date_us: int
    read_at: float
    own: Snapshot | None = None  # what the pointer itself says, where `state` shows a branch

    @property
    def pointer(self) -> Snapshot:
        """The snapshot as the pointer has it, with main's content."""
        return self.own or self.state.snapshot

    @property
    def snapshot(self) -> Snapshot:
        return self.state.snapshot

    @property
    def has_open_times(self) -> bool:
        """Whether the stored snapshot leaves times open that the next commit will write down."""
        stored = decode_snapshot(self.raw, key=keys.POINTER)
        return stored.boundary.time_us is None or any(e.time_us is None for e in stored.expired)


def load_pointer(ctx: Context, *, carried: Contents | None = None) -> Loaded:
    """The current snapshot as this context sees it: one GET, and on a branch one more for its content,
    unless that is known. `carried` are segment contents known from earlier loads."""
    return on_branch(ctx, read_main(ctx), carried=carried)


def read_main(ctx: Context) -> Loaded:
    """The pointer as it is, whatever the context's branch; without contents of segments."""
    answer = ctx.store.get(ctx.key(keys.POINTER))
    if isinstance(answer, Missing | Refused):
        raise TableNotFound(f"there is no table at {ctx.uri}", table=ctx.uri)
    # What the pointer leaves open ("from now on") had surely landed by the time of this answer.
    snapshot = observed(decode_snapshot(answer.body, key=ctx.key(keys.POINTER)), answer.date_us)
    return Loaded(State(snapshot), answer.etag, answer.body, answer.date_us, ctx.clock.monotonic())


def on_branch(ctx: Context, main: Loaded, *, carried: Contents | None = None) -> Loaded:
    """What `read_main` has read, with the content of the context's branch."""
    table = main.pointer
    if ctx.branch is None:
        return replace(main, state=State(table, retain(carried, table)), own=None)
    ref = find_ref(ctx, table, ctx.branch)
    snapshot = seen(table, load_content(ctx, table, ref), ref.since)
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
    """What a ref of `table` holds, as it was written: one GET, none where it is known."""
    if ref.head is not None:
        return load_head(ctx, table, ref.head)
    if ref.version == table.version:
        return content_of(table)
    name = f"{table.table_id}/{ref.version}"
    known: Content | None = ctx.cache.get(name)
    if known is None:
        found = load_version(ctx, table, ref.version)
        known = content_of(found)
        ctx.cache.put(name, known, CONTENT_BYTES * POINTER_TARGET_BYTES)
    return known


def load_head(ctx: Context, table: Snapshot, head: HeadObject) -> Content:
    key = keys.segment_key(head.id)
    known: Content | None = ctx.cache.get(key)
    if known is not None:
        return known
    answer = ctx.store.get(ctx.key(key))
    if isinstance(answer, Missing | Refused):
        raise _missing_segment(ctx, table, ctx.key(key))
    found = decode_head(answer.body, key=ctx.key(key), types=Types(table.schemas))
    ctx.cache.put(key, found, CONTENT_BYTES * head.size)
    return found


def find_version(ctx: Context, version: int) -> Snapshot | None:
    """An archived version; None where there is no such archive. One GET."""
    key = ctx.key(keys.archive_key(version))
    answer = ctx.store.get(key)
    if isinstance(answer, Missing | Refused):
        return None
    snapshot = decode_snapshot(answer.body, key=key)
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
    found = find_version(ctx, version)
    if found is None:
        raise CorruptTable(
            f"the archive of version {version} is missing",
            table=ctx.uri,
            key=ctx.key(keys.archive_key(version)),
            version=version,
        )
    if found.table_id != current.table_id:
        raise CorruptTable(
            f"the archive of version {version} belongs to another table",
            table=ctx.uri,
            key=ctx.key(keys.archive_key(version)),
        )
    return found


def load_as_of(ctx: Context, current: Snapshot, time_us: int) -> Snapshot:
    """The newest version committed at or before `time_us`, by hops along the snapshots' time indexes:
    each tells in which sixteenth of what is left the time lies."""
    at = current
    for _ in range(MAX_HOPS):
        if at.commit.time_us <= time_us:
            return at
        earlier = [v for v, t in at.time_index if t <= time_us and v < at.version]
        later = [v for v, t in at.time_index if t > time_us and v <= at.version]
        # The answer lies in [last point before, first point after): walk back from the latter.
        first_later = min(later, default=at.version)
        last_earlier = max(earlier, default=0)
        if first_later - last_earlier <= 1:
            if last_earlier < 1:
                break
            return load_version(ctx, current, last_earlier)
        at = load_version(ctx, current, max(first_later - 1, 1))
    raise VersionNotFound(
        f"{ctx.uri} has no version as old as that: it was created at a later time", table=ctx.uri
    )


def load_segments(ctx: Context, state: State, need: NeedSegments) -> State:
    """`state` with these segments' contents as well, read in parallel, one GET each."""
    types = Types(state.snapshot.schemas)
    wanted = (
        [("files", s) for s in need.files]
        + [("markers", s) for s in need.markers]
        + [("ledger", s) for s in need.ledger]
    )

    def load(item: tuple[str, Segment]) -> tuple[str, str, tuple[object, ...]]:
        kind, segment = item
        key = ctx.key(keys.segment_key(segment.id))
        answer = ctx.store.get(key)
        if isinstance(answer, Missing | Refused):
            raise _missing_segment(ctx, state.snapshot, key)
        entries: tuple[object, ...]
        match kind:
            case "files":
                entries = decode_files(answer.body, key=key)
            case "markers":
                entries = decode_markers(answer.body, key=key, types=types)
            case _:
                entries = decode_ledger(answer.body, key=key)
        if len(entries) != segment.count:
            raise CorruptTable(
                f"segment {key} holds {len(entries)} entries, its reference says {segment.count}",
                table=ctx.uri,
                key=key,
            )
        return kind, segment.id, entries

    found: dict[str, dict[str, tuple[object, ...]]] = {
        "files": dict(state.contents.files),
        "markers": dict(state.contents.markers),
        "ledger": dict(state.contents.ledger),
    }
    for kind, segment_id, entries in ctx.map(load, wanted):
        found[kind][segment_id] = entries
    return State(state.snapshot, Contents(**found))  # type: ignore[arg-type]


def _missing_segment(ctx: Context, snapshot: Snapshot, key: str) -> InlayError:
    """Whoever reads a snapshot for longer than the grace period may find it collected; a segment that
    the newest snapshot needs must be there."""
    if read_main(ctx).snapshot.version != snapshot.version:
        return SnapshotGone(
            f"a segment of version {snapshot.version} is gone", table=ctx.uri, key=key
        )
    return CorruptTable(f"segment {key} is missing", table=ctx.uri, key=key)


def load_entries(ctx: Context, state: State) -> State:
    """`state` with every file and marker entry at hand."""
    need = NeedSegments(files=state.missing_files(), markers=state.missing_markers())
    return load_segments(ctx, state, need) if need.files or need.markers else state


def load_ledger(ctx: Context, state: State) -> State:
    """`state` with every record of the ledger at hand."""
    segments = state.snapshot.ledger.records.segments
    need = NeedSegments(ledger=tuple(s for s in segments if s.id not in state.contents.ledger))
    return load_segments(ctx, state, need) if need.ledger else state


def retain(contents: Contents | None, snapshot: Snapshot) -> Contents:
    """Of `contents`, what `snapshot` still refers to: a long-lived writer must not grow."""
    if contents is None:
        return Contents()

    def kept(segments: Iterable[Segment]) -> set[str]:
        return {s.id for s in segments}

    files = kept(snapshot.files.segments)
    markers = kept(snapshot.markers.segments)
    ledger = kept(snapshot.ledger.records.segments)
    return replace(
        contents,
        files={i: e for i, e in contents.files.items() if i in files},
        markers={i: e for i, e in contents.markers.items() if i in markers},
        ledger={i: e for i, e in contents.ledger.items() if i in ledger},
    )
