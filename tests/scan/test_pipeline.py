"""Running ahead: order, budget, errors, and nothing left running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.predicate import TRUE, Comparison, Literal
from inlay.format.schema import Primitive
from inlay.ops.context import InlineExecutor
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read.data_file import MANY_VALUES, UNITS_IN_BUDGET, in_units
from inlay.parquet.read.ranges import (
    SMALL_OBJECT_BYTES,
    Grow,
    Steps,
    Unit,
    _Flight,
    _Running,
    run,
    run_ahead,
)
from inlay.parquet.read.selection import Projection


class ByHand(Executor):
    """Runs a submitted job only when told to; `order` picks which of those waiting is next."""

    def __init__(self, order: Callable[[int], int]) -> None:
        self.order = order
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def run_one(self) -> None:
        future, job = self.waiting.pop(self.order(len(self.waiting)))
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)


class Counting(InlineExecutor):
    def __init__(self) -> None:
        super().__init__()
        self.jobs = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.jobs += 1
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize(("rows", "jobs"), [(100, 1), (60_000, 2)])
def test_a_small_file_is_fetched_by_a_thread_and_decoded_by_the_caller(
    lake: Any, rows: int, jobs: int
) -> None:
    """A large one is decoded by a thread, too: several are, side by side."""
    lake.executor = Counting()
    data = pa.table({"id": pa.array(np.random.default_rng(1).integers(0, 2**60, rows))})
    files = lake.write(data)
    assert (files[0].size <= SMALL_OBJECT_BYTES) is (jobs == 1)
    lake.executor.jobs = 0
    assert lake.read(files, schema_from_arrow(data.schema)).equals(data)
    assert lake.executor.jobs == jobs


def unit(n: int, rounds: int, cost: int = 1, fail: bool = False) -> Unit[int]:
    def steps() -> Steps[int]:
        total = 0
        for _ in range(rounds):
            jobs: Sequence[Any] = [lambda: 1, lambda: 2]
            [one, two] = yield jobs
            total += one + two
        if fail:
            yield [lambda: 1 // 0]
        [] = yield []  # a step that needs nothing
        return n * 100 + total

    return Unit(cost, steps())


def test_results_come_in_order_whatever_ends_first(monkeypatch: Any) -> None:
    @settings(deadline=None, max_examples=100)
    @given(
        rounds=st.lists(st.integers(0, 3), max_size=8),
        picks=st.lists(st.integers(0, 100), min_size=1, max_size=30),
        budget=st.integers(0, 10),
        parallel=st.integers(1, 5),
    )
    def check(rounds: list[int], picks: list[int], budget: int, parallel: int) -> None:
        turn = iter(range(10**9))
        executor = ByHand(lambda n: picks[next(turn) % len(picks)] % n)

        def wait(futures: Any, return_when: str) -> None:
            assert futures
            executor.run_one()

        monkeypatch.setattr("inlay.parquet.read.ranges.wait", wait)
        units = (unit(n, count) for n, count in enumerate(rounds))
        found = list(run_ahead(units, executor, budget_bytes=budget, parallel=parallel))
        assert found == [n * 100 + 3 * count for n, count in enumerate(rounds)]

    check()


def test_no_more_is_held_than_the_budget() -> None:
    started: list[int] = []

    def units() -> Iterator[Unit[int]]:
        for n in range(10):
            yield Unit(4, counted(n))

    def counted(n: int) -> Steps[int]:
        started.append(n)
        yield [lambda: n]
        return n

    results = run_ahead(units(), InlineExecutor(), budget_bytes=10, parallel=8)
    assert started == []
    for n in range(10):
        assert next(results) == n
        # Two fit the budget; the one handed over is still held until the next is asked for.
        assert len(started) <= n + 2


def test_a_unit_above_the_budget_runs_alone() -> None:
    units = [unit(n, 1, cost=1000) for n in range(3)]
    assert list(run_ahead(units, InlineExecutor(), budget_bytes=10, parallel=8)) == [3, 103, 203]


def test_a_slow_start_doubles() -> None:
    started: list[int] = []

    def counted(n: int) -> Steps[int]:
        started.append(n)
        yield []
        return n

    units = (Unit(0, counted(n)) for n in range(20))
    results = run_ahead(units, InlineExecutor(), budget_bytes=1, parallel=16, first=1)
    seen = []
    for _ in range(4):
        next(results)
        seen.append(len(started))
    assert seen == [1, 3, 6, 11]


def test_an_error_comes_where_its_result_would_have() -> None:
    units = [unit(0, 1), unit(1, 1), unit(2, 1, fail=True), unit(3, 1)]
    results = run_ahead(units, InlineExecutor(), budget_bytes=100, parallel=8)
    assert [next(results), next(results)] == [3, 103]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_a_unit_may_answer_its_own_error() -> None:
    def steps() -> Steps[str]:
        try:
            yield [lambda: 1 // 0]
        except ZeroDivisionError:
            return "caught"
        return "missed"

    assert run(steps(), InlineExecutor()) == "caught"


def test_nothing_runs_on_after_an_early_stop() -> None:
    gate, running = threading.Event(), threading.Event()
    finished: list[int] = []

    def slow(n: int) -> int:
        running.set()
        gate.wait(5)
        finished.append(n)
        return n

    def steps(n: int) -> Steps[int]:
        [found] = yield [lambda: n if n == 0 else slow(n)]
        return found  # type: ignore[no-any-return]

    with ThreadPoolExecutor(2) as pool:
        results = run_ahead((Unit(0, steps(n)) for n in range(9)), pool, budget_bytes=0, parallel=9)
        assert next(results) == 0
        assert running.wait(5)
        gate.set()
        results.close()  # type: ignore[attr-defined]
        count = len(finished)
        assert count <= 3
    assert len(finished) == count


def test_units_are_begun_ahead_and_grow_in_their_turn() -> None:
    begun: list[int] = []
    grown: list[int] = []

    def steps(n: int) -> Steps[int]:
        begun.append(n)
        yield [lambda: n]
        yield Grow(10)
        grown.append(n)
        yield [lambda: n]
        return n

    units = (Unit(1, steps(n), 10) for n in range(20))
    results = run_ahead(units, InlineExecutor(), budget_bytes=40, parallel=16)
    for n in range(20):
        assert next(results) == n
        # Held are those begun and those that grew, the one handed over included.
        assert len(begun) - n + 10 * (len(grown) - n) <= 40
        assert n > 3 or len(begun) - len(grown) > 5
        assert n > 16 or len(grown) - n >= 2
    assert begun == grown == list(range(20))


def test_what_turns_out_to_be_little_grows_beside_others() -> None:
    """Of ten that may come to hold 30 each, the first and each third does; the others hold 2."""
    grown: list[int] = []

    def steps(n: int) -> Steps[int]:
        yield [lambda: n]
        yield Grow(1, 29 if n % 3 == 0 else 1)
        yield Grow(29 if n % 3 == 0 else 1)
        grown.append(n)
        yield [lambda: n]
        return n

    units = (Unit(1, steps(n), 30) for n in range(10))
    results = run_ahead(units, InlineExecutor(), budget_bytes=55, parallel=16)
    for n in range(10):
        assert next(results) == n
        if n == 0:
            assert grown == [0, 1, 2, 4, 5, 7, 8]


def test_what_grows_above_the_budget_goes_on_alone() -> None:
    def steps(n: int) -> Steps[int]:
        yield Grow(1000)
        held.append(n)
        yield [lambda: n]
        return n

    held: list[int] = []
    results = run_ahead(
        (Unit(1, steps(n), 1000) for n in range(4)), InlineExecutor(), budget_bytes=10, parallel=8
    )
    for n in range(4):
        assert next(results) == n and held == list(range(n + 1))


@settings(deadline=None, max_examples=300)
@given(
    budget=st.integers(0, 60),
    parallel=st.integers(1, 6),
    sizes=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 30), st.lists(st.integers(0, 15), max_size=3)),
        max_size=12,
    ),
    picks=st.lists(st.integers(0, 100), min_size=1, max_size=30),
)
def test_whatever_units_hold_it_is_within_the_budget(
    budget: int, parallel: int, sizes: list[tuple[int, int, list[int]]], picks: list[int]
) -> None:
    """Or it is one unit; and whatever ends first, all come to their end, in order."""
    turn = iter(range(10**9))
    executor = ByHand(lambda n: picks[next(turn) % len(picks)] % n)
    held: dict[int, int] = {}

    def check() -> None:
        assert sum(held.values()) <= budget or sum(of > 0 for of in held.values()) == 1

    def steps(n: int) -> Steps[int]:
        cost, growth, more = sizes[n]
        held[n] = cost
        check()
        yield [lambda: n]
        for one in more:
            one = min(one, growth)
            growth = (growth - one) * (n % 3 + 1) // 3  # it may turn out to be less
            yield Grow(one, growth)
            held[n] += one
            check()
            yield [lambda: n]
        return n

    def wait(futures: Any, return_when: str) -> None:
        assert futures, "the first in line waits for nothing"
        executor.run_one()

    units = (Unit(cost, steps(n), growth) for n, (cost, growth, _) in enumerate(sizes))
    with mock.patch("inlay.parquet.read.ranges.wait", wait):
        for expected, n in enumerate(
            run_ahead(units, executor, budget_bytes=budget, parallel=parallel)
        ):
            assert n == expected
            del held[n]


# -- row groups in units --------------------------------------------------------------------------


@pytest.fixture
def groups(lake: Any) -> Any:
    """An opened file of six row groups, each of numbers and one long text, which its dictionary has once;
    and how many rows of it there are."""
    rows = 6 * MANY_VALUES
    text = ["x" * 200] * rows
    data = pa.table({"n": pa.array(np.arange(rows) % 4), "s": text})
    schema = schema_from_arrow(data.schema)
    [entry] = lake.write(data, schema, row_group_rows=MANY_VALUES)
    assert entry.row_groups == 6

    def units(unit_bytes: int, most: int, predicate: Any = TRUE, columns: Any = (1, 2)) -> Any:
        [task] = lake.plan([entry], schema, predicate=predicate).tasks
        projection = Projection(schema=schema, columns=columns)
        file = lake.reader.open(task, projection)
        budget = most * UNITS_IN_BUDGET
        return list(in_units(file, projection, unit_bytes=unit_bytes, budget_bytes=budget))

    return units


def test_a_unit_takes_the_groups_that_fit_and_no_more(groups: Any) -> None:
    """By what is stored, and by what it takes decoded: at each bound, and one byte below."""
    single = groups(0, 2**40)
    assert [len(piece.groups) for piece in single] == [1] * 6
    stored = [piece.stored_bytes for piece in single]
    total = [piece.total_bytes for piece in single]
    assert len(set(stored)) == len(set(total)) == 1, "the groups are alike"

    def numbers(unit_bytes: int, most: int) -> list[int]:
        pieces = groups(unit_bytes, most)
        assert [g.ordinal for piece in pieces for g in piece.groups] == list(range(6))
        at = 0
        for piece in pieces:
            end = at + len(piece.groups)
            assert piece.stored_bytes == piece.first_bytes == sum(stored[at:end])
            assert piece.total_bytes == sum(total[at:end])
            at = end
        return [len(piece.groups) for piece in pieces]

    assert numbers(2**40, 2**40) == [6] and numbers(2**40, 0) == [1] * 6
    for sizes, count in ((stored, 2), (stored, 3), (total, 2), (total, 3)):
        bounds = [sum(sizes[at : at + count]) for at in range(0, 6, count)]
        for bound, cut in ((max(bounds), False), (min(bounds) - 1, True)):
            limits = (bound, 2**40) if sizes is stored else (2**40, bound)
            assert (max(numbers(*limits)) < count) is cut


def test_a_unit_takes_as_much_memory_as_its_rows_and_columns(groups: Any) -> None:
    """A text that a dictionary has once is there in each row, whatever other columns are read; of what is
    judged first, no more."""
    numbers, texts = MANY_VALUES * 8, MANY_VALUES * 200
    for columns, decoded in (((1, 2), numbers + texts), ((2,), texts)):
        for piece in groups(0, 2**40, columns=columns):
            assert decoded <= piece.total_bytes - piece.stored_bytes < decoded * 1.1
    alone = groups(0, 2**40, columns=(1,))
    assert {piece.total_bytes - piece.stored_bytes for piece in alone} == {numbers}
    below = Comparison(1, "<", Literal(Primitive("int64"), 2))
    for piece, judged in zip(groups(0, 2**40, below), alone, strict=True):
        assert piece.first_bytes == judged.total_bytes
        assert piece.total_bytes > numbers + texts


@pytest.mark.parametrize(
    ("place", "more", "to_come", "fits"),
    [
        (0, 1_000, 1_000, True),  # the first always
        (1, 10, 0, True),
        (1, 10, 30, True),  # with the others' 60, once the first is gone
        (1, 10, 31, False),
        (1, 25, 0, True),  # 95 and the 5 that the first may grow by
        (1, 26, 0, False),
        (2, 15, 0, True),  # 75 without the first, and the 25 of the second
        (2, 16, 0, False),
        (2, 10, 60, True),  # 40 of its own and the one after it
        (2, 10, 61, False),
        (3, 10, 0, True),
        (3, 11, 60, False),  # the third could not grow
    ],
)
def test_a_unit_grows_as_far_as_those_before_it_and_it_can_end(
    place: int, more: int, to_come: int, fits: bool
) -> None:
    flight: _Flight[None] = _Flight(budget_bytes=100, window=9)
    for held, later in ((10, 5), (30, 25), (30, 60)):
        flight.running.append(_Running(iter(()), held, later))  # type: ignore[arg-type]
    assert flight._has_room(place, more, to_come) is fits
