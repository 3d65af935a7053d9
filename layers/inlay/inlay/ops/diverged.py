"""A merge of a branch where main has changed since the branch began.

Promise: the branch's deletes are converted to row positions of the files they saw (`plan.merge`), and so
hit nothing of what came to main meanwhile. What both changed and cannot be combined is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from pyroaring import BitMap64

from inlay.errors import MergeConflict
from inlay.format.entry import DataFile
from inlay.format.snapshot import Ref, Snapshot, content_of
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_content, load_entries, load_version
from inlay.ops.row_markers import vector_markers
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    Change,
    Conflict,
    RemoveFiles,
    SameMain,
    SetRefs,
    TakeLayout,
)
from inlay.plan.merge import (
    MergePlan,
    contested_conflict,
    layout_conflict,
    merged_layout,
    plan_merge,
)
from inlay.plan.metadata.state import State
from inlay.plan.pruning.compared import uncompared
from inlay.plan.refs import LEVEL_WITH_MAIN, MERGE, ref_view
from inlay.plan.scan import FileTask
from inlay.record import replace


def merge_diverged(
    ctx: Context, loaded: LoadedTable, name: str, ref: Ref, positions: Positions
) -> tuple[Change, str]:
    """The change, and a note of rows that are on neither side after it (`MergePlan.taken_back`), or may be
    there twice (`MergePlan.on_both`)."""
    table = loaded.snapshot
    loaded = replace(loaded, state=load_entries(ctx, loaded.state))
    branch = State(ref_view(table, load_content(ctx, table, ref), ref.since), loaded.state.contents)
    branch = load_entries(ctx, branch)
    base = load_entries(ctx, State(load_version(ctx, table, ref.base), branch.contents))
    layout = merged_layout(table, branch.snapshot, base.snapshot)
    plan = plan_merge(loaded.state, branch, base, fork=ref.base)
    for planned in (layout, plan):
        if isinstance(planned, Conflict):
            raise _refused(ctx, name, planned)
    assert isinstance(plan, MergePlan) and isinstance(layout, Snapshot)
    unfit = layout_conflict(layout, plan, loaded.state, base)
    if unfit is not None:
        raise _refused(ctx, name, unfit)
    if plan.is_empty and plan.taken_back and layout is table:
        raise MergeConflict(
            f"{name!r} has nothing that main lacks but what a restore of main took back since: the "
            "merge would take it from the branch, too",
            next_step=f"Make main what the branch is (restore with ref={name!r}), or drop the branch",
            table=ctx.uri,
            key=plan.taken_back[0],
        )
    _check_key(ctx, name, loaded.state, branch, layout, plan)
    on_main = {f.key for f in loaded.state.files()}
    for task in plan.contested:
        # Main's deletes are bound to main's columns, the branch's to the branch's.
        schema = table if task.file.key in on_main else branch.snapshot
        if positions.of([task], schema):
            raise _refused(ctx, name, contested_conflict(task.file, on_main))
    deleted = positions.of([*plan.added, *plan.marked], branch.snapshot)
    updates = _merged_rows(ctx, loaded, plan, deleted, on_main, layout.primary_key)
    change = Change(
        operation=MERGE,
        updates=(
            *updates,
            SetRefs({name: LEVEL_WITH_MAIN}, {name: ref}),
            *(() if layout is table else (TakeLayout(content_of(layout)),)),
        ),
        requires=(SameMain(table.changed),),
        # The files are kept by the ref, which must be unchanged.
        uploaded_us=loaded.date_us if any(m.object_key for m in updates[1].markers) else None,
        deleted_rows=None,
    )
    notes = []
    if plan.taken_back:
        notes.append(
            f"main was restored since {name!r} began: rows of {len(plan.taken_back)} of its files that "
            f"{name!r} still had may be on neither side now; the versions before this one have them"
        )
    mine = positions.of(plan.on_both, table)
    twice = plan.emptied + sum(len(rows & deleted.get(f, rows)) for f, rows in mine.items())
    if twice:
        notes.append(
            f"rows (up to {twice}) were changed or deleted on main and on {name!r}: one that both updated "
            "is there as each made it, under one key"
        )
    return change, "; ".join(notes)


def _merged_rows(
    ctx: Context,
    loaded: LoadedTable,
    plan: MergePlan,
    deleted: Mapping[str, BitMap64],
    on_main: Set[str],
    primary_key: Sequence[int],
) -> tuple[AddFiles, AddMarkers, RemoveFiles]:
    """What main takes of the branch's rows, given the positions that the branch `deleted` in files: those
    of main, and those that it brings. The vectors of the deletes are written."""
    brought = [t.file for t in plan.added if len(deleted.get(t.file.key, ())) < t.file.rows]
    emptied = {t.file.key for t in plan.marked if len(deleted.get(t.file.key, ())) == t.file.rows}
    keys = {f.key for f in brought}
    marked = {
        key: rows
        for key, rows in deleted.items()
        if key in keys or (key not in emptied and key in on_main)
    }
    vectors = vector_markers(ctx, loaded, marked)
    # They are new to main, whatever they were on the branch. The origin is kept where nothing else says
    # that bytes of the file are another writer's.
    added = (
        replace(
            f,
            sequence=None,
            arrived=None,
            origin=f.origin if f.is_foreign and f.event is None else None,
            data_change=True,
        )
        for f in brought
    )
    return (
        AddFiles(tuple(added), compared=frozenset(primary_key)),
        AddMarkers((*vectors, *(m for m in plan.erasing if m.file in keys))),
        RemoveFiles((*plan.removed, *sorted(emptied))),
    )


def _check_key(
    ctx: Context, name: str, main: State, branch: State, layout: Snapshot, plan: MergePlan
) -> None:
    """Compares what files of one side say of the key that they get from the other. Raises
    `UntrueStatistics`."""
    on_branch = {f.key for f in branch.files()}
    of_main, of_branch = main.snapshot.primary_key, branch.snapshot.primary_key
    staying = (f for f in main.files() if f.key not in plan.removed)
    held = [(f, (*of_main, *(of_branch if f.key in on_branch else ()))) for f in staying]
    sides: Mapping[str | None, Sequence[tuple[DataFile, tuple[int, ...]]]] = {
        None: held,
        name: [(task.file, of_branch) for task in plan.added],
    }
    for ref, files in sides.items():
        compared = [(f, uncompared(layout, f, layout.primary_key, known)) for f, known in files]
        new = [(entry, columns) for entry, columns in compared if columns]
        if new:
            from inlay.ops.read.compare_statistics import check_key  # most merges add no key

            check_key(replace(ctx, branch=ref), new, layout.schemas, layout.schema)


def _refused(ctx: Context, name: str, conflict: Conflict) -> MergeConflict:
    return MergeConflict(
        f"{name!r} cannot be merged: {conflict.reason}",
        next_step=f"Keep one side: restore main with ref={name!r}, or drop the branch and repeat its "
        "changes on main. Branches that are not compacted merge best",
        table=ctx.uri,
        key=next(iter(conflict.gone), None),
    )


_Id = tuple[str, frozenset[str]]


def _id(task: FileTask) -> _Id:
    return task.file.key, frozenset(m.id for m in task.only)


class Positions:
    """Positions of rows that markers hit. Kept over rebases: neither files nor markers ever change."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.known: dict[_Id, BitMap64] = {}

    def of(self, tasks: Sequence[FileTask], schema: Snapshot) -> Mapping[str, BitMap64]:
        """By file, without empty ones; markers are bound to the columns of `schema`."""
        unknown = [t for t in tasks if t.only and _id(t) not in self.known]
        self.known |= {_id(t): BitMap64() for t in unknown}
        positions = self.ctx.reader.positions(unknown, schema.schema)
        self.known |= {_id(task): rows for task, rows in positions}
        return {t.file.key: rows for t in tasks if t.only and (rows := self.known[_id(t)])}
