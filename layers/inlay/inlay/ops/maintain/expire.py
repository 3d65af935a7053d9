"""Expire: old versions can no longer be opened, and their objects become garbage after the grace.

Promise: nothing is deleted here, and nothing that the retention or a ref keeps is expired
(`plan.maintain.retention`). One commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.errors import InvalidRequest, VersionNotFound
from inlay.format.properties import Properties
from inlay.ops.commit.base import recent_base
from inlay.ops.commit.driver import Committed, commit, expect_committed
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_as_of
from inlay.plan.change import Change, ExpireThrough
from inlay.plan.maintain.retention import ExpiryPlan, plan_expiry

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireResult:
    """Versions `first` … `through` have expired (None: none), except those in `held`, which refs keep.
    `oldest` is the oldest version that can still be opened."""

    version: int
    commit_id: str | None = None
    first: int | None = None
    through: int | None = None
    held: tuple[int, ...] = ()
    expired: int = 0
    oldest: int = 1


def expire(
    ctx: Context,
    *,
    base: LoadedTable | None = None,
    days: float | None = None,
    min_versions: int | None = None,
    dry_run: bool = False,
) -> ExpireResult:
    """Expires the versions that were superseded more than `days` ago, keeping at least `min_versions` (by
    default the properties `history.days` and `history.min_versions`)."""
    if days is not None and not (isinstance(days, int | float) and 0 <= days < 1e6):
        raise InvalidRequest(
            f"cannot keep versions for {str(days)[:50]!r} days", next_step="Give a number from 0"
        )
    loaded = recent_base(ctx, base)
    snapshot = loaded.snapshot
    properties = Properties(snapshot.properties)
    age_us = int((properties.number("history.days") if days is None else days) * DAY_US)
    count = properties.number("history.min_versions") if min_versions is None else min_versions
    if age_us < 0 or count < 1:
        raise InvalidRequest(
            f"cannot keep {days} days and {count} versions",
            next_step="Give days from 0 and at least 1 version",
            table=ctx.uri,
        )
    # Commits within one second of the store's clock have times a little ahead of it.
    now_us = max(loaded.date_us, snapshot.commit.time_us)
    plan = plan_expiry(
        snapshot, newest_old=_newest_before(ctx, loaded, now_us - age_us), min_versions=count
    )
    if plan is None:
        return ExpireResult(version=snapshot.version, oldest=snapshot.oldest_version)
    if dry_run:
        return _result(loaded, plan, commit_id=None)
    change = Change(operation="expire", updates=(ExpireThrough(plan.through),))
    outcome = expect_committed(ctx, commit(ctx, change, base=loaded))
    made = outcome.loaded.snapshot
    return _result(
        outcome.loaded, plan, commit_id=made.commit.id if isinstance(outcome, Committed) else None
    )


def _result(loaded: LoadedTable, plan: ExpiryPlan, *, commit_id: str | None) -> ExpireResult:
    return ExpireResult(
        version=loaded.snapshot.version,
        commit_id=commit_id,
        first=plan.first,
        through=plan.through,
        held=plan.held,
        expired=plan.count,
        oldest=plan.through + 1,
    )


def _newest_before(ctx: Context, loaded: LoadedTable, time_us: int) -> int | None:
    try:
        return load_as_of(ctx, loaded.snapshot, time_us).version
    except VersionNotFound:
        return None  # every version that can be opened is younger
