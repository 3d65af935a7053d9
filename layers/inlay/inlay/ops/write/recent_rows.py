"""Positions of the rows that merges wrote recently: a map from key to file and position.

Promise: the position found for a key that has a row is that of its only row, which is live, so deleting it
deletes the key. Keys that are not found are deleted by value, as usual. The map is not stored: a new
process starts with an empty one.

For this, the files of the map are the last ones that the stream wrote, without a gap, and only the stream
has deleted rows of them: then the newest of them that has a key has its live row, if there is one. So

- rows that others add clear the map: they may be of any key;
- a file that left (compaction, clustering, surgery, an erasure), and one that others' deletes may hit, take
  all older files with them: a key's row may now be in a file that is not searched, and an older file would
  give the position of a row that is long deleted;
- a file whose rows the stream has all replaced leaves alone: it has no live row to be missed.

The process that plans keeps only entries of files, newest last and at most `MAX_ROWS` rows of them. Those
that write read their keys (which they usually wrote a moment ago) and keep them in the context's cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile

import pyarrow as pa
from pyroaring import BitMap64

from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import TRUE
from inlay.format.schema import Schema
from inlay.ops.context import Context
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.read.selection import POSITION_COLUMN, Projection
from inlay.plan.metadata.state import Contents, State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, plan_scan
from inlay.record import Mutable

# Rows and files whose keys each process that writes may hold, and look a batch's keys up in.
MAX_ROWS = 1_000_000
MAX_FILES = 64

_CACHED = "keys and positions: "


class RecentRows(Mutable):
    """The map of one stream of merges. `seen` is the version up to which it is complete: all rows added
    later are in `files`. `markers` are the ids of the stream's own deletes. `table_id` is that of the table
    of the first merge."""

    table_id: str | None = None
    seen: int = 0
    files: tuple[DataFile, ...] = ()
    markers: frozenset[str] = frozenset()
    contents: Contents | None = None  # of the last state: most of the next one's

    def look(self, state: State) -> tuple[DataFile, ...]:
        """The files in which keys may be looked up at this state, whose entries are all loaded."""
        own = {file.key for file in self.files}
        live = {file.key: file for file in state.files()}
        foreign = any(f.newest_rows > self.seen and f.key not in own for f in live.values())
        if foreign or state.snapshot.replaced > self.seen:
            self.files = ()
        self.files = self._untouched(state, live)
        self.markers &= {marker.id for marker in state.markers()}
        self.table_id = state.snapshot.table_id
        self.seen = state.snapshot.version
        self.contents = state.contents
        return self.files

    def _untouched(self, state: State, live: Mapping[str, DataFile]) -> tuple[DataFile, ...]:
        """The newest files up to the first, from the newest on, that left or that others' deletes may
        hit."""
        present = [live[file.key] for file in self.files if file.key in live]
        others = [marker for marker in state.markers() if marker.id not in self.markers]
        plan = plan_scan(present, others, TRUE, evidence=Evidence.of_snapshot(state.snapshot))
        untouched = {task.file.key for task in plan.tasks if not task.markers}
        newest = takewhile(lambda file: file.key in untouched, reversed(self.files))
        return tuple(live[file.key] for file in newest)[::-1]

    def add(
        self, files: Iterable[DataFile], markers: Iterable[Marker], emptied: Collection[str]
    ) -> None:
        """Adds what a merge committed that was planned on the last state: its files, its deletes, and the
        keys of the files whose rows it replaced, all of them."""
        self.markers |= {marker.id for marker in markers}
        kept: list[DataFile] = []
        rows = 0
        for file in reversed((*self.files, *files)):
            if file.key in emptied:
                continue
            rows += file.rows
            if rows > MAX_ROWS or len(kept) == MAX_FILES:
                break
            kept.append(file)
        self.files = tuple(reversed(kept))


def find_positions(
    ctx: Context, schema: Schema, files: Sequence[DataFile], keys: pa.Table
) -> tuple[dict[str, BitMap64], pa.Table]:
    """(positions by file, the keys found in none of the files). For a key in several files only the newest
    counts: the stream has deleted it from the others."""
    arrow = schema_to_arrow(schema, with_ids=False)
    positions: dict[str, BitMap64] = {}
    try:
        left = keys.cast(pa.schema([arrow.field(name) for name in keys.column_names]))
    except pa.ArrowException:
        # The delete by value reports what is wrong with them.
        return {}, keys
    for file in reversed(files):
        if not left.num_rows:
            break
        names = left.column_names
        known = _keys_of(ctx, schema, file, names)
        hits = left.join(known, names, join_type="inner")
        if hits.num_rows:
            positions[file.key] = BitMap64(hits.column(POSITION_COLUMN).to_pylist())
            left = left.join(known, names, join_type="left anti")
    return positions, left


def _keys_of(ctx: Context, schema: Schema, file: DataFile, names: Sequence[str]) -> pa.Table:
    name = f"{_CACHED}{file.key} {names}"
    cached: pa.Table | None = ctx.cache.get(name)
    if cached is not None:
        return cached
    ids = {field.name: field.id for field in schema.fields}
    projection = Projection(schema=schema, columns=tuple(ids[n] for n in names), position=True)
    # Without its deletes, which are the stream's own: of a key with a row the newest one is live.
    task = FileTask(file=file, schema=schema)
    rows = list(ctx.reader.rows([task], projection))
    table = pa.Table.from_batches(rows, schema=projection.result)
    ctx.cache.put(name, table, table.nbytes)
    return table
