"""Transactions among all others, on random schedules against every fault; and with each operation, in every
order of their requests at one switch."""

from __future__ import annotations

import pytest
from tests.simulator.interleavings import Pair, explore
from tests.simulator.pairs import OPERATIONS
from tests.simulator.simulation import run_schedule
from tests.simulator.transfers import transfers_cast

from inlay.ops import transaction as transaction_module
from inlay.ops.commit import driver as driver_module

MEETINGS = sorted(OPERATIONS)


@pytest.mark.parametrize("seed", range(12))
def test_a_schedule_breaks_nothing(seed):
    report = run_schedule(seed, cast=transfers_cast)
    assert report.violation is None


@pytest.mark.parametrize("name", MEETINGS)
def test_with_each_operation_it_comes_out_as_one_after_the_other(name):
    # Of two that delete the same rows the second has nothing to do here.
    for transfer in ("transfer", "transfer of rows")[: 1 if name == "transfer of rows" else 2]:
        found = explore(Pair(f"{transfer} × {name}"), preemptions=1, full=0)
        assert found.schedules > 2
        assert found.violations == [], found.violations[:2]


# -- mistakes that must be found --------------------------------------------------------------------


def caught(seeds=12) -> bool:
    found = explore(Pair("transfer × append"), preemptions=2, full=0).violations
    return bool(found) or any(
        run_schedule(seed, cast=transfers_cast).violation for seed in range(seeds)
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
