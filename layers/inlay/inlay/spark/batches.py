"""Batches of a size that suits Spark.

Promise: the same rows in the same order, in batches of about `GATHER_ROWS` or more unless their bytes limit
them, so that many small files or a selective filter do not cost Spark a batch for every few rows, and wide
rows do not make a batch that the JVM cannot hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import pyarrow as pa

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
