"""Frames: how every metadata object is laid down as bytes.

Promise: a frame is one line of JSON that ends in the digest of all that precedes it; a frame that was
cut short or edited by hand is refused and never half believed. Frames over `PLAIN_MAX_BYTES` are
gzip-compressed as a whole; readers tell by the first two bytes, and `zcat -f` prints both kinds.
Encoding is deterministic: equal values give equal bytes (docs/FORMAT.md, "Frames").
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar

from inlay.errors import CorruptTable, InlayError, NewerFormat
from inlay.format.snapshot import FORMAT_VERSION

# Small tables stay readable by eye; beyond this gzip saves more than plain text is worth.
PLAIN_MAX_BYTES = 2_048
# No honest metadata object is larger; a bomb is refused before it fills memory.
MAX_FRAME_BYTES = 256 * 1024 * 1024

T = TypeVar("T")

# Kinds that are laid out by name, not by column.
_OBJECTS = ("snapshot", "head", "erasure")
_GZIP_MAGIC = b"\x1f\x8b"
_DIGEST_BYTES = 8
_TAIL_BYTES = len(',"digest":""}\n') + 2 * _DIGEST_BYTES


def encode_frame(kind: str, body: dict[str, Any]) -> bytes:
    """A `kind` ("snapshot", "files", …) object as bytes."""
    text = json.dumps(
        {"inlay": FORMAT_VERSION, "kind": kind, **body},
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    head = text[:-1].encode("utf-8")
    plain = head + f',"digest":"{_digest(head)}"}}\n'.encode("ascii")
    if len(plain) <= PLAIN_MAX_BYTES:
        return plain
    # Columns of numbers gain from Huffman codes; the short matches that digits have by chance cost more
    # than they save.
    strategy = zlib.Z_DEFAULT_STRATEGY if kind in _OBJECTS else zlib.Z_FILTERED
    packer = zlib.compressobj(6, zlib.DEFLATED, 31, zlib.DEF_MEM_LEVEL, strategy)
    return packer.compress(plain) + packer.flush()


def decode_frame(kind: str, data: bytes, *, key: str) -> dict[str, Any]:
    """The body of the frame stored at `key`.

    Raises `CorruptTable` for anything that is not a whole, unedited frame of this kind, `NewerFormat`
    for one written by a later version of the format.
    """
    plain = _inflate(data, key) if data[:2] == _GZIP_MAGIC else data
    head, tail = plain[:-_TAIL_BYTES], plain[-_TAIL_BYTES:]
    try:
        body = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(
            f"{key} is not whole JSON: it was cut short or edited", key=key
        ) from error
    if not isinstance(body, dict) or not isinstance(body.get("inlay"), int):
        raise CorruptTable(f"{key} is not an object of an Inlay table", key=key)
    # The version comes first: a later format may well have another digest or other kinds.
    if body["inlay"] > FORMAT_VERSION:
        raise NewerFormat(
            f"{key} has format version {body['inlay']}; this library reads up to {FORMAT_VERSION}",
            key=key,
        )
    if body["inlay"] < 1:
        raise CorruptTable(
            f"{key} has format version {body['inlay']}, from before the format was frozen",
            key=key,
            next_step="Read the table with the library that wrote it, and write its rows anew",
        )
    if tail != f',"digest":"{_digest(head)}"}}\n'.encode("ascii"):
        raise CorruptTable(
            f"{key} does not match its own digest: it was edited or damaged",
            key=key,
            next_step="Restore the object from a backup or an earlier object version",
        )
    if body.get("kind") != kind:
        raise CorruptTable(f"{key} is a {body.get('kind')!r}, expected a {kind!r}", key=key)
    for name in ("inlay", "kind", "digest"):
        del body[name]
    return body


def _digest(head: bytes) -> str:
    return blake2b(head, digest_size=_DIGEST_BYTES).hexdigest()


def _inflate(data: bytes, key: str) -> bytes:
    try:
        inflater = zlib.decompressobj(wbits=31)
        plain = inflater.decompress(data, MAX_FRAME_BYTES)
    except zlib.error as error:
        raise CorruptTable(f"{key} is damaged gzip", key=key) from error
    if not inflater.eof or inflater.unused_data:
        raise CorruptTable(f"{key} was cut short, is too large or has a tail", key=key)
    return plain


def guarded(key: str, decode: Callable[[], T]) -> T:
    """A well-formed frame whose content is not what it should be is corrupt, whatever broke."""
    try:
        return decode()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptTable(f"{key} does not hold what the format says: {error}", key=key) from error
    except NewerFormat as error:
        raise error.about(key=key) from error
    except InlayError as error:
        raise CorruptTable(f"{key}: {error.message}", key=key) from error
