"""Compact large tables: pack small files, sort rows across files, apply deletes.

    python -m pipelines.compact --table s3://bucket/tables/events
    python -m pipelines.compact --queue https://sqs.eu-west-1.amazonaws.com/123456789012/inlay-handover \\
        --under s3://bucket/tables/

The units are those of the scheduled `compact` function; here Spark tasks run them. A run that was killed is
run again: committed units are not planned any more. With --queue the job takes the tables that the function
handed over, one after the other, until none are left. A message that names no table under --under is left
to the queue's dead letters and counted as a failure; otherwise a sender to the queue could have any
location opened with this job's credentials.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import inlay
from inlay.errors import InlayError, InvalidRequest
from inlay.spark.maintenance import compact
from pipelines.job import parser, plain, progress, run

# What one task may use of Python's memory, when nothing is said: half of a small executor's overhead.
TASK_MEMORY_BYTES = 2 * 2**30
# How often one job receives a message that is not a handover: more than any queue's maxReceiveCount here,
# so that it ends in the dead letters, and bounded if a queue has none.
GIVEN_BACK = 10


def main(arguments: list[str] | None = None) -> int:
    asking = parser(__doc__, table=False)
    where = asking.add_mutually_exclusive_group(required=True)
    where.add_argument("--table", help="the table's URI: s3://… or file:///…")
    where.add_argument("--queue", help="URL of the queue to which the function hands tables over")
    asking.add_argument(
        "--under",
        action="append",
        default=[],
        metavar="URI",
        help="with --queue: only tables under this prefix, such as s3://bucket/tables/ (repeatable)",
    )
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
    if not asked.under:
        raise InvalidRequest(
            "a queue's messages may name any location",
            next_step="Restrict the tables: --under s3://bucket/tables/",
        )
    failures: list[Any] = []
    done: dict[str, Any] = {}
    for uri in handed_over(_sqs(), asked.queue, under=asked.under, refused=failures.append):
        try:
            done[uri] = plain(_compact(spark, asked, uri))
        except InlayError as error:  # the other tables are still processed
            failures.append({"table": uri, "error": str(error)})
    failures += [failure for report in done.values() for failure in report.pop("failures", ())]
    return {"tables": done, "failures": failures}


def handed_over(
    sqs: Any,
    queue: str,
    *,
    under: Sequence[str] = (),
    refused: Callable[[Any], None] = lambda _: None,
) -> Iterator[str]:
    """The URIs of tables that wait in the queue, each once; only those `under` a prefix, if any is given. A
    message is deleted when its table is done, so a job that is killed leaves it to the next. One that is
    not a handover is `refused` once and returned, as often as it takes to reach the dead letters."""
    seen: set[str] = set()
    given_back: Counter[str] = Counter()
    while True:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=1, WaitTimeSeconds=1)
        messages = answer.get("Messages", [])
        if not messages:
            return
        [message] = messages
        receipt = {"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]}
        try:
            uri = table_of(message["Body"], under)
        except InvalidRequest as error:
            name = message.get("MessageId", message["ReceiptHandle"])
            if not given_back[name]:
                refused({"message": name, "error": str(error)})
            given_back[name] += 1
            if given_back[name] < GIVEN_BACK:
                sqs.change_message_visibility(**receipt, VisibilityTimeout=0)
            continue
        if uri not in seen:
            seen.add(uri)
            yield uri
        sqs.delete_message(**receipt)


def table_of(body: str, under: Sequence[str]) -> str:
    """The table that a handover message names. Raises `InvalidRequest`, without the message's text."""
    try:
        report = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("a message of the handover queue is not JSON") from None
    uri = report.get("table") if isinstance(report, dict) else None
    if not isinstance(uri, str):
        raise InvalidRequest("a message of the handover queue names no table")
    parts = uri.partition("://")[2].split("/")
    climbs = any(part in ("", ".", "..") for part in parts[1:])
    if under and (climbs or not any(uri.startswith(prefix.rstrip("/") + "/") for prefix in under)):
        raise InvalidRequest("a message of the handover queue names a location outside --under")
    return uri


def _sqs() -> Any:
    import boto3

    return boto3.client("sqs")


def _compact(spark: Any, asked: argparse.Namespace, table: str) -> Any:
    sizes = {"target_bytes": asked.target_bytes, "small_bytes": asked.small_bytes}
    if asked.dry_run:
        plan = (
            inlay.open(table)
            .maintain.compact(dry_run=True, memory_bytes=asked.task_memory_bytes, **sizes)
            .plan
        )
        kinds = [unit.kind for unit in plan.units]
        counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        return {"dry_run": True, "units": counts, "read_bytes": plan.bytes}
    memory = {"task_memory_bytes": asked.task_memory_bytes}
    return compact(spark, table, progress=progress(), **sizes, **memory)


if __name__ == "__main__":
    sys.exit(main())
