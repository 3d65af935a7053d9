"""Writing data files: Parquet that is good to prune, to read in part, and to cut groups out of.

Promise: `write_files` yields an entry for each file once it is whole in the store; together the files
hold exactly the rows given, each file rows of one partition only, in the order given or, with
`sort_by`, in that order throughout the file. Files have field ids, page indexes, page checksums and
statistics.

Memory: `HELD_BYTES` at most, in rows and in what is on its way to the store, whatever the number of
partitions (sorting takes as much again). When more would be held, the files that hold most are finished,
so rows that come in any order give files of at least `HELD_BYTES` / (2 x partitions) of rows each; rows
clustered by partition give full ones. A sorted file is at most what `HELD_BYTES` of rows encode to: files
of one write may overlap, clustering (`ops.maintain.compact`) puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inlay.errors import InlayError, InvalidRequest
from inlay.format.entry import DataFile
from inlay.format.partition import Partition
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.snapshot import UNPARTITIONED, PartitionSpec
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.statistics import describe
from inlay.parquet.write.partition import Split
from inlay.parquet.write.upload import Upload

TARGET_FILE_BYTES = 128 * 1024 * 1024
ROW_GROUP_ROWS = 1_048_576
# Uncompressed bytes of a row group: what surgery has to re-encode to take one row out.
ROW_GROUP_BYTES = 16 * 1024 * 1024
# A larger dictionary is given up for plain values. Measured on lineitem against Arrow's 1 MiB: files 14 %
# smaller, written and read in half the time, and single pages can be read without a large dictionary.
DICTIONARY_BYTES = 128 * 1024
# Rows of a page, the least that a lookup reads of a column. Arrow's 20,000 gain 0.5 % of size.
PAGE_ROWS = 10_000
# Rows waiting for a row group (or, to be sorted, for a file), and parts of files that are not sent yet.
HELD_BYTES = 256 * 1024 * 1024
# What Arrow takes for a column of a batch, however few its rows.
COLUMN_BYTES = 512
# Files being sent side by side; beyond it the least recently used one is finished.
OPEN_FILES = 16
# Small batches of a partition become one at this number.
SMALL_BATCHES = 32


@dataclass(frozen=True, slots=True)
class Target:
    """Where new files go. `new_key` gives a fresh key, relative to the table root, at each call."""

    objects: Objects
    new_key: Callable[[], str]
    executor: Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How files are laid out. `sort_by` and `stats_columns` are field ids."""

    target_file_bytes: int = TARGET_FILE_BYTES
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    compression: str = "zstd"
    sort_by: tuple[int, ...] = ()
    stats_columns: tuple[int, ...] = ()
    spec: PartitionSpec = UNPARTITIONED
    key_values: Mapping[str, str] = field(default_factory=dict)


def write_files(
    target: Target, batches: Iterable[pa.RecordBatch], schema: Schema, layout: Layout
) -> Iterator[DataFile]:
    """Write batches that are laid out as `schema` (`conform` makes them so); no file for no rows.

    Entries have no sequence, event or origin: the caller says what the files are for. When the
    generator is closed early or fails, files not yet yielded are dropped or left to garbage collection.
    """
    open_files: dict[Partition, _File] = {}  # the most recently used last
    split = Split(layout.spec, schema)
    held = 0
    try:
        for batch in batches:
            for partition, rows in split(batch):
                for slab in _slabs(rows, layout):
                    file = open_files.pop(partition, None)
                    file = file or _File(target, schema, layout, partition)
                    open_files[partition] = file
                    held -= file.held
                    file.add(slab)
                    held += file.held
                    for done in _to_finish(open_files, file, held):
                        held -= open_files[done].held
                        yield open_files.pop(done).finish()
        while open_files:
            yield open_files.pop(next(iter(open_files))).finish()
    except BaseException:
        for file in open_files.values():
            file.abort()
        raise


def _to_finish(open_files: Mapping[Partition, _File], last: _File, held: int) -> list[Partition]:
    """The partitions whose files have to end now that `last` got rows."""
    done = [last.partition] if last.full else []
    held -= last.held if done else 0
    if held > HELD_BYTES:
        # Down to half, so that not every batch of many partitions ends the next file.
        for partition, file in sorted(open_files.items(), key=lambda item: -item[1].held):
            if held <= HELD_BYTES // 2:
                break
            if partition not in done:
                done.append(partition)
                held -= file.held
    if last.sending:
        sending = [p for p, file in open_files.items() if file.sending and p not in done]
        done += sending[: max(0, len(sending) - OPEN_FILES)]
    return done


def _slabs(batch: pa.RecordBatch, layout: Layout) -> Iterator[pa.RecordBatch]:
    """Pieces of about a row group: after each one a file may turn out to be full."""
    by_bytes = layout.row_group_bytes * batch.num_rows // max(1, batch.nbytes)
    rows = max(1, min(layout.row_group_rows, by_bytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


class _File:
    """One file being written: rows collect to a row group (or, to be sorted, to a file)."""

    def __init__(
        self, target: Target, schema: Schema, layout: Layout, partition: Partition
    ) -> None:
        self.rows = 0
        self.partition = partition
        self._schema = schema
        self._arrow = schema_to_arrow(schema)
        self._layout = layout
        self._key = target.new_key()
        source = target.objects.source(self._key)
        self._upload = Upload(source.store, source.key, target.executor)
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._small: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._nan = {f.name: False for f in schema.fields if _is_float(f)}

    @property
    def full(self) -> bool:
        if self._layout.sort_by:
            # Compressed size is only known once sorted; rows encode to no more than they take.
            return self._pending_bytes >= min(HELD_BYTES, self._sort_bytes)
        return self._upload.size >= self._layout.target_file_bytes

    @property
    def _sort_bytes(self) -> int:
        # Columns of rows in order encode to a third of their memory or less.
        return 3 * self._layout.target_file_bytes

    @property
    def sending(self) -> bool:
        return self._writer is not None

    @property
    def held(self) -> int:
        """Bytes of memory: rows, what Arrow takes for their batches, and parts that are not sent yet."""
        batches = len(self._pending) + len(self._small)
        return self._pending_bytes + batches * len(self._arrow) * COLUMN_BYTES + self._upload.held

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._small.append(batch)
        if len(self._small) >= SMALL_BATCHES:
            self._pending += self._joined(self._small).combine_chunks().to_batches()
            self._small = []
        self._pending_rows += batch.num_rows
        # `get_total_buffer_size` would count what a slice shares with others.
        self._pending_bytes += batch.nbytes
        if not self._layout.sort_by:
            self._cut_groups()

    def _cut_groups(self) -> None:
        while self._pending_rows:
            rows = min(self._pending_rows, self._layout.row_group_rows)
            if self._pending_bytes >= self._layout.row_group_bytes:
                even = self._pending_rows * self._layout.row_group_bytes // self._pending_bytes
                rows = max(1, min(rows, even))
            elif self._pending_rows < self._layout.row_group_rows:
                return
            self._write_group(rows)

    def _write_group(self, rows: int) -> None:
        table = self._table()
        self._write(table.slice(0, rows))
        rest = table.slice(rows)
        self._pending, self._small = rest.to_batches() if rest.num_rows else [], []
        self._pending_rows = rest.num_rows
        self._pending_bytes = rest.nbytes

    def _table(self) -> pa.Table:
        return self._joined([*self._pending, *self._small])

    def _joined(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(b.columns, schema=self._arrow) for b in batches],
            schema=self._arrow,
        )

    def _write(self, group: pa.Table) -> None:
        for name, seen in self._nan.items():
            if not seen:
                found = pc.any(pc.is_nan(group.column(name))).as_py()
                self._nan[name] = bool(found)
        writer = self._open()
        try:
            writer.write_table(group, row_group_size=group.num_rows)
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                f"rows cannot be written as Parquet: {error}",
                next_step="Leave out or mend these values: Parquet has no place for them",
            ) from error

    def _open(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._upload,
                self._arrow,
                compression=self._layout.compression,
                write_page_index=True,
                write_page_checksum=True,
                dictionary_pagesize_limit=DICTIONARY_BYTES,
                max_rows_per_page=PAGE_ROWS,
                sorting_columns=self._sorting_columns() or None,
                metadata_collector=self._footers,
            )
            if self._layout.key_values:
                self._writer.add_key_value_metadata(dict(self._layout.key_values))
        return self._writer

    def _sort_names(self) -> list[str]:
        by_id = {f.id: f.name for f in self._schema.fields}
        return [by_id[found] for found in self._layout.sort_by if found in by_id]

    def _sorting_columns(self) -> list[pq.SortingColumn]:
        # NULL and NaN come last, as Arrow sorts them.
        order = [(name, "ascending") for name in self._sort_names()]
        return list(pq.SortingColumn.from_ordering(self._arrow, order)) if order else []

    def finish(self) -> DataFile:
        """Write what is left, the footer, and the object; describe it."""
        try:
            if self._layout.sort_by and self._pending_rows:
                self._write_sorted()
            elif self._pending_rows:
                self._write_group(self._pending_rows)
            self._open().close()
            self._upload.finish()
        except BaseException:
            self.abort()
            raise
        [metadata] = self._footers
        entry = describe(
            metadata,
            key=self._key,
            size=self._upload.size,
            footer_size=int.from_bytes(self._upload.tail[:4], "little") + 8,
            schema=self._schema,
            stats_columns=self._layout.stats_columns,
        )
        known = {
            f.id: replace(entry.stats[f.id], has_nan=self._nan[f.name])
            for f in self._schema.fields
            if f.name in self._nan and f.id in entry.stats
        }
        return replace(
            entry,
            spec_id=self._layout.spec.id,
            partition=self.partition,
            stats={**entry.stats, **known},
        )

    def _write_sorted(self) -> None:
        table = self._table().combine_chunks()
        names = self._sort_names()
        if names:
            order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
            table = table.take(order)
        width = max(1, table.nbytes // table.num_rows)
        rows = max(1, min(self._layout.row_group_rows, self._layout.row_group_bytes // width))
        for start in range(0, table.num_rows, rows):
            self._write(table.slice(start, rows))
        self._pending, self._small = [], []
        self._pending_rows = self._pending_bytes = 0

    def abort(self) -> None:
        """Drop the file: nothing of it becomes visible."""
        if self._writer is not None:
            # The footer goes nowhere: the upload is never finished.
            with suppress(pa.ArrowException, OSError, RuntimeError, InlayError):
                self._writer.close()
        self._upload.abort()


def _is_float(found: Field) -> bool:
    return isinstance(found.type, Primitive) and found.type.is_float
