"""When a writer reads the pointer before it commits, and how long it waits for another's transaction."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.maintenance.bench import new_bench

from inlay.ops.commit import driver
from inlay.ops.commit.driver import (
    BACKOFF_BASE,
    BACKOFF_CAP,
    BACKOFF_PATIENCE,
    CONTENDED_SECONDS,
    MAX_UNREAD,
    RECENT_SECONDS,
    back_off,
    decided,
    recent_base,
)
from inlay.ops.metadata import decision, lost_decision

NOW = 10_000.0


@pytest.mark.parametrize(
    ("change", "reads", "raced_at"),
    [
        ({}, False, None),
        ({"read_at": NOW - RECENT_SECONDS}, False, None),
        ({"read_at": NOW - RECENT_SECONDS - 1}, True, None),
        ({"raced_at": NOW - CONTENDED_SECONDS}, False, NOW - CONTENDED_SECONDS),
        ({"raced_at": NOW - CONTENDED_SECONDS / 2}, True, NOW - CONTENDED_SECONDS / 2),
        ({"unread": MAX_UNREAD - 1}, False, None),
        ({"unread": MAX_UNREAD}, True, None),
        ({"etag": ""}, True, None),
        ({"etag": "", "raced_at": 1.0}, True, 1.0),
        ({"etag": "other", "unread": MAX_UNREAD}, True, NOW),
        ({"etag": "other", "unread": MAX_UNREAD, "raced_at": 1.0}, True, NOW),
        ({"unread": MAX_UNREAD, "raced_at": 1.0}, True, 1.0),
    ],
    ids=str,
)
def test_the_pointer_is_read_where_it_may_have_moved(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], reads: bool, raced_at: float | None
) -> None:
    bench = new_bench()
    current = bench.load()
    base = replace(current, **{"read_at": NOW, "unread": 0, "raced_at": None, **change})
    again = Mock(return_value=current)
    monkeypatch.setattr(driver, "load_again", again)
    ctx = replace(bench.ctx, clock=Mock(monotonic=lambda: NOW))
    found = recent_base(ctx, base)
    assert again.called is reads and (found is base) is not reads
    assert found.raced_at == raced_at


@pytest.mark.parametrize(
    ("attempt", "waited", "window"),
    [
        (1, None, BACKOFF_BASE),
        (2, None, 2 * BACKOFF_BASE),
        (3, 0.0, 4 * BACKOFF_BASE),
        (9, None, BACKOFF_CAP),
        (9, BACKOFF_PATIENCE / 2, BACKOFF_CAP / 2),
        (9, BACKOFF_PATIENCE * 0.95, BACKOFF_CAP / 10),
        (9, BACKOFF_PATIENCE * 9, BACKOFF_CAP / 10),
    ],
)
def test_the_window_grows_with_the_attempts_and_shrinks_with_the_time_waited(
    attempt: int, waited: float | None, window: float
) -> None:
    clock = Mock(monotonic=lambda: NOW)
    ctx: Any = SimpleNamespace(clock=clock, random=Mock(), uri="t")
    back_off(ctx, attempt, None if waited is None else NOW - waited)
    low, high = ctx.random.uniform.call_args.args
    assert low == 0 and high == pytest.approx(window)
    clock.sleep.assert_called_once_with(ctx.random.uniform.return_value)


@pytest.mark.parametrize(
    ("store_goes_on", "left_us", "looks"),
    [(True, 0, 0), (True, -1, 0), (True, 200_000, 1), (False, 1_000_000, 5), (False, 1_000_001, 6)],
)
def test_a_transaction_is_waited_for_until_its_deadline_by_either_clock(
    monkeypatch: pytest.MonkeyPatch, store_goes_on: bool, left_us: int, looks: int
) -> None:
    """Of a store whose clock stands still, by this process's own."""
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds
        assert passed[0] < 60, "it waits for ever"

    transaction = SimpleNamespace(id="t", deadline_us=5_000_000 + left_us)
    over: list[bool] = []

    def main(*_: Any) -> Any:
        date_us = 5_000_000 + int(passed[0] * 1_000_000) * store_goes_on
        return SimpleNamespace(
            open_for=None if over else transaction, date_us=date_us, snapshot=None, state=Mock()
        )

    monkeypatch.setattr(driver, "read_after", main)
    monkeypatch.setattr(driver, "on_branch", lambda ctx, now, carried: now)
    monkeypatch.setattr(lost_decision, "check_not_lost", Mock())
    monkeypatch.setattr(decision, "decide", lambda ctx, of, committed: over.append(committed))
    clock = Mock(monotonic=lambda: NOW + passed[0], sleep=Mock(side_effect=sleep))
    ctx: Any = SimpleNamespace(clock=clock, random=Mock(uniform=lambda low, high: high), uri="t")
    assert decided(ctx, main()).open_for is None
    assert over == [False] and clock.sleep.call_count == looks


def test_a_table_that_nobody_has_open_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "read_after", Mock(side_effect=AssertionError))
    bench = new_bench()
    loaded = bench.load()
    assert decided(bench.ctx, loaded) is loaded
