"""Group commit under every fate: several appends in one version, each request once."""

from __future__ import annotations

import pytest
from tests.simulator.scenes import group_cast
from tests.simulator.simulation import run_schedule
from tests.tiers import in_short

from inlay.ops.commit import group as group_module
from inlay.plan.commit.apply import Admitted


@pytest.mark.parametrize("seeds", in_short([range(12), range(12, 60)], [range(12)]), ids=str)
def test_appends_that_share_a_swap_are_each_applied_once(seeds):
    for seed in seeds:
        report = run_schedule(seed, cast=group_cast)
        assert report.violation is None, f"seed {seed}: {report.violation}"


def test_a_group_that_asks_the_ledger_for_nobody_is_caught(monkeypatch):
    def admit(state, change):
        return Admitted(change, frozenset())

    # The events of the merged change are looked up all the same, and their files have no event to be
    # known by: the rows of a duplicate come twice.
    monkeypatch.setattr(group_module, "admit", admit)
    caught = next((s for s in range(40) if run_schedule(s, cast=group_cast).violation), None)
    assert caught is not None


@pytest.mark.parametrize("fate", ["lost", "twice", "unsent", "late"])
def test_a_group_whose_requests_all_meet_one_fate_now_and_then(fate):
    from tests.simulator.fates import Odds

    odds = Odds(
        **{
            **dict.fromkeys(("unsent", "lost", "twice", "race", "late", "slow", "killed"), 0.0),
            fate: 0.15,
        }
    )
    for seed in range(2):
        assert run_schedule(seed, cast=group_cast, odds=odds).violation is None
