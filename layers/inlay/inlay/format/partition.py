"""Partition transforms: from a column's value to the partition of its row.

Promise: transforms follow Apache Iceberg's specification ("Partition Transforms", and its appendix B for
the hash), so a bucket means the same to every engine; every transform but bucket is monotone, and
`values_of` bounds the values of a partition. NULL is in the partition NULL.

Three things that Iceberg leaves open are fixed here: truncating a number near the least value of its type
gives that least value; times finer or coarser than microseconds hash as microseconds; -0.0 is in the
partition of 0.0, and NaN has its own.

A partition value is kept *as written*: as its JSON (`format.values`), so that it can be a key and NaN
equals itself. Its type follows from the transform and source column; `decode_partition` reads it.

The hash of buckets (`murmur3`) is Murmur3's 32-bit variant for x86 with seed 0.

Pure, one value at a time. `inlay.parquet.write.partition` has the same for columns.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Literal, cast

from inlay.errors import NewerFormat
from inlay.format.schema import Primitive, Value
from inlay.format.values import (
    EXACT,
    NANOS_PER_DAY,
    NANOS_PER_UNIT,
    civil,
    days_of,
    decode_value,
    encode_value,
    integer_range,
    nanos_per_step,
    successor,
)
from inlay.record import Record

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


MAX_WIDTH = 2**31 - 1
# The values of one partition tuple are part of every file's entry.
MAX_FIELDS = 8
# Specs stay in a table's pointer for ever.
MAX_SPECS = 64

# A partition value as written: what JSON can hold, never bytes or a decimal.
Written = bool | int | float | str
Partition = tuple[Value | None, ...]

TransformName = Literal["identity", "truncate", "bucket", "year", "month", "day", "hour"]
CALENDAR: tuple[TransformName, ...] = ("year", "month", "day", "hour")
_INT = Primitive("int32")
_TRANSFORM = re.compile(r"(bucket|truncate)\[([1-9][0-9]{0,9})\]")
_HOUR_NANOS = 3600 * 1_000_000_000


class Transform(Record):
    """`width`: the number of buckets, or the length truncate keeps."""

    name: TransformName
    width: int = 0

    def __str__(self) -> str:
        return f"{self.name}[{self.width}]" if self.width else self.name


class Bounds(Record):
    """The values of one partition: `lower` <= value <= `upper`; None is unbounded. `upper` need not be
    reached: for texts with a prefix it is the next prefix."""

    lower: Value | None
    upper: Value | None


# -- transforms -----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def parse_transform(text: str) -> Transform:
    """A transform as a partition spec states it.

    >>> parse_transform("bucket[16]").width
    16
    """
    if text == "identity" or text in CALENDAR:
        return Transform(cast(TransformName, text))
    match = _TRANSFORM.fullmatch(text)
    if match is None or int(match[2]) > MAX_WIDTH:
        raise NewerFormat(f"a partition spec names an unknown transform {text[:40]!r}")
    return Transform(cast(TransformName, match[1]), int(match[2]))


def result_type(transform: Transform, source: Primitive) -> Primitive | None:
    """The type of the partition values; None when the transform does not accept the type."""
    match transform.name:
        case "identity":
            return source
        case "truncate":
            takes = source.name == "binary" or source.family in ("integer", "decimal", "text")
            return source if takes else None
        case "bucket":
            return None if source.family in ("bool", "float") else _INT
        case "hour":
            return _INT if source.family == "timestamp" else None
        case "day" | "month" | "year":
            kind = Primitive("date") if transform.name == "day" else _INT
            return kind if source.family in ("date", "timestamp") else None


def partition_of(transform: Transform, source: Primitive, value: Value | None) -> Written | None:
    """The partition value, as written, of a value in physical form."""
    if value is None:
        return None
    return _partition_of(transform, source, value, type(value).__name__)


# Equal values of different types (True, 1, 1.0) must not share a cache entry.
@lru_cache(maxsize=4096)
def _partition_of(transform: Transform, source: Primitive, value: Value, _: str) -> Written:
    match transform.name:
        case "identity":
            return written(source, value)
        case "truncate":
            return written(source, _truncate(source, value, transform.width))
        case "bucket":
            return (murmur3(hashed_bytes(source, value)) & 0x7FFFFFFF) % transform.width
        case "hour":
            return _whole(source, value) * NANOS_PER_UNIT[source.unit] // _HOUR_NANOS
        case "day":
            return day_of(source, value)
        case "month":
            year, month = civil(day_of(source, value))[:2]
            return (year - 1970) * 12 + month - 1
        case "year":
            return civil(day_of(source, value))[0] - 1970


def written(kind: Primitive, value: Value) -> Written:
    """A value as partition values are stored: equal values give the same text or number."""
    plain = 0.0 if isinstance(value, float) and value == 0 else value
    body: Written = encode_value(kind, plain)
    return body


def decode_partition(transform: Transform, source: Primitive, value: Value | None) -> Value | None:
    """A stored partition value in the physical form of `result_type`. Raises `CorruptTable`."""
    kind = result_type(transform, source)
    if value is None or kind is None:
        return None
    if kind == source:
        return decode_value(kind, value)
    return decode_value(Primitive("int64"), value)


def values_of(transform: Transform, source: Primitive, value: Value) -> Bounds:
    """Bounds of the values whose partition is `value` (decoded, not NULL). A bucket has no bounds."""
    match transform.name:
        case "identity":
            return Bounds(value, value)
        case "truncate":
            return _truncated(source, value, transform.width)
        case "bucket":
            return Bounds(None, None)
        case "hour":
            at = _whole(source, value)
            return _in_units(source, at * _HOUR_NANOS, (at + 1) * _HOUR_NANOS)
        case "day":
            at = _whole(source, value)
            return _in_units(source, at * NANOS_PER_DAY, (at + 1) * NANOS_PER_DAY)
        case "month" | "year":
            months = 1 if transform.name == "month" else 12
            at = _whole(source, value) * months
            ends = (days_of(1970 + n // 12, n % 12 + 1, 1) for n in (at, at + months))
            return _in_units(source, *(days * NANOS_PER_DAY for days in ends))


def _in_units(source: Primitive, first: int, after: int) -> Bounds:
    """From `first` to before `after`, both in nanoseconds, in the units of a type."""
    unit = nanos_per_step(source)
    least, greatest = _limits(source)
    # Units divide hours, so both divisions are exact.
    return Bounds(max(least, first // unit), min(greatest, after // unit - 1))


def _whole(source: Primitive, value: Value) -> int:
    """A number as it is stored: of a decimal the digits without a point."""
    if isinstance(value, Decimal):
        return int(value.scaleb(source.scale, context=EXACT))
    assert isinstance(value, int)
    return value


def _limits(source: Primitive) -> tuple[int, int]:
    """Of numbers as `_whole` has them."""
    return integer_range(source) or (1 - 10**source.precision, 10**source.precision - 1)


# -- truncate -------------------------------------------------------------------------------------


def _truncate(source: Primitive, value: Value, width: int) -> Value:
    if isinstance(value, str | bytes):
        return value[:width]
    number = _whole(source, value)
    return _of_whole(source, max(_limits(source)[0], number - number % width))


def _truncated(source: Primitive, value: Value, width: int) -> Bounds:
    if isinstance(value, str | bytes):
        return Bounds(value, value) if len(value) < width else Bounds(value, successor(value))
    number = _whole(source, value)
    # The first partition may begin within a step, at the least value of the type.
    last = min(_limits(source)[1], number - number % width + width - 1)
    return Bounds(value, _of_whole(source, last))


def _of_whole(source: Primitive, number: int) -> Value:
    is_decimal = source.family == "decimal"
    return Decimal(number).scaleb(-source.scale, context=EXACT) if is_decimal else number


def day_of(source: Primitive, value: Value) -> int:
    """Days since 1970-01-01; before it, negative."""
    return _whole(source, value) * nanos_per_step(source) // NANOS_PER_DAY


# -- bucket ---------------------------------------------------------------------------------------


def hashed_bytes(source: Primitive, value: Value) -> bytes:
    """The bytes of a value that are hashed: the same for all integer types, all precisions of a decimal,
    and all units of a time, so that widening a column moves no row to another bucket."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        unscaled = _whole(source, value)
        # As Java's BigInteger: the fewest bytes that hold the number and its sign.
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length() + 1
        return unscaled.to_bytes((bits + 7) // 8, "big", signed=True)
    number = _whole(source, value)
    if source.unit:
        number = number * NANOS_PER_UNIT[source.unit] // 1_000
    return (number & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")
