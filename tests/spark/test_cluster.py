"""A table that Spark clusters has the same rows, and lookups open few of its files."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pipelines import cluster as job

import inlay
from inlay.errors import InvalidRequest
from inlay.spark import cluster as module
from inlay.spark.cluster import cluster

ROWS = 6_000
FILES = 6


def _shuffled(new_table: Callable[..., inlay.Table], **properties: object) -> inlay.Table:
    chance = random.Random(5)
    ids = list(range(ROWS))
    chance.shuffle(ids)
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("amount", pa.decimal128(9, 2))])
    table = new_table(
        schema,
        properties={"write.target_file_bytes": 8_192, "write.row_group_rows": 500, **properties},
    )
    step = ROWS // FILES
    for n in range(FILES):
        part = ids[n * step : (n + 1) * step]
        cities = [None if i % 50 == 0 else f"city {chance.randrange(400):03}" for i in part]
        amounts = pa.array([i * 100 for i in part]).cast(pa.decimal128(21, 2)).cast(schema.types[2])
        table.append(pa.table({"id": part, "city": cities, "amount": amounts}, schema=schema))
    return table


def _opened(table: inlay.Table, where: str) -> int:
    return len(table.scan(where=where).plan.tasks)


def _rows(table: inlay.Table) -> list[dict[str, Any]]:
    return table.refresh().scan().to_arrow().sort_by("id").to_pylist()


SORT = {"compact.strategy": "sort", "compact.columns": "id"}


def test_sorted_files_do_not_overlap(spark: Any, new_table: Callable[..., inlay.Table]) -> None:
    table = _shuffled(new_table, **SORT)
    table.delete("id BETWEEN 100 AND 199")
    table.delete("id = 7", mode="vector")
    before = _rows(table)
    result = cluster(spark, table.uri)
    assert (result.slices, result.input_files, result.rows) == (1, FILES, len(before))
    assert result.output_files > 3
    assert _rows(table) == before
    assert max(_opened(table, f"id = {i}") for i in range(0, ROWS, 501)) == 1
    assert table.inspect.files().num_rows == result.output_files


def test_what_spark_reads_exactly_does_not_go_through_python(
    spark: Any, new_table: Callable[..., inlay.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _shuffled(new_table, **SORT)
    table.delete("id BETWEEN 100 AND 199")
    before = _rows(table)
    monkeypatch.delattr(module, "_through_python")
    assert cluster(spark, table.uri).rows == len(before)
    assert _rows(table) == before


def test_a_clustered_table_is_left_alone(spark: Any, new_table: Callable[..., inlay.Table]) -> None:
    table = _shuffled(new_table, **SORT)
    version = cluster(spark, table.uri).version
    again = cluster(spark, table.uri)
    assert (again.version, again.slices) == (version, 0)


def test_z_order_serves_lookups_by_each_column(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    table = _shuffled(
        new_table, **{"compact.strategy": "zorder", "compact.columns": "city, amount"}
    )
    before = _rows(table)
    files = cluster(spark, table.uri).output_files
    assert _rows(table) == before
    by_city = [_opened(table, f"city = 'city {n:03}'") for n in range(0, 400, 39)]
    by_amount = [_opened(table, f"amount = {n}") for n in range(0, ROWS, 499)]
    assert files >= 4
    assert sum(by_city) / len(by_city) < 0.75 * files
    assert sum(by_amount) / len(by_amount) < 0.75 * files


def test_slices_commit_one_by_one_and_a_touched_one_costs_only_itself(
    spark: Any, new_table: Callable[..., inlay.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _shuffled(new_table, **SORT)
    first = table.inspect.files()["key"].to_pylist()
    size = max(table.inspect.files()["bytes"].to_pylist())
    real = module._write
    deleted: list[int] = []

    def interrupted(*arguments: Any) -> Any:
        outputs = real(*arguments)
        if not deleted:
            touched = arguments[3][0].file.key
            done = inlay.open(table.uri).delete("id < 3000", file=touched, mode="vector")
            deleted.append(done.deleted_rows or 0)
        return outputs

    monkeypatch.setattr(module, "_write", interrupted)
    result = cluster(spark, table.uri, slice_bytes=3 * size)
    assert (result.slices, result.skipped) == (1, 1)
    table.refresh()
    assert len(set(first) & set(table.inspect.files()["key"].to_pylist())) == 3
    assert deleted[0] > 0
    assert table.count() == ROWS - deleted[0]


def test_a_dry_run_reports_and_writes_nothing(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    table = _shuffled(new_table, **SORT)
    result = cluster(spark, table.uri, dry_run=True)
    assert (result.slices, result.input_files, result.version) == (1, FILES, table.version)
    assert result.version == table.refresh().version


def test_a_table_without_an_order_says_how_to_give_one(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    table = new_table(pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidRequest, match=r"compact\.strategy"):
        cluster(spark, table.uri)


def test_a_changed_order_is_made_so_once(spark: Any, new_table: Callable[..., inlay.Table]) -> None:
    table = _shuffled(new_table, **SORT)
    cluster(spark, table.uri)
    changed = table.refresh().set_properties(compact__columns="amount").version
    before = _rows(table)
    assert cluster(spark, table.uri).slices == 0  # it is in an order
    assert cluster(spark, table.uri, older_than=changed).slices == 1
    assert _rows(table) == before
    assert cluster(spark, table.uri, older_than=changed).slices == 0


def test_files_of_another_partitioning_are_split_again_and_few(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    table = _shuffled(new_table, **SORT | {"write.target_file_bytes": 1 << 20})
    table.delete("id < 100")
    table.set_partitioning("bucket(4, id)")
    table.append(table.scan(where="id = 5000").to_arrow())
    before = _rows(table)
    told = cluster(spark, table.uri)
    # Rows are sent to where their partition is written: not a file of each partition from each task.
    assert (told.input_files, told.output_files, told.left) == (FILES, 4, 1)
    assert _rows(table) == before
    assert {f.partition for f in table.inspect.entries()[0]} == {(0,), (1,), (2,), (3,)}
    assert table.maintain.verify(depth="pages").findings == ()
    assert cluster(spark, table.uri).slices == 0


def test_a_table_without_an_order_is_cut_by_its_partitions_alone(
    spark: Any, new_table: Callable[..., inlay.Table]
) -> None:
    table = _shuffled(new_table, **{"compact.strategy": "pack"})
    table.set_partitioning("truncate(6, city)")
    before = _rows(table)
    assert cluster(spark, table.uri).input_files == FILES
    assert _rows(table) == before
    assert {f.cluster for f in table.inspect.entries()[0]} == {None}


@pytest.mark.parametrize("strategy", ["sort", "zorder"])
def test_no_name_is_too_strange(
    spark: Any, new_table: Callable[..., inlay.Table], strategy: str
) -> None:
    names = ["a.b", "A.B", "`"]
    order = {"compact.strategy": strategy, "compact.columns": "a.b, `"}
    table = new_table(pa.schema([(name, pa.int64()) for name in names]), properties=order)
    for n in range(4):
        table.append(pa.table({name: [n, 5 - n, None] for name in names}))
    before = sorted(map(repr, table.scan().to_arrow().to_pylist()))
    assert cluster(spark, table.uri).slices == 1
    assert sorted(map(repr, table.refresh().scan().to_arrow().to_pylist())) == before


def test_the_job_teaches() -> None:
    with pytest.raises(SystemExit) as ended:
        job.main(["--help"])
    assert ended.value.code == 0
