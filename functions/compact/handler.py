"""Packs small files, sorts rows across files and applies deletes, table by table, beside ingestion.

Runs by schedule on every table with more than one file or with a delete marker, or on the table in the
event: `{"table": "orders"}`. The most useful units come first, as many as time and memory allow; a backlog
beyond `compact.handover_bytes` is handed over to Spark, which runs the same units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlay.engine import compact
from inlay.functions import settings
from inlay.functions.messages import hand_over
from inlay.functions.observe import count, observed, report_failures, report_work
from inlay.functions.requests import MaintenanceRequest
from inlay.functions.rounds import Round, maintain
from inlay.functions.tables import current_snapshot, table_context


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    return maintain(event, context, compact_table, lambda _: Round(has_work), takes=("dry_run",))


def has_work(table: str) -> bool:
    totals = current_snapshot(table).totals
    return totals.files > 1 or totals.markers > 0


def compact_table(table: str, asked: MaintenanceRequest, seconds: float) -> Mapping[str, Any]:
    ctx = table_context(table)
    result = compact(
        ctx,
        deadline_seconds=seconds,
        memory_bytes=settings.memory_bytes(),
        dry_run=asked.dry_run,
    )
    report_failures((failure.key, failure.error) for failure in result.failures)
    if result.hand_over:
        hand_over(ctx.uri, result.left, result.left_bytes)
    count(table, {"CompactionBacklogBytes": result.left_bytes})
    return report_work(table, "compact", result, ctx.usage)
