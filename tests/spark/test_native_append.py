"""Appends by Spark's own Parquet writer: the rows that the source would have written, once."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Observation
from pyspark.sql import functions as f

import inlay
from inlay.errors import ConcurrentChange, InvalidRequest, SchemaMismatch
from inlay.spark import InlayTable, append, explain, native_append, read
from inlay.spark import connect as connecting
from inlay.spark.connect import connect
from inlay.spark.native_append import why_by_source
from inlay.spark.types import arrow_for
from inlay.storage.wrapped import Meter, MeteredStore

from .conftest import sorted_rows

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("half", pa.float64())])

# What a session may have been told, each of which would change what stands in the files.
HABITS = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.compression.codec": "lz4_raw",
    "spark.sql.session.timeZone": "America/New_York",
}


@pytest.fixture
def with_habits(spark: Any) -> Any:
    before = {name: spark.conf.get(name) for name in HABITS}
    for name, value in HABITS.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


def halves(spark: Any, start: int, end: int, tasks: int = 2) -> Any:
    return spark.range(start, end, 1, tasks).selectExpr("id", "id / 2 AS half")


def all_types(number: int, seed: int) -> pa.Table:
    draw = random.Random(seed)

    def column(make: Callable[[], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if draw.random() < 0.2 else make() for _ in range(number)], kind)

    def day() -> dt.date:
        return dt.date.fromordinal(draw.randrange(1, 3_652_059))

    def moment() -> dt.datetime:
        at = dt.time(draw.randrange(24), draw.randrange(60), 59, draw.randrange(1_000_000))
        return dt.datetime.combine(day(), at)

    def zoned() -> dt.datetime:
        return dt.datetime.fromordinal(draw.randrange(400, 3_600_000)).replace(
            microsecond=draw.randrange(1_000_000), tzinfo=dt.UTC
        )

    def real() -> float:
        return draw.choice([0.0, -0.0, float("nan"), float("inf"), -1e308, draw.random()])

    inner = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])
    return pa.table(
        {
            "id": pa.array(range(number), pa.int64()),
            "yes": column(lambda: draw.random() < 0.5, pa.bool_()),
            "tiny": column(lambda: draw.randrange(-128, 128), pa.int8()),
            "small": column(lambda: draw.randrange(-(2**15), 2**15), pa.int16()),
            "int": column(lambda: draw.randrange(-(2**31), 2**31), pa.int32()),
            "real": column(real, pa.float32()).cast(pa.float32()),
            "double": column(real, pa.float64()),
            "price": column(
                lambda: Decimal(draw.randrange(-(10**9), 10**9)) / 100, pa.decimal128(15, 2)
            ),
            "great": column(lambda: Decimal(draw.randrange(10**30)), pa.decimal128(38, 0)),
            "text": column(lambda: draw.choice(["", "é", "x" * 300, "\U0010ffff"]), pa.string()),
            "bytes": column(lambda: draw.randbytes(draw.randrange(9)), pa.binary()),
            "day": column(day, pa.date32()),
            "wall": column(moment, pa.timestamp("us")),
            "at": column(zoned, pa.timestamp("us", "UTC")),
            "inner": column(lambda: {"x": 1, "y": ["a", None]}, inner),
            "map": column(lambda: [("k", 1), ("l", None)], pa.map_(pa.string(), pa.int32())),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("yes", pa.bool_()),
                ("tiny", pa.int8()),
                ("small", pa.int16()),
                ("int", pa.int32()),
                ("real", pa.float32()),
                ("double", pa.float64()),
                ("price", pa.decimal128(15, 2)),
                ("great", pa.decimal128(38, 0)),
                ("text", pa.string()),
                ("bytes", pa.binary()),
                ("day", pa.date32()),
                ("wall", pa.timestamp("us")),
                ("at", pa.timestamp("us", "UTC")),
                ("inner", inner),
                ("map", pa.map_(pa.string(), pa.int32())),
            ]
        ),
    )


def objects(table: inlay.Table) -> set[str]:
    folder = Path(table.uri.removeprefix("file://")) / "data"
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", range(3))
def test_all_types_are_what_the_source_writes(
    with_habits: Any, new_table: NewTable, seed: int
) -> None:
    spark = with_habits
    rows = all_types(200, seed)
    given = new_table(rows)
    frame = read(spark, given.uri)
    ours, theirs = new_table(rows.schema), new_table(rows.schema)
    assert why_by_source(frame, ours.uri, ours.snapshot) == ""
    assert append(frame, ours.uri).added_rows == 200
    assert append(frame, theirs.uri, native="never").added_rows == 200
    expected = repr(sorted_rows(given.scan().to_arrow(), "id"))  # NaN and -0.0 as they are
    assert repr(sorted_rows(theirs.refresh().scan().to_arrow(), "id")) == expected
    assert repr(sorted_rows(ours.refresh().scan().to_arrow(), "id")) == expected
    assert explain(spark, ours.uri).source_files == 0, "Spark's own reader takes them back"
    assert repr(read(spark, ours.uri).orderBy("id").collect()) == repr(
        frame.orderBy("id").collect()
    )
    assert {name: spark.conf.get(name) for name in HABITS} == HABITS


def test_a_frame_without_nulls_is_written_as_the_table_says(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(SCHEMA)
    append(spark.range(10).selectExpr("id", "1.5D AS half"), table.uri)
    append(
        spark.createDataFrame([(10, 1.5)], "id bigint not null, half double not null"), table.uri
    )
    assert explain(spark, table.uri).source_files == 0
    assert table.refresh().scan().to_arrow().column("half").to_pylist() == [1.5] * 11


def test_it_is_one_commit_and_leaves_nothing_else_behind(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    result = append(halves(spark, 0, 1000, tasks=3), table.uri)
    assert (result.version, result.committed, result.added_rows, result.added_files) == (
        2,
        True,
        1000,
        3,
    )
    named = {
        key.removeprefix("data/")
        for key in table.refresh().inspect.files().column("key").to_pylist()
    }
    assert objects(table) == named


def test_an_append_asks_the_store_for_no_more_than_it_needs(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(SCHEMA)
    meter, roots = Meter(), []
    real = connect(table.uri)
    counted = dataclasses.replace(real, store=MeteredStore(real.store, meter))
    look = native_append.hadoop_root
    monkeypatch.setattr(connecting, "connect", lambda uri: counted)
    monkeypatch.setattr(
        native_append, "hadoop_root", lambda *asked: roots.append(asked) or look(*asked)
    )
    append(halves(spark, 0, 100, tasks=2), table.uri)
    # The pointer before the rows are written and before they are committed, and the end of each file.
    assert meter.snapshot().requests == {"get": 4, "list": 1, "copy": 2, "put": 2}
    assert len(roots) == 1
    assert table.refresh().count() == 100


def test_a_request_is_done_once_whichever_way_it_goes(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    for native in ("auto", "never", "auto"):
        done = append(halves(spark, 0, 10), table.uri, request_id="load 1", native=native)
        assert done.applied_before == (table.version > 1)
        assert done.committed != done.applied_before
        assert done.version == table.refresh().version == 2
    halves(spark, 0, 10).write.format("inlay").option("requestId", "load 1").mode("append").save(
        table.uri
    )
    assert table.refresh().scan().count() == 10


def test_columns_are_found_by_name_in_any_case_and_may_be_missing(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(pa.schema([*SCHEMA, ("note", pa.string())]))
    append(spark.range(5).selectExpr("id / 2 AS HALF", "id AS ID"), table.uri)
    assert explain(spark, table.uri).source_files == 0
    found = sorted_rows(table.refresh().scan().to_arrow(), "id")
    assert found == [{"id": n, "half": n / 2, "note": None} for n in range(5)]


def test_a_null_in_a_required_column_commits_nothing(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    for native in ("auto", "never"):
        with pytest.raises(Exception, match="id") as raised:
            append(
                spark.range(9).selectExpr("nullif(id, 7) AS id", "1D AS half"),
                table.uri,
                native=native,
            )
        if native == "auto":
            assert isinstance(raised.value, SchemaMismatch)
            assert "a NULL in column 'id'" in str(raised.value)
    assert table.refresh().version == 1
    assert objects(table) == set() or table.scan().count() == 0


def test_a_table_that_an_append_creates_requires_nothing_but_its_key(
    spark: Any, tmp_path: Path
) -> None:
    """That a literal is never NULL says nothing of the rows to come."""
    uri = f"file://{tmp_path}/made"
    first = "1L AS id, 'x' AS a, array(1) AS b, named_struct('c', 1) AS d, map('k', 1) AS e"
    append(spark.sql(f"SELECT {first}"), uri)
    nothing = "CAST(NULL AS INT)"
    later = f"{nothing} AS a, array({nothing}) AS b, named_struct('c', {nothing}) AS d"
    later = later.replace(f"{nothing} AS a", "CAST(NULL AS STRING) AS a")
    append(
        spark.sql(f"SELECT NULL AS id, {later}, map('k', {nothing}) AS e").selectExpr(
            "CAST(id AS BIGINT) AS id", "a", "b", "d", "e"
        ),
        uri,
    )
    [row] = inlay.open(uri).scan(where="id IS NULL").to_arrow().to_pylist()
    assert row == {"id": None, "a": None, "b": [None], "d": {"c": None}, "e": [("k", None)]}
    keyed = f"file://{tmp_path}/keyed"
    writer = spark.range(3).selectExpr("id", "'x' AS a").write.format("inlay").mode("append")
    writer.option("primaryKey", "id").save(keyed)
    schema = inlay.open(keyed).schema
    assert [schema.field(name).nullable for name in ("id", "a")] == [False, True]


TEXTS = {
    "a text": "{}",
    "an element": "array('a', {})",
    "a part of a struct": "named_struct('n', 1, 'c', array({}))",
    "a key": "map({}, 1)",
    "a value": "map(1, {})",
}


@pytest.mark.parametrize("where", TEXTS)
def test_text_that_is_not_utf8_commits_nothing(spark: Any, new_table: NewTable, where: str) -> None:
    def frame(*texts: str) -> Any:
        values = spark.sql(f"SELECT * FROM VALUES ({'), ('.join(texts)}) AS v(b)")
        return values.selectExpr("1L AS id", TEXTS[where].format("CAST(b AS STRING)") + " AS v")

    right = frame("X'C3A9'", "X''", "X'F09F9982'")
    table = new_table(arrow_for(right.schema))
    wrong = frame("X'61'", "X'C3'")
    assert why_by_source(wrong, table.uri, table.snapshot) == ""
    for native in ("auto", "never"):
        with pytest.raises(
            Exception, match=r"column 'v[^']*' has text that is not UTF-8"
        ) as raised:
            append(wrong, table.uri, native=native)
        assert native == "never" or isinstance(raised.value, SchemaMismatch)
    assert table.refresh().version == 1
    append(right, table.uri)
    assert explain(spark, table.uri).source_files == 0
    found = read(spark, table.uri).collect()
    assert sorted(map(repr, found)) == sorted(map(repr, right.collect()))


def test_text_that_is_not_utf8_is_found_in_each_column(spark: Any, new_table: NewTable) -> None:
    columns = pa.schema(
        [("a", pa.string()), pa.field("b", pa.string(), nullable=False), ("c", pa.string())]
    )
    table = new_table(columns)
    for wrong in columns.names:
        # Of a literal, of a value that Spark knows when it plans, and of rows.
        for bytes_ in ("X'FF'", "unhex('61C3')", "IF(id = 7, X'EDA080', X'61')"):
            row = [
                f"CAST({bytes_} AS STRING) AS {n}" if n == wrong else f"'x' AS {n}"
                for n in columns.names
            ]
            with pytest.raises(SchemaMismatch, match="a, b, c has text that is not UTF-8"):
                append(spark.range(9).selectExpr(*row), table.uri)
    assert table.refresh().version == 1
    append(
        spark.sql("SELECT CAST(NULL AS STRING) AS a, '' AS b, CAST(X'C3A9' AS STRING) AS c"),
        table.uri,
    )
    assert read(spark, table.uri).collect() == [(None, "", "é")]


@pytest.mark.parametrize(
    ("given", "kind", "fitting", "wrong"),
    [
        ("bigint", pa.int32(), "-2147483648, 2147483647", "2147483648"),
        ("int", pa.int8(), "-128, 127", "-129"),
        ("tinyint", pa.int64(), "-128, 127", None),
        ("decimal(16,2)", pa.decimal128(15, 2), "9999999999999.99, -0.01", "10000000000000"),
        ("decimal(38,0)", pa.decimal128(9, 2), "9999999, -9999999", "10000000"),
        ("decimal(5,1)", pa.decimal128(38, 30), "9999.9, -9999.9", None),
        ("float", pa.float64(), "'0.1', 'NaN', '-Infinity', '-0.0'", None),
    ],
)
def test_values_of_another_type_are_kept_or_refused_as_by_the_source(
    spark: Any, new_table: NewTable, given: str, kind: pa.DataType, fitting: str, wrong: str | None
) -> None:
    def rows(values: str) -> Any:
        return spark.sql(f"SELECT CAST(v AS {given}) AS v FROM VALUES ({values}) AS t(v)")

    right = rows("), (".join(["NULL", *fitting.split(", ")]))
    tables = {way: new_table(pa.schema([("v", kind)])) for way in ("auto", "never")}
    found = {}
    for way, table in tables.items():
        append(right, table.uri, native=way)  # type: ignore[arg-type]
        found[way] = sorted(map(str, table.refresh().scan().to_arrow()["v"].to_pylist()))
        if wrong is not None:
            with pytest.raises(Exception, match="column 'v'") as raised:
                append(rows(wrong), table.uri, native=way)  # type: ignore[arg-type]
            assert way == "never" or isinstance(raised.value, SchemaMismatch)
        assert table.refresh().version == 2
    assert len(found["auto"]) == 1 + len(fitting.split(", "))
    assert found["auto"] == found["never"]
    assert why_by_source(right, table.uri, table.snapshot) == ""
    assert explain(spark, tables["auto"].uri).source_files == 0


def test_digits_that_spark_would_round_away_go_to_the_source(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(pa.schema([("v", pa.decimal128(9, 1))]))
    rounded = spark.sql("SELECT CAST('0.15' AS decimal(9, 2)) AS v")
    assert "types" in why_by_source(rounded, table.uri, table.snapshot)
    with pytest.raises(Exception, match="column 'v'"):
        append(rounded, table.uri)
    append(spark.sql("SELECT CAST('0.10' AS decimal(9, 2)) AS v"), table.uri)
    assert table.refresh().scan().to_arrow().to_pylist() == [{"v": Decimal("0.1")}]


def test_what_does_not_fit_is_refused_before_a_task_runs(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    for wrong in ("id, id AS other", "'x' AS id", "1D AS half"):
        with pytest.raises(SchemaMismatch):
            append(spark.range(3).selectExpr(*wrong.split(", ")), table.uri)
    with pytest.raises(InvalidRequest, match="native"):
        append(halves(spark, 0, 3), table.uri, native="always")  # type: ignore[arg-type]
    assert objects(table) == set()


def test_rows_are_in_the_tables_order_within_a_file(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA, sort_by="half", properties={"write.row_group_rows": 100})
    append(spark.range(0, 1000, 1, 1).selectExpr("id", "(id * 7919) % 1000 / 2 AS half"), table.uri)
    [file] = table.refresh().inspect.files().to_pylist()
    assert file["row_groups"] == 10
    assert table.scan().to_arrow().column("half").to_pylist() == [n / 2 for n in range(1000)]


def test_a_branch_gets_them_alone(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    table.refs.branch("night")
    append(halves(spark, 0, 7), table.uri, ref="night")
    assert inlay.open(table.uri, ref="night").scan().count() == 7
    assert table.refresh().scan().count() == 0


def test_what_is_observed_of_the_rows_is_reported(spark: Any, new_table: NewTable) -> None:
    table = new_table(SCHEMA)
    seen = Observation("seen")
    frame = halves(spark, 0, 7).observe(seen, f.count("*").alias("n"))
    assert "observes" in why_by_source(frame, table.uri, table.snapshot)
    append(frame, table.uri)
    assert seen.get == {"n": 7}  # for ever without an answer, if the session is not told


@pytest.mark.parametrize("native", ["auto", "never"])
def test_no_rows_are_no_commit_unless_it_has_a_name(
    spark: Any, new_table: NewTable, native: Any
) -> None:
    table = new_table(SCHEMA)
    result = append(halves(spark, 0, 0), table.uri, native=native)
    assert (result.committed, result.added_rows, table.refresh().version) == (False, 0, 1)
    for committed in (True, False):
        named = append(halves(spark, 0, 0), table.uri, request_id="none", native=native)
        assert (named.committed, named.added_rows) == (committed, 0)
    assert (table.refresh().version, table.count()) == (2, 0)


@pytest.mark.parametrize(
    ("why", "schema", "options"),
    [
        ("partitioned", SCHEMA, {"partition_by": "id"}),
        ("types", pa.schema([("id", pa.uint8())]), {}),
        ("types", pa.schema([("id", pa.timestamp("ms"))]), {}),
        ("one by one", pa.schema([("id", pa.list_(pa.float32(), 2))]), {}),
        ("case alone", pa.schema([("id", pa.struct([("a", pa.int64()), ("A", pa.int64())]))]), {}),
    ],
)
def test_what_sparks_writer_cannot_write_goes_through_the_source(
    spark: Any, new_table: NewTable, why: str, schema: pa.Schema, options: dict[str, Any]
) -> None:
    table = new_table(schema, **options)
    rows = pa.table({"id": [1, 2], "half": [1.0, 2.0]}, schema=SCHEMA)
    if schema is not SCHEMA:
        values: list[Any] = {
            "types": [1, 2],
            "one by one": [[1.0, 2.0], [3.0, 4.0]],
            "case alone": [{"a": 1, "A": 2}, {"a": None, "A": 3}],
        }[why]
        rows = pa.table([pa.array(values, schema.field(0).type)], schema=schema)
    given = new_table(schema)
    given.append(rows)
    frame = read(spark, given.uri)
    assert why in why_by_source(frame, table.uri, table.snapshot)
    assert append(frame, table.uri).added_rows == 2
    assert sorted(map(str, table.refresh().scan().to_arrow().to_pylist())) == sorted(
        map(str, rows.to_pylist())
    )


def test_another_schema_meanwhile_is_a_conflict(spark: Any, new_table: NewTable) -> None:
    """Spark has written by names, which mean other columns by the time of the commit."""
    table = new_table(SCHEMA)
    seen = spark.range(
        3
    ).rdd  # the frame is evaluated when it is written: the alter comes in between

    def rename(part: Any) -> Any:
        inlay.open(table.uri).alter(rename={"half": "whole"})
        return part

    frame = spark.createDataFrame(
        seen.coalesce(1).mapPartitions(rename).map(lambda row: (row[0], 1.0)),
        "id bigint, half double",
    )
    with pytest.raises((ConcurrentChange, SchemaMismatch)):
        append(frame, table.uri)
    assert table.refresh().scan().count() == 0


def test_the_files_are_another_writers(spark: Any, new_table: NewTable) -> None:
    """An erasure judges their rows."""
    table = new_table(SCHEMA)
    append(halves(spark, 0, 100), table.uri)
    assert all(file.is_foreign for file in table.refresh()._loaded.state.files())
    table.delete("id = 7", mode="erase")
    assert table.refresh().scan(where="id = 7").count() == 0


def test_arrow_for_is_what_a_table_made_of_a_frame_has(spark: Any, new_table: NewTable) -> None:
    frame = spark.sql("SELECT 1 AS id, array(1) AS l, named_struct('x', 1) AS s")
    table = new_table(arrow_for(frame.schema))
    append(frame, table.uri)
    assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 1, "l": [1], "s": {"x": 1}}]


def test_a_column_that_the_rows_lack_has_its_default_whoever_writes(
    spark: Any, new_table: NewTable
) -> None:
    defaults = {
        "text": "none",
        "real": 1.5,
        "day": dt.date(2026, 1, 31),
        "at": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
        "wall": dt.datetime(1500, 1, 31, 12),
        "price": Decimal("1.50"),
        "yes": True,
        "must": 7,
    }
    columns = pa.schema(
        [
            ("text", pa.string()),
            ("real", pa.float64()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("wall", pa.timestamp("us")),
            ("price", pa.decimal128(10, 2)),
            ("yes", pa.bool_()),
            pa.field("must", pa.int32(), nullable=False),
        ]
    )
    table = new_table(pa.table({"id": [1], "half": [0.5]}, SCHEMA))
    table.alter(add=columns, defaults=defaults)
    append(halves(spark, 2, 3), table.uri)
    append(halves(spark, 3, 4), table.uri, native="never")
    insert = InlayTable(spark, table.uri).alias("t").merge(halves(spark, 4, 5).alias("s"), "false")
    insert.whenNotMatchedInsertAll().execute()
    table.refresh().append(pa.table({"id": [5], "half": [2.5]}, SCHEMA))
    found = sorted_rows(table.scan().to_arrow(), "id")
    assert found == [{"id": n, "half": n / 2, **defaults} for n in range(1, 6)]
    assert explain(spark, table.uri).why == {"older schema": 1}
