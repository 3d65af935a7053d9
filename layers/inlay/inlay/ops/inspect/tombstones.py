"""Delete markers, and the ledger of applied events, requests and streams, as Arrow tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

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
from inlay.format.schema import Schema
from inlay.ops.inspect.columns import COUNT, TIME, Row, columns, table_of
from inlay.parse import format_predicate
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State, ledger_records, open_tree
from inlay.plan.scan import FileTask, marker_predicate

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
    body = marker.body
    rows, object_bytes = None, None
    match body:
        case Rows(positions):
            rows = len(positions)
        case Vector():
            rows, object_bytes = body.rows, body.length
        case Keys():
            object_bytes = body.size
    return {
        "id": marker.id,
        "kind": _KINDS[type(marker.body)],
        "sequence": marker.sequence,
        "file": marker.file,
        "rows": rows,
        "where": _text(marker, schema),
        "files_hit": len(hits),
        "bytes_hit": sum(f.size for f in hits),
        "object": marker.object_key,
        "object_bytes": object_bytes,
        "erasure": marker.erasure,
    }


_KINDS = {
    RowGroups: "row_group",
    KeyRange: "range",
    Where: "predicate",
    Keys: "keys",
    Vector: "rows",
    Rows: "rows",
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
        case _:
            return None


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
