"""Content: the part of a snapshot that each branch has for itself.

Promise: a snapshot is its table (version, schemas, ledger, refs, erasures, boundary, …: one of each,
whatever the branch) and one content. The pointer holds main's; a branch that was written to has its own
in an immutable *head*. `view` puts them together again: a snapshot as any operation takes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from inlay.format.entry import DataFile, Marker
from inlay.format.snapshot import Snapshot, Tier, Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Which rows there are, and how they are laid out. `version` is that of the commit that made it."""

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
    """The content that a snapshot has."""
    parts = {name: getattr(snapshot, name) for name in _PARTS}
    return Content(version=snapshot.version, **parts)


def view(table: Snapshot, content: Content) -> Snapshot:
    """`table` with this content instead of its own."""
    return replace(table, **{name: getattr(content, name) for name in _PARTS})
