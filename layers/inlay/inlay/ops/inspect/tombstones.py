"""Delete markers, and the ledger of applied events, requests and streams, as Arrow tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
from inlay.ops.inspect.columns import COUNT, TIME, Column, table_of
from inlay.parse import format_predicate
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State, ledger_records, open_tree
from inlay.plan.scan import FileTask, marker_predicate


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
        COUNT,
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
        COUNT,
        "rows it marks by position; null: it must be evaluated",
        lambda m: _row_count(m.marker),
    ),
    Column(
        "where",
        pa.string(),
        "what it deletes, as SQL or in words",
        lambda m: _text(m.marker, m.schema),
    ),
    Column("files_hit", COUNT, "live data files that it may hit", lambda m: len(m.hits)),
    Column(
        "bytes_hit",
        COUNT,
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
        COUNT,
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
    Column("version", COUNT, "version that applied it", lambda a: a.version),
    Column("time", TIME, "commit time of that version", lambda a: a.time_us),
    Column("batch", COUNT, "last batch of a stream that was committed", lambda a: a.batch),
)


def ledger_table(state: State) -> pa.Table:
    """One row for each event and request that is remembered, oldest first, then the streams. All segments
    of the ledger must be loaded."""
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
