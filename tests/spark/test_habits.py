"""What people do with DataFrames in notebooks: rows are those of `Table.scan` at the frame's version."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

import inlay
from inlay.errors import InvalidRequest, TableNotFound
from inlay.spark import InlayTable, append, read, view
from inlay.spark.merge import merge

from .conftest import load

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]
SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.int32()), ("x", pa.float64()), ("s", pa.string())])


def rows(start: int, number: int) -> pa.Table:
    ids = range(start, start + number)
    return pa.table(
        {
            "id": ids,
            "g": [n % 4 for n in ids],
            "x": [math.nan if n % 7 == 3 else None if n % 7 == 4 else n / 2 for n in ids],
            "s": [None if n % 5 == 0 else f"s{n}" for n in ids],
        },
        schema=SCHEMA,
    )


def shown(found: Any) -> list[str]:
    plain = found if isinstance(found, pa.Table) else found.toArrow()
    return sorted(map(repr, plain.select(SCHEMA.names).cast(SCHEMA).to_pylist()))


def scanned(table: inlay.Table) -> list[str]:
    return shown(table.refresh().scan().to_arrow())


@pytest.fixture(params=["read", "source"])
def frame_of(spark: Any, request: pytest.FixtureRequest) -> Callable[[inlay.Table], Any]:
    if request.param == "read":
        return lambda table: read(spark, table.uri)
    return lambda table: load(spark, table)


def test_a_cached_frame_keeps_its_version_and_no_other_frame_gets_its_rows(
    frame_of: Callable[[inlay.Table], Any], new_table: NewTable
) -> None:
    table = new_table(rows(0, 20), primary_key="id")
    before = scanned(table)
    kept = frame_of(table).cache()
    assert shown(kept) == before
    table.delete("id < 5")
    assert shown(kept) == before
    assert shown(frame_of(table)) == scanned(table)
    kept.unpersist()
    assert shown(kept) == before


def test_frames_are_cut_sampled_and_moved_without_losing_a_row(
    spark: Any, frame_of: Callable[[inlay.Table], Any], new_table: NewTable, tmp_path: Path
) -> None:
    table = new_table(rows(0, 20), primary_key="id")
    table.append(rows(20, 20))
    table.delete("id IN (3, 21)", mode="vector")
    table.delete("s = 's7'")
    frame = frame_of(table)
    whole = scanned(table)
    one, other = frame.randomSplit([0.3, 0.7], seed=7)
    assert sorted(shown(one) + shown(other)) == whole
    assert shown(frame.sample(fraction=1.0, seed=1)) == whole
    assert sorted(row.g for row in frame.dropDuplicates(["g"]).collect()) == [0, 1, 2, 3]
    for moved in (
        frame.repartitionByRange(3, "id"),
        frame.repartition(5, "g"),
        frame.coalesce(1),
        frame.sortWithinPartitions("x"),
        frame.limit(1000),
    ):
        assert shown(moved) == whole
    assert frame.exceptAll(frame).isEmpty()
    spark.sparkContext.setCheckpointDir(str(tmp_path / "checkpoints"))
    saved = [frame.checkpoint(), frame.localCheckpoint()]
    table.delete("id = 6")
    assert [shown(each) for each in saved] == [whole, whole]
    assert shown(frame) == whole


def test_a_rows_file_is_named_where_spark_reads_it(spark: Any, new_table: NewTable) -> None:
    """As docs/SPARK.md says."""
    table = new_table(rows(0, 20))
    for native, named in (("auto", True), ("never", False)):
        frame = read(spark, table.uri, native=native)
        [[found]] = frame.select(f.input_file_name()).distinct().collect()
        assert bool(found) == named
    with pytest.raises(AnalysisException, match="_metadata"):
        frame.select("_metadata.file_path")


def test_views_over_views_move_with_the_table(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 20), partition_by="g")
    view(spark, "habit", table.uri)
    spark.sql("CREATE OR REPLACE TEMP VIEW habit_2 AS SELECT id, g FROM habit WHERE id > 3")
    spark.sql("CREATE OR REPLACE TEMP VIEW habit_3 AS SELECT g, count(*) n FROM habit_2 GROUP BY g")

    def counted() -> int:
        return int(spark.sql("SELECT sum(n) FROM habit_3").first()[0])

    assert counted() == 16
    table.delete("id = 10")
    assert counted() == 15
    spark.sql(
        "CACHE TABLE habit"
    )  # a view that is resolved again never uses the plan that Spark cached
    table.delete("id = 11")
    assert counted() == 14
    spark.sql("UNCACHE TABLE habit")
    assert spark.catalog.tableExists("habit")
    assert [column.name for column in spark.catalog.listColumns("habit")] == SCHEMA.names


def test_another_session_has_its_own_views_and_the_same_rows(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(rows(0, 20))
    view(spark, "habit_here", table.uri)
    other = spark.newSession()
    assert not other.catalog.tableExists("habit_here")
    assert shown(read(other, table.uri)) == shown(load(other, table)) == scanned(table)
    view(other, "habit_there", table.uri)
    assert shown(other.sql("SELECT * FROM habit_there")) == scanned(table)


def test_a_batch_that_is_tried_again_is_appended_once(
    spark: Any, new_table: NewTable, tmp_path: Path
) -> None:
    source, target = new_table(rows(0, 20)), new_table(SCHEMA)
    failures = iter([True, True, False])

    def save(batch: Any, number: int) -> None:
        append(batch, target.uri, request_id=f"habit-{number}")
        if next(failures, False):
            raise RuntimeError("after the commit")

    for _ in range(3):
        stream = spark.readStream.format("inlay").load(source.uri).writeStream
        stream = stream.foreachBatch(save).option("checkpointLocation", str(tmp_path / "c"))
        with contextlib.suppress(Exception):  # Spark's, of the failure above
            stream.trigger(availableNow=True).start().awaitTermination()
    assert scanned(target) == scanned(source)


def test_two_queries_may_append_to_a_table_under_ids_with_their_own(
    spark: Any, new_table: NewTable, tmp_path: Path
) -> None:
    """docs/SPARK.md: a query with another checkpoint counts its batches from 0, too."""
    target, other = new_table(SCHEMA), new_table(SCHEMA)
    numbered: list[bool] = []

    def save(batch: Any, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        append(batch, target.uri, request_id=f"{query}-{number}")
        numbered.append(append(batch, other.uri, request_id=f"{number}").applied_before)

    for name, source in (("a", new_table(rows(0, 20))), ("b", new_table(rows(20, 5)))):
        stream = spark.readStream.format("inlay").load(source.uri).writeStream
        stream = stream.foreachBatch(save).option("checkpointLocation", str(tmp_path / name))
        stream.trigger(availableNow=True).start().awaitTermination()
    assert scanned(target) == shown(rows(0, 25))
    assert numbered == [False, True]
    assert scanned(other) == shown(rows(0, 20))


def test_a_table_is_no_folder_of_parquet(spark: Any, new_table: NewTable) -> None:
    """As docs/SPARK.md says of each."""
    table = new_table(rows(0, 20))
    table.delete("id < 5")
    with pytest.raises(AnalysisException, match="UNABLE_TO_INFER_SCHEMA"):
        spark.read.parquet(table.uri)
    by_force = spark.read.option("recursiveFileLookup", "true").option(
        "pathGlobFilter", "*.parquet"
    )
    assert by_force.parquet(table.uri).count() == 20  # deleted rows, too
    spark.range(3).write.mode("append").parquet(table.uri)
    assert shown(read(spark, table.uri)) == scanned(table)
    spark.range(3).write.mode("overwrite").parquet(table.uri)
    with pytest.raises(TableNotFound):
        inlay.open(table.uri)


def reading(option: str, value: object) -> Callable[[Any, str], Any]:
    return lambda spark, uri: spark.read.format("inlay").option(option, value).load(uri)


def following(option: str, value: object) -> Callable[[Any, str], Any]:
    def run(spark: Any, uri: str) -> None:
        rows = spark.readStream.format("inlay").option(option, value).load(uri)
        stream = rows.writeStream.format("noop").trigger(availableNow=True)
        stream.start().awaitTermination()

    return run


def writing(mode: str | None = None, **options: object) -> Callable[[Any, str], Any]:
    def run(spark: Any, uri: str) -> None:
        writer = spark.range(90, 91).write.format("inlay").options(**options)
        (writer if mode is None else writer.mode(mode)).save(uri)

    return run


def saved(spark: Any, uri: str) -> None:
    spark.range(1).write.format("inlay").mode("append").saveAsTable("habit_saved")


# What a user of Delta or Iceberg types, and words of the error that name the way here; "" where it works.
TYPED: list[tuple[str, Callable[[Any, str], Any]]] = [
    ("Inlay's way: version", reading("versionAsOf", 2)),
    ("Inlay's way: asOf", reading("timestampAsOf", "2026-01-01")),
    ("Inlay's way: changeFeed", reading("readChangeFeed", "true")),
    ("Inlay's way: startVersion", following("startingVersion", 1)),
    ('(?i)"append"', writing()),
    ('(?i)"append"', writing("error")),
    ("requestId", writing("append", txnAppId="a")),
    (r"alter\(", writing("overwrite", overwriteSchema="true")),
    ("Give its place", saved),
    ("Give its place", lambda spark, uri: spark.read.format("inlay").load()),
    (r'option\("version", 2\)', lambda spark, uri: spark.read.format("inlay").load(f"{uri}@v2")),
    (r'option\("version", 2\)', lambda spark, uri: read(spark, f"{uri}@v2")),
    (r'option\("asOf", ', lambda spark, uri: read(spark, f"{uri}@20260131000000000")),
    (r'option\("version", 2\)', lambda spark, uri: writing("append")(spark, f"{uri}@v2")),
    (r'option\("version", 2\)', lambda spark, uri: InlayTable(spark, f"{uri}@v2").delete()),
    ("", writing("append", mergeSchema="true")),
]


def test_what_other_formats_users_type_works_or_names_the_way(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(rows(0, 5))
    for words, typed in TYPED:
        if words:
            with pytest.raises(Exception, match=words):
                typed(spark, table.uri)
        else:
            typed(spark, table.uri)
    assert table.refresh().count() == 6
    assert not spark.catalog.tableExists("habit_saved")


def too_large(spark: Any, uri: str) -> None:
    spark.range(1).selectExpr("99999999999 AS g").write.format("inlay").mode("append").save(uri)


def test_an_error_that_says_what_to_do_has_no_traceback(spark: Any, new_table: NewTable) -> None:
    """In a process that plans, of a stream, and in a task; that of an error that is not ours is there."""
    table = new_table(rows(0, 5))
    for typed in (
        reading("versionAsOf", 2),
        lambda spark, uri: reading("where", "nothing > 1")(spark, uri).count(),
        following("startingVersion", 1),
        writing("append", txnAppId="a"),
        too_large,
        saved,
    ):
        with pytest.raises(Exception) as refused:
            typed(spark, table.uri)
        assert "inlay.errors." in str(refused.value)
        assert "Traceback" not in str(refused.value) and "File " not in str(refused.value)

    def fails(batches: Any) -> Any:
        yield from (1 / 0 for _ in batches)

    with pytest.raises(Exception, match=r"Traceback[^$]*ZeroDivisionError"):
        spark.range(1).mapInArrow(fails, "id bigint").collect()
    Path(table.uri.removeprefix("file://"), "_latest_manifest").write_bytes(b"no pointer")
    with pytest.raises(Exception, match=r"Traceback[^$]*inlay\.errors\."):
        spark.read.format("inlay").load(table.uri)


def sql_of(statement: str) -> Callable[[Any, str], Any]:
    return lambda spark, uri: spark.sql(statement)


def writing_by(method: str, *arguments: object) -> Callable[[Any, str], Any]:
    def run(spark: Any, uri: str) -> None:
        writer = spark.table("habit").write.format("inlay").mode("append")
        for name, given in zip(method.split("."), arguments, strict=True):
            writer = getattr(writer, name)(*given)  # type: ignore[misc]
        writer.save(uri)

    return run


def streaming_to(spark: Any, uri: str) -> None:
    rows = spark.readStream.format("rate").load()
    rows.writeStream.format("inlay").option("checkpointLocation", uri + " c").toTable("habit")


# What Spark refuses before it asks Inlay, on a view, and its words for it: one of these.
BY_SPARK: list[tuple[str, Callable[[Any, str], Any]]] = [
    ("INTERNAL_ERROR] Unexpected table relation", sql_of("DELETE FROM habit WHERE id = 1")),
    ("UNSUPPORTED_FEATURE.TABLE_OPERATION", sql_of("UPDATE habit SET id = 1")),
    ("UNSUPPORTED_FEATURE.TABLE_OPERATION",
        sql_of("MERGE INTO habit USING habit s ON false WHEN MATCHED THEN DELETE")),
    ("UNSUPPORTED_FEATURE.TABLE_OPERATION", lambda spark, uri: spark.table("habit").alias("s")
        .mergeInto("habit", f.expr("s.id = 1")).whenMatched().delete().merge()),
    ("UNSUPPORTED_FEATURE.TIME_TRAVEL", sql_of("SELECT * FROM habit VERSION AS OF 1")),
    ("EXPECT_TABLE_NOT_VIEW", sql_of("TRUNCATE TABLE habit")),
    ("EXPECT_TABLE_NOT_VIEW", sql_of("INSERT INTO habit SELECT * FROM habit")),
    ("PARSE_SYNTAX_ERROR", sql_of("OPTIMIZE habit")),
    ("UNRESOLVED_COLUMN", lambda spark, uri: spark.table("habit").select("_metadata")),
    ("UNRESOLVED_COLUMN", sql_of("SELECT _file, _pos FROM habit")),
    ("VIEW_WRITE_NOT_ALLOWED", lambda spark, uri: spark.table("habit").writeTo("habit").append()),
    ("EXPECT_TABLE_NOT_VIEW|TABLE_OR_VIEW_NOT_FOUND",
        lambda spark, uri: spark.table("habit").write.insertInto("habit")),
    ("is not a temp view of streaming logical plan", lambda spark, uri: spark.readStream.table("habit")),
    ("doesn't support streaming write", streaming_to),
    ("partitioning or clustering columns do not match", writing_by("partitionBy", ["g"])),
    ("partitioning or clustering columns do not match", writing_by("clusterBy", ["g"])),
    ("does not support bucketBy", writing_by("bucketBy", [4, "id"])),
    ("does not support bucketBy", writing_by("bucketBy.sortBy", [4, "id"], ["id"])),
    ("SORT_BY_WITHOUT_BUCKETING", writing_by("sortBy", ["id"])),
    ("UNSUPPORTED_DATA_SOURCE_SAVE_MODE", writing()),
    ("UNSUPPORTED_DATA_SOURCE_SAVE_MODE", writing("ignore")),
    ("DATA_SOURCE_NOT_FOUND", lambda spark, uri: spark.read.format("delta").load(uri)),
    ("DATA_SOURCE_NOT_FOUND", lambda spark, uri: spark.table("habit").write.format("iceberg").save(uri)),
    ("UNABLE_TO_INFER_SCHEMA", lambda spark, uri: spark.read.load(uri)),
]  # fmt: skip


def test_what_spark_refuses_by_itself_is_on_the_page(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 5))
    view(spark, "habit", table.uri)
    page = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
    for words, typed in BY_SPARK:
        with pytest.raises(Exception) as refused:
            typed(spark, table.uri)
        said = [each for each in words.split("|") if each in str(refused.value)]
        assert said and all(each in page for each in words.split("|")), str(refused.value)
    assert table.refresh().version == 2


@pytest.mark.parametrize("given", [pa.table({"id": [1]}), [{"id": 1}], "habit", None], ids=type)
def test_rows_that_are_no_dataframe_are_refused(
    spark: Any, new_table: NewTable, given: Any
) -> None:
    table = new_table(rows(0, 5), primary_key="id")
    for verb in (
        lambda: append(given, table.uri),
        lambda: merge(given, table.uri, order="g"),
        lambda: InlayTable(spark, table.uri).merge(given, "true"),
    ):
        with pytest.raises(InvalidRequest, match=r"spark\.createDataFrame"):
            verb()
    with pytest.raises(InvalidRequest, match="writeStream"):
        append(spark.readStream.format("rate").load(), table.uri)
    assert table.refresh().version == 2


def test_a_view_has_a_name_that_sql_has(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 5))
    for name in ("other.habit", "global_temp.habit", ""):
        with pytest.raises(InvalidRequest, match=r"view\(spark, '(habit|name)'"):
            view(spark, name, table.uri)
    for name, typed in (
        ("`a.habit`", "`a.habit`"),
        ("two words", "`two words`"),
        ("a`b", "`a``b`"),
    ):
        view(spark, name, table.uri)
        assert spark.sql(f"SELECT count(*) FROM {typed}").first()[0] == 5
