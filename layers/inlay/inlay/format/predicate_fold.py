"""Predicates in another language: what each kind of node is there.

Promise: a translator has a method for every kind of node, or it is no class that can be made: a kind that
is new is a type error in each translator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar, assert_never

from inlay.format.predicate import (
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
    Wildcard,
    parse_like,
    quote_like,
)
from inlay.format.schema import Primitive, Value

T = TypeVar("T")


class PredicateFold(ABC, Generic[T]):
    """Makes a T of a predicate, from the leaves up. Values are in physical form (`format.schema`)."""

    @abstractmethod
    def comparison(self, field_id: int, operator: Operator, kind: Primitive, value: Value) -> T: ...

    @abstractmethod
    def among(self, field_id: int, kind: Primitive, values: tuple[Value, ...]) -> T: ...

    @abstractmethod
    def like(self, field_id: int, pattern: str) -> T:
        """`pattern` has only the escapes that it needs."""

    @abstractmethod
    def is_null(self, field_id: int) -> T: ...

    @abstractmethod
    def all_of(self, parts: Sequence[T]) -> T: ...

    @abstractmethod
    def any_of(self, parts: Sequence[T]) -> T: ...

    @abstractmethod
    def negated(self, part: T) -> T: ...

    @abstractmethod
    def constant(self, value: bool | None) -> T: ...

    def of(self, predicate: Predicate) -> T:
        match predicate:
            case Comparison(field_id, operator, literal):
                return self.comparison(field_id, operator, literal.type, literal.value)
            case In(field_id, kind, values):
                return self.among(field_id, kind, values)
            case Like(field_id, pattern):
                return self.like(field_id, _least_escaped(pattern))
            case IsNull(field_id):
                return self.is_null(field_id)
            case And(parts):
                return self.all_of([self.of(part) for part in parts])
            case Or(parts):
                return self.any_of([self.of(part) for part in parts])
            case Not(part):
                return self.negated(self.of(part))
            case Constant(value):
                return self.constant(value)
            case _:
                assert_never(predicate)


def _least_escaped(pattern: str) -> str:
    return "".join(
        token.value if isinstance(token, Wildcard) else quote_like(token)
        for token in parse_like(pattern)
    )


class PredicateBuilder(PredicateFold[Predicate]):
    """Predicates themselves, for who translates from another language."""

    def comparison(
        self, field_id: int, operator: Operator, kind: Primitive, value: Value
    ) -> Predicate:
        return Comparison(field_id, operator, Literal(kind, value))

    def among(self, field_id: int, kind: Primitive, values: tuple[Value, ...]) -> Predicate:
        return In(field_id, kind, values)

    def like(self, field_id: int, pattern: str) -> Predicate:
        return Like(field_id, pattern)

    def is_null(self, field_id: int) -> Predicate:
        return IsNull(field_id)

    def all_of(self, parts: Sequence[Predicate]) -> Predicate:
        return And(tuple(parts))

    def any_of(self, parts: Sequence[Predicate]) -> Predicate:
        return Or(tuple(parts))

    def negated(self, part: Predicate) -> Predicate:
        return Not(part)

    def constant(self, value: bool | None) -> Predicate:
        return Constant(value)
