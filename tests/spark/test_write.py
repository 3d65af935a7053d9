"""Appends and overwrites from Spark: in the table once or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.tiers import in_short

import inlay
from inlay.spark import native_append, read
from inlay.spark.source import InlayDataSource

from .conftest import load, sorted_rows

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("half", pa.float64())])


def halves(spark: Any, start: int, end: int, tasks: int = 2) -> Any:
    return spark.range(start, end, 1, tasks).selectExpr("id", "id / 2 AS half")


def append(frame: Any, table: inlay.Table, **options: Any) -> inlay.Table:
    frame.write.format("inlay").options(**options).mode("append").save(table.uri)
    return table.refresh()


def overwrite(frame: Any, table: inlay.Table, **options: Any) -> inlay.Table:
    frame.write.format("inlay").options(**options).mode("overwrite").save(table.uri)
    return table.refresh()


def ids(table: inlay.Table) -> list[int]:
    found: list[int] = sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())
    return found


def data_files(table: inlay.Table) -> set[Path]:
    return set((Path(table.uri.removeprefix("file://")) / "data").rglob("*.parquet"))


def test_an_append_is_one_commit_with_every_row(spark: Any, new_table: NewTable) -> None:
    table = append(halves(spark, 0, 50_000, tasks=3), new_table(SCHEMA))
    assert table.version == 2
    live = table.scan().to_arrow()
    assert live.num_rows
    assert duckdb.sql("SELECT count(*), sum(id), sum(half) FROM live").fetchall() == [
        (
            50_000,
            sum(range(50_000)),
            sum(range(50_000)) / 2,
        )
    ]
    assert table.inspect.files().num_rows == 3


def test_files_and_row_groups_have_the_tables_sizes(spark: Any, new_table: NewTable) -> None:
    # Spark hands over 10,000 rows at a time, whatever the table wants.
    table = new_table(SCHEMA, properties={"write.row_group_rows": 25_000})
    append(halves(spark, 0, 100_000, tasks=1), table)
    [file] = table.inspect.files().to_pylist()
    assert (file["rows"], file["row_groups"]) == (100_000, 4)


def test_appended_types_come_back(spark: Any, new_table: NewTable) -> None:
    data = pa.table(
        {
            "d": pa.array([Decimal("1.10"), None], pa.decimal128(12, 2)),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "wall": pa.array([datetime(1960, 1, 1, 1), None], pa.timestamp("ms")),
            "clock": pa.array([time(1, 2, 3), None], pa.time64("us")),
            "u": pa.array([200, None], pa.uint8()),
            "l": pa.array([[{"x": 1}, None], None], pa.list_(pa.struct([("x", pa.int16())]))),
            "m": pa.array([[("k", b"v")], None], pa.map_(pa.string(), pa.binary())),
        }
    )
    table = new_table(data)
    append(load(spark, table), table)
    twice = pa.concat_tables([data, data]).to_pylist()
    assert sorted(map(str, table.scan().to_arrow().to_pylist())) == sorted(map(str, twice))


@pytest.mark.parametrize("death", in_short(["raises", "is killed"], ["raises"]))
def test_a_task_that_dies_after_writing_adds_its_rows_once(
    spark: Any, new_table: NewTable, death: str
) -> None:
    from inlay.spark.source import InlayDataSource
    from inlay.spark.writer import InlayWriter

    class FailsFirst(InlayWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            import os
            import signal

            from pyspark import TaskContext

            written = super().write(iterator)
            if TaskContext.get().attemptNumber() == 0 and death == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if TaskContext.get().attemptNumber() == 0:
                raise RuntimeError("this attempt dies with its files written")
            return written

    class Flaky(InlayDataSource):
        @classmethod
        def name(cls) -> str:
            return "inlay_flaky"

        def writer(self, schema: Any, overwrite: bool) -> InlayWriter:
            return FailsFirst(super().writer(schema, overwrite)._job)

    spark.dataSource.register(Flaky)
    table = new_table(SCHEMA)
    halves(spark, 0, 1000).write.format("inlay_flaky").mode("append").save(table.uri)
    assert ids(table.refresh()) == list(range(1000))
    assert table.version == 2
    # What the dead attempts wrote is there, unreachable.
    assert len(data_files(table)) == 4
    assert table.inspect.files().num_rows == 2


def test_a_job_that_fails_leaves_the_table_as_it_was(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    frame = halves(spark, 0, 100).selectExpr("if(id = 99, null, id) AS id", "half")
    with pytest.raises(Exception, match="'id' holds nulls but is required"):
        append(frame, table)
    assert table.refresh().version == 1
    assert load(spark, table).count() == 0


def test_a_request_id_makes_a_repeated_job_do_nothing(
    spark: Any, new_table: NewTable, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(SCHEMA)
    append(halves(spark, 0, 10), table, requestId="load of 2026-01-31")
    files = data_files(table)
    append(halves(spark, 0, 10), table, requestId="load of 2026-01-31")
    # What Spark asks of the source, in a process of its own whose standard error is the driver's.
    options = {"path": table.uri, "requestId": "load of 2026-01-31"}
    InlayDataSource(options).writer(halves(spark, 0, 10).schema, False)
    assert "nothing is written: version 2" in capsys.readouterr().err
    InlayDataSource({**options, "requestId": "another"}).writer(halves(spark, 0, 1).schema, False)
    assert capsys.readouterr().err == ""
    assert ids(table) == list(range(10))
    assert data_files(table) == files
    append(halves(spark, 0, 10), table)
    assert table.count() == 20


def test_columns_are_matched_by_name_and_missing_ones_are_null(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(SCHEMA)
    append(spark.range(3, 4).selectExpr("1.5D AS half", "cast(id AS int) AS id"), table)
    append(spark.range(4, 5), table)
    assert sorted_rows(table.scan().to_arrow(), "id") == [
        {"id": 3, "half": 1.5},
        {"id": 4, "half": None},
    ]


@pytest.mark.parametrize(
    ("expressions", "complaint"),
    [
        (["id", "id AS whole"], "the table lacks: 'whole'"),
        (["cast(id AS string) AS id"], "column 'id' is string in the data"),
        (["id / 2 AS half"], "lacks column 'id'"),
    ],
)
def test_rows_that_cannot_fit_are_refused_before_the_job(
    spark: Any, new_table: NewTable, expressions: list[str], complaint: str
) -> None:
    table = new_table(SCHEMA)
    with pytest.raises(Exception, match=complaint):
        append(spark.range(3).selectExpr(*expressions), table)
    assert not data_files(table)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_without_columns_are_refused(spark: Any, new_table: NewTable, mode: str) -> None:
    """On their way to Python such rows are lost: they would add, or replace the table with, nothing."""
    table = new_table(pa.table({"id": [1, 2]}))
    with pytest.raises(Exception, match="the data has no columns"):
        spark.range(3).select().write.format("inlay").mode(mode).save(table.uri)
    assert ids(table.refresh()) == [1, 2]


def test_an_empty_dataframe_commits_nothing(spark: Any, new_table: NewTable) -> None:
    assert append(halves(spark, 0, 0), new_table(SCHEMA)).version == 1


def test_overwrite_replaces_the_rows_of_a_predicate(spark: Any, new_table: NewTable) -> None:
    table = append(halves(spark, 0, 20), new_table(SCHEMA))
    rows = spark.range(100, 103).selectExpr("id", "8.5D AS half")
    overwrite(rows, table, replaceWhere="id >= 5 AND half < 9")
    assert ids(table) == [0, 1, 2, 3, 4, 18, 19, 100, 101, 102]
    assert table.version == 3
    for half in ("9D", "CAST(NULL AS DOUBLE)"):
        with pytest.raises(Exception, match="not one of those that the write replaces"):
            outside = rows.union(spark.range(1).selectExpr("id + 5", half))
            overwrite(outside, table, replaceWhere="id >= 5 AND half < 9")
    assert table.refresh().version == 3


def test_overwrite_without_a_predicate_replaces_all_rows(spark: Any, new_table: NewTable) -> None:
    table = append(halves(spark, 0, 20), new_table(SCHEMA))
    overwrite(spark.range(7, 9), table)
    assert ids(table) == [7, 8]
    assert load(spark, table, version=2).count() == 20


def test_rows_that_arrive_during_an_overwrite_are_not_replaced_unseen(
    spark: Any, new_table: NewTable
) -> None:
    from inlay.errors import ConcurrentChange
    from inlay.spark.options import WriteOptions
    from inlay.spark.writer import InlayWriter, plan_write

    table = append(halves(spark, 0, 20), new_table(SCHEMA))
    options = WriteOptions(uri=table.uri, replace_where="id < 100")
    writer = InlayWriter(plan_write(options, spark.range(1).schema, overwrite=True)[1])
    written = writer.write(iter([pa.record_batch({"id": [1]})]))
    table.append(pa.table({"id": [50], "half": [25.0]}, schema=SCHEMA))
    with pytest.raises(ConcurrentChange):
        writer.commit([written])
    assert ids(table.refresh()) == [*range(20), 50]


def test_replace_where_without_overwrite_is_refused(spark: Any, new_table: NewTable) -> None:
    with pytest.raises(Exception, match=r'Use mode\("overwrite"\)'):
        append(spark.range(3), new_table(SCHEMA), replaceWhere="id = 1")


PARTITIONED = pa.schema([("p", pa.string()), ("id", pa.int64())])


def test_an_overwrite_of_a_partitioned_table_says_what_it_replaces(
    spark: Any, new_table: NewTable
) -> None:
    setting = "spark.sql.sources.partitionOverwriteMode"
    table = new_table(PARTITIONED, partition_by=["p"])
    append(spark.createDataFrame([("a", 1), ("b", 2), ("b", 3)], "p string, id bigint"), table)
    rows = spark.createDataFrame([("a", 4), ("c", 5)], "p string, id bigint")
    spark.conf.set(setting, "dynamic")
    try:
        with pytest.raises(Exception, match='partitionOverwriteMode", "static"'):
            overwrite(rows, table)
    finally:
        spark.conf.unset(setting)
    assert ids(table.refresh()) == [1, 2, 3]
    overwrite(rows, table, partitionOverwriteMode="dynamic", requestId="day 1")
    assert ids(table) == [2, 3, 4, 5]
    overwrite(rows, table, partitionOverwriteMode="dynamic", requestId="day 1")
    assert (ids(table), table.version) == ([2, 3, 4, 5], 3)
    overwrite(rows, table, partitionOverwriteMode="static")
    assert ids(table) == [4, 5]
    table.set_partitioning("bucket(2, id)")
    with pytest.raises(Exception, match="files of an earlier partitioning"):
        overwrite(rows, table, partitionOverwriteMode="dynamic")


def test_insert_overwrite_replaces_the_partitions_that_a_view_says(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(PARTITIONED, partition_by=["p"])
    append(spark.createDataFrame([("a", 1), ("b", 2), ("b", 3)], "p string, id bigint"), table)
    for mode, left in (("dynamic", [2, 3, 4]), ("static", [4])):
        options = f"OPTIONS (path '{table.uri}', partitionOverwriteMode '{mode}')"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_parts USING inlay {options}")
        spark.sql("INSERT OVERWRITE of_parts (id, p) VALUES (4, 'a')")
        assert ids(table.refresh()) == left
        assert spark.table("of_parts").count() in (3, 1)


def test_partitions_are_not_replaced_over_rows_that_came_meanwhile(
    spark: Any, new_table: NewTable
) -> None:
    from inlay.errors import ConcurrentChange
    from inlay.spark.options import WriteOptions
    from inlay.spark.writer import InlayWriter, plan_write

    def row(p: str, number: int) -> pa.Table:
        return pa.table({"p": [p], "id": [number]}, schema=PARTITIONED)

    def begun(number: int) -> Any:
        """What is left to do of an overwrite of the partition "a"."""
        data = spark.createDataFrame([], "p string, id bigint").schema
        options = WriteOptions(uri=table.uri, partitions="dynamic")
        writer = InlayWriter(plan_write(options, data, overwrite=True)[1])
        written = writer.write(iter(row("a", number).to_batches()))
        return lambda: writer.commit([written])

    table = new_table(PARTITIONED, partition_by=["p"])
    table.append(row("a", 1))
    commit = begun(2)
    table.append(row("b", 3))  # another partition
    commit()
    assert ids(table.refresh()) == [2, 3]
    commit = begun(4)
    table.append(row("a", 5))
    with pytest.raises(ConcurrentChange, match="partition that is being replaced"):
        commit()
    assert ids(table.refresh()) == [2, 3, 5]


def test_a_partitioned_table_gets_sorted_files_of_one_partition_each(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(SCHEMA, partition_by=["bucket(3, id)"], sort_by=["half"])
    append(halves(spark, 0, 3_000, tasks=2).orderBy("half", ascending=False), table)
    assert ids(table) == list(range(3_000))
    files = table.inspect.entries()[0]
    assert {f.partition for f in files} == {(0,), (1,), (2,)}
    assert table.scan(where="id = 17").explain().files_read < len(files)
    assert table.maintain.verify(depth="pages").findings == ()
    found: dict[str, list[float]] = {}
    for row in table.scan(columns=["half", "_file"]).to_arrow().to_pylist():
        found.setdefault(row["_file"], []).append(row["half"])
    assert all(halved == sorted(halved) for halved in found.values())


def test_a_write_creates_the_table_and_adds_columns_when_asked_to(
    spark: Any, tmp_path: Path
) -> None:
    uri = f"file://{tmp_path}/made"
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id long, p string")
    options = {"primaryKey": "id", "partitionBy": "bucket(2, id), p", "sortBy": "id"}
    frame.write.format("inlay").mode("append").options(**options).save(uri)
    table = inlay.open(uri)
    assert (ids(table), table.snapshot.primary_key) == ([1, 2], (1,))
    assert {len(f.partition) for f in table.inspect.entries()[0]} == {2}
    more = spark.createDataFrame(
        [(3, "c", [1.5], "x")], "ID long, p string, l array<double>, q string"
    )
    with pytest.raises(Exception, match="the table lacks: 'l', 'q'"):
        append(more, table)
    append(more, table, mergeSchema="true")
    [row] = table.refresh().scan(where="id = 3").to_arrow().to_pylist()
    assert row == {"id": 3, "p": "c", "l": [1.5], "q": "x"}
    assert table.count(where="q IS NULL") == 2
    append(more, table, mergeSchema="true")  # nothing to add
    assert table.count() == 4
    with pytest.raises(Exception, match="no tag or branch 'nothing'"):
        append(frame, table, ref="nothing")


VECTORS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("op", pa.string()),
        pa.field("seq", pa.int64(), nullable=False),
        ("at", pa.list_(pa.float32(), 2)),
    ]
)


WAYS = ("append", "native", "overwrite", "stream", "merge", "update")


@pytest.mark.parametrize("way", in_short(WAYS, ("append", "native", "merge")))
def test_values_that_a_declared_type_does_not_take_are_refused(
    spark: Any, new_table: NewTable, tmp_path: Path, way: str
) -> None:
    """A vector of three in a column of vectors of two would make the table unreadable."""
    from inlay.spark import InlayTable
    from inlay.spark import append as native_append
    from inlay.spark.merge import merge

    good = pa.table({"id": [1], "op": ["I"], "seq": [1], "at": [[1.0, 2.0]]}, schema=VECTORS)
    table = new_table(good, primary_key="id")
    three = "transform(sequence(1, 3), x -> float(x)) AS at"
    frame = spark.range(1, 3).selectExpr("id", "'U' AS op", "2L AS seq", three)
    with pytest.raises(Exception, match=r"at.*fixed_size_list"):
        if way == "append":
            append(frame, table)
        elif way == "native":
            native_append(frame, table.uri)
        elif way == "overwrite":
            overwrite(frame, table)
        elif way == "merge":
            merge(frame, table.uri, order="seq")
        elif way == "update":
            InlayTable(spark, table.uri).update({"at": "transform(sequence(1, 3), x -> float(x))"})
        else:
            frame.write.parquet(f"{tmp_path}/records")
            stream = spark.readStream.schema(frame.schema).parquet(f"{tmp_path}/records")
            writer = stream.writeStream.format("inlay").trigger(availableNow=True)
            query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start(table.uri)
            query.awaitTermination()
    assert table.refresh().scan().to_arrow().equals(good)


def test_a_folder_of_any_name_is_read_and_written(spark, tmp_path):
    """What a URI escapes, what Hadoop's paths and globs take apart, and escapes that are part of a name: by
    the path and by the URI, natively and by the source."""
    path = tmp_path / "a b=1,c;d%20 é#?+[x]*{a,b}"
    rows = spark.range(10)
    rows.write.format("inlay").mode("append").save(path.as_uri())
    native_append.append(rows, str(path))
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert inlay.open(path).count() == 20
    assert read(spark, path.as_uri(), native="auto").count() == 20
    assert spark.read.format("inlay").load(str(path)).count() == 20
