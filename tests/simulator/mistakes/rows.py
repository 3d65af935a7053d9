"""Rows broken: deletes, the isolation of those who read before they write, and what rewriting and
compaction carry over."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

from tests.simulator import scenes
from tests.simulator.mistakes.registry import mutation, swap_in

from inlay.format.snapshot import Tier
from inlay.plan import scan as scan_module
from inlay.plan.change import Change, Reads, Unit
from inlay.plan.commit import apply as apply_module
from inlay.plan.commit import conflicts as conflicts_module
from inlay.plan.commit import draft as draft_module


@mutation()
def tombstones_hit_their_own_commit(stack: ExitStack) -> None:
    """Sequence < S becomes sequence <= S."""

    def marker_may_hit(marker: Any, entry: Any, evidence: Any) -> bool:
        if (
            marker.file is None
            and marker.sequence is not None
            and entry.sequence == marker.sequence
        ):
            return True
        return bool(original(marker, entry, evidence))

    original = swap_in(stack, scan_module, "marker_may_hit", marker_may_hit)


@mutation(scenes.ROWS)
def the_last_row_delete_wins(stack: ExitStack) -> None:
    """Row deletes on one file replace one another instead of uniting."""

    def build(self: Any) -> Any:
        snapshot = original(self)
        fresh = {m.file for m in self.change.markers if m.file is not None}
        if snapshot is None or not fresh:
            return snapshot
        mine = {m.id for m in self.change.markers}
        inline = tuple(m for m in snapshot.markers.inline if m.file not in fresh or m.id in mine)
        return dataclasses.replace(snapshot, markers=Tier(snapshot.markers.segments, inline))

    original = swap_in(stack, draft_module.Draft, "build", build)


@mutation()
def drop_markers_that_may_still_hit(stack: ExitStack) -> None:
    """Maintenance drops its markers without looking at the base it commits on."""
    swap_in(stack, draft_module.Draft, "_hits", lambda self, marker: (lambda _: False,) * 2)


@mutation(scenes.NULLS)
def cover_files_that_have_nulls(stack: ExitStack) -> None:
    """A file is dropped when its bounds are within the predicate, whether it has NULLs or not."""

    def without_nulls(entry: Any) -> Any:
        stats = {i: dataclasses.replace(s, null_count=0) for i, s in entry.stats.items()}
        return dataclasses.replace(entry, stats=stats)

    def marker_hits_all(marker: Any, entry: Any, evidence: Any) -> bool:
        return bool(hits_all(marker, without_nulls(entry), evidence))

    def is_emptied(self: Any, predicate: Any, entry: Any) -> bool:
        return bool(emptied(self, predicate, without_nulls(entry)))

    hits_all = swap_in(stack, scan_module, "marker_hits_all", marker_hits_all)
    emptied = swap_in(stack, draft_module.Draft, "_is_emptied", is_emptied)


@mutation(scenes.MARKS)
def delete_rows_of_files_that_are_gone(stack: ExitStack) -> None:
    """Row deletes are committed although their file was replaced."""

    def validate(state: Any, change: Change) -> Any:
        found = original(state, change)
        return None if found is not None and found.gone and change.reads is None else found

    original = swap_in(stack, apply_module, "validate", validate)


@mutation(scenes.ROWS)
def reuse_what_was_written_for_a_file_that_changed(stack: ExitStack) -> None:
    """A delete that is planned again commits what it wrote for files that were marked since."""

    def settle(state: Any, change: Change) -> Any:
        held, skipped, moved = original(state, change)
        if change.operation != "delete":
            return held, skipped, moved
        return (*held, *skipped), (), moved

    original = swap_in(stack, apply_module, "units_that_hold", settle)


@mutation(scenes.ARRIVALS)
def never_validate_what_was_read(stack: ExitStack) -> None:
    """Updates are not planned again when what they read has changed."""
    swap_in(stack, conflicts_module, "_validate_reads", lambda state, reads: None)


@mutation(scenes.SERIALIZABLE)
def let_serializable_deletes_miss_arrivals(stack: ExitStack) -> None:
    """What came while a delete was looking for rows stays, under any isolation."""

    def validate(state: Any, change: Change) -> Any:
        if change.operation == "delete":
            kept = tuple(r for r in change.requires if not isinstance(r, Reads))
            change = dataclasses.replace(change, requires=kept)
        return original(state, change)

    original = swap_in(stack, apply_module, "validate", validate)


def _with_outputs(unit: Unit, **changes: Any) -> Unit:
    return dataclasses.replace(
        unit, outputs=tuple(dataclasses.replace(f, **changes) for f in unit.outputs)
    )


@mutation(scenes.TOMBSTONES)
def compaction_gives_its_output_its_own_sequence(stack: ExitStack) -> None:
    """Outputs bear the version that commits them, not the one they were planned on."""

    def settle(state: Any, change: Change) -> Any:
        held, skipped, moved = original(state, change)
        return tuple(_with_outputs(u, sequence=None) for u in held), skipped, moved

    original = swap_in(stack, apply_module, "units_that_hold", settle)


@mutation(scenes.MARKS)
def lose_markers_that_landed_during_a_rewrite(stack: ExitStack) -> None:
    """Neither remapped nor a reason to give the unit up."""
    swap_in(stack, conflicts_module, "_remap", lambda unit, landed: [])


@mutation(scenes.MARKS)
def carry_row_deletes_over_without_mapping_them(stack: ExitStack) -> None:
    """Positions in the old file are taken for positions in the new one."""

    def remap(unit: Unit, landed: Any) -> Any:
        moved = original(unit, landed)
        bodies = {m.id: m.body for m in landed}
        return moved and [dataclasses.replace(m, body=bodies[m.id]) for m in moved]

    original = swap_in(stack, conflicts_module, "_remap", remap)


@mutation(scenes.ROWS)
def rewrite_inputs_that_are_gone(stack: ExitStack) -> None:
    """A unit is committed although another has replaced its input."""

    def settle(state: Any, change: Change) -> Any:
        held, skipped, moved = original(state, change)
        return (*held, *skipped), (), moved

    original = swap_in(stack, apply_module, "units_that_hold", settle)


@mutation()
def replaced_entries_stay_alive(stack: ExitStack) -> None:
    """Entries in segments that were replaced stay alive."""
    swap_in(stack, draft_module, "mark_dead", lambda segments, nodes, dead: tuple(segments))


@mutation(scenes.ARRIVALS)
def outputs_of_maintenance_are_never_arrivals(stack: ExitStack) -> None:
    """What compaction packed is old, whatever it was packed from."""

    def with_arrival(unit: Unit, inputs: Any) -> Unit:
        return _with_outputs(unit, arrived=1)

    swap_in(stack, conflicts_module, "_with_arrival", with_arrival)
