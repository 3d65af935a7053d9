"""The 64-bit portable Roaring serialisation, checked byte by byte.

Promise: `decode_bitmap` accepts only bytes that another implementation would read as the same set: keys,
containers and values strictly ascending, every count correct, nothing left over. The C library under
`pyroaring` trusts the bytes more, so the layout is checked here first.

    u64 number of bitmaps, then for each: u32 key (upper half of its values), 32-bit bitmap
    32-bit bitmap: u32 cookie 12346, u32 containers  |  u16 cookie 12347, u16 containers - 1, run flags
                   u16 key, u16 cardinality - 1 of each container
                   u32 offset of each container (with runs: only from 4 containers on)
                   containers: u16 values | 8 KiB bits (over 4096 values) | u16 runs, (u16 start, u16
                   length - 1) of each
    All integers are little-endian.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable
from itertools import islice

from pyroaring import BitMap, BitMap64

from inlay.errors import CorruptTable

# Before the first 32-bit bitmap.
_HEAD_BYTES = 12
_COOKIE_NO_RUNS = 12346
_COOKIE_RUNS = 12347
_NO_OFFSETS_BELOW = 4
_ARRAY_MAX = 4096
_BITS_BYTES = 8192
# Positions are signed 64-bit numbers for other readers of the format.
_KEY_LIMIT = 1 << 31


def encode_bitmap(bitmap: BitMap64) -> bytes:
    """The smallest portable form: runs where they are shorter."""
    compact = bitmap.copy()
    compact.run_optimize()
    return bytes(compact.serialize())


def decode_bitmap(data: bytes) -> BitMap64:
    """The set. Raises CorruptTable unless `data` is exactly one well-formed bitmap."""
    _check(data)
    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise _corrupt(str(error)) from None


def narrow(bitmap: BitMap64) -> BitMap:
    """The same set of 32-bit numbers as the narrow kind. Its one 32-bit bitmap is taken over as it is
    stored: nothing is done for each number.

    >>> narrow(BitMap64([3, 70_000])), narrow(BitMap64())
    (BitMap([3, 70000]), BitMap([]))
    """
    if not bitmap:
        return BitMap()
    if bitmap.max() >= 1 << 32:
        raise ValueError("a position of more than 32 bits")
    return BitMap.deserialize(bitmap.serialize()[_HEAD_BYTES:])


def _corrupt(what: str) -> CorruptTable:
    return CorruptTable(f"a deletion vector's bitmap is damaged: {what}")


class _Cursor:
    """Reads little-endian integers. Raises CorruptTable past the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise _corrupt("it is cut short")
        self.at += size
        return found

    def shorts(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}H", self.take(2 * count))

    def word(self) -> int:
        return int.from_bytes(self.take(4), "little")


def _check(data: bytes) -> None:
    cursor = _Cursor(data)
    keys = []
    for _ in range(int.from_bytes(cursor.take(8), "little")):  # a false count runs past the end
        keys.append(cursor.word())
        _check_bitmap(cursor)
    if not _ascending(keys) or (keys and keys[-1] >= _KEY_LIMIT):
        raise _corrupt("its keys are out of order or range")
    if cursor.at < len(data):
        raise _corrupt("bytes follow its end")


def _check_bitmap(cursor: _Cursor) -> None:
    start = cursor.at
    cookie = cursor.word()
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        flags = int.from_bytes(cursor.take((count + 7) // 8), "little")
    elif cookie == _COOKIE_NO_RUNS:
        count, flags = cursor.word(), 0
    else:
        raise _corrupt("it has no known cookie")
    if count > 1 << 16:
        raise _corrupt("it has too many containers")
    header = cursor.shorts(2 * count)
    if not _ascending(header[::2]):
        raise _corrupt("its containers are out of order")
    offsets = None
    if cookie == _COOKIE_NO_RUNS or count >= _NO_OFFSETS_BELOW:
        offsets = struct.unpack(f"<{count}I", cursor.take(4 * count))
    for at in range(count):
        if offsets is not None and offsets[at] != cursor.at - start:
            raise _corrupt("a container is not at its offset")
        _check_container(cursor, header[2 * at + 1] + 1, is_runs=bool(flags >> at & 1))


def _check_container(cursor: _Cursor, cardinality: int, *, is_runs: bool) -> None:
    if is_runs:
        runs = cursor.shorts(2 * cursor.shorts(1)[0])
        ends = list(map(operator.add, runs[::2], runs[1::2]))
        apart = all(map(operator.lt, ends, islice(runs, 2, None, 2)))
        true_count = sum(runs[1::2]) + len(ends) == cardinality
        if not (apart and true_count and (not ends or ends[-1] < 1 << 16)):
            raise _corrupt("a container's runs overlap or do not add up")
    elif cardinality > _ARRAY_MAX:
        if int.from_bytes(cursor.take(_BITS_BYTES), "little").bit_count() != cardinality:
            raise _corrupt("a container's bits do not add up")
    elif not _ascending(cursor.shorts(cardinality)):
        raise _corrupt("a container's values are out of order")


def _ascending(values: Iterable[int]) -> bool:
    found = list(values)
    return all(map(operator.lt, found, islice(found, 1, None)))
