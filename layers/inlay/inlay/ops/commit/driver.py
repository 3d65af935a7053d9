"""The driver: the one way a table changes, from the base to begin on to the result that is reported.

Promise: a change is committed exactly once or not at all, and the caller learns which, or that it is
unknown (`OutcomeUnknown`). Every operation uses it: those of `ops`, functions and Spark alike.

`commit` takes a change that is the same on any base. `commit_planned` takes a function that plans one, and
calls it again when the last plan no longer holds. `ops.commit.group` combines the appends of several
threads into one change. All take the same steps::

    plan     the caller's: reads the base, uploads data                       → a change
    propose  `plan.commit.apply`, pure; segments it asks for are loaded       → a proposal, or why none
    write    new segments and the archive of the base, If-None-Match: *, in parallel
    swap     `ops.commit.register`                                            → won, lost or unknown

Of those that race for a base one archives it: an append that may have met others does that first, and
proposes when it has won (`commit_proposed`).

Failures, and how they are handled::

    the swap is lost            propose again on the winner's version; written segments are used again
    an answer is lost, or 409   the register reads, and repeats the swap if nothing happened
    the outcome is unknown      `OutcomeUnknown`: the same request id may be sent again
    others win every race       `CommitContention`, after MAX_ATTEMPTS and MAX_SECONDS
    a conflict                  plan again on the new base, MAX_PLANS times, then `ConcurrentChange`
    GC overtook the upload      plan, and so upload, again after a second, then `StaleUpload`
    applied before              `Skipped`: the ledger is checked on every base (`plan.metadata.state`)
    an archive of other bytes   `ForeignArchives`: nothing was swapped
    another table, or none      `TableReplaced`

How long a writer waits before its next try: full jitter (AWS Architecture Blog, "Exponential Backoff And
Jitter"), but for its unfairness: a newcomer waits least and overtakes whoever has lost often. So the window
shrinks again with the time a commit has been waiting, to a tenth after BACKOFF_PATIENCE; and for
CONTENDED_SECONDS after it has met another, in a race or by what was committed, a writer reads the pointer
before each commit, or the winner, who knows the pointer, would win again. A writer that wins from the start
meets no other: every MAX_UNREAD commits in a row it reads the pointer all the same, and others that read
meanwhile have a chance. One of transactions waits before that (`let_others_in`). tests/measured/backoff.py
and benchmarks/contention.py measure it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeVar, assert_never
from uuid import UUID

from inlay.errors import (
    CommitContention,
    ConcurrentChange,
    CorruptTable,
    ForeignArchives,
    InlayError,
    InvalidRequest,
    KeyTaken,
    RequestReused,
    RequestTooOld,
    StaleUpload,
    StoreUnavailable,
)
from inlay.format import keys
from inlay.format.codec import encode_head, encode_snapshot
from inlay.format.entry import Types
from inlay.format.snapshot import Commit, HeadObject, Snapshot, content_of, with_open_times
from inlay.notebook import Shown
from inlay.ops.commit.register import Lost, Unknown, Won, read_after, superseded_by, swap
from inlay.ops.context import Context
from inlay.ops.metadata.load import (
    CONTENT_BYTES,
    MAX_LOADS,
    LoadedTable,
    bounded,
    grown,
    handed_over_elsewhere,
    load_again,
    load_pointer,
    load_segments,
    on_branch,
    resolve,
    retain,
)
from inlay.plan.change import (
    AddFiles,
    AlreadyApplied,
    Change,
    Conflict,
    HandedOver,
    NeedSegments,
    Proposal,
    Request,
    RequestRefused,
    Stale,
    Unchanged,
    Unit,
)
from inlay.plan.commit.apply import apply, seal
from inlay.plan.metadata.state import State, look_up
from inlay.plan.refs import with_head
from inlay.record import Mutable, Record, field, replace
from inlay.storage.base import Head
from inlay.storage.wrapped import NO_USAGE, Usage
from inlay.storage.write_once import Stored

_LOG = logging.getLogger("inlay.commit")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Name = Callable[[bytes], str]

# A writer gives up after this many lost races or this long, whichever comes later: with 40 writers at S3's
# 15 swaps a second a fair share is one win in three seconds.
MAX_ATTEMPTS = 100
MAX_SECONDS = 120.0
# Plans of one operation, each on a newer base, when others keep conflicting.
MAX_PLANS = 20
# Uploads of one plan that garbage collection overtakes.
MAX_UPLOADS = 2
# Of a writer that waits, in seconds. The first window is what a racer's swap and a read take: with half of
# it 16 writers send a tenth more requests for one commit in a hundred more (`tests/measured/backoff.py`).
BACKOFF_BASE = 0.04
BACKOFF_CAP = 0.6
BACKOFF_PATIENCE = 4.0
CONTENDED_SECONDS = 2.0
# Between two looks at a transaction that keeps this writer waiting, at most.
SETTLE_SECONDS = 0.2
# Commits in a row, each within CONTENDED_SECONDS of the one before it.
MAX_UNREAD = 16


def back_off(ctx: Context, attempt: int, since: float | None = None) -> None:
    """Waits before the next try; `since`: when the first began."""
    waited = 0.0 if since is None else ctx.clock.monotonic() - since
    patience = max(0.1, 1 - waited / BACKOFF_PATIENCE)
    window = min(BACKOFF_CAP, BACKOFF_BASE * 2 ** min(attempt - 1, 10)) * patience
    seconds = ctx.random.uniform(0, window)
    _LOG.info("another writer of %s came first: try %d in %.2f s", ctx.uri, attempt + 1, seconds)
    ctx.clock.sleep(seconds)


class Committed(Record):
    """This change is now part of the table, in exactly `loaded.snapshot.version`. `share` is this change's
    part of that version's commit, when others were committed with it (`ops.commit.group`). `note` is for
    the caller (`WriteResult.note`)."""

    loaded: LoadedTable
    duplicates: frozenset[bytes] = frozenset()
    skipped: tuple[Unit, ...] = ()
    attempts: int = 1
    share: Commit | None = None
    note: str = ""


class Skipped(Record):
    """Nothing was committed, and nothing had to be: `version` applied it before, None when there was
    nothing to do."""

    loaded: LoadedTable
    version: int | None = None
    duplicates: frozenset[bytes] = frozenset()
    skipped: tuple[Unit, ...] = ()

    @property
    def applied_before(self) -> bool:
        return self.version is not None or bool(self.duplicates)


class Conflicted(Record):
    """Does not hold on the current table; plan it again on `loaded`."""

    loaded: LoadedTable
    conflict: Conflict


CommitResult = Committed | Skipped | Conflicted
NotProposed = AlreadyApplied | Unchanged | Conflict | Stale | RequestRefused | HandedOver


class Planned(Record):
    """A change with the base as loaded for it, so that the commit need not search for the files it
    names."""

    change: Change
    base: LoadedTable


class Submit(Protocol):
    def __call__(self, ctx: Context, change: Change, *, base: LoadedTable) -> CommitResult: ...


def commit_planned(
    ctx: Context,
    base: LoadedTable,
    plan: Callable[[LoadedTable], Change | Planned | None],
    *,
    plans: int = MAX_PLANS,
    uploads: int = MAX_UPLOADS,
    once: bool = False,
    submit: Submit | None = None,
) -> Committed | Skipped:
    """Commits the change that `plan` returns for `base`, or for a later version; None is nothing to do.

    `plans` is 1 where a conflict is final; `once`: the data can be read, and so written, only once.
    `submit` commits each change (default: `commit`). Raises `ConcurrentChange`, `StaleUpload`, and what
    `commit` raises.
    """
    if once:
        plans = uploads = 1
    started = ctx.clock.monotonic()
    loaded, planned, uploaded = base, 0, 0
    while True:  # terminates: plans and uploads are bounded
        next_change = plan(loaded)
        if next_change is None:
            return Skipped(loaded)
        planned_on = (
            next_change if isinstance(next_change, Planned) else Planned(next_change, loaded)
        )
        change, loaded = planned_on.change, planned_on.base
        try:
            outcome = (submit or commit)(ctx, change, base=loaded)
        except StaleUpload:
            uploaded += 1
            if uploaded >= uploads:
                raise
            ctx.clock.sleep(float(uploaded))  # store times are whole seconds
            loaded = load_again(ctx, loaded)
            continue
        if not isinstance(outcome, Conflicted):
            return outcome
        loaded, planned = outcome.loaded, planned + 1
        if planned >= plans:
            raise ConcurrentChange(
                f"others conflicted{'' if plans == 1 else f' {plans} times'}: "
                f"{outcome.conflict.reason}",
                table=ctx.uri,
                version=loaded.snapshot.version,
            )
        back_off(ctx, planned, started)


def commit_or_skip(ctx: Context, change: Change, *, base: LoadedTable) -> Committed | Skipped:
    """As `commit`, for one of many pieces of work: if GC overtook its objects, or all its work was given
    up, it is skipped, and its caller plans again on `loaded`."""
    return commit_planned(ctx, base, lambda now: change if now is base else None, plans=1)


def commit(ctx: Context, change: Change, *, base: LoadedTable | None = None) -> CommitResult:
    """Commits `change`, rebasing as often as others win. See the module's head.

    Raises `CommitContention` when others won too often, `OutcomeUnknown`, `StaleUpload` when the
    change's objects are older than the GC boundary, `RequestReused`, `RequestTooOld`, `TableReplaced`.
    """
    outcome: Proposal | NotProposed
    base = base or load_pointer(ctx)
    change = with_note_of(ctx, change)
    if ctx.hold is not None:
        held: CommitResult = ctx.hold(ctx, change, base)
        return held
    holds = only_appends(change)
    loaded, outcome, attempts = commit_proposed(ctx, base, partial(apply, change=change), holds)
    if isinstance(outcome, Proposal):
        return Committed(loaded, outcome.duplicates, outcome.skipped, attempts)
    return not_committed(ctx, loaded, outcome)


def only_appends(change: Change) -> bool:
    adds = all(isinstance(update, AddFiles) for update in change.updates)
    return adds and not (change.requires or change.objects) and change.deleted_rows == 0


def with_note_of(ctx: Context, change: Change) -> Change:
    """`change` as this caller commits it."""
    return change if ctx.note is None else replace(change, note=ctx.note)


def not_committed(ctx: Context, loaded: LoadedTable, outcome: NotProposed) -> Skipped | Conflicted:
    """The result for a change that was not proposed; raises if it can never be."""
    match outcome:
        case AlreadyApplied(version, duplicates):
            return Skipped(loaded, version, duplicates)
        case Unchanged(skipped):
            return Skipped(loaded, skipped=skipped)
        case Conflict():
            return Conflicted(loaded, outcome)
        case Stale():
            raise StaleUpload(
                "objects of this write were uploaded before the table's GC boundary",
                table=ctx.uri,
                version=loaded.snapshot.version,
            )
        case RequestRefused():
            raise refusal(ctx, outcome)
        case HandedOver():
            raise handed_over_elsewhere(ctx, loaded.snapshot)
        case _:
            assert_never(outcome)


def refusal(ctx: Context, refused: RequestRefused) -> InlayError:
    match refused.kind:
        case "reused":
            return RequestReused(refused.reason, table=ctx.uri)
        case "too_old":
            return RequestTooOld(refused.reason, table=ctx.uri)
        case "twice":
            return InvalidRequest(
                f"the commit adds rows that the table has already: {refused.reason}",
                next_step="Nothing was added. Refresh the table: they are there. Commit a file once",
                table=ctx.uri,
            )
        case _:
            assert_never(refused.kind)


def expect_committed(ctx: Context, result: CommitResult) -> Committed | Skipped:
    """For changes that cannot conflict."""
    if isinstance(result, Conflicted):
        raise ConcurrentChange(
            result.conflict.reason, table=ctx.uri, version=result.loaded.snapshot.version
        )
    return result


class WrittenSegments(Mutable):
    """The segments that this commit has written. Segments of earlier attempts serve later ones, which give
    the same bytes the same id: id → store time before the upload."""

    salt: str
    dates_us: dict[str, int] = field(default_factory=dict)

    def name(self, data: bytes) -> str:
        """The id of a segment of this commit: as random as the salt."""
        digest = blake2b(data, digest_size=16, key=self.salt.encode()).digest()
        return str(UUID(bytes=digest, version=4))

    def forget_stale(self, ctx: Context, boundary_us: int) -> None:
        """Objects that GC may delete get new names and are written again."""
        if any(date_us < boundary_us for date_us in self.dates_us.values()):
            self.salt = ctx.new_id()
            self.dates_us.clear()


class Propose(Protocol[T_co]):
    """A pure function of a base. `commit_id` and `name`, which gives ids to segments, are for the snapshot;
    `resolved` is a version for whose base everything that the function asked for was loaded."""

    def __call__(
        self, state: State, *, commit_id: str, name: Name, resolved: int
    ) -> T_co | NeedSegments: ...


def commit_proposed(
    ctx: Context, base: LoadedTable, propose: Propose[T], holds: bool
) -> tuple[LoadedTable, T, int]:
    """Proposes on the base, writes, swaps; if another writer wins, again on its version. Returns the
    committed proposal with the table after it, or the first answer that is not a proposal; and the number
    of attempts.

    Of what `holds` on any base the archive comes first, where it has begun or others were met. What may
    conflict leaves no archive in the way of others while it is planned again."""
    loaded, attempts, resolved = base, 0, 0
    started = ctx.clock.monotonic()
    written = WrittenSegments(ctx.new_id())

    def wait(tried: int) -> None:
        back_off(ctx, attempts + tried, started)

    while True:
        attempts += 1
        loaded = decided(ctx, loaded)
        is_raced = attempts > 1 or loaded.archiving is not None
        ended: LoadedTable | Lost | Unknown
        ended = _archived(ctx, loaded, wait) if holds and is_raced else loaded
        if isinstance(ended, LoadedTable):
            loaded, outcome = proposed(ctx, ended, propose, written, resolved=resolved)
            if not isinstance(outcome, Proposal):
                return loaded, outcome, attempts
            resolved = loaded.snapshot.version
            ended = _write_and_swap(ctx, loaded, outcome, written, wait)
        match ended:
            case LoadedTable():
                return with_races(ended, base, attempts), outcome, attempts
            case Unknown(error):
                raise error
            case Lost(current):
                too_long = ctx.clock.monotonic() - started > MAX_SECONDS
                if too_long and attempts >= MAX_ATTEMPTS:
                    raise CommitContention(
                        f"other writers won {attempts} races in a row",
                        table=ctx.uri,
                        version=loaded.snapshot.version,
                    )
                # The read that found the loss has loaded the base to continue from.
                loaded = on_branch(ctx, current, carried=loaded.state.contents)
            case _:
                assert_never(ended)


def with_races(ended: LoadedTable, base: LoadedTable, attempts: int) -> LoadedTable:
    """The table after a commit of `attempts` tries, with what the next one has to know of other writers
    (`recent_base`)."""
    if attempts > 1:
        return replace(ended, raced_at=ended.read_at)
    at_once = ended.read_at - base.read_at < CONTENDED_SECONDS
    return replace(ended, raced_at=base.raced_at, unread=base.unread + 1 if at_once else 0)


def let_others_in(ctx: Context, base: LoadedTable) -> None:
    """Waits as long as others do between two looks at a prepared table, before the read that `recent_base`
    makes after MAX_UNREAD commits in a row: a table can only be swapped between two transactions, and of
    those that follow each other at once the next has archived its base before anybody else has seen that
    the last one ended."""
    if base.unread >= MAX_UNREAD:
        ctx.clock.sleep(ctx.random.uniform(0, SETTLE_SECONDS))


def proposed(
    ctx: Context,
    loaded: LoadedTable,
    propose: Propose[T],
    written: WrittenSegments,
    *,
    resolved: int = 0,
) -> tuple[LoadedTable, T]:
    """What `propose` says of the base, and the base with the segments that it asked for."""
    written.forget_stale(ctx, loaded.snapshot.boundary.time_us or 0)
    commit_id = ctx.new_id()
    for _ in range(MAX_LOADS):
        outcome = propose(loaded.state, commit_id=commit_id, name=written.name, resolved=resolved)
        if not isinstance(outcome, NeedSegments):
            return loaded, outcome
        loaded = replace(loaded, state=load_segments(ctx, loaded.state, outcome))
    raise CorruptTable("planning keeps requesting more segments", table=ctx.uri)


def decided(ctx: Context, loaded: LoadedTable) -> LoadedTable:
    """`loaded`, or the table once the transaction that it is prepared for is decided: by whoever began it,
    or from its deadline on by this writer, which aborts it. The deadline only says how long others wait:
    whoever decides first has decided, so nothing depends on a clock. A store whose clock stands still ends
    no wait, so it also ends by the clock of this process."""
    main, began = loaded, ctx.clock.monotonic()
    wait_us = None
    while (transaction := main.open_for) is not None:
        from inlay.ops.metadata.decision import decide
        from inlay.ops.metadata.lost_decision import check_not_lost

        if wait_us is None:
            wait_us = transaction.deadline_us - main.date_us
        waited_us = (ctx.clock.monotonic() - began) * 1_000_000
        if main.date_us >= transaction.deadline_us or waited_us >= wait_us:
            check_not_lost(ctx, transaction)
            _LOG.warning("aborting transaction %s, which keeps %s waiting", transaction.id, ctx.uri)
            decide(ctx, transaction, committed=False)
        else:
            ctx.clock.sleep(ctx.random.uniform(0, SETTLE_SECONDS))
        main = read_after(ctx, loaded.snapshot)
    return loaded if main is loaded else on_branch(ctx, main, carried=loaded.state.contents)


def _write_and_swap(
    ctx: Context,
    loaded: LoadedTable,
    proposal: Proposal,
    written: WrittenSegments,
    wait: Callable[[int], None],
) -> LoadedTable | Lost | Unknown:
    """Writes what the proposal needs, then swaps it in; the table after it."""
    writes = writes_before(ctx, loaded, proposal, written, wait)
    head: HeadObject | None = None
    if ctx.branch is not None:
        # It contains the version it is for: a rebase makes another.
        data = encode_head(proposal.snapshot, Types(proposal.snapshot.schemas))
        head = HeadObject(ctx.new_id(), len(data))
        writes.append(partial(write_segment, ctx, head.id, data))
    snapshot = sealed(loaded, proposal, written, list(ctx.map(lambda write: write(), writes)))
    if isinstance(snapshot, Lost):
        return snapshot
    stored: Snapshot | None = None  # the pointer's snapshot, where this writer sees a branch
    if head is not None and ctx.branch is not None:
        ctx.cache.put(keys.segment_key(head.id), content_of(snapshot), CONTENT_BYTES * head.size)
        stored = with_head(snapshot, loaded.pointer, ctx.branch, head)
    data = encode_snapshot(stored or snapshot)
    outcome = swap(ctx, loaded, snapshot, data, wait=wait)
    if not isinstance(outcome, Won):
        return outcome
    pointer = None if stored is None else with_open_times(stored, outcome.date_us)
    return after_commit(ctx, loaded, proposal, snapshot, data, outcome, pointer)


def writes_before(
    ctx: Context,
    loaded: LoadedTable,
    proposal: Proposal,
    written: WrittenSegments,
    wait: Callable[[int], None],
) -> list[Callable[[], int | Lost]]:
    """The requests that must be done before the swap, all at once."""
    # The archive before the swap, never after: a crash in between would leave a version that nobody can
    # read again, and a writer that lost its answer could not find its commit.
    writes: list[Callable[[], int | Lost]] = [partial(archive, ctx, loaded, wait)]
    to_write = [s for s in proposal.segments if s.id not in written.dates_us]
    return writes + [partial(write_segment, ctx, s.id, s.data) for s in to_write]


def sealed(
    loaded: LoadedTable,
    proposal: Proposal,
    written: WrittenSegments,
    done: Sequence[int | Lost],
) -> Snapshot | Lost:
    """The snapshot to swap in, with its time, after `writes_before` have returned `done`."""
    for segment in proposal.segments:
        written.dates_us.setdefault(segment.id, loaded.date_us)
    date_us = loaded.date_us
    for outcome in done:
        if isinstance(outcome, Lost):
            return outcome
        date_us = max(date_us, outcome)
    return seal(proposal, date_us=date_us, previous_us=loaded.snapshot.commit.time_us)


def after_commit(
    ctx: Context,
    loaded: LoadedTable,
    proposal: Proposal,
    snapshot: Snapshot,
    data: bytes,
    outcome: Won,
    pointer: Snapshot | None = None,
) -> LoadedTable:
    """What the writer knows after its commit, without another request."""
    segments = [(s.kind, s.id, s.entries) for s in proposal.segments if s.kind != "schemas"]
    contents = retain(grown(loaded.state.contents, segments), snapshot)
    state = State(with_open_times(snapshot, outcome.date_us), bounded(contents))
    return LoadedTable(state, outcome.etag, data, outcome.date_us, ctx.clock.monotonic(), pointer)


def write_segment(ctx: Context, segment_id: str, data: bytes) -> int:
    """The store's date of a write-once object."""
    return ctx.write_once(keys.segment_key(segment_id), data).date_us


def write_archive(ctx: Context, loaded: LoadedTable) -> Stored:
    """Create the archive of a base, without a look at one that is there."""
    return ctx.write_once(keys.archive_key(loaded.snapshot.version), loaded.raw, compare=False)


def archive_at_once(ctx: Context, loaded: LoadedTable) -> tuple[LoadedTable, Snapshot]:
    """Archives a version before the commit after it does, for whoever deletes what it no longer needs: a
    pointer that is put back from here on, by one version too, is found by the next commit, which could
    otherwise bring in what was deleted.

    Returns it with its archive, so that a commit on it writes none, and what the pointer says now. Raises
    `ForeignArchives` if it has gone back by then, `TableReplaced`.
    """
    base = loaded.snapshot
    try:
        stored = ctx.write_once(keys.archive_key(base.version), loaded.raw)
    except KeyTaken as error:
        raise _differs(ctx, base) from error
    now = read_after(ctx, base)
    superseded_by(ctx, base, now)
    return _with_archive(loaded, stored), now.snapshot


def _with_archive(loaded: LoadedTable, stored: Stored) -> LoadedTable:
    """So that a commit on it writes none."""
    done: Future[Stored] = Future()
    done.set_result(stored)
    return replace(loaded, archiving=done)


def _archived(ctx: Context, loaded: LoadedTable, wait: Callable[[int], None]) -> LoadedTable | Lost:
    """`loaded` once `archive` has stored it."""
    date_us = archive(ctx, loaded, wait)
    return date_us if isinstance(date_us, Lost) else _with_archive(loaded, Stored("", date_us))


def _differs(ctx: Context, base: Snapshot) -> ForeignArchives:
    return ForeignArchives(
        f"the archive of version {base.version}, at which the pointer is, has other bytes",
        table=ctx.uri,
        key=ctx.key(keys.archive_key(base.version)),
        version=base.version,
    )


def archive(ctx: Context, loaded: LoadedTable, wait: Callable[[int], None]) -> int | Lost:
    """Stores the base byte for byte as it was read; the store's date, or that the base is superseded.

    An existing archive is usually that of a racing writer that has read the same pointer. It may also
    belong to another history: of an earlier table, or of this one before an older pointer was put back.
    Committing beside it would leave two versions with one number, and later readers would confuse them. So
    an existing archive is compared with the intended bytes, and the archive after it must not exist while
    the pointer is still the base: only a writer that has read a later pointer can have written that.

    Raises `ForeignArchives`; nothing was swapped then.
    """
    base = loaded.snapshot
    archiving = loaded.archiving
    stored = write_archive(ctx, loaded) if archiving is None else archiving.result()
    if not stored.was_there:
        return stored.date_us
    # Whoever archived it first is about to swap, or has done so: with that, the attempt is over for the
    # price of a swap that loses, and what is in the archive need not be known.
    wait(0)
    current = read_after(ctx, base)
    if current.etag != loaded.etag:
        return superseded_by(ctx, base, current)
    key = keys.archive_key(base.version)
    object_there = None
    with suppress(StoreUnavailable):
        object_there = ctx.get(key)
    if object_there is not None and object_there.body == loaded.raw:
        date_us = object_there.date_us
    else:
        try:
            date_us = ctx.write_once(key, loaded.raw).date_us
        except KeyTaken as error:
            raise _differs(ctx, base) from error
    after = keys.archive_key(base.version + 1)
    if isinstance(ctx.store.head(ctx.key(after)), Head):
        # If that archive were read before the pointer, the pointer would be beyond the base unless it went
        # back; but here the pointer was read first. Read it again.
        current = read_after(ctx, base)
        if current.etag != loaded.etag:
            return superseded_by(ctx, base, current)
        raise ForeignArchives(
            f"the pointer is at version {base.version}, and there is an archive of version "
            f"{base.version + 1}: it went back, or another table has left that archive",
            table=ctx.uri,
            key=ctx.key(after),
            version=base.version,
        )
    return date_us


# A base older than this is read again before an upload: the boundary may have moved by days.
RECENT_SECONDS = 3600.0


def recent_base(ctx: Context, base: LoadedTable | None) -> LoadedTable:
    """`base`, or the pointer as it is now: when there is no base, when it is old, when this writer met
    others a moment ago, or after MAX_UNREAD commits in quick succession (see the module's head).

    The base of an operation is never so old that the GC boundary may have passed what is uploaded on it,
    and never another table's; names are never applied to the columns of another schema; and work that a
    duplicate would discard is not started. The last is only an optimisation: the ledger is checked again on
    the base that is swapped out (`plan.metadata.state`).
    """
    if base is None:
        return load_pointer(ctx)
    now = ctx.clock.monotonic()
    is_contended = base.raced_at is not None and now - base.raced_at < CONTENDED_SECONDS
    is_recent = now - base.read_at <= RECENT_SECONDS
    if base.etag and is_recent and not is_contended and base.unread < MAX_UNREAD:
        return base
    current = load_again(ctx, base)
    has_met = base.etag not in ("", current.etag)
    return replace(current, raced_at=now if has_met else base.raced_at)


def current_base(ctx: Context, base: LoadedTable | None) -> LoadedTable:
    """The current pointer, for changes that read rows or files: an old base would not contain what was
    added since, and the operation would silently skip it."""
    return load_pointer(ctx) if base is None else load_again(ctx, base)


def check_same_schema(ctx: Context, planned_on: LoadedTable, now: LoadedTable) -> None:
    """For changes that are planned again with what names meant the first time: under another schema the
    same names may be other columns."""
    if now.snapshot.schema_id != planned_on.snapshot.schema_id:
        raise ConcurrentChange(
            "the schema was changed by another commit since this table was read",
            next_step="Call refresh(), check the schema, and repeat the operation",
            table=ctx.uri,
            version=now.snapshot.version,
        )


def known_requests(
    ctx: Context, loaded: LoadedTable, requests: Sequence[Request]
) -> tuple[LoadedTable, frozenset[bytes]]:
    """Which of these events the ledger has, and `loaded` with the ledger segments that were read."""
    # The caller reports requests that are too old; here times only select the segments to search.
    horizon = loaded.snapshot.ledger.horizon_us
    asked = [
        r if r.time_us is None or r.time_us >= horizon else replace(r, time_us=None)
        for r in requests
    ]
    state, answer = resolve(ctx, loaded.state, lambda s: look_up(s, None, asked))
    known = answer.duplicates if isinstance(answer, AlreadyApplied) else answer
    return replace(loaded, state=state), known if isinstance(known, frozenset) else frozenset()


def already_applied(
    ctx: Context, loaded: LoadedTable, request: Request | None
) -> tuple[LoadedTable, Skipped | None]:
    """`Skipped` when this request was applied before. Raises `RequestReused`, `RequestTooOld`,
    `TableHandedOver`."""
    if request is None or ctx.hold is not None:  # a transaction asks for its own, of all its tables
        loaded.refuse_handed_over(ctx)
        return loaded, None
    state, answer = resolve(ctx, loaded.state, lambda s: look_up(s, request))
    loaded = replace(loaded, state=state)
    if isinstance(answer, RequestRefused):
        raise refusal(ctx, answer)
    if isinstance(answer, AlreadyApplied):
        return loaded, Skipped(loaded, answer.version)
    loaded.refuse_handed_over(ctx)
    return loaded, None


class WriteResult(Record, Shown, kw_only=True):
    """One write.

    `committed` False means that nothing had to be done: `applied_before` under the same request id, or as
    the same events (then `version` is that commit), or nothing matched. `deleted_rows` None: a
    constant-time delete does not know. `requests` and `bytes_*` count what this call sent to the store and
    received. `note` states in words what was done otherwise than by default, and why.
    """

    operation: str
    committed: bool
    version: int
    commit_id: str | None = None
    added_rows: int = 0
    deleted_rows: int | None = 0
    added_files: int = 0
    removed_files: int = 0
    added_markers: int = 0
    added_bytes: int = 0
    duplicates: int = 0
    applied_before: bool = False
    attempts: int = 1
    note: str = ""
    usage: Usage = NO_USAGE

    @property
    def requests(self) -> int:
        return self.usage.total

    @property
    def bytes_up(self) -> int:
        return self.usage.bytes_up

    @property
    def bytes_down(self) -> int:
        return self.usage.bytes_down

    def _facts(self) -> Iterator[tuple[str, Any]]:
        for name, value in super()._facts():
            if name != "usage":
                yield name, value
        for name in ("requests", "bytes_up", "bytes_down"):
            yield name, getattr(self, name)


def write_result(
    operation: str, outcome: Committed | Skipped, usage: Usage = NO_USAGE
) -> WriteResult:
    snapshot = outcome.loaded.snapshot
    if isinstance(outcome, Skipped):
        return WriteResult(
            operation=operation,
            committed=False,
            version=outcome.version or snapshot.version,
            applied_before=outcome.applied_before,
            duplicates=len(outcome.duplicates),
            usage=usage,
        )
    commit = outcome.share or snapshot.commit
    return WriteResult(
        operation=operation,
        committed=True,
        version=snapshot.version,
        commit_id=commit.id,
        added_rows=commit.added_rows or 0,
        deleted_rows=commit.removed_rows,
        added_files=commit.added_files,
        removed_files=commit.removed_files,
        added_markers=commit.added_markers,
        added_bytes=commit.added_bytes,
        duplicates=len(outcome.duplicates),
        attempts=outcome.attempts,
        note=outcome.note,
        usage=usage,
    )
