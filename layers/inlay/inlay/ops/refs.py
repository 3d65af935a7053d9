"""Tags and branches: create, hold, drop, list; restore one, merge one.

Promise: each is one commit, of metadata only; a ref never refers to a version or content that may be gone,
and one that another process changed meanwhile is read again before it is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from inlay.errors import InvalidRequest, MergeConflict, RefExists, RefHeld, VersionNotFound
from inlay.format.entry import DataFile
from inlay.format.schema import Schema
from inlay.format.snapshot import MAX_REFS, Ref, RefKind, Snapshot
from inlay.ops.commit.driver import Committed, Skipped, commit_planned
from inlay.ops.context import Context
from inlay.ops.metadata.load import (
    LoadedTable,
    find_ref,
    load_content,
    load_entries,
    load_pointer,
    on_branch,
)
from inlay.plan.change import Change, ReplaceContent, Request, Retained, SameMain, SetRefs
from inlay.plan.pruning.prune import lacks_columns_of
from inlay.plan.refs import LEVEL_WITH_MAIN, MAIN, THIS_VERSION, check_name, is_retained
from inlay.record import Record, replace

if TYPE_CHECKING:
    from inlay.ops.diverged import Positions


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


class LiveFile(Record):
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
    """Makes main what the branch is. Raises `MergeConflict` when main has changed since it began. A branch
    that was never written to has nothing to bring, also where main is ahead."""
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
    positions: Positions | None = None
    note = ""

    def plan(loaded: LoadedTable) -> Change | None:
        nonlocal note, positions
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
        from inlay.ops import diverged  # most merges are fast-forwards

        positions = positions or diverged.Positions(main)
        change, note = diverged.merge_diverged(main, loaded, name, ref, positions)
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
