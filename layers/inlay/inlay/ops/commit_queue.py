"""Turns: of many threads that want the same kind of work done, one does it for all who wait.

Promise: a thread that meets nobody works at once, alone and without delay. Whoever comes while another
works waits; when the turn is over, the first who waits takes the next one, for itself and for those
behind it whose items fit. Each thread works in at most one turn, so nobody is kept by others' work, and
they are served in the order in which they came.

::

    A ──── works for A ────┐
       B ── waits ─────────┴─ works for B, C, D ─┐
         C ── waits ─────────────────────────────┤ done
            D ── waits ──────────────────────────┘ done
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741 - an item of work
A = TypeVar("A")  # an answer
K = TypeVar("K")  # what one turn keeps for the next

# Items of one turn: more than a process has threads that write, few enough that a commit of all of
# them stays small.
MOST = 64


class Abandoned(Exception):
    """The thread that worked for this one was stopped by `__cause__`: what became of it is unknown."""


@dataclass(slots=True, eq=False)
class _Waiting(Generic[I, A]):
    item: I
    woken: threading.Event = field(default_factory=threading.Event)
    answer: list[A] = field(default_factory=list)  # one, once there is one
    stopped_by: BaseException | None = None


class Turns(Generic[I, A, K]):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting[I, A]] = deque()
        self._taken = False
        self._kept: K | None = None

    def take(
        self,
        item: I,
        *,
        work: Callable[[Sequence[I], K | None], tuple[Sequence[A], K | None]],
        fits: Callable[[Sequence[I], I], bool],
    ) -> A:
        """The answer to `item`. `work` gets the items of the turn, this thread's first, and what the
        turn before kept; it answers each, in order. `fits`: may an item join those?

        Raises what `work` raises, and `Abandoned` in the threads that it worked for.
        """
        mine = _Waiting[I, A](item)
        with self._lock:
            self._waiting.append(mine)
            if not self._taken:
                self._taken = True
                mine.woken.set()
        try:
            mine.woken.wait()
        except BaseException:  # this thread is interrupted: it must not keep the others waiting
            self._leave(mine)
            raise
        if mine.stopped_by is not None:
            raise Abandoned from mine.stopped_by
        if not mine.answer:
            self._work(work, fits)
        return mine.answer[0]

    def _work(
        self,
        work: Callable[[Sequence[I], K | None], tuple[Sequence[A], K | None]],
        fits: Callable[[Sequence[I], I], bool],
    ) -> None:
        with self._lock:
            turn = self._next_turn(fits)
            kept, self._kept = self._kept, None
        try:
            answers, kept = work([w.item for w in turn], kept)
            for waiting, answer in zip(turn, answers, strict=True):
                waiting.answer.append(answer)
            self._kept = kept
        except BaseException as error:
            for waiting in turn:
                waiting.stopped_by = error
            raise
        finally:
            with self._lock:
                self._pass_on()
            for waiting in turn:
                waiting.woken.set()

    def _next_turn(self, fits: Callable[[Sequence[I], I], bool]) -> list[_Waiting[I, A]]:
        turn = [self._waiting.popleft()]
        items = [turn[0].item]
        for waiting in tuple(self._waiting):
            if len(turn) < MOST and fits(items, waiting.item):
                self._waiting.remove(waiting)
                turn.append(waiting)
                items.append(waiting.item)
        return turn

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting[0].woken.set()
        else:
            self._taken = False

    def _leave(self, mine: _Waiting[I, A]) -> None:
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                if mine.woken.is_set():  # it was its turn
                    self._pass_on()
