"""Where rows are once others have been removed: files of three small groups, against a list of rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from pyroaring import BitMap, BitMap64

from inlay.plan.positions import PositionMap, narrow


def cases() -> Iterator[tuple[PositionMap, list[int | None]]]:
    """A map, and what becomes of each position."""
    for rows in itertools.product(range(3), repeat=3):
        choices = [
            [
                None,
                *(set(c) for n in range(size + 1) for c in itertools.combinations(range(size), n)),
            ]
            for size in rows
        ]
        for kept in itertools.product(*choices):
            stays = [
                group is None or at in group
                for group, size in zip(kept, rows, strict=True)
                for at in range(size)
            ]
            numbers = itertools.count()
            expected = [next(numbers) if stay else None for stay in stays]
            groups = {n: BitMap(group) for n, group in enumerate(kept) if group is not None}
            yield PositionMap.of(rows, groups), expected


def test_each_row_that_stays_has_the_number_of_those_before_it() -> None:
    for positions, expected in cases():
        everywhere = range(len(expected))
        assert [positions.one(n) for n in everywhere] == expected
        still_there = [n for n in expected if n is not None]
        assert positions.map(everywhere) == still_there
        assert positions.map(reversed(everywhere)) == still_there[::-1]
        assert (positions.old_rows, positions.new_rows) == (len(expected), len(still_there))
        for some in itertools.chain(
            [()], itertools.combinations(everywhere, 2), [tuple(everywhere)]
        ):
            moved = {expected[n] for n in some} - {None}
            assert set(positions.moved(BitMap64(some))) == moved


@pytest.mark.parametrize("position", [-1, 5])
def test_a_position_beyond_the_file_is_refused(position: int) -> None:
    positions = PositionMap.of((2, 3), {0: BitMap([1])})
    with pytest.raises(ValueError, match=f"position {position} of a file of 5 rows"):
        positions.one(position)


@pytest.mark.parametrize("numbers", [[], [0], [3, 70_000], [2**32 - 1], list(range(0, 200_000, 3))])
def test_a_set_of_32_bit_numbers_is_the_same_as_the_narrow_kind(numbers: list[int]) -> None:
    assert narrow(BitMap64(numbers)) == BitMap(numbers)


def test_a_number_of_more_than_32_bits_is_not_narrowed() -> None:
    with pytest.raises(ValueError, match="more than 32 bits"):
        narrow(BitMap64([2**32]))
