"""Dates and times as texts in a format, over Arrow values, both ways.

Promise: a text is rearranged into ISO's form, never interpreted; whether the date and time exist is decided
where that form is read, or by `existing`. What is written is what Python's strftime writes of the same
directives, with years of four digits.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from inlay.parquet.arrow.types import to_array
from inlay.parse.date_format import DAYS, MONTHS, DateFormat, pieces

_SHORT_MONTHS = to_array([name[:3].lower() for name in MONTHS], pa.string())
_SHORT_DAYS = to_array([name[:3].lower() for name in DAYS], pa.string())
_HOURS = to_array(["12", *(f"{hour:02}" for hour in range(1, 12))], pa.string())

# Of years from 1: two digits that make a multiple of four above zero, at the end or before 00.
_FOURTH = "(0[48]|[2468][048]|[13579][26])"
_LEAP = f"([0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DAY_OF_MONTH = (
    r"(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    r"|02-(0[1-9]|1[0-9]|2[0-8])"
)
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6}0*)?"
_ZONE = r"[Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9]"
_EXISTING = rf"^({_YEAR}-({_DAY_OF_MONTH})|{_LEAP}-02-29)( {_CLOCK}({_ZONE})?)?$"


def in_iso(texts: pa.Array, form: DateFormat) -> tuple[pa.Array, pa.Array | None]:
    """As ISO writes them, NULL where they are not in the format; and the days of the week that they name,
    from Monday's 0."""
    parts = pc.extract_regex(texts, form.pattern)
    part = {name: pc.struct_field(parts, [name]) for name in form.parts}
    if "y" in part:  # as POSIX has it
        old = pc.greater_equal(part["y"], "69")
        part["Y"] = _joined("", pc.if_else(old, "19", "20"), part["y"])
    if "b" in part:
        month = pc.add(pc.index_in(_short(part["b"]), value_set=_SHORT_MONTHS), 1)
        part["m"] = month.cast(pa.string())
    day = _joined("-", part["Y"], _two(part["m"]), _two(part["d"]))
    weekday = None
    if "a" in part:
        weekday = pc.index_in(_short(part["a"]), value_set=_SHORT_DAYS).cast(pa.int64())
    if "I" in part:  # an hour of 0, or past 12, becomes one that ISO has not
        hour = pc.index_in(_two(part["I"]), value_set=_HOURS)
        hour = pc.if_else(pc.is_null(hour), 99, hour)
        after = pc.equal(pc.utf8_lower(part["p"]), "pm")
        part["H"] = pc.add(hour, pc.if_else(after, 12, 0)).cast(pa.string())
    if "H" not in part:
        return day, weekday
    clock = [_two(part[name]) if name in part else pa.scalar("00") for name in "HMS"]
    moment = _joined(" ", day, _joined(":", *clock))
    if "f" in part:
        moment = _joined(".", moment, part["f"])
    return (_joined("", moment, part["z"]) if "z" in part else moment), weekday


def on_another_day(iso: pa.Array, weekday: pa.Array) -> pa.Array:
    """Which of these dates, all of which exist, are not on the day of the week that is named."""
    days = pc.utf8_slice_codeunits(iso, 0, 10).cast(pa.date32())
    return pc.not_equal(weekday, pc.day_of_week(days))


def existing(texts: pa.Array, form: DateFormat) -> pa.Array:
    """As ISO writes them, NULL where they are not in the format, name what does not exist, have more than
    six digits of a second, or another day of the week than they say."""
    iso, weekday = in_iso(texts, form)
    iso = pc.if_else(pc.match_substring_regex(iso, _EXISTING), iso, pa.scalar(None, pa.string()))
    if weekday is not None:
        iso = pc.if_else(on_another_day(iso, weekday), pa.scalar(None, pa.string()), iso)
    # Zeros beyond six digits.
    return pc.replace_substring_regex(iso, r"(\.[0-9]{6})0+", r"\1")


def written(value: pa.Array, text: str) -> pa.Array:
    """Dates, or moments without a zone (a %z is UTC's), with years from 0 to 9999, in a format."""
    if not len(value):
        return pa.array([], pa.string())
    parts: list[pa.Array | pa.Scalar] = [
        pa.scalar(literal) if literal else _WRITTEN[code](value) for code, literal in pieces(text)
    ]
    whole = _joined("", *parts, pa.scalar("")) if parts else pa.scalar("")
    return pc.if_else(value.is_valid(), whole, pa.scalar(None, pa.string()))


def _joined(between: str, *texts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*texts, between)


def _two(digits: pa.Array) -> pa.Array:
    return pc.utf8_lpad(digits, width=2, padding="0")


def _short(names: pa.Array) -> pa.Array:
    return pc.utf8_lower(pc.utf8_slice_codeunits(names, 0, 3))


def _digits(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width=width, padding="0")


def _number(kernel: Callable[[pa.Array], pa.Array], width: int) -> Callable[[pa.Array], pa.Array]:
    return lambda value: _digits(kernel(value), width)


def _named(
    names: list[str], kernel: Callable[[pa.Array], pa.Array]
) -> Callable[[pa.Array], pa.Array]:
    return lambda value: pa.array(names).take(kernel(value))


def _month(value: pa.Array) -> pa.Array:
    return pc.subtract(pc.month(value), 1)


def _timed(kernel: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    """Of a date its midnight's."""
    return lambda value: kernel(
        value.cast(pa.timestamp("s")) if pa.types.is_date(value.type) else value
    )


def _hour_of_12(value: pa.Array) -> pa.Array:
    hour = pc.hour(value)
    hour = pc.if_else(pc.greater_equal(hour, 12), pc.subtract(hour, 12), hour)
    return pc.if_else(pc.equal(hour, 0), 12, hour)


def _micros(value: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(pc.millisecond(value), 1_000), pc.microsecond(value))


_WRITTEN: dict[str, Callable[[pa.Array], pa.Array | pa.Scalar]] = {
    "Y": _number(pc.year, 4),
    "y": lambda value: pc.utf8_slice_codeunits(_digits(pc.year(value), 4), 2),
    "m": _number(pc.month, 2),
    "b": _named([name[:3] for name in MONTHS], _month),
    "B": _named(MONTHS, _month),
    "d": _number(pc.day, 2),
    "a": _named([name[:3] for name in DAYS], pc.day_of_week),
    "A": _named(DAYS, pc.day_of_week),
    "H": _timed(_number(pc.hour, 2)),
    "I": _timed(_number(_hour_of_12, 2)),
    "p": _timed(lambda value: pc.if_else(pc.greater_equal(pc.hour(value), 12), "PM", "AM")),
    "M": _timed(_number(pc.minute, 2)),
    "S": _timed(_number(pc.second, 2)),
    "f": _timed(_number(_micros, 6)),
    "z": lambda value: pa.scalar("+0000"),
    "%": lambda value: pa.scalar("%"),
}
