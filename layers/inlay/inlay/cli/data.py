"""Rows from local files and into them, by the file's extension.

Promise: a file is streamed, never held whole; a file that cannot be read or written is a typed error
that names it. CSV and JSON are read as the table's types, so that "2026-01-31" is a date where the
column is one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from inlay.cli.values import to_json, to_line
from inlay.errors import InvalidRequest, SchemaMismatch, UnreadableFile

_READ = "Use .parquet, .csv, .tsv, .json, .jsonl, .ndjson, .arrow or .feather"
_WRITE = "Use .parquet, .csv, .json or .jsonl"


def read_files(paths: Sequence[str], schema: pa.Schema) -> pa.RecordBatchReader:
    """All rows of the files, one after the other, for a table of `schema`. Files may differ in the
    order of their columns and may lack columns that the table lets be null."""
    readers = [read_file(path, schema) for path in paths]
    for path, reader in zip(paths, readers, strict=True):
        if set(reader.schema.names) != set(readers[0].schema.names):
            raise SchemaMismatch(
                f"{path} has other columns than {paths[0]}",
                next_step="Append files of different columns by commands of their own",
            )
    first = readers[0].schema
    batches = (
        _like(batch, first, path)
        for path, reader in zip(paths, readers, strict=True)
        for batch in _naming(path, reader)
    )
    return pa.RecordBatchReader.from_batches(first, batches)


def _like(batch: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    try:
        return batch.select(schema.names).cast(schema)
    except pa.ArrowException as error:
        raise SchemaMismatch(
            f"{path} has other types than the first file: {error}",
            next_step="Append files of different types by commands of their own",
        ) from error


def _naming(path: str, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The reader's batches; errors met on the way name the file."""
    with _reading(path):
        yield from reader


def read_file(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    """The rows of one local file."""
    if "://" in path:
        raise InvalidRequest(
            f"{path} is not a local file", next_step="Objects become rows by `inlay ingest`"
        )
    suffix = Path(path).suffix.lower()
    reader = _READERS.get(suffix)
    if reader is None:
        raise InvalidRequest(f"cannot tell the format of {path}", next_step=_READ)
    with _reading(path):
        return reader(path, schema)


def read_schema(path: str) -> pa.Schema:
    """The schema of a Parquet or Arrow file."""
    suffix = Path(path).suffix.lower()
    with _reading(path):
        if suffix in (".parquet", ".pq"):
            import pyarrow.parquet as pq

            return pq.read_schema(path)
        if suffix in (".arrow", ".feather"):
            return _read_arrow(path, pa.schema([])).schema
    raise InvalidRequest(
        f"no types can be told from {path}",
        next_step='Give a .parquet or .arrow file, or --schema "id bigint not null, name string"',
    )


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise InvalidRequest(f"there is no file {path}", next_step="Check the path") from error
    except (OSError, pa.ArrowException) as error:
        raise UnreadableFile(
            f"cannot read {path}: {error}", next_step="Check that the file is what its name says"
        ) from error


# -- readers --------------------------------------------------------------------------------------


def _read_parquet(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _read_delimited(path: str, schema: pa.Schema, delimiter: str) -> pa.RecordBatchReader:
    from pyarrow import csv

    return csv.open_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={field.name: field.type for field in schema},
            # An empty field of a text column is an empty text; a missing number is NULL.
            strings_can_be_null=False,
        ),
    )


def _read_csv(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    return _read_delimited(path, schema, ",")


def _read_tsv(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    return _read_delimited(path, schema, "\t")


def _read_json(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    from pyarrow import json

    # Arrow's reader takes dates and times as numbers only; people and `inlay scan` write them as text.
    written = pa.schema([_as_written(field) for field in schema])
    reader = json.open_json(
        path,
        parse_options=json.ParseOptions(
            explicit_schema=written, newlines_in_values=True, unexpected_field_behavior="infer"
        ),
    )
    there = pa.schema([_as_meant(field, schema) for field in reader.schema])
    return pa.RecordBatchReader.from_batches(there, (batch.cast(there) for batch in reader))


def _as_written(field: pa.Field) -> pa.Field:
    textual = pa.types.is_date(field.type) or pa.types.is_time(field.type)
    return pa.field(field.name, pa.string() if textual else field.type)


def _as_meant(field: pa.Field, schema: pa.Schema) -> pa.Field:
    known = schema.get_field_index(field.name)
    return field if known < 0 else schema.field(known).with_nullable(True)


def _read_arrow(path: str, schema: pa.Schema) -> pa.RecordBatchReader:
    source = pa.memory_map(path)
    try:
        file = pa.ipc.open_file(source)
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(source)
    batches = (file.get_batch(n) for n in range(file.num_record_batches))
    return pa.RecordBatchReader.from_batches(file.schema, batches)


_READERS: dict[str, Callable[[str, pa.Schema], pa.RecordBatchReader]] = {
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".json": _read_json,
    ".jsonl": _read_json,
    ".ndjson": _read_json,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}


# -- writers --------------------------------------------------------------------------------------


def write_file(reader: pa.RecordBatchReader, path: str) -> int:
    """Write all rows to a local file; returns how many."""
    suffix = Path(path).suffix.lower()
    writer = _WRITERS.get(suffix)
    if writer is None:
        raise InvalidRequest(f"cannot tell the format of {path}", next_step=_WRITE)
    try:
        return writer(reader, path)
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {path}: {error}", next_step="Check the path and the space left"
        ) from error


def _write_parquet(reader: pa.RecordBatchReader, path: str) -> int:
    import pyarrow.parquet as pq

    rows = 0
    with pq.ParquetWriter(path, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_csv_file(reader: pa.RecordBatchReader, path: str) -> int:
    with Path(path).open("w", encoding="utf-8", newline="") as sink:
        return write_csv(reader, sink)


def write_csv(reader: pa.RecordBatchReader, sink: IO[str]) -> int:
    """Rows as CSV with a header; NULL is an empty field, nested values are JSON."""
    import csv

    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(reader.schema.names)
    rows = 0
    for batch in reader:
        columns = [[_csv_value(v) for v in column.to_pylist()] for column in batch.columns]
        writer.writerows(zip(*columns, strict=True))
        rows += batch.num_rows
    return rows


def _csv_value(value: Any) -> Any:
    if isinstance(value, dict | list):
        return to_line(value)
    return "" if value is None else to_json(value)


def _write_json(reader: pa.RecordBatchReader, path: str) -> int:
    rows = 0
    with Path(path).open("w", encoding="utf-8") as sink:
        for batch in reader:
            buffer = io.StringIO()
            for row in batch.to_pylist():
                buffer.write(to_line(row) + "\n")
            sink.write(buffer.getvalue())
            rows += batch.num_rows
    return rows


_WRITERS: dict[str, Callable[[pa.RecordBatchReader, str], int]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv_file,
    ".json": _write_json,
    ".jsonl": _write_json,
}
