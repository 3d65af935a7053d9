"""Tables in SQL: the table function, views that move, and tables of a prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.spark import read, view, views

from .conftest import rows, sorted_rows, three_files

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]


def test_a_view_is_of_the_newest_version_whenever_it_is_queried(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(pa.table({"id": [1, 2]}))
    view(spark, "moving", table.uri)
    frame = spark.table("moving")
    assert spark.sql("SELECT count(*) FROM moving").first() == (2,)
    table.append(pa.table({"id": [3]}))
    assert spark.sql("SELECT sum(id) FROM moving").first() == (6,)
    assert frame.count() == 2  # a DataFrame stays what it was
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW into_it USING inlay OPTIONS (path '{table.uri}')")
    spark.sql("INSERT INTO into_it VALUES (4)")
    assert spark.sql("SELECT max(id) FROM moving").first() == (4,)
    spark.sql("CACHE TABLE moving")
    table.refresh().delete("id = 4")
    assert spark.sql("SELECT count(*) FROM moving").first() == (3,)


def test_every_mention_of_a_table_in_a_query_is_of_one_version(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inlay.spark import table_function

    table = new_table(pa.table({"id": [1]}))
    view(spark, "twice", table.uri)
    find = table_function._find_version

    def find_and_append(*asked: Any) -> int:
        version = find(*asked)
        table.append(pa.table({"id": [2]}))  # between the first mention and the second
        return version

    monkeypatch.setattr(table_function, "_find_version", find_and_append)
    query = "SELECT (SELECT count(*) FROM twice), count(*) FROM twice a JOIN twice b ON a.id = b.id"
    assert spark.sql(query).first() == (1, 1)
    monkeypatch.undo()
    assert spark.sql("SELECT count(*) FROM twice").first() == (table.refresh().count(),)


def test_time_travel_and_refs_by_name(spark: Any, new_table: NewTable) -> None:
    table = new_table(pa.table({"id": [1]}))
    table.refs.tag("first")
    table.append(pa.table({"id": [2]}))
    table.refs.branch("next").append(pa.table({"id": [3]}))
    times = {row["version"]: row["time"] for row in table.inspect.history().to_pylist()}

    def ids(asked: str) -> list[int]:
        found = spark.sql(f"SELECT id FROM inlay('{table.uri}'{asked}) ORDER BY id").collect()
        return [row[0] for row in found]

    assert ids("") == [1, 2]
    assert ids(", version => 2") == [1]
    assert ids(", ref => 'first'") == [1]
    assert ids(", REF => 'next'") == [1, 2, 3]
    assert ids(f", as_of => '{times[2].isoformat()}'") == [1]
    assert ids(f", as_of => TIMESTAMP '{times[2].isoformat()}'") == [1]
    for wrong, why in ((", 7", "location by position"), (", versoin => 1", "location by position")):
        with pytest.raises(Exception, match=why):
            ids(wrong)
    with pytest.raises(Exception, match="give one of version and as_of"):
        ids(", version => 1, as_of => '2026-01-01'")
    for wrong, why in (
        (", version => true", "version is a whole number"),
        (", version => 2, VERSION => 1", "version is given twice"),
        (", version => CAST(NULL AS INT)", "version is NULL"),
        (", ref => NULL", "ref is NULL"),
    ):
        with pytest.raises(Exception, match=why):
            ids(wrong)


def test_the_tables_of_a_prefix_are_views_by_name(spark: Any, tmp_path: Any) -> None:
    for name in ("events", "odd name's"):
        inlay.create(f"file://{tmp_path}/lake/{name}", pa.schema([("id", pa.int64())]))
    (tmp_path / "lake" / "no table").mkdir()
    (tmp_path / "lake" / "no table" / "file").write_text("")
    assert views(spark, f"file://{tmp_path}/lake") == ("events", "odd name's")
    assert spark.sql("SELECT * FROM `odd name's` CROSS JOIN events").collect() == []
    with pytest.raises(inlay.errors.InvalidRequest, match="no tables directly under"):
        views(spark, f"file://{tmp_path}/lake/events")
    inlay.create(f"file://{tmp_path}/lake/Events", pa.schema([("other", pa.int64())]))
    with pytest.raises(inlay.errors.InvalidRequest, match="'Events' and 'events' would be one"):
        views(spark, f"file://{tmp_path}/lake")
    assert spark.table("events").columns == ["id"]


@pytest.mark.parametrize("escaped", ["true", "false"])
def test_a_view_is_of_the_table_that_it_names(spark: Any, tmp_path: Any, escaped: str) -> None:
    setting = "spark.sql.parser.escapedStringLiterals"
    before = spark.conf.get(setting)
    spark.conf.set(setting, escaped)
    try:
        for name in ("odd name's", "a\\b", "${spark.app.name}"):
            uri = f"file://{tmp_path}/{name}"
            inlay.create(uri, pa.schema([("id", pa.int64())])).append(pa.table({"id": [7]}))
            view(spark, "odd", uri)
            assert spark.table("odd").collect() == [(7,)], name
    finally:
        spark.conf.set(setting, before)


def test_a_missing_table_is_an_error_of_its_own_type(spark: Any) -> None:
    with pytest.raises(inlay.errors.TableNotFound):
        view(spark, "nothing", "file:///tmp/inlay-nowhere")


def test_a_view_is_read_and_joined_as_parquet_is(spark: Any, new_table: NewTable) -> None:
    table = three_files(new_table)
    view(spark, "planned", table.uri)
    joined = spark.sql(
        "SELECT a.id FROM planned a JOIN planned b ON a.id = b.id WHERE b.amount > 3"
    )
    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan and "Python" not in plan
    assert "FileScan parquet" in plan


def test_rows_that_equal_a_key_of_a_file_are_left_out_by_spark(
    spark: Any, new_table: NewTable
) -> None:
    table = three_files(new_table)
    thirds = range(0, 900, 3)
    names = [None if n % 7 == 0 else f"name {n % 50}" for n in thirds]
    table.delete(keys=pa.table({"id": thirds, "name": names}))  # a NULL equals nothing
    table.delete(keys=pa.table({"id": pa.array(range(1, 10_000, 5), pa.int64())}))
    table.append(rows(0, 10))  # came after, and stays
    expected = table.scan().to_arrow()
    assert table.inspect.tombstones().num_rows > 0 and 700 < expected.num_rows < 1_000
    assert inlay.spark.explain(spark, table.uri, columns=["name"]).source_files == 0
    assert sorted_rows(read(spark, table.uri).toArrow(), "id") == sorted_rows(expected, "id")
    table.delete(keys=pa.table({"id": [2, 4], "amount": [0.5, 2.0]}))
    # Keys of floating point are for Python.
    assert inlay.spark.explain(spark, table.uri).why == {"deletes": 2}
    found = read(spark, table.uri, where="id < 20").toArrow()
    assert sorted_rows(found, "id") == sorted_rows(table.scan(where="id < 20").to_arrow(), "id")
