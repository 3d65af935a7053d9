"""Schemas as text: `id bigint not null, name string, price decimal(12,2), tags list<string>`.

Promise: the result is an Arrow schema, or an error that points at the place. Types have their names in
SQL and those of docs/FORMAT.md.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError

from inlay.errors import InlayError, InvalidPredicate, InvalidRequest
from inlay.format.schema import parse_primitive
from inlay.parquet.arrow.types import arrow_primitive

MAX_TEXT = 64 * 1024

# SQL's names of types → ours. TIMESTAMP is in microseconds, as in most engines.
_ALIASES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "real": "float",
    "text": "string",
    "varchar": "string",
    "bytes": "binary",
    "blob": "binary",
    "time": "time(us)",
    "timestamp": "timestamp(us)",
    "timestamptz": "timestamptz(us)",
}

_GRAMMAR = r"""
start: columns
columns: column ("," column)* [","]
column: name kind [REQUIRED]
?name: WORD -> plain
    | QUOTED -> quoted
kind: WORD "(" argument ("," argument)* ")" -> with_arguments
    | WORD -> simple
    | ("list"i | "array"i) "<" kind ">" -> list_of
    | "map"i "<" kind "," kind ">" -> map_of
    | "struct"i "<" member ("," member)* ">" -> struct_of
member: name [":"] kind [REQUIRED]
!argument: WORD | NUMBER
REQUIRED.2: /not\s+null/i
WORD: /[^\W\d]\w*/
NUMBER: /-?[0-9]+/
QUOTED: /"([^"]|"")+"/
%ignore /\s+/
"""
_EXAMPLE = 'Write it as "id bigint not null, name string, price decimal(12,2), at timestamptz"'


def parse_schema(text: str) -> pa.Schema:
    """
    >>> parse_schema("id bigint not null, price decimal(12,2)")
    id: int64 not null
    price: decimal128(12, 2)
    """
    if len(text) > MAX_TEXT:
        raise InvalidRequest(f"a schema of {len(text):,} characters", next_step="Use --like")
    try:
        tree = _grammar().parse(text)
        return pa.schema(_Fields(text).transform(tree))
    except UnexpectedInput as error:
        place = getattr(error, "pos_in_stream", None)
        at = len(text) if place is None or place < 0 else int(place)
        raise InvalidPredicate(
            "the schema does not parse", text=text, position=at, next_step=_EXAMPLE
        ) from None
    except VisitError as error:
        if isinstance(error.orig_exc, InlayError):
            raise error.orig_exc from None
        raise


@cache
def _grammar() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True)


@v_args(inline=True)
class _Fields(Transformer[Token, Any]):
    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def start(self, columns: list[pa.Field]) -> list[pa.Field]:
        return columns

    def columns(self, *columns: pa.Field | None) -> list[pa.Field]:
        return [each for each in columns if each is not None]

    def column(self, name: str, kind: pa.DataType, required: Token | None) -> pa.Field:
        return pa.field(name, kind, nullable=required is None)

    member = column

    def plain(self, word: Token) -> str:
        return str(word)

    def quoted(self, word: Token) -> str:
        return str(word)[1:-1].replace('""', '"')

    def simple(self, word: Token) -> pa.DataType:
        return self._type(str(word), word)

    def with_arguments(self, word: Token, *arguments: str) -> pa.DataType:
        return self._type(f"{word}({','.join(arguments)})", word)

    def argument(self, word: Token) -> str:
        return str(word)

    def list_of(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def map_of(self, key: pa.DataType, value: pa.DataType) -> pa.DataType:
        return pa.map_(key, value)

    def struct_of(self, *members: pa.Field) -> pa.DataType:
        return pa.struct(members)

    def _type(self, text: str, at: Token) -> pa.DataType:
        name = text.lower().replace("numeric(", "decimal(")
        if name.startswith("varchar("):
            name = "string"
        try:
            return arrow_primitive(parse_primitive(_ALIASES.get(name, name)))
        except InvalidRequest as error:
            raise InvalidPredicate(
                error.message,
                text=self._text,
                position=at.start_pos,
                next_step="Types: "
                "bool, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, "
                "date, time, timestamp, timestamptz, list<…>, map<…, …>, struct<name: …>",
            ) from None
