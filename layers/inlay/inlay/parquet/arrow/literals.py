"""Python values as Arrow, laid out by hand for the types a table has.

Promise: `to_array(values, kind)` and `to_scalar(value, kind)` equal `pa.array(values, kind)` and
`pa.scalar(value, kind)`, for physical values: int (dates, times and timestamps are their counts), float,
bool, str, bytes, Decimal, None.

Why not pyarrow's own conversion: its first call imports pandas where pandas is installed, to check whether
the value is a pandas object. That is one to two seconds of CPU before the first filtered row of a process.
Values of any other form, and types that are not listed here, still use it.
"""

from __future__ import annotations

import struct
from array import array as packed
from collections.abc import Sequence
from decimal import Decimal
from types import NoneType
from typing import Any

import pyarrow as pa
from pyroaring import BitMap, BitMap64

# One value as a struct code, little-endian (Arrow columnar format, "Fixed-Size Primitive Layout").
_CODES: dict[pa.DataType, str] = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.uint64(): "Q",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.date32(): "i",
}
_OFFSETS_END = 2**31 - 1


def to_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """`value` as a scalar of type `kind`. Raises what pyarrow raises where it does not fit."""
    return to_array((value,), kind)[0]


def to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """`values` as an array of type `kind`. Raises what pyarrow raises where one does not fit."""
    try:
        buffers = _buffers(values, kind)
    except (struct.error, TypeError, ValueError, OverflowError, AttributeError):
        buffers = None  # another form of the value, or one that does not fit: pyarrow reports it
    if buffers is None:
        return pa.array(values, kind)
    nulls = sum(value is None for value in values)
    validity = _bits([value is not None for value in values]) if nulls else None
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers], nulls)


def positions_array(positions: BitMap | BitMap64) -> pa.Array:
    """The numbers of a bitmap, ascending, as int64, without creating Python integers."""
    held = positions.to_array()
    narrow = pa.uint64() if held.itemsize == 8 else pa.uint32()
    return pa.Array.from_buffers(narrow, len(held), [None, pa.py_buffer(held)]).cast(pa.int64())


def positions_bitmap(positions: pa.Int64Array) -> BitMap64:
    """The inverse: a bitmap of numbers that ascend, none of them NULL."""
    if not len(positions):
        return BitMap64()
    first, last = positions[0].as_py(), positions[-1].as_py()
    if last - first + 1 == len(positions):
        return BitMap64(range(first, last + 1))
    held = packed("Q")
    held.frombytes(memoryview(positions.buffers()[1])[8 * positions.offset :][: 8 * len(positions)])
    return BitMap64(held)


def _buffers(values: Sequence[Any], kind: pa.DataType) -> list[pa.Buffer] | None:
    """The buffers after the validity bitmap; None for a type that is not laid out here."""
    code = _CODES.get(kind)
    if code is None and pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        code = "i" if kind.bit_width == 32 else "q"
    if code is not None:
        # Only the physical form: no bool as a number, no text, and no fraction for a count.
        types = set(map(type, values)) - {NoneType}
        if not types <= ({int, float} if code in "fd" else {int}):
            return None
        if code in "fd" and int in types and any(_is_inexact(value) for value in values):
            return None
        held = [0 if value is None else value for value in values]
        return [pa.py_buffer(struct.pack(f"<{len(held)}{code}", *held))]
    if kind == pa.bool_():
        if not all(value is None or type(value) is bool for value in values):
            return None
        return [_bits([value is True for value in values])]
    if kind == pa.string():
        return _variable([b"" if value is None else value.encode() for value in values])
    if kind == pa.binary():
        return _variable(
            [b"" if value is None else memoryview(value).tobytes() for value in values]
        )
    if pa.types.is_decimal128(kind):
        unscaled = [0 if value is None else _unscaled(value, kind) for value in values]
        return [pa.py_buffer(b"".join(n.to_bytes(16, "little", signed=True) for n in unscaled))]
    return None


def _is_inexact(value: Any) -> bool:
    """Whether a whole number is no value of a floating type."""
    return type(value) is int and int(float(value)) != value


def _unscaled(value: Any, kind: pa.Decimal128Type) -> int:
    if type(value) is not Decimal or not value.is_finite():
        raise TypeError
    sign, digits, exponent = value.as_tuple()
    shift = int(exponent) + kind.scale
    if shift < 0 or len(digits) + shift > kind.precision:
        raise ValueError
    number: int = int("".join(map(str, digits))) * 10**shift
    return -number if sign else number


def _variable(encoded: list[bytes]) -> list[pa.Buffer]:
    offsets, end = packed("i", [0]), 0
    for each in encoded:
        end += len(each)
        if end > _OFFSETS_END:
            raise OverflowError
        offsets.append(end)
    return [pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(encoded))]


def _bits(flags: list[bool]) -> pa.Buffer:
    """Bit i of the buffer is `flags[i]`, least significant bit first."""
    found = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        if flag:
            found[i >> 3] |= 1 << (i & 7)
    return pa.py_buffer(bytes(found))
