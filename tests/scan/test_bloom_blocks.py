"""Where a Bloom filter's block is: only in filters of the form that this library writes, in the file."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.format.schema import Primitive
from inlay.parquet.footer.bloom import BLOCK_BYTES, block_of, xxh64
from inlay.parquet.footer.fields import Physical
from inlay.parquet.footer.pages import BLOOM_HEADER_BYTES
from inlay.parquet.read.selection import bloom_block
from inlay.storage.base import ByteRange

LONG = Primitive("int64")


def block(at: int | None, length: int | None, *, start: int = 10_000, value: Any = 7) -> Any:
    """`start` is where the footer begins."""
    chunk = SimpleNamespace(bloom_offset=at, bloom_length=length)
    footer: Any = SimpleNamespace(
        start=start,
        row_group=lambda ordinal: SimpleNamespace(column=lambda leaf: chunk),
        leaves=[SimpleNamespace(type=Physical.INT64)],
    )
    return bloom_block(footer, 0, 0, LONG, value)


@given(
    st.integers(5, 12), st.integers(1, 16), st.integers(0, 500), st.integers(-(2**63), 2**63 - 1)
)
def test_the_block_is_that_of_the_values_hash(power: int, header: int, at: int, value: int) -> None:
    bits = 2**power
    found = block(at, header + bits, value=value)
    hashed = xxh64(struct.pack("<q", value))
    start = at + header + block_of(hashed, bits // BLOCK_BYTES) * BLOCK_BYTES
    assert found.place == ByteRange(start, start + BLOCK_BYTES) and found.hashed == hashed
    assert at + header <= start and start + BLOCK_BYTES <= at + header + bits


@pytest.mark.parametrize(
    ("at", "length"),
    [
        (None, 64),
        (0, None),
        (0, BLOCK_BYTES),  # no header
        (0, 64),
        (0, BLOCK_BYTES - 1),
        (0, BLOCK_BYTES // 2 + 8),  # less than a block
        (0, 1024 + BLOOM_HEADER_BYTES + 1),  # no power of two
        (0, 1024 + 512),
    ],
)
def test_another_form_is_not_looked_up(at: int | None, length: int | None) -> None:
    assert block(at, length) is None


def test_the_longest_header_is_looked_up() -> None:
    assert block(0, 1024 + BLOOM_HEADER_BYTES) is not None


def test_a_filter_ends_before_the_footer() -> None:
    assert block(100, 8 + 64, start=172) is not None
    assert block(100, 8 + 64, start=171) is None


def test_a_value_that_the_column_cannot_have_is_not_looked_up() -> None:
    assert block(0, 8 + 64, value="text") is None
