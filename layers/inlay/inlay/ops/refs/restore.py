"""Restore: an earlier content becomes the current one, in a new commit.

Promise: the rows and columns are exactly those of a version, tag or branch that is still kept; nothing else
goes back: versions, ids, the ledger, erasures, the GC boundary and other refs stay as they are. Applied
requests stay applied. Rows of an open erasure do not come back.
"""

from __future__ import annotations

from dataclasses import replace

from inlay.format.snapshot import Ref, Snapshot
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.context import Context
from inlay.ops.metadata.load import find_ref, load_content
from inlay.ops.refs.refs import check_retained, edit_refs
from inlay.plan.change import THIS_VERSION, Change, ReplaceContent, Retained, SetRefs

RESTORE = "restore"
EVEN = Ref(kind="branch", version=THIS_VERSION, base=THIS_VERSION, since=THIS_VERSION)


def restore(ctx: Context, source: Ref, *, name: str | None = None) -> Committed | Skipped:
    """Gives main, or the context's branch, the content of `source`. `name` is the branch that `source` is,
    if it is one; it is level with main afterwards."""
    if ctx.branch is not None:
        return _restore_branch(ctx, ctx.branch, source)

    def change(table: Snapshot) -> Change:
        check_retained(ctx, table, source)
        refs: dict[str, Ref] = {}
        if source.head is not None:
            # Main gets files that a branch may have added: what the two have in common is no longer known.
            refs = {n: replace(r, base=0) for n, r in table.refs.items() if r.base}
        if name is not None and table.refs.get(name) == source and source.kind == "branch":
            refs[name] = EVEN
        content = load_content(replace(ctx, branch=None), table, source)
        were = {n: table.refs[n] for n in refs}
        return Change(
            operation=RESTORE,
            updates=(ReplaceContent(content), SetRefs(refs, were)),
            requires=(Retained(source),),
        )

    return edit_refs(ctx, change)


def _restore_branch(ctx: Context, branch: str, source: Ref) -> Committed | Skipped:
    """A branch is a name: it is made to refer to the content, as if it had been created on it."""

    def change(table: Snapshot) -> Change:
        there = find_ref(ctx, table, branch)
        check_retained(ctx, table, source)
        base = source.version if source.head is None else 0
        new = replace(
            there, version=source.version, head=source.head, base=base, since=THIS_VERSION
        )
        update = SetRefs({branch: new}, {branch: there})
        return Change(operation=RESTORE, updates=(update,), requires=(Retained(source),))

    return edit_refs(ctx, change)
