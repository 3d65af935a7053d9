"""JSON: rows from objects, one after the other or in one array.

Promise: a file is read as a stream, twice: once for the names it has, which are the columns of the data,
and once for the rows. Numbers are taken exactly as they are written. Where records may be refused one by
one, each is a line of its own or an element of one array: behind one that does not parse, nothing else
says where the next begins.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidRequest, SchemaMismatch, UnreadableFile
from inlay.text.bytes import as_utf8
from inlay.text.delimited import INFER_ROWS
from inlay.text.format import TextFormat
from inlay.text.refused import Column, Misread, Refusals, Refused, misread_rows, without_null
from inlay.text.types import (
    are_other_dates,
    column_types,
    from_json,
    plain_json,
    texts_of_json,
    type_of_json,
)

BATCH_ROWS = 16_384
# Characters of the objects of a batch, so that its texts fit one Arrow array whatever they are.
BATCH_CHARACTERS = 64 << 20
# Read at a time, and the most that one object may take.
CHUNK = 1 << 20
MAX_OBJECT = 64 << 20

_BETWEEN = re.compile(r"[\s,]*")
_BLANK = re.compile(r"\s*")


# What a value stands for: a row as an object, or no row at all. Raises `ValueError` where it is neither.
Shape = Callable[[Any], dict[str, Any] | None]


def plain_object(value: Any) -> dict[str, Any]:
    """Raises `ValueError`."""
    if isinstance(value, dict):
        return value
    raise ValueError("is not an object")


class JsonFile:
    """One file; `open_bytes` gives its content from the start each time. `ragged` is (row, name) of the
    first object that lacks a name which others have, or None. What cannot be read of it is refused up to
    `limit` records."""

    def __init__(
        self,
        path: str,
        open_bytes: Any,
        text: TextFormat,
        *,
        shape: Shape = plain_object,
        limit: int = 0,
    ) -> None:
        self._path = path
        self._open = open_bytes
        self._encoding = text.encoding
        self._formats = text.dates
        self._shape = shape
        self.refusals = Refusals(path, "object", "Objects are counted from 1", limit)
        self.dates: tuple[str, ...] = ()
        names: dict[str, int] = {}
        first: list[str] = []
        self.ragged: tuple[int, str] | None = None
        for rows, row in enumerate(self._objects(), 1):
            if rows == 1:
                first = list(row)
            if self.ragged is None and row.keys() != set(first):
                gained = sorted(row.keys() - set(first))
                lost = sorted(set(first) - row.keys())
                self.ragged = (1, gained[0]) if gained else (rows, lost[0])
            for name in row.keys() - names.keys():
                names[name] = rows
        others = sorted(names.keys() - set(first), key=lambda name: names[name])
        self.names = (*first, *others)

    def _objects(self) -> Iterator[dict[str, Any]]:
        self.refusals.begin()
        return (row for _, row, _ in self._sized_objects())

    def _sized_objects(self) -> Iterator[tuple[int, dict[str, Any], int]]:
        """The objects, the place of each, and how many characters it takes in the file."""
        content = as_utf8(self._open, self._encoding)
        with io.TextIOWrapper(content, encoding="utf-8-sig") as source:
            values = _values(source, self._path, self.refusals)
            for place, (value, size) in enumerate(values, 1):
                if isinstance(value, _Broken):
                    self.refusals.add(Refused(place, value.why, value.text))
                    continue
                try:
                    row = self._shape(value)
                except ValueError as error:
                    if self.refusals.room:
                        record = (
                            value if isinstance(value, dict) else json.dumps(value, default=str)
                        )
                        self.refusals.add(Refused(place, str(error), record))
                        continue
                    raise UnreadableFile(
                        f"{self._path}: value {place:,} {error}",
                        next_step='Rows are objects: {"id": 1, "name": "Ada"}',
                    ) from None
                if row is not None:
                    yield place, row, size

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

    def reader(self, schema: pa.Schema, required: Collection[str] = ()) -> pa.RecordBatchReader:
        """The rows, columns that `schema` has in its types, others as inferred; a NULL in a column of
        `required` is refused."""
        target = column_types(self.names, schema, self.infer)
        self._formats.check(self._path, target)
        return pa.RecordBatchReader.from_batches(target, self._batches(target, required))

    def _batches(self, target: pa.Schema, required: Collection[str]) -> Iterator[pa.RecordBatch]:
        rows: dict[int, dict[str, Any]] = {}
        characters = 0
        self.refusals.begin()
        for place, row, size in self._sized_objects():
            rows[place] = row
            characters += size
            if len(rows) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
                yield self._batch(rows, target, required)
                rows, characters = {}, 0
        if rows:
            yield self._batch(rows, target, required)

    def _batch(
        self, rows: dict[int, dict[str, Any]], target: pa.Schema, required: Collection[str]
    ) -> pa.RecordBatch:
        arrays, refused = self._columns(list(rows.values()), target, required)
        while refused:
            places = list(rows)
            for row, reason in refused.items():
                self.refusals.add(Refused(places[row], reason, rows.pop(places[row])))
            arrays, refused = self._columns(list(rows.values()), target, required)
        return pa.RecordBatch.from_arrays(arrays, schema=target)

    def _columns(
        self, rows: Sequence[dict[str, Any]], target: pa.Schema, required: Collection[str]
    ) -> tuple[list[pa.Array], dict[int, str]]:
        def column(field: pa.Field) -> Column:
            form = self._formats.reads(field.name, field.type)
            values = [row.get(field.name) for row in rows]

            def read(start: int, stop: int) -> pa.Array:
                some = values[start:stop]
                if form is None:
                    made = from_json(some, field.type)
                else:
                    made = form.read(texts_of_json(some, field.type), field.type)
                return without_null(made) if field.name in required else made

            return read

        columns = [(repr(field.name), column(field)) for field in target]
        return misread_rows(columns, len(rows), self.refusals.room)

    def _type_of(self, name: str, values: list[Any]) -> pa.DataType:
        if form := self._formats.of(name):
            try:
                if form.alone or all(value is None or isinstance(value, str) for value in values):
                    texts = texts_of_json(values, pa.string())
                    if kind := form.type_of(pa.chunked_array([texts])):
                        return kind
            except Misread as error:
                raise self.refusals.whole(error.row + 1, f"{name!r} {error.what}") from None
        return type_of_json(values)

    def infer(
        self, names: Sequence[str] | None = None
    ) -> tuple[list[tuple[str, pa.DataType]], int]:
        """Types of columns, and how many rows they were inferred from; `dates` are then those of dates in
        another form than ISO's."""
        asked = self.names if names is None else names
        values: dict[str, list[Any]] = {name: [] for name in asked}
        rows = 0
        for row in self._objects():
            rows += 1
            for name in asked:
                values[name].append(row.get(name))
            if rows >= INFER_ROWS:
                break
        types = []
        for name in asked:
            try:
                types.append((name, self._type_of(name, values[name])))
            except UnicodeError:
                raise
            except ValueError as error:
                raise InvalidRequest(
                    f"{self._path}: no type can be inferred for {name[:80]!r}: {error}",
                    next_step='Give the columns as text: --schema "id bigint not null, name string"',
                ) from None
        self.dates = tuple(
            name
            for name, kind in types
            if pa.types.is_string(kind)
            and are_other_dates(pa.chunked_array([pa.array(values[name], pa.string())]))
        )
        return types, rows


class _Broken:
    """A record that is no JSON value."""

    __slots__ = ("text", "why")

    def __init__(self, text: str, why: str) -> None:
        self.text = text
        self.why = why


def _values(source: io.TextIOWrapper, path: str, refusals: Refusals) -> Iterator[tuple[Any, int]]:
    """The values of a text: one after the other, or those of one array; each with its length. Where records
    may be refused, what is one after the other is a line each."""
    decoder = plain_json()
    text, at, seen = "", 0, 0
    listed: bool | None = None
    ended = False
    while True:
        at = (_BETWEEN if listed else _BLANK).match(text, at).end()  # type: ignore[union-attr]
        if at < len(text) and listed is None:
            listed = text[at] == "["
            if not listed and refusals.limit:
                yield from _lines(text[at:], source, decoder, path)
                return
            at += listed
            continue
        if at < len(text) and listed and text[at] == "]":
            return
        error: ValueError | None = None
        if at < len(text):
            try:
                value, end = decoder.raw_decode(text, at)
                size, at = end - at, end
                yield value, size
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


def _lines(
    begin: str, source: io.TextIOWrapper, decoder: json.JSONDecoder, path: str
) -> Iterator[tuple[Any, int]]:
    """A value each line; what is none is given as it is."""
    left = begin
    while True:
        *whole, left = left.split("\n")
        for line in whole:
            if line.strip():
                yield _value_of(line, decoder), len(line)
        if len(left) > MAX_OBJECT:
            raise _broken(path, left, 0, 0, "it is too long for a line")
        more = source.read(max(CHUNK, len(left)))
        if not more:
            break
        left += more
    if left.strip():
        yield _value_of(left, decoder), len(left)


def _value_of(line: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(line)
    except RecursionError:
        return _Broken(line, "is nested too deeply")
    except json.JSONDecodeError:
        return _Broken(line, "does not parse")
    except ValueError as error:
        return _Broken(line, f"is not a JSON value: {error}")


def _broken(path: str, text: str, at: int, seen: int, why: str) -> UnreadableFile:
    line = seen + text.count("\n", 0, at) + 1
    return UnreadableFile(
        f"{path}: what begins in line {line:,} is not a JSON value: {why}",
        next_step="Rows are JSON objects, one after the other or in one array",
    )
