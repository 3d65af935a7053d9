"""Parts of a commit by themselves: the time it gets, and how long a loser waits."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.maintenance.bench import new_bench

import inlay
from inlay.ops.commit import driver
from inlay.ops.metadata.load import load_again, load_pointer
from inlay.ops.write.append import append
from inlay.plan.change import Request


@pytest.mark.parametrize("done", list(itertools.permutations([3, 7, 9])))
def test_a_commit_is_not_before_anything_that_was_written_for_it(
    monkeypatch: pytest.MonkeyPatch, done: tuple[int, ...]
) -> None:
    """By the store's clock: the archive, segments, and the answer that the base came with."""
    monkeypatch.setattr(driver, "seal", lambda proposal, date_us, previous_us: date_us)
    commit = SimpleNamespace(commit=SimpleNamespace(time_us=1))
    proposal: Any = SimpleNamespace(segments=())
    written: Any = SimpleNamespace(dates_us={})
    for base, expected in ((0, 9), (8, 9), (11, 11)):
        loaded: Any = SimpleNamespace(date_us=base, snapshot=commit)
        assert driver.sealed(loaded, proposal, written, done) == expected
    loaded = SimpleNamespace(date_us=5, snapshot=commit)
    assert driver.sealed(loaded, proposal, written, ()) == 5


def windows(now: float, since: float | None, attempts: int = 14) -> list[float]:
    """The longest that a loser may wait at each attempt."""
    drawn: list[float] = []

    def uniform(low: float, high: float) -> float:
        assert low == 0
        drawn.append(high)
        return 0.0

    clock = SimpleNamespace(monotonic=lambda: now, sleep=lambda seconds: None)
    ctx: Any = SimpleNamespace(uri="u", clock=clock, random=SimpleNamespace(uniform=uniform))
    for attempt in range(1, attempts + 1):
        driver.back_off(ctx, attempt, since)
    return drawn


def test_losers_wait_longer_each_time_up_to_a_bound() -> None:
    found = windows(1000.0, None)
    assert found[0] == driver.BACKOFF_BASE and found[1] == 2 * driver.BACKOFF_BASE
    assert found == sorted(found) and found[-1] == driver.BACKOFF_CAP
    assert windows(1000.0, 1000.0) == found


def test_who_has_waited_long_is_less_patient_and_never_at_once() -> None:
    """However long the machine has been up."""
    full = windows(1e6, 1e6)
    half = windows(1e6, 1e6 - driver.BACKOFF_PATIENCE / 2)
    assert half == [pytest.approx(wait / 2) for wait in full]
    assert windows(1e6, 0.0) == [pytest.approx(wait / 10) for wait in full]


def test_a_request_is_known_but_to_a_transaction_which_asks_for_its_own() -> None:
    bench = new_bench()
    rows = pa.table({"id": pa.array([1_000], pa.int64()), "name": ["a"]})
    append(bench.ctx, rows, request=Request.of("a"))
    loaded = load_pointer(bench.ctx)
    within = replace(bench.ctx, hold=lambda *given: None)
    for ctx, name, known in (
        (bench.ctx, "a", True),
        (bench.ctx, "b", False),
        (bench.ctx, None, False),
        (within, "a", False),
        (within, None, False),
    ):
        request = None if name is None else Request.of(name)
        _, before = driver.already_applied(ctx, loaded, request)
        assert isinstance(before, driver.Skipped) is known


def test_what_was_uploaded_since_a_reading_is_no_older_than_the_boundary_it_left_open(
    tmp_path: Path,
) -> None:
    """An erasure's boundary is "from now on" until the next commit states it: whoever reads the pointer
    twice would move it past their own uploads, again at every attempt."""
    rows = pa.table({"id": [1, 2, 3]})
    table = inlay.create(f"file://{tmp_path}/t", rows.schema)
    table.append(rows)
    table.delete("id = 3", mode="erase")
    ctx = inlay.connect(table.uri)
    first = load_pointer(ctx)
    assert first.has_open_times
    for again in (load_again(ctx, first), load_pointer(ctx, before=first.snapshot)):
        assert again.snapshot == first.snapshot
        assert again.date_us > first.date_us
    assert load_pointer(ctx).snapshot.boundary.time_us > first.snapshot.boundary.time_us
    # Of another version nothing is taken over.
    table.append(rows)
    assert not load_again(ctx, first).has_open_times
    table.delete("id = 2", mode="erase")
    with inlay.transaction() as tx:  # which reads the tables twice
        tx.append(table, rows)
    assert table.refresh().count() == 6
