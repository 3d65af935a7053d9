"""Reading data files at one snapshot: only the bytes needed, only the rows that are live.

Promise: the batches of a task hold each row of its file, in file order, that no marker deletes and
every filter selects, as columns of the snapshot's schema. Bytes are fetched for the footer, for the
filter columns of the row groups that statistics leave, and for the other columns of those row groups
that have a row to give, and for nothing else (but gaps, `ranges.GAP_BYTES`).

How a file is read, each line a round trip for all of its row groups in one unit together:

    open      footer in one suffix GET, with it the marker objects not in the cache
    filter    the columns that filters and deletes look at; decode, evaluate, count what is left
    rest      the other columns, for row groups that have survivors

Units of neighbouring row groups run ahead of the consumer within a budget of bytes
(`parquet.pipeline`). Pages are not skipped: pyarrow can neither read a page index nor single pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from inlay.errors import InlayError, UnreadableFile, UnsupportedFile
from inlay.format.entry import ColumnStats
from inlay.format.predicate import TRUE, Predicate, field_ids
from inlay.format.schema import Schema
from inlay.parquet.columns import FileColumns, locate_columns
from inlay.parquet.conform import conform
from inlay.parquet.evaluate import columns_of, selected
from inlay.parquet.mask import (
    NO_DELETES,
    FileDeletes,
    GroupDeletes,
    combine_markers,
    marker_jobs,
)
from inlay.parquet.pipeline import Steps, Unit, run, run_ahead
from inlay.parquet.ranges import Objects, RangeFile, Source, fetch_tail
from inlay.parquet.stats import Leaf, absent_fields, group_stats, leaves_of, total_rows
from inlay.parquet.types import schema_to_arrow
from inlay.plan.prune import all_match, may_match
from inlay.plan.scan import FileTask
from inlay.storage.base import ByteRange

# Rows of a batch: FACTS, "Batches of 64k-131k rows are best".
BATCH_ROWS = 131_072
# Bytes that may be in flight or decoded ahead of the consumer. One row group is always allowed.
READ_AHEAD_BYTES = 128 * 1024 * 1024
# Row groups are fetched together up to this many bytes, so that small ones share requests.
UNIT_BYTES = 8 * 1024 * 1024
# Files whose footers are fetched ahead of the one being read.
OPEN_AHEAD = 16
# A footer above this is refused: it would be held in memory many times over once parsed.
MAX_FOOTER_BYTES = 256 * 1024 * 1024
# What a string or list takes at least once decoded, when the footer cannot tell (dictionaries).
_DECODED_VALUE_BYTES = 24
# A parsed footer in memory, measured against its thrift bytes.
_FOOTER_FACTOR = 6

POSITION_COLUMN = "_pos"
FILE_COLUMN = "_file"

Settled = Literal["none", "some", "all"]


class RowFilter(Protocol):
    """Which rows are wanted: by the format's predicates, or by anything else that can say so."""

    @property
    def fields(self) -> frozenset[int]:
        """Ids of the fields it looks at."""
        ...

    def settle(self, stats: Mapping[int, ColumnStats], rows: int) -> Settled:
        """What statistics alone say of `rows` rows."""
        ...

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        """Which rows of a batch laid out as `schema` are wanted; no NULLs."""
        ...


@dataclass(frozen=True, slots=True)
class PredicateFilter:
    """Rows for which a predicate is TRUE."""

    predicate: Predicate

    @property
    def fields(self) -> frozenset[int]:
        return field_ids(self.predicate)

    def settle(self, stats: Mapping[int, ColumnStats], rows: int) -> Settled:
        if not may_match(self.predicate, stats, rows):
            return "none"
        return "all" if all_match(self.predicate, stats, rows) else "some"

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        return selected(self.predicate, batch, columns_of(schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is read of each row, and of which rows.

    `schema` is the snapshot's; `columns` are ids of its top-level fields, in the order of the result.
    `where` is asked besides each task's own predicate. `position` and `file` append the columns
    `_pos` (the row's place in its file, from 0) and `_file` (the file's key).
    """

    schema: Schema
    columns: tuple[int, ...]
    where: RowFilter | None = None
    position: bool = False
    file: bool = False

    @property
    def result(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        fields = list(schema_to_arrow(subschema(self.schema, self.columns), with_ids=False))
        if self.position:
            fields.append(pa.field(POSITION_COLUMN, pa.int64(), nullable=False))
        if self.file:
            fields.append(pa.field(FILE_COLUMN, _FILE_TYPE, nullable=False))
        return pa.schema(fields)


_FILE_TYPE = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """How far reading may run ahead. `first` starts with that many units and doubles, `unit_bytes` 0
    makes each row group a unit: for a consumer that may stop early."""

    budget_bytes: int = READ_AHEAD_BYTES
    parallel: int = OPEN_AHEAD
    first: int | None = None
    unit_bytes: int = UNIT_BYTES


AHEAD = Ahead()


def read_file(
    objects: Objects,
    task: FileTask,
    wanted: Wanted,
    executor: Executor,
    *,
    ahead: Ahead = AHEAD,
) -> Iterator[pa.RecordBatch]:
    """The rows of one task, in batches of at most `BATCH_ROWS`."""
    return read_tasks(objects, [task], wanted, executor, ahead=ahead)


def read_tasks(
    objects: Objects,
    tasks: Iterable[FileTask],
    wanted: Wanted,
    executor: Executor,
    *,
    ahead: Ahead = AHEAD,
) -> Iterator[pa.RecordBatch]:
    """The rows of many tasks, in the order of tasks and rows, no batch spanning two files."""
    for _, batches in _read(objects, tasks, wanted, executor, ahead):
        yield from batches


def read_positions(
    objects: Objects,
    tasks: Iterable[FileTask],
    schema: Schema,
    executor: Executor,
    *,
    where: RowFilter | None = None,
    ahead: Ahead = AHEAD,
) -> Iterator[tuple[FileTask, BitMap64]]:
    """For each task with any, the positions in its file of the live rows that its predicate and
    `where` select."""
    wanted = Wanted(schema=schema, columns=(), where=where, position=True)
    current: FileTask | None = None
    found = BitMap64()
    for task, batches in _read(objects, tasks, wanted, executor, ahead):
        if task is not current:
            if current is not None and found:
                yield current, found
            current, found = task, BitMap64()
        for batch in batches:
            found.update(batch.column(0).to_pylist())
    if current is not None and found:
        yield current, found


def subschema(schema: Schema, columns: Iterable[int]) -> Schema:
    """The schema with only these top-level fields, in this order."""
    by_id = {field.id: field for field in schema.fields}
    return Schema(schema.id, tuple(by_id[column] for column in columns))


def top_columns(schema: Schema, fields: Iterable[int]) -> tuple[int, ...]:
    """The top-level columns that hold `fields`, in the schema's order."""
    names = {path[0] for field_id in fields if (path := schema.path_of(field_id)) is not None}
    return tuple(field.id for field in schema.fields if field.name in names)


def _read(
    objects: Objects,
    tasks: Iterable[FileTask],
    wanted: Wanted,
    executor: Executor,
    ahead: Ahead,
) -> Iterator[tuple[FileTask, list[pa.RecordBatch]]]:
    opening = run_ahead(
        (Unit(t.file.footer_size, _open(objects, t, wanted)) for t in tasks),
        executor,
        budget_bytes=ahead.budget_bytes,
        parallel=ahead.parallel,
        first=ahead.first,
    )

    def units() -> Iterator[Unit[tuple[FileTask, list[pa.RecordBatch]]]]:
        for file in opening:
            for cost, groups in _in_units(file, wanted, ahead.unit_bytes):
                yield Unit(cost, _read_groups(file, groups, wanted))

    reading = run_ahead(
        units(),
        executor,
        budget_bytes=ahead.budget_bytes,
        parallel=ahead.parallel,
        first=ahead.first,
    )
    try:
        yield from reading
    finally:
        # Outer first: it stops asking the inner one for more.
        reading.close()  # type: ignore[attr-defined]
        opening.close()  # type: ignore[attr-defined]


# -- opening --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FooterOf:
    """A parsed footer, and the source pinned to the content it describes."""

    metadata: pq.FileMetaData
    etag: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file about to be read: its footer, where its columns are, what is deleted. `body` is all of
    it, when it was so small that it came with the footer."""

    task: FileTask
    source: Source
    metadata: pq.FileMetaData
    columns: FileColumns
    deletes: FileDeletes = NO_DELETES
    body: bytes | None = None


def open_file(objects: Objects, task: FileTask, wanted: Wanted, executor: Executor) -> OpenFile:
    """Fetch and parse a footer and the marker objects: one round trip."""
    return run(_open(objects, task, wanted), executor)


def _open(objects: Objects, task: FileTask, wanted: Wanted) -> Steps[OpenFile]:
    loads = marker_jobs(objects, task.markers, wanted.schema, task.file.rows)
    (source, metadata, body), *loaded = yield [partial(_load_footer, objects, task), *loads]
    deletes = combine_markers(task.markers, loaded, wanted.schema)
    with _reading(task.file.key):
        columns = locate_columns(metadata.schema.to_arrow_schema(), task.schema)
    return OpenFile(task, source, metadata, columns, deletes, body)


def _load_footer(objects: Objects, task: FileTask) -> tuple[Source, pq.FileMetaData, bytes | None]:
    entry = task.file
    if entry.footer_size > MAX_FOOTER_BYTES:
        raise UnsupportedFile(
            f"the footer has {entry.footer_size} bytes, more than Inlay reads",
            key=entry.key,
            next_step="Write the file with fewer row groups or columns",
        )
    source = objects.source(entry.key, entry.size, entry.etag)
    cached: FooterOf | None = objects.cache.get(entry.key)
    if cached is not None:
        return source.pinned(cached.etag), cached.metadata, None
    tail, source = fetch_tail(source, entry.footer_size, entry.size)
    with _reading(entry.key):
        metadata = pq.read_metadata(pa.BufferReader(tail))
    rows = total_rows(metadata)
    if rows != entry.rows or metadata.num_row_groups != entry.row_groups:
        raise UnreadableFile(
            f"the footer says {rows} rows in {metadata.num_row_groups} row groups, the table's "
            f"metadata {entry.rows} in {entry.row_groups}",
            key=entry.key,
        )
    assert source.etag is not None  # fetch_tail pins
    objects.cache.put(
        entry.key, FooterOf(metadata, source.etag), _FOOTER_FACTOR * entry.footer_size
    )
    return source, metadata, tail if len(tail) == entry.size else None


class _reading:  # noqa: N801 - reads as a statement: `with _reading(key):`
    """What Arrow finds wrong with a file's bytes becomes an error that names the file."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedFile(
                f"pyarrow cannot read this file: {_first_line(error)}",
                key=self.key,
                next_step="Write it again with types and codecs that pyarrow reads",
            ) from error
        if isinstance(error, pa.ArrowException | OSError) and not isinstance(error, InlayError):
            raise UnreadableFile(
                f"the file is broken: {_first_line(error)}", key=self.key
            ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


# -- row groups -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """A row group that may have rows to give, and what must be asked of them."""

    ordinal: int
    first_row: int
    rows: int
    filters: tuple[RowFilter, ...]
    deletes: GroupDeletes

    @property
    def fields(self) -> frozenset[int]:
        return self.deletes.fields.union(*(f.fields for f in self.filters))


def _plan_groups(file: OpenFile, wanted: Wanted) -> Iterator[Group]:
    task = file.task
    filters: list[RowFilter] = [] if task.predicate == TRUE else [PredicateFilter(task.predicate)]
    if wanted.where is not None:
        filters.append(wanted.where)
    fields = file.deletes.fields.union(*(f.fields for f in filters))
    leaves = leaves_of(file.metadata, file.columns, wanted.schema, fields)
    absent = absent_fields(file.columns, wanted.schema, fields)
    chosen = None if task.row_groups is None else frozenset(task.row_groups)
    first_row = 0
    for ordinal in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(ordinal).num_rows
        if rows and (chosen is None or ordinal in chosen):
            group = _plan_group(file, filters, leaves, absent, ordinal, first_row, rows)
            if group is not None:
                yield group
        first_row += rows


def _plan_group(
    file: OpenFile,
    filters: Sequence[RowFilter],
    leaves: Mapping[int, Leaf],
    absent: Sequence[int],
    ordinal: int,
    first_row: int,
    rows: int,
) -> Group | None:
    """None when statistics and positions alone say that no row of it is wanted."""
    known = leaves or absent
    stats = group_stats(file.metadata, ordinal, leaves, absent) if known else {}
    left = []
    for found in filters:
        settled = found.settle(stats, rows)
        if settled == "none":
            return None
        if settled == "some":
            left.append(found)
    deletes = file.deletes.of_group(ordinal, first_row, rows, stats)
    if deletes is None:
        return None
    return Group(ordinal, first_row, rows, tuple(left), deletes)


def _in_units(
    file: OpenFile, wanted: Wanted, unit_bytes: int
) -> Iterator[tuple[int, tuple[Group, ...]]]:
    """Neighbouring groups in runs of about `unit_bytes`, each with the memory it will take."""
    run: list[Group] = []
    stored = cost = 0
    for group in _plan_groups(file, wanted):
        tops = (*wanted.columns, *top_columns(wanted.schema, group.fields))
        chunks = _chunks(file, group, tops)
        stored_here = sum(c.total_compressed_size for c in chunks)
        if run and stored + stored_here > unit_bytes:
            yield cost, tuple(run)
            run, stored, cost = [], 0, 0
        run.append(group)
        stored += stored_here
        cost += stored_here + sum(
            max(c.total_uncompressed_size, c.num_values * _DECODED_VALUE_BYTES)
            if c.physical_type == "BYTE_ARRAY"
            else max(c.total_uncompressed_size, c.num_values * 8)
            for c in chunks
        )
    if run:
        yield cost, tuple(run)


def _chunks(file: OpenFile, group: Group, tops: Iterable[int]) -> list[Any]:
    meta = file.metadata.row_group(group.ordinal)
    return [meta.column(leaf) for leaf in _leaves(file, tops)]


def _leaves(file: OpenFile, tops: Iterable[int]) -> list[int]:
    """The leaf columns of top-level fields, those that the file has, in file order."""
    found = file.columns.tops
    return sorted({leaf for top in tops if top in found for leaf in found[top].leaves})


def chunk_range(chunk: pq.ColumnChunkMetaData) -> ByteRange | None:
    """Where a column chunk's pages are; None when it has none."""
    start = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset
    # Some writers put 0 where there is no dictionary page.
    if dictionary is not None and 4 <= dictionary < start:
        start = dictionary
    size = chunk.total_compressed_size
    return ByteRange(start, start + size) if size > 0 else None


# -- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Survivors:
    """The rows of a group that are wanted: `keep` over its rows, None is all of them. `looked_at` are
    the columns that were needed to tell, already cut down to those rows, laid out as `schema`."""

    group: Group
    rows: int
    keep: pa.BooleanArray | None = None
    looked_at: pa.Table | None = None
    schema: Schema | None = None


def _read_groups(
    file: OpenFile, groups: Sequence[Group], wanted: Wanted
) -> Steps[tuple[FileTask, list[pa.RecordBatch]]]:
    reader = _GroupReader(file, wanted)
    # A group that needs no look reads its columns at once; the others first what they are judged by.
    plain = [g for g in groups if not g.fields]
    judged = [g for g in groups if g.fields]
    first = [r for g in plain for r in reader.ranges(g, wanted.columns)]
    first += [r for g in judged for r in reader.ranges(g, reader.judged_by(g))]
    reader.held.add((yield reader.held.jobs(first)))
    [survivors] = yield [partial(reader.judge, groups)]
    rest = [r for s in survivors for r in reader.ranges(s.group, reader.rest(s))]
    reader.held.add((yield reader.held.jobs(rest)))
    [batches] = yield [partial(reader.assemble, survivors)]
    return file.task, batches


class _GroupReader:
    """Decodes the row groups of one unit; one job at a time uses it."""

    def __init__(self, file: OpenFile, wanted: Wanted) -> None:
        self.file = file
        self.wanted = wanted
        self.held = RangeFile(file.source, file.task.file.size)
        if file.body is not None:
            self.held.add([(0, file.body)])
        self._parquet: Any = None

    def judged_by(self, group: Group) -> tuple[int, ...]:
        return top_columns(self.wanted.schema, group.fields)

    def rest(self, survivors: Survivors) -> tuple[int, ...]:
        """The columns of the result that were not looked at yet."""
        seen = self.judged_by(survivors.group)
        return tuple(c for c in self.wanted.columns if c not in seen)

    def ranges(self, group: Group, tops: Iterable[int]) -> list[ByteRange]:
        found = (chunk_range(chunk) for chunk in _chunks(self.file, group, tops))
        # A range beyond the object is the file's fault: the read that follows says so, by its name.
        size = self.file.task.file.size
        return [r for r in found if r is not None and r.end <= size]

    def judge(self, groups: Sequence[Group]) -> list[Survivors]:
        """What is left of each group; groups without a row left are left out."""
        found = (self._judge(group) for group in groups)
        return [survivors for survivors in found if survivors.rows]

    def _judge(self, group: Group) -> Survivors:
        schema = subschema(self.wanted.schema, self.judged_by(group))
        keep = group.deletes.keep_positions(group.rows)
        table: pa.Table | None = None
        if group.fields:
            batches = self._decode(group, schema)
            by_value = pa.concat_arrays([_wanted_rows(group, b, schema) for b in batches])
            keep = by_value if keep is None else pc.and_(keep, by_value)
            table = pa.Table.from_batches(batches)
        if keep is None or keep.true_count == group.rows:
            return Survivors(group, group.rows, None, table, schema)
        if not keep.true_count:
            return Survivors(group, 0)
        kept = None if table is None else table.filter(keep)
        return Survivors(group, keep.true_count, keep, kept, schema)

    def assemble(self, survivors: Sequence[Survivors]) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        for one in survivors:
            found.extend(self._assemble(one))
        return found

    def _assemble(self, survivors: Survivors) -> Iterator[pa.RecordBatch]:
        columns: dict[int, pa.ChunkedArray] = {}
        if survivors.looked_at is not None and survivors.schema is not None:
            ids = [field.id for field in survivors.schema.fields]
            columns.update(zip(ids, survivors.looked_at.columns, strict=True))
        rest = subschema(self.wanted.schema, self.rest(survivors))
        if rest.fields:
            table = pa.Table.from_batches(self._decode(survivors.group, rest, survivors.keep))
            columns.update(zip([f.id for f in rest.fields], table.columns, strict=True))
        arrays: list[pa.ChunkedArray] = [columns[c] for c in self.wanted.columns]
        if self.wanted.position:
            arrays.append(pa.chunked_array([_positions(survivors)]))
        if self.wanted.file:
            arrays.append(pa.chunked_array([_file_column(self.file.task, survivors.rows)]))
        if not arrays:
            yield _rows_without_columns(survivors.rows)
            return
        yield from pa.Table.from_arrays(arrays, schema=self.wanted.result).to_batches(BATCH_ROWS)

    def _decode(
        self, group: Group, schema: Schema, keep: pa.BooleanArray | None = None
    ) -> list[pa.RecordBatch]:
        """Columns of a group as the snapshot's, only the rows of `keep`; at least one batch."""
        task = self.file.task
        leaves = _leaves(self.file, [field.id for field in schema.fields])
        with _reading(task.file.key):
            if leaves:
                table = self._reader().read_row_group(
                    group.ordinal, column_indices=leaves, use_threads=False
                )
                if table.num_rows != group.rows:
                    raise UnreadableFile(
                        f"row group {group.ordinal} has {table.num_rows} rows, its footer says "
                        f"{group.rows}",
                        key=task.file.key,
                    )
                batches = table.to_batches(BATCH_ROWS)
                if keep is not None:
                    # As the snapshot's types first: Arrow cannot filter string views, which is how
                    # files of parquet-rs are read.
                    batches = [conform(batch, task.schema, schema) for batch in batches]
                    kept = pa.Table.from_batches(batches, batches[0].schema).filter(keep)
                    return list(kept.to_batches(BATCH_ROWS))
            else:
                # None of the columns is in this file: all NULL.
                rows = group.rows if keep is None else keep.true_count
                batches = [_rows_without_columns(rows)]
            return [conform(batch, task.schema, schema) for batch in batches]

    def _reader(self) -> Any:
        if self._parquet is None:
            self._parquet = pq.ParquetFile(
                self.held.as_arrow(),
                metadata=self.file.metadata,
                pre_buffer=False,
                # A damaged page may decode to other values without any error.
                page_checksum_verification=True,
            )
        return self._parquet.reader


def _wanted_rows(group: Group, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
    keep = group.deletes.keep_values(batch, schema)
    for found in group.filters:
        hit = found.selected(batch, schema)
        keep = hit if keep is None else pc.and_(keep, hit)
    return pa.repeat(pa.scalar(True), batch.num_rows) if keep is None else keep


def _positions(survivors: Survivors) -> pa.Array:
    group = survivors.group
    if survivors.keep is None:
        within = pa.array(range(group.rows), pa.int64())
    else:
        within = pc.indices_nonzero(survivors.keep).cast(pa.int64())
    return pc.add(within, pa.scalar(group.first_row, pa.int64()))


def _file_column(task: FileTask, rows: int) -> pa.Array:
    indices = pa.repeat(pa.scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(indices, pa.array([task.file.key], pa.string()))


def _rows_without_columns(rows: int) -> pa.RecordBatch:
    """A batch that has rows and no column: what a count needs."""
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)
