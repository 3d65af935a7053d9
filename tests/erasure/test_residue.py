"""The parts of a file besides its rows are searched for values that no row has, at a cost that is
counted."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.predicate import And, Comparison, In, Like, Literal, Not, Or, Predicate
from inlay.format.schema import Primitive
from inlay.ops.context import InlineExecutor
from inlay.parquet.arrow.types import schema_from_arrow, to_physical
from inlay.parquet.footer.bloom import may_hold, xxh64
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.pages import bloom_length
from inlay.parquet.read.describe import entry_of, parse_object_footer
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.surgery.residue import Searched, find_residue
from inlay.plan.scan import FileTask
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore

from . import categories

TEXT = Primitive("string")


def mail(value: str = categories.PERSON) -> Predicate:
    return Comparison(2, "=", Literal(TEXT, value))


def search(body: bytes, predicate: Predicate) -> Searched:
    """Search one file, and check what it says it cost."""
    store = MeteredStore(MemoryStore("b"))
    store.put("x.parquet", body)
    described = parse_object_footer(body, size=len(body))
    plain = pa.schema(
        [
            f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f
            for f in described.arrow
        ]
    )
    schema = schema_from_arrow(plain)
    entry, _ = entry_of(described, key="x.parquet", size=len(body), schema=schema, stats_columns=())
    before = store.usage()
    task, projection = FileTask(file=entry, schema=schema), Projection(schema=schema, columns=())
    opened = Reader(Objects(store, ""), InlineExecutor()).open(task, projection)
    found = find_residue(opened, predicate, InlineExecutor())
    cost = store.usage() - before
    found = replace(found, requests=found.requests + 1, bytes=found.bytes + len(opened.tail))
    assert (found.requests, found.bytes) == (cost.total, cost.bytes_down), "cost"
    return found


def groups(found: Searched, where: str) -> set[int | None]:
    return {r.row_group for r in found.residues if r.where == where}


@pytest.mark.parametrize("name", categories.WRITERS)
@pytest.mark.parametrize("has_person", [True, False])
def test_dictionaries_of_whole_categories_are_found(name: str, has_person: bool) -> None:
    found = search(categories.WRITERS[name](has_person), mail())
    without = set(range(int(has_person), categories.GROUPS))
    if name.startswith("duckdb") and not has_person:
        without = set()  # DuckDB leaves out of the file what no row of all of it has
    assert groups(found, "dictionary") == without
    assert found.row_groups == without
    if name.startswith("duckdb"):
        assert groups(found, "bounds") == without
    if name == "pandas-page-index-bloom":
        assert not {r for r in found.residues if r.where == "page index"}


@pytest.mark.parametrize(
    "predicate",
    [
        In(2, TEXT, (categories.PERSON, "nobody@example.org")),
        Like(2, "aa-erase-me-%"),
        Comparison(2, "<", Literal(TEXT, "b")),
        Not(Comparison(2, ">=", Literal(TEXT, "b"))),
        Or((mail(), Comparison(1, "=", Literal(Primitive("int64"), 10**9)))),
        And((mail(), Comparison(1, ">=", Literal(Primitive("int64"), 0)))),
    ],
    ids=str,
)
def test_any_condition_is_evaluated_on_the_entries(predicate: Predicate) -> None:
    found = search(categories.by_pandas(True), predicate)
    assert groups(found, "dictionary") == {1, 2, 3}


def test_values_that_rows_have_are_no_residue() -> None:
    """The rows of one person stay where the predicate has a second condition: her values are used."""
    both = And((mail(categories.OTHERS[1]), Comparison(1, "=", Literal(Primitive("int64"), 10**9))))
    found = search(categories.by_pandas(True), both)
    assert found.residues == () and found.rows_read == categories.GROUPS


def test_key_values_that_name_a_value_are_found_and_all_are_listed() -> None:
    found = search(categories.with_attributes(False), mail())
    spark = "org.apache.spark.sql.parquet.row.metadata"
    named = {r.column for r in found.residues if r.where == "key-value"}
    assert named == {"ARROW:schema", "note", "pandas", spark}
    assert found.key_values == ("ARROW:schema", "note", spark, "origin", "pandas")
    assert found.row_groups == frozenset()


def test_a_file_that_names_nobody_costs_its_footer_and_its_dictionaries() -> None:
    table = pa.table(
        {"id": range(200_000), "email": [f"p{n % 100}@example.org" for n in range(200_000)]}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=50_000, compression="none")
    found = search(sink.getvalue(), mail())
    assert found.residues == () and found.rows_read == 0
    # The footer, and a dictionary of each row group: they are too far apart to be fetched together.
    assert found.requests == 1 + 4
    assert found.bytes < len(sink.getvalue()) / 50


def test_bounds_cut_short_are_compared_with_as_much_of_the_literal() -> None:
    from inlay.parquet.surgery.residue import is_cut_of

    name = b"ada.lovelace@example.org"
    assert is_cut_of(name[:16], name) and is_cut_of(name[:15] + bytes([name[15] + 1]), name)
    assert (
        not is_cut_of(name, name) and not is_cut_of(b"ada", name) and not is_cut_of(b"bob.l", name)
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=30, unique=True))
def test_a_bloom_filter_holds_what_was_put_into_it(values: list[str]) -> None:
    values = [v.encode("utf-8", "ignore").decode() for v in values]
    sink = io.BytesIO()
    options = {"v": {"ndv": 64, "fpp": 0.0001}}
    pq.write_table(pa.table({"v": values}), sink, bloom_filter_options=options)
    body = sink.getvalue()
    chunk = decode_footer(body, file_size=len(body)).row_groups[0].column(0)
    assert chunk.bloom_offset is not None
    header, bits = bloom_length(body[chunk.bloom_offset : chunk.bloom_offset + 64])
    at = chunk.bloom_offset + header
    bitset = body[at : at + bits]
    assert all(may_hold(bitset, xxh64(value.encode())) for value in values)
    absent = [f"absent {n}".encode() for n in range(200)]
    assert sum(may_hold(bitset, xxh64(value)) for value in absent) < 20


def _filtered(kind: pa.DataType, values: list[object], **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"v": pa.array(values, kind)}),
        sink,
        bloom_filter_options={"v": {"ndv": 100, "fpp": 0.0001}},
        store_schema=False,
        **options,
    )
    return sink.getvalue()


def _bits(body: bytes) -> tuple[int, int]:
    """Where the filter's bits are."""
    chunk = decode_footer(body, file_size=len(body)).row_groups[0].column(0)
    assert chunk.bloom_offset is not None
    header, size = bloom_length(body[chunk.bloom_offset : chunk.bloom_offset + 64])
    return chunk.bloom_offset + header, size


FILTERED: dict[pa.DataType, tuple[object, object, object]] = {
    pa.date32(): (date(1971, 3, 4), date(2024, 1, 1), date(1815, 12, 10)),
    pa.timestamp("ms"): (datetime(1971, 3, 4), datetime(2024, 1, 1), datetime(1815, 12, 10)),
    pa.timestamp("us", "UTC"): (datetime(1971, 3, 4), datetime(2024, 1, 1), datetime(1815, 12, 10)),
    pa.time32("ms"): (time(3, 4, 5), time(6), time(9)),
    pa.time64("us"): (time(3, 4, 5, 6), time(6), time(9)),
    pa.float32(): (1.5, 2.5, -3.25),
    pa.float64(): (1.1, 2.5, -3.25),
    pa.decimal128(4, 2): (Decimal("-1.28"), Decimal("2.00"), Decimal("12.34")),
    pa.decimal128(18, 2): (Decimal("-1.28"), Decimal("2.00"), Decimal("12.34")),
    pa.decimal128(30, 9): (Decimal("1.28"), Decimal("2.00"), Decimal("-0.000000001")),
    pa.binary(16): (b"a" * 16, b"b" * 16, b"c" * 16),
    pa.uint32(): (2**31 + 5, 7, 9),
}


@pytest.mark.parametrize("as_integer", [False, True])
@pytest.mark.parametrize("kind", FILTERED, ids=str)
def test_a_bloom_filter_that_names_a_value_of_any_type_is_found(
    kind: pa.DataType, as_integer: bool
) -> None:
    hers, other, absent = FILTERED[kind]
    options = {"store_decimal_as_integer": as_integer}
    body = bytearray(_filtered(kind, [other] * 3, **options))
    named = _filtered(kind, [hers], **options)
    (at, size), (from_, same) = _bits(bytes(body)), _bits(named)
    assert size == same
    body[at : at + size] = named[from_ : from_ + size]
    [field] = schema_from_arrow(pa.schema([("v", kind)])).fields
    assert isinstance(field.type, Primitive)

    def literal(value: object) -> Literal:
        assert isinstance(field.type, Primitive)
        found = to_physical(pa.scalar(value, kind), field.type)
        assert found is not None
        return Literal(field.type, found)

    found = search(bytes(body), Comparison(1, "=", literal(hers)))
    assert [(r.where, r.certain) for r in found.residues] == [("bloom", False)]
    listed = tuple(literal(v).value for v in (absent, other))
    assert not search(bytes(body), In(1, field.type, listed)).residues
    # What rows have is no residue.
    assert not search(named, Comparison(1, "=", literal(hers))).residues


def test_either_zero_is_found_in_a_bloom_filter() -> None:
    zero = Comparison(1, "=", Literal(Primitive("double"), 0.0))
    body = bytearray(_filtered(pa.float64(), [2.0]))
    at, size = _bits(bytes(body))
    for named in (0.0, -0.0):
        made = _filtered(pa.float64(), [named])
        from_, _ = _bits(made)
        body[at : at + size] = made[from_ : from_ + size]
        assert groups(search(bytes(body), zero), "bloom") == {0}


def listed_by_spark() -> bytes:
    return categories.with_attributes(False)


def listed_by_polars() -> bytes:
    """No row has a value, so there is no dictionary."""
    column = pl.Series("email", [None] * 20, dtype=pl.Enum([categories.PERSON, "zoé;1"]))
    sink = io.BytesIO()
    pl.DataFrame({"id": range(20), "email": column}).write_parquet(sink, row_group_size=10)
    return sink.getvalue()


def listed_oddly() -> bytes:
    """Half a surrogate pair, and a list of Polars' that does not add up, beside hers."""
    listed = {"ml_attr": {"vals": ["\ud800", categories.PERSON, 7, None]}, "other": ["a"]}
    spark = {"type": "struct", "fields": [{"name": "email", "metadata": listed}]}
    odd = pa.schema([pa.field("email", pa.string(), metadata={"_PL_ENUM_VALUES2": "99;a;-3;b;x"})])
    pairs = {
        "org.apache.spark.sql.parquet.row.metadata": json.dumps(spark),
        "ARROW:schema": base64.b64encode(odd.serialize().to_pybytes()).decode(),
    }
    table = pa.table({"id": range(20), "email": ["q"] * 20})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.add_key_value_metadata(pairs)
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("writer", [listed_by_spark, listed_by_polars, listed_oddly])
def test_lists_of_a_columns_values_are_judged_by_conditions_that_name_no_text(
    writer: Callable[[], bytes],
) -> None:
    below = Comparison(2, "<", Literal(TEXT, "b"))
    none = Comparison(2, "<", Literal(TEXT, "?"))
    body = writer()
    for asked, is_there in (
        (below, True),
        (Not(Comparison(2, ">=", Literal(TEXT, "b"))), True),
        (none, False),
    ):
        found = [r for r in search(body, asked).residues if r.where == "key-value"]
        assert bool(found) is is_there
        assert all(r.certain and r.row_group is not None for r in found)
