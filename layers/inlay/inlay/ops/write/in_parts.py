"""A write whose rows other processes write, and one commits, all at once.

Promise: the rows are in the table once or not at all, however often parts are written: the files of each
attempt have names of their own, and one commit under one request adds those that it is given. Files of
other attempts are unreachable, and garbage collection deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from inlay.errors import ConcurrentChange, InvalidRequest
from inlay.format import keys
from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import (
    WriteResult,
    already_applied,
    check_same_schema,
    commit,
    commit_planned,
    current_base,
    expect_committed,
    write_result,
)
from inlay.ops.context import Context
from inlay.ops.data import check_fits, write_rows
from inlay.ops.metadata.load import LoadedTable, load_entries, load_pointer, load_version
from inlay.ops.write.append import IngestSource
from inlay.ops.write.delete import marker_of
from inlay.ops.write.ingest import take_over
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AdvanceStream,
    Change,
    Reads,
    RemoveFiles,
    Request,
)
from inlay.plan.metadata.state import State
from inlay.plan.pruning.compared import compared_columns
from inlay.record import Record
from inlay.storage.base import Location


class PartedWrite(Record, kw_only=True):
    """What the processes that write and the one that commits need to know; it pickles.

    `table` is the table that the rows are written for, without entries: they are uploaded from its
    `date_us` on. `replaces` selects the rows that the same commit removes, as they were then;
    `by_partition`: those of the partitions that are written to. `stream` is the micro-batch of a query,
    which the table keeps for good. With `keeps_empty` a write without rows is a commit.
    """

    table: LoadedTable
    request: Request | None = None
    replaces: Predicate | None = None
    by_partition: bool = False
    stream: tuple[str, int] | None = None
    keeps_empty: bool = False

    # -- in any process -----------------------------------------------------------------------

    def write(self, ctx: Context, batches: Iterable[pa.RecordBatch]) -> tuple[DataFile, ...]:
        """The files of rows whose columns have the table's names. Raises `SchemaMismatch`, and
        `InvalidRequest` for a row that an overwrite would not replace."""
        time_us = self.table.date_us
        snapshot = self.table.snapshot
        return tuple(write_rows(ctx, snapshot, batches, time_us=time_us, only=self._within))

    def _within(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, each of which `replaces` selects: one that it does not would be there twice after the
        next run."""
        columns = columns_of(self.table.snapshot.schema)
        for batch in rows:
            if self.replaces is not None and selected(self.replaces, batch, columns).false_count:
                raise InvalidRequest(
                    "a row of the data is not one of those that the write replaces, and the next such "
                    "overwrite would leave it",
                    next_step="Filter the data by the same condition, or append those rows",
                )
            yield batch

    # -- in the one that commits --------------------------------------------------------------

    def applied(self, ctx: Context, loaded: LoadedTable) -> tuple[LoadedTable, int | None]:
        """The version in which the request was applied before, None: it was not; with the table and what
        was loaded to find that. Raises `RequestReused`, `RequestTooOld`, `TableHandedOver`."""
        loaded, done = already_applied(ctx, loaded, self.request)
        return loaded, None if done is None else done.version or loaded.snapshot.version

    def check(self, ctx: Context, loaded: LoadedTable) -> None:
        """Before anything is written. Raises `InvalidRequest` where it could not be committed."""
        if self.by_partition:
            self._replaced(load_entries(ctx, loaded.state), ())

    def commit(
        self, ctx: Context, files: Sequence[DataFile], *, base: LoadedTable | None = None
    ) -> None:
        """Adds the files. Raises `ConcurrentChange` when rows that an overwrite was not meant to replace
        were added meanwhile."""
        if not files and self.replaces is None and not self.keeps_empty:
            return
        loaded = base or load_pointer(ctx, before=self.table.snapshot)
        if self.by_partition:
            commit_planned(ctx, loaded, lambda now: self._by_partition(ctx, now, files))
            return
        added = AddFiles(tuple(files))
        stream = () if self.stream is None else (AdvanceStream(*self.stream),)
        change = Change(
            operation="append",
            request=self.request,
            uploaded_us=self.table.date_us,
            updates=(added, *stream),
        )
        if self.replaces is not None:
            change = Change(
                operation="overwrite",
                request=self.request,
                uploaded_us=self.table.date_us,
                deleted_rows=None,
                # The new rows have the commit's own sequence, so its marker does not hit them.
                updates=(added, AddMarkers((marker_of(ctx, loaded, self.replaces),))),
                # Rows that arrived while this job ran were not meant to be replaced.
                requires=(Reads(self.replaces, self.table.snapshot.version),),
            )
        expect_committed(ctx, commit(ctx, change, base=loaded))

    def _by_partition(
        self, ctx: Context, now: LoadedTable, files: Sequence[DataFile]
    ) -> Change | None:
        """None where the request has put rows there: they are newer than what it was to replace."""
        now, before = already_applied(ctx, now, self.request)
        if before is not None:
            return None
        state = load_entries(ctx, now.state)
        return Change(
            operation="overwrite",
            request=self.request,
            uploaded_us=self.table.date_us,
            deleted_rows=None,
            updates=(AddFiles(tuple(files)), RemoveFiles(self._replaced(state, files))),
            # Rows added to other partitions meanwhile only cause another plan.
            requires=(Reads(TRUE, now.snapshot.version),),
        )

    def _replaced(self, state: State, files: Sequence[DataFile]) -> tuple[str, ...]:
        """Keys of the live files in the partitions of these new files."""
        partitions = {file.partition for file in files}
        live = list(state.files())
        if any(file.spec_id != state.snapshot.spec_id for file in live):
            raise InvalidRequest(
                "files of an earlier partitioning may hold rows of any partition",
                next_step="Repartition them (pipelines.cluster), or select the rows by a condition",
            )
        replaced = [file for file in live if file.partition in partitions]
        if any(file.newest_rows > self.table.snapshot.version for file in replaced):
            raise ConcurrentChange(
                "rows were added meanwhile to a partition that is being replaced"
            )
        return tuple(file.key for file in replaced)

    def committed(self, ctx: Context) -> WriteResult:
        """What was committed under the request, by whichever process."""
        assert self.request is not None
        loaded = load_pointer(ctx)
        _, before = already_applied(ctx, loaded, self.request)
        if before is None and not self.keeps_empty:  # no rows
            return WriteResult(operation="append", committed=False, version=loaded.snapshot.version)
        version = loaded.snapshot.version if before is None else before.version
        version = version or loaded.snapshot.version
        commit_of = load_version(ctx, loaded.pointer, version).commit
        return WriteResult(
            operation="append",
            committed=True,
            version=version,
            commit_id=commit_of.id,
            added_rows=commit_of.added_rows or 0,
            added_files=commit_of.added_files,
            added_bytes=commit_of.added_bytes,
        )

    @staticmethod
    def check_fits(arrow: pa.Schema, schema: Schema) -> None:
        """Before anything is written. Raises `SchemaMismatch` where no data of this Arrow schema can be
        rows of a table, whatever values it has."""
        check_fits(arrow, schema)

    # -- by another writer of Parquet ---------------------------------------------------------

    @staticmethod
    def checks_values(snapshot: Snapshot) -> bool:
        """Whether the table has columns whose values are checked one by one, by `write` alone."""
        declared = Declared.of(snapshot)
        return any(map(declared.is_strict, declared.schema.fields))

    def folder(self, ctx: Context) -> str:
        """A new folder below the table for files of another writer, where garbage collection and erasures
        find what it leaves. It ends in a slash."""
        return keys.unfinished_prefix(self.table.date_us, ctx.new_id())

    def take_over(self, ctx: Context, folder: str, *, base: LoadedTable) -> WriteResult:
        """Appends the files that another writer has put there, in the table's types, under keys of the
        table's own. They count as another writer's: an erasure judges their rows, not their bounds."""
        assert self.request is not None
        event = self.request.token
        prefix = ctx.key(folder)
        sources = [
            IngestSource(Location(ctx.store.scheme, ctx.store.bucket, o.key), etag=o.etag)
            for o in ctx.store.list(prefix)
            if not IngestSource.is_ignored(o.key[len(prefix) :], size=o.size)
        ]

        def plan(now: LoadedTable) -> Change | None:
            check_same_schema(ctx, self.table, now)
            added = take_over(ctx, sources, now, event=event)
            if not added and not self.keeps_empty:
                return None
            compared = frozenset(compared_columns(now.snapshot))
            return Change(
                operation="append",
                request=self.request,
                uploaded_us=now.date_us,
                updates=(AddFiles(added, compared=compared),),
            )

        outcome = commit_planned(ctx, current_base(ctx, base), plan)
        return write_result("append", outcome)
