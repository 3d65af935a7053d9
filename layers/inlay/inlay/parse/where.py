"""Conditions bound to a schema: syntax to predicate.

Promise: the predicate follows SQL's three-valued logic, whatever the types' limits; what the grammar
accepts and the format does not have (column against column, arithmetic, a subject that is not a column) is
refused with its position.

A plain string compared with a date, time or timestamp is read as one. A timestamp without a zone compared
with a `timestamptz` is UTC. In LIKE a backslash escapes the next character unless ESCAPE names another
character; ESCAPE '' means none does.
"""

from __future__ import annotations

from typing import cast

from inlay.errors import InvalidPredicate
from inlay.format.binding import Flag, Text, Written, compare_with, is_in
from inlay.format.like import parse_like
from inlay.format.predicate import (
    And,
    Constant,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
)
from inlay.format.predicate_json import check_bounds
from inlay.format.schema import Field, Primitive, Schema
from inlay.parse.grammar import parse_text
from inlay.parse.names import resolve
from inlay.parse.syntax import (
    Between,
    Calculation,
    Compared,
    Given,
    Is,
    Joined,
    Matches,
    Name,
    Negated,
    OneOf,
    Syntax,
)
from inlay.parse.times import read_clock, read_day, read_moment

_FLIPPED: dict[Operator, Operator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def parse_predicate(text: str, schema: Schema) -> Predicate:
    """A WHERE text as a predicate on `schema`. Raises InvalidPredicate with the position."""
    try:
        return check_bounds(_Binder(text, schema).condition(parse_text(text)))
    except InvalidPredicate as error:
        error.text = error.text or text
        raise


class _Binder:
    """One text and its schema, for errors and names. Depth is bounded by `parse_text`."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema

    def condition(self, node: Syntax) -> Predicate:
        match node:
            case Joined("AND", parts):
                return And(tuple(self.condition(part) for part in parts))
            case Joined(_, parts):
                return Or(tuple(self.condition(part) for part in parts))
            case Negated(part):
                return Not(self.condition(part))
            case Compared():
                return self.comparison(node)
            case Between():
                return self.between(node)
            case OneOf():
                return self.one_of(node)
            case Matches():
                return self.matches(node)
            case Is():
                return self.is_test(node)
            case Given(None):
                return Constant(None)
            case Given(Flag(value)):
                return Constant(value)
            case Name():
                field = resolve(node, self.schema, self.text)
                if field.type != Primitive("bool"):
                    raise self.error(
                        node, f"column {field.name!r} is not boolean, so it is not a condition"
                    )
                return compare_with(field.id, field.type, "=", Flag(True))
            case Given() | Calculation():
                raise self.error(node, "this is a value, not a condition")

    def comparison(self, node: Compared) -> Predicate:
        op = cast(Operator, node.op)
        left, right = node.left, node.right
        if isinstance(left, Name) and isinstance(right, Name):
            raise self.error(
                right,
                "a column cannot be compared with a column",
                _as_string(right)
                or "Compare it with a literal, or read the rows and filter them yourself",
            )
        if isinstance(left, Given) and isinstance(right, Name):
            left, right, op = right, left, _FLIPPED[op]
        return self.compared(left, op, right)

    def compared(self, subject: Syntax, op: Operator, literal: Syntax) -> Predicate:
        field, kind = self.leaf(subject)
        value = self.literal(literal, kind)
        if value is None:
            return Constant(None)
        try:
            return compare_with(field.id, kind, op, value)
        except InvalidPredicate as error:
            message = f"{error.message} ({field.name!r})"
            raise self.error(literal, message, error.next_step) from None

    def between(self, node: Between) -> Predicate:
        low = self.compared(node.operand, ">=", node.low)
        both = And((low, self.compared(node.operand, "<=", node.high)))
        return Not(both) if node.negated else both

    def one_of(self, node: OneOf) -> Predicate:
        field, kind = self.leaf(node.operand)
        values = [self.literal(item, kind) for item in node.items]
        try:
            found = is_in(field.id, kind, values)
        except InvalidPredicate:
            # Once more, one by one, to point at the one that does not fit.
            for item, value in zip(node.items, values, strict=True):
                if value is not None:
                    self.compared(node.operand, "=", item)
            raise
        return Not(found) if node.negated else found

    def matches(self, node: Matches) -> Predicate:
        field, kind = self.leaf(node.operand)
        if kind.name != "string":
            raise self.error(node, f"LIKE needs a string column; {field.name!r} is {kind}")
        match node.pattern:
            case Given(None):
                found: Predicate = Constant(None)
            case Given(Text(pattern)):
                found = Like(field.id, self.pattern(pattern, node))
            case _:
                raise self.error(node.pattern, "LIKE needs a string literal")
        return Not(found) if node.negated else found

    def pattern(self, pattern: str, node: Matches) -> str:
        """The pattern with backslash as the escape character, as the format requires."""
        escape = "\\" if node.escape is None else node.escape
        if len(escape) > 1:
            raise self.error(node, "ESCAPE takes one character, or '' for none")
        try:
            quoted = pattern if escape == "\\" else _requote(pattern, escape)
            parse_like(quoted)
        except InvalidPredicate as error:
            raise self.error(node.pattern, error.message, error.next_step) from None
        return quoted

    def is_test(self, node: Is) -> Predicate:
        if not isinstance(node.operand, Name):
            raise self.error(node.operand, "IS needs a column before it")
        field = resolve(node.operand, self.schema, self.text)
        found: Predicate = IsNull(field.id)
        if node.what is not None:
            if field.type != Primitive("bool"):
                raise self.error(
                    node, f"IS TRUE and IS FALSE need a boolean; {field.name!r} is not one"
                )
            value = compare_with(field.id, field.type, "=", Flag(node.what))
            found = And((Not(found), value))
        return Not(found) if node.negated else found

    def leaf(self, node: Syntax) -> tuple[Field, Primitive]:
        """The column that a condition is on, and its type."""
        if isinstance(node, Calculation):
            raise self.error(
                node,
                "arithmetic is not supported in a WHERE",
                "Move the arithmetic to the literal: x > 5 instead of x - 5 > 0",
            )
        if not isinstance(node, Name):
            raise self.error(node, "a column is needed here")
        field = resolve(node, self.schema, self.text)
        if not isinstance(field.type, Primitive):
            raise self.error(
                node,
                f"column {field.name!r} is nested; it supports only IS NULL",
                "Name a field inside a struct by its path: a.b",
            )
        return field, field.type

    def literal(self, node: Syntax, kind: Primitive) -> Written | None:
        if isinstance(node, Calculation):
            raise self.error(node, "arithmetic is not supported in a WHERE", "Write the result")
        if not isinstance(node, Given):
            raise self.error(node, "a literal is needed here", _as_string(node))
        if isinstance(node.value, Text) and kind.is_temporal:
            try:
                return read_as(kind, node.value.value)
            except ValueError as error:
                raise self.error(node, f"this string is not a {kind.name}: {error}") from None
        return node.value

    def error(self, node: Syntax, message: str, next_step: str = "") -> InvalidPredicate:
        return InvalidPredicate(message, text=self.text, position=node.at, next_step=next_step)


def _as_string(node: Syntax) -> str:
    """Advice for strings in double quotes, as some other dialects have them."""
    quoted = isinstance(node, Name) and node.parts[0][1]
    return "Strings are in single quotes; double quotes are for names" if quoted else ""


def read_as(kind: Primitive, text: str) -> Written:
    """A plain string as a literal of a temporal type. The ValueError states what is wrong."""
    if kind.name == "date":
        return read_day(text)
    return read_clock(text) if kind.name == "time" else read_moment(text)


def _requote(pattern: str, escape: str) -> str:
    found: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise InvalidPredicate("the ESCAPE character can precede only %, _ and itself")
            found.append("\\" + following if following in "%_\\" else following)
        else:
            found.append("\\\\" if character == "\\" else character)
    return "".join(found)
