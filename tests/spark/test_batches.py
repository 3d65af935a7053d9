from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from inlay.spark.batches import GATHER_ROWS, MAX_BYTES, gathered


def batch(start: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(start, start + rows), pa.int64())})


def small_batches(number: int, rows: int) -> Iterator[pa.RecordBatch]:
    for n in range(number):
        yield batch(n * rows, rows)


def test_small_batches_are_joined_and_the_first_is_not_kept_waiting() -> None:
    found = list(gathered(small_batches(200, 1000)))
    assert found[0].num_rows == 1000
    assert all(GATHER_ROWS <= b.num_rows < GATHER_ROWS + 1000 for b in found[1:-1])
    assert pa.Table.from_batches(found).column("id").to_pylist() == list(range(200_000))


def test_no_more_is_read_than_the_first_batch_for_a_limit() -> None:
    source = small_batches(200, 1000)
    next(gathered(source))
    assert next(source).column("id")[0].as_py() == 1000


def test_wide_rows_are_cut_to_what_the_jvm_can_hold() -> None:
    wide = pa.record_batch({"text": ["x" * 1_000_000] * 200})
    found = list(gathered([wide]))
    assert sum(b.num_rows for b in found) == 200
    assert all(b.nbytes <= MAX_BYTES * 1.1 for b in found)


def test_empty_batches_vanish() -> None:
    assert list(gathered([batch(0, 0), batch(0, 0)])) == []
