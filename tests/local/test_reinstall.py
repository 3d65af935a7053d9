"""A stack that is deleted leaves its bucket; another one over it goes on where the first was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import inlay
from inlay.errors import InvalidRequest
from inlay.local.runtime_api import Failed
from inlay.local.s3server import AwsProcess
from inlay.local.stack import LocalOptions, LocalStack, environment

pytestmark = pytest.mark.functions
ROOT = Path(__file__).parents[2]
ORDERS = (ROOT / "events" / "orders.parquet").read_bytes()


def stack_on(aws: AwsProcess, home: Path, **parameters: str) -> LocalStack:
    options = LocalOptions(
        template=ROOT / "template.yaml",
        parameters={"AutoCreate": "true", **parameters},
        endpoint_url=aws.endpoint_url,
        schedules=False,
        retry_seconds=0,
        home=home,
    )
    return LocalStack(options)


def work(stack: LocalStack, function: str, **event: Any) -> Any:
    answer = stack.invoke(function, {"table": "orders", **event})
    assert not isinstance(answer, Failed), answer
    return answer.payload


def test_a_stack_over_a_retained_bucket_goes_on(tmp_path: Path) -> None:
    with AwsProcess(["s3"]) as aws, environment(aws.env()):
        with stack_on(aws, tmp_path / "first") as first, environment(first.environment):
            for name in ("a", "b"):
                key = f"ingest/orders/{name}.parquet"
                first.s3.put_object(Bucket=first.bucket, Key=key, Body=ORDERS)
            first.drain()
            first.send("DeleteQueue", {"table": "orders", "where": "customer_id = 7"})
            first.send(
                "EraseQueue",
                {"id": "e", "table": "orders", "where": "customer_id = 8", "mode": "erase"},
            )
            first.drain()
            bucket, uri = first.bucket, first.table_uri("orders")
        before = inlay.open(uri).version
        assert inlay.open(uri).count() == 160, "tables are read without any deployment"
        assert [e.id for e in inlay.open(uri).snapshot.erasures] == ["e"]

        with (
            stack_on(aws, tmp_path / "second", ExistingBucket=bucket) as second,
            environment(second.environment),
        ):
            versioning = second.s3.get_bucket_versioning(Bucket=bucket)
            assert versioning["Status"] == "Enabled", "as its first stack left it"
            late = "ingest/orders/late.parquet"
            second.s3.put_object(Bucket=bucket, Key=late, Body=ORDERS)
            # Its queues are new: every landed file is reported again, and counts once.
            second.drain()
            assert inlay.open(uri).count() == 260
            assert inlay.open(uri).version == before + 1
            second.send("DeleteQueue", {"table": "orders", "where": "customer_id = 7"})
            second.drain()
            assert inlay.open(uri).count() == 250
            work(second, "rewrite")
            # Nobody else is at work, and the local S3 has one clock.
            now = {"grace_days": 0, "life_seconds": 0, "clock_margin_seconds": 0}
            for _ in range(6):
                work(second, "collect_garbage", **now)
            receipts = second.s3.list_objects_v2(Bucket=bucket, Prefix="tables/orders/erasure/")
            assert len(receipts["Contents"]) == 1
            assert inlay.open(uri).snapshot.erasures == ()
            # What landed after the erasure was asked for is not its business.
            assert inlay.open(uri).count() == 250
            assert not inlay.open(uri).maintain.verify(depth="pages").errors
            for queue in second.template.queues:
                if queue.dead_letters is not None:
                    assert second.dead_letters(queue.logical_id) == [], json.dumps(queue.logical_id)


def test_an_embedded_server_has_no_bucket_from_before(tmp_path: Path) -> None:
    stack = LocalStack(
        LocalOptions(template=ROOT / "template.yaml", parameters={"ExistingBucket": "ours"})
    )
    with pytest.raises(InvalidRequest, match="makes its bucket itself"):
        stack.start()
