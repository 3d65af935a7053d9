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
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, InputPartition

from inlay.engine import Schema, Snapshot, load_pointer
from inlay.errors import InvalidRequest, TableReplaced, VersionNotFound
from inlay.format.predicate import TRUE, Predicate
from inlay.ops.feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, FeedRows, plan_steps
from inlay.ops.metadata.load import load_seen
from inlay.ops.read.scan import Scan
from inlay.parquet.read.reader import Ahead
from inlay.plan.feed import FeedUnit, Step, reported_schema
from inlay.plan.metadata.state import State
from inlay.plan.refs import MAIN
from inlay.spark.batches import gathered
from inlay.spark.connect import THREADS, bound, connect, load_state, place, ref_of
from inlay.spark.options import ReadOptions
from inlay.spark.reader import READ_AHEAD_BYTES
from inlay.spark.types import arrow_for, column_ids, spark_schema, to_spark

FEED_FIELDS = (
    st.StructField(CHANGE_TYPE, st.StringType(), False),
    st.StructField(COMMIT_VERSION, st.LongType(), False),
    st.StructField(COMMIT_TIMESTAMP, st.TimestampType(), False),
)


@dataclass(frozen=True)
class StepPartition(InputPartition):  # type: ignore[misc]  # pyspark is untyped here
    """A step, or some of its units."""

    step: Step


def feed_schema(schema: Schema, columns: Sequence[str] | None) -> st.StructType:
    """The table's columns, or the requested ones, and those of the feed."""
    return st.StructType([*spark_schema(schema, columns).fields, *FEED_FIELDS])


def feed_columns(options: ReadOptions, snapshot: Snapshot) -> Schema:
    """The schema of the rows of a feed up to `snapshot`, from its start (any version, if only a time or a
    checkpoint defines the start)."""
    first = options.start_version
    return reported_schema(snapshot, 0 if first is None else max(first - 1, 0))


class FeedReader:
    """Shared by batch and stream: plans steps on the driver, reads them on the executors."""

    def __init__(self, options: ReadOptions, state: State, asked: st.StructType) -> None:
        snapshot = state.snapshot
        self.schema = feed_columns(options, snapshot)
        if asked.names != feed_schema(self.schema, options.columns).names:
            raise InvalidRequest(
                "a change feed has the table's columns and its own, whatever .schema(…) says",
                next_step="Leave out .schema(…); the option columns chooses columns",
            )
        self.options = options
        self.key = snapshot.primary_key
        self.table_id = snapshot.table_id
        self.where: Predicate = TRUE
        if options.where is not None:
            from inlay.engine import parse_predicate

            self.where = parse_predicate(options.where, self.schema)

    # -- on the driver ------------------------------------------------------------------------

    def steps(self, since: int, to: int) -> Iterator[Step]:
        ctx = bound(self.options.uri, self.table_id)
        table = load_pointer(ctx).pointer
        if since < to and max(since, 1) < table.oldest_version:
            raise VersionNotFound(
                f"changes since version {since} of {ctx.uri} are no longer available: the versions "
                f"before {table.oldest_version} have expired",
                next_step=f"Start at version {table.oldest_version + 1} or later",
                table=ctx.uri,
                version=since,
            )
        last = load_seen(ctx, table, to)
        return plan_steps(ctx, table, since, last, schema=self.schema, predicate=self.where)

    def rows_there(self, version: int) -> Step:
        """All rows of a version, as if it had added them all."""
        ctx = bound(self.options.uri, self.table_id)
        snapshot: Snapshot = load_seen(ctx, load_pointer(ctx).pointer, version)
        others = tuple(s for s in snapshot.schemas if s.id != self.schema.id)
        in_its_columns = replace(snapshot, schemas=(*others, self.schema), schema_id=self.schema.id)
        scan = Scan(ctx, State(in_its_columns), where=self.where)
        return Step(
            version=version,
            time_us=snapshot.commit.time_us,
            operation="append",
            schema=self.schema,
            units=tuple(FeedUnit((), (task,)) for task in scan.plan.tasks),
        )

    def partitions(self, steps: Iterable[Step]) -> list[StepPartition]:
        found: list[StepPartition] = []
        for step in steps:
            if self._rows(connect(self.options.uri)).pairs(step):
                found.append(StepPartition(step_of_units(step, step.units)))
            else:
                found += [StepPartition(step_of_units(step, (unit,))) for unit in step.units]
        return found

    # -- on the executors ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(
            partition, StepPartition
        ):  # if there are none, Spark makes one of its own
            return iter(())
        rows = self._rows(connect(self.options.uri)).batches(partition.step)
        asked = arrow_for(feed_schema(self.schema, self.options.columns))
        return (to_spark(batch, asked) for batch in gathered(rows))

    def _rows(self, ctx: Any) -> FeedRows:
        names = self.options.columns or self.schema.names
        return FeedRows(
            ctx=ctx,
            schema=self.schema,
            ids=column_ids(self.schema, names),
            key=self.key,
            ahead=Ahead(budget_bytes=READ_AHEAD_BYTES, parallel=THREADS),
        )


def checked_offset(offset: dict[str, Any], table_id: str, uri: str) -> dict[str, Any]:
    """A stream's offset, which must be one in this table and on this branch."""
    ref = ref_of(uri) or MAIN
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


def step_of_units(step: Step, units: tuple[FeedUnit, ...]) -> Step:
    """Some units of a step, without the statistics of their files, which are no longer needed."""
    return replace(
        step,
        units=tuple(
            FeedUnit(
                tuple(replace(t, file=replace(t.file, stats={})) for t in unit.before),
                tuple(replace(t, file=replace(t.file, stats={})) for t in unit.after),
            )
            for unit in units
        ),
    )


class InlayFeedReader(DataSourceReader):  # type: ignore[misc]
    """The changes of a range of versions."""

    def __init__(self, options: ReadOptions, state: State, asked: st.StructType) -> None:
        if options.start_version is None and options.start_us is None:
            raise InvalidRequest(
                "a batch read of the change feed needs a start",
                next_step="Give startVersion (the first version included) or startTime",
            )
        self._feed = FeedReader(options, state, asked)
        self._to = state.snapshot.version

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
    return load_state(options.uri, as_of_us=options.start_us).snapshot.version + 1
