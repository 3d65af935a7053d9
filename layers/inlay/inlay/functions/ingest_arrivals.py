"""Arrivals into tables: one ingest, so one commit, per table and batch.

Promise: every arrival gets its own outcome, in the given order; an unusable table fails its own arrivals
and no others, and so does a file that makes the whole ingest fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from inlay.errors import ErrorKind, InlayError, TableExists, TableNotFound
from inlay.functions import settings
from inlay.functions.arrivals import Arrival
from inlay.functions.completion import announce_contents
from inlay.functions.messages import NotBegun, TimeLeft
from inlay.functions.observe import (
    report_refused,
    report_superseded,
    report_taken_back,
    report_write,
)
from inlay.functions.tables import table_context
from inlay.ops.context import Context
from inlay.ops.write.append import IngestSource
from inlay.ops.write.folders import folder_columns
from inlay.ops.write.ingest import (
    Deferred,
    Duplicate,
    Ingested,
    IngestResult,
    Rejected,
    Retry,
    SourceOutcome,
    Superseded,
    TakenBack,
    ingest,
)
from inlay.parquet.arrow.types import check_parquet_types
from inlay.parquet.read.describe import parse_object_footer, read_tail
from inlay.storage.wrapped import usage_of


@dataclass(frozen=True, slots=True)
class Broken:
    """Ingesting this source hit an internal error."""

    source: IngestSource
    error: Exception


Outcome = SourceOutcome | Broken

# Files that one batch may decode and write (of several partitions, texts), in stored bytes: 22 s of CPU a
# GiB were measured, and an invocation's work may take 225 s. A single larger one is always allowed.
CUT_BYTES = 2 * 2**30


def ingest_arrivals(
    arrivals: Sequence[Arrival], time_left: TimeLeft | None = None
) -> Sequence[Outcome]:
    """Ingests all of them, as far as time allows; the outcomes are in the order of `arrivals`. The first
    table is always begun."""
    by_table: dict[str, list[int]] = {}
    for position, arrival in enumerate(arrivals):
        by_table.setdefault(arrival.table, []).append(position)
    outcomes: dict[int, Outcome] = {}
    for table, positions in by_table.items():
        sources = [arrivals[position].source for position in positions]
        found: Sequence[Outcome]
        if outcomes and time_left is not None and not time_left.for_more():
            found = [Deferred(source) for source in sources]
        else:
            found = _into_table(table, sources, time_left)
        outcomes.update(zip(positions, found, strict=True))
    return [outcomes[position] for position in range(len(arrivals))]


def failure_of(outcomes: Sequence[Outcome]) -> Exception | None:
    """Why a message with these arrivals cannot be deleted yet, or ever.

    Retryable failures come first: a message becomes a dead letter only when nothing is left to retry. It
    may then repeat arrivals that were ingested; sending it again does not ingest them twice.
    """
    failures = [failure for outcome in outcomes if (failure := _failure(outcome)) is not None]
    return min(failures, key=lambda failure: failure[0])[1] if failures else None


def _failure(outcome: Outcome) -> tuple[int, Exception] | None:
    """Why one arrival is not done; those that count first have the least number."""
    match outcome:
        case Broken(error=broken):
            return 0, broken
        case Retry(error=error):
            return 1, error
        case Deferred():
            return 2, NotBegun("the batch's budget was used up")
        case Rejected(error=error):
            return 3, error
        case Ingested() | Duplicate() | Superseded() | TakenBack():
            return None


def _into_table(
    table: str, sources: Sequence[IngestSource], time_left: TimeLeft | None
) -> Sequence[Outcome]:
    ctx = table_context(table)
    try:
        result = _ingest(ctx, sources, time_left)
    except Exception as error:
        return _failed(ctx, table, sources, error, time_left)
    report_write(table, replace(result.write, usage=usage_of(ctx.store)))
    done = [each for each in result.outcomes if isinstance(each, Ingested | Duplicate)]
    announce_contents(table, ctx, done, result.loaded.snapshot.version)
    for outcome in result.outcomes:
        if isinstance(outcome, Ingested) and outcome.refused_key is not None:
            key = outcome.source.location.key
            report_refused(table, key, outcome.refused, outcome.refused_key)
        if isinstance(outcome, Superseded):
            report_superseded(table, outcome.source.location.key)
        if isinstance(outcome, TakenBack):
            report_taken_back(table, outcome.source.location.key)
    return result.outcomes


def _failed(
    ctx: Context,
    table: str,
    sources: Sequence[IngestSource],
    error: Exception,
    time_left: TimeLeft | None,
) -> Sequence[Outcome]:
    """The whole ingest failed. If one source may be the cause, each is ingested separately: in a batch the
    others would go to the dead letters with it."""
    whole_tables = isinstance(error, TableNotFound) or (
        isinstance(error, InlayError) and error.kind is not ErrorKind.INPUT
    )
    if len(sources) > 1 and not whole_tables:
        found: list[Outcome] = []
        for source in sources:
            if found and time_left is not None and not time_left.for_more():
                found.append(Deferred(source))
            else:
                found += _into_table(table, [source], time_left)
        return found
    if not isinstance(error, InlayError):
        return [Broken(source, error) for source in sources]
    error.about(table=ctx.uri)
    failed = Retry if error.kind in (ErrorKind.RETRY, ErrorKind.REBASE) else Rejected
    return [failed(source, error) for source in sources]


def _ingest(
    ctx: Context, sources: Sequence[IngestSource], time_left: TimeLeft | None
) -> IngestResult:
    seconds = None if time_left is None else time_left.seconds()
    try:
        return ingest(ctx, sources, cut_bytes=CUT_BYTES, deadline_seconds=seconds)
    except TableNotFound:
        if not settings.auto_create():
            raise
    from inlay.ops.schema.create import create  # once in a table's life

    # What only a folder's name says would be lost when landed files expire.
    properties = {"ingest.folders": "spark", **settings.table_defaults()}
    schema = _schema_of_first(ctx, sources, str(properties["ingest.folders"]))
    with suppress(TableExists):  # another function had a file for it, too
        create(ctx, schema, properties=properties)
    return ingest(ctx, sources, cut_bytes=CUT_BYTES, deadline_seconds=seconds)


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
    got = read_tail(store, location)
    found = parse_object_footer(got.body, size=got.size)
    check_parquet_types(found.metadata.schema)
    arrow = found.arrow
    for column in folder_columns(location.key, arrow.names, folders):
        arrow = arrow.append(column)
    return arrow
