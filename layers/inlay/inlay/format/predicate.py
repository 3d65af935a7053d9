"""The predicate tree: the permanent meaning of a stored WHERE.

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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal as OneOf

from inlay.format.schema import Primitive, Value
from inlay.format.values import order_key

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


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of a type, in physical form. Never NULL."""

    type: Primitive
    value: Value


@dataclass(frozen=True, slots=True)
class Comparison:
    field_id: int
    op: Operator
    literal: Literal


@dataclass(frozen=True, slots=True)
class In:
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
            object.__setattr__(self, "values", tuple(unique[key] for key in sorted(unique)))


@dataclass(frozen=True, slots=True)
class Like:
    field_id: int
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    field_id: int


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    part: Predicate


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or (None) NULL for every row."""

    value: bool | None


Predicate = Comparison | In | Like | IsNull | And | Or | Not | Constant

TRUE = Constant(True)
FALSE = Constant(False)


def field_ids(predicate: Predicate) -> frozenset[int]:
    """Every field that the predicate reads."""
    return frozenset(
        node.field_id
        for node in walk(predicate)
        if isinstance(node, Comparison | In | Like | IsNull)
    )


def conditions(predicate: Predicate) -> Iterator[Predicate]:
    """The conditions that select a row, without those that are negated."""
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from conditions(part)
    elif not isinstance(predicate, Not):
        yield predicate


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Every node, without recursion (trees may be as deep as MAX_DEPTH)."""
    stack: list[Predicate] = [predicate]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case And(parts) | Or(parts):
                stack.extend(reversed(parts))
            case Not(part):
                stack.append(part)
            case _:
                pass
