"""Syntax trees: the structure of a text before names are bound to columns.

Promise: every node has its position in the text (`at`, the offset of its operator or first token), so that
later errors can point at it.
"""

from __future__ import annotations

from inlay.format.binding import Written
from inlay.format.schema import Primitive
from inlay.record import Record


class Span(Record):
    """An INTERVAL: months, and nanoseconds in addition."""

    months: int
    nanos: int


class Name(Record):
    """A column: parts of its path, each with whether it was quoted."""

    parts: tuple[tuple[str, bool], ...]
    at: int


class Given(Record):
    """A literal; None is NULL."""

    value: Written | Span | None
    at: int


class Calculation(Record):
    op: str  # + - * / % ||
    left: Syntax
    right: Syntax
    at: int


class Call(Record):
    """A function, its name in upper case. EXTRACT(year FROM x) is YEAR(x)."""

    function: str
    arguments: tuple[Syntax, ...]
    at: int


class Cast(Record):
    operand: Syntax
    to: Primitive
    at: int


class Case(Record):
    """The value of the first condition that is TRUE."""

    branches: tuple[tuple[Syntax, Syntax], ...]
    otherwise: Syntax
    at: int


class Element(Record):
    """`x[1]`, `m['key']`."""

    operand: Syntax
    index: Syntax
    at: int


class Member(Record):
    """`x[1].name`: a field of a struct that has no path of its own."""

    operand: Syntax
    name: str
    quoted: bool
    at: int


# The operator of IS DISTINCT FROM: never NULL, and NULL equals NULL.
DISTINCT = "distinct"


class Compared(Record):
    op: str
    left: Syntax
    right: Syntax
    at: int


class Between(Record):
    operand: Syntax
    low: Syntax
    high: Syntax
    negated: bool
    at: int


class OneOf(Record):
    operand: Syntax
    items: tuple[Syntax, ...]
    negated: bool
    at: int


class Matches(Record):
    operand: Syntax
    pattern: Syntax
    escape: str | None
    negated: bool
    at: int
    any_case: bool = False  # ILIKE


class Is(Record):
    operand: Syntax
    what: bool | None
    negated: bool
    at: int


class Joined(Record):
    op: str  # AND OR
    parts: tuple[Syntax, ...]
    at: int


class Negated(Record):
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
