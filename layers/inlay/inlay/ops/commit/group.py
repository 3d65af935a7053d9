"""Group commit: threads of one process that append to one table share a swap.

Promise: each caller gets the outcome of its own change, as from `commit`, and a caller that is alone pays
nothing: no extra request and no wait. Appends that arrive during another commit become one commit: one
archive, one swap, one version, whose ledger remembers the request of each.

Only appends are merged, into *one* version. A version for each, with only the last swapped in, would be
wrong: the versions in between would have to be archived before the swap, and a loser's archive would take
the place of the winner's.

Whether a change may be applied is checked for each on its own, on every base again: a duplicate, or a
change whose upload is too old, drops out without affecting the others.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar, assert_never

from inlay.errors import InlayError, OutcomeUnknown
from inlay.format.snapshot import Commit, Segment
from inlay.ops.commit.driver import (
    CommitResult,
    Committed,
    Name,
    NotProposed,
    commit,
    commit_proposed,
    not_committed,
    only_appends,
    with_note_of,
    write_archive,
)
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.plan.change import (
    AddFiles,
    AlreadyApplied,
    Change,
    HandedOver,
    NeedSegments,
    Proposal,
    RequestRefused,
    Stale,
)
from inlay.plan.commit.apply import Admitted, admit, apply
from inlay.plan.metadata.state import State
from inlay.record import Mutable, Record, field, replace
from inlay.storage.wrapped import PerProcess

# Data files of one merged commit: what a pointer holds without rolling many segments at once.
MAX_FILES = 256
# An upload up to this size takes about as long as an archive.
ONE_REQUEST_BYTES = 32 * 1024 * 1024
# Items of one turn: more than a process has writing threads, few enough that a commit of all of them stays
# small.
MAX_TURN_ITEMS = 64

I = TypeVar("I")  # noqa: E741 - an item of work
A = TypeVar("A")  # an answer
A2 = TypeVar("A2")
K = TypeVar("K")  # what one turn keeps for the next

Answer = CommitResult | InlayError
_Kept = tuple[str | None, LoadedTable]  # a branch, and the table seen from it after a turn


class _Member(Record):
    """One caller's change, waiting in the queue."""

    ctx: Context
    change: Change
    base: LoadedTable


def commit_together(ctx: Context, change: Change, *, base: LoadedTable) -> CommitResult:
    """As `commit`; appends share a swap with those of other threads on this table."""
    change = with_note_of(ctx, change)
    if not only_appends(change) or ctx.hold is not None:
        return commit(ctx, change, base=base)
    queue: CommitQueue[_Member, Answer, _Kept] = ctx.shared.one(CommitQueue)
    try:
        with queue.turn(_Member(ctx, change, base), fits=_fits) as turn:
            if turn.items:
                newest = _newest([m.base for m in turn.items], turn.kept, ctx.branch)
                try:
                    if len(turn.items) == 1:
                        turn.answers = [commit(ctx, change, base=newest)]
                    else:
                        turn.answers = commit_all(ctx, [m.change for m in turn.items], base=newest)
                except InlayError as error:
                    turn.answers = [error, *(copy.copy(error) for _ in turn.items[1:])]
                ends = [a.loaded for a in turn.answers if not isinstance(a, InlayError)]
                ends = [loaded for loaded in ends if loaded.etag]
                newest_end = max(ends, key=lambda loaded: loaded.snapshot.version, default=None)
                turn.kept = None if newest_end is None else (ctx.branch, newest_end)
    except Abandoned as error:
        raise OutcomeUnknown(
            "the thread that was committing this append with its own was stopped", table=ctx.uri
        ) from error
    answer = turn.answers[0]
    if isinstance(answer, InlayError):
        raise answer
    return answer


def with_archive_begun(ctx: Context, base: LoadedTable) -> LoadedTable:
    """`base`, with its archive on the way: beside an upload of about one request it costs no round trip of
    its own. Not while this process commits, for the next base is then another."""
    snapshot = base.snapshot
    queue: CommitQueue[_Member, Answer, _Kept] = ctx.shared.one(CommitQueue)
    begun = queue.beside(
        (snapshot.table_id, snapshot.version, base.etag),
        partial(write_archive, ctx, base),
        executor=ctx.executor,
        unless=lambda kept: kept[1].snapshot.version > snapshot.version,
    )
    return replace(base, archiving=begun)


class Uploads(Mutable):
    """What a commit on `base` uploads first, through `ctx`: with the first object of it the archive of the
    base is on its way."""

    ctx: Context
    base: LoadedTable


@contextmanager
def archive_beside(ctx: Context, base: LoadedTable, upload_bytes: int) -> Iterator[Uploads]:
    """Writes the archive of `base` beside the first object that is uploaded through the context given: so
    not before it is known that there is one. Longer uploads go without: others would commit meanwhile, and
    meet an archive of their base. It is there, or has failed, when the block ends: no request outlives
    it."""
    uploads = Uploads(ctx, base)

    def begin() -> None:
        if uploads.base is base:
            uploads.base = with_archive_begun(ctx, base)

    if upload_bytes <= ONE_REQUEST_BYTES:
        uploads.ctx = replace(ctx, upload_begins=begin)
    try:
        yield uploads
    finally:
        if uploads.base.archiving is not None:
            uploads.base.archiving.exception()


def _fits(members: Sequence[_Member], member: _Member) -> bool:
    same_table = member.base.snapshot.table_id == members[0].base.snapshot.table_id
    same_branch = member.ctx.branch == members[0].ctx.branch
    return same_table and same_branch and may_join([m.change for m in members], member.change)


def _newest(bases: Sequence[LoadedTable], before: _Kept | None, branch: str | None) -> LoadedTable:
    """The newest base that any caller knows. The one left by the turn before is as good as a new read,
    unless a caller has read later: a table may have been replaced or rolled back in between."""
    newest = max(bases, key=lambda base: base.snapshot.version)
    seen_from, kept = before or (None, None)
    if (
        kept is not None
        and seen_from == branch
        and kept.snapshot.table_id == newest.snapshot.table_id
        and kept.snapshot.version > newest.snapshot.version
        and kept.read_at >= max(base.read_at for base in bases)
    ):
        return kept
    return newest


def commit_all(ctx: Context, changes: Sequence[Change], *, base: LoadedTable) -> Sequence[Answer]:
    """Commits changes that `may_join` one another in one version, and answers each.

    Raises like `commit`, for what concerns all of them.
    """
    admitted: dict[int, Admitted] = {}
    declined: dict[int, NotProposed] = {}

    def propose(
        state: State, *, commit_id: str, name: Name, resolved: int
    ) -> Proposal | NotProposed | NeedSegments | None:
        admitted.clear()
        records: list[Segment] = []
        for position, change in enumerate(changes):
            if position in declined:
                continue
            verdict = admit(state, change)
            match verdict:
                case Admitted():
                    admitted[position] = verdict
                case NeedSegments(ledger=more):
                    records += more
                case AlreadyApplied() | Stale() | RequestRefused() | HandedOver():
                    declined[position] = verdict
                case _:
                    assert_never(verdict)
        if records:
            return NeedSegments(ledger=tuple(records))
        if not admitted:
            return None
        merged = merge([a.change for a in admitted.values()])
        return apply(state, merged, commit_id=commit_id, name=name)

    loaded, outcome, attempts = commit_proposed(ctx, base, propose, holds=True)
    answers: dict[int, Answer] = {}
    for position, verdict in declined.items():
        try:
            answers[position] = not_committed(ctx, loaded, verdict)
        except InlayError as error:
            answers[position] = error
    if isinstance(outcome, Proposal):
        for position, member in admitted.items():
            share = _share(loaded.snapshot.commit, member.change)
            answers[position] = Committed(loaded, member.duplicates, (), attempts, share)
    elif outcome is not None:
        # Changes that may be applied alone may be applied together; if not, each is committed alone.
        for position in admitted:
            answers[position] = commit(ctx, changes[position], base=loaded)
    return [answers[n] for n in range(len(changes))]


def _share(whole: Commit, change: Change) -> Commit:
    return replace(
        whole,
        request=change.request.text[:200] if change.request else None,
        added_files=len(change.added),
        added_rows=sum(f.rows for f in change.added),
        added_bytes=sum(f.size for f in change.added),
    )


def may_join(changes: Sequence[Change], change: Change) -> bool:
    """Whether `change` can be merged with those (all `only_appends`). One that shares a request with them
    cannot: it is a duplicate once they are committed. Nor can one with a note: it is of one version."""
    if change.note is not None or changes[0].note is not None:
        return False
    same_operation = change.operation == changes[0].operation
    fits = sum(len(c.added) for c in (*changes, change)) <= MAX_FILES
    requests = {i for c in changes for i in _requests(c)}
    return same_operation and fits and requests.isdisjoint(_requests(change))


def merge(changes: Sequence[Change]) -> Change:
    """One change made of several that may all be applied. The ledger remembers requests and events alike;
    the commit names a request only where there is exactly one."""
    if len(changes) == 1:
        return changes[0]
    uploads = [c.uploaded_us for c in changes if c.uploaded_us is not None]
    compared = [u.compared for c in changes for u in c.of(AddFiles) if u.files]
    return Change(
        operation=changes[0].operation,
        uploaded_us=min(uploads, default=None),
        events=tuple(r for c in changes for r in (c.request, *c.events) if r is not None),
        updates=(
            AddFiles(
                tuple(f for c in changes for f in c.added),
                {k: us for c in changes for u in c.of(AddFiles) for k, us in u.sources_us.items()},
                frozenset.intersection(*compared) if compared else frozenset(),
            ),
        ),
    )


def _requests(change: Change) -> set[bytes]:
    return {r.id for r in (change.request, *change.events) if r is not None}


class Abandoned(Exception):
    """The thread that worked for this one was stopped by `__cause__`: the outcome is unknown."""


class _Waiting(Mutable, Generic[I, A], eq=False):
    item: I
    woken: threading.Event = field(default_factory=threading.Event)
    answer: list[A] = field(default_factory=list)  # one item, once there is an answer
    stopped_by: BaseException | None = None


class _Queue(Mutable, Generic[I, A, K], eq=False):
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[_Waiting[I, A]] = field(default_factory=deque)
    taken: bool = False
    kept: K | None = None
    begun: tuple[Hashable, Future[Any]] | None = None


class Turn(Mutable, Generic[I, A, K]):
    """The work of one thread. `items`, its own first, and what the turn before `kept`; the thread sets
    `answers`, one to each in order, and what it keeps for the next. No items where another thread has
    worked for it: `answers` is then the one to its own."""

    items: Sequence[I]
    kept: K | None
    answers: Sequence[A] = ()


class CommitQueue(Generic[I, A, K]):
    """One of many threads with the same kind of work does it for all that wait. A thread that finds nobody
    working starts at once, alone and without delay. Threads that arrive while another works wait; when it
    has finished, the first of them takes the next turn, for itself and for those behind it whose items fit.
    Each thread works in at most one turn, so no thread is delayed by the work of later ones, and they are
    served in order of arrival. A forked process has its own queue: the threads that wait or work here do
    not exist in it.

        A ──── works for A ────┐
           B ── waits ─────────┴─ works for B, C, D ─┐
             C ── waits ─────────────────────────────┤ done
                D ── waits ──────────────────────────┘ done
    """

    def __init__(self) -> None:
        self._queue: PerProcess[_Queue[I, A, K]] = PerProcess(_Queue)

    @contextmanager
    def turn(self, item: I, *, fits: Callable[[Sequence[I], I], bool]) -> Iterator[Turn[I, A, K]]:
        """Waits until another thread has worked for `item`, or it is this thread's turn to work, inside the
        block. `fits`: may an item join those?

        Raises `Abandoned` where a thread that worked for this one was stopped.
        """
        mine = _Waiting[I, A](item)
        queue = self._queue.get()
        with queue.lock:
            queue.waiting.append(mine)
            if not queue.taken:
                queue.taken = True
                mine.woken.set()
        try:
            mine.woken.wait()
        except BaseException:  # this thread is interrupted: the others must not wait for it
            with queue.lock:
                if mine in queue.waiting:
                    queue.waiting.remove(mine)
                    if mine.woken.is_set():  # it was its turn
                        _pass_on(queue)
            raise
        if mine.stopped_by is not None:
            raise Abandoned from mine.stopped_by
        if mine.answer:
            yield Turn((), None, mine.answer)
            return
        with queue.lock:
            served = _next_turn(queue, fits)
            turn = Turn[I, A, K]([w.item for w in served], queue.kept)
            queue.kept = None
        try:
            yield turn
            for waiting, answer in zip(served, turn.answers, strict=True):
                waiting.answer.append(answer)
            queue.kept = turn.kept
        except BaseException as error:
            for waiting in served:
                waiting.stopped_by = error
            raise
        finally:
            with queue.lock:
                _pass_on(queue)
            for waiting in served:
                waiting.woken.set()

    def beside(
        self,
        key: Hashable,
        begin: Callable[[], A2],
        *,
        executor: Executor,
        unless: Callable[[K], bool],
    ) -> Future[A2] | None:
        """What `begin` makes, as a task of `executor`: once for a `key`, whichever thread comes first, and
        again after a failure. None while a thread works, or where `unless` is true of what the turn before
        kept."""
        queue = self._queue.get()
        mine = Future[A2]()
        with queue.lock:
            if queue.taken or (queue.kept is not None and unless(queue.kept)):
                return None
            if queue.begun is not None and queue.begun[0] == key and not _failed(queue.begun[1]):
                return queue.begun[1]
            queue.begun = key, mine

        def run() -> None:
            try:
                mine.set_result(begin())
            except BaseException as error:
                mine.set_exception(error)
                raise

        try:
            running = executor.submit(run)
        except BaseException as error:  # threads that share it must not wait for what never began
            mine.set_exception(error)
            raise
        if running.done():
            running.result()  # an executor that runs tasks at once has met what stops this thread
        return mine


def _failed(future: Future[Any]) -> bool:
    return future.done() and future.exception() is not None


def _next_turn(
    queue: _Queue[I, A, K], fits: Callable[[Sequence[I], I], bool]
) -> list[_Waiting[I, A]]:
    turn = [queue.waiting.popleft()]
    items = [turn[0].item]
    for waiting in tuple(queue.waiting):
        if len(turn) < MAX_TURN_ITEMS and fits(items, waiting.item):
            queue.waiting.remove(waiting)
            turn.append(waiting)
            items.append(waiting.item)
    return turn


def _pass_on(queue: _Queue[I, A, K]) -> None:
    if queue.waiting:
        queue.waiting[0].woken.set()
    else:
        queue.taken = False
