"""Python values laid out as Arrow by hand: what pyarrow makes of them, without what it imports."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from inlay.parquet.arrow.types import (
    positions_array,
    positions_bitmap,
    to_array,
    to_scalar,
)

INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
COUNTS = [
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    pa.timestamp("us"),
    pa.timestamp("ns", "UTC"),
]


def integers_of(kind: pa.DataType) -> st.SearchStrategy[int]:
    unsigned = pa.types.is_unsigned_integer(kind)
    bits = kind.bit_width - (0 if unsigned else 1)
    return st.integers(0 if unsigned else -(2**bits), 2**bits - 1)


def counts_of(kind: pa.DataType) -> st.SearchStrategy[int]:
    if pa.types.is_time(kind):
        return st.integers(0, 86_400 * (1_000 if kind.unit == "ms" else 1_000_000) - 1)
    return integers_of(pa.int32() if kind.bit_width == 32 else pa.int64())


def decimals_of(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    numbers = st.integers(-(10**precision) + 1, 10**precision - 1)
    return numbers.map(lambda n: Decimal(f"{n}E-{scale}"))  # exact, however many digits


KINDS = [
    *((kind, integers_of(kind)) for kind in INTEGERS),
    *((kind, counts_of(kind)) for kind in COUNTS),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.decimal128(12, 3), decimals_of(12, 3)),
    (pa.decimal128(27, 0), decimals_of(27, 0)),
    (pa.decimal256(12, 3), decimals_of(12, 3)),
    (pa.decimal256(76, 30), decimals_of(76, 30)),
]


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=[str(kind) for kind, _ in KINDS])
def test_arrays_are_those_of_pyarrow(kind, values):
    @given(st.lists(st.none() | values, max_size=20))
    def check(given_values):
        found = to_array(given_values, kind)
        found.validate(full=True)
        wanted = pa.array(given_values, kind)
        assert found.type == wanted.type
        assert found.null_count == wanted.null_count
        if pa.types.is_floating(kind):  # NaN equals no NaN: compare the bits
            number = pa.int64() if kind.bit_width == 64 else pa.int32()
            found, wanted = found.view(number), wanted.view(number)
        assert found.equals(wanted)

    check()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), 300),
        (pa.int8(), "one"),
        (pa.uint32(), -1),
        (pa.decimal128(4, 2), Decimal("123.45")),
        (pa.decimal128(4, 2), Decimal("1.234")),
        (pa.decimal256(4, 2), Decimal("123.45")),
        (pa.string(), 5),
        (pa.bool_(), "yes"),
        (pa.date32(), "2026-01-01"),
    ],
)
def test_what_does_not_fit_is_refused_as_pyarrow_refuses_it(kind, value):
    with pytest.raises((pa.ArrowException, OverflowError, TypeError, ValueError)):
        to_scalar(value, kind)


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_positions_are_the_numbers_of_a_bitmap(numbers):
    wanted = pa.array(sorted(set(numbers)), pa.int64())
    assert positions_array(BitMap(numbers)).equals(wanted)
    assert positions_array(BitMap64(numbers)).equals(wanted)


@given(st.lists(st.integers(0, 300) | st.integers(0, 2**32 - 1)), st.integers(0, 3))
def test_a_bitmap_is_of_its_numbers(numbers, skipped):
    ascending = sorted(set(numbers))
    found = positions_bitmap(pa.array(ascending, pa.int64()).slice(skipped))
    assert found == BitMap64(ascending[skipped:])
