"""How much the texts of a file take once decoded, where its footer does not say: before 2024 none did.

Promise: never less than the texts of a column with a dictionary take, nested or not, at the memory of a
batch of codes: a dictionary of one long text, used in every row, makes gigabytes of some KB. `may_exceed`
tells from the footer alone where nobody has to look; where somebody has to, mostly the dictionaries are
enough, and otherwise the codes are read, a piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

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
# Of a column that are read at once.
_PIECE_BYTES = 2**20
# PLAIN_DICTIONARY and RLE_DICTIONARY.
_DICTIONARIES = frozenset((2, 8))
# The others of such a chunk: PLAIN, and RLE and BIT_PACKED of levels.
_BESIDE = frozenset((0, 3, 4))


def _unsized(group: RowGroup) -> Iterator[ColumnChunk]:
    for chunk in group.columns:
        encodings = frozenset(chunk.meta[Meta.ENCODINGS])
        has_dictionary = bool(encodings & _DICTIONARIES) and encodings <= _DICTIONARIES | _BESIDE
        sizes = unpack(chunk.meta.get(Meta.SIZES, {}))
        is_text = chunk.type is Physical.BYTE_ARRAY
        if is_text and has_dictionary and Sizes.TEXT_BYTES not in sizes:
            yield chunk


def may_exceed(footer: Footer, limit: int) -> bool:
    """Whether a row group could take more than `limit` bytes: every value could be as long as its chunk."""
    return any(
        sum(map(chunk_bytes, group.columns))
        + sum(chunk.num_values * chunk.uncompressed_size for chunk in _unsized(group))
        > limit
        for group in footer.row_groups
    )


def largest_decoded(file: IO[bytes] | Any, footer: Footer, limit: int) -> int:
    """The bytes of the largest row group once decoded: exact where it could be more than `limit`, at most
    that where it cannot. Raises `UnreadableFile`, and what reading `file` raises."""
    try:
        return max(_decoded(file, place, limit) for place in enumerate(footer.row_groups))
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"its pages cannot be read: {words_of(error)}") from error


def _decoded(file: IO[bytes] | Any, place: tuple[int, RowGroup], limit: int) -> int:
    ordinal, group = place
    sized = sum(map(chunk_bytes, group.columns))
    columns = [(".".join(chunk.path), chunk.num_values) for chunk in _unsized(group)]
    # Texts beside the dictionary are stored whole: they are in what the chunks take.
    at_most = sized + sum(
        values * _longest(next(_texts(file, ordinal, name), None)) for name, values in columns
    )
    if at_most <= limit:
        return at_most
    return sized + sum(
        _text_bytes(texts) for name, _ in columns for texts in _texts(file, ordinal, name)
    )


def _texts(file: IO[bytes] | Any, ordinal: int, name: str) -> Iterator[pa.Array]:
    """The texts of one column, nested or not, by their dictionary. The first has all of that."""
    opened = pq.ParquetFile(file, read_dictionary=[name], buffer_size=_PIECE_BYTES)
    for batch in opened.iter_batches(
        BATCH_ROWS, row_groups=[ordinal], columns=[name], use_threads=False
    ):
        column = batch.column(0)
        while pa.types.is_nested(column.type):  # every level has one child
            is_struct = pa.types.is_struct(column.type)
            column = column.field(0) if is_struct else column.flatten()
        yield column


def _longest(texts: pa.Array | None) -> int:
    if texts is None:
        return 0
    words = texts.dictionary if pa.types.is_dictionary(texts.type) else texts
    return pc.max(pc.binary_length(words)).as_py() or 0


def _text_bytes(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return pc.sum(pc.binary_length(column)).as_py() or 0
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return pc.sum(lengths.take(column.indices)).as_py() or 0
