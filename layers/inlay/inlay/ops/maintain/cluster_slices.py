"""Clustering in slices of any size: another engine orders their rows, many processes write them as one run,
and each slice is committed on its own.

Promise: every reader sees the same rows before and after. Appends and deletes continue; a slice whose files
they affect is left for the next run, and only its own work is lost. Which files are worth it: those in
partitions with as many runs as merging takes, and those of another partitioning. Files that an erasure has
to rewrite are left to it: it counts the rows it removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.values import order_key
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.context import Context
from inlay.ops.maintain.compact import write_run
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, load_again
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.write.partition import Split
from inlay.plan.change import Change, ReplaceFiles, Unit
from inlay.plan.maintain.clustering import MIN_RUNS, runs_of
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.maintain.order import Order, order_of
from inlay.plan.pruning.partitions import group_key, spans_partitions
from inlay.plan.pruning.prune import Evidence, may_match
from inlay.plan.scan import FileTask
from inlay.record import Record


class ClusterPlan(Record):
    """Slices of files that are close in the `order`; `others` files need none. As what the processes that
    write a slice need to know (`writer`) it has none of these, and pickles: what they write is one `run`
    (None: of no order)."""

    loaded: LoadedTable
    order: Order | None
    slices: tuple[tuple[FileTask, ...], ...]
    others: int
    run: int | None = None

    @classmethod
    def of(
        cls,
        ctx: Context,
        loaded: LoadedTable,
        *,
        where: Predicate = TRUE,
        older_than: int | None = None,
        slice_bytes: int,
    ) -> ClusterPlan:
        """The files to rewrite that may hold a row for which `where` is TRUE, in slices of about
        `slice_bytes`. With `older_than`, files of earlier versions are out of order, too. Raises
        `InvalidRequest` for a table with neither order nor partitions."""
        loaded = with_entries(ctx, loaded)
        order = order_of(loaded.snapshot)
        if order is None and not loaded.snapshot.spec.fields:
            raise InvalidRequest(
                f"{ctx.uri} has no order to cluster by",
                next_step='Set compact.strategy to "sort" or "zorder", and compact.columns',
            )
        evidence = Evidence.of_snapshot(loaded.snapshot)
        tasks = _worth_it(loaded, where, older_than or 0, evidence)
        slices: list[list[FileTask]] = []
        size = slice_bytes
        for task in sorted(tasks, key=lambda task: _place(task, order, evidence)):
            if size + task.file.size > slice_bytes:
                slices.append([])
                size = 0
            slices[-1].append(task)
            size += task.file.size
        others = loaded.snapshot.totals.files - len(tasks)
        return cls(loaded, order, tuple(map(tuple, slices)), others)

    def writer(self, ctx: Context) -> ClusterPlan:
        """Of one slice."""
        run = None if self.order is None else ctx.random.getrandbits(31)
        return ClusterPlan(self.loaded.without_entries(), self.order, (), 0, run)

    def commit(
        self, ctx: Context, tasks: Sequence[FileTask], outputs: Sequence[DataFile]
    ) -> tuple[bool, int]:
        """Replaces the files of a slice; (False, …) where others changed one of them meanwhile. With the
        table's version afterwards."""
        unit = Unit(
            inputs=tuple(t.file.key for t in tasks),
            outputs=tuple(outputs),
            version=self.loaded.snapshot.version,
            applied=frozenset(m.id for t in tasks for m in t.markers if m.file is not None),
        )
        change = Change(
            operation="compact",
            uploaded_us=self.loaded.date_us,
            deleted_rows=0,
            updates=(ReplaceFiles((unit,)),),
        )
        outcome = commit(ctx, change, base=load_again(ctx, self.loaded))
        is_in = isinstance(outcome, Committed) and not outcome.skipped
        return is_in, outcome.loaded.snapshot.version

    # -- in the processes that write ----------------------------------------------------------

    @property
    def schema(self) -> Schema:
        return self.loaded.snapshot.schema

    @property
    def has_partitions(self) -> bool:
        return bool(self.loaded.snapshot.spec.fields)

    def by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each partition, with a text that names it."""
        for partition, rows in Split(self.loaded.snapshot.spec, self.schema)(batch):
            yield repr(partition), rows

    def write(self, ctx: Context, batches: Iterable[pa.RecordBatch]) -> Iterator[DataFile]:
        """The files of rows that arrive in order, with the table's columns by position: each file is
        written as its rows arrive."""
        renamed = (batch.rename_columns(list(self.schema.names)) for batch in batches)
        rows = conformed(renamed, self.schema, self.schema, by_value=True)
        return write_run(ctx, self.loaded, rows, self.run)


def _worth_it(
    loaded: LoadedTable, where: Predicate, older_than: int, evidence: Evidence
) -> list[FileTask]:
    snapshot = loaded.snapshot
    live = [
        t
        for t in live_tasks(loaded.state, loaded.state.files(), loaded.state.markers()).values()
        if may_match(where, evidence.of(t.file), t.file.rows)
        and not any(m.erasure for m in t.markers)
    ]
    groups: dict[object, list[FileTask]] = {}
    for task in live:
        groups.setdefault(group_key(task.file), []).append(task)
    many = {key for key, group in groups.items() if runs_of(t.file for t in group) >= MIN_RUNS}

    def is_out_of_order(file: DataFile) -> bool:
        cut_otherwise = file.spec_id != snapshot.spec_id or spans_partitions(file, snapshot.specs)
        return cut_otherwise or (file.sequence or 0) < older_than

    return [t for t in live if group_key(t.file) in many or is_out_of_order(t.file)]


def _place(task: FileTask, order: Order | None, evidence: Evidence) -> tuple[Any, ...]:
    stats = None if order is None else evidence.column(task.file, order.columns[0])
    low = None if stats is None else stats.lower
    known = 0 if low is None else order_key(low)
    return (str(group_key(task.file)), low is None, known, task.file.key)
