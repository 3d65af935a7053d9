"""The entries of a leaf of data files, as columns: an entry becomes an object when it is asked for.

Promise: a sequence of `DataFile`s like any other, which stay what they are once made. What asks for columns
(`rows`, `sizes`, `stats`) makes no object: a plan over a hundred thousand files makes those of the few that
it reads.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from inlay.format.entry import ColumnStats, DataFile, file_of, stats_of
from inlay.format.schema import Primitive, Value
from inlay.record import Record


def packed(values: Sequence[Any]) -> Sequence[Any]:
    """The same values in little memory, where they are numbers of 64 bits."""
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        return values


class StatsColumn(Record):
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


class EntryStats(Mapping[int, ColumnStats]):
    """The bounds of entry `n`, each made when it is asked for: most files are judged by one or two."""

    __slots__ = ("_columns", "_n")

    def __init__(self, columns: Mapping[int, Sequence[StatsColumn]], n: int) -> None:
        self._columns = columns
        self._n = n

    def __getitem__(self, field_id: int) -> ColumnStats:
        for column in self._columns[field_id]:
            stats = column.of(self._n)
            if stats is not None:
                return stats
        raise KeyError(field_id)

    def __iter__(self) -> Iterator[int]:
        n = self._n
        return (
            field_id
            for field_id, columns in self._columns.items()
            if any(column.flags[n] is not None for column in columns)
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the other entries of the leaf.
        return dict, (dict(self),)


class FileEntries(Sequence[DataFile]):
    """`columns` by the names that a leaf has, each with a value (or None) for every entry."""

    __slots__ = ("_by_field", "_columns", "_count", "_made", "stats")

    def __init__(
        self, columns: Mapping[str, Sequence[Any]], stats: Sequence[StatsColumn], count: int
    ) -> None:
        # One list serves all columns without a value: most leaves have several.
        nothing: Sequence[Any] = [None] * count
        self._columns = {
            name: nothing if values.count(None) == count else values
            for name, values in columns.items()
        }
        self.stats = tuple(stats)
        # Of several columns of one field, which differ by type, the last that has a value counts.
        self._by_field: dict[int, list[StatsColumn]] = {}
        for column in self.stats:
            self._by_field.setdefault(column.field_id, []).insert(0, column)
        self._count = count
        # By ordinal, and the sequence that it was asked for with.
        self._made: dict[tuple[int, int | None], DataFile] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, n: int) -> DataFile: ...

    @overload
    def __getitem__(self, n: slice) -> tuple[DataFile, ...]: ...

    def __getitem__(self, n: int | slice) -> DataFile | tuple[DataFile, ...]:
        if isinstance(n, slice):
            return tuple(self[at] for at in range(*n.indices(len(self))))
        if not -self._count <= n < self._count:
            raise IndexError(n)
        return self.resolved(n % self._count, None)

    def resolved(self, n: int, sequence: int | None) -> DataFile:
        """Entry `n`, with `sequence` (its leaf's) unless it has one of its own."""
        entry = self._made.get((n, sequence))
        if entry is None:
            entry = self._made[n, sequence] = self._make(n, sequence)
        return entry

    def __iter__(self) -> Iterator[DataFile]:
        # Not Sequence's own, which takes an IndexError from within an entry for the end.
        return (self[n] for n in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(entry.key for entry in self))

    def __reduce__(self) -> tuple[Any, ...]:
        return FileEntries, (self._columns, self.stats, len(self))

    def column(self, name: str) -> Sequence[Any]:
        return self._columns[name]

    def _make(self, n: int, sequence: int | None) -> DataFile:
        values = {name: column[n] for name, column in self._columns.items()}
        if values["sequence"] is None:
            values["sequence"] = sequence
        return file_of(values, EntryStats(self._by_field, n))
