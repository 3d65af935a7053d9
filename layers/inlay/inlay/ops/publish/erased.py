"""What an erasure needs to know about a publication.

Promise: once `publication_waits` returns None, nothing that is published, and nothing that a publication
can reach, is from before the version `since`; older objects of publications are unreachable, and garbage
collection deletes them.
"""

from __future__ import annotations

from inlay.errors import CorruptTable, ErrorKind, InlayError
from inlay.format.properties import is_published
from inlay.ops.context import Context
from inlay.ops.metadata.load import load_pointer
from inlay.ops.metadata.publication import load_publication
from inlay.ops.publish.publish import publish
from inlay.plan.erasure import Waiting


def publication_waits(ctx: Context, since: int) -> Waiting | None:
    """Why published metadata may still have erased values; publishes again if it does. `since` is the
    oldest version without erased rows, the one that the erasure left as the oldest."""
    if not is_published(load_pointer(ctx).snapshot.properties):
        return None  # what was published is garbage like any other
    try:
        if _is_newer(ctx, since):
            return None
    except CorruptTable as error:
        return Waiting("published", "metadata/latest.json", error.message)
    try:
        publish(ctx)
        if not _is_newer(
            ctx, since
        ):  # published already, and offers older versions for time travel
            publish(ctx, rebuild=True)
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            raise
        return Waiting(
            "published", "metadata/latest.json", f"it cannot be published: {error.message}"
        )
    return (
        None
        if _is_newer(ctx, since)
        else Waiting("published", "metadata/latest.json", "an older version is published")
    )


def _is_newer(ctx: Context, since: int) -> bool:
    found = load_publication(ctx).publication
    return found is None or all(s.version >= since for s in found.snapshots)
