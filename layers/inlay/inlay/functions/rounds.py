"""Rounds: scheduled work on every table that has some, each table on its own.

Promise: a schedule sends one message for each table that has work, and each message has its own invocation:
a slow or failing table delays no other. The next round begins when every table of the last one was begun,
so that each table has one turn a round, however many there are and however little time: nothing starves,
and nothing accumulates. A table that cannot be checked is sent anyway: its own message then fails. A folder
whose name no message can give is left out, and reported: it would be a dead letter of every round. Rounds
are counted when they begin; a missed one raises an alarm.

A table that was handed over to another catalog has no work: rounds leave it out, and the log says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from inlay.errors import InvalidRequest, TableHandedOver, TableNotFound
from inlay.functions import settings
from inlay.functions.messages import (
    TimeLeft,
    is_batch,
    messages_of,
    process,
    seconds_left,
    send_all,
    waiting_at,
)
from inlay.functions.observe import count, logger, report_failure
from inlay.functions.requests import MaintenanceRequest, RoundRequest
from inlay.functions.settings import Queue
from inlay.functions.tables import executor, table_names
from inlay.functions.validation import check_table_name, read, validated


@contextmanager
def unless_handed_over(table: str) -> Iterator[None]:
    """Maintenance that nobody asked for by name: of a table that another catalog has by now there is none,
    and its message is done."""
    try:
        yield
    except TableHandedOver:
        logger.info("handed over to another catalog", extra={"table": table})


# Works on one table, as asked, for at most so many seconds; returns what to report of it.
Work = Callable[[str, MaintenanceRequest, float], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Round:
    """`names` may be tables; `has_work` checks one, and may raise `TableNotFound`. `metric` counts such
    rounds. `queue` is where its tables wait, and no other kind's: while any does, no such round begins."""

    has_work: Callable[[str], bool]
    names: Callable[[], Iterable[str]] = table_names
    metric: str = "Rounds"
    queue: Queue = "round"


def maintain(
    event: Mapping[str, Any],
    context: Any,
    work: Work,
    round_of: Callable[[MaintenanceRequest], Round],
    *,
    takes: Iterable[str] = (),
) -> Mapping[str, Any]:
    """What a maintenance function does with an event: the tables in its messages, the one table that the
    invoker names or, if none is named, a round. `takes` are the settings that this function knows: one
    that it would not heed, such as a dry run, is refused."""
    if is_batch(event):

        def message(record: SQSRecord) -> None:
            asked = read(RoundRequest, record.body)
            with unless_handed_over(asked.table):
                work(asked.table, MaintenanceRequest(**asked.model_dump()), seconds_left(context))

        return process(messages_of(event), context, message)

    # A schedule says who it is in fields of its own, and asks for nothing.
    is_schedule = isinstance(event, Mapping) and event.get("detail-type") == "Scheduled Event"
    asked = validated(MaintenanceRequest, {} if is_schedule else event)
    unheeded = asked.model_fields_set - {"table", *takes}
    if unheeded:
        raise InvalidRequest(
            f"this function does not take {', '.join(sorted(unheeded))}",
            next_step="Leave it out, or ask the function that does (docs/OPERATE.md)",
        )
    if asked.table is not None:
        return {asked.table: work(asked.table, asked, seconds_left(context))}
    return _begin(asked, context, round_of(asked))


def _begin(asked: MaintenanceRequest, context: Any, begun: Round) -> Mapping[str, Any]:
    """Sends a message for each table that has work, unless some of the last round are still waiting."""
    flags = {name: getattr(asked, name) for name in RoundRequest.model_fields if name != "table"}
    only_flags = MaintenanceRequest(**flags)
    if asked != only_flags:
        raise InvalidRequest(
            "a round of all tables takes no settings of its own",
            next_step='Name the table that they are for: {"table": …}',
        )
    queue = settings.queue_url(begun.queue)
    waiting = waiting_at(queue)
    if waiting:
        logger.warning(
            "the last round has not finished",
            extra={"waiting": waiting, "queue": queue.rpartition("/")[2], "round": begun.metric},
        )
        count(None, {"RoundsSkipped": 1})
        return {"waiting": waiting}
    names = list(_valid(begun.names()))
    random.shuffle(names)
    time_left = TimeLeft(context)

    def look(name: str) -> bool | Exception:
        try:
            return not time_left.for_more() or begun.has_work(name)
        except TableNotFound:
            return False
        except TableHandedOver:
            logger.info("handed over to another catalog", extra={"table": name})
            return False
        except Exception as error:
            return error

    by_name = dict(zip(names, executor().map(look, names), strict=True))
    for name, seen in by_name.items():
        if isinstance(seen, Exception):
            report_failure(seen, fate="sent anyway", message_id=name)
    said = {name: value for name, value in flags.items() if value}
    send_all(queue, [{"table": name, **said} for name, seen in by_name.items() if seen])
    sent = sum(bool(seen) for seen in by_name.values())
    count(None, {begun.metric: 1, "TablesSent": sent})
    logger.info("a round begins", extra={"tables": len(names), "sent": sent})
    return {"tables": len(names), "sent": sent}


def _valid(names: Iterable[str]) -> Iterator[str]:
    """Those that a message may give. Whoever may write there can make folders of any name."""
    for name in names:
        try:
            yield check_table_name(name)
        except InvalidRequest as error:
            report_failure(error, fate="left out", message_id=name)
