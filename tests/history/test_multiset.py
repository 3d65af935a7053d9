"""Differences of multisets of rows, against Counter."""

from __future__ import annotations

import math
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.parquet.arrow import multiset
from inlay.parquet.arrow.multiset import Multiset, difference_in_order, row_codes

_ITEM = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("h", pa.float32()),
        ("s", pa.string()),
        ("d", pa.decimal256(50, 2)),
        ("t", pa.timestamp("ns", "UTC")),
        ("fixed", pa.binary(2)),
        ("nested", _ITEM),
        ("list", pa.list_(_ITEM)),
        ("map", pa.map_(pa.string(), pa.float64())),
    ]
)
_floats = st.sampled_from([0.0, -0.0, math.nan, 1.5])
_items = st.none() | st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(0, 1),
        "b": st.none() | st.lists(st.sampled_from("xy"), max_size=2),
    }
)
_rows = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(0, 2),
        "f": st.none() | _floats,
        "h": _floats,
        "s": st.sampled_from([None, "", "a"]),
        "d": st.sampled_from([None, Decimal("1.00"), Decimal("1.10")]),
        "t": st.sampled_from([None, 0, 1]),
        "fixed": st.sampled_from([None, b"ab", b"cd"]),
        "nested": _items,
        "list": st.none() | st.lists(_items, max_size=2),
        "map": st.none() | st.lists(st.tuples(st.sampled_from("kl"), _floats), max_size=1),
    }
)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def key(value: Any) -> str:
    """A value by its bits: repr distinguishes -0.0 from 0.0 and writes every NaN alike."""
    if isinstance(value, dict):
        return repr(sorted((name, key(part)) for name, part in value.items()))
    if isinstance(value, list | tuple):
        return repr([key(part) for part in value])
    return repr(value)


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(map(key, rows))


def read_heap(rows: pa.Table) -> Counter[str]:
    plain = rows.set_column(5, "t", rows["t"].cast(pa.int64()))
    return counted(plain.to_pylist())


@settings(deadline=None, max_examples=60)
@given(st.lists(_rows, max_size=8))
def test_codes_are_equal_exactly_where_rows_are(rows: list[dict[str, Any]]) -> None:
    # In two chunks, one of them sliced: codes must not depend on how rows are laid out.
    laid = pa.concat_tables([table(rows[:3]), table([*rows[:1], *rows[3:]]).slice(len(rows[:1]))])
    codes = row_codes(laid).to_pylist()
    assert [[a == b for b in codes] for a in codes] == [
        [key(a) == key(b) for b in rows] for a in rows
    ]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([-1, 1]), _rows), max_size=12), st.integers(1, 5))
def test_equal_rows_that_came_and_went_cancel(
    changes: list[tuple[int, dict[str, Any]]], net_rows: int
) -> None:
    found = Multiset(SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiset, "NET_ROWS", net_rows)
        for sign, row in changes:
            found.add(sign, table([row]))
    went, came = found.result()
    minus, plus = (
        counted([r for s, r in changes if s < 0]),
        counted([r for s, r in changes if s > 0]),
    )
    assert read_heap(went) == minus - plus
    assert read_heap(came) == plus - minus


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 3), max_size=30),
    st.randoms(use_true_random=False),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_rows_left_out_of_a_file_are_found_in_a_stream(
    rows: list[int], chance: random.Random, ours: int, theirs: int
) -> None:
    kept = [row for row in rows if chance.random() < 0.6]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiset, "WINDOW_ROWS", 4)
        found = list(difference_in_order(_stream(rows, ours), _stream(kept, theirs), _ONE))
    assert {sign for sign, _ in found} <= {-1}
    gone = Counter(v for _, t in found for v in t.column(0).to_pylist())
    assert gone == Counter(rows) - Counter(kept)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_streams_in_any_order_still_add_up(rows: list[int], kept: list[int]) -> None:
    counts = Counter(rows)
    for sign, rows_of in difference_in_order(_stream(rows, 3), _stream(kept, 4), _ONE):
        for value in rows_of.column(0).to_pylist():
            counts[value] += sign
    assert +counts == Counter(kept)
    assert min(counts.values(), default=0) >= 0


def test_zeros_of_both_signs_are_distinguished() -> None:
    schema = pa.schema([("f", pa.float64())])
    rows, kept = (pa.record_batch({"f": values}, schema) for values in ([0.0, -0.0], [-0.0]))
    [(sign, gone)] = difference_in_order([rows], [kept], schema)
    assert (sign, math.copysign(1.0, gone["f"][0].as_py())) == (-1, 1.0)


_ONE = pa.schema([("n", pa.int64())])


def _stream(values: list[int], size: int) -> list[pa.RecordBatch]:
    table = pa.table({"n": pa.array(values, pa.int64())})
    return table.to_batches(max_chunksize=size)
