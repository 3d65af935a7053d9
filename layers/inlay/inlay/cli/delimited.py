"""CSV: rows from delimited text and into it.

Promise: NULL and the empty text stay apart, both ways: a field without anything is NULL, a quoted `""` is
the empty text, and so is a quoted text that would otherwise stand for NULL. What `write_csv` writes,
`read_csv` reads as the same rows.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import csv

from inlay.cli.text_types import Misread, from_texts, type_of_texts
from inlay.cli.values import json_rows, to_json, to_line
from inlay.errors import InvalidRequest, UnreadableFile


class TextSink(Protocol):
    def write(self, text: str, /) -> Any: ...

    def writelines(self, lines: Iterable[str], /) -> None: ...


# Rows that types are told from: more would be held in memory.
INFER_ROWS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """How text files are written: `null` are texts that stand for NULL besides an empty field, `format` is
    the kind of file where its name does not tell."""

    null: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str = "utf-8"
    format: str | None = None

    def check(self) -> None:
        """Raises `InvalidRequest`."""
        if self.delimiter is not None and len(self.delimiter.encode()) != 1:
            raise InvalidRequest(
                f"a delimiter is one ASCII character, not {self.delimiter[:20]!r}",
                next_step="For a tab write --delimiter tab",
            )
        if self.delimiter in ('"', "\r", "\n"):
            raise InvalidRequest("quotes and line ends cannot be the delimiter")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise InvalidRequest(
                f"there is no encoding {self.encoding[:50]!r}",
                next_step="For example utf-8, latin-1, cp1252 or utf-16",
            ) from None


# -- reading --------------------------------------------------------------------------------------


class CsvFile:
    """One file; `open_bytes` gives its content from the start each time."""

    def __init__(self, path: str, open_bytes: Any, text: TextFormat, delimiter: str) -> None:
        self._path = path
        self._open = open_bytes
        self._text = text
        self._delimiter = text.delimiter or delimiter
        self.names: tuple[str, ...] = self._header()

    def _reader(self, texts: Sequence[str] = (), *, sparse: bool = False) -> Any:
        source = self._open()
        if codecs.lookup(self._text.encoding).name != "utf-8":
            source = pa.PythonFile(_AsUtf8(source, self._text.encoding), mode="r")
        return csv.open_csv(
            source,
            parse_options=csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                # In a file of one column an empty line is a row: NULL.
                ignore_empty_lines=not sparse,
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(texts, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=["", *self._text.null],
            ),
        )

    def _header(self) -> tuple[str, ...]:
        names = tuple(self._reader().schema.names)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UnreadableFile(
                f"{self._path} has two columns called {twice[:80]!r}",
                next_step="Rename one of them in the file's first line",
            )
        return names

    def _texts(self) -> Iterator[pa.RecordBatch]:
        yield from self._reader(self.names, sparse=len(self.names) == 1)

    def hint(self, known: Sequence[str]) -> str:
        """Advice where the file seems to be delimited by something else."""
        if len(self.names) == 1 and self.names[0] not in known:
            for other, name in ((";", "';'"), ("\t", "tab"), ("|", "'|'"), (",", "','")):
                if other in self.names[0]:
                    return f"The file seems to be delimited otherwise: give --delimiter {name}"
        return ""

    def reader(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """The rows, columns that `schema` has in its types, others as text tells."""
        known = set(schema.names)
        others = [name for name in self.names if name not in known]
        told = dict(self.infer(others)[0]) if others else {}
        wanted = pa.schema(
            [
                pa.field(name, schema.field(name).type if name in known else told[name])
                for name in self.names
            ]
        )
        return pa.RecordBatchReader.from_batches(wanted, self._converted(wanted))

    def _converted(self, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in self._texts():
            arrays = []
            for field, column in zip(wanted, batch.columns, strict=True):
                try:
                    arrays.append(from_texts(column, field.type))
                except Misread as error:
                    raise UnreadableFile(
                        f"{self._path}: row {rows + error.row + 1:,}: column {field.name!r} "
                        f"{error.what}",
                        next_step="Rows are counted from 1, after the line of names; texts that stand "
                        "for NULL are named by --null",
                    ) from None
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
            rows += batch.num_rows

    def infer(
        self, names: Sequence[str] | None = None
    ) -> tuple[list[tuple[str, pa.DataType]], int]:
        """Types of columns, and how many rows they were told from."""
        batches, rows = [], 0
        for batch in self._texts():
            batches.append(batch)
            rows += batch.num_rows
            if rows >= INFER_ROWS:
                break
        schema = pa.schema([(name, pa.string()) for name in self.names])
        table = pa.Table.from_batches(batches, schema=schema)
        wanted = self.names if names is None else names
        return [(name, type_of_texts(table.column(name))) for name in wanted], rows


class _AsUtf8(io.RawIOBase):
    """Text of another encoding as UTF-8. (Arrow's own recoding loses its place in UTF-16.)"""

    def __init__(self, source: Any, encoding: str) -> None:
        self._text = io.TextIOWrapper(source, encoding=encoding, newline="")
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            self._left = self._text.read(1 << 20).encode("utf-8")
        found = self._left if size < 0 else self._left[:size]
        self._left = self._left[len(found) :]
        return found


# -- writing --------------------------------------------------------------------------------------


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
            case _:
                return self.quoted(str(to_json(value)))

    def quoted(self, text: str) -> str:
        # Blanks at the ends are kept by readers that strip what is not quoted.
        special = not self._special.isdisjoint(text) or text != text.strip()
        if special or text in self._nulls:
            return '"' + text.replace('"', '""') + '"'
        return text
