"""Reading the row groups of one unit: first the columns that select rows, then the rest.

Promise: of a row group, the columns that filters and deletes need are fetched first, of those only the
pages that may hold a selected row; the others only if a row is left, and if only few are, only the pages
that hold them. Rows come out in file order as columns of the snapshot's schema.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow._parquet import ParquetReader

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.format.entry import ColumnStats
from inlay.format.schema import Primitive, Schema, Value
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.types import schema_to_arrow, to_array, to_scalar
from inlay.parquet.footer.footer import Footer
from inlay.parquet.footer.pages import number_of_pages
from inlay.parquet.read.data_file import (
    Group,
    OpenFile,
    Piece,
    chunk_range,
    decoded_bytes,
    reading,
)
from inlay.parquet.read.deleted_rows import marks_at
from inlay.parquet.read.ranges import SMALL_OBJECT_BYTES, Grow, RangeFile, Steps, Unit
from inlay.parquet.read.selection import (
    Block,
    ColumnPages,
    Interval,
    PredicateFilter,
    Projection,
    bloom_block,
    candidates,
    column_pages,
    subschema,
    surely_false,
)
from inlay.parquet.read.single_column import Pages, check_pages_fit
from inlay.parquet.read.single_pages import (
    Page,
    PagesWithRows,
    SparseColumn,
    index_place,
    index_range,
    may_be_sparse,
    may_pay,
    pages_of,
    read_pages,
    sparse_column,
)
from inlay.parquet.read.statistics import Leaf, group_stats, leaves_of
from inlay.plan.scan import FileTask
from inlay.record import Record
from inlay.storage.base import ByteRange

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Rows of a batch: of 64k to 131k, Spark takes least time for the same rows.
BATCH_ROWS = 131_072
# Pages of the other columns come with the filters' own up to this size: they spare a round trip.
ALONG_BYTES = 512 * 1024
# Below this, the pages that filters look at are fetched without asking a Bloom filter first.
BLOOM_WORTH_BYTES = 128 * 1024
# Groups of so many bytes, uncompressed, are so few within the budget that their columns are decoded side by
# side; smaller ones are beside each other.
THREADS_BYTES = 8 * 1024 * 1024
_FALSE, _TRUE = to_scalar(False, pa.bool_()), to_scalar(True, pa.bool_())


def memory_pool() -> pa.MemoryPool:
    """What chunks are decoded into, and rows that are kept of them: the system's allocator, unless the
    environment has chosen another (`ARROW_DEFAULT_MEMORY_POOL`) or the program has
    (`pyarrow.set_memory_pool`). Arrow's default, mimalloc, asks for huge pages: where the kernel has to
    clear these, first touching 1.2 GB takes 2 to 3 s of system time instead of .6, and touching them again
    1.4 to 2.2 instead of .1."""
    default = pa.default_memory_pool()
    chosen = os.environ.get("ARROW_DEFAULT_MEMORY_POOL") or default.backend_name != "mimalloc"
    return default if chosen else pa.system_memory_pool()


class Survivors(Record):
    """The rows of a group that are wanted: `keep` over its rows, None is all of them. `looked_at` are
    the columns that were needed for that, by field id, already cut down to those rows."""

    group: Group
    rows: int
    keep: pa.BooleanArray | None
    looked_at: dict[int, pa.ChunkedArray]


# Gives the rows to who takes them: those of a small file are only decoded then.
Rows = Callable[[], list[pa.RecordBatch]]


def reading_of(
    file: OpenFile, piece: Piece, projection: Projection, connections: int
) -> Unit[tuple[FileTask, Rows]]:
    """The selected rows of adjacent groups of one file, over that many connections. Where the page index
    has come with the footer, what they take is what their pages do."""
    reader = _GroupReader(file, projection, connections)
    groups: Sequence[Group] = piece.groups
    first, total = piece.first_bytes, piece.total_bytes
    if projection.limit is not None or any(group.is_picked for group in groups):
        groups = reader.narrow(groups)
        pages = reader.bytes_of_pages(groups)
        if pages is not None and pages < piece.stored_bytes:
            first, total = pages, total * pages // piece.stored_bytes
    growth = total - first
    return Unit(first, _read_groups(reader, groups, growth), growth)


def _read_groups(
    reader: _GroupReader, groups: Sequence[Group], growth: int
) -> Steps[tuple[FileTask, Rows]]:
    file = reader.file
    if file.body is not None and len(file.body) <= SMALL_OBJECT_BYTES:
        # All is there, and it takes less to decode than to hand to another thread and back.
        yield Grow(growth)
        return file.task, partial(reader.read_whole, groups)
    if reader.projection.limit is not None or any(group.is_picked for group in groups):
        blocks = reader.bloom_ranges(groups)
        if blocks:
            reader.held.add((yield reader.held.jobs(blocks)))
            groups = reader.without_absent(groups)
    jobs = reader.held.jobs(reader.first_ranges(groups))
    if jobs:
        reader.held.add((yield jobs))
    # Where groups are judged first, the rest is read by itself, unless it is there: then it is little.
    if file.body is not None or not any(group.fields for group in groups):
        yield Grow(growth)
    [(survivors, rest, batches)] = yield [partial(reader.read, groups)]
    if rest:
        fetched = min(sum(place.length for place in rest), growth)
        decoded = reader.assembling_bytes(survivors, growth - fetched)
        yield Grow(fetched, decoded)
        reader.held.add((yield reader.held.jobs(rest)))
        yield Grow(decoded)
        [batches] = yield [partial(reader.assemble, survivors)]
    return file.task, lambda: batches


def bounds_within(
    file: OpenFile, projection: Projection, field_id: int
) -> Iterator[tuple[ColumnStats, int]]:
    """What is known of a column's values in each page, and the page's rows: without a page index that came
    with the footer, of each row group. Nothing where nothing is known."""
    reader = _GroupReader(file, projection, connections=1)
    of_file = file.task.file.stats
    leaf = leaves_of(file.metadata, file.columns, projection.schema, {field_id}, of_file).get(
        field_id
    )
    footer = reader.own_footer()
    if leaf is None:
        return
    for group in range(file.metadata.num_row_groups):
        pages = None if footer is None else reader.column_pages(footer, group, leaf)
        if pages is not None:
            yield from ((of, page.rows) for of, page in zip(pages.stats, pages.pages, strict=True))
        else:
            known = group_stats(file.metadata, group, {field_id: leaf})
            yield known[field_id], file.metadata.row_group(group).num_rows


class _GroupReader:
    """Decodes the row groups of one unit; one job at a time uses it."""

    def __init__(self, file: OpenFile, projection: Projection, connections: int) -> None:
        self.file = file
        self.projection = projection.of(file.task)
        self._connections = connections
        self._readers: dict[bool, Any] = {}
        # Row group → the rows that may be wanted, where these are not all of them.
        self._among: dict[int, pa.BooleanArray] = {}
        # (row group, column) → its pages with rows of a mask, and that.
        self._sparse: dict[tuple[int, int], tuple[SparseColumn, pa.BooleanArray]] = {}
        # (row group, leaf) → all of its pages, once they were needed.
        self._pages: dict[tuple[int, int], Sequence[Page]] = {}
        # Row group → (field id, value) → the block of its Bloom filter.
        self._blocks: dict[int, dict[tuple[int, Value], Block]] = {}

    @cached_property
    def held(self) -> RangeFile:
        """What of the file is here: its end, and what was fetched."""
        file = self.file
        held = RangeFile(file.source, file.task.file.size, self._connections)
        held.add([(file.task.file.size - len(file.tail), file.tail)])
        return held

    # -- what need not be looked at -----------------------------------------------------------

    def narrow(self, groups: Sequence[Group]) -> list[Group]:
        """The groups that may have a wanted row by their page indexes, and which rows of them that is."""
        kept_groups = []
        for group in groups:
            if group.only is not None and not group.fields:
                # By position: which rows these are is known.
                skipped = group.only.keep_positions(group.rows)
                if skipped is not None:
                    self._among[group.ordinal] = pc.invert(skipped)
                kept_groups.append(group)
                continue
            rows = self._candidates(group)
            if rows is not None:
                if not rows:
                    continue
                if rows != [(0, group.rows)]:
                    self._among[group.ordinal] = _mask(rows, group.rows)
            kept_groups.append(group)
        return kept_groups

    def bytes_of_pages(self, groups: Sequence[Group]) -> int | None:
        """What is read of groups of which single pages are; None where one is read otherwise."""
        if self.file.body is not None:
            return None
        size = 0
        for group in groups:
            among = self._among.get(group.ordinal)
            if among is None:
                return None
            tops = (*group.judged_by, *self._rest(group))
            size += sum(place.length for place in self._ranges(group, tops, among))
        return size

    def _candidates(self, group: Group) -> list[Interval] | None:
        """The rows that may be wanted; None for all."""
        if self.projection.limit is not None and not group.fields and group.only is None:
            deleted = group.deletes.positions
            most = self.projection.limit + (0 if deleted is None else len(deleted))
            return [(0, min(most, group.rows))] if most else None
        filters = [row_filter for row_filter in group.filters if row_filter.prunes]
        footer = self.own_footer() if filters else None
        if footer is None:
            return None
        columns = {}
        for field_id in frozenset[int]().union(*(f.fields for f in filters)):
            leaf = group.leaves.get(field_id)
            pages = None if leaf is None else self.column_pages(footer, group.ordinal, leaf)
            if pages is not None:
                columns[field_id] = pages
        return candidates(filters, columns, group.stats, rows=group.rows) if columns else None

    def own_footer(self) -> Footer | None:
        """The footer, if there are pages to spare and what it says beyond Arrow's can be relied on."""
        file = self.file
        return None if file.body is not None or file.task.file.is_foreign else file.footer

    def column_pages(self, footer: Footer, group: int, leaf: Leaf) -> ColumnPages | None:
        decoded = self.file.page_bounds.get((group, leaf.ordinal))
        if decoded is not None:
            return decoded
        places = index_place(footer, group, leaf.ordinal)
        bounds = footer.row_group(group).column(leaf.ordinal).column_index
        if places is None or bounds is None or not self.held.holds(ByteRange(*bounds)):
            return None
        if not self.held.holds(places):
            return None
        bodies = (self.held.content(place) for place in (ByteRange(*bounds), places))
        pages = column_pages(footer, group, leaf, *bodies)
        if pages is not None:
            self.file.page_bounds[group, leaf.ordinal] = pages
        return pages

    def bloom_ranges(self, groups: Sequence[Group]) -> list[ByteRange]:
        """The blocks of Bloom filters to ask for the values of equality filters, where the columns
        themselves are more to read."""
        places: list[ByteRange] = []
        for group in groups:
            predicates = [f.predicate for f in group.filters if isinstance(f, PredicateFilter)]
            footer = self.own_footer() if predicates else None
            if footer is None:
                continue
            judged = self._ranges(group, group.judged_by, self._among.get(group.ordinal))
            if sum(place.length for place in judged) < BLOOM_WORTH_BYTES:
                continue
            # Only if the answers could rule the group out.
            ask = partial(self._has_block, footer, group)
            if any(surely_false(predicate, ask) for predicate in predicates):
                places += [block.place for block in self._blocks[group.ordinal].values()]
        return places

    def _has_block(
        self, footer: Footer, group: Group, field_id: int, kind: Primitive, value: Value
    ) -> bool:
        """Whether a Bloom filter can be asked for the value; notes the block to read."""
        leaf = group.leaves.get(field_id)
        if leaf is None:
            return False
        block = bloom_block(footer, group.ordinal, leaf.ordinal, kind, value)
        if block is not None:
            self._blocks.setdefault(group.ordinal, {})[field_id, value] = block
        return block is not None

    def without_absent(self, groups: Sequence[Group]) -> list[Group]:
        """The groups whose Bloom filters do not say that no row can be selected."""
        return [
            group
            for group in groups
            if not any(
                surely_false(row_filter.predicate, partial(self._is_absent, group))
                for row_filter in group.filters
                if isinstance(row_filter, PredicateFilter)
            )
        ]

    def _is_absent(self, group: Group, field_id: int, kind: Primitive, value: Value) -> bool:
        block = self._blocks.get(group.ordinal, {}).get((field_id, value))
        if block is None or not self.held.holds(block.place):
            return False
        return block.is_absent(self.held.content(block.place))

    # -- what is fetched ----------------------------------------------------------------------

    def first_ranges(self, groups: Sequence[Group]) -> list[ByteRange]:
        """A group that needs no look is fetched at once; of the others the columns they are judged
        by, and with them, in the same round trip, what finds single pages afterwards."""
        places: list[ByteRange] = []
        along = 0
        for group in groups:
            among = self._among.get(group.ordinal)
            if not group.fields and group.only is None:
                places += self._ranges(group, self.projection.columns, among)
                continue
            places += self._ranges(group, group.judged_by, among)
            rest = self._rest(group)
            if among is not None:
                others = self._ranges(group, rest, among)
                along += sum(place.length for place in others)
                places += others if along <= ALONG_BYTES else []
            # Deletes alone leave most rows: then every page is needed.
            footer = self.file.footer if group.is_picked and self.file.body is None else None
            if footer is not None:
                leaves = self.file.leaves(rest)
                indexes = (index_range(footer, group.ordinal, leaf) for leaf in leaves)
                places += [place for place in indexes if place is not None]
        return places

    def _ranges(
        self, group: Group, tops: Iterable[int], keep: pa.BooleanArray | None
    ) -> list[ByteRange]:
        """The pages that hold the rows of `keep`, of columns where that spares much, and the others."""
        if self.file.body is not None:
            return []  # all of it is here
        tops = tuple(tops)
        self._plan_pages(group.ordinal, tops, keep)
        sparse, whole = self._split(group, tops)
        pages = [place for column in sparse.values() for place in column.ranges]
        chunks = (chunk_range(chunk) for chunk in self.file.chunks(group.ordinal, whole))
        # A range beyond the object is the file's fault: the read that follows says so, by its name.
        size = self.file.task.file.size
        return pages + [r for r in chunks if r is not None and r.end <= size]

    def _rest(self, group: Group) -> tuple[int, ...]:
        """The columns of the result that judging the group does not look at."""
        return tuple(c for c in self.projection.columns if c not in group.judged_by)

    def _plan_pages(self, ordinal: int, tops: Iterable[int], keep: pa.BooleanArray | None) -> None:
        # What was planned for the same rows stays.
        nothing = (None, None)
        tops = [top for top in tops if self._sparse.get((ordinal, top), nothing)[1] is not keep]
        for top in tops:
            self._sparse.pop((ordinal, top), None)
        # Before the footer and the indexes are looked at: Inlay's own decoder takes its time.
        if not tops or keep is None or not may_be_sparse(keep):
            return
        footer = self.file.footer
        if footer is None:
            return
        hit = PagesWithRows(keep)
        # Numbers of pages most of which have a row: in columns with as many it is most as well, because
        # their pages mostly begin at the same rows.
        crowded: set[int] = set()
        for top in tops:
            for leaf in self.file.leaves([top]):
                pages = self._pages_of(footer, ordinal, leaf, crowded)
                if pages is None:
                    continue
                field = self.file.arrow.field(self.file.columns.tops[top].ordinal)
                pages_hit = hit.among(pages)
                column = sparse_column(footer, ordinal, leaf, field, pages, pages_hit)
                if column is not None:
                    self._sparse[ordinal, top] = column, keep
                elif not may_pay(pages_hit, pages):
                    crowded.add(len(pages))

    def _pages_of(
        self, footer: Footer, ordinal: int, leaf: int, crowded: Set[int]
    ) -> Sequence[Page] | None:
        """The pages of a chunk that may be read in part; None if its index is not held, or it has a number
        of pages that is `crowded`."""
        pages = self._pages.get((ordinal, leaf))
        if pages is not None:
            return pages
        place = index_range(footer, ordinal, leaf)
        if place is None or not self.held.holds(place):
            return None
        index = self.held.content(place)
        if number_of_pages(index) in crowded:
            return None
        group = footer.row_group(ordinal)
        pages = pages_of(index, group.column(leaf), group.num_rows)
        self._pages[ordinal, leaf] = pages
        return pages

    def _split(
        self, group: Group, tops: Iterable[int]
    ) -> tuple[dict[int, SparseColumn], tuple[int, ...]]:
        """The columns to read by pages, and those to read whole."""
        sparse = {
            top: self._sparse[group.ordinal, top][0]
            for top in tops
            if (group.ordinal, top) in self._sparse
        }
        return sparse, tuple(top for top in tops if top not in sparse)

    # -- which rows are left ------------------------------------------------------------------

    def read(
        self, groups: Sequence[Group]
    ) -> tuple[list[Survivors], list[ByteRange], list[pa.RecordBatch]]:
        """What is left of each group, and its rows; or what must be fetched first for these."""
        survivors = []
        for group in groups:
            survivor = self._judge(group)
            if survivor.rows:
                survivors.append(survivor)
        rest = [
            place
            for one in survivors
            for place in self._ranges(one.group, self._rest(one.group), one.keep)
        ]
        if rest and self.held.missing(rest):
            return survivors, rest, []
        return survivors, [], self.assemble(survivors)

    def read_whole(self, groups: Sequence[Group]) -> list[pa.RecordBatch]:
        """The rows of a file that came whole."""
        _, missing, batches = self.read(groups)
        assert not missing, "of a file that is there, nothing is fetched"
        return batches

    def _judge(self, group: Group) -> Survivors:
        among = self._among.get(group.ordinal)

        def at(mask: pa.BooleanArray | None) -> pa.BooleanArray | None:
            return mask if mask is None or among is None else mask.filter(among)

        keep = at(group.deletes.keep_positions(group.rows))
        spared = None if group.only is None else at(group.only.keep_positions(group.rows))
        table: pa.Table | None = None
        tops = group.judged_by
        if group.fields:
            schema = subschema(self.projection.schema, tops)
            batches = self._batches_at(group, tops, among)
            first, by_value = 0, []
            for batch in batches:
                live = None if keep is None else keep.slice(first, batch.num_rows)
                by_value.append(_rows_by_value(group, batch, schema, live))
                first += batch.num_rows
            keep = _both(keep, pa.concat_arrays(by_value))
            if group.only is not None:
                missed = [group.only.keep_values(batch, schema) for batch in batches]
                if missed[0] is not None:
                    spared = _both(spared, pa.concat_arrays(missed))
            table = pa.Table.from_batches(batches)
        if spared is not None:
            keep = _both(keep, pc.invert(spared))
        candidates = group.rows if among is None else among.true_count
        rows = candidates if keep is None else keep.true_count
        if rows == candidates:
            keep = None
        columns: dict[int, pa.ChunkedArray] = {}
        if table is not None and rows:
            kept = table if keep is None else _filtered(table, keep)
            columns = dict(zip(tops, kept.columns, strict=True))
        return Survivors(group, rows, _over_group(among, keep), columns)

    def _batches_at(
        self, group: Group, tops: Sequence[int], among: pa.BooleanArray | None
    ) -> list[pa.RecordBatch]:
        """Columns of the rows of `among` (None: all), as the snapshot's; at least one batch."""
        schema = subschema(self.projection.schema, tops)
        if among is None or not tops:
            return self._decode(group, schema)
        columns = self._columns(group, tops, among)
        arrays = [columns[top] for top in tops]
        arrow = schema_to_arrow(schema, with_ids=False)
        return list(pa.Table.from_arrays(arrays, schema=arrow).to_batches(BATCH_ROWS))

    # -- what comes out -----------------------------------------------------------------------

    def assembling_bytes(self, survivors: Sequence[Survivors], most: int) -> int:
        """What the columns of the rows that are left take once decoded: of few rows, those that are read by
        pages are decoded one after the other, and little of each is kept."""
        if not all(one.keep is not None and may_be_sparse(one.keep) for one in survivors):
            return most
        size = 0
        for one in survivors:
            sparse, whole = self._split(one.group, self._rest(one.group))
            by_column = (
                decoded_bytes(self.file.chunks(one.group.ordinal, [top])) for top in sparse
            )
            size += decoded_bytes(self.file.chunks(one.group.ordinal, whole))
            size += max(by_column, default=0)
        return min(size, most)

    def assemble(self, survivors: Sequence[Survivors]) -> list[pa.RecordBatch]:
        """The rows that are left, with all columns of the result."""
        batches: list[pa.RecordBatch] = []
        for one in survivors:
            columns = {**one.looked_at, **self._columns(one.group, self._rest(one.group), one.keep)}
            arrays: list[pa.ChunkedArray] = [columns[c] for c in self.projection.columns]
            if self.projection.position:
                arrays.append(pa.chunked_array([_positions(one)]))
            if self.projection.file:
                indices = pa.repeat(to_scalar(0, pa.int32()), one.rows)
                key = to_array([self.file.task.file.key], pa.string())
                arrays.append(pa.chunked_array([pa.DictionaryArray.from_arrays(indices, key)]))
            if arrays:
                table = pa.Table.from_arrays(arrays, schema=self.projection.result)
                batches.extend(table.to_batches(BATCH_ROWS))
            else:
                batches.append(_rows_without_columns(one.rows))
        return batches

    def _columns(
        self, group: Group, tops: Sequence[int], keep: pa.BooleanArray | None
    ) -> dict[int, pa.ChunkedArray]:
        """Columns at the rows of `keep` (None: all), from the pages that `_ranges` has planned for it."""
        sparse, whole = self._split(group, tops)
        columns: dict[int, pa.ChunkedArray] = {}
        waiting = [list(sparse)] if sparse and keep is not None else []
        while waiting:
            together = waiting.pop()
            try:
                read = read_pages(
                    [sparse[top] for top in together],
                    self.held.slice,
                    keep,
                    pool=memory_pool(),
                    codes=self._texts_as_codes if self._is_own else (),
                )
            except (pa.ArrowException, OSError, UnreadableFile):
                # Which of them cannot be read by pages shows each by itself.
                if len(together) > 1:
                    waiting += [[top] for top in together]
                else:
                    whole = (*whole, *together)
                continue
            schema = subschema(self.projection.schema, together)
            batches = self._conform(read.to_batches(BATCH_ROWS), schema)
            columns.update(zip(together, pa.Table.from_batches(batches).columns, strict=True))
        if whole:
            schema = subschema(self.projection.schema, whole)
            few = self._is_own and keep is not None and may_be_sparse(keep)
            # As the snapshot's types before rows are dropped: Arrow cannot filter string views, which
            # is how files of parquet-rs are read.
            table = pa.Table.from_batches(self._decode(group, schema, keep if few else None))
            kept = table if keep is None or few else _filtered(table, keep)
            columns.update(zip(whole, kept.columns, strict=True))
        return columns

    def _decode(
        self, group: Group, schema: Schema, few: pa.BooleanArray | None = None
    ) -> list[pa.RecordBatch]:
        """Columns of the rows of `few` (None: all) of a group, as the snapshot's; at least one batch."""
        leaves = self.file.leaves([field.id for field in schema.fields])
        if not leaves:
            # None of the columns is in this file: all NULL.
            rows = group.rows if few is None else few.true_count
            return self._conform([_rows_without_columns(rows)], schema)
        self._check_pages(group, leaves)
        meta = self.file.metadata.row_group(group.ordinal)
        sizes = {leaf: meta.column(leaf).total_uncompressed_size for leaf in leaves}
        side_by_side = sum(sizes.values()) >= THREADS_BYTES
        if side_by_side:  # the largest is begun first: at the end it would be decoded alone
            leaves.sort(key=sizes.__getitem__, reverse=True)
        with reading(self.file.task.file.key):
            table = self._reader(as_codes=few is not None).read_row_group(
                group.ordinal, column_indices=leaves, use_threads=side_by_side
            )
            if table.num_rows != group.rows:
                raise UnreadableFile(
                    f"row group {group.ordinal} has {table.num_rows} rows, its footer says "
                    f"{group.rows}",
                    key=self.file.task.file.key,
                )
            if few is not None:
                plain = pa.schema([self.file.arrow.field(name) for name in table.column_names])
                table = table.filter(few).cast(plain)
            return self._conform(table.to_batches(BATCH_ROWS), schema)

    def _check_pages(self, group: Group, leaves: Iterable[int]) -> None:
        """What this library wrote is as large as its footer says."""
        footer = self.file.footer if self.file.task.file.is_foreign else None
        if footer is None:
            return

        def held() -> Iterator[Pages]:
            columns = footer.row_group(group.ordinal).columns
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
        return list(conformed(batches, self.file.task.schema, schema))

    @property
    def _is_own(self) -> bool:
        """Whether few rows are read with texts as codes, and dropped before they get the table's types."""
        return self.file.body is None and not self.file.task.file.is_foreign

    @cached_property
    def _texts_as_codes(self) -> list[str]:
        return _with_dictionary(self.file.metadata)

    def _reader(self, *, as_codes: bool) -> Any:
        """`as_codes`: texts that have a dictionary come as references to it, of a file of this library,
        whose dictionaries have each entry once (pyarrow 26 mixes up others)."""
        if as_codes not in self._readers:
            reader = self._readers[as_codes] = ParquetReader(memory_pool=memory_pool())
            body = self.file.body
            reader.open(
                self.held.as_arrow() if body is None else pa.BufferReader(body),
                metadata=self.file.metadata,
                read_dictionary=self._texts_as_codes if as_codes else None,
                pre_buffer=False,
                # A damaged page may decode to other values without any error.
                page_checksum_verification=True,
                coerce_int96_timestamp_unit=self.file.task.int96,
            )
        return self._readers[as_codes]


def _filtered(table: pa.Table, keep: pa.BooleanArray) -> pa.Table:
    return pc.filter(table, keep, memory_pool=memory_pool())


def _with_dictionary(metadata: pq.FileMetaData) -> list[str]:
    """The columns of texts or bytes with a dictionary: to make a text of each reference takes two thirds of
    their decoding, for rows that are mostly dropped."""
    group, leaves = metadata.row_group(0), range(metadata.num_columns)
    return [
        shape.path
        for shape, chunk in ((metadata.schema.column(n), group.column(n)) for n in leaves)
        if chunk.has_dictionary_page
        and shape.physical_type == "BYTE_ARRAY"
        and shape.path == shape.name  # not within another
    ]


def _rows_by_value(
    group: Group, batch: pa.RecordBatch, schema: Schema, live: pa.BooleanArray | None
) -> pa.BooleanArray:
    """The rows of `batch` that are wanted by their values; `live` are those that no position deletes."""
    keep = group.deletes.keep_values(batch, schema)
    for condition in sorted(group.filters, key=lambda row_filter: row_filter.of_live_rows):
        among = _both(live, keep) if condition.of_live_rows else None
        if among is None or among.true_count == len(among):
            keep = _both(keep, condition.selected(batch, schema))
        else:
            keep = pc.replace_with_mask(
                among, among, condition.selected(batch.filter(among), schema)
            )
    return pa.repeat(to_scalar(True, pa.bool_()), batch.num_rows) if keep is None else keep


def _mask(intervals: Iterable[Interval], rows: int) -> pa.BooleanArray:
    """Over `rows` rows, which of them are in an interval."""
    parts, at = [], 0
    for start, end in (*intervals, (rows, rows)):
        parts += [pa.repeat(_FALSE, start - at), pa.repeat(_TRUE, end - start)]
        at = end
    return pa.concat_arrays(parts)


def _over_group(
    among: pa.BooleanArray | None, keep: pa.BooleanArray | None
) -> pa.BooleanArray | None:
    """`keep`, which is over the rows of `among`, over the rows that `among` is over."""
    if among is None or keep is None:
        return among if keep is None else keep
    places = pc.indices_nonzero(among).filter(keep).cast(pa.int64())
    return marks_at(places, len(among)).is_valid()


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


def _rows_without_columns(rows: int) -> pa.RecordBatch:
    """A batch that has rows and no column: what a count needs."""
    nothing = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(nothing)
