"""Clustering of large tables: all rows of many files in one order, by a Spark shuffle.

Promise: every reader sees the same rows before and after. Where `ops.maintain.compact` merges the few files
of a unit in the memory of one process, here a slice of any size is one run: Spark distributes its rows by
ranges of the order, executors write the files, the driver commits each slice on its own. Appends and
deletes continue; a slice whose files they affect is left for the next run, and only its own work is lost.

The order is the table's (`compact.strategy`, `compact.columns`), within each partition; files of an earlier
partitioning are repartitioned. For a z-order the key is computed by Spark expressions: each column is cut
at quantiles of a sample, and the bits of the cells are interleaved. Spark sees a column under its id, so
that any column name works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.engine import ClusterPlan, DataFile, FileTask, ScanParts, parse_predicate
from inlay.progress import Progress, no_progress
from inlay.spark.batches import collect_pickled, pickled_batch, pickled_tasks, read_pickled
from inlay.spark.conditions import TRUE
from inlay.spark.connect import connect, load_writable
from inlay.spark.context import context_of
from inlay.spark.native import native_frames, split, united
from inlay.spark.types import SPARK_TYPES, arrow_for, to_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from inlay.engine import Schema

# One slice is one commit: the work that a crash, or a concurrent delete, may cost.
SLICE_BYTES = 64 * 2**30
# Cells of a column in a z-order, and the sampled rows whose quantiles bound them.
ZORDER_BITS = 6
SAMPLE_ROWS = 10_000

_KEY = "key"
_PARTITION = "partition"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterResult:
    """`slices` were committed; `skipped` ones had files that others changed meanwhile. `left` files were in
    order already, or are being erased from."""

    version: int
    slices: int = 0
    skipped: int = 0
    input_files: int = 0
    output_files: int = 0
    left: int = 0
    rows: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


def cluster(
    spark: SparkSession,
    uri: str,
    *,
    where: str | None = None,
    older_than: int | None = None,
    slice_bytes: int = SLICE_BYTES,
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> ClusterResult:
    """Rewrites the files that may hold a row for which `where` (SQL text) is TRUE in the table's order,
    unless they are in order. Files of another partitioning never are; with `older_than`, files of earlier
    versions are not either (use it after the order has changed). Raises `InvalidRequest` when the table has
    neither order nor partitions.
    """
    context_of(spark, "cluster")
    ctx, loaded = load_writable(uri)
    predicate = TRUE if where is None else parse_predicate(where, loaded.snapshot.schema)
    plan = ClusterPlan.of(
        ctx, loaded, where=predicate, older_than=older_than, slice_bytes=slice_bytes
    )
    result = ClusterResult(version=loaded.snapshot.version, left=plan.others)
    if dry_run:
        tasks = [task for one in plan.slices for task in one]
        return replace(
            result,
            slices=len(plan.slices),
            input_files=len(tasks),
            read_bytes=sum(t.file.size for t in tasks),
        )
    for number, one in enumerate(plan.slices, 1):
        outputs = _write(spark, uri, plan, one, plan.writer(ctx))
        is_in, version = plan.commit(ctx, one, outputs)
        if is_in:
            result = replace(
                result,
                slices=result.slices + 1,
                input_files=result.input_files + len(one),
                output_files=result.output_files + len(outputs),
                rows=result.rows + sum(f.rows for f in outputs),
                read_bytes=result.read_bytes + sum(t.file.size for t in one),
                written_bytes=result.written_bytes + sum(f.size for f in outputs),
            )
        else:
            result = replace(result, skipped=result.skipped + 1)
        result = replace(result, version=version)
        progress("cluster", number, len(plan.slices))
    return result


# -- on Spark -------------------------------------------------------------------------------------


def _write(
    spark: SparkSession,
    uri: str,
    plan: ClusterPlan,
    tasks: Sequence[FileTask],
    writer: ClusterPlan,
) -> list[DataFile]:
    """Writes the rows of `tasks` into files of one run."""
    snapshot, order = plan.loaded.snapshot, plan.order
    rows = _rows(spark, uri, writer, tasks)
    by = [_PARTITION] if writer.has_partitions else []
    if order is not None:
        match order.kind:
            case "sort":
                by += map(_name, order.columns)
            case "zorder":
                by.append(_KEY)
                few = _rows(spark, uri, writer, tasks, order.columns)
                number = sum(t.file.rows for t in tasks)
                rows = rows.withColumn(_KEY, _morton(few, order.columns, number))
    target = snapshot.settings.number("write.target_file_bytes")
    files = max(1, -(-sum(t.file.size for t in tasks) // target))
    ordered = rows.repartitionByRange(files, *by).sortWithinPartitions(*by)
    return collect_pickled(ordered.drop(_PARTITION, _KEY), partial(_write_part, uri, writer))


def _rows(
    spark: SparkSession,
    uri: str,
    writer: ClusterPlan,
    tasks: Sequence[FileTask],
    columns: Sequence[int] = (),
) -> DataFrame:
    """The live rows of `tasks`: all columns, with each row's partition where the table has partitions; or
    only these columns. Files that Spark reads exactly are read by it."""
    schema = writer.schema
    if not columns and writer.has_partitions:
        return _through_python(spark, uri, writer, tasks)
    shape = _shape(schema, columns)
    ids = tuple(f.id for f in schema.fields if not columns or f.id in columns)
    parts = split(spark, uri, tasks, schema, ids, TRUE)
    frames = native_frames(spark, uri, parts, schema, ids, TRUE)
    rows = [frame.toDF(*shape.names) for frame in frames]
    if parts.rest or not rows:
        rows.append(_through_python(spark, uri, writer, parts.rest, columns))
    return united(rows)


def _through_python(
    spark: SparkSession,
    uri: str,
    writer: ClusterPlan,
    tasks: Sequence[FileTask],
    columns: Sequence[int] = (),
) -> DataFrame:
    shape = _shape(writer.schema, columns)
    if not columns and writer.has_partitions:
        shape = shape.add(_PARTITION, "string", nullable=False)
    read = partial(_read_part, uri, writer, tuple(columns))
    return pickled_tasks(spark, tasks, "cluster").mapInArrow(read, shape)


def _name(column: int) -> str:
    return f"c{column}"


def _shape(schema: Schema, columns: Sequence[int]) -> StructType:
    """The columns (all for none) under the names that the jobs of this module use."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(_name(f.id), SPARK_TYPES.of(f.type, (f.name,)), f.nullable)
            for f in schema.fields
            if not columns or f.id in columns
        ]
    )


def _morton(rows: DataFrame, ids: Sequence[int], number: int) -> Column:
    """The z-order key of a row (one of about `number`): the bits of its cell in each column,
    interleaved."""
    from pyspark.sql import functions as f

    share = min(1.0, SAMPLE_ROWS / max(number, 1))
    columns = [_name(column) for column in ids]
    sample = rows.select(*columns).sample(fraction=share).collect()
    key = f.lit(0).cast("bigint")
    for position, name in enumerate(columns):
        values = sorted(row[position] for row in sample if row[position] is not None)
        cuts = [values[len(values) * n // 2**ZORDER_BITS] for n in range(1, 2**ZORDER_BITS)]
        cell = _cell(f.col(name), cuts if values else [], 0, 2**ZORDER_BITS)
        for bit in range(ZORDER_BITS):
            one = f.shiftright(cell, bit).bitwiseAND(f.lit(1)).cast("bigint")
            place = bit * len(columns) + len(columns) - 1 - position
            key = key.bitwiseOR(f.shiftleft(one, place))
    return key


def _cell(column: Column, cuts: Sequence[Any], low: int, high: int) -> Column:
    """Which of the cells `low` … `high` - 1 a value is in, by bisection; NULL in the last."""
    from pyspark.sql import functions as f

    if high - low == 1 or not cuts:
        return f.lit(low)
    middle = (low + high) // 2
    below = _cell(column, cuts, low, middle)
    return f.when(column < f.lit(cuts[middle - 1]), below).otherwise(
        _cell(column, cuts, middle, high)
    )


# -- on the executors -----------------------------------------------------------------------------


def _read_part(
    uri: str, writer: ClusterPlan, columns: tuple[int, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    schema = writer.schema
    ids = tuple(f.id for f in schema.fields if not columns or f.id in columns)
    scan = ScanParts(schema=schema, ids=ids)
    arrow = arrow_for(_shape(schema, columns))
    for piece in read_pickled(connect(uri), batches, scan):
        if columns or not writer.has_partitions:
            yield to_spark(piece, arrow)
            continue
        for partition, rows in writer.by_partition(piece):
            named = pa.repeat(partition, rows.num_rows)
            yield to_spark(rows, arrow).append_column(_PARTITION, named)


def _write_part(
    uri: str, writer: ClusterPlan, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows arrive in order: nothing is sorted here."""
    yield from map(pickled_batch, writer.write(connect(uri), batches))
