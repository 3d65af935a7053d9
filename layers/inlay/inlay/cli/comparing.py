"""Verbs that look at a table over time: history, diff."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import AsJson, OnDamaged, Ref, TableUri, Where, split_names
from inlay.cli.output import note, print_lines, print_record, print_rows
from inlay.cli.tables import opened

if TYPE_CHECKING:
    from inlay import Changes

PANEL = "Look"
# Rows of changes on a terminal: a screenful.
SCREEN_ROWS = 40
# Characters of a message on a terminal; a pipe gets all.
_MESSAGE = 40
# What people are shown, the most wanted first: what does not fit the terminal is left out.
_SAID = "message"
_HISTORY = {
    "version": "version",
    "time": "time (UTC)",
    "operation": "operation",
    "said": _SAID,
    "added_rows": "+ rows",
    "deleted_rows": "- rows",
    "files": "files",
    "markers": "markers",
    "bytes": "bytes",
    "who": "request, branch, refs",
    "added_files": "+ files",
    "removed_files": "- files",
}
_DIFF = {
    "operation": "operation",
    "versions": "versions",
    "added_rows": "+ rows",
    "deleted_rows": "- rows",
    "added_files": "+ files",
    "removed_files": "- files",
    "added_bytes": "+ bytes",
    "removed_bytes": "- bytes",
    "added_markers": "+ markers",
    "removed_markers": "- markers",
}


@verb(
    PANEL,
    Example("history ./people --limit 5", "the five newest versions"),
    Example("history ./people --json", "every fact of each, for a program"),
)
def history(
    table: TableUri,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", min=1, help="The newest versions; each costs one request."),
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List the versions that can still be read, newest first: when, what, how much, and who asked.

    A dot stands for what nobody counted: a delete by condition reads no rows.
    """
    with opened(table) as t:
        versions = t.inspect.history_records(limit=limit)
    if as_json:
        print_lines(versions)
        return
    shown = [_for_people(version) for version in versions]
    columns = [
        name for name in _HISTORY.values() if name != _SAID or any(row[_SAID] for row in shown)
    ]
    width = _MESSAGE if sys.stdout.isatty() else None
    print_rows(shown, as_json=False, columns=columns, cell_width=width)


def _for_people(version: dict[str, Any]) -> dict[str, Any]:
    said = [version["message"], *(f"{name}={text}" for name, text in version["metadata"].items())]
    branch = version["branch"] and f"on {version['branch']}"
    who = [version["request"], branch, *(f"[{name}]" for name in version["refs"])]
    told = version | {
        "said": "; ".join(filter(None, said)) or None,
        "who": ", ".join(filter(None, who)) or None,
        "time": version["time"].replace(microsecond=0, tzinfo=None),
    }
    return {shown: told[name] for name, shown in _HISTORY.items()}


@verb(
    PANEL,
    Example("diff ./people 3", "what happened since version 3"),
    Example("diff ./people 3 7 --rows", "the rows that versions 4 to 7 added and removed"),
    Example(
        'diff ./people 3 --net --where "id < 100" -o changes.parquet',
        "the net change of some rows, as a file",
    ),
)
def diff(
    table: TableUri,
    since: Annotated[int, typer.Argument(metavar="A", min=0, help="After this version, …")],
    to: Annotated[
        int | None,
        typer.Argument(metavar="B", min=1, help="… up to this one; the newest unless given."),
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="The rows that were added and removed, not a summary.")
    ] = False,
    net: Annotated[
        bool, typer.Option("--net", help="With --rows: rows that came and went cancel.")
    ] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns", "-c", metavar="COLUMN,…", help="With --rows: only these columns."
        ),
    ] = None,
    where: Where = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the rows to a .parquet, .csv or .json file instead.",
        ),
    ] = None,
    ref: Ref = None,
    on_damaged: OnDamaged = "raise",
    as_json: AsJson = False,
) -> None:
    """Show what happened between two versions: files, rows and bytes by operation, or the rows.

    Compaction and rewriting change no row: they are in the summary, never among the rows.
    """
    wants_rows = rows or net or where is not None or bool(columns) or output is not None
    wants_rows = wants_rows or on_damaged != "raise"
    with opened(table, ref=ref) as t:
        if wants_rows:
            changes = t.changes(
                since,
                to,
                columns=split_names(columns) or None,
                where=where,
                net=net,
                on_damaged=on_damaged,
            )
            _print_changes(changes, output, as_json=as_json)
            return
        summary = t.inspect.diff(max(since, 1), to)
    if not as_json:
        summary = summary.select(list(_DIFF)).rename_columns(list(_DIFF.values()))
    print_rows(summary, as_json=as_json, empty="nothing happened")


def _print_changes(changes: Changes, output: str | None, *, as_json: bool) -> None:
    from inlay.engine import LocalFiles

    reader = changes.to_reader()
    if output is not None:
        rows = LocalFiles.of(output).write(reader)
        print_record({"output": output, "rows": rows}, as_json=as_json)
    elif as_json:
        LocalFiles.of("-", format="jsonl").write(reader)
    elif sys.stdout.isatty():
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        for batch in reader:
            held.append(batch)
            if sum(b.num_rows for b in held) > SCREEN_ROWS:
                break
        shown = pa.Table.from_batches(held, schema=reader.schema)
        last = shown.schema.names[-3:]
        print_rows(
            shown.slice(0, SCREEN_ROWS),
            as_json=False,
            columns=[last[1], last[0], *shown.schema.names[:-3]],
            empty="no row changed",
            cell_width=40,
        )
        if shown.num_rows > SCREEN_ROWS:
            note(f"the first {SCREEN_ROWS} changes; --output writes all to a file")
    else:
        LocalFiles.of("-").write(reader)
