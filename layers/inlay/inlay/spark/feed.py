"""The change feed in Spark: rows that versions added and removed, as a batch or a stream.

::

    spark.read.format("inlay").option("changeFeed", "true").option("startVersion", 7).load(uri)
    spark.readStream.format("inlay").option("changeFeed", "true").load(uri)

Promise: Spark gets what `Table.changes` returns, in the table's columns and the three columns of the feed.
Deletes are included, unlike without this option. Streams of it are in `inlay.spark.feed_stream`.

The driver plans steps; executors read their units. The units of an update are read together, because its
rows are paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, InputPartition

from inlay.engine import FeedParts, Schema, Snapshot, parse_predicate
from inlay.errors import InvalidRequest, TableReplaced
from inlay.spark.batches import gathered
from inlay.spark.conditions import TRUE
from inlay.spark.connect import bound, connect, load_snapshot, place
from inlay.spark.errors_in_words import in_words
from inlay.spark.options import ReadOptions
from inlay.spark.reader import READ_AHEAD_BYTES
from inlay.spark.types import arrow_for, column_ids, spark_schema, to_spark

_KINDS = (st.StringType(), st.LongType(), st.TimestampType())
FEED_FIELDS = tuple(
    st.StructField(name, kind, False) for name, kind in zip(FeedParts.COLUMNS, _KINDS, strict=True)
)


@dataclass(frozen=True)
class StepPartition(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    """The changes of a version, or some of them."""

    part: FeedParts


def feed_schema(schema: Schema, columns: Sequence[str] | None) -> st.StructType:
    """The table's columns, or the requested ones, and those of the feed."""
    return st.StructType([*spark_schema(schema, columns).fields, *FEED_FIELDS])


def feed_columns(options: ReadOptions, snapshot: Snapshot) -> Schema:
    """The schema of the rows of a feed up to `snapshot`, from its start (any version, if only a time or a
    checkpoint defines the start)."""
    return FeedParts.schema_of(snapshot, options.start_version)


class FeedReader:
    """Shared by batch and stream: plans steps on the driver, reads them on the executors."""

    def __init__(self, options: ReadOptions, snapshot: Snapshot, asked: st.StructType) -> None:
        schema = feed_columns(options, snapshot)
        whole = feed_schema(schema, options.columns)
        if asked.names != whole.names:
            raise InvalidRequest(
                "a change feed has the table's columns and its own, whatever .schema(…) says",
                next_step="Leave out .schema(…); the option columns chooses columns",
            )
        self.options = options
        self._table_id = snapshot.table_id
        self._asked = whole
        self._feed = FeedParts(
            schema=schema,
            ids=column_ids(schema, options.columns or schema.names),
            key=snapshot.primary_key,
            where=TRUE if options.where is None else parse_predicate(options.where, schema),
        )

    # -- on the driver ------------------------------------------------------------------------

    def steps(self, since: int, to: int) -> Iterator[FeedParts]:
        return self._feed.steps(bound(self.options.uri, self._table_id), since, to)

    def rows_there(self, version: int) -> FeedParts:
        return self._feed.rows_there(bound(self.options.uri, self._table_id), version)

    def partitions(self, steps: Iterable[FeedParts]) -> list[StepPartition]:
        ctx = connect(self.options.uri)
        return [StepPartition(part) for step in steps for part in step.parts(ctx)]

    # -- on the executors ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there are no partitions, Spark makes one of its own.
        if not isinstance(partition, StepPartition):
            return iter(())
        ctx = connect(self.options.uri)
        rows = partition.part.read(ctx, budget_bytes=READ_AHEAD_BYTES)
        asked = arrow_for(self._asked)
        return (to_spark(batch, asked) for batch in gathered(rows))


def checked_offset(offset: dict[str, Any], table_id: str, uri: str) -> dict[str, Any]:
    """A stream's offset, which must be one in this table and on this branch."""
    ref = connect(uri).ref
    if offset["table"] != table_id:
        raise TableReplaced(
            f"{uri} is another table than the one that the stream has read so far",
            next_step="Start a new query, with a checkpoint of its own, to read it from its beginning",
            table=uri,
        )
    if offset["ref"] != ref:
        # What it has now and had not then is in versions that the stream has passed.
        raise InvalidRequest(
            f"the stream has read {offset['ref']!r} of {place(uri)} so far, and is now to read {ref!r}",
            next_step="Start a new query, with a checkpoint of its own, or set the option ref back",
            table=place(uri),
        )
    return offset


@in_words
class InlayFeedReader(DataSourceReader):  # type: ignore[misc]
    """The changes of a range of versions."""

    def __init__(self, options: ReadOptions, snapshot: Snapshot, asked: st.StructType) -> None:
        if options.start_version is None and options.start_us is None:
            raise InvalidRequest(
                "a batch read of the change feed needs a start",
                next_step="Give startVersion (the first version included) or startTime",
            )
        self._feed = FeedReader(options, snapshot, asked)
        self._to = snapshot.version

    def partitions(self) -> list[StepPartition]:
        since = first_version(self._feed.options) - 1
        if since > self._to:
            return []
        return self._feed.partitions(self._feed.steps(since, self._to))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._feed.read(partition)


def first_version(options: ReadOptions) -> int:
    """The first version whose changes are included."""
    if options.start_version is not None:
        return options.start_version
    # From a time on: rows that existed before are not included.
    return load_snapshot(options.uri, as_of_us=options.start_us).version + 1
