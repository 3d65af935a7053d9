"""State: a snapshot together with the content of the segments loaded so far.

Promise: entries read through here are *resolved* (sequence and time filled in from the segment's
reference) and live (dead ordinals left out), in commit order: segments oldest first, then inline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inlay.format.entry import DataFile, Marker
from inlay.format.snapshot import LedgerRecord, Segment, Snapshot, Totals


@dataclass(frozen=True, slots=True)
class Contents:
    """Decoded segments by segment id. Segments never change, so this may be shared and kept."""

    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    markers: Mapping[str, tuple[Marker, ...]] = field(default_factory=dict)
    ledger: Mapping[str, tuple[LedgerRecord, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    snapshot: Snapshot
    contents: Contents = field(default_factory=Contents)

    def missing_files(self) -> tuple[Segment, ...]:
        """Segments of file entries not loaded yet."""
        return tuple(s for s in self.snapshot.files.segments if s.id not in self.contents.files)

    def missing_markers(self) -> tuple[Segment, ...]:
        return tuple(s for s in self.snapshot.markers.segments if s.id not in self.contents.markers)

    def files(self) -> Iterator[DataFile]:
        """Every live file; all segments must be loaded."""
        for segment in self.snapshot.files.segments:
            for _, entry in live_files(segment, self.contents.files[segment.id]):
                yield entry
        yield from self.snapshot.files.inline

    def markers(self) -> Iterator[Marker]:
        """Every live marker; all segments must be loaded. A file marker may outlive its file."""
        for segment in self.snapshot.markers.segments:
            for _, entry in live_markers(segment, self.contents.markers[segment.id]):
                yield entry
        yield from self.snapshot.markers.inline


def live_files(segment: Segment, entries: tuple[DataFile, ...]) -> Iterator[tuple[int, DataFile]]:
    """(ordinal, entry) of what is live in a segment, sequences filled in."""
    for ordinal, entry in enumerate(entries):
        if ordinal not in segment.dead:
            yield (
                ordinal,
                entry
                if entry.sequence is not None
                else dataclasses.replace(entry, sequence=segment.sequence),
            )


def live_markers(segment: Segment, entries: tuple[Marker, ...]) -> Iterator[tuple[int, Marker]]:
    for ordinal, entry in enumerate(entries):
        if ordinal not in segment.dead:
            yield (
                ordinal,
                entry
                if entry.sequence is not None
                else dataclasses.replace(entry, sequence=segment.sequence),
            )


def ledger_records(segment: Segment, entries: tuple[LedgerRecord, ...]) -> Iterator[LedgerRecord]:
    for entry in entries:
        yield (
            entry
            if entry.version is not None
            else dataclasses.replace(entry, version=segment.sequence, time_us=segment.last_us)
        )


def count_totals(files: Iterable[DataFile], markers: Iterable[Marker]) -> Totals:
    found = list(files)
    return Totals(
        files=len(found),
        rows=sum(f.rows for f in found),
        bytes=sum(f.size for f in found),
        markers=sum(1 for _ in markers),
    )
