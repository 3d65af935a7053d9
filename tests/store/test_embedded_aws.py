"""The embedded S3 and SQS: what it adds to moto, seen from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from inlay.local.aws_process import AwsProcess
from inlay.local.s3server import EmbeddedAws
from inlay.storage.base import IF_ABSENT, MIN_PART_BYTES, Written
from inlay.storage.s3 import S3Store, connect


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")


def client(service: str, aws: AwsProcess | EmbeddedAws) -> Any:
    return boto3.client(
        service,
        endpoint_url=aws.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


@pytest.fixture
def s3(embedded_aws: AwsProcess) -> Any:
    return client("s3", embedded_aws)


@pytest.fixture
def sqs(embedded_aws: AwsProcess) -> Any:
    return client("sqs", embedded_aws)


@pytest.fixture
def queue(sqs: Any) -> Iterator[str]:
    url = sqs.create_queue(QueueName=f"queue-{uuid.uuid4().hex}")["QueueUrl"]
    yield url
    sqs.delete_queue(QueueUrl=url)


# -- S3 -------------------------------------------------------------------------------------------


def test_complete_honours_its_conditions(s3: Any, s3_bucket: str) -> None:
    old = s3.put_object(Bucket=s3_bucket, Key="k", Body=b"old")["ETag"]
    upload = s3.create_multipart_upload(Bucket=s3_bucket, Key="k")["UploadId"]
    part = s3.upload_part(Bucket=s3_bucket, Key="k", UploadId=upload, PartNumber=1, Body=b"new")
    complete = {
        "Bucket": s3_bucket,
        "Key": "k",
        "UploadId": upload,
        "MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    }
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"stale"'}):
        with pytest.raises(ClientError) as refused:
            s3.complete_multipart_upload(**complete, **condition)
        assert code(refused) == "PreconditionFailed"
    s3.complete_multipart_upload(**complete, IfMatch=old)
    assert s3.get_object(Bucket=s3_bucket, Key="k")["Body"].read() == b"new"
    with pytest.raises(ClientError) as gone:
        s3.complete_multipart_upload(**complete)
    assert code(gone) == "NoSuchUpload"


def test_parts_out_of_order_are_refused(s3: Any, s3_bucket: str) -> None:
    upload = s3.create_multipart_upload(Bucket=s3_bucket, Key="k")["UploadId"]
    where = {"Bucket": s3_bucket, "Key": "k", "UploadId": upload}
    etags = [
        s3.upload_part(**where, PartNumber=n, Body=b"x" * MIN_PART_BYTES)["ETag"] for n in (1, 2)
    ]
    parts = [{"PartNumber": 2, "ETag": etags[1]}, {"PartNumber": 1, "ETag": etags[0]}]
    with pytest.raises(ClientError) as refused:
        s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts})
    assert code(refused) == "InvalidPartOrder"


def test_unfinished_uploads_come_in_pages(s3: Any, s3_bucket: str) -> None:
    started = sorted(
        (key, s3.create_multipart_upload(Bucket=s3_bucket, Key=key)["UploadId"])
        for key in ("b", "a&<", "c", "b/x", "a&<")
    )
    pages = s3.get_paginator("list_multipart_uploads").paginate(
        Bucket=s3_bucket, PaginationConfig={"PageSize": 2}
    )
    found = [(each["Key"], each["UploadId"]) for page in pages for each in page["Uploads"]]
    assert sorted(found) == started
    assert [key for key, _ in found] == ["a&<", "a&<", "b", "b/x", "c"]


def test_a_plain_client_with_newer_checksums_and_managed_uploads_works(
    s3: Any, s3_bucket: str, tmp_path: Any
) -> None:
    content = os.urandom(9 * 1024 * 1024)  # over the threshold of a managed upload
    (tmp_path / "file").write_bytes(content)
    s3.upload_file(str(tmp_path / "file"), s3_bucket, "up/file", ExtraArgs={"ContentType": "x/y"})
    answer = s3.get_object(Bucket=s3_bucket, Key="up/file")
    assert answer["ContentType"] == "x/y"
    assert answer["Body"].read() == content
    s3.download_file(s3_bucket, "up/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


def test_requests_are_logged_by_the_server(embedded_aws: AwsProcess, s3_store: S3Store) -> None:
    last = max((each.number for each in embedded_aws.requests()), default=0)
    s3_store.put("a b", b"12345")
    s3_store.get("a b")
    s3_store.get("gone")
    list(s3_store.list(""))
    s3_store.delete(["a b"])
    told = [
        (each.operation, each.key, each.status, each.bucket == s3_store.bucket)
        for each in embedded_aws.requests(after=last)
    ]
    assert told == [
        ("PutObject", "a b", 200, True),
        ("GetObject", "a b", 200, True),
        ("GetObject", "gone", 404, True),
        ("ListObjectsV2", "", 200, True),
        ("DeleteObjects", "", 200, True),
    ]
    put, get = embedded_aws.requests(after=last)[:2]
    assert (put.bytes_in, get.bytes_out) == (5, 5)


def test_a_service_that_is_not_there_says_so(embedded_aws: AwsProcess) -> None:
    with pytest.raises(ClientError) as refused:
        client("sns", embedded_aws).list_topics()
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 501


def test_one_racer_wins_even_when_threads_switch_all_the_time() -> None:
    """Moto checks a condition in one step and writes in another; the lock makes it one."""
    interval = sys.getswitchinterval()
    with EmbeddedAws() as aws:
        raw = client("s3", aws)
        raw.create_bucket(Bucket="races")
        store = S3Store("races", client=connect(endpoint_url=aws.endpoint_url))
        sys.setswitchinterval(1e-5)
        try:
            with ThreadPoolExecutor(8) as pool:
                for n in range(20):
                    create = partial(store.put, f"k{n}", condition=IF_ABSENT)
                    bodies = [bytes([racer]) * 500_000 for racer in range(8)]
                    answers = list(pool.map(create, bodies))
                    assert sum(isinstance(answer, Written) for answer in answers) == 1
        finally:
            sys.setswitchinterval(interval)


# -- SQS ------------------------------------------------------------------------------------------


def test_an_object_raises_an_event_in_its_queue(
    s3: Any, sqs: Any, queue: str, s3_bucket: str
) -> None:
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    s3.put_bucket_notification_configuration(
        Bucket=s3_bucket,
        NotificationConfiguration={
            "QueueConfigurations": [
                {
                    "QueueArn": arn["QueueArn"],
                    "Events": ["s3:ObjectCreated:*"],
                    "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": "ingest/"}]}},
                }
            ]
        },
    )
    s3.put_object(Bucket=s3_bucket, Key="elsewhere/k", Body=b"")
    etag = s3.put_object(Bucket=s3_bucket, Key="ingest/a b.parquet", Body=b"x")["ETag"]
    bodies = [
        json.loads(message["Body"])
        for message in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    ]
    events = [record for body in bodies for record in body.get("Records", ())]
    assert [event["s3"]["object"]["key"] for event in events] == ["ingest%2Fa+b.parquet"]
    # The event's ETag is the store's, without quotes.
    assert events[0]["s3"]["object"]["eTag"] == etag.strip('"')


def test_a_long_poll_ends_as_soon_as_a_message_arrives(sqs: Any, queue: str) -> None:
    received: list[dict[str, Any]] = []

    def receive() -> None:
        received.append(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20))

    receiver = threading.Thread(target=receive)
    receiver.start()
    # The server answers others while one waits.
    sqs.send_message(QueueUrl=queue, MessageBody="hello")
    receiver.join(timeout=10)
    assert not receiver.is_alive()
    assert [message["Body"] for message in received[0]["Messages"]] == ["hello"]


def test_no_message_is_lost_between_senders_and_deleters(sqs: Any, queue: str) -> None:
    wanted = {f"{sender}-{n}" for sender in range(4) for n in range(15)}
    seen: set[str] = set()

    def send(sender: int) -> None:
        for n in range(15):
            sqs.send_message(QueueUrl=queue, MessageBody=f"{sender}-{n}")

    senders = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for sender in senders:
        sender.start()
    for _ in range(200):
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        for message in answer.get("Messages", ()):
            seen.add(message["Body"])
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        if seen == wanted:
            break
    for sender in senders:
        sender.join()
    assert seen == wanted


# -- the process ----------------------------------------------------------------------------------


def started() -> tuple[subprocess.Popen[str], str]:
    child = subprocess.Popen(
        [sys.executable, "-m", "inlay.local.s3server", "--port", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_the_server_prints_its_url_and_ends_on_sigterm() -> None:
    child, url = started()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    with urllib.request.urlopen(f"{url}/_inlay/requests", timeout=10) as answer:
        assert json.load(answer) == []
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=20) == 0


def test_the_server_ends_when_its_input_closes() -> None:
    child, _ = started()
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(timeout=20) == 0


def test_in_this_process_one_at_a_time_and_nothing_is_kept() -> None:
    with EmbeddedAws(latency_ms=30) as aws:
        s3 = client("s3", aws)
        s3.create_bucket(Bucket="kept")
        assert [each.operation for each in aws.requests()] == ["PutBucket"]
        with pytest.raises(RuntimeError, match="already running"):
            EmbeddedAws().start()
        assert aws.env()["AWS_ENDPOINT_URL_S3"] == aws.endpoint_url
    with EmbeddedAws() as aws:
        assert client("s3", aws).list_buckets()["Buckets"] == []
