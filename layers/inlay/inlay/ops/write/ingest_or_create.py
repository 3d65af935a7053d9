"""Ingestion into tables that the first file makes.

Promise: a table is created with the columns of the first source that can be read, and at most once,
whoever else ingests into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from inlay.errors import ErrorKind, InlayError, TableExists, TableNotFound
from inlay.ops.context import Context
from inlay.ops.write.append import IngestSource
from inlay.ops.write.folders import folder_columns
from inlay.ops.write.ingest import Deferred, IngestResult, Rejected, Retry, SourceOutcome, ingest
from inlay.parquet.arrow.types import check_parquet_types
from inlay.parquet.read.describe import parse_object_footer, read_tail


def ingest_or_create(
    ctx: Context,
    sources: Sequence[IngestSource],
    *,
    create_with: Callable[[], Mapping[str, object]] | None,
    cut_bytes: int | None = None,
    deadline_seconds: float | None = None,
) -> IngestResult:
    """As `ingest`; where there is no table it is created with the properties that `create_with` gives.
    What only a folder's name says becomes columns: it would be lost when landed files expire."""
    try:
        return ingest(ctx, sources, cut_bytes=cut_bytes, deadline_seconds=deadline_seconds)
    except TableNotFound:
        if create_with is None:
            raise
    from inlay.ops.schema.create import create  # once in a table's life

    properties = {"ingest.folders": "spark", **create_with()}
    schema = _schema_of_first(ctx, sources, str(properties["ingest.folders"]))
    with suppress(TableExists):  # another process had a file for it, too
        create(ctx, schema, properties=properties)
    return ingest(ctx, sources, cut_bytes=cut_bytes, deadline_seconds=deadline_seconds)


def not_ingested(source: IngestSource, error: InlayError | None = None) -> SourceOutcome:
    """The outcome of a source whose batch failed with `error`, or was not begun."""
    if error is None:
        return Deferred(source)
    if error.kind in (ErrorKind.RETRY, ErrorKind.REBASE):
        return Retry(source, error)
    return Rejected(source, error)


def _schema_of_first(ctx: Context, sources: Sequence[IngestSource], folders: str) -> pa.Schema:
    """The schema of the first source that can be read, with columns for its folders (`ingest.folders`);
    the error of the last when none can. One that is denied says nothing of the others: its sender chose
    its key and its storage class."""
    for last, source in enumerate(sources, start=1):
        try:
            return _read_schema(ctx, source, folders)
        except InlayError as error:
            if error.kind is ErrorKind.RETRY or last == len(sources):
                raise
    raise AssertionError("ingest was called without sources")


def _read_schema(ctx: Context, source: IngestSource, folders: str) -> pa.Schema:
    location = source.location
    store = ctx.store if location.bucket == ctx.store.bucket else ctx.store.at(location.bucket)
    tail = read_tail(store, location)
    footer = parse_object_footer(tail.body, size=tail.size)
    check_parquet_types(footer.metadata.schema)
    arrow = footer.arrow
    for column in folder_columns(location.key, arrow.names, folders):
        arrow = arrow.append(column)
    return arrow
