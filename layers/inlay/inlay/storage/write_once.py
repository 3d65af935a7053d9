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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from inlay.errors import KeyTaken, ObjectGone, SourceChanged, StaleUpload, StoreUnavailable
from inlay.storage.base import (
    IF_ABSENT,
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
# the callers' pauses are about a second: longer is an outage, which the caller must be told of.
MAX_TRIES = 6


@dataclass(frozen=True, slots=True)
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
    metadata: Mapping[str, str] | None = None,
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
    send = partial(store.put, key, body, condition=condition, metadata=metadata, headers=headers)

    def look(answer: Refused | Missing) -> Stored | None:
        if not compare:
            return Stored("", answer.date_us, was_there=True)
        found = store.get(key)
        if not isinstance(found, Got):
            if over is not None:
                raise KeyTaken(f"{key} is gone", key=key)
            return None
        if found.body != body:
            raise KeyTaken(f"{key} is there already, with other bytes", key=key)
        return Stored(found.etag, found.date_us, found.version_id, was_there=True)

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
        if (found := _there(store, key, size)) is None:
            check_source(store, source, etag)
        return found

    return _until_known(key, send, look, before_retry)


def check_source(store: ObjectStore, source: Location, etag: str) -> None:
    """Looks at the source of a copy that was refused: of one that was overwritten nobody waits for the rows
    any longer. Raises `ObjectGone`, `SourceChanged`."""
    there = store if source.bucket == store.bucket else store.at(source.bucket)
    found = there.head(source.key, version_id=source.version_id)
    if isinstance(found, Missing):
        raise ObjectGone(f"{source.uri} no longer exists", key=source.key)
    if found.info.etag != etag:
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
        found = _there(store, key, size)
        if found is None and isinstance(answer, Missing):
            raise StaleUpload("the upload was aborted by someone else", key=key)
        return found

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
            found = look(answer)
        except StoreUnavailable as error:
            failure = error
            continue
        if found is not None:
            return found
        # Deleted between the answer and the read: nothing is there that we know of.
    why = f": {failure.message}" if failure else ""
    raise StoreUnavailable(
        f"cannot write {key} in {MAX_TRIES} tries{why}",
        next_step=failure.next_step if failure else "",
        key=key,
    ) from failure
