"""docs/PROPERTIES.md: every setting of a table, its default and what it takes, as the code has them."""

from pathlib import Path

from inlay.format.properties import PROPERTIES, Property

PAGE = Path(__file__).parents[2] / "docs" / "PROPERTIES.md"


def default_of(known: Property) -> str:
    if not known.default:
        return ""
    in_bytes = known.name.endswith("_bytes")
    return f"`{known.default}`" + (f" ({int(known.default) / 2**20:g} MiB)" if in_bytes else "")


def taken_by(known: Property) -> str:
    if known.choices:
        return ", ".join(f"`{choice}`" if choice else "nothing" for choice in known.choices)
    if known.minimum is None:
        return "text"
    most = "" if known.maximum is None else f" to {known.maximum}"
    return f"a number from {known.minimum}{most}"


def test_the_page_says_what_each_property_takes_and_means() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "| `" in line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[:3] for row in rows] == [
        [f"`{known.name}`", default_of(known), taken_by(known)] for known in PROPERTIES.values()
    ]
    assert all(meaning for *_, meaning in rows)
