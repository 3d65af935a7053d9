"""Which rows of a row group stay, and the rewritten group if some do not.

Promise: a `GroupEditor` reads a row group when its fate is first requested, checks its pages against
the footer, asks the caller which rows stay, and keeps the edited group until it is placed. A group of
`recode` is rewritten even if all of its rows stay: its other parts are then made from the rows. One
group is in memory at a time, besides the new bytes that wait to be placed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from inlay.errors import UnsupportedFile
from inlay.parquet.arrow.literals import to_scalar
from inlay.parquet.footer.footer import MAGIC, RECODE, Footer, RowGroup
from inlay.parquet.footer.layout import GroupFate, Layout
from inlay.parquet.read.ranges import RangeFile, merge_ranges
from inlay.parquet.surgery.physical_view import read_logical
from inlay.parquet.surgery.row_group import NewGroup, edit_group, profile_group
from inlay.plan.surgery.multipart import MIB
from inlay.plan.surgery.positions import PositionMap
from inlay.storage.base import ByteRange

# One group is held whole: its bytes, its values and its new bytes.
MAX_GROUP_BYTES = 1024 * MIB
MAX_GROUP_VALUE_BYTES = 4 * MAX_GROUP_BYTES

KeepRows = Callable[[int, pa.Table], "pa.BooleanArray | pa.ChunkedArray | None"]
Progress = Callable[[str, int, int | None], None]


@dataclass(slots=True)
class GroupEditor:
    """Decides the fate of row groups, one at a time, on demand; holds edited groups until they are placed.
    `kept` has the remaining rows of each group that changed. `is_over`: groups were left unchanged for lack
    of time."""

    old: RangeFile
    footer: Footer
    layout: Layout
    keep: KeepRows
    wanted: set[int]
    dropped: set[int]
    columns: Collection[str] | None
    erase: bool
    progress: Progress
    goes_on: Callable[[], bool]
    recode: frozenset[int] = frozenset()
    kept: dict[int, BitMap] = field(default_factory=dict)
    edited: dict[int, NewGroup] = field(default_factory=dict)
    _fates: dict[int, GroupFate] = field(default_factory=dict)
    _begun: int = 0
    is_over: bool = False

    def fate(self, ordinal: int) -> GroupFate:
        """What happens to a group, which is read and written again when this is first asked."""
        if ordinal in self._fates:
            return self._fates[ordinal]
        group = self.footer.row_groups[ordinal]
        found = GroupFate.STAYS
        if group.num_rows and ordinal in self.dropped:
            found = GroupFate.DROPPED
        elif group.num_rows and ordinal in self.wanted and not self._stops():
            body, moved = self._fetch(ordinal)
            profiles = profile_group(self.footer, group, body, moved)
            mask = self._mask(group, body, moved)
            stays = 0 if mask is None else pc.sum(mask).as_py() or 0
            if mask is None or not stays:
                found = GroupFate.DROPPED
            elif stays < group.num_rows or ordinal in self.recode:
                new = edit_group(self.footer, group, body, moved, mask, profiles, erase=self.erase)
                if new.rows != stays:
                    raise AssertionError(f"{new.rows} rows written where {stays} stay")
                self.kept[ordinal], self.edited[ordinal] = positions_of(mask), new
                found = GroupFate.EDITED
        if found is GroupFate.DROPPED:
            self.kept[ordinal] = BitMap()
        self._fates[ordinal] = found
        return found

    def positions(self) -> PositionMap:
        groups = self.footer.row_groups
        for group in groups:
            self.fate(group.ordinal)
        return PositionMap.of([group.num_rows for group in groups], self.kept)

    def _stops(self) -> bool:
        """Whether there is no time for one more group."""
        self.is_over = self.is_over or (self._begun > 0 and not self.goes_on())
        if not self.is_over:
            self.progress("row groups", self._begun, len(self.wanted))
            self._begun += 1
        return self.is_over

    def _mask(
        self, group: RowGroup, body: bytes, moved: Sequence[int]
    ) -> pa.BooleanArray | pa.ChunkedArray | None:
        """Which rows stay; None for no row at all."""
        if self.columns is not None and not self.columns:
            table = pa.table({})
        else:
            table = read_logical(self.footer, group, body, moved, self.columns)
        mask, rows = self.keep(group.ordinal, table), group.num_rows
        # A null would be ambiguous. SQL's NULL is not TRUE, so the row stays; a keep-mask made by negating
        # a predicate means the opposite. The maker of the mask must decide.
        if mask is not None and (
            not pa.types.is_boolean(mask.type) or len(mask) != rows or mask.null_count
        ):
            raise ValueError(f"keep must return {rows} booleans without nulls, not {mask.type}")
        return mask

    def _fetch(self, ordinal: int) -> tuple[bytes, list[int]]:
        """The group's chunks after 4 arbitrary bytes, and the resulting shift of each."""
        chunks = self.footer.row_groups[ordinal].columns
        stored = (ByteRange(c.start, c.end) for c in chunks if c.compressed_size)
        spans = merge_ranges(stored, most=None)
        total = sum(span.length for span in spans)
        values = sum(chunk.uncompressed_size for chunk in chunks)
        if total > MAX_GROUP_BYTES or values > MAX_GROUP_VALUE_BYTES:
            raise UnsupportedFile(
                f"row group {ordinal} has {total} bytes, {values} uncompressed, more than surgery "
                f"holds in memory ({MAX_GROUP_BYTES}, {MAX_GROUP_VALUE_BYTES})",
                next_step=RECODE,
            )
        if not spans:
            return MAGIC, [0] * len(chunks)
        # Readers take offset 0 for "none". So the four bytes before come along, for the first chunk to
        # lie behind; putting four of our own there would copy the whole group.
        spans = (ByteRange(spans[0].start - len(MAGIC), spans[0].end), *spans[1:])
        parts = [self.old.content(span) for span in spans]
        shifts, size = [], 0
        for span in spans:
            shifts.append((span, size - span.start))
            size += span.length
        moved = [
            next((s for span, s in shifts if span.start <= chunk.start < span.end), 0)
            for chunk in chunks
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts), moved


def positions_of(mask: pa.BooleanArray | pa.ChunkedArray) -> BitMap:
    """The positions at which a mask is true."""
    found = BitMap()
    offset = 0
    for chunk in mask.chunks if isinstance(mask, pa.ChunkedArray) else [mask]:
        true = pc.indices_nonzero(chunk)
        moved = pc.add(true, to_scalar(offset, pa.uint64())).cast(pa.uint32())
        raw = array("I")
        raw.frombytes(memoryview(moved.buffers()[1])[: 4 * len(moved)])
        found |= BitMap(raw)
        offset += len(chunk)
    return found
