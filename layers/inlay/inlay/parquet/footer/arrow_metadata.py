"""Footers as pyarrow sees them, without what would abort the process or is known to be wrong.

Promise: every statistic of metadata from `parse_metadata` can be accessed, and none is of the deprecated
kind for decimals stored as bytes: parquet-mr before 1.10 compared those byte by byte, so that 1.00 is above
2.00 (`fixed_length_decimal.parquet` of apache/parquet-testing). Readers should ignore them; pyarrow does
not.

pyarrow 26 decodes a chunk's bounds when it is asked whether there are any, and if they are shorter than a
value it does not raise but aborts. DataFusion truncates the bounds of fixed-width binary columns (at 64
bytes by default): the statistics of such chunks are removed. Bounds of other types are never truncated, so
a footer with such is damaged. pyarrow aborts, too, for a chunk whose type is not its column's, or whose
histograms of levels have another length than the column has levels. `check_chunks` refuses these when a
file is added to the table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import UnreadableFile
from inlay.parquet.footer.fields import (
    ARROW_SCHEMA,
    File,
    KeyValue,
    Meta,
    Order,
    Physical,
    Sizes,
    Stats,
)
from inlay.parquet.footer.footer import (
    ColumnChunk,
    Footer,
    Leaf,
    decode_footer,
    is_decimal,
    refuse_elsewhere,
    trailer,
)
from inlay.parquet.footer.thrift import STRUCT, Items, encode_struct, unpack

_WIDTHS = {
    Physical.BOOLEAN: 1,
    Physical.INT32: 4,
    Physical.INT64: 8,
    Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
}
_NOT_TO_DICTIONARIES = frozenset({"DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"})
_BOUNDS = (Stats.OLD_MIN, Stats.OLD_MAX, Stats.MIN, Stats.MAX)


def parse_metadata(tail: bytes, *, file_size: int, foreign: bool = True) -> pq.FileMetaData:
    """The metadata at the end of `tail`, the last bytes of an object of `file_size` bytes. Not `foreign`:
    this library wrote the whole file, with bounds of full width. Raises what pyarrow raises, and
    `UnreadableFile`."""
    metadata = pq.read_metadata(pa.BufferReader(tail))
    if not foreign:
        return metadata  # decoding the footer here, too, would be half the cost of reading a small file
    is_unreadable = _is_unreadable(metadata)
    doubtful = any(_is_doubtful(metadata.schema.column(n)) for n in range(len(metadata.schema)))
    if not (is_unreadable or doubtful):
        return metadata
    footer = decode_footer(tail, file_size=file_size)
    wrong = [chunk for leaf, chunk in _too_short(footer) if leaf.type not in _WIDTHS]
    wrong += _compared_as_bytes(footer)
    if not (wrong or is_unreadable):
        return metadata
    for chunk in wrong:
        chunk.meta.pop(Meta.STATISTICS, None)
    if is_unreadable:
        pairs = map(unpack, footer.tree[File.KEY_VALUES])
        left = [pair for pair in pairs if pair.get(KeyValue.KEY) != ARROW_SCHEMA]
        footer.tree[File.KEY_VALUES] = Items(STRUCT, left)
    thrift = encode_struct(footer.tree)
    return pq.read_metadata(pa.BufferReader(thrift + trailer(len(thrift))))


def _is_unreadable(metadata: pq.FileMetaData) -> bool:
    """Whether pyarrow would refuse to read a column as its Arrow schema says: as a dictionary, from pages
    of an encoding that it decodes to plain values only. It writes such files itself."""
    if ARROW_SCHEMA not in (metadata.metadata or {}):
        return False
    if not any("dictionary<" in str(f.type) for f in metadata.schema.to_arrow_schema()):
        return False
    return any(
        not _NOT_TO_DICTIONARIES.isdisjoint(metadata.row_group(g).column(n).encodings)
        for g in range(metadata.num_row_groups)
        for n in range(metadata.num_columns)
    )


def _is_doubtful(column: pq.ColumnSchema) -> bool:
    is_text = column.physical_type == "BYTE_ARRAY"
    return column.physical_type == "FIXED_LEN_BYTE_ARRAY" or (
        is_text and column.logical_type is not None and column.logical_type.type == "DECIMAL"
    )


def _compared_as_bytes(footer: Footer) -> Iterator[ColumnChunk]:
    """Chunks of decimals as bytes for which pyarrow would go by the deprecated bounds."""
    orders = footer.tree.get(File.ORDERS, ())
    for leaf in footer.leaves:
        as_bytes = leaf.type in (Physical.FIXED_LEN_BYTE_ARRAY, Physical.BYTE_ARRAY)
        if not as_bytes or not is_decimal(footer.schema[leaf.element]):
            continue
        if leaf.index < len(orders) and Order.BY_TYPE in orders[leaf.index]:
            continue
        for group in footer.row_groups:
            chunk = group.column(leaf.index)
            if chunk.statistics is not None:
                yield chunk


def check_chunks(footer: Footer) -> None:
    """Raises `UnreadableFile` if a chunk's metadata contradicts its column, `UnsupportedFile` if it is in
    another file: pyarrow would take what is at its offsets in this one."""
    for group in footer.row_groups:
        for leaf in footer.leaves:
            refuse_elsewhere(group.column(leaf.index))
            fault = _chunk_fault(leaf, group.column(leaf.index))
            if fault:
                raise UnreadableFile(f"column {'.'.join(leaf.path)!a}: {fault}")
    for leaf, _ in _too_short(footer):
        if leaf.type in _WIDTHS:
            raise UnreadableFile(
                f"the statistics of column {'.'.join(leaf.path)!a} are shorter than a value of it"
            )


def _chunk_fault(leaf: Leaf, chunk: ColumnChunk) -> str | None:
    if chunk.meta[Meta.TYPE] != leaf.type:
        return "a chunk has another type than the column"
    sizes_struct = chunk.meta.get(Meta.SIZES)
    if sizes_struct is None:
        return None
    sizes = unpack(sizes_struct)
    for key, level in (
        (Sizes.REPETITION_LEVELS, leaf.repetition_level),
        (Sizes.DEFINITION_LEVELS, leaf.definition_level),
    ):
        # Empty if the writer did not count.
        if key in sizes and len(sizes[key]) not in (0, level + 1):
            return f"a histogram of {len(sizes[key])} levels, of {level + 1}"
    if Sizes.TEXT_BYTES in sizes and leaf.type is not Physical.BYTE_ARRAY:
        return "a length of texts, though its values are not texts"
    return None


def _too_short(footer: Footer) -> Iterator[tuple[Leaf, ColumnChunk]]:
    widths = [(leaf, _WIDTHS.get(leaf.type, leaf.type_length)) for leaf in footer.leaves]
    fixed = [(leaf, width) for leaf, width in widths if width and leaf.type is not Physical.INT96]
    for group in footer.row_groups:
        for leaf, width in fixed:
            chunk = group.column(leaf.index)
            statistics = chunk.statistics.tree if chunk.statistics is not None else {}
            if any(len(statistics[key]) < width for key in _BOUNDS if key in statistics):
                yield leaf, chunk
