"""Reading data files at one snapshot: only the bytes needed, only the rows that are live.

Promise: the batches of a task hold each row of its file, in file order, that no marker deletes and
every filter selects, as columns of the snapshot's schema. Bytes are fetched for the footer, for the
filter columns of the row groups that statistics do not exclude (of their pages, where the page index
excludes many), and for the other columns of those row groups with a selected row (if few rows: for their
pages), and for nothing else but gaps (`ranges.GAP_BYTES`).

How a file is read, each line a round trip for all row groups of a unit together:

    open      the footer in one suffix GET, under a filter with the page index before it, without one
              with all of a file of `UNIT_BYTES` of which every column is wanted; with it
              the marker objects not in the cache                                     (`data_file`)
    absent    a block of each Bloom filter, where that may spare the rest          (`selection`)
    judge     the columns that filters and deletes look at; the pages of the others as well, where
              few rows are left                                                          (`decode`)
    rest      the other columns, where rows are left                                     (`decode`)

Units of adjacent row groups run ahead of the consumer within a budget of bytes (`parquet.read.ranges`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
from pyroaring import BitMap64

from inlay.format.entry import Marker
from inlay.format.schema import Schema
from inlay.parquet.arrow.functions import load_meanwhile
from inlay.parquet.arrow.types import positions_bitmap
from inlay.parquet.read import data_file
from inlay.parquet.read.data_file import UNITS_IN_BUDGET, OpenFile, in_units
from inlay.parquet.read.decode import Rows, reading_of
from inlay.parquet.read.ranges import Objects, Unit, run, run_ahead
from inlay.parquet.read.selection import Projection, RowFilter, narrowed
from inlay.plan.scan import FileTask
from inlay.record import Record, replace

# Bytes that may be in flight or decoded ahead of the consumer. One row group is always allowed.
READ_AHEAD_BYTES = 128 * 1024 * 1024
# Row groups are fetched together up to this many bytes, so that small ones share requests.
UNIT_BYTES = 8 * 1024 * 1024
# What a remembered count takes, its name included.
_COUNT_BYTES = 256
# Files whose footers are fetched ahead of the one being read.
OPEN_AHEAD = 32


class Ahead(Record, kw_only=True):
    """How far reading may run ahead. `first` starts with that many units and doubles, `unit_bytes` 0 makes
    each row group a unit: for a consumer that may stop early."""

    budget_bytes: int = READ_AHEAD_BYTES
    parallel: int = OPEN_AHEAD
    first: int | None = None
    unit_bytes: int = UNIT_BYTES


AHEAD = Ahead()
T = TypeVar("T")
ByTask = Iterator[tuple[FileTask, list[pa.RecordBatch]]]


class Reader(Record):
    """Reads files of a table: its objects, who runs requests and decoding, and how far ahead it reads."""

    objects: Objects
    executor: Executor
    ahead: Ahead = AHEAD

    def rows(self, tasks: Iterable[FileTask], projection: Projection) -> Iterator[pa.RecordBatch]:
        """The rows of tasks, in the order of tasks and rows, in batches of at most `BATCH_ROWS`, no batch
        spanning two files."""
        for _, batches in self.by_task(tasks, projection):
            yield from batches

    def by_task(self, tasks: Iterable[FileTask], projection: Projection) -> ByTask:
        """The same with the task that batches are of, those of one unit together. Tasks are taken from the
        iterable as reading gets to them."""
        number = 1
        if isinstance(tasks, Sequence):
            projection = narrowed(projection, tasks)
            number = len(tasks)
        return self.of_opened(self.opened(tasks, projection), projection, number)

    def positions(
        self, tasks: Iterable[FileTask], schema: Schema, where: RowFilter | None = None
    ) -> Iterator[tuple[FileTask, BitMap64]]:
        """For each task with any, the positions in its file of the live rows that its predicate and `where`
        select."""
        projection = Projection(schema=schema, columns=(), where=where, position=True)
        for _, parts in groupby(self.by_task(tasks, projection), key=lambda part: id(part[0])):
            positions = BitMap64()
            for task, batches in parts:  # noqa: B007 - it is the same in all parts
                for batch in batches:
                    positions |= positions_bitmap(batch.column(0))
            if positions:
                yield task, positions

    def counts(
        self, tasks: Iterable[FileTask], projection: Projection
    ) -> Iterator[tuple[FileTask, int]]:
        """For each task how many rows it has to give, by reading only what judges them. Counts of tasks by
        predicates and markers, which never change, are remembered in the cache of `objects`."""
        cache = self.objects.cache
        projection = replace(
            projection, columns=(), fields=None, position=False, file=False, limit=None
        )
        unknown: dict[str, FileTask] = {}
        for task in tasks:
            name = _count_name(task, projection)
            known = cache.get(name) if projection.where is None else None
            if known is None:
                unknown[name] = task
            else:
                yield task, known
        counts = dict.fromkeys(unknown, 0)
        names = {id(task): name for name, task in unknown.items()}
        for task, batches in self.by_task(list(unknown.values()), projection):
            counts[names[id(task)]] += sum(batch.num_rows for batch in batches)
        for name, rows in counts.items():
            if projection.where is None:
                cache.put(name, rows, _COUNT_BYTES)
            yield unknown[name], rows

    def open(self, task: FileTask, projection: Projection | None = None) -> OpenFile:
        """The footer and the deletes of one file, by default for none of its columns: one round trip."""
        projection = projection or Projection(schema=task.schema, columns=())
        return run(data_file.open_file(self.objects, task, projection), self.executor)

    def opened(self, tasks: Iterable[FileTask], projection: Projection) -> Iterator[OpenFile]:
        """The tasks' files in order, their footers and deletes fetched ahead; those come whole of which
        everything is wanted. Reading has the rest of the budget."""
        whole = min(self.ahead.unit_bytes, self._opening_bytes)

        def units() -> Iterator[Unit[OpenFile]]:
            for task in tasks:
                cost = data_file.first_bytes(task, projection, whole)
                opening = data_file.open_file(self.objects, task, projection, whole_bytes=whole)
                yield Unit(cost, opening)
                load_meanwhile(self.executor)

        return self._run(units(), self._opening_bytes)

    def of_opened(self, files: Iterator[OpenFile], projection: Projection, number: int) -> ByTask:
        """The rows of files, by task; so many share the connections. Closes the generator `files`."""
        budget = self.ahead.budget_bytes
        connections = max(1, self.ahead.parallel // max(1, number))

        def units() -> Iterator[Unit[tuple[FileTask, Rows]]]:
            for file in files:
                for piece in in_units(
                    file, projection, unit_bytes=self.ahead.unit_bytes, budget_bytes=budget
                ):
                    yield reading_of(file, piece, projection, connections)

        reading = self._run(units(), budget - self._opening_bytes)
        try:
            for task, rows in reading:
                yield task, rows()
        finally:
            # Outer first: it stops asking the inner one for more.
            reading.close()  # type: ignore[attr-defined]
            files.close()  # type: ignore[attr-defined]

    @property
    def _opening_bytes(self) -> int:
        """Of the budget. Files that come whole are held before they are read: both stay within it."""
        return self.ahead.budget_bytes // UNITS_IN_BUDGET

    def _run(self, units: Iterable[Unit[T]], budget_bytes: int) -> Iterator[T]:
        parallel, first = self.ahead.parallel, self.ahead.first
        return run_ahead(
            units, self.executor, budget_bytes=budget_bytes, parallel=parallel, first=first
        )


def _count_name(task: FileTask, projection: Projection) -> str:
    """A name of what is counted. Keys of files and of marker objects are never used again; nor are ids, but
    a rewrite moves positions under the marker's own id."""
    markers, only = ([_named(m) for m in those] for those in (task.markers, task.only))
    scope = repr(
        (projection.schema.id, markers, only, task.predicate, task.row_groups, task.by_rows)
    )
    return f"{task.file.key}#count {hashlib.blake2b(scope.encode(), digest_size=16).hexdigest()}"


def _named(marker: Marker) -> tuple[object, ...]:
    return (marker.id, marker.body) if marker.is_positional else (marker.id,)
