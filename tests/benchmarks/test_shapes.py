"""Other shapes are measured, small, and ask for what is stated, exactly; so does every other library's step
say what it failed at, and Inlay's fails at nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from bench import Run
from shapes import Scale

SMALL = Scale(90_000, 3, 0.0, columns=30, tiny=20, orphans=1_100, event_rows=20_000)
# Requests; those of a fresh process are of one that has no library loaded.
REQUESTS = {
    "count, fresh process": 1,
    "point by key, fresh process": 8,
    "point by key, 45,000 rows a file": 16,
    "20 files of a row, scanned": 21,
    "30 columns: created with 1,000 rows": 7,
    "30 columns: scanned": 2,
    "30 columns: upsert of 10 rows": 3,
    "30 columns: upsert of 2 columns of 10 rows": 7,
    "30 columns: update of a row": 6,
    "30 columns: rewrite": 8,
    "30 columns: publish": 17,
    "30 columns: verify": 17,
    "delete of one key in 60": 4,
    "count under these deletes": 11,
    # 2 pages, 2 deletes, 4 retained versions; the pointer when the table is opened, refreshed and put back
    # in its place, and the four that tests/maintenance/test_garbage.py lists.
    "1,100 orphans collected": 16,
    "one person of 20,000 rows removed for good": 23,
}


@pytest.mark.wide
def test_every_row_is_measured_and_asks_for_as_much_as_is_stated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    cases = Run(SMALL, (), False).library("shapes", "inlay")["cases"]
    assert {case["name"]: case["first"]["requests"] for case in cases} == REQUESTS
    assert "Traceback" not in capfd.readouterr().err  # of what failed, and was left out
