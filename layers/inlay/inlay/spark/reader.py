"""Reading a table from Spark: planned once on the driver, read in tasks on the executors.

Promise: Spark sees exactly the rows that `Table.scan` gives for the same version: `ScanParts` plans,
and reads each task without its deleted rows. Files that cannot
match are excluded before there are tasks.

It accepts no pushed filters (`pushFilters`), whatever the session requests: Spark 4.2 and 4.3 keep the plan
made for the filters of one query with the DataFrame, and use it in every later query of the same DataFrame,
even with other filters. The option `where` selects the rows of a DataFrame.

An executor's part of a read is `TaskReader`: a value that pickles and goes to every task, so it contains
only the table's schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from inlay.engine import Predicate, Schema, Snapshot
from inlay.errors import InvalidRequest
from inlay.spark.conditions import TRUE
from inlay.spark.connect import connect
from inlay.spark.errors_in_words import in_words
from inlay.spark.options import ReadOptions
from inlay.spark.partitions import FilePartition, plan_partitions
from inlay.spark.types import arrow_for, check_asked, column_ids, to_spark

# Every Python worker of an executor imports this module, and the process that plans: what only one of them
# needs is imported inside the functions.
if TYPE_CHECKING:
    import pyarrow as pa

    from inlay.engine import FeedParts

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

    def read_added(self, part: FeedParts) -> Iterator[pa.RecordBatch]:
        """The rows that a part of the change feed added."""
        asked = replace(part, ids=self._columns)
        return self._for_spark(asked.read_added(connect(self._uri), budget_bytes=READ_AHEAD_BYTES))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from inlay.engine import ScanParts

        # If there are no partitions, Spark makes one of its own.
        tasks = partition.tasks if isinstance(partition, FilePartition) else ()
        scan = ScanParts(schema=self._schema, ids=self._columns)
        # A LIMIT stops reading early, without notice to the source: begin with one unit.
        rows = scan.read(connect(self._uri), tasks, budget_bytes=READ_AHEAD_BYTES, first=1)
        return self._for_spark(rows)

    def _for_spark(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from inlay.spark.batches import gathered

        arrow = arrow_for(self._asked)
        return (to_spark(batch, arrow) for batch in gathered(rows))


@in_words
class InlayReader(DataSourceReader):  # type: ignore[misc]  # pyspark is untyped here
    """One scan. Made on the driver, with the table's `snapshot`; sent to each task without it."""

    def __init__(self, options: ReadOptions, snapshot: Snapshot, asked: StructType) -> None:
        if options.is_stream:
            raise InvalidRequest(
                "the options startVersion, startTime, maxFilesPerTrigger and maxBytesPerTrigger are "
                "those of streams",
                next_step="Use spark.readStream, or the options version and asOf",
            )
        schema = snapshot.schema
        self._options = options
        self._schema = schema
        self._tasks = TaskReader(options.uri, schema, asked)
        self._where: Predicate = TRUE
        if options.where is not None:
            from inlay.engine import parse_predicate

            self._where = parse_predicate(options.where, schema)
        self._snapshot: Snapshot | None = snapshot

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    # -- on the driver ------------------------------------------------------------------------

    def partitions(self) -> list[FilePartition]:
        from inlay.engine import ScanParts

        assert self._snapshot is not None, "partitions are planned on the driver"
        tasks = ScanParts.plan(connect(self._options.uri), self._snapshot, self._where)
        left_out = frozenset(self._options.leave_out)
        return plan_partitions(
            [task for task in tasks if task.file.key not in left_out],
            partition_bytes=self._options.partition_bytes,
            parallelism=self._options.slots,
        )

    # -- on the executors ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition)
