"""Syntax trees: the structure of a text before names are bound to columns.

Promise: every node has its position in the text (`at`, the offset of its operator or first token), so that
later errors can point at it.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.format.binding import Written


@dataclass(frozen=True, slots=True)
class Name:
    """A column: parts of its path, each with whether it was quoted."""

    parts: tuple[tuple[str, bool], ...]
    at: int


@dataclass(frozen=True, slots=True)
class Given:
    """A literal; None is NULL."""

    value: Written | None
    at: int


@dataclass(frozen=True, slots=True)
class Calculation:
    op: str  # + - * /
    left: Syntax
    right: Syntax
    at: int


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


Syntax = Name | Given | Calculation | Compared | Between | OneOf | Matches | Is | Joined | Negated


def children(node: Syntax) -> tuple[Syntax, ...]:
    """The direct children, in the order of the text."""
    match node:
        case Calculation(_, left, right) | Compared(_, left, right):
            return left, right
        case Between(operand, low, high):
            return operand, low, high
        case OneOf(operand, items):
            return operand, *items
        case Matches(operand, pattern):
            return operand, pattern
        case Is(operand) | Negated(operand):
            return (operand,)
        case Joined(_, parts):
            return parts
        case Name() | Given():
            return ()
