"""Values as a person reads them.

Promise: text is one line without control characters, so that what is stored in a table cannot drive a
terminal.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from inlay.engine import to_line

# How a person is shown NULL.
NULL = "·"

_UNITS = ("B", "kB", "MB", "GB", "TB")


def to_text(value: Any) -> str:
    """For a cell of a printed table; NULL is shown as a dot in the middle of the line."""
    match value:
        case None:
            return NULL
        case bool():
            return "true" if value else "false"
        case dict() | list():
            text = to_line(value)
        case bytes():
            text = value.hex()
        case datetime():
            text = value.isoformat(sep=" ")
        case _:  # as Python writes it
            text = str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size_text(count: int) -> str:
    """
    >>> size_text(999), size_text(1_234_567)
    ('999 B', '1.2 MB')
    """
    amount = float(count)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """
    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def time_text(time_us: int) -> str:
    """A time of the store, in UTC, to the microsecond."""
    from datetime import UTC, datetime, timedelta

    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    return at.isoformat(timespec="microseconds")
