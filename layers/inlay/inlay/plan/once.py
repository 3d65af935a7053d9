"""Exactly once: what of a change the ledger says was applied before.

Promise: no event and no request id is applied twice within the ledger's horizon, and none from before
the horizon is applied at all. Asked again on every rebase: two functions with one event would
otherwise both append.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from inlay.format.snapshot import LedgerRecord, Segment
from inlay.plan.change import AlreadyApplied, Change, NeedSegments, Refused, Request
from inlay.plan.state import State, ledger_records

# How far the clock of a sender may run ahead of the store's before a ledger lookup by time misses.
CLOCK_SKEW_US = 15 * 60 * 1_000_000


def look_up(
    state: State, change: Change
) -> frozenset[bytes] | NeedSegments | Refused | AlreadyApplied:
    """Ids of the change's events that were applied before, or why there is nothing more to do."""
    asked = [r for r in (change.request, *change.events) if r is not None]
    if not asked:
        return frozenset()
    ledger = state.snapshot.ledger
    too_old = [r for r in asked if r.time_us is not None and r.time_us < ledger.horizon_us]
    missing = [
        s
        for s in ledger.records.segments
        if s.id not in state.contents.ledger and any(_may_hold(s, r) for r in asked)
    ]
    if missing:
        return NeedSegments(ledger=tuple(missing))
    applied = _applied(state, {r.id for r in asked}, asked)
    # Told first: what is in the ledger was applied, however old.
    if change.request is not None and change.request.id in applied:
        before = applied[change.request.id]
        bodies = {before.body, change.request.body} - {None}  # None: could not be known
        if len(bodies) > 1:
            return Refused(
                f"request id {change.request.text!r} was used before, at version "
                f"{before.version}, with another content",
                "reused",
            )
        return AlreadyApplied(before.version)
    if any(r.id not in applied for r in too_old):
        return Refused("the request is older than this table's ledger remembers", "too_old")
    duplicates = frozenset(r.id for r in change.events if r.id in applied)
    if change.events and len(duplicates) == len({r.id for r in change.events}):
        newest = max((applied[i].version or 0 for i in duplicates), default=0)
        return AlreadyApplied(newest or None, duplicates)
    return duplicates


def _may_hold(segment: Segment, request: Request) -> bool:
    """Whether a segment may hold this request: it was applied after it was made."""
    if request.time_us is None or segment.last_us is None:
        return True
    return segment.last_us >= request.time_us - CLOCK_SKEW_US


def _applied(state: State, ids: set[bytes], asked: Sequence[Request]) -> dict[bytes, LedgerRecord]:
    records = state.snapshot.ledger.records
    found = {r.id: r for r in records.inline if r.id in ids}
    for segment in records.segments:
        if any(_may_hold(segment, r) for r in asked):
            entries = state.contents.ledger[segment.id]
            found |= {r.id: r for r in ledger_records(segment, entries) if r.id in ids}
    return found


def without_duplicates(change: Change, known: frozenset[bytes]) -> Change:
    if not known:
        return change
    tokens = {r.token for r in change.events if r.id in known}
    dropped = {f.key for f in change.add if f.event in tokens}
    return dataclasses.replace(
        change,
        events=tuple(r for r in change.events if r.id not in known),
        add=tuple(f for f in change.add if f.key not in dropped),
        sources_us={k: us for k, us in change.sources_us.items() if k not in dropped},
        add_markers=tuple(m for m in change.add_markers if m.file not in dropped),
    )
