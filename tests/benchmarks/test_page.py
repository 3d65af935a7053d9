"""The page of measurements is what its figures say."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import page
import reading


def test_the_page_is_made_of_what_is_stored() -> None:
    assert page.PAGE.read_text("utf-8") == page.page(page.stored), "python benchmarks/page.py"


def test_the_page_of_reading_is_made_of_what_is_stored() -> None:
    text = reading.page_of(page.stored(reading.STORED))
    assert reading.PAGE.read_text("utf-8") == text, "python benchmarks/reading.py --write"
