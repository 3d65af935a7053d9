"""History: what was committed, and what a snapshot holds, as Arrow tables."""

from __future__ import annotations

import pyarrow as pa

from inlay.format.entry import DataFile, KeyRange, Keys, Marker, RowGroups, Rows, Vector, Where
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.load import load_version
from inlay.parquet.types import to_arrow_scalar
from inlay.parse import format_predicate
from inlay.plan.reach import marker_predicate
from inlay.plan.state import State

# One GET a version: a screenful is what a person reads, a program asks for more.
HISTORY_LIMIT = 100

_TIME = pa.timestamp("us", tz="UTC")


def history(ctx: Context, current: Snapshot, *, limit: int = HISTORY_LIMIT) -> pa.Table:
    """The newest `limit` versions that can still be opened, newest first."""
    oldest = max(current.oldest_version, current.version - limit + 1)
    versions = range(current.version, oldest - 1, -1)
    snapshots = list(ctx.map(lambda v: load_version(ctx, current, v), versions))
    commits = [(s, s.commit) for s in snapshots]
    return pa.table(
        {
            "version": pa.array([s.version for s, _ in commits], pa.int64()),
            "time": pa.array([c.time_us for _, c in commits], pa.int64()).cast(_TIME),
            "operation": [c.operation for _, c in commits],
            "request": pa.array([c.request for _, c in commits], pa.string()),
            "added_rows": pa.array([c.added_rows for _, c in commits], pa.int64()),
            "deleted_rows": pa.array([c.removed_rows for _, c in commits], pa.int64()),
            "added_files": pa.array([c.added_files for _, c in commits], pa.int64()),
            "removed_files": pa.array([c.removed_files for _, c in commits], pa.int64()),
            "added_markers": pa.array([c.added_markers for _, c in commits], pa.int64()),
            "removed_markers": pa.array([c.removed_markers for _, c in commits], pa.int64()),
            "files": pa.array([s.totals.files for s, _ in commits], pa.int64()),
            "physical_rows": pa.array([s.totals.rows for s, _ in commits], pa.int64()),
            "bytes": pa.array([s.totals.bytes for s, _ in commits], pa.int64()),
            "markers": pa.array([s.totals.markers for s, _ in commits], pa.int64()),
            "commit_id": [c.id for _, c in commits],
        }
    )


def files_table(state: State) -> pa.Table:
    """One row per live data file; statistics as a map from column name to text bounds."""
    entries = list(state.files())
    schema = state.snapshot.schema
    return pa.table(
        {
            "key": pa.array([f.key for f in entries], pa.string()),
            "bytes": pa.array([f.size for f in entries], pa.int64()),
            "rows": pa.array([f.rows for f in entries], pa.int64()),
            "row_groups": pa.array([f.row_groups for f in entries], pa.int64()),
            "footer_bytes": pa.array([f.footer_size for f in entries], pa.int64()),
            "sequence": pa.array([f.sequence for f in entries], pa.int64()),
            "schema_id": pa.array([f.schema_id for f in entries], pa.int64()),
            "adopted": pa.array([f.adopted for f in entries], pa.bool_()),
            "data_change": pa.array([f.data_change for f in entries], pa.bool_()),
            "origin": pa.array([f.origin for f in entries], pa.string()),
            "bounds": pa.array(
                [_bounds(f, schema) for f in entries],
                pa.list_(
                    pa.struct(
                        [
                            ("column", pa.string()),
                            ("lower", pa.string()),
                            ("upper", pa.string()),
                            ("nulls", pa.int64()),
                        ]
                    )
                ),
            ),
        }
    )


def _bounds(entry: DataFile, schema: Schema) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for field_id, stats in sorted(entry.stats.items()):
        field = schema.by_id(field_id)
        path = schema.path_of(field_id)
        if field is None or path is None or not isinstance(field.type, Primitive):
            continue
        kind = field.type
        lower, upper = (
            None if v is None else str(to_arrow_scalar(kind, v).as_py())
            for v in (stats.lower, stats.upper)
        )
        found.append(
            {
                "column": ".".join(path),
                "lower": lower,
                "upper": upper,
                "nulls": stats.null_count,
            }
        )
    return found


def tombstones_table(state: State) -> pa.Table:
    """One row per live delete marker."""
    markers = list(state.markers())
    schema = state.snapshot.schema
    return pa.table(
        {
            "id": pa.array([m.id for m in markers], pa.string()),
            "kind": pa.array([kind_of(m) for m in markers], pa.string()),
            "sequence": pa.array([m.sequence for m in markers], pa.int64()),
            "file": pa.array([m.file for m in markers], pa.string()),
            "rows": pa.array([_row_count(m) for m in markers], pa.int64()),
            "where": pa.array([_text(m, schema) for m in markers], pa.string()),
            "object": pa.array([m.object_key for m in markers], pa.string()),
            "erasure": pa.array([m.erasure for m in markers], pa.string()),
        }
    )


def kind_of(marker: Marker) -> str:
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


def _text(marker: Marker, schema: Schema) -> str | None:
    predicate = marker_predicate(marker, schema)
    if predicate is not None:
        return format_predicate(predicate, schema)
    if isinstance(marker.body, Keys):
        names = [".".join(schema.path_of(i) or (f"field {i}",)) for i in marker.body.field_ids]
        return f"{', '.join(names)} in {marker.body.rows} keys"
    return None
