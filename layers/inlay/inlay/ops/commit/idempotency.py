"""Once: ask the ledger before doing work that a duplicate would throw away.

Promise: only a saving. What counts is asked again, on the base that is swapped out
(`plan.metadata.ledger`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inlay.errors import RequestReused, RequestTooOld
from inlay.ops.commit.driver import Skipped
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_segments
from inlay.plan.change import AlreadyApplied, Change, NeedSegments, Refused, Request
from inlay.plan.metadata.ledger import look_up


def known_requests(
    ctx: Context, loaded: LoadedTable, requests: Sequence[Request]
) -> tuple[LoadedTable, frozenset[bytes]]:
    """Which of these events the ledger has, and `loaded` with the ledger segments that were read."""
    # Too old ones are the caller's to tell one by one: times are for the segments to look in only.
    horizon = loaded.snapshot.ledger.horizon_us
    asked = [
        r if r.time_us is None or r.time_us >= horizon else replace(r, time_us=None)
        for r in requests
    ]
    if not asked:
        return loaded, frozenset()
    change = Change(operation="look", events=tuple(asked))
    for _ in range(3):  # nodes, leaves, the answer
        found = look_up(loaded.state, change)
        if isinstance(found, NeedSegments):
            loaded = replace(loaded, state=load_segments(ctx, loaded.state, found))
            continue
        if isinstance(found, frozenset):
            return loaded, found
        if isinstance(found, AlreadyApplied):
            return loaded, found.duplicates
        break
    return loaded, frozenset()


def already_applied(
    ctx: Context, loaded: LoadedTable, request: Request | None
) -> tuple[LoadedTable, Skipped | None]:
    """`Skipped` when this request was applied before. Raises `RequestReused`, `RequestTooOld`."""
    if request is None:
        return loaded, None
    change = Change(operation="look", request=request)
    found = look_up(loaded.state, change)
    while isinstance(found, NeedSegments):
        loaded = replace(loaded, state=load_segments(ctx, loaded.state, found))
        found = look_up(loaded.state, change)
    if isinstance(found, Refused):
        raise (RequestReused if found.kind == "reused" else RequestTooOld)(
            found.reason, table=ctx.uri
        )
    if isinstance(found, AlreadyApplied):
        return loaded, Skipped(loaded, found.version)
    return loaded, None
