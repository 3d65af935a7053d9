"""Tags and branches: create, hold, drop, list; restore one, merge one.

Promise: each is one commit, of metadata only; a ref never refers to a version or content that may be gone,
and one that another process changed meanwhile is read again before it is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyroaring import BitMap64

from inlay.errors import InvalidRequest, MergeConflict, RefExists, RefHeld, VersionNotFound
from inlay.format.entry import DataFile
from inlay.format.schema import Schema
from inlay.format.snapshot import MAX_REFS, Ref, RefKind, Snapshot, content_of
from inlay.ops.commit.driver import Committed, Skipped, commit_planned
from inlay.ops.context import Context
from inlay.ops.data import vector_markers
from inlay.ops.metadata.load import (
    LoadedTable,
    find_ref,
    load_content,
    load_entries,
    load_pointer,
    load_version,
    on_branch,
)
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
from inlay.plan.merge import (
    MergePlan,
    contested_conflict,
    layout_conflict,
    merged_layout,
    plan_merge,
)
from inlay.plan.metadata.state import State
from inlay.plan.pruning.compared import uncompared
from inlay.plan.pruning.prune import lacks_columns_of
from inlay.plan.refs import (
    MAIN,
    MERGE,
    THIS_VERSION,
    check_name,
    is_retained,
    ref_view,
)
from inlay.plan.scan import FileTask


def tag(ctx: Context, name: str, source: Ref, *, hold: bool = False) -> Committed | Skipped:
    """Gives the content of `source` a fixed name. Raises `RefExists`, `VersionNotFound`."""
    return _create(ctx, name, source, replace(named_ref("tag", source), hold=hold))


def branch(ctx: Context, name: str, source: Ref) -> Committed | Skipped:
    """Creates a branch on the content of `source`. If that is not a version of main, the branch cannot be
    merged into main later: there would be no common version."""
    return _create(ctx, name, source, named_ref("branch", source))


def named_ref(kind: RefKind, source: Ref) -> Ref:
    """A new ref to the content of `source`."""
    base = source.version if source.head is None and kind == "branch" else 0
    return Ref(kind=kind, version=source.version, head=source.head, base=base, since=THIS_VERSION)


def _create(ctx: Context, name: str, source: Ref, ref: Ref) -> Committed | Skipped:
    def change(table: Snapshot) -> Change | None:
        update = new_ref(ctx, table, name, source, ref)
        if update is None:
            return None
        return Change(operation=ref.kind, updates=(update,), requires=(Retained(source),))

    return edit_refs(ctx, change)


def new_ref(ctx: Context, table: Snapshot, name: str, source: Ref, ref: Ref) -> SetRefs | None:
    """The update that makes the ref; None where it is there: a repeated request. Raises `RefExists`,
    `VersionNotFound`, `InvalidRequest`."""
    check_name(name)
    existing = table.refs.get(name)
    if existing is not None:
        if replace(existing, since=ref.since) == ref:
            return None
        raise RefExists(f"there already is a {existing.kind} {name!r}", table=ctx.uri)
    if len(table.refs) >= MAX_REFS:
        raise InvalidRequest(
            f"a table has at most {MAX_REFS} tags and branches",
            next_step="Drop one that is no longer needed",
            table=ctx.uri,
        )
    check_retained(ctx, table, source)
    return SetRefs({name: ref}, {name: None})


def drop(ctx: Context, name: str) -> Committed | Skipped:
    """Drops a tag or branch. What only it kept can no longer be opened, and is garbage after the grace.
    Raises `RefNotFound`, `RefHeld`."""

    def change(table: Snapshot) -> Change:
        ref = find_ref(ctx, table, name)
        if ref.hold:
            raise RefHeld(f"{name!r} is under a legal hold", table=ctx.uri, version=ref.version)
        return Change(operation="drop_ref", updates=(SetRefs({name: None}, {name: ref}),))

    return edit_refs(ctx, change)


def set_hold(ctx: Context, name: str, hold: bool) -> Committed | Skipped:
    """Puts a tag under a legal hold, or lifts it."""

    def change(table: Snapshot) -> Change | None:
        ref = find_ref(ctx, table, name)
        if ref.is_branch:
            raise InvalidRequest(
                f"{name!r} is a branch: only tags can be held",
                next_step="Create a held tag of its current content",
                table=ctx.uri,
            )
        if ref.hold == hold:
            return None
        update = SetRefs({name: replace(ref, hold=hold)}, {name: ref})
        return Change(operation="set_hold", updates=(update,))

    return edit_refs(ctx, change)


def edit_refs(ctx: Context, change_of: Callable[[Snapshot], Change | None]) -> Committed | Skipped:
    """Commits what `change_of` returns for the current table; None is nothing to do."""
    main = replace(ctx, branch=None)
    return commit_planned(main, load_pointer(main), lambda loaded: change_of(loaded.pointer))


def check_retained(ctx: Context, table: Snapshot, source: Ref) -> None:
    if not is_retained(table, source):
        raise VersionNotFound(
            f"version {source.version} of {ctx.uri} is no longer kept: the oldest is "
            f"{table.oldest_version}",
            table=ctx.uri,
            version=source.version,
        )


def source_of(ctx: Context, table: Snapshot, at: int | str) -> Ref:
    """What a version number or a name refers to. Raises `InvalidRequest` for a version without a column
    that an open erasure needs: making it current again would hide all its rows."""
    if isinstance(at, str) and at != MAIN:
        return find_ref(ctx, table, at)
    version = table.version if isinstance(at, str) else at
    if not 1 <= version <= table.version:
        raise VersionNotFound(
            f"{ctx.uri} has no version {version}: it is at version {table.version}",
            table=ctx.uri,
            version=version,
        )
    ref = Ref(kind="tag", version=version)
    predicates = [e.predicate for e in table.erasures if e.predicate is not None]
    schema_id = load_content(ctx, table, ref).schema_id if predicates else 0
    if any(lacks_columns_of(predicate, schema_id, table.schemas) for predicate in predicates):
        raise InvalidRequest(
            f"version {version} of {ctx.uri} lacks a column that an open erasure needs",
            next_step="Wait for the erasure to end (`inlay erase-status`)",
            table=ctx.uri,
            version=version,
        )
    return ref


# Of main (None) and of refs, by name.
RefContents: TypeAlias = Sequence[tuple[str | None, LoadedTable]]


def each_content(ctx: Context, main: LoadedTable) -> Iterator[tuple[str | None, LoadedTable]]:
    """Main (None), and what each ref shows, by name; with all entries."""
    yield None, replace(main, state=load_entries(ctx, main.state))
    for name in sorted(main.snapshot.refs):
        at = replace(ctx, branch=name)
        loaded = on_branch(at, main, carried=main.state.contents)
        yield name, replace(loaded, state=load_entries(at, loaded.state))


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file and the schemas to read it by: the one it was written under, and the current one."""

    entry: DataFile
    recorded: Schema
    schema: Schema


def live_files(contents: RefContents) -> dict[str, LiveFile]:
    """The live files of these contents by key, each once: as the first that has it."""
    live: dict[str, LiveFile] = {}
    for _, content in contents:
        snapshot = content.snapshot
        for entry in content.state.files():
            if entry.key not in live:
                recorded = snapshot.schema_by_id(entry.schema_id)
                live[entry.key] = LiveFile(entry, recorded, snapshot.schema)
    return live


RESTORE = "restore"
LEVEL_WITH_MAIN = Ref(kind="branch", version=THIS_VERSION, base=THIS_VERSION, since=THIS_VERSION)


def restore(ctx: Context, source: Ref, *, name: str | None = None) -> Committed | Skipped:
    """Gives main, or the context's branch, the content of `source`. `name` is the branch that `source` is,
    if it is one; it is level with main afterwards.

    In a new commit. The rows and columns are exactly those of a version, tag or branch that is still kept;
    nothing else goes back: versions, ids, the ledger, erasures, the GC boundary and other refs stay as they
    are. Applied requests stay applied. Rows of an open erasure do not come back.
    """
    if ctx.branch is not None:
        return _restore_branch(ctx, ctx.branch, source)

    return edit_refs(ctx, lambda table: restoring(ctx, table, source, name=name))


def restoring(ctx: Context, table: Snapshot, source: Ref, *, name: str | None = None) -> Change:
    """The change of `restore`, for main."""
    check_retained(ctx, table, source)
    refs: dict[str, Ref] = {}
    if source.head is not None:
        # Main gets files that a branch may have added: what the two have in common is no longer known.
        refs = {n: replace(r, base=0) for n, r in table.refs.items() if r.base}
    if name is not None and table.refs.get(name) == source and source.is_branch:
        refs[name] = LEVEL_WITH_MAIN
    content = load_content(replace(ctx, branch=None), table, source)
    before = {n: table.refs[n] for n in refs}
    return Change(
        operation=RESTORE,
        updates=(ReplaceContent(content), SetRefs(refs, before)),
        requires=(Retained(source),),
    )


def _restore_branch(ctx: Context, branch: str, source: Ref) -> Committed | Skipped:
    """A branch is a name: it is made to refer to the content, as if it had been created on it."""

    def change(table: Snapshot) -> Change:
        ref = find_ref(ctx, table, branch)
        check_retained(ctx, table, source)
        update = SetRefs({branch: named_ref("branch", source)}, {branch: ref})
        return Change(operation=RESTORE, updates=(update,), requires=(Retained(source),))

    return edit_refs(ctx, change)


FAST_FORWARD = "fast_forward"


def fast_forward(ctx: Context, name: str) -> Committed | Skipped:
    """Makes main what the branch is. Raises `MergeConflict` when main has changed since it began."""
    return merge(ctx, name, forward_only=True)


def merge(
    ctx: Context, name: str, request: Request | None = None, *, forward_only: bool = False
) -> Committed | Skipped:
    """Applies the branch's changes to main, once for each `request`. Raises `MergeConflict` when both
    changed one file in ways that cannot be combined, or, with `forward_only`, when main has changed.

    One commit, after which the branch is level with main: both have the same rows, and the branch can be
    written to and merged again. If nothing of main changed since the branch began, main takes the branch's
    content (a fast-forward, metadata only). What a restore took back from main since is not brought again,
    and leaves the branch, which the result's note says; a merge that did nothing else is a conflict.
    Otherwise the branch's deletes are first converted to row positions of the files they saw
    (`plan.merge`), and everything is planned again on every rebase.
    """
    main = replace(ctx, branch=None)
    positions = _Positions(main)
    note = ""

    def plan(loaded: LoadedTable) -> Change | None:
        nonlocal note
        note = ""
        table = loaded.snapshot
        ref = _mergeable(ctx, table, name)
        if ref.head is None and ref.version == ref.base:
            if forward_only or ref.version == table.version:
                return None  # the branch has not been written to
        elif table.changed <= ref.base:
            content = load_content(main, table, ref)
            return Change(
                operation=FAST_FORWARD,
                request=request,
                updates=(ReplaceContent(content), SetRefs({name: LEVEL_WITH_MAIN}, {name: ref})),
                requires=(Retained(ref), SameMain(table.changed)),
            )
        if forward_only:
            raise MergeConflict(
                f"main has changed at version {table.changed}, after {name!r} began at {ref.base}",
                next_step="Merge it: `inlay merge`, or `t.refs.merge(name)`",
                table=ctx.uri,
            )
        change, note = _merge(main, loaded, name, ref, positions)
        return replace(change, request=request)

    done = commit_planned(main, load_pointer(main), plan)
    return replace(done, note=note) if note and isinstance(done, Committed) else done


def _mergeable(ctx: Context, table: Snapshot, name: str) -> Ref:
    ref = find_ref(ctx, table, name)
    if not ref.is_branch:
        raise InvalidRequest(f"{name!r} is a tag: only branches are merged", table=ctx.uri)
    if not ref.base:
        raise MergeConflict(
            f"{name!r} has no version of main to be compared with: it was made from another branch, or "
            "main was restored, or rows were erased since",
            next_step=f"Make main what it is (restore with ref={name!r}), or append its rows",
            table=ctx.uri,
        )
    return ref


def _merge(
    ctx: Context, loaded: LoadedTable, name: str, ref: Ref, positions: _Positions
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


class _Positions:
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
