"""Reading tables where Spark's Python sources cannot prune by themselves.

Promise: the same rows as `spark.read.format("inlay")`; input errors (no such table, column or version) are
raised here, typed, and not inside a Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from inlay.engine import FileTask, Predicate, ScanParts, Snapshot, parse_predicate
from inlay.errors import InvalidRequest, UnsupportedType
from inlay.spark.conditions import TRUE
from inlay.spark.connect import at_ref, connect, load_snapshot
from inlay.spark.context import find_context, is_set
from inlay.spark.native import (
    BATCH_SETTING,
    Native,
    Split,
    may_be_native,
    native_frames,
    split,
    united,
)
from inlay.spark.options import PARTITION_BYTES
from inlay.spark.partitions import plan_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from inlay.engine import Schema

TIME_SETTING = "spark.sql.timeType.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Of the files that may hold requested rows, `native_files` are read by Spark's own Parquet reader and
    `source_files` through Python, for the reasons in `why` (reason to number of files)."""

    version: int
    native_files: int
    native_bytes: int
    source_files: int
    source_bytes: int
    why: Mapping[str, int]

    def __str__(self) -> str:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(self.why.items()))
        return (
            f"version    {self.version}\n"
            f"by Spark   {self.native_files} files, {self.native_bytes:,} bytes\n"
            f"by Python  {self.source_files} files, {self.source_bytes:,} bytes"
            + (f" ({why})" if why else "")
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    snapshot: Snapshot
    split: Split
    columns: tuple[int, ...]
    asked: StructType
    predicate: Predicate

    @property
    def schema(self) -> Schema:
        return self.snapshot.schema


def read(
    spark: SparkSession,
    uri: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
    ref: str | None = None,
    native: Native = "auto",
) -> DataFrame:
    """A DataFrame of one snapshot: only these columns are read, only files that may match `where` (SQL
    text) are opened, and only matching rows are returned. `ref` is a tag or branch.

    Files are read by Spark's own Parquet reader where that gives exactly the same rows (`explain` reports
    how many), the others through Python; with `native="never"` all of them.
    """
    uri = at_ref(uri, ref)
    plan = _plan(spark, uri, columns, where, version, native)
    frames = native_frames(spark, uri, plan.split, plan.schema, plan.columns, plan.predicate)
    if plan.split.rest:
        frames.append(_through_source(spark, uri, plan, columns, where))
    if not frames:
        return spark.createDataFrame([], plan.asked)
    return united(frames)


def explain(
    spark: SparkSession,
    uri: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
    ref: str | None = None,
    native: Native = "auto",
) -> Explained:
    """How `read` with these arguments would read; reads only metadata and footers."""
    plan = _plan(spark, at_ref(uri, ref), columns, where, version, native)
    split = plan.split
    return Explained(
        version=plan.snapshot.version,
        native_files=len(split.native),
        native_bytes=sum(task.file.size for task in split.native),
        source_files=len(split.rest),
        source_bytes=sum(task.file.size for task in split.rest),
        why=dict(split.why),
    )


def count(
    spark: SparkSession,
    uri: str,
    *,
    where: str | None = None,
    version: int | None = None,
    ref: str | None = None,
    since: int | None = None,
) -> int:
    """The number of rows: from metadata for files that no delete or filter affects; the others are counted
    by a Spark job that reads only the columns of deletes and filter. With `since`, only in files with rows
    that were added after this version: the rows of loads, until compaction mixes them with older ones."""
    uri = at_ref(uri, ref)
    snapshot = load_snapshot(uri, version=version)
    context = find_context(spark)
    if context is None and since is None:
        return ScanParts.count(connect(uri), snapshot, where)
    live = ScanParts.plan(connect(uri), snapshot, where)
    tasks = [t for t in live if since is None or t.file.newest_rows > since]
    judged = [task for task in tasks if not task.whole]
    known = sum(task.file.rows for task in tasks if task.whole)
    if not judged:
        return known
    if context is None:
        return known + _count(uri, snapshot.schema, tuple(judged))
    parts = plan_partitions(
        judged, partition_bytes=PARTITION_BYTES, parallelism=context.defaultParallelism
    )
    counting = partial(_count, uri, snapshot.schema)
    groups = context.parallelize([part.tasks for part in parts], len(parts))
    return known + int(groups.map(counting).sum())


def _count(uri: str, schema: Schema, tasks: tuple[FileTask, ...]) -> int:
    rows = ScanParts(schema=schema, ids=()).read(connect(uri), tasks)
    return sum(batch.num_rows for batch in rows)


def _plan(
    spark: SparkSession,
    uri: str,
    columns: Sequence[str] | None,
    where: str | None,
    version: int | None,
    native: Native,
) -> _Plan:
    from inlay.spark.types import column_ids, named_as_in, spark_schema

    by_spark = may_be_native(native)
    snapshot = load_snapshot(uri, version=version)
    schema = snapshot.schema
    # Checked here, these raise their own errors; in Spark's planning they would appear as Spark errors.
    names = schema.names if columns is None else named_as_in(schema, columns)
    tasks = ScanParts.plan(connect(uri), snapshot, where, columns=names)
    asked = spark_schema(schema, names)
    _check_times(spark, asked)
    ids = column_ids(schema, names)
    predicate = TRUE if where is None else parse_predicate(where, schema)
    if not by_spark:
        return _Plan(snapshot, Split(rest=tasks), ids, asked, predicate)
    parts = split(spark, uri, tasks, schema, ids, predicate)
    return _Plan(snapshot, parts, ids, asked, predicate)


def _through_source(
    spark: SparkSession,
    uri: str,
    plan: _Plan,
    columns: Sequence[str] | None,
    where: str | None,
) -> DataFrame:
    _check_batches(spark, plan)
    reader = spark.read.format("inlay").option("version", plan.snapshot.version)
    if (context := find_context(spark)) is not None:
        reader = reader.option("parallelism", context.defaultParallelism)
    if columns is not None:
        reader = reader.option("columns", json.dumps(list(columns)))
    if where is not None:
        reader = reader.option("where", where)
    if plan.split.native:
        reader = reader.option("leaveOut", json.dumps([t.file.key for t in plan.split.native]))
    return reader.load(uri)


def _check_times(spark: SparkSession, schema: StructType) -> None:
    """Spark 4.3 has a type for the time of day, but refuses it unless it is enabled."""
    times = [f.name for f in schema if type(f.dataType).__name__ == "TimeType"]
    if times and not is_set(spark, TIME_SETTING):
        raise UnsupportedType(
            f"column {times[0]!r} is a time of day, which this Spark session refuses",
            next_step=f"Set {TIME_SETTING}=true, or leave the column out with columns=[…]",
        )


def _check_batches(spark: SparkSession, plan: _Plan) -> None:
    """PySpark's own error for it is an assertion in a process that plans."""
    if int(spark.conf.get(BATCH_SETTING)) <= 0:
        files = len(plan.split.rest)
        raise InvalidRequest(
            f"files to read through Python: {files}, and with {BATCH_SETTING}=0 or less PySpark reads none",
            next_step=f"Set {BATCH_SETTING}, to 10000 for instance; explain(spark, uri) says which files",
        )
