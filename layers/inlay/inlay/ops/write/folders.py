"""Columns whose values are in the names of folders, as Hive, Spark, pyarrow and DuckDB write partitions:
`month=2/part-0.parquet`.

Promise: a file that lacks a column of the table which its folder names gets the folder's value in every
row, in the column's type, or is refused (property `ingest.folders`). Its rows never get NULL, or the
default of the column, where the folder says otherwise. One whose folder says NULL is treated alike:
under `refuse` so that appending the whole folder instead does not add its rows twice. A folder that
names no column only puts files in order; where a file creates its table, the folders' columns are made
with it (`folder_columns`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from urllib.parse import unquote

import pyarrow as pa

from inlay.errors import SchemaMismatch
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.record import replace

# Hive's name for NULL in a folder's name.
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# What the folders of one file say of columns that it lacks: by name, None for NULL.
Folders = Mapping[str, str | None]

_APPEND = (
    "Append the rows with their folders' values: t.append(pyarrow.dataset.dataset("
    "FOLDER, partitioning='hive').scanner().to_reader()); or write the column into the files"
)


def said_by(path: str, *, empty: bool = False) -> Iterator[tuple[str, str]]:
    """The names and values in the folders of a path; `empty`: those without a value, too."""
    for folder in path.split("/")[:-1]:
        escaped, equals, value = folder.partition("=")
        if escaped and equals and (value or empty):
            yield unquote(escaped), unquote(value)


def check_folders(path: str, has: Container[str], columns: Container[str]) -> None:
    """`has` are the columns of the file at `path`, `wanted` those of the table: a folder that names none of
    these only puts files in order. Raises `SchemaMismatch`."""
    for name, _ in said_by(path):
        if name in columns and name not in has:
            raise SchemaMismatch(
                f"the file has no column {name!r}: its value is only in the name of its folder",
                next_step=_APPEND,
            )


def folders_of(path: str, has: Container[str], snapshot: Snapshot) -> Folders:
    """The values that the file at `path` gets from its folders. Raises `SchemaMismatch`, also for a
    value that the column cannot hold."""
    columns = {field.name: field for field in snapshot.schema.fields}
    if snapshot.settings.text("ingest.folders") == "refuse":
        check_folders(path, has, columns)
        return {}
    folders: dict[str, str | None] = {}
    for name, text in said_by(path):
        if name not in columns or name in has:
            continue
        value = None if text == HIVE_NULL else text
        if folders.setdefault(name, value) != value:
            raise SchemaMismatch(
                f"two folders of the file name column {name!r}, with different values",
                next_step="Write the column into the file",
            )
        if value is None and not columns[name].nullable:
            raise SchemaMismatch(f"the folder says NULL for column {name!r}, which takes none")
        value_in(value, schema_to_arrow(snapshot.schema, with_ids=False).field(name), 0)
    return folders


def without_required(schema: Schema, folders: Folders) -> Schema:
    """The schema under which a file is read that lacks these columns."""
    if not folders:
        return schema
    fields = tuple(
        replace(field, nullable=True, default=None) if field.name in folders else field
        for field in schema.fields
    )
    return replace(schema, fields=fields)


def with_folders(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, folders: Folders
) -> Iterator[pa.RecordBatch]:
    """Batches of these columns, with the folders' values in every row."""
    for batch in batches:
        arrays = [
            value_in(folders[field.name], field, batch.num_rows)
            if field.name in folders
            else column
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(text: str | None, kind: pa.DataType) -> pa.Array:
    """Raises Arrow's errors. An instant without a zone is in UTC."""
    texts = pa.array([text], pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        with suppress(pa.ArrowException):
            return texts.cast(pa.timestamp(kind.unit)).cast(kind)
    return texts.cast(kind)


def value_in(text: str | None, field: pa.Field, rows: int) -> pa.Array:
    """A folder's value (None: NULL) in so many rows of a column. Raises `SchemaMismatch`."""
    try:
        value = _cast(text, field.type)
    except pa.ArrowException:
        raise SchemaMismatch(
            f"the value of folder {field.name!r} is not of the column's type, {field.type}",
            next_step="Write the column into the file, or change its type: inlay alter",
        ) from None
    return pa.repeat(value[0], rows)


# -- columns of a new table -----------------------------------------------------------------------


def folder_columns(path: str, has: Container[str], typed_as: str) -> list[pa.Field]:
    """Columns for what the folders of a file name and the file lacks, typed as one of `ingest.folders`
    would from these values: `text`, or as Spark or pyarrow infers. Raises `SchemaMismatch` under
    `refuse`."""
    folder_texts = {name: text for name, text in said_by(path) if name not in has}
    if typed_as == "refuse":
        check_folders(path, has, folder_texts)
    texts = {name: [] if text == HIVE_NULL else [text] for name, text in folder_texts.items()}
    return [pa.field(name, inferred(known, typed_as)) for name, known in texts.items()]


# In the order in which Spark tries them (`inferPartitionColumnValue`); its pyarrow counterpart knows the
# first alone.
_SPARK: Sequence[pa.DataType] = (pa.int32(), pa.int64())
_AFTER_NUMBERS: Sequence[pa.DataType] = (pa.date32(), pa.timestamp("us", "UTC"))


# Of two types of one column's values the wider, as Spark finds it (`findWiderTypeForPartitionColumn`);
# otherwise it is text.
_WIDER: Sequence[Sequence[pa.DataType]] = (
    (pa.int32(), pa.int64(), pa.decimal128(38, 0)),
    (pa.int32(), pa.float64()),
    (pa.date32(), pa.timestamp("us", "UTC")),
)


def inferred(texts: Iterable[str], typed_as: str) -> pa.DataType:
    """The type of a column with these values, none of them NULL, under one of `ingest.folders`.

    >>> inferred(["2", "30000000000"], "spark"), inferred(["2", "eu"], "spark")
    (DataType(int64), DataType(string))
    """
    kinds = {_inferred(text, typed_as) for text in texts}
    for chain in _WIDER if len(kinds) > 1 else ():
        if kinds <= set(chain):
            return max(kinds, key=chain.index)
    return kinds.pop() if len(kinds) == 1 else pa.string()


def _inferred(text: str, typed_as: str) -> pa.DataType:
    if typed_as == "text":
        return pa.string()
    for kind in _SPARK[:1] if typed_as == "pyarrow" else _SPARK:
        if _fits(text, kind):
            return kind
    if typed_as == "pyarrow":
        return pa.string()
    with suppress(ArithmeticError, ValueError):
        if text.lstrip("+-").isdigit() and len(text.lstrip("+-")) <= 38:
            return pa.decimal128(38, 0)
        if text[-1] not in "dDfF" and Decimal(text).is_finite():
            return pa.float64()
    return next((kind for kind in _AFTER_NUMBERS if _fits(text, kind)), pa.string())


def _fits(text: str, kind: pa.DataType) -> bool:
    try:
        _cast(text, kind)
    except pa.ArrowException:
        return False
    return True
