"""Removes deleted rows from files, by row-group surgery where that is cheaper; erasures first.

The queue and the rounds only name tables: their snapshots define what remains to be done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.engine import advance_erasures, load_pointer, parse_predicate, rewrite
from inlay.functions import settings
from inlay.functions.deletes import apply_delete
from inlay.functions.messages import (
    is_batch,
    messages_of,
    notify_rewrite,
    process,
    seconds_left,
    sent_time_us,
)
from inlay.functions.observe import count, logger, observed, report_failures, report_work
from inlay.functions.requests import (
    MAX_HOPS,
    DeleteRequest,
    MaintenanceRequest,
    RewriteRequest,
)
from inlay.functions.rounds import Round, maintain, unless_handed_over
from inlay.functions.tables import current_snapshot, table_context
from inlay.functions.validation import read


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    if is_batch(event):

        def message(record: SQSRecord) -> None:
            asked = read(RewriteRequest, record.body)
            if asked.delete is None:
                with unless_handed_over(asked.table):
                    rewrite_table(asked, seconds_left(context))
            else:
                delete_rows(asked.delete, record)

        return process(messages_of(event), context, message)

    def work(table: str, asked: MaintenanceRequest, seconds: float) -> Mapping[str, Any]:
        return rewrite_table(RewriteRequest(table=table), seconds)

    return maintain(event, context, work, lambda _: Round(has_work))


def has_work(table: str) -> bool:
    snapshot = current_snapshot(table)
    return snapshot.totals.markers > 0 or bool(snapshot.erasures)


def delete_rows(asked: DeleteRequest, record: SQSRecord) -> None:
    """A request that the delete function forwarded, under the id and time it had there."""
    request_id, time_us = asked.id or record.message_id, asked.time_us(sent_time_us(record))
    request = asked.request(request_id, time_us)
    apply_delete(asked, request, heavy=True)


def rewrite_table(asked: RewriteRequest, seconds: float) -> Mapping[str, Any]:
    """Rewrites what time allows, erasures first; the rest is left to the next invocation."""
    started = time.monotonic()
    ctx = table_context(asked.table)
    base = load_pointer(ctx)
    where = None if asked.where is None else parse_predicate(asked.where, base.snapshot.schema)
    memory = settings.memory_bytes()
    erased = advance_erasures(ctx, base=base, deadline_seconds=seconds, memory_bytes=memory)
    left_seconds = seconds - (time.monotonic() - started)
    result = rewrite(ctx, where=where, deadline_seconds=left_seconds, memory_bytes=memory)
    report_failures(
        (failure.key, failure.error) for failure in (*erased.failures, *result.failures)
    )
    if (erased.left and erased.commits) or (result.left and result.commits):
        # Only after progress, and a limited number of times: work that never finishes must not repeat for
        # ever.
        if asked.hops < MAX_HOPS:
            notify_rewrite(asked.table, asked.where, hops=asked.hops + 1)
        else:
            logger.warning("left to the schedule", table=asked.table, hops=asked.hops)
            count(asked.table, {"HopsSpent": 1})
    return {
        "erase": report_work(asked.table, "erase", erased, None),
        "rewrite": report_work(asked.table, "rewrite", result, ctx.usage),
    }
