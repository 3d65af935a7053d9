"""The stored form of a predicate: compact JSON that can be read without a schema.

Promise: `predicate_from_json(predicate_to_json(p)) == p` for every predicate within MAX_DEPTH and
MAX_NODES, and nothing beyond those bounds is written or read. Each node is an array whose first element
names it; each literal carries its type.

    ["=", 3, "int64", 42]             field 3 = 42; likewise != < <= > >=
    ["in", 3, "int64", [1, 2]]
    ["like", 4, "a%"]
    ["null", 4]                       IS NULL
    ["and", p, …]  ["or", p, …]  ["not", p]
    true  false  null                 the constants
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

from inlay.errors import CorruptTable, InvalidPredicate, InvalidRequest
from inlay.format.like import parse_like
from inlay.format.predicate import (
    MAX_DEPTH,
    MAX_NODES,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
)
from inlay.format.schema import Primitive, parse_primitive
from inlay.format.values import compare, decode_value, encode_value

_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


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
                next_step="Delete by a key file (`keys`) instead of a long list",
            )
        match node:
            case And(parts) | Or(parts):
                stack.extend((part, depth + 1) for part in parts)
            case Not(part):
                stack.append((part, depth + 1))
            case _:
                pass
    return predicate


def predicate_to_json(predicate: Predicate) -> Any:
    """A value for `json.dumps`. Raises InvalidPredicate beyond the bounds."""
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


def predicate_from_json(found: Any) -> Predicate:
    """The inverse of `predicate_to_json`; CorruptTable for anything it would not write."""
    predicate = _decode(found, depth=1)
    try:
        return check_bounds(predicate)
    except InvalidPredicate as error:
        raise CorruptTable(error.message) from None


def _decode(found: Any, depth: int) -> Predicate:
    if depth > MAX_DEPTH:
        raise CorruptTable(f"a stored predicate is nested deeper than {MAX_DEPTH} levels")
    if found is None or isinstance(found, bool):
        return Constant(found)
    match found:
        case ["and", *parts]:
            return And(tuple(_decode(part, depth + 1) for part in parts))
        case ["or", *parts]:
            return Or(tuple(_decode(part, depth + 1) for part in parts))
        case ["not", part]:
            return Not(_decode(part, depth + 1))
        case ["null", field_id]:
            return IsNull(_field_id(field_id))
        case ["like", field_id, str(pattern)]:
            return Like(_field_id(field_id), _pattern(pattern))
        case ["in", field_id, kind, [_, *_] as values]:
            return _decode_in(_field_id(field_id), _type(kind), values)
        case [op, field_id, kind, value] if op in _OPERATORS:
            literal_type = _type(kind)
            literal = Literal(literal_type, decode_value(literal_type, value))
            return Comparison(_field_id(field_id), cast(Operator, op), literal)
        case _:
            raise CorruptTable(f"a stored predicate has an unknown part: {str(found)[:80]}")


def _decode_in(field_id: int, kind: Primitive, found: list[Any]) -> In:
    values = tuple(decode_value(kind, value) for value in found)
    if any(compare(kind, a, b) >= 0 for a, b in pairwise(values)):
        raise CorruptTable("the values of a stored IN are not sorted and unique")
    return In(field_id, kind, values)


def _field_id(found: Any) -> int:
    if type(found) is not int or found < 1:
        raise CorruptTable(f"a stored predicate names no field: {str(found)[:80]}")
    return found


def _type(found: Any) -> Primitive:
    try:
        return parse_primitive(str(found))
    except InvalidRequest as error:
        raise CorruptTable(error.message) from None


def _pattern(found: str) -> str:
    try:
        parse_like(found)
    except InvalidPredicate as error:
        raise CorruptTable(error.message) from None
    return found
