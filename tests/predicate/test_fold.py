"""Predicates taken apart and made again: a translator is told of every part."""

from __future__ import annotations

import re

import predicate_strategies as some
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.predicate import Like, Predicate, like_matches
from inlay.format.predicate_fold import PredicateBuilder, PredicateFold


@given(some.predicates(list(some.SCHEMA.fields)))
@settings(deadline=None, max_examples=150)
def test_what_is_made_of_the_parts_is_the_predicate(predicate: Predicate) -> None:
    again = PredicateBuilder().of(predicate)
    # NaN is not equal to itself in Python; one run of wildcards is as good as two.
    assert re.sub("%+", "%", repr(again)) == re.sub("%+", "%", repr(predicate))


@given(
    st.lists(st.sampled_from(["%", "_", "\\%", "\\_", "\\\\", "\\a", "a"]), max_size=6),
    st.text("a%_\\", max_size=6),
)
def test_a_pattern_with_fewer_escapes_matches_the_same(parts: list[str], text: str) -> None:
    pattern = "".join(parts)
    told = PredicateBuilder().of(Like(1, pattern))
    assert isinstance(told, Like)
    assert "\\a" not in told.pattern.replace("\\\\", "")
    assert like_matches(told.pattern, text) == like_matches(pattern, text)


def test_a_translator_that_lacks_a_kind_cannot_be_made() -> None:
    class Lacks(PredicateFold[str]):
        def like(self, field_id: int, pattern: str) -> str:
            return pattern

    with pytest.raises(TypeError, match="abstract"):
        Lacks()  # type: ignore[abstract]
