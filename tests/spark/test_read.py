"""Spark sees exactly what Arrow sees, and DuckDB says the same of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import inlay
from inlay.spark import count, read

from .conftest import ROWS_PER_FILE, load, rows, sorted_rows, three_files

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]


def test_every_kind_of_delete_is_masked(spark: Any, with_every_delete: inlay.Table) -> None:
    arrow = with_every_delete.scan().to_arrow()
    seen = load(spark, with_every_delete).toArrow()
    assert sorted_rows(seen, "id") == sorted_rows(arrow, "id")
    ids = set(arrow.column("id").to_pylist())
    assert {10, 11, 13, 14, 420} <= ids
    assert not ids & {12, 15, 19, 30, 401, 450, 453, 1000, 1150}


def test_spark_and_duckdb_agree_on_a_query(spark: Any, with_every_delete: inlay.Table) -> None:
    query = (
        "SELECT name, count(*) AS rows, sum(amount) AS total FROM live "
        "WHERE id > 100 AND (name LIKE 'name 1%' OR name IS NULL) GROUP BY name ORDER BY name"
    )
    load(spark, with_every_delete).createOrReplaceTempView("live")
    by_spark = [tuple(row) for row in spark.sql(f"{query} NULLS LAST").collect()]
    live = with_every_delete.scan().to_arrow()
    assert live.num_rows
    by_duckdb = duckdb.sql(f"{query} NULLS LAST").fetchall()
    assert by_spark == by_duckdb


@pytest.mark.parametrize(
    "condition",
    [
        "id >= 395 AND id < 405",
        "name = 'name 7'",
        "NOT (name = 'name 7')",
        "name IS NULL AND amount > 20",
        "name LIKE 'name 2%'",
        "id IN (1, 2, 700) OR amount = 0.25",
        "id <=> 13",
        "amount > 1000",
    ],
)
def test_filters_select_the_same_rows_either_way(
    either_way: Any, with_every_delete: inlay.Table, condition: str
) -> None:
    seen = load(either_way, with_every_delete).where(condition).toArrow()
    live = with_every_delete.scan().to_arrow()
    assert live.num_rows
    plain = condition.replace("<=>", "IS NOT DISTINCT FROM")
    expected = duckdb.sql(f"SELECT * FROM live WHERE {plain}").to_arrow_table()
    assert sorted_rows(seen, "id") == sorted_rows(expected, "id")


def test_the_where_option_prunes_without_any_setting(
    either_way: Any, with_every_delete: inlay.Table
) -> None:
    where = "id > 1100 OR name = 'name 4'"
    seen = load(either_way, with_every_delete, where=where).toArrow()
    assert sorted_rows(seen, "id") == sorted_rows(
        with_every_delete.scan(where=where).to_arrow(), "id"
    )


def test_a_condition_leaves_files_out_before_there_are_tasks(
    spark: Any, new_table: NewTable
) -> None:
    table = three_files(new_table)
    everything = load(spark, table, partitionBytes=1)
    assert everything.rdd.getNumPartitions() == 12  # one for each row group
    one_file = load(spark, table, partitionBytes=1, where="id = 5 AND amount = 1.25")
    assert one_file.rdd.getNumPartitions() == 4
    assert [row.id for row in one_file.collect()] == [5]


def test_columns_come_in_the_order_asked_for(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 3))
    frame = load(spark, table, columns="amount, id")
    assert frame.columns == ["amount", "id"]
    assert [tuple(row) for row in frame.collect()] == [(0.0, 0), (0.25, 1), (0.5, 2)]


def test_a_schema_asked_for_is_a_projection(spark: Any, with_every_delete: inlay.Table) -> None:
    frame = spark.read.format("inlay").schema("name string, id bigint").load(with_every_delete.uri)
    expected = with_every_delete.scan(columns=["name", "id"]).to_arrow()
    assert sorted_rows(frame.toArrow(), "id") == sorted_rows(expected, "id")


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("id int", "is bigint in the table"),
        ("nothing string", "no column 'nothing'"),
        ("name string not null", "may hold nulls"),
        (StructType([]), "has no column"),
    ],
)
def test_a_schema_the_table_does_not_have_is_refused(
    spark: Any, new_table: NewTable, schema: Any, complaint: str
) -> None:
    table = new_table(rows(0, 3))
    with pytest.raises(Exception, match=complaint):
        spark.read.format("inlay").schema(schema).load(table.uri).collect()


def test_an_earlier_version_and_an_earlier_time(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 10))
    table.delete("id < 5")
    table.append(rows(100, 1))
    assert load(spark, table, version=2).count() == 10
    times = {row["version"]: row["time"] for row in table.inspect.history().to_pylist()}
    assert load(spark, table, asOf=times[3].isoformat()).count() == 5
    assert load(spark, table).count() == 6


def test_a_dataframe_stays_at_its_version(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 10))
    frame = load(spark, table)
    # With a schema given, Spark makes the source when the DataFrame is first evaluated.
    projected = spark.read.format("inlay").schema("id bigint").load(table.uri)
    assert projected.count() == 10
    table.delete("id < 5")
    assert frame.count() == 10
    assert projected.where("id >= 0").count() == 10
    assert load(spark, table).count() == 5


def test_an_empty_table_has_its_columns_and_no_rows(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0).schema)
    frame = load(spark, table)
    assert frame.columns == ["id", "name", "amount"]
    assert frame.collect() == []
    table.append(rows(0, 5))
    table.delete("id >= 0")
    assert load(spark, table).agg({"id": "sum"}).collect()[0][0] is None


def test_a_limit_is_met_without_reading_all_files(spark: Any, new_table: NewTable) -> None:
    table = three_files(new_table)
    assert len(load(spark, table).limit(7).collect()) == 7


def test_a_table_on_s3_is_read_and_written(spark: Any, s3_bucket: str) -> None:
    table = inlay.create(f"s3://{s3_bucket}/tables/t", rows(0).schema, primary_key="id")
    table.append(rows(0))
    table.delete("id < 100")
    frame = load(spark, table)
    frame.where("id < 105").write.format("inlay").mode("append").save(table.uri)
    arrow = table.refresh().scan().to_arrow()
    assert arrow.num_rows == ROWS_PER_FILE - 100 + 5
    assert sorted_rows(load(spark, table).toArrow(), "id") == sorted_rows(arrow, "id")


def test_a_view_in_sql_reads_and_writes_and_a_catalog_table_says_what_to_do(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(pa.table({"id": [1, 2]}))
    using = f"USING inlay OPTIONS (path '{table.uri}')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_inlay {using}")
    spark.sql("INSERT INTO of_inlay VALUES (7)")
    assert table.refresh().count() == 3
    assert spark.sql("SELECT sum(id) FROM of_inlay").first() == (3,)  # a view is one snapshot
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW name USING inlay"):
        spark.sql(f"CREATE TABLE of_catalog {using}")


def test_a_missing_table_is_named(spark: Any, new_table: NewTable) -> None:
    with pytest.raises(Exception, match=r"there is no table at .*nowhere"):
        spark.read.format("inlay").load("file:///tmp/inlay-nowhere")


def test_a_table_in_memory_is_refused(spark: Any) -> None:
    with pytest.raises(Exception, match="exists in one process"):
        spark.read.format("inlay").load("memory://lake/tables/t")


def test_read_prunes_columns_and_rows_by_itself(
    either_way: Any, with_every_delete: inlay.Table
) -> None:
    frame = read(either_way, with_every_delete.uri, columns=["name"], where="id > 700")
    expected = with_every_delete.scan(columns=["name"], where="id > 700").to_arrow()
    assert sorted_rows(frame.toArrow(), "name") == sorted_rows(expected, "name")


def test_read_raises_the_errors_of_the_library(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 3))
    with pytest.raises(inlay.errors.InvalidRequest, match="no column 'nam'"):
        read(spark, table.uri, columns=["nam"])
    with pytest.raises(inlay.errors.InvalidPredicate):
        read(spark, table.uri, where="nam = 1")


def test_counts_agree_with_arrow(spark: Any, with_every_delete: inlay.Table) -> None:
    table = with_every_delete
    assert count(spark, table.uri) == table.count()
    assert count(spark, table.uri, where="name LIKE 'name 1%'") == table.count(
        where="name LIKE 'name 1%'"
    )
    assert count(spark, table.uri, version=4) == 3 * ROWS_PER_FILE


def test_a_count_without_deletes_starts_no_job(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = three_files(new_table)
    spark.sparkContext.setJobGroup("counting", "by metadata")
    assert count(spark, table.uri) == 3 * ROWS_PER_FILE
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("counting")) == []
