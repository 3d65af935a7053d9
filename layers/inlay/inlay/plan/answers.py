"""What a plan answers in place of a snapshot, to who reads as well as to who commits: a process that only
reads imports these, and nothing of changes."""

from __future__ import annotations

from typing import Literal

from inlay.format.snapshot import Segment
from inlay.record import Record

# What a segment holds: entries of one tier, or references to such segments.
SegmentKind = Literal["files", "markers", "ledger", "nodes"]


class NeedSegments(Record):
    """The plan depends on the content of these segments: load them and plan again."""

    files: tuple[Segment, ...] = ()
    markers: tuple[Segment, ...] = ()
    ledger: tuple[Segment, ...] = ()


class Conflict(Record):
    """Cannot be applied to this base. `gone` names files that were read or marked and are no longer live:
    plan again for the files that replaced them."""

    reason: str
    gone: frozenset[str] = frozenset()


class AlreadyApplied(Record):
    """Everything requested was applied before; `version` applied it, if the ledger has it."""

    version: int | None
    duplicates: frozenset[bytes] = frozenset()


class RequestRefused(Record):
    """The request can never be applied: too old for the ledger, or its id was used with another body, or
    rows that it adds are in the table (`twice`)."""

    reason: str
    kind: Literal["too_old", "reused", "twice"]
