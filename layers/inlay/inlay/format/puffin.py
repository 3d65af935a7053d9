"""Deletion vectors as Apache Iceberg stores them: `deletion-vector-v1` blobs in a Puffin file.

Promise: Iceberg reads blobs written here and the other way round. A blob is read by offset and length
alone, as a `Vector` marker names it; the footer is for other readers and for inspection.

    blob      u32 BE length of magic + bitmap | D1 D3 39 64 | bitmap (`format.roaring`)
              | u32 BE CRC-32 of magic + bitmap
    file      PFA1 | blobs | PFA1 | footer JSON | u32 LE its length | 4 flag bytes | PFA1
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from inlay.errors import CorruptTable, NewerFormat
from inlay.format.roaring import decode_bitmap, encode_bitmap

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


@dataclass(frozen=True, slots=True)
class Blob:
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
        found = self.properties.get("cardinality", "")
        return int(found) if found.isdecimal() else None


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
        found = json.loads(payload)
        return tuple(_blob_from_json(blob) for blob in found["blobs"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptTable(f"a Puffin footer cannot be read: {error}") from None


def _blob_from_json(found: dict[str, Any]) -> Blob:
    offset, length = int(found["offset"]), int(found["length"])
    if offset < len(MAGIC) or length < 0:
        raise ValueError("a blob lies outside the file")
    properties = {str(k): str(v) for k, v in (found.get("properties") or {}).items()}
    return Blob(str(found["type"]), offset, length, properties, found.get("compression-codec"))
