"""Content: the part of a snapshot that each branch has of its own.

Promise: a snapshot consists of what belongs to the table, whatever the branch (version, schemas, ledger,
refs, erasures, boundary, …), and of one content. The pointer holds main's content; a branch that was
written to has its content in an immutable *head*. `with_content` combines the two into a snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from inlay.format.entry import DataFile, Marker
from inlay.format.snapshot import Snapshot, Tier, Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Which rows exist and how they are stored. `version` is the commit that made this content."""

    version: int
    schema_id: int
    spec_id: int = 0
    primary_key: tuple[int, ...] = ()
    sort_by: tuple[int, ...] = ()
    stats_columns: tuple[int, ...] = ()
    files: Tier[DataFile] = field(default_factory=Tier)
    markers: Tier[Marker] = field(default_factory=Tier)
    totals: Totals = field(default_factory=Totals)
    changed: int = 0
    replaced: int = 0


_PARTS = tuple(f.name for f in fields(Content) if f.name != "version")


def content_of(snapshot: Snapshot) -> Content:
    """The content of a snapshot."""
    parts = {name: getattr(snapshot, name) for name in _PARTS}
    return Content(version=snapshot.version, **parts)


def with_content(table: Snapshot, content: Content) -> Snapshot:
    """`table` with `content` in place of its own."""
    return replace(table, **{name: getattr(content, name) for name in _PARTS})
