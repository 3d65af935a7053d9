"""Reading a table from Spark: planned once on the driver, read in tasks on the executors.

Promise: Spark sees exactly the rows that `Table.scan` gives for the same version: `ops.read.scan` plans,
and `parquet.read.reader` reads each task and removes deleted rows before Spark sees them. Files that cannot
match are excluded before there are tasks.

It accepts no pushed filters (`pushFilters`), whatever the session requests: Spark 4.2 and 4.3 keep the plan
made for the filters of one query with the DataFrame, and use it in every later query of the same DataFrame,
even with other filters. The option `where` selects the rows of a DataFrame.

The metadata tables (docs/INSPECTION.md) are DataFrames, too.

    spark.read.format("inlay").option("table", "history").load("s3://bucket/tables/events")

Promise: the rows and columns of the `Table` method of that name, in Spark's types, of the requested
version, tag or branch; they are read when the DataFrame is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from inlay.errors import InvalidRequest
from inlay.format.predicate import TRUE, Predicate
from inlay.plan.metadata.state import State
from inlay.spark.connect import connect, place, ref_of
from inlay.spark.options import METADATA, ReadOptions
from inlay.spark.partitions import FilePartition, plan_partitions
from inlay.spark.tasks import TaskReader
from inlay.spark.types import arrow_for, to_spark

# Every Python worker of an executor imports this module: imports for planning are inside the functions.
if TYPE_CHECKING:
    import pyarrow as pa


class InlayReader(DataSourceReader):  # type: ignore[misc]  # pyspark is untyped here
    """One scan. Made on the driver, with the table's `state`; sent to each task without it."""

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


def load_metadata(options: ReadOptions) -> pa.Table:
    if options.columns is not None or options.where is not None or options.is_stream:
        raise InvalidRequest(
            "the option table takes no columns, where or options of streams",
            next_step="Select from the DataFrame",
        )
    import inlay

    table = inlay.open(place(options.uri), version=options.version, ref=ref_of(options.uri))
    assert options.table in METADATA
    found: pa.Table = getattr(table, options.table)()
    return found


def metadata_schema(table: pa.Table) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(table.schema)


@dataclass(frozen=True)
class _Rows(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    rows: pa.Table


class InlayMetadataReader(DataSourceReader):  # type: ignore[misc]  # as above
    """One partition, which contains the rows."""

    def __init__(self, table: pa.Table, asked: StructType) -> None:
        self._partition = _Rows(table.select(asked.names))
        self._arrow = arrow_for(asked)

    def __getstate__(self) -> dict[str, object]:
        return {"_arrow": self._arrow}  # the partition is sent separately

    def partitions(self) -> list[InputPartition]:
        return [self._partition]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Rows)
        return (to_spark(batch, self._arrow) for batch in partition.rows.to_batches())
