"""Fit: keep the pointer small, whatever the table's size.

Promise: a snapshot that is over the pointer's target has its heaviest tier rolled into segments until
it fits; what is left then (schemas, references) is not inline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from inlay.format.codec import encode_snapshot
from inlay.format.entry import DataFile, Marker
from inlay.format.entry_json import Types
from inlay.format.leaves import encode_files, encode_ledger, encode_markers
from inlay.format.snapshot import POINTER_TARGET_BYTES, LedgerRecord, Segment, Snapshot, Tier
from inlay.plan.change import NeedSegments, NewSegment
from inlay.plan.evidence import Evidence
from inlay.plan.state import State, ledger_records, live_files, live_markers
from inlay.plan.tiers import Missing, Packing, Rolled, merge_all, roll

# Columns bounded in a segment's reference: the leading sort and key columns prune best, and every
# column costs about 30 bytes in each reference.
SEGMENT_STATS_COLUMNS = 2
# Bytes of inline entries that a pointer holds before it rolls, however large the rest of it is: about
# ten entries, so that no more than every tenth small commit writes a segment.
INLINE_MIN_BYTES = 1_200


class _Files(Packing[DataFile]):
    def __init__(self, state: State, columns: tuple[int, ...]) -> None:
        self.state = state
        self.types = Types(state.snapshot.schemas)
        self.columns = columns
        self.evidence = Evidence.of_snapshot(state.snapshot)

    def encode(self, entries: tuple[DataFile, ...]) -> bytes:
        # New entries take their sequence from the reference: their version may change on a rebase.
        told = (dataclasses.replace(f, sequence=None) if self.is_new(f) else f for f in entries)
        return encode_files(tuple(told), self.types)

    def is_new(self, entry: DataFile) -> bool:
        return entry.sequence == self.state.snapshot.version + 1

    def describe(self, segment: Segment, entries: Sequence[DataFile]) -> Segment:
        schema_id, stats = self.evidence.together(entries, self.columns)
        return dataclasses.replace(
            segment,
            rows=sum(f.rows for f in entries),
            bytes=sum(f.size for f in entries),
            stats=stats,
            schema_id=schema_id,
        )

    def live(self, segment: Segment) -> list[DataFile] | None:
        contents = self.state.contents.files.get(segment.id)
        return None if contents is None else [f for _, f in live_files(segment, contents)]


class _Markers(Packing[Marker]):
    def __init__(self, state: State) -> None:
        self.state = state
        self.types = Types(state.snapshot.schemas)

    def encode(self, entries: tuple[Marker, ...]) -> bytes:
        told = (dataclasses.replace(m, sequence=None) if self.is_new(m) else m for m in entries)
        return encode_markers(tuple(told), self.types)

    def is_new(self, entry: Marker) -> bool:
        return entry.sequence == self.state.snapshot.version + 1

    def describe(self, segment: Segment, entries: Sequence[Marker]) -> Segment:
        return segment

    def live(self, segment: Segment) -> list[Marker] | None:
        contents = self.state.contents.markers.get(segment.id)
        return None if contents is None else [m for _, m in live_markers(segment, contents)]


class _Records(Packing[LedgerRecord]):
    def __init__(self, state: State) -> None:
        self.state = state

    def encode(self, entries: tuple[LedgerRecord, ...]) -> bytes:
        return encode_ledger(entries)

    def is_new(self, entry: LedgerRecord) -> bool:
        return entry.version is None

    def describe(self, segment: Segment, entries: Sequence[LedgerRecord]) -> Segment:
        times = [r.time_us for r in entries if r.time_us is not None]
        being_committed = any(r.version is None for r in entries)
        return dataclasses.replace(
            segment,
            first_us=min(times, default=None),
            last_us=None if being_committed else max(times, default=None),
        )

    def live(self, segment: Segment) -> list[LedgerRecord] | None:
        contents = self.state.contents.ledger.get(segment.id)
        return None if contents is None else list(ledger_records(segment, contents))


def fit(
    snapshot: Snapshot, state: State, new_id: Callable[[], str], *, merge: bool
) -> tuple[Snapshot, tuple[NewSegment, ...]] | NeedSegments:
    """Roll tiers, the heaviest first, until the pointer is within its target."""
    # Types and segment contents are those of the base; a schema added by this change has no entries.
    packs: dict[str, Packing[Any]] = {
        "files": _Files(state, (*snapshot.sort_by, *snapshot.primary_key)[:SEGMENT_STATS_COLUMNS]),
        "markers": _Markers(state),
        "ledger": _Records(state),
    }
    written: list[NewSegment] = []
    for name in ("files", "markers", "ledger") if merge else ():
        merged = _repack(snapshot, name, packs[name], new_id, merge_all)
        if isinstance(merged, NeedSegments):
            return merged
        snapshot, more = merged
        written.extend(more)
    limit = POINTER_TARGET_BYTES
    if len(encode_snapshot(snapshot)) > limit:
        # A wide schema may fill the target by itself: entries then still get room to gather in.
        limit = max(limit, len(encode_snapshot(_bare(snapshot))) + INLINE_MIN_BYTES)
    while len(encode_snapshot(snapshot)) > limit:
        weights = _weights(snapshot, packs)
        heaviest = max(weights, key=lambda n: weights[n])
        if weights[heaviest] == 0:
            break  # what is left (schemas, references) is not inline
        rolled = _repack(snapshot, heaviest, packs[heaviest], new_id, roll)
        if isinstance(rolled, NeedSegments):
            return rolled
        snapshot, more = rolled
        written.extend(more)
    return snapshot, tuple(written)


def _bare(snapshot: Snapshot) -> Snapshot:
    """Without inline entries."""
    ledger = snapshot.ledger
    return dataclasses.replace(
        snapshot,
        files=Tier(snapshot.files.segments),
        markers=Tier(snapshot.markers.segments),
        ledger=dataclasses.replace(ledger, records=Tier(ledger.records.segments)),
    )


def _tier(snapshot: Snapshot, name: str) -> Tier[Any]:
    found: dict[str, Tier[Any]] = {
        "files": snapshot.files,
        "markers": snapshot.markers,
        "ledger": snapshot.ledger.records,
    }
    return found[name]


def _weights(snapshot: Snapshot, packs: dict[str, Packing[Any]]) -> dict[str, int]:
    return {
        name: len(pack.encode(_tier(snapshot, name).inline)) if _tier(snapshot, name).inline else 0
        for name, pack in packs.items()
    }


def _repack(
    snapshot: Snapshot,
    name: str,
    pack: Packing[Any],
    new_id: Callable[[], str],
    how: Callable[..., Rolled[Any] | Missing],
) -> tuple[Snapshot, tuple[NewSegment, ...]] | NeedSegments:
    rolled = how(_tier(snapshot, name), pack, version=snapshot.version, new_id=new_id)
    if isinstance(rolled, Missing):
        return NeedSegments(**{name: rolled.segments})
    tier, written = rolled.tier, rolled.segments
    if name == "ledger":
        ledger = dataclasses.replace(snapshot.ledger, records=tier)
        return dataclasses.replace(snapshot, ledger=ledger), written
    return dataclasses.replace(snapshot, **{name: tier}), written  # type: ignore[arg-type]
