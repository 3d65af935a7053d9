"""What versions of a table changed, planned by one process and read in parts by many: all changes, or only
the rows that were added.

Promise: the parts of a range of versions have what `ops.feed.Changes` returns for it, each row once; those
of added rows leave out what was deleted, and nothing else. Units of an update are in one part, because its
rows are paired. A part has a step, or some units of one, without the statistics of its files; it pickles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from inlay.errors import VersionNotFound
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.feed import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    FeedRows,
    plan_steps,
    seen_at,
)
from inlay.ops.metadata.load import LoadedTable, load_entries, load_pointer, load_seen
from inlay.ops.read.scan import Scan
from inlay.parquet.read.reader import AHEAD, Ahead
from inlay.plan.feed import FeedUnit, Step, reported_schema
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.refs import MERGE
from inlay.plan.scan import FileTask, plan_scan
from inlay.record import Record, replace


class FeedParts(Record, kw_only=True):
    """Columns `ids` of `schema`, of the rows that `where` selects. `key` is the table's primary key, by
    which updates are paired; () for none. A part, or the changes of one version, are the same with their
    `step`."""

    schema: Schema
    ids: tuple[int, ...]
    key: tuple[int, ...] = ()
    where: Predicate = TRUE
    step: Step | None = None
    # The columns of a change, after the table's.
    COLUMNS: ClassVar = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)

    @staticmethod
    def schema_of(snapshot: Snapshot, start: int | None) -> Schema:
        """Of the changes from version `start` (None: any) up to `snapshot`."""
        return reported_schema(snapshot, max((start or 0) - 1, 0))

    # -- planning -----------------------------------------------------------------------------

    def steps(self, ctx: Context, since: int, to: int) -> Iterator[FeedParts]:
        """The changes of each version after `since`. Raises `VersionNotFound` where they have expired."""
        table = load_pointer(ctx).pointer
        if since < to and max(since, 1) < table.oldest_version:
            raise VersionNotFound(
                f"changes since version {since} of {ctx.uri} are no longer available: the versions "
                f"before {table.oldest_version} have expired",
                next_step=f"Start at version {table.oldest_version + 1} or later",
                table=ctx.uri,
                version=since,
            )
        for step in self._between(ctx, table, since, load_seen(ctx, table, to)):
            yield replace(self, step=step)

    def _between(self, ctx: Context, table: Snapshot, since: int, to: Snapshot) -> Iterator[Step]:
        return plan_steps(ctx, table, since, to, schema=self.schema, predicate=self.where)

    def rows_there(self, ctx: Context, version: int) -> FeedParts:
        """All rows of a version, as if it had added them all."""
        snapshot = load_seen(ctx, load_pointer(ctx).pointer, version)
        others = tuple(s for s in snapshot.schemas if s.id != self.schema.id)
        in_its_columns = replace(snapshot, schemas=(*others, self.schema), schema_id=self.schema.id)
        scan = Scan(ctx, State(in_its_columns), where=self.where)
        step = Step(
            version=version,
            time_us=snapshot.commit.time_us,
            operation="append",
            schema=self.schema,
            units=tuple(FeedUnit((), (task,)) for task in scan.plan.tasks),
        )
        return replace(self, step=step)

    def parts(self, ctx: Context) -> Iterator[FeedParts]:
        """Of a step."""
        if self._rows(ctx).pairs(self._step):
            yield self._part(self._step, self._step.units)
        else:
            yield from (self._part(self._step, (unit,)) for unit in self._step.units)

    def added(
        self, ctx: Context, current: LoadedTable, version: int, *, live: bool = False
    ) -> Sequence[FileTask | FeedParts]:
        """What a version adds: files to read, and parts to compare with what they replaced (`read_added`);
        with `live` all its live rows. () for a version that is yet to come. One GET, unless it is the
        `current` one."""
        if version == current.snapshot.version:
            state = current.state
        elif version > current.snapshot.version:
            return ()
        else:
            state = State(seen_at(ctx, current.pointer, version))
        if live:
            return Scan(ctx, state, where=self.where).plan.tasks
        snapshot = state.snapshot
        commit = snapshot.commit
        if snapshot.replaced == version or (commit.operation, commit.branch) == (MERGE, ctx.branch):
            return list(self._compared(ctx, current.pointer, snapshot))
        if not commit.added_files or commit.branch != ctx.branch:
            return ()
        state = load_entries(ctx, state)
        files = (f for f in state.files() if f.sequence == version and f.data_change)
        # The version's own deletes are of earlier rows. Those of erasures opened since hide rows of these.
        evidence = Evidence.of_snapshot(snapshot)
        return plan_scan(files, state.markers(), self.where, evidence=evidence).tasks

    def _compared(
        self, ctx: Context, table: Snapshot, snapshot: Snapshot
    ) -> Iterator[FileTask | FeedParts]:
        """What a version has that its predecessor had not. Its files may be older than the version."""
        for step in self._between(ctx, table, snapshot.version - 1, snapshot):
            for unit in step.units:
                if unit.before and unit.after:
                    yield self._part(step, (unit,))
                else:
                    yield from unit.after

    def _part(self, step: Step, units: tuple[FeedUnit, ...]) -> FeedParts:
        """Some units of a step, without the statistics of their files, which are no longer needed."""
        bare = tuple(
            FeedUnit(
                tuple(replace(t, file=replace(t.file, stats={})) for t in unit.before),
                tuple(replace(t, file=replace(t.file, stats={})) for t in unit.after),
            )
            for unit in units
        )
        return replace(self, step=replace(step, units=bare))

    @property
    def _step(self) -> Step:
        assert self.step is not None, "a part, or the changes of a version"
        return self.step

    @property
    def version(self) -> int:
        return self._step.version

    @property
    def tasks(self) -> Sequence[FileTask]:
        """The files with rows that went, or came."""
        return self._step.tasks

    @property
    def added_bytes(self) -> int:
        """Of the files with rows that came."""
        return sum(task.file.size for unit in self._step.units for task in unit.after)

    # -- reading, in any process --------------------------------------------------------------

    def read(self, ctx: Context, *, budget_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
        """The changes, with the columns of the feed; at most `budget_bytes` are read ahead."""
        return self._rows(ctx, budget_bytes).batches(self._step)

    def read_added(
        self, ctx: Context, *, budget_bytes: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that were added, alone."""
        for sign, rows in self._rows(ctx, budget_bytes).signed(self._step):
            if sign > 0:
                yield from rows.to_batches()

    def _rows(self, ctx: Context, budget_bytes: int | None = None) -> FeedRows:
        ahead = AHEAD
        if budget_bytes is not None:
            ahead = Ahead(budget_bytes=budget_bytes, parallel=ctx.parallel)
        return FeedRows(ctx=ctx, schema=self.schema, ids=self.ids, key=self.key, ahead=ahead)
