"""What a text says without any row: calculated before columns are looked at.

Promise: `fold` gives the same tree with literals where the text calculates with literals alone, exactly:
`now() - INTERVAL '7 days'` is one moment for all rows of a statement, and the condition around it a plain
one, which prunes files and may be kept. What cannot be exact (a quotient) stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal

from inlay.errors import InvalidPredicate
from inlay.format.binding import Clock, Day, Flag, Moment, Number, Text, Written
from inlay.format.schema import Primitive, Schema
from inlay.format.values import EXACT, NANOS_PER_DAY, integer_range
from inlay.parse.syntax import (
    Between,
    Calculation,
    Call,
    Case,
    Cast,
    Compared,
    Element,
    Given,
    Is,
    Joined,
    Matches,
    Member,
    Name,
    Negated,
    OneOf,
    Span,
    Syntax,
)
from inlay.parse.times import UNITS, read_clock, read_day, read_moment, shifted, truncated

_MOMENTS = ("NOW", "CURRENT_TIMESTAMP")
_DAYS = ("CURRENT_DATE", "TODAY")
_MAX_DIGITS = 76


class Folder:
    """One text. `timed`: whether it asked for the time, once, in microseconds since 1970."""

    def __init__(self, text: str, schema: Schema, now: Callable[[], int] | None) -> None:
        self.text = text
        self.now = now
        self.columns = {field.name.casefold() for field in schema.fields}
        self.moment: Moment | None = None

    @property
    def timed(self) -> bool:
        return self.moment is not None

    def fold(self, node: Syntax) -> Syntax:
        match node:
            case Given():
                return node
            case Name(((word, False),), at) if word.upper() in (*_DAYS[:1], *_MOMENTS[1:]):
                if word.casefold() in self.columns:
                    return node
                return self.time(word.upper(), at)
            case Name():
                return node
            case Call(function, (), at) if function in (*_MOMENTS, *_DAYS):
                return self.time(function, at)
            case Call(_, arguments):
                call = replace(node, arguments=tuple(self.fold(each) for each in arguments))
                return _truncated(call)
            case Calculation(_, left, right):
                return self.calculation(replace(node, left=self.fold(left), right=self.fold(right)))
            case Cast(operand):
                return self.cast(replace(node, operand=self.fold(operand)))
            case Case(branches, otherwise):
                folded = tuple((self.fold(when), self.fold(then)) for when, then in branches)
                return replace(node, branches=folded, otherwise=self.fold(otherwise))
            case Element(operand, index):
                return replace(node, operand=self.fold(operand), index=self.fold(index))
            case Compared(_, left, right):
                return replace(node, left=self.fold(left), right=self.fold(right))
            case Between(operand, low, high):
                operand, low, high = self.fold(operand), self.fold(low), self.fold(high)
                return replace(node, operand=operand, low=low, high=high)
            case OneOf(operand, items):
                folded_items = tuple(self.fold(item) for item in items)
                return replace(node, operand=self.fold(operand), items=folded_items)
            case Matches(operand, pattern):
                return replace(node, operand=self.fold(operand), pattern=self.fold(pattern))
            case Is(operand) | Member(operand):
                return replace(node, operand=self.fold(operand))
            case Joined(_, parts):
                return replace(node, parts=tuple(self.fold(part) for part in parts))
            case Negated(part):
                return replace(node, part=self.fold(part))

    def time(self, word: str, at: int) -> Given:
        if self.now is None:
            raise InvalidPredicate(
                f"{word} is not known here: what is asked may be carried out later",
                text=self.text,
                position=at,
                next_step="Write the time: TIMESTAMPTZ '2026-01-31 12:00:00'",
            )
        self.moment = self.moment or Moment(self.now() * 1_000, zoned=True)
        day = Day(self.moment.value // NANOS_PER_DAY)
        return Given(day if word in _DAYS else self.moment, at)

    def calculation(self, node: Calculation) -> Syntax:
        if not isinstance(node.left, Given) or not isinstance(node.right, Given):
            return node
        try:
            found = _calculated(node.op, node.left.value, node.right.value)
        except ValueError as error:
            raise self.error(node, str(error)) from None
        return node if found is None else Given(found, node.left.at)

    def cast(self, node: Cast) -> Syntax:
        if not isinstance(node.operand, Given):
            return node
        try:
            found = _as_type(node.operand.value, node.to)
        except ValueError as error:
            raise self.error(node, f"this is not a {node.to}: {error}") from None
        return node if found is None else Given(found, node.operand.at)

    def error(self, node: Syntax, message: str) -> InvalidPredicate:
        return InvalidPredicate(message, text=self.text, position=node.at)


def _calculated(
    op: str, left: Written | Span | None, right: Written | Span | None
) -> Written | None:
    match op, left, right:
        case "+" | "-" | "*", Number(one), Number(other) if one.is_finite() and other.is_finite():
            found = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[op](one, other)
            fits = found.is_finite() and len(found.as_tuple().digits) <= _MAX_DIGITS
            return Number(found) if fits else None
        case "+" | "-", Day(days), Number(count) if count == count.to_integral_value():
            return Day(days + int(count if op == "+" else -count))
        case "-", Day(one), Day(other):
            return Number(Decimal(one - other))
        case "+" | "-", Day() | Moment(), Span(months, nanos):
            span = right if op == "+" else Span(-months, -nanos)
            assert isinstance(left, Day | Moment) and isinstance(span, Span)
            zoned = isinstance(left, Moment) and left.zoned
            start = left.value * NANOS_PER_DAY if isinstance(left, Day) else left.value
            return Moment(shifted(start, span), zoned)
    return None


def _truncated(call: Call) -> Syntax:
    match call:
        case Call("DATE_TRUNC", (Given(Text(unit)), Given(Day(days)))) if unit.lower() in UNITS:
            start = truncated(days * NANOS_PER_DAY, unit.lower())
            return Given(Day(start // NANOS_PER_DAY), call.at)
        case Call("DATE_TRUNC", (Given(Text(unit)), Given(Moment(nanos, zoned)))) if (
            unit.lower() in UNITS
        ):
            return Given(Moment(truncated(nanos, unit.lower()), zoned), call.at)
    return call


def _as_type(value: Written | Span | None, to: Primitive) -> Written | None:
    """The literal as another type's; None where rows have to say. ValueError: it is none."""
    match to.name, value:
        case "date", Text(text):
            return read_day(text.strip())
        case "date", Moment(nanos):
            return Day(nanos // NANOS_PER_DAY)
        case "date", Day():
            return value
        case "time", Text(text):
            return read_clock(text.strip())
        case "time", Clock():
            return value
        case "timestamp" | "timestamptz", Text(text):
            found = read_moment(text.strip())
            if to.name == "timestamp" and found.zoned:
                raise ValueError("a timestamp has no zone, a timestamptz has one")
            return Moment(found.value, to.name == "timestamptz")
        case "timestamp" | "timestamptz", Moment(nanos):
            return Moment(nanos, to.name == "timestamptz")
        case "timestamp" | "timestamptz", Day(days):
            return Moment(days * NANOS_PER_DAY, to.name == "timestamptz")
        case _, Number(number) if to.is_integer and number.is_finite():
            least, greatest = integer_range(to) or (0, 0)
            # Before it is rounded: EXACT has no room for the digits of 1e300.
            if not least - 1 < number < greatest + 1:
                raise ValueError("the number is beyond the type's range")
            whole = number.quantize(Decimal(1), ROUND_HALF_UP, EXACT)
            if not least <= whole <= greatest:
                raise ValueError("the number is beyond the type's range")
            return Number(whole)
        case "string", Text():
            return value
        case "bool", Flag():
            return value
    return None
