"""Load data into a branch, put it in order there, and publish it to main in one step.

    python -m pipelines.publish --table s3://bucket/tables/events --source s3://bucket/dump/2026-01-31/ \\
        --branch load-2026-01-31

Readers of main see nothing of the load until all of it is there, checked (--check) and compacted. A run
that was killed is run again with the same branch: what was loaded is not loaded twice. When main changed
meanwhile the branch is merged, else main becomes what the branch is.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import inlay
from inlay.errors import InvalidRequest
from inlay.spark.connect import at_ref
from inlay.spark.maintenance import compact
from pipelines.job import parser, plain, progress, rows_of, run, source_arguments


def main(arguments: list[str] | None = None) -> int:
    asking = parser("Load data into a branch, put it in order there, publish it to main", __doc__)
    source_arguments(asking)
    asking.add_argument("--branch", required=True, help="its name: one for each load")
    asking.add_argument(
        "--check",
        metavar="SQL",
        help='publish only if no loaded row is like this, such as "amount < 0 OR id IS NULL"',
    )
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    table = inlay.open(asked.table)
    frame = rows_of(spark, asked)
    if asked.dry_run:
        return {"dry_run": True, "schema": frame.schema.simpleString(), "branch": asked.branch}
    if asked.branch not in table.refs()["name"].to_pylist():
        table.branch(asked.branch)
    (
        frame.write.format("inlay")
        .mode("append")
        .option("ref", asked.branch)
        .option("requestId", f"publish {asked.branch}")
        .save(asked.table)
    )
    staged = inlay.open(asked.table, ref=asked.branch)
    if asked.check and (bad := staged.count(where=asked.check)):
        raise InvalidRequest(
            f"{bad} rows of the branch {asked.branch!r} are {asked.check}",
            next_step=f"Mend them on the branch, or drop it: inlay drop-ref {asked.table} {asked.branch}",
        )
    packed = compact(spark, at_ref(asked.table, asked.branch), progress=progress())
    done = table.refresh().merge(asked.branch)
    table.refresh().drop_ref(asked.branch)
    return {
        "version": done.version,
        "rows": inlay.open(asked.table).count(),
        "compacted": plain(packed),
    }


if __name__ == "__main__":
    sys.exit(main())
