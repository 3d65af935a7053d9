"""Tables in a notebook: `Table` itself, and the tables of `inspect`, which are Arrow's.

Promise: whatever is shown is escaped, and nothing is read for it but what `Table._repr_html_` says. Other
tables of Arrow are shown as they would be without this library.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from inlay.errors import InlayError
from inlay.notebook import text_of
from inlay.plan.refs import MAIN

if TYPE_CHECKING:
    import pyarrow as pa

    from inlay.table import Table

# Of one table in a notebook.
_SHOWN_COLUMNS = 40
# Stored rows up to which a notebook counts the live ones, which may read a column.
_COUNTED_ROWS = 5_000_000
# Rows of a table of `inspect`, as of a history: a screenful or two.
_MAX_ROWS = 60


def shown_table(table: Table) -> str:
    """Of `Table._repr_html_`."""
    snapshot = table.snapshot
    totals = snapshot.totals
    facts = {
        "version": f"{table.version:,}" + ("" if table.ref == MAIN else f" of {table.ref}"),
        "committed": _when(snapshot.commit.time_us),
        "rows": f"{_live_rows(table)} in {totals.files:,} file{'' if totals.files == 1 else 's'}",
        "size": _size(totals.bytes),
        "open deletes": f"{totals.markers:,}",
    }
    key = snapshot.key_names
    rows = "".join(
        f"<tr><td>{escape(f.name)}</td><td>{escape(str(f.type))}</td>"
        f"<td>{'' if f.nullable else 'required'}{' key' if f.name in key else ''}</td></tr>"
        for f in list(table.schema)[:_SHOWN_COLUMNS]
    )
    more = len(table.schema) - _SHOWN_COLUMNS
    rows += f"<tr><td colspan='3'>… {more} more columns</td></tr>" if more > 0 else ""
    about = " · ".join(f"{name} <b>{escape(value)}</b>" for name, value in facts.items())
    return (
        f"<div><code>{escape(table.uri)}</code><br>{about}</div>"
        f"<table><thead><tr><th>column</th><th>type</th><th></th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _live_rows(table: Table) -> str:
    totals = table.snapshot.totals
    if not totals.markers:
        return f"{totals.rows:,}"
    if totals.rows <= _COUNTED_ROWS:
        with suppress(InlayError):
            return f"{table.count():,}"
    return f"at most {totals.rows:,}"


def _when(time_us: int) -> str:
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _size(count: int) -> str:
    """
    >>> _size(999), _size(1_234_567)
    ('999 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1_000 or unit == "GB":
            break
        count /= 1_000  # type: ignore[assignment]
    return f"{count:,} B" if unit == "B" else f"{count:,.1f} {unit}"


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
        f"<tr>{''.join(f'<td>{escape(text_of(value))}</td>' for value in row.values())}</tr>"
        for row in table.slice(0, _MAX_ROWS).to_pylist()
    )
    more = table.num_rows - _MAX_ROWS
    rows += f"<tr><td colspan='{len(docs)}'>… {more:,} more rows</td></tr>" if more > 0 else ""
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
