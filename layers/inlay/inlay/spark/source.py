"""The Spark data source "inlay".

::

    spark.read.format("inlay").option("where", "id > 7").load("s3://bucket/tables/events")
    df.write.format("inlay").mode("append").save("s3://bucket/tables/events")

Promise: one DataFrame is one snapshot: the version is fixed when the DataFrame is made, however often it is
evaluated. Options are in `inlay.spark.options`; docs/SPARK.md documents them.

The metadata tables (docs/INSPECTION.md) are DataFrames, too.

    spark.read.format("inlay").option("table", "history").load("s3://bucket/tables/events")

Promise: the rows and columns of the `Table` method of that name, in Spark's types, of the requested
version, tag or branch; they are read when the DataFrame is made.

Reading is planned once on the driver, and done in tasks on the executors. Promise: Spark sees exactly the
rows that `Table.scan` gives for the same version: `ops.read.scan` plans, and `parquet.read.reader` reads
each task and removes deleted rows before Spark sees them. Files that cannot match are excluded before there
are tasks.

It accepts no pushed filters (`pushFilters`), whatever the session requests: Spark 4.2 and 4.3 keep the plan
made for the filters of one query with the DataFrame, and use it in every later query of the same DataFrame,
even with other filters. The option `where` selects the rows of a DataFrame.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

import inlay
from inlay.errors import InvalidRequest
from inlay.format.predicate import TRUE, Predicate
from inlay.plan.metadata.state import State
from inlay.spark.connect import connect, place, ref_of
from inlay.spark.options import METADATA, ReadOptions
from inlay.spark.partitions import FilePartition, plan_partitions
from inlay.spark.tasks import TaskReader
from inlay.spark.types import arrow_for, to_spark

if TYPE_CHECKING:
    from inlay.spark.feed import InlayFeedStream
    from inlay.spark.sink import InlayStreamWriter
    from inlay.spark.stream import InlayStreamReader
    from inlay.spark.writer import InlayWriter


def load_metadata(options: ReadOptions) -> pa.Table:
    if options.columns is not None or options.where is not None or options.is_stream:
        raise InvalidRequest(
            "the option table takes no columns, where or options of streams",
            next_step="Select from the DataFrame",
        )
    table = inlay.open(place(options.uri), version=options.version, ref=ref_of(options.uri))
    assert options.table in METADATA
    found: pa.Table = getattr(table, options.table)()
    return found


def metadata_schema(table: pa.Table) -> StructType:
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


# Spark looks up every source before each session's first read: heavy imports are made on use.


class InlayDataSource(DataSource):  # type: ignore[misc]  # pyspark is untyped here
    @classmethod
    def name(cls) -> str:
        return "inlay"

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self._pinned: ReadOptions | None = None
        self._table_id: str | None = None
        self._state: State | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a source to read from immediately after making it, even when it does not ask for
        the schema: that fixes the version. What was loaded is not pickled. The source of a streaming sink
        is pickled too, and reads nothing."""
        from inlay.spark.options import are_for_reading

        if self._pinned is None and are_for_reading(self.options):
            self._open()
        return {**self.__dict__, "_state": None}

    def _open(self) -> tuple[ReadOptions, State]:
        from inlay.spark.connect import load_state
        from inlay.spark.options import read_options

        options = self._pinned or read_options(self.options)
        if self._state is None:
            self._state = load_state(
                options.uri, version=options.version, as_of_us=options.as_of_us
            )
            snapshot = self._state.snapshot
            if self._table_id not in (None, snapshot.table_id):
                from inlay.errors import TableReplaced

                raise TableReplaced(
                    f"{options.uri} is another table than when the DataFrame was made"
                )
            self._table_id = snapshot.table_id
            options = replace(options, version=snapshot.version, as_of_us=None)
        self._pinned = options
        return options, self._state

    def schema(self) -> StructType:
        from inlay.spark.types import spark_schema

        options, state = self._open()
        if options.table is not None:
            return metadata_schema(load_metadata(options))
        if options.change_feed:
            from inlay.spark.feed import feed_columns, feed_schema

            return feed_schema(feed_columns(options, state.snapshot), options.columns)
        return spark_schema(state.snapshot.schema, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:

        options, state = self._open()
        if options.table is not None:
            return InlayMetadataReader(load_metadata(options), schema)
        if options.change_feed:
            from inlay.spark.feed import InlayFeedReader

            return InlayFeedReader(options, state, schema)
        return InlayReader(options, state, schema)

    def writer(self, schema: StructType, overwrite: bool) -> InlayWriter:
        from inlay.spark.options import write_options
        from inlay.spark.writer import InlayWriter, plan_write

        asked = write_options(self.options)
        _, job = plan_write(asked, schema, overwrite=overwrite)
        if job.done is not None:
            # `save` returns nothing: standard error of this process is the driver's.
            print(
                f"inlay: nothing is written: version {job.done} of {asked.uri} has the request "
                f"{asked.request_id!r}",
                file=sys.stderr,
            )
        return InlayWriter(job)

    def streamReader(  # noqa: N802
        self, schema: StructType
    ) -> InlayStreamReader | InlayFeedStream:
        from inlay.errors import InvalidRequest
        from inlay.ops.metadata.load import load_pointer
        from inlay.spark.connect import bound, is_tag
        from inlay.spark.options import read_options
        from inlay.spark.stream import InlayStreamReader

        options = read_options(self.options)
        ctx = bound(options.uri, self._table_id)
        loaded = load_pointer(ctx)
        if is_tag(ctx, loaded):
            raise InvalidRequest(
                f"the tag {ctx.branch!r} never changes, so it cannot be read as a stream",
                next_step="Read it by batch, or a branch as a stream",
            )
        state = loaded.state
        if options.change_feed:
            from inlay.spark.feed import InlayFeedStream

            return InlayFeedStream(options, state, schema)
        return InlayStreamReader(options, state, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> InlayStreamWriter:  # noqa: N802
        from inlay.spark.options import write_options
        from inlay.spark.sink import InlayStreamWriter

        return InlayStreamWriter(write_options(self.options), schema, overwrite=overwrite)
