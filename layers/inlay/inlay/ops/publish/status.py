"""How far the publication is behind the table, and why.

Promise: from the pointer and the published pointer alone, one request each; so files that cannot be
published are only found by publishing.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.errors import CorruptTable
from inlay.format.properties import Properties, is_published
from inlay.format.snapshot import Snapshot
from inlay.iceberg.schema import refusals
from inlay.ops.context import Context
from inlay.ops.metadata.publication import load_publication, put_back


@dataclass(frozen=True, slots=True)
class PublicationStatus:
    """`version` is published, None: none is; the table is `behind` versions ahead of it. `reasons` prevent
    it from being published."""

    version: int | None
    behind: int
    reasons: tuple[str, ...] = ()


def publication_status(ctx: Context, snapshot: Snapshot) -> PublicationStatus | None:
    """None for a table that is not to be published."""
    if not is_published(snapshot.properties):
        return None
    chosen = Properties(snapshot.properties).text("publish.format")
    reasons = list(refusals(snapshot.schema, format_version=3 if chosen == "v3" else 2))
    reasons += [
        f"the erasure {e.id!r} is still in progress"
        for e in snapshot.erasures
        if e.predicate is not None
    ]
    version = None
    try:
        found = load_publication(ctx).publication
        if found is not None and found.table_id == snapshot.table_id:
            version = found.version
            reason = put_back(found, snapshot)
            reasons += [reason] if reason else []
    except CorruptTable as error:
        reasons.append(error.message)
    return PublicationStatus(version, max(0, snapshot.version - (version or 0)), tuple(reasons))
