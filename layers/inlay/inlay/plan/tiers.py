"""Tiers: how inline entries roll into segments and segments merge as they grow.

Promise: the pointer stays within its target on the wire whatever the table's size, each entry is
rewritten about log₈(entries) times in its life, and rolling or merging changes no live entry. Segments
are written before the commit they belong to, so a new entry may enter one without knowing its
version: it takes it from the reference (`Segment.sequence`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pyroaring import FrozenBitMap

from inlay.format.snapshot import (
    SEGMENT_FANOUT,
    SEGMENT_MAX_ENTRIES,
    Segment,
    Tier,
)
from inlay.plan.change import NewSegment

# A commit that adds this many entries packs them apart from those of its base.
BULK_ENTRIES = 256

T = TypeVar("T")


class Packing(Protocol[T]):
    """What differs between files, markers and ledger records."""

    def encode(self, entries: tuple[T, ...]) -> bytes: ...

    def describe(self, segment: Segment, entries: Sequence[T]) -> Segment: ...

    def is_new(self, entry: T) -> bool:
        """Whether the commit being planned adds it."""
        ...

    def live(self, segment: Segment) -> list[T] | None:
        """The live entries of a segment, resolved; None when it is not loaded."""
        ...


@dataclass(frozen=True, slots=True)
class Rolled(Generic[T]):
    tier: Tier[T]
    segments: tuple[NewSegment, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    segments: tuple[Segment, ...]


def roll(
    tier: Tier[T], packing: Packing[T], *, version: int, new_id: Callable[[], str]
) -> Rolled[T] | Missing:
    """All inline entries into new segments, then merge what has grown together."""
    first = _committed(tier, packing)
    made, written = _pack(first, packing, version=version, new_id=new_id)
    more, bulk = _pack(tier.inline[len(first) :], packing, version=version, new_id=new_id)
    made, written = made + more, written + bulk
    segments = (*tier.segments, *made)
    run = _run_to_merge(segments)
    if run == 0:
        return Rolled(Tier(segments, ()), tuple(written))
    kept, merged = segments[:-run], segments[-run:]
    fresh = {s.id: w for s, w in zip(made, written, strict=True)}
    old = [s for s in merged if s.id not in fresh]
    contents = {s.id: packing.live(s) for s in old}
    missing = tuple(s for s in old if contents[s.id] is None)
    if missing:
        return Missing(missing)
    entries = [e for s in old for e in contents[s.id] or ()] + list(tier.inline)
    remade, rewritten = _pack(entries, packing, version=version, new_id=new_id)
    return Rolled(Tier((*kept, *remade), ()), tuple(rewritten))


def _committed(tier: Tier[T], packing: Packing[T]) -> tuple[T, ...]:
    """The inline entries to pack apart from the new ones: those of the base, when the commit adds many.
    The segments of the new ones are then the same bytes on every rebase, and are not written again."""
    before = tuple(e for e in tier.inline if not packing.is_new(e))
    return before if len(tier.inline) - len(before) >= BULK_ENTRIES else tier.inline


def merge_all(
    tier: Tier[T], packing: Packing[T], *, version: int, new_id: Callable[[], str]
) -> Rolled[T] | Missing:
    """Everything into as few segments as can be (maintenance)."""
    contents = {s.id: packing.live(s) for s in tier.segments}
    missing = tuple(s for s in tier.segments if contents[s.id] is None)
    if missing:
        return Missing(missing)
    entries = [e for s in tier.segments for e in contents[s.id] or ()]
    made, written = _pack(entries, packing, version=version, new_id=new_id)
    return Rolled(Tier(tuple(made), tier.inline), tuple(written))


def bury(segments: Iterable[Segment], dead: dict[str, set[int]]) -> tuple[Segment, ...]:
    """The references with more ordinals dead (by segment id); a wholly dead segment is gone."""
    found: list[Segment] = []
    for segment in segments:
        more = dead.get(segment.id)
        if more:
            segment = dataclasses.replace(segment, dead=segment.dead | FrozenBitMap(more))
        if segment.live > 0:
            found.append(segment)
    return tuple(found)


def size_class(live: int) -> int:
    """0 for 1…7 entries, 1 for 8…63, and so on: FANOUT segments of a class make one of the next."""
    found = 0
    while live >= SEGMENT_FANOUT:
        live //= SEGMENT_FANOUT
        found += 1
    return found


def _run_to_merge(segments: Sequence[Segment]) -> int:
    """How many trailing segments to merge: the longest run in which at least FANOUT are of one size
    class and none is larger. Full segments are never merged again."""
    classes = [99 if s.live * 2 > SEGMENT_MAX_ENTRIES else size_class(s.live) for s in segments]
    best = 0
    for level in sorted({c for c in classes if c < 99}):
        run = 0
        while run < len(classes) and classes[-1 - run] <= level:
            run += 1
        if sum(1 for c in classes[len(classes) - run :] if c == level) >= SEGMENT_FANOUT:
            best = max(best, run)
    return best


def _pack(
    entries: Sequence[T], packing: Packing[T], *, version: int, new_id: Callable[[], str]
) -> tuple[list[Segment], list[NewSegment]]:
    made: list[Segment] = []
    written: list[NewSegment] = []
    for start in range(0, len(entries), SEGMENT_MAX_ENTRIES):
        chunk = tuple(entries[start : start + SEGMENT_MAX_ENTRIES])
        data = packing.encode(chunk)
        segment = Segment(id=new_id(), count=len(chunk), size=len(data), sequence=version)
        made.append(packing.describe(segment, chunk))
        written.append(NewSegment(segment.id, data))
    return made, written
