"""The table of other shapes runs, small, and asks for what its requests are stated to be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Requests and MB are Inlay's; those of a fresh process are of one that has no library loaded.
ROWS = {
    "count, fresh process": 1,
    "point by key, fresh process": 8,
    "point by key, 45,000 rows a file": 16,
    "20 files of a row, scanned": 21,
    "30 columns: created with 1,000 rows": 7,
    "30 columns: scanned": 2,
    "30 columns: upsert of 10 rows": 3,
    "30 columns: update of a row": 6,
    "30 columns: rewrite": 8,
    "30 columns: publish": 17,
    "delete of one key in 60": 4,
    "count under these deletes": 11,
    # 2 pages, 2 deletes, 4 retained versions; the pointer when the table is opened, refreshed and put back
    # in its place, and the four that tests/maintenance/test_garbage.py lists.
    "1,100 orphans collected": 16,
}


@pytest.mark.wide
def test_every_row_is_measured_and_asks_for_as_much_as_is_stated() -> None:
    small = ["--rows", "90000", "--files", "3", "--latency-ms", "0"]
    scale = ["--columns", "30", "--tiny", "20", "--orphans", "1100"]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "bench.py", "--shapes", *small, *scale],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "layers" / "inlay")},
    )
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]
    cells = [line.split("|")[1:3] for line in done.stdout.splitlines()[2:]]
    found = {name.strip(): int(cell.split("/")[0].replace(",", "")) for name, cell in cells}
    assert {name: found[name] for name in ROWS} == ROWS
