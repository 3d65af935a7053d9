"""Remove deleted rows from files, by row-group surgery where that is cheapest.

    python -m pipelines.materialize_deletes --table s3://bucket/tables/events

Readers see the same rows before and after; files without deleted rows only get a new entry in the metadata.
A run that was killed is run again.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import inlay
from inlay.spark.maintenance import materialize_deletes
from pipelines.job import parser, progress, run


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    asking.add_argument("--where", help="only files that may hold such rows (SQL)")
    asking.add_argument("--strategy", choices=("auto", "surgery", "rewrite"), default="auto")
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    if asked.dry_run:
        table = inlay.open(asked.table)
        files, markers = table.inspect.entries()
        hit = table.scan(where=asked.where).plan
        touched = [task.file for task in hit.tasks if task.markers]
        return {
            "dry_run": True,
            "files": len(files),
            "files_with_deletes": len(touched),
            "files_deleted_whole": hit.deleted,
            "deletes": len(markers),
            "read_bytes": sum(file.size for file in touched),
        }
    return materialize_deletes(
        spark, asked.table, where=asked.where, strategy=asked.strategy, progress=progress()
    )


if __name__ == "__main__":
    sys.exit(main())
