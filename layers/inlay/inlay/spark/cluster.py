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

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.engine import Context, Properties, parse_predicate
from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile
from inlay.format.predicate import TRUE
from inlay.format.values import order_key
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.maintain.compact import write_run
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, load_again
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.read.selection import Projection
from inlay.parquet.write.partition import Split
from inlay.plan.change import Change, ReplaceFiles, Unit
from inlay.plan.maintain.clustering import MIN_RUNS, Order, order_of, runs_of
from inlay.plan.maintain.compaction import live_tasks
from inlay.plan.pruning.partitions import group_key, spans_partitions
from inlay.plan.pruning.prune import Evidence, may_match
from inlay.plan.scan import FileTask
from inlay.progress import Progress, no_progress
from inlay.spark.batches import collect_pickled, pickled_batch, pickled_tasks, read_pickled
from inlay.spark.connect import connect, load_writable, without_entries
from inlay.spark.context import context_of
from inlay.spark.native import native_frames, split, united
from inlay.spark.types import arrow_for, spark_type, to_spark

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
    loaded = with_entries(ctx, loaded)
    order = order_of(loaded.snapshot)
    if order is None and not loaded.snapshot.spec.fields:
        raise InvalidRequest(
            f"{uri} has no order to cluster by",
            next_step='Set compact.strategy to "sort" or "zorder", and compact.columns',
        )
    evidence = Evidence.of_snapshot(loaded.snapshot)
    tasks, others = _worth_it(loaded, where, older_than, evidence)
    slices = _slices(tasks, order, slice_bytes, evidence)
    result = ClusterResult(version=loaded.snapshot.version, left=others)
    if dry_run:
        return replace(
            result,
            slices=len(slices),
            input_files=len(tasks),
            read_bytes=sum(t.file.size for t in tasks),
        )
    for number, one in enumerate(slices, 1):
        outputs = _write(spark, uri, loaded, one, order)
        outcome = commit(ctx, _change(ctx, loaded, one, outputs), base=load_again(ctx, loaded))
        if isinstance(outcome, Committed) and not outcome.skipped:
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
        result = replace(result, version=outcome.loaded.snapshot.version)
        progress("cluster", number, len(slices))
    return result


def _worth_it(
    loaded: LoadedTable, where: str | None, older_than: int | None, evidence: Evidence
) -> tuple[list[FileTask], int]:
    """The files to rewrite: partitions with fewer runs than merging takes are in order. Files that an
    erasure has to rewrite are left to it: it counts the rows it removes."""
    state, snapshot = loaded.state, loaded.snapshot
    predicate = None if where is None else parse_predicate(where, snapshot.schema)
    tasks = live_tasks(state, state.files(), state.markers())
    live = [
        t
        for t in tasks.values()
        if (predicate is None or may_match(predicate, evidence.of(t.file), t.file.rows))
        and not any(m.erasure for m in t.markers)
    ]
    groups: dict[object, list[FileTask]] = {}
    for task in live:
        groups.setdefault(group_key(task.file), []).append(task)

    def is_out_of_order(file: DataFile) -> bool:
        cut_otherwise = file.spec_id != snapshot.spec_id or spans_partitions(file, snapshot.specs)
        return cut_otherwise or (file.sequence or 0) < (older_than or 0)

    many = {key for key, group in groups.items() if runs_of(t.file for t in group) >= MIN_RUNS}
    chosen = [t for t in live if group_key(t.file) in many or is_out_of_order(t.file)]
    return chosen, snapshot.totals.files - len(chosen)


def _slices(
    tasks: Sequence[FileTask], order: Order | None, slice_bytes: int, evidence: Evidence
) -> list[list[FileTask]]:
    """Groups of files that are close in the order, `slice_bytes` at a time."""

    def place(task: FileTask) -> tuple[Any, ...]:
        stats = None if order is None else evidence.column(task.file, order.columns[0])
        low = None if stats is None else stats.lower
        known = 0 if low is None else order_key(low)
        return (str(group_key(task.file)), low is None, known, task.file.key)

    slices: list[list[FileTask]] = []
    size = slice_bytes
    for task in sorted(tasks, key=place):
        if size + task.file.size > slice_bytes:
            slices.append([])
            size = 0
        slices[-1].append(task)
        size += task.file.size
    return slices


def _change(
    ctx: Context, loaded: LoadedTable, tasks: Sequence[FileTask], outputs: Sequence[DataFile]
) -> Change:
    version = loaded.snapshot.version
    unit = Unit(
        inputs=tuple(t.file.key for t in tasks),
        outputs=tuple(outputs),
        version=version,
        applied=frozenset(m.id for t in tasks for m in t.markers if m.file is not None),
    )
    return Change(
        operation="compact",
        uploaded_us=loaded.date_us,
        deleted_rows=0,
        updates=(ReplaceFiles((unit,)),),
    )


# -- on Spark -------------------------------------------------------------------------------------


def _write(
    spark: SparkSession,
    uri: str,
    loaded: LoadedTable,
    tasks: Sequence[FileTask],
    order: Order | None,
) -> list[DataFile]:
    """Writes the rows of `tasks` into files of one run."""
    snapshot = loaded.snapshot
    rows = _rows(spark, uri, loaded, tasks)
    by = [_PARTITION] if snapshot.spec.fields else []
    if order is not None:
        match order.kind:
            case "sort":
                by += map(_name, order.columns)
            case "zorder":
                by.append(_KEY)
                few = _rows(spark, uri, loaded, tasks, order.columns)
                rows = rows.withColumn(_KEY, _morton(few, order, sum(t.file.rows for t in tasks)))
    target = Properties(snapshot.properties).number("write.target_file_bytes")
    files = max(1, -(-sum(t.file.size for t in tasks) // target))
    ordered = rows.repartitionByRange(files, *by).sortWithinPartitions(*by)
    run = random.SystemRandom().getrandbits(31)
    write = partial(_write_part, uri, without_entries(loaded), None if order is None else run)
    return collect_pickled(ordered.drop(_PARTITION, _KEY), write)


def _rows(
    spark: SparkSession,
    uri: str,
    loaded: LoadedTable,
    tasks: Sequence[FileTask],
    columns: Sequence[int] = (),
) -> DataFrame:
    """The live rows of `tasks`: all columns, with each row's partition where the table has partitions; or
    only these columns. Files that Spark reads exactly are read by it."""
    schema = loaded.snapshot.schema
    if not columns and loaded.snapshot.spec.fields:
        return _through_python(spark, uri, loaded, tasks)
    shape = _shape(schema, columns)
    ids = tuple(f.id for f in schema.fields if not columns or f.id in columns)
    parts = split(spark, uri, tasks, schema, ids, TRUE)
    frames = native_frames(spark, uri, parts, schema, ids, TRUE)
    rows = [frame.toDF(*shape.names) for frame in frames]
    if parts.rest or not rows:
        rows.append(_through_python(spark, uri, loaded, parts.rest, columns))
    return united(rows)


def _through_python(
    spark: SparkSession,
    uri: str,
    loaded: LoadedTable,
    tasks: Sequence[FileTask],
    columns: Sequence[int] = (),
) -> DataFrame:
    schema = loaded.snapshot.schema
    read = partial(_read_part, uri, without_entries(loaded), tuple(columns))
    shape = _shape(schema, columns)
    if not columns and loaded.snapshot.spec.fields:
        shape = shape.add(_PARTITION, "string", nullable=False)
    return pickled_tasks(spark, tasks, "cluster").mapInArrow(read, shape)


def _name(column: int) -> str:
    return f"c{column}"


def _shape(schema: Schema, columns: Sequence[int]) -> StructType:
    """The columns (all for none) under the names that the jobs of this module use."""
    from pyspark.sql.types import StructField, StructType

    return StructType(
        [
            StructField(_name(f.id), spark_type(f.type, (f.name,)), f.nullable)
            for f in schema.fields
            if not columns or f.id in columns
        ]
    )


def _morton(rows: DataFrame, order: Order, number: int) -> Column:
    """The z-order key of a row (one of about `number`): the bits of its cell in each column,
    interleaved."""
    from pyspark.sql import functions as f

    share = min(1.0, SAMPLE_ROWS / max(number, 1))
    columns = [_name(column) for column in order.columns]
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
    uri: str, loaded: LoadedTable, columns: tuple[int, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    ctx = connect(uri)
    schema = loaded.snapshot.schema
    ids = tuple(f.id for f in schema.fields if not columns or f.id in columns)
    projection = Projection(schema=schema, columns=ids)
    arrow = arrow_for(_shape(schema, columns))
    spec = loaded.snapshot.spec
    cut = Split(spec, schema)
    for piece in read_pickled(ctx, batches, projection):
        if columns or not spec.fields:
            yield to_spark(piece, arrow)
            continue
        for partition, part in cut(piece):
            named = pa.repeat(repr(partition), part.num_rows)
            yield to_spark(part, arrow).append_column(_PARTITION, named)


def _write_part(
    uri: str, loaded: LoadedTable, run: int | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows arrive in order: nothing is sorted here, and each file is written as its rows arrive."""
    ctx = connect(uri)
    schema = loaded.snapshot.schema
    named = (batch.rename_columns(list(schema.names)) for batch in batches)
    rows = conformed(named, schema, schema, by_value=True)
    yield from map(pickled_batch, write_run(ctx, loaded, rows, run))
