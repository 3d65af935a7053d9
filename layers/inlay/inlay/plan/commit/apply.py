"""Apply: a change on a base, as a pure function.

Promise: `apply` neither waits nor reads; for the same state and change it returns the same. It is called
again on every rebase, so everything that must hold (the request is new, what was read has not changed,
inputs still exist, no object is older than the boundary) is checked against the base that is then swapped
out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from inlay.format.entry import LedgerRecord
from inlay.format.notes import with_note
from inlay.format.snapshot import Snapshot, Tier, thin_time_index
from inlay.plan.change import (
    AlreadyApplied,
    AlterSchema,
    Change,
    Conflict,
    NeedSegments,
    Outcome,
    Proposal,
    ReplaceFiles,
    RequestRefused,
    SetPartitioning,
    Stale,
    Unchanged,
)
from inlay.plan.commit.conflicts import needed, settle_units, validate
from inlay.plan.commit.draft import Draft, always_commits
from inlay.plan.metadata.ledger import look_up, without_duplicates
from inlay.plan.metadata.pointer_budget import fit_pointer
from inlay.plan.metadata.state import State
from inlay.plan.pruning.partitions import has_partitioning
from inlay.plan.schema_conflicts import is_evolved


def apply(
    state: State,
    change: Change,
    *,
    commit_id: str,
    name: Callable[[bytes], str],
    resolved: int = 0,
) -> Outcome:
    """The result of committing `change` on top of `state`. Times must have been filled in
    (`format.snapshot.with_open_times`). `name` gives new segments their ids; `resolved`: see
    `plan.commit.conflicts.needed`."""
    admitted = admit(state, change)
    if not isinstance(admitted, Admitted):
        return admitted
    change = admitted.change

    if any(is_evolved(state.snapshot, u) for u in change.of(AlterSchema)):
        return Unchanged()
    if any(has_partitioning(state.snapshot, u) for u in change.of(SetPartitioning)):
        return Unchanged()
    needs = needed(state, change, resolved=resolved)
    if needs is not None:
        return needs

    conflict = validate(state, change)
    if conflict is not None:
        return conflict
    units, skipped, remapped = settle_units(state, change)
    if skipped and any(u.whole for u in change.of(ReplaceFiles)):
        gone = frozenset(key for unit in skipped for key in unit.inputs)
        return Conflict("files whose rows were to be deleted were replaced or marked", gone)
    if change.units and not units and not _does_something_else(change):
        return Unchanged(skipped)

    draft = Draft(state, change, units, remapped, commit_id, name(b"salt"))
    snapshot = draft.build()
    if snapshot is None:
        return Unchanged(skipped)
    rolled = fit_pointer(snapshot, state, change, name)
    if isinstance(rolled, NeedSegments):
        return rolled
    snapshot, segments = rolled
    # Afterwards: a note is gone from the next pointer, and nothing is worth moving for it.
    noted = with_note(snapshot.properties, change.note, snapshot.version)
    snapshot = dataclasses.replace(snapshot, properties=noted)
    return Proposal(snapshot, segments, admitted.duplicates, skipped)


@dataclasses.dataclass(frozen=True, slots=True)
class Admitted:
    """The part of a change that is still to be done; `duplicates` are its events applied before."""

    change: Change
    duplicates: frozenset[bytes]


def admit(
    state: State, change: Change
) -> Admitted | NeedSegments | AlreadyApplied | RequestRefused | Stale:
    """Whether a change may be applied at all: its objects are safe from GC, its requests are new."""
    boundary_us = state.snapshot.boundary.time_us or 0
    if change.uploaded_us is not None and change.uploaded_us < boundary_us:
        return Stale(boundary_us)
    known = look_up(state, change.request, change.events)
    if not isinstance(known, frozenset):
        return known
    return Admitted(without_duplicates(change, known), known)


def seal(proposal: Proposal, *, date_us: int, previous_us: int) -> Snapshot:
    """The proposed snapshot with its commit time: strictly after its parent's, else the store's clock
    (docs/design/design.md, section 2: max(previous + 1 µs, S3's Date))."""
    time_us = max(previous_us + 1, date_us)
    draft = proposal.snapshot

    def stamped(record: LedgerRecord) -> LedgerRecord:
        return (
            record
            if record.version is not None
            else dataclasses.replace(record, version=draft.version, time_us=time_us)
        )

    records = draft.ledger.records
    return dataclasses.replace(
        draft,
        commit=dataclasses.replace(draft.commit, time_us=time_us),
        ledger=dataclasses.replace(
            draft.ledger,
            records=Tier(
                tuple(
                    s
                    if s.last_us is not None
                    else dataclasses.replace(
                        s, first_us=time_us if s.first_us is None else s.first_us, last_us=time_us
                    )
                    for s in records.segments
                ),
                tuple(stamped(r) for r in records.inline),
            ),
        ),
        time_index=thin_time_index((*draft.time_index, (draft.version, time_us)), draft.version),
        erasures=tuple(
            dataclasses.replace(
                e,
                opened_us=e.opened_us or time_us,
                swept_us=time_us if e.swept_us == 0 else e.swept_us,
            )
            for e in draft.erasures
        ),
    )


def _does_something_else(change: Change) -> bool:
    named = change.added or change.markers or change.removed or change.dropped
    return bool(change.request or named or any(map(always_commits, change.updates)))
