"""Tags, branches, merges, restores and changes of the schema, in the middle of everything else."""

from __future__ import annotations

from functools import partial

import pytest

from inlay.testing.historians import historians_cast
from inlay.testing.mutations import caught
from inlay.testing.simulation import run_schedule


@pytest.mark.parametrize("seed", range(6))
def test_refs_and_restores_hold_what_they_must(seed):
    assert run_schedule(seed, cast=historians_cast).violation is None


def test_metadata_that_is_tidied_and_rolled_at_once_asks_only_for_what_is_there():
    """Seed 468: the plan asked for a segment that it had just made itself, and was told of damage."""
    assert run_schedule(468, cast=historians_cast).violation is None


@pytest.mark.xfail(strict=True, reason="an erasure does not clean what branches hold yet")
def test_an_erasure_leaves_nothing_of_its_predicate_in_what_a_branch_has_held():
    """Seed 7: a branch that was written to while an erasure was open bears the erasure's marker, whose
    predicate names the person; it is kept as long as a version names the branch."""
    assert run_schedule(7, cast=partial(historians_cast, erasing=True)).violation is None


@pytest.mark.parametrize("name", ["commit_over_a_restore", "collect_what_a_tag_holds"])
def test_a_broken_rule_of_history_is_caught(name):
    assert caught(name, seeds=40) is not None
