"""Report: one table at one version, drawn so that a person can see why a query is slow.

Promise: from metadata alone, and bounded: however many files there are, at most `MAX_MARKS` marks,
`MAX_ROWS` rows of each list and `MAX_VERSIONS` versions are given, the rest summed up. The figures are
those of scans, compaction and the tables of `ops.inspect`; nothing is computed twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from inlay.format.entry import DataFile
from inlay.format.predicate import Predicate
from inlay.format.properties import settings
from inlay.format.schema import Primitive
from inlay.format.snapshot import Snapshot
from inlay.notebook import Shown
from inlay.ops.context import Context
from inlay.ops.inspect.advice import (
    Finding,
    Maintenance,
    Query,
    explain_query,
    findings_of,
    plan_care,
    plan_or_nothing,
)
from inlay.ops.inspect.layout import Axis, axes_of
from inlay.ops.inspect.tables import (
    deleted_rows,
    has_deletes,
    load_tree,
    partition_values,
    segments_table,
    tombstones_table,
)
from inlay.ops.inspect.versions import version_records
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, plan_scan
from inlay.record import Record

MAX_MARKS = 2_000
MAX_ROWS = 40
MAX_BOUNDS = 2
MAX_VERSIONS = 300
Facts = Mapping[str, object]


class Mark(Record, kw_only=True):
    """A file, or some adjacent ones. `deletes` is the most markers that readers of one of them apply;
    `read` is how many of them the query reads; `places` are (from, to) on each axis."""

    key: str
    files: int
    bytes: int
    rows: int
    deleted_rows: int
    deletes: int
    row_groups: int
    arrived: int
    partition: str
    read: int | None
    places: tuple[tuple[float, float] | None, ...]


class SizeBin(Record, kw_only=True):
    """Files of `least` bytes or more, below twice that."""

    least: int
    files: int
    bytes: int
    with_deletes: int
    read: int


class Report(Record, Shown, kw_only=True):
    """Everything that the page and the tree show. Lists are cut to the most important rows; `markers_left`
    and the like are how many were cut. Segments have the bounds of the most important columns. `live_rows`
    are at most so many, unless `live_rows_counted`: metadata does not say what deletes by value hide."""

    table: Facts
    versions: Sequence[Facts]
    axes: tuple[Axis, ...]
    marks: tuple[Mark, ...]
    sizes: tuple[SizeBin, ...]
    partitions: Sequence[Facts]
    partitions_left: int
    segments: Sequence[Facts]
    markers: Sequence[Facts]
    markers_left: int
    marked_files: int
    deleted_rows: int
    live_rows: int
    live_rows_counted: bool
    query: Query | None
    maintenance: Maintenance
    findings: tuple[Finding, ...]

    def _facts(self) -> Iterator[tuple[str, Any]]:
        for name in ("uri", "version", "operation", "files", "bytes", "markers"):
            yield name, self.table[name]
        yield (
            "live rows",
            self.live_rows if self.live_rows_counted else f"at most {self.live_rows:,}",
        )
        for finding in self.findings:
            yield "finding", f"{finding.what} {finding.why} {finding.command}".rstrip()


def make_report(
    ctx: Context,
    current: Snapshot,
    state: State,
    predicate: Predicate | None = None,
    *,
    calculated: str = "",
) -> Report:
    """The report of `state`, all of whose entries must be loaded. `current` is the newest snapshot."""
    files = list(state.files())
    markers = list(state.markers())
    tasks = live_tasks(state, files, markers)
    scan = None
    if predicate is not None:
        evidence = Evidence.of_snapshot(state.snapshot)
        scan = plan_scan(files, markers, predicate, evidence=evidence)
    read = None if scan is None else frozenset(task.file.key for task in scan.tasks)
    plan = plan_or_nothing(state)
    axes, places = axes_of(state, files)
    partitions = _partitions(state, files, tasks)
    tombstones = _tombstones(state, tasks)
    deleted = sum(deleted_rows(f, tasks) for f in files)
    query = None
    if predicate is not None and scan is not None:
        query = explain_query(state, files, predicate, scan, calculated)
    maintenance = plan_care(state, plan, files, deleted, read)
    return Report(
        table=_facts(ctx, current, state),
        versions=version_records(ctx, current, limit=MAX_VERSIONS),
        axes=axes,
        marks=_marks(state, files, tasks, read, places),
        sizes=_sizes(files, tasks, read),
        partitions=partitions[:MAX_ROWS],
        partitions_left=max(0, len(partitions) - MAX_ROWS),
        segments=[
            {**run, "bounds": (run["bounds"] or [])[:MAX_BOUNDS]}
            for run in segments_table(load_tree(ctx, state)).to_pylist()
        ],
        markers=tombstones[:MAX_ROWS],
        markers_left=max(0, len(tombstones) - MAX_ROWS),
        marked_files=sum(has_deletes(f, tasks) for f in files),
        deleted_rows=deleted,
        live_rows=sum(f.rows for f in files) - deleted,
        live_rows_counted=all(task.live_rows is not None for task in tasks.values()),
        query=query,
        maintenance=maintenance,
        findings=tuple(findings_of(state, axes, files, tombstones, query, maintenance)),
    )


def _facts(ctx: Context, current: Snapshot, state: State) -> Facts:
    snapshot = state.snapshot
    schema = snapshot.schema
    names = {field.id: field.name for field in schema.fields}
    properties = snapshot.settings
    return {
        "uri": ctx.uri,
        "id": snapshot.table_id,
        "version": snapshot.version,
        "newest_version": current.version,
        "oldest_version": current.oldest_version,
        "time_us": snapshot.commit.time_us,
        "operation": snapshot.commit.operation,
        "files": snapshot.totals.files,
        "rows": snapshot.totals.rows,
        "bytes": snapshot.totals.bytes,
        "markers": snapshot.totals.markers,
        "columns": [{"name": f.name, "type": _type_text(f.type)} for f in schema.fields],
        "primary_key": [names.get(i, str(i)) for i in snapshot.primary_key],
        "sort_by": [names.get(i, str(i)) for i in snapshot.sort_by],
        "partition_by": [
            f"{f.transform}({names.get(f.source, f.source)})" for f in snapshot.spec.fields
        ],
        "properties": settings(snapshot.properties),
        "refs": [
            {"name": name, "kind": ref.kind, "version": ref.version}
            for name, ref in sorted(snapshot.refs.items())
        ],
        "erasures": len(snapshot.erasures),
        "target_file_bytes": properties.number("write.target_file_bytes"),
        "small_file_bytes": properties.number("compact.small_file_bytes"),
    }


def _type_text(kind: object) -> str:
    return str(kind) if isinstance(kind, Primitive) else type(kind).__name__.lower()


# -- files ----------------------------------------------------------------------------------------


def _marks(
    state: State,
    files: Sequence[DataFile],
    tasks: Mapping[str, FileTask],
    read: frozenset[str] | None,
    places: Sequence[Mapping[str, tuple[float, float]]],
) -> tuple[Mark, ...]:
    """Files in order of the first axis, adjacent ones merged if there are too many."""
    first = places[0] if places else {}
    ordered = sorted(files, key=lambda f: (first.get(f.key, (2.0, 2.0)), f.newest_rows))
    width = max(1, -(-len(ordered) // MAX_MARKS))
    marks = []
    for start in range(0, len(ordered), width):
        group = ordered[start : start + width]
        partitions = {_partition(f, state.snapshot) for f in group}
        marks.append(
            Mark(
                key=group[0].key,
                files=len(group),
                bytes=sum(f.size for f in group),
                rows=sum(f.rows for f in group),
                deleted_rows=sum(deleted_rows(f, tasks) for f in group),
                deletes=max(len(tasks[f.key].markers) if f.key in tasks else 0 for f in group),
                row_groups=sum(f.row_groups for f in group),
                arrived=max(f.newest_rows for f in group),
                partition=partitions.pop()
                if len(partitions) == 1
                else f"{len(partitions)} partitions",
                read=None if read is None else sum(f.key in read for f in group),
                places=tuple(_span(p[f.key] for f in group if f.key in p) for p in places),
            )
        )
    return tuple(marks)


def _span(places: Iterable[tuple[float, float]]) -> tuple[float, float] | None:
    values = list(places)
    if not values:
        return None
    return min(a for a, _ in values), max(b for _, b in values)


def _partition(entry: DataFile, snapshot: Snapshot) -> str:
    values = partition_values(entry, snapshot)
    return ", ".join(f"{v['name']}={v['value']}" for v in values)


def _sizes(
    files: Sequence[DataFile], tasks: Mapping[str, FileTask], read: frozenset[str] | None
) -> tuple[SizeBin, ...]:
    """By powers of two, without gaps from the smallest to the largest."""
    bins: dict[int, list[DataFile]] = defaultdict(list)
    for entry in files:
        bins[max(entry.size, 1).bit_length() - 1].append(entry)
    if not bins:
        return ()
    return tuple(
        SizeBin(
            least=1 << power,
            files=len(bins[power]),
            bytes=sum(f.size for f in bins[power]),
            with_deletes=sum(has_deletes(f, tasks) for f in bins[power]),
            read=sum(f.key in (read or ()) for f in bins[power]),
        )
        for power in range(min(bins), max(bins) + 1)
    )


def _partitions(
    state: State, files: Sequence[DataFile], tasks: Mapping[str, FileTask]
) -> list[Facts]:
    """The partitions with the most files first; none for an unpartitioned table."""
    groups: dict[str, list[DataFile]] = defaultdict(list)
    for entry in files:
        if entry.partition:
            groups[_partition(entry, state.snapshot)].append(entry)
    records: list[Facts] = [
        {
            "partition": name,
            "files": len(group),
            "rows": sum(f.rows for f in group),
            "bytes": sum(f.size for f in group),
            "deleted_rows": sum(deleted_rows(f, tasks) for f in group),
        }
        for name, group in groups.items()
    ]
    return sorted(records, key=lambda p: (-int(str(p["files"])), str(p["partition"])))


def _tombstones(state: State, tasks: Mapping[str, FileTask]) -> list[Facts]:
    """Table-wide deletes one by one, those that name a file summed up by kind; the most expensive first."""
    records: list[dict[str, Any]] = []
    of_files: dict[str, dict[str, Any]] = {}
    for marker in tombstones_table(state, tasks.values()).to_pylist():
        if marker["file"] is None:
            records.append(marker)
            continue
        group = of_files.setdefault(
            f"{marker['kind']}s" if marker["kind"] == "row_group" else marker["kind"],
            {**marker, "count": 0, "rows": 0, "files_hit": 0, "bytes_hit": 0, "where": None},
        )
        group["count"] += 1
        group["sequence"] = min(group["sequence"] or 0, marker["sequence"] or 0)
        group["rows"] += marker["rows"] or 0
        group["files_hit"] += marker["files_hit"]
        group["bytes_hit"] += marker["bytes_hit"]
    records += of_files.values()
    records.sort(key=lambda marker: (-marker["bytes_hit"], str(marker["where"])))
    return [*records]
