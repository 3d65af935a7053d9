"""The first rows of an order where many rows are equal in it: they are those of a stable sort of the scan,
in whatever order the files are read."""

from __future__ import annotations

import functools
import math
import random
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import inlay

SCHEMA = pa.schema([("a", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("n", pa.int64())])
VALUES: dict[str, list[Any]] = {
    "a": [None, -1, 0, 1],
    "f": [None, -0.0, 0.0, 1.5, float("nan")],
    "s": [None, "", "a", "b"],
}


CONDITIONS: list[tuple[str | None, Callable[[dict[str, Any]], bool]]] = [
    (None, lambda row: True),
    ("a >= 0", lambda row: row["a"] is not None and row["a"] >= 0),
    ("s IS NULL", lambda row: row["s"] is None),
    ("n > 9", lambda row: row["n"] > 9),
]


def first(rows: list[dict[str, Any]], order: list[tuple[str, bool, bool]], limit: int) -> list[int]:
    """The numbers of the rows that a stable sort puts first; a key is (name, descending, nulls first)."""

    def compare(x: dict[str, Any], y: dict[str, Any]) -> int:
        for name, descending, nulls_first in order:
            a, b = x[name], y[name]
            if a is None or b is None:
                if (a is None) != (b is None):
                    return -1 if (a is None) == nulls_first else 1
                continue
            way = _compared(a, b)
            if way:
                return -way if descending else way
        return 0

    return [row["n"] for row in sorted(rows, key=functools.cmp_to_key(compare))[:limit]]


def _compared(a: Any, b: Any) -> int:
    a, b = (
        (math.isnan(v), 0.0 if math.isnan(v) else v) if isinstance(v, float) else v for v in (a, b)
    )
    return (a > b) - (a < b)


def table(parts: list[list[dict[str, Any]]]) -> inlay.Table:
    t = inlay.create(f"memory://ties/{uuid.uuid4().hex}", SCHEMA)
    for part in parts:
        t.append(pa.Table.from_pylist(part, schema=SCHEMA))
    return t


def test_a_better_second_key_in_a_later_file_comes_first() -> None:
    t = table([[{"a": 1, "n": n} for n in rows] for rows in (range(10, 20), range(10))])
    for order in ("a, n", "a DESC, n"):
        assert t.scan(order_by=order, limit=3).to_arrow()["n"].to_pylist() == [0, 1, 2]


def test_a_condition_holds_in_files_that_are_read_later() -> None:
    t = table([[{"a": 5, "s": "a", "n": n} for n in range(4)], [{"a": 4, "s": "b", "n": 10}]])
    t.append(pa.Table.from_pylist([{"a": 4, "s": "a", "n": 20}], schema=SCHEMA))
    for order in ("a", "a DESC"):
        found = t.scan(where="s = 'a'", order_by=order, limit=5).to_arrow()["n"].to_pylist()
        assert 10 not in found and len(found) == 5
    assert t.scan(where="s = 'a'", order_by="a", limit=1).to_arrow()["n"].to_pylist() == [20]


@pytest.mark.parametrize("seed", range(12))
def test_equals_and_nulls_are_in_the_order_of_a_stable_sort(seed: int) -> None:
    dice = random.Random(seed)
    numbers = iter(range(10_000))
    parts = [
        [
            {**{name: dice.choice(of) for name, of in VALUES.items()}, "n": next(numbers)}
            for _ in range(dice.choice([1, 3, 8]))
        ]
        for _ in range(5)
    ]
    t = table(parts)
    scanned = t.scan().to_arrow().to_pylist()
    for _ in range(25):
        names = dice.sample(list(VALUES), dice.choice([1, 2]))
        order = [(name, dice.random() < 0.5, dice.random() < 0.5) for name in names]
        limit = dice.choice([1, 2, 4, len(scanned), len(scanned) + 3])
        spelled = ", ".join(
            f"{name} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls else 'LAST'}"
            for name, descending, nulls in order
        )
        where, holds = dice.choice(CONDITIONS)
        top = t.scan(columns=["n"], where=where, order_by=spelled, limit=limit)
        expected = first([row for row in scanned if holds(row)], order, limit)
        assert top.to_arrow()["n"].to_pylist() == expected, (where, spelled, limit)


@pytest.mark.parametrize("nulls_first", [False, True])
@pytest.mark.parametrize("descending", [False, True])
def test_a_null_among_the_best_leaves_out_what_it_may_and_nothing_else(
    descending: bool, nulls_first: bool
) -> None:
    """The best so far end with a NULL when the file with the values is read."""
    parts = [[{"a": None, "n": n} for n in range(4)], [{"a": n, "n": n} for n in range(10, 14)]]
    for known in (parts, parts[::-1]):
        t = table([*known, [{"a": None, "n": 20}, {"a": 5, "n": 21}]])
        order = [("a", descending, nulls_first)]
        spelled = f"a {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        scanned = t.scan().to_arrow().to_pylist()
        for limit in range(1, 11):
            found = t.scan(order_by=spelled, limit=limit).to_arrow()["n"].to_pylist()
            assert found == first(scanned, order, limit), limit


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("where", [None, "n >= 0"])
def test_a_null_that_is_last_among_the_best_leaves_out_no_value(
    descending: bool, where: str | None
) -> None:
    """The files that come first by their bounds have enough rows, but with NULLs among them."""
    sign = -1 if descending else 1
    values = [[None, None, 1], [2, None], [3]]
    parts = [
        [{"a": a and sign * a, "n": 10 * n + m} for m, a in enumerate(each)]
        for n, each in enumerate(values)
    ]
    t = table(parts)
    spelled = f"a {'DESC' if descending else 'ASC'} NULLS LAST"
    for limit in range(1, 7):
        found = t.scan(order_by=spelled, limit=limit, where=where).to_arrow()["n"].to_pylist()
        assert found == [2, 10, 20, 0, 1, 11][:limit], limit
