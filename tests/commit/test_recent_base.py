"""When a writer reads the pointer before it commits, and how long it waits for another's transaction."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from tests.maintenance.bench import new_bench

from inlay.errors import CommitContention, ConcurrentChange, StaleUpload
from inlay.ops.commit import driver
from inlay.ops.commit.driver import (
    BACKOFF_BASE,
    BACKOFF_CAP,
    BACKOFF_PATIENCE,
    CONTENDED_SECONDS,
    MAX_ATTEMPTS,
    MAX_SECONDS,
    MAX_UNREAD,
    RECENT_SECONDS,
    Committed,
    Conflicted,
    Planned,
    Skipped,
    WrittenSegments,
    back_off,
    commit,
    commit_or_skip,
    commit_planned,
    decided,
    let_others_in,
    only_appends,
    recent_base,
    with_races,
)
from inlay.ops.commit.register import Lost
from inlay.ops.metadata import decision, lost_decision
from inlay.plan.change import (
    AddFiles,
    Change,
    Conflict,
    RemoveFiles,
    Request,
    SameContent,
    SetProperties,
)

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


@pytest.mark.parametrize(
    ("attempts", "after", "raced_at", "unread"),
    [
        (1, 0.0, 5.0, 4),
        (1, CONTENDED_SECONDS - 0.5, 5.0, 4),
        (1, CONTENDED_SECONDS, 5.0, 0),
        (2, 0.0, NOW, 0),
    ],
)
def test_a_commit_tells_the_next_of_the_writers_that_it_met(
    attempts: int, after: float, raced_at: float, unread: int
) -> None:
    loaded = new_bench().load()
    base = replace(loaded, read_at=NOW, raced_at=5.0, unread=3)
    ended = replace(loaded, read_at=NOW + after, raced_at=None, unread=0)
    found = with_races(ended, base, attempts)
    assert (found.raced_at, found.unread) == (raced_at, unread)


@pytest.mark.parametrize(("unread", "waits"), [(MAX_UNREAD - 1, 0), (MAX_UNREAD, 1)])
def test_after_so_many_commits_in_a_row_others_get_their_turn(unread: int, waits: int) -> None:
    ctx: Any = SimpleNamespace(clock=Mock(), random=Mock())
    let_others_in(ctx, replace(new_bench().load(), unread=unread))
    assert ctx.clock.sleep.call_count == waits


class Planning:
    """Answers of `commit`, one after the other; what was planned on is kept."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.planned_on: list[Any] = []
        self.slept: list[float] = []
        self.bench = new_bench()
        self.base = self.bench.load()
        clock = Mock(monotonic=lambda: NOW, sleep=self.slept.append)
        self.ctx = replace(self.bench.ctx, clock=clock)

    def plan(self, loaded: Any) -> Any:
        self.planned_on.append(loaded)
        return Change(operation="o")

    def submit(self, ctx: Any, change: Change, *, base: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run(self, **options: Any) -> Any:
        return commit_planned(self.ctx, self.base, self.plan, submit=self.submit, **options)


def test_a_plan_that_no_longer_holds_is_made_again_so_many_times() -> None:
    loaded = new_bench().load()
    lost, won = Conflicted(loaded, Conflict("it changed")), Committed(loaded)
    for plans in (1, 2, 3):
        again = Planning(*[lost] * (plans - 1), won)
        assert again.run(plans=plans) is won and len(again.planned_on) == plans
        assert again.planned_on[0] is again.base
        assert all(on is loaded for on in again.planned_on[1:])
        assert len(again.slept) == plans - 1
        never = Planning(*[lost] * plans)
        times = "" if plans == 1 else f" {plans} times"
        with pytest.raises(ConcurrentChange, match=f"others conflicted{times}: it changed"):
            never.run(plans=plans)
    once = Planning(lost, won)
    with pytest.raises(ConcurrentChange, match="others conflicted: "):
        once.run(once=True)


def test_an_upload_that_garbage_collection_overtook_is_made_again_so_many_times() -> None:
    won = Committed(new_bench().load())
    for uploads in (1, 2, 3):
        again = Planning(*[StaleUpload("late")] * (uploads - 1), won)
        assert again.run(uploads=uploads) is won
        assert again.slept == [float(n) for n in range(1, uploads)]
        never = Planning(*[StaleUpload("late")] * uploads)
        with pytest.raises(StaleUpload):
            never.run(uploads=uploads)
    once = Planning(StaleUpload("late"), won)
    with pytest.raises(StaleUpload):
        once.run(once=True)


def test_nothing_is_committed_where_nothing_is_planned() -> None:
    nothing = Planning()
    nothing.plan = lambda loaded: None  # type: ignore[method-assign,assignment]
    assert nothing.run() == Skipped(nothing.base)
    other = new_bench().load()
    planned = Planning(Committed(other))
    seen: list[Any] = []
    planned.plan = lambda loaded: Planned(Change(operation="o"), other)  # type: ignore[method-assign]
    found = commit_planned(
        planned.ctx,
        planned.base,
        planned.plan,
        submit=lambda ctx, change, *, base: seen.append(base) or Committed(base),  # type: ignore[func-returns-value]
    )
    assert seen == [other] and isinstance(found, Committed)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"updates": (AddFiles(()),)}, True),
        ({"updates": (AddFiles(()), RemoveFiles(()))}, False),
        ({"requires": (SameContent(1),)}, False),
        ({"objects": (Request.of("o"),)}, False),
        ({"deleted_rows": 1}, False),
        ({"deleted_rows": None}, False),
    ],
    ids=str,
)
def test_what_only_appends_holds_on_any_base(change: dict[str, Any], holds: bool) -> None:
    assert only_appends(Change(operation="o", **change)) is holds


@pytest.mark.parametrize(
    ("seconds", "attempts"),
    [(MAX_SECONDS / 10, MAX_ATTEMPTS), (MAX_SECONDS / 200, 201), (MAX_SECONDS / 100, 101)],
)
def test_a_writer_gives_up_after_so_many_races_and_so_long(
    monkeypatch: pytest.MonkeyPatch, seconds: float, attempts: int
) -> None:
    """Whichever comes later."""
    bench = new_bench()
    base = bench.load()
    tried = [0]

    def lose(*_: Any) -> Lost:
        tried[0] += 1
        assert tried[0] < 500, "it tries for ever"
        return Lost(base)

    monkeypatch.setattr(driver, "_write_and_swap", lose)
    monkeypatch.setattr(driver, "on_branch", lambda ctx, now, carried: now)
    clock = Mock(monotonic=lambda: NOW + tried[0] * seconds)
    change = Change(operation="o", updates=(SetProperties({"a": "b"}),))
    with pytest.raises(CommitContention, match=f"won {attempts} races"):
        commit(replace(bench.ctx, clock=clock), change, base=base)
    assert tried == [attempts]


def test_segments_have_names_that_follow_from_their_bytes_and_the_salt() -> None:
    one = WrittenSegments("salt")
    name = one.name(b"bytes")
    assert UUID(name).version == 4 and name == WrittenSegments("salt").name(b"bytes")
    assert len({name, one.name(b"other"), WrittenSegments("pepper").name(b"bytes")}) == 3
    ctx: Any = SimpleNamespace(new_id=lambda: "new")
    one.dates_us = {"a": 50, "b": 60}
    one.forget_stale(ctx, 50)
    assert one.salt == "salt" and len(one.dates_us) == 2
    one.forget_stale(ctx, 51)
    assert one.salt == "new" and not one.dates_us


def test_one_of_many_pieces_is_skipped_where_its_objects_are_stale_and_not_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = new_bench()
    base, change = bench.load(), Change(operation="o")
    ctx = replace(bench.ctx, clock=Mock(monotonic=lambda: NOW))
    won = Committed(base)
    monkeypatch.setattr(driver, "commit", Mock(return_value=won))
    assert commit_or_skip(ctx, change, base=base) is won
    monkeypatch.setattr(driver, "commit", Mock(side_effect=StaleUpload("late")))
    assert isinstance(commit_or_skip(ctx, change, base=base), Skipped)
    lost = Conflicted(base, Conflict("it changed"))
    monkeypatch.setattr(driver, "commit", Mock(return_value=lost))
    with pytest.raises(ConcurrentChange, match="others conflicted: it changed"):
        commit_or_skip(ctx, change, base=base)
