"""Footers that are allowed, or common, though no writer at hand makes them: surgery takes them as well."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import checker
import corpus
import engines
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import surgeon

from inlay.parquet.footer.fields import Chunk, File, Group, KeyValue, Meta
from inlay.parquet.footer.footer import decode_footer, end_of_file, footer_length
from inlay.parquet.footer.thrift import (
    BINARY,
    DOUBLE,
    I32,
    I64,
    STRUCT,
    Items,
    Struct,
    decode_struct,
)

Change = Callable[[Struct], None]


def of_groups(change: Change) -> Change:
    def all_of_them(tree: Struct) -> None:
        for group in tree[File.GROUPS]:
            change(group)

    return all_of_them


def of_chunks(change: Change) -> Change:
    return of_groups(lambda group: [change(chunk) for chunk in group[Group.COLUMNS]] and None)


def of_metas(change: Change) -> Change:
    return of_chunks(lambda chunk: change(chunk[Chunk.META]))


def having(key: int, value: object) -> Change:
    return lambda struct: struct.update({key: value})


def without(*keys: int) -> Change:
    return lambda struct: [struct.pop(key, None) for key in keys] and None


def index_of_some_columns(group: Struct) -> None:
    for at, chunk in enumerate(group[Group.COLUMNS]):
        if at % 2:
            without(Chunk.COLUMN_INDEX, Chunk.COLUMN_INDEX_LENGTH)(chunk)
        if at % 3:
            without(Chunk.OFFSET_INDEX, Chunk.OFFSET_INDEX_LENGTH)(chunk)


def reversed_groups(tree: Struct) -> None:
    tree[File.GROUPS] = Items(STRUCT, tree[File.GROUPS][::-1])


ODD: dict[str, Change] = {
    "key-values without values": having(
        File.KEY_VALUES,
        Items(STRUCT, [{KeyValue.KEY: b"k"}, {KeyValue.KEY: b"k"}, {KeyValue.KEY: b"geo"}]),
    ),
    "no key-values at all": having(File.KEY_VALUES, Items(STRUCT)),
    "a wrong total_byte_size": of_groups(having(Group.BYTES, 7)),
    "a negative total_byte_size": of_groups(having(Group.BYTES, -1)),
    "a wrong total_compressed_size": of_groups(having(Group.COMPRESSED, 1)),
    "every group the first": of_groups(having(Group.ORDINAL, 0)),
    "no ordinals and no offsets": of_groups(without(Group.ORDINAL, Group.FILE_OFFSET)),
    "file offsets beyond the file": of_chunks(having(Chunk.FILE_OFFSET, 10**15)),
    "group offsets beyond the file": of_groups(having(Group.FILE_OFFSET, 10**15)),
    "no writer and no orders": without(File.CREATED_BY, File.ORDERS),
    "index of some columns": of_groups(index_of_some_columns),
    "bloom filters of untold length": of_metas(without(Meta.BLOOM_LENGTH)),
    "no total of rows": having(File.ROWS, 0),
    "groups in another order than their bytes": reversed_groups,
    "no encodings": of_metas(having(Meta.ENCODINGS, Items(I32))),
    "uncompressed sizes of 0": of_metas(having(Meta.UNCOMPRESSED, 0)),
    "empty paths to other files": of_chunks(having(Chunk.FILE_PATH, b"")),
    "statistics of another type": of_metas(having(Meta.STATISTICS, {1 << 4 | I64: 5})),
    "statistics with a field of long id": of_metas(
        having(Meta.STATISTICS, {20_000 << 4 | BINARY: b"z" * 500})
    ),
    "fields of a later format": of_metas(having(66 << 4 | DOUBLE, struct.pack("<d", 1.5))),
}
ROWS = 50


def odd(change: Change) -> bytes:
    data = corpus.by_pyarrow(
        corpus.flat(5 * ROWS).select(["id", "name", "double", "raw", "nothing"]),
        row_group_size=ROWS,
        write_page_index=True,
        max_rows_per_page=16,
        bloom_filter_options={"id": {"ndv": 50, "fpp": 0.01}, "name": {"ndv": 20, "fpp": 0.01}},
    )
    tail = footer_length(data[-8:])
    tree, _ = decode_struct(data[-tail:-8])
    change(tree)
    return data[:-tail] + end_of_file(tree)


def reads(reader: str, path: Path) -> bool:
    """DuckDB stops at a path to another file, even an empty one."""
    try:
        return engines.READERS[reader](path).num_rows == 5 * ROWS
    except Exception:
        return False


@pytest.mark.parametrize("name", ODD)
def test_an_odd_footer_loses_no_row(name: str, tmp_path: Path) -> None:
    data = odd(ODD[name])
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    readers = [reader for reader in ("pyarrow", "duckdb") if reads(reader, path)]
    assert "pyarrow" in readers
    before = pq.read_table(pa.BufferReader(data))
    footer = decode_footer(data, file_size=len(data))
    known = checker.kinds(data)
    patterns = surgeon.patterns(data)
    for pattern in ("odd rows of a middle group", "first group unread", "every group, one dropped"):
        _, result = surgeon.operate(data, patterns[pattern])
        assert {kind for kind, _ in checker.problems(result)} <= known, pattern
        path.write_bytes(result)
        expected = before.take(pa.array(surgeon.kept_rows(footer, patterns[pattern]), pa.int64()))
        for reader in readers:
            assert engines.same(engines.READERS[reader](path), expected), (pattern, reader)
