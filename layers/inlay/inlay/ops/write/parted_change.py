"""Changes of rows that other processes find: these read files of one version, name the rows that go by
their places in them, and write the new rows; one commit has it all.

Promise: what was found is committed if it still holds. Where others have changed one of the files
meanwhile, or added rows, all is found again in the newer version. With a request it is committed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyroaring import BitMap64

from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Field
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import (
    Planned,
    WriteResult,
    already_applied,
    commit_planned,
    write_result,
)
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_entries
from inlay.ops.write.delete_rows import by_vectors
from inlay.ops.write.in_parts import PartedWrite
from inlay.plan.change import AddFiles, Change, Reads, Request
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, plan_scan
from inlay.record import Record, replace

# By the key of a file, rows of it by their positions.
Positions = Mapping[str, BitMap64]


class PartedChange(Record, dict=True, kw_only=True):
    """The version in which the rows are found, with all its entries, and the change, once it is known."""

    ctx: Context
    table: LoadedTable
    request: Request | None = None
    change: Change | None = None

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot

    @property
    def writer(self) -> PartedWrite:
        """Of the new rows, in any process."""
        return PartedWrite(table=self.table.without_entries())

    @cached_property
    def _evidence(self) -> Evidence:
        return Evidence.of_snapshot(self.snapshot)

    def tasks(self, where: Predicate) -> Sequence[FileTask]:
        """The files that may have a row for which `where` is TRUE."""
        files, markers = self.table.state.files(), self.table.state.markers()
        return plan_scan(files, markers, where, evidence=self._evidence).tasks

    def bounds(self, task: FileTask, field: Field) -> tuple[Any, Any] | None:
        """The least and the greatest value that a column has in a file, in physical form; None where that
        is not known."""
        known = self._evidence.column(task.file, field.id)
        if known is None or known.lower is None or known.upper is None:
            return None
        if known.kind is not None and known.kind != field.type:
            return None  # of a narrower type, in other units perhaps
        return known.lower, known.upper

    def replacing(self, gone: Positions, files: Sequence[DataFile]) -> PartedChange:
        """The change by which these rows go, all of them live, and the rows of these new files come."""
        emptied, markers = by_vectors(self.ctx, self.table, gone)
        change = Change(
            operation="merge",
            request=self.request,
            uploaded_us=self.table.date_us,
            deleted_rows=sum(map(len, gone.values())),
            updates=(AddFiles(tuple(files)), markers, emptied),
            requires=(Reads(TRUE, self.snapshot.version, frozenset(gone)),),
        )
        return replace(self, change=change)

    @classmethod
    def commit(
        cls,
        ctx: Context,
        loaded: LoadedTable,
        find: Callable[[PartedChange], PartedChange | None],
        *,
        request: Request | None,
        plans: int,
    ) -> WriteResult:
        """Commits what `find` returns (`replacing`; None: nothing is to be done), which is called at most
        `plans` times."""
        loaded, before = already_applied(ctx, loaded, request)
        if before is not None:
            return write_result("merge", before)

        def plan(now: LoadedTable) -> Planned | None:
            now = replace(now, state=load_entries(ctx, now.state))
            planned = find(cls(ctx=ctx, table=now, request=request))
            if planned is None:
                return None
            assert planned.change is not None
            return Planned(planned.change, now)

        return write_result("merge", commit_planned(ctx, loaded, plan, plans=plans))


def united(maps: Sequence[Positions]) -> dict[str, BitMap64]:
    """The rows of all of these."""
    whole: dict[str, BitMap64] = {}
    for positions in maps:
        for key, rows in positions.items():
            whole[key] = whole.get(key, BitMap64()) | rows
    return whole
