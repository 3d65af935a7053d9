"""What docs/LANDING.md gives as examples of each convention of producers (`inlay.format.landing`)."""

import re
from pathlib import Path

from inlay.format.landing import CONVENTIONS, Convention

PAGE = Path(__file__).parents[1] / "docs" / "LANDING.md"


def rows() -> list[list[str]]:
    """The cells of the page's table of producers."""
    table = PAGE.read_text(encoding="utf-8").partition("<!-- producers -->")[2]
    table = table.partition("<!-- /producers -->")[0]
    return [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]


# Each with its convention: the page lists them in the code's order, which a test holds.
EXAMPLES: list[tuple[Convention, str]] = [
    (convention, example)
    for convention, (*_, examples) in zip(CONVENTIONS, rows(), strict=True)
    for example in re.findall("`([^`]+)`", examples)
]
