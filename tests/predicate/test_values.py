"""Values: exact through JSON, totally ordered, shortened without losing a bound."""

from __future__ import annotations

import itertools
import json
import math
from datetime import date
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
    as_text,
    bytes_from_text,
    bytes_to_text,
    civil,
    compare,
    covered_range,
    days_of,
    decode_value,
    encode_value,
    integer_range,
    is_nan,
    is_value,
    order_key,
    pad,
    physical,
    scaled,
    successor,
    trim,
    truncate_lower,
    truncate_upper,
    widened,
    widens,
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
        ("double", "1" + 400 * "0"),
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


# -- ranges and widening: by every pair of types, at their ends ------------------------------------

INTEGERS = [Primitive(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
DECIMALS = [Primitive("decimal", p, s) for p in range(1, 6) for s in range(p + 1)]
TIMES = [Primitive("date"), *(Primitive("timestamp", unit=u) for u in ("s", "ms", "us", "ns"))]
OTHERS = [parse_primitive(t) for t in ("bool", "float", "double", "string", "binary", "fixed(3)")]


def ends(kind: Primitive) -> list[Decimal | int]:
    if kind.name == "decimal":
        nines = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return [nines, -nines, Decimal(1).scaleb(-kind.scale)]
    bits = int(kind.name.removeprefix("u").removeprefix("int"))
    return [0, 2**bits - 1] if kind.name[0] == "u" else [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]


@pytest.mark.parametrize("kinds", [INTEGERS, DECIMALS], ids=["integers", "decimals"])
def test_a_type_is_wider_if_it_has_the_ends_of_the_other(kinds):
    for source, target in itertools.product(kinds, repeat=2):
        assert all(is_value(source, value) for value in ends(source))
        assert widens(source, target) is all(is_value(target, value) for value in ends(source))


def test_no_other_types_hold_each_other_but_those_listed():
    kinds = [INTEGERS[0], DECIMALS[0], *TIMES, *OTHERS, Primitive("time", unit="us")]
    wider = {(str(a), str(b)) for a, b in itertools.product(kinds, repeat=2) if widens(a, b)}
    units = ["timestamp(s)", "timestamp(ms)", "timestamp(us)", "timestamp(ns)"]
    assert wider == {
        *((str(kind), str(kind)) for kind in kinds),
        *itertools.combinations(["date", *units], 2),
        ("float", "double"),
        ("fixed(3)", "binary"),
    }


def test_a_finer_time_covers_what_it_has_a_number_for():
    for source, target in itertools.product(TIMES, repeat=2):
        if not widens(source, target):
            continue
        (least, greatest), (low, high) = integer_range(source), integer_range(target)
        first, last = covered_range(source, target) or (least, greatest)
        for value in {first, last, 0}:
            assert low <= widened(value, source, target) <= high
        for value in (first - 1, last + 1):
            inside = least <= value <= greatest
            assert not inside or not low <= widened(value, source, target) <= high
    assert covered_range(INTEGERS[0], INTEGERS[3]) is None


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_time_of_day_ends_at_midnight(unit):
    kind = Primitive("time", unit=unit)
    midnight = 86_400 * 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    assert integer_range(kind) == (0, midnight - 1)
    assert [is_value(kind, v) for v in (-1, 0, midnight - 1, midnight)] == [
        False,
        True,
        True,
        False,
    ]


def test_whole_numbers_end_at_their_limits():
    for kind in INTEGERS:
        low, high = ends(kind)
        assert integer_range(kind) == (low, high)
        assert [is_value(kind, v) for v in (low - 1, low, high, high + 1)] == [
            False,
            True,
            True,
            False,
        ]


@pytest.mark.parametrize(
    ("kind", "value", "is_one"),
    [
        ("bool", True, True),
        ("bool", 1, False),
        ("double", 2**53, True),
        ("double", 2**53 + 1, False),
        ("double", True, False),
        ("double", 10**400, False),
        ("double", math.inf, True),
        ("double", 0.1, True),
        ("float", 0.1, False),
        ("float", 0.5, True),
        ("float", math.nan, True),
        ("float", math.inf, True),
        ("float", 3.5e38, False),
        ("float", 2**24 + 1, False),
        ("decimal(4,2)", Decimal("99.99"), True),
        ("decimal(4,2)", Decimal("100"), False),
        ("decimal(4,2)", Decimal("0.001"), False),
        ("decimal(4,2)", Decimal("Infinity"), False),
        ("decimal(4,2)", 1, False),
        ("decimal(76,0)", Decimal("9" * 76), True),
        ("decimal(76,0)", Decimal("9" * 77), False),
        ("string", "a\U0010ffff", True),
        ("string", "\ud800", False),
        ("string", b"a", False),
        ("binary", b"", True),
        ("binary", "a", False),
        ("fixed(2)", b"ab", True),
        ("fixed(2)", b"a", False),
        ("fixed(2)", b"abc", False),
        ("int64", True, False),
        ("int64", 1.0, False),
        ("date", -(2**31), True),
        ("date", 2**31, False),
    ],
)
def test_only_what_a_type_has_is_a_value_of_it(kind, value, is_one):
    assert is_value(parse_primitive(kind), value) is is_one


def test_the_calendar_is_that_of_the_standard_library():
    """The first and the last day of each month; what is beyond its years repeats after 400."""
    era = date(2001, 1, 1).toordinal() - date(1601, 1, 1).toordinal()
    epoch = date(1970, 1, 1).toordinal()
    for year, month in itertools.product(range(1600, 2401), range(1, 13)):
        first = date(year, month, 1)
        for day in (first, date.fromordinal(first.toordinal() - 1)):
            number = day.toordinal() - epoch
            assert civil(number) == (day.year, day.month, day.day)
            assert days_of(day.year, day.month, day.day) == number
            assert civil(number - 5 * era) == (day.year - 2_000, day.month, day.day)
            assert days_of(day.year - 2_000, day.month, day.day) == number - 5 * era


def test_a_decimal_has_its_scale_or_loses_digits():
    assert str(scaled(Decimal("1.5"), 3)) == "1.500" and scaled(Decimal("1.55"), 1) is None
    assert str(scaled(Decimal("-0.0"), 2)) == "0.00" and str(scaled(Decimal("-1"), 0)) == "-1"
    assert str(scaled(Decimal("1E+2"), 0)) == "100"
    assert scaled(Decimal("9" * 190), 11) is None, "no more digits than are exact"
    assert (
        widened(Decimal("1.5"), DECIMALS[0], Primitive("decimal", 5, 2)).as_tuple().exponent == -2
    )


@pytest.mark.parametrize("length", range(7))
def test_an_upper_bound_is_the_least_that_is_not_below(length):
    """Of at most so many bytes, of an alphabet's first and last and two between."""
    alphabet = (b"\x00", b"\x41", b"\xfe", b"\xff")
    for text in map(b"".join, itertools.product(alphabet, repeat=3)):
        upper = truncate_upper(text, length)
        if length >= len(text):
            assert upper == text
            continue
        assert truncate_lower(text, length) == text[:length]
        head = int.from_bytes(text[:length], "big") + 1
        if not length or head == 256**length:
            assert upper is None
        else:
            assert upper == head.to_bytes(length, "big").rstrip(b"\x00")


def test_lists_in_json_are_cut_and_filled():
    assert trim([None, 1, None, None]) == [None, 1] and trim([None]) == []
    assert pad([1], 3) == [1, None, None] and pad([1, 2], 2) == [1, 2] and pad([], 0) == []
    for wrong in ([1, 2, 3], (1,), None):
        with pytest.raises(TypeError):
            pad(wrong, 2)
    for data in (b"", b"a", b"ab", b"abc", b"\xfb\xff\xfe"):
        assert bytes_from_text(bytes_to_text(data)) == data
        assert not set(bytes_to_text(data)) & set("=+/")
    with pytest.raises(TypeError):
        as_text(b"a")


def test_nan_is_above_every_number_and_equals_itself():
    double, nan = Primitive("double"), math.nan
    assert (compare(double, nan, math.inf), compare(double, 1.0, nan)) == (1, -1)
    assert compare(double, nan, nan) == compare(double, 0.0, -0.0) == 0
    assert [is_nan(value) for value in (nan, math.inf, 0.0, None, "NaN")] == [True, *[False] * 4]
