"""A table as a stream: each added row once, maintenance and deletes notwithstanding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]}, schema=SCHEMA)


@pytest.fixture
def follow(spark: Any, tmp_path: Path) -> Callable[..., list[list[int]]]:
    """`follow(table, **options)`: the ids of each micro-batch that is new since the last call."""

    def run(table: inlay.Table, **options: Any) -> list[list[int]]:
        batches: list[list[int]] = []

        def collect(batch: Any, batch_id: int) -> None:
            batches.append(sorted(row.id for row in batch.collect()))

        query = (
            spark.readStream.format("inlay")
            .options(**options)
            .load(table.uri)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch for batch in batches if batch]

    return run


def test_first_what_there_is_then_what_is_added(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(1, 2, 3), primary_key="id")
    table.delete("id = 2")
    assert follow(table) == [[1, 3]]
    assert follow(table) == []
    table.append(rows(4))
    table.append(rows(5, 6))
    table.delete("id = 5")  # not told: its row was added
    table.compact()
    table.upsert(rows(1))
    assert follow(table) == [[1, 4, 5, 6]]
    table.compact()
    assert follow(table) == []


def test_a_batch_takes_no_more_files_than_allowed(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(0))
    for start in range(1, 6):
        table.append(rows(start))
    assert follow(table, maxFilesPerTrigger=4) == [[0, 1, 2, 3], [4, 5]]
    for start in range(6, 9):
        table.append(rows(start))
    # A file larger than the limit is a batch of its own.
    assert follow(table, maxBytesPerTrigger=1) == [[6], [7], [8]]


def test_a_stream_starts_at_a_version_or_a_time(
    follow: Callable[..., list[list[int]]], new_table: NewTable, tmp_path: Path
) -> None:
    table = new_table(rows(0))
    table.append(rows(1))
    table.append(rows(2))
    assert follow(table, startVersion=3) == [[1, 2]]
    times = {row["version"]: row["time"] for row in table.history().to_pylist()}
    (tmp_path / "checkpoint").rename(tmp_path / "another query")
    assert follow(table, startTime=times[3].isoformat(), where="id < 9") == [[2]]


def test_a_fixed_version_is_no_stream(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    with pytest.raises(Exception, match="no fixed version"):
        follow(new_table(rows(0)), version=2)
