"""Random schedules of the real operations, and the mistakes that they must catch."""

from __future__ import annotations

import pytest
from tests.simulator import scenes
from tests.simulator.mistakes import MUTATIONS
from tests.simulator.mutations import caught
from tests.simulator.simulation import run_schedule
from tests.tiers import in_short

SCENES = {name: each for name, each in vars(scenes).items() if isinstance(each, scenes.Scene)}


@pytest.mark.parametrize("seeds", in_short([range(6), range(6, 30)], [range(6)]), ids=str)
def test_every_promise_holds_on_any_schedule(seeds):
    for seed in seeds:
        report = run_schedule(seed)
        assert report.violation is None, (
            f"replay: python -m tests.simulator.simulation --seed {seed} --trace\n{report.violation}"
        )


def test_a_seed_replays_exactly():
    first, second = (run_schedule(7, trace=True) for _ in range(2))
    assert first == second
    assert first.trace


def test_a_swap_that_comes_twice_may_bring_the_pointer_back_from_where_an_operator_put_it():
    """The copy of a swap finds its base again: the pointer is then no longer behind its archives."""
    assert run_schedule(77_310_900).violation is None


def test_an_upsert_may_put_a_row_there_that_equals_the_one_it_takes_away():
    """To a delete that has read the old one, under snapshot isolation, the new one has arrived since."""
    assert run_schedule(77_311_865).violation is None


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_broken_rule_is_caught(name):
    assert caught(name) is not None, f"no schedule shows that {name} is wrong"


def shows_nothing(name, schedules):
    scene = SCENES[name]
    for seed in range(schedules):
        report = run_schedule(
            seed, cast=scene.cast, odds=scene.odds, behind_seconds=scene.behind_seconds
        )
        assert report.violation is None, seed


@pytest.mark.parametrize("name", sorted(SCENES))
def test_a_scene_shows_nothing_where_nothing_is_broken(name):
    shows_nothing(name, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(SCENES))
def test_a_scene_shows_nothing_on_many_schedules(name):
    shows_nothing(name, 200)
