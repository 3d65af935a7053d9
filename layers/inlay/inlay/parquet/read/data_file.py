"""An open data file: its footer, the places of its columns, its deleted rows, and which of its row groups
are read, if they fit into memory.

Promise: one round trip, for the footer and the marker objects together; none for what the cache holds. The
source is pinned to the content of this footer. A footer that contradicts the entry, or that Arrow cannot
parse, is an error that names the file.

Which row groups are read, and which of them together: a row group is left out only when statistics and
positions prove that no row of it is selected; what they decide for all of its rows is not evaluated again.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from inlay.errors import NeedsMemory, UnreadableFile, UnsupportedFile
from inlay.format.entry import ColumnStats, DataFile
from inlay.format.predicate import TRUE
from inlay.format.schema import Primitive, Schema
from inlay.parquet.arrow.words import words_of
from inlay.parquet.footer.fields import Meta, Physical, Sizes
from inlay.parquet.footer.footer import ColumnChunk, Footer, decode_footer, parse_metadata
from inlay.parquet.footer.thrift import unpack
from inlay.parquet.read.deleted_rows import (
    NO_DELETES,
    FileDeletes,
    GroupDeletes,
    combine_markers,
    marker_jobs,
)
from inlay.parquet.read.ranges import (
    SMALL_OBJECT_BYTES,
    Objects,
    Remembered,
    Source,
    Steps,
    fetch_tail,
    keep_tail,
    kept_tail,
)
from inlay.parquet.read.selection import (
    ColumnPages,
    PredicateFilter,
    Projection,
    RowFilter,
    top_columns,
)
from inlay.parquet.read.single_pages import MAX_CHUNKS
from inlay.parquet.read.statistics import (
    FileColumns,
    Leaf,
    absent_fields,
    cut_to,
    group_stats,
    leaves_of,
    locate_columns,
    total_rows,
)
from inlay.plan.pruning.prune import Absent
from inlay.plan.scan import FileTask
from inlay.record import Record, field, replace
from inlay.storage.base import ByteRange

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def width_of(kind: Physical) -> int:
    """A value's bytes in Arrow; for texts without their characters. Types that are shorter in the file are
    as wide."""
    return 12 if kind is Physical.INT96 else 8


# Share of the process's memory for one decoded row group: the rest is for the fetched bytes, and for what
# is made of the rows.
_SHARE = 0.5


def chunk_bytes(chunk: ColumnChunk) -> int:
    """The least size of a chunk's decoded values."""
    values = chunk.num_values * width_of(chunk.type)
    texts: int = unpack(chunk.meta.get(Meta.SIZES, {})).get(Sizes.TEXT_BYTES, 0)
    return max(chunk.uncompressed_size, values + max(texts, 0))


def largest_group(footer: Footer) -> int:
    """The bytes of a file's largest row group once decoded; 0 without any."""
    groups = (sum(chunk_bytes(chunk) for chunk in group.columns) for group in footer.row_groups)
    return max(groups, default=0)


def check_memory(decoded_bytes: int, *, key: str | None = None) -> None:
    """Raises `NeedsMemory` for a row group that takes more than this process may hold.

    A row group that by its own footer is larger than this process may hold is refused before any page is
    decoded, and before the kernel kills the process. Compressed bytes say nothing: a page of zeros, or a
    dictionary of one long text, is some KB for a GB.

    A footer has the bytes of encoded pages; the number of values, so their width if that is fixed; and,
    from writers since 2024 (`SizeStatistics`), the bytes of all texts. Texts under a dictionary without
    these are counted as references alone, because the footer has nothing more: `parquet.read.single_column`
    looks at pages.
    """
    limit = memory_limit()
    if decoded_bytes > limit:
        raise NeedsMemory(
            f"a row group takes {decoded_bytes >> 20} MiB of memory when decoded, and the limit is "
            f"{limit >> 20} MiB here",
            key=key,
            next_step="Read fewer of its columns, use a process with more memory, or write the file "
            "with smaller row groups",
        )


@cache
def memory_limit() -> int:
    """Bytes that one decoded row group may take: a share of the memory of the machine, the container or the
    Lambda function."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    lambda_mib = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if lambda_mib.isdigit():
        limits.append(int(lambda_mib) << 20)
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:  # libraries have taken their part of it
        in_use = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        limits.append(max(addresses - in_use, 0))
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroups, version 2 and 1
        try:
            text = (Path("/sys/fs/cgroup") / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # not "max"
            limits.append(int(text))
    return int(min(limits) * _SHARE)


# A larger footer is refused: it would take many times its size in memory once parsed.
MAX_ARROW_FOOTER_BYTES = 256 * 1024 * 1024
# A footer in memory, parsed by Arrow and by Inlay, measured against its thrift bytes.
_FOOTER_FACTOR = 18
# Rows of a page as this library writes them, the least that a lookup reads of a column (Arrow's 20,000 gain
# 1.6 % of size on lineitem).
PAGE_ROWS = 5_000
# What the page index has at most for each column chunk, and for each page of it besides two bounds: a flag,
# the bounds' lengths, an offset, a size, a row and counts; within lists and maps of levels, too.
_INDEX_OF_CHUNK = 24
_INDEX_OF_PAGE = 26
_INDEX_OF_LEVELS = 12
# Bounds of texts and bytes: as long as the entry's, twice, because single pages may have longer ones.
_LONG_BOUND = 32
# The page index is fetched along with the footer up to this size.
INDEX_ALONG_BYTES = 512 * 1024


class FooterOf(Record, dict=True):
    """A footer, parsed and as bytes, and the size and the ETag of the object it is of. `tail` is the end of
    the object: the footer, and as much of what is before it as came along."""

    metadata: pq.FileMetaData
    tail: bytes
    size: int
    etag: str

    @cached_property
    def footer(self) -> Footer | None:
        """The footer with what Arrow does not expose; None if that is too much work, or Inlay's own decoder
        is stricter than Arrow's."""
        if self.metadata.num_row_groups * self.metadata.num_columns > MAX_CHUNKS:
            return None
        try:
            return decode_footer(self.tail, file_size=self.size)
        except (UnreadableFile, UnsupportedFile):
            return None


class OpenFile(Record, dict=True):
    """A file about to be read: its end (`known`: the footer at least, of a small file all of it), where
    its columns are (`arrow` is its schema as Arrow sees it), what is deleted, what alone is wanted
    (`only`, None for any row). `page_bounds`, by row group and leaf, are those that were decoded: the same
    whatever is asked of the file."""

    task: FileTask
    source: Source
    known: FooterOf
    arrow: pa.Schema
    columns: FileColumns
    deletes: FileDeletes = NO_DELETES
    only: FileDeletes | None = None
    page_bounds: dict[tuple[int, int], ColumnPages] = field(default_factory=dict)

    @cached_property
    def body(self) -> bytes | None:
        """The whole file, where it came with its footer."""
        return self.tail if len(self.tail) == self.task.file.size else None

    @property
    def metadata(self) -> pq.FileMetaData:
        return self.known.metadata

    @property
    def tail(self) -> bytes:
        return self.known.tail

    @property
    def footer(self) -> Footer | None:
        return self.known.footer

    def decoded(self) -> Footer:
        """The footer, whatever that takes. Raises `UnreadableFile`, `UnsupportedFile`."""
        return self.known.footer or decode_footer(self.tail, file_size=self.task.file.size)

    def leaves(self, tops: Iterable[int]) -> list[int]:
        """The leaf columns of top-level fields, those that the file has, in file order."""
        leaves = self.columns.tops
        return sorted({leaf for top in tops if top in leaves for leaf in leaves[top].leaves})

    def chunks(self, group: int, tops: Iterable[int]) -> list[pq.ColumnChunkMetaData]:
        """The column chunks of top-level fields in a row group."""
        meta = self.metadata.row_group(group)
        return [meta.column(leaf) for leaf in self.leaves(tops)]


def open_file(
    objects: Objects, task: FileTask, projection: Projection, *, whole_bytes: int = 0
) -> Steps[OpenFile]:
    """Fetches and parses the footer and loads the marker objects. A file of up to `whole_bytes` of which
    everything is wanted comes with its footer: a request and a round trip less."""
    loads = marker_jobs(objects, task.markers, projection.schema, task.file.rows)
    more = marker_jobs(objects, task.only, projection.schema, task.file.rows)
    # What is remembered takes less than to hand it to another thread and back.
    known = _remembered(objects, task, projection)
    footers = [] if known else [partial(_load_footer, objects, task, projection, whole_bytes)]
    answers = yield [*footers, *loads, *more]
    (source, footer), *loaded = [known, *answers] if known else answers
    deletes, only = NO_DELETES, None
    if task.markers:
        of_rows = loaded[: len(loads)]
        deletes = combine_markers(task.markers, of_rows, projection.schema, objects.cache)
    if task.only:
        only = combine_markers(task.only, loaded[len(loads) :], projection.schema, objects.cache)
    with reading(task.file.key):
        arrow = footer.metadata.schema.to_arrow_schema()
    columns = cut_to(locate_columns(arrow, task.schema), projection.schema)
    return OpenFile(task, source, footer, arrow, columns, deletes, only)


def first_bytes(task: FileTask, projection: Projection, whole_bytes: int) -> int:
    """How much is fetched of a file of which nothing is known yet: all of it, or `tail_bytes`."""
    entry = task.file
    everything = (
        entry.size <= whole_bytes
        and not _is_picky(task, projection)
        and task.row_groups is None
        and (not task.markers or entry.row_groups == 1)
        and {field.id for field in task.schema.fields} <= set(projection.columns)
    )
    return entry.size if everything else tail_bytes(task, projection)


def _is_picky(task: FileTask, projection: Projection) -> bool:
    """Whether few rows may be wanted."""
    picked = task.predicate != TRUE or bool(task.only)
    return (
        picked or projection.index or projection.where is not None or projection.limit is not None
    )


def tail_bytes(task: FileTask, projection: Projection) -> int:
    """How much of a file's end is asked for: its footer, and where single pages may do, the page index
    before it."""
    entry = task.file
    if not _is_picky(task, projection) or entry.is_foreign:
        return entry.footer_size
    return entry.footer_size + min(INDEX_ALONG_BYTES, index_bytes(entry, task.schema))


def index_bytes(entry: DataFile, schema: Schema) -> int:
    """The length of the page index of a file of this library, as far as the entry tells at most: the first
    column's, most often the key's, is furthest from the end, so too short a tail misses just that. Only
    texts whose bounds in the entry are cut may take more; what is missed is fetched later."""
    chunks = entry.row_groups
    pages = max(chunks, -(-entry.rows // PAGE_ROWS) + chunks - 1)
    flat = {field.id for field in schema.fields}
    of_a_page = sum(
        _INDEX_OF_PAGE
        + 2 * _bound_bytes(kind, entry.stats.get(field_id))
        + (0 if field_id in flat else _INDEX_OF_LEVELS)
        for field_id, kind in schema.types.items()
    )
    return pages * of_a_page + chunks * len(schema.types) * _INDEX_OF_CHUNK


def _bound_bytes(kind: Primitive, stats: ColumnStats | None) -> int:
    match kind.name:
        case "string" | "binary":
            bounds = () if stats is None else (stats.lower, stats.upper)
            known = [len(bound) for bound in bounds if isinstance(bound, str | bytes)]
            return max(_LONG_BOUND, 2 * max(known, default=0))
        case "fixed":
            return kind.precision
        case "decimal":
            return 32 if kind.precision > 38 else 16
        case "bool":
            return 1
        case "int8" | "int16" | "int32" | "uint8" | "uint16" | "uint32" | "float" | "date":
            return 4
        case "int64" | "uint64" | "double" | "time" | "timestamp" | "timestamptz":
            return 8
        case _:
            assert_never(kind.name)


def _remembered(
    objects: Objects, task: FileTask, projection: Projection
) -> tuple[Source, FooterOf] | None:
    """The footer, and as much before it as is needed, if the cache has it."""
    entry = task.file
    cached: FooterOf | None = objects.cache.get(entry.key)
    if cached is None or len(cached.tail) < min(tail_bytes(task, projection), entry.size):
        return None
    source = objects.source(entry.key, entry.size, entry.etag)
    forget = partial(_forget, objects, entry.key, source.location.uri)
    known = Remembered(cached.tail, forget)
    return replace(source.pinned(cached.etag), remembered=known), cached


def _load_footer(
    objects: Objects, task: FileTask, projection: Projection, whole_bytes: int
) -> tuple[Source, FooterOf]:
    entry = task.file
    tail_length = tail_bytes(task, projection)
    if entry.footer_size > MAX_ARROW_FOOTER_BYTES:
        raise UnsupportedFile(
            f"the footer has {entry.footer_size} bytes, more than Inlay reads",
            key=entry.key,
            next_step="Write the file with fewer row groups or columns",
        )
    source = objects.source(entry.key, entry.size, entry.etag)
    cached: FooterOf | None = objects.cache.get(entry.key)
    forget = partial(_forget, objects, entry.key, source.location.uri)
    first = tail_length if cached is not None else first_bytes(task, projection, whole_bytes)
    kept_here = kept_tail(objects.disk, source, min(first, entry.size))
    if kept_here is not None:
        tail, kept = kept_here
        try:
            footer = _footer_of(entry, tail, kept)
        except (UnreadableFile, UnsupportedFile):
            forget()  # of another object: the store is asked
        else:
            _remember(objects, entry, footer, tail_length, is_all=first == tail_length)
            return replace(kept, remembered=Remembered(tail, forget)), footer
    tail, source = fetch_tail(source, first, entry.size)
    if cached is not None:
        if source.etag != cached.etag and not tail.endswith(cached.tail):
            forget()
            raise source.changed()
        footer = replace(cached, tail=tail, etag=source.etag or cached.etag)
        objects.cache.put(entry.key, footer, _FOOTER_FACTOR * entry.footer_size + len(tail))
        keep_tail(objects.disk, source, tail)
        return source, footer
    footer = _footer_of(entry, tail, source)
    if _remember(objects, entry, footer, tail_length, is_all=first == tail_length):
        keep_tail(objects.disk, source, tail)
    return source, footer


def _forget(objects: Objects, key: str, uri: str) -> None:
    """What is remembered of the object, here and on disk, is of another content."""
    objects.cache.put(key, None, 0)
    if objects.disk is not None:
        objects.disk.drop(uri)


def _footer_of(entry: DataFile, tail: bytes, source: Source) -> FooterOf:
    with reading(entry.key):
        metadata = parse_metadata(tail, file_size=entry.size, foreign=entry.is_foreign)
    rows = total_rows(metadata)
    if rows != entry.rows or metadata.num_row_groups != entry.row_groups:
        raise UnreadableFile(
            f"the footer says {rows} rows in {metadata.num_row_groups} row groups, the table's "
            f"metadata {entry.rows} in {entry.row_groups}",
            key=entry.key,
        )
    assert source.etag is not None  # fetch_tail pins
    return FooterOf(metadata, tail, entry.size, source.etag)


def _remember(
    objects: Objects, entry: DataFile, footer: FooterOf, tail_length: int, *, is_all: bool
) -> bool:
    """Whether its end is worth keeping on disk, too."""
    # What is remembered of a file is its footer, and rows only of a small one.
    tail = footer.tail
    as_asked = is_all or len(tail) <= SMALL_OBJECT_BYTES
    kept = footer if as_asked else replace(footer, tail=tail[len(tail) - tail_length :])
    objects.cache.put(entry.key, kept, _FOOTER_FACTOR * entry.footer_size + len(kept.tail))
    return as_asked


@contextmanager
def reading(key: str) -> Iterator[None]:
    """Turns what Arrow reports about a file's bytes into an error that names the file."""
    try:
        yield
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFile(
            f"pyarrow cannot read this file: {words_of(error)}",
            key=key,
            next_step="Write it again with types and codecs that pyarrow reads",
        ) from error
    # Arrow raises ValueErrors of its own, and Python's for a name that is not Unicode.
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UnreadableFile(f"the file is broken: {words_of(error)}", key=key) from error


def chunk_range(chunk: pq.ColumnChunkMetaData) -> ByteRange | None:
    """The range of a column chunk's pages; None when it has none."""
    start = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset
    # Some writers put 0 if there is no dictionary page.
    if dictionary is not None and 4 <= dictionary < start:
        start = dictionary
    size = chunk.total_compressed_size
    return ByteRange(start, start + size) if size > 0 else None


# Units that fit the budget side by side, so that one is fetched while another is decoded.
UNITS_IN_BUDGET = 4
# Chunks with fewer values are not checked for the length of their texts: they take little memory.
MANY_VALUES = 10_000
# The size of a decoded value, when the footer does not show it because of a dictionary; others take 8.
_DECODED_BYTES = {"BYTE_ARRAY": 24, "FIXED_LEN_BYTE_ARRAY": 16}


class Group(Record):
    """A row group that may have rows to give, and what must be asked of them: that `filters` select
    them, that `deletes` delete none of them, that `only`, unless None, would delete each of them. `stats`
    and `leaves` are of the columns that `filters` look at, as far as these may be believed; `fields` and
    their top-level columns `judged_by` are what filters and deletes look at."""

    ordinal: int
    first_row: int
    rows: int
    filters: tuple[RowFilter, ...]
    deletes: GroupDeletes
    only: GroupDeletes | None
    stats: Mapping[int, ColumnStats]
    leaves: Mapping[int, Leaf]
    fields: frozenset[int]
    judged_by: tuple[int, ...]

    @property
    def is_picked(self) -> bool:
        """Whether few of its rows may be selected: then single pages are worth finding."""
        return bool(self.filters) or self.only is not None


def plan_groups(file: OpenFile, projection: Projection) -> Iterator[Group]:
    """The row groups of a task that may have a selected row, in file order."""
    task, projection = file.task, projection.of(file.task)
    filters: list[RowFilter] = []
    if task.predicate != TRUE:
        filters.append(PredicateFilter(task.predicate))
    if projection.where is not None:
        if projection.where.fields:
            filters.append(projection.where)
        elif not _selects_all(projection.where):
            return
    schema, only = projection.schema, (file.only or NO_DELETES).fields
    fields = file.deletes.fields.union(only, *(f.fields for f in filters))
    leaves: Mapping[int, Leaf] = {}
    if fields:
        leaves = leaves_of(file.metadata, file.columns, schema, fields, task.file.stats)
    planner = _GroupPlanner(
        file,
        schema,
        filters,
        {} if task.by_rows else leaves,
        {} if task.decides_by_rows else leaves,
        absent_fields(file.columns, schema, fields) if fields else {},
    )
    chosen = None if task.row_groups is None else frozenset(task.row_groups)
    first_row = 0
    for ordinal in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(ordinal).num_rows
        if rows and (chosen is None or ordinal in chosen):
            group = planner.plan(ordinal, first_row, rows)
            if group is not None:
                yield group
        first_row += rows


class _GroupPlanner(Record):
    """What a file's row groups are planned by: statistics of `leaves` decide about `filters`, those of
    `leaves_of_deletes` about deletes; fields that are `absent` hold their default."""

    file: OpenFile
    schema: Schema
    filters: list[RowFilter]
    leaves: Mapping[int, Leaf]
    leaves_of_deletes: Mapping[int, Leaf]
    absent: Mapping[int, Absent]

    def plan(self, ordinal: int, first_row: int, rows: int) -> Group | None:
        """None when statistics and positions alone prove that no row of it is selected. Statistics of
        another writer do not prove that all rows are."""
        file, foreign = self.file, self.file.task.file.is_foreign
        of_filters = stats = self._stats(ordinal, self.leaves)
        remaining = []
        for row_filter in self.filters:
            covered = row_filter.coverage(stats, rows)
            if covered == "none":
                return None
            if covered != "all" or foreign:
                remaining.append(row_filter)
        if self.leaves_of_deletes is not self.leaves:
            stats = self._stats(ordinal, self.leaves_of_deletes)
        sure = self._stats(ordinal, {}) if foreign else stats
        deletes = file.deletes.of_group(ordinal, first_row, rows, stats, sure)
        if deletes is None:
            return None
        only: GroupDeletes | None = None
        if file.only is not None:
            only = file.only.of_group(ordinal, first_row, rows, stats, sure)
            if only is not None and not only.any:
                return None
        asked: list[RowFilter | GroupDeletes] = [*remaining, *([] if only is None else [only])]
        fields = deletes.fields.union(*(judge.fields for judge in asked))
        return Group(
            ordinal,
            first_row,
            rows,
            tuple(remaining),
            deletes,
            only,
            of_filters,
            self.leaves,
            fields,
            judged_by=top_columns(self.schema, fields),
        )

    def _stats(self, ordinal: int, leaves: Mapping[int, Leaf]) -> Mapping[int, ColumnStats]:
        return group_stats(self.file.metadata, ordinal, leaves, self.absent)


def _selects_all(row_filter: RowFilter) -> bool:
    """Whether a filter that looks at no column, such as 1 = 2, selects every row or none. Where nothing is
    read for a filter, no row would ask it."""
    any_row = pa.record_batch([pa.nulls(1)], names=[""])
    return bool(row_filter.selected(any_row, Schema(0, ()))[0].as_py())


def _may_repeat_texts(chunk: pq.ColumnChunkMetaData) -> bool:
    """Whether a dictionary may hide the length of the values; then Inlay's own decoder is used, which reads
    what Arrow does not expose of a footer."""
    stored: int = chunk.total_uncompressed_size
    return bool(
        chunk.physical_type == "BYTE_ARRAY"
        and chunk.has_dictionary_page
        and chunk.num_values >= MANY_VALUES
        and stored < 8 * chunk.num_values
    )


class Piece(Record):
    """Groups that are read together, and the memory they will take: `first_bytes` until they are judged,
    `total_bytes` at most, `stored_bytes` of that as they are in the file."""

    groups: tuple[Group, ...]
    stored_bytes: int
    first_bytes: int
    total_bytes: int


def in_units(
    file: OpenFile, projection: Projection, *, unit_bytes: int, budget_bytes: int
) -> Iterator[Piece]:
    """Adjacent groups in runs of about `unit_bytes`: each takes at most a part of the budget, however well
    the groups are compressed (or one group)."""
    most = budget_bytes // UNITS_IN_BUDGET
    run: list[Group] = []
    stored = first = total = 0
    for group in plan_groups(file, projection):
        tops = (*projection.columns, *group.judged_by)
        chunks = file.chunks(group.ordinal, tops)
        stored_here = stored_bytes(chunks)
        decoded_here = decoded_bytes(chunks)
        if any(_may_repeat_texts(c) for c in chunks) and file.footer is not None:
            columns = file.footer.row_group(group.ordinal).columns
            decoded = sum(chunk_bytes(columns[leaf]) for leaf in file.leaves(tops))
            decoded_here = max(decoded_here, decoded)
        check_memory(decoded_here, key=file.task.file.key)
        total_here = stored_here + decoded_here
        if run and (stored + stored_here > unit_bytes or total + total_here > most):
            yield Piece(tuple(run), stored, first, total)
            run, stored, first, total = [], 0, 0, 0
        run.append(group)
        stored += stored_here
        total += total_here
        if group.fields:
            looked_at = file.chunks(group.ordinal, group.judged_by)
            first += stored_bytes(looked_at) + min(decoded_bytes(looked_at), decoded_here)
        else:
            first += stored_here
    if run:
        yield Piece(tuple(run), stored, first, total)


def stored_bytes(chunks: Iterable[pq.ColumnChunkMetaData]) -> int:
    return sum(c.total_compressed_size for c in chunks)


def decoded_bytes(chunks: Iterable[pq.ColumnChunkMetaData]) -> int:
    """Bytes of column chunks once decoded, by their footer."""
    return sum(
        max(c.total_uncompressed_size, c.num_values * _DECODED_BYTES.get(c.physical_type, 8))
        for c in chunks
    )
