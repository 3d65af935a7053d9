"""Plain conditions bound to a schema: syntax to the format's predicates.

Promise: the predicate means what the text means in SQL's three-valued logic, whatever the limits of the
types. `is_plain` decides which conditions are plain: columns compared with literals, and calendar functions
of a column compared with a literal: `year(at) = 2026` is a range of `at`. Everything else is calculated
(`parse.calculate`).

A plain string compared with a date, time or timestamp is read as one. A timestamp without a zone compared
with a `timestamptz` is UTC. In LIKE a backslash escapes the next character unless ESCAPE names another
character; ESCAPE '' means none does.

What does not depend on a row is calculated first: `fold` gives the same tree with a literal for each exact
calculation with literals alone. `now() - INTERVAL '7 days'` is one moment for all rows of a statement, and
the condition around it a plain one, which prunes files and can be stored. What cannot be exact (a quotient)
stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import cast

from inlay.errors import InvalidPredicate
from inlay.format.binding import (
    Clock,
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
from inlay.format.predicate import (
    And,
    Constant,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    parse_like,
)
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.values import EXACT, NANOS_PER_DAY, days_of, integer_range
from inlay.parse.grammar import rebuilt, refused, resolve
from inlay.parse.syntax import (
    DISTINCT,
    Between,
    Calculation,
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
    next_start,
    read_clock,
    read_day,
    read_moment,
    shifted,
    truncated,
)

_MOMENTS = ("NOW", "CURRENT_TIMESTAMP")
_DAYS = ("CURRENT_DATE", "TODAY")
_MAX_DIGITS = 76


class ConstantFolder:
    """Folds one text. `timed`: whether the text uses the time, which is asked for once."""

    def __init__(self, schema: Schema, now: Callable[[], int] | None) -> None:
        self.now = now
        self.columns = {field.name.casefold() for field in schema.fields}
        self.moment: Moment | None = None

    @property
    def timed(self) -> bool:
        return self.moment is not None

    def fold(self, node: Syntax) -> Syntax:
        match node:
            case Name(((word, False),), at) if word.upper() in (*_DAYS[:1], *_MOMENTS[1:]):
                if word.casefold() in self.columns:
                    return node
                return self.time(word.upper(), at)
            case Name() | Given():
                return node
            case Call(function, (), at) if function in (*_MOMENTS, *_DAYS):
                return self.time(function, at)
        folded = rebuilt(node, self.fold)
        match folded:
            case Call():
                return _truncated(folded)
            case Calculation():
                return self.calculation(folded)
            case Cast():
                return self.cast(folded)
            case _:  # nothing else has a value without a row
                return folded

    def time(self, word: str, at: int) -> Given:
        if self.now is None:
            raise InvalidPredicate(
                f"{word} is not known here: the condition may be evaluated later",
                position=at,
                next_step="Write the time: TIMESTAMPTZ '2026-01-31 12:00:00'",
            )
        self.moment = self.moment or Moment(self.now() * 1_000, zoned=True)
        day = Day(self.moment.value // NANOS_PER_DAY)
        return Given(day if word in _DAYS else self.moment, at)

    def calculation(self, node: Calculation) -> Syntax:
        if not isinstance(node.left, Given) or not isinstance(node.right, Given):
            return node
        try:
            folded = _calculated(node.op, node.left.value, node.right.value)
        except ValueError as error:
            raise refused(node, str(error)) from None
        return node if folded is None else Given(folded, node.left.at)

    def cast(self, node: Cast) -> Syntax:
        if not isinstance(node.operand, Given):
            return node
        try:
            folded = _as_type(node.operand.value, node.to)
        except ValueError as error:
            raise refused(node, f"this is not a {node.to}: {error}") from None
        return node if folded is None else Given(folded, node.operand.at)


def _calculated(
    op: str, left: Written | Span | None, right: Written | Span | None
) -> Written | None:
    match op, left, right:
        case "+" | "-" | "*", Number(one), Number(other) if one.is_finite() and other.is_finite():
            result = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[op](one, other)
            fits = result.is_finite() and len(result.as_tuple().digits) <= _MAX_DIGITS
            return Number(result) if fits else None
        case "+" | "-", Day(days), Number(count) if count == count.to_integral_value():
            return Day(days + int(count if op == "+" else -count))
        case "-", Day(one), Day(other):
            return Number(Decimal(one - other))
        case "+" | "-", Day() | Moment(), Span(months, nanos):
            span = right if op == "+" else Span(-months, -nanos)
            assert isinstance(left, Day | Moment) and isinstance(span, Span)
            zoned = isinstance(left, Moment) and left.zoned
            start = left.value * NANOS_PER_DAY if isinstance(left, Day) else left.value
            return Moment(shifted(start, span), zoned)
        case _:  # not of constants: calculated for each row
            return None


def _truncated(call: Call) -> Syntax:
    match call:
        case Call("DATE_TRUNC", (Given(Text(unit)), Given(Day(days)))) if unit.lower() in UNITS:
            start = truncated(days * NANOS_PER_DAY, unit.lower())
            return Given(Day(start // NANOS_PER_DAY), call.at)
        case Call("DATE_TRUNC", (Given(Text(unit)), Given(Moment(nanos, zoned)))) if (
            unit.lower() in UNITS
        ):
            return Given(Moment(truncated(nanos, unit.lower()), zoned), call.at)
    return call


def _as_type(value: Written | Span | None, to: Primitive) -> Written | Span | None:
    """The literal cast to a type; None where that is left to the evaluation. Raises ValueError where the
    literal is not a value of the type."""
    match to.name, value:
        case ("date", Day()) | ("time", Clock()) | ("string", Text()) | ("bool", Flag()):
            return value
        case "date", Text(text):
            return read_day(text.strip())
        case "time", Text(text):
            return read_clock(text.strip())
        case "date", Moment(nanos):
            return Day(nanos // NANOS_PER_DAY)
        case "timestamp" | "timestamptz", Text(text):
            moment = read_moment(text.strip())
            if to.name == "timestamp" and moment.zoned:
                raise ValueError("a timestamp has no zone, a timestamptz has one")
            return Moment(moment.value, to.name == "timestamptz")
        case "timestamp" | "timestamptz", Moment(nanos):
            return Moment(nanos, to.name == "timestamptz")
        case "timestamp" | "timestamptz", Day(days):
            return Moment(days * NANOS_PER_DAY, to.name == "timestamptz")
        case _, Number(number) if to.is_integer and number.is_finite():
            least, greatest = integer_range(to) or (0, 0)
            if least - 1 < number < greatest + 1:  # else EXACT has no room for the digits of 1e300
                whole = number.quantize(Decimal(1), ROUND_HALF_UP, EXACT)
                if least <= whole <= greatest:
                    return Number(whole)
            raise ValueError("the number is beyond the type's range")
    return None


FLIPPED: dict[Operator, Operator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def is_plain(node: Syntax, schema: Schema) -> bool:
    """Whether the condition can be a predicate of the format. Names need not resolve."""
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
        case _:  # then it is calculated
            return False


def bucket_of(node: Syntax, schema: Schema) -> tuple[Name, str, str] | None:
    """The column of a calendar function, to which unit it goes down, and what it gives: a "year" or a
    "moment"."""
    match node:
        case Call("YEAR", (Name() as name,)):
            bucket = name, "year", "year"
        case Call("DATE_TRUNC", (Given(Text(unit)), Name() as name)) if unit.lower() in UNITS:
            bucket = name, unit.lower(), "moment"
        case Cast(Name() as name, Primitive("date")):
            bucket = name, "day", "moment"
        case _:  # no bucket: then it is calculated
            return None
    try:
        kind = resolve(name, schema).type
    except InvalidPredicate:
        return None
    calendar = ("date", "timestamp", "timestamptz")
    return bucket if isinstance(kind, Primitive) and kind.name in calendar else None


class Binder:
    """Binds to one schema. Depth is bounded by `parse_text`."""

    def __init__(self, schema: Schema) -> None:
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
                field = resolve(node, self.schema)
                if field.type != Primitive("bool"):
                    raise refused(
                        node, f"column {field.name!r} is not boolean, so it is not a condition"
                    )
                return compare_with(field.id, field.type, "=", Flag(True))
            case _:
                raise refused(node, "this is a value, not a condition")

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
            raise refused(literal, message, error.next_step) from None

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
                    raise refused(literal, "a year is a whole number of at most five digits")
        else:
            value = self.literal(literal, kind if kind.name != "date" else Primitive("timestamp"))
        zoned = kind.name == "timestamptz"
        match value:
            case Day(days):
                nanos = days * NANOS_PER_DAY
            case Moment(nanos, zoned=with_zone) if zoned or not with_zone:
                pass
            case _:
                raise refused(literal, "a date or a timestamp is compared with one")
        start = truncated(nanos, unit)
        after = Moment(next_start(start, unit), zoned)
        first = Moment(start, zoned)
        exact = start == nanos

        def bound(op: Operator, moment: Moment) -> Predicate:
            return compare_with(field.id, kind, op, moment)

        match op:
            case "=" | "!=":
                within = And((bound(">=", first), bound("<", after)))
                selected = within if exact else for_values(field.id, False)
                return Not(selected) if op == "!=" else selected
            case ">=" | "<":
                return bound(op, first if exact else after)
            case ">" | "<=":
                return bound(">=" if op == ">" else "<", after)

    def between(self, node: Between) -> Predicate:
        low = self.compared(node.operand, ">=", node.low)
        both = And((low, self.compared(node.operand, "<=", node.high)))
        return Not(both) if node.negated else both

    def one_of(self, node: OneOf) -> Predicate:
        field, kind = self.leaf(node.operand)
        values = [self.literal(item, kind) for item in node.items]
        try:
            bound = is_in(field.id, kind, values)
        except InvalidPredicate:
            # Once more, one by one, to point at the one that does not fit.
            for item, value in zip(node.items, values, strict=True):
                if value is not None:
                    self.compared(node.operand, "=", item)
            raise
        return Not(bound) if node.negated else bound

    def matches(self, node: Matches) -> Predicate:
        field, kind = self.leaf(node.operand)
        if kind.name != "string":
            raise refused(node, f"LIKE needs a string column; {field.name!r} is {kind}")
        match node.pattern:
            case Given(None):
                bound: Predicate = Constant(None)
            case Given(Text(pattern)):
                bound = Like(field.id, self.pattern(pattern, node))
            case _:
                raise refused(node.pattern, "LIKE needs a string literal")
        return Not(bound) if node.negated else bound

    def pattern(self, pattern: str, node: Matches) -> str:
        """The pattern with backslash as the escape character, as the format requires."""
        escape = "\\" if node.escape is None else node.escape
        if len(escape) > 1:
            raise refused(node, "ESCAPE takes one character, or '' for none")
        try:
            quoted = pattern if escape == "\\" else _requote(pattern, escape)
            parse_like(quoted)
        except InvalidPredicate as error:
            raise refused(node.pattern, error.message, error.next_step) from None
        return quoted

    def is_test(self, node: Is) -> Predicate:
        if not isinstance(node.operand, Name):
            raise refused(node.operand, "IS needs a column before it")
        field = resolve(node.operand, self.schema)
        bound: Predicate = IsNull(field.id)
        if node.what is not None:
            if field.type != Primitive("bool"):
                raise refused(
                    node, f"IS TRUE and IS FALSE need a boolean; {field.name!r} is not one"
                )
            value = compare_with(field.id, field.type, "=", Flag(node.what))
            bound = And((Not(bound), value))
        return Not(bound) if node.negated else bound

    def leaf(self, node: Syntax) -> tuple[Field, Primitive]:
        """The column that a condition is on, and its type."""
        if not isinstance(node, Name):
            raise refused(node, "a column is needed here")
        field = resolve(node, self.schema)
        if not isinstance(field.type, Primitive):
            raise refused(
                node,
                f"column {field.name!r} is nested; it supports only IS NULL",
                "Name a field inside a struct by its path: a.b",
            )
        return field, field.type

    def literal(self, node: Syntax, kind: Primitive) -> Written | None:
        if not isinstance(node, Given) or isinstance(node.value, Span):
            raise refused(node, "a literal is needed here")
        if isinstance(node.value, Text) and kind.is_temporal:
            return read_as(kind, node.value.value, node)
        return node.value


def read_as(kind: Primitive, text: str, at: Syntax) -> Written:
    """A plain string as a literal of a temporal type."""
    try:
        if kind.family == "date":
            return read_day(text)
        return read_clock(text) if kind.family == "time" else read_moment(text)
    except ValueError as error:
        raise refused(at, f"this string is not a {kind.name}: {error}") from None


def _requote(pattern: str, escape: str) -> str:
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise InvalidPredicate("the ESCAPE character can precede only %, _ and itself")
            parts.append("\\" + following if following in "%_\\" else following)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)
