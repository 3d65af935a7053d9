"""Ingestion into tables that the first file makes.

Promise: a table is created with the columns and rows of the first source that it takes, in one commit, and
at most once, whoever else ingests into it. Sources that are refused, or gone, leave no table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from inlay.errors import CorruptTable, ErrorKind, InlayError, TableExists, TableNotFound
from inlay.ops.commit.driver import CommitResult, Committed, WriteResult
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.write.append import IngestSource
from inlay.ops.write.folders import folder_columns
from inlay.ops.write.ingest import (
    FoundContent,
    IngestResult,
    SourceOutcome,
    content_of,
    ingest,
    not_ingested,
)
from inlay.parquet.arrow.fits import check_parquet_types
from inlay.parquet.read.describe import parse_object_footer
from inlay.plan.change import Change, Proposal
from inlay.plan.commit.apply import apply
from inlay.plan.metadata.state import State
from inlay.record import Record, replace


class Landed(Record):
    """`outcomes` in the order of the sources; `write` is what was committed for the ingested ones, of
    version 0 where no table was made."""

    outcomes: tuple[SourceOutcome, ...]
    write: WriteResult


def ingest_or_create(
    ctx: Context,
    sources: Sequence[IngestSource],
    *,
    create_with: Callable[[], Mapping[str, object]] | None,
    cut_bytes: int | None = None,
    deadline_seconds: float | None = None,
) -> Landed:
    """As `ingest`; where there is no table it is created with the properties that `create_with` gives.
    What only a folder's name says becomes columns: it would be lost when landed files expire."""

    def rest(first: int) -> IngestResult:
        """Of the sources from the one at `first`."""
        return ingest(ctx, sources[first:], cut_bytes=cut_bytes, deadline_seconds=deadline_seconds)

    try:
        result = rest(0)
        return Landed(result.outcomes, result.write)
    except TableNotFound:
        if create_with is None:
            raise
    properties = {"ingest.folders": "spark", **create_with()}
    outcomes: list[SourceOutcome] = []
    write = WriteResult(operation="ingest", committed=False, version=0)
    for source in sources:
        try:
            outcome, written = _created(ctx, source, properties)
        except TableExists:  # another process had a file for it, too
            break
        outcomes.append(outcome)
        if written is not None:
            write = written
            break
    if len(outcomes) < len(sources):
        result = rest(len(outcomes))
        outcomes += result.outcomes
        write = _both(write, result.write)
    return Landed(tuple(outcomes), write)


def _created(
    ctx: Context, source: IngestSource, properties: Mapping[str, object]
) -> tuple[SourceOutcome, WriteResult | None]:
    """The outcome of the source, and what made the table of it. Raises `TableExists`."""
    from inlay.ops.schema.create import unmade  # once in a table's life

    try:
        fetched = content_of(ctx, source, None)
        if not isinstance(fetched, FoundContent):
            return fetched, None
        footer = parse_object_footer(fetched.got.body, size=fetched.got.size)
        check_parquet_types(footer.metadata.schema)
        schema, folders = footer.arrow, str(properties["ingest.folders"])
        for column in folder_columns(source.location.key, schema.names, folders):
            schema = schema.append(column)
        base = unmade(ctx, schema, properties=properties)
        result = ingest(replace(ctx, hold=_begin), [source], base=base)
    except TableExists:
        raise
    except InlayError as error:
        if error.kind is ErrorKind.RETRY:
            raise
        error.about(table=ctx.uri, key=source.location.key)
        return not_ingested(source, error), None
    [outcome] = result.outcomes
    return outcome, result.write if result.write.committed else None


def _begin(ctx: Context, change: Change, base: LoadedTable) -> CommitResult:
    """Takes what `ingest` commits to a table that is not there yet (`Context.hold`): its rows begin the
    table, with what was to be committed before them."""
    from inlay.ops.schema.create import first_version

    ctx = replace(ctx, hold=None)
    if change.events:
        return Committed(first_version(ctx, base, change))
    outcome = apply(base.state, change, commit_id=ctx.new_id(), name=lambda _: ctx.new_id())
    if not isinstance(outcome, Proposal):
        raise CorruptTable(f"the table cannot be planned: {outcome}", table=ctx.uri)
    before = replace(outcome.snapshot, version=0, commit=base.snapshot.commit)
    return Committed(replace(base, state=State(before)))


def _both(first: WriteResult, then: WriteResult) -> WriteResult:
    """Of two writes, the second after the first."""
    if not first.committed:
        return then
    return replace(
        then,
        committed=True,
        commit_id=then.commit_id or first.commit_id,
        added_rows=first.added_rows + then.added_rows,
        added_files=first.added_files + then.added_files,
        added_bytes=first.added_bytes + then.added_bytes,
    )
