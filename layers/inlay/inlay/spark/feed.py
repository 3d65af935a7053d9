"""The change feed in Spark: rows that versions added and removed, as a batch or a stream.

::

    spark.read.format("inlay").option("changeFeed", "true").option("startVersion", 7).load(uri)
    spark.readStream.format("inlay").option("changeFeed", "true").load(uri)

Promise: Spark gets what `Table.changes` returns, in the table's columns and the three columns of the feed.
A stream starts with all existing rows, as inserts of its first version, followed by the changes of each
later version, each once; it reads whole versions, so a version is never visible in part. Deletes are
included, unlike without this option.

The driver plans steps; executors read their units. The units of an update are read together, because its
rows are paired.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as st
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from inlay.errors import InvalidRequest, TableReplaced, VersionNotFound
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, FeedRows, plan_steps
from inlay.ops.metadata.load import LoadedTable, load_pointer, load_seen
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
            from inlay.parse import parse_predicate

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
    """A stream's offset, which must be one in this table and on this branch. Those of earlier releases name
    no branch, the first ones no table either."""
    ref = ref_of(uri) or MAIN
    found = {"table": table_id, "ref": ref, **offset}
    if found["table"] != table_id:
        raise TableReplaced(
            f"{uri} is another table than the one that the stream has read so far",
            next_step="Start a new query, with a checkpoint of its own, to read it from its beginning",
            table=uri,
        )
    if found["ref"] != ref:
        # What it has now and had not then is in versions that the stream has passed.
        raise InvalidRequest(
            f"the stream has read {found['ref']!r} of {place(uri)} so far, and is now to read {ref!r}",
            next_step="Start a new query, with a checkpoint of its own, or set the option ref back",
            table=place(uri),
        )
    return found


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


class VersionStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream of a table's versions: how much it reads at a time, and where it ends."""

    def __init__(self, options: ReadOptions, state: State) -> None:
        if options.version is not None or options.as_of_us is not None:
            raise InvalidRequest(
                "a stream has no fixed version",
                next_step="Set its start with startVersion or startTime",
            )
        self._options = options
        self._table_id = state.snapshot.table_id
        self._until: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name; so below
        if self._options.max_files is not None:
            return ReadMaxFiles(self._options.max_files)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends with the version that is current now, however much is added while it runs."""
        self._until = self._newest().snapshot.version

    def _newest(self) -> LoadedTable:
        return load_pointer(bound(self._options.uri, self._table_id))


def is_over(limit: ReadLimit, files: int, size: int) -> bool:
    """Whether so many files, or bytes, are more than a micro-batch is to read."""
    over_files = isinstance(limit, ReadMaxFiles) and files > limit.max_files
    return over_files or (isinstance(limit, ReadMaxBytes) and size > limit.max_bytes)


class InlayFeedStream(VersionStream):
    """Offsets are `{"table": id, "ref": branch, "version": v, "first": …}`: read up to version v;
    `first`: the rows of v are still to be read."""

    def __init__(self, options: ReadOptions, state: State, asked: st.StructType) -> None:
        super().__init__(options, state)
        self._feed = FeedReader(options, state, asked)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        if options.start_version is not None or options.start_us is not None:
            return self._offset(first_version(options) - 1)
        return self._offset(self._newest().snapshot.version, first=True)

    def _offset(self, version: int, *, first: bool = False) -> dict[str, Any]:
        ref = ref_of(self._options.uri) or MAIN
        return {"table": self._table_id, "ref": ref, "version": version, "first": first}

    def _checked(self, offset: dict[str, Any]) -> dict[str, Any]:
        found = checked_offset(offset, self._table_id, self._options.uri)
        if found.get("after") or found.get("files"):
            raise InvalidRequest(
                "the stream was stopped within a version whose rows it read: changes come by whole ones",
                next_step="Let it end that version without changeFeed, or start a new query",
            )
        return found

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As far as `limit` allows, at least one version that changed rows."""
        until = self._newest().snapshot.version if self._until is None else self._until
        start = self._checked(start)
        if start["first"]:
            return self._offset(start["version"])
        if isinstance(limit, ReadAllAvailable) or start["version"] >= until:
            return self._offset(max(until, start["version"]))
        files = size = 0
        end = start["version"]
        for step in self._feed.steps(start["version"], until):
            tasks = [t for unit in step.units for t in (*unit.before, *unit.after)]
            files += len(tasks)
            size += sum(task.file.size for task in tasks)
            if end > start["version"] and is_over(limit, files, size):
                return self._offset(end)
            end = step.version
        return self._offset(until)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        start, end = self._checked(start), self._checked(end)
        steps: list[Step] = []
        if start["first"]:
            steps.append(self._feed.rows_there(start["version"]))
        if start["version"] < end["version"]:
            steps += self._feed.steps(start["version"], end["version"])
        return self._feed.partitions(steps)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._feed.read(partition)


def first_version(options: ReadOptions) -> int:
    """The first version whose changes are included."""
    if options.start_version is not None:
        return options.start_version
    # From a time on: rows that existed before are not included.
    return load_state(options.uri, as_of_us=options.start_us).snapshot.version + 1
