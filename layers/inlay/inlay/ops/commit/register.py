"""The pointer as a register: it can be read, and swapped for what was read.

Promise: `swap` says `Won` only when the snapshot is in the table, `Lost` only when it never will be, and
`Unknown` otherwise. No answer of the store but a clear success is believed: after any other the register is
read again, and says itself what happened (docs/FORMAT.md, "Commit")::

    target version bears my commit id  → Won (by an answer that was lost)
    pointer unchanged                  → the same swap again
    moved on without me                → Lost, with the pointer to go on from
    gone, or another table             → TableReplaced

Why read at all, when S3 said 412? The SDK, a proxy or the network may have sent a PUT that landed twice;
the second answer is a 412 for our own success::

    writer          S3
      PUT v8  ───▶  stored, answer lost
      PUT v8  ───▶  412: the ETag is that of v8 now
      rebase, append again: the rows are there twice

Whatever else the reading meets is `Unknown` with the failure as its cause: a reader who may not read, or
cannot decode, what is there knows no more of the swap than one who was not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inlay.errors import (
    ForeignArchives,
    InlayError,
    KeyTaken,
    OutcomeUnknown,
    StoreUnavailable,
    TableNotFound,
    TableReplaced,
)
from inlay.format import keys
from inlay.format.codec import encode_snapshot
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, find_version, read_main
from inlay.plan.metadata.state import State
from inlay.storage.base import IfMatch, Written

# The same swap on an unchanged pointer, after answers that said nothing.
MAX_SWAPS = 6


@dataclass(frozen=True, slots=True)
class Won:
    """The snapshot is in the table. `etag` is empty when others have committed since: the next swap on it
    then fails and rebases, which is right."""

    etag: str
    date_us: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Another commit has the version this swap was for; `current` is the pointer as it was then read."""

    current: LoadedTable


@dataclass(frozen=True, slots=True)
class Unknown:
    """Whether the snapshot is in the table cannot be found out."""

    error: OutcomeUnknown


def create(ctx: Context, snapshot: Snapshot) -> LoadedTable | None:
    """Write a first snapshot where nothing is; None when a table is there already."""
    data = encode_snapshot(snapshot)
    try:
        done = ctx.write_once(keys.POINTER, data)
    except KeyTaken:
        return None
    except StoreUnavailable as error:
        raise OutcomeUnknown(
            f"the table at {ctx.uri} could not be created", table=ctx.uri
        ) from error
    return LoadedTable(State(snapshot), done.etag, data, done.date_us, ctx.clock.monotonic())


def read_after(ctx: Context, base: Snapshot) -> LoadedTable:
    """The pointer, of the table of `base`."""
    try:
        current = read_main(ctx)
    except TableNotFound as error:
        raise TableReplaced(f"the table at {ctx.uri} is gone", table=ctx.uri) from error
    if current.snapshot.table_id != base.table_id:
        raise TableReplaced(f"{ctx.uri} is another table now", table=ctx.uri)
    return current


def superseded_by(ctx: Context, base: Snapshot, current: LoadedTable) -> Lost:
    """What is planned on `base` is lost to `current`, if that can have followed on it."""
    found = current.snapshot
    # The same commit under another ETag: somebody has written the pointer's own bytes over it.
    same = found.version == base.version and found.commit.id == base.commit.id
    if found.version > base.version or same:
        return Lost(current)
    raise ForeignArchives(
        f"the pointer of {ctx.uri} went back: this writer has seen version {base.version}, and it is at "
        + (
            f"version {found.version}"
            if found.version < base.version
            else "another one of that number"
        ),
        table=ctx.uri,
        version=found.version,
    )


def swap(
    ctx: Context, base: LoadedTable, mine: Snapshot, data: bytes, *, wait: Callable[[int], None]
) -> Won | Lost | Unknown:
    """Put `data`, the bytes of `mine`, in the place of `base`. `wait` is called with the number of this
    try, from 0, before the register is read and before the same swap is sent again.

    Raises `TableReplaced`, `ForeignArchives`, and what the store refuses outright: nothing was done then.
    """
    unanswered: StoreUnavailable | None = None
    for tried in range(MAX_SWAPS):
        try:
            answer = ctx.store.put(ctx.key(keys.POINTER), data, condition=IfMatch(base.etag))
        except StoreUnavailable as error:
            unanswered = error
        except InlayError as error:
            if unanswered is None:
                raise  # this answer is the only one: nothing was done
            return _unknown(ctx, mine, "an earlier try was not answered, the next met", error)
        else:
            if isinstance(answer, Written):
                return Won(answer.etag, answer.date_us)
            # Wait before the reading, not after it: what it finds is then as new as it can be, and is the
            # base of the next attempt.
            wait(tried)
        try:
            outcome = read_outcome(ctx, base, mine)
        except TableReplaced as error:
            if unanswered is None:
                raise
            return _unknown(ctx, mine, "the swap was not answered, and then", error)
        if outcome is not None:
            return outcome
        wait(tried)
    given_up = OutcomeUnknown(
        f"the pointer of {ctx.uri} could not be swapped in {MAX_SWAPS} tries",
        table=ctx.uri,
        version=mine.version,
    )
    given_up.__cause__ = unanswered
    return Unknown(given_up)


def read_outcome(ctx: Context, base: LoadedTable, mine: Snapshot) -> Won | Lost | Unknown | None:
    """What became of a swap of `base` for `mine`; None when the pointer is still the base. Raises
    `TableReplaced` and `ForeignArchives` when the pointer cannot have followed on the base."""
    archived: Snapshot | None = None
    try:
        current = read_after(ctx, base.snapshot)
        found = current.snapshot
        if found.version > mine.version:
            archived, current = _read_archive(ctx, mine.version, current)
    except TableReplaced:
        raise
    except Exception as error:
        return _unknown(ctx, mine, "the look after the swap met", error)
    if found.version == mine.version:
        if found.commit.id == mine.commit.id:
            return Won(current.etag, current.date_us)
        return Lost(current)
    if found.version < mine.version:
        return None if current.etag == base.etag else superseded_by(ctx, base.snapshot, current)
    if archived is None:
        return Unknown(
            OutcomeUnknown(
                f"version {mine.version} has expired before this writer could look at it",
                table=ctx.uri,
                version=mine.version,
            )
        )
    if archived.table_id != mine.table_id:
        return Unknown(
            OutcomeUnknown(
                f"the archive of version {mine.version}, which would tell, is another table's",
                table=ctx.uri,
                key=ctx.key(keys.archive_key(mine.version)),
                version=mine.version,
            )
        )
    if archived.commit.id != mine.commit.id:
        return Lost(current)
    # Mine landed, and others on top of it: the swap is done, the base to go on from is not.
    return Won("", current.date_us)


def _read_archive(
    ctx: Context, version: int, current: LoadedTable
) -> tuple[Snapshot | None, LoadedTable]:
    """The archive of a version that others have committed on top of, and the pointer as it is by then.

    Both at once: a base that is one request older than the winner's loses to it every time.
    """

    def read(what: str) -> Snapshot | LoadedTable | None:
        return find_version(ctx, version) if what == "archive" else newest()

    def newest() -> LoadedTable:
        try:
            found = read_main(ctx)
        except InlayError:
            return current  # whatever became of it, the next swap finds out
        return found if found.snapshot.table_id == current.snapshot.table_id else current

    archived, now = ctx.map(read, ("archive", "pointer"))
    assert isinstance(now, LoadedTable)
    assert not isinstance(archived, LoadedTable)
    return archived, now


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
