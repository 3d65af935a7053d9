"""Files with deletes by position are read by Spark's own reader: the rows are those of the source and of a
model, whatever Spark skips or splits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import inlay
from inlay.errors import CorruptTable
from inlay.spark import InlayTable, dml, explain, read
from inlay.spark.context import java_class

from .conftest import sorted_rows, three_files

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

# Readers of Spark: whole files in batches; files cut into many tasks; rows one by one.
READERS: dict[str, dict[str, str]] = {
    "whole": {},
    "cut": {"spark.sql.files.maxPartitionBytes": "4096", "spark.sql.files.openCostInBytes": "1"},
    "by row": {"spark.sql.parquet.enableVectorizedReader": "false"},
}


@contextmanager
def settings(spark: Any, given: dict[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in given}
    try:
        for name, value in given.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


class Life:
    """A table that lives through random changes, with the rows that it must have at each version."""

    def __init__(self, table: inlay.Table, seed: int) -> None:
        self.table = table
        self.chance = random.Random(seed)
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.versions: dict[int, dict[int, tuple[Any, ...]]] = {}
        self.columns = ["id", "part", "x", "name"]
        self.next = 0

    def append(self) -> None:
        number = self.chance.randrange(200, 700)
        ids = range(self.next, self.next + number)
        self.next += number
        new = {}
        for key in ids:
            row = [key, key % 3, key / 4, None if key % 7 == 0 else f"name {key % 40}"]
            new[key] = (*row, *([key * 2] if len(self.columns) > 4 else []))
        self.table.append(
            pa.table(
                {name: [row[n] for row in new.values()] for n, name in enumerate(self.columns)},
                schema=self.table.schema,
            )
        )
        self.rows |= new

    def widen(self) -> None:
        """Files from before have fewer columns, and a narrower one."""
        if len(self.columns) == 4:
            self.table.alter(add={"more": pa.int64()}, widen={"part": pa.int64()})
            self.columns.append("more")
            self.rows = {key: (*row, None) for key, row in self.rows.items()}

    def delete(self, mode: str) -> None:
        low = self.chance.randrange(self.next)
        high = low + self.chance.randrange(1, 150)
        where, gone = self.chance.choice(
            [
                (f"id BETWEEN {low} AND {high}", lambda r: low <= r[0] <= high),
                (f"name = 'name {low % 40}'", lambda r: r[3] == f"name {low % 40}"),
                (f"x > {low / 4} AND part = 1", lambda r: r[2] > low / 4 and r[1] == 1),
            ]
        )
        self.table.delete(where, mode=mode)
        self.rows = {key: row for key, row in self.rows.items() if not gone(row)}

    def delete_keys(self) -> None:
        keys = self.chance.sample(range(self.next), self.next // 20)
        self.table.delete(keys=pa.table({"id": pa.array(keys, pa.int64())}))
        self.rows = {key: row for key, row in self.rows.items() if key not in set(keys)}

    def delete_groups(self) -> None:
        files = self.table.inspect.files()
        place = self.chance.randrange(files.num_rows)
        if files["row_groups"][place].as_py() > 1:
            key = files["key"][place].as_py()
            before = set(self.table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
            self.table.maintain.delete_row_groups(key, [1])
            after = set(self.table.refresh().scan(columns=["id"]).to_arrow()["id"].to_pylist())
            for key in before - after:
                del self.rows[key]

    def step(self) -> None:
        self.chance.choice(
            [
                self.append,
                lambda: self.delete("vector"),
                lambda: self.delete("vector"),
                lambda: self.delete("tombstone"),
                self.delete_keys,
                self.delete_groups,
                self.widen,
            ]
        )()
        self.table.refresh()
        self.versions[self.table.version] = dict(self.rows)


@pytest.mark.parametrize("seed", range(6))
def test_random_deletes_of_all_kinds(
    spark: Any, new_table: NewTable, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed > 2:  # all bitmaps by one join, else each in the condition of its file
        monkeypatch.setattr("inlay.spark.native.INLINE_FILES", 0)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("part", pa.int32()),
            ("x", pa.float64()),
            ("name", pa.string()),
        ]
    )
    options = {"partition_by": ["part"]} if seed % 2 else {}
    table = new_table(schema, primary_key="id", properties={"write.row_group_rows": 100}, **options)
    life = Life(table, seed)
    life.append()
    for _ in range(8):
        life.step()
    table.refs.branch("side")
    reader = sorted(READERS)[seed % len(READERS)]
    low = life.chance.randrange(life.next)
    wheres = [None, f"id > {low}", f"name LIKE 'name 2%' OR x < {low / 8}"]
    before = list(life.versions.items())[-2]
    with settings(spark, READERS[reader]):
        for (version, rows), where in zip((before, (None, life.rows)), wheres, strict=False):
            check(spark, table.uri, rows, where, version=version)
        check(spark, table.uri, life.rows, wheres[2])
        check(spark, table.uri, life.rows, wheres[1], ref="side")
    if len(life.columns) == 4:
        assert explain(spark, table.uri).source_files == 0
    assert {"deletes"}.isdisjoint(explain(spark, table.uri).why)


@pytest.mark.parametrize("seed", range(20, 26))
def test_random_changes_hit_the_rows_that_they_select(
    spark: Any, new_table: NewTable, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`InlayTable` finds rows by Spark's reader where that reads a file exactly, by Python in other files,
    in one statement; whatever deletes are pending, and whatever Spark cuts or skips."""
    if seed % 2:
        monkeypatch.setattr("inlay.spark.native.INLINE_FILES", 0)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("part", pa.int32()),
            ("x", pa.float64()),
            ("name", pa.string()),
        ]
    )
    options = {"partition_by": ["part"]} if seed % 4 > 1 else {}
    table = new_table(schema, primary_key="id", properties={"write.row_group_rows": 100}, **options)
    life = Life(table, seed)
    life.append()
    for _ in range(5):
        life.step()
    by_python: list[int] = []
    pickled = dml.pickled_tasks
    monkeypatch.setattr(
        dml,
        "pickled_tasks",
        lambda *given: by_python.append(len(given[1])) or pickled(*given),
    )
    rows, low = life.rows, life.chance.randrange(life.next)
    target = InlayTable(spark, table.uri).alias("t")
    source = spark.range(0, life.next + 50, 7).selectExpr("id", "'merged' AS name").alias("s")
    with settings(spark, READERS[sorted(READERS)[seed % len(READERS)]]):
        target.update({"name": "concat(name, '!')"}, f"x > {low / 4} AND id % 3 = 0")
        target.delete(f"id % 11 = 1 OR name = 'name {low % 40}'")
        merge = target.merge(source, "t.id = s.id").whenMatchedUpdate(
            "t.id % 2 = 0", set={"name": "s.name", "x": "t.x + 1"}
        )
        merge.whenMatchedDelete().whenNotMatchedInsert(
            values={"id": "id", "name": "name"}
        ).execute()
    for key, row in list(rows.items()):
        if row[2] > low / 4 and key % 3 == 0 and row[3] is not None:
            rows[key] = (*row[:3], row[3] + "!", *row[4:])
    for key, row in list(rows.items()):
        if key % 11 == 1 or row[3] == f"name {low % 40}":
            del rows[key]
    for key in range(0, life.next + 50, 7):
        if key not in rows:
            rows[key] = (key, None, None, "merged", *([None] if len(life.columns) > 4 else []))
        elif key % 2:
            del rows[key]
        else:
            _, part, x, _, *more = rows[key]
            rows[key] = (key, part, x + 1, "merged", *more)
    found = sorted_rows(table.refresh().scan().to_arrow(), "id")
    assert [tuple(row.values()) for row in found] == [rows[key] for key in sorted(rows)]
    if len(life.columns) == 4:
        assert by_python == []


def check(
    spark: Any, uri: str, rows: dict[int, tuple[Any, ...]], where: str | None, **at: Any
) -> None:
    """`where` by `read`, and by Spark on all rows, against DuckDB on the model's."""
    asked = read(spark, uri, **at)
    names = asked.columns
    columns = {name: [row[n] for row in rows.values()] for n, name in enumerate(names)}
    model = duckdb.from_arrow(pa.table(columns))
    expected = model.query("m", f"SELECT * FROM m WHERE {where or 'true'} ORDER BY id").fetchall()
    narrow = [(row[names.index("x")],) for row in expected]  # ascends with the id
    pushed = asked if where is None else asked.where(where)
    assert [tuple(row) for row in pushed.orderBy("id").collect()] == expected
    less = read(spark, uri, columns=["x"], where=where, **at)
    assert [tuple(row) for row in less.orderBy("x").collect()] == narrow


def test_after_update_delete_and_merge_spark_reads_every_file(
    spark: Any, new_table: NewTable
) -> None:
    table = three_files(new_table)
    model = duckdb.from_arrow(table.scan().to_arrow())
    InlayTable(spark, table.uri).update({"name": "'new'"}, "id % 20 = 3")
    InlayTable(spark, table.uri).delete("id % 50 = 7")
    source = spark.range(0, 2_000, 25).selectExpr("id", "'merged' AS name", "0D AS amount")
    merge = InlayTable(spark, table.uri).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    expected = model.query(
        "model",
        """SELECT id, CASE WHEN id % 20 = 3 THEN 'new' ELSE name END AS name, amount FROM model
           WHERE id % 50 <> 7 AND id % 25 <> 0
           UNION ALL SELECT range, 'merged', 0 FROM range(0, 2000, 25)""",
    ).to_arrow_table()
    plan = explain(spark, table.uri)
    assert (plan.source_files, dict(plan.why)) == (0, {})
    assert table.refresh().inspect.tombstones().num_rows >= 3
    seen = read(spark, table.uri).toArrow()
    assert sorted_rows(seen, "id") == sorted_rows(expected, "id")


def test_files_with_and_without_deletes_are_one_scan_whose_code_stays(
    spark: Any, new_table: NewTable
) -> None:
    """A scan for each file, each with its own code, costs a small query more than its rows."""

    def asked() -> tuple[int, int]:
        frame = read(spark, table.uri, columns=["id"]).selectExpr("sum(id)")
        scans = frame._jdf.queryExecution().optimizedPlan().collectLeaves().length()
        return scans, frame.collect()[0][0]

    def compiled() -> int:
        metrics = java_class(spark, "org.apache.spark.metrics.source.CodegenMetrics")
        return int(metrics.METRIC_COMPILATION_TIME().getCount())

    table = three_files(new_table)
    total = sum(range(1_200))
    table.delete("id = 5", mode="vector")
    # Most files have none: their rows are not looked up.
    assert asked() == (2, total := total - 5)
    table.delete("id = 405", mode="vector")
    assert asked() == (1, total := total - 405)
    before = compiled()
    table.delete("id IN (6, 1100)", mode="vector")
    assert asked() == (1, total - 1_106)
    assert compiled() == before


def test_columns_named_as_spark_names_a_rows_place(spark: Any, new_table: NewTable) -> None:
    names = [
        "id",
        "_metadata",
        "row_index",
        "file_name",
        "words",
        "file",
    ]
    table = new_table(pa.table({name: list(range(300)) for name in names}))
    table.delete("id % 3 = 1", mode="vector")
    assert explain(spark, table.uri).source_files == 0
    expected = [(n,) * len(names) for n in range(300) if n % 3 != 1]
    assert [tuple(row) for row in read(spark, table.uri).orderBy("id").collect()] == expected
    # This one Spark refuses to read beside a row's place.
    table = new_table(
        pa.table({name: list(range(300)) for name in ("id", "_TMP_metadata_row_index")})
    )
    table.delete("id % 3 = 1", mode="vector")
    assert explain(spark, table.uri).why == {"deletes": 1}
    assert explain(spark, table.uri, columns=["id"]).source_files == 0
    assert read(spark, table.uri, columns=["id"]).count() == read(spark, table.uri).count() == 200
    # A struct of that name, with the fields that Spark's own has.
    place = pa.array([{"file_name": "a", "row_index": n} for n in range(300)])
    table = new_table(pa.table({"id": range(300), "_metadata": place}))
    table.delete("id % 3 = 1", mode="vector")
    assert explain(spark, table.uri).source_files == 0
    found = read(spark, table.uri).orderBy("id").collect()
    assert [(row[0], row[1].row_index) for row in found] == [
        (n, n) for n in range(300) if n % 3 != 1
    ]


def test_spark_plans_as_before_the_delete(spark: Any, new_table: NewTable) -> None:
    """Its statistics, by which it chooses how to join, its pruning, and the columns it reads."""
    table = three_files(new_table)
    table.delete("id = 5", mode="vector")
    table.delete("id = 405", mode="vector")
    table.delete("id = 805", mode="vector")
    frame = read(spark, table.uri).where("id > 1100").select("name")
    plan = frame._jdf.queryExecution()
    assert "GreaterThan(id,1100)" in plan.toString()
    assert "ReadSchema: struct<id:bigint,name:string,_tmp_metadata_row_i" in plan.toString()
    assert frame.count() == 99
    size = sum(file.size for file in table.inspect.entries()[0])
    assert (
        read(spark, table.uri)._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
        < 9 * size
    )


@pytest.mark.parametrize("bound", ["bytes", "name"])
def test_what_spark_cannot_place_goes_through_python(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    if bound == "bytes":
        monkeypatch.setattr("inlay.spark.native.MAX_BITMAP_BYTES", 110)
    else:
        monkeypatch.setattr("inlay.spark.native.file_name", lambda task: "same.parquet")
    table = three_files(new_table)
    for start in (0, 400, 800):
        table.delete(f"id BETWEEN {start + 3} AND {start + 5}", mode="vector")
    plan = explain(spark, table.uri)
    left = 1 if bound == "bytes" else 3
    assert (plan.source_files, dict(plan.why)) == (left, {"deletes": left})
    assert "by Python" in str(plan)
    assert read(spark, table.uri).count() == table.refresh().count() == 1_191


def test_what_spark_refreshes_has_the_same_rows(spark: Any, new_table: NewTable) -> None:
    """`REFRESH TABLE` and `refreshByPath` make Spark list the files of kept frames again."""
    table = new_table(pa.table({"id": range(1_000), "name": ["a"] * 1_000}), primary_key="id")
    table.append(pa.table({"id": range(1_000, 2_000), "name": ["b"] * 1_000}))
    table.delete("id % 7 = 0 AND id < 1000", mode="vector")
    expected = sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    frame, cached = read(spark, table.uri), read(spark, table.uri, columns=["id"]).cache()
    try:
        frame.createOrReplaceTempView("kept")
        assert cached.count() == len(expected)
        spark.sql("REFRESH TABLE kept")
        spark.catalog.refreshByPath(table.uri)
        for again in (frame, spark.table("kept"), cached):
            assert sorted(row.id for row in again.collect()) == expected
    finally:
        spark.catalog.dropTempView("kept")
        cached.unpersist()


def test_files_of_the_same_size_are_told_apart_by_name(spark: Any, new_table: NewTable) -> None:
    """Files with deletes beside some without, then beside others with some, then beside a smaller one."""
    table = new_table(pa.table({"id": range(1_000, 1_300)}), primary_key="id")
    table.append(pa.table({"id": range(1_300, 1_600)}))
    table.append(pa.table({"id": range(1_600, 1_900)}))
    sizes = table.inspect.files()["bytes"].to_pylist()
    assert len(sizes) > len(set(sizes))
    left = set(range(1_000, 1_900))
    for key in (1_005, 1_305, 1_606, 2_050):
        if key == 2_050:
            table.append(pa.table({"id": range(2_000, 2_100)}))
            left |= set(range(2_000, 2_100))
        table.delete(f"id = {key}", mode="vector")
        left.remove(key)
        assert explain(spark, table.uri).source_files == 0
        assert [row.id for row in read(spark, table.uri).orderBy("id").collect()] == sorted(left)


def test_a_file_of_another_size_than_its_table_says_is_refused(
    spark: Any, new_table: NewTable
) -> None:
    """By their sizes files are told apart that have rows deleted by position."""
    table = new_table(pa.table({"id": range(300)}), primary_key="id")
    table.delete("id = 5", mode="vector")
    assert read(spark, table.uri).count() == 299
    key = table.inspect.files()["key"][0].as_py()
    place = Path(table.uri.removeprefix("file://"), key)
    place.write_bytes(place.read_bytes() + b"PAR1")
    with pytest.raises(CorruptTable, match="sizes"):
        read(spark, table.uri)
