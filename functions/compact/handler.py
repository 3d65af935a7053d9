"""Packs small files and folds deletes in, table by table, beside running ingestion.

Runs by schedule on every table, or on the one that the event names: `{"table": "orders"}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlay.functions.observe import observed, tell_failures, tell_work
from inlay.functions.requests import MaintenanceRequest
from inlay.functions.rounds import run_round
from inlay.functions.tables import table_context, usage_of
from inlay.functions.validation import validated
from inlay.ops.compact import compact


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    asked = validated(MaintenanceRequest, event)

    def work(table: str, seconds: float) -> Mapping[str, Any]:
        ctx = table_context(table)
        result = compact(ctx, deadline_seconds=seconds, dry_run=asked.dry_run)
        tell_failures(result.failures)
        return tell_work(table, "compact", result, usage_of(ctx))

    return run_round(asked.table, context, work)
