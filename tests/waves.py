"""Round trips of an operation, exactly: by a clock that only requests move.

Each request takes one unit of time, computing none, and `threads` requests are in flight at one time. What
is submitted runs at once in the caller's thread, as with `InlineExecutor`, with a clock of its own that
begins when a thread is free; its result is there when that clock says so, and whoever waits for it moves
his clock there. So the time that an operation takes is its longest chain of requests, each begun after the
one before was answered, the same on every machine: the least that latency alone makes of it.
"""

from __future__ import annotations

import concurrent.futures
import heapq
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from unittest import mock

from tests.clock import Ticking

import inlay
from inlay.ops.commit import group
from inlay.ops.context import THREADS, Context
from inlay.ops.maintain import units
from inlay.parquet.read import ranges
from inlay.storage import write_once
from inlay.storage.base import ObjectStore
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import Asked, MeteredStore, WrappedStore, usage_of

T = TypeVar("T")


@dataclass
class Clock:
    """The time of whoever runs now: the caller, or the innermost of what it submitted."""

    now: int = 0
    inside: bool = False
    free: list[int] = field(default_factory=lambda: [0] * THREADS)  # when each thread is, a heap
    requests: int = 0

    def tick(self) -> None:
        self.now += 1
        self.requests += 1

    def reach(self, when: int) -> None:
        self.now = max(self.now, when)


class Later(Future[T]):
    """A result that is known, and there at a time of the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.at = 0

    def set_result(self, result: T) -> None:
        self.at = self.clock.now
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        self.at = self.clock.now
        super().set_exception(exception)

    def done(self) -> bool:
        return self.at <= self.clock.now

    def result(self, timeout: float | None = None) -> T:
        self.clock.reach(self.at)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.clock.reach(self.at)
        return super().exception(timeout)

    def cancel(self) -> bool:
        return False  # it has begun


class Lockstep(Executor):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        clock = self.clock
        made: Later[T] = Later(clock)
        began, outer = clock.now, clock.inside
        if not outer:  # `Workers` runs what a task submits in the task's thread
            clock.reach(heapq.heappop(clock.free))
            clock.inside = True
        try:
            made.set_result(fn(*args, **kwargs))
        except BaseException as error:
            made.set_exception(error)
        finally:
            if not outer:
                heapq.heappush(clock.free, clock.now)
                clock.inside, clock.now = False, began
        return made


def wait(
    futures: Iterable[Future[Any]], timeout: float | None = None, return_when: str = "ALL_COMPLETED"
) -> Any:
    later = list(futures)
    ends = [each.at for each in later if isinstance(each, Later)]
    if ends:
        clock = next(each.clock for each in later if isinstance(each, Later))
        clock.reach(min(ends) if return_when == concurrent.futures.FIRST_COMPLETED else max(ends))
    return concurrent.futures.wait(later, timeout, return_when)


class Timed(WrappedStore):
    """A store whose every request takes one unit of the clock."""

    def __init__(self, inner: ObjectStore, clock: Clock) -> None:
        super().__init__(inner)
        self.clock = clock

    def at(self, bucket: str) -> Timed:
        return Timed(self.inner.at(bucket), self.clock)

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        self.clock.tick()
        return send()


def same(context: Context, hours: int = 0) -> Context:
    """As the context, of a store in memory, with ids and times that are the same in each run."""
    store = context.store.inner if isinstance(context.store, MeteredStore) else context.store
    assert isinstance(store, MemoryStore)
    clock = Ticking(1_790_000_000_000_000 + hours * 3_600_000_000, step_us=1_000)
    store._region._now_us = clock.now_us
    return replace(context, clock=clock, random=random.Random(7 + hours))


@dataclass
class Trips:
    """What an operation asked for, and in how many waves."""

    context: Context
    clock: Clock

    def open(self, **asked: Any) -> inlay.Table:
        return inlay.open(self.context.uri, context=self.context, **asked)

    def of(self, action: Callable[[], object]) -> tuple[int, int]:
        """(waves, requests) of `action`."""
        now, requests = self.clock.now, self.clock.requests
        action()
        return self.clock.now - now, self.clock.requests - requests

    def counted(self, action: Callable[[], object]) -> tuple[int, int, int, int]:
        """(waves, requests, bytes up, bytes down) of `action`."""
        before = usage_of(self.context.store)
        waves, requests = self.of(action)
        used = usage_of(self.context.store) - before
        return waves, requests, used.bytes_up, used.bytes_down


@contextmanager
def trips(uri: str) -> Iterator[Trips]:
    """The table at `uri`, on a clock: its operations are those of the table that `open` gives."""
    clock = Clock()
    # After what has filled the table.
    context = same(inlay.connect(uri, executor=Lockstep(clock)), hours=1)
    store = context.store
    inner = store.inner if isinstance(store, MeteredStore) else store
    context = replace(context, store=MeteredStore(Timed(inner, clock)))

    class OfClock(Later[Any]):
        def __init__(self) -> None:
            super().__init__(clock)

    with ExitStack() as patches:
        for module in (ranges, units, write_once):
            patches.enter_context(mock.patch.object(module, "wait", wait))
        patches.enter_context(mock.patch.object(group, "Future", OfClock))
        yield Trips(context, clock)
