"""Commit queue: of many threads with the same kind of work, one does it for all that wait.

Promise: a thread that finds nobody working starts at once, alone and without delay. Threads that arrive
while another works wait; when it has finished, the first of them takes the next turn, for itself and for
those behind it whose items fit. Each thread works in at most one turn, so no thread is delayed by the work
of later ones, and they are served in order of arrival. A forked process has its own queue: the threads that
wait or work here do not exist in it.

::

    A ──── works for A ────┐
       B ── waits ─────────┴─ works for B, C, D ─┐
         C ── waits ─────────────────────────────┤ done
            D ── waits ──────────────────────────┘ done
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from inlay.storage.base import ObjectStore
from inlay.storage.process import PerProcess

I = TypeVar("I")  # noqa: E741 - an item of work
A = TypeVar("A")  # an answer
A2 = TypeVar("A2")
K = TypeVar("K")  # what one turn keeps for the next

# Items of one turn: more than a process has writing threads, few enough that a commit of all of them stays
# small.
MOST = 64


class Abandoned(Exception):
    """The thread that worked for this one was stopped by `__cause__`: the outcome is unknown."""


@dataclass(slots=True, eq=False)
class _Waiting(Generic[I, A]):
    item: I
    woken: threading.Event = field(default_factory=threading.Event)
    answer: list[A] = field(default_factory=list)  # one item, once there is an answer
    stopped_by: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Queue(Generic[I, A, K]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: deque[_Waiting[I, A]] = field(default_factory=deque)
    taken: bool = False
    kept: K | None = None
    begun: tuple[Hashable, Future[Any]] | None = None


@dataclass(slots=True)
class Turn(Generic[I, A, K]):
    """The work of one thread. `items`, its own first, and what the turn before `kept`; the thread sets
    `answers`, one to each in order, and what it keeps for the next. No items where another thread has
    worked for it: `answers` is then the one to its own."""

    items: Sequence[I]
    kept: K | None
    answers: Sequence[A] = ()


class CommitQueue(Generic[I, A, K]):
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
            _leave(queue, mine)
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
        again after a failure. None while somebody works, or where what the turn before kept speaks against
        it."""
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
        if len(turn) < MOST and fits(items, waiting.item):
            queue.waiting.remove(waiting)
            turn.append(waiting)
            items.append(waiting.item)
    return turn


def _pass_on(queue: _Queue[I, A, K]) -> None:
    if queue.waiting:
        queue.waiting[0].woken.set()
    else:
        queue.taken = False


def _leave(queue: _Queue[I, A, K], mine: _Waiting[I, A]) -> None:
    with queue.lock:
        if mine in queue.waiting:
            queue.waiting.remove(mine)
            if mine.woken.is_set():  # it was its turn
                _pass_on(queue)


# -- who shares turns -----------------------------------------------------------------------------


class _Shared:
    """The queues of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.turns: WeakValueDictionary[Hashable, CommitQueue[Any, Any, Any]] = (
            WeakValueDictionary()
        )


_shared = PerProcess(_Shared)


def shared_queue(store: ObjectStore, root: str) -> CommitQueue[Any, Any, Any]:
    """The queue of all contexts in this process for the table at `root` of this store."""
    # Stores of one scheme may share their backend; S3's has a client for each environment, process and set
    # of credentials. Two tables still never share a commit: their ids differ.
    place = (store.scheme, getattr(store, "client", None), store.bucket, root)
    shared = _shared.get()
    with shared.lock:
        found = shared.turns.get(place)
        if found is None:
            found = shared.turns[place] = CommitQueue()
        return found
