"""The predicate tree: the permanent meaning of a stored WHERE, its LIKE patterns, its stored form.

Promise: a predicate is bound to field ids and typed literals, so its meaning cannot change with a column's
name, a library or a session. Three-valued logic: a row is selected where the predicate is TRUE; NULL is not
TRUE. docs/FORMAT.md ("Predicates") defines every case below.

* Literals have the type of the column they are compared with, in physical form (`format.schema`).
* NaN equals NaN and is greater than every other number; -0.0 equals 0.0.
* Strings compare by Unicode code points, binary by unsigned bytes.
* A NULL operand makes a comparison, IN and LIKE NULL; IS NULL is never NULL.
* LIKE: `%` any run, `_` any one code point, `\\` escapes the next character; it spans newlines.

Pure values only. `inlay.parse` parses, `inlay.parquet.arrow.evaluate` evaluates over Arrow, and
`inlay.plan.pruning.prune` prunes by statistics.

LIKE patterns mean the same to every evaluator: `parse_like` is the only reader of the pattern text;
matching in Arrow, in Python and by statistics starts from its tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import pairwise
from typing import Any, assert_never, cast
from typing import Literal as OneOf

from inlay.errors import CorruptTable, InvalidPredicate, InvalidRequest
from inlay.format.schema import Primitive, Value, parse_primitive
from inlay.format.values import compare, decode_value, encode_value, order_key
from inlay.record import Record, set_anyway


class Wildcard(Enum):
    ANY_RUN = "%"
    ANY_ONE = "_"


Token = str | Wildcard


def parse_like(pattern: str) -> tuple[Token, ...]:
    """Runs of literal text and wildcards; adjacent `%` are merged, adjacent text is one string.

    Raises InvalidPredicate for a pattern that ends in an unpaired backslash.

    >>> parse_like("50\\\\%%")
    ('50%', <Wildcard.ANY_RUN: '%'>)
    """
    tokens: list[Token] = []
    text: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            quoted = next(characters, None)
            if quoted is None:
                raise InvalidPredicate(
                    "a LIKE pattern ends in a backslash that escapes nothing",
                    next_step=r"Write \\ for a backslash",
                )
            text.append(quoted)
        elif character in "%_":
            if text:
                tokens.append("".join(text))
                text.clear()
            wildcard = Wildcard(character)
            if not (wildcard is Wildcard.ANY_RUN and tokens and tokens[-1] is wildcard):
                tokens.append(wildcard)
        else:
            text.append(character)
    if text:
        tokens.append("".join(text))
    return tuple(tokens)


def quote_like(text: str) -> str:
    """A pattern that matches exactly `text`."""
    return re.sub(r"([%_\\])", r"\\\1", text)


def like_prefix(pattern: str) -> tuple[str, bool]:
    """The text that every match starts with, and whether every string with that prefix matches.

    >>> like_prefix("ab%"), like_prefix("ab_%"), like_prefix("%")
    (('ab', True), ('ab', False), ('', True))
    """
    tokens = parse_like(pattern)
    prefix = tokens[0] if tokens and isinstance(tokens[0], str) else ""
    rest = tokens[1:] if prefix else tokens
    return prefix, rest == (Wildcard.ANY_RUN,)


def like_exact(pattern: str) -> str | None:
    """The only string that a pattern without wildcards matches, else None."""
    tokens = parse_like(pattern)
    if not tokens:
        return ""
    return tokens[0] if len(tokens) == 1 and isinstance(tokens[0], str) else None


def like_re2(pattern: str) -> str:
    """The pattern as an anchored regular expression for RE2, Arrow's engine: linear in the text."""
    parts = [r"(?s)\A"]
    for token in parse_like(pattern):
        match token:
            case str():
                # Only ASCII punctuation is escaped: RE2 refuses a backslash before most others.
                parts.append(re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", token))
            case Wildcard.ANY_ONE:
                parts.append(".")
            case Wildcard.ANY_RUN:
                parts.append(".*")
            case _:
                assert_never(token)
    return "".join([*parts, r"\z"])


def like_matches(pattern: str, text: str) -> bool:
    """Whether one string matches, for patterns too large for RE2. At most len(pattern) * len(text)
    steps, because only the latest `%` is ever backtracked to."""
    tokens: list[Token] = []
    for part in parse_like(pattern):
        tokens.extend(part if isinstance(part, str) else (part,))
    at = done = 0
    last_run: tuple[int, int] | None = None  # (index after the latest %, text consumed)
    while done < len(text):
        token: Token | None = tokens[at] if at < len(tokens) else None
        if token is Wildcard.ANY_RUN:
            at, last_run = at + 1, (at + 1, done)
        elif token is Wildcard.ANY_ONE or token == text[done]:
            at, done = at + 1, done + 1
        elif last_run is not None:
            last_run = (last_run[0], last_run[1] + 1)
            at, done = last_run
        else:
            return False
    return all(left is Wildcard.ANY_RUN for left in tokens[at:])


Operator = OneOf["=", "!=", "<", "<=", ">", ">="]

# TRUE where the other is FALSE, and NULL where it is NULL.
NEGATED: dict[Operator, Operator] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    "<=": ">",
    ">": "<=",
}

# Deeper trees would exhaust the stack of recursive code; a request is refused well before.
MAX_DEPTH = 200
MAX_NODES = 20_000


class Literal(Record):
    """A value of a type, in physical form. Never NULL."""

    type: Primitive
    value: Value


class Comparison(Record):
    field_id: int
    op: Operator
    literal: Literal


class In(Record):
    """`field IN (…)`: all values of `type`, none NULL, at least one.

    Whatever their order in the source, `values` are sorted by `format.values.order_key`, without
    duplicates: pruning uses binary search and expects NaN at the end.
    """

    field_id: int
    type: Primitive
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        keys = [order_key(value) for value in self.values]
        if not all(one < other for one, other in pairwise(keys)):
            unique = dict(zip(keys, self.values, strict=True))
            set_anyway(self, "values", tuple(unique[key] for key in sorted(unique)))


class Like(Record):
    field_id: int
    pattern: str


class IsNull(Record):
    field_id: int


class And(Record):
    parts: tuple[Predicate, ...]


class Or(Record):
    parts: tuple[Predicate, ...]


class Not(Record):
    part: Predicate


class Constant(Record):
    """TRUE, FALSE or (None) NULL for every row."""

    value: bool | None


Predicate = Comparison | In | Like | IsNull | And | Or | Not | Constant

TRUE = Constant(True)
FALSE = Constant(False)


def field_ids(predicate: Predicate) -> frozenset[int]:
    """Every field that the predicate reads."""
    ids: set[int] = set()
    for node in walk(predicate):
        match node:
            case Comparison() | In() | Like() | IsNull():
                ids.add(node.field_id)
            case And() | Or() | Not() | Constant():
                pass
            case _:
                assert_never(node)
    return frozenset(ids)


def conditions(predicate: Predicate) -> Iterator[Predicate]:
    """The conditions that select a row, without those that are negated."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from conditions(part)
        case Not():
            return
        case Comparison() | In() | Like() | IsNull() | Constant():
            yield predicate
        case _:
            assert_never(predicate)


def mapped(
    predicate: Predicate, change: Callable[[Comparison | In | Like | IsNull], Predicate]
) -> Predicate:
    """The same tree with each condition on a field changed.

    >>> mapped(Not(IsNull(1)), lambda node: Like(node.field_id, "a%"))
    Not(part=Like(field_id=1, pattern='a%'))
    """
    match predicate:
        case And(parts):
            return And(tuple(mapped(part, change) for part in parts))
        case Or(parts):
            return Or(tuple(mapped(part, change) for part in parts))
        case Not(part):
            return Not(mapped(part, change))
        case Constant():
            return predicate
        case Comparison() | In() | Like() | IsNull():
            return change(predicate)


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Every node, without recursion (trees may be as deep as MAX_DEPTH)."""
    stack: list[Predicate] = [predicate]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(_parts_of(node)))


def _parts_of(node: Predicate) -> tuple[Predicate, ...]:
    match node:
        case And(parts) | Or(parts):
            return parts
        case Not(part):
            return (part,)
        case Comparison() | In() | Like() | IsNull() | Constant():
            return ()


_OPERATORS = tuple(NEGATED)


def check_bounds(predicate: Predicate) -> Predicate:
    """`predicate`, once it is certain that recursing through it is safe.

    Every value of an IN list counts as a node. Raises InvalidPredicate beyond either bound.
    """
    stack, nodes = [(predicate, 1)], 0
    while stack:
        node, depth = stack.pop()
        nodes += len(node.values) if isinstance(node, In) else 1
        if depth > MAX_DEPTH:
            raise InvalidPredicate(
                f"the predicate is nested deeper than {MAX_DEPTH} levels",
                next_step="Flatten it: a IN (1, 2, …) instead of nested ORs",
            )
        if nodes > MAX_NODES:
            raise InvalidPredicate(
                f"the predicate has more than {MAX_NODES:,} conditions and values",
                is_plain=True,
                next_step="Delete by keys instead of a long list; to erase, send several requests",
            )
        stack.extend((part, depth + 1) for part in _parts_of(node))
    return predicate


def predicate_to_json(predicate: Predicate) -> Any:
    """A value for `json.dumps`. Raises InvalidPredicate beyond the bounds.

    Compact JSON that can be read without a schema: `predicate_from_json(predicate_to_json(p)) == p` for
    every predicate within MAX_DEPTH and MAX_NODES, and nothing beyond those bounds is written or read. Each
    node is an array whose first element names it; each literal carries its type.

        ["=", 3, "int64", 42]             field 3 = 42; likewise != < <= > >=
        ["in", 3, "int64", [1, 2]]
        ["like", 4, "a%"]
        ["null", 4]                       IS NULL
        ["and", p, …]  ["or", p, …]  ["not", p]
        true  false  null                 the constants
    """
    return _encode(check_bounds(predicate))


def _encode(node: Predicate) -> Any:
    match node:
        case Comparison(field_id, op, literal):
            value = encode_value(literal.type, literal.value)
            return [op, field_id, str(literal.type), value]
        case In(field_id, kind, values):
            return ["in", field_id, str(kind), [encode_value(kind, v) for v in values]]
        case Like(field_id, pattern):
            return ["like", field_id, pattern]
        case IsNull(field_id):
            return ["null", field_id]
        case And(parts):
            return ["and", *map(_encode, parts)]
        case Or(parts):
            return ["or", *map(_encode, parts)]
        case Not(part):
            return ["not", _encode(part)]
        case Constant(value):
            return value


def predicate_from_json(body: Any) -> Predicate:
    """The inverse of `predicate_to_json`; CorruptTable for anything it would not write."""
    try:
        return check_bounds(_decode(body, depth=1))
    except (InvalidPredicate, InvalidRequest) as error:
        raise CorruptTable(error.message) from None


def _decode(body: Any, depth: int) -> Predicate:
    if depth > MAX_DEPTH:
        raise CorruptTable(f"a stored predicate is nested deeper than {MAX_DEPTH} levels")
    if body is None or isinstance(body, bool):
        return Constant(body)
    match body:
        case ["and", *parts]:
            return And(tuple(_decode(part, depth + 1) for part in parts))
        case ["or", *parts]:
            return Or(tuple(_decode(part, depth + 1) for part in parts))
        case ["not", part]:
            return Not(_decode(part, depth + 1))
        case ["null", field_id]:
            return IsNull(_field_id(field_id))
        case ["like", field_id, str(pattern)]:
            parse_like(pattern)  # raises for an invalid pattern
            return Like(_field_id(field_id), pattern)
        case ["in", field_id, kind, [_, *_] as values]:
            return _decode_in(_field_id(field_id), parse_primitive(str(kind)), values)
        case [op, field_id, kind, value] if op in _OPERATORS:
            literal_type = parse_primitive(str(kind))
            literal = Literal(literal_type, decode_value(literal_type, value))
            return Comparison(_field_id(field_id), cast(Operator, op), literal)
        case _:
            raise CorruptTable(f"a stored predicate has an unknown part: {str(body)[:80]}")


def _decode_in(field_id: int, kind: Primitive, bodies: list[Any]) -> In:
    values = tuple(decode_value(kind, value) for value in bodies)
    if any(compare(kind, a, b) >= 0 for a, b in pairwise(values)):
        raise CorruptTable("the values of a stored IN are not sorted and unique")
    return In(field_id, kind, values)


def _field_id(body: Any) -> int:
    if type(body) is not int or body < 1:
        raise CorruptTable(f"a stored predicate names no field: {str(body)[:80]}")
    return body
