"""Rows as CSV.

Promise: what `write_csv` writes is read as the same rows (`inlay.text.delimited`): NULL is a field without
anything, the empty text a quoted `""`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from inlay.cli.values import json_rows, to_json, to_line
from inlay.text.delimited import TextFormat


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
