"""Delete rows older than a number of days: to be run once a day.

    python -m pipelines.retention --table s3://bucket/tables/events --column event_time --days 90

Age is measured by the store's clock, from midnight UTC, so runs on one day are one request: the second
changes nothing. The delete itself is a small marker whatever the table's size, and files that are entirely
older are dropped at once. With `--materialize` executors then remove the rows from files that are partly
older; otherwise compaction does so in time. Rows without a time stay. A run that was killed is run again.

docs/SPARK.md shows how to schedule it.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import inlay
from inlay.engine import Primitive, Schema, load_pointer
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.spark.connect import connect
from inlay.spark.maintenance import materialize_deletes
from pipelines.job import parser, plain, progress, run


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    asking.add_argument("--column", required=True, help="a date or time of each row")
    asking.add_argument("--days", type=int, required=True, help="how old rows may become")
    asking.add_argument("--where", help="only rows for which this is TRUE as well (SQL)")
    asking.add_argument(
        "--materialize", action="store_true", help="rewrite files that are partly older"
    )
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    if asked.days < 1:
        raise InvalidRequest(
            f"--days {asked.days} would delete today's rows", next_step="Give 1 or more"
        )
    loaded = load_pointer(connect(asked.table))
    today = datetime.fromtimestamp(loaded.date_us / 1e6, UTC).date()
    before = today - timedelta(days=asked.days)
    where = _older(loaded.snapshot.schema, asked.column, before.isoformat())
    if asked.where:
        where = f"{where} AND ({asked.where})"
    table = inlay.open(asked.table)
    if asked.dry_run:
        plan = table.scan(where=where).plan
        whole = sum(task.whole for task in plan.tasks)
        return {
            "dry_run": True,
            "where": where,
            "files_wholly_older": whole,
            "files_partly_older": len(plan.tasks) - whole,
        }
    request = f"retention {asked.column} {before} {asked.where or ''}".rstrip()
    done = table.delete(where, request_id=request)
    report = {
        "committed": done.committed,
        "version": done.version,
        "where": where,
        "deleted_files": done.removed_files,
    }
    if not asked.materialize:
        return report
    return {
        **plain(materialize_deletes(spark, asked.table, where=where, progress=progress())),
        **report,
    }


def _older(schema: Schema, column: str, day: str) -> str:
    field = schema.column(column)
    kind = None if field is None else field.type
    quoted = '"' + column.replace('"', '""') + '"'
    match kind:
        case Primitive("date"):
            return f"{quoted} < DATE '{day}'"
        case Primitive("timestamp"):
            return f"{quoted} < TIMESTAMP '{day} 00:00:00'"
        case Primitive("timestamptz"):
            return f"{quoted} < TIMESTAMP '{day} 00:00:00Z'"
        case _:
            raise SchemaMismatch(
                f"{column!r} is {kind or 'no column of the table'}, not a date or time",
                next_step=f"The table has: {', '.join(schema.names)}",
            )


if __name__ == "__main__":
    sys.exit(main())
