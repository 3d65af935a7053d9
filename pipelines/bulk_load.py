"""Load a large data set into a table, as one commit.

    python -m pipelines.bulk_load --table s3://bucket/tables/events --source s3://bucket/dump/ \\
        --format parquet --create --primary-key id --sort-by event_time --request-id dump-2026-01-31

Rows are distributed by ranges of the sort columns, so that files do not overlap and queries can leave
most of them out. With `--request-id` a repeated run changes nothing.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import inlay
from inlay.errors import TableExists
from inlay.format.properties import Properties
from inlay.spark.types import arrow_for
from pipelines.job import names, parser, rows_of, run, source_arguments


def main(arguments: list[str] | None = None) -> int:
    asking = parser("Load a large data set into a table, as one commit")
    source_arguments(asking)
    asking.add_argument("--create", action="store_true", help="create the table if there is none")
    asking.add_argument("--primary-key", default="", help="of a new table: names with commas")
    asking.add_argument("--sort-by", default="", help="of a new table: names with commas")
    asking.add_argument("--files", type=int, help="how many files to write at least")
    asking.add_argument("--request-id", help="makes the load once-only")
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    frame = rows_of(spark, asked)
    if asked.dry_run:
        return {"dry_run": True, "schema": frame.schema.simpleString()}
    table = _table(frame, asked)
    by_id = {field.id: field.name for field in table.snapshot.schema.fields}
    order = [by_id[found] for found in table.snapshot.sort_by]
    if order:
        files = asked.files or _files_of(frame, table)
        frame = frame.repartitionByRange(files, *order).sortWithinPartitions(*order)
    elif asked.files:
        frame = frame.repartition(asked.files)
    before = table.version
    writer = frame.write.format("inlay").mode("append")
    if asked.request_id:
        writer = writer.option("requestId", asked.request_id)
    writer.save(asked.table)
    commit = table.refresh().snapshot.commit
    return {
        "committed": table.version > before,
        "version": table.version,
        "rows": commit.added_rows,
        "files": commit.added_files,
        "bytes": commit.added_bytes,
    }


def _table(frame: Any, asked: argparse.Namespace) -> inlay.Table:
    if not asked.create:
        return inlay.open(asked.table)
    try:
        return inlay.create(
            asked.table,
            arrow_for(frame.schema),
            primary_key=names(asked.primary_key),
            sort_by=names(asked.sort_by),
        )
    except TableExists:
        return inlay.open(asked.table)


def _files_of(frame: Any, table: inlay.Table) -> int:
    """Enough files for the table's target size, going by Spark's own estimate of the input."""
    target = Properties(table.snapshot.properties).number("write.target_file_bytes")
    size = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes().toString())
    return max(1, -(-size // target))


if __name__ == "__main__":
    sys.exit(main())
