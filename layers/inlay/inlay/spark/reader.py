"""Reading a table from Spark: planned once on the driver, read in tasks on the executors.

Promise: Spark sees exactly the rows `Table.scan` gives of the same version: planning is `ops.scan`'s,
and a task is read by `parquet.reader`, which takes deleted rows out before Spark sees them. Files that
cannot match are left out before there are tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from inlay.format.predicate import TRUE, And, Predicate
from inlay.ops.scan import Scan
from inlay.parquet.reader import Ahead, Wanted, read_tasks
from inlay.parse import parse_predicate
from inlay.plan.state import State
from inlay.spark.batches import gathered
from inlay.spark.connect import THREADS, connect
from inlay.spark.filters import predicate_of
from inlay.spark.options import ReadOptions
from inlay.spark.partitions import FilePartition, plan_partitions
from inlay.spark.types import arrow_for, check_asked, to_spark

# Several tasks share an executor's memory, and Spark does not count what Python takes.
READ_AHEAD_BYTES = 64 * 1024 * 1024


class InlayReader(DataSourceReader):  # type: ignore[misc]  # pyspark is untyped here
    """One scan. Made on the driver, with the table's `state`; sent to each task without it."""

    def __init__(self, options: ReadOptions, state: State, asked: StructType) -> None:
        schema = state.snapshot.schema
        check_asked(asked, schema)
        self._options = options
        self._arrow = arrow_for(asked)
        ids = {field.name: field.id for field in schema.fields}
        self._wanted = Wanted(schema=schema, columns=tuple(ids[name] for name in asked.names))
        self._where: Predicate = TRUE
        if options.where is not None:
            self._where = parse_predicate(options.where, schema)
        self._state: State | None = state

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}

    # -- on the driver ------------------------------------------------------------------------

    @property
    def pushFilters(self) -> _Pushed:  # noqa: N802 - Spark's name
        return _Pushed(self)

    def push(self, filters: list[Any]) -> Iterable[Any]:
        """Take filters to prune by; all of them are Spark's to check again."""
        pushed = predicate_of(filters, self._wanted.schema)
        parts = tuple(p for p in (self._where, pushed) if p != TRUE)
        self._where = And(parts) if len(parts) > 1 else next(iter(parts), TRUE)
        return filters

    def partitions(self) -> list[FilePartition]:
        assert self._state is not None, "partitions are planned on the driver"
        scan = Scan(connect(self._options.uri), self._state, where=self._where)
        return plan_partitions(
            scan.plan.tasks,
            partition_bytes=self._options.partition_bytes,
            # Planning runs beside the driver, which knows of no executors: on a local master these
            # are its cores, on a cluster large tables have partitions enough anyway.
            parallelism=self._options.parallelism or os.cpu_count() or 1,
        )

    # -- on the executors ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without any partition Spark makes one of its own.
        tasks = partition.tasks if isinstance(partition, FilePartition) else ()
        ctx = connect(self._options.uri)
        # A LIMIT stops asking early, and nobody tells the source: begin with one unit.
        ahead = Ahead(budget_bytes=READ_AHEAD_BYTES, parallel=THREADS, first=1)
        rows = read_tasks(ctx.objects, tasks, self._wanted, ctx.executor, ahead=ahead)
        return (to_spark(batch, self._arrow) for batch in gathered(rows))


class _Pushed:
    """`pushFilters` for sessions with and without filter pushdown.

    Without it Spark refuses a reader that overrides the method, which it finds out by comparing
    `pushFilters.__func__` with the base class's; with it, Spark just calls. So this shows the base's
    function and does its own when called.
    """

    def __init__(self, reader: InlayReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader.push(filters)
