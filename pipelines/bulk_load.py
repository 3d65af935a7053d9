"""Load a large data set into a table, as one commit or in parts.

    python -m pipelines.bulk_load --table s3://bucket/tables/events --source s3://bucket/dump/ \\
        --format parquet --create --primary-key id --sort-by event_time --request-id dump-2026-01-31

Rows are distributed by ranges of the sort columns, so that files do not overlap and queries can skip most
of them. With `--request-id` a repeated run changes nothing; with `--part-files 500` as well, 500 files of
the source make one commit, and a run that was killed continues with the part it was at. Between such runs
the source must not change: a part is identified by the names of its files.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import inlay
from inlay.errors import InvalidRequest, TableExists
from inlay.spark import append
from inlay.spark.types import arrow_for_new
from pipelines.job import names, parser, progress, rows_of, run, source_arguments


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    source_arguments(asking)
    asking.add_argument("--create", action="store_true", help="create the table if there is none")
    asking.add_argument("--primary-key", default="", help="of a new table: names with commas")
    asking.add_argument("--sort-by", default="", help="of a new table: names with commas")
    asking.add_argument("--files", type=int, help="how many files to write at least")
    asking.add_argument("--request-id", help="makes the load idempotent")
    asking.add_argument(
        "--part-files",
        type=int,
        metavar="N",
        help="commit after every N files of the source; needs --request-id",
    )
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    frame = rows_of(spark, asked)
    parts = _parts(frame, asked)
    if asked.dry_run:
        return {"dry_run": True, "schema": frame.schema.simpleString(), "parts": len(parts)}
    table = _table(frame, asked)
    report_progress = progress("parts")
    totals = {"rows": 0, "files": 0, "bytes": 0}
    done = 0
    for n, part in enumerate(parts):
        report_progress("load", n, len(parts))
        before = table.version
        _load(spark, asked, table, part)
        if table.refresh().version == before:
            continue  # an earlier run loaded this part
        done += 1
        commit = table.snapshot.commit
        for name in totals:
            totals[name] += getattr(commit, f"added_{name}") or 0
    report_progress("load", len(parts), len(parts))
    report = {"committed": done > 0, "version": table.version, "parts": len(parts)}
    return {**report, "parts_loaded": done, **totals}


def _parts(frame: Any, asked: argparse.Namespace) -> list[list[str]]:
    """The source's files in parts, in an order that is the same in each run; one part of [] is all."""
    if asked.part_files is None:
        return [[]]
    if not asked.request_id or asked.part_files < 1:
        raise InvalidRequest(
            "a load in parts must know which of them are done",
            next_step="Give --request-id, and --part-files of at least 1",
        )
    files = sorted(frame.inputFiles())
    return [files[n : n + asked.part_files] for n in range(0, len(files), asked.part_files)]


def _load(spark: Any, asked: argparse.Namespace, table: inlay.Table, files: list[str]) -> None:
    frame = rows_of(spark, asked, files)
    by_id = {field.id: field.name for field in table.snapshot.schema.fields}
    order = [by_id[found] for found in table.snapshot.sort_by]
    if order:
        number = asked.files or _files_of(frame, table)
        frame = frame.repartitionByRange(number, *order)  # sorted by who writes it
    elif asked.files:
        frame = frame.repartition(asked.files)
    identity = None
    if asked.request_id:
        part = f" {files[0]} … {files[-1]} ({len(files)})" if files else ""
        identity = asked.request_id + part
    append(frame, asked.table, request_id=identity, table_id=table.snapshot.table_id)


def _table(frame: Any, asked: argparse.Namespace) -> inlay.Table:
    if not asked.create:
        return inlay.open(asked.table)
    try:
        return inlay.create(
            asked.table,
            arrow_for_new(frame.schema),
            primary_key=names(asked.primary_key),
            sort_by=names(asked.sort_by),
        )
    except TableExists:
        return inlay.open(asked.table)


def _files_of(frame: Any, table: inlay.Table) -> int:
    """Enough files for the table's target size, going by Spark's own estimate of the input."""
    target = table.snapshot.settings.number("write.target_file_bytes")
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return max(1, -(-size // target))


if __name__ == "__main__":
    sys.exit(main())
