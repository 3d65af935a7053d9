"""The context of an operation: its store, its table, and every source of non-determinism.

Promise: operations take time, randomness, ids and concurrency from here and nowhere else, so that a
simulator can run the real code with its own. All tables of a process share one thread pool and one set of
connections, so a thousand open tables need no more than one; a forked process has its own. Pickled, a
context is its location and its settings: the process that unpickles it uses the credentials of its own
environment.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from inlay.format.snapshot import Note
from inlay.ops.cache import ObjectCache
from inlay.parquet.read.ranges import Objects
from inlay.plan.refs import MAIN, check_name
from inlay.record import Mutable, Record, field, replace
from inlay.storage.base import Got, Head, ObjectStore
from inlay.storage.open import below, open_store
from inlay.storage.wrapped import (
    MeteredStore,
    PerProcess,
    Usage,
    check_same_process,
    current_process,
    usage_of,
)
from inlay.storage.write_once import Stored, write_once

if TYPE_CHECKING:
    from inlay.parquet.read.reader import Reader

T = TypeVar("T")
R = TypeVar("R")

# Requests of one process in flight; S3 serves each in tens of milliseconds, so this many keep a
# connection pool busy and bound memory.
THREADS = 32

# Full jitter within a window that doubles from this with each try of a write-once object: 0.6 s for the
# last, about a second in all.
RETRY_SECONDS = 0.02


class Clock(Protocol):
    """Durations, and the time that `now()` has in a condition. The time of commits is the store's."""

    def monotonic(self) -> float: ...

    def now_us(self) -> int: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def now_us(self) -> int:
        return time.time_ns() // 1_000

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


class Workers(Executor):
    """Threads whose tasks may submit tasks: those run in the submitting thread. In a plain pool they would
    wait for a thread of the same pool, which may never be free.

    A forked process has none of its parent's threads and starts its own."""

    def __init__(self, threads: int) -> None:
        self._pool = PerProcess(lambda: ThreadPoolExecutor(threads, thread_name_prefix="inlay"))
        self._inside = threading.local()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if getattr(self._inside, "task", False):
            return InlineExecutor().submit(fn, *args, **kwargs)
        return self._pool.get().submit(self._run, fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._pool.get().shutdown(wait, cancel_futures=cancel_futures)

    def _run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        self._inside.task = True
        try:
            return fn(*args, **kwargs)
        finally:
            self._inside.task = False


class OfThisProcess(Executor):
    """A caller's executor, which is not used in a process forked from the caller's."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._process = current_process()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        check_same_process(self._process, "the executor that was given to connect()")
        return self._executor.submit(fn, *args, **kwargs)


class Progress(Protocol):
    """Called as long work progresses; `total` is None while unknown."""

    def __call__(self, what: str, done: int, total: int | None) -> None: ...


def no_progress(what: str, done: int, total: int | None) -> None:
    return None


class Shared:
    """What the contexts of one process on one table have in common: one object of each kind."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def one(self, kind: type[T]) -> T:
        """The object of this kind, made when it is first asked for."""
        shared: T | None = self._made.get(kind)
        # One step under the interpreter's lock: all threads get the same object.
        return self._made.setdefault(kind, kind()) if shared is None else shared


class _Places(Mutable):
    """Of one process, what the contexts on each table share, as long as there is one."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    shared: WeakValueDictionary[Hashable, Shared] = field(default_factory=WeakValueDictionary)


_places = PerProcess(_Places)


def shared_at(store: ObjectStore, root: str) -> Shared:
    """What all contexts in this process on the table at `root` of this store share."""
    # Stores of one scheme may share their backend; S3's has a connection for each environment, process and
    # set of credentials. Two tables still never share a commit: their ids differ.
    place = (store.scheme, getattr(store, "connection", None), store.bucket, root)
    places = _places.get()
    with places.lock:
        return places.shared.setdefault(place, Shared())


class Context(Record, kw_only=True):
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
    parallel: int = 32
    cache: ObjectCache = field(default_factory=ObjectCache)
    # The branch whose content is read and written (inside an erasure also a tag); None is main.
    branch: str | None = None
    # With the other contexts of one process on one table: the queue of their commits (`ops.commit.group`).
    shared: Shared = field(default_factory=Shared)
    # Patterns of `bucket/key` that adopted files may be read from; None means any location.
    adopt_from: tuple[str, ...] | None = None
    # What the caller says of each commit that is made in this context.
    note: Note | None = None
    # The id of the table that the caller has opened: what is at its place now may be another.
    table_id: str | None = None
    # What takes a change in place of a swap, for a transaction over several tables (`ops.transaction`).
    hold: Callable[[Context, Any, Any], Any] | None = None
    # Called before each object that a commit refers to is uploaded (`ops.commit.group.archive_beside`).
    upload_begins: Callable[[], None] = lambda: None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the location of the table, but nothing that belongs to a process."""
        return reconnect, (self.store, self.root, self.uri, self.parallel, self.branch)

    @property
    def objects(self) -> Objects:
        """The table's immutable objects, read through this context's cache."""
        return Objects(self.store, self.root, self.cache, adopt_from=self.adopt_from)

    @property
    def reader(self) -> Reader:
        """Reads rows of those."""
        from inlay.parquet.read.reader import Reader  # a commit alone reads none

        return Reader(self.objects, self.executor)

    @property
    def usage(self) -> Usage:
        """Requests and bytes of this context's store so far."""
        return usage_of(self.store)

    @property
    def ref(self) -> str:
        """The name of what is read and written: the branch, or main."""
        return self.branch or MAIN

    @staticmethod
    def branch_of(ref: str | None) -> str | None:
        """The `branch` of a context for the ref that a user names. Raises `InvalidRequest` for what is no
        name of one."""
        return None if ref is None or ref == MAIN else check_name(ref)

    def key(self, relative: str) -> str:
        """The store key of an object named relative to the table root."""
        return f"{self.root}/{relative}" if self.root else relative

    def relative(self, key: str) -> str:
        """The name of what is under the table's root, the inverse of `key`; other keys as they are."""
        return key.removeprefix(self.key(""))

    def get(self, relative: str) -> Got | None:
        """An object of the table; None if there is none. One GET."""
        answer = self.store.get(self.key(relative))
        return answer if isinstance(answer, Got) else None

    def has(self, relative: str) -> bool:
        """Whether the table has an object. One HEAD."""
        return isinstance(self.store.head(self.key(relative)), Head)

    def write_once(
        self, relative: str, body: bytes, *, over: str | None = None, compare: bool = True
    ) -> Stored:
        """Create an immutable object of the table, waiting between tries; see `storage.write_once`."""
        key, wait = self.key(relative), self.back_off
        return write_once(self.store, key, body, before_retry=wait, over=over, compare=compare)

    def back_off(self, tried: int) -> None:
        """Wait before a further try of something that is written once."""
        self.clock.sleep(self.random.uniform(0, RETRY_SECONDS * 2**tried))

    def below(self, relative: str) -> Context:
        """Of another table, in a folder below this one."""
        return connect(below(self.uri, relative))

    def metered(self) -> Context:
        """The same, whose `usage` begins now."""
        return replace(self, store=MeteredStore(self.store))

    def store_at(self, bucket: str) -> ObjectStore:
        """The store, for another bucket of it."""
        return self.store if bucket == self.store.bucket else self.store.at(bucket)

    def location(self, name: str) -> str:
        """The full URI of a name in metadata, which is relative to the table root or already full."""
        if "://" in name:
            return name
        return f"{self.store.scheme}://{self.store.bucket}/{self.key(name)}"

    def new_id(self) -> str:
        """A new random id (UUID version 4), from this context's randomness."""
        from uuid import UUID  # 4 ms that a process which only reads does without

        return str(UUID(int=self.random.getrandbits(128), version=4))

    @contextmanager
    def beside(self, fn: Callable[[], R]) -> Iterator[Future[R]]:
        """What `fn` returns, as a task that runs while the block does; it has ended when the block ends."""
        running = self.executor.submit(fn)
        if running.done():
            running.result()  # an executor that runs tasks at once has met what stops this thread
        try:
            yield running
        finally:
            running.exception()

    def map(self, fn: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """`fn` over `items` in parallel, at most `parallel` ahead, results in order. The first error is
        raised after the tasks already started have ended, so none outlives the call."""
        began = current_process()
        pending: list[Future[R]] = []
        try:
            for item in items:
                pending.append(self.executor.submit(fn, item))
                if len(pending) >= self.parallel:
                    yield pending.pop(0).result()
            while pending:
                yield pending.pop(0).result()
        finally:
            # In a process forked meanwhile these never end: their threads belong to the parent.
            if current_process() == began:
                for future in pending:
                    future.cancel()
                for future in pending:
                    if not future.cancelled():
                        future.exception()


def connect(
    uri: str,
    *,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    storage_options: Mapping[str, str] | None = None,
) -> Context:
    """A context for the table at `uri`."""
    store, root = open_store(uri, storage_options)
    return Context(
        store=MeteredStore(store),
        root=root,
        uri=uri.rstrip("/"),
        executor=_workers() if executor is None else OfThisProcess(executor),
        progress=progress,
        shared=shared_at(store, root),
    )


def reconnect(
    store: ObjectStore, root: str, uri: str, parallel: int, branch: str | None
) -> Context:
    """A context that another process has pickled. An executor or `progress` given there does not come with
    it."""
    inner = store.inner if isinstance(store, MeteredStore) else store
    return Context(
        store=store,
        root=root,
        uri=uri,
        executor=_workers(),
        parallel=parallel,
        branch=branch,
        shared=shared_at(inner, root),
    )


@cache
def _workers() -> Workers:
    """Tasks never wait for other tasks of the pool, so tables do not block each other."""
    return Workers(THREADS)


def at_once(ctx: Context, requests: int) -> Context:
    """The same, with threads of its own where so many requests are to be in flight at one time. An executor
    that the caller gave is what he wants."""
    if requests <= ctx.parallel or ctx.executor is not _workers():
        return ctx
    return replace(ctx, executor=Workers(requests), parallel=requests)
