"""Update and upsert: a delete and an insert in one commit.

Promise: readers see the old rows or the new ones, never both and never neither. The new rows bear the
commit's own sequence, so the commit's own marker misses them (design section 4).

`update` derives rows from rows it read, so on every rebase what it read is validated and, if it has
changed, the update is planned again. `upsert` derives nothing: the last writer of a key wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import ConcurrentChange, InvalidRequest, SchemaMismatch
from inlay.format.assignment import fields_of
from inlay.format.predicate import Predicate
from inlay.format.properties import Properties
from inlay.format.schema import Schema
from inlay.ops.commit.base import check_same_schema, current_base, fresh_base
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.commit.idempotency import already_applied
from inlay.ops.commit.retry import Planned, commit_planned
from inlay.ops.context import Context
from inlay.ops.data.data_files import fitted, reader_of, write_batches
from inlay.ops.data.vectors import vector_markers
from inlay.ops.maintain.rewrite import rewrite_file
from inlay.ops.metadata.load import Loaded, load_matching
from inlay.ops.write.delete import key_markers, marker_of
from inlay.parquet.arrow.assignments import assign
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.read.reader import Wanted, read_tasks
from inlay.parse import Assignments
from inlay.plan.change import Change, Reads, Request
from inlay.plan.pruning.evidence import Evidence
from inlay.plan.scan.marker_scope import marker_may_hit
from inlay.plan.scan.scan import plan_scan


def update(
    ctx: Context,
    assignments: Assignments,
    predicate: Predicate,
    *,
    mode: str | None = None,
    base: Loaded | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Set columns of the rows for which `predicate` is TRUE."""
    loaded, before = already_applied(ctx, current_base(ctx, base), request)
    if before is not None:
        return before
    chosen = mode or Properties(loaded.snapshot.properties).text("update.mode")
    bound_to = loaded.snapshot.schema if base is None else base.snapshot.schema

    def plan(loaded: Loaded) -> Planned | None:
        _check_bound(ctx, assignments, bound_to, loaded)
        loaded = replace(loaded, state=load_matching(ctx, loaded.state, predicate))
        change = _plan_update(ctx, loaded, assignments, predicate, chosen, request)
        return None if change is None else Planned(change, loaded)

    return commit_planned(ctx, loaded, plan)


def _check_bound(ctx: Context, assignments: Assignments, bound_to: Schema, loaded: Loaded) -> None:
    """Assigned values have the types that their columns had when they were parsed."""
    schema = loaded.snapshot.schema
    for field_id in fields_of(assignments):
        then, now = bound_to.by_id(field_id), schema.by_id(field_id)
        if then is None or now is None or (then.type, then.nullable) != (now.type, now.nullable):
            raise ConcurrentChange(
                "a column of this update was dropped or changed since the table was read",
                next_step="Call refresh(), look at the schema, and update again",
                table=ctx.uri,
                version=loaded.snapshot.version,
            )


def _plan_update(
    ctx: Context,
    loaded: Loaded,
    assignments: Assignments,
    predicate: Predicate,
    mode: str,
    request: Request | None,
) -> Change | None:
    from pyroaring import BitMap64

    snapshot = loaded.snapshot
    schema = snapshot.schema
    evidence = Evidence.of_snapshot(snapshot)
    plan = plan_scan(
        loaded.state.files_at_hand(),
        loaded.state.markers(),
        predicate,
        evidence=evidence,
    )
    wanted = Wanted(
        schema=schema, columns=tuple(f.id for f in schema.fields), position=True, file=True
    )
    found: dict[str, BitMap64] = {}
    width = len(schema.fields)

    def changed() -> Iterator[pa.RecordBatch]:
        for batch in read_tasks(ctx.objects, plan.tasks, wanted, ctx.executor):
            if batch.num_rows == 0:
                continue
            # By place, not by name: a table may have columns that are called `_pos` or `_file`.
            positions, file = batch.columns[width:]
            found.setdefault(file[0].as_py(), BitMap64()).update(positions.to_pylist())
            yield assign(assignments, batch.select(list(range(width))), schema)

    added = tuple(write_batches(ctx, snapshot, changed(), time_us=loaded.date_us))
    if not found and request is None:
        return None
    change = Change(
        operation="update",
        request=request,
        add=added,
        uploaded_us=loaded.date_us,
        reads=Reads(predicate, snapshot.version, frozenset(found)),
        deleted_rows=sum(len(p) for p in found.values()),
        whole=True,
    )
    if not found:
        return change
    if mode == "tombstone":
        return replace(change, add_markers=(marker_of(ctx, loaded, predicate),))
    live = {f.key: f for f in loaded.state.files_at_hand()}
    if mode == "vector":
        emptied = tuple(k for k, p in found.items() if len(p) == live[k].rows)
        marked = {k: p for k, p in found.items() if k not in emptied}
        return replace(
            change, remove=emptied, add_markers=tuple(vector_markers(ctx, loaded, marked))
        )
    markers = list(loaded.state.markers())
    units = tuple(
        rewrite_file(
            ctx,
            loaded,
            live[key],
            [m for m in markers if marker_may_hit(m, live[key], evidence)],
            extra_deleted=positions,
            strategy="surgery" if mode == "surgery" else "rewrite",
        )
        for key, positions in found.items()
    )
    return replace(change, units=units)


def upsert(
    ctx: Context,
    data: Any,
    *,
    on: tuple[str, ...] = (),
    base: Loaded | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Insert rows, replacing those with the same values of `on` (default: the primary key). Of several
    rows of one key in `data` the last wins."""
    loaded, before = already_applied(ctx, fresh_base(ctx, base), request)
    if before is not None:
        return before
    snapshot = loaded.snapshot
    names = on or tuple(f.name for f in snapshot.schema.fields if f.id in snapshot.primary_key)
    if not names:
        raise InvalidRequest("upsert needs `on=`: the table has no primary key", table=ctx.uri)
    missing = [n for n in names if n not in snapshot.schema.names]
    if missing:
        raise SchemaMismatch(
            f"upsert is asked to match on {missing}, which the table has not",
            next_step=f"The columns are: {', '.join(snapshot.schema.names)}",
            table=ctx.uri,
        )
    reader = reader_of(data)
    batches = list(fitted(reader, snapshot.schema))
    absent = [n for n in names if n not in reader.schema.names]
    if absent:
        raise SchemaMismatch(
            f"the data lacks {absent}, which upsert is to match on",
            next_step="Add the columns to the data, or append it",
            table=ctx.uri,
        )
    rows = pa.Table.from_batches(batches, schema=schema_to_arrow(snapshot.schema))
    rows = _last_of_each_key(rows, names)
    if rows.num_rows == 0 and request is None:
        return Skipped(loaded)

    bound = loaded

    def plan(loaded: Loaded) -> Change:
        check_same_schema(ctx, bound, loaded)
        markers = key_markers(ctx, loaded, rows.select(list(names))) if rows.num_rows else ()
        added = write_batches(ctx, loaded.snapshot, rows.to_batches(), time_us=loaded.date_us)
        return Change(
            operation="upsert",
            request=request,
            add=tuple(added),
            add_markers=tuple(markers),
            uploaded_us=loaded.date_us,
            deleted_rows=None,
        )

    return commit_planned(ctx, loaded, plan)


def _last_of_each_key(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    """A row with a NULL key equals no other row: it is inserted, each one."""
    nested = [n for n in names if pa.types.is_nested(rows.schema.field(n).type)]
    if nested:
        raise InvalidRequest(f"upsert cannot match on nested columns: {nested}")
    order = pa.array(range(rows.num_rows), pa.int64())
    null_key = pc.is_null(rows.column(names[0]))
    for name in names[1:]:
        null_key = pc.or_(null_key, pc.is_null(rows.column(name)))
    # Names of our own: the table may have columns of any name.
    keys = [f"key{at}" for at in range(len(names))]
    columns = [_one_bit_pattern(rows.column(name)) for name in names]
    keyed = pa.table([*columns, order], names=[*keys, "row"]).filter(pc.invert(null_key))
    last = keyed.group_by(keys, use_threads=False).aggregate([("row", "max")])
    unkeyed = pa.chunked_array([order]).filter(null_key)
    kept = pa.concat_arrays(
        [*last.column("row_max").chunks, *unkeyed.chunks, pa.array([], pa.int64())]
    )
    return rows.take(kept.take(pc.sort_indices(kept)))


def _one_bit_pattern(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow groups floats by their bits, but -0.0 equals 0.0 and every NaN every other."""
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = (pa.scalar(each, values.type) for each in (0.0, float("nan")))
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))
