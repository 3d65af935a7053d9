"""What the statistics of a column chunk are taken for, where they are wrong or say little."""

from __future__ import annotations

import io
from datetime import date, datetime, time
from decimal import Decimal
from itertools import product
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inlay.format.entry import ColumnStats
from inlay.format.schema import Field, ListOf, Primitive, Schema, parse_primitive
from inlay.parquet.arrow.types import schema_from_arrow, to_physical
from inlay.parquet.footer.fields import File, Meta, Stats
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.read.describe import entry_of, parse_object_footer
from inlay.parquet.read.selection import column_pages
from inlay.parquet.read.statistics import (
    _chunk_stats,
    _integer_reader,
    _reader,
    _unit_reader,
    _unknown,
    _was_dictionary,
    group_stats,
    leaves_of,
    locate_columns,
    recorded_stats,
    whole_stats,
)
from inlay.plan.pruning.prune import Absent, shortened

LONG = Primitive("int64")


def described(values: list[int | None], stats: dict[int, Any] | None) -> ColumnStats:
    """The statistics in the entry of a file of these values whose footer says `stats`."""
    table = pa.table({"n": pa.array(values, pa.int64())})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    meta = footer.row_groups[0].column(0).meta
    if stats is None:
        meta.pop(Meta.STATISTICS)
    else:
        meta[Meta.STATISTICS] = stats
    body = body[: footer.start] + end_of_file(footer.tree)
    schema = schema_from_arrow(table.schema)
    found = parse_object_footer(body, size=len(body))
    entry, _ = entry_of(found, key="k", size=len(body), schema=schema, stats_columns=(1,))
    return entry.stats[1]


def bounds(low: int, high: int) -> dict[int, Any]:
    return {
        Stats.MIN: low.to_bytes(8, "little", signed=True),
        Stats.MAX: high.to_bytes(8, "little", signed=True),
    }


@pytest.mark.parametrize("nulls", [-1, 4, 2**40])
def test_an_impossible_count_of_nulls_is_unknown(nulls: int) -> None:
    found = described([1, None, 3], {**bounds(1, 3), Stats.NULLS: nulls})
    assert found == ColumnStats(1, 3, None, True, False, LONG)


@pytest.mark.parametrize("nulls", [0, 1, 2])
def test_a_possible_count_of_nulls_is_taken_as_it_is(nulls: int) -> None:
    found = described([1, None, 3], {**bounds(1, 3), Stats.NULLS: nulls})
    assert found == ColumnStats(1, 3, nulls, True, False, LONG)


def test_without_a_count_of_nulls_it_is_unknown() -> None:
    """Not 0: `IS NULL` would leave the file out."""
    assert described([1, None, 3], bounds(1, 3)).null_count is None
    assert described([1, None, 3], bounds(1, 3)).lower == 1


def test_nothing_but_nulls_has_no_bounds_and_no_nan() -> None:
    found = described([None, None], {Stats.NULLS: 2})
    assert found == ColumnStats(None, None, 2, True, False, LONG)


def test_a_count_without_bounds_is_kept() -> None:
    assert described([1, None, 3], {Stats.NULLS: 1}) == ColumnStats(
        None, None, 1, True, False, LONG
    )


def test_without_statistics_nothing_is_known() -> None:
    assert described([1, None, 3], None) == ColumnStats(None, None, None, True, False, LONG)


def test_a_chunk_without_values_is_known_whole() -> None:
    table = pa.table({"n": pa.array([], pa.int64())})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema) as writer:
        writer.write_table(table)
    body = sink.getvalue()
    found = parse_object_footer(body, size=len(body))
    schema = schema_from_arrow(table.schema)
    entry, _ = entry_of(found, key="k", size=len(body), schema=schema, stats_columns=(1,))
    assert entry.rows == 0 and entry.stats.get(1, ColumnStats(null_count=0)).null_count == 0
    # A group without rows beside others: nothing in it is NULL or NaN.
    chunk: Any = SimpleNamespace(num_values=0)
    leaf: Any = SimpleNamespace(type=Primitive("double"), has_nan=None)
    assert _chunk_stats(chunk, leaf) == ColumnStats(
        null_count=0, has_nan=False, kind=Primitive("double")
    )


def test_bounds_that_contradict_each_other_are_unknown() -> None:
    found = described([1, 2, 3], {**bounds(3, 1), Stats.NULLS: 0})
    assert (found.lower, found.upper, found.null_count) == (None, None, 0)
    found = described([3, 3], {**bounds(3, 3), Stats.NULLS: 0})
    assert (found.lower, found.upper) == (3, 3)


@pytest.mark.parametrize(
    ("stored", "column", "values"),
    [
        (pa.bool_(), pa.bool_(), [False, True]),
        *((pa.type_for_alias(f"int{n}"), pa.int64(), [-5, 7]) for n in (8, 16, 32, 64)),
        *((pa.type_for_alias(f"uint{n}"), pa.uint64(), [2, 2**n - 1]) for n in (8, 16, 32, 64)),
        (pa.uint32(), pa.int64(), [0, 2**32 - 1]),
        (pa.int32(), pa.int32(), [-(2**31), -1]),
        (pa.float32(), pa.float64(), [-0.5, 2.0]),
        (pa.float32(), pa.float32(), [-0.5, 2.0]),
        (pa.float64(), pa.float64(), [-0.5, 2.0]),
        (pa.string(), pa.string(), ["a", "é"]),
        (pa.binary(), pa.binary(), [b"\x00", b"\xff"]),
        (pa.binary(3), pa.binary(3), [b"aaa", b"zzz"]),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), [Decimal("-1.25"), Decimal("7.5")]),
        (pa.date32(), pa.date32(), [date(1969, 1, 1), date(2020, 1, 1)]),
        (pa.date32(), pa.timestamp("ms"), [datetime(1969, 1, 1), datetime(2020, 1, 1)]),
        (pa.time64("us"), pa.time64("ns"), [time(1), time(2, 3)]),
        (pa.timestamp("ms"), pa.timestamp("us"), [datetime(1969, 1, 1), datetime(2020, 1, 1)]),
    ],
    ids=str,
)
def test_bounds_are_the_least_and_the_greatest_value_in_the_columns_type(
    stored: pa.DataType, column: pa.DataType, values: list[Any]
) -> None:
    cells = [*values, None]
    if pa.types.is_date(stored) and not pa.types.is_date(column):
        cells = [None if v is None else v.date() for v in cells]
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array(cells, stored)}), sink)
    body = sink.getvalue()
    schema = schema_from_arrow(pa.schema([("n", column)]))
    found = parse_object_footer(body, size=len(body))
    entry, _ = entry_of(found, key="k", size=len(body), schema=schema, stats_columns=(1,))
    kind = schema.types[1]
    least, most = (to_physical(pa.scalar(v, column), kind) for v in values)
    stats = entry.stats[1]
    assert (stats.lower, stats.upper, stats.null_count) == (least, most, 1)
    assert stats.kind == kind
    assert of_pages(cells, stored, schema) == [(least, least, 0), (most, most, 0), (None, None, 1)]


def of_pages(cells: list[Any], stored: pa.DataType, schema: Schema) -> list[tuple[Any, Any, Any]]:
    """(lower, upper, NULLs) of each page of a file that has a page for each cell."""
    sink = io.BytesIO()
    options: Any = {"write_page_index": True, "data_page_size": 1, "write_batch_size": 1}
    pq.write_table(pa.table({"n": pa.array(cells, stored)}), sink, use_dictionary=False, **options)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    chunk = footer.row_groups[0].column(0)
    assert chunk.column_index is not None and chunk.offset_index is not None
    indexes = (body[slice(*place)] for place in (chunk.column_index, chunk.offset_index))
    metadata = pq.read_metadata(io.BytesIO(body))
    columns = locate_columns(metadata.schema.to_arrow_schema(), schema)
    leaf = leaves_of(metadata, columns, schema, [1])[1]
    pages = column_pages(footer, 0, leaf, *indexes)
    assert pages is not None and [(p.first_row, p.rows) for p in pages.pages] == [
        (n, 1) for n in range(len(cells))
    ]
    return [(s.lower, s.upper, s.null_count) for s in pages.stats]


@pytest.mark.parametrize(("low", "high"), [(-1, 5), (5, 86_400_000_000), (-1, 86_400_000_000)])
def test_bounds_that_are_no_values_of_the_type_are_not_recorded(low: int, high: int) -> None:
    """Times before midnight, or after the day: neither is, and the count of NULLs stays."""
    kind = Primitive("time", unit="us")
    assert recorded_stats({1: ColumnStats(low, high, 2, kind=kind)}) == {
        1: ColumnStats(None, None, 2, kind=kind)
    }
    good = {1: ColumnStats(0, 86_399_999_999, 2, kind=kind)}
    assert recorded_stats(good) == good


@pytest.mark.parametrize("stored", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("kind", ["float", "double"])
def test_bounds_of_floats_are_gone_by_where_they_do_not_round(stored: Any, kind: str) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array([1.5, 2.5], stored)}), sink)
    sink.seek(0)
    column = pq.read_metadata(sink).schema.column(0)
    read = _reader(column, Primitive(kind))
    assert read(1.5, False) == (None if (kind, stored) == ("float", pa.float64()) else 1.5)


@pytest.mark.parametrize(
    ("column", "raw", "bound"),
    [
        *(("int8", n, n) for n in (-128, -1, 0, 127)),
        *(("int8", n, None) for n in (-129, 128, 2**40)),
        *(("uint8", n, n) for n in (0, 255)),
        *(("uint8", n, None) for n in (-1, 256)),
        *(("int64", n, n) for n in (-(2**63), 2**63 - 1)),
    ],
)
def test_a_bound_that_is_no_value_of_the_column_is_unknown(
    column: str, raw: int, bound: int | None
) -> None:
    """A file may hold numbers of a wider type."""
    for physical in ("INT32", "INT64"):
        read = _integer_reader(parse_primitive(column), physical, signed=True)
        assert read(raw, False) == read(raw, True) == bound
    bits = {"INT32": 32, "INT64": 64}
    for physical, width in bits.items():
        read = _integer_reader(parse_primitive("uint64"), physical, signed=False)
        assert [read(n, False) for n in (-1, 0, 5)] == [2**width - 1, 0, 5]


@pytest.mark.parametrize("of_file", [False, True, None, "not known"])
def test_parts_of_a_file_have_no_nan_only_where_the_whole_has_none(of_file: Any) -> None:
    table = pa.table({"x": [1.5, 2.5], "n": [1, 2]})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    schema = schema_from_arrow(table.schema)
    columns = locate_columns(metadata.schema.to_arrow_schema(), schema)
    known = {} if of_file == "not known" else {1: ColumnStats(has_nan=of_file)}
    leaves = leaves_of(metadata, columns, schema, (1, 2), known)
    assert leaves[1].has_nan is (False if of_file is False else None)
    assert leaves[2].has_nan is False, "no whole number is"


WHOLE = {"int8", "int64", "uint32", "uint64"}
DECIMALS = {"decimal128(9, 2)", "decimal128(30, 2)"}
TIMES = {"time32[ms]", "time64[us]", "timestamp[ms]", "timestamp[us, tz=UTC]"}
BYTES = {"fixed_size_binary[3]", "fixed_size_binary[8]"}


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        ("bool", {"bool"}),
        *((name, WHOLE) for name in ("int8", "int64", "uint32", "uint64")),
        ("float", {"float"}),
        ("double", {"float", "double"}),
        *((name, DECIMALS) for name in ("decimal(30,3)", "decimal(8,2)", "decimal(3,0)")),
        ("date", {"date32[day]"}),
        ("time(us)", TIMES),
        ("timestamp(us)", TIMES | {"date32[day]"}),
        ("timestamptz(us)", TIMES),
        ("string", {"string", "binary"}),
        ("binary", {"string", "binary"} | BYTES),
        ("fixed(8)", {"fixed_size_binary[8]"}),
    ],
)
def test_only_what_has_the_order_of_the_column_has_bounds(column: str, stored: set[str]) -> None:
    """Of every way to store a value, those whose bounds are read for a column of this type."""
    every = [
        *(pa.bool_(), pa.int8(), pa.int64(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()),
        *(pa.decimal128(9, 2), pa.decimal128(30, 2), pa.date32(), pa.time32("ms"), pa.time64("us")),
        *(pa.timestamp("ms"), pa.timestamp("us", tz="UTC"), pa.string(), pa.binary()),
        *(pa.binary(3), pa.binary(8)),
    ]
    sink = io.BytesIO()
    pq.write_table(pa.table({f"{kind}": pa.nulls(1, kind) for kind in every}), sink)
    schema = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    kind = parse_primitive(column)
    found = {
        schema.column(n).name
        for n in range(len(every))
        if _reader(schema.column(n), kind) is not _unknown
    }
    assert found == stored


@pytest.mark.parametrize("values", [["a", "b"], [b"a", b"b"], [1, 2]], ids=["text", "bytes", "int"])
@pytest.mark.parametrize(
    "writer", ["parquet-cpp-arrow version 26.0.1", "parquet-mr version 1.15.0"]
)
def test_bounds_of_texts_are_exact_where_their_writer_does_not_cut_them(
    values: list[Any], writer: str
) -> None:
    table = pa.table({"x": values})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    body = sink.getvalue()
    footer = decode_footer(body, file_size=len(body))
    footer.tree[File.CREATED_BY] = writer.encode()
    metadata = pq.read_metadata(io.BytesIO(body[: footer.start] + end_of_file(footer.tree)))
    assert metadata.created_by == writer
    schema = schema_from_arrow(table.schema)
    columns = locate_columns(metadata.schema.to_arrow_schema(), schema)
    [found] = whole_stats(metadata, columns, schema, [1]).values()
    assert found.exact is (values == [1, 2] or "arrow" in writer)


@pytest.mark.parametrize(
    "sides", [(8, 8), (64, 64), (64, 65), (65, 64), (65, 65), (65, None), (None, 64)]
)
def test_bounds_of_fixed_width_are_kept_whole_or_not_at_all(
    sides: tuple[int | None, int | None],
) -> None:
    lower, upper = (None if n is None else b"\x01" * n for n in sides)
    stats = ColumnStats(lower, upper, 3, kind=parse_primitive("fixed(70)"))
    found = shortened(stats, 16)
    fits = all(n is None or n <= 64 for n in sides)
    assert (found.lower, found.upper) == ((lower, upper) if fits else (None, None))
    assert found.null_count == 3 and (found == stats or not fits)


def test_bounds_of_any_length_are_cut_and_no_longer_exact() -> None:
    stats = ColumnStats("a" * 20, "b" * 20, 0, kind=Primitive("string"))
    found = shortened(stats, 16)
    assert (found.lower, found.upper, found.exact) == ("a" * 16, "b" * 15 + "c", False)
    assert shortened(stats, 20) is stats


def test_a_list_and_what_is_a_list_in_the_file_have_no_leaf_with_statistics() -> None:
    long = Primitive("int64")
    in_file = pa.schema(
        [("a", pa.list_(pa.int64())), ("b", pa.list_(pa.int64())), ("c", pa.int64())]
    )
    element = Field(4, "element", long)
    recorded = Schema(0, (Field(1, "a", ListOf(element)), Field(2, "b", long), Field(3, "c", long)))
    found = locate_columns(in_file, recorded)
    assert found.leaves == {3: 2} and {1, 3} <= found.tops.keys()
    assert (found.tops[1].ordinal, list(found.tops[1].leaves)) == (0, [0])


def test_a_struct_with_a_dictionary_was_written_as_one() -> None:
    coded = pa.array(["x", "y"]).dictionary_encode()
    struct = pa.StructArray.from_arrays([coded, pa.array([1, 2])], ["x", "n"])
    table = pa.table({"s": struct, "plain": ["a", "b"], "d": coded, "sx": [1, 2]})
    for store_schema in (True, False):
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, table.schema, store_schema=store_schema) as writer:
            writer.write_table(table)
        metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
        found = [_was_dictionary(path, metadata) for path in ("s.x", "plain", "d", "sx", "none")]
        assert found == ([True, False, True, False, None] if store_schema else [None] * 5)


def test_a_row_group_has_the_statistics_of_what_it_has_and_of_what_it_lacks() -> None:
    table = pa.table({"n": pa.array([3, None, 5], pa.int64())})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    schema = schema_from_arrow(table.schema)
    columns = locate_columns(metadata.schema.to_arrow_schema(), schema)
    leaves = leaves_of(metadata, columns, schema, (1, 9))
    here = {1: ColumnStats(3, 5, 1, has_nan=False, kind=LONG)}
    lacks = {2: Absent(7, LONG), 3: Absent()}
    absent = {
        2: ColumnStats(7, 7, 0, has_nan=False, kind=LONG),
        3: ColumnStats(null_count=3, has_nan=False),
    }
    assert leaves.keys() == {1} and group_stats(metadata, 0, {}) == {}
    assert group_stats(metadata, 0, leaves) == here
    assert group_stats(metadata, 0, {}, lacks) == absent
    assert group_stats(metadata, 0, leaves, lacks) == here | absent


def test_a_bound_in_another_unit_is_not_beyond_its_value() -> None:
    nanos = {"ms": 10**6, "us": 10**3, "ns": 1}
    raws = (-2_000_001, -2_000_000, -1_001, -1_000, -1, 0, 1, 999, 1_000, 1_001, 2_000_000)
    for unit, target, raw in product(nanos, nanos, raws):
        read = _unit_reader(unit, target)
        low, high = read(raw, False), read(raw, True)
        assert isinstance(low, int) and isinstance(high, int)
        value = raw * nanos[unit]
        assert low * nanos[target] <= value < (low + 1) * nanos[target]
        assert (high - 1) * nanos[target] < value <= high * nanos[target]
