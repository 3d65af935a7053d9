"""State: a snapshot together with the content of the segments loaded so far.

Promise: entries read through here are *resolved* (sequence and time filled in from the segment's reference)
and live (dead ordinals left out), in commit order: segments oldest first, then inline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from inlay.format.entry import DataFile, LedgerRecord, Marker
from inlay.format.file_entries import FileEntries
from inlay.format.snapshot import Segment, Snapshot, Totals
from inlay.plan.metadata.tree import Nodes, Opened, Wanted, open_tree

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contents:
    """Decoded leaves by segment id, and nodes. They never change, so this may be shared and kept."""

    files: Mapping[str, Sequence[DataFile]] = field(default_factory=dict)
    markers: Mapping[str, tuple[Marker, ...]] = field(default_factory=dict)
    ledger: Mapping[str, tuple[LedgerRecord, ...]] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    snapshot: Snapshot
    contents: Contents = field(default_factory=Contents)

    def open_files(self, wanted: Wanted | None = None) -> Opened:
        return open_tree(self.snapshot.files.segments, self.contents.nodes, wanted)

    def open_markers(self, wanted: Wanted | None = None) -> Opened:
        return open_tree(self.snapshot.markers.segments, self.contents.nodes, wanted)

    def missing_files(self, wanted: Wanted | None = None) -> tuple[Segment, ...]:
        """Nodes and leaves of file entries that are wanted and not loaded yet. Loading nodes may add
        more."""
        return _missing(self.open_files(wanted), self.contents.files)

    def missing_markers(self, wanted: Wanted | None = None) -> tuple[Segment, ...]:
        return _missing(self.open_markers(wanted), self.contents.markers)

    def missing_records(self) -> tuple[Segment, ...]:
        opened = open_tree(self.snapshot.ledger.records.segments, self.contents.nodes)
        return _missing(opened, self.contents.ledger)

    def files(self) -> Iterator[DataFile]:
        """Every live file; all segments must be loaded."""
        return self._all(self.missing_files(), self.loaded_files())

    def markers(self) -> Iterator[Marker]:
        """Every live marker; all segments must be loaded. A marker of a file may outlive its file."""
        return self._all(self.missing_markers(), self.loaded_markers())

    def loaded_files(self) -> Iterator[DataFile]:
        """The live files of the loaded leaves, and the inline ones."""
        for leaf in self.open_files().leaves:
            for _, entry in live_files(leaf, self.contents.files.get(leaf.id, ())):
                yield entry
        yield from self.snapshot.files.inline

    def loaded_file_keys(self) -> set[str]:
        """Those of `loaded_files`."""
        found = {f.key for f in self.snapshot.files.inline}
        for leaf in self.open_files().leaves:
            entries = self.contents.files.get(leaf.id, ())
            if isinstance(entries, FileEntries):
                keys: Iterable[str] = entries.column("key")
            else:
                keys = (entry.key for entry in entries)
            found.update(key for n, key in enumerate(keys) if n not in leaf.dead)
        return found

    def loaded_markers(self) -> Iterator[Marker]:
        for leaf in self.open_markers().leaves:
            for _, entry in live_markers(leaf, self.contents.markers.get(leaf.id, ())):
                yield entry
        yield from self.snapshot.markers.inline

    @staticmethod
    def _all(missing: tuple[Segment, ...], found: Iterator[T]) -> Iterator[T]:
        if missing:
            raise LookupError(f"{len(missing)} segments of this state are not loaded")
        return found


def _missing(opened: Opened, loaded: Mapping[str, object]) -> tuple[Segment, ...]:
    return (*opened.closed, *(leaf for leaf in opened.leaves if leaf.id not in loaded))


def live_files(segment: Segment, entries: Sequence[DataFile]) -> Iterator[tuple[int, DataFile]]:
    """(ordinal, entry) of the live entries of a segment, sequences filled in."""
    sequence = segment.sequence
    for ordinal in range(len(entries)):
        if ordinal in segment.dead:
            continue
        if isinstance(entries, FileEntries):
            yield ordinal, entries.resolved(ordinal, sequence)
            continue
        entry = entries[ordinal]
        known = entry.sequence is not None
        yield ordinal, entry if known else dataclasses.replace(entry, sequence=sequence)


def live_markers(segment: Segment, entries: Sequence[Marker]) -> Iterator[tuple[int, Marker]]:
    for ordinal, entry in enumerate(entries):
        if ordinal not in segment.dead:
            yield (
                ordinal,
                entry
                if entry.sequence is not None
                else dataclasses.replace(entry, sequence=segment.sequence),
            )


def resolved_record(leaf: Segment, record: LedgerRecord) -> LedgerRecord:
    """With the version and time it takes from its leaf."""
    if record.version is not None:
        return record
    return dataclasses.replace(record, version=leaf.sequence, time_us=leaf.last_us)


def ledger_records(leaf: Segment, entries: tuple[LedgerRecord, ...]) -> Iterator[LedgerRecord]:
    return (resolved_record(leaf, entry) for entry in entries)


def count_totals(files: Iterable[DataFile], markers: Iterable[Marker]) -> Totals:
    found = list(files)
    return Totals(
        files=len(found),
        rows=sum(f.rows for f in found),
        bytes=sum(f.size for f in found),
        markers=sum(1 for _ in markers),
    )
