"""The durable form of predicates: one spelling, bounded, and nothing else is read."""

from __future__ import annotations

import json

import predicate_strategies as some
import pytest
from hypothesis import given, settings

from inlay.errors import CorruptTable, InvalidPredicate
from inlay.format.predicate import (
    MAX_DEPTH,
    MAX_NODES,
    TRUE,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    check_bounds,
    predicate_from_json,
    predicate_to_json,
)
from inlay.format.schema import Primitive

INT = Primitive("int64")


@given(some.tables(max_rows=0))
@settings(deadline=None, max_examples=100)
def test_a_predicate_survives_json(table):
    predicate = table[2]
    text = json.dumps(predicate_to_json(predicate), allow_nan=False)
    back = predicate_from_json(json.loads(text))
    assert repr(back) == repr(predicate)  # NaN is not equal to itself in Python


def test_the_form_is_the_documented_one():
    predicate = And(
        (
            Comparison(3, "<=", Literal(INT, 42)),
            Or((In(3, INT, (1, 2)), Like(4, "a%"), Not(IsNull(4)), Constant(None))),
        )
    )
    assert json.dumps(predicate_to_json(predicate)) == (
        '["and", ["<=", 3, "int64", 42], '
        '["or", ["in", 3, "int64", [1, 2]], ["like", 4, "a%"], ["not", ["null", 4]], null]]'
    )


@pytest.mark.parametrize(
    "found",
    [
        1,
        "true",
        {},
        [],
        ["=", 3, "int64"],
        ["==", 3, "int64", 1],
        ["=", "3", "int64", 1],
        ["=", 0, "int64", 1],
        ["=", True, "int64", 1],
        ["=", 3, "int65", 1],
        ["=", 3, ["int64"], 1],
        ["=", 3, "int8", 300],
        ["=", 3, "int64", None],
        [["="], 3, "int64", 1],
        ["in", 3, "int64", []],
        ["in", 3, "int64", [2, 1]],
        ["in", 3, "int64", [1, 1]],
        ["in", 3, "double", ["NaN", 1.0]],
        ["in", 3, "double", [0.0, -0.0]],
        ["in", 3, "int64", 1],
        ["like", 3, "a\\"],
        ["like", 3, 1],
        ["null"],
        ["not"],
        ["not", True, True],
        ["and", 3],
        ["xor", True, False],
    ],
    ids=str,
)
def test_anything_else_is_corrupt(found):
    with pytest.raises(CorruptTable):
        predicate_from_json(found)


def nested(levels, within=Not):
    predicate = TRUE
    for _ in range(levels):
        predicate = within(predicate)
    return predicate


@pytest.mark.parametrize(
    "within", [Not, lambda p: And((TRUE, p)), lambda p: Or((TRUE, p))], ids=["not", "and", "or"]
)
def test_the_deepest_that_is_stored_is_read(within):
    deepest = nested(MAX_DEPTH - 1, within)
    assert predicate_from_json(predicate_to_json(deepest)) == deepest
    with pytest.raises(InvalidPredicate, match="deeper"):
        predicate_to_json(nested(MAX_DEPTH, within))


def test_depth_is_bounded_both_ways():
    with pytest.raises(InvalidPredicate, match="deeper"):
        predicate_to_json(nested(100_000))


@pytest.mark.parametrize("name", ["not", "and", "or"])
def test_a_text_deeper_than_python_recurses_is_refused_before_it_is_built(name):
    body = True
    for level in range(1, 3_000):
        body = [name, body]
        if level in (MAX_DEPTH, 2_999):
            with pytest.raises(CorruptTable, match="deeper"):
                predicate_from_json(body)


def test_size_counts_the_values_of_lists():
    longest = In(1, INT, tuple(range(MAX_NODES)))
    most = And((TRUE,) * (MAX_NODES - 1))
    assert check_bounds(longest) is longest and check_bounds(most) is most
    within = Or((In(1, INT, tuple(range(MAX_NODES - 2))), TRUE))
    assert check_bounds(within) is within
    with pytest.raises(InvalidPredicate, match="more than"):
        check_bounds(Or((within, TRUE)))
    with pytest.raises(InvalidPredicate, match="more than"):
        predicate_to_json(In(1, INT, tuple(range(MAX_NODES + 1))))
    with pytest.raises(InvalidPredicate, match="more than"):
        predicate_to_json(And((TRUE,) * MAX_NODES))
    with pytest.raises(CorruptTable, match="more than"):
        predicate_from_json(["in", 1, "int64", list(range(MAX_NODES + 1))])


def test_a_condition_of_as_many_values_as_are_allowed_is_taken(monkeypatch):
    monkeypatch.setattr("inlay.format.predicate.MAX_NODES", 3)
    check_bounds(In(1, INT, (1, 2, 3)))
    check_bounds(And((TRUE, TRUE)))
    for over in (In(1, INT, (1, 2, 3, 4)), And((TRUE, TRUE, TRUE))):
        with pytest.raises(InvalidPredicate, match="more than 3"):
            check_bounds(over)
