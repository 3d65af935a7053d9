"""`inlay cost`: arithmetic on counts that were measured, listings that are exact."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlay.cli.pricing import (
    Day,
    Unit,
    Work,
    batches_of,
    day_lines,
    load_prices,
    load_units,
    parse_bytes,
    total,
)
from inlay.errors import InvalidRequest

from .conftest import Run

UNITS = load_units()
PRICES = load_prices()


def dollars(day: Day) -> float:
    return total(day_lines(day, UNITS)).work.dollars(PRICES)


def test_the_published_day_is_about_three_dollars() -> None:
    day = Day(ingested_bytes=parse_bytes("6TB"), deletes=31_250, queries=50_000)
    assert day.files == 93_750
    assert 2 <= dollars(day) <= 4


def test_a_line_is_its_counts_times_the_list() -> None:
    work = Work(
        writes=1e6, reads=1e6, messages=1e6, invocations=1e6, gb_seconds=1e6, gb_months=1_000
    )
    assert work.dollars(PRICES) == pytest.approx(5.0 + 0.4 + 0.4 + 0.2 + 16.6667 + 23.0)
    units = dict.fromkeys(UNITS, Unit(0, 0, 0)) | {"delete: a request": Unit(2, 1, 0.5)}
    lines = {line.name: line.work for line in day_lines(Day(deletes=10), units)}
    assert (lines["deletes"].writes, lines["deletes"].reads) == (20, 10)
    assert lines["deletes"].gb_seconds == pytest.approx(10 * 0.5 * 1_769 / 1_024)
    assert lines["deletes"].messages == 10 + 2 * 10


def test_queues_deliver_by_window_or_by_size() -> None:
    assert batches_of(10, 100, 5) == 10
    assert batches_of(93_750, 100, 5) == 17_280
    assert batches_of(10**9, 100, 5) == 10**7


@given(
    day=st.builds(
        Day,
        ingested_bytes=st.integers(0, 10**14),
        file_bytes=st.integers(10**6, 10**10),
        deletes=st.integers(0, 10**6),
        queries=st.integers(0, 10**6),
        erasures=st.integers(0, 10**4),
    ),
    more=st.sampled_from(["ingested_bytes", "deletes", "queries", "erasures"]),
)
def test_more_work_never_costs_less(day: Day, more: str) -> None:
    lines = day_lines(day, UNITS)
    assert total(lines).work.dollars(PRICES) == pytest.approx(
        sum(line.work.dollars(PRICES) for line in lines)
    )
    assert dollars(replace(day, **{more: 2 * getattr(day, more) + 1})) >= dollars(day)


def test_a_table_is_listed_to_the_byte(inlay: Run, people: str, tmp_path: Path) -> None:
    inlay("delete", people, "--where", "name = 'Bob'")
    found = inlay("cost", people, "--json").json
    there = [p for p in (tmp_path / people).rglob("*") if p.is_file() and "/." not in str(p)]
    assert sum(found["table"]["stored"].values()) == sum(p.stat().st_size for p in there)
    assert sum(found["table"]["objects"].values()) == len(there)
    assert (found["table"]["files"], found["table"]["versions"]) == (1, 3)
    lines = {line["what"]: line for line in found["month"]}
    assert lines["commits"]["writes"] == 2 * 30 * UNITS["append"].writes
    assert lines["all"]["dollars"] == pytest.approx(
        sum(line["dollars"] for name, line in lines.items() if name != "all"), abs=1e-3
    )
    assert "day" not in found
    both = inlay("cost", people, "--queries", "10")
    assert "a month" in both.out and "a day" in both.out and "us-east-1" in both.out


def test_prices_of_yours_change_the_list_by_name(inlay: Run, tmp_path: Path) -> None:
    (tmp_path / "ours.json").write_text('{"read_request": 1, "region": "here"}')
    found = inlay("cost", "--queries", "3", "--prices", "ours.json", "--json").json
    assert (found["prices"]["region"], found["prices"]["gb_month"]) == ("here", 0.023)
    (queries,) = [line for line in found["day"] if line["what"] == "queries"]
    assert queries["dollars"] == pytest.approx(3 * UNITS["query"].reads)


@pytest.mark.parametrize(
    "text", ["[]", "no", '{"gb_mnth": 1}', '{"gb_month": "1"}', '{"gb_month": -1}', '{"region": 1}']
)
def test_a_list_that_is_none_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / "ours.json").write_text(text)
    with pytest.raises(InvalidRequest, match=r"ours\.json"):
        load_prices(tmp_path / "ours.json")


def test_what_cannot_be_priced_is_refused(inlay: Run) -> None:
    assert "nothing to price" in inlay("cost", code=2).err
    assert "not a size" in inlay("cost", "--ingest", "6 parsecs", code=2).err
    assert "file-size" in inlay("cost", "--ingest", "6TB", "--file-size", "0", code=2).err


def test_units_are_measured_ones() -> None:
    made = json.loads(
        (Path(__file__).parents[2] / "layers/inlay/inlay/cli/assets/units.json").read_text()
    )
    assert made["measured_by"].startswith("python benchmarks/day.py")
    assert UNITS["append"].writes == 3


def test_an_answer_says_how_old_its_prices_are() -> None:
    listed = replace(load_prices(), as_of="2025-10")
    assert listed.months_old(date(2026, 11, 25)) == 13
    assert listed.months_old(date(2025, 10, 31)) == listed.months_old(date(2025, 1, 1)) == 0
