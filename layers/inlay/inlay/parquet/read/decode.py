"""Reading the row groups of one unit: first what they are judged by, then the rest of what is left.

Promise: of a row group, the columns that filters and deletes look at are fetched first; the others only
if a row is left, and of those, where only few rows are, only the pages that hold them. Rows come out
in file order as columns of the snapshot's schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.format.schema import Schema
from inlay.parquet.arrow.conform import conform
from inlay.parquet.arrow.literals import to_array, to_scalar
from inlay.parquet.read.data_file import OpenFile, chunk_range, reading
from inlay.parquet.read.deleted_rows import GroupDeletes
from inlay.parquet.read.page_sizes import Pages, check_pages_fit
from inlay.parquet.read.ranges import RangeFile
from inlay.parquet.read.read_ahead import Steps
from inlay.parquet.read.row_groups import Group
from inlay.parquet.read.selection import RowFilter, Wanted, subschema, top_columns
from inlay.parquet.read.single_pages import SparseColumn, index_range, sparse_column
from inlay.plan.scan.scan import FileTask
from inlay.storage.base import ByteRange

# Rows of a batch: the best in docs/design/measurements.md, "Spark 4.3 Python data source".
BATCH_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class Survivors:
    """The rows of a group that are wanted: `keep` over its rows, None is all of them. `looked_at` are
    the columns that were needed to tell, by field id, already cut down to those rows."""

    group: Group
    rows: int
    keep: pa.BooleanArray | None
    looked_at: dict[int, pa.ChunkedArray]


def read_groups(
    file: OpenFile, groups: Sequence[Group], wanted: Wanted
) -> Steps[tuple[FileTask, list[pa.RecordBatch]]]:
    """The wanted rows of neighbouring groups of one file."""
    reader = _GroupReader(file, wanted)
    reader.held.add((yield reader.held.jobs(reader.first_ranges(groups))))
    [survivors] = yield [partial(reader.judge, groups)]
    reader.held.add((yield reader.held.jobs(reader.rest_ranges(survivors))))
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
        # (row group, leaf) → where its offset index is; then, of what is left, its wanted pages.
        self._indexes: dict[tuple[int, int], ByteRange] = {}
        self._sparse: dict[tuple[int, int], SparseColumn] = {}

    # -- what is fetched ----------------------------------------------------------------------

    def first_ranges(self, groups: Sequence[Group]) -> list[ByteRange]:
        """A group that needs no look is fetched at once; of the others the columns they are judged
        by, and with them, in the same round trip, what finds single pages afterwards."""
        found: list[ByteRange] = []
        for group in groups:
            if not group.fields and group.only is None:
                found += self._chunk_ranges(group, self.wanted.columns)
                continue
            found += self._chunk_ranges(group, self._judged_by(group))
            # Deletes alone leave most rows: then every page is needed.
            if group.is_picked and self.file.body is None:
                found += self._index_ranges(group)
        return found

    def rest_ranges(self, survivors: Sequence[Survivors]) -> list[ByteRange]:
        """The columns not looked at yet, for the groups that have survivors: their pages where that
        spares much, else all of them."""
        found: list[ByteRange] = []
        for one in survivors:
            rest = self._rest(one.group)
            self._plan_pages(one, rest)
            sparse, whole = self._split(one.group, rest)
            found += [place for column in sparse.values() for place in column.ranges]
            found += self._chunk_ranges(one.group, whole)
        return found

    def _judged_by(self, group: Group) -> tuple[int, ...]:
        return top_columns(self.wanted.schema, group.fields)

    def _rest(self, group: Group) -> tuple[int, ...]:
        """The columns of the result that judging the group does not look at."""
        seen = self._judged_by(group)
        return tuple(c for c in self.wanted.columns if c not in seen)

    def _chunk_ranges(self, group: Group, tops: Iterable[int]) -> list[ByteRange]:
        found = (chunk_range(chunk) for chunk in self.file.chunks(group.ordinal, tops))
        # A range beyond the object is the file's fault: the read that follows says so, by its name.
        size = self.file.task.file.size
        return [r for r in found if r is not None and r.end <= size]

    def _index_ranges(self, group: Group) -> list[ByteRange]:
        footer = self.file.footer
        leaves = [] if footer is None else self.file.leaves(self._rest(group))
        for leaf in leaves:
            place = index_range(footer, group.ordinal, leaf) if footer is not None else None
            if place is not None:
                self._indexes[group.ordinal, leaf] = place
        return [self._indexes[at] for at in self._indexes if at[0] == group.ordinal]

    def _plan_pages(self, survivors: Survivors, rest: Iterable[int]) -> None:
        keep, ordinal = survivors.keep, survivors.group.ordinal
        if keep is None or not self._indexes:
            return  # before the footer is looked at: Inlay's own decoder takes its time
        footer = self.file.footer
        if footer is None:
            return
        for top in rest:
            for leaf in self.file.leaves([top]):
                place = self._indexes.get((ordinal, leaf))
                if place is None:
                    continue
                field = self.file.arrow.field(self.file.columns.tops[top].ordinal)
                index = bytes(memoryview(self.held.slice(place)))
                column = sparse_column(footer, ordinal, leaf, field, index, keep)
                if column is not None:
                    self._sparse[ordinal, top] = column

    def _split(
        self, group: Group, tops: Iterable[int]
    ) -> tuple[dict[int, SparseColumn], tuple[int, ...]]:
        """Columns to be read by pages, and those to be read whole."""
        sparse = {
            top: self._sparse[group.ordinal, top]
            for top in tops
            if (group.ordinal, top) in self._sparse
        }
        return sparse, tuple(top for top in tops if top not in sparse)

    # -- which rows are left ------------------------------------------------------------------

    def judge(self, groups: Sequence[Group]) -> list[Survivors]:
        """What is left of each group; groups without a row left are left out."""
        found = (self._judge(group) for group in groups)
        return [survivors for survivors in found if survivors.rows]

    def _judge(self, group: Group) -> Survivors:
        keep = group.deletes.keep_positions(group.rows)
        spared = None if group.only is None else group.only.keep_positions(group.rows)
        table: pa.Table | None = None
        tops = self._judged_by(group)
        if group.fields:
            schema = subschema(self.wanted.schema, tops)
            batches = self._decode(group, schema)
            first, by_value = 0, []
            for batch in batches:
                live = None if keep is None else keep.slice(first, batch.num_rows)
                by_value.append(_wanted_rows(group, batch, schema, live))
                first += batch.num_rows
            keep = _both(keep, pa.concat_arrays(by_value))
            if group.only is not None:
                spared = _both(spared, _spared_by_value(group.only, batches, schema))
            table = pa.Table.from_batches(batches)
        if spared is not None:
            keep = _both(keep, pc.invert(spared))
        rows = group.rows if keep is None else keep.true_count
        if rows == group.rows:
            keep = None
        if table is None or not rows:
            return Survivors(group, rows, keep, {})
        kept = table if keep is None else table.filter(keep)
        return Survivors(group, rows, keep, dict(zip(tops, kept.columns, strict=True)))

    # -- what comes out -----------------------------------------------------------------------

    def assemble(self, survivors: Sequence[Survivors]) -> list[pa.RecordBatch]:
        """The rows that are left, with all columns of the result."""
        found: list[pa.RecordBatch] = []
        for one in survivors:
            found.extend(self._assemble(one))
        return found

    def _assemble(self, survivors: Survivors) -> Iterator[pa.RecordBatch]:
        columns = {**survivors.looked_at, **self._read_rest(survivors)}
        arrays: list[pa.ChunkedArray] = [columns[c] for c in self.wanted.columns]
        if self.wanted.position:
            arrays.append(pa.chunked_array([_positions(survivors)]))
        if self.wanted.file:
            arrays.append(pa.chunked_array([_file_column(self.file.task, survivors.rows)]))
        if not arrays:
            yield _rows_without_columns(survivors.rows)
            return
        yield from pa.Table.from_arrays(arrays, schema=self.wanted.result).to_batches(BATCH_ROWS)

    def _read_rest(self, survivors: Survivors) -> dict[int, pa.ChunkedArray]:
        group, keep = survivors.group, survivors.keep
        sparse, whole = self._split(group, self._rest(group))
        columns: dict[int, pa.ChunkedArray] = {}
        for top, column in sparse.items():
            try:
                table = column.read(self.held.slice)
            except (pa.ArrowException, OSError, UnreadableFile):
                whole = (*whole, top)
                continue
            batches = self._conform(
                table.to_batches(BATCH_ROWS), subschema(self.wanted.schema, [top])
            )
            columns[top] = pa.Table.from_batches(batches).filter(column.kept(keep)).column(0)
        if whole:
            schema = subschema(self.wanted.schema, whole)
            # As the snapshot's types before rows are dropped: Arrow cannot filter string views, which
            # is how files of parquet-rs are read.
            table = pa.Table.from_batches(self._decode(group, schema))
            kept = table if keep is None else table.filter(keep)
            columns.update(zip(whole, kept.columns, strict=True))
        return columns

    def _decode(self, group: Group, schema: Schema) -> list[pa.RecordBatch]:
        """Columns of all rows of a group, as the snapshot's; at least one batch."""
        leaves = self.file.leaves([field.id for field in schema.fields])
        if not leaves:
            # None of the columns is in this file: all NULL.
            return self._conform([_rows_without_columns(group.rows)], schema)
        self._check_pages(group, leaves)
        with reading(self.file.task.file.key):
            table = self._reader().read_row_group(
                group.ordinal, column_indices=leaves, use_threads=False
            )
            if table.num_rows != group.rows:
                raise UnreadableFile(
                    f"row group {group.ordinal} has {table.num_rows} rows, its footer says "
                    f"{group.rows}",
                    key=self.file.task.file.key,
                )
            return self._conform(table.to_batches(BATCH_ROWS), schema)

    def _check_pages(self, group: Group, leaves: Iterable[int]) -> None:
        """What this library wrote is as large as its footer says."""
        footer = self.file.footer if self.file.task.file.is_foreign else None
        if footer is None:
            return

        def held() -> Iterator[Pages]:
            columns = footer.row_groups[group.ordinal].columns
            for leaf in leaves:
                place = chunk_range(self.file.metadata.row_group(group.ordinal).column(leaf))
                if place is not None and place.end <= self.file.task.file.size:
                    body = memoryview(self.held.slice(place))
                    yield Pages(footer.leaves[leaf], columns[leaf], body)

        try:
            check_pages_fit(footer, group.rows, held())
        except (UnsupportedFile, UnreadableFile) as error:
            raise error.about(key=self.file.task.file.key) from None

    def _conform(self, batches: Iterable[pa.RecordBatch], schema: Schema) -> list[pa.RecordBatch]:
        return [conform(batch, self.file.task.schema, schema) for batch in batches]

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


def _wanted_rows(
    group: Group, batch: pa.RecordBatch, schema: Schema, live: pa.BooleanArray | None
) -> pa.BooleanArray:
    """The rows of `batch` that are wanted by their values; `live` are those that no position deletes."""
    keep = group.deletes.keep_values(batch, schema)
    for found in sorted(group.filters, key=lambda each: each.of_live_rows):
        if found.of_live_rows:
            keep = _asked_of_live(found, batch, schema, _both(live, keep))
        else:
            keep = _both(keep, found.selected(batch, schema))
    return pa.repeat(to_scalar(True, pa.bool_()), batch.num_rows) if keep is None else keep


def _asked_of_live(
    found: RowFilter, batch: pa.RecordBatch, schema: Schema, live: pa.BooleanArray | None
) -> pa.BooleanArray:
    if live is None or live.true_count == len(live):
        return found.selected(batch, schema)
    return pc.replace_with_mask(live, live, found.selected(batch.filter(live), schema))


def _spared_by_value(
    only: GroupDeletes, batches: Sequence[pa.RecordBatch], schema: Schema
) -> pa.BooleanArray | None:
    """Which rows no predicate and no key of `only` hits; None is all."""
    spared = [only.keep_values(batch, schema) for batch in batches]
    return None if spared[0] is None else pa.concat_arrays(spared)


def _both(left: pa.BooleanArray | None, right: pa.BooleanArray | None) -> pa.BooleanArray | None:
    if left is None or right is None:
        return right if left is None else left
    return pc.and_(left, right)


def _positions(survivors: Survivors) -> pa.Array:
    group = survivors.group
    if survivors.keep is None:
        return pa.arange(group.first_row, group.first_row + group.rows)
    within = pc.indices_nonzero(survivors.keep).cast(pa.int64())
    return pc.add(within, to_scalar(group.first_row, pa.int64()))


def _file_column(task: FileTask, rows: int) -> pa.Array:
    indices = pa.repeat(to_scalar(0, pa.int32()), rows)
    return pa.DictionaryArray.from_arrays(indices, to_array([task.file.key], pa.string()))


def _rows_without_columns(rows: int) -> pa.RecordBatch:
    """A batch that has rows and no column: what a count needs."""
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)
