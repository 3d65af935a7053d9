"""The pointer as a register: it can be read, and swapped for what was read.

Promise: `swap` returns `Won` only when the snapshot is in the table, `Lost` only when it never will be, and
`Unknown` otherwise. Only a clear success of the store is trusted: after any other answer the register is
read again, which shows what happened (docs/FORMAT.md, "Commit")::

    target version has my commit id    → Won (by an answer that was lost)
    pointer unchanged                  → the same swap again
    moved on without me                → Lost, with the pointer to continue from
    gone, or another table             → TableReplaced

Why read at all after a 412? The SDK, a proxy or the network may have sent a PUT twice; the second answer is
a 412 caused by our own success::

    writer          S3
      PUT v8  ───▶  stored, answer lost
      PUT v8  ───▶  412: the ETag is that of v8 now
      rebase, append again: the rows are there twice

Any other failure of the read is `Unknown`, with the failure as its cause: a reader without permission, or
one that cannot decode, knows no more about the swap than one without an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inlay.errors import (
    ForeignArchives,
    InlayError,
    KeyTaken,
    OutcomeUnknown,
    StoreUnavailable,
    TableNotFound,
    TableReplaced,
    UnsupportedStore,
)
from inlay.format import keys
from inlay.format.codec import encode_snapshot
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, find_version, read_main
from inlay.plan.metadata.state import State
from inlay.record import Record, replace
from inlay.storage.base import IfMatch, Refused, Written

# The same swap on an unchanged pointer, after answers that leave its outcome open.
MAX_SWAPS = 6
# A store that carries out one write of a key at a time (S3, some 15 a second) refuses others meanwhile
# without comparing ETags (409). Sent again at once, so many times, a swap meets the end of that write: by
# arithmetic (`tests/measured/backoff.py`) 16 writers then commit 13 times a second, where a bare loop does
# 14; with a wait and a read after each such answer it is 8.
RACED_SWAPS = 2
# Valid in form as an ETag or generation in every store, and never the ETag of an object.
_NO_ETAG = "1"


class Won(Record):
    """The snapshot is in the table. `etag` is empty when others have committed since: the next swap on it
    then fails and rebases, as it should."""

    etag: str
    date_us: int


class Lost(Record):
    """Another commit has the version of this swap; `current` is the pointer read after it."""

    current: LoadedTable


class Unknown(Record):
    """Whether the snapshot is in the table cannot be determined."""

    error: OutcomeUnknown


Swapped = Won | Lost | Unknown


def create(ctx: Context, snapshot: Snapshot) -> LoadedTable | None:
    """Writes a first snapshot where there is none; None when a table exists already.

    Raises `UnsupportedStore`, with no table left, where the store swaps without looking at the condition.
    """
    data = encode_snapshot(snapshot)
    try:
        answer = ctx.write_once(keys.POINTER, data)
    except KeyTaken:
        return None
    except StoreUnavailable as error:
        raise OutcomeUnknown(
            f"the table at {ctx.uri} could not be created: {error.message}", table=ctx.uri
        ) from error
    _check_condition(ctx, data)
    return LoadedTable(State(snapshot), answer.etag, data, answer.date_us, ctx.clock.monotonic())


def _check_condition(ctx: Context, data: bytes) -> None:
    """Raises `UnsupportedStore`, and takes the new pointer of `data` away, where a swap for an ETag that no
    object has succeeds: many servers that speak S3 ignore `If-Match`, and there racing writers would lose
    each other's rows, each with an answer of success. It is one request in the life of a table, harmless
    whenever it arrives.

    Raises it also where the store says that it has no such request (Swift's): no commit can be made there.
    The new pointer stays then: a proxy may have said so, and another writer have committed to it by now.
    Any other answer that is no success says nothing against the store."""
    pointer = ctx.key(keys.POINTER)
    try:
        answer = ctx.store.put(pointer, data, condition=IfMatch(_NO_ETAG))
    except UnsupportedStore as error:
        raise UnsupportedStore(
            f"no commit can be made to {ctx.uri}: {error.message}",
            table=ctx.uri,
            next_step="Use a store that keeps conditional writes (docs/STORES.md). The table is empty, but "
            f"still there: delete {pointer}",
        ) from error
    except InlayError:
        return
    if not isinstance(answer, Written):
        return
    undeleted = ctx.store.delete([pointer])
    raise UnsupportedStore(
        f"the store of {ctx.uri} ignores If-Match: it replaced the new pointer although the condition "
        "named an ETag that the pointer does not have. Racing writers would lose rows there",
        table=ctx.uri,
        next_step="Use a store that keeps conditional writes (docs/STORES.md), or another version of it. "
        + (
            f"The table is empty, but still there: delete {pointer}"
            if undeleted
            else "No table is left"
        ),
    )


def read_after(ctx: Context, base: Snapshot) -> LoadedTable:
    """The pointer, of the table of `base`."""
    try:
        return read_main(replace(ctx, table_id=base.table_id), base)
    except TableNotFound as error:
        raise TableReplaced(f"the table at {ctx.uri} is gone", table=ctx.uri) from error


def superseded_by(ctx: Context, base: Snapshot, current: LoadedTable) -> Lost:
    """What is planned on `base` is lost to `current`, if that can have followed on it."""
    snapshot = current.snapshot
    # The same commit under another ETag: the pointer's own bytes were written over it.
    same = snapshot.version == base.version and snapshot.commit.id == base.commit.id
    if snapshot.version > base.version or same:
        return Lost(current)
    raise ForeignArchives(
        f"the pointer of {ctx.uri} went back: this writer has seen version {base.version}, and it is at "
        + (
            f"version {snapshot.version}"
            if snapshot.version < base.version
            else "another one of that number"
        ),
        table=ctx.uri,
        version=snapshot.version,
    )


def swap(
    ctx: Context, base: LoadedTable, mine: Snapshot, data: bytes, *, wait: Callable[[int], None]
) -> Swapped:
    """Puts `data`, the bytes of `mine`, in place of `base`. `wait` is called with the number of this try,
    from 0, before the register is read and before the same swap is sent again.

    Raises `TableReplaced`, `ForeignArchives`, `UnsupportedStore`, and what the store refuses: nothing was
    done then.
    """
    assert not base.undecided, "the frame of a transaction that may be committed is not swapped out"
    unanswered: StoreUnavailable | None = None
    refused_same_etag = 0
    for tried in range(MAX_SWAPS):
        try:
            answer = _put(ctx, base.etag, data)
        except StoreUnavailable as error:
            unanswered = error
        except InlayError as error:
            if unanswered is None:
                raise  # the only answer: nothing was done
            return _unknown(
                ctx, mine, "an earlier try was not answered, and the next failed:", error
            )
        else:
            if isinstance(answer, Written):
                return Won(answer.etag, answer.date_us)
            refused_same_etag += answer.reason == "exists"
            # Wait before the read, not after it: its result is then as recent as possible, and is the base
            # of the next attempt.
            wait(tried)
        try:
            outcome = read_outcome(ctx, base, mine)
        except TableReplaced as error:
            if unanswered is None:
                raise
            return _unknown(ctx, mine, "the swap was not answered, and then failed with", error)
        if outcome is not None:
            return outcome
        wait(tried)
    if refused_same_etag == MAX_SWAPS:
        raise UnsupportedStore(
            f"the store of {ctx.uri} refused {MAX_SWAPS} times to replace the pointer, as if its ETag were "
            f"not {base.etag!r}, and each read after it shows that ETag",
            table=ctx.uri,
            version=base.snapshot.version,
            next_step="Nothing was changed. If this is Ceph's gateway or DigitalOcean Spaces, and a proxy "
            "hides the ids of its answers, set storage_options={'dialect': 'ceph'} or "
            "INLAY_S3_DIALECT=ceph; else see docs/STORES.md",
        )
    given_up = OutcomeUnknown(
        f"the pointer of {ctx.uri} could not be swapped in {MAX_SWAPS} tries",
        table=ctx.uri,
        version=mine.version,
    )
    given_up.__cause__ = unanswered
    return Unknown(given_up)


def _put(ctx: Context, etag: str, data: bytes) -> Written | Refused:
    for again in reversed(range(1 + RACED_SWAPS)):
        answer = ctx.store.put(ctx.key(keys.POINTER), data, condition=IfMatch(etag))
        if isinstance(answer, Written) or answer.reason != "race" or not again:
            return answer
    raise AssertionError("unreachable: the last answer is returned")


def read_outcome(ctx: Context, base: LoadedTable, mine: Snapshot) -> Swapped | None:
    """The outcome of a swap of `base` for `mine`; None when the pointer is still the base. Raises
    `TableReplaced` and `ForeignArchives` when the pointer cannot have followed on the base."""
    archived: Snapshot | None = None
    try:
        current = read_after(ctx, base.snapshot)
        snapshot = current.snapshot
        if snapshot.version > mine.version:
            archived, current = _read_archive(ctx, mine.version, current)
    except TableReplaced:
        raise
    except Exception as error:
        return _unknown(ctx, mine, "the read after the swap failed:", error)
    if snapshot.version == mine.version:
        if snapshot.commit.id == mine.commit.id:
            # Mine, and prepared for a transaction since: the next swap on it has to look at that.
            return Won("" if current.transaction else current.etag, current.date_us)
        return Lost(current)
    if snapshot.version < mine.version:
        return None if current.etag == base.etag else superseded_by(ctx, base.snapshot, current)
    if archived is None or archived.table_id != mine.table_id:
        why = (
            f"version {mine.version} has expired before this writer could read it"
            if archived is None
            else f"the archive of version {mine.version}, which would show it, is another table's"
        )
        key = ctx.key(keys.archive_key(mine.version))
        return Unknown(OutcomeUnknown(why, table=ctx.uri, key=key, version=mine.version))
    if archived.commit.id != mine.commit.id:
        return Lost(current)
    # Mine landed, and others on top of it: the swap is done; the next base is a later version.
    return Won("", current.date_us)


def _read_archive(
    ctx: Context, version: int, current: LoadedTable
) -> tuple[Snapshot | None, LoadedTable]:
    """The archive of a version that others have committed on top of, and the current pointer.

    Both at once: a base that is one request older than the winner's loses to it every time.
    """

    def newest() -> LoadedTable:
        try:
            pointer = read_main(ctx)
        except InlayError:
            return current  # whatever happened, the next swap will show it
        return pointer if pointer.snapshot.table_id == current.snapshot.table_id else current

    with ctx.beside(partial(find_version, ctx, version)) as archived:
        now = newest()
    return archived.result(), now


def _unknown(ctx: Context, mine: Snapshot, what: str, cause: Exception) -> Unknown:
    reason = cause.message if isinstance(cause, InlayError) else str(cause)
    error = OutcomeUnknown(
        f"whether version {mine.version} was committed is not known: {what} "
        f"{type(cause).__name__}: {reason}",
        table=ctx.uri,
        version=mine.version,
    )
    error.__cause__ = cause
    return Unknown(error)
