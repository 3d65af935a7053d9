"""Reading only the pages of a column that hold selected rows.

Promise: the rows that `read_pages` gives are the selected rows of a column chunk, the same as when reading
it whole; `SparseColumn.ranges` are the only bytes it needs. A chunk for which this is
not certain (no offset index, one of a writer whose are not known, one that contradicts the footer or a page
that is read, nested or repeated columns) has no sparse form and is read whole. Where pages begin that are
not read is on the word of the offset index: `false_indexes` finds those that are wrong there, at the cost
of all pages.

pyarrow reads whole chunks only. So the selected pages, with the chunks' dictionaries, are assembled into a
Parquet file of one row group, with the schema elements of the original, and that is read: each page up to
its last selected row where its encoding allows that (`footer.pages.first_values`), and each column by
itself, so that of few rows no more than one column is decoded at a time. Relies on the format's rule that
with an offset index every page begins with a new row.
"""

from __future__ import annotations

import base64
import io
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow._parquet import ParquetReader

from inlay.errors import UnreadableFile
from inlay.parquet.arrow.functions import pc
from inlay.parquet.footer.fields import (
    ARROW_SCHEMA,
    Codec,
    Element,
    File,
    KeyValue,
    Meta,
    Physical,
)
from inlay.parquet.footer.footer import (
    MAGIC,
    ColumnChunk,
    Footer,
    Leaf,
    end_of_file,
    opened,
    view_tree,
)
from inlay.parquet.footer.pages import first_values, page_locations
from inlay.parquet.footer.thrift import STRUCT, Items, Struct, ThriftError
from inlay.parquet.footer.writers import has_known_indexes
from inlay.parquet.read.page_frames import Frames
from inlay.record import Record
from inlay.storage.base import ByteRange

# Smaller chunks are read whole: skipping pages would not pay for finding them.
MIN_CHUNK_BYTES = 8 * 1024
# Pages are fetched singly if they are at most this part of the chunk: they take more requests.
MAX_PART = 0.5
# Up to this part they are decoded singly, of a chunk that is fetched whole: to find them and put them
# together takes as much as to decode the others.
MAX_DECODED_PART = 0.75
# So many pages of a column are decompressed as one. It takes Python, and two calls between it and Arrow.
MIN_FRAMES = 8
# A file of so many bytes is put together at once: a column by itself is another call.
ONE_FILE_BYTES = 1024 * 1024
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

Read = Callable[[ByteRange], pa.Buffer | memoryview]


class Page(NamedTuple):
    """A data page: its range, header included, and its rows. A tuple, because there are many of them."""

    start: int
    end: int
    first_row: int
    rows: int

    @property
    def place(self) -> ByteRange:
        return ByteRange(self.start, self.end)


class NeededPage(NamedTuple):
    """A page with selected rows, the last of which is among its first `rows`."""

    page: Page
    rows: int


class SparseColumn(Record):
    """A flat column of a row group, of which only `pages` are decoded and `ranges` fetched: the whole chunk
    where pages are most of it."""

    footer: Footer
    leaf: Leaf
    chunk: ColumnChunk
    field: pa.Field
    dictionary: ByteRange | None
    pages: tuple[NeededPage, ...]
    size_bytes: int  # of these

    @property
    def ranges(self) -> tuple[ByteRange, ...]:
        if self.size_bytes > MAX_PART * self.chunk.compressed_size:
            return (ByteRange(self.chunk.start, self.chunk.end),)
        places = tuple(page.place for page, _ in self.pages)
        return places if self.dictionary is None else (self.dictionary, *places)

    def part(self, read: Read) -> _Part:
        """The dictionary, if there is one, and the pages."""
        if self.size_bytes > MAX_PART * self.chunk.compressed_size:
            start = self.chunk.start
            whole = memoryview(read(ByteRange(start, self.chunk.end)))

            def body(begin: int, end: int) -> memoryview:
                return whole[begin - start : end - start]

        else:

            def body(begin: int, end: int) -> memoryview:
                return memoryview(read(ByteRange(begin, end)))

        head = None if self.dictionary is None else body(self.dictionary.start, self.dictionary.end)
        pages = [(body(page.start, page.end), page.rows, rows) for page, rows in self.pages]
        return self._frames(head, pages) or _pieces(head, pages)

    def _frames(
        self, head: memoryview | None, pages: Sequence[tuple[memoryview, int, int]]
    ) -> _Part | None:
        """To be decompressed as one; None where that is not for all pages."""
        if self.chunk.codec is not Codec.ZSTD or len(pages) < MIN_FRAMES:
            return None
        frames = Frames()
        if head is not None and not frames.add_dictionary(head):
            return None
        dictionary = frames.size
        if not all(frames.add_values(*page) for page in pages):
            return None
        if frames.size > self.chunk.uncompressed_size + _MORE_OF_HEADERS * (len(pages) + 1):
            return None
        rows = [first for _, _, first in pages]
        return _Part(rows, dictionary, frames.size, Codec.UNCOMPRESSED, frames.decompressed)

    def meta_at(self, start: int, part: _Part) -> Struct:
        """The metadata of the pages as a chunk that begins at `start` of a file."""
        meta = {k: v for k, v in self.chunk.meta.items() if k not in _OF_WHOLE_CHUNK}
        meta[Meta.VALUES] = sum(part.rows)
        meta[Meta.COMPRESSED] = part.size
        meta[Meta.DATA_PAGE] = start + part.dictionary
        meta[Meta.CODEC] = int(self.chunk.codec if part.codec is None else part.codec)
        if part.dictionary:
            meta[Meta.DICTIONARY_PAGE] = start
        return meta


# A length that is not compressed may take a byte more, and nothing else of a header is longer.
_MORE_OF_HEADERS = 4


class _Part(NamedTuple):
    """A column's pages as a chunk: the rows that each gives, the bytes of the dictionary and of all, the
    codec if it is another, and what makes the bytes."""

    rows: list[int]
    dictionary: int
    size: int
    codec: Codec | None
    load: Callable[[pa.MemoryPool], pa.Buffer]


def _pieces(head: memoryview | None, pages: Sequence[tuple[memoryview, int, int]]) -> _Part:
    """Pages as they are, but for their headers."""
    pieces: list[bytes | memoryview] = [] if head is None else [head]
    rows = []
    for page in pages:
        given, body = first_values(*page)
        rows.append(given)
        pieces += body
    size = sum(map(len, pieces))
    return _Part(
        rows, 0 if head is None else len(head), size, None, lambda _: pa.py_buffer(b"".join(pieces))
    )


class _Parts(io.RawIOBase):
    """A file of chunks, for Arrow, which reads one after the other: each is made when it is read."""

    def __init__(self, parts: Sequence[_Part], pool: pa.MemoryPool) -> None:
        ends = accumulate((part.size for part in parts), initial=len(MAGIC))
        self._parts = [(end, part) for end, part in zip(ends, parts, strict=False)]
        self._pool = pool
        self._position = 0

    def read_buffer(self, length: int = -1) -> pa.Buffer:
        start = self._position
        for begin, part in self._parts:
            if begin <= start and start + length <= begin + part.size:
                self._position += length
                return part.load(self._pool).slice(start - begin, length)
        raise UnreadableFile("a read across column chunks")

    def seek(self, offset: int, whence: int = 0) -> int:
        begin, last = self._parts[-1]
        self._position = (0, self._position, begin + last.size)[whence] + offset
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def read_pages(
    columns: Sequence[SparseColumn],
    read: Read,
    keep: pa.BooleanArray,
    *,
    pool: pa.MemoryPool,
    codes: Container[str],
) -> pa.Table:
    """The rows of `keep`, which is over all rows of the group, of columns of one file that were planned for
    it. Those named in `codes` are decoded as references to their dictionaries.

    Raises UnreadableFile or Arrow's errors; reading a chunk whole then shows what is wrong, or that only
    its index is.
    """
    footer = columns[0].footer
    parts, metas, size = [], [], len(MAGIC)
    for column in columns:
        part = column.part(read)
        metas.append(column.meta_at(size, part))
        parts.append(part)
        size += part.size
    root = {**footer.schema[0], Element.CHILDREN: len(columns)}
    elements = [root, *(footer.schema[column.leaf.element] for column in columns)]
    longest = max(sum(part.rows) for part in parts)
    tree = view_tree(footer, elements, metas, longest, sum(m[Meta.UNCOMPRESSED] for m in metas))
    # Rows of views cannot be dropped by Arrow.
    fields = [_without_views(column.field) for column in columns]
    # By this Arrow gives the columns their types in the whole file.
    serialized = base64.b64encode(pa.schema(fields).serialize().to_pybytes())
    pair = {KeyValue.KEY: ARROW_SCHEMA, KeyValue.VALUE: serialized}
    tree[File.KEY_VALUES] = Items(STRUCT, [pair])
    end = end_of_file(tree)
    reader: Any = ParquetReader(memory_pool=pool)
    is_short = size <= ONE_FILE_BYTES
    chunks = (part.load(pool) for part in parts)
    reader.open(
        pa.BufferReader(b"".join((MAGIC, *chunks, end)))
        if is_short
        else pa.PythonFile(_Parts(parts, pool), mode="r"),
        metadata=None if is_short else opened(MAGIC + end),
        read_dictionary=[field.name for field in fields if field.name in codes],
        pre_buffer=False,
        page_checksum_verification=True,
    )
    kept: dict[tuple[int, ...], pa.BooleanArray] = {}
    arrays = []
    for n, (column, field, part) in enumerate(zip(columns, fields, parts, strict=True)):
        rows = part.rows
        values: pa.ChunkedArray = reader.read_column(n)
        if len(values) != sum(rows):
            raise UnreadableFile("pages have other rows than their index says")
        beginnings = (page.first_row for page, _ in column.pages)
        spans = tuple(span for pair in zip(beginnings, rows, strict=True) for span in pair)
        if spans not in kept:
            # In one piece: rows are filtered into as many.
            runs = zip(spans[::2], spans[1::2], strict=True)
            kept[spans] = pa.concat_arrays(keep.slice(*span) for span in runs)
        values = values.filter(kept[spans])
        arrays.append(values.cast(field.type) if field.name in codes else values)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _without_views(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_string_view(kind):
        return field.with_type(pa.string())
    return field.with_type(pa.binary()) if pa.types.is_binary_view(kind) else field


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
                    there = body[page.start - chunk.start : page.end - chunk.start]
                    first_values(there, page.rows, page.rows)
            except UnreadableFile:
                yield ".".join(leaf.path)


def index_range(footer: Footer, group: int, leaf: int) -> ByteRange | None:
    """The range of a chunk's offset index, if reading it may save a part of the chunk."""
    place = index_place(footer, group, leaf)
    if place is None or footer.row_group(group).column(leaf).compressed_size < MIN_CHUNK_BYTES:
        return None
    return place


def index_place(footer: Footer, group: int, leaf: int) -> ByteRange | None:
    """The range of the offset index of a flat column's chunk, if its writer's are known."""
    if leaf >= len(footer.leaves):
        return None
    shape = footer.leaves[leaf]
    chunk = footer.row_group(group).column(leaf)
    flat = len(shape.path) == 1 and shape.repetition_level == 0
    place = chunk.offset_index
    if not flat or place is None or not has_known_indexes(footer.created_by):
        return None
    return ByteRange(*place) if place[1] <= footer.start else None


def may_be_sparse(keep: pa.BooleanArray) -> bool:
    """False where more rows are kept than `sparse_column` reads by pages."""
    return keep.true_count <= MAX_PART * len(keep)  # type: ignore[no-any-return]


def may_pay(needed: Sequence[NeededPage], pages: Sequence[Page]) -> bool:
    """Whether a chunk is read by pages where `needed` of its `pages` have rows, if all are as long."""
    return len(needed) <= MAX_DECODED_PART * len(pages)


class PagesWithRows:
    """Which pages have a row of `keep`, and up to where. Columns whose pages begin at the same rows, as
    those of one row group do mostly, share the answer."""

    def __init__(self, keep: pa.BooleanArray) -> None:
        rows = pc.indices_nonzero(keep)
        # Ascending, and looked up as they are in memory, which may be longer.
        self._rows = memoryview(rows.buffers()[1])[: 8 * len(rows)].cast("Q")
        self._known: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def among(self, pages: Sequence[Page]) -> tuple[NeededPage, ...]:
        """`pages` are all of a column chunk."""
        beginnings = tuple(page.first_row for page in pages)
        needed = self._known.get(beginnings)
        if needed is None:
            needed = self._known[beginnings] = []
            before = 0
            for n, page in enumerate(pages):
                behind = bisect_left(self._rows, page.first_row + page.rows, before)
                if behind > before:
                    needed.append((n, self._rows[behind - 1] + 1 - page.first_row))
                before = behind
        return tuple(NeededPage(pages[n], rows) for n, rows in needed)


def sparse_column(
    footer: Footer,
    group: int,
    leaf: int,
    field: pa.Field,
    pages: Sequence[Page],
    needed: tuple[NeededPage, ...],
) -> SparseColumn | None:
    """The column with only the `needed` of its `pages` (which `pages_of` gives); None if that is unreliable
    or would save too little."""
    if not pages or footer.leaves[leaf].type is Physical.INT96:  # read as the whole file is
        return None
    chunk = footer.row_group(group).column(leaf)
    start, head = chunk.start, pages[0].start
    dictionary = ByteRange(start, head) if start < head else None
    size = max(head - start, 0) + sum([page.end - page.start for page, _ in needed])
    if size > MAX_DECODED_PART * chunk.compressed_size:
        return None
    return SparseColumn(footer, footer.leaves[leaf], chunk, field, dictionary, needed, size)


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
