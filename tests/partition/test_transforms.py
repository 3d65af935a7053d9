"""Transforms: Iceberg's, value by value and column by column."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from partition_values import PAIRS, values

from inlay.errors import InvalidRequest, NewerFormat
from inlay.format.partition import (
    decode_partition,
    hashed_bytes,
    murmur3,
    parse_transform,
    partition_of,
    result_type,
    values_of,
    written,
)
from inlay.format.schema import Field, Primitive, Schema, Struct, parse_primitive
from inlay.format.snapshot import PartitionField, PartitionSpec
from inlay.format.values import civil, order_key
from inlay.parquet.arrow.types import to_arrow_array
from inlay.parquet.write.partition import partition_column
from inlay.parse.partitioning import partition_fields, spec_text

SECONDS = 1_510_871_468  # 2017-11-16T22:31:08Z
TIME = (22 * 60 + 31) * 60 + 8


def of(transform: str, kind: str, value: object) -> object:
    return partition_of(parse_transform(transform), parse_primitive(kind), value)  # type: ignore[arg-type]


# -- what Iceberg's specification publishes -------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int32", 34, 2017239379),
        ("int64", 34, 2017239379),
        ("uint16", 34, 2017239379),
        ("decimal(9,2)", Decimal("14.20"), -500754589),
        ("decimal(60,2)", Decimal("14.20"), -500754589),
        ("date", (date(2017, 11, 16) - date(1970, 1, 1)).days, -653330422),
        ("time(us)", TIME * 10**6, -662762989),
        ("time(ms)", TIME * 10**3, -662762989),
        ("timestamp(us)", SECONDS * 10**6, -2047944441),
        ("timestamp(s)", SECONDS, -2047944441),
        ("timestamptz(us)", SECONDS * 10**6, -2047944441),
        ("timestamp(us)", SECONDS * 10**6 + 1, -1207196810),
        ("timestamptz(ns)", SECONDS * 10**9 + 1_999, -1207196810),
        ("string", "iceberg", 1210000089),
        ("binary", bytes(range(4)), -188683207),
        ("fixed(4)", bytes(range(4)), -188683207),
    ],
)
def test_hashes_are_those_the_specification_lists(kind: str, value: object, expected: int) -> None:
    found = murmur3(hashed_bytes(parse_primitive(kind), value))  # type: ignore[arg-type]
    assert found == expected % 2**32


def test_the_hash_of_a_uuid() -> None:
    uuid = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    assert murmur3(uuid.bytes) == 1488055340


@pytest.mark.parametrize(
    ("transform", "kind", "value", "expected"),
    [
        ("bucket[100]", "int32", 34, 79),
        ("bucket[100]", "decimal(9,2)", Decimal("14.20"), 59),
        ("truncate[10]", "int32", 1, 0),
        ("truncate[10]", "int32", -1, -10),
        ("truncate[50]", "decimal(9,2)", Decimal("10.65"), "10.50"),
        ("truncate[10]", "decimal(9,2)", Decimal("-0.05"), "-0.10"),
        ("truncate[3]", "string", "iceberg", "ice"),
        ("truncate[3]", "string", "i\U0001f600é!", "i\U0001f600é"),
        ("year", "date", 0, 0),
        ("year", "date", -1, -1),
        ("month", "date", -1, -1),
        ("month", "date", 17_486, 574),
        ("day", "timestamp(us)", -1, -1),
        ("hour", "timestamp(us)", -1, -1),
        ("hour", "timestamptz(s)", SECONDS, SECONDS // 3600),
        ("identity", "string", "a", "a"),
    ],
)
def test_single_values(transform: str, kind: str, value: object, expected: object) -> None:
    assert of(transform, kind, value) == expected
    assert of(transform, kind, None) is None


def test_the_calendar_goes_on_beyond_dates() -> None:
    for year in (-400, 0, 1, 1600, 1900, 2000, 2024, 2100, 9999, 292_277):
        days = (
            365 * (year - 1970) + (year - 1969) // 4 - (year - 1901) // 100 + (year - 1601) // 400
        )
        assert civil(days) == (year, 1, 1)
        assert civil(days - 1) == (year - 1, 12, 31)


def test_zeros_are_one_partition_and_nan_another() -> None:
    assert str(written(Primitive("double"), -0.0)) == "0.0"
    assert of("identity", "double", float("nan")) == "NaN"


# -- every type -----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_column_is_partitioned_as_its_values_are(data: st.DataObject) -> None:
    transform, kind = data.draw(st.sampled_from(PAIRS))
    column = data.draw(st.lists(st.none() | values(kind), max_size=12))
    start = data.draw(st.integers(0, len(column)))
    array = to_arrow_array(kind, column).slice(start)
    found = partition_column(transform, kind, array)
    assert [found.of_row(n) for n in range(len(array))] == [
        partition_of(transform, kind, value) for value in column[start:]
    ]
    assert len({repr(v) for v in found.distinct}) == len(found.distinct)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_partition_bounds_its_values(data: st.DataObject) -> None:
    transform, kind = data.draw(st.sampled_from(PAIRS))
    value = data.draw(values(kind))
    decoded = decode_partition(transform, kind, partition_of(transform, kind, value))
    assert decoded is not None
    bounds = values_of(transform, kind, decoded)
    if value != value:
        return  # NaN is in no bounds
    assert bounds.lower is None or order_key(bounds.lower) <= order_key(value)
    assert bounds.upper is None or order_key(value) <= order_key(bounds.upper)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_every_transform_but_bucket_is_monotone(data: st.DataObject) -> None:
    transform, kind = data.draw(st.sampled_from([p for p in PAIRS if p[0].name != "bucket"]))
    pair = data.draw(st.tuples(values(kind), values(kind)))
    low, high = sorted(pair, key=order_key)
    first, last = (
        decode_partition(transform, kind, partition_of(transform, kind, v)) for v in (low, high)
    )
    assert first is not None and last is not None
    assert order_key(first) <= order_key(last)


def test_widening_a_column_moves_no_row_to_another_bucket() -> None:
    for narrow, wide, value, same in (
        ("int8", "int64", -5, -5),
        ("decimal(5,2)", "decimal(38,2)", Decimal("-1.25"), Decimal("-1.25")),
        ("timestamp(s)", "timestamp(ns)", -7, -7_000_000_000),
        ("fixed(3)", "binary", b"abc", b"abc"),
    ):
        assert of("bucket[1000]", narrow, value) == of("bucket[1000]", wide, same)


# -- how specs are written ------------------------------------------------------------------------

SCHEMA = Schema(
    0,
    (
        Field(1, "id", Primitive("int64")),
        Field(2, "ts", Primitive("timestamptz", unit="us")),
        Field(3, "name", Primitive("string")),
        Field(4, "day(ts)", Primitive("double")),
        Field(5, "s", Struct((Field(6, "x", Primitive("int32")),))),
    ),
)


def test_a_partitioning_is_written_as_in_sql() -> None:
    fields = partition_fields(
        ("bucket(16, id)", "days(ts)", " Truncate( 4 , name ) ", "name", "identity(day(ts))"),
        SCHEMA,
    )
    assert fields == (
        PartitionField(1, "bucket[16]", "id_bucket_16"),
        PartitionField(2, "day", "ts_day"),
        PartitionField(3, "truncate[4]", "name_trunc_4"),
        PartitionField(3, "identity", "name"),
        PartitionField(4, "identity", "day(ts)"),
    )
    texts = spec_text(PartitionSpec(1, fields), SCHEMA)
    assert texts == ("bucket(16, id)", "day(ts)", "truncate(4, name)", "name", "identity(day(ts))")
    assert partition_fields(texts, SCHEMA) == fields


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nothing", "not a primitive column"),
        ("s", "not a primitive column"),
        ("hour(id)", "does not take"),
        ("bucket(16, day(ts))", "does not take"),
        ("truncate(4, ts)", "does not take"),
        ("bucket(id)", "cannot partition"),
        ("bucket(0, id)", "at least 1"),
        ("bucket(99999999999, id)", "cannot partition"),
        ("day(4, ts)", "cannot partition"),
        ("week(ts)", "cannot partition"),
        ("", "not a primitive column"),
    ],
)
def test_what_is_no_partitioning_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        partition_fields((text,), SCHEMA)


def test_a_field_may_not_come_twice() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        partition_fields(("day(ts)", "days(ts)"), SCHEMA)


def test_a_transform_of_a_later_format_stops_a_reader() -> None:
    for text in ("week", "bucket[0]", "bucket[x]", "truncate", "bucket[99999999999]", "void[3]"):
        with pytest.raises(NewerFormat):
            parse_transform(text)
    assert result_type(parse_transform("year"), Primitive("string")) is None
