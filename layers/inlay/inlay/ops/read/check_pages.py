"""All pages of a file that another writer made are decoded as it comes, where the table asks for it."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from inlay.errors import UnreadableFile, UnsupportedFile
from inlay.format.snapshot import Snapshot
from inlay.parquet.read.ranges import fetch
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.parquet.read.single_pages import false_indexes
from inlay.plan.scan import FileTask
from inlay.record import replace


def checks_pages(snapshot: Snapshot) -> bool:
    """Whether all pages of a file are read when it comes."""
    return snapshot.settings.text("ingest.check_pages") == "yes"


def read_pages(reader: Reader, task: FileTask) -> None:
    """Decodes all pages of the table's columns. Raises `UnreadableFile`, `UnsupportedFile`."""
    projection = Projection(schema=task.schema, columns=tuple(f.id for f in task.schema.fields))
    rows = sum(batch.num_rows for batch in reader.rows([task], projection))
    if rows != task.file.rows:
        raise UnreadableFile(
            f"it has {rows} rows, its footer says {task.file.rows}", key=task.file.key
        )


def check_pages(reader: Reader, task: FileTask) -> None:
    """As `read_pages`, and compares with them the page indexes that reads go by."""
    read_pages(reader, task)
    entry = task.file
    opened = reader.open(task)
    if opened.footer is not None:
        source = reader.objects.source(entry.key, entry.size, entry.etag)
        for name in false_indexes(opened.footer, partial(fetch, source)):
            raise UnreadableFile(
                f"the page index of column {name!r} is of other rows", key=entry.key
            )


def check_lists(reader: Reader, task: FileTask, names: Collection[str]) -> None:
    """Decodes the columns of these names (`doubted_lists`). Raises `UnsupportedFile` naming one whose lists
    cannot be told."""
    for column in task.schema.fields:
        if column.name not in names:
            continue
        try:
            read_pages(reader, replace(task, schema=replace(task.schema, fields=(column,))))
        except UnreadableFile as error:
            raise UnsupportedFile(
                f"column {column.name!r}: {error.message}. DuckDB writes arrays of a fixed size that are "
                "NULL as if they had elements (duckdb/duckdb#24731)",
                key=task.file.key,
                next_step="Write the column as lists: in DuckDB cast FLOAT[3] to FLOAT[]",
            ) from error
