"""The contents of a snapshot, as Arrow tables: data files, partitions, segments of the metadata tree,
delete markers, and the ledger of applied events, requests and streams.

Promise: complete, and of the requested version; every column states its content and unit in the metadata of
its Arrow field (`doc`), and `docs/INSPECTION.md` lists them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import assert_never

import pyarrow as pa

from inlay.format.entry import (
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
from inlay.format.schema import ListOf, MapOf, Primitive, Schema, Struct, Type, Value
from inlay.format.snapshot import PartitionSpec, Segment, Snapshot
from inlay.ops.context import Context
from inlay.ops.inspect.columns import (
    BOUNDS,
    COUNT,
    PARTITION,
    TIME,
    Row,
    bounds_by_name,
    columns,
    table_of,
    value_text,
)
from inlay.ops.metadata.load import load_segments, needed
from inlay.parse import format_predicate
from inlay.plan.maintain.compaction import deleted_at_least, live_tasks
from inlay.plan.metadata.state import State, ledger_records, open_tree, under
from inlay.plan.refs import ref_records
from inlay.plan.scan import FileTask, marker_predicate
from inlay.plan.schema_evolution import differences

FILES = columns(
    ("key", pa.string(), "key below the table root; the URI of an adopted file"),
    ("bytes", COUNT, "bytes of the object"),
    ("rows", COUNT, "rows stored, deleted ones included"),
    (
        "deleted_rows",
        COUNT,
        "rows that are surely deleted, as metadata alone shows: marked positions, or all",
    ),
    ("deletes", COUNT, "delete markers that a reader of the file must apply"),
    ("row_groups", COUNT, "row groups of the file"),
    ("footer_bytes", COUNT, "bytes of the footer, its trailer included"),
    (
        "sequence",
        COUNT,
        "version up to which deletes are applied: a table-wide marker hits files of a smaller one",
    ),
    ("arrived", COUNT, "version that brought the newest of its rows"),
    ("schema_id", COUNT, "schema its columns are read under"),
    ("spec_id", COUNT, "partition spec it was written under"),
    ("partition", PARTITION, "its partition: a value for each field of the spec, as text"),
    ("adopted", pa.bool_(), "whether it stays where it was found and is not ours to delete"),
    (
        "data_change",
        pa.bool_(),
        "whether it brought a change of rows: false for outputs of maintenance",
    ),
    ("origin", pa.string(), "key of the file that it is a 1:1 rewrite of"),
    ("event", pa.string(), "ledger id of the event that brought it, base64"),
    ("cluster", COUNT, "number shared by files that were put in order together"),
    ("etag", pa.string(), "content that reads are pinned to (adopted files)"),
    (
        "bounds",
        BOUNDS,
        "for each column of statistics: least and greatest value as text, nulls, whether bounds are values",
    ),
)


COLUMNS = columns(
    ("column", pa.string(), "name; of a field within another, the path"),
    ("type", pa.string(), "its type; of a nested one only struct, list or map"),
    ("required", pa.bool_(), "whether NULL is refused"),
    ("default", pa.string(), "what rows have that were written before it was added"),
    ("id", COUNT, "its identity, which a rename keeps"),
    ("comment", pa.string(), "what it means"),
)
SCHEMAS = columns(
    ("version", COUNT, "version that made the change"),
    ("schema", COUNT, "id of the schema since"),
    ("change", pa.string(), "one step"),
)


def columns_table(schema: Schema) -> pa.Table:
    """One row for each column and each field within one, in their order."""
    return table_of(
        COLUMNS,
        (
            {
                "column": ".".join(path),
                "type": _kind(field.type),
                "required": not field.nullable,
                "default": None if field.default is None else str(field.default),
                "id": field.id,
                "comment": field.doc or None,
            }
            for path, field in schema.walk()
        ),
    )


def _kind(kind: Type) -> str:
    match kind:
        case Struct():
            return "struct"
        case ListOf():
            return "list"
        case MapOf():
            return "map"
        case Primitive():
            return str(kind)


def schemas_table(schemas: Sequence[Schema]) -> pa.Table:
    """One row for each step from the first schema to the last."""
    first = schemas[0]
    steps = [(first, f"create with {', '.join(first.names)}")]
    for before, after in pairwise(schemas):
        steps += [(after, step) for step in differences(before, after) or ("nothing",)]
    made = ({"version": s.version, "schema": s.id, "change": step} for s, step in steps)
    return table_of(SCHEMAS, made)


def files_table(state: State) -> pa.Table:
    """One row for each live data file, in tier order."""
    entries = list(state.files())
    tasks = live_tasks(state, entries, list(state.markers()))
    return table_of(FILES, (_file_row(f, tasks, state.snapshot) for f in entries))


def _file_row(entry: DataFile, tasks: Mapping[str, FileTask], snapshot: Snapshot) -> Row:
    return {
        "key": entry.key,
        "bytes": entry.size,
        "rows": entry.rows,
        "deleted_rows": deleted_rows(entry, tasks),
        "deletes": len(tasks[entry.key].markers) if entry.key in tasks else 0,
        "row_groups": entry.row_groups,
        "footer_bytes": entry.footer_size,
        "sequence": entry.sequence,
        "arrived": entry.newest_rows,
        "schema_id": entry.schema_id,
        "spec_id": entry.spec_id,
        "partition": partition_values(entry, snapshot),
        "adopted": entry.adopted,
        "data_change": entry.data_change,
        "origin": entry.origin,
        "event": entry.event,
        "cluster": entry.cluster,
        "etag": entry.etag,
        "bounds": bounds_by_name(entry.stats, snapshot.schema),
    }


def deleted_rows(entry: DataFile, tasks: Mapping[str, FileTask]) -> int:
    """Rows that are surely deleted. `tasks` has the files with a live row, by key."""
    return deleted_at_least(tasks[entry.key]) if entry.key in tasks else entry.rows


def has_deletes(entry: DataFile, tasks: Mapping[str, FileTask]) -> bool:
    """Whether readers of the file must apply deletes."""
    return entry.key not in tasks or bool(tasks[entry.key].markers)


# -- partitions -------------------------------------------------------------------------------------


PARTITIONS = columns(
    ("spec_id", COUNT, "partition spec; 0 is that of tables without partitions"),
    ("partition", PARTITION, "a value for each field of the spec, as text"),
    ("files", COUNT, "data files"),
    ("rows", COUNT, "rows stored, deleted ones included"),
    ("bytes", COUNT, "bytes of the data files"),
    ("deleted_rows", COUNT, "rows that are surely deleted, as metadata alone shows"),
    ("files_with_deletes", COUNT, "files whose readers must apply deletes"),
    ("oldest_arrival", COUNT, "least version that brought rows of a file"),
    ("newest_arrival", COUNT, "greatest version that brought rows of a file"),
)


def partitions_table(state: State) -> pa.Table:
    """One row for each partition that has a file, by spec and then as first met."""
    tasks = live_tasks(state, state.files(), list(state.markers()))
    groups: dict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for entry in state.files():
        groups[(entry.spec_id, *entry.partition)].append(entry)

    def row(files: Sequence[DataFile]) -> Row:
        return {
            "spec_id": files[0].spec_id,
            "partition": partition_values(files[0], state.snapshot),
            "files": len(files),
            "rows": sum(f.rows for f in files),
            "bytes": sum(f.size for f in files),
            "deleted_rows": sum(deleted_rows(f, tasks) for f in files),
            "files_with_deletes": sum(has_deletes(f, tasks) for f in files),
            "oldest_arrival": min(f.newest_rows for f in files),
            "newest_arrival": max(f.newest_rows for f in files),
        }

    return table_of(PARTITIONS, map(row, sorted(groups.values(), key=lambda g: g[0].spec_id)))


def partition_values(entry: DataFile, snapshot: Snapshot) -> list[dict[str, str | None]]:
    """The partition of a file as text, field by field."""
    spec = next((s for s in snapshot.specs if s.id == entry.spec_id), PartitionSpec(entry.spec_id))
    schema = snapshot.schema_by_id(entry.schema_id)
    values = []
    for field, value in zip(spec.fields, entry.partition, strict=False):
        source = schema.by_id(field.source)
        kind = source.type if source is not None else None
        text = (
            _partition_text(field.transform, kind, value) if isinstance(kind, Primitive) else None
        )
        values.append({"name": field.name, "transform": field.transform, "value": text})
    return values


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
        case "identity" | "truncate" | "bucket" | "day":
            return value_text(kind, decoded)


SEGMENTS = columns(
    ("tier", pa.string(), "files, markers or ledger"),
    ("level", COUNT, "0: a leaf, of entries; 1: a node, of references to leaves"),
    ("parent", pa.string(), "id of the node that refers to it"),
    ("place", COUNT, "0 is the oldest run of its tier"),
    ("id", pa.string(), "segment id; null: the entries that are inline in the snapshot"),
    ("entries", COUNT, "entries, dead ones included; of a node all that are under it"),
    ("dead", COUNT, "entries that are no longer live"),
    ("object_bytes", COUNT, "bytes of the segment's object"),
    ("sequence", COUNT, "sequence of entries that have none of their own"),
    ("rows", COUNT, "rows of the data files in it"),
    ("data_bytes", COUNT, "bytes of the data files in it"),
    ("first", TIME, "least commit time of its ledger records"),
    ("last", TIME, "greatest commit time of its ledger records"),
    ("bounds", BOUNDS, "bounds over all its entries, by which it is skipped"),
)


def load_tree(ctx: Context, state: State) -> State:
    """`state` with the nodes of all three tiers loaded, and no more leaves than before."""
    nodes = state.contents.nodes
    tiers = (state.snapshot.files, state.snapshot.markers, state.snapshot.ledger.records)
    need = needed(*(open_tree(tier.segments, nodes).closed for tier in tiers))
    return state if need is None else load_segments(ctx, state, need)


REFS = columns(
    ("name", pa.string(), "of the tag or branch; main"),
    ("kind", pa.string(), "main, tag or branch"),
    ("version", COUNT, "whose content it shows, or that its content began with"),
    ("hold", pa.bool_(), "whether a tag is under a legal hold"),
    ("base", COUNT, "version of main that a branch has in common with it"),
    ("since", COUNT, "version of the table that last changed it"),
    ("written", pa.bool_(), "whether a branch was written to"),
)


def refs_table(table: Snapshot) -> pa.Table:
    """What `ref_records` lists."""
    return table_of(REFS, ref_records(table))


def segments_table(state: State) -> pa.Table:
    """One row for each segment of the three tiers, oldest first, each node before its leaves, and one
    for what is inline. All nodes must be loaded."""
    snapshot, nodes = state.snapshot, state.contents.nodes
    rows: list[Row] = []
    for name, segments, inline in (
        ("files", snapshot.files.segments, len(snapshot.files.inline)),
        ("markers", snapshot.markers.segments, len(snapshot.markers.inline)),
        ("ledger", snapshot.ledger.records.segments, len(snapshot.ledger.records.inline)),
    ):
        listed: list[tuple[Segment, str | None]] = []
        for top in segments:
            leaves = under(top, nodes[top.id]) if top.level else ()
            listed += [(top, None), *((leaf, top.id) for leaf in leaves)]
        for place, (segment, parent) in enumerate(listed):
            row = _segment_row(segment, snapshot.schema, of_files=name == "files")
            rows.append({**row, "tier": name, "place": place, "parent": parent})
        last = {"tier": name, "place": len(listed), "level": 0, "entries": inline, "dead": 0}
        rows.append({**dict.fromkeys(SEGMENTS.names), **last})
    return table_of(SEGMENTS, rows)


def _segment_row(segment: Segment, schema: Schema, *, of_files: bool) -> Row:
    return {
        "level": segment.level,
        "id": segment.id,
        "entries": segment.count,
        "dead": segment.count - segment.live,
        "object_bytes": segment.size,
        "sequence": segment.sequence,
        "rows": segment.rows if of_files else None,
        "data_bytes": segment.bytes if of_files else None,
        "first": segment.first_us,
        "last": segment.last_us,
        "bounds": bounds_by_name(segment.stats, schema),
    }


# -- deletes --------------------------------------------------------------------------------------

TOMBSTONES = columns(
    ("id", pa.string(), "marker id"),
    ("kind", pa.string(), "row_group, range, predicate, keys or rows"),
    (
        "sequence",
        COUNT,
        "version that committed it; without a file it hits files of a smaller sequence",
    ),
    ("file", pa.string(), "key of the one data file it is for; null: the whole table"),
    ("rows", COUNT, "rows it marks by position; null: it must be evaluated"),
    ("where", pa.string(), "what it deletes, as SQL or in words"),
    ("files_hit", COUNT, "live data files that it may hit"),
    ("bytes_hit", COUNT, "bytes of those files: what turning it into absent rows looks at"),
    ("object", pa.string(), "key of the object that holds its rows or keys, if any"),
    ("object_bytes", COUNT, "bytes of it that are this marker's"),
    ("erasure", pa.string(), "id of the erasure it belongs to"),
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
    return table_of(TOMBSTONES, (_marker_row(m, hits[m.id], schema) for m in markers))


def _marker_row(marker: Marker, hits: Sequence[DataFile], schema: Schema) -> Row:
    rows = None
    match marker.body:
        case Rows(positions):
            kind, rows = "rows", len(positions)
        case Vector() as vector:
            kind, rows = "rows", vector.rows
        case Keys():
            kind = "keys"
        case KeyRange():
            kind = "range"
        case Where():
            kind = "predicate"
        case RowGroups():
            kind = "row_group"
        case _:
            assert_never(marker.body)
    return {
        "id": marker.id,
        "kind": kind,
        "sequence": marker.sequence,
        "file": marker.file,
        "rows": rows,
        "where": _text(marker, schema),
        "files_hit": len(hits),
        "bytes_hit": sum(f.size for f in hits),
        "object": marker.object_key,
        "object_bytes": marker.object_bytes,
        "erasure": marker.erasure,
    }


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
        case (
            Vector() | Rows() | KeyRange() | Where()
        ):  # of a column that is gone, a range has no text
            return None


# -- the ledger -----------------------------------------------------------------------------------

LEDGER = columns(
    ("kind", pa.string(), "event, request, or stream (the last batch of a streaming query)"),
    ("id", pa.string(), "digest of its identity, hexadecimal; of a stream its query id"),
    ("body", pa.string(), "digest of a request's content, hexadecimal"),
    ("version", COUNT, "version that applied it"),
    ("time", TIME, "commit time of that version"),
    ("batch", COUNT, "last batch of a stream that was committed"),
)


def ledger_table(state: State) -> pa.Table:
    """One row for each event and request that is remembered, oldest first, then the streams. All segments
    of the ledger must be loaded."""
    ledger = state.snapshot.ledger
    records: list[LedgerRecord] = []
    for leaf in open_tree(ledger.records.segments, state.contents.nodes).leaves:
        records += ledger_records(leaf, state.contents.ledger[leaf.id])
    records += ledger.records.inline
    empty = dict.fromkeys(LEDGER.names)
    rows: list[Row] = [
        {
            **empty,
            "kind": "event" if r.body is None else "request",
            "id": r.id.hex(),
            "body": None if r.body is None else r.body.hex(),
            "version": r.version,
            "time": r.time_us,
        }
        for r in records
    ]
    for query, batch in ledger.streams.items():
        rows.append({**empty, "kind": "stream", "id": query, "batch": batch})
    return table_of(LEDGER, rows)
