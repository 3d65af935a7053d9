"""Expires old versions and deletes what nothing can reach; the only function that deletes objects.

Runs by schedule on every table, or as the event says: `{"table": "orders", "grace_days": 0.5,
"dry_run": true}`. It also ends erasures: what it deletes is the last thing they wait for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlay.functions import settings
from inlay.functions.observe import observed, tell_work
from inlay.functions.requests import MaintenanceRequest
from inlay.functions.rounds import run_round
from inlay.functions.tables import table_context, usage_of
from inlay.functions.validation import validated
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.context import Context
from inlay.ops.expire import expire
from inlay.ops.load import load_pointer

_DAY_SECONDS = 86_400


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    asked = validated(MaintenanceRequest, event)

    def work(table: str, seconds: float) -> Mapping[str, Any]:
        ctx = table_context(table)
        expired = expire(ctx, dry_run=asked.dry_run)
        collected = collect_garbage(
            ctx, grace_seconds=_grace_seconds(ctx, asked), dry_run=asked.dry_run
        )
        return {
            "expire": tell_work(table, "expire", expired, None),
            "collect_garbage": tell_work(table, "collect_garbage", collected, usage_of(ctx)),
        }

    return run_round(asked.table, context, work)


def _grace_seconds(ctx: Context, asked: MaintenanceRequest) -> float | None:
    """The event's grace, else the table's own, else the deployment's."""
    if asked.grace_days is not None:
        return asked.grace_days * _DAY_SECONDS
    if "gc.grace_days" in load_pointer(ctx).snapshot.properties:
        return None
    return settings.grace_days() * _DAY_SECONDS
