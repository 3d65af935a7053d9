"""Text to syntax: the one SQL grammar, for WHERE and for the values of an update.

Promise: `parse_text` either returns a syntax tree no deeper than MAX_DEPTH or raises InvalidPredicate with
the offset of the error. It knows no schema: names and types are bound afterwards.

LALR, so time is linear and the parser's stack is a list, not Python's. The text's length is checked first.
Errors name the kind of token that was found, never its value: literals are personal data, and messages go
to logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from inlay.errors import InvalidPredicate
from inlay.format.binding import Flag, Number, Octets, Text
from inlay.format.predicate import MAX_DEPTH
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
    children,
)
from inlay.parse.times import read_typed

# Far above what people write and what a marker may hold; far below what takes noticeable time to parse.
MAX_TEXT = 64 * 1024

KEYWORDS = ("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE")

# DATE, TIMESTAMP … are not keywords, because columns have such names: a name followed by a string is a
# typed literal. What starts a comment in SQL is no pair of operators here; there are no comments.
_GRAMMAR = r"""
start: or_test
?or_test: and_test (_OR and_test)*
?and_test: not_test (_AND not_test)*
?not_test: NOT not_test -> negation
    | test
?test: sum
    | sum COMPARE sum -> comparison
    | sum [NOT] BETWEEN sum _AND sum -> between
    | sum [NOT] IN "(" sum ("," sum)* ")" -> one_of
    | sum [NOT] LIKE sum [_ESCAPE STRING] -> matches
    | sum IS [NOT] truth -> is_test
?truth: NULL -> null
    | TRUE -> true
    | FALSE -> false
?sum: product
    | sum (PLUS | MINUS) product -> calculation
?product: factor
    | product (STAR | SLASH) factor -> calculation
?factor: atom
    | MINUS factor -> negative
    | PLUS factor -> positive
?atom: "(" or_test ")"
    | NUMBER -> number
    | STRING -> text
    | HEX -> octets
    | truth
    | NAME STRING -> typed
    | (NAME | QUOTED) ("." (NAME | QUOTED))* -> name

COMPARE: /<=|>=|<>|!=|==|=|<|>/
PLUS: "+"
MINUS: /-(?!-)/
STAR: "*"
SLASH: /\/(?!\*)/
NUMBER: /(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])/
STRING: /'(?:[^']|'')*'/
HEX.2: /[xX]'[^']*'/
QUOTED: /"(?:[^"]|"")+"/
NAME: /[^\W\d]\w*/
%declare _OR _AND NOT BETWEEN IN LIKE _ESCAPE IS NULL TRUE FALSE
%ignore /\s+/
"""
_UNSEEN = ("AND", "OR", "ESCAPE")  # tokens the tree does not need


def _keyword(token: Token) -> Token:
    word = token.upper()
    if word in KEYWORDS:
        token.type = f"_{word}" if word in _UNSEEN else word
    return token


@v_args(inline=True)
class _Build(Transformer[Token, Any]):
    def start(self, found: Syntax) -> Syntax:
        return found

    def or_test(self, *parts: Syntax) -> Syntax:
        return Joined("OR", parts, parts[0].at)

    def and_test(self, *parts: Syntax) -> Syntax:
        return Joined("AND", parts, parts[0].at)

    def negation(self, word: Token, part: Syntax) -> Syntax:
        return Negated(part, _at(word))

    def comparison(self, left: Syntax, op: Token, right: Syntax) -> Syntax:
        return Compared({"<>": "!=", "==": "="}.get(op, str(op)), left, right, _at(op))

    def between(
        self, operand: Syntax, negated: Token | None, word: Token, low: Syntax, high: Syntax
    ) -> Syntax:
        return Between(operand, low, high, negated is not None, _at(word))

    def one_of(self, operand: Syntax, negated: Token | None, word: Token, *items: Syntax) -> Syntax:
        return OneOf(operand, items, negated is not None, _at(word))

    def matches(
        self,
        operand: Syntax,
        negated: Token | None,
        word: Token,
        pattern: Syntax,
        escape: Token | None,
    ) -> Syntax:
        quoted = None if escape is None else _unquote(escape)
        return Matches(operand, pattern, quoted, negated is not None, _at(word))

    def is_test(self, operand: Syntax, word: Token, negated: Token | None, what: Given) -> Syntax:
        flag = what.value.value if isinstance(what.value, Flag) else None
        return Is(operand, flag, negated is not None, _at(word))

    def calculation(self, left: Syntax, op: Token, right: Syntax) -> Syntax:
        return Calculation(str(op), left, right, _at(op))

    def negative(self, sign: Token, operand: Syntax) -> Syntax:
        if isinstance(operand, Given) and isinstance(operand.value, Number):
            return Given(Number(operand.value.value.copy_negate()), _at(sign))
        # From minus zero, not from zero: 0.0 - 0.0 is 0.0, and the opposite of 0.0 is -0.0.
        return Calculation("-", Given(Number(Decimal("-0")), _at(sign)), operand, _at(sign))

    def positive(self, sign: Token, operand: Syntax) -> Syntax:
        return operand

    def number(self, token: Token) -> Syntax:
        try:
            return Given(Number(Decimal(str(token))), _at(token))
        except InvalidOperation:
            raise _Misread("a number's exponent is out of range", _at(token)) from None

    def text(self, token: Token) -> Syntax:
        return Given(Text(_unquote(token)), _at(token))

    def octets(self, token: Token) -> Syntax:
        try:
            return Given(Octets(bytes.fromhex(token[2:-1])), _at(token))
        except ValueError:
            raise _Misread(
                "X'…' holds something that is not pairs of hex digits", _at(token)
            ) from None

    def null(self, token: Token) -> Syntax:
        return Given(None, _at(token))

    def true(self, token: Token) -> Syntax:
        return Given(Flag(True), _at(token))

    def false(self, token: Token) -> Syntax:
        return Given(Flag(False), _at(token))

    def typed(self, kind: Token, token: Token) -> Syntax:
        try:
            return Given(read_typed(kind.upper(), _unquote(token)), _at(token))
        except ValueError as error:
            raise _Misread(str(error), _at(kind)) from None

    def name(self, *parts: Token) -> Syntax:
        found = tuple(
            (_unquote(part) if part.type == "QUOTED" else str(part), part.type == "QUOTED")
            for part in parts
        )
        return Name(found, _at(parts[0]))


class _Misread(Exception):
    """A token that the lexer accepts but that has no meaning."""

    def __init__(self, message: str, at: int) -> None:
        self.message = message
        self.at = at
        super().__init__(message)


def _at(token: Token) -> int:
    return token.start_pos or 0


def _unquote(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


@cache
def _parser() -> Lark:
    callbacks: dict[str, Callable[[Token], Token]] = {"NAME": _keyword}
    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="basic",
        maybe_placeholders=True,
        transformer=_Build(),
        lexer_callbacks=callbacks,
    )


# -- parsing --------------------------------------------------------------------------------------


def parse_text(text: str) -> Syntax:
    """The syntax of one condition or value. Raises InvalidPredicate."""
    if len(text) > MAX_TEXT:
        raise InvalidPredicate(
            f"the text has {len(text):,} characters, more than {MAX_TEXT:,}",
            next_step="Delete by a key file (`keys`) instead of a long list",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidPredicate("the text contains an unpaired surrogate") from None
    if not text.strip():
        raise InvalidPredicate("the text is empty", next_step="Write TRUE to mean every row")
    _check_nesting(text)
    try:
        found = _parser().parse(text)
    except UnexpectedCharacters as error:
        raise _unreadable(text, error.pos_in_stream or 0) from None
    except UnexpectedToken as error:
        raise _unexpected(text, error.token, error.accepts or error.expected) from None
    except _Misread as error:
        raise InvalidPredicate(error.message, text=text, position=error.at) from None
    # The embedded transformer makes the parser return what `start` returns, not a tree.
    root = cast(Syntax, found)
    _check_depth(text, root)
    return root


def _check_depth(text: str, root: Syntax) -> None:
    """A chain of NOT, of signs or of sums nests without parentheses."""
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise _too_deep(text, node.at)
        stack.extend((child, depth + 1) for child in children(node))


def _too_deep(text: str, at: int) -> InvalidPredicate:
    return InvalidPredicate(
        f"this is nested deeper than {MAX_DEPTH} levels",
        text=text,
        position=at,
        next_step="Flatten it: x IN (1, 2, …) instead of nested conditions",
    )


def _check_nesting(text: str) -> None:
    """Refuses deeper nesting than a predicate allows, with the position; quoted parts are skipped."""
    depth, quote = 0, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
            if depth > MAX_DEPTH:
                raise _too_deep(text, at)


def _unreadable(text: str, at: int) -> InvalidPredicate:
    found = text[at]
    lacked = _lacked(text, at)
    if lacked is not None:
        return lacked
    if found in "'\"":
        return InvalidPredicate(
            f"a {'string' if found == chr(39) else 'quoted name'} that starts here is not closed",
            text=text,
            position=at,
            next_step=f"Close it with {found}; inside, write {found}{found} for one {found}",
        )
    if found.isdigit() or found == ".":
        return InvalidPredicate("this is not a number", text=text, position=at)
    return InvalidPredicate(
        f"the character {found!r} has no meaning here",
        text=text,
        position=at,
        next_step="Quote names with double quotes" if found == "`" else "",
    )


_KINDS = {
    "NAME": "a column",
    "QUOTED": "a column",
    "STRING": "a literal",
    "NUMBER": "a literal",
    "HEX": "a literal",
    "NULL": "a literal",
    "TRUE": "a literal",
    "FALSE": "a literal",
    "COMPARE": "a comparison",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "DOT": ".",
    "$END": "the end",
}
_HIDDEN = {"PLUS", "MINUS", "STAR", "SLASH", "DOT"}  # allowed, but not helpful in a message


_READ_AND_FILTER = "Use a wider condition, and filter the rows with pyarrow, DuckDB or Polars"
# SQL that people write and this grammar does not have, by the word that does not fit.
_LACKED = {
    "ILIKE": ("ILIKE is not supported", "LIKE is case-sensitive. " + _READ_AND_FILTER),
    "WHEN": ("CASE is not supported", _READ_AND_FILTER),
    "SIMILAR": ("SIMILAR TO is not supported", "LIKE has % and _. " + _READ_AND_FILTER),
    "SELECT": ("subqueries are not supported", "Run the query first, and write its result"),
}


def _lacked(text: str, at: int) -> InvalidPredicate | None:
    """A specific message, where the text at `at` is SQL that this grammar does not have."""
    before, rest = text[:at].rstrip(), text[at:]
    called = re.search(r"([^\W\d]\w*)$", before)
    word = re.match(r"\w+", rest)
    if rest.startswith("(") and called and called[1].upper() not in KEYWORDS:
        name = called[1].upper()
        found = ("CAST is not supported", "Write the literal in the column's type")
        if name != "CAST":
            found = (f"functions such as {name} are not supported here", _READ_AND_FILTER)
    elif rest.startswith("|"):
        found = ("|| is not supported here", _READ_AND_FILTER)
    elif rest.startswith("["):
        found = (
            "elements of lists and maps cannot be used here",
            "Name a field of a struct by its path: a.b",
        )
    elif word and word[0].upper() in _LACKED:
        found = _LACKED[word[0].upper()]
    else:
        return None
    return InvalidPredicate(found[0], text=text, position=at, next_step=found[1])


def _unexpected(text: str, token: Token, expected: Iterable[str]) -> InvalidPredicate:
    lacked = None if token.type == "$END" else _lacked(text, _at(token))
    if lacked is not None:
        return lacked
    wanted = {_KINDS.get(name, name.lstrip("_")) for name in expected if name not in _HIDDEN}
    options = ", ".join(sorted(wanted)) or "an operator"
    if token.type == "$END":
        found, at = "the text ends", len(text.rstrip())
    else:
        found = {"STRING": "a string", "NUMBER": "a number", "HEX": "bytes"}.get(
            token.type, str(token)[:40]
        )
        found, at = f"{found} does not fit", _at(token)
    return InvalidPredicate(f"{found} here; expected {options}", text=text, position=at)
