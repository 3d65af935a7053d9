"""Writing data files: Parquet that is efficient to prune, to read in part, and to remove row groups from.

Promise: `write_files` yields an entry for each file once it is whole in the store; together the files hold
exactly the given rows, each file rows of one partition only, in the given order or, with `sort_by`, in that
order throughout the file. Files have field ids, page indexes, page checksums and statistics.

Memory: `HELD_BYTES` at most, in rows and in uploads in flight, whatever the number of partitions (sorting
takes as much again). When more would be held, the files that hold most are finished, so rows in any order
give files of at least `HELD_BYTES` / (2 x partitions) of rows each; rows clustered by partition give full
ones. A sorted file is at most what `HELD_BYTES` of rows encode to: files of one write may overlap,
clustering (`ops.maintain.compact`) orders them.

Bounds beside NaN are left out of what is written (`footer.float_bounds`); the table's own metadata keeps
them, and says that there is NaN.

An upload: one new object as a stream, small ones by one PUT, large ones in parts. After `finish` the
object is whole in the store, under a key that was never written before; after `abort` or a failure
nothing of it is visible. Memory: at most `PUT_BYTES` before the first part, then `PARTS_IN_FLIGHT + 1`
parts.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inlay.errors import InlayError, InvalidRequest
from inlay.format.entry import DataFile
from inlay.format.partition import Partition
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import UNPARTITIONED, PartitionSpec
from inlay.parquet.arrow.pieces import OFFSETS_END
from inlay.parquet.arrow.types import leaf_count, schema_to_arrow
from inlay.parquet.arrow.words import words_of
from inlay.parquet.read.data_file import PAGE_ROWS
from inlay.parquet.read.statistics import entry_of_file, locate_columns
from inlay.record import Mutable, Record, field, replace
from inlay.storage.base import ObjectStore
from inlay.storage.write_once import Multipart, no_wait, write_once


def nan_leaves(rows: pa.Table) -> Iterator[int]:
    """The leaf columns that have NaN. Those within lists and maps are not checked: no filter uses them."""
    first = 0
    for column in rows.columns:
        yield from _within(column, first)
        first += leaf_count(column.type)


def _within(column: pa.ChunkedArray, first: int) -> Iterator[int]:
    if pa.types.is_floating(column.type):
        # One look at each value suffices where none is NaN: nothing adds up to NaN but NaN and infinities.
        total = pc.sum(column).as_py()
        if total is not None and math.isnan(total) and pc.any(pc.is_nan(column)).as_py():
            yield first
    elif pa.types.is_struct(column.type):
        for n in range(column.type.num_fields):
            child = pc.struct_field(column, [n])
            yield from _within(child, first)
            first += leaf_count(child.type)


# Objects up to this size use one PUT: one request, with one answer for its outcome.
PUT_BYTES = 32 * 1024 * 1024
# S3 takes 10,000 parts: at 16 MiB that is 156 GiB, far above any file this library writes.
PART_BYTES = 16 * 1024 * 1024
# Parts in flight while the next one is being encoded.
PARTS_IN_FLIGHT = 3
# Bytes that hold a Parquet footer's length.
TAIL_BYTES = 8


class Upload(io.RawIOBase):
    """A file object that Arrow writes to. `before_retry` is called before each further try to make it
    visible. Arrow closes its output also after a failure: only `finish` creates the object."""

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        executor: Executor,
        before_retry: Callable[[int], None],
    ) -> None:
        self.size = 0
        self.tail = b""
        self._store = store
        self._key = key
        self._before_retry = before_retry
        self._parts = Multipart(
            store, key, executor, in_flight=PARTS_IN_FLIGHT, before_retry=before_retry
        )
        self._pending = bytearray()
        self._kept_from: int | None = None

    @property
    def held(self) -> int:
        """Bytes in memory now."""
        return len(self._pending) + PART_BYTES * self._parts.flying

    # -- the file that Arrow sees -------------------------------------------------------------

    def write(self, data: Any) -> int:
        self._pending += data
        self.size += len(data)
        most = PART_BYTES if self._parts.begun else PUT_BYTES
        if len(self._pending) >= most and self._kept_from is None:
            whole = bytes(self._pending)
            cut = len(whole) - len(whole) % PART_BYTES
            for start in range(0, cut, PART_BYTES):
                self._send_part(whole[start : start + PART_BYTES])
            self._pending = bytearray(whole[cut:])
        return len(data)

    def _send_part(self, body: bytes) -> None:
        self._parts.send(lambda: body)

    def tell(self) -> int:
        return self.size

    def writable(self) -> bool:
        return True

    # -- what Arrow writes last -----------------------------------------------------------------

    def keep(self) -> None:
        """Sends nothing from here on: indexes and the footer, which may be replaced."""
        self._kept_from = self.size

    def kept(self) -> bytes:
        assert self._kept_from is not None
        return bytes(self._pending[self._kept_from - self.size :])

    def replace_kept(self, body: bytes) -> None:
        assert self._kept_from is not None
        self._pending[self._kept_from - self.size :] = body
        self.size = self._kept_from + len(body)

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Makes the object visible."""
        rest, self._pending = bytes(self._pending), bytearray()
        self.tail = rest[-TAIL_BYTES:]
        if not self._parts.begun:
            write_once(self._store, self._key, rest, before_retry=self._before_retry)
            return
        if rest:
            self._send_part(rest)
        self._parts.finish(self.size)

    def abort(self) -> None:
        """Drops what was uploaded. Never raises: garbage collection deletes what is left."""
        self._pending = bytearray()
        self._parts.abort()


TARGET_FILE_BYTES = 128 * 1024 * 1024
ROW_GROUP_ROWS = 1_048_576
# Stored bytes of a row group: what surgery has to move to take one row out, and each column of a group is
# a request of a scan.
ROW_GROUP_BYTES = 16 * 1024 * 1024
# In memory a group's rows take at most this many times as much, however well they are stored: whoever
# reads or rewrites a group holds it decoded.
MEMORY_FACTOR = 4
# One value in so many that a chunk does not have is taken for one it may have: 6 bits a distinct value.
BLOOM_FALSE_POSITIVES = 0.05
# Rows that stand for the others: how small they become, and how many values are distinct. The first is
# found by writing them, so of wide rows fewer do.
SAMPLE_ROWS = 16_384
SAMPLE_BYTES = 4 * 1024 * 1024
# Columns that stand for the others: a column costs the same however few its rows are.
SAMPLE_COLUMNS = 256
# A larger dictionary is given up for plain values. Measured on lineitem against Arrow's 1 MiB: files 14 %
# smaller, written and read in half the time, and single pages can be read without a large dictionary.
DICTIONARY_BYTES = 128 * 1024
# Rows waiting for a row group (or, to be sorted, for a file), and parts of files that are not sent yet.
HELD_BYTES = 256 * 1024 * 1024
# What Arrow takes for a column of a batch, however few its rows.
COLUMN_BYTES = 512
# Arrow writes a page's header and its values apart, and each structure of an index: tens of thousands of
# calls into Python where there are thousands of columns.
TOGETHER_BYTES = 64 * 1024
# Concurrent uploads; beyond it the least recently used file is finished.
OPEN_FILES = 16
# Small batches of a partition become one at this number.
SMALL_BATCHES = 32


class Target(Record):
    """Where new files go. `new_key` returns a new key, relative to the table root, at each call,
    `path_of` the store's key for it; `before_retry` is called before each further try to create one."""

    store: ObjectStore
    path_of: Callable[[str], str]
    new_key: Callable[[], str]
    executor: Executor
    before_retry: Callable[[int], None] = no_wait


class Layout(Record, kw_only=True):
    """How files are laid out. `sort_by`, `stats_columns` and `bloom_columns` (those that get Bloom filters)
    are field ids, `row_group_bytes` are stored ones."""

    target_file_bytes: int = TARGET_FILE_BYTES
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    compression: str = "zstd"
    sort_by: tuple[int, ...] = ()
    stats_columns: tuple[int, ...] = ()
    bloom_columns: tuple[int, ...] = ()
    spec: PartitionSpec = UNPARTITIONED
    key_values: Mapping[str, str] = field(default_factory=dict)


def write_files(
    target: Target,
    batches: Iterable[pa.RecordBatch],
    schema: Schema,
    layout: Layout,
    *,
    row_bytes: float | None = None,
) -> Iterator[DataFile]:
    """Writes batches that are laid out as `schema` (`conformed` makes them so); no file for no rows.
    `row_bytes` are the stored bytes of a row, None where a sample has to show them.

    Entries have no sequence, event or origin: the caller adds them. When the generator is closed early or
    fails, files not yet yielded are dropped or left to garbage collection.
    """
    open_files: dict[Partition, _File] = {}  # the most recently used last
    split = _split(layout.spec, schema)
    density = _Density(row_bytes)
    held = 0
    try:
        for batch in batches:
            for partition, rows in split(batch):
                for slab in _slabs(rows, layout):
                    file = open_files.pop(partition, None)
                    if file is not None and not file.has_room_for(slab):
                        held -= file.held
                        yield file.finish()
                        file = None
                    file = file or _File(target, schema, layout, partition, density)
                    open_files[partition] = file
                    held -= file.held
                    file.add(slab)
                    if held + file.held > HELD_BYTES // 2:
                        file.write_waiting()
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


def _split(
    spec: PartitionSpec, schema: Schema
) -> Callable[[pa.RecordBatch], Iterable[tuple[Partition, pa.RecordBatch]]]:
    """The rows of a batch by partition."""
    if not spec.fields:
        return lambda batch: [((), batch)]
    from inlay.parquet.write.partition import Split  # most tables are not partitioned

    return Split(spec, schema)


def _to_finish(open_files: Mapping[Partition, _File], last: _File, held: int) -> list[Partition]:
    """The partitions whose files have to end now that `last` got rows."""
    done = [last.partition] if last.full else []
    held -= last.held if done else 0
    if held > HELD_BYTES:
        # Down to half, so that not every batch of many partitions finishes another file.
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
    """Pieces of at most a row group: after each one a file may turn out to be full."""
    most = MEMORY_FACTOR * layout.row_group_bytes
    by_bytes = most * batch.num_rows // max(1, batch.nbytes)
    rows = max(1, min(layout.row_group_rows, by_bytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


class _Density(Mutable):
    """How many stored bytes a byte of rows in memory became, lately, in this write; None: not known yet.
    `row_bytes` is what a row is expected to take."""

    row_bytes: float | None = None
    share: float | None = None

    def measure(self, rows_bytes: int, stored_bytes: int) -> None:
        # Only what a group has besides its rows can make it larger than they are.
        self.share = min(1.0, stored_bytes / max(1, rows_bytes))


class _File:
    """One file being written: rows collect to a row group (or, to be sorted, to a file)."""

    def __init__(
        self,
        target: Target,
        schema: Schema,
        layout: Layout,
        partition: Partition,
        density: _Density,
    ) -> None:
        self.rows = 0
        self._density = density
        self.partition = partition
        self._schema = schema
        self._arrow = schema_to_arrow(schema)
        self._layout = layout
        self._key = target.new_key()
        path = target.path_of(self._key)
        self._upload = Upload(target.store, path, target.executor, target.before_retry)
        self._output: Any = None  # takes its memory when the file is opened
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._small: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._groups = 0
        self._nan: set[tuple[int, int]] = set()  # (row group, leaf) with NaN

    @property
    def full(self) -> bool:
        if self._layout.sort_by:
            # Compressed size is only known once sorted; rows encode to no more than they take, and columns
            # of rows in order to a third of their memory or less.
            return self._pending_bytes >= min(HELD_BYTES, 3 * self._layout.target_file_bytes)
        waiting = int(self._pending_bytes * (self._density.share or 0))
        return self._upload.size + waiting >= self._layout.target_file_bytes

    @property
    def sending(self) -> bool:
        return self._writer is not None

    @property
    def held(self) -> int:
        """Bytes of memory: rows, what Arrow takes for their batches, and parts that are not sent yet."""
        batches = len(self._pending) + len(self._small)
        return self._pending_bytes + batches * len(self._arrow) * COLUMN_BYTES + self._upload.held

    def has_room_for(self, batch: pa.RecordBatch) -> bool:
        """Whether the rows that wait can become one array with these; only a huge row has none."""
        return bool(self._pending_bytes + batch.nbytes <= OFFSETS_END)

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

    def write_waiting(self) -> None:
        """Write the rows that wait, if they are worth a row group: memory is short."""
        if not self._layout.sort_by and self._pending_bytes >= self._layout.row_group_bytes:
            self._write_groups(self._table())

    def _cut_groups(self) -> None:
        """Write full groups, and hold back half a group at least, so that the last one is not small. A
        bound on rows is exact."""
        most = self._layout.row_group_rows
        while self._pending_bytes >= self._layout.row_group_bytes or self._pending_rows >= most:
            rows = self._group_rows()
            if self._pending_rows < (rows if rows == most else rows + rows // 2):
                return
            table = self._table()
            self._write(table.slice(0, rows))
            rest = table.slice(rows)
            self._pending, self._small = rest.to_batches() if rest.num_rows else [], []
            self._pending_rows, self._pending_bytes = rest.num_rows, rest.nbytes

    def _group_rows(self) -> int:
        """Rows of a full group, estimated from the rows that wait."""
        most, target = self._layout.row_group_rows, self._layout.row_group_bytes
        if self._pending_bytes <= target:
            return most
        if self._density.share is None:
            row_bytes = self._density.row_bytes
            if row_bytes is None:
                self._density.measure(*self._sample())
            else:
                self._density.measure(self._pending_bytes, int(row_bytes * self._pending_rows))
        share = max(self._density.share or 0, 1 / MEMORY_FACTOR)
        by_bytes = target * self._pending_rows / (self._pending_bytes * share)
        return max(1, min(most, int(by_bytes)))

    def _sample(self) -> tuple[int, int]:
        """Bytes of some of the rows that wait, in memory and stored."""
        rows = _some_columns(self._table())
        few = SAMPLE_BYTES * rows.num_rows // max(1, rows.nbytes)
        rows = rows.slice(0, max(1, min(SAMPLE_ROWS, few)))
        sink = pa.BufferOutputStream()
        try:
            with pq.ParquetWriter(sink, rows.schema, **self._options()) as writer:
                writer.write_table(rows)
        except (pa.ArrowException, OSError):
            return rows.nbytes, rows.nbytes  # writing the group that has them reports what is wrong
        group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
        stored = sum(group.column(n).total_compressed_size for n in range(group.num_columns))
        return rows.nbytes, stored

    def _write_groups(self, table: pa.Table) -> None:
        """Write all of the rows that wait, as few groups of even size."""
        pieces = -(-table.num_rows // self._group_rows())
        bounds = [table.num_rows * n // pieces for n in range(pieces + 1)]
        for start, end in pairwise(bounds):
            self._write(table.slice(start, end - start))
        self._pending, self._small = [], []
        self._pending_rows = self._pending_bytes = 0

    def _table(self) -> pa.Table:
        return self._joined([*self._pending, *self._small])

    def _joined(self, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(b.columns, schema=self._arrow) for b in batches],
            schema=self._arrow,
        )

    def _write(self, group: pa.Table) -> None:
        self._nan |= {(self._groups, leaf) for leaf in nan_leaves(group)}
        self._groups += 1
        try:
            writer, before = self._open(group), self._upload.size
            writer.write_table(group, row_group_size=group.num_rows)
            self._output.flush()
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise InvalidRequest(
                f"rows cannot be written as Parquet{_refused_columns(group)}: {words_of(error)}",
                next_step="Remove or correct these values: Parquet cannot store them",
            ) from None
        if group.nbytes >= self._layout.row_group_bytes:
            self._density.measure(group.nbytes, self._upload.size - before)

    def _open(self, first: pa.Table | None = None) -> pq.ParquetWriter:
        """The writer; `first` is the first row group."""
        if self._writer is None:
            # NULL and NaN come last, as Arrow sorts them.
            order = [(name, "ascending") for name in self._sort_names()]
            sink = pa.PythonFile(self._upload, "w")
            self._output = pa.BufferedOutputStream(sink, TOGETHER_BYTES)
            self._writer = pq.ParquetWriter(
                self._output,
                self._arrow,
                sorting_columns=pq.SortingColumn.from_ordering(self._arrow, order) or None,
                metadata_collector=self._footers,
                **({} if first is None else self._by_values(first)),
                **self._options(),
            )
            if self._layout.key_values:
                self._writer.add_key_value_metadata(dict(self._layout.key_values))
        return self._writer

    def _by_values(self, group: pa.Table) -> dict[str, Any]:
        """Options that depend on how many distinct values columns have: Bloom filters as large as these
        need, and a dictionary only where all of them fit. Pages after the one where a dictionary became
        full do not use it, but their readers fetch it all the same."""
        # From all over the group: sorted rows are alike where they are near.
        sample = _every(group, max(1, group.num_rows // SAMPLE_ROWS))
        blooms, dictionaries = {}, []
        for top_field in self._schema.fields:
            values = sample.column(top_field.name)
            kind = top_field.type
            is_looked_up = isinstance(kind, Primitive) and (
                kind.is_integer or kind.family in ("text", "bytes")
            )
            has_bloom = top_field.id in self._layout.bloom_columns and is_looked_up
            most = DICTIONARY_BYTES * len(values) // max(1, values.nbytes)
            if has_bloom or most < group.num_rows:  # else all may differ, and need not be counted
                distinct = _distinct(values, group.num_rows)
                if has_bloom:
                    blooms[top_field.name] = {"ndv": distinct, "fpp": BLOOM_FALSE_POSITIVES}
                if distinct > most:
                    continue
            dictionaries.append(top_field.name)
        is_flat = all(isinstance(top_field.type, Primitive) for top_field in self._schema.fields)
        return {"bloom_filter_options": blooms, "use_dictionary": dictionaries if is_flat else True}

    def _options(self) -> dict[str, Any]:
        return {
            "compression": self._layout.compression,
            "write_page_index": True,
            "write_page_checksum": True,
            "dictionary_pagesize_limit": DICTIONARY_BYTES,
            "max_rows_per_page": PAGE_ROWS,
            # Up to 18 digits, as Iceberg prescribes it. On lineitem 2.6 % smaller, and decoded in 70 %
            # of the time.
            "store_decimal_as_integer": True,
        }

    def _sort_names(self) -> list[str]:
        by_id = {f.id: f.name for f in self._schema.fields}
        return [by_id[column] for column in self._layout.sort_by if column in by_id]

    def finish(self) -> DataFile:
        """Writes what is left, the footer, and the object; returns its entry."""
        try:
            if self._layout.sort_by and self._pending_rows:
                self._write_sorted()
            elif self._pending_rows:
                self._write_groups(self._table())
            writer = self._open()
            self._output.flush()
            self._upload.keep()
            writer.close()
            self._output.flush()
            if self._nan:
                # Few tables have NaN.
                from inlay.parquet.footer.float_bounds import end_without_bounds

                end = end_without_bounds(self._upload.kept(), self._upload.size, self._nan)
                self._upload.replace_kept(end)
            self._upload.finish()
        except BaseException:
            self.abort()
            raise
        [metadata] = self._footers
        entry = entry_of_file(
            metadata,
            key=self._key,
            size=self._upload.size,
            footer_size=int.from_bytes(self._upload.tail[:4], "little") + 8,
            schema=self._schema,
            stats_columns=self._layout.stats_columns,
        )
        with_nan = {leaf for _, leaf in self._nan}
        leaves = locate_columns(self._arrow, self._schema).leaves if with_nan else {}
        known = {
            f.id: replace(entry.stats[f.id], has_nan=bool(leaves) and leaves[f.id] in with_nan)
            for f in self._schema.fields
            if isinstance(f.type, Primitive) and f.type.is_float and f.id in entry.stats
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
            # By place: Arrow reads a name that begins with a dot as a path.
            places = [table.schema.get_field_index(name) for name in names]
            order = pc.sort_indices(table, sort_keys=[(place, "ascending") for place in places])
            table = table.take(order)
        self._write_groups(table)

    def abort(self) -> None:
        """Drops the file: nothing of it becomes visible."""
        if self._writer is not None:
            # The footer is discarded: the upload is never finished.
            with suppress(pa.ArrowException, OSError, RuntimeError, InlayError):
                self._writer.close()
        self._upload.abort()


def _refused_columns(group: pa.Table) -> str:
    """Which columns Parquet does not store, each tried alone: Arrow's error names none, but a value."""
    refused = []
    for name in group.schema.names:
        column = group.select([name])
        try:
            pq.write_table(column, pa.BufferOutputStream())
        except (pa.ArrowInvalid, pa.ArrowCapacityError):
            refused.append(repr(name[:80]))
    return f", column {', '.join(refused[:5])}" if refused else ""


def _some_columns(table: pa.Table) -> pa.Table:
    """At most `SAMPLE_COLUMNS`, the largest and others of each size. Those of one size are in no order:
    their kinds may take turns."""
    step = -(-table.num_columns // SAMPLE_COLUMNS)
    if step < 2:
        return table
    dice = random.Random(0)
    places = range(table.num_columns)
    by_size = sorted(places, key=lambda at: (-table.column(at).nbytes, dice.random()))
    return table.select(sorted(by_size[::step]))


def _every(group: pa.Table, step: int) -> pa.Table:
    """Each `step`-th row. Batch by batch: what is taken of a table copies all of it first."""
    if step == 1:
        return group
    batches, before = [], 0
    for batch in group.to_batches():
        batches.append(batch.take(pa.arange(-before % step, batch.num_rows, step)))
        before += batch.num_rows
    return pa.Table.from_batches(batches, schema=group.schema)


def _distinct(sample: pa.ChunkedArray, rows: int) -> int:
    """About how many distinct values a column of `rows` rows has, by some of them; at least 1.

    Of `all` values, drawn at random n times, all * (1 - exp(-n / all)) are seen.
    """
    if pa.types.is_nested(sample.type) or not len(sample):
        return 1
    # Of texts these are found in half the time that `count_distinct` takes.
    drawn, seen = len(sample), max(1, len(pc.unique(sample)) - (sample.null_count > 0))
    low, high = float(seen), float(max(seen, rows))
    while high - low > 1:
        middle = (low + high) / 2
        if middle * -math.expm1(-drawn / middle) < seen:
            low = middle
        else:
            high = middle
    return min(rows, math.ceil(high))
