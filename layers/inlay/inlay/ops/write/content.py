"""One content of a landed object, as a file that is read.

Promise: its bytes are those that its ETag was given for, or an error says that it changed or went; never
more than a piece of it is held.
"""

from __future__ import annotations

import io
from typing import IO, Any

from inlay.errors import ObjectGone, SourceChanged
from inlay.record import Record
from inlay.storage.base import ByteRange, Got, Location, Missing, ObjectStore, version_of

# Fetched at a time.
FETCHED_BYTES = 8 * 2**20


class Content(Record):
    """`size` is as it is stored, `whole` its bytes where they are at hand."""

    store: ObjectStore
    location: Location
    etag: str
    size: int
    whole: bytes | None = None

    @property
    def name(self) -> str:
        return self.location.key.rpartition("/")[2]

    def opened(self) -> IO[bytes] | Any:
        """From its start. Reading raises `ObjectGone`, `SourceChanged`."""
        return _Fetched(self) if self.whole is None else io.BytesIO(self.whole)


class _Fetched(io.RawIOBase):
    def __init__(self, content: Content) -> None:
        self._content = content
        self._at = 0
        self._piece = b""
        self._piece_at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._content.size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        """As much as is asked for, unless the content ends before: readers of Parquet rely on it."""
        remaining = self._content.size - self._at
        length = remaining if size < 0 else min(size, remaining)
        parts: list[bytes] = []
        while length > 0:
            start = self._at - self._piece_at
            if not 0 <= start < len(self._piece):
                self._piece, self._piece_at, start = self._fetch(), self._at, 0
            parts.append(self._piece[start : start + length])
            self._at += len(parts[-1])
            length -= len(parts[-1])
        return b"".join(parts)

    def _fetch(self) -> bytes:
        content, location = self._content, self._content.location
        end = min(self._at + FETCHED_BYTES, content.size)
        answer = content.store.get(
            location.key,
            byte_range=ByteRange(self._at, end),
            if_match=content.etag,
            **version_of(location),
        )
        if isinstance(answer, Missing):
            raise ObjectGone(f"{location.uri} no longer exists", key=location.key)
        if not isinstance(answer, Got) or answer.etag != content.etag:
            raise SourceChanged(f"{location.uri} was overwritten", key=location.key)
        return answer.body
