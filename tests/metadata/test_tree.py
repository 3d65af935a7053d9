"""Dead entries are recorded by two bitmaps: that of a leaf in its node, and that of the node."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import FrozenBitMap

from inlay.format.snapshot import Segment, Tier
from inlay.plan.metadata.leaves import (
    GATHER_LEAVES,
    HEAVY_DEAD_BYTES,
    REFERENCE_BYTES,
    Packing,
    gatherable,
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
