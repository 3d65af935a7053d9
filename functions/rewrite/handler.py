"""Turns delete markers into absent rows, by row-group surgery where that is cheaper.

The queue and the schedule say only where to look: what there is to do stands in the tables' snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.functions.messages import is_batch, process, tell_rewrite
from inlay.functions.observe import observed, tell_failures, tell_work
from inlay.functions.requests import MaintenanceRequest, RewriteRequest, read_rewrite
from inlay.functions.rounds import run_round, seconds_left
from inlay.functions.tables import table_context, usage_of
from inlay.functions.validation import validated
from inlay.ops.load import load_pointer
from inlay.ops.rewrite import rewrite
from inlay.parse import parse_predicate


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    if is_batch(event):

        def message(record: SQSRecord) -> None:
            rewrite_table(read_rewrite(record.body), seconds_left(context))

        return process(event, context, message)

    asked = validated(MaintenanceRequest, event)

    def work(table: str, seconds: float) -> Mapping[str, Any]:
        return rewrite_table(RewriteRequest(table=table), seconds)

    return run_round(asked.table, context, work)


def rewrite_table(asked: RewriteRequest, seconds: float) -> Mapping[str, Any]:
    """Rewrite what time allows; the rest goes to the next invocation."""
    ctx = table_context(asked.table)
    base = load_pointer(ctx)
    where = None if asked.where is None else parse_predicate(asked.where, base.snapshot.schema)
    result = rewrite(ctx, base=base, where=where, deadline_seconds=seconds)
    if result.left and result.commits:
        # Only after progress: work that never gets done must not run round for ever.
        tell_rewrite(asked.table)
    tell_failures(result.failures)
    return tell_work(asked.table, "rewrite", result, usage_of(ctx))
