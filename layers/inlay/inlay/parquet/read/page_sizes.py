"""Page sizes: what a column chunk takes in memory, by its own pages, before it is decoded.

Promise: what passes `check_pages_fit` can be decoded in about the memory that the process may have,
whatever its footer says; finding that out takes a part of it. So a page of zeros that unfolds a
thousandfold, a dictionary of one long text that a million rows refer to, texts that share a long prefix,
and a footer that calls all of these small, are refused by name and not met by the kernel.

Page headers say how large pages are, and how many values they have. Where the longest text, taken as often
as there are values, is too much, the texts are counted, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import UnreadableFile
from inlay.parquet.footer.decoded_size import check_memory, memory_limit, width_of
from inlay.parquet.footer.fields import (
    DataPage,
    DataPageV2,
    DictionaryPage,
    Encoding,
    Page,
    PageType,
    Physical,
)
from inlay.parquet.footer.footer import MAGIC, ColumnChunk, Footer, Leaf, is_decimal
from inlay.parquet.footer.pages import page_header
from inlay.parquet.footer.thrift import Struct
from inlay.parquet.read.single_column import in_batches, read_chunk, read_plain

# A page header without long bounds; where that does not suffice, all there is is looked at.
_HEADER_BYTES = 512
# Of what may be held, what counting may.
_COUNT_SHARE = 4
_LENGTH = 4  # before each text in PLAIN


@dataclass(frozen=True, slots=True)
class Pages:
    """The bytes of a column chunk."""

    leaf: Leaf
    chunk: ColumnChunk
    body: memoryview


@dataclass(frozen=True, slots=True)
class _Claims:
    """What page headers claim: `fixed` bytes, and at most `texts` more of those that pages hold only once
    or by prefixes, none of which is longer than `longest`."""

    pages: Pages
    fixed: int
    texts: int
    longest: int


def check_pages_fit(footer: Footer, rows: int, chunks: Iterable[Pages]) -> None:
    """Raises `UnsupportedFile` where chunks of one row group take more than this process may hold. Pages
    that cannot be followed to their end are the decoder's to judge."""
    found = [_claims_of(footer, each) for each in chunks]
    limit = memory_limit()
    total = sum(claims.fixed + claims.texts for claims in found)
    check_memory(sum(claims.fixed for claims in found))
    for claims in sorted(found, key=lambda claims: -claims.texts):
        if total <= limit or not claims.texts:
            break
        total += _count_texts(footer, claims, rows, limit) - claims.texts
    check_memory(total)


def read_distinct(footer: Footer, rows: int, pages: Pages) -> pa.Array:
    """The distinct values of a chunk, without NULL; of a column within lists those of all `rows` together.
    Takes the memory of the distinct ones. Raises as `check_pages_fit` does."""
    claims = _claims_of(footer, pages)
    check_memory(claims.fixed)
    body = MAGIC + bytes(pages.body)
    if claims.fixed + claims.texts <= memory_limit():
        return read_chunk(footer, pages.leaf, pages.chunk, rows, body).unique().drop_null()
    distinct: pa.Array | None = None
    for batch in _batches(footer, claims, rows, body):
        more = batch.unique()
        distinct = more if distinct is None else pa.concat_arrays([distinct, more]).unique()
        check_memory(distinct.get_total_buffer_size())
    assert distinct is not None
    return distinct.drop_null()


def _claims_of(footer: Footer, pages: Pages) -> _Claims:
    chunk, body = pages.chunk, pages.body
    dictionary: tuple[Struct, memoryview] | None = None
    at = values = claimed = longest = texts = 0
    while at < len(body):
        try:
            header, at = _header(body, at)
        except UnreadableFile:
            break
        size, unfolded = header[Page.COMPRESSED], header[Page.UNCOMPRESSED]
        if size < 0 or unfolded < 0:
            break
        claimed += unfolded
        if header[Page.TYPE] == PageType.DICTIONARY:
            check_dictionary(header, chunk)
            dictionary = header, body[at : at + size]
        else:
            count, encoding = _of_data_page(header)
            values += count
            if encoding == Encoding.DELTA_BYTE_ARRAY:
                longest = max(longest, unfolded)
                texts += count * unfolded
        at += size
    fixed = max(claimed, values * width_of(chunk.type))
    if dictionary is not None and chunk.type is Physical.BYTE_ARRAY:
        header, body = dictionary
        check_memory(claimed)
        entry = header[Page.UNCOMPRESSED]
        is_text = not is_decimal(footer.schema[pages.leaf.element])
        if is_text and values * entry > memory_limit() // _COUNT_SHARE:
            entry = _longest(footer, pages.leaf, chunk, header, bytes(body))
        texts += values * entry
        longest = max(longest, entry)
    return _Claims(pages, fixed, texts, longest)


def check_dictionary(header: Struct, chunk: ColumnChunk) -> None:
    """Raises `UnreadableFile` where a dictionary page has not the bytes for the values that it claims."""
    least = _LENGTH if chunk.type is Physical.BYTE_ARRAY else 1
    check_memory(header[Page.UNCOMPRESSED])
    if header[Page.DICTIONARY][DictionaryPage.VALUES] * least > header[Page.UNCOMPRESSED]:
        raise UnreadableFile("a dictionary page claims more values than it has")


def _header(pages: memoryview, at: int) -> tuple[Struct, int]:
    window = bytes(pages[at : at + _HEADER_BYTES])
    try:
        header, behind = page_header(window, 0, len(window))
    except UnreadableFile:
        if len(window) < _HEADER_BYTES:
            raise
        window = bytes(pages[at:])
        header, behind = page_header(window, 0, len(window))
    return header, at + behind


def _of_data_page(header: Struct) -> tuple[int, int | None]:
    """How many values a page claims, and how they are encoded."""
    if Page.DATA in header:
        inner = header[Page.DATA]
        return max(inner.get(DataPage.VALUES, 0), 0), inner.get(DataPage.ENCODING)
    inner = header.get(Page.DATA_V2, {})
    return max(inner.get(DataPageV2.VALUES, 0), 0), inner.get(DataPageV2.ENCODING)


def _longest(footer: Footer, leaf: Leaf, chunk: ColumnChunk, header: Struct, body: bytes) -> int:
    """The bytes of the longest entry of a dictionary page."""
    count, size = header[Page.DICTIONARY][DictionaryPage.VALUES], header[Page.UNCOMPRESSED]
    entries = read_plain(footer, leaf, body, count, chunk.codec, size)
    return pc.max(pc.binary_length(entries)).as_py() or 0


def _batches(footer: Footer, claims: _Claims, rows: int, body: bytes) -> Iterator[pa.Array]:
    """The values of a chunk, as many rows at a time as surely fit."""
    leaf, chunk = claims.pages.leaf, claims.pages.chunk
    if leaf.repetition_level:  # how many values a row has is not known
        check_memory(claims.fixed + claims.texts)
    batch_rows = max(1, memory_limit() // _COUNT_SHARE // max(claims.longest, 1))
    return in_batches(footer, leaf, chunk, rows, body, batch_rows=min(batch_rows, max(rows, 1)))


def _count_texts(footer: Footer, claims: _Claims, rows: int, limit: int) -> int:
    """The bytes of all texts of a chunk; more than `limit` where they are not counted on."""
    total = 0
    for batch in _batches(footer, claims, rows, MAGIC + bytes(claims.pages.body)):
        total += batch.get_total_buffer_size()
        if total > limit:
            break
    return total
