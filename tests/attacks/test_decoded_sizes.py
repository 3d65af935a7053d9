"""Some KB that are a GB once decoded are refused, or left alone, before anything is decoded."""

from __future__ import annotations

import io
import tracemalloc
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import CorruptTable, NewerFormat, UnsupportedFile
from inlay.format.codec import decode_frame, encode_frame
from inlay.parquet.footer.fields import Meta, Physical, Sizes
from inlay.parquet.footer.footer import ColumnChunk
from inlay.parquet.read import data_file

MIB = 1 << 20
# A pool must outlive what was allocated from it.
POOLS: list[pa.MemoryPool] = []


@contextmanager
def arrow_peak() -> Iterator[list[int]]:
    """The most bytes that Arrow held at once within the block."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    found: list[int] = []
    try:
        yield found
    finally:
        found.append(pool.max_memory())
        pa.set_memory_pool(before)


def bomb(kind: str) -> bytes:
    """A file of 250 MiB when decoded; its ids are in two partitions."""
    n = 250_000
    text = ["x" * 1000]
    who: Any = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), text)
    if kind == "plain":
        who = who.cast(pa.string())
    table = pa.table({"id": pa.arange(0, n), "who": who})
    buffer = io.BytesIO()
    pq.write_table(
        table, buffer, compression="zstd", use_dictionary=kind == "dictionary", store_schema=False
    )
    assert buffer.tell() < MIB * 3
    return buffer.getvalue()


SCHEMA = pa.schema([("id", pa.int64()), ("who", pa.string())])


@pytest.mark.parametrize("kind", ["dictionary", "plain"])
def test_a_small_file_that_is_large_once_decoded_is_not_cut(kind):
    base = f"memory://sizes-{uuid.uuid4().hex}"
    table = inlay.create(
        f"{base}/t",
        SCHEMA,
        partition_by="bucket(4, id)",
        properties={"ingest.split_bytes": 16 * MIB},
    )
    table._ctx.store.put("in/a.parquet", bomb(kind))
    with arrow_peak() as peak:
        table.ingest([f"{base}/in/a.parquet"])
    assert peak[0] < 16 * MIB
    assert table.count() == 250_000
    [file] = table.inspect.entries()[0]
    assert file.partition == ()


@pytest.mark.parametrize("kind", ["dictionary", "plain"])
def test_a_row_group_larger_than_memory_is_refused_before_it_is_decoded(kind, monkeypatch):
    monkeypatch.setattr(data_file, "memory_limit", lambda: 100 * MIB)
    base = f"memory://sizes-{uuid.uuid4().hex}"
    table = inlay.create(f"{base}/t", SCHEMA)
    table._ctx.store.put("in/a.parquet", bomb(kind))
    table.ingest([f"{base}/in/a.parquet"])
    key = table.inspect.entries()[0][0].key
    table.delete("id = 7", mode="vector")
    with arrow_peak() as peak:
        with pytest.raises(UnsupportedFile, match="MiB of memory") as caught:
            table.scan().to_arrow()
        assert caught.value.key == key
        assert table.count(where="id < 10") == 9  # of the columns that fit it may be read
        with pytest.raises(UnsupportedFile, match="MiB of memory"):
            table.delete("id = 9", mode="surgery")
    assert peak[0] < 32 * MIB


def gzip_of(head: bytes, fill: bytes, mib: int, tail: bytes = b"") -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    text = [head, *[fill * (MIB // len(fill))] * mib, tail]
    return b"".join([packer.compress(each) for each in text]) + packer.flush()


@pytest.mark.parametrize(
    ("head", "fill", "mib"),
    [
        (b'{"inlay":1,"kind":"snapshot","x":"', b"a", 60),
        (b'{"inlay":1,"kind":"snapshot","x":[', b"1,", 60),
        pytest.param(b"", b"\0", 1200, marks=pytest.mark.wide),
    ],
)
def test_a_compressed_bomb_for_a_pointer_takes_no_memory(head, fill, mib):
    data = gzip_of(head, fill, mib)
    assert len(data) < 1.3 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(CorruptTable):
            decode_frame("snapshot", data, key="_latest_manifest")
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_large_frame_is_read_and_a_later_format_is_called_that():
    body = {"x": ["y" * 100] * 50_000}
    assert decode_frame("files", encode_frame("files", body), key="k") == body
    later = gzip_of(b'{"inlay":7,"kind":"files","x":"', b"a", 2, b'","digest":"of another kind"}\n')
    with pytest.raises(NewerFormat, match="version 7"):
        decode_frame("files", later, key="k")
    whole = encode_frame("files", body)
    for broken in (whole[:-1], whole[:100], whole + b"x", whole[:500] + b"\0" + whole[501:]):
        with pytest.raises(CorruptTable):
            decode_frame("files", broken, key="k")


def test_the_limit_is_that_of_the_smallest_that_says_one(monkeypatch):
    data_file.memory_limit.cache_clear()
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "512")
    try:
        assert data_file.memory_limit() == 256 * MIB
    finally:
        data_file.memory_limit.cache_clear()


@pytest.mark.parametrize(
    ("kind", "encoded", "texts", "least"),
    [
        (Physical.BYTE_ARRAY, 79, None, 80),  # ten references
        (Physical.BYTE_ARRAY, 81, None, 81),
        (Physical.BYTE_ARRAY, 79, 0, 80),
        (Physical.BYTE_ARRAY, 80, 7, 87),
        (Physical.BYTE_ARRAY, 79, -7, 80),
        (Physical.BOOLEAN, 2, None, 80),
        (Physical.INT96, 2, None, 120),
    ],
)
def test_a_chunk_is_at_least_its_pages_and_its_values_and_texts(
    kind: Physical, encoded: int, texts: int | None, least: int
) -> None:
    meta: dict[int, Any] = {Meta.TYPE: kind, Meta.VALUES: 10, Meta.UNCOMPRESSED: encoded}
    if texts is not None:
        meta[Meta.SIZES] = {Sizes.TEXT_BYTES: texts}
    assert data_file.chunk_bytes(ColumnChunk({}, meta)) == least
    footer = mock.Mock(row_groups=[mock.Mock(columns=[ColumnChunk({}, meta)] * 2)])
    assert data_file.largest_group(footer) == 2 * least
    assert data_file.largest_group(mock.Mock(row_groups=[])) == 0
