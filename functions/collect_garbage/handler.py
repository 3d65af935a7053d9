"""Expires old versions and deletes unreachable objects; the only function that deletes objects.

Runs by schedule on every table, or on the table in the event: `{"table": "orders", "grace_days": 0.5,
"dry_run": true}`. It also finishes erasures, which takes several runs: `{"erasures_only": true}` is for the
runs in between, and skips other tables. `{"landing_only": true}` sends landed files without an event to
ingestion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlay.engine import Snapshot, collect_garbage, expire, load_pointer
from inlay.errors import InvalidRequest
from inlay.functions import settings
from inlay.functions.completion import announce_receipts
from inlay.functions.observe import observed, report_erasures, report_work
from inlay.functions.requests import MaintenanceRequest
from inlay.functions.rounds import Round, maintain
from inlay.functions.tables import current_snapshot, landing_names, table_context

_DAY_SECONDS = 86_400


@observed
def handler(event: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
    return maintain(event, context, collect_table, round_of, takes=MaintenanceRequest.model_fields)


def round_of(asked: MaintenanceRequest) -> Round:
    if asked.landing_only:
        return Round(is_there, names=landing_names, metric="LandingRounds", queue="landing_round")
    if asked.erasures_only:
        return Round(has_erasure, metric="ErasureRounds", queue="erase_round")
    return Round(is_there)


def is_there(table: str) -> bool:
    current_snapshot(table)
    return True


def has_erasure(table: str) -> bool:
    return bool(current_snapshot(table).erasures)


def collect_table(table: str, asked: MaintenanceRequest, seconds: float) -> Mapping[str, Any]:
    if asked.landing_only:
        if asked.dry_run:
            raise InvalidRequest(
                "landed files are sent again, not only reported",
                next_step="`inlay landing TABLE` lists them",
                table=table,
            )
        from inlay.functions.landing import sweep_landing  # the other rounds need none of ingestion

        return {"landing": sweep_landing(table, settle_seconds=asked.settle_seconds)}
    ctx = table_context(table)
    loaded = load_pointer(ctx)
    snapshot = loaded.snapshot
    if asked.erasures_only and not snapshot.erasures:
        return {}
    expired = expire(ctx, dry_run=asked.dry_run)
    collected = collect_garbage(
        ctx,
        grace_seconds=_grace_seconds(snapshot, asked),
        dry_run=asked.dry_run,
        # Fetched only where there may be a receipt to write.
        hmac_key=settings.erasure_key() if snapshot.erasures else None,
        signer=settings.receipt_signer() if snapshot.erasures else None,
        copies=settings.receipt_copies() if snapshot.erasures else None,
        retention_days=settings.retention_days(),
        life_seconds=asked.life_seconds,
        clock_margin_seconds=asked.clock_margin_seconds,
    )
    if not asked.dry_run:
        daily = not asked.erasures_only
        announce_receipts(table, ctx, collected.receipts, now_us=loaded.date_us, again=daily)
    report_erasures(table, snapshot, collected, now_us=loaded.date_us)
    return {
        "expire": report_work(table, "expire", expired, None),
        "collect_garbage": report_work(table, "collect_garbage", collected, ctx.usage),
    }


def _grace_seconds(snapshot: Snapshot, asked: MaintenanceRequest) -> float | None:
    """The event's grace, else the table's own, else the deployment's."""
    if asked.grace_days is not None:
        return asked.grace_days * _DAY_SECONDS
    if "gc.grace_days" in snapshot.properties:
        return None
    return settings.grace_days() * _DAY_SECONDS
