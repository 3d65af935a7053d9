"""The single values in a predicate: which values of a column it selects, and their spelling as text.

Promise: `condition_on` is TRUE for every value that a selected row can have in the column, as far as the
predicate restricts that column at all. So a value left in a dictionary or a bound for which it is TRUE may
be an erased row's; only the rows can show whether a remaining row has the value, too. `texts_of` are the
values that can be searched for in free text.

Pure values only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_never
from uuid import UUID

from inlay.format.predicate import (
    NEGATED,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Predicate,
    conditions,
    like_exact,
    parse_like,
)
from inlay.format.schema import Primitive, Value
from inlay.format.values import EXACT, order_key

# Shorter values occur in any text, so finding them proves nothing.
MIN_TEXT = 4
_TEXT = Primitive("string")


def condition_on(predicate: Predicate, field_id: int) -> Predicate | None:
    """The predicate reduced to the conditions on one field; None where it has none.

    >>> mail, name = Like(1, "ada@%"), Like(2, "Ada%")
    >>> condition_on(And((mail, name)), 1) == mail
    True
    >>> condition_on(mail, 2) is None
    True
    """
    match predicate:
        case And(parts) | Or(parts):
            on_field = tuple(p for p in (condition_on(part, field_id) for part in parts) if p)
            join = And if isinstance(predicate, And) else Or
            return None if not on_field else on_field[0] if len(on_field) == 1 else join(on_field)
        case Not(part):
            inner = condition_on(part, field_id)
            return None if inner is None else Not(inner)
        case Constant():
            return None
        case Comparison() | In() | Like() | IsNull():
            return predicate if predicate.field_id == field_id else None


def any_of(predicates: Sequence[Predicate]) -> Predicate:
    """TRUE where one of them is, in the form of `plainly`: equalities and INs of a column, from however
    many, as one IN.

    >>> any_of((In(1, Primitive("int64"), (3, 7)), In(1, Primitive("int64"), (1, 3)))).values
    (1, 3, 7)
    """
    if len(predicates) == 1:
        return plainly(predicates[0])
    listed: dict[tuple[int, Primitive], dict[Any, Value]] = defaultdict(dict)
    distinct: list[Predicate] = []
    for predicate in map(plainly, predicates):
        match predicate:
            case Comparison(field_id, "=", literal):
                listed[field_id, literal.type][order_key(literal.value)] = literal.value
            case In(field_id, kind, values):
                listed[field_id, kind] |= {order_key(value): value for value in values}
            case _:  # any other part stays as it is
                distinct.append(predicate)
    for (field_id, kind), values_of in listed.items():
        distinct.append(In(field_id, kind, tuple(values_of[key] for key in sorted(values_of))))
    return distinct[0] if len(distinct) == 1 else Or(tuple(distinct))


def plainly(predicate: Predicate) -> Predicate:
    """The same condition with each value that it names in an equality: NOT is only before IN, LIKE and IS
    NULL; a LIKE without wildcards, and bounds that one value alone is within, are equalities.

    >>> ada = Literal(Primitive("string"), "ada")
    >>> plainly(Not(Comparison(1, "!=", ada))) == plainly(Like(1, "ada")) == Comparison(1, "=", ada)
    True
    >>> plainly(And((Comparison(1, ">=", ada), Comparison(1, "<=", ada)))) == Comparison(1, "=", ada)
    True
    """
    match predicate:
        case Not(Not(part)):
            return plainly(part)
        case Not(Comparison(field_id, op, literal)):
            return Comparison(field_id, NEGATED[op], literal)
        case Not(And(parts)):
            return plainly(Or(tuple(Not(part) for part in parts)))
        case Not(Or(parts)):
            return plainly(And(tuple(Not(part) for part in parts)))
        case Or(parts):
            return Or(tuple(plainly(part) for part in parts))
        case And(parts):
            plain_parts = _with_points([plainly(part) for part in parts])
            return plain_parts[0] if len(plain_parts) == 1 else And(tuple(plain_parts))
        case Like(field_id, pattern):
            text = like_exact(pattern)
            return Comparison(field_id, "=", Literal(_TEXT, text)) if text else predicate
        case _:  # plain already: every predicate means the same as itself
            return predicate


def _with_points(parts: Sequence[Predicate]) -> list[Predicate]:
    """What holds together: from a value on and up to it is that value."""
    bounds: dict[str, dict[tuple[int, Primitive, Any], Comparison]] = {">=": {}, "<=": {}}
    for part in parts:
        if isinstance(part, Comparison) and part.op in bounds:
            literal = part.literal
            bounds[part.op][part.field_id, literal.type, order_key(literal.value)] = part
    low, high = bounds[">="], bounds["<="]
    points = low.keys() & high.keys()
    merged = {id(side[point]) for side in (low, high) for point in points}
    equal: list[Predicate] = [
        Comparison(part.field_id, "=", part.literal)
        for point, part in low.items()
        if point in points
    ]
    return [*(part for part in parts if id(part) not in merged), *equal]


def texts_of(predicate: Predicate) -> frozenset[str]:
    """Values that the predicate names (by equality, IN, or as fixed parts of a LIKE), as spelled in free
    text, of `MIN_TEXT` characters or more. A range names none, and NOT names rows that stay."""
    return frozenset(text for text in _texts(plainly(predicate)) if len(text) >= MIN_TEXT)


def asked_of_text(predicate: Predicate, field_id: int) -> Predicate | None:
    """TRUE for the texts that the predicate names in whatever column, as a condition on one column: a
    dictionary may serve several columns. Equalities and INs, and LIKEs with a fixed part, of `MIN_TEXT`
    characters or more.

    >>> adam, short = Literal(Primitive("string"), "adam"), Literal(Primitive("string"), "ada")
    >>> asked_of_text(Or((Comparison(1, "=", adam), Comparison(2, "=", short))), 7).values
    ('adam',)
    """
    values: set[Value] = set()
    searched: list[Predicate] = []
    for node in conditions(plainly(predicate)):
        match node:
            case Comparison(_, "=", literal) if literal.type == _TEXT:
                values.add(literal.value)
            case In(_, kind, listed) if kind == _TEXT:
                values.update(listed)
            case Like(_, pattern):
                fixed = (part for part in parse_like(pattern) if isinstance(part, str))
                if any(len(part) >= MIN_TEXT for part in fixed):
                    searched.append(Like(field_id, pattern))
            case Comparison() | In() | IsNull() | Constant():
                pass  # they name no text
            case And() | Or() | Not():
                pass  # `conditions` goes through them
            case _:
                assert_never(node)
    long = sorted(v for v in values if isinstance(v, str) and len(v) >= MIN_TEXT)
    if long:
        searched.append(In(field_id, _TEXT, tuple(long)))
    return None if not searched else searched[0] if len(searched) == 1 else Or(tuple(searched))


def _texts(predicate: Predicate) -> Iterator[str]:
    for node in conditions(predicate):
        match node:
            case Comparison(_, "=", literal):
                yield from _text(literal.type, literal.value)
            case In(_, kind, values):
                for value in values:
                    yield from _text(kind, value)
            case Like(_, pattern):
                yield from (part for part in parse_like(pattern) if isinstance(part, str))
            case Comparison() | IsNull() | Constant():
                pass  # they name no value
            case And() | Or() | Not():
                pass  # `conditions` goes through them
            case _:
                assert_never(node)


def _text(kind: Primitive, value: Value) -> Iterator[str]:
    """The usual spellings: dates and times in ISO 8601, to the second, with `T` or a space between; bytes
    as text, if they are any, and in hexadecimal digits."""
    match value:
        case str():
            yield value
        case bytes():
            with suppress(UnicodeDecodeError):
                yield value.decode("utf-8")
            yield value.hex()
            yield value.hex().upper()
            if len(value) == 16:
                yield str(UUID(bytes=value))
                yield str(UUID(bytes=value)).upper()
        case bool():
            return
        case int() if kind.is_integer:
            yield str(value)
        case int() if kind.name == "date":
            with suppress(ValueError, OverflowError):
                yield date.fromordinal(EPOCH.toordinal() + value).isoformat()
        case int() if kind.name in ("timestamp", "timestamptz"):
            seconds = value // PER_SECOND[kind.unit]
            with suppress(OverflowError):
                whole = EPOCH + timedelta(seconds=seconds)
                yield whole.isoformat()
                yield whole.isoformat(" ")
        case int():
            return  # of a time: spelled in too many ways
        case float():
            yield repr(value)
        case Decimal():
            yield format(value, "f")
            yield format(value.normalize(EXACT), "f")


EPOCH = datetime(1970, 1, 1)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def equal_values(condition: Predicate) -> tuple[tuple[Primitive, Value], ...] | None:
    """The values that a condition on one field allows, if it is an equality or an IN; else None."""
    match condition:
        case Comparison(_, "=", literal):
            return ((literal.type, literal.value),)
        case In(_, kind, values):
            return tuple((kind, value) for value in values)
        case Or(parts):
            of_parts = [equal_values(part) for part in parts]
            if None in of_parts:
                return None
            return tuple(pair for pairs in of_parts for pair in pairs or ())
        case _:  # None is no statement about the values
            return None
