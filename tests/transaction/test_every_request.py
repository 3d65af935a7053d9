"""Every request of a transaction fails, is lost, doubled, late or its last; then it is repeated."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulator.cast import as_table
from tests.simulator.fates import CALM
from tests.simulator.faults import Fate
from tests.simulator.model import insert
from tests.simulator.stage import Simulation
from tests.simulator.transfers import TRANSFER, beside, compare, prepare, transfer
from tests.tiers import in_short

from inlay.format import keys
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.metadata.load import load_pointer
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.plan.change import Request

ROWS = [(900, "tx", 1), (901, "tx", 2)]
HERE = as_table(ROWS)


def play(planned: dict[tuple[str, int], Fate]) -> list[tuple[Fate, ...]]:
    """A transfer with the planned fate, until it is acknowledged: what each of its requests could meet."""
    sim = Simulation(1, CALM, jumps=False)
    sim.start()
    prepare(sim)
    sim.model.intend(TRANSFER, insert(ROWS))
    request = Request.of(TRANSFER, body=TRANSFER)
    sim.world.planned = planned
    sim.world.counts.clear()
    sim.world.possible.clear()
    run = lambda ctx: transfer(  # noqa: E731
        ctx, request, ROWS, lambda held, base: append(held, HERE, base=base)
    )
    sim.spawn("actor", lambda: sim.attempt("actor", TRANSFER, run))
    sim.scheduler.run()
    sim.world.planned = {}
    count = sim.world.counts.get("actor", 0)
    made = [sim.world.possible["actor", number] for number in range(1, count + 1)]
    while sim.world.in_flight:
        sim.world.land_one()
    assert sim.model.applied.get(TRANSFER) == sim.model.acknowledged.get(TRANSFER) is not None
    ctx = sim.auditor.ctx
    other = beside(ctx)
    mine, its = load_pointer(ctx), load_pointer(other)
    compare(ctx, mine, its, TRANSFER)
    assert its.snapshot.totals.rows == len(ROWS)  # once
    assert verify(other).errors == ()
    # Whatever is prepared, garbage collection ends, and then no decision is needed any more.
    sim.settle()
    assert collect_garbage(other).version >= its.snapshot.version
    assert load_pointer(other).transaction is None
    sim.scheduler.now_us += 10 * 86_400_000_000
    for each in (ctx, other, ctx, other):
        append(each, HERE)
        collect_garbage(each)
    left = [o.key for o in ctx.store.list("") if f"/{keys.DECISIONS}" in o.key]
    assert left == []
    return made


def test_what_it_takes():
    """Two tables: two reads of each at one moment, two uploads, an archive and a swap each, a decision."""
    assert len(play({})) == 2 * 2 + 2 + 2 + 2 + 1


def fates() -> list[tuple[int, Fate]]:
    made = play({})
    return [(n, fate) for n, each in enumerate(made, 1) for fate in each if fate is not Fate.DONE]


@pytest.mark.parametrize("part", range(4))
def test_every_request_meets_every_fate(part):
    cases = fates()
    met = Counter(fate for _, fate in cases)
    assert met[Fate.KILLED_AFTER] == met[Fate.LOST] == 11
    for number, fate in cases[part::4]:
        try:
            play({("actor", number): fate})
        except BaseException as error:
            raise AssertionError(f"request {number}, {fate.name}: {error}") from error


@pytest.mark.parametrize("second", in_short([1, 2, 3], [1]))
def test_a_second_request_is_lost_after_the_first(second):
    """The answers of two requests in a row, or one and the read that follows it."""
    for number in range(5, 12):
        for fate in (Fate.LOST, Fate.KILLED_AFTER, Fate.UNSENT):
            try:
                play({("actor", number): Fate.LOST, ("actor", number + second): fate})
            except BaseException as error:
                raise AssertionError(f"{number}, +{second}, {fate.name}: {error}") from error
