"""The embedded S3 and SQS, seen from outside: the protocol, events, the process, what is kept."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import boto3
import polars as pl
import pytest
from botocore.exceptions import ClientError
from pyarrow.fs import FileSelector, S3FileSystem

from inlay.errors import InvalidRequest
from inlay.local.s3server import AwsApp, AwsProcess, EmbeddedAws
from inlay.storage.base import IF_ABSENT, MIN_PART_BYTES, Written
from inlay.storage.embedded_s3.request import AwsAnswer, AwsRequest, S3Error
from inlay.storage.embedded_s3.rest import EmbeddedS3
from inlay.storage.s3 import S3Store
from inlay.storage.s3_client import connect


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


def test_a_web_page_deletes_nothing(embedded_aws: AwsProcess, s3: Any, s3_bucket: str) -> None:
    """A browser sends a form of any page to a port of its machine, and need not sign here."""
    s3.put_object(Bucket=s3_bucket, Key="kept", Body=b"x")
    asked = "<Delete><Object><Key>kept</Key></Object></Delete>"
    page = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    connection = HTTPConnection(embedded_aws.endpoint_url.removeprefix("http://"))
    connection.request("POST", f"/{s3_bucket}?delete", asked, page)
    assert connection.getresponse().status == 403
    connection.close()
    assert s3.get_object(Bucket=s3_bucket, Key="kept")["Body"].read() == b"x"


def test_one_racer_wins_even_when_threads_switch_all_the_time() -> None:
    """A condition is checked and a body written in one step."""
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


def test_listings_of_both_versions_roll_up_and_go_on_where_they_stopped(
    s3: Any, s3_bucket: str
) -> None:
    names = [f"d/{n // 2}/x {n}+é" for n in range(7)] + ["d/file", "e"]
    for name in names:
        s3.put_object(Bucket=s3_bucket, Key=name, Body=b"")
    for operation in ("list_objects", "list_objects_v2", "list_object_versions"):
        for size in (1, 2, 1000):
            pages = list(
                s3.get_paginator(operation).paginate(
                    Bucket=s3_bucket,
                    Prefix="d/",
                    Delimiter="/",
                    PaginationConfig={"PageSize": size},
                )
            )
            prefixes = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ())]
            assert prefixes == ["d/0/", "d/1/", "d/2/", "d/3/"], (operation, size)
            contents = "Versions" if operation == "list_object_versions" else "Contents"
            keys = [each["Key"] for page in pages for each in page.get(contents, ())]
            assert keys == ["d/file"], (operation, size)
            every = s3.get_paginator(operation).paginate(
                Bucket=s3_bucket, PaginationConfig={"PageSize": size}
            )
            assert [each["Key"] for page in every for each in page[contents]] == names


def test_checksums_of_bodies_are_verified(s3: Any, s3_bucket: str) -> None:
    where = {"Bucket": s3_bucket, "Key": "k", "Body": b"hello"}
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        s3.put_object(**where, ChecksumAlgorithm=algorithm)
    for wrong in ({"ChecksumCRC32": "AAAAAA=="}, {"ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}):
        with pytest.raises(ClientError) as refused:
            s3.put_object(**where, **wrong)
        assert code(refused) == "BadDigest"


def chunked(body: bytes, *, checksum: int | None = None) -> AwsRequest:
    """As the SDKs of Java, Rust and Go send a body."""
    half = len(body) // 2
    sent = b""
    for piece in (body[:half], body[half:], b""):
        sent += f"{len(piece):x};chunk-signature={'0' * 64}\r\n".encode() + piece
        sent += b"\r\n" if piece else b""
    digest = zlib.crc32(body) if checksum is None else checksum
    crc = base64.b64encode(digest.to_bytes(4, "big")).decode()
    sent += f"x-amz-checksum-crc32:{crc}\r\n\r\n".encode()
    headers = {
        "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        "x-amz-decoded-content-length": str(len(body)),
        "content-encoding": "aws-chunked",
    }
    return AwsRequest("PUT", "/bucket/k", "", headers, sent)


def test_a_body_in_signed_chunks_is_put_together_and_verified() -> None:
    assert chunked(b"0123456789").body == b"0123456789"
    assert chunked(b"").body == b""
    with pytest.raises(S3Error, match="crc32"):
        _ = chunked(b"0123456789", checksum=7).body
    whole = chunked(b"0123456789")
    for cut in range(1, len(whole.sent) - 40):
        with pytest.raises(S3Error):
            _ = replace(whole, sent=whole.sent[:cut]).body
    server = EmbeddedS3()
    server(AwsRequest("PUT", "/bucket", "", {}, b""))
    assert server(chunked(b"0123456789")).status == 200
    got = server(AwsRequest("GET", "/bucket/k", "", {}, b""))
    assert (got.body, "content-encoding" in got.headers) == (b"0123456789", False)


def test_a_bucket_is_named_by_path_or_by_host() -> None:
    server = EmbeddedS3()
    server(AwsRequest("PUT", "/bucket", "", {}, b""))
    server(AwsRequest("PUT", "/bucket/a/k", "", {}, b"1"))
    for host in ("bucket.localhost:4566", "bucket.s3.eu-west-1.amazonaws.com"):
        assert server(AwsRequest("GET", "/a/k", "", {"host": host}, b"")).body == b"1"
    assert (
        server(AwsRequest("GET", "/bucket/a/k", "", {"host": "localhost:4566"}, b"")).body == b"1"
    )


def test_what_is_not_there_is_refused_by_name(s3: Any, s3_bucket: str) -> None:
    with pytest.raises(ClientError) as refused:
        s3.put_bucket_lifecycle_configuration(
            Bucket=s3_bucket, LifecycleConfiguration={"Rules": []}
        )
    assert code(refused) == "NotImplemented"
    assert "lifecycle" in str(refused.value)


def test_a_suspended_bucket_keeps_what_it_had_and_one_version_more(s3: Any, s3_bucket: str) -> None:
    def versioning(status: str) -> None:
        s3.put_bucket_versioning(Bucket=s3_bucket, VersioningConfiguration={"Status": status})

    def put(body: bytes) -> str | None:
        found: str | None = s3.put_object(Bucket=s3_bucket, Key="k", Body=body).get("VersionId")
        return found

    assert put(b"before") is None
    versioning("Enabled")
    named = put(b"named")
    versioning("Suspended")
    assert [put(b"null"), put(b"null again")] == ["null", "null"]
    listed = s3.list_object_versions(Bucket=s3_bucket)["Versions"]
    assert [each["VersionId"] for each in listed] == ["null", named]
    marker = s3.delete_object(Bucket=s3_bucket, Key="k")
    assert (marker["DeleteMarker"], marker["VersionId"]) == (True, "null")
    with pytest.raises(ClientError) as gone:
        s3.get_object(Bucket=s3_bucket, Key="k")
    assert code(gone) == "NoSuchKey"
    kept = s3.get_object(Bucket=s3_bucket, Key="k", VersionId=named)
    assert kept["Body"].read() == b"named"


def test_a_conditional_get_and_presigned_urls(s3: Any, s3_bucket: str) -> None:
    etag = s3.put_object(Bucket=s3_bucket, Key="k", Body=b"hello")["ETag"]
    for unchanged in ({"IfNoneMatch": etag}, {"IfModifiedSince": datetime.now(UTC)}):
        with pytest.raises(ClientError) as same:
            s3.get_object(Bucket=s3_bucket, Key="k", **unchanged)
        assert same.value.response["ResponseMetadata"]["HTTPStatusCode"] == 304
    url = s3.generate_presigned_url(
        "get_object", Params={"Bucket": s3_bucket, "Key": "k", "ResponseContentType": "x/y"}
    )
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert (answer.read(), answer.headers["content-type"]) == (b"hello", "x/y")


def test_tags_metadata_and_a_copy_onto_itself(s3: Any, s3_bucket: str) -> None:
    where = {"Bucket": s3_bucket, "Key": "k"}
    s3.put_object(**where, Body=b"1", Tagging="a=1&b=2", Metadata={"m": "1"}, CacheControl="no")
    assert s3.get_object(**where)["TagCount"] == 2
    s3.put_object_tagging(**where, Tagging={"TagSet": [{"Key": "c d", "Value": "3+"}]})
    assert s3.get_object_tagging(**where)["TagSet"] == [{"Key": "c d", "Value": "3+"}]
    itself = {"CopySource": where, **where}
    with pytest.raises(ClientError) as unchanged:
        s3.copy_object(**itself)
    assert code(unchanged) == "InvalidRequest"
    s3.copy_object(**itself, MetadataDirective="REPLACE", Metadata={"m": "2"})
    head = s3.head_object(**where)
    assert head["Metadata"] == {"m": "2"}
    assert "CacheControl" not in head
    assert s3.get_object_tagging(**where)["TagSet"] == [{"Key": "c d", "Value": "3+"}]
    s3.delete_object_tagging(**where)
    assert s3.get_object_tagging(**where)["TagSet"] == []


def test_arrow_reads_and_writes(embedded_aws: AwsProcess, s3_bucket: str) -> None:
    fs = S3FileSystem(
        access_key="x",
        secret_key="x",
        endpoint_override=embedded_aws.endpoint_url,
        region="us-east-1",
    )
    content = os.urandom(11 * 1024 * 1024)  # in parts
    with fs.open_output_stream(f"{s3_bucket}/d/big") as out:
        out.write(content)
    with fs.open_input_stream(f"{s3_bucket}/d/big") as found:
        assert found.read() == content
    fs.copy_file(f"{s3_bucket}/d/big", f"{s3_bucket}/d/copy")
    fs.move(f"{s3_bucket}/d/copy", f"{s3_bucket}/d/moved")
    paths = {each.path for each in fs.get_file_info(FileSelector(f"{s3_bucket}/d"))}
    assert paths == {f"{s3_bucket}/d/{name}" for name in ("big", "moved")}
    fs.delete_dir(f"{s3_bucket}/d")


def test_object_store_reads_and_writes(embedded_aws: AwsProcess, s3_bucket: str) -> None:
    """The Rust library under Polars, DataFusion, Delta Lake and obstore."""
    options = {
        "aws_endpoint_url": embedded_aws.endpoint_url,
        "aws_access_key_id": "x",
        "aws_secret_access_key": "x",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    frame = pl.DataFrame({"a": range(50_000)})
    frame.write_parquet(f"s3://{s3_bucket}/d/x.parquet", storage_options=options)
    found = pl.scan_parquet(f"s3://{s3_bucket}/d/*.parquet", storage_options=options)
    assert found.select(pl.col("a").sum()).collect().item() == sum(range(50_000))


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


def test_while_a_swap_of_a_key_is_under_way_others_of_it_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = AwsApp(["s3"], swap_ms=1)

    def put(key: str, **headers: str) -> AwsAnswer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return app(
            AwsRequest("PUT", f"/bucket/{key}" if key else "/bucket", "", named, b"x" * bool(key))
        )

    put("")
    etags = {key: put(key).headers["ETag"] for key in ("one", "other")}
    beside: list[int] = []

    def under_way(seconds: float) -> None:
        if not beside:
            beside.append(0)
            # Another swap of the key, one of another key, and a plain write.
            beside[:] = [
                put("one", if_match=etags["one"]).status,
                put("other", if_match=etags["other"]).status,
                put("one").status,
            ]

    monkeypatch.setattr("inlay.local.s3server.time.sleep", under_way)
    assert put("one", if_match=etags["one"]).status == 200
    assert beside == [409, 200, 200]
    assert put("one", if_match='"none"').status == 412
    assert put("one", if_match=etags["one"]).status == 200  # the same bytes, and nobody beside it


# -- what is kept ---------------------------------------------------------------------------------


def described(s3: Any, bucket: str) -> Any:
    """Everything a client can find out about a bucket."""
    versions = s3.list_object_versions(Bucket=bucket)
    objects = []
    for each in versions.get("Versions", ()):
        where = {"Bucket": bucket, "Key": each["Key"], "VersionId": each["VersionId"]}
        got = s3.get_object(**where)
        tags = s3.get_object_tagging(**where)["TagSet"]
        about = [got.get(name) for name in ("ETag", "LastModified", "Metadata", "ContentType")]
        objects.append((each["Key"], each["VersionId"], got["Body"].read(), about, tags))
    markers = [(e["Key"], e["VersionId"], e["IsLatest"]) for e in versions.get("DeleteMarkers", ())]
    return objects, markers, s3.get_bucket_versioning(Bucket=bucket).get("Status")


@pytest.mark.parametrize("killed", [False, True])
def test_a_data_dir_keeps_what_s3_held(tmp_path: Path, killed: bool) -> None:
    with AwsProcess(["s3"], data_dir=tmp_path) as aws:
        s3 = client("s3", aws)
        for bucket in ("plain", "versioned", "suspended", "dropped"):
            s3.create_bucket(Bucket=bucket)
        for status, bucket in (("Enabled", "versioned"), ("Enabled", "suspended")):
            s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
        for bucket in ("plain", "versioned", "suspended"):
            for body in (b"1", b"22", os.urandom(100_000)):
                s3.put_object(Bucket=bucket, Key="a/é &", Body=body, Metadata={"m": "1"})
                if bucket == "suspended":
                    s3.put_bucket_versioning(
                        Bucket=bucket, VersioningConfiguration={"Status": "Suspended"}
                    )
            s3.put_object(Bucket=bucket, Key="tagged", Body=b"", Tagging="a=1")
            s3.put_object_tagging(
                Bucket=bucket, Key="tagged", Tagging={"TagSet": [{"Key": "b", "Value": "2"}]}
            )
            s3.put_object(Bucket=bucket, Key="gone", Body=b"x")
            s3.delete_object(Bucket=bucket, Key="gone")
        s3.delete_bucket(Bucket="dropped")
        buckets = ("plain", "versioned", "suspended")
        held = {bucket: described(s3, bucket) for bucket in buckets}
        assert [len(objects) for objects, _, _ in held.values()] == [2, 5, 3]
        with pytest.raises(RuntimeError, match="did not start"):
            AwsProcess(["s3"], data_dir=tmp_path).start()
        if killed:
            assert aws._child is not None
            aws._child.kill()
    with EmbeddedAws(["s3"], data_dir=tmp_path) as aws:
        s3 = client("s3", aws)
        assert {bucket: described(s3, bucket) for bucket in buckets} == held
        assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == sorted(buckets)
        # It goes on: no version id comes twice.
        known = {version for _, version, *_ in held["versioned"][0]}
        new = s3.put_object(Bucket="versioned", Key="a/é &", Body=b"new")["VersionId"]
        assert new not in known
        with pytest.raises(InvalidRequest, match="another local S3"):
            EmbeddedAws(["s3"], data_dir=tmp_path).start()


def test_a_kill_between_the_steps_of_an_overwrite_leaves_one_of_the_two(tmp_path: Path) -> None:
    with EmbeddedAws(["s3"], data_dir=tmp_path) as aws:
        s3 = client("s3", aws)
        s3.create_bucket(Bucket="one")
        s3.put_object(Bucket="one", Key="k", Body=b"old")
        (old,) = (tmp_path / "objects").iterdir()
        kept = old.read_bytes()
        s3.put_object(Bucket="one", Key="k", Body=b"new")
    old.write_bytes(kept)  # as if it had not been removed yet
    (tmp_path / "objects" / "0000000000000009.partial").write_bytes(b"half")
    for _ in range(2):
        with EmbeddedAws(["s3"], data_dir=tmp_path) as aws:
            s3 = client("s3", aws)
            assert s3.get_object(Bucket="one", Key="k")["Body"].read() == b"new"
            assert len(list((tmp_path / "objects").iterdir())) == 1
