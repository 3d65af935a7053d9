"""The base that an operation starts from.

Promise: a base is never so old that the GC boundary may have passed what is uploaded on it, and never
another table's; names are never applied to the columns of another schema; and work that a duplicate would
discard is not started. The last is only an optimisation: the ledger is checked again on the base that is
swapped out (`plan.metadata.ledger`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlay.errors import ConcurrentChange
from inlay.ops.commit.backoff import CONTENDED_SECONDS, MAX_UNREAD
from inlay.ops.commit.driver import Skipped, refusal
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_again, load_pointer, resolve
from inlay.plan.change import AlreadyApplied, Request, RequestRefused
from inlay.plan.metadata.ledger import look_up

# A base older than this is read again before an upload: the boundary may have moved by days.
RECENT_SECONDS = 3600.0


def recent_base(ctx: Context, base: LoadedTable | None) -> LoadedTable:
    """`base`, or the pointer as it is now when there is none, or it is old, or others were met a moment
    ago: an attempt on what others have superseded costs more than to read it, and whoever has just won
    leaves the next swap to those who wait. Who meets nobody may be why nobody else gets a turn: so the
    pointer is read after MAX_UNREAD commits that followed on one another at once, too."""
    if base is None:
        return load_pointer(ctx)
    now = ctx.clock.monotonic()
    is_contended = base.raced_at is not None and now - base.raced_at < CONTENDED_SECONDS
    is_recent = now - base.read_at <= RECENT_SECONDS
    if base.etag and is_recent and not is_contended and base.unread < MAX_UNREAD:
        return base
    current = load_again(ctx, base)
    has_met = base.etag not in ("", current.etag)
    return replace(current, raced_at=now if has_met else base.raced_at)


def current_base(ctx: Context, base: LoadedTable | None) -> LoadedTable:
    """The current pointer, for changes that read rows or files: an old base would not contain what was
    added since, and the operation would silently skip it."""
    return load_pointer(ctx) if base is None else load_again(ctx, base)


def check_same_schema(ctx: Context, planned_on: LoadedTable, now: LoadedTable) -> None:
    """For changes that are planned again with what names meant the first time: under another schema the
    same names may be other columns."""
    if now.snapshot.schema_id != planned_on.snapshot.schema_id:
        raise ConcurrentChange(
            "the schema was changed by another commit since this table was read",
            next_step="Call refresh(), check the schema, and repeat the operation",
            table=ctx.uri,
            version=now.snapshot.version,
        )


def known_requests(
    ctx: Context, loaded: LoadedTable, requests: Sequence[Request]
) -> tuple[LoadedTable, frozenset[bytes]]:
    """Which of these events the ledger has, and `loaded` with the ledger segments that were read."""
    # The caller reports requests that are too old; here times only select the segments to search.
    horizon = loaded.snapshot.ledger.horizon_us
    asked = [
        r if r.time_us is None or r.time_us >= horizon else replace(r, time_us=None)
        for r in requests
    ]
    state, found = resolve(ctx, loaded.state, lambda s: look_up(s, None, asked))
    known = found.duplicates if isinstance(found, AlreadyApplied) else found
    return replace(loaded, state=state), known if isinstance(known, frozenset) else frozenset()


def already_applied(
    ctx: Context, loaded: LoadedTable, request: Request | None
) -> tuple[LoadedTable, Skipped | None]:
    """`Skipped` when this request was applied before. Raises `RequestReused`, `RequestTooOld`."""
    if request is None:
        return loaded, None
    state, found = resolve(ctx, loaded.state, lambda s: look_up(s, request))
    loaded = replace(loaded, state=state)
    if isinstance(found, RequestRefused):
        raise refusal(ctx, found)
    return loaded, Skipped(loaded, found.version) if isinstance(found, AlreadyApplied) else None
