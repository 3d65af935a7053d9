"""A cache of what was read from immutable objects: footers and marker objects.

Promise: holds at most `limit_bytes` (by the sizes it was told), the least recently used go first; a
value larger than the limit is not kept. Entries never go stale, because objects never change under
their name. Safe from several threads.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

# Footers are some KB, deletion vectors some MB: this holds those of a table of thousands of files.
CACHE_BYTES = 64 * 1024 * 1024


class ObjectCache:
    """One for each open table: names are relative to its root."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._entries: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> Any | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: str, value: Any, size_bytes: int) -> None:
        with self._lock:
            if key in self._entries:
                self.held_bytes -= self._entries.pop(key)[1]
            if size_bytes > self.limit_bytes:
                return
            self._entries[key] = (value, size_bytes)
            self.held_bytes += size_bytes
            while self.held_bytes > self.limit_bytes:
                _, (_, freed) = self._entries.popitem(last=False)
                self.held_bytes -= freed
