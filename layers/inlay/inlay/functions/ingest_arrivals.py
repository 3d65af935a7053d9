"""Arrivals into tables: one ingest, so one commit, per table and batch.

Promise: every arrival gets an outcome of its own, in the order given; a table that cannot be used
fails its own arrivals and no others, and so does a file that brings the whole ingest down.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from inlay.errors import InlayError, InputError, Kind, TableExists, TableNotFound
from inlay.functions import settings
from inlay.functions.arrivals import Arrival
from inlay.functions.observe import tell_superseded, tell_write
from inlay.functions.tables import table_context, usage_of
from inlay.ops.context import Context
from inlay.ops.schema.create import create
from inlay.ops.write.ingest import (
    IngestResult,
    Rejected,
    Retry,
    Source,
    SourceOutcome,
    Superseded,
    ingest,
)
from inlay.parquet.read.describe import describe, read_tail


@dataclass(frozen=True, slots=True)
class Broken:
    """Ingesting this source hit a fault of ours."""

    source: Source
    error: Exception


Outcome = SourceOutcome | Broken


def ingest_arrivals(arrivals: Sequence[Arrival]) -> Sequence[Outcome]:
    """Ingest all of them; the outcomes are in the order of `arrivals`."""
    by_table: dict[str, list[int]] = {}
    for position, arrival in enumerate(arrivals):
        by_table.setdefault(arrival.table, []).append(position)
    outcomes: dict[int, Outcome] = {}
    for table, positions in by_table.items():
        found = _into_table(table, [arrivals[position].source for position in positions])
        outcomes.update(zip(positions, found, strict=True))
    return [outcomes[position] for position in range(len(arrivals))]


def failure_of(outcomes: Sequence[Outcome]) -> Exception | None:
    """Why a message that told of these arrivals cannot be deleted yet, or ever.

    What may succeed later comes first: only when nothing is left to try does a message become a dead
    letter. It may then repeat arrivals that were ingested; sending it again does not ingest them twice.
    """
    for kind in (Broken, Retry, Rejected):
        for outcome in outcomes:
            if isinstance(outcome, kind):
                return outcome.error
    return None


def _into_table(table: str, sources: Sequence[Source]) -> Sequence[Outcome]:
    ctx = table_context(table)
    try:
        result = _ingest(ctx, sources)
    except Exception as error:
        return _failed(ctx, table, sources, error)
    tell_write(table, replace(result.write, usage=usage_of(ctx)))
    for outcome in result.outcomes:
        if isinstance(outcome, Superseded):
            tell_superseded(table, outcome.source.location.key)
    return result.outcomes


def _failed(
    ctx: Context, table: str, sources: Sequence[Source], error: Exception
) -> Sequence[Outcome]:
    """The whole ingest came down. If one source may be at fault, each is ingested by itself: in a batch
    the others would share its fate, to the dead letters."""
    whole_tables = isinstance(error, TableNotFound) or (
        isinstance(error, InlayError) and error.kind is not Kind.INPUT
    )
    if len(sources) > 1 and not whole_tables:
        return [outcome for source in sources for outcome in _into_table(table, [source])]
    if not isinstance(error, InlayError):
        return [Broken(source, error) for source in sources]
    error.about(table=ctx.uri)
    failed = Retry if error.kind in (Kind.RETRY, Kind.REBASE) else Rejected
    return [failed(source, error) for source in sources]


def _ingest(ctx: Context, sources: Sequence[Source]) -> IngestResult:
    try:
        return ingest(ctx, sources)
    except TableNotFound:
        if not settings.auto_create():
            raise
    schema = _schema_of_first(ctx, sources)
    with suppress(TableExists):  # another function had a file for it, too
        create(ctx, schema, properties=settings.table_defaults())
    return ingest(ctx, sources)


def _schema_of_first(ctx: Context, sources: Sequence[Source]) -> pa.Schema:
    """The schema of the first source that can be read; the error of the last when none can."""
    for last, source in enumerate(sources, start=1):
        try:
            return _read_schema(ctx, source)
        except InputError:
            if last == len(sources):
                raise
    raise AssertionError("ingest was called without sources")


def _read_schema(ctx: Context, source: Source) -> pa.Schema:
    location = source.location
    store = ctx.store if location.bucket == ctx.store.bucket else ctx.store.at(location.bucket)
    got = read_tail(store, location)
    return describe(got.body, size=got.size).arrow
