"""Values: exact through JSON, totally ordered, shortened without losing a bound."""

from __future__ import annotations

import json
import math
from decimal import Decimal

import predicate_oracle as oracle
import predicate_strategies as some
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import CorruptTable, InvalidRequest
from inlay.format.schema import Primitive, parse_primitive
from inlay.format.values import (
    MAX_COUNT,
    as_count,
    compare,
    decode_value,
    encode_value,
    order_key,
    physical,
    successor,
    truncate_lower,
    truncate_upper,
)

typed_values = st.sampled_from(some.TYPES).flatmap(
    lambda kind: st.tuples(st.just(kind), some.values(kind))
)


@given(typed_values)
@settings(deadline=None, max_examples=500)
def test_a_value_survives_json_bit_for_bit(typed):
    kind, value = typed
    text = json.dumps(encode_value(kind, value), allow_nan=False)
    back = decode_value(kind, json.loads(text))
    assert type(back) is type(value)
    assert str(back) == str(value) or (back != back and value != value)


@given(
    st.sampled_from(some.TYPES).flatmap(
        lambda kind: st.tuples(st.just(kind), some.values(kind), some.values(kind))
    )
)
@settings(deadline=None, max_examples=400)
def test_the_order_is_total_and_the_oracles(case):
    kind, a, b = case
    assert compare(kind, a, b) == oracle.three_way(a, b) == -compare(kind, b, a)
    assert compare(kind, a, a) == 0
    assert (order_key(a) == order_key(b)) is (compare(kind, a, b) == 0)
    assert (order_key(a) < order_key(b)) is (compare(kind, a, b) < 0)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("double", "null"),
        ("double", '"nan"'),
        ("double", "true"),
        ("double", "9007199254740993"),
        ("float", "0.1"),
        ("int8", "128"),
        ("int8", "1.0"),
        ("int64", "true"),
        ("uint8", "-1"),
        ("bool", "1"),
        ("decimal(4,2)", "1.5"),
        ("decimal(4,2)", '"1.555"'),
        ("decimal(4,2)", '"100.00"'),
        ("decimal(4,2)", '"NaN"'),
        ("decimal(4,2)", '"x"'),
        ("string", "1"),
        ("string", '"\\ud800"'),
        ("binary", '"a+b="'),
        ("binary", '"a"'),
        ("binary", '"AB"'),  # stray bits: AA is the one text of a zero byte's prefix
        ("fixed(2)", '"AA"'),
        ("date", "2147483648"),
        ("time(ms)", "86400000"),
        ("time(ms)", "-1"),
        ("timestamp(us)", '"2020-01-01"'),
        ("string", "[]"),
    ],
)
def test_json_that_is_no_value_of_the_type_is_corrupt(kind, text):
    with pytest.raises(CorruptTable):
        decode_value(parse_primitive(kind), json.loads(text))


def test_errors_do_not_repeat_the_value():
    with pytest.raises(InvalidRequest) as caught:
        physical(Primitive("int8"), "a secret")
    assert "secret" not in str(caught.value)


@given(st.text(max_size=6) | st.binary(max_size=6), st.integers(0, 4))
@settings(deadline=None, max_examples=400)
def test_shortened_bounds_still_bound(value, length):
    lower, upper = truncate_lower(value, length), truncate_upper(value, length)
    assert len(lower) <= length and lower <= value
    if upper is not None:
        assert len(upper) <= length and upper >= value
        upper if isinstance(upper, bytes) else upper.encode()


@given(st.text(some.ALPHABET + "\U0010ffff", max_size=4), st.text(max_size=3))
@settings(deadline=None, max_examples=300)
def test_the_successor_is_above_every_string_with_the_prefix(prefix, rest):
    found = successor(prefix)
    if found is None:
        assert set(prefix) <= {"\U0010ffff"}
    else:
        assert (prefix + rest).encode() < found.encode()


def test_upper_bounds_step_over_surrogates_and_give_up_at_the_last_code_point():
    assert truncate_upper("\ud7ffx", 1) == "\ue000"
    assert truncate_upper("a\U0010ffffx", 2) == "b"
    assert truncate_upper("\U0010ffff\U0010ffff", 1) is None
    assert truncate_upper(b"a\xff\xffx", 3) == b"b"
    assert truncate_upper(b"\xff\xff", 1) is None
    assert truncate_upper("ab", 2) == "ab"


def test_a_decimal_is_stored_with_its_columns_scale():
    kind = parse_primitive("decimal(4,2)")
    assert str(physical(kind, Decimal("1.5"))) == "1.50"
    assert str(physical(kind, Decimal("-0.000"))) == "0.00"


def test_infinity_and_nan_have_one_spelling():
    kind = Primitive("double")
    spelled = [encode_value(kind, v) for v in (math.nan, math.inf, -math.inf)]
    assert spelled == ["NaN", "Infinity", "-Infinity"]


@pytest.mark.parametrize("found", [True, False, -1, MAX_COUNT + 1, 1.0, "1", None])
def test_what_is_no_count_is_not_read_as_one(found):
    with pytest.raises(TypeError, match="expected a count"):
        as_count(found)


def test_counts_end_where_other_languages_whole_numbers_do():
    assert [as_count(n) for n in (0, 1, MAX_COUNT)] == [0, 1, MAX_COUNT]
