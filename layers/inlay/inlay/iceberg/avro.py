"""Avro object container files, as far as Iceberg's manifests and manifest lists need them.

Promise: `encode_avro` writes records by a schema so that any Avro reader gets them back; `decode_avro`
reads files of any writer, by the schema in the file. Codecs: null and deflate. Records are dicts by field
name; a map whose keys are not text is, as in Iceberg, an array of records of `key` and `value`. Damaged
bytes raise `CorruptTable`, other codecs `UnsupportedTable`. (Apache Avro 1.11, specification.)
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inlay.errors import CorruptTable, UnsupportedTable
from inlay.record import Mutable, Record

MAGIC = b"Obj\x01"
# Records of a block: a reader holds one block at a time.
BLOCK_RECORDS = 4_096
# Nesting of a schema; Iceberg's have six levels.
MAX_DEPTH = 32
# Size limit of one inflated block: the largest manifest written here is a tenth of it.
MAX_BLOCK_BYTES = 256 * 1024 * 1024

Writer = Callable[[bytearray, Any], None]
Reader = Callable[["_Input"], Any]


def encode_avro(
    schema: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
    *,
    metadata: Mapping[str, str],
    sync: bytes,
) -> bytes:
    """A container file of `records`; `sync` are 16 bytes that mark the ends of its blocks."""
    out = bytearray(MAGIC)
    header = {
        "avro.schema": json.dumps(schema, separators=(",", ":")),
        "avro.codec": "deflate",
        **metadata,
    }
    _long(out, len(header))
    for key, text in header.items():
        _bytes(out, key.encode())
        _bytes(out, text.encode())
    out += b"\x00" + sync
    write = _writer(schema)
    block, count = bytearray(), 0
    for record in records:
        write(block, record)
        count += 1
        if count == BLOCK_RECORDS:
            _block(out, block, count, sync)
            block, count = bytearray(), 0
    if count:
        _block(out, block, count, sync)
    return bytes(out)


def _block(out: bytearray, block: bytearray, count: int, sync: bytes) -> None:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(bytes(block)) + deflate.flush()
    _long(out, count)
    _bytes(out, body)
    out += sync


def _long(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _bytes(out: bytearray, value: bytes) -> None:
    _long(out, len(value))
    out += value


def _writer(schema: Any) -> Writer:
    if isinstance(schema, list):
        null, some = schema  # every union here is of null and one type
        assert null == "null"
        inner = _writer(some)

        def optional(out: bytearray, value: Any) -> None:
            if value is None:
                out.append(0)
            else:
                out.append(2)
                inner(out, value)

        return optional
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "record":
            fields = [(f["name"], _writer(f["type"])) for f in schema["fields"]]

            def record(out: bytearray, value: Any) -> None:
                for name, write in fields:
                    write(out, value.get(name))

            return record
        case "array":
            item = _writer(schema["items"])

            def array(out: bytearray, values: Any) -> None:
                if values:
                    _long(out, len(values))
                    for value in values:
                        item(out, value)
                out.append(0)

            return array
        case "int" | "long":
            return _long
        case "string":
            return lambda out, value: _bytes(out, value.encode())
        case "bytes":
            return _bytes
        case "fixed":
            return lambda out, value: out.extend(value)
        case "boolean":
            return lambda out, value: out.append(1 if value else 0)
        case "float":
            return lambda out, value: out.extend(struct.pack("<f", value))
        case "double":
            return lambda out, value: out.extend(struct.pack("<d", value))
        case dict():
            return _writer(kind)
        case _:
            raise ValueError(f"no Avro type: {kind!r}")


# -- reading --------------------------------------------------------------------------------------


class AvroFile(Record):
    """`metadata` is the file's own, the records are by its own schema."""

    metadata: Mapping[str, str]
    records: tuple[dict[str, Any], ...]


class _Input(Mutable):
    data: bytes
    at: int = 0

    def take(self, length: int) -> bytes:
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise CorruptTable("an Avro file is cut short")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def long(self) -> int:
        shift = value = 0
        while True:
            if self.at >= len(self.data) or shift > 63:
                raise CorruptTable("an Avro file is cut short")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def bytes(self) -> bytes:
        return self.take(self.long())


def decode_avro(data: bytes) -> AvroFile:
    """All records of a container file. Raises `CorruptTable`."""
    source = _Input(data)
    if source.take(4) != MAGIC:
        raise CorruptTable("an object is not an Avro file")
    metadata: dict[str, str] = {}
    try:
        for _ in _blocks(source):
            key = source.bytes().decode()
            metadata[key] = source.bytes().decode("utf-8", "replace")
        sync = source.take(16)
        read = _reader(json.loads(metadata["avro.schema"]), {}, 0)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTable(f"an Avro file has no readable head: {error}") from None
    codec = metadata.get("avro.codec", "null")
    if codec not in ("null", "deflate"):
        raise UnsupportedTable(
            f"an Avro file is compressed with {codec[:20]!r}, which Inlay lacks",
            next_step="Write the source's manifests again with deflate (rewrite_manifests; the default)",
        )
    records: list[dict[str, Any]] = []
    while source.at < len(data):
        count, body = source.long(), source.bytes()
        if source.take(16) != sync:
            raise CorruptTable("an Avro file has a block that does not end at its stated size")
        if codec == "deflate":
            body = inflate(body, -15, MAX_BLOCK_BYTES, "an Avro block")
        block = _Input(body)
        if not 0 <= count <= len(body):
            raise CorruptTable("an Avro block states more records than it has bytes")
        records.extend(read(block) for _ in range(count))
    return AvroFile(metadata, tuple(records))


def inflate(data: bytes, window: int, limit: int, what: str) -> bytes:
    """`data` decompressed, at most `limit` bytes of it. `window` is zlib's `wbits`: -15 of a raw stream,
    31 of gzip. Raises `CorruptTable`, which names `what`."""
    stream = zlib.decompressobj(window)
    try:
        inflated = stream.decompress(data, limit)
    except zlib.error as error:
        raise CorruptTable(f"{what} is damaged: {error}") from None
    if not stream.eof:
        raise CorruptTable(f"{what} is cut short or too large")
    return inflated


def _blocks(source: _Input) -> Iterable[int]:
    """One iteration for each item of an array or map."""
    while count := source.long():
        if count < 0:
            source.long()  # bytes of the block
            count = -count
        if count > len(source.data):
            raise CorruptTable("an Avro array says it holds more than there is")
        yield from range(count)


def _reader(schema: Any, named: dict[str, Reader], depth: int) -> Reader:
    if depth > MAX_DEPTH:
        raise CorruptTable("an Avro schema is nested too deeply")
    if isinstance(schema, list):
        branches = [_reader(s, named, depth + 1) for s in schema]

        def union(source: _Input) -> Any:
            at = source.long()
            if not 0 <= at < len(branches):
                raise CorruptTable("an Avro union has no such branch")
            return branches[at](source)

        return union
    if isinstance(schema, str) and schema in named:
        return named[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _reader(kind, named, depth + 1)
    match kind:
        case "record":
            fields = [(f["name"], _reader(f["type"], named, depth + 1)) for f in schema["fields"]]
            reader: Reader = lambda source: {name: read(source) for name, read in fields}  # noqa: E731
        case "array":
            item = _reader(schema["items"], named, depth + 1)
            reader = lambda source: [item(source) for _ in _blocks(source)]  # noqa: E731
        case "map":
            value = _reader(schema["values"], named, depth + 1)
            reader = lambda source: {  # noqa: E731
                source.bytes().decode(): value(source) for _ in _blocks(source)
            }
        case "fixed":
            size = int(schema["size"])
            reader = lambda source: source.take(size)  # noqa: E731
        case "null":
            return lambda source: None
        case "int" | "long":
            return _Input.long
        case "string":
            return lambda source: source.bytes().decode("utf-8", "replace")
        case "bytes":
            return _Input.bytes
        case "boolean":
            return lambda source: source.take(1) != b"\x00"
        case "float":
            return lambda source: struct.unpack("<f", source.take(4))[0]
        case "double":
            return lambda source: struct.unpack("<d", source.take(8))[0]
        case "enum":
            symbols = list(schema["symbols"])
            reader = lambda source: symbols[source.long()]  # noqa: E731
        case _:
            raise CorruptTable(f"an Avro schema has an unknown type {str(kind)[:40]!r}")
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = reader
    return reader
