"""Evaluation over Arrow agrees with the row-by-row oracle, whatever the layout of a column."""

from __future__ import annotations

import itertools
from decimal import Decimal

import predicate_oracle as oracle
import predicate_strategies as some
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import SchemaMismatch
from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    like_matches,
)
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.parquet.arrow import evaluate as module
from inlay.parquet.arrow.evaluate import column_at, columns_of, evaluate, selected
from inlay.parquet.arrow.types import arrow_primitive

INT, STRING, DOUBLE = Primitive("int64"), Primitive("string"), Primitive("double")
NAN = float("nan")


def results(predicate, array):
    batch = pa.record_batch({"x": array})
    return evaluate(predicate, batch, {1: (0,)}).to_pylist()


@given(some.tables())
@settings(deadline=None, max_examples=200)
def test_every_type_and_condition_agrees_with_the_oracle(table):
    fields, rows, predicate = table
    batch = some.to_batch(fields, rows)
    columns = columns_of(Schema(0, tuple(fields)))
    expected = [oracle.truth(predicate, row) for row in rows]
    assert evaluate(predicate, batch, columns).to_pylist() == expected
    chosen = selected(predicate, batch, columns)
    assert chosen.null_count == 0
    assert chosen.to_pylist() == [found is True for found in expected]


@pytest.mark.parametrize("field", some.SCHEMA.fields, ids=lambda field: str(field.type))
def test_corner_values_agree_with_the_oracle_under_every_operator(field):
    rows = [{field.id: value} for value in (*some.corners(field.type), None)]
    batch = some.to_batch([field], rows)
    pairs = itertools.product(some.corners(field.type), repeat=2)
    conditions = [some.made_in(field, list(pair)) for pair in pairs]
    for value, op in itertools.product(some.corners(field.type), some.OPERATORS):
        conditions.append(Comparison(field.id, op, Literal(field.type, value)))
    for predicate in conditions:
        expected = [oracle.truth(predicate, row) for row in rows]
        assert evaluate(predicate, batch, {field.id: (0,)}).to_pylist() == expected, predicate


@given(some.tables(), st.data())
@settings(deadline=None, max_examples=80)
def test_layouts_of_a_type_do_not_change_the_result(table, data):
    fields, rows, predicate = table
    batch = some.to_batch(fields, [*rows, *rows])
    arrays = [data.draw(st.sampled_from(layouts(column))) for column in batch.columns]
    other = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names).slice(len(rows))
    columns = columns_of(Schema(0, tuple(fields)))
    expected = [oracle.truth(predicate, row) for row in rows]
    assert evaluate(predicate, other, columns).to_pylist() == expected


def layouts(array):
    found = [array, array.dictionary_encode()]
    kind = array.type
    if pa.types.is_string(kind):
        found += [array.cast(pa.large_string()), array.cast(pa.string_view())]
    if pa.types.is_binary(kind):
        found += [array.cast(pa.large_binary()), array.cast(pa.binary_view())]
    if pa.types.is_timestamp(kind) and kind.tz:
        found.append(array.cast(pa.timestamp(kind.unit, "America/New_York")))
    if pa.types.is_date(kind):
        found.append(array.cast(pa.int32()).cast(pa.date32()))
    return found


@given(some.tables(max_rows=5), st.lists(st.booleans(), min_size=5, max_size=5))
@settings(deadline=None, max_examples=60)
def test_a_child_of_a_null_struct_is_null(table, missing):
    fields, rows, predicate = table
    missing = missing[: len(rows)]
    batch = some.to_batch(fields, rows)
    struct = pa.StructArray.from_arrays(
        batch.columns, fields=list(batch.schema), mask=pa.array(missing, pa.bool_())
    )
    nested = pa.record_batch({"outer": struct})
    schema = Schema(0, (Field(99, "outer", Struct(tuple(fields))),))
    hidden = [{} if gone else row for row, gone in zip(rows, missing, strict=True)]
    found = evaluate(predicate, nested, columns_of(schema)).to_pylist()
    assert found == [oracle.truth(predicate, row) for row in hidden]


def test_narrower_types_compare_as_the_column():
    assert results(Comparison(1, ">", Literal(INT, 300)), pa.array([1, None], pa.int8())) == [
        False,
        None,
    ]
    half = Literal(Primitive("decimal", 12, 4), Decimal("0.5000"))
    array = pa.array([Decimal("0.5"), Decimal("0.6")], pa.decimal128(3, 1))
    assert results(Comparison(1, "=", half), array) == [True, False]
    assert results(Comparison(1, "=", half), array.cast(pa.decimal32(3, 1))) == [True, False]
    seconds = pa.array([1, 2], pa.timestamp("s"))
    literal = Literal(Primitive("timestamp", unit="us"), 1_000_000)
    assert results(Comparison(1, ">", literal), seconds) == [False, True]


def test_a_column_widened_after_the_literal_was_written_compares_by_value():
    small = Literal(Primitive("int8"), 5)
    wide = pa.array([5, 2**40, None])
    assert results(Comparison(1, "<", small), wide) == [False, False, None]
    assert results(In(1, Primitive("int8"), (5,)), wide) == [True, False, None]
    price = Literal(Primitive("decimal", 4, 2), Decimal("1.50"))
    prices = pa.array([Decimal("1.5000"), Decimal("1.5001")], pa.decimal128(20, 4))
    assert results(Comparison(1, "=", price), prices) == [True, False]
    second = Primitive("timestamp", unit="s")
    fine = pa.array([0, 1_000_000_000, None], pa.timestamp("ns"))
    assert results(Comparison(1, ">=", Literal(second, 1)), fine) == [False, True, None]
    year_3000 = 32_503_680_000  # beyond what nanoseconds reach
    for op, expected in (("<", True), ("=", False), ("!=", True), (">=", False)):
        beyond = Comparison(1, op, Literal(second, year_3000))
        assert results(beyond, fine) == [expected, expected, None]
    assert results(Comparison(1, ">", Literal(second, -year_3000 * 4)), fine)[0] is True
    assert results(In(1, second, (1, year_3000)), fine) == [False, True, None]


def test_a_column_the_file_lacks_is_null_in_each_row():
    batch = pa.record_batch({"x": [1, 2]})
    for predicate, expected in (
        (Comparison(9, "=", Literal(INT, 1)), None),
        (In(9, INT, (1,)), None),
        (Like(9, "%"), None),
        (IsNull(9), True),
    ):
        assert evaluate(predicate, batch, {}).to_pylist() == [expected] * 2


def test_an_untyped_null_column_is_null():
    assert results(Comparison(1, "=", Literal(INT, 1)), pa.nulls(2)) == [None, None]
    assert results(IsNull(1), pa.nulls(2)) == [True, True]


def test_junctions_without_parts_are_their_neutral_elements():
    array = pa.array([1])
    assert results(And(()), array) == [True]
    assert results(Or(()), array) == [False]


def test_not_does_not_select_null():
    """The classic fault of keep-masks."""
    batch = pa.record_batch({"x": [1, None, 3]})
    one = Comparison(1, "=", Literal(INT, 1))
    assert selected(Not(one), batch, {1: (0,)}).to_pylist() == [False, False, True]


def test_like_spans_newlines_and_counts_code_points():
    array = pa.array(["a\nb", "é", "😀", "ab", None])
    assert results(Like(1, "a_b"), array) == [True, False, False, False, None]
    assert results(Like(1, "_"), array) == [False, True, True, False, None]


def test_a_pattern_too_large_for_the_regex_engine_still_matches(monkeypatch):
    calls = []

    def matches(pattern, text):
        calls.append(text)
        return like_matches(pattern, text)

    monkeypatch.setattr(module, "like_matches", matches)
    pattern = "%".join("ab" * 30_000) + "_"
    assert results(Like(1, pattern), pa.array(["ab", None])) == [False, None]
    assert calls == ["ab"]


@given(some.texts, some.patterns)
@settings(deadline=None, max_examples=300)
def test_the_fallback_matcher_agrees_with_the_oracle(text, pattern):
    assert like_matches(pattern, text) == oracle.like(text, pattern)


def test_long_lists_take_nan_null_and_both_zeros():
    values = (*(float(n) for n in range(5_000)), NAN)
    array = pa.array([-0.0, 4_999.0, 5_000.0, NAN, None])
    assert results(In(1, DOUBLE, values), array) == [True, True, False, True, None]
    assert results(In(1, DOUBLE, values[:-1]), array) == [True, True, False, False, None]


def test_constants_fill_the_batch():
    array = pa.array([1, 2])
    assert results(Constant(None), array) == [None, None]
    assert results(Constant(True), array) == [True, True]


def test_a_column_of_another_family_is_refused():
    with pytest.raises(SchemaMismatch, match="cannot be compared"):
        results(Comparison(1, "=", Literal(Primitive("date"), 1)), pa.array(["x"]))


@pytest.mark.parametrize("kind", some.TYPES, ids=str)
def test_every_type_has_one_arrow_type(kind):
    from inlay.parquet.arrow.types import primitive_from_arrow

    assert primitive_from_arrow(arrow_primitive(kind)) == kind


@pytest.mark.parametrize("value", [2**62, -(2**62)])
def test_a_time_beyond_the_columns_years_is_after_or_before_every_row(value):
    """The literal is in seconds, the column in nanoseconds."""
    seconds = Primitive("timestamp", unit="s")
    array = pa.array([0, None, 10**9], pa.timestamp("ns"))
    for op in some.OPERATORS:
        expected = oracle.holds(op, -1 if value > 0 else 1)
        assert results(Comparison(1, op, Literal(seconds, value)), array) == [
            expected,
            None,
            expected,
        ]
    listed = In(1, seconds, (1, value) if value > 0 else (value, 1))
    assert results(listed, array) == [False, None, True]


def test_each_level_of_structs_has_its_place():
    inner = Field(3, "inner", Struct((Field(4, "a", INT), Field(5, "b", INT))))
    schema = Schema(0, (Field(1, "x", INT), Field(2, "s", Struct((Field(6, "y", INT), inner)))))
    paths = {1: (0,), 2: (1,), 6: (1, 0), 3: (1, 1), 4: (1, 1, 0), 5: (1, 1, 1)}
    assert columns_of(schema) == paths
    rows = [{"y": 1, "inner": {"a": 2, "b": 3}}, {"y": 4, "inner": None}, None]
    batch = pa.record_batch({"x": [7, 8, 9], "s": rows})
    assert column_at(paths[5], batch).to_pylist() == [3, None, None]
    assert column_at(paths[6], batch).to_pylist() == [1, 4, None]


def test_bytes_that_are_no_text_are_compared_in_every_layout():
    array = pa.array([b"\xff", b"a", None], pa.binary())
    literal = Literal(Primitive("binary"), b"\xff")
    for layout in layouts(array):
        assert results(Comparison(1, "=", literal), layout) == [True, False, None]
