"""Deletion vectors: the bytes Iceberg writes, and everything that is not quite those bytes."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from inlay.errors import CorruptTable, NewerFormat
from inlay.format.puffin import (
    VECTOR_MAGIC,
    decode_bitmap,
    decode_footer,
    decode_vector,
    encode_bitmap,
    encode_puffin,
    encode_vector,
    footer_length,
)
from inlay.plan.positions import narrow

ICEBERG = Path(__file__).parents[2].parent / "shared" / "data" / "iceberg-deletes"

# Near each other, far apart, dense and beyond 32 bits: every container kind and several keys.
positions = st.one_of(
    st.sets(st.integers(0, 2**63 - 1), max_size=50),
    st.sets(st.integers(0, 200_000), max_size=200),
    st.builds(
        lambda start, length, step: set(range(start, start + length * step, step)),
        st.integers(0, 2**33),
        st.integers(0, 9_000),
        st.integers(1, 3),
    ),
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("small-alternating-values-position-index", [1, 3, 5, 7, 9]), ("empty-position-index", [])],
)
def test_blobs_written_by_iceberg_are_read_and_written_byte_for_byte(name, expected):
    path = ICEBERG / f"{name}.bin"
    if not path.exists():
        pytest.skip(f"{path.name} of Iceberg's test resources is not here")
    blob = path.read_bytes()
    assert list(decode_vector(blob, file_rows=10)) == expected
    assert encode_vector(BitMap64(expected)) == blob


@given(positions)
@settings(deadline=None, max_examples=80)
def test_a_vector_survives_the_round_trip(rows):
    assert set(decode_vector(encode_vector(BitMap64(rows)))) == rows


def test_runs_make_dense_vectors_small():
    assert len(encode_vector(BitMap64(range(1_000_000)))) < 300


def test_empty_inner_bitmaps_as_iceberg_writes_them_for_skipped_keys_are_read():
    inner = b"".join(
        struct.pack("<I", key) + BitMap(rows).serialize() for key, rows in ((0, []), (1, [7]))
    )
    assert list(decode_bitmap(struct.pack("<Q", 2) + inner)) == [2**32 + 7]


@given(positions.filter(bool), st.data())
@settings(deadline=None, max_examples=60)
def test_a_flipped_bit_never_goes_unnoticed(rows, data):
    blob = bytearray(encode_vector(BitMap64(rows)))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptTable):
        decode_vector(bytes(blob))


@given(positions.filter(bool), st.data())
@settings(deadline=None, max_examples=60)
def test_a_damaged_bitmap_under_a_right_checksum_is_another_set_or_refused(rows, data):
    """The walk must agree with the C library: what it lets pass is a set that writes back."""
    bitmap = bytearray(encode_bitmap(BitMap64(rows)))
    bitmap[data.draw(st.integers(0, len(bitmap) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decode_bitmap(bytes(bitmap))
    except CorruptTable:
        return
    assert list(found) == sorted(set(found))
    assert decode_bitmap(encode_bitmap(found)) == found


def _bitmap32(*body: bytes) -> bytes:
    return struct.pack("<QI", 1, 0) + b"".join(body)


ONE_CONTAINER = struct.pack("<IIHHI", 12346, 1, 0, 1, 16)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x01" + bytes(7),
        struct.pack("<Q", 2**60),
        _bitmap32(b"\xff" * 40),
        _bitmap32(ONE_CONTAINER, struct.pack("<HH", 5, 3)),  # values out of order
        _bitmap32(ONE_CONTAINER, struct.pack("<HH", 3, 3)),  # a value twice
        _bitmap32(struct.pack("<IIHHI", 12346, 1, 0, 1, 20), struct.pack("<HH", 3, 5)),  # offset
        _bitmap32(struct.pack("<HHBHHHHHHH", 12347, 0, 1, 0, 4, 2, 0, 1, 1, 2)),  # runs overlap
        encode_bitmap(BitMap64([1])) + b"\x00",
        encode_bitmap(BitMap64([2**63])),
    ],
)
def test_bitmaps_no_writer_would_make_are_refused(damaged):
    with pytest.raises(CorruptTable):
        decode_bitmap(damaged)


@pytest.mark.parametrize("length", range(20))
def test_a_blob_cut_short_is_refused(length):
    with pytest.raises(CorruptTable):
        decode_vector(encode_vector(BitMap64([1, 2, 3]))[:length])


def test_a_position_beyond_the_file_is_refused():
    blob = encode_vector(BitMap64([9]))
    assert list(decode_vector(blob, file_rows=10)) == [9]
    with pytest.raises(CorruptTable, match="marks row 9 of a file of 9 rows"):
        decode_vector(blob, file_rows=9)


def test_a_blob_of_another_magic_is_refused():
    body = b"\xd1\xd3\x39\x65" + encode_bitmap(BitMap64([1]))
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    assert body[:4] != VECTOR_MAGIC
    with pytest.raises(CorruptTable, match="magic"):
        decode_vector(blob)


def test_a_file_of_vectors_has_what_iceberg_asks_for():
    data, blobs = encode_puffin(
        [("data/a.parquet", BitMap64([1, 2])), ("data/é", BitMap64([2**33]))]
    )
    assert data[:4] == data[-4:] == b"PFA1"
    assert decode_footer(data) == blobs
    assert [list(decode_vector(data[b.offset : b.offset + b.length])) for b in blobs] == [
        [1, 2],
        [2**33],
    ]
    assert [(b.data_file, b.cardinality) for b in blobs] == [("data/a.parquet", 2), ("data/é", 1)]
    footer = data[-footer_length(data[-12:]) :]
    assert footer[:4] == b"PFA1"
    described = json.loads(footer[4:-12])["blobs"][0]
    assert described["snapshot-id"] == described["sequence-number"] == -1
    assert described["fields"] == [2**31 - 3]  # Iceberg's reserved id of `_pos`
    assert "compression-codec" not in described


def test_a_compressed_footer_needs_a_decompressor():
    data, blobs = encode_puffin([("a", BitMap64([1]))])
    length = footer_length(data)
    payload = pa.Codec("lz4").compress(data[-length + 4 : -12], asbytes=True)
    packed = data[:-length] + b"PFA1" + payload + struct.pack("<iI", len(payload), 1) + b"PFA1"
    with pytest.raises(CorruptTable, match="LZ4"):
        decode_footer(packed)

    def decompress(frame: bytes) -> bytes:
        return pa.CompressedInputStream(pa.BufferReader(frame), "lz4").read()

    assert decode_footer(packed, decompress=decompress) == blobs


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"{}", b'{"blobs":[{}]}', b'{"blobs":3}', b"\xff", b"[" * 100_000],
)
def test_a_footer_that_is_no_description_is_refused(payload):
    with pytest.raises(CorruptTable):
        decode_footer(b"PFA1" + payload + struct.pack("<iI", len(payload), 0) + b"PFA1")


@pytest.mark.parametrize("data", [b"", b"PFA1", b"PAR1" * 4, b"PFA1" + bytes(8) + b"PFA1"])
def test_what_is_no_puffin_file_is_refused(data):
    with pytest.raises(CorruptTable):
        decode_footer(data)


def test_unknown_flags_are_left_to_a_newer_library():
    with pytest.raises(NewerFormat):
        decode_footer(b"PFA1{}" + struct.pack("<iI", 2, 2) + b"PFA1")


@given(
    st.lists(st.integers(0, 2**32 - 1)),
    st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 90_000))),
)
def test_a_bitmap_of_small_numbers_becomes_the_narrow_kind(
    single: list[int], ranges: list[tuple[int, int]]
) -> None:
    wide = BitMap64(single)
    for start, length in ranges:
        wide |= BitMap64(range(start, min(start + length, 2**32)))
    assert narrow(wide) == BitMap(wide)
    wide.run_optimize()
    assert narrow(wide) == BitMap(wide)
    with pytest.raises(ValueError, match="32 bits"):
        narrow(wide | BitMap64([2**32]))
