"""Writing one new object as a stream: small ones by one PUT, large ones in parts.

Promise: after `finish` the object is whole in the store, under a key that was never written before; after
`abort` or a failure nothing of it is visible. Memory: at most `PUT_BYTES` before the first part, then
`PARTS_IN_FLIGHT + 1` parts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from inlay.storage.base import ObjectStore
from inlay.storage.multipart import Multipart
from inlay.storage.write_once import write_once

# Objects up to this size use one PUT: one request, with one answer for its outcome.
PUT_BYTES = 32 * 1024 * 1024
# S3 takes 10,000 parts: at 16 MiB that is 156 GiB, far above any file this library writes.
PART_BYTES = 16 * 1024 * 1024
# Parts in flight while the next one is being encoded.
PARTS_IN_FLIGHT = 3
# Bytes that hold a Parquet footer's length.
TAIL_BYTES = 8


class Upload:
    """A file object that Arrow writes to. `before_retry` is called before each further try to make it
    visible."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        executor: Executor,
        before_retry: Callable[[int], None],
    ) -> None:
        self.size = 0
        self.tail = b""
        self.closed = False
        self._store = store
        self._key = key
        self._before_retry = before_retry
        self._parts = Multipart(
            store, key, executor, in_flight=PARTS_IN_FLIGHT, before_retry=before_retry
        )
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._kept_from: int | None = None

    @property
    def held(self) -> int:
        """Bytes in memory now."""
        return self._pending_bytes + PART_BYTES * self._parts.flying

    # -- the file that Arrow sees -------------------------------------------------------------

    def write(self, data: Any) -> int:
        body = bytes(data)
        self._pending.append(body)
        self._pending_bytes += len(body)
        self.size += len(body)
        self.tail = (self.tail + body[-TAIL_BYTES:])[-TAIL_BYTES:]
        most = PART_BYTES if self._parts.begun else PUT_BYTES
        if self._pending_bytes >= most and self._kept_from is None:
            whole = b"".join(self._pending)
            cut = len(whole) - len(whole) % PART_BYTES
            for start in range(0, cut, PART_BYTES):
                self._send_part(whole[start : start + PART_BYTES])
            self._pending = [whole[cut:]]
            self._pending_bytes = len(whole) - cut
        return len(body)

    def _send_part(self, body: bytes) -> None:
        self._parts.send(lambda: body)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        return None

    def close(self) -> None:
        # Arrow closes its output also after a failure: only `finish` creates the object.
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    # -- what Arrow writes last -----------------------------------------------------------------

    def keep(self) -> None:
        """Sends nothing from here on: indexes and the footer, which may be replaced."""
        self._kept_from = self.size

    def kept(self) -> bytes:
        assert self._kept_from is not None
        return b"".join(self._pending)[self._kept_from - self.size :]

    def replace_kept(self, body: bytes) -> None:
        assert self._kept_from is not None
        length = self.size - self._kept_from
        whole = b"".join(self._pending)
        self._pending = [whole[: len(whole) - length] + body]
        self._pending_bytes += len(body) - length
        self.size += len(body) - length
        self.tail = body[-TAIL_BYTES:]

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Makes the object visible."""
        rest, self._pending = b"".join(self._pending), []
        if not self._parts.begun:
            write_once(self._store, self._key, rest, before_retry=self._before_retry)
            return
        if rest:
            self._send_part(rest)
        self._parts.finish(self.size)

    def abort(self) -> None:
        """Drops what was uploaded. Never raises: garbage collection deletes what is left."""
        self._pending = []
        self._parts.abort()
