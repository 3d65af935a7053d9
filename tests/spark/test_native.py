"""What Spark's own Parquet reader gives of a table is what the source gives, and what DuckDB says."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InvalidRequest
from inlay.format.schema import Field, Primitive
from inlay.ops.read.other_reader import same_column
from inlay.spark import explain, read

from .conftest import ROWS_PER_FILE, rows, sorted_rows, three_files

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]


def both_ways(spark: Any, table: inlay.Table, **how: Any) -> pa.Table:
    """Read natively and through the source, which must be the same; sorted by the first column."""
    native, source = (read(spark, table.uri, native=way, **how) for way in ("auto", "never"))
    assert native.schema == source.schema
    one, other = (frame.toArrow() for frame in (native, source))
    key = one.schema.names[0]
    assert repr(sorted_rows(one, key)) == repr(sorted_rows(other, key))
    return one


def is_native(spark: Any, table: inlay.Table, **how: Any) -> bool:
    plan = explain(spark, table.uri, **how)
    return plan.native_files > 0 and plan.source_files == 0


def folder(table: inlay.Table) -> Path:
    return Path(table.uri.removeprefix("file://"))


# -- deletes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [None, "id > 700", "name LIKE 'name 2%' OR amount < 3"])
def test_every_kind_of_delete_gives_the_same_rows(
    spark: Any, with_every_delete: inlay.Table, where: str | None
) -> None:
    live = with_every_delete.scan().to_arrow()
    expected = duckdb.sql(f"SELECT * FROM live WHERE {where or 'true'}").to_arrow_table()
    assert live.num_rows and expected.num_rows
    seen = both_ways(spark, with_every_delete, where=where)
    assert sorted_rows(seen, "id") == sorted_rows(expected, "id")


def test_each_version_gives_the_same_rows(spark: Any, with_every_delete: inlay.Table) -> None:
    for version in range(2, with_every_delete.version + 1):
        seen = both_ways(spark, with_every_delete, version=version, columns=["id"])
        old = inlay.open(with_every_delete.uri, version=version)
        assert sorted_rows(seen, "id") == sorted_rows(old.scan(columns=["id"]).to_arrow(), "id")


def test_deletes_of_every_kind_stay_native(spark: Any, new_table: NewTable) -> None:
    table = three_files(new_table)
    assert explain(spark, table.uri).native_files == 3
    table.delete("id BETWEEN 10 AND 19")
    table.delete("name = 'name 3' AND amount > 1")
    assert is_native(spark, table)
    table.delete("id IN (401, 402)", mode="vector")
    table.delete(keys=pa.table({"id": pa.array(range(900, 1200, 2), pa.int64())}))
    table.delete("amount > 225 AND amount < 260", mode="vector")  # in an object of its own
    table.maintain.delete_row_groups(table.inspect.files()["key"][2].as_py(), [3])
    assert is_native(spark, table)
    seen = both_ways(spark, table)
    assert seen.num_rows == table.count()


def test_a_delete_leaves_rows_for_which_it_is_null(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 70))
    table.delete("name <> 'name 1'")
    assert is_native(spark, table)
    names = both_ways(spark, table).column("name").to_pylist()
    assert sorted(set(names), key=str) == [None, "name 1"]


def test_a_key_of_any_name_deletes(spark: Any, new_table: NewTable) -> None:
    """The deleted keys are columns beside the rows."""
    table = new_table(pa.table({"__inlay_key_0": [1, 2, 3], "id": ["a", "b", "c"]}))
    table.delete(keys=pa.table({"id": ["b"]}))
    table.delete(keys=pa.table({"__inlay_key_0": [3]}))
    assert explain(spark, table.uri).source_files == 0
    assert read(spark, table.uri).collect() == [(1, "a")]


def test_more_sets_of_deletes_than_frames_go_through_python(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inlay.spark.native.MAX_SHARES", 2)
    table = three_files(new_table)
    for start in (0, 400, 800):
        table.delete(f"id BETWEEN {start} AND {start + 5}")
    assert explain(spark, table.uri).why == {"deletes": 1}
    assert both_ways(spark, table).num_rows == 3 * ROWS_PER_FILE - 18


def test_more_files_than_spark_is_named_go_through_python(
    spark: Any, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inlay.spark.native.MAX_FILES", 2)
    monkeypatch.setattr("inlay.spark.native.DRIVER_FOOTERS", 1)
    table = three_files(new_table)
    assert explain(spark, table.uri).why == {"too many files": 1}
    assert both_ways(spark, table).num_rows == 3 * ROWS_PER_FILE


# -- values ---------------------------------------------------------------------------------------

EXACT = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("flag", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("d9", pa.decimal128(9, 2)),
        ("d38", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("wall_ms", pa.timestamp("ms")),
        ("wall", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("items", pa.list_(pa.field("element", pa.int32()))),
        ("words", pa.list_(pa.field("element", pa.string(), nullable=False))),
        ("point", pa.struct([("x", pa.int32()), ("t", pa.string())])),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("odd `name`.with, all", pa.int32()),
    ]
)


@pytest.fixture
def of_all_types(new_table: NewTable) -> inlay.Table:
    early, late = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)
    first: list[Any] = [
        1,
        True,
        -128,
        -(2**15),
        -(2**31),
        -0.0,
        -0.0,
        Decimal("-1.25"),
        Decimal("1e-10"),
    ]
    first += ["", b"", date(1, 1, 1), datetime(1500, 1, 1), early, early.replace(tzinfo=UTC)]
    first += [[1, None], ["a", ""], {"x": 1, "t": None}, [("a", 1), ("b", None)], 7]
    second: list[Any] = [2, False, 127, 2**15 - 1, 2**31 - 1, math.nan, math.nan]
    second += [Decimal("9.99"), Decimal(0)]
    second += ["naïve 🙂 50%_\\", b"\x00\xff", date(9999, 12, 31), datetime(2020, 2, 29), late]
    second += [late.replace(tzinfo=UTC), [], [], {"x": 2, "t": "é"}, [], 8]
    values = [first, second, [3, *[None] * (len(EXACT) - 1)]]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*values, strict=True), EXACT, strict=True)]
    return new_table(pa.table(columns, schema=EXACT), primary_key="id")


def test_values_types_and_nullability_are_those_of_the_source(
    spark: Any, of_all_types: inlay.Table
) -> None:
    assert is_native(spark, of_all_types)
    assert both_ways(spark, of_all_types).num_rows == 3
    assert not read(spark, of_all_types.uri).schema["id"].nullable


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("f64 > 5", [2]),
        ("f64 = 0.0 AND f32 = 0.0", [1]),
        ("f32 IN (0.0, 1.0)", [1]),
        ("NOT (f64 < 5)", [2]),
        ("d9 = -1.25 OR d38 = 0", [1, 2]),
        ("text LIKE '%50\\%\\_\\\\'", [2]),
        ("text LIKE 'na_ve \\🙂%'", [2]),
        ("bytes > X'00'", [2]),
        ("day < DATE '1900-01-01'", [1]),
        ("wall < TIMESTAMP '2000-01-01 00:00:00' AND wall_ms = TIMESTAMP '1500-01-01'", [1]),
        ("instant >= TIMESTAMP '9999-12-31 23:59:59.999999Z'", [2]),
        ("flag AND i8 = -128 AND i16 < 0 AND i32 < 0", [1]),
        ("text IS NULL AND items IS NULL", [3]),
        ("point.t = 'é'", [2]),
        ("i32 IN (2147483647, 4) OR i32 IN (NULL)", [2]),
        ('"odd `name`.with, all" = 7', [1]),
    ],
)
def test_conditions_mean_to_spark_what_they_mean_here(
    spark: Any, of_all_types: inlay.Table, where: str, ids: list[int]
) -> None:
    seen = both_ways(spark, of_all_types, columns=["id"], where=where)
    assert sorted(seen.column("id").to_pylist()) == ids
    assert of_all_types.count(where=where) == len(ids)


def test_conditions_are_passed_to_spark(spark: Any, of_all_types: inlay.Table) -> None:
    told = ["f64 > 5", "NOT (d9 = 1)", "day < DATE '1900-01-01'", "point.t = 'é'", "id IN (1, 2)"]
    for where in told:
        assert is_native(spark, of_all_types, where=where), where
    # A set of floats is not, and neither is a list that would be a call for each value.
    assert explain(spark, of_all_types.uri, where="f32 IN (0.0, 1.0)").why == {"filter": 1}
    many = ", ".join(map(str, range(1000)))
    assert explain(spark, of_all_types.uri, where=f"id IN ({many})").why == {"filter": 1}


def test_a_later_filter_finds_nan_and_both_zeros(spark: Any, new_table: NewTable) -> None:
    values = pa.array([1.0, math.nan, -0.0, 0.0, None] * 100)
    table = new_table(pa.table({"x": values, "id": range(500)}))
    frame = read(spark, table.uri)
    assert is_native(spark, table)
    # Plain Parquet finds none of the first: its bounds are 0.0 and 1.0.
    assert frame.where("x > 5").count() == 100
    assert frame.where("x = 0").count() == frame.where("x = -0.0d").count() == 200
    assert frame.where("x IS NULL").count() == 100


def test_a_later_filter_leaves_row_groups_out(spark: Any, new_table: NewTable) -> None:
    frame = read(spark, three_files(new_table).uri).where("id = 5")
    assert "PushedFilters: [EqualTo(id,5)]" in frame._jdf.queryExecution().toString()
    assert [row.id for row in frame.collect()] == [5]


# -- files of others ------------------------------------------------------------------------------

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
    ]
)


def ingested(new_table: NewTable, tmp_path: Path, data: pa.Table, **options: Any) -> inlay.Table:
    pq.write_table(data, tmp_path / "landed.parquet", **options)
    table = new_table(TABLE)
    result = table.ingest([f"file://{tmp_path}/landed.parquet"])
    assert result.write.committed, result.outcomes
    return table


def landed(**changes: pa.DataType) -> pa.Table:
    names = {"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "name": pa.string(), **changes}
    schema = pa.schema([pa.field(n, k, nullable=n != "id") for n, k in names.items()])
    values = {
        "id": [1, 2],
        "at": [datetime(1700, 1, 1), datetime(2030, 1, 1)],
        "name": ["a", None],
        "ID": [3, 4],
    }
    return pa.table([pa.array(values[n]).cast(k) for n, k in names.items()], schema=schema)


def test_a_landed_file_of_the_same_types_is_read_by_spark(
    spark: Any, new_table: NewTable, tmp_path: Path
) -> None:
    table = ingested(new_table, tmp_path, landed(), compression="gzip")
    assert is_native(spark, table)
    assert both_ways(spark, table).num_rows == 2


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (landed(id=pa.int32()), {}),
        (landed(at=pa.timestamp("ms", "UTC")), {}),
        (landed(name=pa.large_string()), {"compression": "lz4"}),
        (landed(), {"use_dictionary": False, "column_encoding": {"id": "BYTE_STREAM_SPLIT"}}),
        (landed().cast(TABLE.set(0, pa.field("id", pa.int64()))), {}),
        (landed().drop_columns(["name"]), {}),
    ],
    ids=[
        "narrower",
        "milliseconds",
        "codec",
        "encoding",
        "optional",
        "absent",
    ],
)
def test_a_landed_file_that_differs_goes_through_python(
    spark: Any, new_table: NewTable, tmp_path: Path, data: pa.Table, options: dict[str, Any]
) -> None:
    table = ingested(new_table, tmp_path, data, **options)
    assert explain(spark, table.uri).why == {"file types": 1}
    assert both_ways(spark, table).num_rows == data.num_rows


def test_an_adopted_file_goes_through_python(
    spark: Any, new_table: NewTable, tmp_path: Path
) -> None:
    pq.write_table(landed(), tmp_path / "landed.parquet")
    table = new_table(TABLE)
    table.ingest([f"file://{tmp_path}/landed.parquet"], adopt=True)
    assert explain(spark, table.uri).why == {"adopted": 1}
    assert both_ways(spark, table).num_rows == 2


def test_a_column_is_the_same_only_by_id_name_type_and_nullability() -> None:
    column = Field(1, "a", Primitive("int64"))
    assert same_column(column, Field(1, "a", Primitive("int64"), doc="said since"))
    for other in (
        Field(2, "a", Primitive("int64")),
        Field(1, "b", Primitive("int64")),
        Field(1, "a", Primitive("int32")),
        Field(1, "a", Primitive("int64"), nullable=False),
    ):
        assert not same_column(other, column)
    assert not same_column(None, column)


@pytest.mark.parametrize("within", ["struct", "list", "map"])
def test_names_that_differ_by_case_alone_go_through_python(
    spark: Any, new_table: NewTable, within: str
) -> None:
    """Spark's own reader refuses them, in a session that ignores case."""
    twins = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    kind = {"struct": twins, "list": pa.list_(twins), "map": pa.map_(pa.string(), twins)}[within]
    one = {"a": 1, "A": 2}
    value = {"struct": one, "list": [one], "map": [("k", one)]}[within]
    table = new_table(pa.table({"id": [1], "p": pa.array([value], kind)}))
    assert read(spark, table.uri).toArrow().column("p").to_pylist() == [value]
    assert explain(spark, table.uri).why == {"column types": 1}
    assert explain(spark, table.uri, columns=["id"]).native_files == 1


def test_files_of_an_older_schema_go_through_python_as_far_as_they_differ(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(
        pa.table({"id": [1, 2], "n": pa.array([3, 4], pa.int32()), "old": ["a", "b"]})
    )
    table.alter(rename={"old": "new"}, widen={"n": pa.int64()}, add={"more": pa.int64()})
    table.append(pa.table({"id": [5], "n": [6], "new": ["c"], "more": [7]}))
    table.delete("n = 4 OR new = 'zz'")
    assert explain(spark, table.uri, columns=["id"]).why == {"older schema": 1}  # by the delete
    assert both_ways(spark, table).num_rows == 2
    assert both_ways(spark, table, where="more IS NULL", columns=["new"]).num_rows == 1


def test_partitions_and_branches_are_read_by_spark(spark: Any, new_table: NewTable) -> None:
    data = pa.table({"id": range(8), "country": ["de", "fr"] * 4})
    table = new_table(data, partition_by=["country"])
    assert is_native(spark, table)
    table.refs.branch("work")
    inlay.open(table.uri, ref="work").delete("id = 3")
    assert is_native(spark, table, ref="work")
    assert both_ways(spark, table, ref="work", where="country = 'fr'").num_rows == 3
    assert both_ways(spark, table).num_rows == 8


# -- what may go wrong ----------------------------------------------------------------------------


def test_a_broken_file_is_an_error_whatever_the_session_is_set_to(
    spark: Any, new_table: NewTable
) -> None:
    table = three_files(new_table)
    plan = explain(spark, table.uri)
    assert plan.native_files == 3
    path = folder(table) / table.inspect.files().column("key").to_pylist()[0]
    whole = path.read_bytes()
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        path.write_bytes(whole[:200] + bytes(50) + whole[250:])
        with pytest.raises(Exception, match=r"(?i)corrupt|crc|checksum"):
            read(spark, table.uri).toArrow()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_table_on_s3_goes_through_python_when_spark_has_no_file_system_for_it(
    spark: Any, s3_bucket: str
) -> None:
    table = inlay.create(f"s3://{s3_bucket}/tables/native", rows(0, 5).schema)
    table.append(rows(0, 5))
    assert explain(spark, table.uri).why == {"Spark has no access": 1}
    assert read(spark, table.uri).count() == 5


def test_never_is_never_and_other_words_are_refused(spark: Any, new_table: NewTable) -> None:
    table = new_table(rows(0, 5))
    assert explain(spark, table.uri, native="never").native_files == 0
    with pytest.raises(InvalidRequest, match="native='always'"):
        read(spark, table.uri, native="always")  # type: ignore[arg-type]


def test_columns_that_only_folders_have_are_read_with_their_values(
    spark: Any, tmp_path: Path
) -> None:
    """In place by the source; a file that surgery made of one lacks the column, too."""
    for year in (2023, 2024):
        folder = tmp_path / "source" / f"year={year}"
        folder.mkdir(parents=True)
        rows_of_year = pa.table({"id": list(range(year, year + 9)), "name": ["a"] * 9})
        pq.write_table(rows_of_year, folder / "a.parquet", row_group_size=3)
    with pytest.warns(UserWarning, match="format version 2"):
        table = inlay.adopt(tmp_path / "source", tmp_path / "table")
    for step in ("in place", "surgery", "appended"):
        if step == "surgery":
            table.delete("id = 2023", mode="surgery")
        if step == "appended":
            table.append(pa.table({"id": [1], "name": ["b"], "year": [2030]}, table.schema))
        expected = sorted_rows(table.refresh().scan().to_arrow(), "id", "year")
        assert sorted_rows(both_ways(spark, table), "id", "year") == expected, step
        found = both_ways(spark, table, where="year = 2024")
        assert found.num_rows == 9 and set(found["year"].to_pylist()) == {2024}
    assert explain(spark, table.uri).source_files == 2
    theirs = spark.read.parquet(f"file://{tmp_path}/source").toArrow()
    ours = inlay.open(table.uri, version=1).scan().to_arrow()
    assert theirs.schema.types == ours.schema.types
    assert sorted_rows(theirs, "id", "year") == sorted_rows(ours, "id", "year")
