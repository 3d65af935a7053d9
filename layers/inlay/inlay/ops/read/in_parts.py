"""The rows of a snapshot, planned by one process and read in parts by many.

Promise: the tasks of a plan have the rows that a scan of the snapshot gives, each in one task; whoever
divides tasks among processes, or a task by its row groups, has them once, too. A task is a value that
pickles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import ClassVar

import pyarrow as pa

from inlay.arguments import time_us
from inlay.format.predicate import Predicate, field_ids
from inlay.format.schema import Field, Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.context import Context
from inlay.ops.metadata.load import load_past, load_pointer
from inlay.ops.read.scan import Scan
from inlay.parquet.read.reader import Ahead
from inlay.parquet.read.selection import FILE_COLUMN, POSITION_COLUMN, Projection, top_columns
from inlay.plan.metadata.state import State
from inlay.plan.scan import FileTask
from inlay.record import Record, replace


class ScanParts(Record, kw_only=True):
    """Columns `ids` of `schema`, in this order; with `placed` two more: each row's place in its file, and
    the file's key."""

    schema: Schema
    ids: tuple[int, ...]
    placed: bool = False
    PLACE: ClassVar = (POSITION_COLUMN, FILE_COLUMN)

    # -- planning -----------------------------------------------------------------------------

    @staticmethod
    def snapshot(
        ctx: Context, *, version: int | None = None, as_of_us: int | None = None
    ) -> Snapshot:
        """The newest one, or that of a version or a time, without rows that are being erased. One GET, two
        for the past, and one more for a tag or branch."""
        if version is None and as_of_us is None:
            return load_pointer(ctx).snapshot
        return load_past(ctx, version=version, as_of_us=as_of_us or 0)

    @staticmethod
    def as_of_us(text: datetime | str) -> int:
        """The time of `snapshot`; UTC without a zone. Raises `InvalidRequest`."""
        return time_us(text)

    @staticmethod
    def plan(
        ctx: Context,
        snapshot: Snapshot,
        where: Predicate | str | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> tuple[FileTask, ...]:
        """The files to read. Raises what `Scan` raises for a condition, or for these columns."""
        return Scan(ctx, State(snapshot), columns=columns, where=where).plan.tasks

    @staticmethod
    def count(ctx: Context, snapshot: Snapshot, where: Predicate | str | None = None) -> int:
        """The number of rows, without others' help."""
        return Scan(ctx, State(snapshot), where=where).count()

    def looks_at(self, *predicates: Predicate) -> list[Field]:
        """The columns that are read with these conditions, in the schema's order."""
        fields = frozenset[int]().union(*map(field_ids, predicates))
        asked = {*self.ids, *top_columns(self.schema, fields)}
        return [field for field in self.schema.fields if field.id in asked]

    # -- reading, in any process --------------------------------------------------------------

    def read(
        self,
        ctx: Context,
        tasks: Iterable[FileTask],
        *,
        budget_bytes: int | None = None,
        first: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows, in the order of tasks. With `budget_bytes` at most these (or one row group) are read
        ahead, by the context's requests in flight, and `first` that many units: for who may stop early."""
        reader = ctx.reader
        if budget_bytes is not None:
            ahead = Ahead(budget_bytes=budget_bytes, parallel=ctx.parallel, first=first)
            reader = replace(reader, ahead=ahead)
        projection = Projection(
            schema=self.schema, columns=self.ids, position=self.placed, file=self.placed
        )
        return reader.rows(tasks, projection)
