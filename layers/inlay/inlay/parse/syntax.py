"""Syntax trees: the structure of a text before names are bound to columns.

Promise: every node has its position in the text (`at`, the offset of its operator or first token), so that
later errors can point at it.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.format.binding import Written
from inlay.format.schema import Primitive


@dataclass(frozen=True, slots=True)
class Span:
    """An INTERVAL: months, and nanoseconds in addition."""

    months: int
    nanos: int


@dataclass(frozen=True, slots=True)
class Name:
    """A column: parts of its path, each with whether it was quoted."""

    parts: tuple[tuple[str, bool], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Given:
    """A literal; None is NULL."""

    value: Written | Span | None
    at: int


@dataclass(frozen=True, slots=True)
class Calculation:
    op: str  # + - * / % ||
    left: Syntax
    right: Syntax
    at: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function, its name in upper case. EXTRACT(year FROM x) is YEAR(x)."""

    function: str
    arguments: tuple[Syntax, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Cast:
    operand: Syntax
    to: Primitive
    at: int


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first condition that is TRUE."""

    branches: tuple[tuple[Syntax, Syntax], ...]
    otherwise: Syntax
    at: int


@dataclass(frozen=True, slots=True)
class Element:
    """`x[1]`, `m['key']`."""

    operand: Syntax
    index: Syntax
    at: int


@dataclass(frozen=True, slots=True)
class Member:
    """`x[1].name`: a field of a struct that has no path of its own."""

    operand: Syntax
    name: str
    quoted: bool
    at: int


# The operator of IS DISTINCT FROM: never NULL, and NULL equals NULL.
DISTINCT = "distinct"


@dataclass(frozen=True, slots=True)
class Compared:
    op: str
    left: Syntax
    right: Syntax
    at: int


@dataclass(frozen=True, slots=True)
class Between:
    operand: Syntax
    low: Syntax
    high: Syntax
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class OneOf:
    operand: Syntax
    items: tuple[Syntax, ...]
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Matches:
    operand: Syntax
    pattern: Syntax
    escape: str | None
    negated: bool
    at: int
    any_case: bool = False  # ILIKE


@dataclass(frozen=True, slots=True)
class Is:
    operand: Syntax
    what: bool | None
    negated: bool
    at: int


@dataclass(frozen=True, slots=True)
class Joined:
    op: str  # AND OR
    parts: tuple[Syntax, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Negated:
    part: Syntax
    at: int


Syntax = (
    Name
    | Given
    | Calculation
    | Call
    | Cast
    | Case
    | Element
    | Member
    | Compared
    | Between
    | OneOf
    | Matches
    | Is
    | Joined
    | Negated
)
