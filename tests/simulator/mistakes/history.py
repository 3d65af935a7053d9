"""History broken: tags, branches, restores, changes of columns and of the partitioning."""

from __future__ import annotations

import dataclasses
import itertools
from contextlib import ExitStack
from typing import Any

from tests.simulator import scenes
from tests.simulator.mistakes.registry import RARE_SEEDS, mutation, swap_in

from inlay.format.snapshot import with_content
from inlay.ops import diverged
from inlay.ops import refs as refs_module
from inlay.ops.erase import finish as finish_module
from inlay.ops.erase import request as erase_module
from inlay.ops.maintain import expire as expire_module
from inlay.plan import schema_conflicts
from inlay.plan.change import Change, OnlyRefs, Retained, SameMain
from inlay.plan.commit import apply as apply_module
from inlay.plan.commit import conflicts as conflicts_module
from inlay.plan.commit import draft as draft_module
from inlay.plan.maintain import roots as roots_module


@mutation(scenes.BRANCHING)
def edit_refs_that_have_moved(stack: ExitStack) -> None:
    """A ref is changed whatever became of it since, and made of a version that may be gone."""
    swap_in(stack, conflicts_module, "validate_refs", lambda snapshot, update: None)
    swap_in(stack, conflicts_module, "is_retained", lambda snapshot, ref: True)


@mutation(scenes.RESTORING)
def commit_over_a_restore(stack: ExitStack) -> None:
    """What was planned on content that a restore has put away is committed all the same."""

    def validate(state: Any, change: Change) -> Any:
        kept = dataclasses.replace(state.snapshot, replaced=0)
        return original(dataclasses.replace(state, snapshot=kept), change)

    original = swap_in(stack, apply_module, "validate", validate)


@mutation(scenes.TAGGING)
def collect_what_a_tag_holds(stack: ExitStack) -> None:
    """A version that only a ref keeps is garbage like any other."""
    for module in (roots_module, expire_module):
        swap_in(stack, module, "held_versions", lambda snapshot: frozenset())


@mutation(scenes.FORWARDING)
def forward_over_what_main_got_since(stack: ExitStack) -> None:
    """A fast-forward or a merge is committed whatever became of main."""

    def against(state: Any, change: Any, requirement: Any) -> Any:
        return None if isinstance(requirement, SameMain) else original(state, change, requirement)

    original = swap_in(stack, conflicts_module, "_against_requirement", against)


@mutation(scenes.BRANCHING)
def merge_a_branch_that_has_moved(stack: ExitStack) -> None:
    """What was written to the branch while its merge was planned is left out, and forgotten."""

    def validate(snapshot: Any, update: Any) -> Any:
        return original(snapshot, dataclasses.replace(update, were={}))

    original = swap_in(stack, conflicts_module, "validate_refs", validate)


@mutation(scenes.EXPIRING)
def name_versions_that_have_expired(stack: ExitStack) -> None:
    """Whether what a tag is made of is still kept is asked before the commit, not by it."""

    def against(state: Any, change: Any, requirement: Any) -> Any:
        return None if isinstance(requirement, Retained) else original(state, change, requirement)

    original = swap_in(stack, conflicts_module, "_against_requirement", against)


@mutation(scenes.BRANCHING)
def bring_a_branch_without_its_deletes(stack: ExitStack) -> None:
    """Its tombstones are not turned into marks of the rows that they hit."""
    swap_in(stack, diverged.Positions, "of", lambda self, tasks, schema: {})


@mutation(scenes.COLLECTED_BRANCHES)
def collect_heads_of_branches(stack: ExitStack) -> None:
    """What a branch has for itself is garbage."""
    swap_in(stack, expire_module, "heads", lambda snapshot: frozenset())


@mutation(scenes.ERASING_REFS)
def erase_main_alone(stack: ExitStack) -> None:
    """Rows stay in what tags and branches hold."""

    def main(ctx: Any, loaded: Any) -> Any:
        return itertools.islice(original(ctx, loaded), 1)

    original = refs_module.each_content
    for module in (erase_module, finish_module):
        swap_in(stack, module, "each_content", main)


@mutation(scenes.ERASING_TAGGED, within=RARE_SEEDS)
def end_an_erasure_under_refs_made_since(stack: ExitStack) -> None:
    """A branch or tag that came after the look at all of them keeps the rows."""

    def against(state: Any, change: Any, requirement: Any) -> Any:
        if isinstance(requirement, OnlyRefs):
            requirement = OnlyRefs(state.snapshot.refs)
        return original(state, change, requirement)

    original = swap_in(stack, conflicts_module, "_against_requirement", against)


@mutation(scenes.ERASING_RESTORED)
def restore_rows_that_are_being_erased(stack: ExitStack) -> None:
    """A content from before an erasure comes back as it was."""
    swap_in(stack, draft_module, "ref_view", lambda table, content: with_content(table, content))


@mutation(scenes.ALTERING)
def change_columns_that_have_changed(stack: ExitStack) -> None:
    """A change of columns is committed on others than it was planned on."""

    def validate(state: Any, edit: Any) -> Any:
        return original(state, dataclasses.replace(edit, planned_on=state.snapshot.schema_id))

    original = swap_in(stack, schema_conflicts, "validate_schema", validate)


@mutation(scenes.PARTITIONING)
def partition_what_was_partitioned_since(stack: ExitStack) -> None:
    """A change of the partitioning is committed over another that nobody had seen."""

    def validate(snapshot: Any, edit: Any) -> Any:
        return original(snapshot, dataclasses.replace(edit, planned_on=snapshot.spec_id))

    original = swap_in(stack, conflicts_module, "validate_spec", validate)
