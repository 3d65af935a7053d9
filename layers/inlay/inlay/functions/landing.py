"""Landed files that no event told of: found against the ledger, and sent to be ingested.

Promise: what is pending for longer than an event may reasonably take is sent again, by the same identity
its own event would have, so that it comes in once however many tell of it. What can never come in is not
sent again and again: it is counted, and was put into the dead letters when its event came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus

from inlay.functions import settings
from inlay.functions.messages import send_to_ingest
from inlay.functions.observe import count, logger
from inlay.functions.tables import LANDING, table_context
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.landing import Landed, landed

# A run sends at most so many: they are ingested within the hour, and the next run sees what is left.
MAX_SENT = 10_000


def sweep_landing(table: str, *, settle_seconds: float) -> Mapping[str, Any]:
    """Send what is pending for `table` for longer than that to be ingested; says how many contents are in
    which state."""
    ctx = table_context(table)
    loaded = load_pointer(ctx)
    prefix = f"{settings.prefix()}{LANDING}{table}/"
    states: Counter[str] = Counter()
    oldest_us = loaded.date_us
    sent = 0
    for each in landed(ctx, loaded, prefix):
        states[each.state] += 1
        if each.state != "pending":
            continue
        oldest_us = min(oldest_us, each.modified_us)
        if sent < MAX_SENT and loaded.date_us - each.modified_us >= settle_seconds * 1_000_000:
            send_to_ingest(notification(ctx.store.bucket, each))
            sent += 1
    told = {**states, "sent": sent}
    count(
        table,
        {
            "SentAgain": sent,
            "OldestPendingSeconds": (loaded.date_us - oldest_us) // 1_000_000,
        },
    )
    logger.info("landing", extra={"table": table, **told})
    return told


def notification(bucket: str, found: Landed) -> Mapping[str, Any]:
    """S3's own notification of a landed content."""
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=found.modified_us)
    said = {"key": quote_plus(found.key), "size": found.size, "eTag": found.etag}
    if found.version_id is not None:
        said["versionId"] = found.version_id
    return {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                "eventName": "ObjectCreated:Put",
                "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": bucket}, "object": said},
            }
        ]
    }
