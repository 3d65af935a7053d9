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
that): archives, segments, data files, markers, receipts, the first pointer of a table. What a repair writes
over exactly the damage it looked at (`over`) is asked for and compared in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inlay.errors import KeyTaken, StoreUnavailable
from inlay.storage.base import IF_ABSENT, Got, IfMatch, ObjectStore, Written

# The client retries by itself; these are for what it reports as unknown afterwards, and for 409. Six at
# the callers' pauses are about a second: longer is an outage, which the caller must hear of.
MAX_TRIES = 6


@dataclass(frozen=True, slots=True)
class Stored(Written):
    """An object that is there as it was meant. `was_there`: an earlier try or a racer had put it there."""

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
    over: str | None = None,
) -> Stored:
    """Create the object `key` of exactly `body`; what there is of it then. With `over`, an ETag, it takes
    the place of exactly that.

    `before_retry` is called with the number of tries so far before each further one: to wait, or to
    count. Raises `KeyTaken` when other bytes are at the key, `StoreUnavailable` when `MAX_TRIES` told
    nothing (it may be there or not: the same call may be made again).
    """
    failure: StoreUnavailable | None = None
    condition = IF_ABSENT if over is None else IfMatch(over)
    for tried in range(MAX_TRIES):
        if tried:
            before_retry(tried)
        try:
            answer = store.put(key, body, condition=condition, metadata=metadata, headers=headers)
            if isinstance(answer, Written):
                return Stored(answer.etag, answer.date_us, answer.version_id)
            found = store.get(key) if answer.reason != "race" else None
        except StoreUnavailable as error:
            failure = error
            continue
        if isinstance(found, Got):
            if found.body == body:
                return Stored(found.etag, found.date_us, found.version_id, was_there=True)
            raise KeyTaken(f"{key} is there already, with other bytes", key=key)
        if found is not None and over is not None:
            raise KeyTaken(f"{key} is gone", key=key)
        # 409, or deleted between the answer and the look: nothing is there of which we know.
    raise StoreUnavailable(f"cannot write {key} in {MAX_TRIES} tries", key=key) from failure
