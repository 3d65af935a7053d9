"""Strategy: by which means rows leave a file, and why.

Promise: the choice follows from counts alone (bytes, row groups, rows), so that it can be shown before
anything is done (`--explain`). It never changes which rows are left, only what it costs to get there.

The model is coarse on purpose: seconds of one worker, requests in sequence. Weights are of S3 in one
region and of this library on one core (FACTS, "Parquet row-group surgery": 251 MiB decoded, filtered
and encoded in 3.5 s; time to the first byte about 30 ms).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inlay.format.entry import DataFile

Method = Literal["tombstone", "restamp", "drop", "surgery", "rewrite"]
Strategy = Literal["auto", "surgery", "rewrite"]
STRATEGIES: tuple[Strategy, ...] = ("auto", "surgery", "rewrite")

SECONDS_PER_REQUEST = 0.03
NETWORK_BYTES_PER_SECOND = 80 * 2**20
RECODED_BYTES_PER_SECOND = 50 * 2**20
# Server-side copies cost no bandwidth of ours; parts of one upload are copied in parallel.
COPIED_BYTES_PER_SECOND = 400 * 2**20
# One GET or part: `parquet.ranges.GET_BYTES`.
PIECE_BYTES = 16 * 2**20
# Below this an object is read and PUT whole in about as many requests as its footer alone takes.
SMALL_FILE_BYTES = 4 * 2**20
# A multipart copy of an unchanged range needs a part of this size (S3).
PART_BYTES = 5 * 2**20


@dataclass(frozen=True, slots=True)
class Cost:
    """What a way of doing it takes."""

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
    """How much of a file is hit: row groups with rows to take out, those among them that lose every
    row, and the share of all rows that stays."""

    groups: int
    emptied: int
    kept_share: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The method, what each would cost, and a sentence for people."""

    method: Method
    reason: str
    surgery: Cost | None = None
    rewrite: Cost | None = None


def choose(entry: DataFile, touched: Touched, *, strategy: Strategy = "auto") -> Choice:
    """How to take rows out of `entry`."""
    if touched.groups == 0:
        return Choice("restamp", "no row of it is deleted: the entry alone is renewed")
    if touched.kept_share == 0:
        return Choice("drop", "every row of it is deleted: the entry is dropped")
    surgery, rewrite = surgery_cost(entry, touched), rewrite_cost(entry, touched)
    groups = f"{touched.groups} of {entry.row_groups} row groups"
    if strategy != "auto":
        return Choice(strategy, f"{strategy} was asked for; {groups} are touched", surgery, rewrite)
    if entry.size <= SMALL_FILE_BYTES:
        return Choice("rewrite", "the file is small: one GET and one PUT", surgery, rewrite)
    if surgery.seconds < rewrite.seconds:
        reason = f"{groups} are touched: {_compare(surgery, rewrite)}"
        return Choice("surgery", reason, surgery, rewrite)
    reason = f"{groups} are touched: {_compare(rewrite, surgery)}"
    return Choice("rewrite", reason, surgery, rewrite)


def surgery_cost(entry: DataFile, touched: Touched) -> Cost:
    """Footer, the groups that lose some rows, and an upload whose other parts are copied."""
    group_bytes = max(entry.size - entry.footer_size, 0) // max(entry.row_groups, 1)
    edited = touched.groups - touched.emptied
    # Each edited run needs a copied neighbour of 5 MiB; a part that is too small borrows from it.
    borrowed = min(PART_BYTES * touched.groups, max(entry.size - edited * group_bytes, 0))
    moved = edited * group_bytes
    copied = max(entry.size - touched.groups * group_bytes - borrowed, 0)
    parts = 2 * touched.groups + 1
    return Cost(
        requests=1 + edited + parts + 2,
        read_bytes=entry.footer_size + moved + borrowed,
        written_bytes=entry.footer_size + moved + borrowed,
        copied_bytes=copied,
        recoded_bytes=moved,
    )


def rewrite_cost(entry: DataFile, touched: Touched) -> Cost:
    """The whole file down, the rows that stay up."""
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
