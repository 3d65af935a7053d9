"""Writing data files: Parquet that is good to prune, to read in part, and to cut groups out of.

Promise: `write_files` yields an entry for each file once it is whole in the store; together the files
hold exactly the rows given, in the order given (within each file by `sort_by`, if set). Files have
field ids, page indexes, page checksums and statistics; memory is bounded by a row group, or with
`sort_by` by `SORT_BYTES`, for each open partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inlay.errors import InlayError
from inlay.format.entry import DataFile
from inlay.format.schema import Field, Primitive, Schema, Value
from inlay.parquet.ranges import Objects
from inlay.parquet.stats import describe
from inlay.parquet.types import schema_to_arrow
from inlay.parquet.upload import Upload

TARGET_FILE_BYTES = 128 * 1024 * 1024
ROW_GROUP_ROWS = 1_048_576
# Uncompressed bytes of a row group: what surgery has to re-encode to take one row out.
ROW_GROUP_BYTES = 16 * 1024 * 1024
# A larger dictionary is given up for plain values. Measured on lineitem against Arrow's 1 MiB: files 14 %
# smaller, written and read in half the time, and single pages can be read without a large dictionary.
DICTIONARY_BYTES = 128 * 1024
# Rows of a page, the least that a lookup reads of a column. Arrow's 20,000 gain 0.5 % of size.
PAGE_ROWS = 10_000
# Rows held in memory to be sorted; a file is at most what these encode to.
SORT_BYTES = 256 * 1024 * 1024
# Partitions written to side by side; beyond it the least recently used file is finished.
OPEN_PARTITIONS = 16

Partition = tuple[Value | None, ...]
# Cuts a batch into its partitions: values of the partition spec's fields, and their rows.
Split = Callable[[pa.RecordBatch], Iterable[tuple[Partition, pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class Target:
    """Where new files go. `new_key` gives a fresh key, relative to the table root, at each call."""

    objects: Objects
    new_key: Callable[[], str]
    executor: Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How files are laid out. `sort_by` and `stats_columns` are field ids; `split` cuts batches into
    the partitions of `spec_id`."""

    target_file_bytes: int = TARGET_FILE_BYTES
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    compression: str = "zstd"
    sort_by: tuple[int, ...] = ()
    stats_columns: tuple[int, ...] = ()
    spec_id: int = 0
    split: Split | None = None
    key_values: Mapping[str, str] = field(default_factory=dict)


def write_files(
    target: Target, batches: Iterable[pa.RecordBatch], schema: Schema, layout: Layout
) -> Iterator[DataFile]:
    """Write batches that are laid out as `schema` (`conform` makes them so); no file for no rows.

    Entries have no sequence, event or origin: the caller says what the files are for. When the
    generator is closed early or fails, files not yet yielded are dropped or left to garbage collection.
    """
    open_files: dict[Partition, _File] = {}
    try:
        for batch in batches:
            for partition, rows in layout.split(batch) if layout.split else [((), batch)]:
                if not rows.num_rows:
                    continue
                file = open_files.pop(partition, None)
                if file is None and len(open_files) >= OPEN_PARTITIONS:
                    yield open_files.pop(next(iter(open_files))).finish()
                file = file or _File(target, schema, layout, partition)
                # Last in the dict is the most recently used.
                open_files[partition] = file
                for slab in _slabs(rows, layout):
                    file.add(slab)
                    if file.full:
                        open_files.pop(partition)
                        yield file.finish()
                        file = open_files[partition] = _File(target, schema, layout, partition)
        while open_files:
            file = open_files.pop(next(iter(open_files)))
            if file.rows:
                yield file.finish()
    except BaseException:
        for file in open_files.values():
            file.abort()
        raise


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
        self._schema = schema
        self._arrow = schema_to_arrow(schema)
        self._layout = layout
        self._partition = partition
        self._key = target.new_key()
        source = target.objects.source(self._key)
        self._upload = Upload(source.store, source.key, target.executor)
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._nan = {f.name: False for f in schema.fields if _is_float(f)}

    @property
    def full(self) -> bool:
        if self._layout.sort_by:
            # Compressed size is only known once sorted; rows encode to no more than they take.
            return self._pending_bytes >= min(SORT_BYTES, self._sort_bytes)
        return self._upload.size >= self._layout.target_file_bytes

    @property
    def _sort_bytes(self) -> int:
        # Columns of rows in order encode to a third of their memory or less.
        return 3 * self._layout.target_file_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._pending.append(batch)
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
        self._pending = rest.to_batches() if rest.num_rows else []
        self._pending_rows = rest.num_rows
        self._pending_bytes = rest.nbytes

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(b.columns, schema=self._arrow) for b in self._pending],
            schema=self._arrow,
        )

    def _write(self, group: pa.Table) -> None:
        for name, seen in self._nan.items():
            if not seen:
                found = pc.any(pc.is_nan(group.column(name))).as_py()
                self._nan[name] = bool(found)
        self._open().write_table(group, row_group_size=group.num_rows)

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
            if self._layout.sort_by and self._pending:
                self._write_sorted()
            elif self._pending:
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
            spec_id=self._layout.spec_id,
            partition=self._partition,
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
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def abort(self) -> None:
        """Drop the file: nothing of it becomes visible."""
        if self._writer is not None:
            # The footer goes nowhere: the upload is never finished.
            with suppress(pa.ArrowException, OSError, InlayError):
                self._writer.close()
        self._upload.abort()


def _is_float(found: Field) -> bool:
    return isinstance(found.type, Primitive) and found.type.is_float
