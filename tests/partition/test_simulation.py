"""Random schedules in which tables are repartitioned while everybody works on them."""

from __future__ import annotations

from functools import partial

import pytest
from tests.simulator.cast import full_cast
from tests.simulator.historians import partitioner
from tests.simulator.simulation import run_schedule
from tests.simulator.stage import Simulation

SEEDS = 8


def cast(sim: Simulation) -> None:
    for number in range(2):
        name = f"partition-{number}"
        sim.spawn(name, partial(partitioner, sim, name))
    full_cast(sim)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_promise_holds_while_the_partitioning_changes(seed: int) -> None:
    assert run_schedule(seed, cast=cast).violation is None
