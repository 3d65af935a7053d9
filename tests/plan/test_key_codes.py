"""Keys as whole numbers, and which of several rows of a key counts, against plain Python."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from inlay.ops.write.keyed_rows import Keys
from inlay.parquet.arrow.newest_rows import ranks

# More of some values than of others: a code that mixes up two columns' sizes meets another one.
VALUES: list[list[Any]] = [["a", "b", None], [1, 2, 3, 4, None], [0.5, float("nan"), -0.0, None]]


def columns(keys: list[tuple[Any, ...]]) -> list[pa.Array]:
    kinds = [pa.string(), pa.int64(), pa.float64()]
    return [
        pa.array(values, kind) for values, kind in zip(zip(*keys, strict=True), kinds, strict=False)
    ]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_equal_keys_have_equal_codes_and_others_are_not_found(width: int) -> None:
    every = list(itertools.product(*VALUES[:width]))
    known = every[:: 2 if width == 1 else 3]
    keys = Keys([pa.chunked_array([column]) for column in columns(known)], "equal")
    codes = keys.codes.to_pylist()
    assert sorted(codes) == list(range(len(known)))
    code_of = dict(zip(map(repr, known), codes, strict=True))
    found = keys.find(columns(every)).to_pylist()
    assert found == [code_of.get(repr(key)) for key in every]


def test_null_equals_nothing_where_it_is_said_so_and_where_no_key_has_one() -> None:
    known = [("a", 1), ("b", None), (None, 2)]
    keys = Keys([pa.chunked_array([column]) for column in columns(known)])
    assert [code is None for code in keys.codes.to_pylist()] == [False, True, True]
    keys = Keys([pa.chunked_array([column]) for column in columns([("a", 1), ("b", 2)])], "equal")
    assert keys.find(columns([("b", 2), ("b", None), (None, 1)])).to_pylist() == [1, None, None]


def test_null_is_below_every_value_and_nan_above_and_a_delete_counts_last() -> None:
    orders = [None, float("-inf"), -0.0, 1.0, float("inf"), float("nan")]
    rows = list(itertools.product(orders, [None, "a", "b"], [False, True]))
    expected = list(range(len(rows)))
    for step in (1, -1, 5):
        at = [expected[(n * step) % len(rows)] for n in range(len(rows))]
        assert sorted(at) == expected
        given = [rows[n] for n in at]
        order = [
            pa.chunked_array([pa.array([row[0] for row in given], pa.float64())]),
            pa.chunked_array([pa.array([row[1] for row in given], pa.string())]),
        ]
        deletes = pa.chunked_array([pa.array([row[2] for row in given])])
        assert ranks(order, deletes, len(given)).to_pylist() == at
    same = [pa.chunked_array([pa.array([2, 1, 2])])]
    assert ranks(same, None, 3).to_pylist() == [1, 0, 2]
    assert ranks([], None, 3).to_pylist() == [0, 1, 2]
