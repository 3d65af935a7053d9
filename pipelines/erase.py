"""Erase rows from a large table: readers stop seeing them at once, then every file is cleaned.

    python -m pipelines.erase --table s3://bucket/tables/events --where "user_id = 42" \\
        --request-id ticket-4711

Without `--where` open erasures continue. The job rewrites files and deletes nothing: `collect_garbage`
deletes the old objects and their versions, and writes the receipt (docs/ERASURE.md). A run that was killed
is run again.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

import inlay
from inlay.spark.maintenance import advance_erasures
from pipelines.job import parser, progress, run


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    asking.add_argument("--where", help="rows to erase (SQL); otherwise continue open erasures")
    asking.add_argument("--request-id", help="makes the erasure idempotent")
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    table = inlay.open(asked.table)
    if asked.dry_run:
        files = len(table.scan(where=asked.where).plan.tasks) if asked.where else 0
        return {"dry_run": True, "files": files, "open": len(table.snapshot.erasures)}
    if asked.where:
        table.delete(asked.where, mode="erase", request_id=asked.request_id)
    result = advance_erasures(spark, asked.table, progress=progress())
    return {**asdict(result), "open": len(table.refresh().snapshot.erasures)}


if __name__ == "__main__":
    sys.exit(main())
