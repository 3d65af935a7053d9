"""Every type Spark can hold arrives as it is; the others are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import TableNotFound, UnsupportedType
from inlay.spark import append, read
from inlay.spark.api import TIME_SETTING

from .conftest import load

pytestmark = pytest.mark.spark

NewTable = Callable[..., inlay.Table]

LATE = datetime(9999, 12, 31, 23, 59, 59, 999999)
EARLY = datetime(1, 1, 1)


def column(*values: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([*values, None], kind)


COLUMNS = {
    "flag": column(True, False, kind=pa.bool_()),
    "i8": column(-128, 127, kind=pa.int8()),
    "i16": column(-(2**15), 2**15 - 1, kind=pa.int16()),
    "i32": column(-(2**31), 2**31 - 1, kind=pa.int32()),
    "i64": column(-(2**63), 2**63 - 1, kind=pa.int64()),
    "u8": column(0, 255, kind=pa.uint8()),
    "u16": column(0, 2**16 - 1, kind=pa.uint16()),
    "u32": column(0, 2**32 - 1, kind=pa.uint32()),
    "u64": column(0, 2**64 - 1, kind=pa.uint64()),
    "f32": column(-0.5, float("inf"), kind=pa.float32()),
    "f64": column(2.5e-308, -1e300, kind=pa.float64()),
    "d9": column(Decimal("-12345.67"), Decimal("0.01"), kind=pa.decimal128(9, 2)),
    "d38": column(Decimal("9" * 28 + "." + "9" * 10), Decimal(0), kind=pa.decimal128(38, 10)),
    "text": column("", "naïve 🙂", kind=pa.string()),
    "bytes": column(b"", b"\x00\xff", kind=pa.binary()),
    "fixed": column(b"abcd", b"\x00\x00\x00\x00", kind=pa.binary(4)),
    "day": column(date(1, 1, 1), date(9999, 12, 31), kind=pa.date32()),
    "time_ms": column(time(0), time(23, 59, 59, 999000), kind=pa.time32("ms")),
    "time_us": column(time(0), time(23, 59, 59, 999999), kind=pa.time64("us")),
    "wall_ms": column(datetime(1969, 12, 31, 23), datetime(2020, 2, 29), kind=pa.timestamp("ms")),
    "wall": column(EARLY, LATE, kind=pa.timestamp("us")),
    "instant_s": column(
        datetime(1969, 7, 20, 20, 17, 40, tzinfo=UTC),
        datetime(2038, 1, 19, tzinfo=UTC),
        kind=pa.timestamp("s", "UTC"),
    ),
    "instant": column(
        EARLY.replace(tzinfo=UTC), LATE.replace(tzinfo=UTC), kind=pa.timestamp("us", "UTC")
    ),
    "list": column([1, None], [], kind=pa.list_(pa.int32())),
    "required_items": column(
        ["a"], [], kind=pa.list_(pa.field("element", pa.string(), nullable=False))
    ),
    "struct": column(
        {"a": 1, "b": None},
        {"a": None, "b": [{"c": b"x"}, None]},
        kind=pa.struct(
            [
                ("a", pa.uint8()),
                ("b", pa.list_(pa.struct([pa.field("c", pa.binary(), nullable=False)]))),
            ]
        ),
    ),
    "map": column([("k", [1.5])], [], kind=pa.map_(pa.string(), pa.list_(pa.float64()))),
}


def test_every_type_arrives_as_it_is(spark: Any, new_table: NewTable) -> None:
    data = pa.table(COLUMNS)
    table = new_table(data)
    frame = load(spark, table)
    # `toArrow` cannot hold a NULL struct with a required child.
    seen = frame.drop("struct").toArrow()
    for name in seen.column_names:
        assert seen.column(name).to_pylist() == data.column(name).to_pylist(), name
    structs = [row.asDict(recursive=True)["struct"] for row in frame.select("struct").collect()]
    assert structs == data.column("struct").to_pylist()


def test_instants_are_utc_whatever_the_session_thinks(spark: Any, new_table: NewTable) -> None:
    moment = datetime(2026, 7, 1, 12, tzinfo=UTC)
    table = new_table(pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC"))}))
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        shown = load(spark, table).selectExpr("cast(at as string)", "unix_micros(at)").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert shown == ("2026-07-01 08:00:00", int(moment.timestamp()) * 1_000_000)


def test_nullability_is_the_tables(spark: Any, new_table: NewTable) -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    table = new_table(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("s", inner, nullable=False),
                pa.field("l", pa.list_(pa.field("element", pa.string(), nullable=False))),
            ]
        )
    )
    table.append(
        pa.table({"id": [1], "s": [{"a": 1, "b": None}], "l": [["x"]]}, schema=table.schema)
    )
    frame = load(spark, table)
    assert frame.schema.simpleString() == "struct<id:bigint,s:struct<a:int,b:int>,l:array<string>>"
    assert [f.nullable for f in frame.schema] == [False, False, True]
    assert [f.nullable for f in frame.schema["s"].dataType] == [False, True]
    assert frame.schema["l"].dataType.containsNull is False
    assert frame.collect()[0].asDict(recursive=True) == {
        "id": 1,
        "s": {"a": 1, "b": None},
        "l": ["x"],
    }


def test_what_spark_cannot_hold_is_refused_by_name_and_can_be_left_out(
    spark: Any, new_table: NewTable
) -> None:
    table = new_table(
        pa.table(
            {
                "id": pa.array([1], pa.int64()),
                "nanos": pa.array([1], pa.timestamp("ns")),
                "wide": pa.array([Decimal(1)], pa.decimal256(60, 2)),
            }
        )
    )
    with pytest.raises(UnsupportedType, match=r"'nanos' is timestamp\(ns\).*columns="):
        read(spark, table.uri)
    with pytest.raises(Exception, match=r"'wide' is decimal\(60,2\)"):
        load(spark, table, columns="id, wide")
    assert load(spark, table, columns="id").collect() == [(1,)]


def test_a_session_without_times_of_day_learns_what_to_set(spark: Any, new_table: NewTable) -> None:
    table = new_table(pa.table({"id": [1], "at": pa.array([time(1)], pa.time64("us"))}))
    spark.conf.set(TIME_SETTING, "false")
    try:
        with pytest.raises(UnsupportedType, match=f"'at' is a time of day.*{TIME_SETTING}=true"):
            read(spark, table.uri)
        assert read(spark, table.uri, columns=["id"]).collect() == [(1,)]
    finally:
        spark.conf.set(TIME_SETTING, "true")


def test_a_filter_on_each_type_finds_its_row(either_way: Any, new_table: NewTable) -> None:
    data = pa.table(COLUMNS)
    table = new_table(data)
    frame = load(either_way, table)
    literals = {
        "u64": "18446744073709551615",
        "u8": "255",
        "d38": f"cast('{COLUMNS['d38'][0].as_py()}' as decimal(38,10))",
        "text": "'naïve 🙂'",
        "fixed": "X'61626364'",
        "day": "date'9999-12-31'",
        "time_us": "time'23:59:59.999999'",
        "wall_ms": "timestamp_ntz'2020-02-29 00:00:00'",
        "instant_s": "timestamp'1969-07-20T20:17:40Z'",
        "instant": "timestamp'9999-12-31T23:59:59.999999Z'",
        "f32": "cast('Infinity' as float)",
    }
    conditions = [f"({name} = {literal})" for name, literal in literals.items()]
    found = frame.selectExpr(*[f"count_if{condition}" for condition in conditions]).first()
    assert found == (1,) * len(literals)
    for condition in conditions:
        assert frame.where(condition).count() == 1, condition


FOREIGN = {
    "interval year": ("INTERVAL '1-2' YEAR TO MONTH", "CAST(CAST(v AS INTERVAL MONTH) AS INT)"),
    "interval day": (
        "INTERVAL '1 2:3:4.5' DAY TO SECOND",
        "CAST(CAST(v AS INTERVAL SECOND) AS DECIMAL(18, 6))",
    ),
    "interval": ("make_interval(1, 2)", "1"),
    "variant": ("parse_json('{\"a\": 1}')", "to_json(v)"),
    "variant in an array": ("array(parse_json('1'))", "1"),
    "geometry": ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')", "st_asbinary(v)"),
    "string collate": ("'a' COLLATE UTF8_LCASE", "collate(v, 'UTF8_BINARY')"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_column_that_a_table_would_keep_as_another_type_is_refused(
    spark: Any, tmp_path: Path, name: str
) -> None:
    value, instead = FOREIGN[name]
    uri = f"file://{tmp_path}/table"
    frame = spark.sql(f"SELECT 1L AS id, {value} AS v")
    for native in ("auto", "never"):
        with pytest.raises(UnsupportedType, match=f"column 'v' is .*{name.partition(' in ')[0]}"):
            append(frame, uri, native=native)
    with pytest.raises(Exception, match=r"column 'v' is|type in the table schema"):
        frame.write.format("inlay").mode("append").save(uri)
    with pytest.raises(TableNotFound):
        inlay.open(uri)
    append(frame.selectExpr("id", f"{instead} AS v"), uri)
    assert read(spark, uri).count() == 1


def test_a_struct_takes_no_variant_and_a_text_takes_any_collation(
    spark: Any, new_table: NewTable
) -> None:
    parts = pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False),
        ]
    )
    table = new_table(pa.schema([("v", parts), ("text", pa.string())]))
    with pytest.raises(UnsupportedType, match="'v' is variant"):
        append(spark.sql("SELECT parse_json('1') AS v"), table.uri)
    append(spark.sql("SELECT 'A' COLLATE UTF8_LCASE AS text"), table.uri)
    assert read(spark, table.uri, where="text = 'a'").count() == 0
    assert read(spark, table.uri, where="text = 'A'").count() == 1


def test_a_table_made_of_times_of_day_is_one_that_spark_reads(spark: Any, tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/table"
    frame = spark.sql(
        "SELECT TIME '12:34:56.789012' AS at, array(named_struct('t', TIME '1:0')) AS l"
    )
    append(frame, uri)
    [row] = read(spark, uri).collect()
    assert (row["at"], row["l"][0]["t"]) == (time(12, 34, 56, 789012), time(1))
