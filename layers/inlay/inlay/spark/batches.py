"""Batches on their way through Spark: of a size that suits it, and with tasks or results in them.

Promise of `gathered`: the same rows in the same order, in batches of about `GATHER_ROWS` or more unless
their bytes limit them, so that many small files or a selective filter do not cost Spark a batch for every
few rows, and wide rows do not make a batch that the JVM cannot hold.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.engine import Context, FileTask, ScanParts
from inlay.errors import InputError
from inlay.spark.context import context_of
from inlay.spark.options import PARTITION_BYTES
from inlay.spark.partitions import plan_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Arrow batches of 64k to 131k rows are the fastest through Spark's Python source; the reader's own are
# at most 131,072 rows.
GATHER_ROWS = 65_536
# Enough for the overhead of a batch to be negligible, whatever its rows.
GATHER_BYTES = 16 * 1024 * 1024
# Spark holds a batch off its heap, one for each task and one more in transit; Arrow's own limit is 2 GB for
# a column of strings.
MAX_BYTES = 64 * 1024 * 1024


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small adjacent batches joined, large ones cut. The first is passed on at once: a LIMIT may need no
    more."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    first = True
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if first or rows >= GATHER_ROWS or size >= GATHER_BYTES:
            yield from _cut(_joined(held), size)
            held, rows, size, first = [], 0, 0, False
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    pieces = max(1, min(batch.num_rows, -(-size // MAX_BYTES)))
    bounds = [batch.num_rows * n // pieces for n in range(pieces + 1)]
    for start, end in pairwise(bounds):
        yield batch.slice(start, end - start)


# -- tasks to executors, and what they return -----------------------------------------------------

Map = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def pickled_tasks(spark: SparkSession, tasks: Sequence[FileTask], verb: str) -> DataFrame:
    """A row for each partition of these tasks, for `read_pickled`. Raises `InvalidRequest`, naming the
    verb, for a client of Spark Connect."""
    context = context_of(spark, verb)
    parts = plan_partitions(
        tasks, partition_bytes=PARTITION_BYTES, parallelism=context.defaultParallelism
    )
    pieces = context.parallelize([(pickle.dumps(p.tasks),) for p in parts], max(1, len(parts)))
    return spark.createDataFrame(pieces, "tasks binary")


def read_pickled(
    ctx: Context, batches: Iterable[pa.RecordBatch], scan: ScanParts
) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of the tasks in these batches."""
    for batch in batches:
        for tasks in batch.column(0).to_pylist():
            yield from gathered(scan.read(ctx, pickle.loads(tasks)))


def collect_pickled(rows: DataFrame, work: Map) -> list[Any]:
    """What `work` returns by `pickled_batch`, on executors, for the rows of each partition. Raises what it
    raises about its input: no other attempt could succeed, and from a failed job only text would return."""
    answers = rows.mapInArrow(partial(_answer, work), "returned binary").collect()
    returned = [pickle.loads(answer[0]) for answer in answers]
    for answer in returned:
        if isinstance(answer, InputError):
            raise answer
    return returned


def _answer(work: Map, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from work(batches)
    except InputError as error:
        yield pickled_batch(error)


def pickled_batch(value: object) -> pa.RecordBatch:
    return pa.record_batch({"returned": [pickle.dumps(value)]})
