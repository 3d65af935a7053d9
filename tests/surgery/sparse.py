"""A store for objects of many GiB that are mostly nothing: only their non-zero runs are held.

S3's rules for parts are checked as S3 does. Just what surgery asks of a store is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inlay.storage.base import (
    MAX_PART_BYTES,
    MIN_PART_BYTES,
    ByteRange,
    Got,
    Head,
    Location,
    Missing,
    ObjectInfo,
    Part,
    Written,
)


@dataclass
class Sparse:
    """`runs` are (offset, bytes), ascending; all else is zeros."""

    size: int
    runs: list[tuple[int, bytes]]

    def read(self, start: int, end: int) -> bytes:
        body = bytearray(end - start)
        for at, run in self.runs:
            low, high = max(at, start), min(at + len(run), end)
            if low < high:
                body[low - start : high - start] = run[low - at : high - at]
        return bytes(body)

    def slice(self, start: int, end: int) -> list[tuple[int, bytes]]:
        found = []
        for at, run in self.runs:
            low, high = max(at, start), min(at + len(run), end)
            if low < high:
                found.append((low - start, run[low - at : high - at]))
        return found


@dataclass
class SparseStore:
    scheme: str = "memory"
    bucket: str = "b"
    copies_ranges: bool = True
    objects: dict[str, Sparse] = field(default_factory=dict)
    parts: dict[int, tuple[int, list[tuple[int, bytes]]]] = field(default_factory=dict)
    copied: list[int] = field(default_factory=list)

    def get(
        self, key: str, *, byte_range: ByteRange, if_match: str, version_id: str | None = None
    ) -> Got:
        body = self.objects[key].read(byte_range.start, byte_range.end)
        return Got(body, self.objects[key].size, if_match, 0, 0)

    def head(self, key: str) -> Head | Missing:
        if key not in self.objects:
            return Missing(0)
        return Head(ObjectInfo(key, self.objects[key].size, "etag", 0), 0)

    def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        condition: object,
        headers: Mapping[str, str],
    ) -> Written:
        self.objects[key] = Sparse(len(body), [(0, bytes(body))])
        return Written("etag", 0)

    def create_multipart(self, key: str, *, headers: Mapping[str, str]) -> str:
        return "upload"

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        self.parts[number] = (len(body), [(0, bytes(body))])
        return Part(number, "")

    def upload_part_copy(
        self,
        key: str,
        upload_id: str,
        number: int,
        *,
        source: Location,
        byte_range: ByteRange,
        if_source_match: str,
    ) -> Part:
        assert byte_range.end <= self.objects[source.key].size
        assert byte_range.length <= MAX_PART_BYTES
        runs = self.objects[source.key].slice(byte_range.start, byte_range.end)
        self.parts[number] = (byte_range.length, runs)
        self.copied.append(byte_range.length)
        return Part(number, "")

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part], *, condition: object
    ) -> Written:
        at, runs = 0, []
        for place, part in enumerate(parts):
            length, body = self.parts[part.number]
            assert place == len(parts) - 1 or length >= MIN_PART_BYTES
            runs += [(at + offset, run) for offset, run in body]
            at += length
        self.objects[key] = Sparse(at, runs)
        return Written("etag", 0)

    def abort_multipart(self, key: str, upload_id: str) -> None:
        self.parts.clear()
