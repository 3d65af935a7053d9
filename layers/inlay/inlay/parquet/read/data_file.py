"""An open data file: its footer, the places of its columns, its deleted rows.

Promise: one round trip, for the footer and the marker objects together; none for what the cache holds. The
source is pinned to the content of this footer. A footer that contradicts the entry, or that Arrow cannot
parse, is an error that names the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.format.predicate import TRUE
from inlay.format.schema import Primitive, Schema
from inlay.parquet.arrow.words import words_of
from inlay.parquet.footer.arrow_metadata import parse_metadata
from inlay.parquet.footer.columns import FileColumns, cut_to, locate_columns
from inlay.parquet.footer.footer import Footer, decode_footer
from inlay.parquet.read.deleted_rows import NO_DELETES, FileDeletes, combine_markers, marker_jobs
from inlay.parquet.read.ranges import (
    SMALL_OBJECT_BYTES,
    Objects,
    Source,
    fetch_tail,
    keep_tail,
    kept_tail,
)
from inlay.parquet.read.read_ahead import Steps
from inlay.parquet.read.selection import Wanted
from inlay.parquet.read.single_pages import MAX_CHUNKS
from inlay.parquet.read.statistics import total_rows
from inlay.plan.scan.scan import FileTask
from inlay.storage.base import ByteRange

# A larger footer is refused: it would take many times its size in memory once parsed.
MAX_FOOTER_BYTES = 256 * 1024 * 1024
# A footer in memory, parsed by Arrow and by Inlay, measured against its thrift bytes.
_FOOTER_FACTOR = 18
# Rows of a page as this library writes them, the least that a lookup reads of a column (Arrow's 20,000 gain
# 1.6 % of size on lineitem), and what the page index has for each page of a column: two
# bounds, an offset, counts.
PAGE_ROWS = 5_000
PAGE_INDEX_BYTES = 28
LONG_INDEX_BYTES = 80  # of texts and bytes
# The page index is fetched along with the footer up to this size.
MAX_INDEX_BYTES = 512 * 1024


@dataclass(frozen=True)
class FooterOf:
    """A footer, parsed and as bytes, and the size and the ETag of the object it is of. `tail` is the end of
    the object: the footer, and what lies before it as far as it came along."""

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


@dataclass(frozen=True)
class OpenFile:
    """A file about to be read: its end (`known`: the footer at least, of a small file all of it), where
    its columns are (`arrow` is its schema as Arrow sees it), what is deleted, what alone is wanted
    (`only`, None for any row)."""

    task: FileTask
    source: Source
    known: FooterOf
    arrow: pa.Schema
    columns: FileColumns
    deletes: FileDeletes = NO_DELETES
    only: FileDeletes | None = None

    @property
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
        found = self.columns.tops
        return sorted({leaf for top in tops if top in found for leaf in found[top].leaves})

    def chunks(self, group: int, tops: Iterable[int]) -> list[pq.ColumnChunkMetaData]:
        """The column chunks of top-level fields in a row group."""
        meta = self.metadata.row_group(group)
        return [meta.column(leaf) for leaf in self.leaves(tops)]


def open_file(
    objects: Objects, task: FileTask, wanted: Wanted, *, whole_bytes: int = 0
) -> Steps[OpenFile]:
    """Fetches and parses the footer and loads the marker objects. A file of up to `whole_bytes` of which
    everything is wanted comes with its footer: a request and a round trip less."""
    loads = marker_jobs(objects, task.markers, wanted.schema, task.file.rows)
    more = marker_jobs(objects, task.only, wanted.schema, task.file.rows)
    footers = partial(_load_footer, objects, task, wanted, whole_bytes)
    (source, footer), *loaded = yield [footers, *loads, *more]
    deletes = combine_markers(task.markers, loaded[: len(loads)], wanted.schema, objects.cache)
    only = None
    if task.only:
        only = combine_markers(task.only, loaded[len(loads) :], wanted.schema, objects.cache)
    with reading(task.file.key):
        arrow = footer.metadata.schema.to_arrow_schema()
    columns = cut_to(locate_columns(arrow, task.schema), wanted.schema)
    return OpenFile(task, source, footer, arrow, columns, deletes, only)


def first_bytes(task: FileTask, wanted: Wanted, whole_bytes: int) -> int:
    """How much is fetched of a file of which nothing is known yet: all of it, or `tail_bytes`."""
    entry = task.file
    everything = (
        entry.size <= whole_bytes
        and not _is_picky(task, wanted)
        and task.row_groups is None
        and (not task.markers or entry.row_groups == 1)
        and {field.id for field in task.schema.fields} <= set(wanted.columns)
    )
    return entry.size if everything else tail_bytes(task, wanted)


def _is_picky(task: FileTask, wanted: Wanted) -> bool:
    """Whether few rows may be wanted."""
    picked = task.predicate != TRUE or bool(task.only)
    return picked or wanted.where is not None or wanted.limit is not None


def tail_bytes(task: FileTask, wanted: Wanted) -> int:
    """How much of a file's end is asked for: its footer, and where single pages may do, the page index
    before it. How long that is the entry does not say; what is missed is fetched later."""
    entry = task.file
    if not _is_picky(task, wanted) or entry.is_foreign:
        return entry.footer_size
    pages = max(entry.row_groups, -(-entry.rows // PAGE_ROWS))
    return entry.footer_size + min(MAX_INDEX_BYTES, pages * _page_index_bytes(task.schema))


@lru_cache(maxsize=64)
def _page_index_bytes(schema: Schema) -> int:
    """About what the page index has for one page of each column."""
    kinds = [found.type for _, found in schema.walk() if isinstance(found.type, Primitive)]
    longs = sum(kind.name in ("string", "binary") for kind in kinds)
    return longs * LONG_INDEX_BYTES + (len(kinds) - longs) * PAGE_INDEX_BYTES


def _load_footer(
    objects: Objects, task: FileTask, asked: Wanted, whole_bytes: int
) -> tuple[Source, FooterOf]:
    entry = task.file
    wanted = tail_bytes(task, asked)
    if entry.footer_size > MAX_FOOTER_BYTES:
        raise UnsupportedFile(
            f"the footer has {entry.footer_size} bytes, more than Inlay reads",
            key=entry.key,
            next_step="Write the file with fewer row groups or columns",
        )
    source = objects.source(entry.key, entry.size, entry.etag)
    cached: FooterOf | None = objects.cache.get(entry.key)
    if cached is not None and len(cached.tail) >= min(wanted, entry.size):
        return source.pinned(cached.etag), cached
    first = wanted if cached is not None else first_bytes(task, asked, whole_bytes)
    kept_here = kept_tail(objects.disk, source, min(first, entry.size))
    tail, source = kept_here or fetch_tail(source, first, entry.size)
    if cached is not None:
        footer = replace(cached, tail=tail)
        objects.cache.put(entry.key, footer, _FOOTER_FACTOR * entry.footer_size + len(tail))
        if kept_here is None:
            keep_tail(objects.disk, source, tail)
        return source.pinned(cached.etag), footer
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
    footer = FooterOf(metadata, tail, entry.size, source.etag)
    # What is remembered of a file is its footer, and rows only of a small one.
    as_asked = first == wanted or len(tail) <= SMALL_OBJECT_BYTES
    kept = footer if as_asked else replace(footer, tail=tail[len(tail) - wanted :])
    objects.cache.put(entry.key, kept, _FOOTER_FACTOR * entry.footer_size + len(kept.tail))
    if kept_here is None and as_asked:
        keep_tail(objects.disk, source, tail)
    return source, footer


class reading:  # noqa: N801 - reads as a statement: `with reading(key):`
    """Turns what Arrow reports about a file's bytes into an error that names the file."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, pa.ArrowNotImplementedError):
            raise UnsupportedFile(
                f"pyarrow cannot read this file: {words_of(error)}",
                key=self.key,
                next_step="Write it again with types and codecs that pyarrow reads",
            ) from error
        # Arrow raises ValueErrors of its own, and Python's, for a name that is no Unicode.
        if isinstance(error, pa.ArrowException | OSError | ValueError | OverflowError):
            raise UnreadableFile(f"the file is broken: {words_of(error)}", key=self.key) from error


def chunk_range(chunk: pq.ColumnChunkMetaData) -> ByteRange | None:
    """The range of a column chunk's pages; None when it has none."""
    start = chunk.data_page_offset
    dictionary = chunk.dictionary_page_offset
    # Some writers put 0 if there is no dictionary page.
    if dictionary is not None and 4 <= dictionary < start:
        start = dictionary
    size = chunk.total_compressed_size
    return ByteRange(start, start + size) if size > 0 else None
