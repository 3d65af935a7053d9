"""Comparing a column with a literal of another type, exactly.

Promise: a comparison keeps its mathematical meaning whatever the column's type: nothing overflows, and
only fractions compared with a floating column are rounded. Every literal has two neighbours among the
values of a type: the greatest value not above it and the least not below it. Each comparison becomes one
with a neighbour, or a constant for every value:

    x < 300    on int8    TRUE, but NULL for a NULL x
    x = 3.5    on int64   FALSE, but NULL for a NULL x
    x > 3.5    on int64   x >= 4

A column accepts literals of its own type family only; all others are refused, never cast.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

from inlay.errors import InvalidPredicate
from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
)
from inlay.format.schema import Primitive, Value
from inlay.format.values import (
    EXACT,
    NANOS_PER_DAY,
    integer_range,
    is_nan,
    nanos_per_step,
    order_key,
    to_float32,
)
from inlay.record import Record

# -- literals as written --------------------------------------------------------------------------


class Number(Record):
    """A number exactly as written, including NaN and infinities. `Decimal("3")` is an integer,
    `Decimal("3.0")` a fraction; only floating columns treat the two differently."""

    value: Decimal


class Text(Record):
    value: str


class Flag(Record):
    value: bool


class Octets(Record):
    value: bytes


class Day(Record):
    """A date: days since 1970-01-01."""

    value: int


class Clock(Record):
    """A time of day: nanoseconds since midnight."""

    value: int


class Moment(Record):
    """A timestamp: nanoseconds since 1970-01-01T00:00:00, an instant if `zoned`."""

    value: int
    zoned: bool


Written = Number | Text | Flag | Octets | Day | Clock | Moment

_CALLED: dict[type[Written], str] = {
    Number: "a number",
    Text: "a string",
    Flag: "a boolean",
    Octets: "bytes",
    Day: "a date",
    Clock: "a time",
    Moment: "a timestamp",
}


class Neighbours(Record):
    """The greatest value of a type that is not above a literal and the least not below it.

    None where the type has no such value. Equal if the type has the literal itself.
    """

    below: Value | None
    above: Value | None

    @property
    def exact(self) -> bool:
        return (self.below is not None and self.below == self.above) or is_nan(self.below)


# -- predicates -----------------------------------------------------------------------------------


def compare_with(field_id: int, kind: Primitive, op: Operator, literal: Written) -> Predicate:
    """`field op literal`, with the literal in the column's type. Raises InvalidPredicate."""
    near = neighbours(kind, literal)
    if near.exact and near.below is not None:
        return Comparison(field_id, op, Literal(kind, near.below))
    match op:
        case "=":
            return for_values(field_id, False)
        case "!=":
            return for_values(field_id, True)
        case "<" | "<=":
            if near.below is None or near.above is None:
                return for_values(field_id, near.above is None)
            return Comparison(field_id, "<=", Literal(kind, near.below))
        case ">" | ">=":
            if near.below is None or near.above is None:
                return for_values(field_id, near.below is None)
            return Comparison(field_id, ">=", Literal(kind, near.above))


def is_in(field_id: int, kind: Primitive, literals: Iterable[Written | None]) -> Predicate:
    """`field IN (…)`; None is NULL, which makes a row that equals nothing else NULL."""
    values: dict[object, Value] = {}
    has_null = False
    for literal in literals:
        near = None if literal is None else neighbours(kind, literal)
        has_null = has_null or near is None
        if near is not None and near.exact and near.below is not None:
            values[order_key(near.below)] = near.below
    parts: list[Predicate] = []
    if values:
        parts.append(In(field_id, kind, tuple(values.values())))
    elif not has_null:
        parts.append(for_values(field_id, False))
    if has_null:
        parts.append(Constant(None))
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def for_values(field_id: int, result: bool) -> Predicate:
    """`result` for each non-null value of the field, NULL for NULL."""
    if result:
        return Or((Not(IsNull(field_id)), Constant(None)))
    return And((IsNull(field_id), Constant(None)))


# -- neighbours -----------------------------------------------------------------------------------


def neighbours(kind: Primitive, literal: Written) -> Neighbours:
    """The neighbours of a literal among the values of `kind`. Raises InvalidPredicate for a literal of
    another family."""
    match kind.family, literal:
        case "bool", Flag(flag):
            return Neighbours(flag, flag)
        case "text", Text(text):
            return Neighbours(text, text)
        case "bytes", Octets(data):
            return _fixed(kind.precision, data) if kind.precision else Neighbours(data, data)
        case "integer" | "decimal", Number(number):
            return _exact(kind, number)
        case "float", Number(number):
            return _float(kind, number)
        case "date" | "timestamp", Day(days):
            return _in_steps(kind, days * NANOS_PER_DAY)
        case "date" | "timestamp", Moment(nanos, zoned) if not zoned or kind.name == "timestamptz":
            return _in_steps(kind, nanos)
        case "time", Clock(nanos):
            return _in_steps(kind, nanos)
        case _:
            raise InvalidPredicate(
                f"{_CALLED[type(literal)]} cannot be compared with a column of type {kind}",
                next_step=_how_to_write(kind, literal),
            )


def _in_steps(kind: Primitive, nanos: int) -> Neighbours:
    """Of a time in nanoseconds, among the values of a temporal type."""
    steps = nanos_per_step(kind)
    below, above = nanos // steps, -(-nanos // steps)
    least, greatest = integer_range(kind) or (0, 0)
    return Neighbours(
        below=None if below < least else min(below, greatest),
        above=None if above > greatest else max(above, least),
    )


def _exact(kind: Primitive, number: Decimal) -> Neighbours:
    """Among whole numbers, or decimals of one scale."""
    whole = integer_range(kind)
    greatest = (
        Decimal((0, (9,) * kind.precision, -kind.scale)) if whole is None else Decimal(whole[1])
    )
    # Unlike unary minus, not rounded to the context's 28 digits.
    least = greatest.copy_negate() if whole is None else Decimal(whole[0])

    def value(exact: Decimal) -> Value:
        return exact if whole is None else int(exact)

    if number.is_nan() or number > greatest:  # NaN is greater than every number
        return Neighbours(value(greatest), None)
    if number < least:
        return Neighbours(None, value(least))
    # After the range check, so that 1e999999999 never becomes an integer of a billion digits.
    unit = Decimal((0, (1,), -kind.scale))
    below, above = (number.quantize(unit, to, EXACT) for to in (ROUND_FLOOR, ROUND_CEILING))
    return Neighbours(value(below), value(above))


def _float(kind: Primitive, number: Decimal) -> Neighbours:
    if number.is_nan():
        return Neighbours(math.nan, math.nan)
    if number.is_infinite():
        infinite = math.copysign(math.inf, number)
        return Neighbours(infinite, infinite)
    nearest = _nearest(kind, number)
    written_as_integer = number.as_tuple().exponent == 0
    if not (math.isinf(nearest) or (written_as_integer and Fraction(nearest) != Fraction(number))):
        return Neighbours(nearest or 0.0, nearest or 0.0)
    # Out of the finite range, or an integer that is not a value of the type: an identifier must not be
    # rounded to the one next to it.
    if number < Decimal(nearest):
        return Neighbours(_step(kind, nearest, -math.inf), nearest)
    return Neighbours(nearest, _step(kind, nearest, math.inf))


def _nearest(kind: Primitive, number: Decimal) -> float:
    """The nearest value of a floating type, ties to even; an infinity beyond the range."""
    wide = float(number)
    if kind.name == "double" or wide == 0 or math.isinf(wide):
        return wide
    near = to_float32(wide)
    if math.isinf(near):
        return near
    # Rounding twice can end on the wrong side of a tie.
    exact = Fraction(number)
    around = (near, _step(kind, near, -math.inf), _step(kind, near, math.inf))
    return min(around, key=lambda x: math.inf if math.isinf(x) else abs(Fraction(x) - exact))


def _step(kind: Primitive, value: float, towards: float) -> float:
    """The next value of a floating type towards `towards`; `value` is not already that infinity."""
    if kind.name == "double":
        return math.nextafter(value, towards)
    if value == 0:
        return math.copysign(2.0**-149, towards)
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    away_from_zero = (value > 0) == (towards > 0)
    return float(struct.unpack("<f", struct.pack("<i", bits + (1 if away_from_zero else -1)))[0])


def _fixed(length: int, data: bytes) -> Neighbours:
    if len(data) == length:
        return Neighbours(data, data)
    if len(data) > length:
        below = int.from_bytes(data[:length], "big")
        return Neighbours(_to_bytes(below, length), _to_bytes(below + 1, length))
    # A shorter literal sorts before each of its extensions.
    above = int.from_bytes(data.ljust(length, b"\0"), "big")
    return Neighbours(_to_bytes(above - 1, length), _to_bytes(above, length))


def _to_bytes(number: int, length: int) -> bytes | None:
    return number.to_bytes(length, "big") if 0 <= number < 1 << (8 * length) else None


def _how_to_write(kind: Primitive, literal: Written) -> str:
    if isinstance(literal, Moment) and literal.zoned and kind.name in ("date", "timestamp"):
        return "Write it without a time zone: the column has none"
    return f"Write {kind.row.example}"
