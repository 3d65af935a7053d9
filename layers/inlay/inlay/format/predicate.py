"""The predicate tree: what a durable WHERE means, for good.

Promise: a predicate binds to field ids and typed literals, so its meaning cannot change with a
column's name, a library or a session. Three-valued logic: a row is selected where the predicate is
TRUE; NULL is not TRUE. docs/FORMAT.md ("Predicates") fixes every case named here.

* Literals have the type of the column they are compared with, in physical form (`format.schema`).
* NaN equals NaN and is greater than every other number; -0.0 equals 0.0.
* Strings compare by Unicode code points, binary by unsigned bytes.
* A NULL operand makes a comparison, IN and LIKE NULL; IS NULL is never NULL.
* LIKE: `%` any run, `_` any one code point, `\\` quotes the next character; it spans newlines.

Pure values only. Parsing is `inlay.parse`, evaluation over Arrow `inlay.parquet.arrow.evaluate`, pruning by
statistics `inlay.plan.pruning.prune`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal as OneOf

from inlay.format.schema import Primitive, Value
from inlay.format.values import order_key

Operator = OneOf["=", "!=", "<", "<=", ">", ">="]

# Deep trees would exhaust the stack of whoever walks them; a request is refused long before.
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

    However they were given, `values` are in the order of `format.values.order_key`, each once: pruning
    looks for them by halves and for NaN at the end.
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
    """Every field the predicate looks at."""
    return frozenset(
        node.field_id
        for node in walk(predicate)
        if isinstance(node, Comparison | In | Like | IsNull)
    )


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
