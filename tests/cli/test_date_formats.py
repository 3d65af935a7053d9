"""Dates in another form than ISO's: Python's own strptime is the reference for what a format means."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cli.conftest import Run

from inlay.errors import InvalidRequest
from inlay.text.dates import DateFormat, DateFormats
from inlay.text.refused import Misread

DATES = st.permutations(["%d", "month", "year"]).flatmap(
    lambda order: st.tuples(
        st.sampled_from(["%m", "%b", "%B"]),
        st.sampled_from(["%Y", "%y"]),
        st.sampled_from([".", "/", "-", " ", ", "]),
        st.sampled_from(["", "%a ", "%A, "]),
    ).map(
        lambda drawn: (
            drawn[3]
            + drawn[2].join({"month": drawn[0], "year": drawn[1]}.get(part, part) for part in order)
        )
    )
)
CLOCKS = st.sampled_from(
    ["", " %H:%M", " %H:%M:%S", "T%H.%M.%S.%f", " %I:%M %p", " at %H%%", " %H:%M:%S %z", "T%H:%M%z"]
)
FORMATS = st.builds(str.__add__, DATES, CLOCKS)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31))


def python(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        return None


def ours(text: str, form: DateFormat, kind: pa.DataType) -> datetime | date | None:
    try:
        return form.read(pa.array([text]), kind)[0].as_py()
    except (Misread, OverflowError):  # Python has no year 0
        return None


@settings(deadline=None, max_examples=400)
@given(FORMATS, MOMENTS, st.integers(0, 40), st.sampled_from("0139 /.:-aJ"))
@example("%d.%m.%Y", datetime(2023, 2, 28), 1, "9")
@example("%a %d.%m.%Y", datetime(2023, 2, 28), 1, "a")
def test_a_format_means_what_python_means(
    form: str, moment: datetime, place: int, other: str
) -> None:
    zoned = "%z" in form
    written = moment.replace(tzinfo=UTC).strftime(form) if zoned else moment.strftime(form)
    for text in (written, written[:place] + other + written[place + 1 :]):
        parsed = DateFormat.parse(form, alone=True)
        # A fraction may have more zeros than Python takes.
        expected = python(re.sub(r"(\.\d{6})0+$", r"\1", text.strip()), form)
        kind = pa.timestamp("us", "UTC" if zoned else None)
        got = ours(text, parsed, kind)
        if text == written:
            assert expected is not None and got == expected
            assert parsed.type_of(pa.chunked_array([[text, None, ""]])) == (
                kind if re.search("%[HI]", form) else pa.date32()
            )
        elif got is not None:  # Python does not check the day of the week
            assert got == expected


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%d.%m.%Y", "29.02.2023"),
        ("%d.%m.%Y", "2023-02-28"),
        ("%Y-%m-%d %H", "2023-02-28 24"),
        ("%Y-%m-%d %H:%M:%S", "2023-02-28 23:59:60"),
        ("%Y-%m-%d %I %p", "2023-02-28 13 pm"),
        ("%Y-%m-%d %I %p", "2023-02-28 0 am"),
        ("%a %Y-%m-%d", "Mon 2023-02-28"),
        ("%Y-%m-%d %H:%M:%S.%f", "2023-02-28 23:59:50.1234567"),
        ("%d.%m.%Y", "1.2.202"),
    ],
)
def test_what_a_format_does_not_take(form: str, text: str) -> None:
    parsed = DateFormat.parse(form, alone=True)
    good = "28.02.2023" if form == "%d.%m.%Y" else None
    with pytest.raises(Misread) as caught:
        parsed.read(pa.array([good, None, text]), pa.timestamp("us"))
    assert caught.value.row == 2


@pytest.mark.parametrize(
    "given",
    [
        "%j %Y",
        "%Y",
        "%Y-%m",
        "%Y-%m-%d %M",
        "%Y-%m-%d %I",
        "%Y-%m-%d %H %p",
        "%Y %y %m %d",
        "%Y-%m-%d%",
        "%Y-%m-%d %Y",
        "%Y-%m-%d %b",
        "%d.%m.%Y %z",
        "at=",
        "",
        "%F %d",
    ],
)
def test_formats_that_are_refused(given: str) -> None:
    with pytest.raises(InvalidRequest, match="format of dates"):
        DateFormats.parse([given])


def test_two_formats_of_one_column_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="two formats"):
        DateFormats.parse(["%d.%m.%Y", "%m/%d/%Y"])
    with pytest.raises(InvalidRequest, match="two formats"):
        DateFormats.parse(["a=%d.%m.%Y", "a=%m/%d/%Y"])


CSV = 'symbol,at,iso\nMSFT,"Jan 1 2000",2000-01-02\nIBM,,\nAAPL,"feb 29 2004",2004-01-02\n'
JSON = (
    '{"symbol": "MSFT", "at": "Jan 1 2000", "iso": "2000-01-02"}\n'
    '{"symbol": "IBM", "at": null, "iso": null}\n'
    '{"symbol": "AAPL", "at": "feb 29 2004", "iso": "2004-01-02"}\n'
)


@pytest.mark.parametrize(("name", "text"), [("a.csv", CSV), ("a.jsonl", JSON)])
@pytest.mark.parametrize("form", ["%b %d %Y", "at=%b %d %Y"])
def test_files_are_created_like_and_appended(
    inlay: Run, tmp_path: Path, name: str, text: str, form: str
) -> None:
    (tmp_path / name).write_text(text)
    made = inlay("create", "t", "--like", name, "--date-format", form, "--json").json
    assert [(c["column"], c["type"]) for c in made["inferred"]][1:] == [
        ("at", "date"),
        ("iso", "date"),
    ]
    inlay("append", "t", name, "--date-format", form)
    found = [row for row in inlay("scan", "t", "--json").lines if row["at"] is not None]
    assert {(row["symbol"], row["at"], row["iso"]) for row in found} == {
        ("MSFT", "2000-01-01", "2000-01-02"),
        ("AAPL", "2004-02-29", "2004-01-02"),
    }
    (tmp_path / name).write_text(text.replace("feb 29 2004", "feb 29 2003"))
    refused = inlay("append", "t", name, "--date-format", form, code=2).err
    assert re.search("(row|object) 3", refused) and "at" in refused
    (tmp_path / name).write_text(text.replace("feb 29 2004", "29 feb 2004"))
    refused = inlay("append", "t", name, "--date-format", form, code=2).err
    assert re.search("(row|object) 3", refused) and "at" in refused


@pytest.mark.parametrize(("name", "text"), [("a.csv", CSV), ("a.jsonl", JSON)])
def test_without_a_format_both_kinds_of_file_name_the_column(
    inlay: Run, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert "at has dates that" in " ".join(inlay("create", "t", "--like", name).err.split())


def test_a_format_of_a_column_without_dates_is_refused(inlay: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    inlay("create", "t", "--schema", "symbol string, at string, iso date")
    for column, said in (("at", "no dates to be read"), ("ta", "no column")):
        err = inlay("append", "t", "a.csv", "--date-format", f"{column}=%b %d %Y", code=2).err
        assert said in " ".join(err.split())


def test_times_of_day_are_kept_or_refused() -> None:
    form = DateFormat.parse("%Y/%m/%d %H:%M:%S", alone=False)
    at = "2010/01/01 00:00:00"
    assert form.read(pa.array([at, "2010-01-02"]), pa.date32()).to_pylist() == [
        date(2010, 1, 1),
        date(2010, 1, 2),
    ]
    with pytest.raises(Misread):
        form.read(pa.array(["2010/01/01 00:00:01"]), pa.date32())
    assert form.read(pa.array([at]), pa.timestamp("ms", "UTC"))[0].as_py() == datetime(
        2010, 1, 1, tzinfo=UTC
    )


def test_a_file_of_dms_in_its_documented_form(inlay: Run, tmp_path: Path) -> None:
    """CSV with `AddColumnName` and `TimestampColumnName`, the employees of its documentation."""
    (tmp_path / "dms.csv").write_text(
        "Op,at,id,last,first,hired,office\n"
        "I,2026-01-01 10:00:00.000001,101,Smith,Bob,4-Jun-14,New York\n"
        "U,2026-01-01 10:00:00.000003,101,Smith,Bob,13-Mar-17,Dallas\n"
        "U,2026-01-01 10:00:00.000002,101,Smith,Bob,8-Oct-15,Los Angeles\n"
        "I,2026-01-01 10:00:00.000004,102,Lee,Ann,8-Oct-15,Rome\n"
        "D,2026-01-01 10:00:00.000005,102,Lee,Ann,8-Oct-15,Rome\n"
    )
    columns = "id bigint not null, last string, first string, hired date, office string"
    inlay("create", "t", "--schema", f"{columns}, at timestamp", "--primary-key", "id")
    for _ in range(2):
        inlay(
            *("apply-changes", "t", "dms.csv", "--order", "at", "--operations", "dms"),
            *("--date-format", "hired=%d-%b-%y"),
        )
    [row] = inlay("scan", "t", "--json").lines
    assert (row["hired"], row["office"]) == ("2017-03-13", "Dallas")
