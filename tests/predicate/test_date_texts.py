"""strptime, try_strptime and strftime of SQL conditions: Python's own are the reference."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.test_date_formats import FORMATS, MOMENTS, python

import inlay
from inlay.errors import InvalidPredicate, SchemaMismatch
from inlay.parquet.arrow.calculate import calculate
from inlay.parquet.arrow.evaluate import columns_of
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parse import parse_assignments

ARROW = pa.schema(
    [
        ("text", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("nanos", pa.timestamp("ns")),
        ("seen", pa.timestamp("us", "UTC")),
        ("made", pa.string()),
    ]
)
SCHEMA = schema_from_arrow(ARROW)


def value(sql: str, to: str, rows: list[dict[str, Any]]) -> list[Any]:
    [assigned] = parse_assignments({to: sql}, SCHEMA, now=lambda: 0)
    batch = pa.RecordBatch.from_pylist(rows, ARROW)
    return calculate(assigned.expression, batch, columns_of(SCHEMA)).to_pylist()


@given(FORMATS, MOMENTS, st.integers(0, 40), st.sampled_from("0139 /.:-aJ"))
def test_texts_are_read_as_python_reads_them(
    form: str, moment: datetime, place: int, other: str
) -> None:
    zoned, timed = "%z" in form, re.search("%[HI]", form)
    to = "seen" if zoned else "at" if timed else "day"
    right = moment.replace(tzinfo=UTC).strftime(form) if zoned else moment.strftime(form)
    wrong = right[:place] + other + right[place + 1 :]
    rows = [{"text": text} for text in (right, wrong, None)]
    first, second, none = value(f"try_strptime(text, '{form}')", to, rows)
    assert none is None
    expected = python(right, form)
    assert expected is not None
    assert first == (expected if timed else expected.date())
    if second is not None:  # Python does not check the day of the week
        expected = python(re.sub(r"(\.\d{6})0+$", r"\1", wrong.strip()), form)
        assert expected is not None and second == (expected if timed else expected.date())
    strict = f"strptime(text, '{form}')"
    assert value(strict, to, rows[::2]) == [first, None]
    if second is None:
        with pytest.raises(Exception, match="STRPTIME does not accept"):
            value(strict, to, rows)


@given(FORMATS, MOMENTS | st.datetimes(datetime(1000, 1, 1)))
def test_moments_are_written_as_python_writes_them(form: str, moment: datetime) -> None:
    zoned = moment.replace(tzinfo=UTC)
    row = {"day": moment.date(), "at": moment, "seen": zoned}
    of = {"seen": zoned} if "%z" in form else {"day": moment.date(), "at": moment, "seen": zoned}
    for column, written in of.items():
        found = value(f"strftime({column}, '{form}')", "made", [row, {}])
        assert found == [written.strftime(form), None]


@pytest.mark.parametrize(
    "text", ["29.02.2023", "29.02.1900", "31.04.2020", "00.01.2020", "1.13.2020"]
)
def test_what_does_not_exist_is_no_date(text: str) -> None:
    assert value("try_strptime(text, '%d.%m.%Y')", "day", [{"text": text}]) == [None]
    assert value("strptime(text, '%d.%m.%Y')", "day", [{"text": " 29.2.2000 "}]) == [
        date(2000, 2, 29)
    ]


def test_a_column_of_texts_becomes_one_of_dates() -> None:
    rows = {"id": [1, 2, 3], "born": ["Jan 1 2000", "unknown", None]}
    t = inlay.create("memory://date-texts/t", pa.table(rows))
    t.alter(add={"born_on": pa.date32()})
    assert t.count(where="try_strptime(born, '%b %d %Y') IS NULL AND born IS NOT NULL") == 1
    with pytest.raises(SchemaMismatch, match="STRPTIME"):
        t.update({"born_on": "strptime(born, '%b %d %Y')"})
    t.update({"born_on": "try_strptime(born, '%b %d %Y')"})
    t.update({"born": "strftime(born_on, '%d.%m.%Y')"}, where="born_on IS NOT NULL")
    found = t.scan(columns=["id", "born", "born_on"]).to_arrow().sort_by("id").to_pylist()
    assert found[0] == {"id": 1, "born": "01.01.2000", "born_on": date(2000, 1, 1)}
    assert found[1] == {"id": 2, "born": "unknown", "born_on": None}


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("strptime(text, '%j %Y')", "no %j"),
        ("strptime(text, '%Y')", "a month once"),
        ("strptime(text, text)", "a text in single quotes"),
        ("strptime(day, '%Y-%m-%d')", "takes a string"),
        ("strftime(day, '%Q')", "no %Q"),
        ("strftime(at, '%Y %z')", "of a timestamptz alone"),
        ("strftime(text, '%Y')", "takes a date or timestamp"),
    ],
)
def test_what_is_no_format_is_refused_at_its_place(sql: str, said: str) -> None:
    with pytest.raises(InvalidPredicate, match=said):
        value(sql, "made", [])
