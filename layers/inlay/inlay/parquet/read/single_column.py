"""A column chunk by itself: its values as Arrow has them, and the memory that they take.

Promise: values have the types of the column's Parquet annotations, the same for a chunk's rows, its
dictionary and its bounds, so that they can be compared. pyarrow decodes them, as a file of one column and
one row group. The functions that decode do not check how large they are once decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Context
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.types import inner_arrays
from inlay.parquet.arrow.words import words_of
from inlay.parquet.footer.fields import (
    Codec,
    DataPage,
    DictionaryPage,
    Element,
    Encoding,
    Meta,
    Page,
    PageType,
    Physical,
    Repetition,
)
from inlay.parquet.footer.footer import (
    MAGIC,
    RECODE,
    WIDTHS,
    ColumnChunk,
    Footer,
    Leaf,
    end_of_file,
    is_decimal,
    subtree_end,
    view_tree,
)
from inlay.parquet.footer.pages import claimed_values, header_within
from inlay.parquet.footer.thrift import BINARY, I32, Items, Struct, encode_struct
from inlay.parquet.read.data_file import check_memory, memory_limit, width_of
from inlay.record import Record

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def in_batches(
    footer: Footer,
    leaf: Leaf,
    chunk: ColumnChunk,
    rows: int,
    body: bytes,
    *,
    batch_rows: int,
    stored: bool = False,
) -> Iterator[pa.Array]:
    """The same, a few rows at a time. (Not as a dictionary and references: pyarrow 26 mixes them up where
    an entry is there twice, as DuckDB leaves them.) `stored`, of an INT96 column: its twelve bytes, more
    than Arrow's times can hold."""
    batches: Iterator[pa.RecordBatch]
    chain, meta = _chain(footer, leaf), moved_meta(chunk, len(MAGIC) - chunk.start)
    if stored:
        plain = {Element.TYPE: Physical.FIXED_LEN_BYTE_ARRAY, Element.LENGTH: INT96_BYTES}
        names = (Element.REPETITION, Element.NAME)
        chain[-1] = {**plain, **{key: chain[-1][key] for key in names}}
        meta[Meta.TYPE] = int(Physical.FIXED_LEN_BYTE_ARRAY)
    with translate_errors(lambda: _open(body, footer, chain, meta, rows)) as file:
        batches = file.iter_batches(batch_rows, use_threads=False)
        while (batch := translate_errors(lambda: next(batches, None))) is not None:
            yield _innermost(batch.column(0))


def read_plain(
    footer: Footer, leaf: Leaf, body: bytes, count: int, codec: Codec, uncompressed: int
) -> pa.Array:
    """`count` PLAIN values of the column (a dictionary page's body, or bounds), read as the page of a
    required column of one level. `body` is compressed by `codec`, `uncompressed` bytes before."""
    element = {**footer.schema[leaf.element], Element.REPETITION: Repetition.REQUIRED}
    inner = {
        DataPage.VALUES: count,
        DataPage.ENCODING: int(Encoding.PLAIN),
        3 << 4 | I32: int(Encoding.RLE),
        4 << 4 | I32: int(Encoding.RLE),
    }
    header = encode_struct(
        {
            Page.TYPE: int(PageType.DATA),
            Page.UNCOMPRESSED: uncompressed,
            Page.COMPRESSED: len(body),
            Page.DATA: inner,
        }
    )
    meta = {
        Meta.TYPE: int(leaf.type),
        Meta.ENCODINGS: Items(I32, [int(Encoding.PLAIN)]),
        Meta.PATH: Items(BINARY, [element[Element.NAME]]),
        Meta.CODEC: int(codec),
        Meta.VALUES: count,
        Meta.UNCOMPRESSED: uncompressed + len(header),
        Meta.COMPRESSED: len(body) + len(header),
        Meta.DATA_PAGE: len(MAGIC),
    }
    return _read(MAGIC + header + body, footer, [element], meta, count)


def write_plain(leaf: Leaf, read_as: pa.DataType, value: pa.Scalar) -> bytes | None:
    """The inverse for one value: how the column stores what `read_plain` gives as `read_as`. None if the
    column cannot have it, or stores it in more ways than one."""
    size = WIDTHS.get(leaf.type, leaf.type_length)
    try:
        physical = value.cast(read_as)
        if pa.types.is_floating(read_as):
            return struct.pack({4: "<f", 8: "<d"}.get(size or 0, "<e"), physical.as_py())
        if pa.types.is_decimal(read_as):
            number = int(physical.as_py().scaleb(read_as.scale, Context(prec=MAX_DIGITS)))
            is_binary = leaf.type in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY)
            shortest = (number if number >= 0 else ~number).bit_length() // 8 + 1
            order: Literal["big", "little"] = "big" if is_binary else "little"
            return number.to_bytes(size or shortest, order, signed=True)
        if size is not None and pa.types.is_temporal(read_as):
            return int(physical.value).to_bytes(size, "little", signed=True)
    except (pa.ArrowException, OverflowError):
        pass
    return None


# Of a decimal of 256 bits.
MAX_DIGITS = 76
INT96_BYTES = 12
_NOT_FOR_DECODING = frozenset({Meta.STATISTICS, Meta.SIZES, Meta.BLOOM, Meta.BLOOM_LENGTH})


def _chain(footer: Footer, leaf: Leaf) -> list[Struct]:
    """The schema elements from the top to a leaf, each with the next as its only child. Lists and maps lose
    their annotations, which a single child would not fit, and keep their levels."""
    chain: list[Struct] = []
    at = 1
    for depth in range(len(leaf.path)):
        name = leaf.path[depth].encode("utf-8", "surrogateescape")
        while True:
            element = footer.schema[at]
            end = subtree_end(footer.schema, at)
            if at <= leaf.element < end:
                break
            at = end
        assert element[Element.NAME] == name
        is_leaf = depth == len(leaf.path) - 1
        if not is_leaf:
            plain = (Element.NAME, Element.REPETITION)
            element = {key: value for key, value in element.items() if key in plain}
            element[Element.CHILDREN] = 1
        chain.append(element)
        at += 1
    return chain


def _read(
    body: bytes, footer: Footer, chain: Sequence[Struct], meta: Mapping[int, object], rows: int
) -> pa.Array:
    """One column chunk, at offset 4 of `body`, as one array; of nested ones the innermost values."""

    def decode() -> pa.Array:
        with _open(body, footer, chain, meta, rows) as file:
            array = file.read(use_threads=False).column(0).combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # of no rows, or of more bytes than one array holds
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
        return _innermost(array)

    values_read: pa.Array = translate_errors(decode)
    return values_read


def _innermost(array: pa.Array) -> pa.Array:
    while within := inner_arrays(array):
        [array] = within
    return array


def _open(
    body: bytes, footer: Footer, chain: Sequence[Struct], meta: Mapping[int, object], rows: int
) -> pq.ParquetFile:
    path = [element[Element.NAME] for element in chain]
    meta = {**meta, Meta.PATH: Items(BINARY, path)}
    elements = [{**footer.schema[0], Element.CHILDREN: 1}, *chain]
    tree = view_tree(footer, elements, [meta], rows, meta[Meta.UNCOMPRESSED])
    return open_view(body, end_of_file(tree))


def open_view(body: bytes, end: bytes, **options: Any) -> pq.ParquetFile:
    """Bytes with column chunks as a file that has another end."""
    import pyarrow.parquet as pq  # few chunks are read by themselves

    return pq.ParquetFile(
        pa.BufferReader(body),
        metadata=pq.read_metadata(pa.BufferReader(MAGIC + end)),
        arrow_extensions_enabled=False,
        pre_buffer=False,
        **options,
    )


def moved_meta(chunk: ColumnChunk, by: int) -> Struct:
    """The metadata of a chunk that is to be decoded elsewhere, `by` bytes further: without what is not
    needed for that, and could contradict another schema's types."""
    meta = {key: value for key, value in chunk.meta.items() if key not in _NOT_FOR_DECODING}
    for key in (Meta.DATA_PAGE, Meta.DICTIONARY_PAGE, Meta.INDEX_PAGE):
        if key in meta and chunk.start <= meta[key] < chunk.end:
            meta[key] += by
        elif key != Meta.DATA_PAGE:
            meta.pop(key, None)
    return meta


def translate_errors(work: Callable[[], Any]) -> Any:
    """What `work` returns; pyarrow's errors about a file become this library's."""
    try:
        return work()
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFile(
            f"pyarrow cannot read it: {words_of(error)}", next_step=RECODE
        ) from None
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"pyarrow cannot read it: {words_of(error)}") from None


# Of what may be held, what counting may.
_COUNT_SHARE = 4
_LENGTH = 4  # before each text in PLAIN


class Pages(Record):
    """The bytes of a column chunk."""

    leaf: Leaf
    chunk: ColumnChunk
    body: memoryview


class _Claims(Record):
    """What page headers claim: `fixed` bytes, and at most `texts` more of those that pages hold only once
    or by prefixes, none of which is longer than `longest`."""

    pages: Pages
    fixed: int
    texts: int
    longest: int


def check_pages_fit(footer: Footer, rows: int, chunks: Iterable[Pages]) -> None:
    """Raises `UnsupportedFile` where chunks of one row group take more than this process may hold. Pages
    that cannot be followed to their end are the decoder's to judge.

    By the chunk's own pages, before it is decoded: what passes can be decoded in about the memory that the
    process may have, whatever its footer says; finding that out takes a part of it. So a page of zeros that
    decompresses to a thousand times its size, a dictionary of one long text that a million rows refer to,
    texts that share a long prefix, and a footer that states small sizes for all of these, are refused by
    name before the kernel kills the process.

    Page headers say how large pages are, and how many values they have. Where the longest text, taken as
    often as there are values, is too much, the texts are counted, a few rows at a time.
    """
    all_claims = [_claims_of(footer, chunk) for chunk in chunks]
    limit = memory_limit()
    total = sum(claims.fixed + claims.texts for claims in all_claims)
    check_memory(sum(claims.fixed for claims in all_claims))
    for claims in sorted(all_claims, key=lambda claims: -claims.texts):
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
        # `body` holds the chunk after 4 other bytes: readers take offset 0 for "none".
        meta = moved_meta(pages.chunk, len(MAGIC) - pages.chunk.start)
        chain = _chain(footer, pages.leaf)
        return _read(body, footer, chain, meta, rows).unique().drop_null()
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
            header, at = header_within(body, at)
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
            count, encoding = claimed_values(header)
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
    """Raises `UnreadableFile` where a dictionary page is too small for the values that it claims."""
    least = _LENGTH if chunk.type is Physical.BYTE_ARRAY else 1
    check_memory(header[Page.UNCOMPRESSED])
    if header[Page.DICTIONARY][DictionaryPage.VALUES] * least > header[Page.UNCOMPRESSED]:
        raise UnreadableFile("a dictionary page claims more values than it has")


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
    """The bytes of all texts of a chunk; counting stops once there are more than `limit`."""
    total = 0
    for batch in _batches(footer, claims, rows, MAGIC + bytes(claims.pages.body)):
        total += batch.get_total_buffer_size()
        if total > limit:
            break
    return total
