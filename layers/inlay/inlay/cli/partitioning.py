"""Verbs about how a table is cut into files: partition, partitions."""

from __future__ import annotations

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
    noted,
    split_partitions,
)
from inlay.cli.output import print_rows, print_write
from inlay.cli.tables import opened
from inlay.errors import InvalidRequest

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
    wanted = split_partitions(fields)
    if bool(wanted) == none:
        raise InvalidRequest(
            "give the fields to partition by, or --none",
            next_step="`inlay partitions` lists what there is",
        )
    with opened(table) as found:
        result = found.set_partitioning(*wanted, request_id=request_id, **noted(message, metadata))
    print_write(result, as_json=as_json)


@verb(
    "Look",
    Example("partitions ./events", "what each holds"),
)
def partitions(
    table: TableUri,
    version: Version = None,
    as_of: AsOf = None,
    ref: Ref = None,
    as_json: AsJson = False,
) -> None:
    """List the partitions that have files."""
    with opened(table, version=version, as_of=as_of, ref=ref) as found:
        rows = found.partitions()
    if not as_json:
        at = rows.schema.get_field_index("partition")
        rows = rows.set_column(at, "partition", [[_text(p) for p in rows["partition"].to_pylist()]])
    print_rows(rows, as_json=as_json, columns=_PARTITIONS, empty="no files")


def _text(partition: list[dict[str, Any]]) -> str:
    """`at_day=2024-02-29, region=NULL`."""
    named = (f"{p['name']}={'NULL' if p['value'] is None else p['value']}" for p in partition)
    return ", ".join(named) or "(none)"
