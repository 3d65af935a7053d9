"""Writing by partition: each file one partition, in order, within bounds of memory and open files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.format.entry import DataFile
from inlay.format.snapshot import PartitionField, PartitionSpec
from inlay.ops.context import InlineExecutor
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.write import writer
from inlay.parquet.write.writer import Layout, Target, write_files
from inlay.storage.memory import MemoryStore

ARROW = pa.schema([("part", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
SCHEMA = schema_from_arrow(ARROW)
BY_PART = PartitionSpec(3, (PartitionField(1, "identity", "part"),))


class Written:
    def __init__(self) -> None:
        self.store = MemoryStore("lake")
        self.entries: list[DataFile] = []

    def write(self, batches: Any, **layout: Any) -> list[DataFile]:
        new_key = (f"data/{i}.parquet" for i in itertools.count()).__next__
        target = Target(self.store, "t/{}".format, new_key, InlineExecutor())
        layout.setdefault("spec", BY_PART)
        for entry in write_files(target, batches, SCHEMA, Layout(stats_columns=(1, 2), **layout)):
            self.entries.append(entry)
        return self.entries

    def rows(self, entry: DataFile) -> pa.Table:
        body = self.store.get(f"t/{entry.key}").body  # type: ignore[union-attr]
        return pq.ParquetFile(pa.BufferReader(body)).read()

    def check(self, count: int) -> None:
        """Every row once, each file one partition, in the order given within it."""
        seen: list[int] = []
        for entry in self.entries:
            found = self.rows(entry)
            assert set(found["part"].to_pylist()) == set(entry.partition)
            assert entry.spec_id == 3 and entry.rows == found.num_rows
            numbers = found["n"].to_pylist()
            assert numbers == sorted(numbers)
            seen += numbers
        assert sorted(seen) == list(range(count))


def batches(
    count: int, partitions: int, *, size: int = 500, width: int = 8
) -> Iterator[pa.RecordBatch]:
    chance = random.Random(4)
    for first in range(0, count, size):
        numbers = range(first, min(first + size, count))
        parts = [chance.randrange(partitions) for _ in numbers]
        texts = [chance.randbytes(width // 2).hex() for _ in numbers]
        yield pa.record_batch([pa.array(parts), pa.array(numbers), pa.array(texts)], schema=ARROW)


def test_rows_in_any_order_make_one_file_for_each_partition() -> None:
    written = Written()
    written.write(batches(8_000, 30))
    assert len(written.entries) == 30, "as long as they fit into memory"
    written.check(8_000)


def test_batches_of_single_rows_are_no_other() -> None:
    written = Written()
    written.write(batches(700, 5, size=1))
    assert len(written.entries) == 5
    written.check(700)


def test_null_is_a_partition() -> None:
    batch = pa.record_batch(
        [pa.array([None, 1, None], pa.int64()), pa.array([0, 1, 2]), pa.array(["", "", ""])],
        schema=ARROW,
    )
    written = Written()
    written.write([batch])
    assert sorted((e.partition for e in written.entries), key=str) == [(1,), (None,)]
    written.check(3)


def test_what_is_held_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 1_000_000
    monkeypatch.setattr(writer, "HELD_BYTES", bound)
    before = pa.total_allocated_bytes()
    peak = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for batch in batches(20_000, 30, width=400):
            peak = max(peak, pa.total_allocated_bytes() - before)
            yield batch

    written = Written()
    written.write(watched())
    written.check(20_000)
    assert peak < 2 * bound, "8 MB went through"
    # Half of what is held is let go at a time: files are no smaller than that.
    assert len(written.entries) < 2 * 30 * (20_000 * 416 / bound)


def test_few_files_are_sent_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "OPEN_FILES", 3)
    sending: list[int] = []
    finish = writer._to_finish

    def watched(open_files: Any, last: Any, held: int) -> Any:
        done = finish(open_files, last, held)
        sending.append(sum(f.sending for p, f in open_files.items() if p not in done))
        return done

    monkeypatch.setattr(writer, "_to_finish", watched)
    written = Written()
    written.write(batches(8_000, 12), row_group_rows=100)
    written.check(8_000)
    assert max(sending) == 3


def test_rows_clustered_by_partition_make_full_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "OPEN_FILES", 1)

    def clustered() -> Iterator[pa.RecordBatch]:
        for n, batch in enumerate(batches(20_000, 1)):
            part = pa.array([n // 10] * batch.num_rows)
            yield pa.record_batch([part, batch["n"], batch["text"]], schema=ARROW)

    written = Written()
    written.write(clustered(), row_group_rows=1000)
    written.check(20_000)
    assert len(written.entries) == 4 and {e.row_groups for e in written.entries} == {5}


def test_each_file_is_sorted_across_its_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound, files in ((writer.HELD_BYTES, 4), (200_000, None)):
        monkeypatch.setattr(writer, "HELD_BYTES", bound)
        written = Written()
        shuffled = (b.take(pa.array(range(b.num_rows - 1, -1, -1))) for b in batches(20_000, 4))
        written.write(shuffled, sort_by=(2,), row_group_rows=1000)
        written.check(20_000)
        assert len(written.entries) == files or files is None
        for entry in written.entries:
            body = written.store.get(f"t/{entry.key}").body  # type: ignore[union-attr]
            metadata = pq.read_metadata(pa.BufferReader(body))
            groups = [metadata.row_group(n).column(1).statistics for n in range(entry.row_groups)]
            assert all(a.max <= b.min for a, b in pairwise(groups))


def test_a_failure_leaves_nothing_of_the_open_files() -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield from batches(5_000, 8)
        raise RuntimeError("the source broke")

    written = Written()
    with pytest.raises(RuntimeError):
        written.write(breaking(), row_group_rows=100)
    assert list(written.store.list("")) == [] and list(written.store.list_uploads("")) == []
