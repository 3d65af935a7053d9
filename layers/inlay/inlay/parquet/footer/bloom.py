"""Parquet's split-block Bloom filters (parquet-format, BloomFilter.md): whether one may hold a value.

Promise: `may_hold` is False only when the value was certainly not added to the filter. Values are hashed by
XXH64 over their PLAIN encoding, as specified; `plain_bytes` gives that encoding for the types where a value
has only one.
"""

from __future__ import annotations

import struct

from inlay.format.schema import Primitive, Value
from inlay.parquet.footer.fields import Physical

BLOCK_BYTES = 32
_MASK = 2**64 - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SALTS = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)


def plain_bytes(physical: Physical, kind: Primitive, value: Value) -> bytes | None:
    """How a column of this physical type stores the value; None if that is not known here."""
    if physical is Physical.BYTE_ARRAY and isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if physical in (Physical.BYTE_ARRAY, Physical.FIXED_LEN_BYTE_ARRAY) and isinstance(
        value, bytes
    ):
        return value
    if kind.is_integer and isinstance(value, int) and physical in (Physical.INT32, Physical.INT64):
        size = 4 if physical is Physical.INT32 else 8
        return (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    return None


def may_hold(bitset: bytes, hashed: int) -> bool:
    """Whether the filter with these bits may hold the value whose PLAIN encoding has this `xxh64`."""
    blocks = len(bitset) // BLOCK_BYTES
    if not blocks:
        return False
    words = struct.unpack_from("<8I", bitset, block_of(hashed, blocks) * BLOCK_BYTES)
    return all(
        word >> (((hashed & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27) & 1
        for word, salt in zip(words, _SALTS, strict=True)
    )


def block_of(hashed: int, blocks: int) -> int:
    """Which of a filter's blocks a hash belongs to."""
    return ((hashed >> 32) * blocks) >> 32


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).

    >>> hex(xxh64(b"")), hex(xxh64(b"abc"))
    ('0xef46db3751d8e999', '0x44bc2cf5ad770999')
    """
    at, size = 0, len(data)
    if size >= BLOCK_BYTES:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + BLOCK_BYTES <= size:
            lanes = [
                _round(lane, word)
                for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at), strict=True)
            ]
            at += BLOCK_BYTES
        digest = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            digest = ((digest ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        digest = _P5
    digest = (digest + size) & _MASK
    while at + 8 <= size:
        [word] = struct.unpack_from("<Q", data, at)
        digest = (_rotated(digest ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        [half] = struct.unpack_from("<I", data, at)
        digest = (_rotated(digest ^ half * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        digest = _rotated(digest ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    digest = (digest ^ digest >> 33) * _P2 & _MASK
    digest = (digest ^ digest >> 29) * _P3 & _MASK
    return digest ^ digest >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> (64 - by)) & _MASK
