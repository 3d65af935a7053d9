"""Packs small files, sorts rows across files and folds deletes in, table by table, beside ingestion.

Runs by schedule on every table, or on the one that the event names: `{"table": "orders"}`. The units that
give most come first, as many as time and memory allow; a backlog beyond `compact.handover_bytes` is handed
over to Spark, which does the same units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlay.functions import settings
from inlay.functions.messages import hand_over
from inlay.functions.observe import count, observed, tell_failures, tell_work
from inlay.functions.requests import MaintenanceRequest
from inlay.functions.rounds import run_round
from inlay.functions.tables import table_context, usage_of
from inlay.functions.validation import validated
from inlay.ops.maintain.compact import compact


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    asked = validated(MaintenanceRequest, event)

    def work(table: str, seconds: float) -> Mapping[str, Any]:
        ctx = table_context(table)
        result = compact(
            ctx,
            deadline_seconds=seconds,
            memory_bytes=settings.memory_bytes(),
            dry_run=asked.dry_run,
        )
        tell_failures(result.failures)
        if result.hand_over:
            hand_over(ctx.uri, result.left, result.left_bytes)
        count(table, {"CompactionBacklogBytes": result.left_bytes})
        return tell_work(table, "compact", result, usage_of(ctx))

    return run_round(asked.table, context, work)
