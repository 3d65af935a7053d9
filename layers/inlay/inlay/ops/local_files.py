"""Rows from local files and into them: which format a file has, compressed or not, or standard input.

Promise: a file is streamed, never held whole; a file that cannot be read or written is a typed error
that names it. CSV and JSON are read as the table's types, so that "2026-01-31" is a date where the
column is one.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import pyarrow as pa

from inlay.errors import InvalidRequest, SchemaMismatch, UnreadableFile
from inlay.format.landing import TextKind, delimiter_of
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.write.folders import check_folders
from inlay.parquet.arrow.fits import check_parquet_types
from inlay.parquet.arrow.pieces import narrow, pieces
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.arrow.words import words_of
from inlay.plan.change_records import Operations
from inlay.record import Record
from inlay.text.bytes import compression_of, decompressed, reading
from inlay.text.connect import RecordShape
from inlay.text.dates import DateFormats
from inlay.text.delimited import INFER_ROWS, CsvFile
from inlay.text.format import TextFormat
from inlay.text.json_objects import JsonFile
from inlay.text.written import write_csv, write_json

if TYPE_CHECKING:
    import pyarrow.parquet as pq

PLAIN = TextFormat()
# Standard input, or output.
STANDARD = "-"

FileKind = TextKind | Literal["parquet", "arrow"]
# By what a file's name ends in, or as it is said.
_KIND_OF: dict[str, FileKind] = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "arrow",
    "feather": "arrow",
    "ipc": "arrow",
}
FORMATS = ("parquet", "csv", "tsv", "json", "jsonl", "arrow")
_COMPRESSED = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_READ = (
    "Use .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .arrow or .feather, also with .gz or .zst, or say "
    "it by --format"
)
_WRITE = (
    "Use .parquet, .csv, .tsv, .json or .jsonl, the texts also with .gz or .zst. Without --output rows "
    "go to stdout"
)
# Standard input up to this many bytes stays in memory, more goes to a temporary file.
_SPOOLED = 64 << 20


class Inferred(Record):
    """A schema, and where it was inferred from values how many rows these were. `dates`: columns of dates
    that are not in ISO's form, and are texts therefore."""

    schema: pa.Schema
    rows: int | None = None
    whole: bool = True
    dates: tuple[str, ...] = ()


class LocalFiles(Record):
    """Local files, and how those that are text are written."""

    paths: tuple[str, ...]
    text: TextFormat

    @staticmethod
    def of(
        *paths: str,
        null: Sequence[str] = (),
        delimiter: str | None = None,
        encoding: str = "utf-8",
        format: str | None = None,
        date_formats: Sequence[str] = (),
    ) -> LocalFiles:
        """Raises `InvalidRequest`."""
        text = TextFormat(
            null=tuple(null),
            delimiter="\t" if delimiter in ("tab", "\\t") else delimiter,
            encoding=encoding,
            format=format,
            dates=DateFormats.parse(date_formats),
        )
        text.check()
        return LocalFiles(paths, text)

    def columns(self) -> Inferred:
        """Those of the first file."""
        return read_schema(self.paths[0], self.text)

    def rows(self, table: Schema, *, even: bool = False) -> pa.RecordBatchReader:
        """All rows, for a table of these columns. `even`: what one row of a JSON file lacks, all must
        lack."""
        return read_files(self.paths, schema_to_arrow(table, with_ids=False), self.text, even=even)

    def keys(
        self, table: Schema, id_column: str | None = None
    ) -> tuple[pa.Table, list[str] | None]:
        """Keys of rows, and the ids in a column beside them."""
        columns = schema_to_arrow(table, with_ids=False)
        if id_column is not None:
            if id_column in columns.names:
                columns = columns.remove(columns.get_field_index(id_column))
            columns = columns.append(pa.field(id_column, pa.string()))
        rows = read_files(self.paths, columns, self.text, even=True).read_all()
        if id_column is None:
            return rows, None
        if id_column not in rows.column_names:
            raise InvalidRequest(f"the file of keys has no column {id_column!r}")
        ids = rows[id_column]
        if ids.null_count:
            raise InvalidRequest("a key of the file has no id", next_step="Give each row one")
        return rows.drop_columns([id_column]), ids.to_pylist()

    def change_records(
        self, table: Snapshot, column: str | None, operations: str | None
    ) -> pa.RecordBatchReader:
        """Rows with what each of them does: `column`, in a producer's words (`operations`)."""
        columns, shape = change_columns(table, column, operations)
        return read_files(self.paths, columns, self.text, records=shape)

    def write(self, reader: pa.RecordBatchReader) -> int:
        """All rows to the one file, or to standard output as CSV or JSON; returns how many."""
        [path] = self.paths
        if path != STANDARD:
            return write_file(reader, path, self.text)
        if _named(self.text.format) == "json":
            return write_json(reader, sys.stdout)
        if self.text.encoding != "utf-8" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding=self.text.encoding)
        return write_csv(reader, sys.stdout, self.text)


def change_columns(
    table: Snapshot, column: str | None, operations: str | None
) -> tuple[pa.Schema, Callable[[], RecordShape]]:
    """The columns of change records of a table, and how each record is read."""
    columns = schema_to_arrow(table.schema, with_ids=False)
    known = None
    shape = partial(RecordShape, columns=frozenset(columns.names), keys=table.key_names)
    if column is not None or operations is not None:
        known = Operations.of(operations, column=column)
        for name in sorted(known.columns.difference(columns.names)):
            columns = columns.append(pa.field(name, pa.string()))
    return columns, partial(shape, known)


def rows_of_objects(
    rows: Sequence[Mapping[str, Any]],
    columns: pa.Schema,
    *,
    even: bool = False,
    records: Callable[[], RecordShape] | None = None,
) -> pa.RecordBatchReader:
    """Rows that are objects of JSON, as a file of them would be read."""
    body = json.dumps(rows).encode()
    return _reader("rows", "json", partial(io.BytesIO, body), columns, PLAIN, even, records)


def read_files(
    paths: Sequence[str],
    schema: pa.Schema,
    text: TextFormat = PLAIN,
    *,
    even: bool = False,
    records: Callable[[], RecordShape] | None = None,
) -> pa.RecordBatchReader:
    """All rows of the files, one after the other, for a table of `schema`. Files may differ in the
    order of their columns and may lack columns that the table lets be null. `even`: what one row of a
    JSON file lacks, all must lack. `records`: what values of JSON are change records."""
    readers = [read_file(path, schema, text, even=even, records=records) for path in paths]
    for path, reader in zip(paths, readers, strict=True):
        check_folders(Path(path).absolute().as_posix(), reader.schema.names, schema.names)
        if set(reader.schema.names) != set(readers[0].schema.names):
            raise SchemaMismatch(
                f"{path} has other columns than {paths[0]}",
                next_step="Append files of different columns by commands of their own",
            )
    first = readers[0].schema
    batches = (
        _like(piece, first, path)
        for path, reader in zip(paths, readers, strict=True)
        for batch in reader
        for piece in pieces(batch)
    )
    return pa.RecordBatchReader.from_batches(first, batches)


def _like(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        columns = [_cast(batch.column(field.name), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            f"{path} has other types than the first file: {words_of(error)}",
            next_step="Append files of different types by commands of their own",
        ) from error


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type != kind and pa.types.is_nested(column.type) and "view" not in str(column.type):
        # Arrow refuses 64-bit offsets for where they begin: those of a copy begin at 0.
        column = column.take(pa.arange(0, len(column)))
    return column if column.type == kind else narrow(column).cast(kind)


def _naming(path: str, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The reader's batches; errors met on the way name the file."""
    with _reading(path):
        yield from reader


def read_file(
    path: str,
    schema: pa.Schema,
    text: TextFormat = PLAIN,
    *,
    even: bool = False,
    records: Callable[[], RecordShape] | None = None,
) -> pa.RecordBatchReader:
    """The rows of one local file; "-" is standard input."""
    text.check()
    kind, opened = _source(path, text)
    with _reading(path):
        reader = _reader(path, kind, opened, schema, text, even, records)
    return pa.RecordBatchReader.from_batches(reader.schema, _naming(path, reader))


def _reader(
    path: str,
    kind: FileKind,
    opened: Callable[[], Any],
    schema: pa.Schema,
    text: TextFormat,
    even: bool,
    records: Callable[[], RecordShape] | None,
) -> pa.RecordBatchReader:
    if kind == "parquet":
        return _read_parquet(opened())
    if kind == "arrow":
        return _read_arrow(opened())
    delimiter = delimiter_of(kind)
    if delimiter is not None:
        file = CsvFile(path, opened, text, delimiter, schema.names)
        _check_delimited(file, path, schema)
        return file.reader(schema)
    if records is not None:
        shape = records()
        objects = JsonFile(path, opened, text, shape=shape)
        shape.check_even(path)
        return objects.reader(schema)
    objects = JsonFile(path, opened, text)
    if even:
        objects.check_even()
    return objects.reader(schema)


def _check_delimited(file: CsvFile, path: str, schema: pa.Schema) -> None:
    hint = file.hint(schema.names)
    if hint:
        raise UnreadableFile(
            f"{path} has one column, {file.names[0][:80]!r}, which the table lacks", next_step=hint
        )


def read_schema(path: str, text: TextFormat = PLAIN) -> Inferred:
    """The schema of a Parquet or Arrow file, or one inferred from the values of a CSV or JSON file."""
    text.check()
    kind, opened = _source(path, text)
    dates: tuple[str, ...] = ()
    with _reading(path):
        if kind == "parquet":
            return Inferred(_parquet_file(opened()).schema_arrow)
        if kind == "arrow":
            return Inferred(_read_arrow(opened()).schema)
        delimiter = delimiter_of(kind)
        if delimiter is None:
            objects = JsonFile(path, opened, text)
            columns, rows = objects.infer()
            dates = objects.dates
        else:
            delimited = CsvFile(path, opened, text, delimiter)
            hint = delimited.hint(())
            if hint:
                raise UnreadableFile(f"{path} has one column only", next_step=hint)
            columns, rows = delimited.infer()
            dates = delimited.dates
    if not columns:
        raise InvalidRequest(
            f"{path} has no column to infer a type from",
            next_step='Give the columns as text: --schema "id bigint not null, name string"',
        )
    text.dates.check(path, pa.schema(columns))
    return Inferred(pa.schema(columns), rows, rows < INFER_ROWS, dates)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        with reading(path, PLAIN):
            yield
    except FileNotFoundError as error:
        raise InvalidRequest(f"there is no file {path}", next_step="Check the path") from error
    except OSError as error:
        raise UnreadableFile(
            f"cannot read {path}: {_said(error)}",
            next_step="Check that the file is what its name says",
        ) from error


def _said(error: OSError) -> str:
    """In the system's words; Arrow puts its own around them."""
    return os.strerror(error.errno) if error.errno else words_of(error)


# -- bytes ----------------------------------------------------------------------------------------


def _source(path: str, text: TextFormat) -> tuple[FileKind, Callable[[], Any]]:
    """The format of a file, and how its bytes are opened, from the start each time."""
    if path == STANDARD:
        if sys.stdin is None:
            raise InvalidRequest("standard input is closed", next_step="Name a file")
        return _spooled(sys.stdin.buffer, _named(text.format) or "csv", path)
    if "://" in path:
        raise InvalidRequest(
            f"{path} is not a local file", next_step="Objects become rows by `inlay ingest`"
        )
    if Path(path).is_dir():
        raise InvalidRequest(f"{path} is a folder", next_step="Name the files in it")
    kind = _kind_of(path, text)
    if kind is None:
        raise InvalidRequest(f"cannot determine the format of {path}", next_step=_READ)
    if not Path(path).is_file() and Path(path).exists():  # a pipe, such as the shell's <(…)
        with _reading(path), Path(path).open("rb") as pipe:
            return _spooled(pipe, kind, path)
    named = os.fsencode(path)  # Arrow takes a text for UTF-8, which a file's name need not be
    if kind == "arrow" and _bare(path) == Path(path):
        return kind, lambda: pa.memory_map(named)
    return kind, lambda: _decompressed(lambda: pa.OSFile(named), kind, path)


def _spooled(source: IO[bytes], kind: FileKind, path: str) -> tuple[FileKind, Callable[[], Any]]:
    """What can be read once only, kept so that it can be read again."""
    spooled = tempfile.SpooledTemporaryFile(max_size=_SPOOLED)  # noqa: SIM115 - lives as long as its readers
    while chunk := source.read(1 << 20):
        spooled.write(chunk)

    def reopened() -> Any:
        spooled.seek(0)
        return pa.PythonFile(_Kept(spooled), mode="r")

    return kind, lambda: _decompressed(reopened, kind, path)


class _Kept(io.RawIOBase):
    """Reads of a file that stays open when its reader is closed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _kind_of(path: str, text: TextFormat) -> FileKind | None:
    return _named(text.format) or _KIND_OF.get(_bare(path).suffix.lower().removeprefix("."))


def _named(given: str | None) -> FileKind | None:
    if given is None:
        return None
    if given not in _KIND_OF:
        raise InvalidRequest(
            f"there is no format {given[:50]!r}", next_step=f"It is one of {', '.join(FORMATS)}"
        )
    return _KIND_OF[given]


def _bare(path: str) -> Path:
    """Without what says that it is compressed."""
    bare = Path(path)
    return bare.with_suffix("") if bare.suffix.lower() in _COMPRESSED else bare


def _decompressed(opened: Callable[[], Any], kind: FileKind, path: str) -> Any:
    """By what the content begins with, not by its name."""
    with opened() as probe:
        magic = probe.read(4)
    if magic == b"PAR1" and kind != "parquet":
        raise UnreadableFile(f"{path} is a Parquet file", next_step="Say so: --format parquet")
    stream = decompressed(opened(), magic)
    # Parquet and Arrow files are read from their end.
    is_whole = compression_of(magic) is not None and kind in ("parquet", "arrow")
    return pa.BufferReader(stream.read()) if is_whole else stream


def _parquet_file(source: Any) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(source)
    check_parquet_types(file.schema)
    return file


def _read_parquet(source: Any) -> pa.RecordBatchReader:
    file = _parquet_file(source)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _read_arrow(source: Any) -> pa.RecordBatchReader:
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        source.seek(0)
        return pa.ipc.open_stream(source)
    batches = (file.get_batch(n) for n in range(file.num_record_batches))
    return pa.RecordBatchReader.from_batches(file.schema, batches)


# -- writers --------------------------------------------------------------------------------------


def write_file(reader: pa.RecordBatchReader, path: str, text: TextFormat = PLAIN) -> int:
    """Write all rows to a local file; returns how many. What ends before leaves no file."""
    text.check()
    kind = _kind_of(path, text)
    codec = _COMPRESSED.get(Path(path).suffix.lower())
    if kind is None or kind == "arrow" or (codec and kind == "parquet"):
        raise InvalidRequest(f"cannot determine the format of {path}", next_step=_WRITE)
    if Path(path).is_dir():
        raise InvalidRequest(f"{path} is a folder", next_step="Name a file in it")
    try:
        with _whole(path) as file:
            if kind == "parquet":
                return _write_parquet(reader, file)
            raw: Any = pa.CompressedOutputStream(file, codec) if codec else file
            # Not a TextIOWrapper: it believes that a compressed stream has a beginning already, without a
            # mark.
            with codecs.getwriter(text.encoding)(io.BufferedWriter(raw)) as sink:
                delimiter = delimiter_of(kind)
                if delimiter is None:
                    return write_json(reader, sink)
                return write_csv(reader, sink, text, delimiter=delimiter)
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"cannot write {path}: {text.encoding} lacks a character of the rows",
            next_step="Leave out --encoding: UTF-8 has all",
        ) from error
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {path}: {_said(error)}",
            next_step="Check the path and the space left",
        ) from error


@contextmanager
def _whole(path: str) -> Iterator[pa.NativeFile]:
    """A new file that is there whole or not at all: half of it would be taken for all rows."""
    with pa.OSFile(os.fsencode(path), "wb") as file:
        try:
            yield file
        except BaseException:
            if Path(path).is_file():  # no pipe, no device
                with suppress(OSError):
                    Path(path).unlink()
            raise


def _write_parquet(reader: pa.RecordBatchReader, file: pa.NativeFile) -> int:
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows
