"""Write-once objects: the one place where an object is created under a condition.

Promise: when one of these returns, the object is at the key as intended. It was put there by this call, by
an earlier try of it whose answer was lost, or by a racing writer of the same bytes; an answer "exists" is
never trusted, the object is read. If another object is there, nothing is overwritten and `KeyTaken` is
raised.

What S3 may answer to a write with `If-None-Match: *`, and how it is handled::

    200                     written
    412                     something is there: read, and compare
    409                     another conditional write is in flight, nothing was done: send it again
    404, of an upload       aborted, or an earlier try of ours landed: read, and compare
    5xx, timeout, reset     unknown: send it again; had it landed, the answer is 412 or 404

A PUT is compared by its bytes. A copy and a multipart object are compared by size: their keys are random,
so nobody else writes there. Everything that is written once goes through here (`tests/store/
test_write_once.py` holds the package to that): archives, segments, data files, markers, receipts, the
first pointer of a table. What a repair writes over exactly the damage it looked at (`over`) is asked for
and compared in the same way.

Multipart: one new object, sent in parts; the only writer of multipart uploads. After `finish` the object
is whole at its key, which was never written before; after `abort` nothing of it is visible, and no part
arrives any more. The upload begins with its first part. `executor` sends the parts, so this is not for
use inside one of its tasks: parts wait for free threads there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from functools import partial

from inlay.errors import (
    InlayError,
    KeyTaken,
    ObjectGone,
    SourceChanged,
    StaleUpload,
    StoreUnavailable,
    UnsupportedFile,
)
from inlay.record import Mutable, field
from inlay.storage.base import (
    IF_ABSENT,
    MAX_PARTS,
    ByteRange,
    Got,
    Head,
    IfMatch,
    Location,
    Missing,
    ObjectStore,
    Part,
    Refused,
    Written,
)

# The client retries by itself; these are for what it reports as unknown afterwards, and for 409. Six with
# the callers' pauses are about a second: longer is an outage, of which the caller must learn.
MAX_TRIES = 6


class Stored(Written):
    """An object that exists as intended, or, where it was not compared, that exists. `was_there`: an
    earlier try or a racing writer had put it there."""

    was_there: bool = False


def no_wait(tried: int) -> None:
    """Continues without waiting."""


def write_once(
    store: ObjectStore,
    key: str,
    body: bytes | memoryview,
    *,
    headers: Mapping[str, str] | None = None,
    before_retry: Callable[[int], None] = no_wait,
    over: str | None = None,
    compare: bool = True,
) -> Stored:
    """Creates the object `key` of exactly `body`; returns what is there then. With `over`, an ETag, it
    replaces exactly that object. Without `compare` an object that is there already is not read: the caller
    has a cheaper way to find out whether it matters.

    `before_retry` is called with the number of tries so far before each further one: to wait, or to
    count. Raises `KeyTaken` when other bytes are at the key, `StoreUnavailable` when the outcome of
    `MAX_TRIES` is unknown (it may be there or not: the same call may be made again).
    """
    condition = IF_ABSENT if over is None else IfMatch(over)
    send = partial(store.put, key, body, condition=condition, headers=headers)

    def look(answer: Refused | Missing) -> Stored | None:
        if not compare:
            return Stored("", answer.date_us, was_there=True)
        stored = store.get(key)
        if not isinstance(stored, Got):
            if over is not None:
                raise KeyTaken(f"{key} is gone", key=key)
            return None
        if stored.body != body:
            raise KeyTaken(f"{key} is there already, with other bytes", key=key)
        return Stored(stored.etag, stored.date_us, stored.version_id, was_there=True)

    return _until_known(key, send, look, before_retry)


def copy_once(
    store: ObjectStore,
    source: Location,
    key: str,
    *,
    size: int,
    etag: str,
    before_retry: Callable[[int], None] = no_wait,
) -> Stored:
    """Create the object `key`, whose name is random, as a bare server-side copy of `size` bytes.

    Raises as `write_once` does, `ObjectGone` when the source is gone, `SourceChanged` when it is no longer
    what `etag` says.
    """
    send = partial(store.copy, source, key, if_source_match=etag, condition=IF_ABSENT, bare=True)

    def look(answer: Refused | Missing) -> Stored | None:
        # One answer for two conditions: an earlier try of ours landed, or the source is another one.
        # Also where the source is gone: it may have gone after a try that landed.
        if (stored := _there(store, key, size)) is None:
            check_source(store, source, etag)
        return stored

    return _until_known(key, send, look, before_retry)


def check_source(store: ObjectStore, source: Location, etag: str) -> None:
    """Looks at the source of a copy that was refused: rows of a content that was overwritten are no longer
    wanted. Raises `ObjectGone`, `SourceChanged`."""
    source_store = store if source.bucket == store.bucket else store.at(source.bucket)
    head = source_store.head(source.key, version_id=source.version_id)
    if isinstance(head, Missing):
        raise ObjectGone(f"{source.uri} no longer exists", key=source.key)
    if head.info.etag != etag:
        raise SourceChanged(f"{source.uri} has changed", key=source.key)


def complete_once(
    store: ObjectStore,
    key: str,
    upload_id: str,
    parts: Sequence[Part],
    *,
    size: int,
    before_retry: Callable[[int], None] = no_wait,
) -> Stored:
    """Make the object `key`, whose name is random, of `parts`: `size` bytes.

    Raises as `write_once` does, and `StaleUpload` when somebody else aborted the upload.
    """
    send = partial(store.complete_multipart, key, upload_id, parts, condition=IF_ABSENT)

    def look(answer: Refused | Missing) -> Stored | None:
        stored = _there(store, key, size)
        if stored is None and isinstance(answer, Missing):
            raise StaleUpload("the upload was aborted by someone else", key=key)
        return stored

    return _until_known(key, send, look, before_retry)


def _there(store: ObjectStore, key: str, size: int) -> Stored | None:
    head = store.head(key)
    if not isinstance(head, Head):
        return None
    if head.info.size != size:
        raise KeyTaken(f"{key} is there already, with another size", key=key)
    return Stored(head.info.etag, head.date_us, head.info.version_id, was_there=True)


def _until_known(
    key: str,
    send: Callable[[], Written | Refused | Missing],
    look: Callable[[Refused | Missing], Stored | None],
    before_retry: Callable[[int], None],
) -> Stored:
    failure: StoreUnavailable | None = None
    for tried in range(MAX_TRIES):
        if tried:
            before_retry(tried)
        try:
            answer = send()
            if isinstance(answer, Written):
                return Stored(answer.etag, answer.date_us, answer.version_id)
            if isinstance(answer, Refused) and answer.reason == "race":
                continue
            known = look(answer)
        except StoreUnavailable as error:
            failure = error
            continue
        if known is not None:
            return known
        # Deleted between the answer and the read: nothing is there that we know of.
    why = f": {failure.message}" if failure else ""
    raise StoreUnavailable(
        f"cannot write {key} in {MAX_TRIES} tries{why}",
        next_step=failure.next_step if failure else "",
        key=key,
    ) from failure


class Multipart(Mutable, eq=False):
    """`headers` is called for those of the object when the upload begins. With `in_flight`, a part waits
    until fewer than that many are in flight. `before_retry` is called before each further try to complete
    it (`complete_once`)."""

    store: ObjectStore
    key: str
    executor: Executor
    before_retry: Callable[[int], None]
    headers: Callable[[], Mapping[str, str]] = dict
    in_flight: int | None = None
    _upload_id: str | None = None
    _parts: list[Part] = field(default_factory=list)
    _flying: deque[Future[Part]] = field(default_factory=deque)

    @property
    def begun(self) -> bool:
        return self._upload_id is not None

    @property
    def flying(self) -> int:
        """Parts that are in flight, with their bytes."""
        return len(self._flying)

    def send(self, body: Callable[[], bytes | memoryview]) -> None:
        """The next part; `body` is called where it is sent. All but the last have 5 MiB and more."""

        def send(upload_id: str, number: int) -> Part:
            return self.store.upload_part(self.key, upload_id, number, body())

        self._submit(send)

    def copy(self, source: Location, byte_range: ByteRange, etag: str) -> None:
        """The next part, copied by the store. `ObjectGone` or `SourceChanged` is raised by `drain` or
        `finish`, or by a later part."""

        def copy(upload_id: str, number: int) -> Part:
            answer = self.store.upload_part_copy(
                self.key,
                upload_id,
                number,
                source=source,
                byte_range=byte_range,
                if_source_match=etag,
            )
            if not isinstance(answer, Part):
                check_source(self.store, source, etag)
                raise StoreUnavailable(
                    f"a part of {source.uri} was not copied, although that is as it was",
                    key=source.key,
                )
            return answer

        self._submit(copy)

    def _submit(self, part: Callable[[str, int], Part]) -> None:
        if self._upload_id is None:
            self._upload_id = self.store.create_multipart(self.key, headers=self.headers())
        if self.in_flight is not None and len(self._flying) >= self.in_flight:
            self._parts.append(self._flying.popleft().result())
        number = len(self._parts) + len(self._flying) + 1
        if number > MAX_PARTS:
            raise UnsupportedFile(
                f"the object takes more than {MAX_PARTS} parts",
                key=self.key,
                next_step="Write several smaller files",
            )
        self._flying.append(self.executor.submit(part, self._upload_id, number))

    def drain(self) -> None:
        """Waits until all parts so far have arrived: their bytes are no longer held."""
        wait(self._flying)
        while self._flying:
            self._parts.append(self._flying.popleft().result())

    def finish(self, size: int) -> Stored:
        """Makes the object of `size` bytes appear. Raises as `complete_once`, and what a part raised."""
        self.drain()
        assert self._upload_id is not None, "an upload has at least one part"
        return complete_once(
            self.store,
            self.key,
            self._upload_id,
            self._parts,
            size=size,
            before_retry=self.before_retry,
        )

    def abort(self) -> None:
        """Drops what was sent. Raises no error of the store: garbage collection deletes what is left."""
        for future in self._flying:
            future.cancel()
        # A part that arrives after the abort would stay, invisible and billed.
        wait(self._flying)
        self._flying.clear()
        if self._upload_id is not None:
            with suppress(InlayError):
                self.store.abort_multipart(self.key, self._upload_id)
