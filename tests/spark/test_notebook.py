"""A notebook as a user of Delta or Iceberg types it: each statement works, or is refused in words that name
Inlay's way."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import functions as f
from tests.tiers import in_short

import inlay
from inlay.errors import InlayError
from inlay.spark import InlayTable, sql, view

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("day", pa.date32()),
    ]
)
# What works, by how many rows it leaves of five; the table `sales` has the ids 1 to 5, `updates` 2 and 9.
WORKS: list[tuple[str, int]] = [
    ("WITH big AS (SELECT * FROM sales WHERE amount > 2) SELECT count(*) FROM big", 5),
    ("MERGE INTO sales t USING updates u ON t.id = u.id WHEN MATCHED AND u.extra = 'x' THEN UPDATE SET "
     "t.amount = t.amount + u.amount WHEN NOT MATCHED BY TARGET THEN INSERT (id, day) VALUES (u.id, u.day) "
     "WHEN NOT MATCHED BY SOURCE AND t.day > '2026-01-03' THEN DELETE", 5),
    ("MERGE INTO sales t USING (WITH s AS (SELECT * FROM updates) SELECT * FROM s) s ON t.id = s.id "
     "WHEN MATCHED THEN DELETE", 4),
    ("WITH s AS (SELECT * FROM updates) MERGE INTO sales t USING s ON t.id = s.id WHEN MATCHED "
     "THEN DELETE", 4),
    ("MERGE INTO inlay.`{uri}` t USING updates u ON t.id = u.id AND t.day = '2026-01-09' WHEN NOT MATCHED "
     "THEN INSERT *", 7),
    ("UPDATE sales SET amount = (SELECT max(u.amount) FROM updates u WHERE u.id = sales.id) WHERE id IN "
     "(SELECT id FROM updates)", 5),
    ("UPDATE sales t SET name = 'hit' WHERE EXISTS (SELECT 1 FROM updates u WHERE u.id = t.id)", 5),
    ("UPDATE sales SET name = CASE WHEN amount > 2 THEN upper(name) ELSE name END, amount = DEFAULT", 5),
    ("DELETE FROM sales WHERE id NOT IN (SELECT id FROM updates)", 1),
    ("DELETE FROM sales AS s WHERE s.day BETWEEN '2026-01-01' AND '2026-01-02'", 2),
    ("INSERT INTO sales BY NAME SELECT day, amount, name, id FROM updates", 7),
    ("INSERT INTO sales BY NAME SELECT 99 AS id, date'2026-02-02' AS day", 6),
    ("INSERT INTO sales REPLACE WHERE day = '2026-01-02' SELECT id, name, amount, day FROM updates WHERE "
     "id = 2", 5),
    ("INSERT OVERWRITE TABLE sales PARTITION (day = '2026-01-01') SELECT id, name, amount FROM updates", 5),
    ("INSERT INTO sales (id, name) VALUES (50, DEFAULT), (51, 'x')", 7),
    ("WITH s AS (SELECT 77L AS id) INSERT INTO sales (id) SELECT id FROM s", 6),
    ("TRUNCATE TABLE sales", 0),
    ("SELECT count(*) FROM inlay.`{uri}` VERSION AS OF 2", 5),
    ("SELECT count(*) FROM IDENTIFIER('sales')", 5),
    ("SELECT * FROM sales.partitions", 5),
    ("DESC HISTORY inlay.`{uri}`", 5),
    ("DESCRIBE sales amount", 5),
    ("DESCRIBE QUERY SELECT * FROM sales", 5),
    ("SHOW COLUMNS IN sales", 5),
    ("SHOW VIEWS LIKE 'sal*'", 5),
    ("EXPLAIN SELECT * FROM sales", 5),
    ("REFRESH TABLE sales", 5),
    ("CREATE TABLE kept (id BIGINT, CONSTRAINT pk PRIMARY KEY (id)) USING inlay LOCATION '{uri} kept'", 5),
]  # fmt: skip
# What is refused, and words of the way.
REFUSED: list[tuple[str, str]] = [
    ("MERGE WITH SCHEMA EVOLUTION INTO sales t USING updates u ON t.id = u.id WHEN MATCHED THEN UPDATE "
     "SET *", r"alter\(add"),
    ("MERGE INTO sales t USING inlay('{uri}') u ON t.id = u.id WHEN MATCHED THEN DELETE",
     r"SELECT \* FROM inlay"),
    ("MERGE INTO sales USING (VALUES (1L, 'q')) AS v(id, name) ON sales.id = v.id WHEN MATCHED THEN DELETE",
     "stand inside"),
    ("INSERT INTO sales REPLACE USING (day) SELECT id, name, amount, day FROM updates", "MERGE INTO"),
    ("UPDATE sales SET amount = row_number() OVER (ORDER BY id)", "in a subquery"),
    ("MERGE INTO sales t USING updates u ON t.id = u.id WHEN MATCHED THEN UPDATE SET name = max(u.name)",
     "in a subquery"),
    ("INSERT WITH SCHEMA EVOLUTION INTO sales BY NAME SELECT * FROM updates", "mergeSchema"),
    ("INSERT INTO sales TABLE updates", "BY NAME"),
    ("INSERT OR IGNORE INTO sales VALUES (1, 'a', 1.0, NULL)", "MERGE INTO"),
    ("INSERT INTO sales VALUES (1, 'a', 1.0, NULL) ON CONFLICT (id) DO NOTHING", "MERGE INTO"),
    ("REPLACE INTO sales VALUES (1, 'a', 1.0, NULL)", "upsert"),
    ("DELETE FROM sales WHERE id = 1 RETURNING *", "SELECT of the rows"),
    ("DELETE FROM sales WHERE id > 1 LIMIT 1", r"LIMIT n\)"),
    ("UPDATE sales SET name = 'q' ORDER BY id LIMIT 1", r"LIMIT n\)"),
    ("UPDATE sales t JOIN updates u ON t.id = u.id SET t.name = u.name", "MERGE INTO"),
    ("DELETE t FROM sales t JOIN updates u ON t.id = u.id", "MERGE INTO"),
    ("SELECT * FROM sales.all_data_files", "files"),
    ("CALL system.rollback_to_snapshot('sales', 2)", "refs has restore"),
    ("OPTIMIZE sales WHERE day >= '2026-01-01'", r"compact\("),
    ("VACUUM sales DRY RUN", "collect_garbage"),
    ("RESTORE sales TO TIMESTAMP AS OF '2026-01-01'", "refs.restore"),
    ("UNDROP TABLE sales", "refs.restore"),
    ("DESCRIBE DETAIL inlay.`{uri}`", "files"),
    ("ALTER TABLE inlay.`{uri}` ADD COLUMN c INT AFTER id", r"alter\(add"),
    ("ALTER TABLE sales ALTER COLUMN name COMMENT 'x'", r"alter\(widen=…, comment"),
    ("ALTER TABLE sales DROP FEATURE deletionVectors", "one version"),
    ("ALTER TABLE sales WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY day", "compact.columns"),
    ("ALTER TABLE sales COMPACT 'major'", r"compact\("),
    ("ALTER TABLE sales EXECUTE optimize(file_size_threshold => '10MB')", r"compact\("),
    ("ALTER TABLE sales SET OWNER TO me", "no owner"),
    ("ALTER TABLE sales CREATE TAG eoy AS OF VERSION 2 RETAIN 365 DAYS", "refs.tag"),
    ("CREATE VIEW lasting AS SELECT * FROM sales", "CREATE TEMPORARY VIEW"),
    ("CREATE VIEW lasting AS SELECT * FROM inlay.`{uri}`", "CREATE TEMPORARY VIEW"),
    ("CREATE OR REPLACE VIEW lasting AS SELECT * FROM inlay('{uri}')", "CREATE TEMPORARY VIEW"),
    ("CREATE TABLE kept (id BIGINT, CHECK (id > 0)) USING inlay LOCATION '{uri} x'", "before the append"),
    ("CREATE TABLE kept (id BIGINT UNIQUE) USING inlay LOCATION '{uri} x'", "before the append"),
    ("CREATE TABLE kept (id BIGINT) USING inlay CLUSTER BY (id) LOCATION '{uri} x'", "sortBy"),
    ("CREATE TABLE kept DEEP CLONE sales", "branch"),
    ("CREATE TABLE kept LIKE sales", "AS SELECT"),
    ("SELECT _file, _pos FROM sales", "files"),
    ("SELECT s._metadata.file_path FROM sales s", "files"),
    ("DELETE FROM sales WHERE _partition = 1", "files"),
    ("UPDATE sales SET name = __inlay_file", "files"),
    ("DELETE FROM sales WHERE __inlay_position = 0", "files"),
    ("SELECT id, _change_type FROM sales", "changeFeed"),
    ("SELECT _row_id FROM sales", "the key"),
    ("CREATE STREAMING TABLE kept AS SELECT * FROM STREAM sales", "spark-pipelines"),
    ("CREATE OR REFRESH STREAMING TABLE kept AS SELECT * FROM STREAM(sales)", "spark-pipelines"),
    ("CREATE MATERIALIZED VIEW kept AS SELECT * FROM sales", "TEMPORARY VIEW"),
    ("CREATE OR REPLACE MATERIALIZED VIEW kept AS SELECT * FROM sales", "TEMPORARY VIEW"),
    ("CREATE FLOW f AS INSERT INTO sales BY NAME SELECT * FROM STREAM sales", "spark-pipelines"),
    ("APPLY CHANGES INTO sales FROM STREAM(sales) KEYS (id) SEQUENCE BY day", "MergeSink"),
    ("CREATE TABLE kept USING delta AS SELECT * FROM sales", "USING inlay LOCATION"),
    ("CREATE TABLE kept USING iceberg LOCATION '{uri} x' AS SELECT * FROM sales", "USING inlay LOCATION"),
    ("CREATE TABLE kept (id BIGINT) USING parquet LOCATION '{uri}'", "format"),
    ("CREATE TEMPORARY VIEW kept USING parquet OPTIONS (path '{uri}')", "format"),
    ("SELECT * FROM delta.`{uri}`", "inlay.`"),
    ("SELECT * FROM parquet.`{uri}`", "inlay.`"),
    ("INSERT INTO delta.`{uri}` SELECT * FROM sales", "inlay.`"),
    ("INSERT OVERWRITE DIRECTORY '{uri}' USING parquet SELECT * FROM sales", "inlay.`"),
    ("INSERT OVERWRITE DIRECTORY '{uri} x' USING inlay SELECT * FROM sales", "CREATE TABLE inlay"),
    ("DESCRIBE HISTORY '{uri}'", "HISTORY inlay.`"),
    ("DESCRIBE DETAIL '{uri}'", "HISTORY inlay.`"),
    ("SELECT * FROM sales VERSION AS OF :v", "version => :v"),
    ("ALTER TABLE sales CHANGE COLUMN name label STRING", "rename"),
    ("ALTER TABLE sales SET SERDEPROPERTIES ('a' = 'b')", "Parquet"),
    ("EXPLAIN MERGE INTO sales t USING updates u ON t.id = u.id WHEN MATCHED THEN DELETE", "explain"),
]  # fmt: skip
# Methods of `DeltaTable`, and words of the way; "" where it works.
METHODS: list[tuple[str, Callable[[Any, inlay.Table], Any]]] = [
    ("", lambda spark, t: InlayTable.forPath(spark, t.uri).update(condition="id = 1", set={"name": "'q'"})),
    ("", lambda spark, t: InlayTable.forName(spark, "sales").delete(f.col("id") == 99)),
    ("first view", lambda spark, t: InlayTable.forName(spark, "updates")),
    (r"update\(\{", lambda spark, t: InlayTable(spark, t.uri).updateExpr("id = 1", {"name": "'q'"})),
    ("whenMatchedUpdate", lambda spark, t: InlayTable(spark, t.uri)
        .merge(spark.table("updates"), "true").whenMatched("true").updateAll()),
    ("DESCRIBE HISTORY", lambda spark, t: InlayTable(spark, t.uri).history(1)),
    ("collect_garbage", lambda spark, t: InlayTable(spark, t.uri).vacuum(168)),
    ("compact", lambda spark, t: InlayTable(spark, t.uri).optimize().executeCompaction()),
    ("properties", lambda spark, t: InlayTable(spark, t.uri).detail()),
    ("refs.restore", lambda spark, t: InlayTable(spark, t.uri).restoreToVersion(2)),
    ("publish", lambda spark, t: InlayTable(spark, t.uri).generate("symlink_format_manifest")),
    ("at=version", lambda spark, t: InlayTable(spark, t.uri).cloneAtVersion(2, "copy")),
    (r"inlay\.exists\(uri\)", lambda spark, t: InlayTable.isDeltaTable(spark, t.uri)),
    ("USING inlay", lambda spark, t: InlayTable.createIfNotExists(spark).tableName("x")),
    ("", lambda spark, t: InlayTable(spark, t.uri).alias("t").merge(spark.table("updates").alias("u"),
        "t.id = u.id").whenMatchedUpdate("u.extra = 'none'", {"t.name": "u.name"}).execute()),
    ("whenMatchedUpdateAll", lambda spark, t: InlayTable(spark, t.uri)
        .merge(spark.table("updates"), "true").whenMatchedUpdate("true")),
    (r"alter\(add", lambda spark, t: InlayTable(spark, t.uri)
        .merge(spark.table("updates"), "true").withSchemaEvolution()),
]  # fmt: skip


def sales(spark: Any, new_table: NewTable) -> inlay.Table:
    table = new_table(SCHEMA, primary_key="id", partition_by=["day"])
    days = [datetime.date(2026, 1, n) for n in (1, 2, 3, 1, 4)]
    columns = [[1, 2, 3, 4, 5], ["a", "b", "c", "d", None], [1.0, 2.0, 3.0, 4.0, 5.0], days]
    table.append(pa.table([pa.array(c) for c in columns], schema=SCHEMA))
    view(spark, "sales", table.uri)
    rows = [(2, "B", 20.0, days[1], "x"), (9, "n", 9.0, days[2], "y")]
    shape = "id long, name string, amount double, day date, extra string"
    spark.createDataFrame(rows, shape).createOrReplaceTempView("updates")
    return table


# One in five; the others are in the wide tier.
@pytest.mark.parametrize("place", in_short(range(len(WORKS)), range(0, len(WORKS), 5)))
def test_what_works(spark: Any, new_table: NewTable, place: int) -> None:
    typed, left = WORKS[place]
    table = sales(spark, new_table)
    sql(spark, typed.format(uri=table.uri)).collect()
    assert table.refresh().count() == left
    if "PRIMARY KEY" in typed:
        assert inlay.open(f"{table.uri} kept").snapshot.primary_key == (1,)


def test_what_is_refused_names_the_way_and_changes_nothing(spark: Any, new_table: NewTable) -> None:
    table = sales(spark, new_table)
    for typed, way in REFUSED:
        with pytest.raises(InlayError, match=way):
            sql(spark, typed.format(uri=table.uri), {"v": 2} if ":v" in typed else None)
    for way, typed in METHODS:
        if way:
            with pytest.raises((InlayError, AttributeError), match=way):
                typed(spark, table)
    assert (table.refresh().version, inlay.exists(f"{table.uri} x")) == (2, False)
    for way, typed in METHODS:
        if not way:
            typed(spark, table)
    assert table.refresh().scan(where="name = 'q'").to_arrow().num_rows == 1


def test_a_stream_of_a_view_has_the_rows_that_are_added(
    spark: Any, new_table: NewTable, tmp_path: Path
) -> None:
    table = sales(spark, new_table)
    rows = sql(spark, "SELECT id FROM STREAM sales WHERE amount > 2")
    seen: list[int] = []
    query = rows.writeStream.foreachBatch(
        lambda batch, _: seen.extend(r.id for r in batch.collect())
    )
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    for added in ([3, 4, 5], [9]):
        query.start().awaitTermination()
        assert sorted(seen) == added
        seen.clear()
        sql(spark, "INSERT INTO sales (id, amount) VALUES (9, 3.0), (10, 1.0)")
    view(spark, "sales_2", table.uri, version=2)
    with pytest.raises(InlayError, match="earlier version"):
        sql(spark, "SELECT * FROM STREAM sales_2")


def test_rows_that_replace_where_does_not_select_are_refused(
    spark: Any, new_table: NewTable
) -> None:
    """As the source refuses them: the next run would leave them, and add them again."""
    table = sales(spark, new_table)
    statement = "INSERT INTO sales REPLACE WHERE sales.id < 3 {}"
    for query in (
        "SELECT 7L, 'q', 1.0, NULL",
        "SELECT CAST(NULL AS BIGINT) + 1, 'q', 1.0, NULL",  # neither TRUE nor FALSE
        "SELECT id, name, amount, day FROM updates",  # one row of each kind
    ):
        with pytest.raises(SparkRuntimeException, match="REPLACE WHERE replaces"):
            sql(spark, statement.format(query))
    assert table.refresh().version == 2
    sql(spark, statement.format("SELECT 2L, 'q', 1.0, NULL"))
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [2, 3, 4, 5]
