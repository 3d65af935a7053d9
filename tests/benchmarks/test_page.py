"""The page of measurements is what its figures say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import goals
import page

GOALS = {goal.what: goal for goal in goals.GOALS}


def test_the_page_is_made_of_what_is_stored() -> None:
    assert page.PAGE.read_text("utf-8") == page.page(page.stored), "python benchmarks/page.py"


def measured(**figures: float) -> dict[str, Any]:
    zero = dict.fromkeys(("requests", "bytes_up", "bytes_down", "depth", "cpu_s", "wall_s"), 0)
    return {**zero, "rows": 1_000, **figures}


def stored(part: str, name: str, first: dict[str, Any], again: Any = None) -> goals.Figures:
    case = {"section": part, "name": name, "library": "inlay", "first": first, "again": again}
    return goals.Figures({f"{part}/inlay": {"cases": [case]}})


def writers(rate: float, cpu_ms: float) -> goals.Figures:
    rows = [
        {"loop": loop, "commits_per_second": r, "requests_each": 1, "cpu_ms_each": c, "slowest": 1}
        for loop, r, c in (("bare", 10, 10), ("append", rate, cpu_ms))
    ]
    return goals.Figures(
        {f"writers/{how}": {"rows": rows} for how in ("16", "16-swaps", "16-load")}
    )


def surgery(ratio: float) -> goals.Figures:
    figures = {"surgery": {"rows": [{"columns": 50, "ratio": ratio}]}}
    return goals.Figures(figures)


AT, OVER = True, False
MEASURED = [
    ("top 10 by a value, all columns", AT,
     stored("queries", "top 10", measured(requests=60, bytes_down=15e6, wall_s=0.25))),
    ("top 10 by a value, all columns", OVER, stored("queries", "top 10", measured(requests=61))),
    ("top 10 by a value, all columns", OVER, stored("queries", "top 10", measured(bytes_up=15.1e6))),
    (".02 % of rows, in all groups, all columns", OVER,
     stored("queries", "scattered .02 %", measured(wall_s=0.41))),
    ("all columns", AT, stored("queries", "all", measured(wall_s=1.5), measured(wall_s=1.0))),
    ("all columns", OVER, stored("queries", "all", measured(wall_s=1.6), measured(wall_s=1.0))),
    ("1,000 files of one row", AT,
     stored("shapes", "1,000 files of a row, scanned", measured(cpu_s=0.7))),
    ("1,000 files of one row", OVER,
     stored("shapes", "1,000 files of a row, scanned", measured(cpu_s=0.71))),
    ("16 writers", AT, writers(8, 99)),
    ("16 writers", OVER, writers(7.9, 1)),
    ("16 writers, a server that takes 15 swaps of a key a second", OVER, writers(8.9, 1)),
    ("16 writers, a machine with load 30", AT, writers(1, 30)),
    ("16 writers, a machine with load 30", OVER, writers(1, 31)),
    ("one person's rows, all in one row group of 50 columns, removed for good", AT, surgery(1.2)),
    ("one person's rows, all in one row group of 50 columns, removed for good", OVER, surgery(1.21)),
]  # fmt: skip


@pytest.mark.parametrize(("what", "expected", "figures"), MEASURED)
def test_a_goal_is_reached_by_its_figures(
    what: str, expected: bool, figures: goals.Figures
) -> None:
    assert GOALS[what].reached(figures) is expected


def test_a_wide_table_is_held_to_what_pyarrow_writes_in_the_same_run() -> None:
    def of(wall: float) -> goals.Figures:
        cases = [
            {
                "library": library,
                "name": f"5,000 columns: {name}",
                "first": measured(wall_s=seconds),
            }
            for name in goals.WIDE
            for library, seconds in (("inlay", wall), ("pyarrow", 1.0))
        ]
        return goals.Figures({"shapes/inlay": {"cases": cases}})

    goal = GOALS["5,000 columns × 1,000 rows, wall s"]
    assert goal.reached(of(3.0)) and not goal.reached(of(3.01))
