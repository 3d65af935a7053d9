"""Positions of the rows that merges wrote recently: a map from key to file and position.

Promise: a position found for a key is that of the key's only row that may be live, so deleting it deletes
the key. This holds as long as nobody else adds rows; if somebody does, the map is cleared, and keys that
are not found are deleted by value, as usual. The map is not stored: a new process starts with an empty one.

The driver keeps only entries of files, newest last and at most `MAX_ROWS` rows of them. Executors read
their keys (which they usually wrote a moment ago) and keep them in the connection's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyroaring import BitMap64

from inlay.format.entry import DataFile
from inlay.format.schema import Schema
from inlay.ops.context import Context
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.read.reader import read_tasks
from inlay.parquet.read.selection import POSITION_COLUMN, Wanted
from inlay.plan.metadata.state import Contents, State
from inlay.plan.scan import FileTask

# Rows and files whose keys each executor process may hold, and look a batch's keys up in.
MAX_ROWS = 1_000_000
MAX_FILES = 64

_CACHED = "keys and positions: "


@dataclass(slots=True)
class Recent:
    """The map of one stream of merges. `seen` is the version up to which it is complete: all rows added
    later are in `files`. `table_id` is that of the table of the first merge."""

    table_id: str | None = None
    seen: int = 0
    files: tuple[DataFile, ...] = ()
    contents: Contents | None = None  # of the last state: most of the next one's

    def look(self, state: State) -> tuple[DataFile, ...]:
        """The files in which keys may be looked up at this state, whose entries are all loaded. Clears the
        map if rows were added that this stream did not add."""
        own = {file.key for file in self.files}
        live = {file.key: file for file in state.files()}
        foreign = any(f.newest_rows > self.seen and f.key not in own for f in live.values())
        if foreign or state.snapshot.replaced > self.seen:
            self.files = ()
        # Compaction removes files; its outputs are not searched.
        self.files = tuple(live[file.key] for file in self.files if file.key in live)
        self.table_id = state.snapshot.table_id
        self.seen = state.snapshot.version
        self.contents = state.contents
        return self.files

    def add(self, files: Iterable[DataFile]) -> None:
        """Adds files committed by a merge that was planned on the last state."""
        kept: list[DataFile] = []
        rows = 0
        for file in reversed((*self.files, *files)):
            rows += file.rows
            if rows > MAX_ROWS or len(kept) == MAX_FILES:
                break
            kept.append(file)
        self.files = tuple(reversed(kept))


def find_positions(
    ctx: Context, schema: Schema, files: Sequence[DataFile], keys: pa.Table
) -> tuple[dict[str, BitMap64], pa.Table]:
    """(positions by file, the keys found in none of the files). For a key in several files only the newest
    counts: it has been deleted from the others."""
    arrow = schema_to_arrow(schema, with_ids=False)
    found: dict[str, BitMap64] = {}
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
            found[file.key] = BitMap64(hits.column(POSITION_COLUMN).to_pylist())
            left = left.join(known, names, join_type="left anti")
    return found, left


def _keys_of(ctx: Context, schema: Schema, file: DataFile, names: Sequence[str]) -> pa.Table:
    name = f"{_CACHED}{file.key} {names}"
    cached: pa.Table | None = ctx.cache.get(name)
    if cached is not None:
        return cached
    ids = {field.name: field.id for field in schema.fields}
    wanted = Wanted(schema=schema, columns=tuple(ids[n] for n in names), position=True)
    # Its own deletes do not matter: the newest row of a key is what counts, live or not.
    task = FileTask(file=file, schema=schema)
    rows = list(read_tasks(ctx.objects, [task], wanted, ctx.executor))
    table = pa.Table.from_batches(rows, schema=wanted.result)
    ctx.cache.put(name, table, table.nbytes)
    return table
