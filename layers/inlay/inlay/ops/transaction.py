"""Transactions over several tables: one commit on each, all of them or none.

Promise: either every table has its change, under one decision, or none has; a reader of one table never
waits and sees the version before or the one after; `snapshot` shows several at one moment. Nothing rests on
a clock, and nobody has to come back after a crash.

::

    plan      each table's change, by the operations that commit on one table        → `Part`s
    write     segments, and the archive of each base                                  k writes at least
    prepare   each pointer is swapped for a frame that holds both versions            k
    decide    the object `transaction/<id>` of the first table is created             1
    finish    the next commit on each table takes the frame away; so does garbage collection

Whoever creates the decision has decided: this process "committed", or somebody whom a prepared table has
kept waiting since before the deadline "aborted" (`ops.commit.driver.decided`). Why no deadlock: a
transaction that meets another one, or loses a race, gives up all that it has prepared before it waits. Why
not the same two for ever: from the second try on the tables are prepared in the order of their ids, so of
those that meet, one is first. Why each try has an id of its own, for bases that are fixed before it
prepares anything: a decision may be deleted once every table has moved on from the base that it names
(`ops.metadata.needed_decisions`), for no prepared frame of it can come up any more.

Isolation: each change is planned on one version of its table, and holds on the one that it is committed
on, as a commit on that table alone would. A table that is only read takes part, prepared without a next
version: it is what was read until the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from inlay.errors import (
    CommitContention,
    ConcurrentChange,
    InlayError,
    InvalidRequest,
    NotAllowed,
    OutcomeUnknown,
    StaleUpload,
    StoreUnavailable,
)
from inlay.format import keys
from inlay.format.codec import encode_snapshot
from inlay.format.snapshot import Snapshot
from inlay.format.transaction import (
    VERSION,
    Participant,
    Prepared,
    Transaction,
    commit_id,
    encode_prepared,
)
from inlay.ops.commit.driver import (
    MAX_ATTEMPTS,
    MAX_PLANS,
    MAX_SECONDS,
    CommitResult,
    Committed,
    Conflicted,
    NotProposed,
    Skipped,
    WrittenSegments,
    after_commit,
    already_applied,
    back_off,
    commit,
    decided,
    not_committed,
    proposed,
    sealed,
    with_races,
    writes_before,
)
from inlay.ops.commit.register import MAX_SWAPS, Lost, Won, read_after
from inlay.ops.context import Context, at_once
from inlay.ops.metadata.decision import decide
from inlay.ops.metadata.load import LoadedTable, load_again, load_pointer
from inlay.ops.metadata.lost_decision import check_not_lost
from inlay.plan.change import Change, Conflict, Proposal, Request
from inlay.plan.commit.apply import apply, seal
from inlay.plan.maintain.roots import DECISIONS_KEPT_US
from inlay.plan.metadata.state import State
from inlay.record import LATER, Mutable, Record, replace
from inlay.storage.base import IfMatch, Written

# All of them are named in each prepared frame, some 100 bytes each.
MAX_TABLES = 100
# How long others wait for a transaction before they abort it. Preparing takes a request, the decision one
# more; from the second try on, a request for each table.
DEADLINE_SECONDS = 10
# Reads of several tables until two in a row agree.
MAX_CUTS = 50


class Part(Mutable, eq=False):
    """One table of a transaction: `change` on it, None where there is nothing to do. `fixed`: it was read,
    and no other version than `base` will do. `replan` plans the change again on a newer version, where its
    input can be read again."""

    ctx: Context
    base: LoadedTable
    change: Change | None = None
    replan: Callable[[LoadedTable], Planned | None] | None = None
    fixed: bool = False
    plans: int = 1
    written: WrittenSegments = LATER

    def __post_init__(self) -> None:
        self.written = WrittenSegments(self.ctx.new_id())

    @property
    def table_id(self) -> str:
        return self.base.pointer.table_id


class Planned(Record):
    change: Change
    base: LoadedTable


Result = Committed | Skipped


class Hold(Mutable):
    """Takes the change of an operation in place of its commit (`Context.hold`), and answers as if that had
    been made: the operation need not know. One: an operation that commits more than once is refused."""

    taken: Planned | None = None

    def __call__(self, ctx: Context, change: Change, base: LoadedTable) -> CommitResult:
        ctx = replace(ctx, hold=None)
        if self.taken is not None:
            raise InvalidRequest(
                f"this takes more than one commit on {ctx.uri}: a transaction makes one version of a table",
                next_step="Do what comes first (new columns, categories) before the transaction",
                table=ctx.uri,
            )
        asked = replace(change, request=None)
        written = WrittenSegments(ctx.new_id())
        outcome: Proposal | NotProposed
        loaded, outcome = proposed(ctx, decided(ctx, base), partial(apply, change=asked), written)
        if not isinstance(outcome, Proposal):
            return not_committed(ctx, loaded, outcome)
        self.taken = Planned(change, loaded)
        base_us = loaded.snapshot.commit.time_us
        snapshot = seal(outcome, date_us=loaded.date_us, previous_us=base_us)
        after = replace(loaded, state=State(snapshot, loaded.state.contents), etag="")
        return Committed(after, outcome.duplicates, outcome.skipped)


class _Ready(Record):
    """A part whose change holds on `base`; without a proposal it is only read."""

    part: Part
    base: LoadedTable
    proposal: Proposal | None


def commit_parts(parts: Sequence[Part], request: Request | None) -> list[Result]:
    """Commits all changes or none; a result for each part. Raises `ConcurrentChange`, `CommitContention`,
    `OutcomeUnknown`, and what a commit on one of the tables raises; nothing was committed then, but for
    `OutcomeUnknown`: the same request id may be sent again."""
    check_parts(parts)
    first = at_once(parts[0].ctx, len(parts))
    started, attempts = first.clock.monotonic(), 0
    in_order = sorted(parts, key=lambda p: p.table_id)
    bases = [part.base for part in in_order]
    while True:  # terminates: see CommitContention
        attempts += 1
        outcomes = [_ready(part, base, request) for part, base in zip(in_order, bases, strict=True)]
        ready = [outcome for outcome in outcomes if isinstance(outcome, _Ready)]
        # One table that has the request means that all have it: it was committed on all at once.
        # Not so the objects of an ingest, which may have been ingested by others before.
        applied = any(
            outcome.version and not outcome.duplicates
            for outcome in outcomes
            if isinstance(outcome, Skipped)
        )
        done: list[Result] | None = [Skipped(table.base) for table in ready]
        if not applied and any(table.proposal for table in ready):
            done = _attempt(first, ready, request, attempts, started)
        if done is not None:
            ended = iter(done)
            results = [
                next(ended) if isinstance(outcome, _Ready) else outcome for outcome in outcomes
            ]
            return [results[in_order.index(part)] for part in parts]
        if attempts >= MAX_ATTEMPTS and first.clock.monotonic() - started > MAX_SECONDS:
            raise CommitContention(
                f"others came first on {', '.join(p.ctx.uri for p in parts)} {attempts} times in a row",
                table=first.uri,
            )
        back_off(first, attempts, started)
        bases = list(first.map(lambda part: load_again(part.ctx, part.base), in_order))


def check_parts(parts: Sequence[Part]) -> None:
    """Raises for what cannot take part, by the table's name."""
    if len(parts) > MAX_TABLES:
        raise InvalidRequest(
            f"a transaction of {len(parts)} tables: at most {MAX_TABLES} can take part",
            next_step="Split it, or bring the rows into fewer tables",
        )
    seen: dict[str, str] = {}
    for part in parts:
        ctx, other = part.ctx, parts[0].ctx
        if _place(ctx) != _place(other):
            raise InvalidRequest(
                f"{ctx.uri} and {other.uri} are in different stores: nothing can decide for both",
                next_step="A transaction takes tables of one kind of store, with the same credentials, in "
                "any of its buckets",
                table=ctx.uri,
            )
        if part.table_id in seen:
            also = "" if seen[part.table_id] == ctx.uri else f", also as {seen[part.table_id]}"
            raise InvalidRequest(
                f"{ctx.uri} takes part twice{also}",
                next_step="A transaction makes one version of a table: put the rows into one operation",
                table=ctx.uri,
            )
        seen[part.table_id] = ctx.uri
        if int(part.base.snapshot.settings.text("format.max_version")) < VERSION:
            raise NotAllowed(
                f"{ctx.uri} is denied format version {VERSION} by its property format.max_version",
                next_step=f"Set format.max_version={VERSION}: readers that know version 1 only then refuse "
                "the table while it is prepared",
                table=ctx.uri,
            )


def _place(ctx: Context) -> tuple[object, ...]:
    store = ctx.store
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return (
        store.scheme,
        type(store),
        getattr(store, "connection", None),
        getattr(store, "region", None),
    )


def _ready(part: Part, base: LoadedTable, request: Request | None) -> _Ready | Result:
    """The part's change on `base`, or a later version; raises if it can never be committed."""
    loaded = decided(part.ctx, base)
    if part.change is None and not part.fixed:
        if request is None:
            return Skipped(loaded)
        # It may have been more the first time: the newest version knows.
        now = decided(part.ctx, load_again(part.ctx, loaded))
        loaded, before = already_applied(part.ctx, now, request)
        return before or Skipped(loaded)
    if part.fixed and loaded.pointer.commit.id != part.base.pointer.commit.id:
        raise ConcurrentChange(
            f"{part.ctx.uri} was changed since this transaction read it",
            next_step="Begin the transaction again, and read the table again in it",
            table=part.ctx.uri,
            version=loaded.snapshot.version,
        )
    while part.change is not None:  # terminates: plans are bounded
        change = replace(part.change, request=request)
        outcome: Proposal | NotProposed
        loaded, outcome = proposed(part.ctx, loaded, partial(apply, change=change), part.written)
        if isinstance(outcome, Proposal):
            return _Ready(part, loaded, outcome)
        try:
            result = not_committed(part.ctx, loaded, outcome)
        except StaleUpload:
            if part.replan is None or part.plans >= MAX_PLANS:
                raise
            result = Conflicted(loaded, Conflict("garbage collection overtook the upload"))
        if not isinstance(result, Conflicted):
            return result
        if part.replan is None or part.fixed or part.plans >= MAX_PLANS:
            raise ConcurrentChange(
                f"others conflicted: {result.conflict.reason}",
                table=part.ctx.uri,
                version=loaded.snapshot.version,
            )
        part.plans += 1
        again = part.replan(loaded)
        if again is None:
            return Skipped(loaded)
        part.change, loaded = again.change, decided(part.ctx, again.base)
    return _Ready(part, loaded, None)


# -- one try --------------------------------------------------------------------------------------


def _attempt(
    first: Context,
    ready: Sequence[_Ready],
    request: Request | None,
    attempts: int,
    started: float,
) -> list[Result] | None:
    """The results, or None: others came first, and nothing was committed."""
    if len(ready) == 1:
        part = ready[0].part
        assert part.change is not None
        alone = commit(part.ctx, replace(part.change, request=request), base=ready[0].base)
        return None if isinstance(alone, Conflicted) else [alone]

    def wait(tried: int) -> None:
        back_off(first, attempts + tried, started)

    snapshots = _write(first, ready, wait)
    if snapshots is None:
        return None
    now_us = max([r.base.date_us for r in ready] + [s.commit.time_us for s in snapshots if s])
    transaction_id, host = first.new_id(), ready[0].part.ctx
    snapshots = [None if s is None else _named(s, transaction_id) for s in snapshots]
    transaction = Transaction(
        id=transaction_id,
        decision=host.location(keys.decision_key(transaction_id)),
        began_us=now_us,
        deadline_us=now_us + DEADLINE_SECONDS * 1_000_000,
        participants=tuple(
            Participant(r.part.table_id, _root(r.part.ctx), r.base.snapshot.version) for r in ready
        ),
    )
    pending = [None if s is None else encode_snapshot(s) for s in snapshots]

    def prepare(at: int) -> Won | None:
        table, data = ready[at], pending[at]
        frame = encode_prepared(Prepared(transaction, table.base.raw, data))
        return _prepare(table.part.ctx, table.base, frame, transaction, wait)

    try:
        won = _prepare_all(first, prepare, len(ready), at_once=attempts == 1)
        if None in won or len(won) < len(ready):
            if any(won):
                decide(host, transaction, committed=False)
            return None
    except Exception:
        # Nothing can be committed any more, for only this process would have done it. Others need not wait.
        with suppress(InlayError):
            decide(host, transaction, committed=False)
        raise
    try:
        made = decide(host, transaction, committed=True)
    except InlayError as error:
        _abort_or_unknown(host, transaction, ready, error)
        raise
    if made is None:
        return None  # somebody was kept waiting, and has aborted it
    if made.date_us - transaction.began_us >= DECISIONS_KEPT_US // 2:
        # It may have been aborted and forgotten while this process was suspended.
        raise _unknown(ready, "this process was suspended for hours before it decided")
    return [
        _result(table, snapshot, data, swapped, transaction, attempts)
        for table, snapshot, data, swapped in zip(ready, snapshots, pending, won, strict=True)
    ]


def _write(
    first: Context, ready: Sequence[_Ready], wait: Callable[[int], None]
) -> list[Snapshot | None] | None:
    """What each table will be; None where a base is superseded by now."""
    requests = [
        []
        if r.proposal is None
        else writes_before(r.part.ctx, r.base, r.proposal, r.part.written, wait)
        for r in ready
    ]
    flat = [request for of_table in requests for request in of_table]
    done = iter(list(first.map(lambda request: request(), flat)))
    outcomes: list[Snapshot | Lost | None] = []
    for table, made in zip(ready, requests, strict=True):
        mine = [next(done) for _ in made]
        outcomes.append(
            None
            if table.proposal is None
            else sealed(table.base, table.proposal, table.part.written, mine)
        )
    snapshots = [outcome for outcome in outcomes if not isinstance(outcome, Lost)]
    return snapshots if len(snapshots) == len(outcomes) else None


def _named(snapshot: Snapshot, transaction_id: str) -> Snapshot:
    named = commit_id(transaction_id, snapshot.table_id)
    return replace(snapshot, commit=replace(snapshot.commit, id=named))


def _prepare_all(
    first: Context, prepare: Callable[[int], Won | None], count: int, *, at_once: bool
) -> list[Won | None]:
    if at_once:
        return list(first.map(prepare, range(count)))
    won: list[Won | None] = []
    while len(won) < count and None not in won:
        won.append(prepare(len(won)))
    return won


def _prepare(
    ctx: Context,
    base: LoadedTable,
    frame: bytes,
    transaction: Transaction,
    wait: Callable[[int], None],
) -> Won | None:
    """Swaps the pointer for the prepared frame; None where others came first."""
    assert not base.undecided, "the frame of a transaction that may be committed is not swapped out"
    for tried in range(MAX_SWAPS):
        with suppress(StoreUnavailable):  # what has become of it is read
            answer = ctx.store.put(ctx.key(keys.POINTER), frame, condition=IfMatch(base.etag))
            if isinstance(answer, Written):
                return Won(answer.etag, answer.date_us)
        wait(tried)
        current = read_after(ctx, base.snapshot)
        if current.transaction is not None and current.transaction.id == transaction.id:
            return Won(current.etag, current.date_us)
        if current.etag != base.etag:
            return None
    return None


def _result(
    ready: _Ready,
    snapshot: Snapshot | None,
    data: bytes | None,
    won: Won | None,
    transaction: Transaction,
    attempts: int,
) -> Result:
    assert won is not None
    if ready.proposal is None or snapshot is None or data is None:
        return Skipped(replace(ready.base, etag=won.etag, transaction=transaction))
    after = after_commit(ready.part.ctx, ready.base, ready.proposal, snapshot, data, won)
    loaded = replace(with_races(after, ready.base, attempts), transaction=transaction)
    return Committed(loaded, ready.proposal.duplicates, ready.proposal.skipped, attempts)


def _abort_or_unknown(
    host: Context, transaction: Transaction, ready: Sequence[_Ready], error: InlayError
) -> None:
    """After a decision that was not answered, or refused: returns if nothing was committed."""
    try:
        aborted = decide(host, transaction, committed=False)
    except InlayError:
        aborted = None
    if aborted is None:
        raise _unknown(ready, f"the deciding request failed: {error.message}") from error


def _unknown(ready: Sequence[_Ready], why: str) -> OutcomeUnknown:
    tables = ", ".join(r.part.ctx.uri for r in ready)
    return OutcomeUnknown(
        f"whether the transaction over {tables} was committed is not known: {why}",
        table=ready[0].part.ctx.uri,
    )


def _root(ctx: Context) -> str:
    return ctx.location("").rstrip("/")


# -- several tables at one moment -----------------------------------------------------------------


def load_together(contexts: Sequence[Context]) -> list[LoadedTable]:
    """The tables as they all were at one moment. Raises `CommitContention` where they are changed faster
    than they can be read.

    They are read until two rounds agree, in every pointer and in what was decided. Neither ever goes back,
    so between the two rounds each was what both have found::

        round 1    a, b as they are, and which of their transactions is decided
                   ── here all of it is so ──
        round 2    the same again
    """
    first = contexts[0]
    began = first.clock.monotonic()
    before: list[LoadedTable] = []
    for attempt in range(1, MAX_CUTS + 1):
        now = list(first.map(load_pointer, contexts))
        if [_seen(table) for table in now] == [_seen(table) for table in before]:
            for ctx, table in zip(contexts, now, strict=True):
                if table.undecided and table.transaction is not None:
                    check_not_lost(ctx, table.transaction)
            return now
        if before:
            back_off(first, min(attempt, 3), began)
        before = now
    raise CommitContention(
        f"{', '.join(c.uri for c in contexts)} are changed faster than they can be read together",
        table=first.uri,
    )


def _seen(loaded: LoadedTable) -> tuple[str, str, bool]:
    return loaded.etag, loaded.pointer.commit.id, loaded.undecided
