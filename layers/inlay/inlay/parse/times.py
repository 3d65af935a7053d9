"""Dates, times and timestamps as text, both ways.

Promise: texts are ISO 8601 in the proleptic Gregorian calendar, read exactly or refused: no rounding, no
two-digit years, no 24:00, no leap seconds (no column has a value for one). Years outside 0000–9999 are
written with a sign. `read_*` accepts whatever `write_*` prints.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from inlay.format.binding import Clock, Day, Moment, Number, Octets, Written
from inlay.format.values import NANOS_PER_DAY, NANOS_PER_UNIT, civil, days_of
from inlay.parse.syntax import Span

_DATE = r"(?P<year>\d{4}|[+-]\d{4,12})-(?P<month>\d\d)-(?P<day>\d\d)"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)"
_DAY = re.compile(_DATE, re.ASCII)
_CLOCK = re.compile(_TIME, re.ASCII)
_MOMENT = re.compile(rf"{_DATE}(?:[ Tt]{_TIME} ?{_ZONE}?)?", re.ASCII)

_NANOS_PER_SECOND = NANOS_PER_UNIT["s"]
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


# -- reading --------------------------------------------------------------------------------------


def read_day(text: str) -> Day:
    """Reads `2026-01-31`. Raises ValueError."""
    match = _DAY.fullmatch(text)
    if match is None:
        raise ValueError("a date is written DATE '2026-01-31'")
    return Day(_days(match))


def read_clock(text: str) -> Clock:
    """Reads `12:30`, `12:30:00` or up to nine digits of fraction. Raises ValueError."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError("a time is written TIME '12:30:00.000'")
    return Clock(_nanos(match))


def read_moment(text: str) -> Moment:
    """Reads `2026-01-31` or `2026-01-31 12:30:00.5`, also with `T`, and with a zone `Z` or `+01:00`."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("a timestamp is written TIMESTAMP '2026-01-31 12:30:00' or '…00Z'")
    nanos = _days(match) * NANOS_PER_DAY
    if match["hour"] is not None:
        nanos += _nanos(match)
    zone = match["zone"]
    if zone is None:
        return Moment(nanos, zoned=False)
    return Moment(nanos - _offset_seconds(zone) * _NANOS_PER_SECOND, zoned=True)


def read_typed(kind: str, text: str) -> Written:
    """The value of `kind 'text'`; `kind` in upper case. The ValueError states what is wrong."""
    match kind:
        case "DATE":
            return read_day(text)
        case "TIME":
            return read_clock(text)
        case "TIMESTAMP":
            return read_moment(text)
        case "TIMESTAMPTZ":
            return Moment(read_moment(text).value, zoned=True)
        case "DECIMAL" | "NUMERIC":
            return _number(text, special=False)
        case "DOUBLE" | "FLOAT" | "REAL":
            return _number(text, special=True)
        case "BINARY" | "BLOB":
            return Octets(bytes.fromhex(text))
        case _:
            raise ValueError(
                "the name before this string is not a type; DATE, TIME, TIMESTAMP, TIMESTAMPTZ, "
                "DECIMAL, DOUBLE and BINARY are"
            )


def _number(text: str, *, special: bool) -> Number:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError("this string is not a number") from None
    if not special and not number.is_finite():
        raise ValueError("a decimal is finite; write DOUBLE 'NaN'")
    return Number(Decimal("NaN") if number.is_nan() else number)


def _days(match: re.Match[str]) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1]:
        raise ValueError("this date does not exist")
    if (month, day) == (2, 29) and not leap:
        raise ValueError("this date does not exist: its year is not a leap year")
    return days_of(year, month, day)


def _nanos(match: re.Match[str]) -> int:
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("this time of day does not exist")
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    return ((hour * 60 + minute) * 60 + second) * _NANOS_PER_SECOND + fraction


def _offset_seconds(zone: str) -> int:
    if zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 18 or minutes > 59:
        raise ValueError("this zone offset does not exist")
    return (1 if zone[0] == "+" else -1) * (hours * 60 + minutes) * 60


# -- writing --------------------------------------------------------------------------------------


def write_day(days: int) -> str:
    year, month, day = civil(days)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{day:02d}"


def write_clock(nanos: int) -> str:
    seconds, fraction = divmod(nanos, _NANOS_PER_SECOND)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{shown}.{fraction:09d}".rstrip("0") if fraction else shown


def write_moment(nanos: int, *, zoned: bool) -> str:
    days, of_day = divmod(nanos, NANOS_PER_DAY)
    return f"{write_day(days)} {write_clock(of_day)}{'Z' if zoned else ''}"


# -- the calendar ---------------------------------------------------------------------------------

_SPANS = {
    "year": (12, 0),
    "quarter": (3, 0),
    "month": (1, 0),
    "week": (0, 7 * NANOS_PER_DAY),
    "day": (0, NANOS_PER_DAY),
    "hour": (0, 3600 * _NANOS_PER_SECOND),
    "minute": (0, 60 * _NANOS_PER_SECOND),
    "second": (0, _NANOS_PER_SECOND),
    "millisecond": (0, 1_000_000),
    "microsecond": (0, 1_000),
}
# What `truncated` cuts to.
UNITS = tuple(_SPANS)
_SPAN = re.compile(r"\s*([+-]?\d{1,9})\s*([a-z]+?)s?(?=[\s+-]|$)", re.IGNORECASE | re.ASCII)
_MONDAY = 4  # 1970-01-05, in days


def read_span(text: str) -> Span:
    """`7 days`, `1 month 12 hours`; ValueError otherwise."""
    months = nanos = at = 0
    while match := _SPAN.match(text, at):
        if match[2].lower() not in _SPANS:
            break
        per_months, per_nanos = _SPANS[match[2].lower()]
        months += int(match[1]) * per_months
        nanos += int(match[1]) * per_nanos
        at = match.end()
    if text[at:].strip() or not text.strip():
        raise ValueError("an interval is written INTERVAL '7 days' or INTERVAL 7 DAY")
    return Span(months, nanos)


def shifted(nanos: int, span: Span) -> int:
    """A moment and an interval later; a day that its month lacks becomes the month's last."""
    days, of_day = divmod(nanos, NANOS_PER_DAY)
    if span.months:
        year, month, day = civil(days)
        month += span.months - 1
        year, month = year + month // 12, month % 12 + 1
        ends = days_of(year + month // 12, month % 12 + 1, 1) - days_of(year, month, 1)
        days = days_of(year, month, min(day, ends))
    return days * NANOS_PER_DAY + of_day + span.nanos


def truncated(nanos: int, unit: str) -> int:
    """The start of the year, month, week (a Monday) … that a moment is in."""
    months, length = _SPANS[unit]
    if months:
        year, month, _ = civil(nanos // NANOS_PER_DAY)
        return days_of(year, (month - 1) // months * months + 1, 1) * NANOS_PER_DAY
    origin = _MONDAY * NANOS_PER_DAY if unit == "week" else 0
    return nanos - (nanos - origin) % length


def next_start(nanos: int, unit: str) -> int:
    """The start after `nanos`, which is one itself."""
    return shifted(nanos, Span(*_SPANS[unit]))
