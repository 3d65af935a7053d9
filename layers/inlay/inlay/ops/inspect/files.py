"""Data files, partitions, and the segments of the metadata tree, as Arrow tables."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from inlay.format.entry import DataFile
from inlay.format.partition import decode_partition, parse_transform, result_type
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.snapshot import PartitionSpec, Segment, Snapshot
from inlay.ops.context import Context
from inlay.ops.inspect.columns import (
    BOUNDS,
    COUNT,
    PARTITION,
    TIME,
    Column,
    bounds_by_name,
    table_of,
    value_text,
)
from inlay.ops.metadata.load import load_segments
from inlay.plan.change import NeedSegments
from inlay.plan.maintain.compaction import deleted_at_least, live_tasks
from inlay.plan.metadata.state import State, open_tree, under
from inlay.plan.scan import FileTask


@dataclass(frozen=True, slots=True)
class _File:
    entry: DataFile
    task: FileTask | None  # None: no row is live
    snapshot: Snapshot

    @property
    def deleted(self) -> int:
        return self.entry.rows if self.task is None else deleted_at_least(self.task)


FILES: tuple[Column[_File], ...] = (
    Column(
        "key",
        pa.string(),
        "key below the table root; the URI of an adopted file",
        lambda f: f.entry.key,
    ),
    Column("bytes", COUNT, "bytes of the object", lambda f: f.entry.size),
    Column("rows", COUNT, "rows stored, deleted ones included", lambda f: f.entry.rows),
    Column(
        "deleted_rows",
        COUNT,
        "rows that are surely deleted, as metadata alone tells: marked positions, or all",
        lambda f: f.deleted,
    ),
    Column(
        "deletes",
        COUNT,
        "delete markers that a reader of the file must apply",
        lambda f: 0 if f.task is None else len(f.task.markers),
    ),
    Column("row_groups", COUNT, "row groups of the file", lambda f: f.entry.row_groups),
    Column(
        "footer_bytes",
        COUNT,
        "bytes of the footer, its trailer included",
        lambda f: f.entry.footer_size,
    ),
    Column(
        "sequence",
        COUNT,
        "version up to which deletes are applied: a table-wide marker hits files of a smaller one",
        lambda f: f.entry.sequence,
    ),
    Column(
        "arrived",
        COUNT,
        "version that brought the newest of its rows",
        lambda f: f.entry.newest_rows,
    ),
    Column("schema_id", COUNT, "schema its columns are read under", lambda f: f.entry.schema_id),
    Column("spec_id", COUNT, "partition spec it was written under", lambda f: f.entry.spec_id),
    Column(
        "partition",
        PARTITION,
        "its partition: a value for each field of the spec, as text",
        lambda f: partition_values(f.entry, f.snapshot),
    ),
    Column(
        "adopted",
        pa.bool_(),
        "whether it stays where it was found and is not ours to delete",
        lambda f: f.entry.adopted,
    ),
    Column(
        "data_change",
        pa.bool_(),
        "whether it brought a change of rows: false for outputs of maintenance",
        lambda f: f.entry.data_change,
    ),
    Column(
        "origin",
        pa.string(),
        "key of the file that it is a 1:1 rewrite of",
        lambda f: f.entry.origin,
    ),
    Column(
        "event",
        pa.string(),
        "ledger id of the event that brought it, base64",
        lambda f: f.entry.event,
    ),
    Column(
        "cluster",
        COUNT,
        "number shared by files that were put in order together",
        lambda f: f.entry.cluster,
    ),
    Column(
        "etag",
        pa.string(),
        "content that reads are pinned to (adopted files)",
        lambda f: f.entry.etag,
    ),
    Column(
        "bounds",
        BOUNDS,
        "for each column of statistics: least and greatest value as text, nulls, whether bounds are values",
        lambda f: bounds_by_name(f.entry.stats, f.snapshot.schema),
    ),
)


def files_table(state: State) -> pa.Table:
    """One row for each live data file, in tier order."""
    entries = list(state.files())
    tasks = live_tasks(state, entries, list(state.markers()))
    return table_of(FILES, (_File(f, tasks.get(f.key), state.snapshot) for f in entries))


# -- partitions -------------------------------------------------------------------------------------


PARTITIONS: tuple[Column[list[_File]], ...] = (
    Column(
        "spec_id",
        COUNT,
        "partition spec; 0 is that of tables without partitions",
        lambda p: p[0].entry.spec_id,
    ),
    Column(
        "partition",
        PARTITION,
        "a value for each field of the spec, as text",
        lambda p: partition_values(p[0].entry, p[0].snapshot),
    ),
    Column("files", COUNT, "data files", lambda p: len(p)),
    Column(
        "rows", COUNT, "rows stored, deleted ones included", lambda p: sum(f.entry.rows for f in p)
    ),
    Column("bytes", COUNT, "bytes of the data files", lambda p: sum(f.entry.size for f in p)),
    Column(
        "deleted_rows",
        COUNT,
        "rows that are surely deleted, as metadata alone tells",
        lambda p: sum(f.deleted for f in p),
    ),
    Column(
        "files_with_deletes",
        COUNT,
        "files whose readers must apply deletes",
        lambda p: sum(f.task is None or bool(f.task.markers) for f in p),
    ),
    Column(
        "oldest_arrival",
        COUNT,
        "least version that brought rows of a file",
        lambda p: min(f.entry.newest_rows for f in p),
    ),
    Column(
        "newest_arrival",
        COUNT,
        "greatest version that brought rows of a file",
        lambda p: max(f.entry.newest_rows for f in p),
    ),
)


def partitions_table(state: State) -> pa.Table:
    """One row for each partition that has a file, by spec and then as first met."""
    tasks = live_tasks(state, state.files(), list(state.markers()))
    groups: dict[tuple[object, ...], list[_File]] = defaultdict(list)
    for entry in state.files():
        key = (entry.spec_id, *entry.partition)
        groups[key].append(_File(entry, tasks.get(entry.key), state.snapshot))
    return table_of(PARTITIONS, sorted(groups.values(), key=lambda files: files[0].entry.spec_id))


def partition_values(entry: DataFile, snapshot: Snapshot) -> list[dict[str, str | None]]:
    """The partition of a file as text, field by field."""
    spec = next((s for s in snapshot.specs if s.id == entry.spec_id), PartitionSpec(entry.spec_id))
    schema = snapshot.schema_by_id(entry.schema_id)
    found = []
    for field, value in zip(spec.fields, entry.partition, strict=False):
        source = schema.by_id(field.source)
        kind = source.type if source is not None else None
        text = (
            _partition_text(field.transform, kind, value) if isinstance(kind, Primitive) else None
        )
        found.append({"name": field.name, "transform": field.transform, "value": text})
    return found


def _partition_text(transform: str, source: Primitive, value: Value | None) -> str | None:
    """As Iceberg writes them: 2026, 2026-03, 2026-03-01, 2026-03-01-10.

    >>> _partition_text("month", Primitive("date"), 674)
    '2026-03'
    """
    rule = parse_transform(transform)
    kind = result_type(rule, source)
    decoded = decode_partition(rule, source, value)
    if decoded is None or kind is None:
        return None
    match rule.name:
        case "year":
            return str(1970 + int(str(decoded)))
        case "month":
            years, month = divmod(int(str(decoded)), 12)
            return f"{1970 + years}-{month + 1:02}"
        case "hour":
            days, hour = divmod(int(str(decoded)), 24)
            return f"{value_text(Primitive('date'), days)}-{hour:02}"
        case _:
            return value_text(kind, decoded)


@dataclass(frozen=True, slots=True)
class _Run:
    """A segment, or the inline entries of a tier (`segment` None: `inline` of them). `parent` is the node
    that refers to it."""

    tier: str
    place: int
    segment: Segment | None
    schema: Schema
    inline: int = 0
    parent: str | None = None

    def get(self, name: str) -> Any:
        return None if self.segment is None else getattr(self.segment, name)

    @property
    def entries(self) -> int:
        return self.inline if self.segment is None else self.segment.count

    @property
    def dead(self) -> int:
        return 0 if self.segment is None else self.segment.count - self.segment.live


SEGMENTS: tuple[Column[_Run], ...] = (
    Column("tier", pa.string(), "files, markers or ledger", lambda r: r.tier),
    Column(
        "level",
        COUNT,
        "0: a leaf, of entries; 1: a node, of references to leaves",
        lambda r: 0 if r.segment is None else r.segment.level,
    ),
    Column("parent", pa.string(), "id of the node that refers to it", lambda r: r.parent),
    Column("place", COUNT, "0 is the oldest run of its tier", lambda r: r.place),
    Column(
        "id",
        pa.string(),
        "segment id; null: the entries that are inline in the snapshot",
        lambda r: r.get("id"),
    ),
    Column(
        "entries",
        COUNT,
        "entries, dead ones included; of a node all that are under it",
        lambda r: r.entries,
    ),
    Column(
        "dead",
        COUNT,
        "entries that are no longer live",
        lambda r: r.dead,
    ),
    Column("object_bytes", COUNT, "bytes of the segment's object", lambda r: r.get("size")),
    Column(
        "sequence",
        COUNT,
        "sequence of entries that have none of their own",
        lambda r: r.get("sequence"),
    ),
    Column(
        "rows",
        COUNT,
        "rows of the data files in it",
        lambda r: r.get("rows") if r.tier == "files" else None,
    ),
    Column(
        "data_bytes",
        COUNT,
        "bytes of the data files in it",
        lambda r: r.get("bytes") if r.tier == "files" else None,
    ),
    Column("first", TIME, "least commit time of its ledger records", lambda r: r.get("first_us")),
    Column("last", TIME, "greatest commit time of its ledger records", lambda r: r.get("last_us")),
    Column(
        "bounds",
        BOUNDS,
        "bounds over all its entries, by which it is skipped",
        lambda r: None if r.segment is None else bounds_by_name(r.segment.stats, r.schema),
    ),
)


def load_tree(ctx: Context, state: State) -> State:
    """`state` with the nodes of all three tiers loaded, and no more leaves than before."""
    nodes = state.contents.nodes
    files, markers, ledger = (
        open_tree(tier.segments, nodes).closed
        for tier in (state.snapshot.files, state.snapshot.markers, state.snapshot.ledger.records)
    )
    need = NeedSegments(files=files, markers=markers, ledger=ledger)
    return load_segments(ctx, state, need) if files or markers or ledger else state


def segments_table(state: State) -> pa.Table:
    """One row for each segment of the three tiers, oldest first, each node before its leaves, and one
    for what is inline. All nodes must be loaded."""
    snapshot, nodes = state.snapshot, state.contents.nodes
    runs: list[_Run] = []
    for tier, segments, inline in (
        ("files", snapshot.files.segments, len(snapshot.files.inline)),
        ("markers", snapshot.markers.segments, len(snapshot.markers.inline)),
        ("ledger", snapshot.ledger.records.segments, len(snapshot.ledger.records.inline)),
    ):
        found: list[tuple[Segment | None, str | None]] = []
        for top in segments:
            leaves = under(top, nodes[top.id]) if top.level else ()
            found += [(top, None), *((leaf, top.id) for leaf in leaves)]
        runs += [
            _Run(tier, place, segment, snapshot.schema, parent=parent)
            for place, (segment, parent) in enumerate(found)
        ]
        runs.append(_Run(tier, len(found), None, snapshot.schema, inline))
    return table_of(SEGMENTS, runs)
