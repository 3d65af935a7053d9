"""How a notebook shows a result: its facts as a table; and the tables of `inspect`, which are Arrow's.

Promise: whatever is shown is escaped, and nothing is read for it. A fact that is as by default (none,
nothing, no note) is left out. Other tables of Arrow are shown as they would be without this library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import MISSING, fields
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# A text beyond this is cut: a notebook keeps what it shows.
_MAX_TEXT = 300
# Rows of a table, as of a history: a screenful or two.
_MAX_ROWS = 60


class Shown:
    """A dataclass that notebooks show as the table of its facts."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return table(self._facts())

    def _facts(self) -> Iterable[tuple[str, Any]]:
        for member in fields(self):  # type: ignore[arg-type]  # a dataclass is what this is mixed into
            value = getattr(self, member.name)
            if member.default is MISSING or value != member.default:
                yield member.name, value


def table(facts: Iterable[tuple[str, Any]]) -> str:
    """
    >>> table([("deleted_rows", 1234), ("note", "<b>")])
    '<table><tr><th>deleted rows</th><td>1,234</td></tr><tr><th>note</th><td>&lt;b&gt;</td></tr></table>'
    """
    rows = "".join(
        f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{escape(_text(value))}</td></tr>"
        for name, value in facts
    )
    return f"<table>{rows}</table>"


def show_inspected() -> None:
    """Where IPython runs, tells it to show the tables of `inspect` as HTML, unless somebody has said how
    tables of Arrow are shown."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return
    html = shell.display_formatter.formatters["text/html"]
    if ("pyarrow.lib", "Table") not in html.deferred_printers and not any(
        (kind.__module__, kind.__name__) == ("pyarrow.lib", "Table") for kind in html.type_printers
    ):
        html.for_type_by_name("pyarrow.lib", "Table", inspected)


def inspected(table: pa.Table) -> str | None:
    """A table of `inspect`, which is one whose columns all say what they are; None for others."""
    docs = [(field.metadata or {}).get(b"doc", b"") for field in table.schema]
    if not docs or b"" in docs:
        return None
    heads = "".join(
        f"<th title='{escape(doc.decode(), quote=True)}'>{escape(name.replace('_', ' '))}</th>"
        for name, doc in zip(table.column_names, docs, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(_text(value))}</td>' for value in row.values())}</tr>"
        for row in table.slice(0, _MAX_ROWS).to_pylist()
    )
    more = table.num_rows - _MAX_ROWS
    rows += f"<tr><td colspan='{len(docs)}'>… {more:,} more rows</td></tr>" if more > 0 else ""
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = "" if value is None else str(value)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
