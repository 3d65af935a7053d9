"""Compact a large table: pack small files, fold deletes into files.

    python -m pipelines.compact --table s3://bucket/tables/events

The units are those of the scheduled `compact` function; here Spark tasks carry them out. A run that was
killed is just run again: what was committed is not planned any more.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import inlay
from inlay.spark.maintenance import compact
from pipelines.job import parser, progress, run


def main(arguments: list[str] | None = None) -> int:
    asking = parser("Compact a large table: pack small files, fold deletes into files")
    asking.add_argument("--target-bytes", type=int, help="size of files (a table property)")
    asking.add_argument("--small-bytes", type=int, help="pack files below this (a table property)")
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    sizes = {"target_bytes": asked.target_bytes, "small_bytes": asked.small_bytes}
    if asked.dry_run:
        plan = inlay.open(asked.table).compact(dry_run=True, **sizes).plan
        kinds = [unit.kind for unit in plan.units]
        counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        return {"dry_run": True, "units": counts, "read_bytes": plan.bytes}
    return compact(spark, asked.table, progress=progress(), **sizes)


if __name__ == "__main__":
    sys.exit(main())
