"""What an operation is given: its store, its table, and every source of non-determinism.

Promise: ops take time, randomness, ids and concurrency from here and nowhere else, so that a
simulator can run the real code with its own (docs: STYLE, habit 5).
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from inlay.ops.cache import ObjectCache
from inlay.ops.commit_queue import Turns
from inlay.parquet.read.ranges import Objects
from inlay.storage.base import ObjectStore
from inlay.storage.write_once import Stored, write_once

T = TypeVar("T")
R = TypeVar("R")

# Full jitter within a window that doubles from this with each try of a write-once object: 0.6 s at the
# last, about a second in all.
RETRY_SECONDS = 0.02


class Clock(Protocol):
    """Durations only. What time it *is*, is the store's business."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class InlineExecutor(Executor):
    """Runs each task at once, in the caller's thread: one order, no threads."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


class Workers(ThreadPoolExecutor):
    """Threads that may be asked for more by their own tasks: a task that submits tasks runs them itself.
    With a plain pool it would wait for a thread of the pool it is part of, which may never be free."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads, thread_name_prefix="inlay")
        self._inside = threading.local()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if getattr(self._inside, "task", False):
            return InlineExecutor().submit(fn, *args, **kwargs)
        return super().submit(self._run, fn, *args, **kwargs)

    def _run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self._inside.task = True
        try:
            return fn(*args, **kwargs)
        finally:
            self._inside.task = False


class Progress(Protocol):
    """Told as long work goes on; `total` None while unknown."""

    def __call__(self, what: str, done: int, total: int | None) -> None: ...


def no_progress(what: str, done: int, total: int | None) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One table, as seen by one caller.

    `root` is the table's key within the store, without a trailing slash ("" is the bucket itself);
    `uri` is for messages. `parallel` bounds the requests in flight of one operation.
    """

    store: ObjectStore
    root: str
    uri: str
    executor: Executor
    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.SystemRandom)
    progress: Progress = no_progress
    parallel: int = 16
    cache: ObjectCache = field(default_factory=ObjectCache)
    # Whose content is read and written: a branch's (inside an erasure also a tag's); None is main.
    branch: str | None = None
    # Contexts of one process on one table share it (`ops.commit.group`): their commits go in turns.
    turns: Turns[Any, Any, Any] = field(default_factory=Turns)

    @property
    def objects(self) -> Objects:
        """The table's immutable objects, read through this context's cache."""
        return Objects(self.store, self.root, self.cache)

    def key(self, relative: str) -> str:
        """The store key of an object named relative to the table root."""
        return f"{self.root}/{relative}" if self.root else relative

    def write_once(self, relative: str, body: bytes) -> Stored:
        """Create an immutable object of the table, waiting between tries; see `storage.write_once`."""

        def wait(tried: int) -> None:
            self.clock.sleep(self.random.uniform(0, RETRY_SECONDS * 2**tried))

        return write_once(self.store, self.key(relative), body, before_retry=wait)

    def location(self, name: str) -> str:
        """The whole URI of what metadata names: relative to the table root, or whole already."""
        if "://" in name:
            return name
        return f"{self.store.scheme}://{self.store.bucket}/{self.key(name)}"

    def new_id(self) -> str:
        """A fresh random id (UUID version 4), from this context's randomness."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """`fn` over `items` in parallel, at most `parallel` ahead, results in order. The first error
        is raised after the tasks already started have ended, so none outlives the call."""
        pending: list[Future[R]] = []
        try:
            for item in items:
                pending.append(self.executor.submit(fn, item))
                if len(pending) >= self.parallel:
                    yield pending.pop(0).result()
            while pending:
                yield pending.pop(0).result()
        finally:
            for future in pending:
                future.cancel()
            for future in pending:
                if not future.cancelled():
                    future.exception()
