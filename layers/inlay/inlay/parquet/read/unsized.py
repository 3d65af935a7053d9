"""How much the texts of a file take once decoded, where its footer does not say: before 2024 none did.

Promise: exact for columns of texts that are not nested and have a dictionary, at the memory of a batch of
codes: a dictionary of one long text, used in every row, makes gigabytes of some KB. `may_exceed` tells from
the footer alone where nobody has to look.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inlay.errors import UnreadableFile
from inlay.parquet.arrow.words import words_of
from inlay.parquet.footer.fields import Meta, Physical, Sizes
from inlay.parquet.footer.footer import ColumnChunk, Footer, RowGroup
from inlay.parquet.footer.thrift import unpack
from inlay.parquet.read.data_file import chunk_bytes

# Codes that are looked at together.
BATCH_ROWS = 65_536
# PLAIN_DICTIONARY and RLE_DICTIONARY.
_DICTIONARIES = frozenset((2, 8))
# The others of such a chunk: PLAIN, and RLE and BIT_PACKED of levels.
_BESIDE = frozenset((0, 3, 4))


def _unsized(group: RowGroup) -> Iterator[ColumnChunk]:
    for chunk in group.columns:
        encodings = frozenset(chunk.meta[Meta.ENCODINGS])
        has_dictionary = bool(encodings & _DICTIONARIES) and encodings <= _DICTIONARIES | _BESIDE
        is_flat = len(chunk.path) == 1 and "." not in chunk.path[0]
        sizes = unpack(chunk.meta.get(Meta.SIZES, {}))
        is_text = chunk.type is Physical.BYTE_ARRAY
        if is_text and is_flat and has_dictionary and Sizes.TEXT_BYTES not in sizes:
            yield chunk


def may_exceed(footer: Footer, limit: int) -> bool:
    """Whether a row group could take more than `limit` bytes: every value could be as long as its chunk."""
    return any(
        sum(map(chunk_bytes, group.columns))
        + sum(chunk.num_values * chunk.uncompressed_size for chunk in _unsized(group))
        > limit
        for group in footer.row_groups
    )


def largest_decoded(body: bytes, footer: Footer) -> int:
    """The bytes of the largest row group of a whole file once decoded. Raises `UnreadableFile`."""
    try:
        return _largest_decoded(body, footer)
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"its pages cannot be read: {words_of(error)}") from error


def _largest_decoded(body: bytes, footer: Footer) -> int:
    largest = 0
    for place, group in enumerate(footer.row_groups):
        names = [chunk.path[0] for chunk in _unsized(group)]
        size = sum(map(chunk_bytes, group.columns))
        for name in names:
            file = pq.ParquetFile(pa.BufferReader(body), read_dictionary=[name])
            batches = file.iter_batches(
                BATCH_ROWS, row_groups=[place], columns=[name], use_threads=False
            )
            size += sum(_text_bytes(batch.column(0)) for batch in batches)
        largest = max(largest, size)
    return largest


def _text_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return pc.sum(pc.binary_length(column)).as_py() or 0
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(column.indices)).as_py() or 0
