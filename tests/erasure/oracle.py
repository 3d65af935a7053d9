"""Does any byte in a bucket disclose a secret?

Searches every version of every object and every part of every unfinished upload: its bytes, its user
metadata, tags and headers, its gzip content, every text and byte string of its JSON, the pages of every
Parquet column chunk, decompressed, dictionaries included, and its bloom filters. (A filter may match a
value that never was there, one time in a hundred: the rows determine which, so a test that passes once
passes always.) `guess` searches for digests of guesses, by every plain hash function in use.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.parquet.footer.thrift import decode_struct

from .bloom import claims, xxh64

MAGIC = b"PAR1"
CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd", "LZ4": "lz4_raw", "BROTLI": "brotli"}


@dataclass(frozen=True)
class Secret:
    """Text or a 64-bit number, in every form it may be written down."""

    value: str | int

    @cached_property
    def forms(self) -> list[bytes]:
        if isinstance(self.value, int):
            return [struct.pack("<q", self.value), str(self.value).encode()]
        raw = self.value.encode()
        coded = base64.urlsafe_b64encode(raw).rstrip(b"=")
        escaped = json.dumps(self.value)[1:-1]
        again = json.dumps(escaped)[1:-1]
        # The last characters depend on what follows.
        return list(dict.fromkeys([raw, coded[:-2], escaped.encode(), again.encode()]))


def _blake2b(size: int, data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()


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


DIGESTS: list[Callable[[bytes], bytes]] = [
    *(partial(_blake2b, size) for size in (8, 12, 16, 20, 32, 64)),
    *(
        lambda data, name=name: hashlib.new(name, data, usedforsecurity=False).digest()
        for name in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2s", "sha3_256")
    ),
    lambda data: zlib.crc32(data).to_bytes(4, "big"),
    lambda data: struct.pack("<Q", xxh64(data)),
]


def guess(store: Any, texts: Iterable[str]) -> list[str]:
    """Which of these texts somebody who can read the bucket, and has no key, can confirm, and where."""
    digests: dict[bytes, str] = {}
    for text in texts:
        for digest in DIGESTS:
            found = digest(text.encode())
            if len(found) >= 8:
                digests |= {found: text, found.hex().encode(): text}
                digests[base64.urlsafe_b64encode(found).rstrip(b"=")[:-1]] = text
    told = []
    for name, body in _bodies(store):
        for how, data in views(body):
            told += [f"{name} ({how}): {text}" for form, text in digests.items() if form in data]
    return told


def _bodies(store: Any) -> Iterator[tuple[str, bytes]]:
    bucket = store._bucket
    for key, versions in bucket.versions.items():
        yield f"name of {key}", key.encode()
        for version in versions:
            yield f"{key}@{version.id}", version.body
            yield f"metadata of {key}@{version.id}", repr(dict(version.metadata)).encode()
            yield (
                f"headers of {key}@{version.id}",
                unquote_plus(repr(dict(version.headers))).encode(),
            )
            yield f"ETag of {key}@{version.id}", version.etag.encode()
    for upload in bucket.uploads.values():
        yield f"upload of {upload.key}", upload.key.encode()
        described = repr((dict(upload.metadata), dict(upload.headers)))
        yield f"headers of the upload of {upload.key}", unquote_plus(described).encode()
        for number, (_, content) in upload.parts.items():
            yield f"upload of {upload.key}, part {number}", content


def views(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "bytes", body
    plain = body
    if body[:2] == b"\x1f\x8b":
        try:
            plain = gzip.decompress(body)
        except (OSError, zlib.error):
            return
        yield "gzip", plain
    if plain[:1] == b"{":
        yield from _texts(plain)
    if _is_parquet(body):
        yield from _pairs(body)
        yield from _pages(body)


def _pairs(body: bytes) -> Iterator[tuple[str, bytes]]:
    """What the values of key-value pairs stand for, where they are Base64 (Arrow's schema)."""
    for name, value in (pq.read_metadata(pa.BufferReader(body)).metadata or {}).items():
        with suppress(ValueError):
            yield f"Base64 of {name!r}", base64.b64decode(value, validate=True)


def _texts(plain: bytes) -> Iterator[tuple[str, bytes]]:
    """Every text in a JSON document, unescaped, and the bytes it stands for if it is base64url."""
    try:
        stack = [json.loads(plain)]
    except ValueError:
        return
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [*node.keys(), *node.values()]
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, str):
            yield "JSON text", node.encode("utf-8", "surrogatepass")
            with suppress(ValueError):
                yield "base64 in JSON", base64.urlsafe_b64decode(node + "=" * (-len(node) % 4))


def _is_parquet(body: bytes) -> bool:
    return body[:4] == MAGIC and body[-4:] == MAGIC


def _pages(body: bytes) -> Iterator[tuple[str, bytes]]:
    metadata = pq.read_metadata(pa.BufferReader(body))
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            start = chunk.data_page_offset
            # A group without rows has a dictionary at most, and offset 0 for the rest.
            if chunk.dictionary_page_offset and 4 <= chunk.dictionary_page_offset < (
                start or 1 << 62
            ):
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
