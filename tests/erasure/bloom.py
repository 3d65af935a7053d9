"""Whether a Parquet bloom filter may hold a value (parquet-format, BloomFilter.md), by the specification.

Written for the tests alone, so that it shares no mistake with the filter's writer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.thrift import decode_struct

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
SALTS = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
INT64, BYTE_ARRAY = 2, 6


def claims(body: bytes, value: str | int) -> Iterator[str]:
    """The bloom filters of a Parquet file that say `value` may be in their chunk."""
    kind = INT64 if isinstance(value, int) else BYTE_ARRAY
    plain = struct.pack("<q", value) if isinstance(value, int) else value.encode()
    for name, chunk_kind, bits in filters(body):
        if chunk_kind == kind and may_hold(bits, plain):
            yield name


def filters(body: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The bloom filters of a Parquet file: whose each is, the physical type, the bits."""
    footer = decode_footer(body, file_size=len(body))
    for group in footer.row_groups:
        for chunk in group.columns:
            if chunk.bloom_offset is not None:
                header, bits = decode_struct(body, chunk.bloom_offset)
                size = next(value for key, value in header.items() if key >> 4 == 1)
                name = f"bloom filter of {'.'.join(chunk.path)} in row group {group.ordinal}"
                yield name, chunk.type, body[bits : bits + size]


def may_hold(bits: bytes, value: bytes) -> bool:
    hashed = xxh64(value)
    block = ((hashed >> 32) * (len(bits) // 32)) >> 32
    words = struct.unpack_from("<8I", bits, 32 * block)
    low = hashed & 0xFFFFFFFF
    return all(
        word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in zip(words, SALTS, strict=True)
    )


def xxh64(data: bytes) -> int:
    """
    >>> hex(xxh64(b"")), hex(xxh64(b"abc"))
    ('0xef46db3751d8e999', '0x44bc2cf5ad770999')
    """
    at, length = 0, len(data)
    if length >= 32:
        lanes = [P1 + P2 & MASK, P2, 0, -P1 & MASK]
        while at + 32 <= length:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        found = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * P1 + P4) & MASK
    else:
        found = P5
    found = (found + length) & MASK
    while at + 8 <= length:
        [word] = struct.unpack_from("<Q", data, at)
        found = (_rotated(found ^ _round(0, word), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= length:
        [word] = struct.unpack_from("<I", data, at)
        found = (_rotated(found ^ word * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ byte * P5 & MASK, 11) * P1 & MASK
    found = (found ^ found >> 33) * P2 & MASK
    found = (found ^ found >> 29) * P3 & MASK
    return found ^ found >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * P2) & MASK, 31) * P1 & MASK


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & MASK
