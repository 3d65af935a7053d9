"""The dialect of Ceph's gateway, on an embedded S3 that errs as the gateways of Ceph 16.2.15, 18.2.7 and
20.2.4 do.

As seen there: the `If-Match` of a write is compared with the ETag without quotes (16, 18) or with either
form (20); of a copied part's source no condition is checked, and of a copy's only by 20 (here by none); in
a bucket with versions 20 looks at what is there, but not as it writes. Against Ceph itself the suites of
stores and of killed processes run with INLAY_TEST_S3_ENDPOINT (docs/STORES.md).
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
from inlay.storage.embedded_s3.request import AwsAnswer, AwsRequest
from inlay.storage.s3 import S3Store

from .conftest import in_front_of_s3, new_s3_store

SCHEMA = pa.schema([("n", pa.int64())])


@dataclass
class Gateway:
    """In front of the embedded S3. `replaced_by`: what a copy's source is replaced by just before it."""

    inner: Any
    release: int = 16
    named: bool = False  # its answers bear ids of Ceph's, which a proxy may hide
    ignored: list[str] = field(default_factory=list)
    replaced_by: bytes | None = None

    def __call__(self, request: AwsRequest) -> AwsAnswer:
        answer = self._answer(request)
        if not self.named:
            return answer
        ids = {"x-amz-request-id": "tx00000451aa55b1c52aac8-006b04d5c6-4127-default"}
        return replace(answer, headers={**answer.headers, **ids})

    def _answer(self, request: AwsRequest) -> AwsAnswer:
        headers = dict(request.headers)
        given = headers.get("if-match", "")
        if request.method == "PUT" and given and self.release < 20:
            # The embedded S3 takes both forms; no ETag has quotes twice.
            headers["if-match"] = f'"{given}"' if '"' not in given else '"in quotes"'
        if request.method == "POST" or "x-amz-copy-source" in headers:
            for name in ("if-match", "if-none-match", "x-amz-copy-source-if-match"):
                if headers.pop(name, None) is not None:
                    self.ignored.append(name)
        if "x-amz-copy-source" in headers and self.replaced_by is not None:
            path = "/" + headers["x-amz-copy-source"].lstrip("/")
            self.inner(AwsRequest("PUT", path, "", {}, self.replaced_by))
            self.replaced_by = None
        return self.inner(replace(request, headers=headers))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with in_front_of_s3(Gateway) as found:
        yield found


@pytest.fixture
def store(gateway: Gateway) -> S3Store:
    return new_s3_store(dialect="ceph")


def with_versions(store: S3Store) -> None:
    store.client.put_bucket_versioning(
        Bucket=store.bucket, VersioningConfiguration={"Status": "Enabled"}
    )


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
    assert not table.maintain.verify().findings


@pytest.fixture(params=[16, 20])
def named(gateway: Gateway, request: pytest.FixtureRequest) -> Gateway:
    gateway.release, gateway.named = request.param, True
    return gateway


@pytest.fixture(params=[None, "aws", "ceph"])
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"dialect": request.param} if request.param else {}


def test_tables_work_where_the_gateway_is_known_by_its_ids(named: Gateway, options: dict[str, str]):
    uri = f"s3://{new_s3_store().bucket}/t"
    append(inlay.create(uri, SCHEMA, storage_options=options), 1, 2)
    append(inlay.open(uri, storage_options=options), 3)
    append(pickle.loads(pickle.dumps(inlay.open(uri, storage_options=options))), 4)
    assert sorted(pa.table(inlay.open(uri).scan())["n"].to_pylist()) == [1, 2, 3, 4]


def test_no_table_in_a_bucket_with_versions_of_a_known_gateway(
    named: Gateway, options: dict[str, str]
):
    store = new_s3_store()
    with_versions(store)
    with pytest.raises(UnsupportedStore, match="has versioning"):
        inlay.create(f"s3://{store.bucket}/t", SCHEMA, storage_options=options)
    assert not list(store.list(""))


def test_a_bucket_that_has_versions_since_is_refused_before_a_swap(named: Gateway):
    """The archive of the version before is written first, and its answer has a version's id."""
    store = new_s3_store()
    table = inlay.create(f"s3://{store.bucket}/t", SCHEMA)
    append(table, 1)
    with_versions(store)
    for writer in (table, inlay.open(table.uri)):
        with pytest.raises(UnsupportedStore, match="has versioning"):
            append(writer, 2)
    assert inlay.open(table.uri).version == 2


def test_a_part_of_a_changed_source_is_no_part_of_a_known_gateway(named: Gateway):
    store = new_s3_store()
    check_part_of_a_changed_source(store, named)


@pytest.mark.parametrize(
    "id_", ["tx0b1dba7b5d5f4dc5a1e5c-0060a1b2c3", "0A49CE4060975EAC", "tx0451-006b04d5c6-1-z"]
)
def test_other_servers_are_not_taken_for_ceph(gateway: Gateway, id_: str):
    inner = gateway._answer
    gateway._answer = lambda request: replace(  # type: ignore[method-assign]
        found := inner(request), headers={**found.headers, "x-amz-request-id": id_}
    )
    gateway.release = 20
    store = new_s3_store()
    with_versions(store)
    append(inlay.create(f"s3://{store.bucket}/t", SCHEMA), 1)


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
    check_part_of_a_changed_source(store, gateway)


def check_part_of_a_changed_source(store: S3Store, gateway: Gateway) -> None:
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
    with_versions(store)
    with pytest.raises(UnsupportedStore, match="has versioning"):
        inlay.create(f"s3://{store.bucket}/t", SCHEMA, storage_options={"dialect": "ceph"})
    assert not list(store.list(""))


def test_another_dialect_is_refused():
    with pytest.raises(InvalidRequest, match="'spaces' is no dialect of S3") as caught:
        inlay.connect("s3://lake/t", storage_options={"dialect": "spaces"})
    assert "aws, ceph" in caught.value.next_step
