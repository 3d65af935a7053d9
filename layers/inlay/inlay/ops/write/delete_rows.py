"""Deletes of rows by their positions: marked by vectors, or removed from the files.

Promise: what is read is deleted, and no file is left out because of another writer's statistics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from inlay.format.entry import DataFile
from inlay.format.expression import Condition
from inlay.ops.commit.driver import (
    Planned,
)
from inlay.ops.commit.group import archive_beside
from inlay.ops.context import Context
from inlay.ops.metadata.find_file import load_file
from inlay.ops.metadata.load import LoadedTable, load_matching
from inlay.ops.read.conditions import filter_of
from inlay.ops.row_markers import vector_markers
from inlay.plan.change import (
    AddMarkers,
    Change,
    Reads,
    RemoveFiles,
    ReplaceFiles,
    Request,
    Requirement,
    SameContent,
    Unit,
)
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, loaded_tasks, marker_may_hit
from inlay.record import Mutable, Record, field, replace

if TYPE_CHECKING:
    from inlay.plan.surgery import Strategy


class _Made(Record):
    """What was written for a file, with the row markers it had then."""

    unit: Unit
    entry: DataFile
    own: frozenset[str]
    uploaded_us: int


def rewritten(
    ctx: Context,
    loaded: LoadedTable,
    deleted: Mapping[str, BitMap64],
    strategy: Strategy,
    rewrites: dict[str, _Made],
) -> list[_Made]:
    """The files without the rows at these positions, and without those that their markers hit. What was
    `made` on an earlier base is used again as long as the file is unchanged: its live rows can only have
    become fewer, so no row is missing."""
    from inlay.ops.maintain.rewrite_file import rewrite_task  # vectors rewrite nothing

    live = {f.key: f for f in loaded.state.loaded_files()}
    markers = list(loaded.state.markers())
    evidence = Evidence.of_snapshot(loaded.snapshot)
    boundary_us = loaded.snapshot.boundary.time_us or 0
    for key, positions in deleted.items():
        hits = [m for m in markers if marker_may_hit(m, live[key], evidence)]
        own = frozenset(m.id for m in hits if m.file is not None)
        before = rewrites.get(key)
        unchanged = before is not None and (before.entry, before.own) == (live[key], own)
        if before is None or not unchanged or before.uploaded_us < boundary_us:
            schema = loaded.snapshot.schema_by_id(live[key].schema_id)
            task = FileTask(file=live[key], schema=schema, markers=tuple(hits))
            _, done = rewrite_task(ctx, loaded, task, strategy=strategy, extra=positions)
            rewrites[key] = _Made(done.unit, live[key], own, loaded.date_us)
    return [rewrites[key] for key in deleted]


class RowDelete(Mutable):
    """One delete by position: marked by vectors, or removed from the files by a `strategy`. Kept over
    rebases: what was written for a file is used again; only replacements of replaced files are new."""

    ctx: Context
    condition: Condition
    strategy: Strategy | None
    file: str | None
    request: Request | None
    made: dict[str, _Made] = field(default_factory=dict)

    def plan(self, loaded: LoadedTable) -> Planned:
        ctx, predicate = self.ctx, self.condition.predicate
        if self.file is None:
            state = load_matching(ctx, loaded.state, predicate, by_rows=True)
        else:
            state = load_file(ctx, loaded.state, self.file)
        loaded, snapshot = replace(loaded, state=state), loaded.snapshot
        tasks = loaded_tasks(loaded.state, predicate, by_rows=True)
        tasks = [task for task in tasks if self.file in (None, task.file.key)]
        where = filter_of(self.condition)
        positions: dict[str, BitMap64] = {}
        for task, hit in ctx.reader.positions(tasks, snapshot.schema, where):
            positions[task.file.key] = hit
        requires: tuple[Requirement, ...] = (SameContent(snapshot.version),)
        if snapshot.settings.text("isolation") == "serializable":
            requires += (Reads(predicate, snapshot.version, frozenset(positions)),)
        change = Change(
            operation="delete",
            request=self.request,
            uploaded_us=loaded.date_us,
            deleted_rows=sum(map(len, positions.values())),
            requires=requires,
        )
        if self.strategy is None:
            with archive_beside(ctx, loaded, 0) as uploads:
                updates = by_vectors(uploads.ctx, loaded, positions)
            return Planned(replace(change, updates=updates), uploads.base)
        used = rewritten(ctx, loaded, positions, self.strategy, self.made)
        change = replace(
            change,
            updates=(ReplaceFiles(tuple(m.unit for m in used), whole=True),),
            uploaded_us=min((m.uploaded_us for m in used), default=loaded.date_us),
        )
        return Planned(change, loaded)


def by_vectors(
    ctx: Context, loaded: LoadedTable, deleted: Mapping[str, BitMap64]
) -> tuple[RemoveFiles, AddMarkers]:
    """The delete of these positions, of live rows, by vectors, and of files that lose all their rows as a
    whole."""
    if not deleted:
        return RemoveFiles(()), AddMarkers(())
    rows = {f.key: f.rows for f in loaded.state.loaded_files()}
    emptied = tuple(key for key, positions in deleted.items() if len(positions) == rows[key])
    marked = {key: some for key, some in deleted.items() if len(some) != rows[key]}
    return RemoveFiles(emptied), AddMarkers(tuple(vector_markers(ctx, loaded, marked)))
