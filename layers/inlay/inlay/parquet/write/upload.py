"""Writing one new object as a stream: small ones by one PUT, large ones in parts.

Promise: after `finish` the object is whole in the store, under a key nobody wrote before; after `abort`
or a failure nothing of it is visible. Memory: at most `PUT_BYTES` before the first part, then
`PARTS_IN_FLIGHT + 1` parts.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from inlay.errors import StoreUnavailable
from inlay.storage.base import MAX_PARTS, Head, Missing, ObjectStore, Part
from inlay.storage.write_once import write_once

# Up to here an object goes by one PUT: one request, and its outcome is one answer.
PUT_BYTES = 32 * 1024 * 1024
# S3 takes 10,000 parts: at 16 MiB that is 156 GiB, far above any file this library writes.
PART_BYTES = 16 * 1024 * 1024
# Parts on their way while the next one is being encoded.
PARTS_IN_FLIGHT = 3
# Bytes that tell a Parquet footer's length.
TAIL_BYTES = 8


class Upload:
    """A file object that Arrow writes to."""

    def __init__(self, store: ObjectStore, key: str, executor: Executor) -> None:
        self.size = 0
        self.tail = b""
        self.closed = False
        self._store = store
        self._key = key
        self._executor = executor
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._upload_id: str | None = None
        self._flying: deque[Future[Part]] = deque()
        self._parts: list[Part] = []

    @property
    def held(self) -> int:
        """Bytes in memory now."""
        return self._pending_bytes + PART_BYTES * len(self._flying)

    # -- the file that Arrow sees -------------------------------------------------------------

    def write(self, data: Any) -> int:
        body = bytes(data)
        self._pending.append(body)
        self._pending_bytes += len(body)
        self.size += len(body)
        self.tail = (self.tail + body[-TAIL_BYTES:])[-TAIL_BYTES:]
        if self._pending_bytes >= (PUT_BYTES if self._upload_id is None else PART_BYTES):
            self._send_parts()
        return len(body)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        return None

    def close(self) -> None:
        # Arrow closes what it wrote to, also when it failed: only `finish` makes the object.
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    # -- parts --------------------------------------------------------------------------------

    def _send_parts(self) -> None:
        if self._upload_id is None:
            self._upload_id = self._store.create_multipart(self._key)
        whole = b"".join(self._pending)
        cut = len(whole) - len(whole) % PART_BYTES
        for start in range(0, cut, PART_BYTES):
            self._send_part(whole[start : start + PART_BYTES])
        self._pending = [whole[cut:]]
        self._pending_bytes = len(whole) - cut

    def _send_part(self, body: bytes) -> None:
        number = len(self._parts) + len(self._flying) + 1
        if number > MAX_PARTS:
            raise ValueError(f"a file of more than {MAX_PARTS} parts of {PART_BYTES} bytes")
        if len(self._flying) >= PARTS_IN_FLIGHT:
            self._parts.append(self._flying.popleft().result())
        upload = partial(self._store.upload_part, self._key, self._upload_id or "", number, body)
        self._flying.append(self._executor.submit(upload))

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Make the object visible."""
        if self._upload_id is None:
            write_once(self._store, self._key, b"".join(self._pending))
        else:
            if self._pending_bytes:
                self._send_part(b"".join(self._pending))
            self._parts.extend(future.result() for future in self._flying)
            self._flying.clear()
            self._complete()
        self._pending = []

    def _complete(self) -> None:
        answer = self._store.complete_multipart(self._key, self._upload_id or "", self._parts)
        if isinstance(answer, Missing):
            # An earlier Complete of ours may have landed and its answer been lost.
            found = self._store.head(self._key)
            if not (isinstance(found, Head) and found.info.size == self.size):
                raise StoreUnavailable("a multipart upload vanished", key=self._key)

    def abort(self) -> None:
        """Drop what was uploaded. Never raises: what is left over is garbage collection's."""
        for future in self._flying:
            future.cancel()
        for future in self._flying:
            if not future.cancelled():
                future.exception()
        self._flying.clear()
        self._pending = []
        if self._upload_id is not None:
            try:
                self._store.abort_multipart(self._key, self._upload_id)
            except StoreUnavailable:
                return
