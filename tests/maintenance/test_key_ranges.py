"""Garbage that is looked for by many processes, each with ranges of the keys."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inlay.ops.maintain.garbage_ranges import key_ranges


@pytest.mark.parametrize("cuts", [[], ["b"], ["a", "b", "m", "zz"], ["data/2020/", "data/2021/"]])
def test_each_key_is_in_one_range_whatever_the_cuts_are(cuts: Sequence[str]) -> None:
    needed = ["a", "b", "ba", "data/2020/", "data/2020/01", "z", "zzz"]
    ranges = list(key_ranges(needed, cuts))
    assert sorted(key for part in ranges for key in part.needed) == needed
    for part in ranges:
        for key in part.needed:
            assert part.after is None or part.after < key
            assert part.until is None or key <= part.until
    assert [part.after for part in ranges[1:]] == [part.until for part in ranges[:-1]] == list(cuts)
