"""Which values of a temporal type another one has: years against nanoseconds."""

from __future__ import annotations

from itertools import product

import pytest

from inlay.format.schema import Primitive
from inlay.format.values import covered_range, integer_range, nanos_per_step

STAMPS = [Primitive("timestamp", unit=unit) for unit in ("ms", "us", "ns")]
PAIRS = [
    (source, target)
    for source, target in product([Primitive("date"), *STAMPS], STAMPS)
    if nanos_per_step(source) >= nanos_per_step(target)
]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_the_range_is_that_of_all_values_that_are_still_numbers(
    source: Primitive, target: Primitive
) -> None:
    of_source, of_target = integer_range(source), integer_range(target)
    assert of_source is not None and of_target is not None
    times = nanos_per_step(source) // nanos_per_step(target)
    found = covered_range(source, target) or of_source

    def is_held(value: int) -> bool:
        inside = of_source[0] <= value <= of_source[1]
        return inside and of_target[0] <= value * times <= of_target[1]

    assert is_held(found[0]) and not is_held(found[0] - 1)
    assert is_held(found[1]) and not is_held(found[1] + 1)
    everything = all(map(is_held, of_source))
    assert (covered_range(source, target) is None) == everything


def test_numbers_have_no_such_range() -> None:
    assert covered_range(Primitive("int32"), Primitive("int64")) is None
    assert covered_range(Primitive("int32"), Primitive("timestamp", unit="ns")) is None
