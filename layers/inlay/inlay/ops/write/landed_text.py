"""Landed CSV and JSON files as rows of their table.

Promise: a text is read in the types of the table's columns, exactly, or refused: as a whole, with the place
and the reason, or up to `ingest.bad_lines` records of it one by one. These are listed, with the reason of
each, in an object beside the file before any row of the file is committed (`list_refused`); it is named for
the content, so that a repetition writes the same one. A text is streamed, pinned to the content that was
checked, and refused where it is larger than `ingest.text_bytes` once decompressed.

Columns that the table lacks are refused, by name: types are never guessed here.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from inlay.errors import UnsupportedFile
from inlay.format.landing import TextKind, delimiter_of, text_kind
from inlay.format.properties import REFUSED_FOLDER, listed
from inlay.format.schema import Schema, listed_names
from inlay.format.snapshot import Snapshot
from inlay.ops.write.content import FETCHED_BYTES, Content
from inlay.ops.write.folders import Folders, folders_of, with_folders, without_required
from inlay.parquet.arrow.conform import check_names, conformed
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.record import Record
from inlay.text.bytes import decompressed, reading
from inlay.text.connect import payload_of
from inlay.text.dates import DateFormats
from inlay.text.delimited import CsvFile
from inlay.text.format import TextFormat
from inlay.text.json_objects import JsonFile, Shape, plain_object
from inlay.text.refused import Refusals


def text_format(snapshot: Snapshot) -> TextFormat:
    """How the table's landed texts are written. Raises `InvalidRequest`."""
    properties = snapshot.settings
    delimiter = properties.text("ingest.delimiter")
    text = TextFormat(
        null=listed(properties.text("ingest.null")),
        columns=listed_names(properties.text("ingest.columns"), plain=True),
        delimiter="\t" if delimiter == "tab" else delimiter or None,
        encoding=properties.text("ingest.encoding"),
        dates=DateFormats.parse(listed(properties.text("ingest.date_formats"), ";")),
        options="ingest.",
    )
    text.check()
    return text


def landed_kind(key: str, snapshot: Snapshot) -> TextKind | None:
    """As what text an object with this key is read that is no Parquet, if as any."""
    formats = listed(snapshot.settings.text("ingest.formats"))
    return text_kind(key.rpartition("/")[2], formats)


class LandedText(Record):
    content: Content
    kind: TextKind

    @property
    def name(self) -> str:
        return self.content.name

    def file(
        self, snapshot: Snapshot, shape: Shape = plain_object, *, limit: int | None = None
    ) -> CsvFile | JsonFile:
        """Reads the names of its columns; up to `limit` records may be refused (the table's by default).
        Raises `UnreadableFile`, `UnsupportedFile`."""
        properties, text = snapshot.settings, text_format(snapshot)
        opened = self._opener(snapshot)
        limit = properties.number("ingest.bad_lines") if limit is None else limit
        with reading(self.name, text):
            delimiter = delimiter_of(self.kind)
            if delimiter is None:
                return JsonFile(self.name, opened, text, shape=shape, limit=limit)
            return CsvFile(self.name, opened, text, delimiter, snapshot.schema.names, limit=limit)

    def _opener(self, snapshot: Snapshot) -> Callable[[], Any]:
        limit = snapshot.settings.number("ingest.text_bytes")

        def opened() -> Any:
            source = self.content.opened()
            magic = source.read(4)
            source.seek(0)
            stream = decompressed(pa.PythonFile(source, mode="r"), magic)
            return pa.PythonFile(_Limited(stream, limit, self.name), mode="r")

        return opened


class _Limited(io.RawIOBase):
    """A stream that is refused where it goes on for too long: a few KB may decompress to a TB."""

    def __init__(self, source: Any, limit: int, name: str) -> None:
        self._source = source
        self._limit = limit
        self._left = limit
        self._name = name

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        bytes_read: bytes = self._source.read(FETCHED_BYTES if size < 0 else size)
        self._left -= len(bytes_read)
        if self._left < 0:
            raise UnsupportedFile(
                f"{self._name} takes more than the {self._limit:,} bytes of ingest.text_bytes once "
                "decompressed",
                next_step="Write smaller files, or Parquet; or set ingest.text_bytes, if an invocation can "
                "read so much",
            )
        return bytes_read


class TextRows(Record):
    """The rows of a text as the table will have them; `refused` are known once all were read."""

    batches: Iterator[pa.RecordBatch]
    refused: Refusals


def rows_of(text: LandedText, snapshot: Snapshot) -> TextRows:
    """Raises `SchemaMismatch` for columns that do not fit; reading the rows raises `UnreadableFile`."""
    schema = snapshot.schema
    file = text.file(snapshot, described_object(schema))
    folders = folders_of(text.content.location.key, file.names, snapshot)
    kinds = schema_to_arrow(schema, with_ids=False)
    check_names(pa.schema([(n, pa.null()) for n in file.names if n not in kinds.names]), schema)
    required = {f.name for f in schema.fields if not f.nullable}
    with reading(text.name, text_format(snapshot)):
        reader = file.reader(kinds, required)
    return TextRows(_rows(text, reader, snapshot, folders), file.refusals)


def described_object(schema: Schema) -> Shape:
    """Objects as they are, or of Kafka Connect with their schema beside them."""
    columns = frozenset(schema.names)
    return lambda value: plain_object(payload_of(value, columns))


def _rows(
    text: LandedText, reader: pa.RecordBatchReader, snapshot: Snapshot, folders: Folders
) -> Iterator[pa.RecordBatch]:
    schema = snapshot.schema
    loose = without_required(schema, folders)
    loose_fields = {f.name: f for f in loose.fields}
    present = Schema(
        schema.id, tuple(loose_fields[name] for name in reader.schema.names), schema.version
    )
    with reading(text.name, text_format(snapshot)):
        batches = conformed(reader, present, loose)
        if folders:
            batches = with_folders(batches, schema_to_arrow(schema), folders)
        declared = Declared.of(snapshot)
        for batch in batches:
            declared.check(batch)
            yield batch


def list_refused(text: LandedText, identity: str, refused: Refusals) -> str | None:
    """Writes the list of the records that were refused, if there are some: its key."""
    if not refused.listed:
        return None
    folder, _, name = text.content.location.key.rpartition("/")
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    key = f"{folder}/{REFUSED_FOLDER}/{name}.{digest}.jsonl".lstrip("/")
    lines = [
        json.dumps(
            {refused.unit: one.place, "reason": one.reason, "record": one.record},
            ensure_ascii=False,
            default=str,
        )
        for one in sorted(refused.listed, key=lambda one: one.place)
    ]
    text.content.store.put(key, ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass"))
    return key
