"""Several tables in one commit: commit."""

from __future__ import annotations

import sys
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import (
    AsJson,
    DateFormat,
    Delimiter,
    Encoding,
    FileFormat,
    Null,
    RequestId,
    local_files,
)
from inlay.cli.output import print_rows, usage_text, write_record
from inlay.cli.tables import watching
from inlay.engine import decode_json
from inlay.errors import InvalidRequest

PANEL = "Write"


@verb(
    PANEL,
    Example(
        "commit plan.json --request-id order-4711",
        """[{"append": "./orders", "rows": [{"id": 1, "sku": "A-1"}]}, """
        """{"update": "./stock", "set": {"n": "n - 1"}, "where": "sku = ?", "params": ["A-1"]}]""",
    ),
    Example(
        "commit - --delimiter ';'",
        """[{"append": "./orders", "files": ["orders.csv"]}, """
        """{"upsert": "./items", "files": ["items.csv"], "on": ["order", "line"]}]""",
    ),
    Example(
        "commit case-7.json --request-id case-7",
        """[{"delete": "./people", "where": "id = 7", "mode": "erase"}, """
        """{"delete": "./orders", "where": "person = 7", "mode": "erase"}], with a receipt of each table""",
    ),
)
def commit(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN", help="A JSON file with the list of operations; - is standard input."
        ),
    ],
    request_id: RequestId = None,
    null: Null = None,
    delimiter: Delimiter = None,
    encoding: Encoding = "utf-8",
    format: FileFormat = None,
    date_format: DateFormat = None,
    as_json: AsJson = False,
) -> None:
    """Change several tables by one commit: all of them get a version, or none does.

    PLAN is a list of objects, one for each table. Each names its table by what it does there: append,
    upsert, overwrite, apply_changes (with "rows", objects, or "files"), delete ("where" or "keys", "mode"),
    update ("set", "where"), ingest ("objects"), alter, merge ("branch"), restore, tag ("name"),
    set_properties ("properties"), move (rows of "where", "to" another table). A table of "read" must still
    be as it was. Other fields are options of the verb as in Python: "on", "order", "message" …

    "params" are values for a ? or :name of "where" and "set": bound, never part of the SQL. With
    --request-id a plan that comes again changes nothing. A number that a double would round is refused:
    write it as text.
    """
    import inlay

    asked = _read(plan)
    with watching(quiet=as_json) as progress:
        opened = cache(partial(inlay.open, progress=progress))
        with inlay.transaction(request_id=request_id) as tx:
            tx.run(
                asked,
                open=opened,
                files=lambda paths: local_files(
                    paths, null, delimiter, encoding, format, date_format
                ),
            )
    if as_json:
        results = [{"table": uri, **write_record(done)} for uri, done in tx.by_table.items()]
        print_rows(results, as_json=True)
        return
    rows = [
        {
            "table": uri,
            "version": tx.versions[uri],
            "operation": done.operation,
            "done": "applied before"
            if done.applied_before
            else "committed"
            if done.committed
            else "nothing to do",
            "cost": usage_text(done.requests, done.bytes_up, done.bytes_down),
        }
        for uri, done in tx.by_table.items()
    ]
    print_rows(rows, as_json=False)


def _read(plan: str) -> Any:
    try:
        text = sys.stdin.read() if plan == "-" else Path(plan).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"the plan {plan} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        ) from None
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"the plan {plan} is not JSON that can be taken as it is: {error}"[:500]
        ) from None
