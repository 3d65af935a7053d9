"""A server whose listings show fractions of seconds, as MinIO's, Ceph's and MiniStack's do.

`Date` has whole seconds, and an erasure is opened at one: what landed in that second before it has to count
as older.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.ops.erase.request import erase_status
from inlay.storage.base import Head
from inlay.storage.embedded_s3.request import AwsAnswer, AwsRequest
from inlay.storage.s3 import S3Store

from .conftest import in_front_of_s3, new_s3_store

_SECONDS = re.compile(rb"(\d\d:\d\d:\d\d)(?:\.000)?Z</(LastModified|Initiated)>")


@dataclass
class Exact:
    """In front of the embedded S3: each time of a listing is at the end of its second."""

    inner: Any
    shown: int = 0

    def __call__(self, request: AwsRequest) -> AwsAnswer:
        answer: AwsAnswer = self.inner(request)
        if request.method != "GET" or not isinstance(answer.body, bytes):
            return answer
        body, count = _SECONDS.subn(rb"\1.999Z</\2>", answer.body)
        self.shown += count
        return replace(answer, body=body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def server() -> Iterator[Exact]:
    with in_front_of_s3(Exact) as found:
        yield found


@pytest.fixture
def store(server: Exact) -> S3Store:
    return new_s3_store()


def test_nothing_listed_is_newer_than_an_answer_that_comes_after_it(
    store: S3Store, server: Exact
) -> None:
    store.client.put_bucket_versioning(
        Bucket=store.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    for body in (b"1", b"2"):
        store.put("a", body)
    store.create_multipart("b")
    [listed], versions, [upload] = store.list(""), store.list_versions(""), store.list_uploads("")
    found = [listed.modified_us, upload.started_us, *(each.modified_us for each in versions)]
    now = store.head("a")
    assert isinstance(now, Head)
    assert server.shown == 4 and len(found) == 4
    assert max(found) <= now.date_us
    assert listed.modified_us == now.info.modified_us


def test_an_erasure_waits_for_what_landed_in_the_second_before_it(store: S3Store) -> None:
    uri = f"s3://{store.bucket}/tables/people"
    table = inlay.create(uri, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), sink)
    store.put("ingest/people/late.parquet", sink.getvalue())
    table.delete("id = 1", mode="erase")
    [erasure] = erase_status(inlay.connect(uri))
    assert "ingest/people/late.parquet" in [each.name for each in erasure.waiting]
