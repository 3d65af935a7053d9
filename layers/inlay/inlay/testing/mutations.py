"""Mutations: the protocol broken on purpose, one rule at a time.

Promise: each of these is a mistake that somebody could make, and the simulator catches it within
`SEEDS` schedules. One that nobody catches is a defect of the simulator.

::

    python -m inlay.testing.mutations            # all of them: name, seed that caught it, what it said
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from inlay.format import snapshot as snapshot_module
from inlay.format.entry import DataFile
from inlay.format.snapshot import Boundary, Tier
from inlay.ops import collect_garbage as gc_module
from inlay.ops import commit as commit_module
from inlay.ops import group as group_module
from inlay.ops import load as load_module
from inlay.ops import roots as roots_module
from inlay.ops import sweep as sweep_module
from inlay.plan import apply as apply_module
from inlay.plan import conflicts as conflicts_module
from inlay.plan import draft as draft_module
from inlay.plan import reach as reach_module
from inlay.plan import roots as plan_roots_module
from inlay.plan import scan as scan_module
from inlay.plan.change import Change, Proposal, Unit
from inlay.testing.cast import ROW_WORK, focused
from inlay.testing.groups import group_cast, stalled_group_cast
from inlay.testing.historians import historians_cast, restoring_cast
from inlay.testing.simulation import run_schedule
from inlay.testing.stage import Simulation

# A mutation must be caught within this many schedules.
SEEDS = 800

Mutation = Callable[[ExitStack], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(make: Mutation) -> Mutation:
    MUTATIONS[make.__name__] = make
    return make


def _swap_in(stack: ExitStack, module: Any, name: str, replacement: Any) -> Any:
    original = getattr(module, name)
    stack.enter_context(patch.object(module, name, replacement))
    return original


@contextmanager
def applied(name: str) -> Iterator[None]:
    """The protocol with this mistake in it."""
    with ExitStack() as stack:
        MUTATIONS[name](stack)
        yield


# -- the swap -------------------------------------------------------------------------------------


@mutation
def believe_every_refusal(stack: ExitStack) -> None:
    """A 412 or a timeout of the swap is taken for a lost race, without a look."""
    lost = commit_module._Lost()
    _swap_in(stack, commit_module, "_look", lambda *_: lost)


@mutation
def believe_a_timeout_landed(stack: ExitStack) -> None:
    """No answer is taken for success."""
    _swap_in(stack, commit_module, "_look", lambda ctx, loaded, mine: (loaded.etag, loaded.date_us))


@mutation
def drop_if_match(stack: ExitStack) -> None:
    """The pointer is written whatever is there."""
    _swap_in(stack, commit_module, "IfMatch", lambda etag: None)


@mutation
def drop_if_none_match(stack: ExitStack) -> None:
    """A table is created over another."""
    _swap_in(stack, commit_module, "IF_ABSENT", None)
    from inlay.ops import create as create_module
    from inlay.storage.base import Missing

    original = create_module.create

    def blind(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with (
            patch.object(create_module, "Head", type("Never", (), {})),
            patch.object(ctx.store, "head", lambda key: Missing(1), create=True),
        ):
            return original(ctx, *args, **kwargs)

    from inlay.testing import cast

    _swap_in(stack, cast, "create", blind)


@mutation
def skip_the_archive(stack: ExitStack) -> None:
    """The base is not archived before the swap."""

    def put_once(ctx: Any, relative: str, data: bytes) -> int:
        return 0 if "/v" in relative else original(ctx, relative, data)

    original = _swap_in(stack, commit_module, "_put_once", put_once)


@mutation
def skip_the_segments(stack: ExitStack) -> None:
    """The pointer refers to segments that were not written."""

    def put_once(ctx: Any, relative: str, data: bytes) -> int:
        return 0 if "segments/" in relative else original(ctx, relative, data)

    original = _swap_in(stack, commit_module, "_put_once", put_once)


# -- the ledger -----------------------------------------------------------------------------------


@mutation
def ask_the_ledger_only_once(stack: ExitStack) -> None:
    """On a rebase the ledger is not asked again."""
    asked: dict[int, Any] = {}

    def look_up(state: Any, change: Change) -> Any:
        if id(change) in asked:
            return frozenset()
        found = original(state, change)
        if isinstance(found, frozenset):
            asked[id(change)] = change  # kept, so that the id is not given to another
        return found

    original = _swap_in(stack, apply_module, "look_up", look_up)


@mutation
def drop_the_ledger_at_compaction(stack: ExitStack) -> None:
    """Maintenance forgets which requests were applied."""

    def build(self: Any) -> Any:
        snapshot = original(self)
        if snapshot is not None and self.change.operation in ("compact", "rewrite"):
            ledger = dataclasses.replace(snapshot.ledger, records=Tier())
            return dataclasses.replace(snapshot, ledger=ledger)
        return snapshot

    original = _swap_in(stack, draft_module.Draft, "build", build)


@mutation
def forget_to_record_the_request(stack: ExitStack) -> None:
    """A commit leaves its own request out of the ledger."""

    def ledger(self: Any, records: Any) -> Any:
        return original(self, ())

    original = _swap_in(stack, draft_module.Draft, "_ledger", ledger)


# -- deletes --------------------------------------------------------------------------------------


def _hit_files_of_the_same_commit(marker: Any, entry: Any, schema: Any) -> bool:
    if marker.file is None and marker.sequence is not None and entry.sequence == marker.sequence:
        return True
    return reach_module.marker_may_hit(marker, entry, schema)


@mutation
def tombstones_hit_their_own_commit(stack: ExitStack) -> None:
    """Sequence < S becomes sequence <= S."""
    _swap_in(stack, scan_module, "marker_may_hit", _hit_files_of_the_same_commit)


@mutation
def the_last_row_delete_wins(stack: ExitStack) -> None:
    """Row deletes on one file replace one another instead of uniting."""

    def build(self: Any) -> Any:
        snapshot = original(self)
        fresh = {m.file for m in self.change.add_markers if m.file is not None}
        if snapshot is None or not fresh:
            return snapshot
        mine = {m.id for m in self.change.add_markers}
        inline = tuple(m for m in snapshot.markers.inline if m.file not in fresh or m.id in mine)
        return dataclasses.replace(snapshot, markers=Tier(snapshot.markers.segments, inline))

    original = _swap_in(stack, draft_module.Draft, "build", build)


@mutation
def drop_markers_that_may_still_hit(stack: ExitStack) -> None:
    """Maintenance drops its markers without looking at the base it commits on."""
    _swap_in(stack, draft_module.Draft, "_may_hit", lambda self, marker, files: False)


@mutation
def cover_files_that_have_nulls(stack: ExitStack) -> None:
    """A file is dropped when its bounds lie in the predicate, NULLs or not."""

    def all_match(predicate: Any, stats: Any, rows: int) -> bool:
        bare = {i: dataclasses.replace(s, null_count=0) for i, s in stats.items()}
        return bool(original(predicate, bare, rows))

    original = _swap_in(stack, draft_module, "all_match", all_match)


# -- maintenance ----------------------------------------------------------------------------------


def _with_outputs(unit: Unit, **changes: Any) -> Unit:
    return dataclasses.replace(
        unit, outputs=tuple(dataclasses.replace(f, **changes) for f in unit.outputs)
    )


@mutation
def compaction_gives_its_output_its_own_sequence(stack: ExitStack) -> None:
    """Outputs bear the version that commits them, not the one they were planned on."""

    def settle(state: Any, change: Change) -> Any:
        held, skipped, moved = original(state, change)
        return tuple(_with_outputs(u, sequence=None) for u in held), skipped, moved

    original = _swap_in(stack, apply_module, "settle_units", settle)


@mutation
def lose_markers_that_landed_during_a_rewrite(stack: ExitStack) -> None:
    """Neither remapped nor a reason to give the unit up."""
    _swap_in(stack, conflicts_module, "_remap", lambda unit, landed: [])


@mutation
def rewrite_inputs_that_are_gone(stack: ExitStack) -> None:
    """A unit is committed although another has replaced its input."""

    def settle(state: Any, change: Change) -> Any:
        held, skipped, moved = original(state, change)
        return (*held, *skipped), (), moved

    original = _swap_in(stack, apply_module, "settle_units", settle)


# -- isolation ------------------------------------------------------------------------------------


@mutation
def never_validate_what_was_read(stack: ExitStack) -> None:
    """Updates are not planned again when what they read has changed."""
    _swap_in(stack, conflicts_module, "_validate_reads", lambda state, reads: None)


@mutation
def outputs_of_maintenance_are_never_arrivals(stack: ExitStack) -> None:
    """What compaction packed is old, whatever it was packed from."""

    def with_arrival(unit: Unit, inputs: Any) -> Unit:
        return _with_outputs(unit, arrived=1)

    _swap_in(stack, conflicts_module, "_with_arrival", with_arrival)


@mutation
def delete_rows_of_files_that_are_gone(stack: ExitStack) -> None:
    """Row deletes are committed although their file was replaced."""

    def validate(state: Any, change: Change) -> Any:
        found = original(state, change)
        return None if found is not None and found.gone and change.reads is None else found

    original = _swap_in(stack, apply_module, "validate", validate)


# -- garbage --------------------------------------------------------------------------------------


@mutation
def ignore_the_boundary(stack: ExitStack) -> None:
    """A stalled writer commits objects that GC may delete."""

    def apply(state: Any, change: Change, **how: Any) -> Any:
        return original(state, dataclasses.replace(change, uploaded_us=None), **how)

    original = _swap_in(stack, commit_module, "apply", apply)


@mutation
def collect_before_the_boundary_is_committed(stack: ExitStack) -> None:
    """GC deletes first and moves the boundary nowhere."""

    def build(self: Any) -> Any:
        snapshot = original(self)
        if snapshot is not None and self.change.operation == "collect_garbage":
            return dataclasses.replace(snapshot, boundary=Boundary())
        return snapshot

    original = _swap_in(stack, draft_module.Draft, "build", build)


@mutation
def trust_the_clock_of_the_host(stack: ExitStack) -> None:
    """GC asks its own clock what time it is."""

    def load(ctx: Any, **how: Any) -> Any:
        loaded = original(ctx, **how)
        return dataclasses.replace(loaded, date_us=int(ctx.clock.monotonic() * 1_000_000))

    original = _swap_in(stack, gc_module, "load_pointer", load)


@mutation
def expire_at_the_time_of_planning(stack: ExitStack) -> None:
    """An expiry states the time at which it was planned, not one at which it had landed."""

    def seal(proposal: Proposal, *, date_us: int, previous_us: int) -> Any:
        snapshot = original(proposal, date_us=date_us, previous_us=previous_us)
        stamped = tuple(
            e if e.time_us is not None else dataclasses.replace(e, time_us=previous_us)
            for e in snapshot.expired
        )
        return dataclasses.replace(snapshot, expired=stamped)

    original = _swap_in(stack, commit_module, "seal", seal)


@mutation
def give_readers_of_expired_versions_no_grace(stack: ExitStack) -> None:
    """What has expired is garbage at once."""

    def gone(snapshot: Any, *, before_us: int) -> int:
        return int(snapshot.oldest_version) - 1

    _swap_in(stack, roots_module, "gone_through", gone)


@mutation
def keep_the_time_of_an_unseen_commit(stack: ExitStack) -> None:
    """What a commit leaves open ("from now on") is taken for the commit's own time."""

    def observed(snapshot: Any, seen_us: int) -> Any:
        return original(snapshot, snapshot.commit.time_us)

    original = snapshot_module.observed
    for module in (commit_module, load_module):
        _swap_in(stack, module, "observed", observed)


@mutation
def forget_a_request_of_a_group(stack: ExitStack) -> None:
    """Of the appends that share a swap, one is left out of the ledger."""

    def merge(changes: Any) -> Change:
        found: Change = original(changes)
        return found if len(changes) == 1 else dataclasses.replace(found, events=found.events[1:])

    original = _swap_in(stack, group_module, "merge", merge)


@mutation
def date_a_group_by_its_newest_upload(stack: ExitStack) -> None:
    """The boundary of GC is held against the newest of the group's uploads, not the oldest."""

    def merge(changes: Any) -> Change:
        found: Change = original(changes)
        uploads = [c.uploaded_us for c in changes if c.uploaded_us is not None]
        return dataclasses.replace(found, uploaded_us=max(uploads, default=None))

    original = _swap_in(stack, group_module, "merge", merge)


@mutation
def ingest_rows_from_before_an_erasure(stack: ExitStack) -> None:
    """An object that landed before an erasure was opened comes in unmarked."""
    _swap_in(stack, draft_module.Draft, "_late", lambda self: ())


@mutation
def carry_row_deletes_over_without_mapping_them(stack: ExitStack) -> None:
    """Positions in the old file are taken for positions in the new one."""

    def remap(unit: Unit, landed: Any) -> Any:
        moved = original(unit, landed)
        bodies = {m.id: m.body for m in landed}
        return moved and [dataclasses.replace(m, body=bodies[m.id]) for m in moved]

    original = _swap_in(stack, conflicts_module, "_remap", remap)


@mutation
def take_the_age_of_a_file_for_that_of_its_rows(stack: ExitStack) -> None:
    """Validation of reads asks when the rows' place in the order is, not when they arrived."""
    _swap_in(stack, DataFile, "newest_rows", property(lambda self: self.sequence or 0))


@mutation
def believe_a_newer_pointer_without_the_archive(stack: ExitStack) -> None:
    """Others have committed since: mine is taken for lost, though it may lie beneath theirs."""

    def look(ctx: Any, loaded: Any, mine: Any) -> Any:
        seen = original(ctx, loaded, mine)
        return lost if isinstance(seen, tuple) and not seen[0] else seen

    lost = commit_module._Lost()
    original = _swap_in(stack, commit_module, "_look", look)


@mutation
def bury_nothing(stack: ExitStack) -> None:
    """Entries in segments that were replaced stay alive."""
    _swap_in(stack, draft_module, "bury", lambda segments, dead: tuple(segments))


@mutation
def reuse_what_was_written_for_a_file_that_changed(stack: ExitStack) -> None:
    """A delete that is planned again commits what it wrote for files that were marked since."""

    def settle(state: Any, change: Change) -> Any:
        held, skipped, moved = original(state, change)
        if change.operation != "delete":
            return held, skipped, moved
        return (*held, *skipped), (), moved

    original = _swap_in(stack, apply_module, "settle_units", settle)


@mutation
def end_an_erasure_at_once(stack: ExitStack) -> None:
    """Nobody waits for readers and writers that were under way when the rows went."""
    _swap_in(stack, sweep_module._Sweeper, "_wait", lambda self, *_: None)


# -- history --------------------------------------------------------------------------------------


@mutation
def edit_refs_that_have_moved(stack: ExitStack) -> None:
    """A ref is changed whatever became of it since, and made of a version that may be gone."""
    _swap_in(stack, conflicts_module, "validate_refs", lambda snapshot, edit: None)


@mutation
def commit_over_a_restore(stack: ExitStack) -> None:
    """What was planned on content that a restore has put away is committed all the same."""

    def validate(state: Any, change: Change) -> Any:
        kept = dataclasses.replace(state.snapshot, replaced=0)
        return original(dataclasses.replace(state, snapshot=kept), change)

    original = _swap_in(stack, apply_module, "validate", validate)


@mutation
def collect_what_a_tag_holds(stack: ExitStack) -> None:
    """A version that only a ref keeps is garbage like any other."""
    _swap_in(stack, plan_roots_module, "held_versions", lambda snapshot: frozenset())


# Who meets whom is chance: for what only few actors can show, these are the actors.
CASTS: dict[str, Callable[[Simulation], None]] = {
    "forget_a_request_of_a_group": group_cast,
    "date_a_group_by_its_newest_upload": stalled_group_cast,
    "ingest_rows_from_before_an_erasure": focused("erase", "erase", "append"),
    "end_an_erasure_at_once": focused("erase", "erase", "append", "read", "read", "compact"),
    "edit_refs_that_have_moved": historians_cast,
    "commit_over_a_restore": restoring_cast,
    "collect_what_a_tag_holds": historians_cast,
    "carry_row_deletes_over_without_mapping_them": focused(*ROW_WORK),
    "reuse_what_was_written_for_a_file_that_changed": focused(*ROW_WORK),
    "lose_markers_that_landed_during_a_rewrite": focused(*ROW_WORK),
}


def caught(name: str, *, seeds: int = SEEDS, first: int = 0) -> tuple[int, str] | None:
    """The first seed that shows the mistake, and what it says; None when none does."""
    with applied(name):
        for seed in range(first, first + seeds):
            report = run_schedule(seed, cast=CASTS.get(name))
            if report.violation:
                return seed, report.violation
    return None


def _look_for(name: str) -> tuple[str, tuple[int, str] | None]:
    return name, caught(name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m inlay.testing.mutations")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("names", nargs="*", help="of mutations; all without")
    options = parser.parse_args()
    names = options.names or list(MUTATIONS)
    missed = 0
    with multiprocessing.get_context("spawn").Pool(options.jobs, gc.freeze) as pool:
        for name, found in pool.imap_unordered(_look_for, names):
            missed += found is None
            said = f"seed {found[0]:4}  {found[1][:90]}" if found else "NOT CAUGHT"
            print(f"{name:48} {said}", flush=True)
    print(f"{len(names) - missed} of {len(names)} mutations caught within {SEEDS} schedules")
    return 1 if missed else 0


__all__ = ["MUTATIONS", "SEEDS", "applied", "caught"]

if __name__ == "__main__":
    raise SystemExit(main())
