"""Exactly once: which parts of a change the ledger says were applied before.

Promise: no event and no request id is applied twice within the ledger's horizon, and none from before the
horizon is applied at all. This is checked again on every rebase: otherwise two functions with the same
event would both append.

The content of a request may be personal data, and a plain digest of it can be found by trial: a telephone
number in seconds. So its digest is salted, and an erasure replaces the salt when it forgets its predicate.
The old salt goes with the versions that had it; digests made with it are then as good as random, whichever
segment they are in, and no ledger needs to be rewritten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from inlay.format.entry import LedgerRecord
from inlay.format.properties import LEDGER_SALT, Properties
from inlay.format.snapshot import Segment, Snapshot
from inlay.plan.change import (
    BODY_BYTES,
    AddFiles,
    AddMarkers,
    AlreadyApplied,
    Change,
    ForgetContents,
    NeedSegments,
    Request,
    RequestRefused,
    Update,
)
from inlay.plan.metadata.state import State, resolved_record
from inlay.plan.metadata.tree import Opened, open_tree

# How far a sender's clock may run ahead of the store's before a ledger lookup by time misses.
CLOCK_SKEW_US = 15 * 60 * 1_000_000
DAY_US = 86_400_000_000


def look_up(
    state: State, request: Request | None, events: Sequence[Request] = ()
) -> frozenset[bytes] | NeedSegments | RequestRefused | AlreadyApplied:
    """Ids of the change's events that were applied before, or why there is nothing left to do."""
    asked = [r for r in (request, *events) if r is not None]
    if not asked:
        return frozenset()
    ledger = state.snapshot.ledger
    too_old = [r for r in asked if r.time_us is not None and r.time_us < ledger.horizon_us]
    opened = _opened(state, asked)
    missing = [s for s in opened.leaves if s.id not in state.contents.ledger]
    if opened.closed or missing:
        return NeedSegments(ledger=(*opened.closed, *missing))
    applied = _applied(state, opened.leaves, {r.id for r in asked})
    # Checked first: what is in the ledger was applied, however old it is.
    if request is not None and request.id in applied:
        before = applied[request.id]
        if not _is_same_content(state.snapshot, before, request):
            return RequestRefused(
                f"request id {request.text!r} was used before, at version "
                f"{before.version}, with another content",
                "reused",
            )
        return AlreadyApplied(before.version)
    if any(r.id not in applied for r in too_old):
        return RequestRefused(
            "the request is older than this table's ledger reaches back", "too_old"
        )
    duplicates = frozenset(r.id for r in events if r.id in applied)
    if events and len(duplicates) == len({r.id for r in events}):
        newest = max((applied[i].version or 0 for i in duplicates), default=0)
        return AlreadyApplied(newest or None, duplicates)
    return duplicates


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerSalt:
    """The salt of request digests, from version `since` on. Digests of versions before `plain_before` have
    none (a library without salts wrote them); those in between had one that is lost, and cannot be compared
    with anything."""

    text: str
    since: int
    plain_before: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LedgerSalt | None:
        found = properties.get(LEDGER_SALT)
        if found is None:
            return None
        text, since, plain_before = found.split(":")
        return cls(text, int(since), int(plain_before))

    @property
    def as_property(self) -> str:
        return f"{self.text}:{self.since}:{self.plain_before}"

    def digest(self, body: bytes) -> bytes:
        return blake2b(body, digest_size=BODY_BYTES, key=self.text.encode("ascii")).digest()


def next_salt(base: Snapshot, change: Change, fresh: str) -> LedgerSalt | None:
    """The salt from the commit of `change` on. The first request with a content introduces the first salt,
    `ForgetContents` another."""
    current = LedgerSalt.of(base.properties)
    version = base.version + 1
    forgets = bool(change.of(ForgetContents))
    if current is not None:
        return LedgerSalt(fresh, version, current.plain_before) if forgets else current
    asked = (change.request, *change.events)
    if forgets or any(r is not None and r.body is not None for r in asked):
        return LedgerSalt(fresh, version, version)
    return None


def _is_same_content(snapshot: Snapshot, before: LedgerRecord, request: Request) -> bool:
    """Whether a request with an id applied before asks for the same, as far as that is known."""
    if before.body is None or request.body is None:
        return True
    salt, version = LedgerSalt.of(snapshot.properties), before.version or 0
    if salt is None or version < salt.plain_before:
        return before.body == request.body
    if version < salt.since:
        return True
    return before.body in (salt.digest(request.body), request.body)


def forgotten_before(snapshot: Snapshot) -> int:
    """Records from before this time need not be kept. A request made at or after the horizon set by
    `horizon` was applied later than this, even if its sender's clock runs ahead."""
    return _cutoff(snapshot) - CLOCK_SKEW_US


def horizon(snapshot: Snapshot) -> int:
    """Requests made before this time are refused, once something may have been forgotten: it follows the
    clock from the first record that is old enough, however large the segment it is in."""
    ledger = snapshot.ledger
    cutoff = _cutoff(snapshot)
    begins = min(
        (s.first_us for s in ledger.records.segments if s.first_us is not None), default=None
    )
    is_due = begins is not None and begins < cutoff
    return max(ledger.horizon_us, cutoff) if is_due else ledger.horizon_us


def _cutoff(snapshot: Snapshot) -> int:
    return snapshot.commit.time_us - Properties(snapshot.properties).ledger_days * DAY_US


def _opened(state: State, asked: Sequence[Request]) -> Opened:
    """The leaves that may hold one of these requests: a request is applied after it was made."""
    times = [None if r.may_be_older else r.time_us for r in asked]
    since_us = min((t for t in times if t is not None), default=0) - CLOCK_SKEW_US

    def wanted(found: Sequence[Segment]) -> list[bool]:
        return [None in times or s.last_us is None or s.last_us >= since_us for s in found]

    records = state.snapshot.ledger.records
    return open_tree(records.segments, state.contents.nodes, wanted)


def _applied(state: State, leaves: Sequence[Segment], ids: set[bytes]) -> dict[bytes, LedgerRecord]:
    found = {r.id: r for r in state.snapshot.ledger.records.inline if r.id in ids}
    for leaf in leaves:
        entries = state.contents.ledger[leaf.id]
        found |= {r.id: resolved_record(leaf, r) for r in entries if r.id in ids}
    return found


def without_duplicates(change: Change, known: frozenset[bytes]) -> Change:
    if not known:
        return change
    tokens = {r.token for r in change.events if r.id in known}
    dropped = {f.key for f in change.added if f.event in tokens}

    def without(update: Update) -> Update:
        match update:
            case AddFiles(files, sources_us):
                return AddFiles(
                    tuple(f for f in files if f.key not in dropped),
                    {k: us for k, us in sources_us.items() if k not in dropped},
                )
            case AddMarkers(markers):
                return AddMarkers(tuple(m for m in markers if m.file not in dropped))
            case _:
                return update

    return dataclasses.replace(
        change,
        events=tuple(r for r in change.events if r.id not in known),
        updates=tuple(map(without, change.updates)),
    )
