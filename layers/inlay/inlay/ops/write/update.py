"""Update: a delete and an insert in one commit.

Promise: readers see the old rows or the new ones, never both and never neither. The new rows have the
commit's own sequence, so the commit's own marker does not hit them (docs/FORMAT.md, section 8). They
derive from rows that were read, so on every rebase what was read is validated and, if it has changed, the
update is planned again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from inlay.errors import ConcurrentChange
from inlay.format.expression import Condition, fields_of
from inlay.format.predicate import Predicate
from inlay.format.properties import DeleteMode
from inlay.format.schema import Schema
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    Skipped,
    already_applied,
    commit_planned,
    current_base,
)
from inlay.ops.commit.group import archive_beside
from inlay.ops.context import Context
from inlay.ops.data import write_batches
from inlay.ops.metadata.load import LoadedTable, load_matching
from inlay.ops.read.conditions import filter_of
from inlay.ops.write.delete import marker_of, mode_of
from inlay.parquet.arrow.assignments import assigned
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.read.selection import Projection
from inlay.parse import Assignments
from inlay.plan.change import AddFiles, AddMarkers, Change, Reads, ReplaceFiles, Request, RowUpdate
from inlay.plan.scan import loaded_tasks
from inlay.record import replace

if TYPE_CHECKING:
    from pyroaring import BitMap64


def update(
    ctx: Context,
    assignments: Assignments,
    condition: Condition | Predicate,
    *,
    mode: str | None = None,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Set columns of the rows for which the condition is TRUE. A condition with calculations cannot be
    stored as a marker: mode `tombstone` then works as `vector`."""
    condition = condition if isinstance(condition, Condition) else Condition(condition)
    predicate = condition.predicate
    loaded, before = already_applied(ctx, current_base(ctx, base), request)
    if before is not None:
        return before
    chosen = mode_of(loaded, condition, mode, "update.mode")
    bound_to = loaded.snapshot.schema if base is None else base.snapshot.schema

    def plan(loaded: LoadedTable) -> Planned | None:
        _check_bound(ctx, assignments, bound_to, loaded)
        state = load_matching(ctx, loaded.state, predicate, by_rows=chosen != "tombstone")
        loaded = replace(loaded, state=state)
        return _plan_update(ctx, loaded, assignments, condition, chosen, request)

    return commit_planned(ctx, loaded, plan)


def _check_bound(
    ctx: Context, assignments: Assignments, bound_to: Schema, loaded: LoadedTable
) -> None:
    """Assigned values have the types that their columns had when they were parsed."""
    schema = loaded.snapshot.schema
    for field_id in fields_of(assignments):
        then, now = bound_to.by_id(field_id), schema.by_id(field_id)
        if then is None or now is None or (then.type, then.nullable) != (now.type, now.nullable):
            raise ConcurrentChange(
                "a column of this update was dropped or changed since the table was read",
                next_step="Call refresh(), check the schema, and update again",
                table=ctx.uri,
                version=loaded.snapshot.version,
            )


def _plan_update(
    ctx: Context,
    loaded: LoadedTable,
    assignments: Assignments,
    condition: Condition,
    mode: DeleteMode,
    request: Request | None,
) -> Planned | None:
    from pyroaring import BitMap64

    predicate = condition.predicate
    snapshot = loaded.snapshot
    schema = snapshot.schema
    # The marker of a tombstone hits what a scan shows; positions are decided by the rows.
    tasks = loaded_tasks(loaded.state, predicate, by_rows=mode != "tombstone")
    projection = Projection(
        schema=schema,
        columns=tuple(f.id for f in schema.fields),
        where=filter_of(condition),
        position=True,
        file=True,
    )
    matches: dict[str, BitMap64] = {}
    width = len(schema.fields)

    def new_rows() -> Iterator[pa.RecordBatch]:
        for batch in ctx.reader.rows(tasks, projection):
            if batch.num_rows == 0:
                continue
            # By position, not by name: a table may have columns named `_pos` or `_file`.
            positions, file = batch.columns[width:]
            matches.setdefault(file[0].as_py(), BitMap64()).update(positions.to_pylist())
            yield from assigned(assignments, batch.select(list(range(width))), schema)

    checked = Declared.of(snapshot).checked(new_rows())
    upload_bytes = sum(task.file.size for task in tasks)  # at most, but for what is assigned
    with archive_beside(ctx, loaded, upload_bytes) as uploads:
        added = tuple(write_batches(uploads.ctx, snapshot, checked, time_us=loaded.date_us))
    if not matches and request is None:
        return None
    change = Change(
        operation="update",
        request=request,
        uploaded_us=loaded.date_us,
        deleted_rows=sum(len(p) for p in matches.values()),
        updates=(AddFiles(added),),
        requires=(Reads(predicate, snapshot.version, frozenset(matches)),),
    )
    if matches:
        deletes = _deletes(ctx, loaded, matches, predicate, mode)
        change = replace(change, updates=(*change.updates, *deletes))
    return Planned(change, uploads.base)


def _deletes(
    ctx: Context,
    loaded: LoadedTable,
    matches: Mapping[str, BitMap64],
    predicate: Predicate,
    mode: DeleteMode,
) -> tuple[RowUpdate, ...]:
    """What takes the old rows away, which are at these positions."""
    if mode == "tombstone":
        return (AddMarkers((marker_of(ctx, loaded, predicate),)),)
    from inlay.ops.write.delete_rows import by_vectors, rewritten  # most updates leave a marker

    match mode:
        case "vector":
            return by_vectors(ctx, loaded, matches)
        case "surgery" | "rewrite":
            rewrites = rewritten(ctx, loaded, matches, mode, {})
            return (ReplaceFiles(tuple(m.unit for m in rewrites), whole=True),)
