"""Batches of a size Spark likes.

Promise: the same rows in the same order; batches of at least `rows` (but the first and the last), so
that many small files or a selective filter do not cost Spark a batch for every few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

# Arrow batches of 64k to 131k rows are the fastest through Spark's Python source; the reader's own are
# at most 131,072 rows.
GATHER_ROWS = 65_536


def gathered(
    batches: Iterable[pa.RecordBatch], rows: int = GATHER_ROWS
) -> Iterator[pa.RecordBatch]:
    """Small neighbouring batches joined. The first is handed on as it is: a LIMIT may want no more."""
    held: list[pa.RecordBatch] = []
    held_rows = 0
    wanted = 1
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_rows += batch.num_rows
        if held_rows >= wanted:
            yield _joined(held)
            held, held_rows, wanted = [], 0, rows
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
