"""Tags, branches, merges, restores and changes of the schema, in the middle of everything else."""

from __future__ import annotations

from functools import partial

import pytest
from tests.simulator.cast import full_cast
from tests.simulator.historians import historians_cast
from tests.simulator.simulation import run_schedule


@pytest.mark.parametrize("seed", range(6))
def test_refs_and_restores_hold_what_they_must(seed):
    assert run_schedule(seed, cast=historians_cast).violation is None


def test_metadata_that_is_tidied_and_rolled_at_once_asks_only_for_what_is_there():
    """Seeds 468 and 4182: a plan requested a segment that it had just made, and got a report of damage."""
    assert run_schedule(468, cast=partial(historians_cast, erasing=False)).violation is None
    assert run_schedule(4182, cast=full_cast).violation is None


@pytest.mark.parametrize("seed", [7, 15, 16, 22])
def test_an_erasure_leaves_nothing_of_its_predicate_in_what_a_branch_has_held(seed):
    """A branch that was written to while an erasure was open bore the erasure's marker, whose predicate
    names the person, for as long as a version named the branch."""
    assert run_schedule(seed, cast=historians_cast).violation is None


def test_garbage_collection_does_not_miss_what_another_run_has_collected():
    """Seed 10178: a branch was dropped; an erasure, at a later time, deleted the archive of its base
    while a run that had begun within the grace was reading, which took the absence for damage."""
    assert run_schedule(10178, cast=historians_cast).violation is None
