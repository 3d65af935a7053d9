"""Verbs about columns, and about how they cut a table into files: alter, schema, partition, partitions."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import (
    AsJson,
    AsOf,
    Message,
    Metadata,
    Ref,
    RequestId,
    TableUri,
    Version,
    assignments,
    noted,
    split_names,
    split_partitions,
)
from inlay.cli.output import print_rows, print_write
from inlay.cli.tables import opened
from inlay.errors import InvalidRequest

PANEL = "Columns"


@verb(
    PANEL,
    Example('alter ./people --add "email string"', "a new column, NULL in the rows there are"),
    Example(
        'alter ./orders --add "qty int not null" --default qty=1 --order qty',
        "with a default, in the first place",
    ),
    Example("alter ./people --rename ts=at --drop note", "two changes, one commit"),
    Example("alter ./events --widen n=bigint --widen day=timestamp", "wider types"),
    Example('alter ./people --add "address.zip string"', "within a struct"),
    Example(
        'alter ./people --primary-key id --comment "born=by the register"',
        "a key for a table that was made without one; what a column means",
    ),
)
def alter(
    table: TableUri,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="COLUMN", help="A new column, as in `create --schema`."),
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(
            "--default",
            metavar="NAME=SQL",
            help="What rows that are there have in a column of --add; NULL unless given.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="NAME,…", help="Columns to drop.")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option("--rename", metavar="OLD=NEW", help="Another name.")
    ] = None,
    widen: Annotated[
        list[str] | None,
        typer.Option("--widen", metavar="NAME=TYPE", help="A type that holds every value."),
    ] = None,
    optional: Annotated[
        list[str] | None,
        typer.Option("--optional", metavar="NAME,…", help="Required columns that may be NULL."),
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option("--order", metavar="NAME,…", help="Columns that come first, in this order."),
    ] = None,
    comment: Annotated[
        list[str] | None,
        typer.Option(
            "--comment", metavar="NAME=TEXT", help="What a column means; empty removes it."
        ),
    ] = None,
    primary_key: Annotated[
        list[str] | None,
        typer.Option(
            "--primary-key", metavar="COLUMN,…", help="What ranges and upserts use from now on."
        ),
    ] = None,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    as_json: AsJson = False,
) -> None:
    """Change the columns of a table, all at once, without touching a data file.

    Options may be repeated. Fields of structs are written outer.inner, what is in lists and maps
    outer.element and outer.value. A column keeps its identity when it is renamed or moved; a name that
    is used again never shows old data.

    Refused, with the reason, is what would lose or change a value: a narrower type, a required column
    without a default, dropping a column that the key, the order, the partitioning or a pending delete
    needs.
    """
    added: dict[str, str] = {}
    for name, column in map(_column, add or ()):
        if name in added:
            raise InvalidRequest(
                f"--add is given twice for {name[:80]!r}", next_step="Give it once"
            )
        added[name] = column
    for name, literal in assignments(default, "--default", empty=False).items():
        if name not in added:
            raise InvalidRequest(
                f"--default is for columns that are added, and {name!r} is not one",
                next_step='Add it as well: --add "qty int" --default qty=1',
            )
        added[name] += f" default {literal}"
    with opened(table) as t:
        result = t.alter(
            add=added,
            drop=split_names(drop),
            rename=assignments(rename, "--rename", empty=False),
            widen=assignments(widen, "--widen", empty=False),
            optional=split_names(optional),
            order=split_names(order),
            comment=assignments(comment, "--comment"),
            primary_key=None if primary_key is None else split_names(primary_key),
            request_id=request_id,
            **noted(message, metadata),
        )
    print_write(result, as_json=as_json)


@verb(
    PANEL,
    Example("schema ./people", "columns, types, defaults and ids"),
    Example("schema ./people --history", "what changed, and in which version"),
)
def schema(
    table: TableUri,
    history: Annotated[
        bool, typer.Option("--history", help="Every change of the columns instead, oldest first.")
    ] = False,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """Show the columns of a table with their ids and defaults, or how they came about."""
    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        rows = t.inspect.schemas() if history else t.inspect.columns()
    print_rows(rows, as_json=as_json)


# -- columns as text ------------------------------------------------------------------------------


# Parts of a path in double quotes may have blanks.
_ADDED = re.compile(r'\s*((?:"(?:[^"]|"")*"|[^\s"])+)\s+(.*)', re.DOTALL)


def _column(text: str) -> tuple[str, str]:
    """`address.zip string not null` → the path as it was written, and the rest."""
    parsed = _ADDED.fullmatch(text)
    name, rest = parsed.groups() if parsed else ("", "")
    if not name or not rest.strip():
        raise InvalidRequest(
            f"--add is a name and a type, not {text[:80]!r}",
            next_step='Write it as "email string" or "qty int not null"',
        )
    return name, rest


_PARTITIONS = ("partition", "files", "rows", "bytes", "deleted_rows", "spec_id")


@verb(
    "Write",
    Example('partition ./events "day(at)" "bucket(16, user_id)"', "from now on"),
    Example("partition ./events --none", "no longer"),
)
def partition(
    table: TableUri,
    fields: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIELD…",
            help="A column, or year(c), month(c), day(c), hour(c), bucket(16, c), truncate(4, c).",
            show_default=False,
        ),
    ] = None,
    none: Annotated[
        bool, typer.Option("--none", help="Do not partition what is written from now on.")
    ] = False,
    request_id: RequestId = None,
    message: Message = None,
    metadata: Metadata = None,
    as_json: AsJson = False,
) -> None:
    """Partition what is written from now on.

    Files that are there stay as they are, and queries go on as they are written: a condition on a
    column spares the partitions that cannot match. Compaction cuts the files it rewrites.
    """
    partition_by = split_partitions(fields)
    if bool(partition_by) == none:
        raise InvalidRequest(
            "give the fields to partition by, or --none",
            next_step="`inlay partitions` lists what there is",
        )
    with opened(table) as t:
        result = t.set_partitioning(
            *partition_by, request_id=request_id, **noted(message, metadata)
        )
    print_write(result, as_json=as_json)


@verb("Look", Example("partitions ./events", "what each holds"))
def partitions(
    table: TableUri,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """List the partitions that have files."""
    with opened(table, version=version, as_of=as_of, ref=ref) as t:
        rows = t.inspect.partitions()
    if not as_json:
        at = rows.schema.get_field_index("partition")
        rows = rows.set_column(at, "partition", [[_text(p) for p in rows["partition"].to_pylist()]])
    print_rows(rows, as_json=as_json, columns=_PARTITIONS, empty="no files")


def _text(partition: list[dict[str, Any]]) -> str:
    """`at_day=2024-02-29, region=NULL`."""
    named = (f"{p['name']}={'NULL' if p['value'] is None else p['value']}" for p in partition)
    return ", ".join(named) or "(none)"
