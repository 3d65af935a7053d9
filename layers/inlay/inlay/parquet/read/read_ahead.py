"""Reading ahead: work in order, done early and in parallel, within a budget of bytes.

Promise: `run_ahead` yields the results of units in their order, whatever finished first; it holds at most
`budget_bytes` of units that are started and not yet consumed (or one unit, if that alone is larger); and
when it ends, in any way, no job it submitted is still running.

A unit is a generator that yields batches of jobs and is resumed with their results. Only jobs go to the
executor, and no job waits for another: so an executor of one thread, or one that runs everything in the
caller's thread, gives the same results and can never deadlock.

What is fetched is small beside what it is decoded to, and fetching is what latency makes slow. So a unit
says apart what it holds once it has begun (`cost_bytes`) and what is added when it decodes (`growth_bytes`,
from when it yields `GROW`): units are begun far ahead, as long as the largest of them could grow beside
them, and grow one after the other, in their order. So no other has grown when the first in line must.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from inlay.storage import process

T = TypeVar("T")

Job = Callable[[], Any]


class _Grow(tuple[Job, ...]):
    __slots__ = ()


# What a unit yields instead of jobs: it is resumed once the budget has room for its growth.
GROW: Sequence[Job] = _Grow()
Steps = Generator[Sequence[Job], Sequence[Any], T]


@dataclass(frozen=True, slots=True)
class Unit(Generic[T]):
    """A piece of work and the bytes it will hold while it is in flight (estimates): from its beginning, and
    besides from when it grows."""

    cost_bytes: int
    steps: Steps[T]
    growth_bytes: int = 0


@dataclass(slots=True)
class _Running(Generic[T]):
    unit: Unit[T]
    futures: list[Future[Any]] = field(default_factory=list)
    started: bool = False
    asks: bool = False
    grown: bool = False
    done: bool = False
    value: T | None = None
    error: BaseException | None = None

    @property
    def waiting(self) -> list[Future[Any]]:
        return [f for f in self.futures if not f.done()]

    @property
    def held(self) -> int:
        return self.unit.cost_bytes + (self.unit.growth_bytes if self.grown else 0)


def run_ahead(
    units: Iterable[Unit[T]],
    executor: Executor,
    *,
    budget_bytes: int,
    parallel: int,
    first: int | None = None,
) -> Iterator[T]:
    """Results of `units` in order, with at most `parallel` units in flight.

    `first` starts with fewer in flight and doubles with each result: for a consumer that may stop early
    (LIMIT). An error is raised in place of the unit's result.
    """
    began = process.current()
    source = iter(units)
    upcoming: Unit[T] | None = None
    flight: deque[_Running[T]] = deque()
    window = min(parallel, first or parallel)

    def has_room(more: int) -> bool:
        return sum(running.held for running in flight) + more <= budget_bytes

    def may_begin(unit: Unit[T]) -> bool:
        if not flight:
            return True
        units = (unit, *(running.unit for running in flight))
        begun = sum(each.cost_bytes for each in units)
        to_come = max(each.growth_bytes for each in units)
        fits = begun + to_come <= budget_bytes and has_room(unit.cost_bytes)
        return len(flight) < window and fits

    try:
        while True:
            while True:
                # A unit may cost requests to make (the file it is of is opened): none is made before it may
                # begin.
                if upcoming is None and len(flight) < window:
                    upcoming = next(source, None)
                if upcoming is None or not may_begin(upcoming):
                    break
                started, upcoming = _Running(upcoming), None
                flight.append(started)
                _advance(started, executor)
            if not flight:
                return
            in_turn = True
            for running in flight:
                while not running.done and not running.waiting:
                    if running.asks:
                        is_first = running is flight[0]
                        if not in_turn or not (is_first or has_room(running.unit.growth_bytes)):
                            break
                        running.asks, running.grown = False, True
                    _advance(running, executor)
                in_turn = in_turn and (running.grown or running.done)
            if (head := flight[0]).done:
                if head.error is not None:
                    raise head.error
                yield head.value  # type: ignore[misc]  # done without an error: it has one
                process.check_same(began, "this stream of rows")
                # Only now: until the consumer comes back, the result is still held.
                flight.popleft()
                window = min(parallel, window * 2)
                continue
            wait(
                [f for running in flight for f in running.waiting],
                return_when=FIRST_COMPLETED,
            )
    finally:
        # In a process forked meanwhile the jobs never end: their threads belong to the parent.
        if process.current() == began:
            _stop(flight)


def run(steps: Steps[T], executor: Executor) -> T:
    """One unit from beginning to end."""
    return next(run_ahead([Unit(0, steps)], executor, budget_bytes=0, parallel=1))


def _advance(running: _Running[T], executor: Executor) -> None:
    """Resume a unit with the results of its jobs; submit the next ones."""
    steps = running.unit.steps
    try:
        error = next((e for f in running.futures if (e := f.exception())), None)
        if not running.started:
            running.started = True
            jobs = next(steps)
        elif error is not None:
            jobs = steps.throw(error)
        else:
            jobs = steps.send([f.result() for f in running.futures])
        running.asks = jobs is GROW
        running.futures = [executor.submit(job) for job in jobs]
    except StopIteration as stop:
        running.done, running.value = True, stop.value
    except Exception as raised:
        # Raised in place of the result: what was requested before it is still valid.
        running.done, running.error = True, raised


def _stop(flight: Iterable[_Running[Any]]) -> None:
    for running in flight:
        for future in running.futures:
            future.cancel()
    for running in flight:
        for future in running.futures:
            if not future.cancelled():
                future.exception()
        running.unit.steps.close()
