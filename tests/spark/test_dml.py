"""UPDATE, DELETE and MERGE from Spark, against DuckDB's of the same statements."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import inlay
from inlay.engine import ScanParts
from inlay.errors import InlayError, InvalidRequest, SchemaMismatch
from inlay.spark import InlayTable, dml
from inlay.spark.connect import connect

from .conftest import sorted_rows

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64()),
    ]
)


def made(new_table: NewTable, number: int = 100) -> inlay.Table:
    table = new_table(SCHEMA, primary_key="id")
    for start in range(0, number, 40):
        found = range(start, min(number, start + 40))
        names = [None if n % 7 == 0 else f"name {n % 5}" for n in found]
        part = {"id": found, "name": names, "amount": [n / 4 for n in found]}
        table.append(pa.table(part, schema=SCHEMA))
    table.delete("id = 3")
    return table


def content(table: inlay.Table) -> list[dict[str, Any]]:
    return sorted_rows(table.refresh().scan().to_arrow(), "id")


def by_duckdb(before: list[dict[str, Any]], *statements: str, **sources: pa.Table) -> list[Any]:
    """What the statements make of the table `t`."""
    judge = duckdb.connect()
    judge.register("before", pa.Table.from_pylist(before, schema=SCHEMA))
    judge.execute("CREATE TABLE t AS FROM before")
    for name, rows in sources.items():
        judge.register(name, rows)
    for statement in statements:
        judge.execute(statement)
    found = judge.sql("FROM t ORDER BY id").to_arrow_table().to_pylist()
    judge.close()
    return found


def test_an_update_and_a_delete_are_those_of_sql(spark: Any, new_table: NewTable) -> None:
    table = made(new_table)
    before = content(table)
    target = InlayTable(spark, table.uri)
    told = target.update({"Amount": "amount + length(name)", "name": "upper(name)"}, "id % 3 = 0")
    assert (told.committed, told.updated, told.version) == (True, 33, table.version + 1)
    told = target.delete("name LIKE 'NAME%' AND amount > 9")
    assert told.deleted > 5
    assert content(table) == by_duckdb(
        before,
        "UPDATE t SET amount = amount + length(name), name = upper(name) WHERE id % 3 = 0",
        "DELETE FROM t WHERE name LIKE 'NAME%' AND amount > 9",
    )
    version = table.version
    assert target.delete("id < 0").committed is False  # no row, no commit
    assert table.refresh().version == version
    assert target.delete().deleted == table.count()
    assert table.refresh().count() == 0


KINDS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("price", pa.decimal128(20, 3)),
        ("real", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("inner", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ("map", pa.map_(pa.string(), pa.int32())),
        ("n", pa.int32()),
    ]
)


def of_all_kinds(start: int, end: int, draw: random.Random) -> pa.Table:
    def row(number: int) -> dict[str, Any]:
        values = {
            "text": draw.choice(["", "é", f"{number}" * 40]),
            "price": Decimal(draw.randrange(-(10**15), 10**15)) / 1000,
            "real": draw.choice([0.0, -0.0, float("nan"), float("-inf"), draw.random()]),
            "at": dt.datetime.fromtimestamp(draw.randrange(2**31), dt.UTC),
            "raw": draw.randbytes(draw.randrange(20)),
            "inner": {"x": draw.choice([None, number]), "y": ["a", None, f"{number}"]},
            "map": [("k", number), ("l", None)],
            "n": draw.randrange(100),
        }
        kept = {name: value for name, value in values.items() if draw.random() < 0.9}
        return {"id": number, **kept}

    return pa.Table.from_pylist([row(n) for n in range(start, end)], schema=KINDS)


@pytest.mark.parametrize("by_file", [False, True])
def test_an_update_leaves_what_it_does_not_assign(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch, by_file: bool
) -> None:
    """In the tasks as Spark reads the files, and moved by file, as in a large table."""
    if by_file:
        monkeypatch.setattr(dml, "PARTITION_BYTES", 0)
    columns = []
    write = dml._write

    def noting(*given: Any) -> Any:
        columns.append(given[4])
        return write(*given)

    monkeypatch.setattr(dml, "_write", noting)
    draw = random.Random(35)
    table = new_table(KINDS, primary_key="id", properties={"write.row_group_rows": 150})
    for start, end in ((0, 1000), (1000, 1100), (1100, 1101), (1101, 1700)):
        table.append(of_all_kinds(start, end, draw))
    table.delete("id BETWEEN 140 AND 170", mode="vector")
    table.delete("n = 7")
    target = InlayTable(spark, table.uri)
    rows = {row["id"]: row for row in content(table)}
    assert any(row["n"] == 8 for row in rows.values())

    def update(
        assigned: dict[str, str], where: str, number: Callable[[Any], Any], mine: Any
    ) -> None:
        before = sum(1 for row in rows.values() if mine(row))
        told = target.update(assigned, where)
        assert told.updated == before > 0, where
        for row in filter(mine, rows.values()):
            row.update(number(row))
        assert repr(content(table)) == repr([rows[key] for key in sorted(rows)]), where

    def plus(row: Any) -> Any:
        return {"n": None if row["n"] is None else row["n"] + 1000}

    update({"n": "n + 1000"}, "id % 97 = 5", plus, lambda row: row["id"] % 97 == 5)
    update({"n": "n + 1000"}, "id >= 0", plus, lambda row: True)
    update({"n": "n + 1000"}, "raw IS NULL", plus, lambda row: row["raw"] is None)
    update(
        {"text": "NULL", "real": "CAST(id AS double)"},
        "id BETWEEN 990 AND 1105",
        lambda row: {"text": None, "real": float(row["id"])},
        lambda row: 990 <= row["id"] <= 1105,
    )
    update({"id": "id"}, "n < 1050", lambda row: {}, lambda row: (row["n"] or 9999) < 1050)
    assert columns == [("n",)] * 3 + [("text", "real"), ("id",)]
    told = target.delete("id % 2 = 0")
    assert (told.deleted, columns[-1]) == (sum(key % 2 == 0 for key in rows), ())
    assert [row["id"] for row in content(table)] == [key for key in sorted(rows) if key % 2]


def test_rows_are_completed_in_any_order_and_at_any_cut(
    new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(5)
    table = new_table(KINDS, properties={"write.row_group_rows": 40})
    for start in (0, 100, 200):
        table.append(of_all_kinds(start, start + 100, draw))
    ctx = connect(table.uri)
    snapshot = ScanParts.snapshot(ctx)
    files = {dml.file_name(task): task for task in ScanParts.plan(ctx, snapshot)}
    by_id = {row["id"]: row for row in content(table)}
    places = []
    for name, task in files.items():
        scan = ScanParts(schema=snapshot.schema, ids=(1,))
        ids = [row["id"] for b in scan.read(ctx, [task]) for row in b.to_pylist()]
        places += [(name, position, key) for position, key in enumerate(ids)]
    for at_once in (1, 7, 1000):
        monkeypatch.setattr(dml, "COMPLETED_ROWS", at_once)
        few = draw.sample(places, 120)
        batches = [
            pa.record_batch(
                [
                    pa.array([0] * len(part), pa.int32()),
                    pa.array([name for name, _, _ in part], pa.string()),
                    pa.array([position for _, position, _ in part], pa.int64()),
                    pa.array([-key for *_, key in part], pa.int32()),
                ],
                names=["clause", "file", "position", "c0"],
            )
            for part in (few[:50], [], few[50:51], few[51:])
        ]
        done = list(dml._completed(ctx, snapshot.schema, ["n"], files, batches))
        rows = [row for batch in done for row in batch.to_pylist()]
        expected = [{**by_id[key], "n": -key} for *_, key in few]
        assert sorted(map(repr, rows)) == sorted(map(repr, expected))
        assert {tuple(batch.schema.names) for batch in done} == {tuple(KINDS.names)}


def test_a_merge_is_that_of_sql(spark: Any, new_table: NewTable) -> None:
    table = made(new_table)
    before = content(table)
    changes = pa.table(
        {
            "id": pa.array([*range(90, 110), 5, 7], pa.int64()),
            "op": ["D" if n % 4 == 0 else "U" for n in range(22)],
            "amount": [float(n) for n in range(22)],
            "name": [None if n == 21 else "new" for n in range(22)],
        }
    )
    source = spark.createDataFrame(changes).alias("s")
    merge = (
        InlayTable(spark, table.uri)
        .alias("t")
        .merge(source, "t.id = s.id")
        .whenMatchedDelete("s.op = 'D'")
        .whenMatchedUpdate("t.amount > 1.5", set={"amount": "t.amount + s.amount"})
        .whenMatchedUpdateAll()
        .whenNotMatchedInsert("s.id % 2 = 0", values={"id": "s.id", "name": "concat('in ', s.id)"})
        .whenNotMatchedInsertAll("op <> 'D'")
        .whenNotMatchedBySourceUpdate("t.id < 10", set={"name": "'gone'"})
        .whenNotMatchedBySourceDelete("t.id BETWEEN 20 AND 30")
    )
    told = merge.execute(request_id="night 1")
    expected = by_duckdb(
        before,
        """MERGE INTO t USING s ON t.id = s.id
           WHEN MATCHED AND s.op = 'D' THEN DELETE
           WHEN MATCHED AND t.amount > 1.5 THEN UPDATE SET amount = t.amount + s.amount
           WHEN MATCHED THEN UPDATE SET name = s.name, amount = s.amount
           WHEN NOT MATCHED AND s.id % 2 = 0 THEN INSERT (id, name) VALUES (s.id, concat('in ', s.id))
           WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT (id, name, amount)
             VALUES (s.id, s.name, s.amount)
           WHEN NOT MATCHED BY SOURCE AND t.id < 10 THEN UPDATE SET name = 'gone'
           WHEN NOT MATCHED BY SOURCE AND t.id BETWEEN 20 AND 30 THEN DELETE""",
        s=changes,
    )
    assert content(table) == expected
    assert (told.committed, told.deleted > 10, told.inserted > 5) == (True, True, True)
    again = merge.execute(request_id="night 1")
    assert (again.committed, again.version) == (False, table.version)
    assert (told.applied_before, again.applied_before) == (False, True)
    assert content(table) == expected


def test_a_row_that_two_rows_of_the_source_match_is_refused(
    spark: Any, new_table: NewTable
) -> None:
    table = made(new_table)
    before = content(table)
    twice = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c")], "id long, name string").alias("s")
    merge = InlayTable(spark, table.uri).alias("t").merge(twice, "t.id = s.id")
    with pytest.raises(InvalidRequest, match="several rows of the source match"):
        merge.whenMatchedUpdateAll().execute()
    assert content(table) == before
    merge.whenMatchedDelete().execute()  # whichever it is, the row goes
    assert len(content(table)) == len(before) - 2
    with pytest.raises(InvalidRequest, match="has no clause"):
        merge.execute()
    with pytest.raises(SchemaMismatch, match="no column 'nothing'"):
        merge.whenMatchedUpdate(set={"nothing": "1"}).execute()


def test_rows_that_come_while_a_merge_runs_are_merged_too(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(new_table, 10)
    write, runs = dml._write, []

    def write_late(*given: Any) -> Any:
        found = write(*given)
        if not runs:
            table.append(pa.table({"id": [50], "name": ["late"], "amount": [0.0]}, schema=SCHEMA))
        runs.append(found)
        return found

    monkeypatch.setattr(dml, "_write", write_late)
    source = spark.createDataFrame([(50, "merged")], "id long, name string").alias("s")
    merge = InlayTable(spark, table.uri).alias("t").merge(source, "t.id = s.id")
    told = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert (len(runs), told.updated, told.inserted) == (2, 1, 0)
    assert [row["name"] for row in content(table) if row["id"] == 50] == ["merged"]


def test_only_files_that_can_have_matches_are_read(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(new_table, 160)  # four files, by id
    target = InlayTable(spark, table.uri)
    read_files = {
        "id = 15 AND amount < 0": 0,
        "id = 15 AND length(name) > 99": 1,
        "(id < 5 OR id > 150) AND length(name) > 99": 2,
        "id BETWEEN 41 AND 42 AND length(name) > 99": 1,
        "id IN (7, 130) AND length(name) > 99": 2,
        "150 < id AND length(name) > 99": 1,
        "id <=> 90 AND length(name) > 99": 1,
        "amount > 38.0D AND length(name) > 99": 1,
        "id = 15 AND current_date() < DATE '2020-01-01'": 1,
        # No statistics say these.
        "id + 1 = -15": 4,
        "NOT (id < 900)": 4,
        "id < -5 OR rand() < 0": 4,
    }
    for condition, files in read_files.items():
        found = target.delete(condition)
        assert (found.read_files, found.committed) == (files, False), condition
    many = " OR ".join(f"id = {-n}" for n in range(1, 300))
    assert target.delete(f"id = 7 AND ({many})").read_files == 0
    monkeypatch.setattr(dml, "KEYS_BYTES", 0)
    source = spark.createDataFrame([(50, "x"), (55, "y"), (999, "z")], "id long, name string")
    merge = target.alias("t").merge(source.alias("s"), "t.id = s.id")
    found = merge.whenMatchedUpdateAll("s.name <> 'x'").whenNotMatchedInsertAll().execute()
    assert (found.read_files, found.updated, found.inserted) == (1, 1, 1)
    by_text = spark.createDataFrame([("51", "x"), (None, "y")], "id string, name string")
    merge = target.alias("t").merge(by_text.alias("s"), "t.id = s.id")
    assert merge.whenMatchedDelete().execute().deleted == 1  # compared as Spark does
    source = spark.createDataFrame([(50, "x"), (None, "y")], "id int, name string")
    merge = target.alias("t").merge(source.alias("s"), "t.id = s.id AND t.amount < 100")
    merge = merge.whenMatchedDelete().whenNotMatchedBySourceDelete("t.id > 150 AND t.id < 900")
    found = merge.execute()
    # The file of 50, that of 150 to 159, and the one with what was written above: from 55 to 999.
    assert (found.read_files, found.deleted) == (3, 10)


def test_a_source_that_differs_at_every_look_is_looked_at_once(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a row for which its file was left out would be inserted, though the table has it."""
    from pyspark.sql import functions as f

    monkeypatch.setattr(dml, "KEYS_BYTES", 0)
    table = made(new_table, 160)
    source = spark.range(20).select((f.rand() * 160).cast("long").alias("id")).dropDuplicates()
    merge = InlayTable(spark, table.uri).alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenNotMatchedInsert(values={"id": "s.id"}).execute()
    ids = [row["id"] for row in content(table)]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_merges_are_those_of_sql(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(dml, "KEYS_BYTES", chance.choice([0, 2**30]))
    table = made(new_table, chance.randrange(1, 120))
    for _ in range(4):
        before = content(table)
        ids = sorted(chance.sample(range(-20, 140), chance.randrange(1, 60)))
        changes = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "name": [chance.choice(["x", "y", None]) for _ in ids],
                "amount": [chance.choice([None, 0.0, 1.0, 99.0]) for _ in ids],
            }
        )
        target = InlayTable(spark, table.uri).alias("t")
        merge = target.merge(spark.createDataFrame(changes).alias("s"), "t.id = s.id")
        sql = "MERGE INTO t USING s ON t.id = s.id"
        for _ in range(chance.randrange(1, 4)):
            test = chance.choice(["s.amount > 0", "s.name = 'x'", "s.amount IS NULL"])
            own = chance.choice(["t.amount > 5", "t.name IS NULL", "t.id % 2 = 0"])
            clause = chance.randrange(5)
            if clause == 0:
                merge = merge.whenMatchedUpdate(f"{test} AND {own}", set={"name": "s.name"})
                sql += f" WHEN MATCHED AND {test} AND {own} THEN UPDATE SET name = s.name"
            elif clause == 1:
                merge = merge.whenMatchedDelete(test)
                sql += f" WHEN MATCHED AND {test} THEN DELETE"
            elif clause == 2:
                merge = merge.whenNotMatchedInsertAll(test)
                sql += f" WHEN NOT MATCHED AND {test} THEN INSERT (id, name, amount)"
                sql += " VALUES (s.id, s.name, s.amount)"
            elif clause == 3:
                merge = merge.whenNotMatchedBySourceDelete(own)
                sql += f" WHEN NOT MATCHED BY SOURCE AND {own} THEN DELETE"
            else:
                merge = merge.whenNotMatchedBySourceUpdate(own, set={"amount": "t.amount + 1"})
                sql += (
                    f" WHEN NOT MATCHED BY SOURCE AND {own} THEN UPDATE SET amount = t.amount + 1"
                )
        merge.execute()
        assert content(table) == by_duckdb(before, sql, s=changes), sql


def test_an_assignment_names_a_column_as_spark_does(spark: Any, new_table: NewTable) -> None:
    inner = {"x": 1, "b": 2}
    table = new_table(pa.table({"id": [1], "a.b": ["-"], "b": ["-"], "x": ["-"], "s": [inner]}))
    target = InlayTable(spark, table.uri).alias("t")
    row = {"id": 1, "a.b": "-", "b": "-", "x": "-", "s": inner}
    for name, column in (("a.b", "a.b"), ("t.`a.b`", "a.b"), ("`a.b`", "a.b"), ("T.B", "b")):
        row[column] = name
        target.update({name: f"'{name}'"})
        assert table.refresh().scan().to_arrow().to_pylist() == [row], name
    for name, complaint in (
        ("s.x", r"is a part of the column 's'.*withField\('x'"),
        ("t.s.b", "is a part of the column 's'"),
        ("other.b", "has no column 'other.b'"),
        ("`b", "has no column '`b'"),
    ):
        with pytest.raises(InlayError, match=complaint):
            target.update({name: "'lost'"})
    with pytest.raises(InvalidRequest, match="'b' gets two values"):
        target.update({"b": "'1'", "t.b": "'2'"})
    assert table.refresh().scan().to_arrow().to_pylist() == [row]
    target.update({"s": f.col("s").withField("x", f.lit(9))})
    assert table.refresh().scan().to_arrow().column("s").to_pylist() == [{"x": 9, "b": 2}]


def test_a_condition_with_a_collation_leaves_no_file_out(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics are of bytes, and by a collation "ABC" may equal "abc"."""
    monkeypatch.setattr(dml, "KEYS_BYTES", 0)
    table = new_table(pa.table({"id": [1, 2], "name": ["abc", "abd"]}))
    target = InlayTable(spark, table.uri).alias("t")
    assert target.update({"id": "7"}, "name = 'ABC' COLLATE UTF8_LCASE").updated == 1
    source = spark.sql("SELECT 9L AS id, 'ABD' AS name").alias("s")
    merge = target.merge(source, "t.name = s.name COLLATE UTF8_LCASE")
    merge = merge.whenMatchedUpdate(set={"id": "s.id"})
    found = merge.whenNotMatchedInsertAll().execute()
    assert (found.updated, found.inserted) == (1, 0)
    assert content(table) == [{"id": 7, "name": "abc"}, {"id": 9, "name": "abd"}]


@pytest.mark.parametrize("name", ["__inlay_file", "__INLAY_position", "__inlay_clause"])
def test_names_that_are_added_to_rows_on_their_way_are_refused(
    spark: Any, new_table: NewTable, name: str
) -> None:
    table = new_table(pa.table({"id": [1], name: ["x"]}))
    target = InlayTable(spark, table.uri).alias("t")
    complaint = f"the column '{name}' has a name that merges use"
    with pytest.raises(InvalidRequest, match=complaint):
        target.delete("id = 1")
    other = InlayTable(spark, new_table(pa.table({"id": [1]})).uri).alias("t")
    source = spark.createDataFrame([(1, "y")], ["id", name]).alias("s")
    with pytest.raises(InvalidRequest, match=complaint):
        other.merge(source, "t.id = s.id").whenMatchedDelete().execute()


def test_deleted_counts_rows_and_not_matches(spark: Any, new_table: NewTable) -> None:
    table = made(new_table, 10)
    source = spark.createDataFrame([(1,), (1,), (2,)], "id bigint").alias("s")
    merge = InlayTable(spark, table.uri).alias("t").merge(source, "t.id = s.id").whenMatchedDelete()
    merge = merge.whenNotMatchedBySourceUpdate("t.id = 7", set={"amount": "0"})
    told = merge.execute()
    assert (told.deleted, told.updated) == (2, 1)
    assert len(content(table)) == 7


def test_text_that_is_not_utf8_in_a_condition_leaves_no_row_out(
    spark: Any, new_table: NewTable
) -> None:
    """As other characters it would have another place in the order of texts."""
    schema = pa.schema([("s", pa.string())])
    table = new_table(pa.table({"s": ["a", "\U0001f600"]}, schema=schema))
    told = InlayTable(spark, table.uri).delete("s < CAST(X'FF' AS STRING)")
    assert (told.deleted, table.refresh().count()) == (2, 0)
    table.append(pa.table({"s": ["a", "\U0001f600"]}, schema=schema))
    source = spark.sql("SELECT CAST(X'FF' AS STRING) AS s UNION ALL SELECT 'a'").alias("s")
    with pytest.MonkeyPatch.context() as keys:
        keys.setattr(dml, "KEYS_BYTES", 0)
        merge = InlayTable(spark, table.uri).alias("t").merge(source, "t.s = s.s")
        assert merge.whenMatchedDelete().execute().deleted == 1


def test_unsigned_numbers_are_updated_as_the_decimals_that_they_are_in_spark(
    spark: Any, new_table: NewTable
) -> None:
    schema = pa.schema([("id", pa.int64()), ("big", pa.uint64())])
    table = new_table(pa.table({"id": [1, 2], "big": [2**64 - 1, 5]}, schema=schema))
    InlayTable(spark, table.uri).update({"big": "big - 1"}, "id = 1")
    assert sorted(table.refresh().scan().to_arrow()["big"].to_pylist()) == [5, 2**64 - 2]
    with pytest.raises(SchemaMismatch, match="'big'"):
        InlayTable(spark, table.uri).update({"big": "-big"}, "id = 2")


def test_rows_that_a_merge_keeps_are_given_back(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> set[int]:
        return set(spark.sparkContext._jsc.getPersistentRDDs().keySet())

    monkeypatch.setattr(dml, "KEYS_BYTES", 0)
    table = made(new_table)
    before = kept()
    source = spark.range(0, 200, 5).selectExpr("id", "'new' AS name", "1D AS amount").alias("s")
    merge = InlayTable(spark, table.uri).alias("t").merge(source, "t.id = s.id")
    done = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert (done.updated, done.inserted) == (20, 20)
    assert kept() <= before
