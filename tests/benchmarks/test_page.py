"""The page of measurements is what its figures say."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import page


def test_the_page_is_made_of_what_is_stored() -> None:
    assert page.PAGE.read_text("utf-8") == page.page(page.stored), "python benchmarks/page.py"
