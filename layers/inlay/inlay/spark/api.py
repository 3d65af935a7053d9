"""Reading tables where Spark's Python sources cannot prune by themselves.

Promise: the same rows as `spark.read.format("inlay")`; errors of the input (no such table, column or
version) are raised here, typed, and not from within a Spark job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from inlay.errors import UnsupportedType
from inlay.ops.scan import Scan
from inlay.parquet.reader import Wanted, read_tasks
from inlay.plan.scan import FileTask
from inlay.spark.connect import connect, load_state
from inlay.spark.options import PARTITION_BYTES
from inlay.spark.partitions import plan_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from inlay.format.schema import Schema

TIME_SETTING = "spark.sql.timeType.enabled"


def register(spark: SparkSession) -> None:
    """Make the format "inlay" known to a session that did not find `pyspark_inlay` by itself."""
    from inlay.spark.source import InlayDataSource

    spark.dataSource.register(InlayDataSource)


def read(
    spark: SparkSession,
    uri: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
) -> DataFrame:
    """A DataFrame of one snapshot: only these columns are read, only files that may match `where`
    (SQL text) are opened, and only rows that do come out."""
    from inlay.spark.types import spark_schema

    state = load_state(uri, version=version)
    # Found wrong here, these raise what they are; in Spark's planning they would come as its errors.
    Scan(connect(uri), state, columns=columns, where=where)
    _check_times(spark, spark_schema(state.snapshot.schema, columns))
    reader = spark.read.format("inlay").option("version", state.snapshot.version)
    if (context := _context(spark)) is not None:
        reader = reader.option("parallelism", context.defaultParallelism)
    if columns is not None:
        reader = reader.option("columns", json.dumps(list(columns)))
    if where is not None:
        reader = reader.option("where", where)
    return reader.load(uri)


def count(
    spark: SparkSession, uri: str, *, where: str | None = None, version: int | None = None
) -> int:
    """How many rows: from metadata for files that no delete and no filter touches; the others are
    counted by a Spark job that reads only the columns deletes and filter look at."""
    state = load_state(uri, version=version)
    scan = Scan(connect(uri), state, where=where)
    context = _context(spark)
    if context is None:
        return scan.count()
    tasks = scan.plan.tasks
    judged = [task for task in tasks if not task.whole]
    known = sum(task.file.rows for task in tasks if task.whole)
    if not judged:
        return known
    parts = plan_partitions(
        judged, partition_bytes=PARTITION_BYTES, parallelism=context.defaultParallelism
    )
    counting = partial(_count, uri, state.snapshot.schema)
    groups = context.parallelize([part.tasks for part in parts], len(parts))
    return known + int(groups.map(counting).sum())


def _count(uri: str, schema: Schema, tasks: tuple[FileTask, ...]) -> int:
    ctx = connect(uri)
    rows = read_tasks(ctx.objects, tasks, Wanted(schema=schema, columns=()), ctx.executor)
    return sum(batch.num_rows for batch in rows)


def _check_times(spark: SparkSession, schema: StructType) -> None:
    """Spark 4.3 has a type for the time of day, but refuses it unless told not to."""
    from pyspark.sql.types import TimeType

    times = [field.name for field in schema if isinstance(field.dataType, TimeType)]
    if times and spark.conf.get(TIME_SETTING, "false") != "true":
        raise UnsupportedType(
            f"column {times[0]!r} is a time of day, which this Spark session refuses",
            next_step=f"Set {TIME_SETTING}=true, or leave the column out with columns=[…]",
        )


def _context(spark: SparkSession) -> Any:
    """None for a session that is a client of Spark Connect: it has no context."""
    return getattr(spark, "sparkContext", None)
