"""Transactions among all others, on random schedules against every fault; and with each operation, in every
order of their requests at one switch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulator.cast import as_table
from tests.simulator.fates import CALM
from tests.simulator.interleavings import Pair, explore
from tests.simulator.model import Violation, insert
from tests.simulator.pairs import OPERATIONS
from tests.simulator.simulation import run_schedule
from tests.simulator.stage import Simulation
from tests.simulator.transfers import (
    TRANSFER,
    beside,
    compare,
    erasing_cast,
    prepare,
    transfer,
    transfers_cast,
)
from tests.tiers import in_short

from inlay.ops import transaction as transaction_module
from inlay.ops.commit import driver as driver_module
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.append import append
from inlay.plan.change import OpenErasure, Request

MEETINGS = sorted(OPERATIONS)
# One that adds rows, takes them away, has been planned on others, rewrites, deletes objects, and itself.
SHORT = ("append", "delete rows", "upsert", "compact", "collect garbage", "erase", "transfer")


@pytest.mark.parametrize("seed", range(12))
def test_a_schedule_breaks_nothing(seed):
    report = run_schedule(seed, cast=transfers_cast)
    assert report.violation is None


def behind(seed):
    """How far the times of objects are behind the store's answers, in seconds, in a schedule. How fast a
    process thinks that time goes is its own in all of them: half, right, three times."""
    return (0, 50)[seed % 2]


@pytest.mark.parametrize(
    "seed", [n if n < 1 else pytest.param(n, marks=pytest.mark.wide) for n in range(12)]
)
def test_an_erasure_from_both_tables_beside_all_others_leaves_no_byte(seed):
    report = run_schedule(seed, cast=erasing_cast, behind_seconds=behind(seed))
    assert report.violation is None


@pytest.mark.parametrize("name", in_short(MEETINGS, SHORT))
def test_with_each_operation_it_comes_out_as_one_after_the_other(name):
    # Of two that delete the same rows the second has nothing to do here.
    for mine in ("transfer", "transfer of rows")[: 1 if name == "transfer of rows" else 2]:
        found = explore(Pair(f"{mine} × {name}"), preemptions=1, full=0)
        assert found.schedules > 2
        assert found.violations == [], found.violations[:2]


# -- who is suspended ------------------------------------------------------------------------------

HOUR = 3_600
DAY = 24 * HOUR


def suspended(seconds: float, seed: int) -> None:
    """A coordinator is suspended for so long after it has prepared; meanwhile others write to both tables,
    and collect twice. Whatever it then says is so."""
    sim = Simulation(seed, CALM, jumps=False, behind_seconds=behind(seed))
    sim.start()
    prepare(sim)
    rows = [(900, "tx", 1), (901, "tx", 2)]
    sim.model.intend(TRANSFER, insert(rows))
    both = [sim.actor_context("others"), beside(sim.actor_context("others beside"))]
    real, once = transaction_module.decide, []

    def meanwhile(collects):
        sim.scheduler.now_us += int(seconds * 1_000_000) // 3
        name, others = f"others at {sim.scheduler.now_us}", [(1, "other", 1)]
        sim.model.intend(name, insert(others))
        for each in both:
            append(each, as_table(others), request=Request.of(name, body=name))
            if collects:
                sim.collect(each)

    def late(ctx, transaction, *, committed):
        if not once:
            once.append(1)
            for collects in (False, True, True):
                meanwhile(collects)
        return real(ctx, transaction, committed=committed)

    def run(ctx):
        def here(held, base):
            return append(held, as_table(rows), base=base)

        return transfer(ctx, Request.of(TRANSFER, body=TRANSFER), rows, here)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction_module, "decide", late)
        sim.spawn("actor", lambda: sim.attempt("actor", TRANSFER, run))
        sim.scheduler.run()
    assert once
    sim.model.check_acknowledged()
    forgotten(sim)


def forgotten(sim: Simulation) -> None:
    """Weeks later one of the tables is collected, and then the other: both are what they were."""
    ctx = sim.auditor.ctx
    for each in (ctx, beside(ctx), ctx, beside(ctx)):
        sim.scheduler.now_us += 9 * DAY * 1_000_000
        sim.collect(each)
        compare(ctx, load_pointer(ctx), load_pointer(beside(ctx)), TRANSFER)


@pytest.mark.parametrize("seconds", [11, 13 * HOUR, 9 * DAY])
def test_who_is_suspended_says_what_is_so_whatever_the_clocks(seconds):
    for seed in range(2):
        suspended(seconds, seed)


@pytest.mark.wide
@pytest.mark.parametrize("seconds", [1, 9, HOUR, 11 * HOUR, 2 * DAY, 30 * DAY])
def test_who_is_suspended_for_any_time(seconds):
    for seed in range(4):
        suspended(seconds, seed)


# -- mistakes that must be found --------------------------------------------------------------------


def caught(seeds=12) -> bool:
    """By what costs least first."""
    pair = Pair("transfer × append")
    return (
        bool(explore(pair, preemptions=1, full=0).violations)
        or any(run_schedule(seed, cast=transfers_cast).violation for seed in range(seeds))
        or bool(explore(pair, preemptions=2, full=0).violations)
    )


def test_a_frame_that_is_swapped_out_undecided_is_found_out(monkeypatch):
    def at_once(ctx, loaded):
        from dataclasses import replace

        return replace(loaded, undecided=False)

    monkeypatch.setattr(driver_module, "decided", at_once)
    assert caught()


def test_a_decision_that_is_made_before_all_are_prepared_is_found_out(monkeypatch):
    real = transaction_module._prepare_all

    def some(first, prepare, count, *, at_once):
        won = real(first, prepare, count, at_once=at_once)
        return [each or next(filter(None, won), None) for each in won]

    monkeypatch.setattr(transaction_module, "_prepare_all", some)
    assert caught()


def test_a_table_that_is_prepared_without_its_condition_is_found_out(monkeypatch):
    monkeypatch.setattr(transaction_module, "IfMatch", lambda etag: None)
    assert caught()


def test_a_decision_that_is_forgotten_while_it_is_needed_is_found_out(monkeypatch):
    name = "inlay.ops.metadata.needed_decisions.needed_decisions"
    monkeypatch.setattr(name, lambda ctx, found: [])
    with pytest.raises(Violation):
        suspended(1, 1)


def test_an_erasure_that_is_not_opened_on_each_table_is_found_out(monkeypatch):
    """Its rows are deleted on both, and stay in files."""
    real = transaction_module.Hold.__call__

    def lose(self, ctx, change, base):
        kept = tuple(u for u in change.updates if not isinstance(u, OpenErasure))
        return real(self, ctx, replace(change, updates=kept), base)

    monkeypatch.setattr(transaction_module.Hold, "__call__", lose)
    assert any(run_schedule(seed, cast=erasing_cast).violation for seed in range(4))


def test_one_who_trusts_what_it_has_decided_after_days_is_found_out(monkeypatch):
    monkeypatch.setattr(transaction_module, "DECISIONS_KEPT_US", 10**18)
    with pytest.raises(Violation):
        suspended(9 * DAY, 1)
