"""Assembles a new object from ranges of an old one and new bytes.

Promise: an `Assembly` writes the given pieces, in order, to a new key; the store copies what it already
holds, this process sends the rest, and downloads only what S3's part rules force it to borrow (all of it,
where the store copies no ranges). The object appears whole or not at all: any failure aborts the upload.
Every read and copy is pinned to the source's ETag.

Memory: at most `WINDOW_BYTES` of new bytes wait before the parts planned so far are sent, so an object
whose every piece is new passes through without being held.

Not for use inside a task of `executor` itself: parts wait for free threads there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Self

from inlay.errors import UnsupportedFile
from inlay.parquet.read.ranges import RangeFile, Source
from inlay.plan.surgery.multipart import (
    MIB,
    S3_LIMITS,
    PartLimits,
    PartsError,
    PlannedPart,
    Segment,
    plan_parts,
)
from inlay.storage.base import ByteRange, Missing, ObjectStore, Written, version_of
from inlay.storage.multipart import Multipart
from inlay.storage.rules import KEEPING_HEADERS
from inlay.storage.write_once import no_wait, write_once

# Enough that parts go out in parallel, little enough for the smallest Lambda.
WINDOW_BYTES = 32 * MIB
# Parts of up to 64 MiB that are downloaded to be sent, where the store cannot copy them.
SENT_AT_ONCE = 2
# Below this, one GET and one PUT beat four requests of a multipart upload, whatever it would save.
SMALL_OBJECT_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True)
class _Copied:
    start: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _Ours:
    body: memoryview

    @property
    def length(self) -> int:
        return len(self.body)


def description(source: Source, *, erase: bool) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The old object's metadata and headers, if it is still the one that was planned for; when erasing
    only what says how the store is to keep it, since the rest may name rows."""
    with source.asking():
        head = source.store.head(source.key, **version_of(source.location))
    if isinstance(head, Missing):
        raise source.gone()
    if head.info.etag != source.etag:
        raise source.changed()
    headers = head.info.headers
    if erase:
        return {}, {name: value for name, value in headers.items() if name in KEEPING_HEADERS}
    return head.info.metadata, headers


@dataclass(slots=True)
class Assembly:
    """A new object under construction. Use as a context manager: leaving it by an exception aborts.

    `describe` is called once, before anything is written, for the metadata and headers of the new object.
    `size` counts what was added so far.
    """

    store: ObjectStore
    old: RangeFile
    key: str
    executor: Executor
    describe: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]]
    limits: PartLimits = S3_LIMITS
    window_bytes: int = WINDOW_BYTES
    before_retry: Callable[[int], None] = no_wait
    size: int = 0
    _pieces: list[_Copied | _Ours] = field(default_factory=list)
    _waiting: int = 0
    _upload: Multipart = field(init=False)

    def __post_init__(self) -> None:
        self._upload = Multipart(
            self.store,
            self.key,
            self.executor,
            describe=self.describe,
            # Of a store without copies every part is in memory, twice while it is joined.
            in_flight=None if self.store.copies_ranges else SENT_AT_ONCE,
            limit=self.limits.count,
            before_retry=self.before_retry,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._upload.abort()

    def copy(self, start: int, end: int) -> None:
        """Appends bytes `start` … `end - 1` of the source."""
        if start == end:
            return
        if not 0 <= start < end <= self.old.size:
            # S3 refuses such a range, but other stores clamp it and write a shorter object.
            raise ValueError(f"range {start}..{end} of an object of {self.old.size} bytes")
        if self.old.size <= SMALL_OBJECT_BYTES:
            # S3 copies ranges only from objects over 5 MiB, and these are at hand anyway.
            self.add(self.old.content(ByteRange(start, end)))
            return
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, _Copied) and last.end == start:
            self._pieces[-1] = _Copied(last.start, end)
        else:
            self._pieces.append(_Copied(start, end))
        self.size += end - start

    def add(self, body: bytes | bytearray | memoryview) -> None:
        """Appends new bytes."""
        if not len(body):
            return
        self._pieces.append(_Ours(memoryview(body)))
        self.size += len(body)
        self._waiting += len(body)
        if self._waiting > self.window_bytes:
            self._send_window()

    def finish(self) -> Written:
        """Writes what is left and makes the object appear."""
        parts = self._plan(final=True)
        assert parts is not None
        small = self.size <= SMALL_OBJECT_BYTES
        # Of a store without copies all parts are sent: one is a PUT, more would be too much at once.
        at_hand = len(parts) == 1 or self.store.copies_ranges
        at_hand &= not any(part.copy for part in parts)
        if not self._upload.begun and (small or at_hand):
            metadata, headers = self.describe()
            return write_once(
                self.store,
                self.key,
                self._gather(self._pieces),
                metadata=metadata,
                headers=headers,
                before_retry=self.before_retry,
            )
        self._send(parts)
        return self._upload.finish(self.size)

    def _plan(self, *, final: bool) -> tuple[PlannedPart, ...] | None:
        copies = self.store.copies_ranges
        segments = [Segment(p.length, copies and isinstance(p, _Copied)) for p in self._pieces]
        try:
            return plan_parts(segments, limits=self.limits, final=final)
        except PartsError as error:
            raise UnsupportedFile(
                str(error), key=self.key, next_step="Rewrite it into several smaller files"
            ) from None

    def _send_window(self) -> None:
        """Sends everything that waits, though more will follow; unless it is too little for a part."""
        parts = self._plan(final=False)
        if parts is not None:
            self._send(parts)
            # Parts hold their bytes until they are sent: wait, or the window would bound nothing.
            self._upload.settle()

    def _send(self, parts: tuple[PlannedPart, ...]) -> None:
        pieces = self._pieces
        self._pieces, self._waiting = [], 0
        for part in parts:
            covered = _slice(pieces, part)
            if part.copy:
                (only,) = covered
                assert isinstance(only, _Copied)
                copied = ByteRange(only.start, only.end)
                source = self.old.source
                assert source.etag is not None  # a rewrite is of one content
                self._upload.copy(source.location, copied, source.etag)
            else:
                self._upload.send(partial(self._gather, covered))

    def _gather(self, pieces: list[_Copied | _Ours]) -> bytes | memoryview:
        if len(pieces) == 1 and isinstance(pieces[0], _Ours):
            return pieces[0].body
        return b"".join(
            self.old.content(ByteRange(p.start, p.end)) if isinstance(p, _Copied) else p.body
            for p in pieces
        )


def _slice(pieces: list[_Copied | _Ours], part: PlannedPart) -> list[_Copied | _Ours]:
    """The pieces that make bytes `part.start` … `part.end - 1` of this window."""
    found: list[_Copied | _Ours] = []
    at = 0
    for piece in pieces:
        start, end = max(part.start - at, 0), min(part.end - at, piece.length)
        if start < end:
            found.append(
                _Copied(piece.start + start, piece.start + end)
                if isinstance(piece, _Copied)
                else _Ours(piece.body[start:end])
            )
        at += piece.length
    return found
