"""A literal of any size and fraction keeps its meaning next to a column that cannot hold it."""

from __future__ import annotations

import itertools
import math
import struct
from decimal import Decimal
from fractions import Fraction

import predicate_oracle as oracle
import predicate_strategies as some
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inlay.errors import InvalidPredicate
from inlay.format.binding import (
    Clock,
    Day,
    Flag,
    Moment,
    Number,
    Octets,
    Text,
    compare_with,
    is_in,
    neighbours,
)
from inlay.format.predicate import And, Comparison, Constant, In, IsNull, Literal, Not, Or, walk
from inlay.format.schema import Primitive, parse_primitive
from inlay.format.values import EXACT, NANOS_PER_DAY, NANOS_PER_UNIT, physical, to_float32

INT8 = Primitive("int8")
OPERATORS = ["=", "!=", "<", "<=", ">", ">="]
EXACT_NUMERIC = [t for t in some.TYPES if t.is_integer or t.name == "decimal"]
numbers = (
    st.decimals(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**30), 10**30).map(Decimal)
    | st.decimals(-5, 5, places=3)
)


def sign(left, right):
    return (left > right) - (left < right)


@given(
    st.sampled_from(EXACT_NUMERIC).flatmap(
        lambda kind: st.tuples(st.just(kind), some.values(kind))
    ),
    st.sampled_from(OPERATORS),
    numbers,
)
@settings(deadline=None, max_examples=500)
def test_numbers_compare_as_mathematics_says(typed, op, number):
    kind, value = typed
    found = compare_with(1, kind, op, Number(number))
    assert oracle.truth(found, {1: value}) is oracle.holds(
        op, sign(Fraction(value), Fraction(number))
    )
    assert oracle.truth(found, {1: None}) is None


@pytest.mark.parametrize("kind", EXACT_NUMERIC, ids=str)
def test_numbers_at_the_ends_of_a_type_compare_as_mathematics_says(kind):
    ends = [value for value in some.corners(kind) if value]
    step = Decimal("0.5")
    numbers = [EXACT.multiply(Decimal(end), factor) for end in ends for factor in (1, step, 2)]
    numbers += [EXACT.add(Decimal(end), nudge) for end in ends for nudge in (-1, -step, step, 1)]
    for number, op, value in itertools.product(numbers, OPERATORS, some.corners(kind)):
        found = compare_with(1, kind, op, Number(number))
        for node in walk(found):
            if isinstance(node, Comparison):
                assert physical(kind, node.literal.value) == node.literal.value
        expected = oracle.holds(op, sign(Fraction(value), Fraction(number)))
        assert oracle.truth(found, {1: value}) is expected


@given(
    st.sampled_from(["float", "double"]),
    st.floats() | st.integers(-(2**60), 2**60).map(float),
    st.sampled_from(OPERATORS),
    st.integers(-(2**60), 2**60) | st.integers(2**24 - 3, 2**24 + 3),
)
@example("double", 9007199254740992.0, "=", 9007199254740993)
@settings(deadline=None, max_examples=400)
def test_integers_are_never_rounded_to_a_floating_column(name, value, op, number):
    value = to_float32(value) if name == "float" else value
    found = compare_with(1, Primitive(name), op, Number(Decimal(number)))
    order = 1 if math.isnan(value) else sign(value, number)  # Python compares these exactly
    assert oracle.truth(found, {1: value}) is oracle.holds(op, order)


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(deadline=None, max_examples=300)
def test_a_fraction_is_the_nearest_value_of_a_floating_column(value):
    number = Decimal(repr(value)) if "." in repr(value) else Decimal(value).scaleb(0)
    if number.as_tuple().exponent != 0:
        near = neighbours(Primitive("double"), Number(number))
        assert near.below == near.above == value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(-4, 4))
@settings(deadline=None, max_examples=300)
def test_a_float_is_rounded_once(value, nudge):
    """A decimal just beside the middle of two floats must not be drawn to the wrong one by passing
    through a double."""
    bits = struct.unpack("<i", struct.pack("<f", abs(value)))[0]
    above = struct.unpack("<f", struct.pack("<i", bits + 1))[0]
    if math.isinf(above):
        return
    middle = (Fraction(abs(value)) + Fraction(above)) / 2
    exact = middle + Fraction(nudge, 10**200)
    found = neighbours(Primitive("float"), Number(fraction_to_decimal(exact))).below
    even = abs(value) if bits % 2 == 0 else above
    assert found == (above if nudge > 0 else abs(value) if nudge < 0 else even)


def fraction_to_decimal(value: Fraction) -> Decimal:
    """Exact: the denominators here are powers of two and ten."""
    places = 420
    scaled = value * 10**places
    assert scaled.denominator == 1
    return Decimal((0, tuple(map(int, str(scaled.numerator))), -places))


@pytest.mark.parametrize(
    ("kind", "text"),
    [("int64", "1e999999999"), ("int64", "-1e999999999"), ("decimal(9,2)", "1e999999999")],
)
def test_huge_exponents_cost_nothing(kind, text):
    found = compare_with(1, parse_primitive(kind), "<", Number(Decimal(text)))
    expected = text.startswith("1")
    row = {1: Decimal(1) if kind.startswith("decimal") else 1}
    assert oracle.truth(found, row) is expected


def test_nan_and_infinity_next_to_an_integer_column():
    for text, less in (("NaN", True), ("Infinity", True), ("-Infinity", False)):
        number = Number(Decimal(text))
        assert oracle.truth(compare_with(1, INT8, "<", number), {1: 127}) is less
        assert oracle.truth(compare_with(1, INT8, "=", number), {1: 127}) is False
        assert oracle.truth(compare_with(1, INT8, "=", number), {1: None}) is None


def test_the_decided_forms_are_those_the_docs_name():
    true = Or((Not(IsNull(1)), Constant(None)))
    false = And((IsNull(1), Constant(None)))
    assert compare_with(1, INT8, "<", Number(Decimal(300))) == true
    assert compare_with(1, INT8, ">", Number(Decimal(300))) == false
    assert compare_with(1, INT8, "=", Number(Decimal("3.5"))) == false
    assert compare_with(1, INT8, ">", Number(Decimal("3.5"))) == Comparison(
        1, ">=", Literal(INT8, 4)
    )
    assert compare_with(1, INT8, "=", Number(Decimal("3.0"))) == Comparison(
        1, "=", Literal(INT8, 3)
    )


@given(st.binary(max_size=4), st.binary(min_size=2, max_size=2), st.sampled_from(OPERATORS))
@settings(deadline=None, max_examples=300)
def test_bytes_of_another_length_order_among_fixed_ones(literal, value, op):
    found = compare_with(1, Primitive("fixed", precision=2), op, Octets(literal))
    assert oracle.truth(found, {1: value}) is oracle.holds(op, sign(value, literal))


@given(
    st.sampled_from([t for t in some.TYPES if t.is_temporal and t.name != "time"]),
    st.data(),
    st.integers(-(2**66), 2**66) | st.integers(-3, 3),
    st.sampled_from(OPERATORS),
)
@settings(deadline=None, max_examples=300)
def test_moments_compare_to_the_nanosecond(kind, data, nanos, op):
    value = data.draw(some.values(kind))
    per_unit = NANOS_PER_DAY if kind.name == "date" else NANOS_PER_UNIT[kind.unit]
    found = compare_with(1, kind, op, Moment(nanos, zoned=kind.name == "timestamptz"))
    assert oracle.truth(found, {1: value}) is oracle.holds(op, sign(value * per_unit, nanos))


def test_in_keeps_what_can_be_equal_and_what_null_means():
    three, big, none = Number(Decimal(3)), Number(Decimal(300)), None
    assert is_in(1, INT8, [three, big, Number(Decimal("3.0"))]) == In(1, INT8, (3,))
    assert is_in(1, INT8, [three, none]) == Or((In(1, INT8, (3,)), Constant(None)))
    assert is_in(1, INT8, [none]) == Constant(None)
    assert is_in(1, INT8, [big]) == And((IsNull(1), Constant(None)))
    assert oracle.truth(Not(is_in(1, INT8, [big])), {1: 5}) is True
    assert oracle.truth(Not(is_in(1, INT8, [big, none])), {1: 5}) is None


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        ("int64", Text("3")),
        ("int64", Flag(True)),
        ("double", Text("1.5")),
        ("bool", Number(Decimal(1))),
        ("string", Number(Decimal(1))),
        ("string", Octets(b"a")),
        ("binary", Text("a")),
        ("date", Number(Decimal(1))),
        ("date", Moment(0, zoned=True)),
        ("timestamp(us)", Moment(0, zoned=True)),
        ("time(us)", Moment(0, zoned=False)),
        ("timestamp(us)", Clock(0)),
        ("time(us)", Day(0)),
    ],
    ids=str,
)
def test_other_families_are_refused_with_a_way_out(kind, literal):
    with pytest.raises(InvalidPredicate) as caught:
        compare_with(1, parse_primitive(kind), "=", literal)
    zoned = isinstance(literal, Moment) and literal.zoned
    assert ("without a time zone" in (caught.value.next_step or "Write")) is zoned
