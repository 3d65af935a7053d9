"""Columns as text: `id bigint not null, name string, price decimal(12,2), tags list<string>`.

Promise: the result is an Arrow schema, or an error that points at the place. Types have their names in
SQL and those of docs/FORMAT.md.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.expression import Assigned
from inlay.parquet.arrow.types import arrow_primitive, schema_from_arrow
from inlay.parse import parse_assignments
from inlay.parse.grammar import parse_type

MAX_TEXT = 64 * 1024
_MAX_DEPTH = 100

_TOKEN = re.compile(
    r'\s*(?:(?P<word>[^\W\d]\w*)|(?P<quoted>"(?:[^"]|"")+")|(?P<sign>[(),<>:])|(?P<number>-?[0-9]+))'
)
_EXAMPLE = 'Write it as "id bigint not null, name string, price decimal(12,2), at timestamptz"'
_TYPES = (
    "Types: bool, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, "
    "time, timestamp, timestamptz, list<…>, map<…, …>, struct<name: …>"
)


def parse_schema(text: str) -> pa.Schema:
    """
    >>> parse_schema("id bigint not null, price decimal(12,2)")
    id: int64 not null
    price: decimal128(12, 2)
    """
    if len(text) > MAX_TEXT:
        raise InvalidRequest(
            f"a schema of {len(text):,} characters", next_step="Take them from a file or from rows"
        )
    return pa.schema(_Columns(text).all())


def parse_column(name: str, text: str) -> tuple[pa.Field, Any]:
    """A column of this name, and the default of rows that are there before it.

    >>> parse_column("qty", "int not null default 1")
    (pyarrow.Field<qty: int32 not null>, 1)
    """
    columns = _Columns(text)
    field = pa.field(name, columns.type(0), nullable=not columns.is_required())
    if not columns.takes("default"):
        columns.check_end()
        return field, None
    literal = text[columns.at :].strip()
    column = schema_from_arrow(pa.schema([field.with_name("added")]))
    [assignment] = parse_assignments({"added": literal}, column)
    if not isinstance(assignment.expression, Assigned):
        raise InvalidRequest(f"the default of {name!r} is not a literal: {literal[:80]!r}")
    return field, assignment.expression.value


class _Columns:
    """One text, read from `at` on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def all(self) -> list[pa.Field]:
        columns = [self.column()]
        while self.takes(","):
            if self.ends():
                break
            columns.append(self.column())
        self.check_end()
        return columns

    def check_end(self) -> None:
        if not self.ends():
            raise self.error(self.at, "the schema does not parse here", _EXAMPLE)

    def ends(self) -> bool:
        return not self.text[self.at :].strip()

    def peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self.text, self.at)

    def takes(self, sign: str) -> bool:
        token = self.peek()
        if token is None or (token["sign"] or (token["word"] or "").lower()) != sign:
            return False
        self.at = token.end()
        return True

    def needs(self, sign: str) -> None:
        if not self.takes(sign):
            raise self.error(self.at, f"a {sign} is missing here", _EXAMPLE)

    def column(self, depth: int = 0) -> pa.Field:
        token = self.peek()
        if token is None or not (token["word"] or token["quoted"]):
            raise self.error(self.at, "the name of a column is missing here", _EXAMPLE)
        self.at = token.end()
        name = token["word"] or token["quoted"][1:-1].replace('""', '"')
        if depth:
            self.takes(":")
        kind = self.type(depth)
        return pa.field(name, kind, nullable=not self.is_required())

    def is_required(self) -> bool:
        required = self.takes("not")
        if required:
            self.needs("null")
        return required

    def type(self, depth: int) -> pa.DataType:
        token = self.peek()
        if depth > _MAX_DEPTH or token is None or not token["word"]:
            raise self.error(self.at, "a type is missing here", _TYPES)
        start = token.start("word")
        self.at = token.end()
        word = token["word"].lower()
        if word in ("list", "array", "map", "struct") and self.takes("<"):
            return self.nested(word, depth + 1)
        if self.takes("("):
            while self.peek() is not None and not self.takes(")"):
                self.at = self.peek().end()  # type: ignore[union-attr]
        try:
            return arrow_primitive(parse_type(self.text[start : self.at]))
        except InvalidRequest as error:
            raise self.error(start, error.message, _TYPES) from None

    def nested(self, word: str, depth: int) -> pa.DataType:
        if word == "struct":
            members = [self.column(depth)]
            while self.takes(","):
                members.append(self.column(depth))
            kind: pa.DataType = pa.struct(members)
        elif word == "map":
            key = self.type(depth)
            self.needs(",")
            kind = pa.map_(key, self.type(depth))
        else:
            kind = pa.list_(self.type(depth))
        self.needs(">")
        return kind

    def error(self, at: int, message: str, next_step: str) -> InvalidPredicate:
        at += len(self.text[at:]) - len(self.text[at:].lstrip())
        return InvalidPredicate(
            message, text=self.text, position=min(at, len(self.text)), next_step=next_step
        )
