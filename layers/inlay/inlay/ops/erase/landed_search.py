"""Landed objects that ingestion will never take, searched for what an erasure names.

Promise: the key, user metadata, headers, tags and the content of each are searched, for the texts and
values of the condition; the content up to `MAX_SEARCHED_BYTES`, decompressed where it is gzip, with its
values decoded where it is Parquet that was refused or lies under a temporary name. What could not be
searched to its end may name them. Such objects stay: they are a producer's, and may be the only copy of
other people's rows. None is waited for, so nobody who may only write can keep an erasure from its receipt.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inlay.errors import ErrorKind, InlayError
from inlay.format.landing import HEAD_BYTES, LandedKind, hides_text
from inlay.format.predicate import Predicate
from inlay.ops.erase.last_look import NeverTaken, Said, said_of_object
from inlay.parquet.read.data_file import largest_group
from inlay.parquet.read.describe import parse_object_footer
from inlay.parquet.read.ranges import Objects, Source
from inlay.plan.pruning.literals import texts_of
from inlay.plan.pruning.mentions import Mentions, names_any
from inlay.storage.base import ByteRange, Got, Location, ObjectVersion

# Of one object: a producer may put many, and each is held by a task of its own.
MAX_SEARCHED_BYTES = 8 * 2**20
# Of a row group once decoded, and of the values of a file: a few KB may decode to a GB.
_MAX_DECODED_BYTES = 32 * 2**20
_MAX_VALUES = 2_000_000
_BATCH_ROWS = 1_024
# Searched at a time; they overlap, so that a text on the seam is in one of them in any spelling.
_WINDOW_BYTES = 2**20
_OVERLAP_BYTES = 16 * 1024

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"


def search_never_taken(
    objects: Objects,
    location: Location,
    version: ObjectVersion,
    kind: LandedKind,
    predicates: Mapping[str, Predicate],
) -> dict[str, NeverTaken]:
    """Searches one object for conditions by erasure: a HEAD, and a GET if it has bytes. Raises what an
    unavailable store raises."""
    texts = {name: texts_of(predicate) for name, predicate in predicates.items()}
    mentions = {name: Mentions.of(predicate) for name, predicate in predicates.items()}
    every = frozenset[str]().union(*texts.values())
    named: dict[str, str] = {}
    perhaps: dict[str, str] = {}
    source = objects.source(location.uri, version.size)
    try:
        for where, text in _places(source, version):
            is_named = text is not None and names_any(text, every)
            for name in predicates:
                if is_named and text is not None and names_any(text, texts[name]):
                    named.setdefault(name, where)
                elif text is None or mentions[name].may_select(text):
                    perhaps.setdefault(name, where)
            if len(named) == len(predicates):
                break
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            raise
        perhaps |= {name: "it could not be read" for name in predicates if name not in perhaps}

    def of(name: str) -> NeverTaken:
        if name in named:
            return NeverTaken(version, kind, "names", named[name])
        verdict: Said = "perhaps" if name in perhaps else "nothing"
        return NeverTaken(version, kind, verdict, perhaps.get(name, ""))

    return {name: of(name) for name in predicates}


def _places(source: Source, version: ObjectVersion) -> Iterator[tuple[str, bytes | None]]:
    """What there is to search, and where; None where something could not be read."""
    yield "its key", version.key.encode("utf-8", "surrogatepass")
    texts, unread = said_of_object(source)
    yield from (("its metadata", text) for *_, text in texts)
    if unread:
        yield "its tags, which may not be read", None
    if not version.size:
        return
    body = _fetched(source, version)
    if body is None:
        yield "it changed or went while it was read", None
        return
    is_whole = len(body) == version.size
    yield from (("its content", window) for window in _windows(body))
    if not is_whole:
        yield f"what is behind its first {MAX_SEARCHED_BYTES >> 20} MiB", None
    elif body.startswith(_GZIP):
        yield from _inflated(body)
    else:
        yield from _decoded(body)


def _decoded(body: bytes) -> Iterator[tuple[str, bytes | None]]:
    """What is in an object beside the texts that are there as they are."""
    if body[-4:] == _PARQUET:
        yield from _rows(body)
    elif hides_text(body[:HEAD_BYTES]):
        yield "its content, in a format that is not decoded", None


def _fetched(source: Source, version: ObjectVersion) -> bytes | None:
    with source.asking():
        answer = source.store.get(
            source.key,
            byte_range=ByteRange(0, min(version.size, MAX_SEARCHED_BYTES)),
            version_id=source.version_id,
        )
    is_same = isinstance(answer, Got) and (not version.etag or answer.etag == version.etag)
    return answer.body if isinstance(answer, Got) and is_same else None


def _windows(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), _WINDOW_BYTES):
        yield body[max(0, start - _OVERLAP_BYTES) : start + _WINDOW_BYTES]


def _inflated(body: bytes) -> Iterator[tuple[str, bytes | None]]:
    """The content of a gzip file, of all of its members."""
    compressed, room = body, MAX_SEARCHED_BYTES
    inside: list[bytes] = []
    with suppress(zlib.error):
        while compressed and room > 0:
            member = zlib.decompressobj(wbits=31)
            text = member.decompress(compressed, room)
            room -= len(text)
            inside.append(text)
            yield from (("its content, decompressed", window) for window in _windows(text))
            compressed = member.unused_data if member.eof else b""
            if not member.eof:
                break
        else:
            if not compressed:
                yield from _decoded(b"".join(inside))
                return
    yield "compressed content, which could not be read to its end", None


def _rows(body: bytes) -> Iterator[tuple[str, bytes | None]]:
    """The values of a Parquet file, as JSON has them."""
    unread = "its rows, which could not all be read", None
    try:
        described = parse_object_footer(body, size=len(body))
        leaves = sum(len(group.columns) for group in described.footer.row_groups)
        groups = max(1, len(described.footer.row_groups))
        many = described.rows * max(1, leaves // groups) > _MAX_VALUES
        if many or largest_group(described.footer) > _MAX_DECODED_BYTES:
            yield unread
            return
        file = pq.ParquetFile(pa.BufferReader(body))
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            text = json.dumps(batch.to_pylist(), default=_as_text, ensure_ascii=False)
            yield "its rows", text.encode("utf-8", "surrogatepass")
    except (InlayError, pa.ArrowException, OSError, ValueError, TypeError, OverflowError):
        yield unread


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
