"""Parquet files of some KB that are GB once decoded, each by another way."""

from __future__ import annotations

import io
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.parquet.footer.fields import Group, Meta, Sizes
from inlay.parquet.footer.footer import decode_footer, end_of_file
from inlay.parquet.footer.thrift import unpack

MIB = 1 << 20
ROWS = 40_000
LONG = 100_000


def written(column: pa.Array, **options: object) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"id": pa.arange(0, len(column)), "who": column})
    pq.write_table(table, sink, compression="zstd", store_schema=False, **options)
    return sink.getvalue()


def lying(body: bytes) -> bytes:
    """The same file by a footer that calls its chunks small, without `SizeStatistics`."""
    footer = decode_footer(body, file_size=len(body))
    for group in footer.row_groups:
        group.tree[Group.BYTES] = 1_000
        for chunk in group.columns:
            chunk.meta[Meta.UNCOMPRESSED] = min(chunk.uncompressed_size, 1_000)
            chunk.meta.pop(Meta.SIZES, None)
    return body[: footer.start] + end_of_file(footer.tree)


def modest(body: bytes) -> bytes:
    """The same file by a footer that says too little of its texts."""
    footer = decode_footer(body, file_size=len(body))
    for group in footer.row_groups:
        for chunk in group.columns:
            sizes = chunk.meta.get(Meta.SIZES)
            if sizes is not None:
                told = dict(unpack(sizes))
                if Sizes.TEXT_BYTES in told:
                    told[Sizes.TEXT_BYTES] = 10
                chunk.meta[Meta.SIZES] = told
    return body[: footer.start] + end_of_file(footer.tree)


def by_dictionary(rows: int = ROWS) -> bytes:
    texts = ["y", "x" * LONG, "ada@example.com"]
    indices = pa.array([1] * (rows - 2) + [0, 2], pa.int32())
    return written(pa.DictionaryArray.from_arrays(indices, texts))


def by_pages() -> bytes:
    """Each value is in its page once: 0.4 GB in one."""
    column = pa.array(["x" * LONG], pa.string()).take(pa.array([0] * 4_000))
    return written(column, use_dictionary=False, data_page_size=1 << 30)


def by_prefixes() -> bytes:
    """A text after the other has all of it as its prefix. pyarrow can write only as much as it can hold."""
    column = pa.array(["x" * LONG], pa.string()).take(pa.array([0] * 4_000))
    return written(column, use_dictionary=False, column_encoding={"who": "DELTA_BYTE_ARRAY"})


def by_lists() -> bytes:
    """One row of many long texts."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), ["x" * LONG])
    lists = pa.ListArray.from_arrays(pa.array([0, ROWS, ROWS, ROWS], pa.int32()), texts)
    return written(lists)


BOMBS: dict[str, Callable[[], bytes]] = {
    "dictionary": by_dictionary,
    "dictionary, no sizes": lambda: lying(by_dictionary()),
    "dictionary, wrong sizes": lambda: modest(by_dictionary()),
    "pages": by_pages,
    "pages, lying": lambda: lying(by_pages()),
    "prefixes": by_prefixes,
    "prefixes, lying": lambda: lying(by_prefixes()),
    "lists": by_lists,
    "lists, lying": lambda: lying(by_lists()),
}
