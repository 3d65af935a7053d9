"""What a check of a table can find, by the rules of docs/FORMAT.md, and what it finds in metadata alone.

Promise: a finding names the object (relative to the table root, like the metadata), states what is wrong
without repeating any row's value, and ends with the next step; everything that is wrong is found, not only
the first. `RULES` lists every kind of finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TypeGuard, assert_never

from inlay.errors import CorruptTable
from inlay.format import keys
from inlay.format.entry import (
    ColumnStats,
    DataFile,
    KeyRange,
    Keys,
    LedgerRecord,
    Marker,
    RowGroups,
    Rows,
    Vector,
    Where,
)
from inlay.format.partition import decode_partition, parse_transform, result_type
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.snapshot import PartitionSpec, Segment, Snapshot
from inlay.format.values import compare
from inlay.plan.metadata.state import State, count_totals
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import fields_of_marker
from inlay.record import Mutable, Record, field, replace

# Findings of one kind that are kept; all are counted. A lost prefix would otherwise give millions.
MAX_PER_KIND = 100
# Archived versions that a check reads, newest first: one GET each.
MAX_VERSIONS = 10_000


class Severity(StrEnum):
    """`ERROR`: some version answers wrongly or not at all. `WARNING`: counts are wrong, or what
    is published; rows are not.
    `NOTE`: nothing is wrong."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


_FROM_VERSIONS = (
    "`inlay repair` restores it where the bucket keeps object versions; else restore it from a backup, "
    "or expire the versions up to it"
)
_REWRITTEN = "Find out what wrote it: no commit of this library does; restore it from a backup"
_BYPASSED = (
    "Something other than this library wrote to the table: restore the object from a backup or an earlier "
    "object version"
)
_ANEW = "Filters may miss rows: read all rows of the file and append them to a new one"

# By kind: what to do about it.
_STEPS: dict[Severity, dict[str, str]] = {
    Severity.ERROR: {
        "pointer_missing": "`inlay repair` rebuilds it from the newest archive",
        "pointer_corrupt": "`inlay repair` rebuilds it from the newest archive",
        "decision_missing": "`inlay repair` writes it again, as committed",
        "pointer_behind": (
            "Stop writing: the pointer was put back by hand, or archives of another table are left. "
            "`inlay repair` says how it would go on; to go back on purpose, restore the older version"
        ),
        "archive_missing": _FROM_VERSIONS,
        "archive_corrupt": _FROM_VERSIONS,
        "archive_differs": "`inlay repair` writes it again from the pointer",
        "history_contradicts": _REWRITTEN,
        "segment_missing": _BYPASSED,
        "segment_corrupt": _BYPASSED,
        "segment_contradicts": _REWRITTEN,
        "entry_twice": _REWRITTEN,
        "sequence_wrong": _REWRITTEN,
        "file_missing": _BYPASSED
        + ". If it is lost, `inlay delete --where TRUE --file` and a compaction remove its entry",
        "file_changed": _BYPASSED,
        "file_unreadable": "Restore the object from a backup. If it came so, or is lost, `inlay delete "
        "TABLE --where TRUE --file KEY` takes it and its rows out; until then scans read the others with "
        "--on-damaged skip",
        "file_contradicts": _BYPASSED,
        "statistics_wrong": _ANEW,
        "page_index_wrong": "Reads of few rows may show values of others: read all rows of the file and "
        "append them to a new one",
        "partition_wrong": _ANEW,
        "marker_changed": _BYPASSED,
        "marker_missing": _BYPASSED + ". Deletes are not applied without it",
        "marker_unreadable": _BYPASSED + ". Deletes are not applied without it",
        "marker_contradicts": _REWRITTEN,
    },
    Severity.WARNING: {
        "totals_wrong": "`inlay repair` counts them again",
        "foreign_commit": (
            "`inlay publish --take-over` makes it a commit of the table; deleting the file gives it up. "
            "Until then nothing is published or collected"
        ),
        "publication_corrupt": "`inlay publish --rebuild` publishes the table from scratch",
    },
    Severity.NOTE: {
        "unused_entries": (
            "An erasure removes what it asks for; compaction writes files without them, and the property "
            "`erasure.promised` keeps them out"
        ),
        "dangling_marker": "Readers ignore it; `inlay repair` or the next compaction drops it",
        "orphans": (
            "Left by writers that failed or lost, or being written: `inlay gc` deletes them after the grace"
        ),
        "orphans_unknown": "Repair the errors first: garbage collection stops at them, too",
        "unknown_objects": "Not Inlay's, and never deleted. Keep other data outside the table",
        "stale_uploads": "`inlay gc` aborts them after the grace",
        "versions_not_checked": "Check more versions, or expire some",
    },
}
RULES = {kind: (severity, step) for severity, of in _STEPS.items() for kind, step in of.items()}


# The operation of commits that repair; findings of archives that may be written again.
REPAIR = "repair"
MENDABLE = ("archive_missing", "archive_corrupt", "archive_differs")


class Finding(Record, kw_only=True):
    """One finding. `key` is relative to the table root (a URI for adopted files), None when it is about the
    table as a whole."""

    severity: Severity
    kind: str
    key: str | None
    message: str
    next_step: str

    def __str__(self) -> str:
        about = f"{self.key}: " if self.key else ""
        return f"{self.severity.value}: {about}{self.message}. {self.next_step}"


def finding(kind: str, key: str | None, message: str) -> Finding:
    severity, step = RULES[kind]
    return Finding(severity=severity, kind=kind, key=key, message=message, next_step=step)


def until_expired(finding: Finding, version: int, ref: str | None) -> Finding:
    """What is wrong with an object that nothing after `version` needs. Still an error: that version cannot
    be read."""
    ends = f"when version {version} expires (`inlay expire`)"
    kept = "" if ref is None else f"; the ref {ref} keeps an older version that needs it, too"
    return replace(
        finding,
        message=f"{finding.message}; only older versions need it, up to version {version}",
        next_step=f"Nothing to do for the table as it is: this ends {ends}{kept}",
    )


class Mend(Record, kw_only=True):
    """One repair that was made, or in a dry run would be. `lost` is what cannot be restored."""

    kind: str
    key: str
    what: str
    lost: str | None = None


class Findings(Mutable):
    """The findings so far: every kind counted, at most MAX_PER_KIND of each kept."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, key: str | None, message: str) -> None:
        self.extend([finding(kind, key, message)])

    def extend(self, findings: Iterable[Finding]) -> None:
        for new in findings:
            self.counts[new.kind] += 1
            if self.counts[new.kind] <= MAX_PER_KIND:
                self.kept.append(new)


# -- from one version to the next -----------------------------------------------------------------


def check_succession(older: Snapshot, newer: Snapshot) -> Iterator[Finding]:
    """What must hold between a version and an earlier one (not always its predecessor: versions that refs
    hold may stand alone)."""

    def wrong(message: str) -> Finding:
        return finding("history_contradicts", keys.archive_key(older.version), message)

    pair = f"version {older.version} and version {newer.version}"
    if newer.table_id != older.table_id:
        yield wrong(f"{pair} belong to different tables")
        return
    if newer.commit.time_us <= older.commit.time_us:
        yield wrong(f"commit times do not rise between {pair}")
    if newer.commit.id == older.commit.id:
        yield wrong(f"{pair} have the same commit id")
    if newer.ledger.horizon_us < older.ledger.horizon_us:
        yield wrong(f"the ledger's horizon goes back between {pair}")
    times = (older.boundary.time_us, newer.boundary.time_us)
    if times[0] is not None and times[1] is not None and times[1] < times[0]:
        yield wrong(f"the GC boundary goes back between {pair}")
    if newer.last_field_id < older.last_field_id:
        yield wrong(f"field ids are reused between {pair}")


def check_time_index(snapshot: Snapshot, times: dict[int, int]) -> Iterator[Finding]:
    """Reads as of a time follow the index: its points must have the versions' times."""
    wrong = [v for v, us in snapshot.time_index if times.get(v, us) != us]
    if wrong:
        yield finding(
            "history_contradicts",
            keys.POINTER,
            f"the time index has another time for version {wrong[0]} than that version itself",
        )


def check_refs(snapshot: Snapshot) -> Iterator[Finding]:
    for name, ref in sorted(snapshot.refs.items()):
        if not 1 <= ref.version <= snapshot.version:
            yield finding(
                "history_contradicts", keys.POINTER, f"ref {name} names version {ref.version}"
            )


# -- segments -------------------------------------------------------------------------------------


def check_reference(segment: Segment, version: int) -> Iterator[Finding]:
    """What must hold of one version's reference to a segment."""
    if segment.dead and segment.dead.max() >= segment.count:
        dead = f"calls entry {segment.dead.max()} of {segment.count} dead"
        yield _contradicts(segment, f"version {version} {dead}")
    if segment.sequence is not None and segment.sequence > version:
        stated = f"version {version} gives it sequence {segment.sequence}"
        yield finding("sequence_wrong", keys.segment_key(segment.id), stated)


def _contradicts(segment: Segment, message: str) -> Finding:
    return finding("segment_contradicts", keys.segment_key(segment.id), message)


def check_node(node: Segment, leaves: Sequence[Segment]) -> Iterator[Finding]:
    """A node's reference against the references in it. Two versions may refer to it with different bitmaps,
    but not with different sums."""
    sums = (
        sum(s.rows for s in leaves),
        sum(s.bytes for s in leaves),
        sum(len(s.dead) for s in leaves),
    )
    if sums != (node.rows, node.bytes, node.settled):
        yield _contradicts(node, f"its leaves sum to {sums} rows, bytes and dead entries")
    if any((s.sequence or 0) > (node.sequence or 0) for s in leaves):
        key = keys.segment_key(node.id)
        yield finding("sequence_wrong", key, "has a lower sequence than a leaf in it")
    for leaf in leaves:
        yield from check_reference(leaf, node.sequence or 0)


def check_file_segment(
    segment: Segment, entries: Sequence[DataFile], evidence: Evidence
) -> Iterator[Finding]:
    """Sums and bounds of a reference against all entries: readers skip segments by them."""
    sums = (sum(f.rows for f in entries), sum(f.size for f in entries))
    if sums != (segment.rows, segment.bytes):
        yield _contradicts(
            segment,
            f"the entries sum to {sums[0]} rows and {sums[1]} bytes, the reference says "
            f"{segment.rows} and {segment.bytes}",
        )
    if not segment.stats:
        return
    schema = evidence.schemas.get(segment.schema_id)
    _, actual = evidence.of_files(entries, segment.stats)
    for field_id, claimed in segment.stats.items():
        name, kind = column_of(schema, field_id)
        if kind is None or field_id not in actual:
            yield _contradicts(segment, f"bounds column {name}, which its entries do not bound")
            continue
        for what in contradictions(claimed, actual[field_id], kind):
            yield _contradicts(segment, f"column {name}: {what}")


def check_ledger_segment(segment: Segment, records: Sequence[LedgerRecord]) -> Iterator[Finding]:
    """The span of times decides which segments a lookup reads."""
    known = [r.time_us for r in records if r.time_us is not None]
    first, last = segment.first_us, segment.last_us
    if first is None or last is None or (known and (min(known) < first or max(known) > last)):
        yield _contradicts(segment, "its records are outside the span of times in the reference")


# -- entries --------------------------------------------------------------------------------------


def check_state(state: State) -> Iterator[Finding]:
    """The live entries of one version against each other."""
    snapshot = state.snapshot
    files, markers = list(state.files()), list(state.markers())
    by_key = {f.key: f for f in files}
    yield from _twice("file", Counter(f.key for f in files))
    yield from _twice("marker", Counter(m.id for m in markers))
    for entry in files:
        for sequence in (entry.sequence, entry.arrived or 0):
            if sequence is None or sequence > snapshot.version:
                yield _sequence(entry.key, sequence, snapshot.version)
        wrong = check_partition(entry, snapshot.specs, snapshot.schemas)
        if wrong is not None:
            yield finding("partition_wrong", entry.key, wrong)
    for marker in markers:
        name = marker.object_key or f"marker {marker.id}"
        if marker.sequence is None or marker.sequence > snapshot.version:
            yield _sequence(name, marker.sequence, snapshot.version)
        if marker.file is not None and marker.file not in by_key:
            yield finding("dangling_marker", name, f"marks {marker.file}, which is not a live file")
        for message in check_marker(marker, by_key.get(marker.file or ""), snapshot.schemas):
            yield finding("marker_contradicts", name, message)
    totals = count_totals(files, markers)
    if totals != snapshot.totals:
        yield finding(
            "totals_wrong",
            keys.POINTER,
            f"live are {totals.files} files, {totals.rows} rows, {totals.bytes} bytes and "
            f"{totals.markers} markers; the totals say {snapshot.totals.files}, "
            f"{snapshot.totals.rows}, {snapshot.totals.bytes} and {snapshot.totals.markers}",
        )


def check_partition(
    entry: DataFile, specs: Sequence[PartitionSpec], schemas: Sequence[Schema]
) -> str | None:
    """Why a file's partition is invalid; None when it is valid."""
    spec = next((s for s in specs if s.id == entry.spec_id), None)
    schema = next((s for s in schemas if s.id == entry.schema_id), None)
    if spec is None:
        return f"its entry names partition spec {entry.spec_id}, which the table does not have"
    if not entry.partition and not (schema is not None and schema.in_partition):
        return None  # in no one partition
    if len(spec.fields) != len(entry.partition):
        return (
            f"its partition has {len(entry.partition)} values, its spec {len(spec.fields)} fields"
        )
    for column in () if schema is None else schema.in_partition.values():
        at = column.in_partition or 0
        part = spec.fields[at] if at < len(spec.fields) else None
        if part is None or (part.source, part.transform) != (column.id, "identity"):
            return f"its partition has no value of column {column.name}, which the file lacks"
    for part, value in zip(spec.fields, entry.partition, strict=True):
        name, kind = column_of(schema, part.source)
        try:
            transform = parse_transform(part.transform)
            if kind is None or result_type(transform, kind) is None:
                return (
                    f"column {name}, which its partition uses, does not exist or has another type"
                )
            decode_partition(transform, kind, value)
        except CorruptTable:
            return f"the value of partition field {part.name} is not of its type"
    return None


def check_marker(
    marker: Marker, entry: DataFile | None, schemas: Sequence[Schema]
) -> Iterator[str]:
    """What is wrong with a marker; `entry` is the live file that it names."""
    if marker.is_positional and marker.file is None:
        yield "names positions but no file"
    match marker.body:
        case RowGroups(ordinals):
            if entry is not None and any(n >= entry.row_groups for n in ordinals):
                yield f"marks row group {max(ordinals)} of {entry.row_groups}"
        case Rows(positions):
            if list(positions) != sorted(set(positions)):
                yield "its positions do not ascend"
            if entry is not None and positions and max(positions) >= entry.rows:
                yield f"marks row {max(positions)} of a file of {entry.rows} rows"
        case Vector(rows=rows):
            if entry is not None and rows > entry.rows:
                yield f"marks {rows} rows of a file of {entry.rows} rows"
        case KeyRange() | Where() | Keys():
            for field_id in sorted(fields_of_marker(marker)):
                if all(s.path_of(field_id) is None for s in schemas):
                    yield f"names field {field_id}, which no schema has"
        case _:
            assert_never(marker.body)


def _twice(what: str, counts: Counter[str]) -> Iterator[Finding]:
    for name, count in counts.items():
        if count > 1:
            yield finding("entry_twice", name, f"the {what} is live {count} times")


def _sequence(name: str, sequence: int | None, version: int) -> Finding:
    stated = "no sequence" if sequence is None else f"sequence {sequence}"
    return finding("sequence_wrong", name, f"has {stated} at version {version}")


# -- statistics -----------------------------------------------------------------------------------


def column_of(schema: Schema | None, field_id: int) -> tuple[str, Primitive | None]:
    """A column's name and type, for messages and comparisons."""
    path = None if schema is None else schema.path_of(field_id)
    name = ".".join(path) if path else f"field {field_id}"
    return name, None if schema is None else schema.types.get(field_id)


def contradictions(claimed: ColumnStats, actual: ColumnStats, kind: Primitive) -> Iterator[str]:
    """Where statistics rule out values that exist. Statistics wider than the data are valid."""
    lowers, uppers = (claimed.lower, actual.lower), (claimed.upper, actual.upper)
    if _known(lowers) and compare(kind, *lowers) > 0:
        yield "the lower bound is above a value"
    if _known(uppers) and compare(kind, *uppers) < 0:
        yield "the upper bound is below a value"
    nulls = (claimed.null_count, actual.null_count)
    if None not in nulls and nulls[0] != nulls[1]:
        yield f"{nulls[1]} NULLs exist, the statistics say {nulls[0]}"
    if claimed.has_nan is False and actual.has_nan:
        yield "a NaN exists, the statistics say none"


def _known(pair: tuple[Value | None, Value | None]) -> TypeGuard[tuple[Value, Value]]:
    return pair[0] is not None and pair[1] is not None
