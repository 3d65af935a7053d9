"""Reading only the pages of a column that hold selected rows.

Promise: the rows that `SparseColumn.read` gives, reduced by `kept`, are the selected rows of the column
chunk, the same as when reading it whole; `ranges` are the only bytes it needs. A chunk for which this is
not certain (no offset index, one of a writer whose are not known, one that contradicts the footer or a page
that is read, nested or repeated columns) has no sparse form and is read whole. Where pages begin that are
not read is on the word of the offset index: `false_indexes` finds those that are wrong there, at the cost
of all pages.

pyarrow reads whole chunks only. So the selected pages, with the chunk's dictionary, are assembled into a
Parquet file of one column and one row group, with the schema element of the original, and that is read.
Relies on the format's rule that with an offset index every page begins with a new row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow._parquet import ParquetReader

from inlay.errors import UnreadableFile
from inlay.parquet.footer.fields import (
    ARROW_SCHEMA,
    Element,
    File,
    KeyValue,
    Meta,
    Physical,
)
from inlay.parquet.footer.footer import MAGIC, ColumnChunk, Footer, Leaf, end_of_file, view_tree
from inlay.parquet.footer.pages import claimed_values, page_header, page_locations
from inlay.parquet.footer.thrift import STRUCT, Items, Struct, ThriftError
from inlay.parquet.footer.writers import has_known_indexes
from inlay.storage.base import ByteRange

# Smaller chunks are read whole: skipping pages would not pay for finding them.
MIN_CHUNK_BYTES = 8 * 1024
# Pages are fetched singly if they are at most this part of the chunk: they take more requests.
MAX_PART = 0.5
# Up to this part they are decoded singly, of a chunk that is fetched whole: to find them and put them
# together takes as much as to decode the others.
MAX_DECODED_PART = 0.75
# Finding the indexes means decoding the footer in Python, 30 microseconds a chunk (500 groups of 50 columns
# take 0.7 s). Above this the bytes saved do not make up for it.
MAX_CHUNKS = 4096

# What does not hold for a part of a chunk, or refers to its place in the file.
_OF_WHOLE_CHUNK = (
    Meta.INDEX_PAGE,
    Meta.DICTIONARY_PAGE,
    Meta.STATISTICS,
    Meta.ENCODING_STATS,
    Meta.BLOOM,
    Meta.BLOOM_LENGTH,
    Meta.SIZES,
)

Read = Callable[[ByteRange], pa.Buffer | bytes]


class Page(NamedTuple):
    """A data page: its range, header included, and its rows. A tuple, because there are many of them."""

    start: int
    end: int
    first_row: int
    rows: int

    @property
    def place(self) -> ByteRange:
        return ByteRange(self.start, self.end)


@dataclass(frozen=True, slots=True)
class SparseColumn:
    """A flat column of a row group, of which only `pages` are decoded and `ranges` fetched: the whole chunk
    where pages are most of it."""

    footer: Footer
    leaf: Leaf
    chunk: ColumnChunk
    field: pa.Field
    dictionary: ByteRange | None
    pages: tuple[Page, ...]

    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        if self.size_bytes > MAX_PART * self.chunk.compressed_size:
            return (ByteRange(self.chunk.start, self.chunk.end),)
        places = tuple(page.place for page in self.pages)
        return places if self.dictionary is None else (self.dictionary, *places)

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """The rows of the pages, each as the first and their number."""
        return tuple((page.first_row, page.rows) for page in self.pages)

    @property
    def size_bytes(self) -> int:
        pages = sum(page.end - page.start for page in self.pages)
        return pages + (0 if self.dictionary is None else self.dictionary.length)

    def kept(self, keep: pa.BooleanArray) -> pa.BooleanArray:
        """The selected rows among those read; `keep` is over all rows of the group. In one piece: rows are
        filtered into as many."""
        return pa.concat_arrays(keep.slice(page.first_row, page.rows) for page in self.pages)

    def bodies(self, read: Read) -> list[bytes]:
        """The dictionary, if there is one, and the pages."""
        bodies = [bytes(memoryview(read(page.place))) for page in self.pages]
        for page, body in zip(self.pages, bodies, strict=True):
            _check_rows(page, body)
        if self.dictionary is not None:
            bodies.insert(0, bytes(memoryview(read(self.dictionary))))
        return bodies

    def meta_at(self, start: int, size: int, rows: int) -> Struct:
        """The metadata of the pages as a chunk that begins at `start` of a file."""
        dictionary_bytes = 0 if self.dictionary is None else self.dictionary.length
        meta = {k: v for k, v in self.chunk.meta.items() if k not in _OF_WHOLE_CHUNK}
        meta[Meta.VALUES] = rows
        meta[Meta.COMPRESSED] = size
        meta[Meta.DATA_PAGE] = start + dictionary_bytes
        if dictionary_bytes:
            meta[Meta.DICTIONARY_PAGE] = start
        return meta


def read_pages(
    columns: Sequence[SparseColumn],
    read: Read,
    *,
    pool: pa.MemoryPool,
    codes: Container[str],
) -> pa.Table:
    """All rows of the pages of columns of one file, whose `rows` are the same; `kept` selects among them.
    Columns named in `codes` come as references to their dictionaries.

    Raises UnreadableFile or Arrow's errors; reading a chunk whole then shows what is wrong, or that only
    its index is.
    """
    footer = columns[0].footer
    rows = sum(page.rows for page in columns[0].pages)
    parts, metas, size = [MAGIC], [], len(MAGIC)
    for column in columns:
        bodies = column.bodies(read)
        length = sum(map(len, bodies))
        metas.append(column.meta_at(size, length, rows))
        parts += bodies
        size += length
    root = {**footer.schema[0], Element.CHILDREN: len(columns)}
    elements = [root, *(footer.schema[column.leaf.element] for column in columns)]
    tree = view_tree(footer, elements, metas, rows, sum(m[Meta.UNCOMPRESSED] for m in metas))
    arrow = pa.schema([column.field for column in columns])
    # By this Arrow gives the columns their types in the whole file.
    serialized = base64.b64encode(arrow.serialize().to_pybytes())
    pair = {KeyValue.KEY: ARROW_SCHEMA, KeyValue.VALUE: serialized}
    tree[File.KEY_VALUES] = Items(STRUCT, [pair])
    reader: Any = ParquetReader(memory_pool=pool)
    reader.open(
        pa.BufferReader(b"".join((*parts, end_of_file(tree)))),
        read_dictionary=[name for name in arrow.names if name in codes],
        pre_buffer=False,
        page_checksum_verification=True,
    )
    table: pa.Table = reader.read_all(use_threads=False)
    if table.num_rows != rows:
        raise UnreadableFile("pages have other rows than their index says")
    return table


def false_indexes(footer: Footer, read: Read) -> Iterator[str]:
    """The column of each chunk whose offset index, by which single pages are read, gives a page other rows
    than it has. Reads those chunks, one at a time."""
    for group in footer.row_groups:
        for leaf in footer.leaves:
            chunk, place = group.column(leaf.index), index_range(footer, group.ordinal, leaf.index)
            if place is None:
                continue
            pages = pages_of(bytes(memoryview(read(place))), chunk, group.num_rows)
            body = memoryview(read(ByteRange(chunk.start, chunk.end))) if pages else memoryview(b"")
            try:
                for page in pages:
                    _check_rows(
                        page, bytes(body[page.start - chunk.start : page.end - chunk.start])
                    )
            except UnreadableFile:
                yield ".".join(leaf.path)


def _check_rows(page: Page, body: bytes) -> None:
    """A flat column has a value, or NULL, for each row."""
    header, _ = page_header(body, 0, len(body))
    if claimed_values(header)[0] != page.rows:
        raise UnreadableFile("a page has other rows than its index says")


def index_range(footer: Footer, group: int, leaf: int) -> ByteRange | None:
    """The range of a chunk's offset index, if reading it may save a part of the chunk."""
    place = index_place(footer, group, leaf)
    if place is None or footer.row_groups[group].column(leaf).compressed_size < MIN_CHUNK_BYTES:
        return None
    return place


def index_place(footer: Footer, group: int, leaf: int) -> ByteRange | None:
    """The range of the offset index of a flat column's chunk, if its writer's are known."""
    if leaf >= len(footer.leaves):
        return None
    shape = footer.leaves[leaf]
    chunk = footer.row_groups[group].column(leaf)
    flat = len(shape.path) == 1 and shape.repetition_level == 0
    place = chunk.offset_index
    if not flat or place is None or not has_known_indexes(footer.created_by):
        return None
    return ByteRange(*place) if place[1] <= footer.start else None


def may_be_sparse(keep: pa.BooleanArray) -> bool:
    """False where more rows are kept than `sparse_column` reads by pages."""
    return keep.true_count <= MAX_PART * len(keep)  # type: ignore[no-any-return]


def may_pay(needed: Sequence[Page], pages: Sequence[Page]) -> bool:
    """Whether a chunk is read by pages where `wanted` of its `pages` have rows, if all are as long."""
    return len(needed) <= MAX_DECODED_PART * len(pages)


class PagesWithRows:
    """Which pages have a row of `keep`. Columns whose pages begin at the same rows, as those of one row
    group do mostly, share the answer."""

    def __init__(self, keep: pa.BooleanArray) -> None:
        self._keep = keep
        self._known: dict[tuple[int, ...], list[int]] = {}

    def among(self, pages: Sequence[Page]) -> tuple[Page, ...]:
        """`pages` are all of a column chunk."""
        beginnings = tuple(page.first_row for page in pages)
        among = self._known.get(beginnings)
        if among is None:
            keep = self._keep
            among = self._known[beginnings] = [
                n for n, p in enumerate(pages) if keep.slice(p.first_row, p.rows).true_count
            ]
        return tuple(pages[n] for n in among)


def sparse_column(
    footer: Footer,
    group: int,
    leaf: int,
    field: pa.Field,
    pages: Sequence[Page],
    needed: tuple[Page, ...],
) -> SparseColumn | None:
    """The column with only the `wanted` of its `pages` (which `pages_of` gives); None if that is unreliable
    or would save too little."""
    if not pages or footer.leaves[leaf].type is Physical.INT96:  # read as the whole file is
        return None
    chunk = footer.row_groups[group].column(leaf)
    start, head = chunk.start, pages[0].start
    dictionary = ByteRange(start, head) if start < head else None
    column = SparseColumn(footer, footer.leaves[leaf], chunk, field, dictionary, needed)
    return column if column.size_bytes <= MAX_DECODED_PART * chunk.compressed_size else None


def pages_of(index: bytes, chunk: ColumnChunk, rows: int) -> Sequence[Page]:
    """The data pages by the chunk's offset index, in order; none where that contradicts itself or the
    footer."""
    try:
        places = page_locations(index)
    except (ThriftError, KeyError, TypeError):
        return ()
    pages: list[Page] = []
    end_of_last, end = chunk.start, chunk.end
    for n, (offset, size, first_row) in enumerate(places):
        next_row = places[n + 1][2] if n + 1 < len(places) else rows
        in_order = offset >= end_of_last and size > 0 and offset + size <= end
        if not in_order or not first_row < next_row or (n == 0 and first_row != 0):
            return ()
        pages.append(Page(offset, offset + size, first_row, next_row - first_row))
        end_of_last = offset + size
    return pages if end_of_last == end else ()
