"""Verbs that read rows: scan, count, explain."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import (
    AsJson,
    AsOf,
    Delimiter,
    Encoding,
    Null,
    OnDamaged,
    Param,
    Ref,
    TableUri,
    Version,
    Where,
    bound_values,
    local_files,
    split_names,
)
from inlay.cli.output import console, note, print_record, print_rows
from inlay.cli.tables import opened
from inlay.cli.values import counted

if TYPE_CHECKING:
    import pyarrow as pa

PANEL = "Read"
# Rows on a terminal unless more are asked for: a screenful.
SCREEN_ROWS = 20
# Longer values are cut there.
CELL_WIDTH = 40

Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", "-c", metavar="COLUMN,…", help="Only these columns, in this order."),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most this many rows.")]


@verb(
    PANEL,
    Example("scan ./people", "the first rows"),
    Example("scan ./people -c id,name -w \"at >= TIMESTAMP '2026-01-01'\" -n 5", "some of them"),
    Example("scan ./people --order-by 'born DESC' --limit 10", "the youngest"),
    Example("scan ./people --version 3 --output then.parquet", "an earlier version, as a file"),
    Example("scan ./people --json", "one JSON object a line"),
)
def scan(
    table: TableUri,
    columns: Columns = None,
    where: Where = None,
    param: Param = None,
    order_by: Annotated[
        str | None,
        typer.Option(
            "--order-by",
            metavar="COLUMN,…",
            help="The first rows of this order: 'price DESC, id'. NULLs last, or write NULLS FIRST.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=0,
            help=f"At most this many rows; {SCREEN_ROWS} on a terminal, else all.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write a .parquet, .csv, .tsv or .jsonl file instead; texts also as .gz or .zst. - is "
            "stdout, as in a pipe.",
        ),
    ] = None,
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    on_damaged: OnDamaged = "raise",
    as_json: AsJson = False,
) -> None:
    """Show the rows of a table: a table on a terminal, CSV in a pipe, or a file.

    In CSV, NULL is a field without anything and an empty text is "". `_file` and `_pos` are columns too:
    where a row is stored.
    """
    kind = "jsonl" if as_json and output in (None, "-") else None
    file = local_files([output or "-"], null, delimiter, encoding, kind)
    on_screen = output is None and not as_json and sys.stdout.isatty()
    to_stdout = output is None or output == "-"
    shown = SCREEN_ROWS if limit is None and on_screen else limit
    # Rows that run over the terminal leave no place for a bar.
    quiet = to_stdout and not on_screen and sys.stdout.isatty()
    with opened(table, version=version, as_of=as_of, ref=ref, quiet=quiet) as t:
        # One more than is shown: are there more?
        asked = shown + 1 if limit is None and shown is not None else shown
        reader = t.scan(
            columns=split_names(columns) or None,
            where=where,
            params=bound_values(param, where),
            order_by=order_by,
            limit=asked,
            on_damaged=on_damaged,
        ).to_reader()
        if on_screen:
            _print_screen(reader.read_all(), shown, limit is None)
            return
        rows = file.write(reader)
    if not to_stdout:
        print_record({"output": output, "rows": rows}, as_json=as_json)


def _print_screen(rows: pa.Table, shown: int | None, may_be_more: bool) -> None:
    print_rows(rows.slice(0, shown), as_json=False, cell_width=CELL_WIDTH)
    if may_be_more and shown is not None and rows.num_rows > shown:
        note(
            f"the first {counted(shown, 'row')}; --limit shows more, --output writes all to a file"
        )


@verb(
    PANEL,
    Example("count ./people", "all rows"),
    Example(
        'count ./people --where "name IS NULL" --as-of 2026-01-31T12:00:00Z', "some, back then"
    ),
)
def count(
    table: TableUri,
    where: Where = None,
    param: Param = None,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    on_damaged: OnDamaged = "raise",
    as_json: AsJson = False,
) -> None:
    """Count rows, from metadata alone where that is possible."""
    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        damaged: list[str] = []
        if on_damaged == "raise":
            rows = t.count(where=where, params=bound_values(param, where))
        else:
            scan = t.scan(where=where, params=bound_values(param, where), on_damaged=on_damaged)
            rows = scan.count()
            damaged = [file.key for file in scan.damaged]
        if as_json:
            record = {"rows": rows, "version": t.version}
            print_record(record | ({"left_out": damaged} if damaged else {}), as_json=True)
        else:
            console().print(rows)


@verb(
    PANEL, Example('explain ./people --where "id BETWEEN 1 AND 1000"', "which files a scan reads")
)
def explain(
    table: TableUri,
    columns: Columns = None,
    where: Where = None,
    param: Param = None,
    limit: Limit = None,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """Show what a scan would read, from metadata alone."""
    from dataclasses import asdict

    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        plan = t.scan(
            columns=split_names(columns) or None,
            where=where,
            params=bound_values(param, where),
            limit=limit,
        ).explain()
        if as_json:
            print_record(asdict(plan), as_json=True)
        else:
            console().print(str(plan), markup=False)
