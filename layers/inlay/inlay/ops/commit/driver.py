"""Commit: the one way a table changes.

Promise: a change is committed exactly once or not at all, and the caller is told which, or told that
it cannot be known (`OutcomeUnknown`). No answer of the store is believed about the swap but a clear
success: after anything else the commit *looks* (docs/FORMAT.md, "Commit").

::

    load    GET pointer                                   → base, ETag
    plan    `plan.commit.apply`, pure                            → proposal, or why not
    write   new segments and the archive of the base, If-None-Match: *, in parallel
    swap    PUT pointer, If-Match: <ETag of the base>
    look    when the swap's answer is anything but 200:
              target version bears my commit id  → committed (by an answer that was lost)
              pointer unchanged                  → the same swap again
              moved on without me                → lost: plan again on the new base
              gone, or another table             → stop

Why look at all, when S3 said 412? The SDK, a proxy or the network may have sent a PUT that landed
twice; the second answer is a 412 for our own success:

    writer          S3
      PUT v8  ───▶  stored, answer lost
      PUT v8  ───▶  412: the ETag is that of v8 now
      rebase, append again: the rows are there twice
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import TypeVar, assert_never
from uuid import UUID

from inlay.errors import (
    CommitContention,
    ConcurrentChange,
    CorruptTable,
    ForeignArchives,
    InlayError,
    KeyTaken,
    OutcomeUnknown,
    RequestReused,
    RequestTooOld,
    StaleUpload,
    StoreUnavailable,
    TableNotFound,
    TableReplaced,
)
from inlay.format import keys
from inlay.format.codec import encode_head, encode_snapshot
from inlay.format.content import content_of
from inlay.format.entry_json import Types
from inlay.format.snapshot import Commit, HeadObject, Snapshot, observed
from inlay.ops.context import Context
from inlay.ops.metadata.load import (
    CONTENT_BYTES,
    Loaded,
    bounded,
    find_version,
    grown,
    load_pointer,
    load_segments,
    on_branch,
    read_main,
    retain,
)
from inlay.plan.change import (
    AlreadyApplied,
    Change,
    Conflict,
    NeedSegments,
    Proposal,
    Refused,
    Stale,
    Unchanged,
    Unit,
)
from inlay.plan.commit.apply import apply, seal
from inlay.plan.metadata.state import State
from inlay.plan.refs.refs import with_head
from inlay.storage.base import Head, IfMatch, Written

_LOG = logging.getLogger("inlay.commit")
T = TypeVar("T")
Name = Callable[[bytes], str]

# A writer gives up after this many lost races or this long, whichever is later to come: with 40 writers
# at S3's 15 swaps a second a fair share is one win in three seconds.
MAX_ATTEMPTS = 100
MAX_SECONDS = 120.0
# The same swap on an unchanged pointer, after answers that told nothing.
MAX_SWAPS = 6
# Full-jitter backoff (AWS Architecture Blog, "Exponential Backoff And Jitter"), in seconds, but for its
# unfairness: a newcomer waits least and overtakes whoever has lost often. So the window shrinks again
# with the time a commit has been waiting, to a tenth after BACKOFF_PATIENCE. By benchmarks/backoff.py, 4 to
# 40 writers at 20 ms a request make 0.84 to 0.99 of the commits of a bare loop that never waits (1.35 where
# 40 saturate the server); the worst wait is up to a third above the loop's with 8 and 16, and below it
# with 4 and with 40. benchmarks/contention.py measures it with processes.
BACKOFF_BASE = 0.02
BACKOFF_CAP = 0.6
BACKOFF_PATIENCE = 4.0
# Segments a plan asks for come in at most a few rounds: ledger, entries, merges.
MAX_LOADS = 12


@dataclass(frozen=True, slots=True)
class Committed:
    """This change is now part of the table, in exactly `loaded.snapshot.version`. `share` is what of
    that version's commit is this change's, when others were committed with it (`ops.commit.group`)."""

    loaded: Loaded
    duplicates: frozenset[bytes] = frozenset()
    skipped: tuple[Unit, ...] = ()
    attempts: int = 1
    share: Commit | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Nothing was committed, and nothing had to be: `version` is where it was applied before, None when
    there was nothing to do."""

    loaded: Loaded
    version: int | None = None
    duplicates: frozenset[bytes] = frozenset()
    skipped: tuple[Unit, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Does not hold on the table as it is now; `loaded` is what it has to be planned on again."""

    loaded: Loaded
    conflict: Conflict


CommitResult = Committed | Skipped | Conflicted
NotProposed = AlreadyApplied | Unchanged | Conflict | Stale | Refused


@dataclass(slots=True)
class _Effort:
    """What this commit has done so far. Segments of earlier attempts serve the next ones, which give the
    same bytes the same id: id → store time before the upload."""

    started: float
    salt: str
    attempts: int = 0
    written: dict[str, int] = field(default_factory=dict)

    def name(self, data: bytes) -> str:
        """The id of a segment of this commit: as random as the salt."""
        digest = blake2b(data, digest_size=16, key=self.salt.encode()).digest()
        return str(UUID(bytes=digest, version=4))

    def forget_stale(self, ctx: Context, boundary_us: int) -> None:
        """Objects that GC may take are named, and written, anew."""
        if any(date_us < boundary_us for date_us in self.written.values()):
            self.salt = ctx.new_id()
            self.written.clear()


def commit(ctx: Context, change: Change, *, base: Loaded | None = None) -> CommitResult:
    """Commit `change`, rebasing as often as others win. See the module's head.

    Raises `CommitContention` when others won too often, `OutcomeUnknown`, `StaleUpload` when the
    change's objects are older than the GC boundary, `RequestReused`, `RequestTooOld`, `TableReplaced`.
    """

    resolved = 0

    def plan(loaded: Loaded, commit_id: str, name: Name) -> tuple[Loaded, Proposal | NotProposed]:
        nonlocal resolved
        found = propose(ctx, loaded, change, commit_id, name, resolved=resolved)
        resolved = found[0].snapshot.version
        return found

    loaded, outcome, attempts = race(ctx, base if base is not None else load_pointer(ctx), plan)
    if isinstance(outcome, Proposal):
        return Committed(loaded, outcome.duplicates, outcome.skipped, attempts)
    return declined(ctx, loaded, outcome)


def declined(ctx: Context, loaded: Loaded, outcome: NotProposed) -> Skipped | Conflicted:
    """What the caller is told of a change that was not proposed; raises where it can never be."""
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
        case Refused(reason, kind):
            error: type[InlayError] = RequestReused if kind == "reused" else RequestTooOld
            raise error(reason, table=ctx.uri)
        case _:
            assert_never(outcome)


def race(
    ctx: Context, base: Loaded, plan: Callable[[Loaded, str, Name], tuple[Loaded, T]]
) -> tuple[Loaded, T, int]:
    """Plan on the base, write, swap; when another wins, again on what he left. Ends with the proposal
    that is now in the table, and the table as it left it, or with the first plan that is none."""
    loaded = base
    effort = _Effort(ctx.clock.monotonic(), ctx.new_id())
    while True:
        effort.attempts += 1
        effort.forget_stale(ctx, loaded.snapshot.boundary.time_us or 0)
        loaded, outcome = plan(loaded, ctx.new_id(), effort.name)
        if not isinstance(outcome, Proposal):
            return loaded, outcome, effort.attempts
        ended = _attempt(ctx, loaded, outcome, effort)
        if isinstance(ended, Loaded):
            return ended, outcome, effort.attempts
        too_long = ctx.clock.monotonic() - effort.started > MAX_SECONDS
        if too_long and effort.attempts >= MAX_ATTEMPTS:
            raise CommitContention(
                f"other writers won {effort.attempts} races in a row",
                table=ctx.uri,
                version=loaded.snapshot.version,
            )
        # The look that told of the loss has read what to go on from.
        loaded = ended.to or load_pointer(ctx, carried=loaded.state.contents)


@dataclass(frozen=True, slots=True)
class _Lost:
    """Another commit has the version this attempt was for. `to` is the table as it was then seen."""

    to: Loaded | None = None


def propose(
    ctx: Context,
    loaded: Loaded,
    change: Change,
    commit_id: str,
    name: Name,
    *,
    resolved: int = 0,
) -> tuple[Loaded, Proposal | NotProposed]:
    """`plan.commit.apply`, with the segments it asks for loaded on the way."""
    for _ in range(MAX_LOADS):
        outcome = apply(loaded.state, change, commit_id=commit_id, name=name, resolved=resolved)
        if not isinstance(outcome, NeedSegments):
            return loaded, outcome
        loaded = replace(loaded, state=load_segments(ctx, loaded.state, outcome))
    raise CorruptTable("planning asks for ever more segments", table=ctx.uri)


def _attempt(ctx: Context, loaded: Loaded, proposal: Proposal, effort: _Effort) -> Loaded | _Lost:
    """Write what the proposal needs, then swap it in."""
    base = loaded.snapshot
    to_write = [s for s in proposal.segments if s.id not in effort.written]

    # The archive before the swap, never after: a crash in between would leave a version that nobody
    # can read again, and a writer who lost its answer could not find its commit.
    writes: list[Callable[[], int | _Lost]] = [partial(_archive, ctx, loaded, effort)]
    writes += [partial(_put_once, ctx, keys.segment_key(s.id), s.data) for s in to_write]
    head = _plan_head(ctx, proposal.snapshot)
    if head is not None:
        writes.append(partial(_put_once, ctx, keys.segment_key(head[0]), head[1]))
    dates: list[int] = []
    lost: _Lost | None = None
    for done in ctx.map(lambda write: write(), writes):
        if isinstance(done, _Lost):
            lost = done
        else:
            dates.append(done)
    for segment in to_write:
        effort.written[segment.id] = loaded.date_us
    if lost is not None:
        return lost

    snapshot = seal(
        proposal,
        date_us=max([loaded.date_us, *dates]),
        previous_us=base.commit.time_us,
    )
    if head is None or ctx.branch is None:
        return _swap(ctx, loaded, snapshot, None, proposal, effort)
    written = HeadObject(head[0], len(head[1]))
    ctx.cache.put(keys.segment_key(head[0]), content_of(snapshot), CONTENT_BYTES * len(head[1]))
    stored = with_head(snapshot, loaded.pointer, ctx.branch, written)
    return _swap(ctx, loaded, snapshot, stored, proposal, effort)


def _plan_head(ctx: Context, snapshot: Snapshot) -> tuple[str, bytes] | None:
    """(id, bytes) of the object for the content of a branch. It bears the version it is for: a rebase
    makes another."""
    if ctx.branch is None:
        return None
    return ctx.new_id(), encode_head(content_of(snapshot), Types(snapshot.schemas))


def _put_once(ctx: Context, relative: str, data: bytes) -> int:
    """A write-once object; the store's date."""
    return ctx.write_once(relative, data).date_us


def _archive(ctx: Context, loaded: Loaded, effort: _Effort) -> int | _Lost:
    """Store the base byte for byte as it was read; the store's date, or that the base is superseded.

    An archive that is there already is most often a racer's who has read the same pointer. It may also
    be of another history: of a table that was here before, or of this one before somebody put an older
    pointer back. Committing beside it would leave two versions of one number, and every later reader
    would take one for the other. So what is there is compared with what was meant, and the archive after
    it must not be there while the pointer is still the base: only who has read a pointer beyond it can
    have written that.

    Raises `ForeignArchives`; nothing was swapped then.
    """
    base = loaded.snapshot
    try:
        stored = ctx.write_once(keys.archive_key(base.version), loaded.raw)
        if not stored.was_there:
            return stored.date_us
        date_us: int | None = stored.date_us
    except KeyTaken:
        date_us = None
    # Whoever archived it first is about to swap, or has done so: with that, the attempt is over for the
    # price of a swap that loses.
    back_off(ctx, effort.attempts, effort.started)
    current = _read_after(ctx, base)
    if current.etag != loaded.etag:
        return _superseded(ctx, loaded, current)
    if date_us is None:
        raise ForeignArchives(
            f"the archive of version {base.version}, at which the pointer is, has other bytes than it",
            table=ctx.uri,
            key=ctx.key(keys.archive_key(base.version)),
            version=base.version,
        )
    after = keys.archive_key(base.version + 1)
    if isinstance(ctx.store.head(ctx.key(after)), Head):
        # Read after that archive, the pointer would be beyond the base if it had never gone back: but
        # here it was read before. Look again.
        current = _read_after(ctx, base)
        if current.etag != loaded.etag:
            return _superseded(ctx, loaded, current)
        raise ForeignArchives(
            f"the pointer is at version {base.version}, and there is an archive of version "
            f"{base.version + 1}: it went back, or another table has left that archive",
            table=ctx.uri,
            key=ctx.key(after),
            version=base.version,
        )
    return date_us


def _read_after(ctx: Context, base: Snapshot) -> Loaded:
    """The pointer, of the table of `base`."""
    try:
        current = read_main(ctx)
    except TableNotFound as error:
        raise TableReplaced(f"the table at {ctx.uri} is gone", table=ctx.uri) from error
    if current.snapshot.table_id != base.table_id:
        raise TableReplaced(f"{ctx.uri} is another table now", table=ctx.uri)
    return current


def _superseded(ctx: Context, loaded: Loaded, current: Loaded) -> _Lost:
    """The attempt on `loaded` is lost to `current`, if that can have followed on it."""
    base, found = loaded.snapshot, current.snapshot
    # The same commit under another ETag: somebody has written the pointer's own bytes over it.
    same = found.version == base.version and found.commit.id == base.commit.id
    if found.version > base.version or same:
        return _lost(ctx, loaded, current)
    raise ForeignArchives(
        f"the pointer of {ctx.uri} went back: this writer has seen version {base.version}, and it is at "
        + (
            f"version {found.version}"
            if found.version < base.version
            else "another one of that number"
        ),
        table=ctx.uri,
        version=found.version,
    )


def _swap(
    ctx: Context,
    loaded: Loaded,
    snapshot: Snapshot,
    own: Snapshot | None,
    proposal: Proposal,
    effort: _Effort,
) -> Loaded | _Lost:
    """`snapshot` is what this writer sees when it has won; `own`, on a branch, what the pointer says."""
    data = encode_snapshot(own or snapshot)
    unanswered: StoreUnavailable | None = None
    for swap in range(MAX_SWAPS):
        try:
            answer = ctx.store.put(ctx.key(keys.POINTER), data, condition=IfMatch(loaded.etag))
        except StoreUnavailable as error:
            unanswered = error  # outcome unknown: look
        except InlayError as error:
            if unanswered is None:
                raise  # this answer is the only one: nothing was done
            raise _unknown(
                ctx, snapshot, "an earlier try was not answered, the next met", error
            ) from error
        else:
            if isinstance(answer, Written):
                won = (data, answer.etag, answer.date_us)
                return _now(ctx, loaded, snapshot, own, proposal, *won)
            # Wait before the look, not after it: what it sees is then as fresh as it can be, and is
            # the base of the next attempt.
            back_off(ctx, effort.attempts + swap, effort.started)
        try:
            seen = _look(ctx, loaded, snapshot)
        except TableReplaced as error:
            if unanswered is None:
                raise
            raise _unknown(ctx, snapshot, "the swap was not answered, and then", error) from error
        if isinstance(seen, _Lost):
            return seen
        if seen is not None:
            return _now(ctx, loaded, snapshot, own, proposal, data, *seen)
        back_off(ctx, effort.attempts + swap, effort.started)  # unchanged: the same swap again
    raise OutcomeUnknown(
        f"the pointer of {ctx.uri} could not be swapped in {MAX_SWAPS} tries",
        table=ctx.uri,
        version=snapshot.version,
    ) from unanswered


def _look(ctx: Context, loaded: Loaded, mine: Snapshot) -> tuple[str, int] | _Lost | None:
    """Did my commit land? (ETag, date) when it did, `_Lost` when another has its version, None when
    the pointer is still the base.

    Raises `TableReplaced` when the pointer cannot have followed on the base. Every other failure is
    `OutcomeUnknown` with the failure as its cause, whatever it is: a reader who may not read, or cannot
    decode, what is there knows no more of the swap than one who was not answered.
    """
    archived: Snapshot | None = None
    try:
        current = _read_after(ctx, loaded.snapshot)
        found = current.snapshot
        if found.version > mine.version:
            archived, current = _look_back(ctx, mine.version, current)
    except TableReplaced:
        raise
    except Exception as error:
        raise _unknown(ctx, mine, "the look after the swap met", error) from error
    if found.version == mine.version:
        if found.commit.id == mine.commit.id:
            return current.etag, current.date_us
        return _lost(ctx, loaded, current)
    if found.version < mine.version:
        return None if current.etag == loaded.etag else _superseded(ctx, loaded, current)
    if archived is None:
        raise OutcomeUnknown(
            f"version {mine.version} has expired before this writer could look at it",
            table=ctx.uri,
            version=mine.version,
        )
    if archived.table_id != mine.table_id:
        raise OutcomeUnknown(
            f"the archive of version {mine.version}, which would tell, is another table's",
            table=ctx.uri,
            key=ctx.key(keys.archive_key(mine.version)),
            version=mine.version,
        )
    # Mine landed, and others on top of it: the swap is done, the base to go on from is not.
    return (
        _lost(ctx, loaded, current)
        if archived.commit.id != mine.commit.id
        else ("", current.date_us)
    )


def _unknown(ctx: Context, mine: Snapshot, what: str, error: Exception) -> OutcomeUnknown:
    told = error.message if isinstance(error, InlayError) else str(error)
    return OutcomeUnknown(
        f"whether version {mine.version} was committed is not known: {what} "
        f"{type(error).__name__}: {told}",
        table=ctx.uri,
        version=mine.version,
    )


def _look_back(ctx: Context, version: int, current: Loaded) -> tuple[Snapshot | None, Loaded]:
    """The archive of a version that others have committed on top of, and the pointer as it is by then.

    Both at once: a base that is one request older than the winner's loses to him every time.
    """

    def read(what: str) -> Snapshot | Loaded | None:
        return find_version(ctx, version) if what == "archive" else newest()

    def newest() -> Loaded:
        try:
            found = read_main(ctx)
        except InlayError:
            return current  # whatever became of it, the next swap will tell
        return found if found.snapshot.table_id == current.snapshot.table_id else current

    archived, now = ctx.map(read, ("archive", "pointer"))
    assert isinstance(now, Loaded)
    assert not isinstance(archived, Loaded)
    return archived, now


def _lost(ctx: Context, loaded: Loaded, current: Loaded) -> _Lost:
    return _Lost(on_branch(ctx, current, carried=loaded.state.contents))


def _now(
    ctx: Context,
    loaded: Loaded,
    snapshot: Snapshot,
    own: Snapshot | None,
    proposal: Proposal,
    data: bytes,
    etag: str,
    date_us: int,
) -> Loaded:
    """What the writer knows after its commit, without another request. An empty ETag (others have
    committed since) makes the next swap fail and rebase, which is right."""
    made = [(s.kind, s.id, s.entries) for s in proposal.segments if s.kind != "schemas"]
    contents = grown(loaded.state.contents, made)
    state = State(observed(snapshot, date_us), bounded(retain(contents, snapshot)))
    table = None if own is None else observed(own, date_us)
    return Loaded(state, etag, data, date_us, ctx.clock.monotonic(), table)


def back_off(ctx: Context, attempt: int, since: float | None = None) -> None:
    """Wait before the next try; `since`: when the first began."""
    waited = 0.0 if since is None else ctx.clock.monotonic() - since
    patience = max(0.1, 1 - waited / BACKOFF_PATIENCE)
    window = min(BACKOFF_CAP, BACKOFF_BASE * 2 ** min(attempt - 1, 10)) * patience
    seconds = ctx.random.uniform(0, window)
    _LOG.info(
        "another writer committed to %s first: try %d in %.2f s", ctx.uri, attempt + 1, seconds
    )
    ctx.clock.sleep(seconds)


def expect_committed(ctx: Context, result: CommitResult) -> Committed | Skipped:
    """For changes that conflict with nothing."""
    if isinstance(result, Conflicted):
        raise ConcurrentChange(
            result.conflict.reason, table=ctx.uri, version=result.loaded.snapshot.version
        )
    return result


def create_pointer(ctx: Context, snapshot: Snapshot) -> Loaded | None:
    """Write a first snapshot where nothing is; None when a table is there already."""
    data = encode_snapshot(snapshot)
    try:
        done = ctx.write_once(keys.POINTER, data)
    except KeyTaken:
        return None
    except StoreUnavailable as error:
        raise OutcomeUnknown(
            f"the table at {ctx.uri} could not be created", table=ctx.uri
        ) from error
    return Loaded(State(snapshot), done.etag, data, done.date_us, ctx.clock.monotonic())
