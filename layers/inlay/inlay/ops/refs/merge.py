"""Merge: applies what a branch changed to main.

Promise: one commit, after which the branch is level with main: both have the same rows, and the branch can
be written to and merged again. If nothing of main changed since the branch began, main takes the branch's
content (a fast-forward, metadata only). Otherwise the branch's deletes are first converted to row positions
of the files they saw (`plan.refs.merge`), and everything is planned again on every rebase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyroaring import BitMap64

from inlay.errors import InvalidRequest, MergeConflict
from inlay.format.content import content_of
from inlay.format.entry import DataFile, Marker
from inlay.format.snapshot import Ref, Snapshot
from inlay.ops.commit.driver import Committed, Skipped, commit_planned
from inlay.ops.context import Context
from inlay.ops.data.vectors import vector_markers
from inlay.ops.metadata.load import (
    LoadedTable,
    find_ref,
    load_content,
    load_entries,
    load_pointer,
    load_version,
)
from inlay.ops.refs.restore import EVEN
from inlay.parquet.read.reader import read_positions
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    Change,
    Conflict,
    RemoveFiles,
    ReplaceContent,
    Request,
    Retained,
    SameMain,
    SetRefs,
    TakeLayout,
)
from inlay.plan.metadata.state import State
from inlay.plan.refs.merge import (
    MERGE,
    MergePlan,
    contested_conflict,
    layout_conflict,
    merged_layout,
    plan_merge,
)
from inlay.plan.refs.refs import ref_view
from inlay.plan.scan.scan import FileTask

FAST_FORWARD = "fast_forward"


def fast_forward(ctx: Context, name: str) -> Committed | Skipped:
    """Makes main what the branch is. Raises `MergeConflict` when main has changed since it began."""
    return _into_main(ctx, name, forward_only=True)


def merge(ctx: Context, name: str, request: Request | None = None) -> Committed | Skipped:
    """Applies the branch's changes to main, once for each `request`. Raises `MergeConflict` when both
    changed one file in ways that cannot be combined."""
    return _into_main(ctx, name, forward_only=False, request=request)


def _into_main(
    ctx: Context, name: str, *, forward_only: bool, request: Request | None = None
) -> Committed | Skipped:
    main = replace(ctx, branch=None)
    positions = _Positions(main)

    def plan(loaded: LoadedTable) -> Change | None:
        table = loaded.snapshot
        ref = _mergeable(ctx, table, name)
        if ref.head is None and ref.version == ref.base:
            if forward_only or ref.version == table.version:
                return None  # the branch has not been written to
        elif table.changed <= ref.base:
            return replace(_forward(main, table, name, ref), request=request)
        if forward_only:
            raise MergeConflict(
                f"main has changed at version {table.changed}, after {name!r} began at {ref.base}",
                next_step="Merge it: `inlay merge`, or `t.merge(name)`",
                table=ctx.uri,
            )
        return replace(_merge(main, loaded, name, ref, positions), request=request)

    return commit_planned(main, load_pointer(main), plan)


def _mergeable(ctx: Context, table: Snapshot, name: str) -> Ref:
    ref = find_ref(ctx, table, name)
    if ref.kind != "branch":
        raise InvalidRequest(f"{name!r} is a tag: only branches are merged", table=ctx.uri)
    if not ref.base:
        raise MergeConflict(
            f"{name!r} has no version of main to be compared with: it was made from another branch, or "
            "main was restored, or rows were erased since",
            next_step=f"Make main what it is (restore with ref={name!r}), or append its rows",
            table=ctx.uri,
        )
    return ref


def _forward(ctx: Context, table: Snapshot, name: str, ref: Ref) -> Change:
    return Change(
        operation=FAST_FORWARD,
        updates=(ReplaceContent(load_content(ctx, table, ref)), SetRefs({name: EVEN}, {name: ref})),
        requires=(Retained(ref), SameMain(table.changed)),
    )


def _merge(ctx: Context, loaded: LoadedTable, name: str, ref: Ref, positions: _Positions) -> Change:
    table = loaded.snapshot
    loaded = replace(loaded, state=load_entries(ctx, loaded.state))
    branch = State(ref_view(table, load_content(ctx, table, ref), ref.since), loaded.state.contents)
    branch = load_entries(ctx, branch)
    base = load_entries(ctx, State(load_version(ctx, table, ref.base), branch.contents))
    shape = merged_layout(table, branch.snapshot, base.snapshot)
    plan = plan_merge(loaded.state, branch, base, fork=ref.base)
    for found in (shape, plan):
        if isinstance(found, Conflict):
            raise _refused(ctx, name, found)
    assert isinstance(plan, MergePlan) and isinstance(shape, Snapshot)
    unfit = layout_conflict(shape, plan, loaded.state, base)
    if unfit is not None:
        raise _refused(ctx, name, unfit)
    on_main = [f.key for f in loaded.state.files()]
    for task in plan.contested:
        # Main's deletes are bound to main's columns, the branch's to the branch's.
        schema = table if task.file.key in on_main else branch.snapshot
        if positions.of([task], schema):
            raise _refused(ctx, name, contested_conflict(task.file, on_main))
    deleted = positions.of([*plan.added, *plan.marked], branch.snapshot)
    brought = [t.file for t in plan.added if len(deleted.get(t.file.key, ())) < t.file.rows]
    emptied = {t.file.key for t in plan.marked if len(deleted.get(t.file.key, ())) == t.file.rows}
    keys = {f.key for f in brought}
    marked = {
        key: rows
        for key, rows in deleted.items()
        if key in keys or (key not in emptied and key in on_main)
    }
    vectors: Sequence[Marker] = tuple(vector_markers(ctx, loaded, marked))
    # They are new to main, whatever they were on the branch.
    added = (
        replace(f, sequence=None, arrived=None, origin=_origin(f), data_change=True)
        for f in brought
    )
    return Change(
        operation=MERGE,
        updates=(
            AddFiles(tuple(added)),
            AddMarkers((*vectors, *(m for m in plan.erasing if m.file in keys))),
            RemoveFiles((*plan.removed, *sorted(emptied))),
            SetRefs({name: EVEN}, {name: ref}),
            *(() if shape is table else (TakeLayout(content_of(shape)),)),
        ),
        requires=(SameMain(table.changed),),
        # The files are kept by the ref, which must be unchanged.
        uploaded_us=loaded.date_us if any(m.object_key for m in vectors) else None,
        deleted_rows=None,
    )


def _origin(entry: DataFile) -> str | None:
    """Kept where nothing else says that bytes of the file are another writer's."""
    return entry.origin if entry.is_foreign and entry.event is None else None


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


class _Positions:
    """Positions of rows that markers hit. Kept over rebases: neither files nor markers ever change."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.known: dict[_Id, BitMap64] = {}

    def of(self, tasks: Sequence[FileTask], schema: Snapshot) -> Mapping[str, BitMap64]:
        """By file, without empty ones; markers are bound to the columns of `schema`."""
        unknown = [t for t in tasks if t.only and _id(t) not in self.known]
        self.known |= {_id(t): BitMap64() for t in unknown}
        found = read_positions(self.ctx.objects, unknown, schema.schema, self.ctx.executor)
        self.known |= {_id(task): rows for task, rows in found}
        return {t.file.key: rows for t in tasks if t.only and (rows := self.known[_id(t)])}
