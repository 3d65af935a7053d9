"""The tree of a tier: references to leaves and to nodes, which hold references to leaves.

Promise: `open_tree` gives leaves only, each with all its dead entries, whichever reference records them;
entries marked dead in a leaf are recorded in the reference of the snapshot that leads to it. So no node is
rewritten because an entry died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyroaring import BitMap, FrozenBitMap

from inlay.format.snapshot import Segment

Nodes = Mapping[str, tuple[Segment, ...]]
Wanted = Callable[[Sequence[Segment]], Sequence[bool]]


@dataclass(frozen=True, slots=True)
class Opened:
    """Leaves in the order of the tier, nodes that are not loaded, and the number of live entries under what
    was not wanted."""

    leaves: tuple[Segment, ...]
    closed: tuple[Segment, ...]
    left_out: int = 0


def open_tree(segments: Sequence[Segment], nodes: Nodes, wanted: Wanted | None = None) -> Opened:
    """The leaves under these references. `wanted` filters nodes and leaves."""
    leaves: list[Segment] = []
    closed: list[Segment] = []
    left_out = 0

    def keep(found: Sequence[Segment]) -> Iterator[Segment]:
        nonlocal left_out
        for segment, is_wanted in zip(
            found, wanted(found) if wanted else [True] * len(found), strict=True
        ):
            if is_wanted:
                yield segment
            else:
                left_out += segment.live

    for top in keep(segments):
        if top.level == 0:
            leaves.append(top)
        elif top.id in nodes:
            leaves.extend(keep(list(under(top, nodes[top.id]))))
        else:
            closed.append(top)
    return Opened(tuple(leaves), tuple(closed), left_out)


def under(node: Segment, leaves: Iterable[Segment]) -> Iterator[Segment]:
    """The leaves of a node that have a live entry, with the entries that died since it was written."""
    for offset, leaf in _with_offsets(leaves):
        ordinals = FrozenBitMap(range(offset, offset + leaf.count))
        died = node.dead & ordinals if node.dead else node.dead
        if died:
            leaf = replace(leaf, dead=leaf.dead | died.shift(-offset))
        if leaf.live:
            yield leaf


def mark_dead(
    segments: Iterable[Segment], nodes: Nodes, dead: Mapping[str, Iterable[int]]
) -> tuple[Segment, ...]:
    """The references with more ordinals dead (by leaf id), without those that have no live entry left."""
    found: list[Segment] = []
    for top in segments:
        more = BitMap(dead.get(top.id, ()))
        for offset, leaf in _with_offsets(nodes.get(top.id, ()) if dead else ()):
            if leaf.id in dead:
                more |= BitMap(dead[leaf.id]).shift(offset)
        if more:
            all_dead = BitMap(top.dead) | more
            all_dead.run_optimize()
            top = replace(top, dead=FrozenBitMap(all_dead))
        if top.live > 0:
            found.append(top)
    return tuple(found)


def _with_offsets(leaves: Iterable[Segment]) -> Iterator[tuple[int, Segment]]:
    offset = 0
    for leaf in leaves:
        yield offset, leaf
        offset += leaf.count
