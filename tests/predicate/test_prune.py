"""Pruning is sound against the oracle, however little the statistics say, and sharp where they do."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal

import predicate_oracle as oracle
import predicate_strategies as some
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.entry import ColumnStats, KeyRange, Keys
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
)
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.values import is_nan, order_key, truncate_lower, truncate_upper
from inlay.plan.pruning.prune import (
    MAX_FIXED_BOUND,
    all_match,
    combined_stats,
    coverage,
    denied_by,
    for_content,
    in_nanos,
    in_type,
    keys_may_match,
    lacks_columns_of,
    may_match,
    range_predicate,
    shortened,
    was_added_later,
)

INT, STRING, DOUBLE = Primitive("int64"), Primitive("string"), Primitive("double")
NAN = float("nan")


@st.composite
def statistics(draw, kind, column):
    """True statistics of a column, made weaker at random in every way that is allowed."""
    numbers = sorted((v for v in column if v is not None and not is_nan(v)), key=order_key)
    lower, upper, exact = None, None, True
    if numbers:
        lower, upper = numbers[0], numbers[-1]
        if isinstance(lower, str | bytes) and kind.name != "fixed" and draw(st.booleans()):
            length = draw(st.integers(0, 2))
            lower, upper, exact = (
                truncate_lower(lower, length),
                truncate_upper(upper, length),
                False,
            )
        elif kind.is_integer and draw(st.booleans()):
            lower, upper, exact = lower - draw(st.integers(0, 2)), upper + 1, False
    if draw(st.integers(0, 3)) == 0:
        lower = None
    if draw(st.integers(0, 3)) == 0:
        upper = None
    has_nan = any(is_nan(v) for v in column) if kind.is_float else None
    return ColumnStats(
        lower,
        upper,
        None if draw(st.integers(0, 3)) == 0 else column.count(None),
        exact,
        None if draw(st.integers(0, 3)) == 0 else has_nan,
    )


@st.composite
def described_tables(draw):
    fields, rows, predicate = draw(some.tables(max_rows=4))
    stats = {}
    for field in fields:
        if draw(st.integers(0, 7)):
            stats[field.id] = draw(statistics(field.type, [row[field.id] for row in rows]))
    return rows, predicate, stats


@given(described_tables())
@settings(deadline=None, max_examples=100)
def test_pruning_never_contradicts_the_rows(case):
    rows, predicate, stats = case
    found = [oracle.truth(predicate, row) is True for row in rows]
    assert may_match(predicate, stats, len(rows)) or not any(found)
    assert not all_match(predicate, stats, len(rows)) or all(found)


@pytest.mark.parametrize("name", ["float", "string", "int8", "bool"])
def test_corner_values_are_pruned_soundly_however_little_is_known(name):
    field = next(f for f in some.SCHEMA.fields if f.type.name == name)
    corners = some.corners(field.type)
    conditions = [some.made_in(field, list(pair)) for pair in itertools.product(corners, repeat=2)]
    for value, op in itertools.product(corners, some.OPERATORS):
        conditions.append(Comparison(field.id, op, Literal(field.type, value)))
    for column in itertools.product((*corners, None), repeat=2):
        for stats, predicate in itertools.product(every_knowledge(field.type, column), conditions):
            found = [oracle.truth(predicate, {field.id: value}) is True for value in column]
            known = {field.id: stats}
            assert may_match(predicate, known, 2) or not any(found), (predicate, stats, column)
            assert not all_match(predicate, known, 2) or all(found), (predicate, stats, column)


def every_knowledge(kind, column):
    """The true statistics, and each with one thing not known."""
    numbers = sorted((v for v in column if v is not None and not is_nan(v)), key=order_key)
    lower, upper = (numbers[0], numbers[-1]) if numbers else (None, None)
    has_nan = any(is_nan(v) for v in column) if kind.is_float else None
    full = ColumnStats(lower, upper, column.count(None), has_nan=has_nan)
    return [
        full,
        replace(full, lower=None),
        replace(full, upper=None),
        replace(full, null_count=None),
        replace(full, has_nan=None),
    ]


@given(some.tables(max_rows=6), st.integers(0, 6), st.data())
@settings(deadline=None, max_examples=100)
def test_combined_statistics_hold_for_all_parts(table, cut, data):
    fields, rows, predicate = table
    parts = [rows[:cut], rows[cut:]]
    described = [
        ({f.id: data.draw(statistics(f.type, [row[f.id] for row in part])) for f in fields}, part)
        for part in parts
    ]
    stats = combined_stats((found, len(part)) for found, part in described)
    found = [oracle.truth(predicate, row) is True for row in rows]
    assert may_match(predicate, stats, len(rows)) or not any(found)
    assert not all_match(predicate, stats, len(rows)) or all(found)


@given(st.data(), st.sampled_from(some.SCHEMA.fields))
@settings(deadline=None, max_examples=100)
def test_keys_that_equal_a_row_are_never_pruned(data, field):
    rows = data.draw(some.columns(field, 3))
    keys = data.draw(some.columns(field, 2))
    body = Keys((field.id,), "k", 1, 2, {field.id: data.draw(statistics(field.type, keys))})
    stats = {field.id: data.draw(statistics(field.type, rows))}
    equal = any(
        a is not None and b is not None and oracle.three_way(a, b) == 0 for a in rows for b in keys
    )
    assert keys_may_match(body, stats, 3) or not equal


@given(st.data(), st.sampled_from(some.SCHEMA.fields))
@settings(deadline=None, max_examples=100)
def test_a_key_range_selects_what_its_definition_says(data, field):
    bounds = st.none() | some.values(field.type)
    flags = st.booleans()
    body = KeyRange(field.id, *(data.draw(s) for s in (bounds, bounds, flags, flags)))
    (value,) = data.draw(some.columns(field, 1))

    def inside():
        if value is None:
            return False
        low = 1 if body.lower is None else oracle.three_way(value, body.lower)
        high = -1 if body.upper is None else oracle.three_way(value, body.upper)
        above = low > 0 or (low == 0 and body.lower_inclusive)
        return above and (high < 0 or (high == 0 and body.upper_inclusive))

    found = oracle.truth(range_predicate(body, field.type), {field.id: value})
    assert (found is True) == inside()


def test_a_nan_key_is_inside_only_without_an_upper_bound():
    row = {1: NAN}
    assert oracle.truth(range_predicate(KeyRange(1, lower=5.0), DOUBLE), row) is True
    assert oracle.truth(range_predicate(KeyRange(1, upper=5.0), DOUBLE), row) is False


# -- sharpness: without these, "anything may match" would pass ------------------------------------

KNOWN = ColumnStats(10, 20, null_count=0)


def compare(op, value, kind=INT):
    return Comparison(1, op, Literal(kind, value))


@pytest.mark.parametrize(
    ("predicate", "may", "must"),
    [
        (compare("=", 9), False, False),
        (compare("=", 10), True, False),
        (compare("!=", 9), True, True),
        (compare("<", 10), False, False),
        (compare("<", 11), True, False),
        (compare("<", 21), True, True),
        (compare("<=", 9), False, False),
        (compare("<=", 20), True, True),
        (compare(">", 20), False, False),
        (compare(">", 9), True, True),
        (compare(">=", 21), False, False),
        (compare(">=", 10), True, True),
        (In(1, INT, (1, 2, 30)), False, False),
        (In(1, INT, (1, 15)), True, False),
        (IsNull(1), False, False),
        (Not(IsNull(1)), True, True),
        (And((compare(">", 9), compare("<", 21))), True, True),
        (And((compare(">", 9), compare("<", 10))), False, False),
        (Or((compare("<", 10), compare(">", 20))), False, False),
        (Or((compare("<", 10), compare(">=", 10))), True, True),
        (Not(compare("<", 10)), True, True),
        (Not(compare(">=", 10)), False, False),
        (Constant(True), True, True),
        (Constant(None), False, False),
        (And(()), True, True),
        (Or(()), False, False),
        (Or((Not(IsNull(1)), Constant(None))), True, True),
        (And((IsNull(1), Constant(None))), False, False),
    ],
    ids=str,
)
def test_known_bounds_decide(predicate, may, must):
    assert may_match(predicate, {1: KNOWN}, 5) is may
    assert all_match(predicate, {1: KNOWN}, 5) is must


def test_nulls_spoil_all_but_not_may():
    some_null = {1: ColumnStats(10, 20, null_count=1)}
    assert not all_match(compare("<", 21), some_null, 5)
    assert not all_match(Not(compare("<", 10)), some_null, 5)
    assert not may_match(compare("<", 10), some_null, 5)
    unknown = {1: ColumnStats(10, 20)}
    assert not all_match(compare("<", 21), unknown, 5)


def test_a_column_of_only_nulls_matches_nothing_but_is_null():
    stats = {1: ColumnStats(null_count=5)}
    assert not may_match(compare("!=", 3), stats, 5)
    assert not may_match(Not(compare("=", 3)), stats, 5)
    assert not may_match(Like(1, "%"), stats, 5)
    assert all_match(IsNull(1), stats, 5)


def test_nan_counts_as_the_greatest_value_unless_excluded():
    above = compare(">", 5.0, DOUBLE)
    below = compare("<", 5.0, DOUBLE)
    for has_nan, may_above, all_below in (
        (None, True, False),
        (True, True, False),
        (False, False, True),
    ):
        stats = {1: ColumnStats(0.0, 1.0, 0, has_nan=has_nan)}
        assert may_match(above, stats, 5) is may_above
        assert all_match(below, stats, 5) is all_below
    no_nan = {1: ColumnStats(0.0, 1.0, 0, has_nan=False)}
    assert not may_match(compare("=", NAN, DOUBLE), no_nan, 5)
    assert all_match(compare("<", NAN, DOUBLE), no_nan, 5)
    assert not may_match(In(1, DOUBLE, (7.0, NAN)), no_nan, 5)


def test_negative_zero_is_zero_to_bounds():
    stats = {1: ColumnStats(-0.0, -0.0, 0, has_nan=False)}
    assert all_match(compare("=", 0.0, DOUBLE), stats, 5)
    assert all_match(In(1, DOUBLE, (0.0,)), stats, 5)


def test_decimals_of_different_scale_compare_by_value():
    stats = {1: ColumnStats(Decimal("1.0"), Decimal("1.00"), 0)}
    assert all_match(compare("=", Decimal("1.000"), Primitive("decimal", 9, 3)), stats, 5)


@pytest.mark.parametrize(
    ("pattern", "may", "must"),
    [
        ("a%", False, False),
        ("m%", True, True),
        ("ma%", True, False),
        ("mb%", True, False),
        ("mc%", False, False),
        ("n%", False, False),
        ("%z", True, False),
        ("%", True, True),
        ("", False, False),
        ("max", True, False),
        ("mb", True, False),
        ("mba", False, False),
        ("n", False, False),
        ("m_%", True, False),
        ("z_%", False, False),
    ],
)
def test_like_prunes_by_its_prefix(pattern, may, must):
    stats = {1: ColumnStats("max", "mb", 0)}
    assert may_match(Like(1, pattern), stats, 5) is may
    assert all_match(Like(1, pattern), stats, 5) is must


def test_one_text_is_selected_in_every_row_or_in_none():
    stats = {1: ColumnStats("m", "m", 0)}
    assert all_match(Like(1, "m"), stats, 5) and not all_match(Like(1, "n"), stats, 5)


def test_a_prefix_that_both_bounds_have_covers_the_file():
    stats = {1: ColumnStats("abc", "abd", 0, exact=False)}
    assert all_match(Like(1, "ab%"), stats, 5)
    assert not all_match(Like(1, "ab_%"), stats, 5)


def test_equal_bounds_are_one_value_even_when_inexact():
    stats = {1: ColumnStats("x", "x", 0, exact=False)}
    assert all_match(compare("=", "x", STRING), stats, 5)
    assert not may_match(compare("!=", "x", STRING), stats, 5)


def test_one_value_that_is_in_the_list_is_all_that_a_file_has():
    one = {1: ColumnStats(5, 5, 0)}
    assert all_match(In(1, INT, (3, 5)), one, 4)
    assert not all_match(In(1, INT, (3, 6)), one, 4)


def test_a_file_without_rows_matches_nothing():
    assert not may_match(Constant(True), {}, 0)


def test_keys_apart_from_the_rows_are_pruned():
    def keys(**stats):
        return Keys((1,), "k", 1, 3, {1: ColumnStats(**stats)})

    assert not keys_may_match(keys(lower=1, upper=5), {1: KNOWN}, 5)
    assert not keys_may_match(keys(lower=21, upper=25), {1: KNOWN}, 5)
    assert keys_may_match(keys(lower=1, upper=10), {1: KNOWN}, 5)
    assert not keys_may_match(keys(null_count=3), {1: KNOWN}, 5)
    assert not keys_may_match(keys(lower=10, upper=20), {1: ColumnStats(null_count=5)}, 5)
    assert keys_may_match(keys(), {}, 5)


@pytest.mark.parametrize("apart", [None, 1, 2])
def test_keys_of_several_columns_meet_rows_only_where_each_column_does(apart: int | None):
    near, far = ColumnStats(10, 20, 0), ColumnStats(90, 99, 0)
    keys = Keys((1, 2), "k", 1, 3, {1: near, 2: near})
    rows = {id_: far if id_ == apart else near for id_ in (1, 2)}
    assert keys_may_match(keys, rows, 5) is (apart is None)


def test_keys_of_nan_meet_rows_of_nan():
    keys = Keys((1,), "k", 1, 2, {1: ColumnStats(0.0, 1.0, 0, has_nan=True)})
    for has_nan, meets in ((True, True), (None, True), (False, False)):
        assert keys_may_match(keys, {1: ColumnStats(5.0, 6.0, 0, has_nan=has_nan)}, 5) is meets


def test_keys_of_another_unit_meet_the_rows_of_their_instant():
    milli, micro = (Primitive("timestamp", unit=unit) for unit in ("ms", "us"))
    keys = Keys((1,), "k", 1, 1, {1: ColumnStats(1_000, 1_000, 0, kind=milli)})
    for kind, at, meets in (
        (micro, 1_000_000, True),
        (micro, 1_000, False),
        (milli, 1_000, True),
        (None, 1_000, True),  # of the key's type, where none is said
        (None, 1_000_000, False),
    ):
        assert keys_may_match(keys, {1: ColumnStats(at, at, 0, kind=kind)}, 5) is meets


def test_combining_keeps_what_every_part_knows():
    a = {1: ColumnStats(1, 5, 0, has_nan=False), 2: ColumnStats("a", "b")}
    b = {1: ColumnStats(3, 9, 2, exact=False, has_nan=None)}
    nulls = {1: ColumnStats(null_count=4)}
    assert combined_stats([(a, 5), (b, 5), ({}, 0), (nulls, 4)]) == {
        1: ColumnStats(1, 9, 6, exact=False, has_nan=None)
    }
    assert combined_stats([]) == {}


# -- exact: what is possible by the statistics, value by value --------------------------------------

GRID = [n / 2 for n in range(-2, 9)]
ENDS = [None, 0.0, 1.0, 2.0]
FLOATS = [
    ColumnStats(low, high, nulls, has_nan=has_nan, kind=DOUBLE)
    for low, high in itertools.product(ENDS, ENDS)
    if low is None or high is None or low <= high
    for nulls in (None, 0, 1, 2)
    for has_nan in (None, False, True)
]


def possible(column, rows=2, domain=GRID):
    """Every value that one of the rows may have."""
    values = [None] if column.null_count != 0 else []
    if column.null_count is None or column.null_count < rows:
        values += [
            value
            for value in domain
            if (column.lower is None or column.lower <= value)
            and (column.upper is None or value <= column.upper)
        ]
        values += [NAN] if column.has_nan is not False and domain is GRID else []
    return values


def conditions_on(field_id):
    sought = [0.0, 0.5, 1.0, 2.0, NAN]
    yield IsNull(field_id)
    for op, value in itertools.product(some.OPERATORS, sought):
        yield Comparison(field_id, op, Literal(DOUBLE, value))
    for values in itertools.combinations(sought, 2):
        yield In(field_id, DOUBLE, values)
    for value in sought:
        yield In(field_id, DOUBLE, (value,))


def check_exact(predicate, known, rows_of):
    found = {oracle.truth(predicate, row) for row in rows_of}
    assert may_match(predicate, known, 2) is (True in found), (predicate, known)
    assert all_match(predicate, known, 2) is (found == {True}), (predicate, known)
    expected = "none" if True not in found else "all" if found == {True} else "some"
    assert coverage(predicate, known, 2) == expected
    assert coverage(predicate, known, 0) == "none" and not may_match(predicate, known, 0)
    assert all_match(predicate, known, 0)


def test_a_condition_may_and_must_hold_exactly_where_the_possible_values_say_so():
    for column in FLOATS:
        rows_of = [{1: value} for value in possible(column)]
        for condition in conditions_on(1):
            check_exact(condition, {1: column}, rows_of)
            check_exact(Not(condition), {1: column}, rows_of)


def test_conditions_on_two_columns_are_joined_exactly():
    columns = [
        ColumnStats(0.0, 1.0, nulls, has_nan=False, kind=DOUBLE) for nulls in (0, 1, 2, None)
    ]
    pairs = [(compare("<", 2.0, DOUBLE), compare(">", 5.0, DOUBLE)), (IsNull(1), IsNull(1))]
    pairs += [(compare("=", 1.0, DOUBLE), Constant(None))]
    leaves = [leaf for pair in pairs for leaf in pair]
    others = [replace(leaf, field_id=2) for leaf in leaves if not isinstance(leaf, Constant)]
    for one, other in itertools.product(columns, repeat=2):
        rows_of = [{1: a, 2: b} for a in possible(one) for b in possible(other)]
        for left, right in itertools.product(leaves, [*others, Constant(True), Constant(None)]):
            for joined in (And((left, right)), Or((left, right)), And((Not(left), right))):
                check_exact(joined, {1: one, 2: other}, rows_of)


def test_a_text_may_and_must_match_exactly_where_the_possible_texts_say_so():
    texts = ["".join(t) for n in range(4) for t in itertools.product("abc", repeat=n)]
    ends = [None, *(text for text in texts if len(text) < 3 and "c" not in text)]
    patterns = [*(f"{text}%" for text in ends if text is not None), *(t for t in ends if t)]
    for low, high in itertools.product(ends, ends):
        if low is not None and high is not None and low > high:
            continue
        for nulls in (0, 1, 2, None):
            column = ColumnStats(low, high, nulls, kind=STRING)
            rows_of = [{1: text} for text in possible(column, domain=texts)]
            for pattern in patterns:
                check_exact(Like(1, pattern), {1: column}, rows_of)


def test_keys_meet_rows_exactly_where_a_possible_value_is_in_both():
    for keys, rows in itertools.product(FLOATS, repeat=2):
        mine, theirs = (
            {repr(value) for value in possible(column) if value is not None}
            for column in (keys, rows)
        )
        body = Keys((1,), "k", 1, 2, {1: keys})
        known = any(v is not None for v in (keys.lower, keys.upper, rows.lower, rows.upper))
        if known:
            assert keys_may_match(body, {1: rows}, 2) is bool(mine & theirs), (keys, rows)
        assert not keys_may_match(body, {1: rows}, 0)
        assert not keys_may_match(replace(body, rows=0), {1: rows}, 2)


def test_what_statistics_deny_is_exactly_what_is_not_possible():
    for column in FLOATS:
        denied = list(denied_by(1, DOUBLE, column, 2))
        values = {repr(value) for value in possible(column)}
        for value in (*GRID, None, NAN):
            proves_wrong = any(oracle.truth(part, {1: value}) is True for part in denied)
            if value is NAN:  # the flag is not among what is checked
                assert proves_wrong is (column.null_count == 2)
            else:
                assert proves_wrong is (repr(value) not in values), (column, value)
    too_many = list(denied_by(1, DOUBLE, ColumnStats(0.0, 1.0, 3, kind=DOUBLE), 2))
    assert Not(IsNull(1)) in too_many and IsNull(1) in too_many, "wrong in any case"


def test_statistics_of_two_parts_together():
    def pick(choose, one, other):
        ends = [getattr(part, choose) for part in (one, other) if part.null_count != 2]
        if not ends:
            return None
        return None if None in ends else (min if choose == "lower" else max)(ends)

    for one, other in itertools.product(FLOATS, repeat=2):
        found = combined_stats([({1: one}, 2), ({1: other}, 2)])[1]
        flags = {one.has_nan, other.has_nan}
        nulls = (one.null_count, other.null_count)
        assert found.null_count == (None if None in nulls else sum(nulls))
        assert found.has_nan is (True if True in flags else None if None in flags else False)
        if 2 not in nulls:
            assert found.lower == pick("lower", one, other)
            assert found.upper == pick("upper", one, other)
        elif nulls != (2, 2):
            bounds = other if one.null_count == 2 else one
            assert (found.lower, found.upper) == (bounds.lower, bounds.upper)
    plain = ColumnStats(0.0, 1.0, 0, kind=DOUBLE)
    for name in ("exact", "sure"):
        for a, b in itertools.product([True, False], repeat=2):
            parts = [({1: replace(plain, **{name: flag})}, 2) for flag in (a, b)]
            assert getattr(combined_stats(parts)[1], name) is (a and b)
    other_kind = replace(plain, kind=INT)
    assert combined_stats([({1: plain}, 2), ({1: other_kind}, 2)]) == {}
    assert combined_stats([({1: plain}, 0), ({1: other_kind}, 2)]) == {1: other_kind}
    assert combined_stats([({1: plain}, 1), ({2: plain}, 1)]) == {}


def test_a_bound_in_a_wider_type_or_unknown():
    day = ColumnStats(-1, 2, 1, kind=Primitive("date"))
    millis = Primitive("timestamp", unit="ms")
    assert in_type(day, Primitive("date"), millis) == replace(
        day, lower=-86_400_000, upper=2 * 86_400_000, kind=millis
    )
    assert in_type(day, Primitive("date"), Primitive("date")) is day
    half = replace(day, upper=None, kind=None)
    assert in_type(half, INT, INT) == replace(half, kind=INT)
    assert in_type(half, Primitive("int8"), INT) == replace(half, kind=INT)
    narrower = in_type(replace(day, has_nan=False), INT, Primitive("int8"))
    assert narrower == ColumnStats(null_count=1, has_nan=False, kind=Primitive("int8"))
    assert in_nanos(replace(day, upper=None)) == ColumnStats(-86_400 * 10**9, None, 1)
    assert in_nanos(half) is half and in_nanos(replace(half, kind=INT)).kind == INT


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_bounds_are_shortened_only_where_they_are_longer(length):
    column = ColumnStats("ab", "ab\U0010ffff", 0, kind=STRING)
    found = shortened(column, length)
    assert (found.lower, found.upper) == ("ab"[:length], truncate_upper("ab\U0010ffff", length))
    assert found.exact is (length == 3) and found.null_count == 0
    number = ColumnStats(10**9, None, 0, kind=INT)
    assert shortened(number, length) is number


def test_a_bound_of_fixed_width_stays_whole_or_goes():
    for size, stays in ((MAX_FIXED_BOUND, True), (MAX_FIXED_BOUND + 1, False)):
        kind = Primitive("fixed", size)
        for low, high in ((b"a" * size, b"b" * size), (None, b"b" * size), (b"a" * size, None)):
            column = ColumnStats(low, high, 0, kind=kind)
            found = shortened(column, 4)
            assert (found.lower, found.upper) == ((low, high) if stays else (None, None))


# -- columns that came later ------------------------------------------------------------------------


def test_a_condition_on_columns_that_came_later_has_the_value_of_their_rows():
    a, b, c = Field(1, "a", INT), Field(2, "b", INT, default=7), Field(3, "c", INT)
    schemas = [Schema(0, (a,)), Schema(1, (a, b)), Schema(2, (a, c))]
    assert [was_added_later(2, s, schemas) for s in (0, 1, 2)] == [True, False, False]
    assert [was_added_later(3, s, schemas) for s in (0, 1, 2)] == [True, True, False]
    on_a, on_b, on_c = compare("=", 5), is_7(2), is_7(3)
    assert [for_content(on_b, s, schemas) for s in (0, 1, 2)] == [Constant(True), on_b, on_b]
    assert [for_content(on_c, s, schemas) for s in (0, 2)] == [Constant(None), on_c]
    assert for_content(IsNull(3), 0, schemas) == Constant(True)
    assert for_content(Not(is_7(2)), 0, schemas) == Not(Constant(True))
    joined = And((on_a, Or((on_b, on_c))))
    assert for_content(joined, 0, schemas) == And((on_a, Or((Constant(True), Constant(None)))))
    assert for_content(joined, 1, schemas) == And((on_a, Or((on_b, Constant(None)))))
    assert for_content(joined, 2, schemas) is joined
    assert [lacks_columns_of(joined, s, schemas) for s in (0, 1, 2)] == [False, False, True]
    assert not lacks_columns_of(on_a, 2, schemas)


def is_7(field_id):
    return Comparison(field_id, "=", Literal(INT, 7))
