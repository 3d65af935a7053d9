"""Calculated conditions and values bound to a schema: syntax to expressions.

Promise: an expression has one type, known before a row is read; what types do not allow is refused at its
place, with what to write instead. Only numbers among numbers, and dates and texts next to a timestamp, are
converted implicitly; everything else needs a CAST.

docs/SQL.md is the reference of the functions; `parquet.arrow.calculate` evaluates them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from difflib import get_close_matches
from typing import TypeVar

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.binding import Clock, Day, Flag, Moment, Number, Octets, Text, neighbours
from inlay.format.expression import (
    Apply,
    Column,
    Constant,
    Expression,
    Test,
)
from inlay.format.leaf_types import NUMERIC, Family, LeafName
from inlay.format.predicate import TRUE, And, Like, Or, Predicate, check_bounds, quote_like
from inlay.format.schema import ListOf, MapOf, Primitive, Schema, Struct, Type
from inlay.parse.grammar import over_many_rows, refused, resolve
from inlay.parse.syntax import (
    Between,
    Calculation,
    Call,
    Case,
    Cast,
    Compared,
    Element,
    Given,
    Is,
    Joined,
    Matches,
    Member,
    Name,
    Negated,
    OneOf,
    Span,
    Syntax,
)
from inlay.parse.times import UNITS
from inlay.parse.where import Binder, is_plain, read_as

# Of the widest decimal; numbers with more of them are doubles.
WIDEST_DIGITS = 76
BOOL = Primitive("bool")
WHOLE = Primitive("int64")
DOUBLE = Primitive("double")
STRING = Primitive("string")
DATE = Primitive("date")
_T = TypeVar("_T")
_CALENDAR = ("date", "timestamp", "timestamptz")
_INSTANTS = ("timestamp", "timestamptz")
_WITH_UNITS: tuple[LeafName, ...] = ("timestamptz", "timestamp", "time")

# Parts of a date, and of a time of day.
_OF_DATES = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "WEEK": "week",
    "DAY": "day",
    "DAYOFMONTH": "day",
    "DAYOFWEEK": "dayofweek",
    "DOW": "dayofweek",
    "DAYOFYEAR": "dayofyear",
    "DOY": "dayofyear",
}
_OF_TIMES = {"HOUR": "hour", "MINUTE": "minute", "SECOND": "second"}
_OF_TEXTS = {"LOWER": "lower", "LCASE": "lower", "UPPER": "upper", "UCASE": "upper"}
_OF_NUMBERS = {"FLOOR": "floor", "CEIL": "ceil", "CEILING": "ceil", "ABS": "abs"}
_AGGREGATES = ("SUM", "COUNT", "AVG", "MIN", "MAX")


def calculated(root: Syntax, schema: Schema) -> tuple[Predicate, Expression]:
    """A condition that is no predicate: the predicate that it implies, and all of it."""
    parts = root.parts if isinstance(root, Joined) and root.op == "AND" else (root,)
    binder = Calculator(schema)
    bound = [binder.condition(part) for part in parts]
    predicate = check_bounds(implied(Apply("and", tuple(bound), BOOL)))
    # Plain parts are evaluated first, calculations only on the rows that these leave.
    bound.sort(key=lambda part: not isinstance(part, Test))
    return predicate, bound[0] if len(bound) == 1 else Apply("and", tuple(bound), BOOL)


class Calculator:
    """Binds to one schema. Depth is bounded by `parse_text`."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.plain = Binder(schema)

    # -- conditions ---------------------------------------------------------------------------

    def condition(self, node: Syntax) -> Expression:
        made = self.expression(node)
        if made.type not in (BOOL, None):
            raise refused(node, f"this is a value of type {made.type}, not a condition")
        return made

    def expression(self, node: Syntax) -> Expression:
        """The typed expression of a syntax tree."""
        match node:
            case Given(Span()):
                raise refused(
                    node,
                    "an interval can only be added to or subtracted from a date or timestamp",
                    "Write at + INTERVAL '1 day'",
                )
            case Given(None):
                return Constant(None, None)
            case Given():
                return self.constant(node)
            case Name():
                return self.column(node)
            case Calculation():
                return self.calculation(node)
            case Call():
                return self.call(node)
            case Cast(operand, to):
                return self.cast(node, self.expression(operand), to)
            case Case():
                return self.case(node)
            case Element():
                return self.element(node)
            case Member():
                return self.member(node)
            case _ if is_plain(node, self.schema):
                return Test(self.plain.condition(node))
            case Joined(op, parts):
                return Apply(op.lower(), tuple(self.condition(part) for part in parts), BOOL)
            case Negated(part):
                return Apply("not", (self.condition(part),), BOOL)
            case Compared(op, left, right):
                return self.compared(node, op, left, right)
            case Between(operand, low, high, negated):
                both = (
                    self.compared(node, ">=", operand, low),
                    self.compared(node, "<=", operand, high),
                )
                return _negated(Apply("and", both, BOOL), negated)
            case OneOf(operand, items, negated):
                listed = Apply("in", tuple(self.together((operand, *items), node)), BOOL)
                return _negated(listed, negated)
            case Matches():
                return self.matches(node)
            case Is(operand, what, negated):
                if what is None:
                    return _negated(Apply("is null", (self.expression(operand),), BOOL), negated)
                asked = self.condition(operand)
                return _negated(Apply("is", (asked,), BOOL, what), negated)

    def compared(self, node: Syntax, op: str, left: Syntax, right: Syntax) -> Expression:
        one, other = self.together((left, right), node)
        kind = one.type or other.type
        if isinstance(kind, Struct | ListOf | MapOf):
            raise refused(
                node,
                "nested values are not compared as a whole",
                "Compare their fields or elements",
            )
        return Apply(op, (one, other), BOOL)

    def matches(self, node: Matches) -> Expression:
        subject = self.typed(node.operand, STRING, "LIKE and ILIKE take a string")
        match node.pattern:
            case Given(None):
                return Constant(None, BOOL)
            case Given(Text(pattern)):
                quoted = self.plain.pattern(pattern, node)
            case _:
                raise refused(
                    node.pattern, "a pattern is a text, not a column", "Use CONTAINS, or ="
                )
        function = "ilike" if node.any_case else "like"
        return _negated(Apply(function, (subject,), BOOL, quoted), node.negated)

    # -- values -------------------------------------------------------------------------------

    def constant(self, node: Given) -> Constant:
        match node.value:
            case Number(value):
                return _written_number(value)
            case Text(text):
                return Constant(text, STRING)
            case Flag(flag):
                return Constant(flag, BOOL)
            case Octets(data):
                return Constant(data, Primitive("binary"))
            case Day(days):
                return Constant(days, DATE)
            case Clock(nanos):
                return _in_unit(nanos, "time")
            case Moment(nanos, zoned):
                return _in_unit(nanos, "timestamptz" if zoned else "timestamp")
            case _:
                raise refused(node, "a value is needed here")

    def column(self, node: Name) -> Expression:
        try:
            field = resolve(node, self.schema, or_text=True)
        except InvalidPredicate as error:
            if node.parts[0][1]:
                error.next_step = "Strings are in single quotes; double quotes are for names"
            raise
        return Column(field.id, field.type)

    def calculation(self, node: Calculation) -> Expression:
        if node.op == "||":
            sides = (node.left, node.right)
            parts = [self.typed(side, STRING, "|| joins texts: CAST others") for side in sides]
            return Apply("concat", tuple(parts), STRING)
        if isinstance(node.right, Given) and isinstance(node.right.value, Span):
            return self.plus_interval(node, self.expression(node.left), node.right.value)
        left, right = self.expression(node.left), self.expression(node.right)
        kinds = [_name(left), _name(right)]
        if kinds == ["date", "date"] and node.op == "-":
            return Apply("days between", (left, right), WHOLE)
        if kinds[0] == "date" and node.op in "+-" and _family(right.type) == "integer":
            return Apply("days later", (left, right), DATE, node.op)
        for side, syntax in ((left, node.left), (right, node.right)):
            if not (side.type is None or _family(side.type) in NUMERIC):
                steps = {
                    "string": "Join texts with ||",
                    "timestamp": "Add an interval: at + INTERVAL '1 day'",
                }
                steps["timestamptz"] = steps["timestamp"]
                raise refused(
                    syntax,
                    f"arithmetic takes numbers: this is not a number but {_called(side)}",
                    steps.get(_name(side), ""),
                )
        return self.arithmetic(node, node.op, left, right)

    def arithmetic(self, node: Syntax, op: str, left: Expression, right: Expression) -> Expression:
        sides = (left, right)
        kinds = [side.type for side in sides if side.type is not None]
        floating = op == "/" or any(_family(kind) == "float" for kind in kinds)
        if op == "%":
            if not all(_family(kind) == "integer" for kind in kinds):
                raise refused(node, "% takes whole numbers", "CAST them, or write floor(x / y)")
            return Apply(op, sides, WHOLE)
        if floating:
            return Apply(op, (_floating(left), _floating(right)), DOUBLE)
        whole = all(_family(kind) == "integer" for kind in kinds)
        return Apply(op, sides, WHOLE if whole else Primitive("decimal", precision=WIDEST_DIGITS))

    def plus_interval(self, node: Calculation, operand: Expression, span: Span) -> Expression:
        kind = operand.type
        if node.op not in "+-" or not (isinstance(kind, Primitive) and kind.name in _CALENDAR):
            raise refused(
                node, "an interval can only be added to or subtracted from a date or timestamp"
            )
        nanos = span.nanos if node.op == "+" else -span.nanos
        months = span.months if node.op == "+" else -span.months
        unit = kind.unit if kind.unit in ("us", "ns") and nanos % 1_000 == 0 else "us"
        unit = "ns" if nanos % 1_000 else unit
        name: LeafName = "timestamp" if kind.name == "date" else kind.name
        return Apply("later", (operand,), Primitive(name, unit=unit), (months, nanos))

    def case(self, node: Case) -> Expression:
        values = self.together((*(value for _, value in node.branches), node.otherwise), node)
        parts: list[Expression] = []
        for (condition, _), value in zip(node.branches, values[:-1], strict=True):
            parts += [self.condition(condition), value]
        kind = next((v.type for v in values if v.type is not None), None)
        return Apply("case", (*parts, values[-1]), _common(values) or kind)

    def element(self, node: Element) -> Expression:
        subject = self.expression(node.operand)
        match subject.type:
            case ListOf(of):
                match node.index:
                    case Given(Number(at)) if at == at.to_integral_value() and abs(at) < 2**31:
                        return Apply("element", (subject,), of.type, int(at))
                raise refused(
                    node.index, "an element is named by a whole number", "The first is x[1]"
                )
            case MapOf(key, value):
                if not isinstance(node.index, Given) or isinstance(node.index.value, Span | None):
                    raise refused(node.index, "a key is a literal", "Write m['key']")
                assert isinstance(key.type, Primitive)
                near = neighbours(key.type, node.index.value)
                if not near.exact or near.below is None:
                    return Constant(None, value.type)
                return Apply("lookup", (subject,), value.type, Constant(near.below, key.type))
            case _:
                raise refused(
                    node, f"only lists and maps have elements: this is {_called(subject)}"
                )

    def member(self, node: Member) -> Expression:
        subject = self.expression(node.operand)
        if not isinstance(subject.type, Struct):
            raise refused(node, f"only structs have fields: this is {_called(subject)}")
        at = next((n for n, f in enumerate(subject.type.fields) if f.name == node.name), None)
        if at is None:
            names = ", ".join(f.name for f in subject.type.fields)
            raise refused(node, f"there is no field {node.name[:80]!r}", f"Fields are {names}")
        return Apply("member", (subject,), subject.type.fields[at].type, at)

    def cast(self, node: Cast, operand: Expression, to: Primitive) -> Expression:
        if operand.type is None:
            return Constant(None, to)
        if not _castable(operand.type, to):
            step = "CAST goes between numbers, from texts, and between dates and timestamps"
            if to.name == "string":
                step = "Compare dates with dates and numbers with numbers instead"
            raise refused(node, f"{_called(operand)} cannot be CAST to {to}", step)
        return Apply("cast", (operand,), to)

    # -- functions ----------------------------------------------------------------------------

    def call(self, node: Call) -> Expression:
        name, given = node.function, len(node.arguments)
        if name in _FUNCTIONS:
            bind, least, most = _FUNCTIONS[name]
            if least <= given <= most:
                return bind(self, node)
            takes = str(least) if least == most else f"{least} to {most}"
            plural = "" if takes == "1" else "s"
            raise refused(node, f"{name} takes {takes} argument{plural}, not {given}")
        if name in _AGGREGATES:
            raise over_many_rows(name, node)
        near = get_close_matches(name, _NAMES, n=1, cutoff=0.75)
        raise refused(
            node,
            f"there is no function {name[:40]}",
            f"Did you mean {near[0]}?"
            if near
            else "docs/SQL.md has the functions; for others read the rows, and filter them with "
            "pyarrow, DuckDB or Polars",
        )

    def change_case(self, node: Call) -> Expression:
        return Apply(_OF_TEXTS[node.function], (self.string(node),), STRING)

    def trim(self, node: Call) -> Expression:
        operand = self.string(node)
        characters = self.text(node.arguments[1]) if len(node.arguments) > 1 else " "
        return Apply(node.function.lower(), (operand,), STRING, characters)

    def search_text(self, node: Call) -> Expression:
        operand, text = self.string(node), self.text(node.arguments[1])
        if node.function == "STARTS_WITH" and isinstance(operand, Column):
            return Test(_begins(operand, text))
        return Apply(node.function.lower(), (operand,), BOOL, text)

    def floating_function(self, node: Call) -> Expression:
        return Apply(node.function.lower(), (_floating(self.number(node)),), DOUBLE)

    def numeric_function(self, node: Call) -> Expression:
        operand = self.number(node)
        return Apply(_OF_NUMBERS[node.function], (operand,), operand.type)

    def part_of_date(self, node: Call) -> Expression:
        takes = _CALENDAR if node.function in _OF_DATES else ("time", *_INSTANTS)
        operand = self.dated(node.arguments[0], node.function, takes)
        return Apply((_OF_DATES | _OF_TIMES)[node.function], (operand,), WHOLE)

    def date_part(self, node: Call) -> Expression:
        """DATE_PART('year', x) is YEAR(x)."""
        part = self.text(node.arguments[0]).upper()
        if part not in _OF_DATES and part not in _OF_TIMES:
            parts = ", ".join(sorted({*_OF_DATES, *_OF_TIMES})).lower()
            raise refused(node.arguments[0], "there is no such part", f"Parts: {parts}")
        return self.part_of_date(Call(part, node.arguments[1:], node.at))

    def regexp(self, node: Call) -> Expression:
        """A pattern that begins with plain characters implies LIKE, which prunes."""
        operand = self.string(node)
        pattern = self.text(node.arguments[1])
        options = self.text(node.arguments[2]) if len(node.arguments) > 2 else "c"
        if options not in ("c", "i"):
            raise refused(node.arguments[2], "the options are 'i' (any case) and 'c'")
        try:
            check_regular(pattern)
        except ValueError:
            raise refused(
                node.arguments[1],
                "this is not a regular expression",
                "Its syntax is RE2's, as in DuckDB: no look-around, no back references",
            ) from None
        whole = node.function == "REGEXP_FULL_MATCH"
        start = literal_start(pattern, whole=whole) if options == "c" else ""
        matches = Apply("regexp", (operand,), BOOL, (pattern, whole, options == "i"))
        if start and isinstance(operand, Column):
            return Apply("and", (Test(_begins(operand, start)), matches), BOOL)
        return matches

    def is_nan(self, node: Call) -> Expression:
        return Apply("isnan", (_floating(self.number(node)),), BOOL)

    def power(self, node: Call) -> Expression:
        sides = [_floating(self.numeric(argument, node.function)) for argument in node.arguments]
        return Apply("power", tuple(sides), DOUBLE)

    def greatest_or_least(self, node: Call) -> Expression:
        """NULL only where all are; as CASE, so that every type that compares will do."""
        values = self.together(node.arguments, node)
        op = ">=" if node.function == "GREATEST" else "<="
        best, kind = values[0], _common(values)
        if isinstance(kind, Struct | ListOf | MapOf):
            raise refused(node, "nested values are not compared as a whole")
        for value in values[1:]:
            better = Apply(op, (best, value), BOOL)
            absent = Apply("is null", (value,), BOOL)
            best = Apply("case", (Apply("or", (absent, better), BOOL), best, value), kind)
        return best

    def if_else(self, node: Call) -> Expression:
        condition, one, other = node.arguments
        return self.case(Case(((condition, one),), other, node.at))

    def left_or_right(self, node: Call) -> Expression:
        """LEFT and RIGHT: n characters, or all but n where n is negative."""
        operand = self.string(node)
        n = self.whole(node.arguments[1], 1 - 2**31, 2**31 - 1)
        if node.function == "LEFT":
            return Apply("substr", (operand,), STRING, (0, n))
        return Apply("substr", (operand,), STRING, (-n, None) if n else (0, 0))

    def position(self, node: Call) -> Expression:
        return Apply("strpos", (self.string(node),), WHOLE, self.text(node.arguments[1]))

    def round(self, node: Call) -> Expression:
        operand = self.number(node)
        digits = 0
        if len(node.arguments) > 1:
            digits = self.whole(node.arguments[1], -WIDEST_DIGITS, WIDEST_DIGITS)
        return Apply("round", (operand,), operand.type, digits)

    def modulo(self, node: Call) -> Expression:
        one, other = (self.numeric(argument, node.function) for argument in node.arguments)
        return self.arithmetic(node, "%", one, other)

    def length(self, node: Call) -> Expression:
        operand = self.expression(node.arguments[0])
        known = isinstance(operand.type, ListOf | MapOf) or _name(operand) in ("string", "binary")
        if operand.type is not None and not known:
            raise refused(node.arguments[0], f"{_called(operand)} has no length")
        return Apply("length", (operand,), WHOLE)

    def substring(self, node: Call) -> Expression:
        operand = self.string(node)
        start = self.whole(node.arguments[1], 0, 2**31 - 1)
        last = None
        if len(node.arguments) > 2:
            last = max(start + self.whole(node.arguments[2], 0, 2**31 - 1) - 1, 0)
        return Apply("substr", (operand,), STRING, (max(start - 1, 0), last))

    def replace(self, node: Call) -> Expression:
        operand = self.string(node)
        old, new = self.text(node.arguments[1]), self.text(node.arguments[2])
        return Apply("replace", (operand,), STRING, (old, new)) if old else operand

    def concat(self, node: Call) -> Expression:
        """As in Postgres and DuckDB, unlike ||: NULL is an empty text."""
        parts = [self.typed(a, STRING, "CONCAT joins texts: CAST others") for a in node.arguments]
        empty = Constant("", STRING)
        filled = (Apply("case", _coalesce([part, empty]), STRING) for part in parts)
        return Apply("concat", tuple(filled), STRING)

    def coalesce(self, node: Call) -> Expression:
        values = self.together(node.arguments, node)
        return Apply("case", _coalesce(values), _common(values))

    def nullif(self, node: Call) -> Expression:
        one, _ = self.together(node.arguments, node)
        same = self.compared(node, "=", *node.arguments)
        return Apply("case", (same, Constant(None, None), one), one.type)

    def date_trunc(self, node: Call) -> Expression:
        unit = self.text(node.arguments[0]).lower()
        if unit not in UNITS:
            raise refused(node.arguments[0], "there is no such unit", f"Units: {', '.join(UNITS)}")
        operand = self.dated(node.arguments[1], node.function)
        return Apply("date_trunc", (operand,), operand.type, unit)

    def strptime(self, node: Call) -> Expression:
        """A date, or a moment where the format has a time of day."""
        from inlay.parse.date_format import DateFormat  # few conditions have a format

        operand = self.string(node)
        form = self.date_format(node.arguments[1], DateFormat.parse)
        kind = DATE
        if form.is_timed:
            kind = Primitive("timestamptz" if form.is_zoned else "timestamp", unit="us")
        return Apply("strptime", (operand,), kind, (form, node.function == "TRY_STRPTIME"))

    def strftime(self, node: Call) -> Expression:
        from inlay.parse.date_format import pieces

        operand = self.dated(node.arguments[0], node.function)
        codes = {code for code, _ in self.date_format(node.arguments[1], pieces)}
        if "z" in codes and operand.type is not None and _name(operand) != "timestamptz":
            raise refused(node.arguments[1], "%z is of a timestamptz alone")
        return Apply("strftime", (operand,), STRING, self.text(node.arguments[1]))

    def date_format(self, node: Syntax, read: Callable[[str], _T]) -> _T:
        try:
            return read(self.text(node))
        except InvalidRequest as error:
            raise refused(node, error.message, error.next_step or "") from None

    def list_contains(self, node: Call) -> Expression:
        operand = self.expression(node.arguments[0])
        kind = operand.type.element.type if isinstance(operand.type, ListOf) else None
        if not isinstance(kind, Primitive):
            raise refused(
                node.arguments[0],
                f"{node.function} takes a list of plain values, not {_called(operand)}",
            )
        match node.arguments[1]:
            case Given(None):
                return Constant(None, BOOL)
            case Given(value) if value is not None and not isinstance(value, Span):
                near = neighbours(kind, value)
                is_one = near.exact and near.below is not None
                sought = Constant(near.below, kind) if is_one else None
                return Apply("holds", (operand,), BOOL, sought)
        raise refused(node.arguments[1], f"{node.function} looks for a literal")

    # -- helpers ------------------------------------------------------------------------------

    def together(self, nodes: tuple[Syntax, ...], at: Syntax) -> list[Expression]:
        """Values that are compared or mixed, in comparable types: texts as dates next to a date."""
        values = [self.expression(node) for node in nodes]
        kinds = (value.type for value in values)
        calendar = next((k for k in kinds if isinstance(k, Primitive) and k.is_temporal), None)
        for place, node in enumerate(nodes):
            match node:
                case Given(Text(text)) if calendar is not None:
                    values[place] = self.read_as(calendar, text, node)
        for first in values:
            for node, other in zip(nodes, values, strict=True):
                if not _alike(first.type, other.type):
                    raise refused(
                        node,
                        f"{_called(first)} and {_called(other)} are not compared or mixed",
                        _how_to_mix(first, other),
                    )
        if any(_family(value.type) == "float" for value in values):
            return [_floating(value) for value in values]
        return values

    def read_as(self, kind: Primitive, text: str, at: Syntax) -> Constant:
        """A text as a value of a temporal type."""
        value = read_as(kind, text, at)
        if isinstance(value, Moment) and kind.name == "timestamptz":
            value = Moment(value.value, zoned=True)
        return self.constant(Given(value, at.at))

    def typed(self, node: Syntax, kind: Primitive, message: str) -> Expression:
        made = self.expression(node)
        if made.type not in (kind, None):
            raise refused(node, f"{message}: this is {_called(made)}")
        return made

    def string(self, node: Call) -> Expression:
        """The first argument, a string."""
        return self.typed(node.arguments[0], STRING, f"{node.function} takes a string")

    def number(self, node: Call) -> Expression:
        """The first argument, a number."""
        return self.numeric(node.arguments[0], node.function)

    def numeric(self, node: Syntax, function: str) -> Expression:
        made = self.expression(node)
        if made.type is not None and _family(made.type) not in NUMERIC:
            raise refused(node, f"{function} takes a number: this is {_called(made)}")
        return made

    def dated(self, node: Syntax, function: str, takes: tuple[str, ...] = _CALENDAR) -> Expression:
        made = self.expression(node)
        if made.type is not None and _name(made) not in takes:
            raise refused(
                node,
                f"{function} takes a {' or '.join(takes)}: this is {_called(made)}",
                "CAST a text: CAST(x AS timestamp)" if _name(made) == "string" else "",
            )
        return made

    def text(self, node: Syntax) -> str:
        if isinstance(node, Given) and isinstance(node.value, Text):
            return node.value.value
        raise refused(node, "a text in single quotes is needed here")

    def whole(self, node: Syntax, least: int, greatest: int) -> int:
        match node:
            case Given(Number(value)) if (
                value == value.to_integral_value() and least <= value <= greatest
            ):
                return int(value)
        raise refused(node, f"a whole number from {least} to {greatest} is needed here")


_Bind = Callable[[Calculator, Call], Expression]
# What binds each function, and how many arguments it takes, at the least and at the most.
_FUNCTIONS: dict[str, tuple[_Bind, int, int]] = {
    **dict.fromkeys((*_OF_DATES, *_OF_TIMES), (Calculator.part_of_date, 1, 1)),
    **dict.fromkeys(_OF_TEXTS, (Calculator.change_case, 1, 1)),
    **dict.fromkeys(("TRIM", "LTRIM", "RTRIM"), (Calculator.trim, 1, 2)),
    **dict.fromkeys(("STARTS_WITH", "ENDS_WITH", "CONTAINS"), (Calculator.search_text, 2, 2)),
    **dict.fromkeys(_OF_NUMBERS, (Calculator.numeric_function, 1, 1)),
    **dict.fromkeys(("SQRT", "EXP", "LN"), (Calculator.floating_function, 1, 1)),
    **dict.fromkeys(("REGEXP_MATCHES", "REGEXP_FULL_MATCH"), (Calculator.regexp, 2, 3)),
    **dict.fromkeys(("LENGTH", "LEN", "CHAR_LENGTH"), (Calculator.length, 1, 1)),
    **dict.fromkeys(("GREATEST", "LEAST"), (Calculator.greatest_or_least, 1, 20)),
    **dict.fromkeys(("LEFT", "RIGHT"), (Calculator.left_or_right, 2, 2)),
    **dict.fromkeys(("STRPOS", "INSTR"), (Calculator.position, 2, 2)),
    **dict.fromkeys(("SUBSTR", "SUBSTRING"), (Calculator.substring, 2, 3)),
    **dict.fromkeys(("COALESCE", "IFNULL"), (Calculator.coalesce, 1, 100)),
    **dict.fromkeys(("POWER", "POW"), (Calculator.power, 2, 2)),
    **dict.fromkeys(("LIST_CONTAINS", "ARRAY_CONTAINS"), (Calculator.list_contains, 2, 2)),
    "ROUND": (Calculator.round, 1, 2),
    "MOD": (Calculator.modulo, 2, 2),
    "ISNAN": (Calculator.is_nan, 1, 1),
    "IF": (Calculator.if_else, 3, 3),
    "DATE_PART": (Calculator.date_part, 2, 2),
    "DATE_TRUNC": (Calculator.date_trunc, 2, 2),
    **dict.fromkeys(("STRPTIME", "TRY_STRPTIME"), (Calculator.strptime, 2, 2)),
    "STRFTIME": (Calculator.strftime, 2, 2),
    "REPLACE": (Calculator.replace, 3, 3),
    "CONCAT": (Calculator.concat, 1, 100),
    "NULLIF": (Calculator.nullif, 2, 2),
}
# And those that the grammar, or what is calculated without a row, takes for itself.
_ELSEWHERE = ("CAST", "EXTRACT", "POSITION", "NOW", "TODAY", "CURRENT_DATE", "CURRENT_TIMESTAMP")
_NAMES = sorted((*_FUNCTIONS, *_ELSEWHERE))


def _begins(column: Column, text: str) -> Predicate:
    return Like(column.field_id, quote_like(text) + "%")


def check_regular(pattern: str) -> None:
    """Raises ValueError where RE2, which evaluates it, refuses it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pc.match_substring_regex(pa.scalar(""), pattern)


def literal_start(pattern: str, *, whole: bool) -> str:
    """The characters that every matching text begins with; "" where that is not certain."""
    if not whole:
        if not pattern.startswith("^"):
            return ""
        pattern = pattern[1:]
    if "|" in pattern:
        return ""
    start = re.match(r"[\w \-/:@]*", pattern, re.ASCII)
    prefix = start[0] if start else ""
    # A quantifier applies to the last character.
    return prefix[:-1] if pattern[len(prefix) :][:1] in ("?", "*", "+", "{") else prefix


def _floating(expression: Expression) -> Expression:
    """A number as the nearest double, as next to a double; -0.0 keeps its sign."""
    if isinstance(expression, Constant) and isinstance(expression.value, Decimal):
        return Constant(float(expression.value), DOUBLE)
    return expression


def _negated(expression: Expression, negated: bool) -> Expression:
    return Apply("not", (expression,), BOOL) if negated else expression


def _coalesce(values: list[Expression]) -> tuple[Expression, ...]:
    """As CASE: values after the first that is not NULL are not evaluated."""
    parts: list[Expression] = []
    for value in values[:-1]:
        parts += [Apply("not", (Apply("is null", (value,), BOOL),), BOOL), value]
    return (*parts, values[-1])


def _in_unit(nanos: int, name: LeafName) -> Constant:
    coarse = nanos % 1_000 == 0
    kind = Primitive(name, unit="us" if coarse else "ns")
    return Constant(nanos // 1_000 if coarse else nanos, kind)


def _family(kind: Type | None) -> Family | None:
    """None for what is nested, and for NULL."""
    return kind.family if isinstance(kind, Primitive) else None


def _name(expression: Expression) -> str:
    kind = expression.type
    return kind.name if isinstance(kind, Primitive) else ""


def _compared_as(kind: Primitive) -> str:
    if kind.is_numeric:
        return "number"
    return "binary" if kind.family == "bytes" else kind.name


def _alike(one: Type | None, other: Type | None) -> bool:
    """Whether values of both types compare, and can stand in one column."""
    if one is None or other is None:
        return True
    if not isinstance(one, Primitive) or not isinstance(other, Primitive):
        return one == other
    kinds = {_compared_as(one), _compared_as(other)}
    return len(kinds) == 1 or kinds in ({"date", "timestamp"}, {"date", "timestamptz"})


def _common(values: list[Expression]) -> Type | None:
    """The type that takes all of the values, which are alike."""
    kinds = [value.type for value in values if value.type is not None]
    if not kinds:
        return None
    names = {kind.name for kind in kinds if isinstance(kind, Primitive)}
    if all(_family(kind) in NUMERIC for kind in kinds):
        if any(_family(kind) == "float" for kind in kinds):
            return DOUBLE
        whole = all(_family(kind) == "integer" for kind in kinds)
        return WHOLE if whole else Primitive("decimal", precision=WIDEST_DIGITS)
    for name in _WITH_UNITS:
        if name in names:
            units = [k.unit for k in kinds if isinstance(k, Primitive) and k.unit]
            return Primitive(name, unit="ns" if "ns" in units else "us")
    if "fixed" in names and len(set(kinds)) > 1:
        return Primitive("binary")
    return kinds[0]


def _castable(kind: Type, to: Primitive) -> bool:
    if not isinstance(kind, Primitive):
        return False
    if kind == to:
        return True
    if to.is_numeric:
        numeric = kind.is_numeric or kind.name == "string"
        return numeric or (kind.name == "bool" and to.name != "decimal")
    match to.name:
        case "string":
            fine = kind.name == "decimal" and 0 <= kind.scale <= 6
            return fine or kind.is_integer or kind.name in ("bool", "time", *_CALENDAR)
        case "bool":
            return kind.is_integer or kind.name == "string"
        case "binary":
            return kind.name in ("string", "fixed")
        case "date" | "timestamp" | "timestamptz":
            return kind.name in ("string", *_CALENDAR)
        case "time":
            return kind.name in ("string", "time", *_INSTANTS)
        case _:  # no cast is assumed
            return False


def _called(expression: Expression) -> str:
    match expression.type:
        case None:
            return "NULL"
        case Primitive("decimal", precision=precision) if precision == WIDEST_DIGITS:
            return "a decimal"
        case Primitive(name):
            article = "an" if name[0] in "ai" else "a"
            return f"{article} {name}"
        case Struct():
            return "a struct"
        case ListOf():
            return "a list"
        case MapOf():
            return "a map"


def _how_to_mix(one: Expression, other: Expression) -> str:
    names = {_name(one), _name(other)}
    if names == {"timestamp", "timestamptz"}:
        return "CAST(… AS timestamptz) takes a timestamp as UTC"
    if "string" in names:
        return "CAST one of them"
    return "CAST one of them, or compare what is of one kind"


def implied(expression: Expression) -> Predicate:
    """A predicate that is TRUE of every row for which the expression is."""
    match expression:
        case Test(predicate):
            return predicate
        case Apply("and", parts):
            known = tuple(p for part in parts if (p := implied(part)) != TRUE)
            return And(known) if len(known) > 1 else known[0] if known else TRUE
        case Apply("or", parts):
            implied_parts = tuple(implied(part) for part in parts)
            return TRUE if TRUE in implied_parts else Or(implied_parts)
        case _:  # TRUE is implied by anything
            return TRUE


def _written_number(value: Decimal) -> Constant:
    """A number as it was written: whole, with a fraction, or of the doubles alone."""
    exponent = int(value.as_tuple().exponent) if value.is_finite() else 0
    digits = len(value.as_tuple().digits) + max(exponent, 0)
    if not value.is_finite() or max(digits, -exponent) > WIDEST_DIGITS:
        return Constant(float(value), Primitive("double"))
    if exponent >= 0:
        return Constant(value, Primitive("int64"))
    digits = max(len(value.as_tuple().digits), -exponent)
    return Constant(value, Primitive("decimal", precision=digits, scale=-exponent))
