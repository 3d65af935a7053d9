"""Values as JSON and as text.

Promise: JSON is always valid and loses nothing that JSON can hold: decimals, times and dates are
strings in full precision, binary is hex, NaN and infinities are the strings "NaN", "Infinity" and
"-Infinity". Text is one line without control characters, so that what is stored in a table cannot drive
a terminal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# How a person is shown NULL.
NULL = "·"

_UNITS = ("B", "kB", "MB", "GB", "TB")


def to_json(value: Any) -> Any:
    """A Python value of Arrow as one that `json` takes."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case Decimal():
            return format(value, "f")  # never 0E-10
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case dict():
            return {str(key): to_json(each) for key, each in value.items()}
        case list() | tuple():
            return [to_json(each) for each in value]
        case _:  # what JSON has no form for
            return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def json_rows(column: pa.Array) -> list[Any]:
    """The values of an Arrow array as `to_json` takes them; times in nanoseconds as text, for Python has
    none so fine, and so are dates before year 1 or after 9999."""
    found: list[Any]
    kind = _textual(column.type, _is_too_fine)
    try:
        found = (column if kind is column.type else column.cast(kind)).to_pylist()
    except (OverflowError, ValueError):
        found = column.cast(_textual(column.type, _is_temporal)).to_pylist()
    return found


def _is_temporal(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_time(kind) or pa.types.is_date(kind))


def _is_too_fine(kind: pa.DataType) -> bool:
    return _is_temporal(kind) and getattr(kind, "unit", "") == "ns"


def _textual(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> pa.DataType:
    """The same type with text for types of which `test` holds; the very same object where there is none."""
    import pyarrow as pa

    if not pa.types.is_nested(kind):
        return pa.string() if test(kind) else kind
    fields = [kind.field(n) for n in range(kind.num_fields)]
    inner = [_textual(field.type, test) for field in fields]
    if all(
        new is field.type or new == field.type for new, field in zip(inner, fields, strict=True)
    ):
        return kind
    fields = [field.with_type(new) for field, new in zip(fields, inner, strict=True)]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(*fields[:2]) if len(fields) == 2 else kind
    return pa.list_(fields[0])


def to_line(record: Any) -> str:
    """One line of JSON."""
    return json.dumps(to_json(record), ensure_ascii=False, allow_nan=False)


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
