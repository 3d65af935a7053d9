"""Dead entries are recorded by two bitmaps: that of a leaf in its node, and that of the node. Which leaves
and nodes are written again, counted exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from pyroaring import FrozenBitMap

from inlay.format.snapshot import NODE_MAX_LEAVES, Segment, Tier
from inlay.plan.change import NeedSegments
from inlay.plan.metadata.leaves import (
    GATHER_LEAVES,
    HEAVY_DEAD_BYTES,
    REFERENCE_BYTES,
    Packing,
    Writer,
    gather,
    gatherable,
    rebuild,
    roll,
)
from inlay.plan.metadata.state import mark_dead, open_tree, under


def leaf(name: str, count: int, *dead: int) -> Segment:
    return Segment(id=name, count=count, size=1, dead=FrozenBitMap(dead))


LEAVES = (leaf("a", 4, 1), leaf("b", 3), leaf("c", 2, 0))
NODE = Segment(id="n", level=1, count=9, settled=2, size=1, dead=FrozenBitMap((3, 5)))


def test_what_died_since_is_added_to_what_the_node_says() -> None:
    found = {s.id: set(s.dead) for s in under(NODE, LEAVES)}
    assert found == {"a": {1, 3}, "b": {1}, "c": {0}}
    assert NODE.live == sum(s.live for s in under(NODE, LEAVES)) == 5


def test_what_is_buried_in_a_leaf_ends_up_in_the_reference_to_its_node() -> None:
    [node] = mark_dead([NODE], {"n": LEAVES}, {"b": [0], "c": [1]})
    assert set(node.dead) == {3, 4, 5, 8} and node.live == 3
    opened = open_tree([node], {"n": LEAVES})
    assert {s.id: set(s.dead) for s in opened.leaves} == {"a": {1, 3}, "b": {0, 1}}, "c is gone"


def test_a_node_whose_entries_are_all_dead_is_dropped() -> None:
    dead = {s.id: range(s.count) for s in LEAVES}
    # What the node itself calls dead is not buried again.
    dead = {
        i: [n for n in found if (i, n) not in {("a", 1), ("c", 0)}] for i, found in dead.items()
    }
    assert mark_dead([NODE], {"n": LEAVES}, dead) == ()


def test_what_is_not_wanted_is_counted_and_not_opened() -> None:
    opened = open_tree([NODE, leaf("d", 7)], {}, lambda found: [s.level == 0 for s in found])
    assert [s.id for s in opened.leaves] == ["d"] and opened.closed == () and opened.left_out == 5


class Held(Packing[str]):
    """Of four entries a leaf; those called "grows" are still open for the next branch."""

    kind = "files"
    most = 4

    def encode(self, entries: Sequence[str]) -> bytes:
        return b""

    def is_new(self, entry: str) -> bool:
        return False

    def live(self, leaf: Segment) -> list[str] | None:
        return []

    def may_gather(self, leaf: Segment) -> bool:
        return not leaf.id.startswith("held")


def test_gathering_saves_references_to_leaves_and_bitmaps_of_the_dead() -> None:
    def saved(*segments: Segment) -> int:
        return gatherable(Tier(segments), Held())

    full = [leaf(f"f{n}", 4) for n in range(GATHER_LEAVES)]
    assert saved(*full) == GATHER_LEAVES * REFERENCE_BYTES
    assert saved(*full[1:]) == 0, "too few to write a node for"
    assert saved(*full[1:], leaf("held", 4)) == 0 and saved(*full[1:], leaf("small", 1)) == 0
    dead = FrozenBitMap(range(0, 8_000, 3))
    heavy = Segment(id="n", level=1, count=9_000, size=1, dead=dead)
    assert len(dead.serialize()) > HEAVY_DEAD_BYTES
    assert saved(NODE) == 0 and saved(heavy) == len(dead.serialize())
    assert saved(NODE, *full[1:]) == 0, "a node is no leaf"
    assert saved(Segment(id="held", count=9_000, size=1, dead=dead)) == 0, "a leaf is no node"
    for entries, weight in ((120, 0), (121, HEAVY_DEAD_BYTES + 2)):
        just = FrozenBitMap(range(0, 2 * entries, 2))
        assert len(just.serialize()) == HEAVY_DEAD_BYTES + 2 * (entries - 120)
        assert saved(Segment(id="n", level=1, count=9_000, size=1, dead=just)) == weight
    assert saved(heavy, *full) == len(dead.serialize()) + GATHER_LEAVES * REFERENCE_BYTES


class Counted(Packing[int]):
    """Of 16 entries a leaf; those from 1,000 on are new. A leaf is full from 9 on."""

    kind = "files"
    most = 16
    types: Any = MappingProxyType({})

    def encode(self, entries: Sequence[int]) -> bytes:
        return str(list(entries)).encode()

    def is_new(self, entry: int) -> bool:
        return entry >= 1_000

    def live(self, leaf: Segment) -> list[int] | None:
        return None if leaf.id.startswith("unloaded") else list(range(leaf.live))

    def may_gather(self, leaf: Segment) -> bool:
        return super().may_gather(leaf) and not leaf.id.startswith("held")

    def is_needed(self, leaf: Segment) -> bool:
        return super().is_needed(leaf) and not leaf.id.startswith("old")

    def in_order(self, entries: Sequence[int]) -> Sequence[int]:
        return sorted(entries)


def writer() -> Writer:
    return Writer(7, lambda data: f"written {data.hex()}")


def shape(tier: Tier[Any] | NeedSegments) -> list[Any]:
    """The entries of each leaf; of a node, with its level."""
    assert isinstance(tier, Tier)
    return [(s.level, s.live) if s.level else s.live for s in tier.segments]


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ([4], 1, 0, [5]),
        ([5], 1, 0, [5, 1]),  # more than four times as large
        ([12], 4, 0, [16]),
        ([13], 4, 0, [13, 4]),  # more than a leaf holds
        ([8, 4], 1, 0, [13]),
        ([9, 8, 4], 1, 0, [9, 13]),
        ([], 17, 0, [8, 9]),
        ([], 33, 0, [11, 11, 11]),
        ([3], 0, 8, [11]),
        ([3], 0, 9, [9, 3]),  # many new ones are leaves of their own, before those that still grow
        ([8], 0, 10, [10, 8]),
        ([9], 0, 10, [9, 10]),
        ([14, 3], 1, 9, [14, 9, 4]),
    ],
)
def test_inline_entries_join_leaves_that_are_not_much_larger(
    before: list[int], old: int, new: int, after: list[int]
) -> None:
    segments = tuple(leaf(f"{n}", count) for n, count in enumerate(before))
    inline = (*range(old), *range(1_000, 1_000 + new))
    pen = writer()
    rolled = roll(Tier(segments, inline), Counted(), pen)
    assert shape(rolled) == after and isinstance(rolled, Tier) and not rolled.inline
    written = [s for s in rolled.segments if s not in segments]
    assert {s.id for s in pen.written} == {s.id for s in written}
    assert {s.sequence for s in written} == {7}
    joined = [s for s in segments if s not in rolled.segments]
    entries = [n for s in joined for n in range(s.live)]
    assert [n for w in pen.written for n in w.entries] == [*entries, *inline]


def test_a_node_takes_no_entries_and_a_leaf_must_be_loaded_to_take_some() -> None:
    node = Segment(id="n", level=1, count=2, size=1)
    assert shape(roll(Tier((node,), (0,)), Counted(), writer())) == [(1, 2), 1]
    assert shape(roll(Tier((node,), tuple(range(1_000, 1_009))), Counted(), writer())) == [
        (1, 2),
        9,
    ]
    unloaded = leaf("unloaded", 2)
    assert roll(Tier((unloaded,), (0,)), Counted(), writer()) == NeedSegments(files=(unloaded,))


def test_what_the_same_plan_has_written_is_written_again_and_not_kept() -> None:
    pen = writer()
    once = roll(Tier((), (1, 2)), Counted(), pen)
    assert isinstance(once, Tier) and len(pen.written) == 1
    twice = roll(replace(once, inline=(3,)), Counted(), pen)
    assert shape(twice) == [3] and [w.entries for w in pen.written] == [(1, 2, 3)]


def test_full_leaves_move_into_the_last_node() -> None:
    first = Segment(id="first", level=1, count=9, size=1)
    last = Segment(id="last", level=1, count=9, settled=2, size=1, dead=FrozenBitMap((3, 5)))
    heavy = FrozenBitMap(range(0, 2 * 121, 2))
    torn = Segment(id="torn", level=1, count=400, size=1, dead=heavy)
    dead, old = leaf("a", 400), leaf("old", 5)
    full, held, small = leaf("f", 9), leaf("held", 12), leaf("small", 8)
    tier = Tier((torn, first, last, full, held, small), ())
    nodes = {"last": (*LEAVES, old), "torn": (dead,)}
    pen = writer()
    gathered = gather(tier, Counted(), pen, nodes)
    # 279 of the torn one, 5 of the last, 9 more; what still grows, or is held, stays what it is.
    assert shape(gathered) == [(1, 9), (1, 279 + 5 + 9), 12, 8]
    [made] = pen.written
    assert [s.id for s in made.entries] == ["a", "a", "b", "c", "f"] and made.kind == "nodes"
    assert gather(tier, Counted(), writer(), {"torn": (dead,)}) == NeedSegments(files=(last,))
    assert gather(tier, Counted(), writer(), {"last": LEAVES}) == NeedSegments(files=(torn,))


def test_a_node_says_what_is_below_it() -> None:
    below = [
        replace(leaf(f"{n}", 9, 0), rows=5, bytes=7, sequence=n or None, first_us=90 - n, last_us=n)
        for n in range(NODE_MAX_LEAVES + 1)
    ]
    full, rest = writer().nodes(Counted(), below)
    assert (full.level, full.count, full.settled, full.live) == (
        1,
        9 * NODE_MAX_LEAVES,
        NODE_MAX_LEAVES,
        8 * NODE_MAX_LEAVES,
    )
    assert (full.rows, full.bytes) == (5 * NODE_MAX_LEAVES, 7 * NODE_MAX_LEAVES)
    assert full.sequence == max(7, NODE_MAX_LEAVES - 1)
    assert (full.first_us, full.last_us) == (
        min(0, 91 - NODE_MAX_LEAVES),
        max(90, NODE_MAX_LEAVES - 1),
    )
    assert (rest.count, rest.live) == (9, 8)
    assert (full.schema_id, full.stats) == (0, {})


@pytest.mark.parametrize(
    ("others", "chosen", "after"),
    [
        ([12, 3], [4, 5], [12, 9, 3]),
        ([12, 3], [4, 4], [12, 3, 8]),
        ([9] * (GATHER_LEAVES - 2), [4, 5], [9] * (GATHER_LEAVES - 1)),
        ([9] * (GATHER_LEAVES - 1), [4, 5], [(1, 9 * GATHER_LEAVES)]),
        ([12, 3], [], [12, 3]),
    ],
)
def test_chosen_leaves_are_written_again_in_order(
    others: list[int], chosen: list[int], after: list[Any]
) -> None:
    segments = [leaf(f"{n}", count) for n, count in enumerate(others)]
    segments += [leaf(f"chosen {n}", count) for n, count in enumerate(chosen)]
    tier = Tier(tuple(segments), (1,))

    def rebuilt(nodes: Any, **more: Any) -> Tier[int] | NeedSegments:
        of = replace(tier, **more)
        return rebuild(of, Counted(), writer(), nodes, lambda s: "chosen" in s.id)

    assert shape(rebuilt({})) == after
    below = {"n": segments}
    node = Segment(id="n", level=1, count=sum(s.count for s in segments), size=1)
    assert shape(rebuilt(below, segments=(node,))) == (after if chosen else [(1, node.count)])
    assert rebuilt({}, segments=(node,)) == NeedSegments(files=(node,))
    unloaded = leaf("unloaded chosen", 4)
    assert rebuilt({}, segments=(*segments, unloaded)) == NeedSegments(files=(unloaded,))
