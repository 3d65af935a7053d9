"""Frames: how every metadata object is stored as bytes.

Promise: a frame is one line of JSON that ends in the digest of everything before it; a frame that was cut
short or edited is refused as a whole. Frames over `PLAIN_MAX_BYTES` are gzip-compressed as a whole;
readers recognise them by the first two bytes, and `zcat -f` prints both kinds. Encoding is deterministic:
equal values give equal bytes (docs/FORMAT.md, "Frames").
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar

from inlay.errors import CorruptTable, InlayError, NewerFormat
from inlay.format.snapshot import FORMAT_VERSION

# Small tables stay readable as text; beyond this, compression is worth more.
PLAIN_MAX_BYTES = 2_048
# No valid metadata object is larger; a decompression bomb is refused before it fills memory.
MAX_FRAME_BYTES = 256 * 1024 * 1024
# Up to this size a text is parsed before its digest is checked, so that an error says more.
EASY_BYTES = 1024 * 1024
_PIECE_BYTES = 64 * 1024

T = TypeVar("T")

# Kinds that are stored by name, not by column.
_OBJECTS = ("snapshot", "head", "erasure")
_GZIP_MAGIC = b"\x1f\x8b"
_DIGEST_BYTES = 8
_TAIL_BYTES = len(',"digest":""}\n') + 2 * _DIGEST_BYTES
_VERSION = re.compile(rb'\{"inlay":(\d{1,9})[,}]')


def encode_frame(kind: str, body: dict[str, Any], *, plain_bytes: int = PLAIN_MAX_BYTES) -> bytes:
    """An object of `kind` ("snapshot", "files", …) as bytes, compressed if larger than `plain_bytes`."""
    text = json.dumps(
        {"inlay": FORMAT_VERSION, "kind": kind, **body},
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    head = text[:-1].encode("utf-8")
    plain = head + _ending(_digest(head))
    if len(plain) <= plain_bytes:
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
    # The version is checked first: a later format may have another digest or other kinds.
    if body["inlay"] > FORMAT_VERSION:
        raise _newer(key, body["inlay"])
    if body["inlay"] < 1:
        raise CorruptTable(
            f"{key} has format version {body['inlay']}, from before the format was frozen",
            key=key,
            next_step="Read the table with the library that wrote it, and write its rows to a new table",
        )
    if tail != _ending(_digest(head)):
        raise _damaged(key)
    if body.get("kind") != kind:
        raise CorruptTable(f"{key} is a {body.get('kind')!r}, expected a {kind!r}", key=key)
    for name in ("inlay", "kind", "digest"):
        del body[name]
    return body


def _digest(head: bytes) -> str:
    return blake2b(head, digest_size=_DIGEST_BYTES).hexdigest()


def _inflate(data: bytes, key: str) -> bytes:
    """The text of a compressed frame. One larger than `EASY_BYTES` is first inflated piece by piece and
    kept only if it is a frame: a decompression bomb costs time but no memory."""
    size = _check_pieces(data, key)
    try:
        return zlib.decompress(data, wbits=31, bufsize=max(size, 1))
    except zlib.error as error:
        raise CorruptTable(f"{key} is damaged gzip", key=key) from error


def _check_pieces(data: bytes, key: str) -> int:
    """The size of the text. Raises `CorruptTable` or `NewerFormat` unless it is small or ends in the
    digest of everything before it."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    opening, held, size = b"", b"", 0
    inflater = zlib.decompressobj(wbits=31)
    left = data
    try:
        while not inflater.eof and (left or size == 0):
            piece = inflater.decompress(left, _PIECE_BYTES)
            if not piece and not inflater.eof and not inflater.unconsumed_tail:
                break  # cut short
            left = inflater.unconsumed_tail
            size += len(piece)
            if size > MAX_FRAME_BYTES:
                break
            opening = opening or piece[:100]
            held += piece
            digest.update(held[:-_TAIL_BYTES])
            held = held[-_TAIL_BYTES:]
    except zlib.error as error:
        raise CorruptTable(f"{key} is damaged gzip", key=key) from error
    if not inflater.eof or inflater.unused_data:
        raise CorruptTable(
            f"{key} was cut short, is too large or has extra bytes at its end", key=key
        )
    if size <= EASY_BYTES or held == _ending(digest.hexdigest()):
        return size
    if (said := _VERSION.match(opening)) and int(said[1]) > FORMAT_VERSION:
        raise _newer(key, int(said[1]))
    raise _damaged(key)


def _ending(digest: str) -> bytes:
    return f',"digest":"{digest}"}}\n'.encode("ascii")


def _newer(key: str, version: int) -> NewerFormat:
    return NewerFormat(
        f"{key} has format version {version}; this library reads up to {FORMAT_VERSION}", key=key
    )


def _damaged(key: str) -> CorruptTable:
    return CorruptTable(
        f"{key} does not match its own digest: it was edited or damaged",
        key=key,
        next_step="Restore the object from a backup or an earlier object version",
    )


def guarded(key: str, decode: Callable[[], T]) -> T:
    """Turns any failure to decode a well-formed frame into `CorruptTable`."""
    try:
        return decode()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise CorruptTable(
            f"{key} does not hold what the format requires: {error}", key=key
        ) from error
    except NewerFormat as error:
        raise error.about(key=key) from error
    except InlayError as error:
        raise CorruptTable(f"{key}: {error.message}", key=key) from error
