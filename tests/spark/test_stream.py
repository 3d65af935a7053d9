"""A table as a stream: each added row once, maintenance and deletes notwithstanding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay

from .streams import run_to_end

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

        run_to_end(
            spark.readStream.format("inlay")
            .options(**options)
            .load(table.uri)
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
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
    # A file larger than the limit is a separate batch.
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


@pytest.mark.parametrize("option", [{}, {"changeFeed": "true"}])
def test_what_is_published_from_a_branch_is_told_once(
    follow: Callable[..., list[list[int]]], new_table: NewTable, option: dict[str, str]
) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    assert follow(table, **option) == [[1, 2]]
    branch = table.branch("load")
    branch.append(rows(3))
    branch.append(rows(4, 5))
    branch.delete("id = 5")
    branch.compact(small_bytes=1 << 30)  # its one file has the rows 1 and 2 as well
    assert branch.refresh().files().num_rows == 1
    assert follow(table, **option) == []  # main has seen nothing of it
    table.refresh().merge("load")
    assert follow(table, **option) == [[3, 4]]
    table.append(rows(6))
    assert follow(table, **option) == [[6]]


def test_rows_that_a_merge_of_a_branch_brings_are_told_without_the_deleted(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    branch = table.branch("load")
    branch.append(rows(3, 4))
    branch.delete("id = 3")
    table.append(rows(5))
    assert follow(table) == [[1, 2, 5]]
    table.refresh().merge("load")
    assert follow(table) == [[4]]


def test_a_restore_tells_the_rows_that_are_back(
    follow: Callable[..., list[list[int]]], new_table: NewTable
) -> None:
    table = new_table(rows(1, 2), primary_key="id")
    before = table.append(rows(3)).version
    table.delete("id = 3")
    assert follow(table) == [[1, 2]]
    table.restore(version=before)
    assert follow(table) == [[3]]


@pytest.mark.parametrize("option", [{}, {"changeFeed": "true"}])
def test_a_branch_is_a_stream_of_its_own(
    follow: Callable[..., list[list[int]]], new_table: NewTable, option: dict[str, str]
) -> None:
    table = new_table(rows(1), primary_key="id")
    branch = table.branch("next")
    branch.append(rows(2))
    assert follow(table, ref="next", **option) == [[1, 2]]
    table.refresh().append(rows(3))  # on main
    branch.refresh().append(rows(4))
    assert follow(table, ref="next", **option) == [[4]]


def test_a_tag_is_no_stream(follow: Callable[..., list[list[int]]], new_table: NewTable) -> None:
    table = new_table(rows(1))
    table.tag("then")
    with pytest.raises(Exception, match="the tag 'then' never changes"):
        follow(table, ref="then")
