"""Compact large tables: pack small files, sort rows across files, fold deletes into files.

    python -m pipelines.compact --table s3://bucket/tables/events
    python -m pipelines.compact --queue https://sqs.eu-west-1.amazonaws.com/123456789012/inlay-handover

The units are those of the scheduled `compact` function; here Spark tasks carry them out. A run that was
killed is just run again: what was committed is not planned any more. With --queue the job takes the tables
that the function handed over, one after the other, until no more are there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import inlay
from inlay.errors import InvalidRequest
from inlay.spark.maintenance import compact
from pipelines.job import parser, plain, progress, run

# What one task may use of Python's memory, when nothing is said: half of a small executor's overhead.
TASK_MEMORY_BYTES = 2 * 2**30


def main(arguments: list[str] | None = None) -> int:
    asking = parser(
        "Compact large tables: pack small files, sort rows, fold deletes", __doc__, table=False
    )
    where = asking.add_mutually_exclusive_group(required=True)
    where.add_argument("--table", help="the table's URI: s3://… or file:///…")
    where.add_argument("--queue", help="URL of the queue to which the function hands tables over")
    asking.add_argument("--target-bytes", type=int, help="size of files (a table property)")
    asking.add_argument("--small-bytes", type=int, help="pack files below this (a table property)")
    asking.add_argument(
        "--task-memory-bytes",
        type=int,
        default=TASK_MEMORY_BYTES,
        help="memory for the Python of one task (2 GiB): no unit is planned that needs more",
    )
    return run(_job, asking.parse_args(arguments))


def _job(spark: Any, asked: argparse.Namespace) -> Any:
    if asked.queue is None:
        return _compact(spark, asked, asked.table)
    if asked.dry_run:
        raise InvalidRequest("a dry run looks at one table", next_step="Give --table")
    done = {uri: plain(_compact(spark, asked, uri)) for uri in handed_over(_sqs(), asked.queue)}
    failures = [failure for told in done.values() for failure in told.pop("failures", ())]
    return {"tables": done, "failures": failures}


def handed_over(sqs: Any, queue: str) -> Iterator[str]:
    """The URIs of tables that wait in the queue, each once. A message goes when its table is done, so
    a job that is killed leaves it to the next."""
    seen: set[str] = set()
    while True:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=1, WaitTimeSeconds=1)
        messages = answer.get("Messages", [])
        if not messages:
            return
        uri = json.loads(messages[0]["Body"])["table"]
        if uri not in seen:
            seen.add(uri)
            yield uri
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=messages[0]["ReceiptHandle"])


def _sqs() -> Any:
    import boto3

    return boto3.client("sqs")


def _compact(spark: Any, asked: argparse.Namespace, table: str) -> Any:
    sizes = {"target_bytes": asked.target_bytes, "small_bytes": asked.small_bytes}
    if asked.dry_run:
        plan = (
            inlay.open(table)
            .compact(dry_run=True, memory_bytes=asked.task_memory_bytes, **sizes)
            .plan
        )
        kinds = [unit.kind for unit in plan.units]
        counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        return {"dry_run": True, "units": counts, "read_bytes": plan.bytes}
    memory = {"task_memory_bytes": asked.task_memory_bytes}
    return compact(spark, table, progress=progress(), **sizes, **memory)


if __name__ == "__main__":
    sys.exit(main())
