"""One new object made of ranges of an old one and of bytes of our own.

Promise: an `Assembly` writes the pieces it is given, in order, into a fresh key; the store copies what
it holds already, we send the rest, and download only what S3's part rules force us to borrow. The
object appears whole or not at all: any failure aborts the upload. Every read and copy is pinned to the
source's ETag.

Memory: at most `WINDOW_BYTES` of our own bytes wait before the parts planned so far are sent, so an
object whose every piece is new passes through without being held.

Not for use from within a task of `executor` itself: parts wait for free threads there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from inlay.errors import (
    InlayError,
    StaleUpload,
    StoreUnavailable,
    UnsupportedFile,
)
from inlay.parquet.read.ranges import RangeFile
from inlay.plan.surgery.multipart import (
    MIB,
    S3_LIMITS,
    PartLimits,
    PartsError,
    PlannedPart,
    Segment,
    plan_parts,
)
from inlay.storage.base import (
    ByteRange,
    Head,
    Missing,
    ObjectStore,
    Part,
    Refused,
    Written,
)
from inlay.storage.write_once import write_once

# Enough that parts go out in parallel, little enough for the smallest Lambda.
WINDOW_BYTES = 32 * MIB
# Below this, one GET and one PUT beat four requests of a multipart upload, whatever it would save.
SMALL_OBJECT_BYTES = 8 * MIB
# A Complete whose answer was lost is asked again; more often only hides an outage.
COMPLETE_ATTEMPTS = 3


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


@dataclass(slots=True)
class Assembly:
    """A new object under construction. Use as a context manager: leaving it by an exception aborts.

    `describe` is asked once, before anything is written, for the metadata and headers that go with
    the new object. `size` counts what was added so far.
    """

    store: ObjectStore
    old: RangeFile
    key: str
    executor: Executor
    describe: Callable[[], tuple[Mapping[str, str], Mapping[str, str]]]
    limits: PartLimits = S3_LIMITS
    window_bytes: int = WINDOW_BYTES
    size: int = 0
    _pieces: list[_Copied | _Ours] = field(default_factory=list)
    _waiting: int = 0
    _upload: str | None = None
    _numbers: int = 0
    _parts: list[Future[Part]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._abort()

    def copy(self, start: int, end: int) -> None:
        """Append bytes `start` … `end - 1` of the source."""
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
        """Append bytes of our own."""
        if not len(body):
            return
        self._pieces.append(_Ours(memoryview(body)))
        self.size += len(body)
        self._waiting += len(body)
        if self._waiting > self.window_bytes:
            self._send_window()

    def finish(self) -> Written:
        """Write what is left and make the object appear."""
        parts = self._plan(final=True)
        assert parts is not None
        small = self.size <= SMALL_OBJECT_BYTES
        if self._upload is None and (small or not any(part.copy for part in parts)):
            return self._put()
        self._start_parts(parts)
        finished = [future.result() for future in self._parts]
        return self._complete(finished)

    # -- parts --------------------------------------------------------------------------------

    def _plan(self, *, final: bool) -> tuple[PlannedPart, ...] | None:
        segments = [Segment(p.length, copy=isinstance(p, _Copied)) for p in self._pieces]
        try:
            return plan_parts(segments, limits=self.limits, final=final)
        except PartsError as error:
            raise UnsupportedFile(
                str(error), key=self.key, next_step="Rewrite it into several smaller files"
            ) from None

    def _send_window(self) -> None:
        """Send all that waits, though more will come; unless it is too little to be a part."""
        parts = self._plan(final=False)
        if parts is None:
            return
        self._start_parts(parts)
        # Parts hold their bytes until they are sent: wait, or the window would bound nothing.
        wait(self._parts)
        for future in self._parts:
            future.result()

    def _start_parts(self, parts: tuple[PlannedPart, ...]) -> None:
        if self._upload is None:
            metadata, headers = self.describe()
            self._upload = self.store.create_multipart(self.key, metadata=metadata, headers=headers)
        upload, pieces = self._upload, self._pieces
        self._pieces, self._waiting = [], 0
        for part in parts:
            self._numbers += 1
            if self._numbers > self.limits.count:
                raise UnsupportedFile(
                    f"the rewrite takes more than {self.limits.count} parts", key=self.key
                )
            covered = _slice(pieces, part)
            if part.copy:
                (only,) = covered
                assert isinstance(only, _Copied)
                self._submit(self._copy_part, upload, self._numbers, only)
            else:
                self._submit(self._send_part, upload, self._numbers, covered)

    def _submit(self, fn: Callable[..., Part], *args: object) -> None:
        self._parts.append(self.executor.submit(fn, *args))

    def _copy_part(self, upload: str, number: int, piece: _Copied) -> Part:
        source = self.old.source
        assert source.etag is not None  # a rewrite is of one content
        answer = self.store.upload_part_copy(
            self.key,
            upload,
            number,
            source=source.location,
            byte_range=ByteRange(piece.start, piece.end),
            if_source_match=source.etag,
        )
        match answer:
            case Missing():
                raise source.gone()
            case Refused():
                raise source.changed()
        return answer

    def _send_part(self, upload: str, number: int, pieces: list[_Copied | _Ours]) -> Part:
        return self.store.upload_part(self.key, upload, number, self._gather(pieces))

    def _gather(self, pieces: list[_Copied | _Ours]) -> bytes | memoryview:
        if len(pieces) == 1 and isinstance(pieces[0], _Ours):
            return pieces[0].body
        return b"".join(
            self.old.content(ByteRange(p.start, p.end)) if isinstance(p, _Copied) else p.body
            for p in pieces
        )

    # -- ends ---------------------------------------------------------------------------------

    def _put(self) -> Written:
        metadata, headers = self.describe()
        body = self._gather(self._pieces)
        return write_once(self.store, self.key, body, metadata=metadata, headers=headers)

    def _complete(self, parts: list[Part]) -> Written:
        assert self._upload is not None
        failure: InlayError | None = None
        for _ in range(COMPLETE_ATTEMPTS):
            try:
                answer = self.store.complete_multipart(self.key, self._upload, parts)
            except StoreUnavailable as error:
                failure = error
                continue
            if isinstance(answer, Written):
                return answer
            # No such upload: it was aborted, or an earlier Complete landed and its answer was lost.
            return self._look(failure)
        assert failure is not None
        raise failure

    def _look(self, failure: InlayError | None) -> Written:
        """What is there now, if it is what was to be written. Nobody else writes to this key, so its
        size tells."""
        head = self.store.head(self.key)
        if isinstance(head, Head) and head.info.size == self.size:
            return Written(head.info.etag, head.date_us, head.info.version_id)
        raise failure or StaleUpload("the upload was aborted by someone else", key=self.key)

    def _abort(self) -> None:
        for future in self._parts:
            future.cancel()
        # A part that arrives after the abort would stay, unseen and paid for.
        wait(self._parts)
        if self._upload is not None:
            try:
                self.store.abort_multipart(self.key, self._upload)
            except InlayError:
                # The failure under way says more; GC aborts uploads that were left behind.
                return


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
