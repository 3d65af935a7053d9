"""Garbage collection: deletes the objects that no readable version needs.

Promise: no object that a current, retained, referenced or recently expired version needs is deleted, and
none that a writer in progress could still commit. The order of steps ensures this:

1. look      list the table and find what nothing needs; if there is nothing, stop without a commit
2. boundary  commit that no object uploaded before it may be added any more (`plan.commit.apply`, Stale)
3. roots     what is needed *after* that commit: it includes everything committed before, and later commits
             cannot name an object from before the boundary unless a root does
4. archive   of that version, and a look at the pointer: if it is put back from here on, by one version too,
             the next commit finds that (`ForeignArchives`), and cannot bring in what this run deletes
5. delete    what nothing needs and is older than the boundary by more than the clock margin, 1,000 objects
             a request; then abort uploads started before that, which nobody could commit

If 2 and 3 were swapped, a writer could commit an old orphan between the listing and the delete.

All times are the store's, which has two clocks: the boundary, and what writers compare with it, is the
`Date` of answers; what is deleted is decided by LastModified. The margin is how far the second may be
behind the first. A run that observes a larger difference deletes nothing (`ClocksDisagree`).

What change streams remember of deletes (`ops.write.memory`) is forgotten after `changes.remember_days`.

Receipts, the pointer, adopted files and objects of unknown kinds are never deleted; unknown objects are
reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from inlay.errors import InvalidRequest, TableNotFound
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.notebook import Shown
from inlay.ops.commit.driver import (
    archive_at_once,
    commit,
    expect_committed,
    recent_base,
)
from inlay.ops.context import Context
from inlay.ops.erase.finish import FinishOptions, SweepResult, finish_erasures
from inlay.ops.erase.receipt import check_retention
from inlay.ops.erase.signing import Signer
from inlay.ops.maintain.expire import (
    DAY_US,
    History,
    Roots,
    check_clocks,
    check_deletable,
    delete_objects,
    expire,
)
from inlay.ops.maintain.garbage import MAX_NAMES, Garbage, LocalWorker
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.metadata.memory import AT, has_memory, memory_context
from inlay.ops.task_runner import TaskRunner
from inlay.ops.write.delete import delete
from inlay.plan.change import Change, ForgetExpirations, MoveBoundary
from inlay.plan.erasure import LIFE_SECONDS, Waiting, landing_zone
from inlay.plan.maintain.roots import (
    CLOCK_MARGIN_SECONDS,
    DECISIONS_KEPT_US,
    ListingFacts,
    Tally,
    cutoff_with_margin,
)
from inlay.record import Record, field, replace
from inlay.storage.base import DeleteFailure, Upload

if TYPE_CHECKING:
    from inlay.ops.erase.copies import LockedCopies
    from inlay.ops.maintain.garbage_ranges import RangeWorker

# More than Python's longest duration; times are counted in microseconds.
LONGEST_SECONDS = 1e14


class CollectResult(Record, Shown, kw_only=True):
    """`objects` and `bytes` were deleted (in a dry run: would be), by `kinds`; `young` unneeded objects are
    within their grace. `unknown` objects are not of this library; at most 100 are named. `keys` names up to
    1,000 of the deleted objects. `erased_objects` were deleted for erasures, `receipts` written for those
    that ended, `waiting` is (erasure, what it waits for)."""

    version: int
    commit_id: str | None = None
    dry_run: bool = False
    boundary_us: int = 0
    objects: int = 0
    bytes: int = 0
    kinds: Mapping[str, Tally] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    young: int = 0
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0
    uploads: int = 0
    roots: int = 0
    failures: tuple[DeleteFailure, ...] = ()
    erased_objects: int = 0
    receipts: tuple[str, ...] = ()
    waiting: tuple[tuple[str, Waiting], ...] = ()


def collect_garbage(
    ctx: Context,
    *,
    base: LoadedTable | None = None,
    runner: TaskRunner | None = None,
    grace_seconds: float | None = None,
    dry_run: bool = False,
    hmac_key: bytes | None = None,
    signer: Signer | None = None,
    copies: LockedCopies | None = None,
    life_seconds: float | None = LIFE_SECONDS,
    clock_margin_seconds: float | None = CLOCK_MARGIN_SECONDS,
    landing: str | None = None,
    retention_days: Mapping[str, float] | None = None,
) -> CollectResult:
    """Deletes what has been unneeded for `grace_seconds` (property `gc.grace_days` unless given).

    Open erasures are advanced as far as possible (`ops.erase.finish`); what is for these is explained at
    `Table.maintain.collect_garbage`, and the names of `retention_days` are `erase.receipt.OUT_OF_REACH`.
    Processes of a `runner` list and delete, in its place, all but what an open erasure looks for.
    `clock_margin_seconds` is how far LastModified may be behind `Date` (docs/FORMAT.md, section 2): younger
    objects are not deleted, whatever the grace, and the last sweep of an erasure waits for it. 0 is only
    correct for a store that takes both from one clock.

    The grace must be longer than the longest read and the longest upload: it is how long readers of an
    expired version keep its files; a writer slower than that must upload again.
    """
    life_seconds = LIFE_SECONDS if life_seconds is None else life_seconds
    if clock_margin_seconds is None:
        clock_margin_seconds = CLOCK_MARGIN_SECONDS
    given = {"grace": grace_seconds, "clock margin": clock_margin_seconds, "life": life_seconds}
    for what, seconds in given.items():
        if seconds is not None and not 0 <= seconds < LONGEST_SECONDS:
            raise InvalidRequest(
                f"a {what} cannot be {seconds} seconds",
                next_step="Give a number from 0, below 1e14",
                table=ctx.uri,
            )
    if hmac_key == b"":
        raise InvalidRequest(
            "an empty HMAC key hides nothing: whoever sees a receipt could try conditions",
            next_step="Give a random key of 32 bytes, or None for receipts without a digest",
            table=ctx.uri,
        )
    zone = landing_zone(ctx.root, landing)
    margin_us = int(clock_margin_seconds * 1_000_000)
    loaded = recent_base(ctx, base)
    ctx = replace(ctx, table_id=loaded.snapshot.table_id)
    loaded.refuse_handed_over(ctx)  # the other catalog's files are garbage here
    if has_memory(loaded.snapshot) and ctx.branch is None and not dry_run:
        _keep_memory(
            ctx,
            loaded,
            grace_seconds=grace_seconds,
            hmac_key=hmac_key,
            life_seconds=life_seconds,
            clock_margin_seconds=clock_margin_seconds,
        )
    swept, history = SweepResult(), History(ctx)
    if loaded.snapshot.erasures and not dry_run:
        options = FinishOptions(
            life_us=int(life_seconds * 1_000_000),
            margin_us=margin_us,
            hmac_key=hmac_key,
            signer=signer,
            copies=copies,
            landing=zone,
            retention_days=check_retention(retention_days or {}),
        )
        swept, loaded = finish_erasures(ctx, options, history=history, base=loaded)
    worker: LocalWorker | RangeWorker = LocalWorker(ctx)
    if runner is not None:
        from inlay.ops.maintain.garbage_ranges import RangeWorker  # most tables need one process

        worker = RangeWorker(ctx, runner)
    result = _collect(ctx, loaded, worker, history, grace_seconds, margin_us, dry_run)
    return replace(
        result,
        erased_objects=swept.deleted,
        receipts=swept.receipts,
        waiting=swept.waiting,
        failures=(*result.failures, *swept.failures),
    )


def _keep_memory(ctx: Context, loaded: LoadedTable, **options: Any) -> None:
    """What change streams remembered for longer than `changes.remember_days` is forgotten, and the memory's
    own garbage and erasures are seen to: the table's wait for these."""
    own = memory_context(ctx)
    try:
        memory = load_pointer(own)
    except TableNotFound:
        return  # who needs it is told (`ops.write.memory`)
    days = loaded.snapshot.settings.number("changes.remember_days")
    at = memory.snapshot.schema.column(AT)
    if at is not None and isinstance(at.type, Primitive):
        before = Literal(at.type, loaded.date_us - days * DAY_US)
        memory = delete(own, Comparison(at.id, "<", before), base=memory).loaded
    expire(own, days=0, min_versions=1)
    collect_garbage(own, landing="", **options)


def _forgotten(
    ctx: Context, loaded: LoadedTable, seen: ListingFacts, margin_us: int
) -> Sequence[str]:
    """The decisions that no table needs any more."""
    old = _old_decisions(loaded, seen, margin_us)
    if not old:
        return []
    from inlay.ops.metadata.needed_decisions import needed_decisions

    needed = frozenset(needed_decisions(ctx, old))
    return [key for key in old if key not in needed]


def _old_decisions(loaded: LoadedTable, seen: ListingFacts, margin_us: int) -> list[str]:
    """Whatever the grace, none that a process which was suspended may still look for."""
    before_us = cutoff_with_margin(loaded.date_us - DECISIONS_KEPT_US, margin_us)
    return [key for key, modified_us in seen.decisions if modified_us < before_us][:MAX_NAMES]


def _known_idle(
    ctx: Context, loaded: LoadedTable, roots: Roots, before_us: int, margin_us: int
) -> Garbage | None:
    """What an erasure that has just ended listed, which is everything, where that shows nothing to do: then
    there is nothing to do. None where it may show something, or there is no such listing."""
    listing = roots.history.listing
    if listing is None or loaded.has_open_times or loaded.transaction is not None:
        return None
    plan = roots.plan(listing.current(ctx), before_us)
    is_idle = not (
        plan.doomed
        or listing.uploads_before(before_us)
        or _old_decisions(loaded, plan.seen, margin_us)
    )
    return Garbage.of(plan) if is_idle else None


def _collect(
    ctx: Context,
    loaded: LoadedTable,
    worker: LocalWorker | RangeWorker,
    history: History,
    grace_seconds: float | None,
    margin_us: int,
    dry_run: bool,
) -> CollectResult:
    # Commits within one second of the store's clock have times a little ahead of it.
    now_us = max(loaded.date_us, loaded.snapshot.commit.time_us)
    if grace_seconds is None:
        grace_us = loaded.snapshot.settings.number("gc.grace_days") * DAY_US
    else:
        grace_us = int(grace_seconds * 1_000_000)
    since_us = now_us - grace_us
    boundary_us = max(loaded.date_us - grace_us, 0)
    roots = Roots(ctx, since_us, history)
    roots.add(loaded.state)
    before_us = cutoff_with_margin(boundary_us, margin_us)
    uploads: Sequence[Upload] = ()
    decisions: Sequence[str] = ()
    result = _known_idle(ctx, loaded, roots, before_us, margin_us)
    if result is None:
        result = worker.look(roots, before_us)
        check_deletable(ctx, loaded.snapshot, result.seen, margin_us)
        uploads = [u for u in ctx.store.list_uploads(ctx.key("")) if u.started_us < before_us]
        decisions = _forgotten(ctx, loaded, result.seen, margin_us)
    commit_id = None
    failures = () if dry_run else tuple(delete_objects(ctx, decisions))
    # An expiry's grace begins when a commit records that it was seen (`snapshot.with_open_times`).
    if not dry_run and (
        result.objects or uploads or loaded.has_open_times or loaded.transaction is not None
    ):
        updates = (MoveBoundary(boundary_us), ForgetExpirations(since_us))
        change = Change(operation="collect_garbage", updates=updates)
        base, loaded = loaded, expect_committed(ctx, commit(ctx, change, base=loaded)).loaded
        commit_id = loaded.snapshot.commit.id
        check_clocks(ctx, base.snapshot, result.seen, margin_us, now_us=loaded.date_us)
        roots.add(loaded.state)
        # Young and unknown objects were counted by the first listing.
        result = replace(
            worker.delete(roots, before_us, partial(archive_at_once, ctx, loaded)),
            young=result.young,
            unknown=result.unknown,
            unknown_count=result.unknown_count,
        )
        for _ in ctx.map(lambda u: ctx.store.abort_multipart(u.key, u.upload_id), uploads):
            pass
    return CollectResult(
        version=loaded.snapshot.version,
        commit_id=commit_id,
        dry_run=dry_run,
        boundary_us=boundary_us,
        objects=result.objects + len(decisions),
        bytes=result.bytes,
        kinds={**result.kinds, **({"decision": Tally(len(decisions))} if decisions else {})},
        keys=result.keys,
        young=result.young,
        unknown=result.unknown,
        unknown_count=result.unknown_count,
        uploads=len(uploads),
        roots=len(roots),
        failures=(*result.failures, *failures),
    )
