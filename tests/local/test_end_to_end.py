"""The whole product as processes: files dropped, requests queued, functions killed."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest

import inlay
import inlay.errors
from inlay.local.runtime_api import Failed, Returned
from inlay.local.s3server import AwsProcess
from inlay.local.stack import LocalOptions, LocalStack, environment
from inlay.local.template import rate_seconds, read_body
from inlay.storage.embedded_s3.events import event as landing_event

from .test_runtime import wait_until

pytestmark = pytest.mark.functions
ROOT = Path(__file__).parents[2]
ORDERS = (ROOT / "events" / "orders.parquet").read_bytes()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    options = LocalOptions(
        template=ROOT / "template.yaml",
        parameters={"AutoCreate": "true"},
        schedules=False,
        retry_seconds=0,
        latency_ms=5,
        home=tmp_path_factory.mktemp("local"),
    )
    with LocalStack(options) as running, environment(running.environment):
        yield running


def land(stack: LocalStack, key: str, body: bytes = ORDERS) -> None:
    stack.s3.put_object(Bucket=stack.bucket, Key=f"ingest/{key}", Body=body)


def rows(stack: LocalStack, table: str) -> int:
    return inlay.open(stack.table_uri(table)).scan().to_arrow().num_rows


def log(stack: LocalStack, function: str) -> str:
    return (stack.options.home / f"{function}.log").read_text()


def test_what_runs_is_what_the_template_says(stack: LocalStack) -> None:
    """Queues, dead letters, notifications, versions, schedules: compared with the file itself."""
    body = read_body(ROOT / "template.yaml")
    resources = {name: each["Properties"] for name, each in body["Resources"].items()}
    kinds = {name: each["Type"] for name, each in body["Resources"].items()}
    queues = [name for name, kind in kinds.items() if kind == "AWS::SQS::Queue"]
    for name in queues:
        found = stack.sqs.get_queue_attributes(
            QueueUrl=stack.queue_url(name), AttributeNames=["All"]
        )["Attributes"]
        said = resources[name]
        assert found["MessageRetentionPeriod"] == str(said["MessageRetentionPeriod"])
        assert found["VisibilityTimeout"] == str(said.get("VisibilityTimeout", 30))
        redrive = json.loads(found["RedrivePolicy"]) if "RedrivePolicy" in found else None
        if redrive is None:
            assert "RedrivePolicy" not in said
            continue
        letters = redrive["deadLetterTargetArn"].rpartition(":")[2]
        assert said["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": f"{letters}.Arn"}
        assert int(redrive["maxReceiveCount"]) == said["RedrivePolicy"]["maxReceiveCount"]
    assert set(stack._queue_urls) == set(queues)
    notified = stack.s3.get_bucket_notification_configuration(Bucket=stack.bucket)
    assert [
        (
            each["QueueArn"].rpartition(":")[2],
            [r["Value"] for r in each["Filter"]["Key"]["FilterRules"]],
        )
        for each in notified["QueueConfigurations"]
    ] == [("IngestQueue", ["ingest/"]), ("PublishQueue", ["tables/", "/_latest_manifest"])]
    assert stack.s3.get_bucket_versioning(Bucket=stack.bucket)["Status"] == "Enabled"
    parameters = {name: each.get("Default") for name, each in body["Parameters"].items()}
    scheduled = {
        (
            Path(said["CodeUri"]).name,
            rate_seconds(parameters[event["Properties"]["Schedule"]["Ref"]]),
            event["Properties"].get("Input"),
        )
        for name, said in resources.items()
        if kinds[name] == "AWS::Serverless::Function"
        for event in said.get("Events", {}).values()
    }
    assert scheduled == {(s.function, s.every_seconds, s.input) for s in stack.template.schedules}
    given = {"AutoCreate": "true"}
    own = {name: value for name, value in stack.template.parameters.items() if "::" not in name}
    assert own == {**{name: str(value) for name, value in parameters.items()}, **given}


def test_dropped_files_become_rows_in_few_commits(stack: LocalStack) -> None:
    for number in range(12):
        land(stack, f"dropped/day={number}/a file+{number} é.parquet")
    stack.drain()
    assert rows(stack, "dropped") == 1200
    # The batch window gathers them; twelve commits would be one for each file.
    assert inlay.open(stack.table_uri("dropped")).version <= 7


def test_an_event_delivered_again_changes_nothing(stack: LocalStack) -> None:
    land(stack, "twice/orders.parquet")
    stack.drain()
    key = "ingest/twice/orders.parquet"
    head = stack.s3.head_object(Bucket=stack.bucket, Key=key)
    event = json.loads((ROOT / "events" / "ingest.direct_s3.json").read_text())
    event["Records"][0]["s3"]["bucket"]["name"] = stack.bucket
    event["Records"][0]["s3"]["object"].update(
        key=key, eTag=head["ETag"].strip('"'), versionId=head["VersionId"]
    )
    version = inlay.open(stack.table_uri("twice")).version
    for _ in range(3):
        stack.send("IngestQueue", event)
    assert stack.invoke("ingest", event) == Returned({"duplicate": 1})
    stack.drain()
    assert rows(stack, "twice") == 100
    assert inlay.open(stack.table_uri("twice")).version == version


def test_functions_with_one_event_at_the_same_time_ingest_it_once(stack: LocalStack) -> None:
    land(stack, "raced/first.parquet")
    stack.drain()
    event = landing_event(
        stack.bucket,
        "ingest/raced/not announced.parquet",
        size=len(ORDERS),
        etag=hashlib.md5(ORDERS).hexdigest(),
        at_us=int(datetime.now(UTC).timestamp() * 1_000_000),
    )
    # Lands unannounced, so that the four below are the first to hear of it.
    stack.s3.put_bucket_notification_configuration(
        Bucket=stack.bucket, NotificationConfiguration={}
    )
    land(stack, "raced/not announced.parquet")
    stack._notify()
    with ThreadPoolExecutor(4) as functions:
        answers = list(functions.map(lambda _: stack.invoke("ingest", event), range(4)))
    counted = sorted(str(a.payload) for a in answers if isinstance(a, Returned))
    assert counted == ["{'duplicate': 1}"] * 3 + ["{'ingested': 1}"]
    assert rows(stack, "raced") == 200


def test_bad_input_is_put_aside_with_its_reason_and_harms_nothing_else(stack: LocalStack) -> None:
    before = len(stack.dead_letters("IngestQueue"))
    land(stack, "mixed/good.parquet")
    stack.drain()
    land(stack, "mixed/text.parquet", b"not Parquet at all")
    land(stack, "mixed/short.parquet", ORDERS[:3000])
    land(stack, "mixed/also good.parquet")
    stack.send("IngestQueue", "not JSON")
    stack.drain()
    letters = stack.dead_letters("IngestQueue")[before:]
    assert sorted(letter.reasons["Error"] for letter in letters) == [
        "InvalidRequest",
        "UnreadableFile",
        "UnreadableFile",
    ]
    assert rows(stack, "mixed") == 200


def test_a_delete_request_hides_rows_and_maintenance_removes_them(stack: LocalStack) -> None:
    land(stack, "shop/orders.parquet")
    stack.drain()
    stack.send("DeleteQueue", {"table": "shop", "where": "customer_id = 7"})
    stack.send("DeleteQueue", {"table": "shop", "keys": {"order_id": [1, 2, 3]}})
    stack.drain()
    assert rows(stack, "shop") == 87
    for function in ("rewrite", "compact", "collect_garbage"):
        assert isinstance(stack.invoke(function, {"table": "shop"}), Returned)
        assert rows(stack, "shop") == 87
    assert inlay.open(stack.table_uri("shop")).inspect.tombstones().num_rows == 0


def test_an_erasure_runs_to_its_receipt(stack: LocalStack) -> None:
    land(stack, "person/orders.parquet")
    stack.drain()
    stack.send("EraseQueue", {"table": "person", "where": "customer_id = 7", "mode": "erase"})
    stack.drain()  # the rewrite function was notified by its queue
    assert rows(stack, "person") == 90
    for _ in range(4):
        answer = stack.invoke(
            "collect_garbage",
            {"table": "person", "grace_days": 0, "life_seconds": 0, "clock_margin_seconds": 0},
        )
        assert isinstance(answer, Returned)
    prefix = "tables/person/erasure/"
    receipts = stack.s3.list_objects_v2(Bucket=stack.bucket, Prefix=prefix)
    assert receipts["KeyCount"] == 1
    left = stack.s3.list_object_versions(Bucket=stack.bucket, Prefix="ingest/person/")
    assert not left.get("Versions") and not left.get("DeleteMarkers")


def test_a_redelivered_delete_spares_rows_that_came_later(stack: LocalStack) -> None:
    request = {"id": "only-once", "table": "again", "where": "customer_id = 7"}
    land(stack, "again/first.parquet")
    stack.drain()
    stack.send("DeleteQueue", request)
    stack.drain()
    land(stack, "again/second.parquet")
    stack.drain()
    stack.send("DeleteQueue", request)
    stack.drain()
    assert rows(stack, "again") == 190


def test_a_bad_delete_request_goes_to_the_dead_letters(stack: LocalStack) -> None:
    stack.send("DeleteQueue", {"table": "nobody-made-this", "where": "x = 1"})
    stack.send("DeleteQueue", "not JSON")
    # As when deployed, where those who may delete are not those who may erase.
    stack.send("DeleteQueue", {"table": "shop", "where": "customer_id = 7", "mode": "erase"})
    stack.drain()
    reasons = [letter.reasons["Error"] for letter in stack.dead_letters("DeleteQueue")]
    assert sorted(reasons) == ["InvalidRequest", "NotAllowed", "TableNotFound"]


# One ingest of one file: read the pointer, read the footer, copy, archive the pointer, swap it.
@pytest.mark.parametrize("requests", [1, 2, 3, 4, 5])
def test_a_function_killed_midway_is_tried_again_and_counts_once(
    stack: LocalStack, requests: int
) -> None:
    table = f"killed{requests}"
    land(stack, f"{table}/first.parquet")  # the table is there, the process is warm
    stack.drain()
    before = len(stack.aws.requests())

    def seen() -> int:
        """Requests of the function: our own are the file that lands, and SQS."""
        return sum(
            each.key.startswith(f"tables/{table}/") or each.operation == "GetObject"
            for each in stack.aws.requests(after=before)
        )

    killed: list[int] = []

    def kill() -> None:
        wait_until(lambda: seen() >= requests)
        stack.functions["ingest"].kill()
        killed.append(seen())

    killer = threading.Thread(target=kill)
    killer.start()
    land(stack, f"{table}/second.parquet")
    stack.drain()
    killer.join()
    stack.drain()
    assert killed, "the function ended before it could be killed"
    assert rows(stack, table) == 200


def test_a_message_that_fails_every_time_ends_in_the_dead_letters(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def fail(event: object) -> Failed:
        tries.append(event)
        return Failed("error", "out of order")

    monkeypatch.setattr(stack.functions["rewrite"], "invoke", fail)
    stack.send("RewriteQueue", {"table": "shop"})
    stack.drain()
    assert [letter.body for letter in stack.dead_letters("RewriteQueue")] == ['{"table": "shop"}']
    assert len(tries) == 5


def test_logs_name_the_commit_but_no_value_and_no_literal(stack: LocalStack) -> None:
    land(stack, "private/orders.parquet")
    stack.drain()
    for where in ("status = 'a secret'", "status = 'a secret' AND", "nothing = 'a secret'"):
        stack.send("DeleteQueue", {"table": "private", "where": where})
    stack.send("DeleteQueue", {"table": "private", "keys": {"order_id": ["a secret"]}})
    stack.send("DeleteQueue", {"table": "private", "where": ["a secret"]})
    stack.drain()
    told = log(stack, "delete")
    assert '"table":"private"' in told
    assert inlay.open(stack.table_uri("private")).snapshot.commit.id in told
    assert "a secret" not in told


def test_another_s3_server_is_watched_for_landing_files(stack: LocalStack, tmp_path: Path) -> None:
    """In a separate process: the settings of two stacks would meet in this one's environment."""
    script = tmp_path / "other.py"
    script.write_text(
        f"""
import subprocess, sys
from pathlib import Path
import inlay
import inlay.errors
from inlay.local.stack import LocalOptions, LocalStack, environment

options = LocalOptions(
    template=Path({str(ROOT / "template.yaml")!r}),
    parameters={{"AutoCreate": "true"}},
    endpoint_url=sys.argv[1],
    schedules=False,
    home=Path({str(tmp_path)!r}),
)
body = Path({str(ROOT / "events" / "orders.parquet")!r}).read_bytes()
with LocalStack(options) as stack, environment(stack.environment):
    stack.s3.put_object(Bucket=stack.bucket, Key="ingest/orders/é 1+1.parquet", Body=body)
    stack.drain()
    print(inlay.open(stack.table_uri("orders")).scan().to_arrow().num_rows)
"""
    )
    with AwsProcess(["s3"]) as other:
        ran = subprocess.run(
            [sys.executable, str(script), other.endpoint_url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.stdout.strip() == "100", ran.stderr


def test_draining_waits_for_scheduled_runs_and_names_the_logs_when_it_takes_too_long(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(
        stack.functions["rewrite"], "invoke", lambda event: release.wait() and Returned(None)
    )
    stack.send("RewriteQueue", {"table": "shop"})
    with pytest.raises(inlay.errors.StoreUnavailable, match="logs"):
        stack.drain(timeout_seconds=0.5)
    release.set()
    stack.drain()


def test_a_stack_goes_on_with_the_data_of_the_one_before(tmp_path: Path) -> None:
    def started(home: str) -> LocalStack:
        return LocalStack(
            LocalOptions(
                template=ROOT / "template.yaml",
                parameters={"AutoCreate": "true"},
                schedules=False,
                versioned=True,
                data_dir=tmp_path / "data",
                home=tmp_path / home,
            )
        )

    with started("one") as first, environment(first.environment):
        land(first, "kept/a.parquet")
        first.drain()
        version = inlay.open(first.table_uri("kept")).version
        key = first._erasure_key()
        # Lands, and the stack is stopped before anybody took its message.
        first._event_sources.stop_taking()
        land(first, "kept/b.parquet")
        parts: list[str] = []
        first.stop(parts.append)
        assert parts == ["functions", "batches and schedules", "S3 and SQS"]
    with started("two") as second, environment(second.environment):
        second.drain()
        assert rows(second, "kept") == 200
        # One commit for the file that was left; the other was ingested before.
        assert inlay.open(second.table_uri("kept")).version == version + 1
        assert second._erasure_key() == key


def test_local_up_says_what_ends_in_the_dead_letters(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "inlay", "local", "up", "--port", "0"]
    out = tmp_path / "out"
    with (
        out.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=file, cwd=tmp_path) as up,
    ):
        try:
            wait_until(lambda: "Ctrl-C" in out.read_text(), seconds=120)
            queue = next(
                row.split()[-1] for row in out.read_text().splitlines() if "delete queue" in row
            )
            sqs = boto3.client(
                "sqs",
                endpoint_url=queue.partition("/1234")[0],
                region_name="us-east-1",
                aws_access_key_id="local",
                aws_secret_access_key="local",
            )
            body = json.dumps({"table": "nobody-made-this", "where": "name = 'Mustermann'"})
            sqs.send_message(QueueUrl=queue, MessageBody=body)
            wait_until(lambda: "dead letter in Delete" in out.read_text(), seconds=120)
        finally:
            up.send_signal(signal.SIGINT)
            assert up.wait(120) == 0
    said = out.read_text()
    assert "request for nobody-made-this: TableNotFound" in said
    assert "inlay dlq show" in said
    assert "Mustermann" not in said
