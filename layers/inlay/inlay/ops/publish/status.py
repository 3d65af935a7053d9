"""How far the publication is behind the table, and why.

Promise: from the pointer and the published pointer alone, one request each; so files that cannot be
published are only found by publishing.
"""

from __future__ import annotations

from inlay.errors import CorruptTable, ErrorKind, InlayError
from inlay.format.properties import handed_over, is_published
from inlay.format.snapshot import Snapshot
from inlay.iceberg.schema import refusals
from inlay.ops.context import Context
from inlay.ops.metadata.publication import load_publication, put_back
from inlay.ops.publish.publish import publish
from inlay.plan.erasure import Waiting
from inlay.record import Record


class PublicationStatus(Record):
    """`version` is published, None: none is; the table is `behind` versions ahead of it. `reasons` prevent
    it from being published."""

    version: int | None
    behind: int
    reasons: tuple[str, ...] = ()


def publication_status(ctx: Context, snapshot: Snapshot) -> PublicationStatus | None:
    """None for a table that is not to be published."""
    if not is_published(snapshot.properties):
        return None
    chosen = snapshot.settings.text("publish.format")
    reasons = list(refusals(snapshot.schema, format_version=3 if chosen == "v3" else 2))
    if handed_over(snapshot.properties) is not None:
        reasons.append("the table was handed over to another catalog")
    version = None
    try:
        publication = load_publication(ctx).publication
        if publication is not None and publication.table_id == snapshot.table_id:
            version = publication.version
            reason = put_back(publication, snapshot)
            reasons += [reason] if reason else []
    except CorruptTable as error:
        reasons.append(error.message)
    return PublicationStatus(version, max(0, snapshot.version - (version or 0)), tuple(reasons))


def publication_waits(ctx: Context, snapshot: Snapshot) -> Waiting | None:
    """Why published metadata may still have erased values; publishes again if it does. The oldest version
    of `snapshot` is the oldest one without erased rows. None: nothing that is published or that a
    publication can reach is older; garbage collection deletes the rest."""

    def waits(reason: str) -> Waiting:
        return Waiting("published", "metadata/latest.json", reason)

    since = snapshot.oldest_version
    if not is_published(snapshot.properties):
        return None  # what was published is garbage like any other
    try:
        if _is_newer(ctx, since):
            return None
    except CorruptTable as error:
        return waits(error.message)
    try:
        publish(ctx)
        if not _is_newer(ctx, since):
            # Published already, and offers older versions for time travel.
            publish(ctx, rebuild=True)
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            raise
        return waits(f"it cannot be published: {error.message}")
    return None if _is_newer(ctx, since) else waits("an older version is published")


def _is_newer(ctx: Context, since: int) -> bool:
    publication = load_publication(ctx).publication
    return publication is None or all(
        s.version >= since for s in (*publication.snapshots, *publication.branches)
    )
