"""Write-once objects: the one place where an object is created under a condition.

Promise: when `write_once` returns, exactly the bytes given are at the key. They were put there by this
call, by an earlier try of it whose answer was lost, or by a racer that writes the same bytes; an answer
"exists" is never believed, it is compared. Where other bytes are there, nothing is overwritten and
`KeyTaken` is raised.

What S3 may answer to a PUT with `If-None-Match: *`, and what is done about it::

    200                     written
    412                     something is there: GET it and compare
    409                     another conditional write is in flight, nothing was done: send it again
    5xx, timeout, reset     unknown: send it again; had it landed, the answer is a 412 with our bytes

Everything that is written once goes through here (`tests/store/test_write_once.py` holds the package to
that): archives, segments, data files, markers, receipts, the first pointer of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inlay.errors import KeyTaken, StoreUnavailable
from inlay.storage.base import IF_ABSENT, Got, ObjectStore, Written

# The client retries by itself; these are for what it reports as unknown afterwards, and for 409. Six at
# the callers' pauses are about a second: longer is an outage, which the caller must hear of.
MAX_TRIES = 6


@dataclass(frozen=True, slots=True)
class Stored(Written):
    """An object that is there as it was meant, or, where it was not compared, that is there. `was_there`:
    an earlier try or a racer had put it there."""

    was_there: bool = False


def _at_once(tried: int) -> None:
    """Goes on without waiting."""


def write_once(
    store: ObjectStore,
    key: str,
    body: bytes | memoryview,
    *,
    metadata: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    before_retry: Callable[[int], None] = _at_once,
    compare: bool = True,
) -> Stored:
    """Create the object `key` of exactly `body`; what there is of it then. Without `compare` an object that
    is there already is not read: the caller has a cheaper way to find out whether it matters.

    `before_retry` is called with the number of tries so far before each further one: to wait, or to
    count. Raises `KeyTaken` when other bytes are at the key, `StoreUnavailable` when `MAX_TRIES` told
    nothing (it may be there or not: the same call may be made again).
    """
    failure: StoreUnavailable | None = None
    for tried in range(MAX_TRIES):
        if tried:
            before_retry(tried)
        try:
            answer = store.put(key, body, condition=IF_ABSENT, metadata=metadata, headers=headers)
            if isinstance(answer, Written):
                return Stored(answer.etag, answer.date_us, answer.version_id)
            if answer.reason == "exists" and not compare:
                return Stored("", answer.date_us, was_there=True)
            found = store.get(key) if answer.reason == "exists" else None
        except StoreUnavailable as error:
            failure = error
            continue
        if isinstance(found, Got):
            if found.body == body:
                return Stored(found.etag, found.date_us, found.version_id, was_there=True)
            raise KeyTaken(f"{key} is there already, with other bytes", key=key)
        # 409, or deleted between the answer and the look: nothing is there of which we know.
    raise StoreUnavailable(f"cannot write {key} in {MAX_TRIES} tries", key=key) from failure
