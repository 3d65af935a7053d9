"""How a notebook shows a result: its facts as a table.

Promise: whatever is shown is escaped, and nothing is read for it. A fact that is as by default (none,
nothing, no note) is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from html import escape
from typing import Any

# A text beyond this is cut: a notebook keeps what it shows.
_MAX_TEXT = 300


class Shown:
    """A dataclass that notebooks show as the table of its facts."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return table(self._facts())

    def _facts(self) -> Iterable[tuple[str, Any]]:
        for member in fields(self):  # type: ignore[arg-type]  # a Record is what this is mixed into
            value = getattr(self, member.name)
            if member.default is MISSING or value != member.default:
                yield member.name, value


def table(facts: Iterable[tuple[str, Any]]) -> str:
    """
    >>> table([("deleted_rows", 1234), ("note", "<b>")])
    '<table><tr><th>deleted rows</th><td>1,234</td></tr><tr><th>note</th><td>&lt;b&gt;</td></tr></table>'
    """
    rows = "".join(
        f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{escape(text_of(value))}</td></tr>"
        for name, value in facts
    )
    return f"<table>{rows}</table>"


def text_of(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = "" if value is None else str(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
