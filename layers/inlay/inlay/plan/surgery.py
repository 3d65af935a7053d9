"""The way in which rows are removed from a file: the cheapest that serves.

Promise: the choice follows from counts alone (rows, row groups, bytes), so it can be shown and made again
without the file.
"""

from __future__ import annotations

from typing import Literal, assert_never

from inlay.format.entry import DataFile
from inlay.record import Record

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


class Cost(Record):
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


class Touched(Record):
    """How much of a file is affected: row groups with rows to remove, those of them that lose every row,
    and the share of all rows that stays."""

    groups: int
    emptied: int
    kept_share: float


class Choice(Record):
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
    everything: bool = False,
) -> Choice:
    """How to remove rows from `entry`, and why that way; never which rows are left, only the cost.

    `surgery`: its cost, from the file's own layout (`parquet.surgery.surgery.plan_edit`), or why it is not
    possible; None if it is not to be considered. Surgery can be done in steps, so it is chosen where the
    whole file does not fit `seconds_left` (None: no bound). `everything`: no row group would stay as it
    is, so that otherwise it is chosen only if requested."""
    groups = f"{touched.groups} of {entry.row_groups} row groups are touched"
    cut = surgery if isinstance(surgery, Cost) else None
    whole = rewrite_cost(entry, touched)
    match strategy:
        case "surgery" | "rewrite":
            requested: Method | None = strategy
        case "auto":
            requested = None
        case other:
            assert_never(other)
    method: Method = "rewrite"
    if touched.groups == 0:
        method, reason = "restamp", "no row of it is deleted: only its entry is updated"
    elif touched.kept_share == 0:
        method, reason = "drop", "every row of it is deleted: the entry is dropped"
    elif requested == "rewrite":
        reason = f"rewrite was requested; {groups}"
    elif isinstance(surgery, str):
        reason = f"surgery is not possible here ({surgery}): the whole file is written"
    elif cut is not None and requested == "surgery":
        method, reason = "surgery", f"surgery was requested; {groups}"
    elif entry.size <= SMALL_FILE_BYTES:
        reason = "the file is small: one GET and one PUT"
    elif cut is None or (everything and seconds_left is None):
        reason = f"{groups}: surgery would write each of them again, too"
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
