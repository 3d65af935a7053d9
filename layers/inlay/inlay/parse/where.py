"""Plain conditions bound to a schema: syntax to the format's predicates.

Promise: the predicate means what SQL's three-valued logic says of the text, whatever the types'
limits. `is_plain` says which syntax is of that kind: columns with literals. A calendar function of a
column beside a literal is one, too: `year(at) = 2026` is a range of `at`. Everything else is calculated
(`parse.calculate`).

A plain string compared with a date, time or timestamp is read as one. A timestamp without a zone compared
with a `timestamptz` is UTC. In LIKE a backslash escapes the next character unless ESCAPE names another
character; ESCAPE '' means none does.
"""

from __future__ import annotations

from typing import cast

from inlay.errors import InvalidPredicate
from inlay.format.binding import (
    Day,
    Flag,
    Moment,
    Number,
    Text,
    Written,
    compare_with,
    for_values,
    is_in,
)
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
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.values import NANOS_PER_DAY
from inlay.parse.names import resolve
from inlay.parse.syntax import (
    DISTINCT,
    Between,
    Call,
    Cast,
    Compared,
    Given,
    Is,
    Joined,
    Matches,
    Name,
    Negated,
    OneOf,
    Span,
    Syntax,
)
from inlay.parse.times import (
    UNITS,
    days_of,
    next_start,
    read_clock,
    read_day,
    read_moment,
    truncated,
)

FLIPPED: dict[Operator, Operator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def is_plain(node: Syntax, schema: Schema) -> bool:
    """Whether the condition is one of the format's grammar. Names need not resolve."""
    match node:
        case Joined(_, parts):
            return all(is_plain(part, schema) for part in parts)
        case Negated(part):
            return is_plain(part, schema)
        case Compared(_, Name(), Given()) | Compared(_, Given(), Name()):
            return True
        case Compared(op, left, Given(value)) if op != DISTINCT:
            return value is not None and bucket_of(left, schema) is not None
        case Between(Name(), Given(), Given()):
            return True
        case Between(operand, Given(low), Given(high)) if low is not None and high is not None:
            return bucket_of(operand, schema) is not None
        case OneOf(Name(), items):
            return all(isinstance(item, Given) for item in items)
        case Matches(Name(), Given(), any_case=False):
            return True
        case Is(Name()) | Name() | Given(None | Flag()):
            return True
        case _:
            return False


def bucket_of(node: Syntax, schema: Schema) -> tuple[Name, str, str] | None:
    """The column of a calendar function, to which unit it goes down, and what it gives: a "year" or a
    "moment"."""
    match node:
        case Call("YEAR", (Name() as name,)):
            found = name, "year", "year"
        case Call("DATE_TRUNC", (Given(Text(unit)), Name() as name)) if unit.lower() in UNITS:
            found = name, unit.lower(), "moment"
        case Cast(Name() as name, Primitive("date")):
            found = name, "day", "moment"
        case _:
            return None
    try:
        kind = resolve(name, schema, "").type
    except InvalidPredicate:
        return None
    calendar = ("date", "timestamp", "timestamptz")
    return found if isinstance(kind, Primitive) and kind.name in calendar else None


class Binder:
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
            case Negated(Compared(op) as part) if op == DISTINCT:
                return self.same(part)
            case Negated(part):
                return Not(self.condition(part))
            case Compared(op) if op == DISTINCT:
                return Not(self.same(node))
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
            case _:
                raise self.error(node, "this is a value, not a condition")

    def comparison(self, node: Compared) -> Predicate:
        op = cast(Operator, node.op)
        left, right = node.left, node.right
        if isinstance(left, Given):
            left, right, op = right, left, FLIPPED[op]
        return self.compared(left, op, right)

    def same(self, node: Compared) -> Predicate:
        """IS NOT DISTINCT FROM: an equality that is never NULL."""
        subject, literal = node.left, node.right
        if isinstance(subject, Given):
            subject, literal = literal, subject
        field, _ = self.leaf(subject)
        if isinstance(literal, Given) and literal.value is None:
            return IsNull(field.id)
        return And((Not(IsNull(field.id)), self.compared(subject, "=", literal)))

    def compared(self, subject: Syntax, op: Operator, literal: Syntax) -> Predicate:
        bucket = bucket_of(subject, self.schema)
        if bucket is not None:
            return self.bucketed(*bucket, op, literal)
        field, kind = self.leaf(subject)
        value = self.literal(literal, kind)
        if value is None:
            return Constant(None)
        try:
            return compare_with(field.id, kind, op, value)
        except InvalidPredicate as error:
            message = f"{error.message} ({field.name!r})"
            raise self.error(literal, message, error.next_step) from None

    def bucketed(
        self, name: Name, unit: str, gives: str, op: Operator, literal: Syntax
    ) -> Predicate:
        """The start of the column's year, month … compared with a literal, as a range of the column."""
        field, kind = self.leaf(name)
        if gives == "year":
            match literal:
                case Given(Number(year)) if year == year.to_integral_value() and abs(year) < 10**5:
                    value: Written | None = Day(days_of(int(year), 1, 1))
                case _:
                    raise self.error(literal, "a year is a whole number of at most five digits")
        else:
            value = self.literal(literal, kind if kind.name != "date" else Primitive("timestamp"))
        zoned = kind.name == "timestamptz"
        match value:
            case Day(days):
                nanos = days * NANOS_PER_DAY
            case Moment(nanos, zoned=with_zone) if zoned or not with_zone:
                pass
            case _:
                raise self.error(literal, "a date or a timestamp is compared with one")
        start = truncated(nanos, unit)
        after = Moment(next_start(start, unit), zoned)
        first = Moment(start, zoned)
        exact = start == nanos

        def bound(op: Operator, moment: Moment) -> Predicate:
            return compare_with(field.id, kind, op, moment)

        match op:
            case "=" | "!=":
                within = And((bound(">=", first), bound("<", after)))
                found = within if exact else for_values(field.id, False)
                return Not(found) if op == "!=" else found
            case ">=" | "<":
                return bound(op, first if exact else after)
            case _:
                return bound(">=" if op == ">" else "<", after)

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
        if not isinstance(node, Given) or isinstance(node.value, Span):
            raise self.error(node, "a literal is needed here")
        if isinstance(node.value, Text) and kind.is_temporal:
            try:
                return read_as(kind, node.value.value)
            except ValueError as error:
                raise self.error(node, f"this string is not a {kind.name}: {error}") from None
        return node.value

    def error(self, node: Syntax, message: str, next_step: str = "") -> InvalidPredicate:
        return InvalidPredicate(message, text=self.text, position=node.at, next_step=next_step)


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
