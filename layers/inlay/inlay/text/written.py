"""Rows as CSV and as lines of JSON.

Promise: what is written here is read as the same rows (`inlay.text.delimited`, `inlay.text.json_objects`),
or refused, where a date or time is outside of the years 1 to 9999, which have no agreed text.
In CSV, NULL is a field without anything, the empty text a quoted `""`. JSON is always valid and loses
nothing that JSON can hold: decimals, times and dates are strings in full precision, binary is hex, NaN and
infinities are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from inlay.text.format import TextFormat


class TextSink(Protocol):
    def write(self, text: str, /) -> Any: ...

    def writelines(self, lines: Iterable[str], /) -> None: ...


def write_csv(
    reader: pa.RecordBatchReader, sink: TextSink, text: TextFormat, *, delimiter: str = ","
) -> int:
    """Rows as CSV with a header; nested values are JSON. Returns how many rows."""
    quoting = _Quoting(text.delimiter or delimiter, text.null)
    sink.write(quoting.line([quoting.quoted(name) for name in reader.schema.names]))
    rows = 0
    for batch in reader:
        columns = [[quoting.cell(v) for v in json_rows(column)] for column in batch.columns]
        sink.writelines(quoting.line(row) for row in zip(*columns, strict=True))
        rows += batch.num_rows
    return rows


class _Quoting:
    def __init__(self, delimiter: str, null: Sequence[str]) -> None:
        self._delimiter = delimiter
        self._null = null[0] if null else ""
        self._nulls = {"", *null}
        self._special = {delimiter, '"', "\n", "\r"}

    def line(self, cells: Sequence[str]) -> str:
        return self._delimiter.join(cells) + "\n"

    def cell(self, value: Any) -> str:
        match value:
            case None:
                return self._null
            case bool():
                return "true" if value else "false"
            case dict() | list():
                return self.quoted(to_line(value))
            case _:  # numbers, texts, times
                return self.quoted(str(to_json(value)))

    def quoted(self, text: str) -> str:
        # Blanks at the ends are kept by readers that strip what is not quoted.
        special = not self._special.isdisjoint(text) or text != text.strip()
        if special or text in self._nulls:
            return '"' + text.replace('"', '""') + '"'
        return text


def write_json(reader: pa.RecordBatchReader, sink: TextSink) -> int:
    """Rows as JSON, an object a line. Returns how many rows."""
    rows = 0
    for record in records(reader):
        sink.write(to_line(record) + "\n")
        rows += 1
    return rows


def records(reader: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    """Rows as `to_line` takes them."""
    names = reader.schema.names
    for batch in reader:
        columns = [json_rows(column) for column in batch.columns]
        for row in zip(*columns, strict=True):
            yield dict(zip(names, row, strict=True))


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
            return {str(key): to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item) for item in value]
        case _:  # what JSON has no form for
            return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def json_rows(column: pa.Array) -> list[Any]:
    """The values of an Arrow array as `to_json` takes them; times in nanoseconds as text, for Python has
    none so fine, and so are dates before year 1 or after 9999."""
    import pyarrow as pa

    rows: list[Any]
    kind = _replaced(column.type, _is_too_fine, lambda _: pa.string())
    column = column if kind is column.type else column.cast(kind)
    try:
        rows = column.to_pylist()
    except (OverflowError, ValueError):
        numbers = column.cast(_replaced(kind, _has_years, _number_type)).to_pylist()
        rows = [_with_years(number, kind) for number in numbers]
    return rows


def _is_too_fine(kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_time = pa.types.is_timestamp(kind) or pa.types.is_time(kind)
    return bool(is_time and kind.unit == "ns")


def _has_years(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def _number_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _replaced(
    kind: pa.DataType,
    test: Callable[[pa.DataType], bool],
    other: Callable[[pa.DataType], pa.DataType],
) -> pa.DataType:
    """The same type with others where `test` holds; the very same object where that is nowhere."""
    import pyarrow as pa

    if not pa.types.is_nested(kind):
        return other(kind) if test(kind) else kind
    is_map = pa.types.is_map(kind)
    fields = (
        [kind.key_field, kind.item_field]
        if is_map
        else [kind.field(n) for n in range(kind.num_fields)]
    )
    inner = [_replaced(field.type, test, other) for field in fields]
    if all(
        new is field.type or new == field.type for new, field in zip(inner, fields, strict=True)
    ):
        return kind
    fields = [field.with_type(new) for field, new in zip(fields, inner, strict=True)]
    if is_map:
        return pa.map_(*fields)
    return pa.struct(fields) if pa.types.is_struct(kind) else pa.list_(fields[0])


def _with_years(value: Any, kind: pa.DataType) -> Any:
    """Numbers in the place of dates and times as their texts, as Arrow writes them. Where 16 bits do not
    hold the year, it writes none, or a wrong one."""
    import pyarrow as pa

    if value is None:
        return None
    if not pa.types.is_nested(kind):
        if not _has_years(kind):
            return value
        return moment_text(value, getattr(kind, "unit", ""), zoned=bool(getattr(kind, "tz", None)))
    if pa.types.is_struct(kind):
        return {name: _with_years(item, kind.field(name).type) for name, item in value.items()}
    if pa.types.is_map(kind):
        types = (kind.key_type, kind.item_type)
        return [tuple(map(_with_years, pair, types)) for pair in value]
    return [_with_years(item, kind.value_type) for item in value]


_FIGURES = {"": 0, "s": 0, "ms": 3, "us": 6, "ns": 9}
# The calendar repeats itself.
_DAYS_OF_400_YEARS = 146_097


def moment_text(number: int, unit: str, *, zoned: bool = False) -> str:
    """A date, counted in days (`unit` ""), or a timestamp as Arrow writes it, of any year.

    >>> moment_text(-1, ""), moment_text(2**63 - 1, "s", zoned=True)
    ('1969-12-31', '292277026596-12-04 15:30:07Z')
    """
    figures = _FIGURES[unit]
    seconds, fraction = divmod(number if unit else number * 86_400, 10**figures)
    days, second = divmod(seconds, 86_400)
    rounds, day = divmod(days, _DAYS_OF_400_YEARS)
    near = datetime(1970, 1, 1) + timedelta(days=day, seconds=second)
    year = near.year + 400 * rounds
    text = f"{'-' * (year < 0)}{abs(year):04}{near:-%m-%d}"
    if not unit:
        return text
    text += f"{near: %H:%M:%S}" + (f".{fraction:0{figures}}" if figures else "")
    return text + "Z" if zoned else text


def to_line(record: Any, *, ascii_only: bool = False) -> str:
    """One line of JSON."""
    return json.dumps(to_json(record), ensure_ascii=ascii_only, allow_nan=False)
