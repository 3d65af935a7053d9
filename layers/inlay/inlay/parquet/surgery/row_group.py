"""Rewrites row groups without some of their rows, otherwise as they were.

Promise: `edit_group` returns column chunks that hold exactly the kept rows, in order, under the same leaves
(physical type and levels are compared, and the group refused if they differ), written with the codec,
encodings, page version, checksums, page sizes, page index and bloom filters of the old chunks, as far as
pyarrow can. Nothing in them is derived from a removed row: statistics, indexes, dictionaries and filters
are made from the kept rows, and where pyarrow would order a column's bounds differently from the file, its
bounds are left out.

The rows are read by pyarrow under another schema than the file's, from column chunks that are already in
memory, as if these were a file of one row group. This *physical* view is for writing the same values back:
it has only their storage, so no value changes by passing through Arrow, whatever the file's annotations
claim:

- annotations are dropped, so legacy lists, maps without values, odd decimals and plain repeated fields
  are just structs and lists; every optional or repeated node keeps its level;
- unsigned integers, FLOAT16 and fixed-length decimals keep theirs, because they order the statistics;
- INT96 is twelve bytes, stored as such;
- nodes are renamed, so dotted, empty and duplicate names do not matter.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.parquet.footer.fields import (
    Chunk,
    Codec,
    Converted,
    Element,
    Encoding,
    File,
    Logical,
    Meta,
    Order,
    Physical,
    Stats,
)
from inlay.parquet.footer.footer import (
    RECODE,
    TRAILER_BYTES,
    ColumnChunk,
    Footer,
    Leaf,
    RowGroup,
    decode_footer,
    end_of_file,
    footer_length,
    is_decimal,
    view_tree,
)
from inlay.parquet.footer.pages import (
    BLOOM_HEADER_BYTES,
    DICTIONARY_ENCODINGS,
    PageProfile,
    bloom_length,
    profile_chunk,
)
from inlay.parquet.footer.thrift import I8, Struct, boolean, i32
from inlay.parquet.read.data_file import check_memory, chunk_bytes
from inlay.parquet.read.single_column import (
    INT96_BYTES,
    Pages,
    check_pages_fit,
    moved_meta,
    open_view,
    translate_errors,
)
from inlay.record import Record

# What pyarrow writes for a DECIMAL of a given precision: the fewest bytes that hold it. Inverted: the
# largest precision that takes `n` bytes, so that a fixed-length decimal keeps its length.
_PRECISION_OF_BYTES = {
    (((10**precision - 1).bit_length() + 1) + 7) // 8: precision for precision in range(1, 77)
}


def _physical_schema(footer: Footer) -> list[Struct]:
    """The schema elements of the physical view."""
    elements: list[Struct] = []
    for at, element in enumerate(footer.schema):
        levels = (Element.REPETITION, Element.CHILDREN)
        plain: Struct = {key: element[key] for key in levels if key in element}
        plain[Element.NAME] = b"f%d" % at
        if Element.TYPE in element and not element.get(Element.CHILDREN):
            plain[Element.TYPE] = element[Element.TYPE]
            if element[Element.TYPE] == Physical.INT96:
                plain[Element.TYPE] = Physical.FIXED_LEN_BYTE_ARRAY
                plain[Element.LENGTH] = INT96_BYTES
            elif element[Element.TYPE] == Physical.FIXED_LEN_BYTE_ARRAY:
                plain[Element.LENGTH] = element.get(Element.LENGTH, 0)
            plain.update(_ordering(element))
        elements.append(plain)
    return elements


def _ordering(element: Struct) -> Struct:
    """The annotation that makes pyarrow order this leaf's statistics as the file does."""
    if is_unsigned(element):
        bits = 64 if element[Element.TYPE] == Physical.INT64 else 32
        return {
            Element.CONVERTED: int(Converted.UINT_64 if bits == 64 else Converted.UINT_32),
            Element.LOGICAL: {Logical.INTEGER: {1 << 4 | I8: bits, boolean(2): False}},
        }
    if Logical.FLOAT16 in element.get(Element.LOGICAL, {}):
        return {Element.LOGICAL: {Logical.FLOAT16: {}}}
    length = element.get(Element.LENGTH, 0)
    is_fixed = element[Element.TYPE] == Physical.FIXED_LEN_BYTE_ARRAY
    if is_fixed and is_decimal(element) and length in _PRECISION_OF_BYTES:
        precision = _PRECISION_OF_BYTES[length]
        return {
            Element.CONVERTED: int(Converted.DECIMAL),
            Element.SCALE: 0,
            Element.PRECISION: precision,
            Element.LOGICAL: {Logical.DECIMAL: {i32(1): 0, i32(2): precision}},
        }
    return {}


def is_unsigned(element: Struct) -> bool:
    integer = element.get(Element.LOGICAL, {}).get(Logical.INTEGER)
    if integer is not None:
        return integer.get(boolean(2)) is False
    return element.get(Element.CONVERTED) in (
        Converted.UINT_8,
        Converted.UINT_16,
        Converted.UINT_32,
        Converted.UINT_64,
    )


def _read_physical(footer: Footer, group: RowGroup, body: bytes, moved: Sequence[int]) -> pa.Table:
    """All columns of `group` as stored; `body` and `moved` as in `edit_group`."""
    elements, columns = _physical_schema(footer), group.columns
    check_memory(sum(map(chunk_bytes, columns)))
    metas, texts = [], []
    for leaf, chunk in zip(footer.leaves, columns, strict=True):
        meta = moved_meta(chunk, moved[leaf.index])
        metas.append({**meta, Meta.TYPE: elements[leaf.element][Element.TYPE]})
        # What other pages claim was compared with the footer before (`profile_group`).
        if chunk.type is Physical.BYTE_ARRAY:
            start, length = chunk.start + moved[leaf.index], chunk.end - chunk.start
            texts.append(Pages(leaf, chunk, memoryview(body)[start : start + length]))
    check_pages_fit(footer, group.num_rows, texts)
    size = group.total_byte_size
    end = end_of_file(view_tree(footer, elements, metas, group.num_rows, size))
    options = {"binary_type": pa.large_binary(), "page_checksum_verification": True}

    def decode() -> pa.Table:
        with open_view(body, end, **options) as file:
            return file.read(use_threads=False)

    table = translate_errors(decode)
    if table.num_rows != group.num_rows:
        raise UnreadableFile(
            f"row group {group.ordinal} holds {table.num_rows} rows, {group.num_rows} by the footer"
        )
    return table


# pyarrow's own defaults, with which most files were written; an edited chunk departs from them only if the
# old one shows that its writer did.
DEFAULT_PAGE_BYTES = 1024 * 1024
DEFAULT_PAGE_ROWS = 20_000
DEFAULT_BATCH_ROWS = 1024
DEFAULT_DICTIONARY_BYTES = 1024 * 1024
MAX_PAGE_BYTES = 16 * 1024 * 1024
# Page sizes to try, as shares of the old ones. The last leaves each chunk one page.
PAGE_SHARES = (1, 1.1, 1.3, 2, 1_000)
# Not recorded in the file; the default of parquet-java and DuckDB.
BLOOM_FALSE_POSITIVES = 0.01

_FITS = {
    Encoding.PLAIN: frozenset(Physical),
    Encoding.RLE: frozenset({Physical.BOOLEAN}),
    Encoding.DELTA_BINARY_PACKED: frozenset({Physical.INT32, Physical.INT64}),
    Encoding.DELTA_LENGTH_BYTE_ARRAY: frozenset({Physical.BYTE_ARRAY}),
    Encoding.DELTA_BYTE_ARRAY: frozenset(
        {Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY, Physical.INT96}
    ),
    Encoding.BYTE_STREAM_SPLIT: frozenset(
        {
            Physical.INT32,
            Physical.INT64,
            Physical.FLOAT,
            Physical.DOUBLE,
            Physical.FIXED_LEN_BYTE_ARRAY,
        }
    ),
}
_CODEC_NAMES = {
    Codec.UNCOMPRESSED: "NONE",
    Codec.SNAPPY: "SNAPPY",
    Codec.GZIP: "GZIP",
    Codec.BROTLI: "BROTLI",
    Codec.LZ4: "LZ4",  # pyarrow writes LZ4_RAW for both, and the footer will say so
    Codec.ZSTD: "ZSTD",
    Codec.LZ4_RAW: "LZ4",
}


class NewChunk(Record):
    """One rewritten column chunk. Offsets in `tree` and `offset_index` are those in a file of the group
    alone; those of indexes and bloom filter are not in `tree`."""

    tree: Struct
    column_index: bytes | None
    offset_index: bytes | None
    bloom: bytes | None


class NewGroup(Record):
    """A rewritten row group: `data` holds its chunks, one after the other, from offset `start` of a file of
    this group alone."""

    rows: int
    start: int
    data: memoryview
    chunks: tuple[NewChunk, ...]


def profile_group(
    footer: Footer, group: RowGroup, body: bytes, moved: Sequence[int]
) -> list[PageProfile]:
    """How each column chunk was written. It also checks every chunk against the footer, so it comes before
    any decoding. `body` and `moved` as in `edit_group`."""
    if not footer.leaves:
        raise UnsupportedFile("a row group without columns", next_step=RECODE)
    return [
        profile_chunk(
            body,
            chunk.start + moved[leaf.index],
            chunk,
            flat_rows=None if leaf.repetition_level else group.num_rows,
        )
        for leaf, chunk in zip(footer.leaves, group.columns, strict=True)
    ]


def edit_group(
    footer: Footer,
    group: RowGroup,
    body: bytes,
    moved: Sequence[int],
    keep: pa.BooleanArray | pa.ChunkedArray,
    profiles: Sequence[PageProfile],
) -> NewGroup:
    """`group` with only the rows where `keep` is true, of which there must be one at least.

    `body` holds the old chunks after 4 other bytes; `moved[leaf]` added to the offsets of a chunk finds it
    there. `profiles` are those of `profile_group`.
    """
    old = group.columns
    table = _read_physical(footer, group, body, moved).filter(keep)
    # The kept rows as a separate file. If the last record of a list column would open a page just when one
    # is full, pyarrow puts an empty page before it, and two pages of the index then begin at the same row.
    # Other page sizes move the boundary.
    for page_share in PAGE_SHARES:
        mini = translate_errors(partial(_write, footer, old, profiles, table, page_share))
        tail = bytes(mini[-footer_length(bytes(mini[-TRAILER_BYTES:])) :])
        written = decode_footer(tail, file_size=len(mini))
        _must_match(footer.leaves, written)
        [new] = written.row_groups
        lists = [new.column(leaf.index) for leaf in footer.leaves if leaf.repetition_level]
        pages = [
            profile_chunk(bytes(mini[chunk.start : chunk.end]), 0, chunk, flat_rows=None)
            for chunk in lists
        ]
        if not any(profile.empty_pages for profile in pages):
            break
    else:
        raise UnsupportedFile("pyarrow would write empty pages", next_step=RECODE)
    columns = new.columns
    begin, end = min(c.start for c in columns), max(c.end for c in columns)
    chunks = [_graft(was, now, mini) for was, now in zip(old, columns, strict=True)]
    return NewGroup(table.num_rows, begin, mini[begin:end], tuple(chunks))


# -- writing --------------------------------------------------------------------------------------


def _write(
    footer: Footer,
    old: Sequence[ColumnChunk],
    profiles: Sequence[PageProfile],
    table: pa.Table,
    page_share: float,
) -> memoryview:
    # Not Arrow's: it grows by copying into new huge pages, which the kernel has to clear.
    sink = io.BytesIO()
    paths = list(leaf_paths(table.schema))
    options = _writer_options(footer, old, profiles, paths)
    for name in ("data_page_size", "max_rows_per_page"):
        options[name] = math.ceil(options[name] * page_share)
    with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
        writer.write_table(table, row_group_size=table.num_rows)
    return sink.getbuffer()


def leaf_paths(schema: pa.Schema) -> Iterator[str]:
    """The leaves' paths as pyarrow will write them."""

    def walk(name: str, kind: pa.DataType) -> Iterator[str]:
        if pa.types.is_struct(kind):
            for child in kind:
                yield from walk(f"{name}.{child.name}", child.type)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            yield from walk(f"{name}.list.element", kind.value_type)
        else:
            yield name

    for field in schema:
        yield from walk(field.name, field.type)


def _writer_options(
    footer: Footer,
    old: Sequence[ColumnChunk],
    profiles: Sequence[PageProfile],
    paths: Sequence[str],
) -> dict[str, Any]:
    encodings = [
        _encoding(chunk.type, profile) for chunk, profile in zip(old, profiles, strict=True)
    ]
    dictionaries = [
        path for path, encoding in zip(paths, encodings, strict=True) if encoding is None
    ]
    # Pages reached their bound only where a chunk has several of them.
    bounded = [profile for profile in profiles if profile.data_pages > 1]
    flat = [p for leaf, p in zip(footer.leaves, profiles, strict=True) if not leaf.repetition_level]
    bounded_flat = [profile for profile in flat if profile.data_pages > 1]
    page_bytes = max((p.page_bytes for p in bounded), default=DEFAULT_PAGE_BYTES)
    page_rows = max((p.page_values for p in bounded_flat), default=DEFAULT_PAGE_ROWS)
    # A dictionary that was large enough still is: its values can only have become fewer.
    whole = [p.dictionary_bytes or 0 for p in profiles if set(p.encodings) <= DICTIONARY_ENCODINGS]
    old_style = {Encoding.PLAIN_DICTIONARY} == {
        encoding for p in profiles for encoding in p.encodings if encoding in DICTIONARY_ENCODINGS
    }
    stored = [footer.schema[leaf.element] for leaf in footer.leaves]
    has_unsigned = any(e.get(Element.TYPE) == Physical.INT32 and is_unsigned(e) for e in stored)
    return {
        # "1.0" names dictionary pages the old way, and cannot hold uint32.
        "version": "1.0" if old_style and not has_unsigned else "2.6",
        "data_page_version": "2.0" if any(p.version_2 for p in profiles) else "1.0",
        "compression": {
            path: _CODEC_NAMES[chunk.codec] for path, chunk in zip(paths, old, strict=True)
        },
        "use_dictionary": dictionaries or False,
        "column_encoding": {
            path: encoding.name
            for path, encoding in zip(paths, encodings, strict=True)
            if encoding is not None
        }
        or None,
        "dictionary_pagesize_limit": max([DEFAULT_DICTIONARY_BYTES, *(n + 1024 for n in whole)]),
        "write_statistics": [
            path
            for path, leaf, chunk in zip(paths, footer.leaves, old, strict=True)
            if has_known_order(footer, leaf)
            and (Meta.STATISTICS in chunk.meta or chunk.column_index is not None)
        ]
        or False,
        "write_page_index": any(chunk.offset_index is not None for chunk in old),
        "write_page_checksum": any(profile.checksums for profile in profiles),
        "data_page_size": min(page_bytes, MAX_PAGE_BYTES),
        "max_rows_per_page": max(1, page_rows),
        "write_batch_size": max(1, min(DEFAULT_BATCH_ROWS, page_rows)),
        "bloom_filter_options": {
            path: {"ndv": _bloom_values(chunk), "fpp": BLOOM_FALSE_POSITIVES}
            for path, chunk in zip(paths, old, strict=True)
            if chunk.bloom_offset is not None and chunk.type is not Physical.BOOLEAN
        }
        or None,
    }


def _encoding(kind: Physical, profile: PageProfile) -> Encoding | None:
    """The encoding to write values with; None means a dictionary."""
    if profile.data_pages == 0:
        return None if kind is not Physical.BOOLEAN else Encoding.PLAIN
    by_dictionary = sum(
        count for encoding, count in profile.encodings.items() if encoding in DICTIONARY_ENCODINGS
    )
    others = [
        (count, Encoding(encoding))
        for encoding, count in profile.encodings.items()
        if encoding in _FITS and kind in _FITS[Encoding(encoding)]
    ]
    count, best = max(others, default=(0, Encoding.PLAIN))
    if not by_dictionary:
        return best
    # Once the dictionary was full, most of the chunk used another encoding. pyarrow can fall back only to
    # PLAIN, so any better one is used from the start.
    fell_back = count > by_dictionary and best is not Encoding.PLAIN
    return best if fell_back else None


def _bloom_values(chunk: ColumnChunk) -> int:
    """The number of values to size the new filter for: it must not outgrow the old one."""
    values = max(1, chunk.num_values)
    if chunk.bloom_length is None:
        return values
    # Split-block filters: p = (1 - exp(-8 n / bits)) ^ 8.
    bits = 8 * chunk.bloom_length * 0.9
    room = -bits / 8 * math.log(1 - BLOOM_FALSE_POSITIVES ** (1 / 8))
    return max(1, min(values, int(room)))


# -- grafting -------------------------------------------------------------------------------------


def _must_match(leaves: Sequence[Leaf], written: Footer) -> None:
    """Checks that the new chunks fit in place of the old ones: otherwise no reader could detect it, and
    values would move between nulls and lists."""
    if written.num_row_groups != 1 or len(written.leaves) != len(leaves):
        raise UnsupportedFile("pyarrow would write it in another structure", next_step=RECODE)
    for was, now in zip(leaves, written.leaves, strict=True):
        stored = Physical.FIXED_LEN_BYTE_ARRAY if was.type is Physical.INT96 else was.type
        length = INT96_BYTES if was.type is Physical.INT96 else was.type_length
        same_length = stored is not Physical.FIXED_LEN_BYTE_ARRAY or now.type_length == length
        same_levels = (was.definition_level, was.repetition_level) == (
            now.definition_level,
            now.repetition_level,
        )
        if now.type is not stored or not same_length or not same_levels:
            raise UnsupportedFile(
                f"pyarrow would write column {'.'.join(was.path)} in another structure",
                next_step=RECODE,
            )


def _graft(was: ColumnChunk, now: ColumnChunk, mini: memoryview) -> NewChunk:
    """The footer entry of a new chunk: only what the format defines and no key-values, because others may
    have been computed from removed rows."""
    meta: Struct = {
        Meta.TYPE: was.meta[Meta.TYPE],
        Meta.ENCODINGS: now.meta[Meta.ENCODINGS],
        Meta.PATH: was.meta[Meta.PATH],
    }
    for key in (Meta.CODEC, Meta.VALUES, Meta.UNCOMPRESSED, Meta.COMPRESSED, Meta.DATA_PAGE):
        meta[key] = now.meta[key]
    if now.start < now.meta[Meta.DATA_PAGE]:
        meta[Meta.DICTIONARY_PAGE] = now.start
    if (old := was.statistics) is not None and (new := now.statistics) is not None:
        meta[Meta.STATISTICS] = _statistics(old, new)
    for key in (Meta.ENCODING_STATS, Meta.SIZES):
        if key in was.meta and key in now.meta:
            meta[key] = now.meta[key]
    tree: Struct = {Chunk.FILE_OFFSET: 0, Chunk.META: meta}
    column_index = offset_index = bloom = None
    if was.offset_index and now.offset_index:
        offset_index = bytes(mini[slice(*now.offset_index)])
        if was.column_index and now.column_index:
            column_index = bytes(mini[slice(*now.column_index)])
    if was.bloom_offset is not None and now.bloom_offset is not None:
        at = now.bloom_offset
        header, bits = bloom_length(bytes(mini[at : at + BLOOM_HEADER_BYTES]))
        bloom = bytes(mini[at : at + header + bits])
    return NewChunk(tree, column_index, offset_index, bloom)


def _statistics(was: Mapping[int, Any], now: Mapping[int, Any]) -> Struct:
    """The statistics pyarrow computed, as far as the file had them before."""
    computed = (Stats.OLD_MAX, Stats.OLD_MIN, Stats.NULLS, Stats.MAX, Stats.MIN, Stats.NANS)
    kept: Struct = {key: now[key] for key in computed if key in was and key in now}
    # pyarrow does not truncate bounds, but if the old ones were truncated those of other groups are, too:
    # DataFusion 55 cannot read truncated fixed-width bounds, and uses exact ones of one group for the whole
    # file.
    for key, bound in ((Stats.MAX_EXACT, Stats.MAX), (Stats.MIN_EXACT, Stats.MIN)):
        if key in was and bound in kept:
            kept[key] = was[key]
    return kept


_ORDERED_LOGICAL = frozenset({1, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15})


def has_known_order(footer: Footer, leaf: Leaf) -> bool:
    """Whether pyarrow, writing the physical view, orders this column as the file's readers do.

    If not, the column is written without any statistics, in page headers as well.
    """
    element = footer.schema[leaf.element]
    orders = footer.tree.get(File.ORDERS)
    if orders is not None and leaf.index < len(orders) and Order.BY_TYPE not in orders[leaf.index]:
        return False
    logical = element.get(Element.LOGICAL)
    if logical and not {key >> 4 for key in logical} <= _ORDERED_LOGICAL:
        return False
    if leaf.type is Physical.INT96 or element.get(Element.CONVERTED) == Converted.INTERVAL:
        return False
    if is_decimal(element):
        # As bytes of any length they would compare unsigned; fixed ones are read as decimals.
        fixed = leaf.type is Physical.FIXED_LEN_BYTE_ARRAY and 1 <= (leaf.type_length or 0) <= 32
        return fixed or leaf.type in (Physical.INT32, Physical.INT64)
    return True
