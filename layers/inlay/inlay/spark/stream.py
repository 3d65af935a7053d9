"""Reading a table as a stream: first the existing rows, then what each commit adds.

Promise: a query sees every row that is live in its first version, then every row that later commits add
(append, ingest, the new rows of updates and merges), each once, in the order of versions; maintenance adds
nothing. Deletes are not reported: a row that was added and deleted since is still seen. A commit that
replaces the content (a restore, a merged branch) adds the rows that were not there before. A version that
expires before the query reaches it ends the query with an error, never with a gap.

An offset states what has been read:

    {"version": 7, "first": false, "after": null, …}            all of the versions up to 7
    {"version": 7, "first": false, "after": [8, "data/…"], …}   and what version 8 adds, up to this file
    {"version": 7, "first": true, "after": [5, "data/…"], …}    the live rows at version 7, up to this file

and of which table, by its id: versions of another one at its place are other versions (`TableReplaced`).
The branch is in it for the same reason (`ref`).

Files of a step are read in the order in which they were added, those of one commit by key. A query may go
on with another `where`, and an erasure hides files: so an offset names the last file, which has its place
whichever of the others are there. Files that have to be compared with what they replaced are read together,
before the others of their step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from inlay.engine import FeedParts, FileTask, LoadedTable, Snapshot, parse_predicate
from inlay.spark.conditions import TRUE
from inlay.spark.connect import connect, load_snapshot
from inlay.spark.errors_in_words import in_words
from inlay.spark.feed import StepPartition, checked_offset
from inlay.spark.feed_stream import VersionStream, is_over
from inlay.spark.options import ReadOptions
from inlay.spark.partitions import plan_partitions
from inlay.spark.reader import TaskReader

# The parts of one step of the stream: files to read, or files to compare with those they replaced.
Piece = FileTask | StepPartition


# Where a file stands in its step: the version that added it, and its key.
Place = tuple[int, str]
_COMPARED: Place = (0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """See the module's head."""

    table: str
    ref: str
    version: int
    first: bool = False
    after: Place | None = None


@in_words
class InlayStreamReader(VersionStream):
    """Exists on the driver as long as the query; executors only get `read`."""

    def __init__(self, options: ReadOptions, snapshot: Snapshot, asked: StructType) -> None:
        super().__init__(options, snapshot)
        schema = snapshot.schema
        self._tasks = TaskReader(options.uri, schema, asked)
        where = TRUE if options.where is None else parse_predicate(options.where, schema)
        self._feed = FeedParts(schema=schema, ids=(), where=where)

    # -- on the driver ------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        if options.start_version is not None:
            return asdict(self._at(options.start_version - 1))
        snapshot = load_snapshot(options.uri, as_of_us=options.start_us)
        # From a time on: rows that existed before are not included.
        return asdict(self._at(snapshot.version, first=options.start_us is None))

    def _at(self, version: int, *, first: bool = False) -> Offset:
        ref = connect(self._options.uri).ref
        return Offset(table=self._table_id, ref=ref, version=version, first=first)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """As far as `limit` allows, at least one file."""
        current = self._newest()
        until = current.snapshot.version if self._until is None else self._until
        offset = self._offset(start)
        taken = size = 0
        while offset.first or offset.version < until:
            for piece in _left(self._step(current, offset), offset):
                taken += 1
                size += _bytes(piece)
                # Pieces of one place are read together.
                is_cut = offset.after != _place(piece)
                if taken > 1 and is_cut and is_over(limit, taken, size):
                    return asdict(offset)
                offset = replace(offset, after=_place(piece))
            offset = _after(offset)
        return asdict(offset)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        pieces = list(self._between(self._offset(start), self._offset(end)))
        files = plan_partitions(
            [piece for piece in pieces if isinstance(piece, FileTask)],
            partition_bytes=self._options.partition_bytes,
            parallelism=self._options.slots,
        )
        return [*files, *(piece for piece in pieces if isinstance(piece, StepPartition))]

    def _offset(self, stored: dict[str, Any]) -> Offset:
        offset = Offset(**checked_offset(stored, self._table_id, self._options.uri))
        if offset.after is None:
            return offset
        version, key = offset.after  # JSON has lists only
        return replace(offset, after=(version, key))

    def _between(self, start: Offset, end: Offset) -> Iterator[Piece]:
        current = self._newest()
        offset = start
        while offset != end:
            last = (offset.version, offset.first) == (end.version, end.first)
            pieces = self._step(current, offset)
            later = {id(piece) for piece in _left(pieces, end)} if last else ()
            yield from (piece for piece in _left(pieces, offset) if id(piece) not in later)
            offset = end if last else _after(offset)

    def _step(self, current: LoadedTable, offset: Offset) -> Sequence[Piece]:
        """The whole step that `offset` is in: the live files of its version, or what the next version
        adds."""
        version = offset.version if offset.first else offset.version + 1
        ctx = connect(self._options.uri)
        pieces = self._feed.added(ctx, current, version, live=offset.first)
        return [p if isinstance(p, FileTask) else StepPartition(p) for p in pieces]

    # -- on the executors ---------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, StepPartition):
            return self._tasks.read_added(partition.part)
        return self._tasks.read(partition)


def _bytes(piece: Piece) -> int:
    if isinstance(piece, FileTask):
        return piece.file.size
    return piece.part.added_bytes


def _place(piece: Piece) -> Place:
    if isinstance(piece, FileTask):
        return (piece.file.sequence or 0, piece.file.key)
    return _COMPARED


def _left(pieces: Sequence[Piece], offset: Offset) -> Sequence[Piece]:
    """The pieces of its step that are not read at `offset`."""
    after = offset.after
    return sorted((p for p in pieces if after is None or _place(p) > after), key=_place)


def _after(offset: Offset) -> Offset:
    """The end of the step of `offset`."""
    version = offset.version if offset.first else offset.version + 1
    return Offset(table=offset.table, ref=offset.ref, version=version)
