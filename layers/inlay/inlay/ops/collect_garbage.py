"""Collect garbage: delete the objects that no version anyone may read still needs.

Promise: no object that a current, retained, referenced or recently expired version needs is deleted,
and none that a writer under way could still commit. The order makes it so:

1. look      list the table, find what nothing needs; when there is nothing, stop: no commit
2. boundary  commit that no object uploaded before it may be added any more (`plan.apply`, Stale)
3. roots     what is needed *after* that commit: whatever was committed before it is now seen, whatever
             comes later cannot name an object from before the boundary unless a root does
4. delete    what nothing needs and is older than the boundary, 1,000 objects a request; then abort
             uploads that were started before the boundary: nobody could commit them

Were 2 and 3 swapped, a writer could commit an old orphan between the look and the delete.

Time is the store's throughout. Receipts, the pointer, adopted files and objects of unknown kinds are
never deleted; the latter are reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from inlay.errors import CorruptTable
from inlay.format import keys
from inlay.format.properties import Properties
from inlay.format.snapshot import Snapshot
from inlay.ops.commit import commit, expect_committed
from inlay.ops.context import Context
from inlay.ops.expire import DAY_US
from inlay.ops.load import Loaded, find_version, load_pointer, load_segments
from inlay.plan.change import Change, Edit, NeedSegments
from inlay.plan.retention import gone_through
from inlay.plan.roots import (
    GarbagePlan,
    Listed,
    Reach,
    Tally,
    named,
    named_until,
    plan_garbage,
)
from inlay.plan.state import Contents, State
from inlay.storage.base import MAX_DELETE_KEYS, DeleteFailure, Upload

# Keys a dry run and a report carry; the counts are always whole.
MAX_NAMES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectResult:
    """`objects` and `bytes` were deleted (in a dry run: would be), by `kinds`; `young` objects nobody
    needs wait for their grace. `unknown` objects are none of this library's; at most 100 are named.
    `keys` names up to 1,000 of what was deleted."""

    version: int
    commit_id: str | None = None
    dry_run: bool = False
    boundary_us: int = 0
    objects: int = 0
    bytes: int = 0
    kinds: Mapping[str, Tally] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    young: int = 0
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0
    uploads: int = 0
    roots: int = 0
    failures: tuple[DeleteFailure, ...] = ()


def collect_garbage(
    ctx: Context,
    *,
    base: Loaded | None = None,
    grace_seconds: float | None = None,
    dry_run: bool = False,
) -> CollectResult:
    """Delete what has been unneeded for `grace_seconds` (property `gc.grace_days` unless given).

    The grace must be longer than the longest read and the longest upload: a reader of an expired
    version keeps its files that long, a writer slower than that must upload again.
    """
    loaded = load_pointer(ctx, carried=None if base is None else base.state.contents)
    # Commits within one second of the store's clock bear times a little ahead of it.
    now_us = max(loaded.date_us, loaded.snapshot.commit.time_us)
    if grace_seconds is None:
        grace_us = Properties(loaded.snapshot.properties).number("gc.grace_days") * DAY_US
    else:
        grace_us = int(grace_seconds * 1_000_000)
    since_us = now_us - grace_us
    boundary_us = max(loaded.date_us - grace_us, 0)
    roots = _Roots(ctx, since_us)
    roots.add(loaded.state)
    listed = list(_list(ctx))
    uploads = _stale_uploads(ctx, boundary_us)
    plan = roots.plan(listed, boundary_us)
    # An expiry's grace begins when a commit writes down that it was seen (`snapshot.observed`).
    due = plan.doomed or uploads or loaded.has_open_times
    if dry_run or not due:
        return _result(loaded, plan, roots, boundary_us, uploads=len(uploads), dry_run=dry_run)

    change = Change(
        operation="collect_garbage",
        edit=Edit(boundary_us=boundary_us, forget_expired_before_us=since_us),
    )
    loaded = expect_committed(ctx, commit(ctx, change, base=loaded)).loaded
    roots.add(loaded.state)
    plan = roots.plan(listed, boundary_us)
    failures = tuple(delete_objects(ctx, (item.key for item in plan.doomed)))
    aborted = sum(ctx.map(lambda u: _abort(ctx, u), uploads))
    result = _result(loaded, plan, roots, boundary_us, uploads=aborted, dry_run=False)
    return replace(result, commit_id=loaded.snapshot.commit.id, failures=failures)


def delete_objects(ctx: Context, relative: Iterable[str]) -> Iterator[DeleteFailure]:
    """Delete objects of the table, 1,000 a request, requests in parallel."""
    names = [ctx.key(key) for key in relative]
    batches = [names[n : n + MAX_DELETE_KEYS] for n in range(0, len(names), MAX_DELETE_KEYS)]
    for failures in ctx.map(ctx.store.delete, batches):
        yield from failures


def _list(ctx: Context) -> Iterator[Listed]:
    prefix = ctx.key("")
    for info in ctx.store.list(prefix):
        yield Listed(info.key[len(prefix) :], info.size, info.modified_us)


def _stale_uploads(ctx: Context, boundary_us: int) -> list[Upload]:
    return [u for u in ctx.store.list_uploads(ctx.key("")) if u.started_us < boundary_us]


def _abort(ctx: Context, upload: Upload) -> int:
    ctx.store.abort_multipart(upload.key, upload.upload_id)
    return 1


class _Roots:
    """What must be kept: gathered version by version, each archive and segment read once."""

    def __init__(self, ctx: Context, since_us: int) -> None:
        self.ctx = ctx
        self.since_us = since_us
        self.gone_through = 0
        self.kept: set[int] = set()
        self._reach = Reach()
        self._contents = Contents()
        self._seen: set[int] = set()
        self._newest: Snapshot | None = None
        self._needed: frozenset[str] = frozenset()

    def add(self, state: State) -> None:
        """Make the current snapshot and all that it keeps roots."""
        current = state.snapshot
        self.gone_through = gone_through(current, before_us=self.since_us + 1)
        between = range(self.gone_through + 1, current.version)
        for snapshot in self._load(current, [v for v in between if v not in self._seen]):
            self._take_next(snapshot)
        self._take_next(current)
        self.kept |= named(current)
        for snapshot in self._load(current, sorted(self.kept - self._seen)):
            self._take(snapshot)
        self._resolve(state)

    def _take_next(self, snapshot: Snapshot) -> None:
        if self._newest is not None:
            self.kept |= named_until(self._newest, snapshot, since_us=self.since_us)
        self._newest = snapshot
        self._take(snapshot)

    def _take(self, snapshot: Snapshot) -> None:
        self._seen.add(snapshot.version)
        self._reach.add(snapshot)

    def _load(self, current: Snapshot, versions: Iterable[int]) -> Iterator[Snapshot]:
        def load(version: int) -> Snapshot | None:
            found = find_version(self.ctx, version)
            readable = version >= current.oldest_version or version in self.kept
            if found is None and readable:
                # What it needs cannot be known: better to keep everything.
                raise CorruptTable(
                    f"the archive of version {version} is missing",
                    table=self.ctx.uri,
                    key=self.ctx.key(keys.archive_key(version)),
                    version=version,
                )
            return found

        for found in self.ctx.map(load, versions):
            # An expired one may have been deleted by a run with a shorter grace.
            if found is not None:
                yield found

    def _resolve(self, state: State) -> None:
        known = state.contents
        contents = Contents(
            {**known.files, **self._contents.files}, {**known.markers, **self._contents.markers}
        )
        files, markers = self._reach.files, self._reach.markers
        need = NeedSegments(
            files=tuple(s for i, s in files.items() if i not in contents.files),
            markers=tuple(s for i, s in markers.items() if i not in contents.markers),
        )
        self._contents = load_segments(self.ctx, State(state.snapshot, contents), need).contents
        # An adopted file may lie within the table's own prefix: there it is listed by its key.
        inside = f"{self.ctx.store.scheme}://{self.ctx.store.bucket}/{self.ctx.key('')}"
        self._needed = frozenset(
            name.removeprefix(inside) for name in self._reach.resolve(self._contents)
        )

    def plan(self, listed: Iterable[Listed], boundary_us: int) -> GarbagePlan:
        return plan_garbage(
            listed,
            self._needed,
            boundary_us=boundary_us,
            gone_through=self.gone_through,
            kept_versions=frozenset(self.kept),
        )

    def __len__(self) -> int:
        return len(self._seen)


def _result(
    loaded: Loaded,
    plan: GarbagePlan,
    roots: _Roots,
    boundary_us: int,
    *,
    uploads: int,
    dry_run: bool,
) -> CollectResult:
    return CollectResult(
        version=loaded.snapshot.version,
        dry_run=dry_run,
        boundary_us=boundary_us,
        objects=len(plan.doomed),
        bytes=sum(item.size for item in plan.doomed),
        kinds=plan.by_kind(),
        keys=tuple(item.key for item in plan.doomed[:MAX_NAMES]),
        young=plan.young,
        unknown=plan.unknown,
        unknown_count=plan.unknown_count,
        uploads=uploads,
        roots=len(roots),
    )
