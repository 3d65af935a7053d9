"""What a predicate means for one row, written from the specification and nothing else.

No Arrow, none of the library's comparing or matching: slow, obvious, and the judge of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from inlay.format.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
)

Row = Mapping[int, object]  # field id → physical value or None


def truth(predicate: Predicate, row: Row) -> bool | None:
    match predicate:
        case Constant(value):
            return value
        case Not(part):
            found = truth(part, row)
            return None if found is None else not found
        case And(parts):
            found = [truth(part, row) for part in parts]
            return False if False in found else None if None in found else True
        case Or(parts):
            found = [truth(part, row) for part in parts]
            return True if True in found else None if None in found else False
        case IsNull(field_id):
            return row.get(field_id) is None
        case _ if row.get(predicate.field_id) is None:
            return None
        case Comparison(field_id, op, literal):
            order = three_way(row[field_id], literal.value)
            return holds(op, order)
        case In(field_id, _, values):
            return any(three_way(row[field_id], value) == 0 for value in values)
        case Like(field_id, pattern):
            return like(row[field_id], pattern)
    raise AssertionError(predicate)


def holds(op: str, order: int) -> bool:
    """Whether a comparison is TRUE where its sides are in this order (negative: left is less)."""
    return {
        "=": order == 0,
        "!=": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[op]


def three_way(left, right) -> int:
    if isinstance(left, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
    elif isinstance(left, str):
        left, right = left.encode(), right.encode()
    return (left > right) - (left < right)


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "%":
        return any(like(text[skip:], rest) for skip in range(len(text) + 1))
    if head == "\\":
        head, rest = rest[0], rest[1:]
        return text[:1] == head and like(text[1:], rest)
    return bool(text) and head in ("_", text[0]) and like(text[1:], rest)
