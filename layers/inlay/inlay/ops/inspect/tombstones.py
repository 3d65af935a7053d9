"""Delete markers, as an Arrow table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from inlay.format.entry import DataFile, KeyRange, Keys, Marker, RowGroups, Rows, Vector, Where
from inlay.format.schema import Schema
from inlay.ops.inspect.columns import COUNT, Column, table_of
from inlay.parse import format_predicate
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.metadata.state import State
from inlay.plan.scan.marker_scope import marker_predicate
from inlay.plan.scan.scan import FileTask


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
