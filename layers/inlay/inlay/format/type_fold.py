"""Types in another language: what each kind of type is there.

Promise: as of `predicate_fold`: a kind that is new is a type error in each translator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar, assert_never

from inlay.format.schema import Field, ListOf, MapOf, Primitive, Struct, Type

T = TypeVar("T")


class TypeFold(ABC, Generic[T]):
    """Makes a T of a type, from the leaves up. A nested field comes with the T of its type."""

    @abstractmethod
    def leaf(self, kind: Primitive, path: tuple[str, ...]) -> T:
        """`path` leads to it, for messages."""

    @abstractmethod
    def struct(self, fields: Sequence[tuple[Field, T]]) -> T: ...

    @abstractmethod
    def list_of(self, element: tuple[Field, T]) -> T: ...

    @abstractmethod
    def map_of(self, key: tuple[Field, T], value: tuple[Field, T]) -> T: ...

    def of(self, kind: Type, path: tuple[str, ...] = ()) -> T:
        match kind:
            case Primitive():
                return self.leaf(kind, path)
            case Struct(fields):
                return self.struct([self._within(field, field.name, path) for field in fields])
            case ListOf(element):
                return self.list_of(self._within(element, "element", path))
            case MapOf(key, value):
                return self.map_of(
                    self._within(key, "key", path), self._within(value, "value", path)
                )
            case _:
                assert_never(kind)

    def _within(self, field: Field, name: str, path: tuple[str, ...]) -> tuple[Field, T]:
        return field, self.of(field.type, (*path, name))
