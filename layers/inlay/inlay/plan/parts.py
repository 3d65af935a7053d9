"""The parts of which a store makes a new object, some copied from the old one.

Promise: the cheapest parts that S3 takes; they follow from lengths alone.

S3's rules (AWS, "Multipart upload limits" and "UploadPartCopy"): every part but the last has at least 5
MiB, copied or sent; no part has more than 5 GiB; at most 10,000 parts. So fewer than 5 MiB of new bytes
between two copied runs must borrow neighbouring bytes, and a copied run of fewer than 5 MiB cannot be
copied at all unless it comes last:

    ... copied 900 MiB | new 1 MiB | copied 80 MiB ...     segments
    [ copy 900 MiB    ][ send 5 MiB   ][ copy 76 MiB ]     parts: 4 MiB borrowed from the right
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from inlay.record import Record, replace

MIB = 1024 * 1024
GIB = 1024 * MIB
# Places per copied run at which a part may begin. Real files have one to three; a row of thousands of runs
# a little above the minimum could have as many, and planning would be slow.
MAX_ENDINGS = 64


class Segment(Record):
    """A run of bytes of the new object. `copy`: the store has it in one piece; else only this process."""

    length: int
    copy: bool


class PlannedPart(Record):
    """Bytes `start` … `end - 1` of the new object in one request. A copied part is within one segment; a
    sent part may span several, and downloads the copied bytes it covers."""

    start: int
    end: int
    copy: bool

    @property
    def length(self) -> int:
        return self.end - self.start


class PartLimits(Record):
    """The store's rules, and the sizes at which larger parts are split for parallelism and, for sent parts,
    to limit memory and the cost of a retry."""

    minimum: int = 5 * MIB
    maximum: int = 5 * GIB
    count: int = 10_000
    split_copied: int = 1 * GIB
    split_sent: int = 64 * MIB


S3_LIMITS = PartLimits()


class PartsError(ValueError):
    """No plan satisfies the rules."""


def plan_parts(
    segments: Sequence[Segment], *, limits: PartLimits = S3_LIMITS, final: bool = True
) -> tuple[PlannedPart, ...] | None:
    """The parts that cover `segments` in order: such that the fewest possible bytes are downloaded only to
    be sent back and, among such plans, the number of parts is smallest (before large parts are split).

    With `final` False more segments will follow: the last part, too, must have the minimum; None when that
    is impossible (fewer than `minimum` bytes in all). `PartsError` when the segments exceed what `count`
    parts of `maximum` bytes hold.
    """
    total = sum(segment.length for segment in segments)
    if total > limits.count * limits.maximum:
        raise PartsError(f"{total} bytes are more than {limits.count} parts can hold")
    if not total:
        return ()
    if not final and total < limits.minimum:
        return None
    parts = _split(_shortest_path(segments, limits, final, part_costs=0), limits)
    # Too many parts: let them grow to the maximum, then make each part cost as much as some downloaded
    # bytes until the plan fits. It terminates: at a cost above `total` everything is sent in one go.
    larger = replace(limits, split_copied=limits.maximum, split_sent=limits.maximum)
    part_costs = 0
    while len(parts) > limits.count:
        parts = _split(_shortest_path(segments, larger, final, part_costs), larger)
        part_costs = max(64 * 1024, part_costs * 2)
    return parts


def borrowed_bytes(segments: Sequence[Segment], parts: Sequence[PlannedPart]) -> int:
    """The bytes of copied segments that sent parts cover: what must be downloaded."""
    copied = sum(part.length for part in parts if part.copy)
    return sum(segment.length for segment in segments if segment.copy) - copied


class _Path(Record):
    """The best way to some state. `since` is where the waiting bytes begin; `parts` includes the open part;
    `closed` is a linked list of finished parts, newest first."""

    cost: int
    parts: int
    since: int
    closed: Any

    def beats(self, other: _Path | None) -> bool:
        return other is None or (self.cost, self.parts) < (other.cost, other.parts)


def _shortest_path(
    segments: Sequence[Segment], limits: PartLimits, final: bool, part_costs: int
) -> list[PlannedPart]:
    """The state between two segments is the number of bytes waiting in the part being sent, capped at the
    minimum: once the minimum is reached, a part may end anywhere. Within a copied run a part may begin or
    end at any byte, but only few places can be best: a part that ends there takes exactly what it lacks; a
    part that begins there takes what the following segments lack when the part ends at one of their
    boundaries, less what the run after that can give, or all that its own run can give."""
    least = limits.minimum
    present = _coalesced(segments)
    states: dict[int, _Path] = {0: _Path(0, 0, 0, None)}
    endings = _endings(present, least)
    offset = 0
    for at, segment in enumerate(present):
        behind: dict[int, _Path] = {}
        end = offset + segment.length
        is_last = final and at == len(present) - 1

        def offer(waiting: int, path: _Path, into: dict[int, _Path] = behind) -> None:
            if path.beats(into.get(waiting)):
                into[waiting] = path

        for waiting, path in states.items():
            # Send the whole segment with the waiting bytes.
            opens = waiting == 0
            offer(
                min(waiting + segment.length, least),
                _Path(
                    path.cost + segment.length * segment.copy + part_costs * opens,
                    path.parts + opens,
                    offset if opens else path.since,
                    path.closed,
                ),
            )
            if not segment.copy:
                continue
            # Or end the waiting part with what it lacks, and copy the middle of the segment.
            lacks = least - waiting if waiting else 0
            closed = path.closed
            if waiting:
                closed = (closed, PlannedPart(path.since, offset + lacks, copy=False))
            spare = segment.length - lacks - least
            all_it_can = (spare,) if 0 < spare < least else ()
            for keep in (*endings[at], *all_it_can):
                middle = segment.length - lacks - keep
                if middle < (1 if is_last else least):
                    continue
                copied = PlannedPart(offset + lacks, end - keep, copy=True)
                starts = keep > 0
                offer(
                    keep,
                    _Path(
                        path.cost + lacks + keep + part_costs * (1 + starts),
                        path.parts + 1 + starts,
                        end - keep,
                        (closed, copied),
                    ),
                )
        states = _undominated(behind, least)
        offset = end
    ends = [(path, waiting) for waiting, path in states.items() if final or waiting in (0, least)]
    best, waiting = min(ends, key=lambda ending: (ending[0].cost, ending[0].parts))
    closed = best.closed
    if waiting:
        closed = (closed, PlannedPart(best.since, offset, copy=False))
    parts: list[PlannedPart] = []
    while closed is not None:
        closed, part = closed
        parts.append(part)
    return parts[::-1]


def _coalesced(segments: Sequence[Segment]) -> list[Segment]:
    """Without empty segments, and with adjacent new bytes joined: where they were joined does not matter,
    and a page index comes in hundreds of pieces."""
    coalesced: list[Segment] = []
    for segment in segments:
        if coalesced and not segment.copy and not coalesced[-1].copy:
            coalesced[-1] = Segment(coalesced[-1].length + segment.length, copy=False)
        elif segment.length:
            coalesced.append(segment)
    return coalesced


def _endings(segments: Sequence[Segment], least: int) -> list[tuple[int, ...]]:
    """For each segment, how many of its last bytes may be worth sending with what follows: none, or what a
    part that ends at a later boundary lacks. A run that cannot give that much gives all it can, and the run
    after the boundary the rest: bytes of either cost the same."""
    endings: list[tuple[int, ...]] = []
    for at, segment in enumerate(segments):
        worth = {0} if segment.copy else set()
        following = 0
        for later in islice(segments, at + 1, None) if segment.copy else ():
            following += later.length
            if following >= least:
                break
            worth.add(least - following)
        endings.append(tuple(sorted(worth)[:MAX_ENDINGS]))
    return endings


def _undominated(states: dict[int, _Path], least: int) -> dict[int, _Path]:
    """Without dominated states: more waiting bytes for no more cost is never worse (except 0, where nothing
    waits; and the minimum is as good as 0)."""
    kept: dict[int, _Path] = {}
    best: _Path | None = None
    for waiting in sorted((w for w in states if w), reverse=True):
        if states[waiting].beats(best):
            best = kept[waiting] = states[waiting]
    if 0 in states and states[0].beats(kept.get(least)):
        kept[0] = states[0]
    return kept


def _split(parts: Sequence[PlannedPart], limits: PartLimits) -> tuple[PlannedPart, ...]:
    """Large parts in equal pieces, each at least of the minimum."""
    cut: list[PlannedPart] = []
    for part in parts:
        most_bytes = limits.split_copied if part.copy else limits.split_sent
        pieces = -(-part.length // min(most_bytes, limits.maximum))
        pieces = max(1, min(pieces, part.length // limits.minimum))
        for piece in range(pieces):
            start = part.start + part.length * piece // pieces
            end = part.start + part.length * (piece + 1) // pieces
            cut.append(PlannedPart(start, end, part.copy))
    return tuple(cut)
