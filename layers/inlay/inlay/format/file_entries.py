"""The entries of a leaf of data files, as columns: an entry becomes an object when it is asked for.

Promise: a sequence of `DataFile`s like any other, which stay what they are once made. What asks for columns
(`rows`, `sizes`, `stats`) makes no object: a plan over a hundred thousand files makes those of the few that
it reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from inlay.format.entry import ColumnStats, DataFile
from inlay.format.entry_json import ADOPTED, NO_DATA_CHANGE, OWN, stats_of
from inlay.format.schema import Primitive, Value


def packed(values: Sequence[Any]) -> Sequence[Any]:
    """The same values in little memory, where they are numbers of 64 bits."""
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        return values


@dataclass(frozen=True, slots=True)
class StatsColumn:
    """Bounds of one field in one type, a value for each entry; an entry without flags has none."""

    field_id: int
    kind: Primitive
    lower: Sequence[Value | None]
    upper: Sequence[Value | None]
    nulls: Sequence[int | None]
    flags: Sequence[int | None]

    def of(self, n: int) -> ColumnStats | None:
        flag = self.flags[n]
        if flag is None:
            return None
        return stats_of(self.lower[n], self.upper[n], self.nulls[n], flag, self.kind)


class FileEntries(Sequence[DataFile]):
    """`columns` by the names that a leaf has, each with a value (or None) for every entry."""

    __slots__ = ("_columns", "_made", "stats")

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], stats: Sequence[StatsColumn], count: int
    ) -> None:
        self._columns = {
            name: values for name, values in columns.items() if values.count(None) < count
        }
        self.stats = tuple(stats)
        self._made: list[DataFile | None] = [None] * count

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, n: int) -> DataFile: ...

    @overload
    def __getitem__(self, n: slice) -> tuple[DataFile, ...]: ...

    def __getitem__(self, n: int | slice) -> DataFile | tuple[DataFile, ...]:
        if isinstance(n, slice):
            return tuple(self[at] for at in range(*n.indices(len(self))))
        found = self._made[n]
        if found is None:
            found = self._made[n] = self._make(n)
        return found

    def __iter__(self) -> Iterator[DataFile]:
        return (self[n] for n in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(entry.key for entry in self))

    def __reduce__(self) -> tuple[Any, ...]:
        return FileEntries, (self._columns, self.stats, len(self))

    def column(self, name: str) -> Sequence[Any]:
        return self._columns.get(name) or [None] * len(self)

    def _make(self, n: int) -> DataFile:
        def of(name: str) -> Any:
            values = self._columns.get(name)
            return None if values is None else values[n]

        flags = of("flags") or 0
        stats = ((column.field_id, column.of(n)) for column in self.stats)
        return DataFile(
            key=of("key"),
            size=of("size"),
            footer_size=of("footer"),
            rows=of("rows"),
            row_groups=of("groups"),
            schema_id=of("schema"),
            sequence=of("sequence"),
            spec_id=of("spec") or 0,
            partition=tuple(of("partition") or ()),
            stats={field_id: each for field_id, each in stats if each is not None},
            etag=of("etag"),
            adopted=bool(flags & ADOPTED),
            event=of("event"),
            data_change=not flags & NO_DATA_CHANGE,
            origin=of("origin"),
            arrived=of("arrived"),
            cluster=of("cluster"),
            own=bool(flags & OWN),
        )
