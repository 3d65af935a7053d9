"""Shows tables to engines that read Apache Iceberg, soon after each commit (docs/INTEROP.md).

The bucket sends a queue a notification of every pointer swap; the schedule finds what such an event missed.
Either only names the table: many commits become one publication. A table that is not published takes one
request. One that cannot be published keeps its last publication; the log and the metrics `Unpublishable`
and `VersionsBehind` report it, and no message is kept for that: the next commit or schedule tries again.
`PublishLagSeconds` is how old a version was when it was published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote_plus

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.engine import (
    POINTER,
    PUBLISHED_POINTER,
    Context,
    is_published_whole,
    load_pointer,
    publication_status,
    publish,
)
from inlay.errors import InvalidRequest, Unpublishable
from inlay.functions import glue, settings
from inlay.functions.messages import is_batch, messages_of, process
from inlay.functions.observe import count, logger, observed, report_failure, report_work
from inlay.functions.requests import MaintenanceRequest, RoundRequest
from inlay.functions.rounds import Round, maintain, unless_handed_over
from inlay.functions.tables import TABLES, current_snapshot, store, table_context
from inlay.functions.validation import check_table_name, parse_json, read


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    if is_batch(event):
        done: set[str] = set()

        def message(record: SQSRecord) -> None:
            for table in tables_of(record.body):
                if table not in done:
                    with unless_handed_over(table):
                        publish_table(table)
                    done.add(table)

        return process(messages_of(event), context, message)

    def work(table: str, asked: MaintenanceRequest, seconds: float) -> Mapping[str, Any]:
        return publish_table(table)

    return maintain(event, context, work, lambda _: Round(has_work))


def tables_of(text: str) -> Sequence[str]:
    """The tables that a message names: those whose pointers were swapped, or one of a round."""
    said = parse_json(text)
    if isinstance(said, dict) and "table" in said:
        return [read(RoundRequest, text).table]
    return swapped_tables(said, bucket=store().bucket, tables=f"{settings.prefix()}{TABLES}")


def swapped_tables(event: Any, *, bucket: str, tables: str) -> list[str]:
    """Table names, each once, of the pointers under `tables` (a prefix of keys) in a notification; other
    objects, and S3's test event, give none. Raises `InvalidRequest` for what is not a notification, and for
    another bucket's: its tables are not this deployment's, even under the same names."""
    if isinstance(event, dict) and event.get("Event") == "s3:TestEvent":
        return []
    try:
        records = [r for r in event["Records"] if r["eventSource"] == "aws:s3"]
        objects = [
            (r["s3"]["bucket"]["name"], unquote_plus(r["s3"]["object"]["key"])) for r in records
        ]
        if not records or len(records) < len(event["Records"]):
            raise KeyError
    except (KeyError, TypeError, AttributeError):
        raise InvalidRequest("a message is not an S3 notification") from None
    if any(name != bucket for name, _ in objects):
        raise InvalidRequest("the pointer is in a bucket that is not this deployment's")
    keys = [key.removeprefix(tables) for _, key in objects if key.startswith(tables)]
    named = [key.removesuffix(f"/{POINTER}") for key in keys if key.endswith(f"/{POINTER}")]
    return [check_table_name(name) for name in dict.fromkeys(named) if "/" not in name]


def has_work(table: str) -> bool:
    ctx, snapshot = table_context(table), current_snapshot(table)
    return snapshot.settings.is_published and not is_published_whole(ctx, snapshot)


def publish_table(table: str) -> Mapping[str, Any]:
    """Publishes a table if it is to be published; returns the result."""
    ctx = table_context(table)
    loaded = load_pointer(ctx)
    snapshot = loaded.snapshot
    if not snapshot.settings.is_published:
        return {}
    try:
        result = publish(ctx)
    except Unpublishable as error:
        report_failure(error, fate="the last publication stays", message_id=table)
        status = publication_status(ctx, snapshot)
        behind = 0 if status is None else status.behind
        count(table, {"Unpublishable": 1, "VersionsBehind": behind})
        return {"unpublishable": error.message, "behind": behind}
    database = settings.glue_database()
    if database is not None:
        _register(ctx, database, table)
    if result.published:
        # How long readers elsewhere waited for the version, by the store's clock, but for the work itself.
        lag_us = loaded.date_us - snapshot.commit.time_us
        count(table, {"PublishLagSeconds": max(0, lag_us) / 1_000_000})
    return {"publish": report_work(table, "publish", result, ctx.usage)}


def _register(ctx: Context, database: str, table: str) -> None:
    """Glue's names are of small letters, digits and underscores. Two tables that differ in others only
    would be one: the second is refused."""
    answer = ctx.get(PUBLISHED_POINTER)
    if answer is not None:
        name = re.sub(r"[^a-z0-9_]", "_", table.lower())
        registered = glue.register(glue.client(), database, name, answer.body)
        logger.info("glue", extra={"table": table, "registered": registered})
