"""Refs: create, hold, drop and list tags and branches.

Promise: each is one commit, of metadata only; a ref never refers to a version or content that may be gone,
and one that another process changed meanwhile is read again before it is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from inlay.errors import InvalidRequest, RefExists, RefHeld, VersionNotFound
from inlay.format.snapshot import MAX_REFS, Ref, Snapshot
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
from inlay.plan.change import THIS_VERSION, Change, Retained, SetRefs
from inlay.plan.pruning.added_columns import lacks_columns_of
from inlay.plan.refs.refs import MAIN, check_name, is_retained


def tag(ctx: Context, name: str, source: Ref, *, hold: bool = False) -> Committed | Skipped:
    """Gives the content of `source` a fixed name. Raises `RefExists`, `VersionNotFound`."""
    made = Ref(kind="tag", version=source.version, head=source.head, hold=hold, since=THIS_VERSION)
    return _create(ctx, name, source, made)


def branch(ctx: Context, name: str, source: Ref) -> Committed | Skipped:
    """Creates a branch on the content of `source`. If that is not a version of main, the branch cannot be
    merged into main later: there would be no common version."""
    base = source.version if source.head is None else 0
    made = Ref(
        kind="branch", version=source.version, head=source.head, base=base, since=THIS_VERSION
    )
    return _create(ctx, name, source, made)


def _create(ctx: Context, name: str, source: Ref, made: Ref) -> Committed | Skipped:
    check_name(name)

    def change(table: Snapshot) -> Change | None:
        there = table.refs.get(name)
        if there is not None:
            if replace(there, since=made.since) == made:
                return None  # a repeated request
            raise RefExists(f"there already is a {there.kind} {name!r}", table=ctx.uri)
        if len(table.refs) >= MAX_REFS:
            raise InvalidRequest(
                f"a table has at most {MAX_REFS} tags and branches",
                next_step="Drop one that is no longer needed",
                table=ctx.uri,
            )
        check_retained(ctx, table, source)
        update = SetRefs({name: made}, {name: None})
        return Change(operation=made.kind, updates=(update,), requires=(Retained(source),))

    return edit_refs(ctx, change)


def drop(ctx: Context, name: str) -> Committed | Skipped:
    """Drops a tag or branch. What only it kept can no longer be opened, and is garbage after the grace.
    Raises `RefNotFound`, `RefHeld`."""

    def change(table: Snapshot) -> Change:
        there = find_ref(ctx, table, name)
        if there.hold:
            raise RefHeld(f"{name!r} is under a legal hold", table=ctx.uri, version=there.version)
        return Change(operation="drop_ref", updates=(SetRefs({name: None}, {name: there}),))

    return edit_refs(ctx, change)


def set_hold(ctx: Context, name: str, hold: bool) -> Committed | Skipped:
    """Puts a tag under a legal hold, or lifts it."""

    def change(table: Snapshot) -> Change | None:
        there = find_ref(ctx, table, name)
        if there.kind != "tag":
            raise InvalidRequest(
                f"{name!r} is a branch: only tags can be held",
                next_step="Create a held tag of its current content",
                table=ctx.uri,
            )
        if there.hold == hold:
            return None
        update = SetRefs({name: replace(there, hold=hold)}, {name: there})
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
    asked = [e.predicate for e in table.erasures if e.predicate is not None]
    schema_id = load_content(ctx, table, ref).schema_id if asked else 0
    if any(lacks_columns_of(predicate, schema_id, table.schemas) for predicate in asked):
        raise InvalidRequest(
            f"version {version} of {ctx.uri} lacks a column that an open erasure needs",
            next_step="Wait for the erasure to end (`inlay erase-status`)",
            table=ctx.uri,
            version=version,
        )
    return ref


def each_content(ctx: Context, main: LoadedTable) -> Iterator[tuple[str | None, LoadedTable]]:
    """Main (None), and what each ref shows, by name; with all entries."""
    yield None, replace(main, state=load_entries(ctx, main.state))
    for name in sorted(main.snapshot.refs):
        at = replace(ctx, branch=name)
        loaded = on_branch(at, main, carried=main.state.contents)
        yield name, replace(loaded, state=load_entries(at, loaded.state))


def refs_table(table: Snapshot) -> pa.Table:
    """Main, then tags and branches by name. `base` is the version of main that a branch can be merged on,
    `written` is whether it has content of its own, `since` when it was created or last merged."""
    main = Ref(kind="branch", version=table.version)
    refs = [(MAIN, main), *sorted(table.refs.items())]
    return pa.table(
        {
            "name": pa.array([name for name, _ in refs], pa.string()),
            "kind": pa.array([r.kind for _, r in refs], pa.string()),
            "version": pa.array([r.version for _, r in refs], pa.int64()),
            "hold": pa.array([r.hold for _, r in refs], pa.bool_()),
            "base": pa.array([r.base or None for _, r in refs], pa.int64()),
            "since": pa.array([r.since or None for _, r in refs], pa.int64()),
            "written": pa.array([r.head is not None for _, r in refs], pa.bool_()),
        }
    )
