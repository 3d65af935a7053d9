"""An executor's part of a read: files of a partition to batches for Spark.

Promise: the rows of the partition's tasks, without deleted ones, in exactly the columns that Spark
requested. A value that pickles and goes to every task, so it contains only the table's schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from inlay.format.schema import Schema
from inlay.spark.connect import THREADS, connect
from inlay.spark.partitions import FilePartition
from inlay.spark.types import arrow_for, check_asked, column_ids, to_spark

# What only an executor needs is imported there: the process that plans makes this value, too.
if TYPE_CHECKING:
    import pyarrow as pa

    from inlay.parquet.read.selection import Wanted
    from inlay.plan.feed import Step

# Several tasks share an executor's memory, and Spark does not count Python's.
READ_AHEAD_BYTES = 64 * 1024 * 1024


class TaskReader:
    """Reads partitions of the table at `uri`, whose snapshot has `schema`, as `asked`. Raises
    `SchemaMismatch` when the table does not have what is requested."""

    def __init__(self, uri: str, schema: Schema, asked: StructType) -> None:
        check_asked(asked, schema)
        self._uri = uri
        self._schema = schema
        self._asked = asked
        self._columns = column_ids(schema, asked.names)

    @property
    def _wanted(self) -> Wanted:
        from inlay.parquet.read.selection import Wanted

        return Wanted(schema=self._schema, columns=self._columns)

    def read_added(self, step: Step) -> Iterator[pa.RecordBatch]:
        """The rows that a step of the change feed added."""
        from inlay.ops.feed import FeedRows
        from inlay.parquet.read.reader import Ahead

        ahead = Ahead(budget_bytes=READ_AHEAD_BYTES, parallel=THREADS)
        ctx = connect(self._uri)
        rows = FeedRows(ctx=ctx, schema=self._schema, ids=self._columns, ahead=ahead)
        added = (b for sign, found in rows.signed(step) if sign > 0 for b in found.to_batches())
        return self._for_spark(added)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from inlay.parquet.read.reader import Ahead, read_tasks

        # If there are no partitions, Spark makes one of its own.
        tasks = partition.tasks if isinstance(partition, FilePartition) else ()
        ctx = connect(self._uri)
        # A LIMIT stops reading early, without notice to the source: begin with one unit.
        ahead = Ahead(budget_bytes=READ_AHEAD_BYTES, parallel=THREADS, first=1)
        return self._for_spark(
            read_tasks(ctx.objects, tasks, self._wanted, ctx.executor, ahead=ahead)
        )

    def _for_spark(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from inlay.spark.batches import gathered

        arrow = arrow_for(self._asked)
        return (to_spark(batch, arrow) for batch in gathered(rows))
