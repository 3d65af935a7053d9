"""Does any byte a bucket holds tell of a secret?

Looks at every version of every object and every part of every unfinished upload: its bytes, what gzip
makes of them, the pages of every Parquet column chunk, decompressed, dictionaries included, and what its
bloom filters say. (A filter may say so of a value that never was there, one time in a hundred: which it
does is settled by the rows, so a test that passes once passes always.)
"""

from __future__ import annotations

import base64
import gzip
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.parquet.footer.thrift import decode_struct

from .bloom import claims

MAGIC = b"PAR1"
CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd", "LZ4": "lz4_raw", "BROTLI": "brotli"}


@dataclass(frozen=True)
class Secret:
    """Text or a 64-bit number, in every form it may be written down."""

    value: str | int

    @property
    def forms(self) -> list[bytes]:
        if isinstance(self.value, int):
            return [struct.pack("<q", self.value), str(self.value).encode()]
        raw = self.value.encode()
        coded = base64.urlsafe_b64encode(raw).rstrip(b"=")
        # The last characters depend on what follows.
        return [raw, coded[:-2]]


def find(store: Any, *secrets: Secret) -> list[str]:
    """Where the secrets are found: "key (how)"."""
    found: list[str] = []
    for name, body in _bodies(store):
        for how, data in views(body):
            for secret in secrets:
                if any(form in data for form in secret.forms):
                    found.append(f"{name} ({how}): {secret.value}")
        if _is_parquet(body):
            for secret in secrets:
                for filter_ in claims(body, secret.value):
                    found.append(f"{name} ({filter_}): {secret.value}")
    return found


def _bodies(store: Any) -> Iterator[tuple[str, bytes]]:
    bucket = store._bucket
    for key, versions in bucket.versions.items():
        yield f"name of {key}", key.encode()
        for version in versions:
            yield f"{key}@{version.id}", version.body
    for upload in bucket.uploads.values():
        yield f"upload of {upload.key}", upload.key.encode()
        for number, (_, content) in upload.parts.items():
            yield f"upload of {upload.key}, part {number}", content


def views(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "bytes", body
    if body[:2] == b"\x1f\x8b":
        try:
            yield "gzip", gzip.decompress(body)
        except (OSError, zlib.error):
            return
    if _is_parquet(body):
        yield from _pages(body)


def _is_parquet(body: bytes) -> bool:
    return body[:4] == MAGIC and body[-4:] == MAGIC


def _pages(body: bytes) -> Iterator[tuple[str, bytes]]:
    metadata = pq.read_metadata(pa.BufferReader(body))
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.data_page_offset
            if chunk.dictionary_page_offset and 4 <= chunk.dictionary_page_offset < start:
                start = chunk.dictionary_page_offset
            end = start + chunk.total_compressed_size
            at = start
            while at < end:
                header, at_payload = decode_struct(body, at)
                fields = _fields(header)
                size, compressed = fields[2], fields[3]
                payload = body[at_payload : at_payload + compressed]
                yield f"page at {at}", _decompress(payload, chunk.compression, size, fields)
                at = at_payload + compressed


def _fields(header: Any) -> dict[int, Any]:
    """Field id → value: the codec's keys hold the kind in their lowest four bits."""
    return {key >> 4: value for key, value in header.items()}


def _decompress(payload: bytes, codec: str, size: int, fields: dict[int, Any]) -> bytes:
    if codec == "UNCOMPRESSED" or not payload:
        return payload
    if 8 in fields:  # a version 2 data page: levels are not compressed
        v2 = _fields(fields[8])
        levels = v2.get(5, 0) + v2.get(6, 0)
        values = payload[levels:]
        # Version 2 pages that compression does not shrink are stored as they are.
        if not values or len(payload) == size:
            return payload
        return payload[:levels] + pa.decompress(values, size - levels, CODECS[codec], asbytes=True)
    return pa.decompress(payload, size, CODECS[codec], asbytes=True)
