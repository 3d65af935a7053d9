"""Schemas: columns with ids that never change meaning.

Promise: a column is identified by its *field id*. Names, order and (some) types may change from one schema
to the next; ids are never reused. Everything stored (statistics, predicates, markers) refers to ids. Ids
are assigned depth first when a column is first added and start at 1.

Pure: no Arrow here. `inlay.parquet.arrow.types` maps these types to Arrow and Parquet.

Values of a type are held in their *physical form*, which statistics and literals store and compare:

=============== ===================================================================
type            Python value
=============== ===================================================================
bool            ``bool``
int8 … uint64   ``int``
float, double   ``float``
decimal(p,s)    ``decimal.Decimal`` with scale s
string          ``str`` (order: Unicode code points, which is UTF-8 byte order)
binary fixed(n) ``bytes`` (order: unsigned bytes)
date            ``int`` days since 1970-01-01
time(u)         ``int`` units since midnight, u in ms us ns
timestamp(u)    ``int`` units since 1970-01-01T00:00:00 without a zone, u in s ms us ns
timestamptz(u)  ``int`` units since 1970-01-01T00:00:00Z
=============== ===================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from itertools import repeat
from typing import cast

from inlay.errors import InvalidRequest
from inlay.format.leaf_types import LEAF_TYPES, NUMERIC, TEMPORAL, Family, LeafName, LeafType
from inlay.record import Record

Value = bool | int | float | Decimal | str | bytes

# Parquet's ids are 32-bit numbers, whose last ones Iceberg keeps for itself; below them are those that
# `parquet/surgery/stamp` gives to columns that are not the table's.
MAX_FIELD_ID = 1_999_999_999
_TOP: tuple[str, ...] = ()
_WITH_ARGUMENTS = re.compile(r"([a-z0-9]+)(?:\(([^()]*)\))?")


class Primitive(Record):
    """A leaf type. `name` is without arguments: "decimal", "timestamp"."""

    name: LeafName
    precision: int = 0  # decimal: digits; fixed: bytes
    scale: int = 0  # decimal
    unit: str = ""  # time, timestamp, timestamptz

    def __str__(self) -> str:
        match self.row.arguments:
            case "":
                return self.name
            case "digits":
                return f"{self.name}({self.precision},{self.scale})"
            case "length":
                return f"{self.name}({self.precision})"
            case "unit":
                return f"{self.name}({self.unit})" if self.unit else self.name

    @property
    def row(self) -> LeafType:
        return LEAF_TYPES[self.name]

    @property
    def family(self) -> Family:
        return LEAF_TYPES[self.name].family

    @property
    def is_integer(self) -> bool:
        return LEAF_TYPES[self.name].family == "integer"

    @property
    def is_float(self) -> bool:
        return LEAF_TYPES[self.name].family == "float"

    @property
    def is_numeric(self) -> bool:
        return LEAF_TYPES[self.name].family in NUMERIC

    @property
    def is_temporal(self) -> bool:
        return LEAF_TYPES[self.name].family in TEMPORAL


class Struct(Record):
    fields: tuple[Field, ...]


class ListOf(Record):
    element: Field


class MapOf(Record):
    key: Field
    value: Field


Type = Primitive | Struct | ListOf | MapOf


def fields_within(kind: Type) -> tuple[Field, ...]:
    """The fields directly within a nested type, in the order of their ids; none for a primitive."""
    match kind:
        case Struct(fields):
            return fields
        case ListOf(element):
            return (element,)
        case MapOf(key, value):
            return key, value
        case Primitive():
            return ()


def with_fields(kind: Type, change: Callable[[Field], Field]) -> Type:
    """The type with each field directly within it changed."""
    match kind:
        case Struct(fields):
            return Struct(tuple(map(change, fields)))
        case ListOf(element):
            return ListOf(change(element))
        case MapOf(key, value):
            return MapOf(change(key), change(value))
        case Primitive():
            return kind


class Field(Record):
    """One column or nested field. `nullable` False guarantees that there are no nulls.

    `default` is the value of every row in a file without the column; NULL if there is none. Only
    primitives have one, and it never changes, because it is the value of rows already written.

    `in_partition`, of a column in a schema that files are recorded under: the files have no such column,
    and its value in every row of one is the value at this place of the entry's partition (docs/FORMAT.md,
    section 15)."""

    id: int
    name: str
    type: Type
    nullable: bool = True
    doc: str = ""
    default: Value | None = None
    in_partition: int | None = None


class Schema(Record, dict=True):
    """The columns of a table as of schema `id` (ids count from 0). `version` is the version of the table
    that introduced it."""

    id: int
    fields: tuple[Field, ...]
    version: int = 1

    def walk(self) -> Iterator[tuple[tuple[str, ...], Field]]:
        """Every field with its path, depth first; list elements are named "element", map entries "key"
        and "value"."""
        stack = list(zip(repeat(_TOP), reversed(self.fields)))
        while stack:
            above, field = stack.pop()
            path = (*above, field.name)
            yield path, field
            stack += zip(repeat(path), reversed(fields_within(field.type)))

    @cached_property
    def fields_by_id(self) -> Mapping[int, Field]:
        """Every field, nested ones too."""
        return {field.id: field for _, field in self.walk()}

    @cached_property
    def types(self) -> Mapping[int, Primitive]:
        """The type of every leaf, by field id."""
        every = self.fields_by_id.items()
        return {i: field.type for i, field in every if isinstance(field.type, Primitive)}

    def by_id(self, field_id: int) -> Field | None:
        return self.fields_by_id.get(field_id)

    @cached_property
    def in_partition(self) -> Mapping[int, Field]:
        """By id the columns that files recorded under the schema lack: their partitions have the values."""
        return {field.id: field for field in self.fields if field.in_partition is not None}

    @cached_property
    def _paths(self) -> Mapping[int, tuple[str, ...]]:
        return {field.id: path for path, field in self.walk()}

    def path_of(self, field_id: int) -> tuple[str, ...] | None:
        return self._paths.get(field_id)

    @cached_property
    def _by_name(self) -> Mapping[str, Field]:
        return {field.name: field for field in reversed(self.fields)}

    def column(self, name: str) -> Field | None:
        """A top-level column by its exact name."""
        return self._by_name.get(name)

    def resolve(self, path: tuple[str, ...]) -> Field | None:
        """A field by its path through structs only, never into lists or maps."""
        field = self.column(path[0]) if path else None
        for name in path[1:]:
            if field is None or not isinstance(field.type, Struct):
                return None
            field = next((f for f in field.type.fields if f.name == name), None)
        return field

    def path_named(self, text: str) -> tuple[str, ...] | None:
        """The path of the field that a user names, outside of SQL: the exact name of a column, a path with
        dots through structs, or one with parts in double quotes, as SQL takes them. Case counts.

        >>> Schema(0, (Field(1, "a b", Primitive("bool")),)).path_named('"a b"')
        ('a b',)
        """
        if self.column(text) is not None:
            return (text,)
        for path in (tuple(text.split(".")), split_path(text)):
            if path and self.resolve(path) is not None:
                return path
        return None

    def column_named(self, text: str) -> Field | None:
        """The column that a user names, as `path_named`."""
        path = self.path_named(text)
        return self.column(path[0]) if path is not None and len(path) == 1 else None

    def other_case(self, text: str) -> str:
        """The next step where a name is right but for its case; else ""."""
        name = ".".join(split_path(text) or (text,))
        return right_case(name, [".".join(path) for path, _ in self.walk()])

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def max_id(self) -> int:
        return max(self.fields_by_id, default=0)


_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')


def right_case(asked: str, names: Collection[str]) -> str:
    """The next step where `asked` is one of these names but for its case; else ""."""
    alike = (name for name in names if name.casefold() == asked.casefold())
    name = next(alike, None) if asked not in names else None
    return "" if name is None else f"Did you mean {name!r}? The case of names counts here"


def split_path(text: str) -> tuple[str, ...] | None:
    """`address.city`, `"odd.name".x` as paths; None for what is neither.

    >>> split_path('"odd.name"."a ""b"')
    ('odd.name', 'a "b')
    """
    parts: list[str] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        end = match.end() if match else at
        if match is None or (end < len(text) and text[end] != "."):
            return None
        quoted, plain = match.groups()
        parts.append(plain if quoted is None else quoted.replace('""', '"'))
        at = end + 1
    return tuple(parts) if parts and at == len(text) + 1 else None


_LISTED = re.compile(r'"(?:[^"]|"")*"|.', re.DOTALL)


def listed_names(text: str, *, calls: bool = False, plain: bool = False) -> tuple[str, ...]:
    """The names of a text that lists them, as they are written there: commas within double quotes do not
    separate, nor with `calls` those within brackets; blanks around a name are not part of it. `plain`:
    names in double quotes without these, for what knows no table yet.

    >>> listed_names('a, "b, c"')
    ('a', '"b, c"')
    >>> listed_names('"b, c", b.c', plain=True)
    ('b, c', 'b.c')
    >>> listed_names("day(ts), bucket(16, id)", calls=True)
    ('day(ts)', 'bucket(16, id)')
    """
    names, depth = [""], 0
    for part in _LISTED.findall(text):
        depth += {"(": 1, ")": -1}.get(part, 0) if calls else 0
        if part == "," and depth == 0:
            names.append("")
        else:
            names[-1] += part
    listed = tuple(name.strip() for name in names if name.strip())
    return tuple(map(_unquoted, listed)) if plain else listed


def _unquoted(name: str) -> str:
    path = split_path(name) if name.startswith('"') else None
    return path[0] if path is not None and len(path) == 1 else name


# What may be in double quotes before `=`: a name, or the parts of a path.
_QUOTED = re.compile(r'\s*"(?:[^"]|"")*"(?:[^="]*\."(?:[^"]|"")*")*')


def cut_at_equals(text: str) -> tuple[str, str, str]:
    """`NAME=VALUE` as `str.partition` cuts it, but not at a `=` within the double quotes of a name.

    >>> cut_at_equals('"a=b"=1')
    ('"a=b"', '=', '1')
    """
    quoted = _QUOTED.match(text)
    head = quoted[0] if quoted else ""
    name, equals, value = text[len(head) :].partition("=")
    return head + name, equals, value


# -- types as text --------------------------------------------------------------------------------


def parse_primitive(text: str) -> Primitive:
    """`"decimal(12,2)"` → `Primitive`.

    >>> parse_primitive("timestamp(us)").unit
    'us'
    """
    match = _WITH_ARGUMENTS.fullmatch(text)
    if match is not None and match[1] in LEAF_TYPES:
        name, given = cast(LeafName, match[1]), match[2]
        row = LEAF_TYPES[name]
        match row.arguments:
            case "" if given is None:
                return Primitive(name)
            case "digits" if given is not None:
                digits, _, scale = given.partition(",")
                if digits.isdigit() and scale.lstrip("-").isdigit() and 1 <= int(digits) <= 76:
                    return Primitive(name, precision=int(digits), scale=int(scale))
            case "length" if given is not None and given.isdigit() and int(given) > 0:
                return Primitive(name, precision=int(given))
            case "unit" if given in row.units:
                return Primitive(name, unit=given)
            case _:  # refused below
                pass
    raise InvalidRequest(
        f"unknown type {text[:80]!r}", next_step="docs/FORMAT.md lists the types a column can have"
    )
