"""Random schedules in which tables are partitioned anew while everybody works on them."""

from __future__ import annotations

from functools import partial

import pytest

from inlay.ops.partition import set_partitioning
from inlay.plan.change import Request
from inlay.testing.cast import ROUNDS, full_cast
from inlay.testing.simulation import run_schedule
from inlay.testing.stage import Simulation

SPECS = [
    (),
    ("owner",),
    ("bucket(3, id)",),
    ("truncate(20, id)", "owner"),
    ("bucket(2, owner)", "truncate(1, owner)"),
]
SEEDS = 8


def partitioner(sim: Simulation, name: str) -> None:
    for n in range(2 * ROUNDS):
        request = f"{name}:{n}"
        texts = sim.rng.choice(SPECS)
        sim.model.intend(request, lambda rows: rows)
        identity = Request.of(request, body=request, time_us=sim.scheduler.now_us)
        sim.attempt(name, request, partial(set_partitioning, texts=texts, request=identity))
        sim.scheduler.sleep(sim.rng.uniform(0, 3600))


def cast(sim: Simulation) -> None:
    for number in range(2):
        name = f"partition-{number}"
        sim.spawn(name, partial(partitioner, sim, name))
    full_cast(sim)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_promise_holds_while_the_partitioning_changes(seed: int) -> None:
    assert run_schedule(seed, cast=cast).violation is None
