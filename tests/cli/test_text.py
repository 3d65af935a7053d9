"""Schemas and durations as text, and values as JSON and as text."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.cli.maintenance import parse_duration
from inlay.cli.output import write_sentence
from inlay.cli.values import counted, size_text, to_text
from inlay.errors import InputError, InvalidPredicate, InvalidRequest
from inlay.ops.schema.columns_text import parse_schema
from inlay.text.written import json_rows, moment_text, to_line

PRIMITIVES = {
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "INTEGER": pa.int32(),
    "bigint": pa.int64(),
    "uint32": pa.uint32(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "decimal(12,2)": pa.decimal128(12, 2),
    "DECIMAL( 12 , 2 )": pa.decimal128(12, 2),
    "numeric(5,0)": pa.decimal128(5, 0),
    "text": pa.string(),
    "varchar(20)": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamp(ns)": pa.timestamp("ns"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "list<int>": pa.list_(pa.int32()),
    "array<struct<x: double, y double not null>>": pa.list_(
        pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.float64(), nullable=False)])
    ),
    "map<string, bigint>": pa.map_(pa.string(), pa.int64()),
}


@pytest.mark.parametrize("text", PRIMITIVES)
def test_a_type_is_read(text: str) -> None:
    (field,) = parse_schema(f"c {text}")
    assert field == pa.field("c", PRIMITIVES[text])


def test_not_null_and_quoted_names() -> None:
    schema = parse_schema('id bigint NOT NULL, "a ""b"" c" text, date date, list string,')
    assert schema.names == ["id", 'a "b" c', "date", "list"]
    assert [f.nullable for f in schema] == [False, True, True, True]


@pytest.mark.parametrize(
    ("text", "at"),
    [("id foo", 3), ("id bigint nam string", 10), ("a int,, b int", 6), ("a decimal(99,1)", 2)],
)
def test_a_schema_that_cannot_be_read_is_pointed_at(text: str, at: int) -> None:
    with pytest.raises(InvalidPredicate) as caught:
        parse_schema(text)
    assert caught.value.position == at
    assert caught.value.next_step


@settings(deadline=None)
@given(st.text(alphabet='abint ,()<>":0123456789\n', max_size=40))
def test_any_text_is_a_schema_or_a_typed_error(text: str) -> None:
    try:
        assert isinstance(parse_schema(text), pa.Schema)
    except InputError as error:
        assert error.next_step


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15m", 900), ("12h", 43_200), ("7d", 604_800), ("0", 0)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "7", "7 d", "-1d", "d", "1.5h", "９d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_duration(text)


VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.dates()
    | st.datetimes(timezones=st.just(UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(VALUES)
def test_any_value_is_one_line_of_valid_json(value: Any) -> None:
    def no_constant(name: str) -> Any:
        raise AssertionError(f"{name} is not JSON")

    line = to_line(value)
    assert "\n" not in line
    json.loads(line, parse_constant=no_constant)


@settings(deadline=None)
@given(VALUES)
def test_text_for_a_terminal_has_no_control_characters(value: Any) -> None:
    assert to_text(value).isprintable()


def test_json_keeps_full_precision() -> None:
    exact = [Decimal("1.10"), date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, UTC), b"\x00\xff"]
    assert json.loads(to_line(exact)) == [
        "1.10",
        "2026-01-02",
        "2026-01-02T03:04:05.000006+00:00",
        "00ff",
    ]


def test_sizes_and_counts_read_well() -> None:
    assert [size_text(n) for n in (0, 999, 1000, 1_500_000)] == ["0 B", "999 B", "1.0 kB", "1.5 MB"]
    assert [counted(n, "row") for n in (0, 1, 1_000_000)] == ["0 rows", "1 row", "1,000,000 rows"]


def test_a_sentence_says_what_a_write_did() -> None:
    from inlay.ops.commit.driver import WriteResult
    from inlay.storage.wrapped import Usage

    done = WriteResult(
        operation="append",
        committed=True,
        version=2,
        added_rows=3,
        added_files=1,
        usage=Usage({"put": 3}, 4100, 0),
    )
    assert write_sentence(done) == (
        "append: version 2, 3 rows added in 1 file; 3 requests, 4.1 kB up, 0 B down"
    )
    merged = WriteResult(operation="merge_branch", committed=True, version=3, added_files=1)
    assert "1 file added" in write_sentence(merged) and "row" not in write_sentence(merged)
    again = WriteResult(operation="append", committed=False, version=2, applied_before=True)
    assert "applied before" in write_sentence(again)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_printed_list_fits_the_terminal_and_names_what_it_leaves_out(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    from inlay.cli import output

    monkeypatch.setattr(output, "console", lambda: Console(width=width, no_color=True))
    names = [f"column_{n}" for n in range(12)]
    output.print_rows(pa.table({name: [10**9, None] for name in names}), as_json=False)
    printed = capsys.readouterr()
    assert max(map(len, printed.out.splitlines())) <= width
    assert "…" not in printed.out
    shown = [name for name in names if name in printed.out.split()]
    assert shown == names[: len(shown)] and shown
    assert all(name in printed.err for name in names[len(shown) :])


def test_long_cells_are_cut_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    from inlay.cli import output

    output.print_rows(pa.table({"text": ["x" * 100]}), as_json=False, cell_width=10)
    assert capsys.readouterr().out.splitlines()[-1].rstrip() == "x" * 9 + "…"


def civil(days: int) -> str:
    """A day of the proleptic Gregorian calendar, counted from 1970, as ISO writes it: by years, one after
    the other within 400."""
    rounds, day = divmod(days + 719_468, 146_097)  # from March 1st of year 0
    year = 0
    while day >= (length := 366 if _is_leap(year + 1) else 365):
        year, day = year + 1, day - length
    month = 3
    while day >= (length := _length(year, month)):
        month, day = month + 1, day - length
    year, month = (year, month) if month <= 12 else (year + 1, month - 12)
    year += 400 * rounds
    return f"{'-' if year < 0 else ''}{abs(year):04}-{month:02}-{day + 1:02}"


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _length(year: int, month: int) -> int:
    if month == 14:
        return 29 if _is_leap(year + 1) else 28
    return 30 if month in (4, 6, 9, 11) else 31


UNITS = {"s": 0, "ms": 3, "us": 6}


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1) | st.none(), min_size=1, max_size=4),
    st.lists(
        st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**15), 10**15), min_size=4, max_size=4
    ),
    st.sampled_from(list(UNITS)),
    st.sampled_from([None, "UTC"]),
)
@settings(max_examples=200, deadline=None)
def test_dates_and_times_of_every_year_are_written(
    days: list[int | None], moments: list[int], unit: str, zone: str | None
) -> None:
    """Arrow has no text for years beyond 16 bits, Python none beyond four digits: the year is in the file
    all the same, also within nested values."""
    outside = [2**31 - 1]  # Python's own range ends before
    dates = pa.array([*days, *outside], pa.int32()).cast(pa.date32())
    told = [None if day is None else civil(day) for day in [*days, *outside]]
    assert json_rows(dates) == told

    figures = UNITS[unit]
    moments = [*moments, 2**63 - 1]
    times = pa.array(moments, pa.int64()).cast(pa.timestamp(unit, zone))
    texts = []
    for moment in moments:
        seconds, rest = divmod(moment, 10**figures)
        day, second = divmod(seconds, 86_400)
        clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        clock += f".{rest:0{figures}}" if figures else ""
        texts.append(f"{civil(day)} {clock}{'Z' if zone else ''}")
    assert json_rows(times) == texts
    offsets = pa.array([0, len(moments)], pa.int32())
    keys = pa.array(["k"] * len(moments))
    maps = pa.MapArray.from_arrays(offsets, keys, times)
    lists = pa.ListArray.from_arrays(offsets, times)
    nested = pa.StructArray.from_arrays([maps, lists], names=["m", "l"])
    assert json_rows(nested) == [{"m": [("k", text) for text in texts], "l": texts}]


def test_times_in_nanoseconds_are_written_alike_within_maps() -> None:
    """Not as pandas has them, where it is there."""
    fine = pa.array([5], pa.timestamp("ns"))
    maps = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), fine)
    assert json_rows(fine) == ["1970-01-01 00:00:00.000000005"]
    assert json_rows(maps) == [[("k", "1970-01-01 00:00:00.000000005")]]


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("rule", ["", "year", "month", "day", "hour"])
def test_times_beyond_every_calendar_are_inspected(unit: str, rule: str) -> None:
    """Bounds and partitions of them: there are days among them that neither Arrow nor Python has."""
    numbers = [2**63 - 1, -(2**62)]
    rows = pa.table({"at": pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, "UTC"))})
    partition_by = [f"{rule}(at)"] if rule else []
    t = inlay.create(f"memory://far-{unit}{rule}/t", rows, partition_by=partition_by)
    bounds = [each for file in t.inspect.files().to_pylist() for each in file["bounds"]]
    told = [moment_text(number, unit, zoned=True) for number in numbers]
    assert {each[end] for each in bounds for end in ("lower", "upper")} == set(told)
    parts = [
        part["value"] for row in t.inspect.partitions().to_pylist() for part in row["partition"]
    ]
    if rule == "day":
        assert set(parts) == {text[: text.index(" ")] for text in told}
