"""JSON: rows from objects, one after the other or in one array.

Promise: a file is read as a stream, twice: once for the names it has, which are the columns of the data,
and once for the rows. Numbers are taken exactly as they are written.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from inlay.cli.delimited import INFER_ROWS, TextFormat, as_utf8
from inlay.cli.text_types import (
    Misread,
    are_other_dates,
    column_types,
    from_json,
    plain_json,
    texts_of_json,
    type_of_json,
)
from inlay.errors import InvalidRequest, SchemaMismatch, UnreadableFile

BATCH_ROWS = 16_384
# Characters of the objects of a batch, so that its texts fit one Arrow array whatever they are.
BATCH_CHARACTERS = 64 << 20
# Read at a time, and the most that one object may take.
CHUNK = 1 << 20
MAX_OBJECT = 64 << 20

_BETWEEN = re.compile(r"[\s,]*")
_BLANK = re.compile(r"\s*")


class JsonFile:
    """One file; `open_bytes` gives its content from the start each time. `ragged` is (row, name) of the
    first object that lacks a name which others have, or None."""

    def __init__(self, path: str, open_bytes: Any, text: TextFormat) -> None:
        self._path = path
        self._open = open_bytes
        self._encoding = text.encoding
        self._formats = text.dates
        self.dates: tuple[str, ...] = ()
        names: dict[str, int] = {}
        rows = 0
        first: set[str] = set()
        self.ragged: tuple[int, str] | None = None
        for row in self._objects():
            rows += 1
            if rows == 1:
                first = set(row)
            if self.ragged is None and row.keys() != first:
                gained = sorted(row.keys() - first)
                self.ragged = (1, gained[0]) if gained else (rows, sorted(first - row.keys())[0])
            for name in row.keys() - names.keys():
                names[name] = rows
        self.names = tuple(sorted(names, key=lambda name: names[name]))
        if rows:
            order = list(next(iter(self._objects())))
            self.names = (*order, *(n for n in self.names if n not in set(order)))

    def _objects(self) -> Iterator[dict[str, Any]]:
        return (row for row, _ in self._sized_objects())

    def _sized_objects(self) -> Iterator[tuple[dict[str, Any], int]]:
        """The objects, and how many characters each takes in the file."""
        content = as_utf8(self._open, self._encoding)
        with io.TextIOWrapper(content, encoding="utf-8-sig") as source:
            for rows, (found, size) in enumerate(_values(source, self._path), 1):
                if not isinstance(found, dict):
                    raise UnreadableFile(
                        f"{self._path}: value {rows:,} is not an object",
                        next_step='Rows are objects: {"id": 1, "name": "Ada"}',
                    )
                yield found, size

    def check_even(self) -> None:
        """For upserts and keys, where a column that a row lacks cannot be distinguished from NULL. Raises
        `SchemaMismatch`."""
        if self.ragged is not None:
            row, name = self.ragged
            raise SchemaMismatch(
                f"{self._path}: object {row:,} lacks {name[:80]!r}, which others have",
                next_step="Write null where NULL is meant, and give rows that lack other columns to a "
                "command of their own: an upsert keeps the columns that all of its rows lack",
            )

    def reader(self, schema: pa.Schema) -> pa.RecordBatchReader:
        """The rows, columns that `schema` has in its types, others as inferred."""
        wanted = column_types(self.names, schema, self.infer)
        self._formats.check(self._path, wanted)
        return pa.RecordBatchReader.from_batches(wanted, self._batches(wanted))

    def _batches(self, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        done = characters = 0
        for row, size in self._sized_objects():
            rows.append(row)
            characters += size
            if len(rows) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
                yield self._batch(rows, wanted, done)
                done += len(rows)
                rows, characters = [], 0
        if rows:
            yield self._batch(rows, wanted, done)

    def _batch(self, rows: list[dict[str, Any]], wanted: pa.Schema, done: int) -> pa.RecordBatch:
        arrays = []
        for field in wanted:
            values = [row.get(field.name) for row in rows]
            form = self._formats.reads(field.name, field.type)
            with self._taking(field.name, done):
                if form is None:
                    arrays.append(from_json(values, field.type))
                else:
                    arrays.append(form.read(texts_of_json(values, field.type), field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)

    @contextmanager
    def _taking(self, name: str, rows: int = 0) -> Iterator[None]:
        """A value that its type does not take is named by its object; `rows` came before."""
        try:
            yield
        except Misread as error:
            raise UnreadableFile(
                f"{self._path}: object {rows + error.row + 1:,}: {name!r} {error.what}",
                next_step="Objects are counted from 1",
            ) from None

    def _type_of(self, name: str, values: list[Any]) -> pa.DataType:
        if form := self._formats.of(name):
            with self._taking(name):
                if form.alone or all(value is None or isinstance(value, str) for value in values):
                    texts = texts_of_json(values, pa.string())
                    if kind := form.type_of(pa.chunked_array([texts])):
                        return kind
        return type_of_json(values)

    def infer(
        self, names: Sequence[str] | None = None
    ) -> tuple[list[tuple[str, pa.DataType]], int]:
        """Types of columns, and how many rows they were inferred from; `dates` are then those of dates in
        another form than ISO's."""
        wanted = self.names if names is None else names
        values: dict[str, list[Any]] = {name: [] for name in wanted}
        rows = 0
        for row in self._objects():
            rows += 1
            for name in wanted:
                values[name].append(row.get(name))
            if rows >= INFER_ROWS:
                break
        found = []
        for name in wanted:
            try:
                found.append((name, self._type_of(name, values[name])))
            except UnicodeError:
                raise
            except ValueError as error:
                raise InvalidRequest(
                    f"{self._path}: no type can be inferred for {name[:80]!r}: {error}",
                    next_step='Give the columns as text: --schema "id bigint not null, name string"',
                ) from None
        self.dates = tuple(
            name
            for name, kind in found
            if pa.types.is_string(kind)
            and are_other_dates(pa.chunked_array([pa.array(values[name], pa.string())]))
        )
        return found, rows


def _values(source: io.TextIOWrapper, path: str) -> Iterator[tuple[Any, int]]:
    """The values of a text: one after the other, or those of one array; each with its length."""
    decoder = plain_json()
    text, at, seen = "", 0, 0
    listed: bool | None = None
    ended = False
    while True:
        at = (_BETWEEN if listed else _BLANK).match(text, at).end()  # type: ignore[union-attr]
        if at < len(text) and listed is None:
            listed = text[at] == "["
            at += listed
            continue
        if at < len(text) and listed and text[at] == "]":
            return
        error: ValueError | None = None
        if at < len(text):
            try:
                found, end = decoder.raw_decode(text, at)
                size, at = end - at, end
                yield found, size
                continue
            except json.JSONDecodeError as caught:
                error = caught
            except ValueError as caught:
                raise _broken(path, text, at, seen, str(caught)) from None
            except RecursionError:
                raise _broken(path, text, at, seen, "it is nested too deeply") from None
        if ended:
            if error is None and not listed:
                return
            raise _broken(
                path, text, at, seen, "it does not parse" if error else "it ends too early"
            )
        if len(text) - at > MAX_OBJECT:
            raise _broken(path, text, at, seen, "it does not parse")
        more = source.read(max(CHUNK, len(text) - at))
        ended = not more
        seen += text.count("\n", 0, at)
        text, at = text[at:] + more, 0


def _broken(path: str, text: str, at: int, seen: int, why: str) -> UnreadableFile:
    line = seen + text.count("\n", 0, at) + 1
    return UnreadableFile(
        f"{path}: what begins in line {line:,} is not a JSON value: {why}",
        next_step="Rows are JSON objects, one after the other or in one array",
    )
