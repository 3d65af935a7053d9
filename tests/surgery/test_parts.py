"""Part plans keep S3's rules and download as little as any plan could."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.plan.parts import (
    GIB,
    MIB,
    S3_LIMITS,
    PartLimits,
    PartsError,
    PlannedPart,
    Segment,
    borrowed_bytes,
    plan_parts,
)
from inlay.storage import base

TINY = PartLimits(minimum=3, maximum=1000, count=50, split_copied=1000, split_sent=1000)


def copied(length: int) -> Segment:
    return Segment(length, copy=True)


def ours(length: int) -> Segment:
    return Segment(length, copy=False)


def check(
    segments: Sequence[Segment],
    parts: Sequence[PlannedPart],
    limits: PartLimits,
    final: bool = True,
) -> None:
    """The rules, one by one."""
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])][: len(parts)]
    assert (parts[-1].end if parts else 0) == sum(segment.length for segment in segments)
    assert len(parts) <= limits.count
    for at, part in enumerate(parts):
        is_last = final and at == len(parts) - 1
        assert 0 < part.length <= limits.maximum
        assert is_last or part.length >= limits.minimum
    edges, offset = [], 0
    for segment in segments:
        edges.append((offset, offset + segment.length, segment.copy))
        offset += segment.length
    for part in parts:
        if part.copy:
            assert any(copy and s <= part.start and part.end <= e for s, e, copy in edges)


def exhaustive(
    segments: Sequence[Segment], least: int, final: bool, part_costs: int = 0
) -> tuple[int, int] | None:
    """The least (bytes borrowed + `part_costs` for each part, parts) by trying every byte as a boundary."""
    kinds = [at for at, segment in enumerate(segments) for _ in range(segment.length)]
    total = len(kinds)

    @cache
    def best(start: int) -> tuple[int, int] | None:
        if start == total:
            return 0, 0
        found = []
        for end in range(start + 1, total + 1):
            if end - start < least and not (final and end == total):
                continue
            rest = best(end)
            if rest is None:
                continue
            one_run = kinds[start] == kinds[end - 1] and segments[kinds[start]].copy
            cost = 0 if one_run else sum(segments[k].copy for k in kinds[start:end])
            found.append((rest[0] + cost + part_costs, rest[1] + 1))
        return min(found, default=None)

    return best(0)


@pytest.mark.parametrize("minimum", [2, 3, 5])
@pytest.mark.parametrize("final", [True, False])
def test_no_plan_downloads_less_by_exhaustive_search(final: bool, minimum: int) -> None:
    dice = random.Random(5)
    limits = replace(TINY, minimum=minimum)
    for _ in range(700):
        segments = [
            Segment(dice.choice([0, 1, 1, 2, 3, 4, 7, 11]), copy=dice.random() < 0.6)
            for _ in range(dice.randrange(1, 8))
        ]
        expected = exhaustive(segments, limits.minimum, final)
        parts = plan_parts(segments, limits=limits, final=final)
        if expected is None:
            assert parts is None
            continue
        assert parts is not None
        check(segments, parts, limits, final)
        assert (borrowed_bytes(segments, parts), len(parts)) == expected, segments


def test_runs_that_each_give_too_little_give_together() -> None:
    """What one can spare and still be copied, and the rest from the one after it."""
    for minimum in (4, 5, 6):
        limits = replace(TINY, minimum=minimum)
        sizes = range(minimum, 3 * minimum)
        for before, left, right in product((0, 1), sizes, sizes):
            segments = [ours(before), copied(left), ours(1), copied(right), ours(9)]
            parts = plan_parts(segments, limits=limits)
            assert parts is not None
            found = borrowed_bytes(segments, parts), len(parts)
            assert found == exhaustive(segments, minimum, final=True), segments


# c: a run that the store has.
@pytest.mark.parametrize(
    "runs",
    ["12 1 4c 3 4c 1c", "8c 24 5c 1c 1c 5c 8c 5c 1", "5c 1 8c 1 5c 24c 5c", "11c 3 4c 1c 3c"],
)
def test_of_plans_that_download_the_same_the_one_of_fewest_parts(runs: str) -> None:
    """Where runs of the minimum and a little more can be copied or sent in many ways."""
    segments = [Segment(int(run.rstrip("c")), copy="c" in run) for run in runs.split()]
    for final in (True, False):
        parts = plan_parts(segments, limits=replace(TINY, minimum=4), final=final)
        assert parts is not None
        found = borrowed_bytes(segments, parts), len(parts)
        assert found == exhaustive(segments, 4, final)


def test_pieces_are_at_most_so_large_and_never_below_the_minimum() -> None:
    limits = replace(TINY, minimum=4, split_copied=6, split_sent=5)
    for length in range(1, 60):
        for segment, most in ((copied(length), 6), (ours(length), 5)):
            parts = plan_parts([segment], limits=limits)
            assert parts is not None
            check([segment], parts, limits)
            lengths = [part.length for part in parts]
            assert len(parts) == max(1, min(-(-length // most), length // 4))
            assert max(lengths) - min(lengths) <= 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(Segment, st.integers(0, 40 * MIB) | st.integers(0, 9 * GIB), st.booleans()),
        max_size=30,
    ),
    st.booleans(),
)
def test_every_plan_keeps_the_rules(segments: list[Segment], final: bool) -> None:
    parts = plan_parts(segments, final=final)
    if parts is None:
        assert not final and sum(s.length for s in segments) < 5 * MIB
    else:
        check(segments, parts, S3_LIMITS, final)


def test_the_limits_are_the_stores() -> None:
    assert (S3_LIMITS.minimum, S3_LIMITS.maximum, S3_LIMITS.count) == (
        base.MIN_PART_BYTES,
        base.MAX_PART_BYTES,
        base.MAX_PARTS,
    )


def test_one_edited_group_in_the_middle_borrows_nothing() -> None:
    segments = [copied(100 * MIB), ours(12 * MIB), copied(140 * MIB), ours(90_000)]
    parts = plan_parts(segments)
    assert parts is not None
    assert [part.copy for part in parts] == [True, False, True, False]
    assert borrowed_bytes(segments, parts) == 0


def test_a_dropped_first_group_leaves_a_magic_that_borrows_five_mebibytes() -> None:
    segments = [copied(4), copied(240 * MIB), ours(90_000)]
    parts = plan_parts(segments)
    assert parts is not None
    assert [part.copy for part in parts] == [False, True, False]
    assert parts[0].length == 5 * MIB
    assert borrowed_bytes(segments, parts) == 5 * MIB


def test_a_small_edit_borrows_only_what_it_lacks() -> None:
    segments = [copied(900 * MIB), ours(1 * MIB), copied(80 * MIB), ours(1000)]
    parts = plan_parts(segments)
    assert parts is not None
    assert borrowed_bytes(segments, parts) == 4 * MIB


def test_small_objects_are_sent_whole() -> None:
    segments = [copied(2 * MIB), ours(1 * MIB), copied(3 * MIB), ours(1000)]
    parts = plan_parts(segments)
    assert parts is not None
    assert not any(part.copy for part in parts)


def test_runs_above_five_gibibytes_are_copied_in_several_parts() -> None:
    segments = [copied(23 * GIB + 1), ours(6 * GIB), copied(40 * GIB), ours(3 * MIB)]
    parts = plan_parts(segments)
    assert parts is not None
    check(segments, parts, S3_LIMITS)
    assert borrowed_bytes(segments, parts) == 0
    assert max(part.length for part in parts if not part.copy) <= S3_LIMITS.split_sent


def test_five_tebibytes_stay_within_ten_thousand_parts() -> None:
    segments = [copied(5 * 1024 * GIB - 10 * MIB), ours(10 * MIB)]
    parts = plan_parts(segments)
    assert parts is not None
    check(segments, parts, S3_LIMITS)


def test_too_many_small_edits_trade_download_for_parts() -> None:
    """600 edits between copied runs: one part each would be 1,200."""
    limits = replace(S3_LIMITS, count=1_000)
    segments = [copied(6 * MIB), ours(6 * MIB)] * 600
    parts = plan_parts(segments, limits=limits)
    assert parts is not None
    check(segments, parts, limits)


def test_too_many_parts_cost_more_and_more_until_they_fit() -> None:
    """No plan is better at the first cost of a part, of 0, 64 KiB, 128 KiB, …, whose best plan fits."""
    dice = random.Random(7)
    unit = 32 * 1024
    fitted = set()
    for _ in range(150):
        least, final, count = dice.choice([2, 3]), dice.random() < 0.5, dice.randrange(1, 7)
        units = [
            Segment(dice.choice([1, 2, 3, 5, 7]), copy=n % 2 == 0 or dice.random() < 0.2)
            for n in range(dice.randrange(4, 9))
        ]
        parts = plan_parts(
            [Segment(s.length * unit, s.copy) for s in units],
            limits=PartLimits(least * unit, 100 * unit, count, 100 * unit, 100 * unit),
            final=final,
        )
        assert parts is not None
        for part_costs in (0, 2, 4, 8, 16, 32, 64):
            best = exhaustive(units, least, final, part_costs)
            assert best is not None
            if best[1] <= count:
                break
        borrowed = borrowed_bytes([Segment(s.length * unit, s.copy) for s in units], parts)
        assert (borrowed + part_costs * unit * len(parts), len(parts)) == (best[0] * unit, best[1])
        fitted.add(part_costs)
    assert fitted >= {0, 2, 4, 8}


def test_a_part_is_worth_sixty_four_kibibytes_once_larger_parts_do_not_fit() -> None:
    """Sending what is between two sent parts saves two parts."""
    worth = 2 * 64 * 1024
    segments = [ours(worth), copied(worth), ours(worth), copied(worth + 1), ours(worth)]
    for count, found in ((5, (5, 0)), (4, (3, worth)), (3, (3, worth)), (2, (1, 2 * worth + 1))):
        parts = plan_parts(segments, limits=PartLimits(1024, GIB, count, GIB, GIB))
        assert parts is not None and (len(parts), borrowed_bytes(segments, parts)) == found
    segments = [ours(10), copied(1), ours(10)]
    for count, found in ((5, (5, 0)), (4, (3, 0)), (3, (3, 0)), (2, (1, 1))):
        parts = plan_parts(segments, limits=PartLimits(1, 100, count, 5, 5))
        assert parts is not None and (len(parts), borrowed_bytes(segments, parts)) == found


def test_what_just_fits_is_held_and_pieces_stay_small_while_there_are_parts_for_them() -> None:
    limits = PartLimits(minimum=2, maximum=4, count=3, split_copied=2, split_sent=2)
    for length, lengths in ((6, [2, 2, 2]), (8, [4, 4]), (12, [4, 4, 4])):
        parts = plan_parts([copied(length)], limits=limits)
        assert parts is not None and [part.length for part in parts] == lengths
    with pytest.raises(PartsError, match="more than 3 parts can hold"):
        plan_parts([copied(13)], limits=limits)


def test_what_no_plan_can_hold_is_refused() -> None:
    with pytest.raises(PartsError):
        plan_parts([copied(51 * 1000)], limits=TINY)


def test_a_window_that_more_follows_waits_for_five_mebibytes() -> None:
    assert plan_parts([ours(4 * MIB)], final=False) is None
    parts = plan_parts([copied(5 * MIB)], final=False)
    assert parts == (PlannedPart(0, 5 * MIB, copy=True),)


def test_thousands_of_tiny_segments_plan_in_a_moment() -> None:
    segments = [copied(9 * MIB), ours(1), copied(7), ours(2)] * 2_500
    parts = plan_parts(segments)
    assert parts is not None
    check(segments, parts, S3_LIMITS)
