"""Cluster a large table: all its rows in one order, so that lookups open few files.

    python -m pipelines.cluster --table s3://bucket/tables/events --dry-run

The order is the table's: `inlay set TABLE compact.strategy=zorder compact.columns="country, day"`. Rows are
distributed by Spark and written by its executors, a slice of files at a time, each slice a commit. A run
that was killed is run again: committed slices are in order and are skipped.

Files written before the current partitioning are repartitioned. Files in another order, because the order
was changed, are rewritten with `--older-than` and the version of that change.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from inlay.spark.cluster import SLICE_BYTES, cluster
from pipelines.job import parser, progress, run


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    asking.add_argument("--where", help="only files that may hold such rows (SQL)")
    asking.add_argument(
        "--older-than",
        type=int,
        metavar="VERSION",
        help="also rewrite ordered files of earlier versions: after a change of the order",
    )
    asking.add_argument(
        "--slice-bytes", type=int, default=SLICE_BYTES, help="bytes of files per commit (64 GiB)"
    )
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    result = cluster(
        spark,
        asked.table,
        where=asked.where,
        older_than=asked.older_than,
        slice_bytes=asked.slice_bytes,
        dry_run=asked.dry_run,
        progress=progress("slices"),
    )
    return {**({"dry_run": True} if asked.dry_run else {}), **asdict(result)}


if __name__ == "__main__":
    sys.exit(main())
