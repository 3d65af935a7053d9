"""Records of a text that cannot become rows.

Promise: of each the place, the reason and the record itself are kept, up to a limit. One more refuses the
text as a whole, at its place: with a limit of 0 the first one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import UnreadableFile
from inlay.record import Mutable, Record, field

# Of the records that are refused, as text: they are held until all are known.
MAX_REFUSED_BYTES = 16 * 2**20


class Misread(Exception):
    """A value that its column's type does not take; `row` counts from 0 among the values given."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row
        self.what = what


class Refused(Record):
    """A record by its place, counted from 1; as its fields, or as its text where it has no such fields."""

    place: int
    reason: str
    record: Mapping[str, Any] | str


class Refusals(Mutable):
    """Those of the text at `path`, whose records are called `unit`."""

    path: str
    unit: str
    next_step: str
    limit: int = 0
    listed: list[Refused] = field(default_factory=list)
    held_bytes: int = 0

    def begin(self) -> None:
        """The text is read from its start: it finds them again."""
        self.listed.clear()
        self.held_bytes = 0

    @property
    def room(self) -> int:
        return self.limit - len(self.listed)

    def add(self, one: Refused) -> None:
        """Raises `UnreadableFile` where there is no room."""
        if not self.room:
            raise self.whole(one.place, one.reason)
        self.listed.append(one)
        self.held_bytes += len(str(one.record))
        if self.held_bytes > MAX_REFUSED_BYTES:
            raise self.whole(one.place, f"{one.reason}; refused records take too much memory")

    def whole(self, place: int, reason: str) -> UnreadableFile:
        """The text is refused for this record."""
        others = (
            f" ({self.limit:,} before it were refused, as many as may be)" if self.limit else ""
        )
        return UnreadableFile(
            f"{self.path}: {self.unit} {place:,}: {reason}{others}", next_step=self.next_step
        )


# Reads a column's values from a row to before another. Raises `Misread`.
Column = Callable[[int, int], pa.Array]
# Rows that are read together where some of them cannot be: each of those makes its block be read again.
BLOCK_ROWS = 64


def misread_rows(
    columns: Sequence[tuple[str, Column]], rows: int, room: int
) -> tuple[list[pa.Array], dict[int, str]]:
    """The columns, or which of their `rows` cannot be read and why: of each column at most one more than
    there is `room` for."""
    arrays: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for name, read in columns:
        try:
            arrays.append(read(0, rows))
        except Misread:
            for row, what in islice(_misread(read, rows), room + 1):
                reasons.setdefault(row, f"{name} {what}")
    return arrays, dict(sorted(reasons.items()))


def _misread(read: Column, rows: int) -> Iterator[tuple[int, str]]:
    for begin in range(0, rows, BLOCK_ROWS):
        start, stop = begin, min(begin + BLOCK_ROWS, rows)
        while start < stop:
            try:
                read(start, stop)
                break
            except Misread as error:
                yield start + error.row, error.what
                start += error.row + 1


def without_null(values: pa.Array) -> pa.Array:
    """Values of a column that takes no NULL. Raises `Misread`."""
    if values.null_count:
        raise Misread(pc.index(values.is_null(), True).as_py(), "is NULL, and takes none")
    return values
