"""What rows were blamed for, and can be asked: % beyond int64, quotations that stay open."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidPredicate

SCHEMA = pa.schema([("u", pa.uint64()), ("i", pa.int64()), ("s", pa.string())])


def a_table(u: int | None, i: int | None, s: str = "") -> inlay.Table:
    table = inlay.create(f"memory://{uuid.uuid4().hex}/t", SCHEMA)
    table.append(pa.table({"u": [u], "i": [i], "s": [s]}, schema=SCHEMA))
    return table.refresh()


def remainder(one: int, other: int) -> int:
    """As SQL has it: with the sign of the first."""
    found = abs(one) % abs(other)
    return -found if one < 0 else found


@given(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
@example(2**64 - 1, -(2**63))
@example(2**63, -(2**63))
@example(2**63, 2**63 - 1)
@example(1, -1)
def test_remainders_of_large_numbers(u: int, i: int) -> None:
    table = a_table(u, i)
    for text, one, other in (("u % i", u, i), ("i % u", i, u), ("u % 7", u, 7), ("u % u", u, u)):
        if other == 0:
            with pytest.raises(InvalidPredicate, match="divides by zero"):
                table.count(where=f"{text} = 0")
            continue
        wanted = remainder(one, other)
        if wanted == -(2**63):
            continue  # has no literal
        assert table.count(where=f"{text} = {wanted}") == 1, text


LITERALS = st.sampled_from([1, 7, 2**63 - 1, 2**63, 2**64 - 1]) | st.integers(1, 2**64 - 1)


@given(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), LITERALS)
@example(2**64 - 1, -(2**63), 2**64 - 1)
@example(2**64 - 1, -(2**63), 2**63)
def test_remainders_by_large_literals(u: int, i: int, literal: int) -> None:
    table = a_table(u, i)
    for text, wanted in (
        (f"u % {literal}", remainder(u, literal)),
        (f"i % {literal}", remainder(i, literal)),
        (f"{literal} % i", None if i == 0 else remainder(literal, i)),
    ):
        if wanted is None or wanted == -(2**63):
            continue
        if wanted >= 2**63:  # a result is of 64 bits with a sign
            with pytest.raises(InvalidPredicate, match="a remainder of % is above"):
                table.count(where=f"{text} = 0")
            continue
        assert table.count(where=f"{text} = {wanted}") == 1, text


@pytest.mark.parametrize("literal", [2**64, -(2**63) - 1, 10**30])
def test_a_literal_that_no_whole_number_is_is_named_and_not_the_row(literal: int) -> None:
    table = a_table(5, 5)
    for text in (f"u % {literal}", f"{literal} % i"):
        with pytest.raises(InvalidPredicate, match="a number beside % is beyond"):
            table.count(where=f"{text} = 0")


def test_remainders_of_null() -> None:
    assert a_table(None, 3).count(where="u % i IS NULL") == 1
    assert a_table(3, None).count(where="u % i IS NULL") == 1
    assert a_table(None, 0).count(where="u % i IS NULL") == 1


TEXT = st.text(st.sampled_from("ab.()[]\\|*^$?"), max_size=5)


@given(TEXT, TEXT)
def test_a_quotation_may_stay_open(text: str, other: str) -> None:
    if "\\E" in text:
        return
    table = a_table(1, 1, text)
    quoted = text.replace("'", "''")
    for pattern in (rf"\Q{quoted}", rf"\Q{quoted}\E", rf"(?:)\Q{quoted}"):
        assert table.count(where=f"regexp_full_match(s, '{pattern}')") == 1
        assert table.count(where=f"regexp_matches(s, '{pattern}')") == 1
    if other != text and "\\E" not in other:
        assert table.count(where=rf"regexp_full_match(s, '\Q{other}')") == 0
