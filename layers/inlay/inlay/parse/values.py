"""Bound values: Python values that stand for `?` and `:name` in a text, and never become part of it.

Promise: a value means itself, whatever it contains: it is a literal of the syntax tree, put there after the
text was read. Each value is used, and each place has one; what has no literal form is refused by its type,
never by its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from inlay.errors import InvalidPredicate, InvalidRequest, a_type
from inlay.format.binding import Clock, Day, Flag, Moment, Number, Octets, Text, Written
from inlay.format.values import NANOS_PER_DAY, NANOS_PER_UNIT
from inlay.parse.times import read_clock, read_moment
from inlay.record import Record

_EPOCH = date(1970, 1, 1)
_ARROW_TIME = re.compile(r"(date|time|timestamp)(?:32|64)?\[(day|s|ms|us|ns)(, tz=.+)?\]")


class Literal(Record):
    """A value in place of SQL text, as `inlay.lit` makes it."""

    value: Any


def written_of(value: Any) -> Written | None:
    """A Python value as a literal; None is NULL. NumPy's and pyarrow's scalars count as theirs. Raises
    `InvalidRequest`."""
    if isinstance(value, Literal):
        value = value.value
    of_arrow = _arrow_time(value)
    if of_arrow is not None:
        return of_arrow
    try:
        for plain in ("as_py", "item"):  # pyarrow's, then NumPy's scalars
            if hasattr(value, plain) and not hasattr(value, "__len__"):
                scalar, value = value, getattr(value, plain)()
                kind = getattr(getattr(scalar, "dtype", None), "kind", "")
                if isinstance(value, int) and kind == "M":  # in a unit that Python's has not
                    return read_moment(str(scalar))
                if isinstance(value, int) and kind == "m":  # no number of nanoseconds
                    value = scalar
                    break
        match value:
            case None:
                return None
            case bool():
                return Flag(value)
            case int() | Decimal():
                return Number(Decimal(value))
            case float():
                return Number(Decimal(repr(float(value))))  # as it is written, as in a text
            case str():
                value.encode("utf-8")
                return Text(str(value))
            case bytes() | bytearray() | memoryview():
                return Octets(bytes(value))
            case datetime():
                return read_moment(value.isoformat(sep=" "))
            case date():
                return Day((value - _EPOCH).days)
            case time() if value.tzinfo is None:
                return read_clock(value.isoformat())
    except ValueError:
        raise InvalidRequest(f"{a_type(value)} is given that is no value of its type") from None
    raise InvalidRequest(
        f"a value cannot be {a_type(value)}",
        next_step="Give None, a bool, a number, a text, bytes, a date, a datetime or a time without a zone",
    )


def _arrow_time(scalar: Any) -> Written | None:
    """A pyarrow scalar of a date or time, by its number: Python's lack years and nanoseconds."""
    match = _ARROW_TIME.fullmatch(str(getattr(scalar, "type", "")))
    number = None if match is None else scalar.value
    if match is None or number is None:
        return None
    kind, unit, zone = match.groups()
    if unit == "day":
        return Day(number)
    nanos = number * NANOS_PER_UNIT[unit]
    if kind == "date":
        return Day(nanos // NANOS_PER_DAY)
    return Clock(nanos) if kind == "time" else Moment(nanos, zoned=zone is not None)


class Values:
    """The values of one call, in the order in which its texts take them."""

    def __init__(self, params: Sequence[Any] | Mapping[str, Any]) -> None:
        is_listed = isinstance(params, Sequence) and not isinstance(params, str | bytes)
        if not is_listed and not isinstance(params, Mapping):
            raise InvalidRequest(
                f"params cannot be {a_type(params)}",
                next_step="Give a list for ?, as in params=[5], or names for :name, as in params={'id': 5}",
            )
        self._params = params
        self._taken: set[object] = set()

    def take(self, token: str, at: int) -> Any:
        """The value of `?`, the next one, or of `:name`."""
        name = token[1:]
        if isinstance(self._params, Mapping):
            if not name or name not in self._params:
                raise _unbound(token, at)
            self._taken.add(name)
            return self._params[name]
        place = len(self._taken)
        if name or place >= len(self._params):
            raise _unbound(token, at)
        self._taken.add(place)
        return self._params[place]

    def check_used(self) -> None:
        unused = len(self._params) - len(self._taken)
        if unused:
            raise InvalidRequest(
                f"{unused} of {len(self._params)} params are not used in the text",
                next_step="Write ? for each value of a list, or :name for each name",
            )


def _unbound(token: str, at: int) -> InvalidPredicate:
    return InvalidPredicate(
        f"{token[:40]} stands for a value, and none is given",
        position=at,
        next_step="Give params=[…], a value for each ?, or params={…}, one for each :name",
    )


def lit(value: Any) -> Literal:
    """A value to set a column to, where a text would be SQL: `t.update({"name": inlay.lit("O'Hara")})`."""
    written_of(value)
    return Literal(value)
