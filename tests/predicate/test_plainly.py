"""The forms in which the values of a condition are looked for say the same as the condition."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import predicate_oracle as oracle
import predicate_strategies as some
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.predicate import (
    TRUE,
    And,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    conditions,
    like_exact,
    like_matches,
    like_prefix,
    like_re2,
    walk,
)
from inlay.format.schema import Primitive, parse_primitive
from inlay.format.values import order_key
from inlay.parquet.arrow.evaluate import like
from inlay.plan.pruning.literals import (
    any_of,
    asked_of_text,
    condition_on,
    equal_values,
    plainly,
    texts_of,
)

INT, STRING = Primitive("int64"), Primitive("string")


@given(some.tables(max_rows=5))
@settings(deadline=None, max_examples=100)
def test_a_condition_in_plain_form_has_the_same_result_for_every_row(table):
    _, rows, predicate = table
    plain = plainly(predicate)
    for row in rows:
        assert oracle.truth(plain, row) is oracle.truth(predicate, row)
    for node in walk(plain):
        if isinstance(node, Not):
            assert not isinstance(node.part, Comparison | And | Or | Not)


@given(st.lists(some.tables(max_rows=3), min_size=1, max_size=3))
@settings(deadline=None, max_examples=40)
def test_one_of_many_is_true_where_one_is(tables):
    predicates = [predicate for _, _, predicate in tables]
    joined = any_of(predicates)
    for _, rows, _ in tables:
        for row in rows:
            expected = oracle.truth(Or(tuple(predicates)), row) is True
            assert (oracle.truth(joined, row) is True) is expected


def is_(field, value, op="="):
    return Comparison(field, op, Literal(INT if isinstance(value, int) else STRING, value))


def test_equalities_of_a_column_become_one_list():
    assert any_of([is_(1, 5), In(1, INT, (3, 5)), is_(1, 9)]) == In(1, INT, (3, 5, 9))
    assert any_of([is_(1, 5), is_(2, 5)]) == Or((In(1, INT, (5,)), In(2, INT, (5,))))
    assert any_of([is_(1, 5), IsNull(2)]) == Or((IsNull(2), In(1, INT, (5,))))
    assert any_of([is_(1, 5)]) == is_(1, 5)
    assert any_of([IsNull(1), IsNull(2)]) == Or((IsNull(1), IsNull(2)))
    assert any_of([is_(1, 5), is_(1, "a")]) == Or((In(1, INT, (5,)), In(1, STRING, ("a",))))


def test_bounds_that_meet_are_a_value():
    low, high = is_(1, 5, ">="), is_(1, 5, "<=")
    assert plainly(And((low, high))) == is_(1, 5)
    assert plainly(And((low, IsNull(2), high))) == And((IsNull(2), is_(1, 5)))
    for other in (is_(1, 6, "<="), is_(2, 5, "<="), is_(1, 5, "<")):
        assert plainly(And((low, other))) == And((low, other))
    assert plainly(Not(Or((is_(1, 5, "<"), is_(1, 5, ">"))))) == is_(1, 5)
    assert plainly(Like(1, "")) == Like(1, ""), "an empty text names nothing"


def test_the_part_of_a_condition_on_a_column():
    a, b, c = is_(1, 5), is_(2, 5), is_(1, 7)
    assert condition_on(Or((a, b)), 1) == a and condition_on(Or((a, b, c)), 1) == Or((a, c))
    assert condition_on(And((a, b, c)), 1) == And((a, c)) and condition_on(TRUE, 1) is None
    assert condition_on(Not(And((b, a))), 1) == Not(a) and condition_on(Not(b), 1) is None


@pytest.mark.parametrize(
    ("condition", "values"),
    [
        (is_(1, 5), [5]),
        (In(1, INT, (3, 5)), [3, 5]),
        (Or((is_(1, 5), In(1, INT, (3,)))), [5, 3]),
        (Or((is_(1, 5), IsNull(1))), None),
        (Or((IsNull(1), is_(1, 5))), None),
        (is_(1, 5, "<"), None),
        (And((is_(1, 5),)), None),
        (Not(is_(1, 5)), None),
    ],
)
def test_the_values_that_alone_are_allowed(condition, values):
    found = equal_values(condition)
    assert (found if found is None else [value for _, value in found]) == values


def test_texts_of_four_characters_are_looked_for():
    assert texts_of(Or((is_(1, "abc"), is_(1, "abcd"), In(1, INT, (123, 1234))))) == {
        "abcd",
        "1234",
    }
    assert texts_of(Or((is_(1, "abcde", "<"), Not(In(1, STRING, ("abcde",)))))) == frozenset()
    assert texts_of(Like(1, "abc%defg%")) == {"defg"}
    assert asked_of_text(Or((is_(1, "abc"), is_(1, 1234))), 7) is None
    assert asked_of_text(Like(1, "abc%d"), 7) is None
    assert asked_of_text(Like(1, "abc%defg"), 7) == Like(7, "abc%defg")
    both = Or((Like(1, "abcd%"), is_(2, "wxyz"), In(3, STRING, ("abcd", "ab"))))
    assert asked_of_text(both, 7) == Or((Like(7, "abcd%"), In(7, STRING, ("abcd", "wxyz"))))


def test_conditions_that_select_are_those_not_negated():
    a, b = is_(1, 5), IsNull(2)
    assert list(conditions(And((a, Or((b, Not(a))))))) == [a, b]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_list_holds_each_value_once_and_in_order(length):
    kind = Primitive("double")
    for values in itertools.product((1.0, 2.0, 3.0, math.nan, -0.0, 0.0), repeat=length):
        keys = [order_key(value) for value in In(1, kind, values).values]
        assert keys == sorted(set(map(order_key, values)))


def test_patterns_match_what_the_definition_says():
    """Every pattern of up to four signs on every text of up to three."""
    texts = ["".join(t) for n in range(4) for t in itertools.product("a%\n", repeat=n)]
    for length in range(5):
        for signs in itertools.product(("a", "%", "_", "\\%"), repeat=length):
            pattern = "".join(signs)
            matched = {text for text in texts if oracle.like(text, pattern)}
            assert {text for text in texts if like_matches(pattern, text)} == matched
            found = pc.match_substring_regex(pa.array(texts), like_re2(pattern)).to_pylist()
            assert {text for text, is_one in zip(texts, found, strict=True) if is_one} == matched
            shown = like(pa.array([*texts, None]), pattern).to_pylist()
            assert shown == [*(text in matched for text in texts), None], pattern
            prefix, every = like_prefix(pattern)
            assert all(text.startswith(prefix) for text in matched)
            begins = {text for text in texts if text.startswith(prefix)}
            assert (begins == matched) or not every
            exact = like_exact(pattern)
            plain = not {"%", "_"} & set(signs)
            assert exact == (pattern.replace("\\", "") if plain else None)
            assert exact is None or matched == {exact} & set(texts)


@pytest.mark.parametrize(
    ("kind", "value", "texts"),
    [
        ("date", 19_782, {"2024-02-29"}),
        ("date", -1, {"1969-12-31"}),
        ("date", 2**31 - 1, set()),  # beyond the calendar
        ("timestamp(s)", 86_399, {"1970-01-01T23:59:59", "1970-01-01 23:59:59"}),
        ("timestamp(ms)", 86_399_999, {"1970-01-01T23:59:59", "1970-01-01 23:59:59"}),
        ("timestamptz(us)", -1, {"1969-12-31T23:59:59", "1969-12-31 23:59:59"}),
        ("timestamp(ns)", 10**9, {"1970-01-01T00:00:01", "1970-01-01 00:00:01"}),
        ("timestamp(s)", 10**15, set()),
        ("time(ms)", 5_000, set()),
        ("int64", 12_345, {"12345"}),
        ("int64", 123, set()),
        ("bool", True, set()),
        ("double", 1.25, {"1.25"}),
        ("decimal(9,2)", Decimal("1200.50"), {"1200.50", "1200.5"}),
        ("decimal(9,2)", Decimal("1200.00"), {"1200.00", "1200"}),
        ("binary", b"abcd", {"abcd", "61626364"}),
        ("binary", b"\xff\x0a", {"ff0a", "FF0A"}),
        (
            "fixed(16)",
            bytes(range(0xA0, 0xB0)),
            {
                "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
                "A0A1A2A3A4A5A6A7A8A9AAABACADAEAF",
                "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf",
                "A0A1A2A3-A4A5-A6A7-A8A9-AAABACADAEAF",
            },
        ),
    ],
)
def test_a_value_is_spelled_as_people_write_it(kind, value, texts):
    of = parse_primitive(kind)
    assert texts_of(Comparison(1, "=", Literal(of, value))) == texts
    assert texts_of(In(1, of, (value,))) == texts
