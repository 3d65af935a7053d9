"""Pinned: the snapshot that an open table, a scan or a feed shows, as values that pickle.

Promise: loaded again, here or in another process, it is the same snapshot of the same table, with one GET
while that is the newest, two or three otherwise; or a typed error: `TableReplaced` when another table has
replaced it, `VersionNotFound` when the version has expired. It contains no data and no credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from inlay.plan.refs import ref_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """`version` of the table with this id, on the context's branch; what is shown is `at`, an earlier
    version, or what `tag` refers to in it, if one of these was opened."""

    context: Context
    table_id: str
    version: int
    at: int | None = None
    tag: str | None = None

    def load(self) -> tuple[LoadedTable, Snapshot | None]:
        """The table at `version`, and the snapshot that is shown if that is in the past."""
        ctx = replace(self.context, table_id=self.table_id)
        main = read_main(ctx)
        current = main.pointer
        table = load_version(ctx, current, self.version)
        if table is not current:
            # An older pointer cannot be swapped: without an ETag the next write reads it again.
            main = replace(main, state=State(table), etag="")
        loaded = on_branch(ctx, main)
        if self.tag is not None:
            ref = find_ref(ctx, table, self.tag)
            found = ref_view(table, load_content(ctx, table, ref))
            return loaded, replace(found, version=ref.version)
        if self.at is not None:
            return loaded, load_seen(ctx, table, self.at)
        return loaded, None
