"""Text to syntax: the one SQL grammar, for WHERE and for the values of an update; names to fields.

Promise: `parse_text` either returns a syntax tree no deeper than MAX_DEPTH or raises InvalidPredicate with
the offset of the place and the next step. The grammar knows no schema: names and types are bound
afterwards.

One pass by operator precedence. The length of the text is checked first, the depth while parsing. Words are
reserved only where they could not be distinguished from a column: `end`, `date` or `case` may be columns.
Errors describe what was found by its kind, never by its value: literals are people's data, and messages go
to logs.

Names are found among a schema's fields as users write them: an exact match wins; an unquoted name also
matches in another case if exactly one column does; a quoted name never does. A path goes through structs
only. The error for an unknown name lists similar names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.binding import Flag, Number, Octets, Text
from inlay.format.predicate import MAX_DEPTH
from inlay.format.schema import Field, Primitive, Schema, Struct, parse_primitive
from inlay.parse.syntax import (
    DISTINCT,
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
    Syntax,
)
from inlay.parse.times import read_span, read_typed
from inlay.parse.values import Values, written_of
from inlay.record import Record, replace

_Node = TypeVar("_Node", bound=Syntax)

# Far above what people write and what a marker may hold; far below what parses noticeably long.
MAX_TEXT = 64 * 1024

_FLATTEN = "Flatten it: x IN (1, 2, …) instead of nested conditions"

KEYWORDS = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE")

# SQL's names of types, and ours. TIMESTAMP is in microseconds, as in most engines.
TYPE_NAMES = {
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

# Operators bind tighter the greater their power. AND and OR are joined flat; comparisons do not chain.
_OR, _AND, _NOT, _TEST, _CONCAT, _SUM, _PRODUCT, _SIGN, _CAST = range(1, 10)
_BINARY = {"||": _CONCAT, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
_COMPARISONS = {o: o for o in ("=", "!=", "<", "<=", ">", ">=")} | {"<>": "!=", "==": "="}
_TESTS = ("NOT", "BETWEEN", "IN", "LIKE", "ILIKE", "SIMILAR", "IS")
# What can follow a value: `case` before one of these is a column.
_FOLLOWING = (*_TESTS, "AND", "OR")
_CONSTANTS = {"NULL": None, "TRUE": Flag(True), "FALSE": Flag(False)}

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<bytes>[xX]'[^']*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[^\W\d]\w*)
    | (?P<param>\?|:[^\W\d]\w*)
    | (?P<sign><=|>=|<>|!=|==|\|\||::|[=<>+*%(),.\[\]]|-(?!-)|/(?!\*))""",
    re.VERBOSE,
)


class _Token(Record):
    kind: str  # a group of _TOKEN, or "end"
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind == "word" else ""

    def __str__(self) -> str:
        named = {"string": "a string", "number": "a number", "bytes": "bytes"}
        return named.get(self.kind) or self.text[:40]


class Placed(Protocol):
    @property
    def at(self) -> int: ...


def refused(part: Placed, message: str, next_step: str = "") -> InvalidPredicate:
    """The error that points at the place of a part of the text."""
    return InvalidPredicate(message, position=part.at, next_step=next_step)


@contextmanager
def errors_in(text: str) -> Iterator[None]:
    """Errors raised within point into this text."""
    try:
        yield
    except InvalidPredicate as error:
        error.text = error.text or text
        raise
    except RecursionError:  # of a caller that is deep in calls itself
        raise InvalidPredicate(
            "this is nested too deeply to be read here",
            text=text,
            next_step=_FLATTEN,
        ) from None


def parse_text(text: str, values: Values | None = None) -> Syntax:
    """The syntax of one condition or value; `values` are what `?` and `:name` stand for. Raises
    InvalidPredicate."""
    if len(text) > MAX_TEXT:
        raise InvalidPredicate(
            f"the text has {len(text):,} characters, more than {MAX_TEXT:,}",
            is_plain=True,
            next_step="Delete by a key file (`keys`) instead of a long list",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidPredicate("the text holds half of a surrogate pair") from None
    if not text.strip():
        raise InvalidPredicate("the text is empty", next_step="Write TRUE to mean every row")
    with errors_in(text):
        parser = _Parser(text, values or Values(()))
        root = parser.expression(0)
        if parser.token.kind != "end":
            raise parser.trailing()
        _check_depth(root)
        return root


def parse_type(text: str) -> Primitive:
    """`decimal(12,2)`, `bigint`, `double precision`, `varchar(20)`. Raises InvalidRequest."""
    name = re.sub(r"\s+", " ", text.strip().lower())
    name = re.sub(r"\s*([(),])\s*", r"\1", name)
    name = name.replace("numeric(", "decimal(").replace("double precision", "double")
    name = name.replace(" without time zone", "")
    name = name.replace("timestamp with time zone", "timestamptz")
    if name.startswith(("varchar(", "char(")):
        name = "string"
    return parse_primitive(TYPE_NAMES.get(name, name))


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unreadable(_Token("", text[at], at))
        if match.lastgroup != "space":
            tokens.append(_Token(match.lastgroup or "", match[0], at))
        at = match.end()
    tokens.append(_Token("end", "", len(text.rstrip())))
    return tokens


class _Parser:
    """Parses one text. `token` is the next one."""

    def __init__(self, text: str, values: Values) -> None:
        self.values = values
        self.tokens = _tokens(text)
        self.place = 0
        self.depth = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.place]

    def take(self) -> _Token:
        taken = self.token
        self.place += 1
        return taken

    def needs(self, sign: str, what: str) -> None:
        if not self.takes(sign):
            raise self.missing(what)

    def field_name(self) -> _Token:
        """What follows a point."""
        if self.token.kind not in ("word", "quoted"):
            raise self.missing("the name of a field after the point")
        return self.take()

    def takes(self, sign: str) -> bool:
        """Whether `sign` or the word `sign` is next; it is taken then."""
        if (self.token.kind == "sign" and self.token.text == sign) or self.token.word == sign:
            self.place += 1
            return True
        return False

    # -- operators ----------------------------------------------------------------------------

    def expression(self, least: int) -> Syntax:
        """An expression, up to an operator that binds less tightly than `least`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _too_deep(self.token)
        node = self.operand(least)
        tested = False
        while True:
            token = self.token
            word = token.word
            if token.kind == "sign" and token.text in _BINARY:
                power = _BINARY[token.text]
                if power < least:
                    break
                self.take()
                node = Calculation(token.text, node, self.expression(power + 1), token.at)
            elif (token.kind == "sign" and token.text in _COMPARISONS) or word in _TESTS:
                if least > _TEST:
                    break
                if tested:
                    raise refused(
                        token,
                        f"{token} does not fit here: a comparison cannot be compared again",
                        "Join two comparisons with AND, or put one in parentheses",
                    )
                node = self.test(node)
                tested = True
            elif word in ("AND", "OR"):
                power = _AND if word == "AND" else _OR
                if power < least:
                    break
                parts = [node]
                while self.takes(word):
                    parts.append(self.expression(power + 1))
                node = Joined(word, tuple(parts), parts[0].at)
            else:
                break
        self.depth -= 1
        return node

    def test(self, operand: Syntax) -> Syntax:
        token = self.take()
        if token.kind == "sign":
            right = self.expression(_TEST + 1)
            return Compared(_COMPARISONS[token.text], operand, right, token.at)
        if token.word == "IS":
            return self.is_test(operand, token)
        negated = token.word == "NOT"
        word = self.take() if negated else token
        match word.word:
            case "BETWEEN":
                low = self.expression(_TEST + 1)
                self.needs("AND", "AND and a second value, which BETWEEN needs")
                return Between(operand, low, self.expression(_TEST + 1), negated, word.at)
            case "IN":
                return OneOf(operand, self.listed(), negated, word.at)
            case "LIKE" | "ILIKE":
                pattern = self.expression(_TEST + 1)
                escape = None
                if self.takes("ESCAPE"):
                    if self.token.kind != "string":
                        raise self.missing("a character in quotes after ESCAPE")
                    escape = _unquote(self.take().text)
                any_case = word.word == "ILIKE"
                return Matches(operand, pattern, escape, negated, word.at, any_case)
            case "SIMILAR":
                self.needs("TO", "TO and a regular expression, which SIMILAR needs")
                arguments = (operand, self.expression(_TEST + 1))
                matched = Call("REGEXP_FULL_MATCH", arguments, word.at)
                return Negated(matched, word.at) if negated else matched
            case _:  # no condition begins so
                self.place -= 1
                raise self.missing("BETWEEN, IN, LIKE, ILIKE or SIMILAR TO after NOT")

    def is_test(self, operand: Syntax, word: _Token) -> Syntax:
        negated = self.takes("NOT")
        if self.takes("DISTINCT"):
            self.needs("FROM", "FROM, as in IS DISTINCT FROM")
            different = Compared(DISTINCT, operand, self.expression(_TEST + 1), word.at)
            return Negated(different, word.at) if negated else different
        if self.token.word not in _CONSTANTS:
            raise self.missing("NULL, TRUE, FALSE or DISTINCT FROM after IS")
        what = _CONSTANTS[self.take().word]
        return Is(operand, None if what is None else what.value, negated, word.at)

    def listed(self) -> tuple[Syntax, ...]:
        opened = self.token
        if opened.kind == "param":  # one that stands for the whole list
            self.take()
            listed = self.values.take(opened.text, opened.at)
            if not isinstance(listed, Sequence) or isinstance(listed, str | bytes) or not listed:
                raise refused(opened, "IN takes a list of values here, and not an empty one")
            return tuple(Given(written_of(value), opened.at) for value in listed)
        self.needs("(", "a list in parentheses after IN")
        if self.token.word == "SELECT":
            raise refused(
                self.token,
                "subqueries are not supported",
                "Run the query first, and write its result; for many values use keys=",
            )
        return self.arguments(opened)

    def arguments(self, opened: _Token) -> tuple[Syntax, ...]:
        """Values up to the closing parenthesis, at least one."""
        nodes = [self.expression(0)]
        while self.takes(","):
            nodes.append(self.expression(0))
        self.close(opened)
        return tuple(nodes)

    def close(self, opened: _Token) -> None:
        if self.takes(")" if opened.text == "(" else "]"):
            return
        if self.token.kind == "end":
            raise refused(opened, f"the {opened.text} that opens here is not closed", "Close it")
        raise self.trailing()

    # -- values -------------------------------------------------------------------------------

    def operand(self, least: int) -> Syntax:
        """A value with what precedes it (NOT, signs) and follows it (`::type`, `[…]`)."""
        before: list[_Token] = []
        while least <= _NOT and self.token.word == "NOT":
            before.append(self.take())
        if before:
            node = self.expression(_NOT)
        else:
            while self.token.kind == "sign" and self.token.text in "+-":
                before.append(self.take())
            node = self.behind(self.value())
        for token in reversed(before):
            node = _signed(token, node)
        return node

    def behind(self, node: Syntax) -> Syntax:
        while True:
            token = self.token
            if self.takes("["):
                index = self.expression(0)
                self.close(token)
                node = Element(node, index, token.at)
            elif self.takes("::"):
                node = Cast(node, self.type(token), token.at)
            elif isinstance(node, Element | Member) and self.takes("."):
                name = self.field_name()
                node = Member(node, _named(name)[0], name.kind == "quoted", name.at)
            else:
                return node

    def value(self) -> Syntax:
        token = self.token
        if token.kind == "word":
            return self.worded(token)
        self.take()
        match token.kind, token.text:
            case "number", text:
                try:
                    return Given(Number(Decimal(text)), token.at)
                except InvalidOperation:
                    raise refused(token, "a number has an exponent out of any range") from None
            case "string", text:
                return Given(Text(_unquote(text)), token.at)
            case "bytes", text:
                try:
                    return Given(Octets(bytes.fromhex(text[2:-1])), token.at)
                except ValueError:
                    raise refused(
                        token, "X'…' holds something that is not pairs of hex digits"
                    ) from None
            case "quoted", _:
                return self.name(token)
            case "param", text:
                return Given(written_of(self.values.take(text, token.at)), token.at)
            case "sign", "(":
                node = self.expression(0)
                self.close(token)
                return node
            case _:  # no operand begins so
                self.place -= 1
                raise self.missing("a column or a value")

    def worded(self, token: _Token) -> Syntax:
        """What begins with a word: a constant, CASE, a typed literal, a function or a column."""
        word, following = token.word, self.tokens[self.place + 1]
        if word in _CONSTANTS:
            self.take()
            return Given(_CONSTANTS[word], token.at)
        if word in KEYWORDS:
            raise self.missing("a column or a value")
        if word == "SELECT":
            raise refused(
                token, "subqueries are not supported", "Run the query first, and write its result"
            )
        self.take()
        if word == "CASE" and _begins_a_value(following):
            return self.case(token)
        if following.kind == "string":
            return self.typed(token, self.take().at, _unquote(following.text))
        if word == "INTERVAL" and following.kind == "number":
            count, unit = self.take(), self.take()
            return self.typed(token, count.at, f"{count.text} {unit.text}")
        if following.kind == "sign" and following.text == "(":
            return self.call(token)
        return self.name(token)

    def typed(self, kind: _Token, at: int, text: str) -> Syntax:
        try:
            return Given(
                read_span(text) if kind.word == "INTERVAL" else read_typed(kind.word, text), at
            )
        except ValueError as error:
            raise refused(kind, str(error)) from None

    def name(self, first: _Token) -> Syntax:
        parts = [_named(first)]
        while self.takes("."):
            parts.append(_named(self.field_name()))
        return Name(tuple(parts), first.at)

    def case(self, token: _Token) -> Syntax:
        subject = None if self.token.word == "WHEN" else self.expression(0)
        branches: list[tuple[Syntax, Syntax]] = []
        while True:
            when = self.token
            if not self.takes("WHEN"):
                break
            condition = self.expression(0)
            if subject is not None:
                condition = Compared("=", subject, condition, when.at)
            self.needs("THEN", "THEN and a value, which WHEN needs")
            branches.append((condition, self.expression(0)))
        if not branches:
            raise self.missing("WHEN, which CASE needs")
        otherwise: Syntax = Given(None, token.at)
        if self.takes("ELSE"):
            otherwise = self.expression(0)
        self.needs("END", "END, which closes CASE")
        return Case(tuple(branches), otherwise, token.at)

    def call(self, token: _Token) -> Syntax:
        opened = self.take()
        match token.word:
            case "CAST":
                operand = self.expression(0)
                self.needs("AS", "AS and a type, which CAST needs")
                node: Syntax = Cast(operand, self.type(token), token.at)
            case "EXTRACT":
                unit = self.take()
                if unit.kind == "string":
                    unit = _Token("word", _unquote(unit.text), unit.at)
                self.needs("FROM", "FROM, as in EXTRACT(year FROM x)")
                node = Call(unit.word, (self.expression(0),), token.at)
            case "POSITION":
                part = self.expression(_TEST + 1)
                self.needs("IN", "IN, as in POSITION('a' IN x)")
                node = Call("STRPOS", (self.expression(0), part), token.at)
            case _:  # the function is looked up with its arguments
                if self.takes(")"):
                    return Call(token.word, (), token.at)
                if self.takes("*"):
                    raise over_many_rows(token.word, token)
                return Call(token.word, self.arguments(opened), token.at)
        self.close(opened)
        return node

    def type(self, before: _Token) -> Primitive:
        """A type: words, and arguments in parentheses."""
        start, first = self.place, self.token
        word = self.take().word if first.kind == "word" else ""
        if word == "DOUBLE":
            self.takes("PRECISION")
        elif word in ("TIMESTAMP", "TIME") and self.token.word in ("WITH", "WITHOUT"):
            while self.token.word in ("WITH", "WITHOUT", "TIME", "ZONE"):
                self.take()
        end = self.place
        if self.token.text == "(" and self.token.kind == "sign":
            while self.token.kind != "end" and self.token.text != ")":
                self.take()
            self.takes(")")
            end = self.place
        text = " ".join(token.text for token in self.tokens[start:end])
        try:
            return parse_type(text)
        except InvalidRequest:
            raise refused(
                first if start < end else before,
                "there is no such type" if start < end else "a type is missing here",
                "Types: bool, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, "
                "binary, date, time, timestamp, timestamptz",
            ) from None

    # -- errors -------------------------------------------------------------------------------

    def missing(self, what: str) -> InvalidPredicate:
        if self.token.kind == "end":
            return refused(self.token, f"the text ends where {what} should follow")
        return refused(self.token, f"{self.token} does not fit here: {what} should stand before")

    def trailing(self) -> InvalidPredicate:
        """Something stands where the text could have ended."""
        token, step = self.token, "Join two conditions with AND or OR"
        before = self.tokens[self.place - 1]
        if token.text in (")", "]"):
            step = "Open it, or leave it out"
        elif token.word in ("SIMILAR", "REGEXP", "RLIKE", "GLOB"):
            step = "LIKE and ILIKE know % and _; CONTAINS looks for a text"
        elif token.text == ",":
            step = "A list stands in parentheses, x IN (1, 2); columns are set each by its own expression"
        elif before.kind == "word" and token.kind == "number":
            step = "A comparison such as = is missing between them"
        elif token.kind == "word" and (near := get_close_matches(token.word, _FOLLOWING, n=1)):
            step = f"Did you mean {near[0]}?"
        elif token.kind == "string" and before.kind == "string":
            step = "Inside a string, write '' for one '"
        return refused(token, f"{token} does not fit here: what stands before is complete", step)


def _signed(token: _Token, operand: Syntax) -> Syntax:
    if token.word == "NOT":
        return Negated(operand, token.at)
    if token.text == "+":
        return operand
    if isinstance(operand, Given) and isinstance(operand.value, Number):
        return Given(Number(operand.value.value.copy_negate()), token.at)
    # From minus zero, not from zero: 0.0 - 0.0 is 0.0, and the opposite of 0.0 is -0.0.
    return Calculation("-", Given(Number(Decimal("-0")), token.at), operand, token.at)


def _begins_a_value(token: _Token) -> bool:
    if token.kind == "word":
        return token.word not in _FOLLOWING
    return token.kind in ("quoted", "string", "number", "bytes", "param") or token.text == "("


def _named(token: _Token) -> tuple[str, bool]:
    quoted = token.kind == "quoted"
    return (_unquote(token.text) if quoted else token.text), quoted


def _unquote(token: str) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def _check_depth(root: Syntax) -> None:
    """A chain of NOT, of signs or of sums nests without parentheses."""
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise _too_deep(node)
        stack.extend((child, depth + 1) for child in children(node))


def children(node: Syntax) -> Iterator[Syntax]:
    """The direct children of a node of any kind, in the order of the text."""
    return _syntax_in(tuple(getattr(node, name) for name in node.__struct_fields__))


def _syntax_in(member: Any) -> Iterator[Syntax]:
    if isinstance(member, Syntax):
        yield member
    elif isinstance(member, tuple):
        for part in member:
            yield from _syntax_in(part)


def rebuilt(node: _Node, change: Callable[[Syntax], Syntax]) -> _Node:
    """The node with each of its direct children changed, in the order of the text."""
    changed: dict[str, Any] = {}
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if isinstance(value, Syntax):  # of a long sum: no frame more than needed
            changed[name] = change(value)
        elif isinstance(value, tuple):
            changed[name] = _within(value, change)
    return replace(node, **changed)


def _within(member: Any, change: Callable[[Syntax], Syntax]) -> Any:
    if isinstance(member, tuple):
        return tuple(_within(part, change) for part in member)
    return change(member) if isinstance(member, Syntax) else member


def _too_deep(at: Placed) -> InvalidPredicate:
    return refused(at, f"this is nested deeper than {MAX_DEPTH} levels", _FLATTEN)


def over_many_rows(name: str, at: Placed) -> InvalidPredicate:
    return refused(
        at,
        f"{name} is over many rows: a condition sees one row at a time",
        "Read the rows, and count or sum them with DuckDB or Polars",
    )


def _unreadable(token: _Token) -> InvalidPredicate:
    text = token.text
    if text in "'\"":
        return refused(
            token,
            f"a {'string' if text == chr(39) else 'quoted name'} that starts here is not closed",
            f"Close it with {text}; inside, write {text}{text} for one {text}",
        )
    if text.isdigit() or text == ".":
        return refused(token, "this is not a number")
    steps = {
        "`": "Quote names with double quotes",
        "-": "There are no comments; write - - or parentheses for two signs",
        "/": "There are no comments",
        ";": "One condition is asked for: leave out the ;",
        "~": "Engines differ in what it is: regexp_matches(x, 'p') searches, regexp_full_match(x, 'p') "
        "takes the whole text",
        "&": "Conditions are joined by AND",
        "|": "Conditions are joined by OR, texts by ||",
        "!": "The opposite is NOT; unequal is != or <>",
    }
    return refused(token, f"the character {text!r} means nothing here", steps.get(text, ""))


_SHOWN = 8  # names listed in an error


def resolve(name: Name, schema: Schema, *, or_text: bool = False) -> Field:
    """The field that a name refers to. Raises InvalidPredicate, pointing at it; `or_text`: a string would
    be valid, too, so the error says how to write one."""
    fields, field = schema.fields, None
    for depth, (part, quoted) in enumerate(name.parts):
        field = _pick(fields, part, quoted, name)
        if field is None:
            break
        if isinstance(field.type, Struct):
            fields = field.type.fields
        elif depth + 1 < len(name.parts):
            raise refused(name, f"column {part!r} is not a struct: it has no fields to name")
    if field is not None:
        return field
    bare = not any(quoted for _, quoted in name.parts)
    whole = schema.column(spelled(name))  # a column whose own name contains dots
    if bare and whole is not None:
        return whole
    raise refused(name, f"there is no column {spelled(name)[:80]!r}", _near(name, schema, or_text))


def _pick(fields: tuple[Field, ...], part: str, quoted: bool, name: Name) -> Field | None:
    exact = next((f for f in fields if f.name == part), None)
    if exact is not None or quoted:
        return exact
    alike = [f for f in fields if f.name.casefold() == part.casefold()]
    if len(alike) > 1:
        names = ", ".join(f'"{f.name}"' for f in alike[:_SHOWN])
        raise refused(name, f"{part!r} is ambiguous: {names}", "Write the exact name in quotes")
    return alike[0] if alike else None


def _near(name: Name, schema: Schema, or_text: bool) -> str:
    paths = {".".join(path).casefold(): path for path, _ in schema.walk()}
    near = get_close_matches(spelled(name).casefold()[:80], paths, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(quote_path(paths[close]) for close in near)}?"
    names = schema.names
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    quotes = "; a text is in single quotes" if or_text else ""
    return f"Columns are {', '.join(names[:_SHOWN])}{more}{quotes}"


def spelled(name: Name) -> str:
    return ".".join(part for part, _ in name.parts)


def quote_path(path: tuple[str, ...]) -> str:
    """A path in the form that `resolve` reads."""

    def quoted(part: str) -> str:
        plain = part.isidentifier() and part.isascii() and part.upper() not in KEYWORDS
        return part if plain else '"' + part.replace('"', '""') + '"'

    return ".".join(map(quoted, path))
