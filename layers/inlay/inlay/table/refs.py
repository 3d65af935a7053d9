"""`t.refs`: tags, branches, and going back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING

from inlay import arguments
from inlay.errors import InvalidRequest
from inlay.format.snapshot import Ref, Snapshot, make_note
from inlay.ops import refs as refs_op
from inlay.ops.metadata.load import find_ref, load_as_of, load_content, on_branch
from inlay.plan.change import Request
from inlay.plan.refs import MAIN
from inlay.record import replace

if TYPE_CHECKING:
    from inlay.ops.commit.driver import WriteResult
    from inlay.table import Table


@arguments.all_checked
class Refs:
    """The tags and branches of one table: `t.refs`; `t.inspect.refs()` lists them."""

    __slots__ = ("_table",)

    def __init__(self, table: Table) -> None:
        self._table = table

    def tag(self, name: str, version: int | None = None, *, hold: bool = False) -> WriteResult:
        """Name this snapshot, or a version that can still be read: it is kept until the tag is dropped.
        `hold` is a legal hold, which `drop` and erasures must respect."""
        at = None if version is None else arguments.whole_number(version, "version")
        source = self._source(at)
        return self._table._edit("tag", lambda ctx: refs_op.tag(ctx, name, source, hold=hold))

    def branch(self, name: str, at: int | str | None = None) -> Table:
        """Begin a branch at this snapshot, or at a version, tag or branch; the table of it. It can be
        written to, compacted and altered on its own, and merged back."""
        if at is not None and not isinstance(at, str):
            at = arguments.whole_number(at, "at")
        table = self._table._loaded.pointer if at is None else self._table._main().pointer
        source = self._source(at, table)
        # Read before it is made: nothing is left that could fail after the commit.
        content = load_content(replace(self._table._ctx, branch=None), table, source)
        outcome = refs_op.branch(self._table._ctx, name, source)
        self._table._edit("branch", lambda ctx: outcome)
        ctx = replace(self._table._ctx, branch=name)
        return type(self._table)(ctx, on_branch(ctx, outcome.loaded, content=content))

    def drop(self, name: str) -> WriteResult:
        """Forget a tag or branch. Raises `RefHeld` for a tag under a legal hold."""
        return self._table._edit("drop_ref", lambda ctx: refs_op.drop(ctx, name))

    def set_hold(self, name: str, hold: bool = True) -> WriteResult:
        """Put a tag under a legal hold, or lift it."""
        return self._table._edit("set_hold", lambda ctx: refs_op.set_hold(ctx, name, bool(hold)))

    def fast_forward(
        self,
        branch: str,
        *,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Let main be what the branch is. Raises `MergeConflict` when main has changed since. Nothing is
        done, and `committed` is False, where the branch has no commit of its own: main may be ahead."""
        return self._table._edit(
            "fast_forward",
            lambda ctx: refs_op.fast_forward(ctx, branch),
            make_note(message, metadata),
        )

    def merge(
        self,
        branch: str,
        *,
        request_id: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Bring what a branch did into main: rows it added, rows it deleted. Both are even afterwards. A
        row that both changed, by an update or upsert, is there as each made it: twice, under one key.
        What both had in common and `restore` has taken back from main since is on neither side then: the
        result's `note` says so, and a merge that would do only that is refused.
        With `request_id` it is done once: a merge that had this id before is not done again.
        Raises `MergeConflict`, which names the file, when both rewrote or one rewrote what the other
        deleted from."""
        from inlay.ops.write import true_statistics as keyed_op

        request = Request.named(request_id, f"merge {branch}")
        return self._table._edit(
            "merge_branch",
            lambda ctx: keyed_op.merge(ctx, branch, request),
            make_note(message, metadata),
        )

    def restore(
        self,
        *,
        version: int | None = None,
        as_of: datetime | date | str | None = None,
        ref: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        """Make rows and columns what they were, as a new commit; the history stays. On a branch's table
        it is the branch that goes back. After `ref=` a branch, main and the branch are even: what was done
        on it is done, and a later `merge` brings only what comes after."""
        if sum(x is not None for x in (version, as_of, ref)) != 1:
            raise InvalidRequest(
                "give one of version=, as_of= and ref= to restore", table=self._table.uri
            )
        if as_of is not None:
            table = self._table._main().pointer
            version = load_as_of(self._table._ctx, table, arguments.time_us(as_of)).version
        source = self._source(ref or version)
        return self._table._edit(
            "restore",
            lambda ctx: refs_op.restore(ctx, source, name=ref),
            make_note(message, metadata),
        )

    def _source(self, at: int | str | None, table: Snapshot | None = None) -> Ref:
        """What a number or name stands for now, in `table` where that was read; None is this snapshot."""
        if at is not None:
            return refs_op.source_of(self._table._ctx, table or self._table._main().pointer, at)
        if self._table.ref != MAIN:
            return find_ref(self._table._ctx, self._table._loaded.pointer, self._table.ref)
        return Ref(kind="tag", version=self._table.version)
