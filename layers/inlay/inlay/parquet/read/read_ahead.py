"""Reading ahead: work in order, done early and in parallel, within a budget of bytes.

Promise: `run_ahead` yields the results of units in their order, whatever finished first; it holds at most
`budget_bytes` of units that are started and not yet consumed (or one unit, if that alone is larger); and
when it ends, in any way, no job it submitted is still running.

A unit is a generator that yields batches of jobs and is resumed with their results. Only jobs go to the
executor, and no job waits for another: so an executor of one thread, or one that runs everything in the
caller's thread, gives the same results and can never deadlock.
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
Steps = Generator[Sequence[Job], Sequence[Any], T]


@dataclass(frozen=True, slots=True)
class Unit(Generic[T]):
    """A piece of work and the bytes it will hold while it is in flight (an estimate)."""

    cost_bytes: int
    steps: Steps[T]


@dataclass(slots=True)
class _Running(Generic[T]):
    unit: Unit[T]
    futures: list[Future[Any]] = field(default_factory=list)
    started: bool = False
    done: bool = False
    value: T | None = None
    error: BaseException | None = None

    @property
    def waiting(self) -> list[Future[Any]]:
        return [f for f in self.futures if not f.done()]


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
    waiting_unit: Unit[T] | None = next(source, None)
    flight: deque[_Running[T]] = deque()
    held = 0
    window = min(parallel, first or parallel)
    try:
        while flight or waiting_unit is not None:
            while waiting_unit is not None and (
                not flight
                or (len(flight) < window and held + waiting_unit.cost_bytes <= budget_bytes)
            ):
                started = _Running(waiting_unit)
                flight.append(started)
                held += waiting_unit.cost_bytes
                _advance(started, executor)
                waiting_unit = next(source, None)
            for running in flight:
                while not running.done and not running.waiting:
                    _advance(running, executor)
            if flight[0].done:
                head = flight.popleft()
                if head.error is not None:
                    raise head.error
                yield head.value  # type: ignore[misc]  # done without an error: it has one
                process.check_same(began, "this stream of rows")
                # Only now: until the consumer comes back, the result is still held.
                held -= head.unit.cost_bytes
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
