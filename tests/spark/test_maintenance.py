"""Maintenance by Spark tasks leaves what maintenance in one process leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.ops.maintain.units import reduced, with_entries
from inlay.ops.metadata.load import load_pointer
from inlay.plan.maintain.compaction import plan_compaction
from inlay.spark.connect import connect
from inlay.spark.maintenance import advance_erasures, compact, materialize_deletes

from .conftest import load, sorted_rows

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def rows(start: int, number: int) -> pa.Table:
    ids = range(start, start + number)
    return pa.table({"id": ids, "name": [f"n{i % 9}" for i in ids]}, schema=SCHEMA)


@pytest.fixture
def scattered(new_table: NewTable) -> inlay.Table:
    """Eleven small files with deletes of several kinds; a twelfth went when all of it was deleted."""
    table = new_table(SCHEMA, primary_key="id", properties={"write.row_group_rows": 25})
    for start in range(0, 1200, 100):
        table.append(rows(start, 100))
    table.delete("id BETWEEN 290 AND 410")
    table.delete("name = 'n3'")
    table.delete("id IN (5, 6, 1111)", mode="vector")
    return table


def live(table: inlay.Table) -> list[dict[str, Any]]:
    return sorted_rows(table.refresh().scan().to_arrow(), "id")


def test_compaction_on_executors_packs_files_and_keeps_rows(
    spark: Any, scattered: inlay.Table
) -> None:
    before = live(scattered)
    result = compact(spark, scattered.uri)
    assert not result.failures
    assert live(scattered) == before
    assert sorted_rows(load(spark, scattered).toArrow(), "id") == before
    assert scattered.inspect.files().num_rows == result.output_files == 1
    assert scattered.inspect.tombstones().num_rows == 0
    assert result.removed_rows == 1100 - len(before)
    # There is nothing left to do.
    assert compact(spark, scattered.uri).units == 0


def test_deletes_become_absent_rows_file_by_file(spark: Any, scattered: inlay.Table) -> None:
    before = live(scattered)
    result = materialize_deletes(spark, scattered.uri)
    assert live(scattered) == before
    assert scattered.inspect.tombstones().num_rows == 0
    assert len(result.choices) == 11
    assert sum(scattered.inspect.files().column("rows").to_pylist()) == len(before)
    assert (result.files, result.commits) == (11, 2)  # waves of 8 on two slots


def test_an_erasure_leaves_no_file_with_its_rows(spark: Any, scattered: inlay.Table) -> None:
    scattered.delete("id IN (7, 293, 1111)", mode="erase")  # 293 and 1111 are hidden by deletes
    before = live(scattered)
    result = advance_erasures(spark, scattered.uri)
    assert not result.failures
    assert live(scattered) == before
    for entry in scattered.inspect.entries()[0]:
        data = pq.read_table(Path(scattered.uri.removeprefix("file://")) / entry.key)
        assert not {7, 293, 1111} & set(data.column("id").to_pylist())
    assert advance_erasures(spark, scattered.uri).files == 0


def test_what_is_remembered_of_deletes_is_kept_like_the_table(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int64())])
    table = new_table(schema, primary_key="id")
    memory = f"{table.uri}/changes"
    for seq in (1, 2, 3):
        gone = {"op": ["D", "D", "U"], "id": [seq, 10 + seq, 20 + seq], "seq": [seq] * 3}
        table.refresh().apply_changes(pa.table(gone), order="seq", op="op")
    assert inlay.open(memory).inspect.files().num_rows == 3
    compact(spark, table.uri, small_bytes=1 << 30)
    assert inlay.open(memory).inspect.files().num_rows == 1
    table.refresh().delete("id IN (2, 22)", mode="erase")
    assert not advance_erasures(spark, table.uri).failures
    for place in (table.uri, memory):
        for entry in inlay.open(place).inspect.entries()[0]:
            data = pq.read_table(Path(place.removeprefix("file://")) / entry.key)
            assert not {2, 22} & set(data.column(0).to_pylist())
    known = inlay.open(memory).scan().to_arrow()
    assert sorted(known.column(0).to_pylist()) == [1, 3, 11, 12, 13]


def test_an_erasure_cleans_branches_and_tags_as_well(spark: Any, scattered: inlay.Table) -> None:
    scattered.refs.tag("release")
    work = scattered.refs.branch("work")
    work.append(scattered.scan(where="id = 7").to_arrow())
    scattered.delete("id = 7", mode="erase")
    result = advance_erasures(spark, scattered.uri)
    assert not result.failures and result.removed_rows > 3
    assert advance_erasures(spark, scattered.uri).files == 0
    for ref in ("work", "release"):
        table = inlay.open(scattered.uri, ref=ref)
        for entry in table.inspect.entries()[0]:
            data = pq.read_table(Path(scattered.uri.removeprefix("file://")) / entry.key)
            assert 7 not in data.column("id").to_pylist()


def test_a_broken_file_costs_only_itself(spark: Any, scattered: inlay.Table) -> None:
    before = live(scattered)
    broken = scattered.inspect.files().column("key").to_pylist()[0]
    path = Path(scattered.uri.removeprefix("file://")) / broken
    whole = path.read_bytes()
    path.write_bytes(whole[:50] + bytes(len(whole) - 50))
    result = materialize_deletes(spark, scattered.uri)
    assert [failure.key for failure in result.failures] == [broken]
    assert result.files == 10
    path.write_bytes(whole)
    assert live(inlay.open(scattered.uri)) == before


def test_a_task_is_sent_its_own_entries_only(scattered: inlay.Table) -> None:
    ctx = connect(scattered.uri)
    loaded = with_entries(ctx, load_pointer(ctx))
    units = plan_compaction(loaded.state, small_bytes=1).units
    assert len(units) == 11
    for unit, part in zip(units, reduced(loaded, units), strict=True):
        assert tuple(f.key for f in part.state.files()) == unit.inputs
        assert 1 <= len(list(part.state.markers())) <= 3
