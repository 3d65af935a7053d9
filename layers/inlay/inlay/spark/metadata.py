"""The metadata tables (docs/INSPECTION.md) as DataFrames.

    spark.read.format("inlay").option("table", "history").load("s3://bucket/tables/events")

Promise: the rows and columns of the `Table` method of that name, in Spark's types, of the requested
version, tag or branch; they are read when the DataFrame is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from inlay.errors import InvalidRequest
from inlay.spark.connect import place, ref_of
from inlay.spark.errors_in_words import in_words
from inlay.spark.options import METADATA, ReadOptions
from inlay.spark.types import arrow_for, to_spark

# Every Python worker of an executor imports this module, and the process that plans: what only one of them
# needs is imported inside the functions.
if TYPE_CHECKING:
    import pyarrow as pa


def load_metadata(options: ReadOptions) -> pa.Table:
    if options.columns is not None or options.where is not None or options.is_stream:
        raise InvalidRequest(
            "the option table takes no columns, where or options of streams",
            next_step="Select from the DataFrame",
        )
    import inlay

    table = inlay.open(place(options.uri), version=options.version, ref=ref_of(options.uri))
    assert options.table in METADATA
    rows: pa.Table = getattr(table.inspect, options.table)()
    return rows


@dataclass(frozen=True)
class _Rows(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    rows: pa.Table


@in_words
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
