"""A cache of data from immutable objects: footers and marker objects.

Promise: holds at most `limit_bytes` (by the given sizes); the least recently used entries are evicted
first; a value larger than the limit is not kept. Entries never go stale, because objects never change under
their name. Thread-safe; a forked process starts with an empty cache.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from inlay.storage.process import PerProcess

# Footers take some KB, deletion vectors some MB: this holds those of a table of thousands of files.
CACHE_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _Held:
    lock: Lock = field(default_factory=Lock)
    entries: OrderedDict[str, tuple[Any, int]] = field(default_factory=OrderedDict)
    bytes: int = 0


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
            found = held.entries.get(key)
            if found is None:
                return None
            held.entries.move_to_end(key)
            return found[0]

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
