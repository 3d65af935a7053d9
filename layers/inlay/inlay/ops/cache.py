"""A cache of data from immutable objects, footers and marker objects, in memory.

Promise: it holds at most `limit_bytes` (by the given sizes); the least recently used entries are evicted
first; a value larger than the limit is not kept. Entries never go stale, because objects never change under
their name. Of threads that ask for the same value at once, one loads it (`once`), and no lock is held
meanwhile. Thread-safe; a forked process starts with an empty cache, in which nothing is being loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Event, Lock
from typing import Any, TypeVar

from inlay.record import Mutable, field
from inlay.storage.wrapped import PerProcess

# Footers take some KB, deletion vectors some MB: this holds those of a table of thousands of files.
CACHE_BYTES = 64 * 1024 * 1024
# Names the folder of the disk cache (`ops.read.disk_cache`).
FOLDER_VARIABLE = "INLAY_CACHE_DIR"

T = TypeVar("T")


class _Loading(Mutable, eq=False):
    """A value that one thread loads and others wait for. `value` has one item once it is there; without
    one the load has failed."""

    done: Event = field(default_factory=Event)
    value: list[Any] = field(default_factory=list)


class _Held(Mutable):
    lock: Lock = field(default_factory=Lock)
    entries: OrderedDict[str, tuple[Any, int]] = field(default_factory=OrderedDict)
    bytes: int = 0
    loading: dict[str, _Loading] = field(default_factory=dict)


class ObjectCache:
    """One for each open table: names are relative to its root."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._held = PerProcess(_Held)

    @property
    def held_bytes(self) -> int:
        return self._held.get().bytes

    def get(self, key: str) -> Any | None:
        held = self._held.get()
        with held.lock:
            entry = held.entries.get(key)
            if entry is None:
                return None
            held.entries.move_to_end(key)
            return entry[0]

    def put(self, key: str, value: Any, size_bytes: int) -> None:
        held = self._held.get()
        with held.lock:
            if key in held.entries:
                held.bytes -= held.entries.pop(key)[1]
            if size_bytes > self.limit_bytes:
                return
            held.entries[key] = (value, size_bytes)
            held.bytes += size_bytes
            while held.bytes > self.limit_bytes:
                _, (_, freed) = held.entries.popitem(last=False)
                held.bytes -= freed

    def once(self, key: str, load: Callable[[], tuple[T, int]]) -> T:
        """The value under `key`, or what `load` returns: a value and its size. Threads that ask while one
        loads wait for its value, too large to be kept or not. When its load fails it raises there alone,
        and one of those that wait loads for itself."""
        held = self._held.get()
        while True:  # ends: a thread returns, raises, or waits for one that does
            known: T | None = self.get(key)
            if known is not None:
                return known
            mine = _Loading()
            with held.lock:
                loading = held.loading.setdefault(key, mine)
            if loading is mine:
                break
            loading.done.wait()
            if loading.value:
                shared: T = loading.value[0]
                return shared
        try:
            known = self.get(key)  # it may have come between the look and the entry
            if known is None:
                known, size = load()
                self.put(key, known, size)
            mine.value.append(known)
            return known
        finally:
            with held.lock:
                del held.loading[key]
            mine.done.set()
