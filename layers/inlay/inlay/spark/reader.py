"""Reading a table from Spark: planned once on the driver, read in tasks on the executors.

Promise: Spark sees exactly the rows that `Table.scan` gives for the same version: `ops.read.scan` plans,
and `parquet.read.reader` reads each task and removes deleted rows before Spark sees them. Files that cannot
match are excluded before there are tasks.

It accepts no pushed filters (`pushFilters`), whatever the session requests: Spark 4.2 and 4.3 keep the plan
made for the filters of one query with the DataFrame, and use it in every later query of the same DataFrame,
even with other filters. The option `where` selects the rows of a DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from inlay.errors import InvalidRequest
from inlay.format.predicate import TRUE, Predicate
from inlay.plan.metadata.state import State
from inlay.spark.connect import connect
from inlay.spark.options import ReadOptions
from inlay.spark.partitions import FilePartition, plan_partitions
from inlay.spark.tasks import TaskReader

if TYPE_CHECKING:
    import pyarrow as pa


class InlayReader(DataSourceReader):  # type: ignore[misc]  # pyspark is untyped here
    """One scan. Made on the driver, with the table's `state`; sent to each task without it.

    Imports for planning are inside the functions: every Python worker of an executor imports this module.
    """

    def __init__(self, options: ReadOptions, state: State, asked: StructType) -> None:
        if options.is_stream:
            raise InvalidRequest(
                "the options startVersion, startTime, maxFilesPerTrigger and maxBytesPerTrigger are "
                "those of streams",
                next_step="Use spark.readStream, or the options version and asOf",
            )
        schema = state.snapshot.schema
        self._options = options
        self._schema = schema
        self._tasks = TaskReader(options.uri, schema, asked)
        self._where: Predicate = TRUE
        if options.where is not None:
            from inlay.parse import parse_predicate

            self._where = parse_predicate(options.where, schema)
        self._state: State | None = state

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state": None}

    # -- on the driver ------------------------------------------------------------------------

    def partitions(self) -> list[FilePartition]:
        from inlay.ops.read.scan import Scan

        assert self._state is not None, "partitions are planned on the driver"
        scan = Scan(connect(self._options.uri), self._state, where=self._where)
        left_out = frozenset(self._options.leave_out)
        return plan_partitions(
            [task for task in scan.plan.tasks if task.file.key not in left_out],
            partition_bytes=self._options.partition_bytes,
            parallelism=self._options.slots,
        )

    # -- on the executors ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition)
