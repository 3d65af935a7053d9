"""Maintenance broken: what rewriting and compaction carry over, and the lists of files."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

from inlay.plan.change import Change, Unit
from inlay.plan.commit import apply as apply_module
from inlay.plan.commit import conflicts as conflicts_module
from inlay.plan.commit import draft as draft_module
from inlay.testing import scenes
from inlay.testing.mistakes.registry import mutation, swap_in


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

    original = swap_in(stack, apply_module, "settle_units", settle)


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

    original = swap_in(stack, apply_module, "settle_units", settle)


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
