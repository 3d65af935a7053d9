"""Values in physical form: their JSON, their order, their truncated bounds, and which types hold them all.

Promise: `decode_value(t, encode_value(t, v))` is `v`, bit for bit except for NaN payloads, for every
primitive type, and `compare` is a total order in which

* NaN equals NaN and is greater than every other number; -0.0 equals 0.0,
* strings order by Unicode code points and bytes as unsigned, so a UTF-8 string orders as its bytes,
* FALSE is before TRUE.

JSON has no NaN, no bytes and only doubles, so non-finite floats and decimals are strings and bytes are
unpadded base64url; everything else is the JSON value itself.

Plain JSON values of entries (`as_text`, `as_count`) are checked when read: what passes has the requested
type; everything else raises `TypeError` or `ValueError`, which the codec turns into `CorruptTable` naming
the object.

Where `widens` is true, the wider type holds every value of the other: a cast loses nothing and preserves
the order of values. The rule applies to ingested files, widened columns, old files read under a newer
schema, and assignments between columns.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any, TypeVar, cast

from inlay.errors import CorruptTable, InvalidRequest, a_type
from inlay.format.leaf_types import LEAF_TYPES
from inlay.format.schema import Primitive, Value

V = TypeVar("V")

# Counts, sizes, versions and times: no valid one is larger, and Arrow accepts no more.
MAX_COUNT = 2**63 - 1


def as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def as_count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise TypeError(f"expected a count, found {str(value)[:40]!r}")
    return value


def optional(decode: Callable[[Any], V], value: Any) -> V | None:
    return None if value is None else decode(value)


def trim(values: list[Any]) -> list[Any]:
    while values and values[-1] is None:
        values.pop()
    return values


def pad(values: Any, length: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > length:
        raise TypeError(f"expected a list of at most {length}")
    return values + [None] * (length - len(values))


def bytes_to_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def bytes_from_text(value: str) -> bytes:
    return base64.urlsafe_b64decode(as_text(value) + "==")  # more padding than is needed is ignored


# Wide enough for every decimal type (76 digits), whatever the caller's decimal context.
EXACT = Context(prec=200)

NANOS_PER_UNIT = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
NANOS_PER_DAY = 86_400 * 1_000_000_000

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# -- ranges ---------------------------------------------------------------------------------------


def integer_range(kind: Primitive) -> tuple[int, int] | None:
    """Least and greatest value of a type whose physical form is `int`, else None.

    >>> integer_range(Primitive("int8"))
    (-128, 127)
    """
    row = LEAF_TYPES[kind.name]
    if row.family == "time":
        return 0, NANOS_PER_DAY // NANOS_PER_UNIT[kind.unit] - 1
    return row.limits


# Up to these, every whole number is a value of the type.
WHOLE = {"float": 2**24, "double": 2**53}


def to_float32(value: float) -> float:
    """The nearest 32-bit float; beyond the finite range, infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def scaled(value: Decimal, scale: int) -> Decimal | None:
    """`value` with exactly `scale` digits after the point; None when that would lose digits."""
    try:
        rounded = value.quantize(Decimal(f"1e{-scale}"), context=EXACT)
    except InvalidOperation:
        return None
    if rounded != value:
        return None
    return rounded.copy_abs() if rounded.is_zero() else rounded


def physical(kind: Primitive, value: object) -> Value:
    """`value`, checked against the physical form of `kind` and normalised (a decimal's scale).

    Raises InvalidRequest when it is not a value of the type.
    """
    match LEAF_TYPES[kind.name].family:
        case "bool":
            if isinstance(value, bool):
                return value
        case "float":
            if isinstance(value, int | float) and not isinstance(value, bool):
                return _physical_float(kind, value)
        case "decimal":
            if isinstance(value, Decimal) and value.is_finite():
                exact = scaled(value, kind.scale)
                if exact is not None and len(exact.as_tuple().digits) <= kind.precision:
                    return exact
        case "text":
            if isinstance(value, str) and not _has_surrogate(value):
                return value
        case "bytes":
            if isinstance(value, bytes) and kind.precision in (0, len(value)):
                return value
        case "integer" | "date" | "time" | "timestamp":
            limits = integer_range(kind)
            if limits is not None and type(value) is int and limits[0] <= value <= limits[1]:
                return value
    # The value may be personal data: it never goes into an error.
    raise InvalidRequest(f"{a_type(value)} is not a value of type {kind}")


def is_value(kind: Primitive, value: object) -> bool:
    """Whether `value` is a value of a type, in physical form.

    >>> is_value(Primitive("time", unit="us"), -1)
    False
    """
    try:
        physical(kind, value)
    except InvalidRequest:
        return False
    return True


def _physical_float(kind: Primitive, value: int | float) -> float:
    try:
        double = float(value)
    except OverflowError:
        double = math.inf
    exact = double == value or math.isnan(double)
    narrow = kind.name == "double" or math.isnan(double) or to_float32(double) == double
    if exact and narrow:
        return double
    raise InvalidRequest(f"a number does not fit type {kind} exactly")


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


# -- JSON -----------------------------------------------------------------------------------------


def encode_value(kind: Primitive, value: Value) -> Any:
    """A value for `json.dumps(..., allow_nan=False)`.

    Raises `InvalidRequest` when it is not a value of `kind`: what `decode_value` refuses is never written.
    """
    physical(kind, value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return bytes_to_text(value)
    return value


def decode_value(kind: Primitive, body: Any) -> Value:
    """The inverse of `encode_value`; CorruptTable when `body` is not a value of `kind`."""
    value = body
    try:
        if kind.is_float and isinstance(body, str):
            value = _NON_FINITE[body]
        elif kind.family == "decimal":
            value = Decimal(body) if isinstance(body, str) else None
        elif kind.family == "bytes":
            value = _decode_base64(body)
        return physical(kind, value)
    except (InvalidRequest, KeyError, InvalidOperation, ValueError):
        raise CorruptTable(f"metadata holds something that is not a value of type {kind}") from None


def _decode_base64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError
    value = bytes_from_text(text)
    if bytes_to_text(value) != text:
        raise ValueError  # one value has one text: stray bits at the end would be another
    return value


# -- order ----------------------------------------------------------------------------------------


def order_key(value: Value) -> Any:
    """A key for `sorted` and `==` among values of *one* type.

    >>> sorted([math.nan, 1.0, -math.inf], key=order_key)
    [-inf, 1.0, nan]
    """
    if isinstance(value, float):
        nan = math.isnan(value)
        return nan, 0.0 if nan else value
    return value


def compare(kind: Primitive, left: Value, right: Value) -> int:
    """-1, 0 or 1 in the order of `kind`."""
    if kind.is_float:
        left, right = order_key(left), order_key(right)
    return (left > right) - (left < right)  # type: ignore[operator]


def is_nan(value: Value | None) -> bool:
    return isinstance(value, float) and math.isnan(value)


# -- the calendar ---------------------------------------------------------------------------------

# Years start in March, so the leap day is the last of a year; 400 years, an era, are 146,097 days.
_DAYS_PER_ERA = 146_097
_FIRST_MARCH = 719_468  # days from 0000-03-01 to 1970-01-01


def civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of month of a day since 1970-01-01, in the proleptic Gregorian calendar, for any
    day.

    >>> civil(-1), civil(19_782)
    ((1969, 12, 31), (2024, 2, 29))
    """
    era, of_era = divmod(day + _FIRST_MARCH, _DAYS_PER_ERA)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    from_march = (5 * of_year + 2) // 153
    of_month = of_year - (153 * from_march + 2) // 5 + 1
    month = from_march + 3 if from_march < 10 else from_march - 9
    return year + era * 400 + (month < 3), month, of_month


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01: the inverse of `civil`."""
    year -= month < 3
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + of_year - _FIRST_MARCH


# -- bounds for statistics ------------------------------------------------------------------------

T = TypeVar("T", bound=str | bytes)

_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def truncate_lower(value: T, length: int) -> T:
    """The longest prefix of at most `length` code points or bytes: never above `value`."""
    return cast(T, value[:length])


def truncate_upper(value: T, length: int) -> T | None:
    """A bound of at most `length` code points or bytes that is not below `value`; None if there is none
    (the prefix is already the greatest of its length).

    >>> truncate_upper("abcdef", 3)
    'abd'
    """
    return value if len(value) <= length else successor(cast(T, value[:length]))


def successor(prefix: T) -> T | None:
    """The least string above every string that starts with `prefix`; None if there is none."""
    if isinstance(prefix, bytes):
        head = prefix.rstrip(b"\xff")
        return cast(T, head[:-1] + bytes([head[-1] + 1])) if head else None
    text = str(prefix).rstrip(chr(_LAST_CODE_POINT))
    if not text:
        return None
    following = ord(text[-1]) + 1
    # Surrogates are not characters: UTF-8 goes from U+D7FF straight to U+E000.
    last = chr(_SURROGATES.stop if following in _SURROGATES else following)
    return cast(T, text[:-1] + last)


_UNITS = ("s", "ms", "us", "ns")


def widens(source: Primitive, target: Primitive) -> bool:
    """Whether every value of `source` is also a value of `target`.

    One case is left to the cast: a finer timestamp unit covers fewer years (`covered_range`).
    """
    if source == target:
        return True
    if source.is_integer and target.is_integer:
        (least, greatest), (low, high) = (integer_range(k) or (0, 0) for k in (source, target))
        return low <= least and greatest <= high
    if target.family == source.family == "decimal":
        whole = target.precision - target.scale >= source.precision - source.scale
        return whole and target.scale >= source.scale
    if target.unit and source.name == target.name:
        return _UNITS.index(source.unit) <= _UNITS.index(target.unit)
    pair = (source.name, target.name)
    return pair in (("float", "double"), ("fixed", "binary"), ("date", "timestamp"))


def nanos_per_step(kind: Primitive) -> int:
    """Nanoseconds that 1 stands for in the physical form of a temporal type."""
    return NANOS_PER_DAY if kind.name == "date" else NANOS_PER_UNIT[kind.unit]


def widened(value: Value, source: Primitive, target: Primitive) -> Value:
    """A value of `source` in the physical form of `target`, where `widens(source, target)`.

    >>> widened(1, Primitive("date"), Primitive("timestamp", unit="ms"))
    86400000
    """
    if source == target:
        return value
    if source.is_temporal and isinstance(value, int):
        return value * nanos_per_step(source) // nanos_per_step(target)
    if target.name == "decimal" and not isinstance(value, bool | int | float | str | bytes):
        exact = scaled(value, target.scale)
        return value if exact is None else exact
    return value


def covered_range(source: Primitive, target: Primitive) -> tuple[int, int] | None:
    """The least and the greatest value of `source` that `target` has, where the target covers fewer
    years; None where it has all values of `source`.

    >>> covered_range(Primitive("date"), Primitive("timestamp", unit="ns"))
    (-106751, 106751)
    >>> covered_range(Primitive("date"), Primitive("timestamp", unit="ms")) is None
    True
    """
    if not source.is_temporal or source == target:
        return None
    least, greatest = integer_range(source) or (0, 0)
    low, high = integer_range(target) or (0, 0)
    steps = nanos_per_step(source) // nanos_per_step(target)
    covered = max(least, -(-low // steps)), min(greatest, high // steps)
    return None if covered == (least, greatest) else covered
