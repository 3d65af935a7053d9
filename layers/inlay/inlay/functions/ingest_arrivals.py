"""Arrivals into tables: one ingest, so one commit, per table and batch.

Promise: every arrival gets its own outcome, in the given order; an unusable table fails its own arrivals
and no others, and so does a file that makes the whole ingest fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, assert_never

from inlay.engine import (
    Context,
    IngestSource,
    SourceOutcome,
    ingest_or_create,
    not_ingested,
)
from inlay.errors import ErrorKind, InlayError, StoreUnavailable, TableNotFound
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


@dataclass(frozen=True, slots=True)
class Broken:
    """Ingesting this source hit an internal error."""

    source: IngestSource
    error: Exception
    state: ClassVar[Literal["broken"]] = "broken"


@dataclass(frozen=True, slots=True)
class Untold:
    """This source is in the table, but nobody has been told (`completion`)."""

    source: IngestSource
    state: ClassVar[Literal["untold"]] = "untold"


Outcome = SourceOutcome | Broken | Untold

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
        of_table: Sequence[Outcome]
        if outcomes and time_left is not None and not time_left.for_more():
            of_table = [not_ingested(source) for source in sources]
        else:
            of_table = _into_table(table, sources, time_left)
        outcomes.update(zip(positions, of_table, strict=True))
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
    match outcome.state:
        case "broken":
            return 0, outcome.error
        case "retry":
            return 1, outcome.error
        case "untold":
            return 1, StoreUnavailable(
                "its rows are in the table, but EventBridge did not take the event",
                next_step="Is the bus of CompletionBus there, and may this function put events on it?",
            )
        case "deferred":
            return 2, NotBegun("the batch's budget was used up")
        case "rejected":
            return 3, outcome.error
        case "ingested" | "duplicate" | "superseded" | "takenback":
            return None
        case _:
            assert_never(outcome)


def _into_table(
    table: str, sources: Sequence[IngestSource], time_left: TimeLeft | None
) -> Sequence[Outcome]:
    ctx = table_context(table)
    try:
        result = ingest_or_create(
            ctx,
            sources,
            create_with=settings.table_defaults if settings.auto_create() else None,
            cut_bytes=CUT_BYTES,
            deadline_seconds=None if time_left is None else time_left.seconds(),
        )
    except Exception as error:
        return _failed(ctx, table, sources, error, time_left)
    report_write(table, replace(result.write, usage=ctx.usage))
    untold = announce_contents(table, ctx, result.outcomes, result.write.version)
    for outcome in result.outcomes:
        _report(table, outcome)
    return [
        Untold(outcome.source) if position in untold else outcome
        for position, outcome in enumerate(result.outcomes)
    ]


def _report(table: str, outcome: SourceOutcome) -> None:
    """What no message says: records and contents that are in no table. Errors are reasons of messages."""
    match outcome.state:
        case "ingested":
            if outcome.refused_key is not None:
                key = outcome.source.location.key
                report_refused(table, key, outcome.refused, outcome.refused_key)
        case "superseded":
            report_superseded(table, outcome.source.location.key)
        case "takenback":
            report_taken_back(table, outcome.source.location.key)
        case "duplicate" | "rejected" | "retry" | "deferred":
            pass
        case _:
            assert_never(outcome)


def _failed(
    ctx: Context,
    table: str,
    sources: Sequence[IngestSource],
    error: Exception,
    time_left: TimeLeft | None,
) -> Sequence[Outcome]:
    """The whole ingest failed. If one source may be the cause, each is ingested separately: in a batch the
    others would go to the dead letters with it."""
    if len(sources) > 1 and _may_be_of_one_source(error):
        outcomes: list[Outcome] = []
        for source in sources:
            if outcomes and time_left is not None and not time_left.for_more():
                outcomes.append(not_ingested(source))
            else:
                outcomes += _into_table(table, [source], time_left)
        return outcomes
    if not isinstance(error, InlayError):
        return [Broken(source, error) for source in sources]
    error.about(table=ctx.uri)
    return [not_ingested(source, error) for source in sources]


def _may_be_of_one_source(error: Exception) -> bool:
    if not isinstance(error, InlayError):
        return True
    match error.kind:
        case ErrorKind.INPUT:
            return not isinstance(error, TableNotFound)
        case ErrorKind.RETRY | ErrorKind.REBASE | ErrorKind.PAGE:
            return False
        case _:
            assert_never(error.kind)
