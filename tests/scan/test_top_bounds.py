"""Which rows a bound leaves of an order, and which files are looked at first: every small case."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from inlay.format.entry import ColumnStats, DataFile
from inlay.format.predicate import TRUE, And, Comparison, IsNull, Literal, Or
from inlay.format.schema import Field, Primitive, Schema
from inlay.ops.read.top_n import OrderKey, _Bound, _no_later_than, _under, _waves
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask

sys.path.insert(0, str(Path(__file__).parents[1] / "predicate"))
import predicate_oracle as oracle

LONG = Primitive("int64")
SCHEMA = Schema(0, (Field(1, "a", LONG),))
VALUES, TASKS = range(3), range(3)


def key(descending: bool = False, nulls_first: bool = False) -> OrderKey:
    return OrderKey(1, LONG, descending=descending, nulls_first=nulls_first)


def kept(bound: _Bound) -> set[tuple[int, int]]:
    rows = itertools.product(range(-1, 4), TASKS)
    return {(v, t) for v, t in rows if oracle.truth(bound.of(t), {1: v}) is True}


@pytest.mark.parametrize("descending", [False, True])
def test_a_bound_keeps_what_is_better_and_what_is_equal_up_to_its_task(descending: bool) -> None:
    bounds = [_Bound(key(descending), v, t) for v, t in itertools.product(VALUES, TASKS)]
    for bound in bounds:
        assert kept(bound) == {
            (v, t)
            for v, t in itertools.product(range(-1, 4), TASKS)
            if (v > bound.value if descending else v < bound.value)  # type: ignore[operator]
            or (v == bound.value and t <= bound.last)
        }
        for low, high in itertools.combinations_with_replacement(range(-1, 4), 2):
            known = ColumnStats(low, high, 0, has_nan=False)
            for t in TASKS:
                may_hold = any((v, t) in kept(bound) for v in range(low, high + 1))
                assert bound.may_hold(known, t) is may_hold
    for one, other in itertools.product(bounds, repeat=2):
        assert one.is_within(other) is (kept(one) <= kept(other))


def test_only_where_nulls_are_first_a_null_is_before_every_value() -> None:
    for nulls_first, descending in itertools.product([False, True], repeat=2):
        found = _no_later_than(5, key(descending, nulls_first))
        assert (oracle.truth(found, {1: None}) is True) is nulls_first
    spans = [(ColumnStats(1, 9, 0), 5, 0), (ColumnStats(2, 8, 0), 5, 1)]
    one = _Bound.promised(spans, 2, [key()])
    assert one is not None and (one.value, one.last) == (2, 1)
    two = _Bound.promised(spans, 2, [key(), key(True)])
    assert two is not None and two.value == 2 and two.last > 10**6, (
        "the other key may put any first"
    )
    assert _Bound.promised(spans, 20, [key()]) is None


def task(n: int, stats: Any = None, rows: int = 10, **options: Any) -> FileTask:
    entry = DataFile(
        key=f"{n}",
        size=9,
        footer_size=9,
        rows=rows,
        row_groups=1,
        schema_id=0,
        stats={} if stats is None else {1: stats},
    )
    return FileTask(file=entry, schema=SCHEMA, **options)


def test_a_bound_is_added_to_the_condition_of_a_task() -> None:
    bound = Comparison(1, "<", Literal(LONG, 5))
    other = Or((IsNull(1), bound))
    assert _under(bound, task(0)).predicate == bound
    assert _under(bound, task(0, predicate=other)).predicate == And((other, bound))
    assert task(0).predicate == TRUE


@pytest.mark.parametrize(
    ("order", "limit", "waves"),
    [
        (key(), 10, "1 0234"),
        (key(), 11, "10 234"),
        (key(), 20, "10 234"),
        (key(), 21, "102 34"),
        (key(True), 10, "2 1034"),
        (key(True), 20, "21 034"),
        (key(False, True), 10, "0 1234"),  # it may have NULLs
        (key(False, True), 30, "012 34"),
        (key(True, True), 20, "02 134"),
        (key(), 50, "10234 "),
        (key(), 99, "10234 "),
    ],
    ids=str,
)
def test_files_that_promise_most_are_first_until_they_have_rows_enough(
    order: OrderKey, limit: int, waves: str
) -> None:
    """Those without bounds come last."""
    tasks = [
        task(0, ColumnStats(2, 5, 1)),
        task(1, ColumnStats(1, 6, 0)),  # both bounds say another order
        task(2, ColumnStats(4, 9, 0)),
        task(3),
        task(4, ColumnStats(None, None, 0)),
    ]
    found = _waves(tasks, order, limit, Evidence(SCHEMA))
    assert " ".join("".join(map(str, wave)) for wave in found) == waves
