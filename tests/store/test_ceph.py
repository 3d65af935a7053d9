"""The dialect of Ceph's gateway, on an embedded S3 that errs as the gateway of Ceph 16.2.15 does.

As seen there: the `If-Match` of a write is compared with the ETag without quotes, and of a copy's source
and a completed upload no condition is checked. Against Ceph itself the suites of stores and of killed
processes run with INLAY_TEST_S3_ENDPOINT and INLAY_S3_DIALECT=ceph (docs/STORES.md).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InvalidRequest, UnsupportedStore
from inlay.local.aws_request import Answer, Request
from inlay.storage.base import (
    MIN_PART_BYTES,
    ByteRange,
    Head,
    IfMatch,
    Location,
    Missing,
    Refused,
    Written,
)
from inlay.storage.s3 import S3Store

from .conftest import in_front_of_s3, new_s3_store

SCHEMA = pa.schema([("n", pa.int64())])


@dataclass
class Gateway:
    """In front of the embedded S3. `replaced_by`: what a copy's source is replaced by just before it."""

    inner: Any
    ignored: list[str] = field(default_factory=list)
    replaced_by: bytes | None = None

    def __call__(self, request: Request) -> Answer:
        headers = dict(request.headers)
        given = headers.get("if-match", "")
        if request.method == "PUT" and given:
            # The embedded S3 takes both forms; no ETag has quotes twice.
            headers["if-match"] = f'"{given}"' if '"' not in given else '"in quotes"'
        if request.method == "POST" or "x-amz-copy-source" in headers:
            for name in ("if-match", "if-none-match", "x-amz-copy-source-if-match"):
                if headers.pop(name, None) is not None:
                    self.ignored.append(name)
        if "x-amz-copy-source" in headers and self.replaced_by is not None:
            path = "/" + headers["x-amz-copy-source"].lstrip("/")
            self.inner(Request("PUT", path, "", {}, self.replaced_by))
            self.replaced_by = None
        return self.inner(replace(request, headers=headers))  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with in_front_of_s3(Gateway) as found:
        yield found


@pytest.fixture
def store(gateway: Gateway) -> S3Store:
    return new_s3_store(dialect="ceph")


def append(table: inlay.Table, *rows: int) -> None:
    table.append(pa.table({"n": pa.array(rows, pa.int64())}))


def test_without_the_dialect_the_first_swap_is_refused_by_name_and_changes_nothing(store: S3Store):
    table = inlay.create(f"s3://{store.bucket}/t", SCHEMA)
    with pytest.raises(UnsupportedStore, match="refused 6 times") as caught:
        append(table, 1)
    assert "INLAY_S3_DIALECT=ceph" in caught.value.next_step
    assert inlay.open(table.uri).version == 1


def test_tables_work_in_the_dialect(store: S3Store, monkeypatch: pytest.MonkeyPatch):
    uri = f"s3://{store.bucket}/t"
    table = inlay.create(uri, SCHEMA, storage_options={"dialect": "ceph"})
    append(table, 1, 2)
    append(pickle.loads(pickle.dumps(table)), 3)  # carried along: no process need be told
    monkeypatch.setenv("INLAY_S3_DIALECT", "ceph")
    table = inlay.open(uri)
    table.delete("n = 2", mode="surgery")
    append(table, 4)
    assert sorted(pa.table(table.scan())["n"].to_pylist()) == [1, 3, 4]
    assert not table.verify().findings


def test_a_swap_of_another_etag_is_refused(store: S3Store):
    first = store.put("k", b"1")
    assert isinstance(first, Written)
    assert isinstance(store.put("k", b"2", condition=IfMatch(first.etag)), Written)
    assert isinstance(store.put("k", b"3", condition=IfMatch(first.etag)), Refused)


def test_a_copy_of_a_source_that_changed_meanwhile_is_taken_back(store: S3Store, gateway: Gateway):
    landed = store.put("landed", b"checked")
    assert isinstance(landed, Written)
    source = Location("s3", store.bucket, "landed")
    gateway.replaced_by = b"another"  # as long as the first
    assert isinstance(store.copy(source, "copy", if_source_match=landed.etag), Refused)
    assert isinstance(store.head("copy"), Missing)
    assert "x-amz-copy-source-if-match" in gateway.ignored
    now = store.head("landed")
    assert isinstance(now, Head)
    assert isinstance(store.copy(source, "copy", if_source_match=now.info.etag), Written)


def test_a_part_of_a_source_that_changed_meanwhile_is_no_part(store: S3Store, gateway: Gateway):
    body = bytes(2 * MIN_PART_BYTES)
    landed = store.put("landed", body)
    assert isinstance(landed, Written)
    source = Location("s3", store.bucket, "landed")
    upload = store.create_multipart("k")
    part = ByteRange(0, MIN_PART_BYTES)
    copied: dict[str, Any] = {"source": source, "byte_range": part, "if_source_match": landed.etag}
    assert store.upload_part_copy("k", upload, 1, **copied).number == 1  # type: ignore[union-attr]
    gateway.replaced_by = body[1:] + b"x"
    assert isinstance(store.upload_part_copy("k", upload, 1, **copied), Refused)


def test_a_bucket_with_versioning_is_refused_before_anything_is_written(store: S3Store):
    store.client.put_bucket_versioning(
        Bucket=store.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    with pytest.raises(UnsupportedStore, match="has versioning"):
        inlay.create(f"s3://{store.bucket}/t", SCHEMA, storage_options={"dialect": "ceph"})
    assert not list(store.list(""))


def test_another_dialect_is_refused():
    with pytest.raises(InvalidRequest, match="'spaces' is no dialect of S3") as caught:
        inlay.connect("s3://lake/t", storage_options={"dialect": "spaces"})
    assert "aws, ceph" in caught.value.next_step
