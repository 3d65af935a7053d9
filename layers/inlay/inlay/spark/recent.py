"""Where the rows are that merges wrote lately: a map from key to file and position.

Promise: a position that is found for a key is that of the key's only row that may be live, so deleting it
deletes the key. That holds as long as nobody else brings rows; whoever does so empties the map, and a key
that is not found is deleted by its value, as ever. Nothing of the map is stored: it is dropped with the
process and begins anew.

The driver keeps entries of files only, newest last and at most `MAX_ROWS` rows of them. Executors read
their keys (they wrote them a moment ago, as a rule) and keep them in the connection's cache.
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
from inlay.parquet.read.reader import POSITION_COLUMN, Wanted, read_tasks
from inlay.plan.metadata.state import Contents, State
from inlay.plan.scan.scan import FileTask

# Rows and files whose keys each executor process may hold, and look a batch's keys up in.
MAX_ROWS = 1_000_000
MAX_FILES = 64

_CACHED = "keys and positions: "


@dataclass(slots=True)
class Recent:
    """The map of one stream of merges. `seen` is the version as of which it is complete: all rows that
    came later are in `files`."""

    seen: int = 0
    files: tuple[DataFile, ...] = ()
    contents: Contents | None = None  # of the state last looked at: most of the next one's

    def look(self, state: State) -> tuple[DataFile, ...]:
        """The files that keys may be looked up in at this state, all of whose entries are loaded.
        Forgets everything when rows have come that this stream did not bring."""
        own = {file.key for file in self.files}
        live = {file.key: file for file in state.files()}
        foreign = any(f.newest_rows > self.seen and f.key not in own for f in live.values())
        if foreign or state.snapshot.replaced > self.seen:
            self.files = ()
        # Compaction takes files away; what it made of them is not looked into.
        self.files = tuple(live[file.key] for file in self.files if file.key in live)
        self.seen = state.snapshot.version
        self.contents = state.contents
        return self.files

    def add(self, files: Iterable[DataFile]) -> None:
        """Files that a merge planned on the state last looked at has committed."""
        kept: list[DataFile] = []
        rows = 0
        for file in reversed((*self.files, *files)):
            rows += file.rows
            if rows > MAX_ROWS or len(kept) == MAX_FILES:
                break
            kept.append(file)
        self.files = tuple(reversed(kept))


def locate(
    ctx: Context, schema: Schema, files: Sequence[DataFile], keys: pa.Table
) -> tuple[dict[str, BitMap64], pa.Table]:
    """(positions by file, the keys that are in none of the files). A key that is in several files counts
    in the newest: from the others it has been deleted."""
    arrow = schema_to_arrow(schema, with_ids=False)
    found: dict[str, BitMap64] = {}
    try:
        left = keys.cast(pa.schema([arrow.field(name) for name in keys.column_names]))
    except pa.ArrowException:
        # Whoever deletes them by value says what is wrong with them.
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
    # Its own deletes are of no interest: of a key's rows the newest is looked for, dead or alive.
    task = FileTask(file=file, schema=schema)
    rows = list(read_tasks(ctx.objects, [task], wanted, ctx.executor))
    table = pa.Table.from_batches(rows, schema=wanted.result)
    ctx.cache.put(name, table, table.nbytes)
    return table
