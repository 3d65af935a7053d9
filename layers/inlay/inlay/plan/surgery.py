"""How rows are removed from a file: the new positions, the strategy, the parts of the new object.

Promise: positions, choice and parts follow from counts alone (rows, row groups, bytes), so each can be
shown, made again and tested without a file. Each of the three says below what it promises.

Relies on row groups keeping their order, and rows keeping their order within them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyroaring import BitMap, BitMap64

from inlay.format.entry import DataFile

# Before the first 32-bit bitmap.
_HEAD_BYTES = 12


@dataclass(frozen=True, slots=True)
class PositionMap:
    """For every row position of the old file: the position in the new file, or that the row is gone. So a
    marker that was committed for the old file during the rewrite moves to the new one; neither the marker
    nor the rewrite is lost.

    `group_rows` are the rows of each old row group; `kept` holds, for each group that lost rows, the
    positions *within the group* that stayed (none: the group is gone)."""

    group_rows: tuple[int, ...]
    kept: Mapping[int, BitMap]
    _old_starts: tuple[int, ...]
    _new_starts: tuple[int, ...]

    @classmethod
    def of(cls, group_rows: Sequence[int], kept: Mapping[int, BitMap]) -> PositionMap:
        old, new = [0], [0]
        for ordinal, rows in enumerate(group_rows):
            old.append(old[-1] + rows)
            new.append(new[-1] + (len(kept[ordinal]) if ordinal in kept else rows))
        return cls(tuple(group_rows), dict(kept), tuple(old), tuple(new))

    @property
    def old_rows(self) -> int:
        return self._old_starts[-1]

    @property
    def new_rows(self) -> int:
        return self._new_starts[-1]

    def map(self, positions: Iterable[int]) -> list[int]:
        """The new positions of the rows that are still there, in the given order."""
        moved = map(self.one, positions)
        return [new for new in moved if new is not None]

    def one(self, position: int) -> int | None:
        """The new position of one row, None when it is gone."""
        if not 0 <= position < self.old_rows:
            raise ValueError(f"position {position} of a file of {self.old_rows} rows")
        ordinal = bisect_right(self._old_starts, position) - 1
        within = position - self._old_starts[ordinal]
        kept = self.kept.get(ordinal)
        if kept is not None:
            if within not in kept:
                return None
            within = kept.rank(within) - 1
        return self._new_starts[ordinal] + within

    def moved(self, positions: BitMap64) -> BitMap64:
        """The same for a set: the new positions of the rows that are still there."""
        found = BitMap64()
        for ordinal, (start, rows) in enumerate(
            zip(self._old_starts, self.group_rows, strict=False)
        ):
            group = BitMap64()
            group.add_range(start, start + rows)
            inside = positions & group
            if ordinal in self.kept:
                found |= BitMap64(self.map(inside))
            else:
                found |= inside.shift(self._new_starts[ordinal] - start)
        return found


Method = Literal["tombstone", "restamp", "drop", "surgery", "rewrite"]
Strategy = Literal["auto", "surgery", "rewrite"]
STRATEGIES: tuple[Strategy, ...] = ("auto", "surgery", "rewrite")

# The model is deliberately coarse: seconds of one worker, requests in sequence. The weights are of S3 in
# one region and of this library on one core (251 MiB decoded, filtered and encoded in
# 3.5 s; time to the first byte about 30 ms).
SECONDS_PER_REQUEST = 0.03
NETWORK_BYTES_PER_SECOND = 80 * 2**20
RECODED_BYTES_PER_SECOND = 50 * 2**20
# Server-side copies use no bandwidth of this process; parts of one upload are copied in parallel.
COPIED_BYTES_PER_SECOND = 400 * 2**20
# One GET or part: `parquet.read.ranges.GET_BYTES`.
PIECE_BYTES = 16 * 2**20
# Smaller objects are read and PUT whole in about as many requests as reading their footer alone takes.
SMALL_FILE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one method."""

    requests: int
    read_bytes: int = 0
    written_bytes: int = 0
    copied_bytes: int = 0
    recoded_bytes: int = 0

    @property
    def seconds(self) -> float:
        return (
            self.requests * SECONDS_PER_REQUEST
            + (self.read_bytes + self.written_bytes) / NETWORK_BYTES_PER_SECOND
            + self.copied_bytes / COPIED_BYTES_PER_SECOND
            + self.recoded_bytes / RECODED_BYTES_PER_SECOND
        )


@dataclass(frozen=True, slots=True)
class Touched:
    """How much of a file is affected: row groups with rows to remove, those of them that lose every row,
    and the share of all rows that stays."""

    groups: int
    emptied: int
    kept_share: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen method with a sentence that explains it, and the alternatives.

    `tombstone` is what each scan of the file pays while the marker stays, the others what they cost once.
    None: not possible here (`no_surgery` says why), or not considered.
    """

    method: Method
    reason: str
    touched: Touched
    row_groups: int
    tombstone: Cost | None = None
    surgery: Cost | None = None
    no_surgery: str | None = None
    rewrite: Cost | None = None


def choose(
    entry: DataFile,
    touched: Touched,
    *,
    surgery: Cost | str | None,
    tombstone: Cost | None = None,
    strategy: Strategy = "auto",
    seconds_left: float | None = None,
) -> Choice:
    """How to remove rows from `entry`, and why that way; never which rows are left, only the cost.

    `surgery`: its cost, from the file's own layout (`parquet.surgery.surgery.plan_edit`), or why it is not
    possible. Surgery can be done in steps, so it is chosen where the whole file does not fit `seconds_left`
    (None: no bound)."""
    groups = f"{touched.groups} of {entry.row_groups} row groups are touched"
    cut = surgery if isinstance(surgery, Cost) else None
    whole = rewrite_cost(entry, touched)
    method: Method = "rewrite"
    if touched.groups == 0:
        method, reason = "restamp", "no row of it is deleted: only its entry is updated"
    elif touched.kept_share == 0:
        method, reason = "drop", "every row of it is deleted: the entry is dropped"
    elif strategy == "rewrite":
        reason = f"rewrite was requested; {groups}"
    elif cut is None:
        reason = f"surgery is not possible here ({surgery}): the whole file is written"
    elif strategy == "surgery":
        method, reason = "surgery", f"surgery was requested; {groups}"
    elif entry.size <= SMALL_FILE_BYTES:
        reason = "the file is small: one GET and one PUT"
    elif seconds_left is not None and whole.seconds > seconds_left:
        method = "surgery"
        reason = (
            f"{groups}: as many as time allows, since the whole file takes {whole.seconds:.1f} s"
        )
    elif cut.seconds < whole.seconds:
        method, reason = "surgery", f"{groups}: {_compare(cut, whole)}"
    else:
        reason = f"{groups}: {_compare(whole, cut)}"
    by_metadata = method in ("restamp", "drop")
    return Choice(
        method=method,
        reason=reason,
        touched=touched,
        row_groups=entry.row_groups,
        tombstone=tombstone,
        surgery=None if by_metadata else cut,
        no_surgery=surgery if isinstance(surgery, str) else None,
        rewrite=None if by_metadata else whole,
    )


def rewrite_cost(entry: DataFile, touched: Touched) -> Cost:
    """Downloads the whole file, uploads the rows that stay."""
    kept = int(entry.size * touched.kept_share)
    pieces = -(-entry.size // PIECE_BYTES)
    parts = -(-kept // PIECE_BYTES)
    return Cost(
        requests=1 + pieces + parts + (2 if parts > 1 else 0),
        read_bytes=entry.size,
        written_bytes=kept,
        recoded_bytes=entry.size,
    )


def _compare(chosen: Cost, other: Cost) -> str:
    return (
        f"{_mib(chosen.read_bytes + chosen.written_bytes)} moved instead of "
        f"{_mib(other.read_bytes + other.written_bytes)}, about {chosen.seconds:.2f} s instead of "
        f"{other.seconds:.2f} s"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


MIB = 1024 * 1024
GIB = 1024 * MIB
# Places per copied run at which a part may begin. Real files have one to three; a row of thousands of runs
# a little above the minimum could have as many, and planning would be slow.
MAX_ENDINGS = 64


# How a new object is cut into parts. S3's rules (AWS, "Multipart upload limits" and "UploadPartCopy"):
# every part but the last has at least 5 MiB, copied or sent; no part has more than 5 GiB; at most 10,000
# parts. So fewer than 5 MiB of new bytes between two copied runs must borrow neighbouring bytes, and a
# copied run of fewer than 5 MiB cannot be copied at all unless it comes last:
#
#     ... copied 900 MiB | new 1 MiB | copied 80 MiB ...     segments
#     [ copy 900 MiB    ][ send 5 MiB   ][ copy 76 MiB ]     parts: 4 MiB borrowed from the right


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of bytes of the new object. `copy`: the store has it in one piece; else only this process."""

    length: int
    copy: bool


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """Bytes `start` … `end - 1` of the new object in one request. A copied part is within one segment; a
    sent part may span several, and downloads the copied bytes it covers."""

    start: int
    end: int
    copy: bool

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PartLimits:
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
    if len(parts) <= limits.count:
        return parts
    # Too many parts: let them grow to the maximum, then make each part cost as much as some downloaded
    # bytes until the plan fits. It terminates: at a cost above `total` everything is sent in one go.
    limits = replace(limits, split_copied=limits.maximum, split_sent=limits.maximum)
    part_costs = 0
    while True:
        parts = _split(_shortest_path(segments, limits, final, part_costs), limits)
        if len(parts) <= limits.count:
            return parts
        if part_costs > total:
            raise PartsError(f"{total} bytes do not fit into {limits.count} parts")
        part_costs = max(64 * 1024, part_costs * 2)


def borrowed_bytes(segments: Sequence[Segment], parts: Sequence[PlannedPart]) -> int:
    """The bytes of copied segments that sent parts cover: what must be downloaded."""
    copied = sum(part.length for part in parts if part.copy)
    return sum(segment.length for segment in segments if segment.copy) - copied


@dataclass(frozen=True, slots=True)
class _Path:
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
    best, waiting = min(ends, key=lambda found: (found[0].cost, found[0].parts))
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
    found: list[Segment] = []
    for segment in segments:
        if found and not segment.copy and not found[-1].copy:
            found[-1] = Segment(found[-1].length + segment.length, copy=False)
        elif segment.length:
            found.append(segment)
    return found


def _endings(segments: Sequence[Segment], least: int) -> list[tuple[int, ...]]:
    """For each segment, how many of its last bytes may be worth sending with what follows.

    Either none; or what a part that ends at a later boundary lacks; or, where the copied run after that
    boundary is too short to give the rest, what is lacking after it gave all it can (which depends on how
    many of *its* last bytes it sends, hence from right to left).
    """
    found: list[tuple[int, ...]] = [()] * len(segments)
    for at in range(len(segments) - 1, -1, -1):
        if not segments[at].copy:
            continue
        worth = {0}
        following = 0
        for later in range(at + 1, len(segments) + 1):
            lacks = least - following
            if lacks <= 0:
                break
            if later > at + 1:
                worth.add(lacks)
            if later == len(segments):
                break
            if segments[later].copy:
                spare = segments[later].length - least
                gives = (spare - kept for kept in found[later] if 0 < spare - kept < lacks)
                worth.update(lacks - given for given in gives)
            following += segments[later].length
        found[at] = tuple(sorted(worth)[:MAX_ENDINGS])
    return found


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
    found: list[PlannedPart] = []
    for part in parts:
        wanted = limits.split_copied if part.copy else limits.split_sent
        pieces = -(-part.length // min(wanted, limits.maximum))
        pieces = max(1, min(pieces, part.length // limits.minimum))
        for piece in range(pieces):
            start = part.start + part.length * piece // pieces
            end = part.start + part.length * (piece + 1) // pieces
            found.append(PlannedPart(start, end, part.copy))
    return tuple(found)


def narrow(bitmap: BitMap64) -> BitMap:
    """The same set of 32-bit numbers as the narrow kind. Its one 32-bit bitmap is taken over as it is
    stored: nothing is done for each number.

    >>> narrow(BitMap64([3, 70_000])), narrow(BitMap64())
    (BitMap([3, 70000]), BitMap([]))
    """
    if not bitmap:
        return BitMap()
    if bitmap.max() >= 1 << 32:
        raise ValueError("a position of more than 32 bits")
    return BitMap.deserialize(bitmap.serialize()[_HEAD_BYTES:])
