"""Position maps: where the rows of a file went when it was rewritten one to one.

Promise: a row that was kept keeps its order, so its new position is the number of kept rows before it;
a row that was dropped has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyroaring import FrozenBitMap


@dataclass(frozen=True, slots=True)
class PositionMap:
    """`kept` holds the old positions (from 0) of the rows that are still there."""

    kept: FrozenBitMap

    def map(self, positions: Iterable[int]) -> list[int]:
        """The new positions of those that were kept, in the order given.

        >>> PositionMap(FrozenBitMap([0, 2, 5])).map([2, 3, 5])
        [1, 2]
        """
        return [self.kept.rank(old) - 1 for old in positions if old in self.kept]
