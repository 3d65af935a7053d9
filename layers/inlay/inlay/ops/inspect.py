"""Inspection: what a snapshot is made of, as Arrow tables.

Promise: complete and of the very version it is asked of; every column says in its Arrow field's metadata
(`doc`) what it holds and in which unit, and `docs/INSPECTION.md` lists them all. Values of any type are
shown as text, as SQL would write them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from inlay.format.entry import (
    ColumnStats,
    DataFile,
    KeyRange,
    Keys,
    Marker,
    RowGroups,
    Rows,
    Vector,
    Where,
)
from inlay.format.partition import decode_partition, parse_transform, result_type
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.snapshot import LedgerRecord, PartitionSpec, Segment, Snapshot
from inlay.ops.context import Context
from inlay.ops.load import load_segments
from inlay.parquet.types import to_arrow_scalar
from inlay.parse import format_predicate
from inlay.plan.change import NeedSegments
from inlay.plan.compaction import deleted_at_least, live_tasks
from inlay.plan.reach import marker_predicate
from inlay.plan.scan import FileTask
from inlay.plan.state import State, ledger_records
from inlay.plan.tree import open_tree, under

T = TypeVar("T")

TIME = pa.timestamp("us", tz="UTC")
BOUNDS = pa.list_(
    pa.struct(
        [
            ("column", pa.string()),
            ("lower", pa.string()),
            ("upper", pa.string()),
            ("nulls", pa.int64()),
            ("exact", pa.bool_()),
        ]
    )
)
PARTITION = pa.list_(
    pa.struct([("name", pa.string()), ("transform", pa.string()), ("value", pa.string())])
)
_COUNT = pa.int64()


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of an inspection table: its name, type, what it holds, and how it is found."""

    name: str
    type: pa.DataType
    doc: str
    of: Callable[[T], Any]


def table_of(columns: Sequence[Column[T]], rows: Iterable[T]) -> pa.Table:
    """One row for each of `rows`, in their order."""
    found = list(rows)
    schema = pa.schema([pa.field(c.name, c.type, metadata={"doc": c.doc}) for c in columns])
    arrays = [pa.array([c.of(row) for row in found], c.type) for c in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


# -- data files -----------------------------------------------------------------------------------


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
    Column("bytes", _COUNT, "bytes of the object", lambda f: f.entry.size),
    Column("rows", _COUNT, "rows stored, deleted ones included", lambda f: f.entry.rows),
    Column(
        "deleted_rows",
        _COUNT,
        "rows that are surely deleted, as metadata alone tells: marked positions, or all",
        lambda f: f.deleted,
    ),
    Column(
        "deletes",
        _COUNT,
        "delete markers that a reader of the file must apply",
        lambda f: 0 if f.task is None else len(f.task.markers),
    ),
    Column("row_groups", _COUNT, "row groups of the file", lambda f: f.entry.row_groups),
    Column(
        "footer_bytes",
        _COUNT,
        "bytes of the footer, its trailer included",
        lambda f: f.entry.footer_size,
    ),
    Column(
        "sequence",
        _COUNT,
        "version up to which deletes are applied: a table-wide marker hits files of a smaller one",
        lambda f: f.entry.sequence,
    ),
    Column(
        "arrived",
        _COUNT,
        "version that brought the newest of its rows",
        lambda f: f.entry.newest_rows,
    ),
    Column("schema_id", _COUNT, "schema its columns are read under", lambda f: f.entry.schema_id),
    Column("spec_id", _COUNT, "partition spec it was written under", lambda f: f.entry.spec_id),
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
        _COUNT,
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
        lambda f: _bounds(f.entry.stats, f.snapshot.schema),
    ),
)


def files_table(state: State) -> pa.Table:
    """One row for each live data file, in tier order."""
    entries = list(state.files())
    tasks = live_tasks(state, entries, list(state.markers()))
    return table_of(FILES, (_File(f, tasks.get(f.key), state.snapshot) for f in entries))


# -- partitions -----------------------------------------------------------------------------------


PARTITIONS: tuple[Column[list[_File]], ...] = (
    Column(
        "spec_id",
        _COUNT,
        "partition spec; 0 is that of tables without partitions",
        lambda p: p[0].entry.spec_id,
    ),
    Column(
        "partition",
        PARTITION,
        "a value for each field of the spec, as text",
        lambda p: partition_values(p[0].entry, p[0].snapshot),
    ),
    Column("files", _COUNT, "data files", lambda p: len(p)),
    Column(
        "rows", _COUNT, "rows stored, deleted ones included", lambda p: sum(f.entry.rows for f in p)
    ),
    Column("bytes", _COUNT, "bytes of the data files", lambda p: sum(f.entry.size for f in p)),
    Column(
        "deleted_rows",
        _COUNT,
        "rows that are surely deleted, as metadata alone tells",
        lambda p: sum(f.deleted for f in p),
    ),
    Column(
        "files_with_deletes",
        _COUNT,
        "files whose readers must apply deletes",
        lambda p: sum(f.task is None or bool(f.task.markers) for f in p),
    ),
    Column(
        "oldest_arrival",
        _COUNT,
        "least version that brought rows of a file",
        lambda p: min(f.entry.newest_rows for f in p),
    ),
    Column(
        "newest_arrival",
        _COUNT,
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


# -- delete markers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Marker:
    marker: Marker
    hits: Sequence[DataFile]
    schema: Schema


TOMBSTONES: tuple[Column[_Marker], ...] = (
    Column("id", pa.string(), "marker id", lambda m: m.marker.id),
    Column(
        "kind",
        pa.string(),
        "row_group, range, predicate, keys or rows",
        lambda m: kind_of(m.marker),
    ),
    Column(
        "sequence",
        _COUNT,
        "version that committed it; without a file it hits files of a smaller sequence",
        lambda m: m.marker.sequence,
    ),
    Column(
        "file",
        pa.string(),
        "key of the one data file it is for; null: the whole table",
        lambda m: m.marker.file,
    ),
    Column(
        "rows",
        _COUNT,
        "rows it marks by position; null: it must be evaluated",
        lambda m: _row_count(m.marker),
    ),
    Column(
        "where",
        pa.string(),
        "what it deletes, as SQL or in words",
        lambda m: _text(m.marker, m.schema),
    ),
    Column("files_hit", _COUNT, "live data files that it may hit", lambda m: len(m.hits)),
    Column(
        "bytes_hit",
        _COUNT,
        "bytes of those files: what turning it into absent rows looks at",
        lambda m: sum(f.size for f in m.hits),
    ),
    Column(
        "object",
        pa.string(),
        "key of the object that holds its rows or keys, if any",
        lambda m: m.marker.object_key,
    ),
    Column(
        "object_bytes",
        _COUNT,
        "bytes of it that are this marker's",
        lambda m: _object_bytes(m.marker),
    ),
    Column("erasure", pa.string(), "id of the erasure it belongs to", lambda m: m.marker.erasure),
)


def tombstones_table(state: State, tasks: Iterable[FileTask] | None = None) -> pa.Table:
    """One row for each live delete marker, in tier order. `tasks` are those of all files, if known."""
    hits: dict[str, list[DataFile]] = defaultdict(list)
    markers = list(state.markers())
    if tasks is None:
        tasks = live_tasks(state, state.files(), markers).values()
    for task in tasks:
        for marker in task.markers:
            hits[marker.id].append(task.file)
    schema = state.snapshot.schema
    return table_of(TOMBSTONES, (_Marker(m, hits[m.id], schema) for m in markers))


def kind_of(marker: Marker) -> str:
    """The kind of a delete, in one word."""
    match marker.body:
        case RowGroups():
            return "row_group"
        case KeyRange():
            return "range"
        case Where():
            return "predicate"
        case Keys():
            return "keys"
        case Vector() | Rows():
            return "rows"


def _row_count(marker: Marker) -> int | None:
    match marker.body:
        case Vector(rows=rows):
            return rows
        case Rows(positions):
            return len(positions)
        case _:
            return None


def _object_bytes(marker: Marker) -> int | None:
    match marker.body:
        case Vector(length=length):
            return length
        case Keys(size=size):
            return size
        case _:
            return None


def _text(marker: Marker, schema: Schema) -> str | None:
    predicate = marker_predicate(marker, schema)
    if predicate is not None:
        return format_predicate(predicate, schema)
    match marker.body:
        case Keys(field_ids=ids, rows=rows):
            names = [".".join(schema.path_of(i) or (f"field {i}",)) for i in ids]
            return f"{', '.join(names)} in {rows} keys"
        case RowGroups(ordinals):
            return f"row groups {', '.join(map(str, ordinals))}"
        case _:
            return None


# -- segments -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """A segment, or what of a tier is inline (`segment` None: `inline` entries). `parent` is the node
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
        _COUNT,
        "0: a leaf, of entries; 1: a node, of references to leaves",
        lambda r: 0 if r.segment is None else r.segment.level,
    ),
    Column("parent", pa.string(), "id of the node that refers to it", lambda r: r.parent),
    Column("place", _COUNT, "0 is the oldest run of its tier", lambda r: r.place),
    Column(
        "id",
        pa.string(),
        "segment id; null: the entries that are inline in the snapshot",
        lambda r: r.get("id"),
    ),
    Column(
        "entries",
        _COUNT,
        "entries, dead ones included; of a node all that are under it",
        lambda r: r.entries,
    ),
    Column(
        "dead",
        _COUNT,
        "entries that are no longer live",
        lambda r: r.dead,
    ),
    Column("object_bytes", _COUNT, "bytes of the segment's object", lambda r: r.get("size")),
    Column(
        "sequence",
        _COUNT,
        "sequence of entries that have none of their own",
        lambda r: r.get("sequence"),
    ),
    Column(
        "rows",
        _COUNT,
        "rows of the data files in it",
        lambda r: r.get("rows") if r.tier == "files" else None,
    ),
    Column(
        "data_bytes",
        _COUNT,
        "bytes of the data files in it",
        lambda r: r.get("bytes") if r.tier == "files" else None,
    ),
    Column("first", TIME, "least commit time of its ledger records", lambda r: r.get("first_us")),
    Column("last", TIME, "greatest commit time of its ledger records", lambda r: r.get("last_us")),
    Column(
        "bounds",
        BOUNDS,
        "bounds over all its entries, by which it is skipped",
        lambda r: None if r.segment is None else _bounds(r.segment.stats, r.schema),
    ),
)


def load_tree(ctx: Context, state: State) -> State:
    """`state` with the nodes of all three tiers at hand, and no more leaves than before."""
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


# -- the ledger -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Applied:
    kind: str
    id: str
    body: str | None = None
    version: int | None = None
    time_us: int | None = None
    batch: int | None = None


LEDGER: tuple[Column[_Applied], ...] = (
    Column(
        "kind",
        pa.string(),
        "event, request, or stream (the last batch of a streaming query)",
        lambda a: a.kind,
    ),
    Column(
        "id",
        pa.string(),
        "digest of its identity, hexadecimal; of a stream its query id",
        lambda a: a.id,
    ),
    Column("body", pa.string(), "digest of a request's content, hexadecimal", lambda a: a.body),
    Column("version", _COUNT, "version that applied it", lambda a: a.version),
    Column("time", TIME, "commit time of that version", lambda a: a.time_us),
    Column("batch", _COUNT, "last batch of a stream that was committed", lambda a: a.batch),
)


def ledger_table(state: State) -> pa.Table:
    """One row for each event and request that is remembered, oldest first, then the streams. All
    segments of the ledger must be loaded."""
    ledger = state.snapshot.ledger
    records: list[LedgerRecord] = []
    for leaf in open_tree(ledger.records.segments, state.contents.nodes).leaves:
        records += ledger_records(leaf, state.contents.ledger[leaf.id])
    records += ledger.records.inline
    rows = [
        _Applied(
            "event" if r.body is None else "request",
            r.id.hex(),
            None if r.body is None else r.body.hex(),
            r.version,
            r.time_us,
        )
        for r in records
    ]
    rows += [_Applied("stream", query, batch=batch) for query, batch in ledger.streams.items()]
    return table_of(LEDGER, rows)


# -- values as text -------------------------------------------------------------------------------


def _bounds(stats: Any, schema: Schema) -> list[dict[str, object]]:
    """Statistics by column name, in order of field id; columns that were dropped are left out."""
    found: list[dict[str, object]] = []
    for field_id, column in sorted(stats.items()):
        field = schema.by_id(field_id)
        path = schema.path_of(field_id)
        if field is None or path is None or not isinstance(field.type, Primitive):
            continue
        lower, upper = bounds_text(column, field.type)
        found.append(
            {
                "column": ".".join(path),
                "lower": lower,
                "upper": upper,
                "nulls": column.null_count,
                "exact": column.exact,
            }
        )
    return found


def bounds_text(column: ColumnStats, kind: Primitive) -> tuple[str | None, str | None]:
    """Both bounds as text; None where there is none."""
    kind = column.kind or kind
    lower, upper = (
        None if value is None else value_text(kind, value) for value in (column.lower, column.upper)
    )
    return lower, upper


def value_text(kind: Primitive, value: Value) -> str:
    """A value in physical form as text; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    scalar = to_arrow_scalar(kind, value)
    try:
        return str(scalar.as_py())
    except (ValueError, OverflowError):
        return str(scalar.cast(pa.string()).as_py())


def count_by_kind(markers: Iterable[Marker]) -> Counter[str]:
    """How many markers there are of each kind."""
    return Counter(kind_of(marker) for marker in markers)
