"""Murmur3: the hash of bucket partitions, as defined by Iceberg.

Promise: `murmur3` is the 32-bit variant for x86 with seed 0. `inlay.parquet.write.partition` has the same
for columns.
"""

from __future__ import annotations

MASK = 0xFFFFFFFF
FIRST, SECOND = 0xCC9E2D51, 0x1B873593
STEP = 0xE6546B64
LAST, VERY_LAST = 0x85EBCA6B, 0xC2B2AE35


def murmur3(data: bytes) -> int:
    """32-bit Murmur3, x86 variant, seed 0, as an unsigned number.

    >>> murmur3(b"iceberg")
    1210000089
    """
    state = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _scramble(int.from_bytes(data[at : at + 4], "little"))
        state = (_rotate(state, 13) * 5 + STEP) & MASK
    if len(data) > whole:
        state ^= _scramble(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    state = ((state ^ state >> 16) * LAST) & MASK
    state = ((state ^ state >> 13) * VERY_LAST) & MASK
    return state ^ state >> 16


def _scramble(block: int) -> int:
    return _rotate((block * FIRST) & MASK, 15) * SECOND & MASK


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & MASK
