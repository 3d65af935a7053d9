"""One column as an Arrow array: from a column chunk, or from values in PLAIN encoding.

Promise: values have the types of the column's Parquet annotations, the same for a chunk's rows, its
dictionary and its bounds, so that they can be compared. pyarrow decodes them, as a file of one column and
one row group. Nothing here checks how large they are once decoded: `page_sizes` does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Context
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.parquet.arrow.types import is_list
from inlay.parquet.arrow.words import words_of
from inlay.parquet.footer.fields import (
    Chunk,
    Codec,
    DataPage,
    Element,
    Encoding,
    File,
    Group,
    Meta,
    Page,
    PageType,
    Physical,
    Repetition,
)
from inlay.parquet.footer.footer import (
    MAGIC,
    RECODE,
    ColumnChunk,
    Footer,
    Leaf,
    subtree_end,
    trailer,
)
from inlay.parquet.footer.thrift import BINARY, I32, STRUCT, Items, Struct, encode_struct


def read_chunk(footer: Footer, leaf: Leaf, chunk: ColumnChunk, rows: int, body: bytes) -> pa.Array:
    """The values of a chunk; for a column within lists those of all `rows` together. `body` holds the chunk
    after 4 other bytes: readers take offset 0 for "none"."""
    meta = moved_meta(chunk, len(MAGIC) - chunk.start)
    return _read(body, footer, _chain(footer, leaf), meta, rows)


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
    an entry is there twice, as DuckDB leaves them.) `stored`, of an INT96 column: its twelve bytes, of
    which Arrow's times have not all."""
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
    size = {Physical.INT32: 4, Physical.FLOAT: 4, Physical.INT64: 8, Physical.DOUBLE: 8}.get(
        leaf.type, leaf.type_length
    )
    try:
        found = value.cast(read_as)
        if pa.types.is_floating(read_as):
            return struct.pack({4: "<f", 8: "<d"}.get(size or 0, "<e"), found.as_py())
        if pa.types.is_decimal(read_as):
            number = int(found.as_py().scaleb(read_as.scale, Context(prec=MAX_DIGITS)))
            is_binary = leaf.type in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY)
            shortest = (number if number >= 0 else ~number).bit_length() // 8 + 1
            order: Literal["big", "little"] = "big" if is_binary else "little"
            return number.to_bytes(size or shortest, order, signed=True)
        if size is not None and pa.types.is_temporal(read_as):
            return int(found.value).to_bytes(size, "little", signed=True)
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

    found: pa.Array = translate_errors(decode)
    return found


def _innermost(array: pa.Array) -> pa.Array:
    while pa.types.is_struct(array.type) or is_list(array.type):
        is_struct = pa.types.is_struct(array.type)
        array = pc.struct_field(array, [0]) if is_struct else array.flatten()
    return array


def _open(
    body: bytes, footer: Footer, chain: Sequence[Struct], meta: Mapping[int, object], rows: int
) -> pq.ParquetFile:
    path = [element[Element.NAME] for element in chain]
    meta = {**meta, Meta.PATH: Items(BINARY, path)}
    elements = [{**footer.schema[0], Element.CHILDREN: 1}, *chain]
    thrift = encode_struct(view_tree(footer, elements, [meta], rows, meta[Meta.UNCOMPRESSED]))
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + thrift + trailer(len(thrift))))
    return pq.ParquetFile(
        pa.BufferReader(body),
        metadata=metadata,
        arrow_extensions_enabled=False,
        pre_buffer=False,
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


def view_tree(
    footer: Footer, elements: Sequence[Struct], metas: Iterable[Struct], rows: int, size: object
) -> Struct:
    """The footer of a file of one row group, of chunks of another file under the schema `elements`."""
    group: Struct = {
        Group.COLUMNS: Items(STRUCT, [{Chunk.FILE_OFFSET: 0, Chunk.META: meta} for meta in metas]),
        Group.BYTES: size,
        Group.ROWS: rows,
    }
    tree: Struct = {
        File.VERSION: footer.tree.get(File.VERSION, 1),
        File.SCHEMA: Items(STRUCT, elements),
        File.ROWS: rows,
        File.GROUPS: Items(STRUCT, [group]),
    }
    if File.CREATED_BY in footer.tree:
        # pyarrow works around faults of certain writers by their name.
        tree[File.CREATED_BY] = footer.tree[File.CREATED_BY]
    return tree


def translate_errors(work: Callable[[], Any]) -> Any:
    """pyarrow's word on a file, as ours."""
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
