"""Landed files without an event: found by comparison with the ledger, and sent to ingestion.

Promise: contents pending for longer than an event may reasonably take are sent again, with the identity of
their own event, so that they are ingested once however many notifications there are. Contents that can
never be ingested are not sent again: they are counted, and became dead letters when their event came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote_plus

from inlay.engine import landed, load_pointer
from inlay.functions import settings
from inlay.functions.messages import send_to_ingest
from inlay.functions.observe import count, logger
from inlay.functions.tables import LANDING, table_context

# Limit of one run: they are ingested within the hour, and the next run finds the rest.
MAX_SENT = 10_000


def sweep_landing(table: str, *, settle_seconds: float) -> Mapping[str, Any]:
    """Sends contents of `table` that are pending for longer than that to ingestion; returns how many
    contents are in which state."""
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
            at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=each.modified_us)
            said = {"key": quote_plus(each.key), "size": each.size, "eTag": each.etag}
            if each.version_id is not None:
                said["versionId"] = each.version_id
            send_to_ingest(_notification(ctx.store.bucket, at, said))
            sent += 1
    report = {**states, "sent": sent}
    count(
        table,
        {
            "SentAgain": sent,
            "OldestPendingSeconds": (loaded.date_us - oldest_us) // 1_000_000,
        },
    )
    logger.info("landing", extra={"table": table, **report})
    return report


def _notification(bucket: str, at: datetime, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """S3's own notification of a landed content."""
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
