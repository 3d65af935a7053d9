"""Verbs that look after a deployment: what landed, and what was put aside."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import AsJson, TableUri
from inlay.cli.output import note, print_lines, print_rows
from inlay.cli.tables import connected, opened
from inlay.cli.values import counted
from inlay.errors import InvalidRequest

if TYPE_CHECKING:
    from inlay.functions.dead_letters import Letter

PANEL = "Operate"
_QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/inlay-DeleteDeadLetters"
_COLUMNS = ("state", "kind", "landed", "bytes", "key", "reason")


class State(StrEnum):
    """States of a landed file."""

    PENDING = "pending"
    INGESTED = "ingested"
    REJECTED = "rejected"
    FORGOTTEN = "forgotten"
    IGNORED = "ignored"


class LetterAction(StrEnum):
    """What is done with dead letters."""

    LIST = "list"
    SHOW = "show"
    REDRIVE = "redrive"
    DROP = "drop"


@verb(
    PANEL,
    Example("landing s3://lake/tables/people", "every landed file, with its state"),
    Example("landing s3://lake/tables/people --state pending", "what no event has brought in"),
)
def landing(
    table: TableUri,
    state: Annotated[
        State | None, typer.Option("--state", help="Only files in this state.", show_default=False)
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            help="Where files land in the bucket; ingest/<table>/ beside tables/ unless given.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the files that landed for a table: pending, ingested, rejected or ignored with the reason.

    A pending file's event was lost, or is on its way; the deployed sweep sends it again within the hour.
    What is data, and what is ignored, is in docs/LANDING.md. Nothing is changed.
    """

    from inlay.engine import landed, load_pointer

    with connected(table) as context:
        rows: list[dict[str, Any]] = [
            {
                "state": item.state,
                "kind": item.kind.value,
                "landed": _time(item.modified_us),
                "bytes": item.size,
                "key": item.key,
                "version_id": item.version_id,
                "reason": item.reason,
            }
            for item in landed(context, load_pointer(context), prefix)
            if state is None or item.state == state.value
        ]
    print_rows(
        rows,
        as_json=as_json,
        columns=_COLUMNS,
        empty="no such files",
    )


@verb(
    PANEL,
    Example(
        "waive s3://lake/tables/people ingest/people/a.parquet --reason 'case 7, decided by the DPO'",
        "erasures no longer wait for it",
    ),
)
def waive(
    table: TableUri,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The landed object, as erase-status names it.")
    ],
    reason: Annotated[
        str, typer.Option("--reason", help="Who decided it and why; it stays in the receipts.")
    ],
    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix",
            help="Where files land in the bucket; ingest/<table>/ beside tables/ unless given.",
        ),
    ] = None,
) -> None:
    """Let open erasures end though a landed object, as it is now, may hold what they erase.

    The object stays. The receipts of these erasures list it as waived, with the reason.
    """
    with opened(table) as t:
        ids = t.maintain.waive(key, reason=reason, landing=prefix)
    note(f"{counted(len(ids), 'erasure')} no longer waiting for {key}: {', '.join(ids)}")


@verb(
    PANEL,
    Example(f"dlq list {_QUEUE}", "what was put aside, and why"),
    Example(f"dlq redrive {_QUEUE} --all", "all of it again, after the cause is mended"),
)
def dlq(
    action: Annotated[
        LetterAction,
        typer.Argument(metavar="ACTION", help="list, show, redrive (send again) or drop."),
    ],
    queue: Annotated[str, typer.Argument(metavar="QUEUE-URL", help="The dead letters' queue.")],
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Only this letter (repeatable).")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Redrive or drop every letter, without naming them.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="QUEUE-URL", help="Redrive there, not where they came from."),
    ] = None,
    values: Annotated[
        bool, typer.Option("--values", help="With show: whole messages, values and all.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look after dead letters: messages that a function refused, or that failed every time.

    What a letter is about and why it was refused is shown; conditions, keys and other values only with
    --values. A letter that is sent again stays the request it was, so nothing is done twice.
    """

    from inlay.functions import dead_letters

    def send_again(sqs: Any, letter: Letter) -> None:
        target = to or dead_letters.source_queue(sqs, queue)
        dead_letters.redrive(sqs, letter, source=queue, target=target)

    act: Callable[[Any, Letter], None] | None = None
    match action:
        case LetterAction.LIST | LetterAction.SHOW:
            done = "waiting"
        case LetterAction.REDRIVE:
            act, done = send_again, "sent again"
        case LetterAction.DROP:
            act, done = partial(dead_letters.drop, source=queue), "dropped"
        case _:
            assert_never(action)
    if act is not None and not ids and not every:
        raise InvalidRequest(
            f"{action.value} needs to know which letters", next_step="Give --id, or --all"
        )
    with dead_letters.connected() as sqs:
        letters = list(dead_letters.read_letters(sqs, queue))
        chosen = [letter for letter in letters if not ids or letter.id in ids]
        missing = set(ids or ()) - {letter.id for letter in letters}
        kept = letters
        try:
            if missing:
                raise InvalidRequest(f"no such letters: {', '.join(sorted(missing))}")
            if act is not None:
                for letter in chosen:
                    act(sqs, letter)
                    kept = [other for other in kept if other.id != letter.id]
        finally:
            dead_letters.release(sqs, queue, kept)
    rows = [_shown(letter, values=values and action is LetterAction.SHOW) for letter in chosen]
    if as_json or action is LetterAction.SHOW:
        print_lines(rows)
    else:
        shown = ("id", "sent", "error", "reason")
        print_rows(rows, as_json=False, columns=shown, empty="no dead letters")
    note(f"{counted(len(chosen), 'letter')} {done}")


def _shown(letter: Letter, *, values: bool) -> dict[str, Any]:
    return {
        "id": letter.id,
        "sent": _time(letter.first_sent_us),
        **letter.why,
        **letter.about,
        **({"body": letter.body} if values else {}),
    }


def _time(us: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)
    return at.strftime("%Y-%m-%d %H:%M:%S")
