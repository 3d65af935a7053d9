"""Dates and times at the ends of their types: exact, or refused; never another day."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.parquet.arrow.calculate import NotCalculable, calculate
from inlay.parquet.arrow.evaluate import columns_of
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse.calculate import Calculator
from inlay.parse.grammar import parse_text

NANOS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
SECOND = 10**9
DAY = 86_400 * SECOND
UNITS = {
    "day": DAY,
    "hour": 3600 * SECOND,
    "minute": 60 * SECOND,
    "second": SECOND,
    "millisecond": 10**6,
    "microsecond": 1000,
}


def civil(day: int) -> tuple[int, int, int]:
    """(year, month, day) of a day since 1970 in the Gregorian calendar, which begins with March here."""
    era, of_era = divmod(day + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    first = (153 * month + 2) // 5
    number = month + 3 if month < 10 else month - 9
    return era * 400 + year + (number <= 2), number, of_year - first + 1


def first_day(year: int, month: int) -> int:
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * ((month - 3) % 12) + 2) // 5
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def week(day: int) -> int:
    thursday = day + 3 - (day + 3) % 7
    return (thursday - first_day(civil(thursday)[0], 1)) // 7 + 1


def expected(text: str, nanos: int) -> int:
    """What `text` gives: a number, or nanoseconds since 1970 or midnight."""
    day = nanos // DAY
    year, month, of_month = civil(day)
    match text.partition("(")[0]:
        case "year":
            return year
        case "month":
            return month
        case "quarter":
            return (month + 2) // 3
        case "day":
            return of_month
        case "dayofweek":
            return (day + 4) % 7
        case "dayofyear":
            return day - first_day(year, 1) + 1
        case "week":
            return week(day)
        case "hour":
            return nanos % DAY // UNITS["hour"]
        case "minute":
            return nanos // UNITS["minute"] % 60
        case "second":
            return nanos // SECOND % 60
        case "CAST":
            return nanos % DAY // 1000 * 1000 if "time" in text else day * DAY
    match text.split("'")[1]:
        case "year":
            return first_day(year, 1) * DAY
        case "quarter":
            return first_day(year, (month + 2) // 3 * 3 - 2) * DAY
        case "month":
            return first_day(year, month) * DAY
        case "week":
            return (day - (day + 3) % 7) * DAY
        case unit:
            return nanos // UNITS[unit] * UNITS[unit]


PARTS = ("year", "month", "quarter", "day", "dayofweek", "dayofyear", "week")
STARTS = ("year", "quarter", "month", "week")
TEXTS = [
    *(f"{part}(c)" for part in (*PARTS, "hour", "minute", "second")),
    *("CAST(c AS date)", "CAST(c AS time)"),
    *(f"date_trunc('{unit}', c)" for unit in (*STARTS, *UNITS)),
]


def found(text: str, column: pa.Array) -> int:
    batch = pa.record_batch({"c": column})
    schema = schema_from_arrow(batch.schema)
    value = calculate(Calculator(schema).expression(parse_text(text)), batch, columns_of(schema))
    kind = value.type
    number = value.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())[0].as_py()
    if pa.types.is_date(kind):
        return number * DAY
    return number * NANOS[kind.unit] if hasattr(kind, "unit") else number


ENDS = st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 1, -1, 0])
NEAR = st.integers(0, 10**18).flatmap(lambda n: st.sampled_from([n - 2**63, 2**63 - 1 - n, n, -n]))


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(list(NANOS)),
    ENDS | NEAR | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**12), 10**12),
)
@settings(deadline=None, max_examples=600)
def test_a_moment_is_of_its_day_or_refused(text: str, unit: str, raw: int) -> None:
    column = pa.array([raw], pa.int64()).view(pa.timestamp(unit))
    nanos = raw * NANOS[unit]
    try:
        value = found(text, column)
    except NotCalculable:
        # Years of 16 bits, or the start of the unit is before the first moment of the type.
        assert abs(nanos // DAY) > 11_000_000 or unit == "ns"
        return
    assert value == expected(text, nanos)


@given(
    st.sampled_from([f"{part}(c)" for part in PARTS])
    | st.sampled_from([f"date_trunc('{unit}', c)" for unit in STARTS]),
    st.integers(-(2**31), 2**31 - 1) | st.integers(-12_700_000, 11_300_000),
)
@settings(deadline=None, max_examples=300)
def test_a_date_is_of_its_year_or_refused(text: str, day: int) -> None:
    try:
        value = found(text, pa.array([day], pa.int32()).view(pa.date32()))
    except NotCalculable:
        assert abs(day) > 11_000_000
        return
    assert value == expected(text, day * DAY)
