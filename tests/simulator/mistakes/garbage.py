"""Garbage collection and erasure broken: what is deleted, and when; and publication: what other engines are
shown, and what is kept for them."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

from tests.simulator import scenes
from tests.simulator.mistakes.registry import RARE_SEEDS, mutation, swap_in

from inlay.format import keys
from inlay.format import snapshot as snapshot_module
from inlay.format.snapshot import Boundary
from inlay.ops import collect_garbage as gc_module
from inlay.ops.commit import driver as driver_module
from inlay.ops.commit import group as group_module
from inlay.ops.erase import finish as finish_module
from inlay.ops.maintain import expire as expire_module
from inlay.ops.metadata import load as load_module
from inlay.ops.publish import publish as publish_module
from inlay.ops.write import ingest as ingest_module
from inlay.plan.change import Change, Proposal
from inlay.plan.commit import draft as draft_module


@mutation(scenes.STALLED)
def ignore_the_boundary(stack: ExitStack) -> None:
    """A stalled writer commits objects that GC may delete."""

    def apply(state: Any, change: Change, **how: Any) -> Any:
        return original(state, dataclasses.replace(change, uploaded_us=None), **how)

    swap_in(stack, group_module, "apply", apply)
    original = swap_in(stack, driver_module, "apply", apply)


@mutation(scenes.STALLED)
def collect_before_the_boundary_is_committed(stack: ExitStack) -> None:
    """GC deletes without moving the boundary."""

    def build(self: Any) -> Any:
        snapshot = original(self)
        if snapshot is not None and self.change.operation == "collect_garbage":
            return dataclasses.replace(snapshot, boundary=Boundary())
        return snapshot

    original = swap_in(stack, draft_module.Draft, "build", build)


@mutation(scenes.UNDONE, within=RARE_SEEDS, first=12)
def leave_the_boundary_in_the_pointer_alone(stack: ExitStack) -> None:
    """GC deletes before the boundary is archived: a pointer put back by one version forgets it."""
    swap_in(stack, gc_module, "archive_at_once", lambda ctx, loaded: (loaded, loaded.snapshot))


@mutation(scenes.SKEWED)
def take_last_modified_for_the_date(stack: ExitStack) -> None:
    """GC deletes by LastModified up to the boundary, which is a Date: no margin between the two."""
    swap_in(stack, gc_module, "cutoff_with_margin", lambda boundary_us, margin_us: boundary_us)


@mutation(scenes.SKEWED_ERASING, first=8)
def sweep_up_to_now(stack: ExitStack) -> None:
    """An erasure's sweep deletes by LastModified up to its boundary, which is the Date of just now."""
    swap_in(stack, finish_module, "cutoff_with_margin", lambda boundary_us, margin_us: boundary_us)


@mutation(scenes.STALLED)
def trust_the_clock_of_the_host(stack: ExitStack) -> None:
    """GC asks its own clock what time it is."""

    def base(ctx: Any, known: Any) -> Any:
        loaded = original(ctx, known)
        return dataclasses.replace(loaded, date_us=int(ctx.clock.monotonic() * 1_000_000))

    original = swap_in(stack, gc_module, "recent_base", base)


@mutation(scenes.STALLED_EXPIRY)
def expire_at_the_time_of_planning(stack: ExitStack) -> None:
    """An expiry states the time at which it was planned, not one at which it had landed."""

    def seal(proposal: Proposal, *, date_us: int, previous_us: int) -> Any:
        snapshot = original(proposal, date_us=date_us, previous_us=previous_us)
        stamped = tuple(
            e if e.time_us is not None else dataclasses.replace(e, time_us=previous_us)
            for e in snapshot.expired
        )
        return dataclasses.replace(snapshot, expired=stamped)

    original = swap_in(stack, driver_module, "seal", seal)


@mutation(scenes.STALLED_EXPIRY)
def give_readers_of_expired_versions_no_grace(stack: ExitStack) -> None:
    """What has expired is garbage at once."""

    def gone(snapshot: Any, *, before_us: int) -> int:
        return int(snapshot.oldest_version) - 1

    swap_in(stack, expire_module, "expired_before", gone)


@mutation(scenes.UNSEEN_EXPIRY)
def keep_the_time_of_an_unseen_commit(stack: ExitStack) -> None:
    """What a commit leaves open ("from now on") is taken for the commit's own time."""

    def observed(snapshot: Any, seen_us: int) -> Any:
        return original(snapshot, snapshot.commit.time_us)

    original = snapshot_module.with_open_times
    for module in (driver_module, load_module):
        swap_in(stack, module, "with_open_times", observed)


@mutation(scenes.ERASING)
def ingest_rows_from_before_an_erasure(stack: ExitStack) -> None:
    """An object that landed before an erasure was opened comes in unmarked."""
    swap_in(stack, draft_module.Draft, "_late", lambda self: ())


@mutation(scenes.ERASING)
def end_an_erasure_at_once(stack: ExitStack) -> None:
    """Nobody waits for readers and writers that were under way when the rows went."""
    swap_in(stack, finish_module._Sweeper, "_wait", lambda self, *_: {})


@mutation(scenes.STALLED_DELETES, within=RARE_SEEDS, first=18)
def commit_segments_of_an_earlier_attempt(stack: ExitStack) -> None:
    """Segments that this commit wrote days ago are taken to be there still."""
    swap_in(
        stack, driver_module.WrittenSegments, "forget_stale", lambda self, ctx, boundary_us: None
    )


@mutation(scenes.OVERWRITTEN)
def copy_whatever_has_landed_since(stack: ExitStack) -> None:
    """A landed object is copied as it is now, not as it was looked at (no CopySourceIfMatch)."""

    def copy(ctx: Any, source: Any, key: str, *, size: int, etag: str) -> Any:
        return ctx.store.copy(source, key)

    swap_in(stack, ingest_module, "copy_object", copy)


@mutation(scenes.PUBLISHED)
def publish_files_without_their_vectors(stack: ExitStack) -> None:
    """Deleted rows are shown: what UniForm does."""

    def none(self: Any, groups: Any) -> None:
        return None

    swap_in(stack, publish_module._Attempt, "_prepare_deletes", none)


@mutation(scenes.PUBLISHED_IN_HASTE, first=8)
def publish_whatever_is_there_already(stack: ExitStack) -> None:
    """A publisher that stalled takes the publication back: its swap has no condition."""

    def swap(ctx: Any, found: Any, body: bytes) -> bool:
        ctx.store.put(ctx.key(keys.PUBLISHED_POINTER), body)
        return True

    swap_in(stack, publish_module, "_swap", swap)


@mutation(scenes.PUBLISHED, first=11)
def collect_what_is_published(stack: ExitStack) -> None:
    """Published snapshots are no roots: a reader's manifests and files go while he reads."""
    swap_in(stack, expire_module, "is_published", lambda properties: False)


@mutation(scenes.PUBLISHED)
def publish_manifests_of_another_version(stack: ExitStack) -> None:
    """Manifests are taken over by their group although the group has changed: its digest leaves out
    what is inline."""

    def groups(leaves: Any, inline: Any, *rest: Any) -> Any:
        return original(leaves, [""] * bool(inline), *rest)

    original = swap_in(stack, publish_module, "groups_of", groups)
