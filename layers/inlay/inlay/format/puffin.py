"""Deletion vectors as Apache Iceberg stores them: `deletion-vector-v1` blobs in a Puffin file, each with
the row positions as a 64-bit Roaring bitmap.

Promise: Iceberg reads blobs written here and the other way round. A blob is read by offset and length
alone, as a `Vector` marker names it; the footer is for other readers and for inspection.

    blob      u32 BE length of magic + bitmap | D1 D3 39 64 | bitmap (below)
              | u32 BE CRC-32 of magic + bitmap
    file      PFA1 | blobs | PFA1 | footer JSON | u32 LE its length | 4 flag bytes | PFA1

The bitmap is in Roaring's portable serialisation, checked byte by byte: `decode_bitmap` accepts only bytes
that another implementation would read as the same set: keys, containers and values strictly ascending,
every count correct, nothing left over. The C library under `pyroaring` trusts the bytes more, so the layout
is checked here first.

    u64 number of bitmaps, then for each: u32 key (upper half of its values), 32-bit bitmap
    32-bit bitmap: u32 cookie 12346, u32 containers  |  u16 cookie 12347, u16 containers - 1, run flags
                   u16 key, u16 cardinality - 1 of each container
                   u32 offset of each container (with runs: only from 4 containers on)
                   containers: u16 values | 8 KiB bits (over 4096 values) | u16 runs, (u16 start, u16
                   length - 1) of each
    All integers are little-endian.
"""

from __future__ import annotations

import json
import operator
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from pyroaring import BitMap64

from inlay.errors import CorruptTable, NewerFormat
from inlay.record import Record, field

_COOKIE_NO_RUNS = 12346
_COOKIE_RUNS = 12347
_NO_OFFSETS_BELOW = 4
_ARRAY_MAX = 4096
_BITS_BYTES = 8192
# Positions are signed 64-bit numbers for other readers of the format.
_KEY_LIMIT = 1 << 31


def encode_bitmap(bitmap: BitMap64) -> bytes:
    """The smallest portable form: runs where they are shorter."""
    compact = bitmap.copy()
    compact.run_optimize()
    return bytes(compact.serialize())


def decode_bitmap(data: bytes) -> BitMap64:
    """The set. Raises CorruptTable unless `data` is exactly one well-formed bitmap."""
    _check(data)
    try:
        return BitMap64.deserialize(data)
    except (ValueError, IndexError) as error:
        raise _corrupt(str(error)) from None


def _corrupt(what: str) -> CorruptTable:
    return CorruptTable(f"a deletion vector's bitmap is damaged: {what}")


class _Cursor:
    """Reads little-endian integers. Raises CorruptTable past the end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) < size:
            raise _corrupt("it is cut short")
        self.at += size
        return piece

    def shorts(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}H", self.take(2 * count))

    def word(self) -> int:
        return int.from_bytes(self.take(4), "little")


def _check(data: bytes) -> None:
    cursor = _Cursor(data)
    keys = []
    for _ in range(int.from_bytes(cursor.take(8), "little")):  # a false count runs past the end
        keys.append(cursor.word())
        _check_bitmap(cursor)
    if not _ascending(keys) or (keys and keys[-1] >= _KEY_LIMIT):
        raise _corrupt("its keys are out of order or range")
    if cursor.at < len(data):
        raise _corrupt("bytes follow its end")


def _check_bitmap(cursor: _Cursor) -> None:
    start = cursor.at
    cookie = cursor.word()
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        flags = int.from_bytes(cursor.take((count + 7) // 8), "little")
    elif cookie == _COOKIE_NO_RUNS:
        count, flags = cursor.word(), 0
    else:
        raise _corrupt("it has no known cookie")
    if count > 1 << 16:
        raise _corrupt("it has too many containers")
    header = cursor.shorts(2 * count)
    if not _ascending(header[::2]):
        raise _corrupt("its containers are out of order")
    offsets = None
    if cookie == _COOKIE_NO_RUNS or count >= _NO_OFFSETS_BELOW:
        offsets = struct.unpack(f"<{count}I", cursor.take(4 * count))
    for at in range(count):
        if offsets is not None and offsets[at] != cursor.at - start:
            raise _corrupt("a container is not at its offset")
        _check_container(cursor, header[2 * at + 1] + 1, is_runs=bool(flags >> at & 1))


def _check_container(cursor: _Cursor, cardinality: int, *, is_runs: bool) -> None:
    if is_runs:
        runs = cursor.shorts(2 * cursor.shorts(1)[0])
        ends = list(map(operator.add, runs[::2], runs[1::2]))
        apart = all(map(operator.lt, ends, islice(runs, 2, None, 2)))
        true_count = sum(runs[1::2]) + len(ends) == cardinality
        if not (apart and true_count and (not ends or ends[-1] < 1 << 16)):
            raise _corrupt("a container's runs overlap or do not add up")
    elif cardinality > _ARRAY_MAX:
        if int.from_bytes(cursor.take(_BITS_BYTES), "little").bit_count() != cardinality:
            raise _corrupt("a container's bits do not add up")
    elif not _ascending(cursor.shorts(cardinality)):
        raise _corrupt("a container's values are out of order")


def _ascending(values: Iterable[int]) -> bool:
    numbers = list(values)
    return all(map(operator.lt, numbers, islice(numbers, 1, None)))


MAGIC = b"PFA1"
VECTOR_MAGIC = bytes.fromhex("d1d33964")
VECTOR_TYPE = "deletion-vector-v1"
CREATED_BY = "inlay"

# Frame of a blob: length, magic, CRC.
_FRAME_BYTES = 12
# After the footer's JSON: its length, flags, magic.
TAIL_BYTES = 12
_COMPRESSED = 1

# Iceberg's id of the metadata column `_pos`: the positions in a vector are its values.
_POSITION_FIELD = 2_147_483_645


class Blob(Record):
    """One blob as the footer describes it."""

    type: str
    offset: int
    length: int
    properties: Mapping[str, str] = field(default_factory=dict)
    compression: str | None = None

    @property
    def data_file(self) -> str | None:
        return self.properties.get("referenced-data-file")

    @property
    def cardinality(self) -> int | None:
        text = self.properties.get("cardinality", "")
        return int(text) if text.isdecimal() else None


# -- one vector -----------------------------------------------------------------------------------


def encode_vector(positions: BitMap64) -> bytes:
    """The blob for a set of row positions."""
    body = VECTOR_MAGIC + encode_bitmap(positions)
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def decode_vector(blob: bytes, *, file_rows: int | None = None) -> BitMap64:
    """The positions in a blob, all below `file_rows`. Raises CorruptTable otherwise."""
    if len(blob) < _FRAME_BYTES:
        raise CorruptTable("a deletion vector is cut short")
    body = blob[4:-4]
    if int.from_bytes(blob[:4], "big") != len(body):
        raise CorruptTable("a deletion vector does not have its stated length")
    if body[:4] != VECTOR_MAGIC:
        raise CorruptTable("a deletion vector does not start with its magic bytes")
    if int.from_bytes(blob[-4:], "big") != zlib.crc32(body):
        raise CorruptTable("a deletion vector's checksum is wrong")
    positions = decode_bitmap(body[4:])
    if file_rows is not None and len(positions) and positions.max() >= file_rows:
        raise CorruptTable(
            f"a deletion vector marks row {positions.max()} of a file of {file_rows} rows"
        )
    return positions


# -- files of vectors -----------------------------------------------------------------------------


def encode_puffin(vectors: Sequence[tuple[str, BitMap64]]) -> tuple[bytes, tuple[Blob, ...]]:
    """A file of vectors, each with the location of its data file, in the given order.

    The returned blobs state where each vector is, for its marker.
    """
    parts, blobs, at = [MAGIC], [], len(MAGIC)
    for data_file, positions in vectors:
        data = encode_vector(positions)
        properties = {"referenced-data-file": data_file, "cardinality": str(len(positions))}
        blobs.append(Blob(VECTOR_TYPE, at, len(data), properties))
        parts.append(data)
        at += len(data)
    footer = {
        "blobs": [_blob_to_json(blob) for blob in blobs],
        "properties": {"created-by": CREATED_BY},
    }
    payload = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    parts += [MAGIC, payload, struct.pack("<iI", len(payload), 0), MAGIC]
    return b"".join(parts), tuple(blobs)


def _blob_to_json(blob: Blob) -> dict[str, Any]:
    return {
        "type": blob.type,
        "fields": [_POSITION_FIELD],
        "snapshot-id": -1,  # unknown before the commit; Puffin v1 specifies -1
        "sequence-number": -1,
        "offset": blob.offset,
        "length": blob.length,
        "properties": dict(blob.properties),
    }


def footer_length(tail: bytes) -> int:
    """The size of the whole footer, leading magic included, from the file's last TAIL_BYTES or more."""
    if len(tail) < TAIL_BYTES or tail[-4:] != MAGIC:
        raise CorruptTable("an object is not a Puffin file: it does not end in PFA1")
    (payload,) = struct.unpack("<i", tail[-TAIL_BYTES:-8])
    if payload < 0:
        raise CorruptTable("a Puffin footer has a negative length")
    return len(MAGIC) + int(payload) + TAIL_BYTES


def decode_footer(
    footer: bytes, *, decompress: Callable[[bytes], bytes] | None = None
) -> tuple[Blob, ...]:
    """The blobs that a Puffin footer (the file's last `footer_length` bytes, or the file) describes.

    `decompress` turns one LZ4 frame into bytes, for compressed footers of other writers; without it
    they are refused.
    """
    length = footer_length(footer)
    if len(footer) < length:
        raise CorruptTable("a Puffin footer is cut short")
    footer = footer[-length:]
    if footer[: len(MAGIC)] != MAGIC:
        raise CorruptTable("a Puffin footer does not start with PFA1")
    payload = footer[len(MAGIC) : -TAIL_BYTES]
    flags = int.from_bytes(footer[-8:-4], "little")
    if flags & ~_COMPRESSED:
        raise NewerFormat(f"a Puffin footer has unknown flags {flags:#x}")
    if flags & _COMPRESSED:
        if decompress is None:
            raise CorruptTable(
                "a Puffin footer is LZ4-compressed",
                next_step="Read its blobs by offset and length; they are never compressed",
            )
        payload = decompress(payload)
    try:
        body = json.loads(payload)
        return tuple(_blob_from_json(blob) for blob in body["blobs"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTable(f"a Puffin footer cannot be read: {error}") from None


def _blob_from_json(body: dict[str, Any]) -> Blob:
    offset, length = int(body["offset"]), int(body["length"])
    if offset < len(MAGIC) or length < 0:
        raise ValueError("a blob is outside the file")
    properties = {str(k): str(v) for k, v in (body.get("properties") or {}).items()}
    return Blob(str(body["type"]), offset, length, properties, body.get("compression-codec"))
