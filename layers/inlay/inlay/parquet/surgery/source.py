"""An object being read for a rewrite: pinned to one ETag, every request counted.

Promise: all bytes come from the object the caller planned for, or a typed error says that it changed
or is gone; ranges near one another are fetched together, and bytes that were held are not asked for
again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from inlay.errors import ObjectGone, SourceChanged, UnreadableFile
from inlay.parquet.footer.footer import Footer, decode_footer, footer_length
from inlay.storage.base import ByteRange, Location, Missing, ObjectStore, Refused, version_of

# How much of the object's end is fetched when the footer is not at hand: a footer of a few hundred KB
# and the page index before it arrive in one request, and it is little beside any row group.
MIN_TAIL_BYTES = 64 * 1024
MAX_TAIL_BYTES = 1024 * 1024
TAIL_SHARE = 512
# Ranges of the old object this near to one another are fetched together: a request costs about as
# long as this many bytes.
MERGE_GAP_BYTES = 256 * 1024


@dataclass(slots=True)
class Traffic:
    """What one rewrite cost: requests, and bytes by direction. Copied bytes stay within the store."""

    requests: int = 0
    downloaded: int = 0
    uploaded: int = 0
    copied: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(
        self, requests: int = 1, *, downloaded: int = 0, uploaded: int = 0, copied: int = 0
    ) -> None:
        with self._lock:
            self.requests += requests
            self.downloaded += downloaded
            self.uploaded += uploaded
            self.copied += copied


@dataclass(slots=True)
class Source:
    """An object being read: pinned to one ETag, remembering what was fetched on purpose."""

    store: ObjectStore
    location: Location
    size: int
    etag: str
    traffic: Traffic
    _held: list[tuple[int, bytes]] = field(default_factory=list)

    def hold(self, start: int, body: bytes) -> None:
        """Keep these bytes: later reads inside them cost nothing."""
        self._held.append((start, body))

    def release(self) -> None:
        self._held.clear()

    def read(self, start: int, end: int) -> bytes:
        """Bytes `start` … `end - 1`."""
        if start == end:
            return b""
        for at, body in self._held:
            if at <= start and end <= at + len(body):
                return body[start - at : end - at]
        self.traffic.add()
        got = self.store.get(
            self.location.key,
            byte_range=ByteRange(start, end),
            if_match=self.etag,
            **version_of(self.location),
        )
        match got:
            case Missing():
                raise ObjectGone("the object to rewrite is gone", key=self.location.key)
            case Refused():
                raise SourceChanged("the object to rewrite has changed", key=self.location.key)
        if len(got.body) != end - start:
            raise UnreadableFile(
                f"the object ends before byte {end}, though it should have {self.size}",
                key=self.location.key,
            )
        self.traffic.add(0, downloaded=len(got.body))
        return got.body


def load_footer(source: Source) -> Footer:
    wanted = min(max(MIN_TAIL_BYTES, source.size // TAIL_SHARE), MAX_TAIL_BYTES, source.size)
    start = source.size - wanted
    tail = source.read(start, source.size)
    source.hold(start, tail)
    length = footer_length(tail)
    if length > len(tail) and length <= source.size:
        start = source.size - length
        tail = source.read(start, source.size)
        source.hold(start, tail)
    return decode_footer(tail, file_size=source.size)


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges near one another as one, ascending."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start - merged[-1][1] <= MERGE_GAP_BYTES:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def read_spans(
    source: Source, ranges: Iterable[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Each range with its bytes, fetched together where they lie near one another."""
    wanted = sorted(ranges)
    spans = merge_ranges(wanted)
    at = 0
    for start, end in spans:
        body = source.read(start, end)
        while at < len(wanted) and wanted[at][1] <= end:
            yield wanted[at], body[wanted[at][0] - start : wanted[at][1] - start]
            at += 1
