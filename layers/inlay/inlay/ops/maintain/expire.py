"""Expire: old versions can no longer be opened, and their objects become garbage after the grace.

Promise: nothing is deleted here, and nothing that the retention or a ref keeps is expired
(`plan.maintain.roots`). One commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from inlay.errors import (
    ClocksDisagree,
    CorruptTable,
    ForeignArchives,
    ForeignCommit,
    InvalidRequest,
    SnapshotGone,
    VersionNotFound,
)
from inlay.format import keys
from inlay.format.properties import is_published
from inlay.format.snapshot import HeadObject, Segment, Snapshot, with_content
from inlay.notebook import Shown
from inlay.ops.commit.driver import (
    Committed,
    commit,
    expect_committed,
    recent_base,
)
from inlay.ops.context import Context
from inlay.ops.metadata.load import (
    LoadedTable,
    decode_archive,
    load_as_of,
    load_head,
    load_segments,
    read_archive,
    read_main,
)
from inlay.plan.change import Change, ExpireThrough, NeedSegments
from inlay.plan.maintain.roots import (
    GarbagePlan,
    Listed,
    ListingFacts,
    Reachable,
    clock_fault,
    expired_before,
    plan_expiry,
    plan_garbage,
)
from inlay.plan.metadata.state import Contents, State
from inlay.plan.refs import heads, held_versions
from inlay.record import Record
from inlay.storage.base import MAX_DELETE_KEYS, DeleteFailure, ObjectVersion, Upload

# Archives that one run holds in memory, of some 5 KB each: those of more than ten thousand versions.
MAX_HISTORY_BYTES = 64 * 1024 * 1024


def delete_objects(
    ctx: Context, relative: Iterable[str], *, confirmed: bool = False
) -> Iterator[DeleteFailure]:
    """Deletes objects of the table, 1,000 a request, requests in parallel. `confirmed`: the caller has just
    seen the table's pointer, so the first batch, which is sent at once, goes without another look.

    Raises `TableReplaced` and `TableNotFound`, see `check_still_there`.
    """
    # What needs a look goes first.
    names = sorted(relative, key=keys.is_named_by_version, reverse=True)
    batches = [names[n : n + MAX_DELETE_KEYS] for n in range(0, len(names), MAX_DELETE_KEYS)]

    def delete(number: int) -> Iterable[DeleteFailure]:
        if number or not confirmed:
            check_still_there(ctx, batches[number])
        return ctx.store.delete([ctx.key(key) for key in batches[number]])

    for failures in ctx.map(delete, range(len(batches))):
        yield from failures


def check_still_there(ctx: Context, doomed: Iterable[str]) -> None:
    """Raises `TableReplaced` or `TableNotFound` if the table was removed since these keys were listed, and
    another one at its place may have objects of their names: archives are called after their version. One
    GET, none for names that are random."""
    if any(keys.is_named_by_version(key) for key in doomed):
        read_main(ctx)


def list_objects(ctx: Context) -> Iterator[Listed]:
    for info in ctx.store.list(ctx.key("")):
        yield Listed(ctx.relative(info.key), info.size, info.modified_us)


def check_deletable(ctx: Context, snapshot: Snapshot, seen: ListingFacts, margin_us: int) -> None:
    """Raises if the garbage of a listing must not be deleted. `seen` was listed after `snapshot` was read.

    Not under a pointer that went back: it would treat what only the later versions need as garbage
    (`ForeignArchives`). Not with clocks that contradict each other (`ClocksDisagree`). Not where another
    catalog took the published table over: its files would be garbage (`ForeignCommit`).
    """
    check_clocks(ctx, snapshot, seen, margin_us)
    if seen.foreign:
        raise ForeignCommit(
            f"another catalog has committed to this table: {seen.foreign}",
            table=ctx.uri,
            key=ctx.key(seen.foreign),
        )
    if seen.newest_archive <= snapshot.version:
        return
    now = read_main(ctx).snapshot
    if seen.newest_archive > now.version:
        raise ForeignArchives(
            f"the pointer is at version {now.version}, and there is an archive of version "
            f"{seen.newest_archive}: it went back, or another table has left that archive",
            table=ctx.uri,
            key=ctx.key(keys.archive_key(seen.newest_archive)),
            version=now.version,
        )


def check_clocks(
    ctx: Context,
    snapshot: Snapshot,
    seen: ListingFacts,
    margin_us: int,
    *,
    now_us: int | None = None,
) -> None:
    """`now_us`: the Date of an answer after the listing, if there was one."""
    fault = clock_fault(
        seen, committed_us=snapshot.commit.time_us, now_us=now_us, margin_us=margin_us
    )
    if fault is not None:
        raise ClocksDisagree(fault, table=ctx.uri, version=snapshot.version)


class Listing(Record):
    """Every object version and unfinished upload under the table's prefix, at one look."""

    versions: Sequence[ObjectVersion]
    uploads: Sequence[Upload]

    @classmethod
    def of(cls, ctx: Context) -> Listing:
        prefix = ctx.key("")
        versions = list(ctx.store.list_versions(prefix))
        return cls(versions, list(ctx.store.list_uploads(prefix)))

    def current(self, ctx: Context) -> Iterator[Listed]:
        """Objects as `list_objects` gives them."""
        for v in self.versions:
            if v.is_latest and not v.marker:
                yield Listed(ctx.relative(v.key), v.size, v.modified_us)

    def uploads_before(self, before_us: int) -> list[Upload]:
        return [u for u in self.uploads if u.started_us < before_us]


class History:
    """Versions and segments that roots of one run read, each once, however many roots it gathers: an
    erasure that forgets a table's history does so right before garbage is collected. For one run: what is
    at a name is the same as long as the table is, which a run that deletes checks.

    Archives are held as they are stored, up to MAX_HISTORY_BYTES; beyond, they are read each time."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.contents = Contents()
        # What there was at the end of the last sweep of this run, when nothing was left to delete.
        self.listing: Listing | None = None
        self._archives: dict[int, bytes] = {}
        self._held_bytes = 0

    def find(self, version: int) -> Snapshot | None:
        """An archived version; None if there is no such archive. One GET, none if it was read before."""
        body = self._archives.get(version)
        if body is None:
            body = read_archive(self.ctx, version)
            if body is None:
                return None
            self._hold(version, body)
        return decode_archive(self.ctx, version, body)

    def note(self, loaded: LoadedTable) -> None:
        """A pointer that this run has read or written: the next commit archives it as it is."""
        if loaded.own is None and loaded.transaction is None and loaded.etag:
            self._hold(loaded.snapshot.version, loaded.raw)

    def _hold(self, version: int, body: bytes) -> None:
        if version not in self._archives and self._held_bytes + len(body) <= MAX_HISTORY_BYTES:
            self._archives[version] = body
            self._held_bytes += len(body)


class Roots:
    """What must be kept: gathered version by version, each archive and segment read once.

    For expiry and garbage collection alike. The needs of every current, retained, recently expired or
    referenced version are found, or an error stops the caller: nothing may be deleted on partial roots.
    """

    def __init__(self, ctx: Context, since_us: int, history: History | None = None) -> None:
        self.ctx = ctx
        self.since_us = since_us
        self.history = history or History(ctx)
        self.gone_through = 0
        self.kept: set[int] = set()  # named by a ref, now or less than the grace ago
        self._held: frozenset[int] = frozenset()  # named by a ref now
        self._reach = Reachable()
        self._seen: set[int] = set()
        self._heads: set[str] = set()
        self._newest: Snapshot | None = None
        self.needed: frozenset[str] = frozenset()  # objects, by key relative to the table root
        self._published: frozenset[str] = frozenset()
        self._promised: set[str] = set()  # segments of versions that can still be opened

    def add(self, state: State) -> None:
        """Makes the current snapshot and all that it keeps roots."""
        current = state.snapshot
        self._held = held_versions(current)
        # If the table is no longer to be published, what was published is garbage.
        self._published, published_versions = frozenset(), frozenset[int]()
        if is_published(current.properties):
            from inlay.ops.metadata.publication import find_reachable

            reached = find_reachable(self.ctx)
            self._published, published_versions = reached.objects, reached.versions
        self.gone_through = expired_before(current, before_us=self.since_us + 1)
        between = range(self.gone_through + 1, current.version)
        bearers: dict[HeadObject, Snapshot] = {}
        for snapshot in chain(self._load(current, self._present(current, between)), [current]):
            # What refs of a version named was lost, if at all, at the commit after it.
            if self._newest is not None and snapshot.commit.time_us >= self.since_us:
                self.kept |= held_versions(self._newest)
            self._newest = snapshot
            self._take(current, snapshot)
            bearers |= dict.fromkeys(heads(snapshot), snapshot)
        self._take_heads(current, bearers)
        # A version that was committed since `current` was read, and published, has no archive yet; the
        # next round of roots meets it, and what it brought is younger than the boundary.
        self.kept |= self._held | {v for v in published_versions if v <= current.version}
        for snapshot in self._load(current, sorted(self.kept - self._seen)):
            self._take(current, snapshot)
        self._resolve(state)

    def _can_be_opened(self, current: Snapshot, version: int) -> bool:
        """Whether its objects must all exist. What only a dropped ref named may have been deleted: by a run
        with a shorter grace, by an erasure, or by a run that began later and saw the grace end."""
        return version >= current.oldest_version or version in self._held

    def _take_heads(self, current: Snapshot, bearers: Mapping[HeadObject, Snapshot]) -> None:
        """The contents of branches and tags at each of these versions."""
        unread = [(h, s) for h, s in bearers.items() if h.id not in self._heads]

        def load(item: tuple[HeadObject, Snapshot]) -> Snapshot | None:
            head, bearer = item
            try:
                return with_content(bearer, load_head(self.ctx, current, head))
            except (CorruptTable, SnapshotGone):
                if bearer.version >= current.oldest_version:
                    raise
                return None  # an erasure ended the version before its grace was over

        for (head, bearer), head_there in zip(unread, self.ctx.map(load, unread), strict=True):
            if head_there is not None:
                self._heads.add(head.id)
                self._reach.keys.add(keys.segment_key(head.id))
                self._reach.add(head_there)
                if bearer.version >= current.oldest_version:
                    self._promise(head_there)

    def _present(self, current: Snapshot, versions: range) -> list[int]:
        """The versions still to be read. Expired ones may be gone already (an erasure, or a run with a
        shorter grace): one listing shows it at a fraction of the requests of a GET for each."""
        unread = [v for v in versions if v not in self._seen]
        if not unread or unread[0] >= current.oldest_version:
            return unread
        listing = self.history.listing
        if listing is None:
            after = self.ctx.key(keys.SEGMENTS) + "~"
            listed = self.ctx.store.list(self.ctx.key(keys.ARCHIVES), start_after=after)
            names = [self.ctx.relative(info.key) for info in listed]
        else:
            names = [item.key for item in listing.current(self.ctx)]
        archives = {keys.archive_version(n) for n in names if n.startswith(keys.ARCHIVES)}
        return [v for v in unread if v in archives or v >= current.oldest_version]

    def _promise(self, snapshot: Snapshot) -> None:
        tiers = (snapshot.files, snapshot.markers, snapshot.ledger.records)
        self._promised |= {s.id for tier in tiers for s in tier.segments}

    def _take(self, current: Snapshot, snapshot: Snapshot) -> None:
        self._seen.add(snapshot.version)
        self._reach.add(snapshot)
        if self._can_be_opened(current, snapshot.version):
            self._promise(snapshot)

    def _load(self, current: Snapshot, versions: Iterable[int]) -> Iterator[Snapshot]:
        def load(version: int) -> Snapshot | None:
            snapshot = self.history.find(version)
            if snapshot is None and self._can_be_opened(current, version):
                # Its needs cannot be known: keep everything.
                raise self._missing(version)
            return snapshot

        for snapshot in self.ctx.map(load, versions):
            if snapshot is not None:
                yield snapshot

    def _missing(self, version: int) -> CorruptTable | SnapshotGone:
        """A run that takes longer than the grace may find that a version has expired since and was
        collected: it must start over. A version that can be opened now must exist."""
        newest = read_main(self.ctx).snapshot
        expired = version < newest.oldest_version and version not in held_versions(newest)
        error = SnapshotGone if expired else CorruptTable
        what = "has expired since it was found to be needed" if expired else "is missing"
        return error(
            f"the archive of version {version} {what}",
            table=self.ctx.uri,
            key=self.ctx.key(keys.archive_key(version)),
            version=version,
        )

    def _resolve(self, state: State) -> None:
        known, before = state.contents, self.history.contents
        contents = Contents(
            {**known.files, **before.files},
            {**known.markers, **before.markers},
            nodes={**known.nodes, **before.nodes},
        )
        nodes = self._reach.nodes
        contents = self._with_segments(state, contents, {"files": nodes})
        for node_id in nodes.keys() & self._promised:
            self._promised |= {leaf.id for leaf in contents.nodes[node_id]}
        self._reach.open(contents.nodes)
        leaves = {"files": self._reach.files, "markers": self._reach.markers}
        contents = self.history.contents = self._with_segments(state, contents, leaves)
        # An adopted file may be within the table's own prefix: there it is listed by its key.
        inside = self.ctx.location("")
        self.needed = self._published | {
            name.removeprefix(inside) for name in self._reach.resolve(contents)
        }

    def _with_segments(
        self, state: State, contents: Contents, reached: Mapping[str, dict[str, Segment]]
    ) -> Contents:
        """`contents` with the segments that were `reached`. Those that only expired versions need, as far
        as they exist, or they are reached no more: an erasure ends such versions before their grace is
        over, and a delayed archive may land since."""

        def loaded(**need: tuple[Segment, ...]) -> Contents:
            before = State(state.snapshot, contents)
            return load_segments(self.ctx, before, NeedSegments(**need)).contents

        known = {*contents.files, *contents.markers, *contents.nodes}
        for kind, segments in reached.items():
            for name in [n for n in segments if n not in known and n not in self._promised]:
                try:
                    contents = loaded(**{kind: (segments[name],)})
                    known.add(name)
                except (CorruptTable, SnapshotGone):
                    del segments[name]
        promised = {
            kind: tuple(s for name, s in segments.items() if name not in known)
            for kind, segments in reached.items()
        }
        return loaded(**promised)

    def plan(self, listed: Iterable[Listed], before_us: int) -> GarbagePlan:
        return plan_garbage(
            listed,
            self.needed,
            before_us=before_us,
            gone_through=self.gone_through,
            kept_versions=frozenset(self.kept),
        )

    def __len__(self) -> int:
        return len(self._seen)


DAY_US = 86_400_000_000


class ExpireResult(Record, Shown, kw_only=True):
    """Versions `first` … `through` have expired (None: none), except those in `held`, which refs keep.
    `oldest` is the oldest version that can still be opened."""

    version: int
    commit_id: str | None = None
    first: int | None = None
    through: int | None = None
    held: tuple[int, ...] = ()
    expired: int = 0
    oldest: int = 1


def expire(
    ctx: Context,
    *,
    base: LoadedTable | None = None,
    days: float | None = None,
    min_versions: int | None = None,
    dry_run: bool = False,
) -> ExpireResult:
    """Expires the versions that were superseded more than `days` ago, keeping at least `min_versions` (by
    default the properties `history.days` and `history.min_versions`)."""
    if days is not None and not (isinstance(days, int | float) and 0 <= days < 1e6):
        raise InvalidRequest(
            f"cannot keep versions for {str(days)[:50]!r} days",
            next_step="Give a number from 0, below a million",
        )
    loaded = recent_base(ctx, base)
    loaded.refuse_handed_over(ctx)
    snapshot = loaded.snapshot
    properties = snapshot.settings
    age_us = int((properties.number("history.days") if days is None else days) * DAY_US)
    count = properties.number("history.min_versions") if min_versions is None else min_versions
    if age_us < 0 or count < 1:
        raise InvalidRequest(
            f"cannot keep {days} days and {count} versions",
            next_step="Give days from 0 and at least 1 version",
            table=ctx.uri,
        )
    # Commits within one second of the store's clock have times a little ahead of it.
    now_us = max(loaded.date_us, snapshot.commit.time_us)
    newest_old = None
    with suppress(VersionNotFound):  # where every version that can be opened is younger
        newest_old = load_as_of(ctx, snapshot, now_us - age_us).version
    plan = plan_expiry(snapshot, newest_old=newest_old, min_versions=count)
    if plan is None:
        return ExpireResult(version=snapshot.version, oldest=snapshot.oldest_version)
    commit_id = None
    if not dry_run:
        change = Change(operation="expire", updates=(ExpireThrough(plan.through),))
        outcome = expect_committed(ctx, commit(ctx, change, base=loaded))
        snapshot = outcome.loaded.snapshot
        commit_id = snapshot.commit.id if isinstance(outcome, Committed) else None
    return ExpireResult(
        version=snapshot.version,
        commit_id=commit_id,
        first=plan.first,
        through=plan.through,
        held=plan.held,
        expired=plan.count,
        oldest=plan.through + 1,
    )
