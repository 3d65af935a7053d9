"""CSV: rows from delimited text.

Promise: NULL and the empty text stay apart: a field without anything is NULL, a quoted `""` is the empty
text, and so is a quoted text that would otherwise stand for NULL. Text whose quotes do not match is refused
at its line, never read as something else.
"""

from __future__ import annotations

import codecs
import csv as lines
import io
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import csv

from inlay.errors import UnreadableFile
from inlay.text.bytes import CHUNK, as_utf8
from inlay.text.format import TextFormat
from inlay.text.refused import Column, Misread, Refusals, Refused, misread_rows, without_null
from inlay.text.types import are_other_dates, column_types, from_texts, type_of_texts

# Rows that types are inferred from: more would be held in memory.
INFER_ROWS = 1_000_000
# The most that one record may take.
MAX_RECORD = 64 << 20
# Arrow's words for a record of another length than the first.
_UNEVEN = re.compile("CSV parse error: (Row #[0-9]+: )?Expected")
# Each byte of a record allows one way on, so a repeat that gives nothing back finds the same, in a third of
# the time. Before Python 3.11.5 (Debian 12 has 3.11.2) such repeats match what they should not: gh-106052.
POSSESSIVE = b"+" if sys.version_info >= (3, 11, 5) else b""


class CsvFile:
    """One file; `open_bytes` gives its content from the start each time. `names` are those of its first
    line, without blanks around them unless the table has them so (`known`), or those of its format; a
    column without a name is called by its place, column0, column1, … What cannot be read of it is refused
    up to `limit` records."""

    def __init__(
        self,
        path: str,
        open_bytes: Any,
        text: TextFormat,
        delimiter: str,
        known: Sequence[str] = (),
        *,
        limit: int = 0,
    ) -> None:
        self._path = path
        self._open = open_bytes
        self._text = text
        self._delimiter = text.delimiter or delimiter
        self._written: tuple[str, ...] = text.columns
        self.refusals = Refusals(
            path,
            "row",
            f"Rows are counted from 1{'' if text.columns else ', after the line of names'}; texts that "
            f"stand for NULL are named by {text.options}null",
            limit,
        )
        self._uneven_rows: list[int] = []
        self.dates: tuple[str, ...] = ()
        self.names = self._header(known)

    def _utf8(self) -> Any:
        return as_utf8(self._open, self._text.encoding)

    def _reader(self, texts: Sequence[str] = (), *, sparse: bool = False) -> Any:
        return csv.open_csv(
            pa.PythonFile(
                _Records(self._utf8(), self._delimiter, self._path, blanks=sparse), mode="r"
            ),
            # Blocks are as long as `_Records` makes them. Arrow numbers rows for one thread only.
            read_options=csv.ReadOptions(
                block_size=MAX_RECORD,
                column_names=self._text.columns or None,
                use_threads=not self.refusals.limit,
            ),
            parse_options=csv.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                # In a file of one column an empty line is a row: NULL.
                ignore_empty_lines=not sparse,
                invalid_row_handler=self._uneven_handler(is_header=not texts),
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(texts, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=["", *self._text.null],
            ),
        )

    def _uneven_handler(self, *, is_header: bool) -> Callable[[Any], str] | None:
        if not self.refusals.limit:
            return None
        # Where only the names are looked at, Arrow reads some records as well.
        return (lambda row: "skip") if is_header else self._refuse_uneven

    def _refuse_uneven(self, row: Any) -> str:
        place = row.number - (not self._text.columns)
        if not self.refusals.room:
            return "error"
        self._uneven_rows.append(place)
        fields = f"has {row.actual_columns:,} fields in place of {row.expected_columns:,}"
        self.refusals.add(Refused(place, f"it {fields}", row.text))
        return "skip"

    def _header(self, known: Sequence[str]) -> tuple[str, ...]:
        with self._even():
            self._written = tuple(self._reader().schema.names)
        names = tuple(
            name if name in known and name else name.strip() or f"column{place}"
            for place, name in enumerate(self._written)
        )
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UnreadableFile(
                f"{self._path} has two columns called {twice[:80]!r}",
                next_step="Rename one of them in the file's first line",
            )
        return names

    @contextmanager
    def _even(self) -> Iterator[None]:
        """Records of another length than the first are named by their line."""
        try:
            yield
        except pa.ArrowInvalid as error:
            if "Empty CSV" in str(error):
                raise UnreadableFile(
                    f"{self._path} is empty", next_step="Its first line has to name the columns"
                ) from None
            uneven = self._uneven() if _UNEVEN.search(str(error)) else None
            if uneven is None:
                raise
            line, count, first = uneven
            self.names = tuple(first)
            others = f", after {self.refusals.limit:,} others" if self.refusals.limit else ""
            fields = f"{count:,} field" + "s" * (count != 1)
            raise UnreadableFile(
                f"{self._path}: line {line:,} has {fields}, and the first line {len(first)}{others}",
                next_step=self.hint(())
                or f"Give each line as many fields as the first; a text with {self._delimiter!r} in it is "
                "quoted. What stands before the line of names has to go",
            ) from None

    def _uneven(self) -> tuple[int, int, list[str]] | None:
        """(line, number of fields, fields of the first line) of the first record of another length that was
        not refused already."""
        utf8 = self._utf8()
        refused = len(self._uneven_rows)
        with io.TextIOWrapper(utf8, encoding="utf-8-sig", errors="replace", newline="") as source:
            rows = lines.reader(source, delimiter=self._delimiter)
            try:
                first = list(self._text.columns) or next(rows, [])
                for row in rows:
                    if row and len(row) != len(first):
                        if not refused:
                            return rows.line_num, len(row), first
                        refused -= 1
            except (lines.Error, UnicodeError):
                pass
        return None

    def _texts(self) -> Iterator[pa.RecordBatch]:
        self.refusals.begin()
        self._uneven_rows.clear()
        with self._even():
            yield from self._reader(self._written, sparse=len(self.names) == 1)

    def hint(self, known: Sequence[str]) -> str:
        """Advice where the file seems to be delimited by something else."""
        if len(self.names) == 1 and self.names[0] not in known:
            for other, name in ((";", "';'"), ("\t", "tab"), ("|", "'|'"), (",", "','")):
                if other in self.names[0]:
                    option = f"{self._text.options}delimiter"
                    return f"The file seems to be delimited otherwise: give {option} {name}"
        return ""

    def reader(self, schema: pa.Schema, required: Collection[str] = ()) -> pa.RecordBatchReader:
        """The rows, columns that `schema` has in its types, others as inferred; a NULL in a column of
        `required` is refused."""
        target = column_types(self.names, schema, self.infer)
        self._text.dates.check(self._path, target)
        return pa.RecordBatchReader.from_batches(target, self._converted(target, required))

    def _converted(self, target: pa.Schema, required: Collection[str]) -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in self._texts():
            texts = batch.rename_columns(list(self.names))
            left: Sequence[int] = range(rows, rows + len(texts))
            arrays, refused = self._columns(texts, target, required)
            while refused:
                for row, reason in refused.items():
                    [record] = texts.slice(row, 1).to_pylist()
                    self.refusals.add(Refused(self._place(left[row]), reason, record))
                kept = [row for row in range(len(texts)) if row not in refused]
                texts, left = texts.take(pa.array(kept, pa.int64())), [left[row] for row in kept]
                arrays, refused = self._columns(texts, target, required)
            yield pa.RecordBatch.from_arrays(arrays, schema=target)
            rows += batch.num_rows

    def _columns(
        self, texts: pa.RecordBatch, target: pa.Schema, required: Collection[str]
    ) -> tuple[list[pa.Array], dict[int, str]]:
        def column(field: pa.Field) -> Column:
            form = self._text.dates.reads(field.name, field.type)
            convert = form.read if form else from_texts

            def read(start: int, stop: int) -> pa.Array:
                made = convert(texts.column(field.name).slice(start, stop - start), field.type)
                return without_null(made) if field.name in required else made

            return read

        columns = [(f"column {field.name!r}", column(field)) for field in target]
        return misread_rows(columns, len(texts), self.refusals.room)

    def _place(self, row: int) -> int:
        """The number of a row in the file, where `row` of those of even length came before it."""
        place = row + 1
        while (moved := row + 1 + bisect_right(self._uneven_rows, place)) != place:
            place = moved
        return place

    def _type_of(self, name: str, values: pa.ChunkedArray) -> pa.DataType:
        form = self._text.dates.of(name)
        try:
            return (form and form.type_of(values)) or type_of_texts(values)
        except Misread as error:
            raise self.refusals.whole(error.row + 1, f"column {name!r} {error.what}") from None

    def infer(
        self, names: Sequence[str] | None = None
    ) -> tuple[list[tuple[str, pa.DataType]], int]:
        """Types of columns, and how many rows they were inferred from; `dates` are then those of dates in
        another form than ISO's."""
        batches, rows = [], 0
        for batch in self._texts():
            batches.append(batch)
            rows += batch.num_rows
            if rows >= INFER_ROWS:
                break
        schema = pa.schema([(name, pa.string()) for name in self._written])
        table = pa.Table.from_batches(batches, schema=schema).rename_columns(list(self.names))
        asked = self.names if names is None else names
        types = [(name, self._type_of(name, table.column(name))) for name in asked]
        self.dates = tuple(
            name
            for name, kind in types
            if pa.types.is_string(kind) and are_other_dates(table.column(name))
        )
        return types, rows


class _Records(io.RawIOBase):
    """UTF-8 in pieces of whole records. Arrow takes what follows a closing quote as more of the text, and
    the end of the file as the closing quote: both are refused here. It also takes a piece of empty lines
    alone for the end, and a piece that begins with the second half of a CR LF for one with an empty line:
    no piece is of either kind. `blanks`: whether an empty line is a record."""

    def __init__(self, source: Any, delimiter: str, path: str, *, blanks: bool) -> None:
        self._blanks = blanks
        apart, keep = re.escape(delimiter.encode()), POSSESSIVE
        quoted = rb'"[^"]*%b(?:""[^"]*%b)*%b"(?!")' % (keep, keep, keep)
        field = rb'(?:%b|[^"%b\r\n][^%b\r\n]*%b|)' % (quoted, apart, apart, keep)
        some = rb"(?:%b%b)*%b" % (field, apart, keep)
        self._whole = re.compile(rb"(?:%b%b[\r\n])*%b" % (some, field, keep))
        self._part = re.compile(some)
        self._quoted = re.compile(quoted)
        self._source = source
        self._path = path
        self._begins = True
        self._line = 1
        self._left = b""
        self._piece = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._piece:
            self._piece = self._next()
        taken = self._piece if size < 0 else self._piece[:size]
        self._piece = self._piece[len(taken) :]
        return taken

    def _next(self) -> bytes:
        unread = self._left
        while True:
            # As much again as is left, so that a long record is looked at a few times only.
            more = self._source.read(max(CHUNK, len(unread)))
            ended = not more
            if self._begins:
                more, self._begins = more.removeprefix(codecs.BOM_UTF8), False
            unread += more
            if not self._blanks:
                begins = len(unread) - len(unread.lstrip(b"\r\n"))
                self._line += unread.count(b"\n", 0, begins)
                unread = unread[begins:]
            if ended and unread and not unread.endswith((b"\r", b"\n")):
                unread += b"\n"
            end = self._whole.match(unread).end()  # type: ignore[union-attr]
            rest = self._part.match(unread, end).end()  # type: ignore[union-attr]
            closed = self._quoted.match(unread, rest)
            if closed and closed.end() < len(unread):
                self._refuse(unread, rest, "more text follows a closing quote")
            if ended and end < len(unread):
                self._refuse(unread, rest, "a quote is not closed")
            if end == len(unread) and unread.endswith(b"\r") and not ended:
                continue
            if end or ended:
                self._line += unread.count(b"\n", 0, end)
                self._left = unread[end:]
                records: bytes = unread[:end]
                return records
            if len(unread) > MAX_RECORD // 2:
                self._refuse(unread, rest, f"a record is longer than {MAX_RECORD >> 21} MiB")

    def _refuse(self, text: bytes, at: int, why: str) -> None:
        line = self._line + text.count(b"\n", 0, at)
        raise UnreadableFile(
            f"{self._path}: line {line:,}: {why}",
            next_step="A quote inside a quoted text is written twice; a text that begins with a quote is "
            "quoted as a whole",
        )
