"""Columns of another format's schema as columns of this one.

Promise: every field of the source comes over with its meaning, in its order, or the schema is refused with
the field's name. The readers of each format (`inlay.iceberg.source`, `inlay.delta.log`) say how it names
types and gives ids; what nests how, and the bounds, are here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from inlay.errors import CorruptTable, UnsupportedTable
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Struct, Type

Path = tuple[str, ...]
Part = Literal["element", "key", "value"]

# Iceberg's own readers nest no deeper; every function that walks a type is recursive.
MAX_DEPTH = 64
# Columns of one table, nested ones included.
MAX_COLUMNS = 20_000


class ForeignColumns(ABC):
    """The columns of one schema, read in their order."""

    source: ClassVar[str]
    """What the format is called."""
    list_type: ClassVar[str]
    """What it calls a list."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._count = 0

    @abstractmethod
    def field(self, column: Mapping[str, Any], path: Path) -> Field:
        """A field of a struct; `path` is its own."""

    @abstractmethod
    def part(self, column: Mapping[str, Any], name: Part, path: Path) -> Field:
        """The element of a list, or the key or value of a map. A key is never NULL."""

    @abstractmethod
    def leaf(self, name: str, field_id: int) -> Primitive | None:
        """The type that the format names so; None where Inlay has none."""

    def fields(self, columns: Sequence[Mapping[str, Any]], path: Path) -> tuple[Field, ...]:
        made = tuple(self.field(f, (*path, str(f["name"]))) for f in columns)
        if len({f.name for f in made}) < len(made):
            raise CorruptTable(f"{self.source}'s schema has two sibling columns of one name")
        return made

    def type_of(self, type_: Any, path: Path, field_id: int) -> Type:
        self._count += 1
        name = ".".join(path)
        if len(path) > MAX_DEPTH or self._count > MAX_COLUMNS:
            raise UnsupportedTable("the table's columns are nested too deeply, or too many")
        if isinstance(type_, str):
            kind = self.leaf(type_, field_id)
            if kind is None:
                raise UnsupportedTable(
                    f"column {name!r} has {self.source}'s type {type_[:40]!r}, which Inlay lacks",
                    next_step="Drop the column, or cast it to another type by an engine",
                )
            return kind
        match type_["type"]:
            case "struct":
                fields = self.fields(type_["fields"], path)
                if not fields:
                    raise UnsupportedTable(f"column {name!r} is a struct without fields")
                return Struct(fields)
            case "map":
                return MapOf(self.part(type_, "key", path), self.part(type_, "value", path))
            case kind if kind == self.list_type:
                return ListOf(self.part(type_, "element", path))
            case _:
                raise CorruptTable(
                    f"{self.source}'s schema has an unknown type {str(type_)[:40]!r}"
                )
