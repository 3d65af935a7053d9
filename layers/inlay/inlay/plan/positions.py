"""Positions of a file's rows once rows have been removed from it.

Promise: they follow from which rows were kept alone. Relies on row groups keeping their order, and rows
keeping their order within them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from pyroaring import BitMap, BitMap64

from inlay.record import Record

# Before the first 32-bit bitmap.
_HEAD_BYTES = 12


class PositionMap(Record):
    """For every row position of the old file: the position in the new file, or that the row is gone. So a
    marker that was committed for the old file during the rewrite moves to the new one; neither the marker
    nor the rewrite is lost.

    `group_rows` are the rows of each old row group; `kept` holds, for each group that lost rows, the
    positions *within the group* that stayed (none: the group is gone)."""

    group_rows: tuple[int, ...]
    kept: Mapping[int, BitMap]
    _old_starts: tuple[int, ...]
    _new_starts: tuple[int, ...]

    @classmethod
    def of(cls, group_rows: Sequence[int], kept: Mapping[int, BitMap]) -> PositionMap:
        old, new = [0], [0]
        for ordinal, rows in enumerate(group_rows):
            old.append(old[-1] + rows)
            new.append(new[-1] + (len(kept[ordinal]) if ordinal in kept else rows))
        return cls(tuple(group_rows), dict(kept), tuple(old), tuple(new))

    @property
    def old_rows(self) -> int:
        return self._old_starts[-1]

    @property
    def new_rows(self) -> int:
        return self._new_starts[-1]

    def map(self, positions: Iterable[int]) -> list[int]:
        """The new positions of the rows that are still there, in the given order."""
        moved = map(self.one, positions)
        return [new for new in moved if new is not None]

    def one(self, position: int) -> int | None:
        """The new position of one row, None when it is gone."""
        if not 0 <= position < self.old_rows:
            raise ValueError(f"position {position} of a file of {self.old_rows} rows")
        ordinal = bisect_right(self._old_starts, position) - 1
        within = position - self._old_starts[ordinal]
        kept = self.kept.get(ordinal)
        if kept is not None:
            if within not in kept:
                return None
            within = kept.rank(within) - 1
        return self._new_starts[ordinal] + within

    def moved(self, positions: BitMap64) -> BitMap64:
        """The same for a set: the new positions of the rows that are still there."""
        still_there = BitMap64()
        for ordinal, (start, rows) in enumerate(
            zip(self._old_starts, self.group_rows, strict=False)
        ):
            group = BitMap64()
            group.add_range(start, start + rows)
            inside = positions & group
            if ordinal in self.kept:
                still_there |= BitMap64(self.map(inside))
            else:
                still_there |= inside.shift(self._new_starts[ordinal] - start)
        return still_there


def narrow(bitmap: BitMap64) -> BitMap:
    """The same set of 32-bit numbers as the narrow kind. Its one 32-bit bitmap is taken over as it is
    stored: nothing is done for each number.

    >>> narrow(BitMap64([3, 70_000])), narrow(BitMap64())
    (BitMap([3, 70000]), BitMap([]))
    """
    if not bitmap:
        return BitMap()
    if bitmap.max() >= 1 << 32:
        raise ValueError("a position of more than 32 bits")
    return BitMap.deserialize(bitmap.serialize()[_HEAD_BYTES:])
