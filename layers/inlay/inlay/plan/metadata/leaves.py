"""Tiers: how inline entries roll into leaves, and how leaves merge and gather in nodes.

Promise: whatever a table's size, the pointer has a few references of each tier, an entry is written about
ten times in its life and each of its references a few times, and none of this changes a live entry.

* Inline entries *roll* into a new leaf, together with the preceding leaves that are at most `growth` times
  as large as what is rolled: so a tier ends with a leaf of each power of that, up to a full one. A commit
  whose new entries fill a leaf packs them separately from those of its base, in key order: they are the
  same bytes on every rebase, and its leaves do not overlap.
* Full leaves *gather* in the last node, which is rewritten to add them. The dead entries under a node are
  then recorded in its references, and the bitmap in the pointer starts empty.
* `rebuild` rewrites chosen leaves: without their dead entries, or in another order.

New leaves are written before the commit they belong to, so a new entry takes its version from the reference
(`Segment.sequence`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

from inlay.format.entry import ColumnStats, Types
from inlay.format.snapshot import NODE_MAX_LEAVES, Segment, Tier
from inlay.plan.change import NeedSegments, NewSegment
from inlay.plan.metadata.state import Nodes, open_tree, under
from inlay.record import Mutable, field

# Full leaves gather in a node from this many on, because the node is rewritten for them.
GATHER_LEAVES = 8
# Bytes of a bitmap of dead entries in the pointer that justify rewriting their node.
HEAVY_DEAD_BYTES = 256
# Estimated size of a reference to a leaf in the pointer: its id alone is 25 bytes, compressed.
REFERENCE_BYTES = 90

T = TypeVar("T")


class Packing(ABC, Generic[T]):
    """The differences between files, markers and ledger records."""

    kind: Literal["files", "markers", "ledger"]
    most: int  # entries of a leaf
    # A leaf is rewritten with what is rolled if it is at most so many times as large: each step up costs an
    # entry about half of this in rewriting, and fewer steps mean fewer leaves.
    growth = 4
    types: Types

    @abstractmethod
    def encode(self, entries: Sequence[T]) -> bytes: ...

    @abstractmethod
    def is_new(self, entry: T) -> bool:
        """Whether the commit being planned adds it."""

    @abstractmethod
    def live(self, leaf: Segment) -> list[T] | None:
        """The live entries of a leaf, resolved; None when it is not loaded."""

    def as_written(self, entries: Sequence[T]) -> Sequence[T]:
        """As stored in a leaf: without what they take from its reference."""
        return entries

    def summarize(self, leaf: Segment, entries: Sequence[T]) -> Segment:
        return leaf

    def bounds(self, leaves: Sequence[Segment]) -> tuple[int, dict[int, ColumnStats]]:
        """(schema id, bounds) over everything under these leaves."""
        return 0, {}

    def in_order(self, entries: Sequence[T]) -> Sequence[T]:
        """Ordered by key, so that leaves made of them do not overlap."""
        return entries

    def may_gather(self, leaf: Segment) -> bool:
        return True

    def is_needed(self, leaf: Segment) -> bool:
        return True

    def is_full(self, segment: Segment) -> bool:
        return segment.level > 0 or segment.live * 2 > self.most


class Writer(Mutable):
    """The segments that a plan has to write. `name` gives the same bytes the same id within one commit, so
    a rebase writes them once."""

    version: int
    name: Callable[[bytes], str]
    written: list[NewSegment] = field(default_factory=list)
    held: dict[str, Sequence[Any]] = field(default_factory=dict)  # by segment: entries or leaves

    def leaves(self, packing: Packing[T], entries: Sequence[T]) -> list[Segment]:
        """Entries in leaves of about equal size."""
        segments: list[Segment] = []
        pieces = -(-len(entries) // packing.most)
        for n in range(pieces):
            piece = entries[len(entries) * n // pieces : len(entries) * (n + 1) // pieces]
            as_written = tuple(packing.as_written(piece))
            data = packing.encode(as_written)
            leaf = Segment(
                id=self.name(data), count=len(piece), size=len(data), sequence=self.version
            )
            segments.append(packing.summarize(leaf, piece))
            self.held[leaf.id] = piece
            self.written.append(NewSegment(leaf.id, data, packing.kind, as_written))
        return segments

    def nodes(self, packing: Packing[T], leaves: Sequence[Segment]) -> list[Segment]:
        from inlay.format.leaves import encode_references  # small tables have none

        segments: list[Segment] = []
        for start in range(0, len(leaves), NODE_MAX_LEAVES):
            inner = tuple(leaves[start : start + NODE_MAX_LEAVES])
            data = encode_references(inner, packing.types)
            times = [t for s in inner for t in (s.first_us, s.last_us) if t is not None]
            schema_id, stats = packing.bounds(inner)
            node = Segment(
                id=self.name(data),
                level=1,
                count=sum(s.count for s in inner),
                size=len(data),
                sequence=max(s.sequence or self.version for s in inner),
                settled=sum(len(s.dead) for s in inner),
                rows=sum(s.rows for s in inner),
                bytes=sum(s.bytes for s in inner),
                first_us=min(times, default=None),
                last_us=max(times, default=None),
                stats=stats,
                schema_id=schema_id,
            )
            segments.append(node)
            self.held[node.id] = inner
            self.written.append(NewSegment(node.id, data, "nodes", inner))
        return segments

    def reclaim(self, segment: Segment) -> Sequence[Any] | None:
        """The content of a segment of this plan, which is then not written; None for any other segment.
        Newly written metadata may have to make room again in the same plan."""
        held = self.held.pop(segment.id, None)
        if held is not None:
            self.written = [s for s in self.written if s.id != segment.id]
        return held


def roll(tier: Tier[T], packing: Packing[T], writer: Writer) -> Tier[T] | NeedSegments:
    """Moves all inline entries into leaves."""
    new = [e for e in tier.inline if packing.is_new(e)]
    is_bulk = len(new) * 2 > packing.most
    rolled = [e for e in tier.inline if not packing.is_new(e)] if is_bulk else list(tier.inline)
    before = list(tier.segments)
    absorbed: list[Segment] = []
    while rolled and before:
        total = len(rolled) + sum(s.live for s in absorbed)
        last = before[-1]
        fits = (
            last.level == 0
            and last.live <= packing.growth * total
            and last.live + total <= packing.most
        )
        if not fits:
            break
        absorbed.insert(0, before.pop())
    held: dict[str, Sequence[T] | None] = {}
    for segment in absorbed:
        own = writer.reclaim(segment)
        held[segment.id] = packing.live(segment) if own is None else own
    missing = tuple(s for s in absorbed if held[s.id] is None)
    if missing:
        return NeedSegments(**{packing.kind: missing})
    rolled_leaves = writer.leaves(packing, [e for s in absorbed for e in held[s.id] or ()] + rolled)
    bulk = writer.leaves(packing, packing.in_order(new)) if is_bulk else []
    # Full leaves come before those that still grow.
    at = _tail(before, packing)
    return Tier((*before[:at], *bulk, *before[at:], *rolled_leaves), ())


def gather(
    tier: Tier[T], packing: Packing[T], writer: Writer, nodes: Nodes
) -> Tier[T] | NeedSegments:
    """Moves full leaves into the last node, and dead ordinals into the references of their node."""
    at = _tail(tier.segments, packing)
    head, tail = tier.segments[:at], tier.segments[at:]
    leaves = [s for s in head if s.level == 0 and packing.may_gather(s)]
    waiting = [s for s in head if s.level == 0 and not packing.may_gather(s)]
    old = [s for s in head if s.level > 0]
    rewritten = [s for s in old if s is old[-1] or _is_heavy(s)]
    missing = tuple(s for s in rewritten if s.id not in nodes and s.id not in writer.held)
    if missing:
        return NeedSegments(**{packing.kind: missing})
    kept = [s for s in old if s not in rewritten]
    inner: list[Segment] = []
    for node in rewritten:
        own = writer.reclaim(node)
        inner += under(node, nodes[node.id]) if own is None else own
    gathered = [s for s in (*inner, *leaves) if packing.is_needed(s)]
    made = writer.nodes(packing, gathered)
    return Tier((*kept, *made, *waiting, *tail), tier.inline)


def gatherable(tier: Tier[T], packing: Packing[T]) -> int:
    """Estimated bytes of the pointer that gathering would save."""
    head = tier.segments[: _tail(tier.segments, packing)]
    leaves = sum(1 for s in head if s.level == 0 and packing.may_gather(s))
    dead = sum(len(s.dead.serialize()) for s in head if _is_heavy(s))
    return dead + (leaves * REFERENCE_BYTES if leaves >= GATHER_LEAVES else 0)


def rebuild(
    tier: Tier[T],
    packing: Packing[T],
    writer: Writer,
    nodes: Nodes,
    chosen: Callable[[Segment], bool],
) -> Tier[T] | NeedSegments:
    """Rewrites the chosen leaves in key order, without dead entries; without a choice the tier is
    unchanged. Every node is rewritten: there are few."""
    opened = open_tree(tier.segments, nodes)
    if opened.closed:
        return NeedSegments(**{packing.kind: opened.closed})
    rebuilt = [s for s in opened.leaves if chosen(s)]
    if not rebuilt:
        return tier
    held = {s.id: packing.live(s) for s in rebuilt}
    missing = tuple(s for s in rebuilt if held[s.id] is None)
    if missing:
        return NeedSegments(**{packing.kind: missing})
    leaves = writer.leaves(
        packing, packing.in_order([e for s in rebuilt for e in held[s.id] or ()])
    )
    others = [s for s in opened.leaves if s.id not in held]
    full = [s for s in (*others, *leaves) if packing.is_full(s)]
    small = [s for s in (*others, *leaves) if not packing.is_full(s)]
    if len(full) >= GATHER_LEAVES:
        full = writer.nodes(packing, full)
    return Tier((*full, *small), tier.inline)


def _tail(segments: Sequence[Segment], packing: Packing[T]) -> int:
    """The index from which leaves still grow."""
    at = len(segments)
    while at and not packing.is_full(segments[at - 1]):
        at -= 1
    return at


def _is_heavy(node: Segment) -> bool:
    return node.level > 0 and len(node.dead.serialize()) > HEAVY_DEAD_BYTES
