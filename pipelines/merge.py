"""Merge change records (insert, update, delete) into a table.

    python -m pipelines.merge --table s3://bucket/tables/orders --source s3://bucket/cdc/orders/ \\
        --format json --schema "op string, id bigint, status string, seq bigint" \\
        --order seq --checkpoint s3://bucket/checkpoints/orders

With `--checkpoint` the source is a stream: every run takes what is new in it, one commit for each
micro-batch, each exactly once however often the job is killed; `--forever` waits for more. Without it
everything is merged in one commit, idempotent with `--request-id`.

Records of operations that are not known are refused, with their numbers, and so are columns that the table
lacks: `--schema` says which are read. Columns of the table that it leaves out keep their values.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import Any

from pyspark.errors import StreamingQueryException

from inlay.spark.change_records import operations_in
from inlay.spark.conditions import quoted
from inlay.spark.merge import MergeResult, merge
from inlay.spark.merge_sink import MergeSink
from inlay.spark.types import spelled
from pipelines.job import names, parser, run


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__)
    asking.add_argument("--source", required=True, help="what Spark is to read: a path or prefix")
    asking.add_argument("--format", default="json", help="its Spark format")
    asking.add_argument("--schema", required=True, help="of the records, as Spark DDL")
    asking.add_argument(
        "--order",
        required=True,
        help="the column that orders records by age (several, with commas)",
    )
    asking.add_argument("--on", default="", help="key columns, with commas (the primary key)")
    asking.add_argument(
        "--op", default="op", help="the column that says what a record does; '': all are rows"
    )
    asking.add_argument(
        "--operations",
        help="the producer, whose values and column the operations have (common)",
    )
    asking.add_argument("--deletes", default="", help="values of deletes instead, with commas")
    asking.add_argument("--rows", default="", help="with --deletes, values of inserts and updates")
    asking.add_argument("--checkpoint", help="a folder for the stream's progress")
    asking.add_argument("--max-files", type=int, default=1000, help="of one micro-batch")
    asking.add_argument("--forever", action="store_true", help="wait for more until killed")
    asking.add_argument("--request-id", help="makes a merge without checkpoint idempotent")
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    options: dict[str, Any] = {
        "order": names(asked.order),
        "on": names(asked.on),
        "op": asked.op or None,
        "operations": _operations(asked),
        "deletes": (names(asked.deletes) or None) if not asked.rows else None,
    }
    if asked.dry_run or not asked.checkpoint:
        records = spark.read.format(asked.format).schema(asked.schema).load(asked.source)
        if asked.dry_run:
            known = operations_in(asked.op, options["operations"], options["deletes"])
            op = spelled(known.column, records.columns) or known.column
            by_kind = records.groupBy(quoted(op)).count().collect() if asked.op else []
            return {"dry_run": True, "records": {str(row[0]): row[1] for row in by_kind}}
        return merge(records, asked.table, request_id=asked.request_id, **options)
    return _stream(spark, asked, options)


def _operations(asked: argparse.Namespace) -> Any:
    if asked.rows:
        return {"rows": names(asked.rows), "deletes": names(asked.deletes)}
    return asked.operations


def _stream(spark: Any, asked: argparse.Namespace, options: dict[str, Any]) -> dict[str, Any]:
    sink = MergeSink(asked.table, **options, on_result=_report)
    query = (
        spark.readStream.format(asked.format)
        .schema(asked.schema)
        .option("maxFilesPerTrigger", asked.max_files)
        .load(asked.source)
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", asked.checkpoint)
        .trigger(**({"processingTime": "10 seconds"} if asked.forever else {"availableNow": True}))
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        # The library's own words, which say what to do.
        raise sink.error or error from None
    counts = ("records", "late", "rows", "deleted_keys", "located")
    totals = {name: sum(getattr(result, name) for result in sink.results) for name in counts}
    return {
        "batches": len(sink.results),
        "committed": sum(r.committed for r in sink.results),
        **totals,
    }


def _report(batch_id: int, result: MergeResult) -> None:
    print(f"batch {batch_id}  {asdict(result)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
