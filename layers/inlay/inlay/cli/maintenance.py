"""Verbs that keep a table in shape: rewrite, compact, expire, gc."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.durations import parse_duration
from inlay.cli.opened import opened
from inlay.cli.options import AsJson, TableUri, Where
from inlay.cli.output import print_record, usage_text
from inlay.cli.verb import Example, add_verb

if TYPE_CHECKING:
    from inlay.table import Table

PANEL = "Maintain"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
MaxBytes = Annotated[
    int | None, typer.Option("--max-bytes", min=1, help="Read at most this much; the rest is left.")
]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="DURATION", help="Begin nothing new after this long."),
]


def rewrite(
    table: TableUri,
    where: Where = None,
    strategy: Annotated[
        str, typer.Option("--strategy", help="auto, surgery (row groups) or whole (files).")
    ] = "auto",
    max_bytes: MaxBytes = None,
    deadline: Deadline = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take deleted rows out of the files, by row-group surgery where that is cheapest."""
    with opened(table) as found:
        options: dict[str, Any] = {} if where is None else {"where": where}
        result = found.rewrite(
            strategy=strategy,
            max_bytes=max_bytes,
            deadline_seconds=_seconds(deadline),
            dry_run=dry_run,
            **options,
        )
        _print(found, "rewrite", result, as_json=as_json)


def compact(
    table: TableUri,
    max_bytes: MaxBytes = None,
    deadline: Deadline = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Pack small files together and fold deletes into them."""
    with opened(table) as found:
        result = found.compact(
            max_bytes=max_bytes, deadline_seconds=_seconds(deadline), dry_run=dry_run
        )
        _print(found, "compact", result, as_json=as_json)


def gc(
    table: TableUri,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace",
            metavar="DURATION",
            help="Keep what is younger. Must outlast every reader and writer; else gc.grace_days.",
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Delete objects that nothing can reach any more."""
    with opened(table) as found:
        result = found.collect_garbage(
            grace=None if grace is None else parse_duration(grace), dry_run=dry_run
        )
        _print(found, "collect_garbage", result, as_json=as_json)


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parse_duration(duration).total_seconds()


def _print(table: Table, operation: str, result: Any, *, as_json: bool) -> None:
    """A program gets every fact, a person those that are not nothing."""
    usage = table.usage
    facts = _plain(result)
    if as_json:
        cost = {
            "requests": usage.total,
            "bytes_up": usage.bytes_up,
            "bytes_down": usage.bytes_down,
        }
        print_record({"operation": operation, **facts, **cost}, as_json=True)
        return
    told = {
        name.replace("_", " "): value for name, value in facts.items() if value or name == "version"
    }
    print_record({"operation": operation, **told, "cost": usage_text(_Cost(usage))}, as_json=False)


class _Cost:
    def __init__(self, usage: Any) -> None:
        self.requests, self.bytes_up, self.bytes_down = (
            usage.total,
            usage.bytes_up,
            usage.bytes_down,
        )


def _plain(value: Any) -> Any:
    """Dataclasses as dicts, all the way down."""
    from inlay.errors import InlayError

    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, InlayError):
        return value.fields()
    if isinstance(value, tuple | list | frozenset | set):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value


def register(app: typer.Typer) -> None:
    add_verb(
        app,
        rewrite,
        Example("rewrite ./people", "all deletes"),
        Example("rewrite ./people --dry-run", "what would be done to which file, and why"),
        panel=PANEL,
    )
    add_verb(
        app,
        compact,
        Example("compact ./people", "everything worth doing"),
        Example("compact ./people --deadline 10m --max-bytes 2000000000", "within a budget"),
        panel=PANEL,
    )
    add_verb(
        app,
        gc,
        Example("gc ./people --dry-run", "what would be deleted"),
        Example("gc ./people --grace 2d", "keep what is younger than two days"),
        panel=PANEL,
    )
