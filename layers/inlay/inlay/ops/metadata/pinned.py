"""Pinned: which snapshot an open table, a scan or a feed shows, as values that pickle.

Promise: read again, here or in another process, it is the same snapshot of the same table, at one GET
while that is the newest, two or three otherwise; or a typed error: `TableReplaced` when another table is
there now, `VersionNotFound` when the version has expired. Nothing of the data is in it, and no credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlay.errors import TableReplaced
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.metadata.load import (
    LoadedTable,
    find_ref,
    load_content,
    load_seen,
    load_version,
    on_branch,
    read_main,
)
from inlay.plan.metadata.state import State
from inlay.plan.refs.refs import ref_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """`version` of the table with this id, as the context's branch has it; shown is `at`, a version
    before it, or what `tag` names in it, where one of these was opened."""

    context: Context
    table_id: str
    version: int
    at: int | None = None
    tag: str | None = None

    def load(self) -> tuple[LoadedTable, Snapshot | None]:
        """The table as it was at `version`, and what is shown of it where that is in the past."""
        ctx = self.context
        main = read_main(ctx)
        current = main.pointer
        if current.table_id != self.table_id:
            raise TableReplaced(f"{ctx.uri} is another table now", table=ctx.uri)
        table = load_version(ctx, current, self.version)
        if table is not current:
            # An older pointer is no base to swap on: without an ETag the next write reads it again.
            main = replace(main, state=State(table), etag="")
        loaded = on_branch(ctx, main)
        if self.tag is not None:
            ref = find_ref(ctx, table, self.tag)
            found = ref_view(table, load_content(ctx, table, ref))
            return loaded, replace(found, version=ref.version)
        if self.at is not None:
            return loaded, load_seen(ctx, table, self.at)
        return loaded, None
