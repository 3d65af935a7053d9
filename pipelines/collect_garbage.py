"""Collect the garbage of a table with millions of objects.

    python -m pipelines.collect_garbage --table s3://bucket/tables/events --dry-run
    python -m pipelines.collect_garbage --table s3://bucket/tables/events

Executors list and delete; the rules are those of the scheduled `collect_garbage` function, which suffices
for tables of up to some hundred thousand objects. A run that was killed is run again: deleted objects are
no longer listed. The key that signs the receipts of erasures is taken from INLAY_ERASURE_KEY.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from inlay.spark.garbage import collect_garbage
from pipelines.job import parser, progress, run

DAY_SECONDS = 86_400


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    asking.add_argument(
        "--grace-days",
        type=float,
        metavar="DAYS",
        help="how long an object must have been unneeded: longer than the longest read and the longest "
        "write (the table's property gc.grace_days, 7)",
    )
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    key = os.environ.get("INLAY_ERASURE_KEY")
    result = collect_garbage(
        spark,
        asked.table,
        grace_seconds=None if asked.grace_days is None else asked.grace_days * DAY_SECONDS,
        dry_run=asked.dry_run,
        hmac_key=key.encode() if key else None,
        progress=progress("ranges of keys"),
    )
    return {
        "dry_run": result.dry_run,
        "version": result.version,
        "objects": result.objects,
        "bytes": result.bytes,
        "kinds": {kind: tally.objects for kind, tally in result.kinds.items()},
        "young": result.young,
        "unknown": result.unknown_count,
        "uploads": result.uploads,
        "receipts": list(result.receipts),
        "waiting": [f"{erasure}: {wait.reason}" for erasure, wait in result.waiting],
        "failures": [{"key": f.key, "error": f.reason} for f in result.failures],
    }


if __name__ == "__main__":
    sys.exit(main())
