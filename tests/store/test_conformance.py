"""What every store must do: one suite, S3's rules, all stores.

Whatever passes may carry a table. Parts are 5 MiB because S3 takes no smaller ones. Set
INLAY_TEST_S3_ENDPOINT (with the usual AWS credentials) to run it against another S3 as well, and
INLAY_TEST_CLOUD=gs://inlay-test-… or abfss://inlay-test-…@… (with the credentials of its maker) for a
bucket whose name begins so: it is emptied before each test, so it must not keep what is deleted.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import pytest

from inlay.errors import InvalidRequest, StaleUpload, UnreadableFile
from inlay.storage.base import (
    IF_ABSENT,
    MIN_PART_BYTES,
    ByteRange,
    Got,
    Head,
    IfMatch,
    Location,
    Missing,
    ObjectStore,
    Part,
    Refused,
    Written,
)
from inlay.storage.open import open_store
from inlay.storage.s3 import S3Store
from inlay.storage.s3_client import connect

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subject:
    """A store under test, on a fresh bucket.

    `any_key`: keys with empty, "." and ".." segments work, and "a" can live beside "a/b".
    `enable_versioning`: None where the store has no versions.
    `other`: a second bucket to copy from; None where there are no buckets.
    `dots`: of `any_key`, those with backslashes and with "." and ".." segments too.
    `tags`: objects have tags.
    `markers`: what is deleted in a bucket with versions leaves a marker.
    `own_ids`: each content has a version id of its own, without versioning too.
    `uploads`: they are things of their own, as on S3: a part for one that is gone is refused when it is
    sent, a part sent again replaces the first, and the object is as old as its upload.
    """

    store: ObjectStore
    any_key: bool
    enable_versioning: Callable[[], None] | None = None
    other: ObjectStore | None = None
    dots: bool = True
    tags: bool = True
    markers: bool = True
    own_ids: bool = False
    uploads: bool = True

    def at(self, key: str) -> Location:
        return Location(self.store.scheme, self.store.bucket, key)


KINDS = ("memory", "directory", "s3")
OTHERS = ("external", "gcs", "azure", "cloud")


@pytest.fixture(params=[*KINDS, *(pytest.param(kind, marks=pytest.mark.wide) for kind in OTHERS)])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    yield SUBJECTS[request.param](request)


def memory_subject(request: pytest.FixtureRequest) -> Subject:
    from inlay.storage.memory import MemoryStore

    store = MemoryStore("one")
    return Subject(store, True, store.enable_versioning, store.at("two"))


def directory_subject(request: pytest.FixtureRequest) -> Subject:
    from inlay.storage.directory import DirectoryStore

    return Subject(DirectoryStore(request.getfixturevalue("tmp_path")), any_key=False)


def s3_subject(request: pytest.FixtureRequest) -> Subject:
    return on_s3(request.getfixturevalue("s3_store"))


def external_subject(request: pytest.FixtureRequest) -> Subject:
    """Another S3, with the credentials of the environment."""
    endpoint = os.environ.get("INLAY_TEST_S3_ENDPOINT")
    if not endpoint:
        pytest.skip("INLAY_TEST_S3_ENDPOINT is not set")
    client = connect(endpoint_url=endpoint)
    bucket = f"inlay-test-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    client.create_bucket(Bucket=f"{bucket}-2")
    return on_s3(S3Store(bucket, client=client))


def on_s3(store: S3Store) -> Subject:
    def enable_versioning() -> None:
        store.client.put_bucket_versioning(
            Bucket=store.bucket, VersioningConfiguration={"Status": "Enabled"}
        )

    return Subject(store, True, enable_versioning, store.at(f"{store.bucket}-2"))


def gcs_subject(request: pytest.FixtureRequest) -> Subject:
    store = request.getfixturevalue("gcs_store")

    def enable_versioning() -> None:
        path = f"/storage/v1/b/{store.bucket}"
        store._ask("PATCH", path, body=b'{"versioning": {"enabled": true}}')

    return on_gcs(store, enable_versioning, store.at(f"{store.bucket}-2"))


def on_gcs(
    store: ObjectStore,
    enable_versioning: Callable[[], None] | None = None,
    other: ObjectStore | None = None,
) -> Subject:
    facts = {"tags": False, "markers": False, "own_ids": True, "uploads": False}
    return Subject(store, True, enable_versioning, other, **facts)


def azure_subject(request: pytest.FixtureRequest) -> Subject:
    store = request.getfixturevalue("azure_store")
    name, _, host = store.bucket.partition("@")
    return on_azure(store, store.at(f"{name}-2@{host}"))


def on_azure(store: ObjectStore, other: ObjectStore | None = None) -> Subject:
    return Subject(store, True, None, other, dots=False, tags=False, uploads=False)


def cloud_subject(request: pytest.FixtureRequest) -> Subject:
    """A bucket of a real service, emptied."""
    uri = os.environ.get("INLAY_TEST_CLOUD")
    if not uri:
        pytest.skip("INLAY_TEST_CLOUD is not set")
    store, _ = open_store(uri)
    assert store.bucket.startswith("inlay-test-"), "only a bucket for this is emptied"
    for upload in list(store.list_uploads("")):
        store.abort_multipart(upload.key, upload.upload_id)
    gone = [(v.key, v.version_id) for v in store.list_versions("")]
    assert list(store.delete_versions(gone)) == []
    return on_gcs(store) if store.scheme == "gs" else on_azure(store)


SUBJECTS: dict[str, Callable[[pytest.FixtureRequest], Subject]] = {
    "memory": memory_subject,
    "directory": directory_subject,
    "s3": s3_subject,
    "external": external_subject,
    "gcs": gcs_subject,
    "azure": azure_subject,
    "cloud": cloud_subject,
}


@pytest.fixture
def store(subject: Subject) -> ObjectStore:
    return subject.store


def put(store: ObjectStore, key: str, body: bytes = b"x") -> Written:
    written = store.put(key, body)
    assert isinstance(written, Written)
    return written


def got(store: ObjectStore, key: str) -> bytes:
    answer = store.get(key)
    assert isinstance(answer, Got), answer
    return answer.body


def keys(store: ObjectStore, prefix: str = "", start_after: str | None = None) -> list[str]:
    return [info.key for info in store.list(prefix, start_after=start_after)]


def at_once(tasks: list[Callable[[], T]]) -> list[T]:
    """Run the tasks from as many threads, all let go at the same moment."""
    gate = Barrier(len(tasks))

    def run(task: Callable[[], T]) -> T:
        gate.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, tasks))


class TestReading:
    def test_what_was_put_is_what_one_gets(self, store: ObjectStore) -> None:
        written = put(store, "a/b.parquet", b"hello")
        answer = store.get("a/b.parquet")
        assert isinstance(answer, Got)
        assert (answer.body, answer.size, answer.etag) == (b"hello", 5, written.etag)

    def test_nothing_there_is_missing_and_says_when(self, store: ObjectStore) -> None:
        put(store, "there")
        for answer in (store.get("not/there"), store.head("not"), store.get_suffix("nope", 8)):
            assert isinstance(answer, Missing)
            assert answer.date_us > 1_500_000_000_000_000

    def test_dates_are_microseconds_of_the_stores_clock(self, store: ObjectStore) -> None:
        written = put(store, "k")
        answer = store.get("k")
        assert isinstance(answer, Got)
        # One clock: an object is never newer than the answer that shows it. Dates may be whole
        # seconds, so "now" can lag a little.
        assert written.date_us <= answer.date_us
        assert answer.modified_us <= answer.date_us
        assert answer.date_us - answer.modified_us < 60_000_000

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        put(store, "empty", b"")
        assert got(store, "empty") == b""
        suffix = store.get_suffix("empty", 8)
        assert isinstance(suffix, Got)
        assert (suffix.body, suffix.size) == (b"", 0)
        with pytest.raises(UnreadableFile):
            store.get("empty", byte_range=ByteRange(0, 1))

    def test_a_range_is_cut_at_the_end_and_refused_behind_it(self, store: ObjectStore) -> None:
        put(store, "k", b"0123456789")
        for byte_range, body in (
            (ByteRange(0, 1), b"0"),
            (ByteRange(3, 7), b"3456"),
            (ByteRange(0, 10), b"0123456789"),
            (ByteRange(8, 100), b"89"),
        ):
            answer = store.get("k", byte_range=byte_range)
            assert isinstance(answer, Got)
            assert (answer.body, answer.size) == (body, 10)
        with pytest.raises(UnreadableFile):
            store.get("k", byte_range=ByteRange(10, 11))

    def test_a_suffix_is_the_end_of_the_object(self, store: ObjectStore) -> None:
        written = put(store, "k", b"0123456789")
        for length, body in ((1, b"9"), (4, b"6789"), (10, b"0123456789"), (64, b"0123456789")):
            answer = store.get_suffix("k", length)
            assert isinstance(answer, Got)
            assert (answer.body, answer.size, answer.etag) == (body, 10, written.etag)

    def test_a_pinned_read_is_refused_after_an_overwrite(self, store: ObjectStore) -> None:
        first = put(store, "k", b"first")
        pinned = store.get("k", if_match=first.etag, byte_range=ByteRange(1, 3))
        assert isinstance(pinned, Got)
        assert pinned.body == b"ir"
        put(store, "k", b"other")
        refused = store.get("k", if_match=first.etag, byte_range=ByteRange(1, 3))
        assert isinstance(refused, Refused)
        assert refused.reason == "exists"
        assert isinstance(store.get("gone", if_match=first.etag), Missing)

    def test_head_returns_size_etag_metadata_and_headers(self, store: ObjectStore) -> None:
        written = store.put(
            "k",
            b"12345",
            metadata={"Made-By": "inlay"},
            headers={"ContentType": "application/vnd.apache.parquet", "CacheControl": "no-cache"},
        )
        assert isinstance(written, Written)
        answer = store.head("k")
        assert isinstance(answer, Head)
        assert (answer.info.key, answer.info.size, answer.info.etag) == ("k", 5, written.etag)
        assert answer.info.metadata == {"made-by": "inlay"}
        assert answer.info.headers["ContentType"] == "application/vnd.apache.parquet"
        assert answer.info.headers["CacheControl"] == "no-cache"

    def test_metadata_that_s3_cannot_carry_is_refused(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidRequest):
            store.put("k", b"", metadata={"who": "Zoë"})
        with pytest.raises(InvalidRequest):
            store.put("k", b"", headers={"NoSuchHeader": "x"})
        assert isinstance(store.head("k"), Missing)

    def test_a_memoryview_is_a_body(self, store: ObjectStore) -> None:
        store.put("k", memoryview(bytearray(b"0123456789"))[2:5])
        assert got(store, "k") == b"234"


class TestConditions:
    def test_create_refuses_what_is_there(self, store: ObjectStore) -> None:
        assert isinstance(store.put("k", b"1", condition=IF_ABSENT), Written)
        again = store.put("k", b"2", condition=IF_ABSENT)
        assert isinstance(again, Refused)
        assert again.reason == "exists"
        assert got(store, "k") == b"1"

    def test_swap_needs_the_etag_of_what_is_there(self, store: ObjectStore) -> None:
        first = put(store, "k", b"1")
        second = store.put("k", b"2", condition=IfMatch(first.etag))
        assert isinstance(second, Written)
        late = store.put("k", b"3", condition=IfMatch(first.etag))
        assert isinstance(late, Refused)
        assert late.reason == "exists"
        assert late.date_us > 0
        assert got(store, "k") == b"2"

    def test_swap_of_nothing_is_missing(self, store: ObjectStore) -> None:
        etag = put(store, "k").etag
        store.delete(["k"])
        refused = store.put("k", b"2", condition=IfMatch(etag))
        assert isinstance(refused, Refused)
        assert refused.reason == "missing"
        assert isinstance(store.get("k"), Missing)

    def test_an_etag_changes_with_the_bytes(self, store: ObjectStore) -> None:
        # Fast overwrites of equal length: what a clock or a reused inode could confuse.
        seen = {put(store, "k", f"{n:04d}".encode()).etag for n in range(200)}
        assert len(seen) == 200

    def test_one_racer_creates(self, store: ObjectStore) -> None:
        for round_number in range(10):
            key = f"race/{round_number}"
            bodies = [f"writer {n}".encode() for n in range(8)]
            answers = at_once(
                [partial(store.put, key, body, condition=IF_ABSENT) for body in bodies]
            )
            winners = [
                body
                for body, answer in zip(bodies, answers, strict=True)
                if isinstance(answer, Written)
            ]
            assert len(winners) == 1
            assert got(store, key) == winners[0]

    def test_one_racer_swaps(self, store: ObjectStore) -> None:
        etag = put(store, "pointer", b"0" * 4096).etag
        for round_number in range(20):
            bodies = [bytes([65 + n]) * (4096 + round_number) for n in range(8)]
            answers = at_once(
                [partial(store.put, "pointer", body, condition=IfMatch(etag)) for body in bodies]
            )
            winners = [
                (body, answer)
                for body, answer in zip(bodies, answers, strict=True)
                if isinstance(answer, Written)
            ]
            assert len(winners) == 1
            body, won = winners[0]
            assert got(store, "pointer") == body
            etag = won.etag

    def test_no_increment_is_lost(self, store: ObjectStore) -> None:
        put(store, "counter", b"0")

        def add_ten() -> None:
            done = 0
            for _ in range(100_000):
                if done == 10:
                    return
                current = store.get("counter")
                assert isinstance(current, Got)
                body = str(int(current.body) + 1).encode()
                if isinstance(store.put("counter", body, condition=IfMatch(current.etag)), Written):
                    done += 1
            raise AssertionError("starved")

        at_once([add_ten] * 4)
        assert got(store, "counter") == b"40"


class TestListing:
    ORDERED = (
        "t/!x",
        "t/a",
        "t/a b",
        "t/a!",
        "t/a+b",
        "t/a-b",
        "t/a.b",
        "t/a0",
        "t/aa",
        "t/b-/x",
        "t/b.parquet",
        "t/b/x",
        "t/b/y/z",
        "t/b0",
        "t/c%20d",
        "t/c+d",
        "t/é",
        "t/日本語",
        "t/\uffee",
        "t/😀",
    )

    def test_keys_come_in_order_of_their_utf8_bytes(self, store: ObjectStore) -> None:
        for key in reversed(self.ORDERED):
            put(store, key, key.encode())
        expected = sorted(self.ORDERED, key=str.encode)
        assert keys(store, "t/") == expected
        assert keys(store) == expected
        for key in self.ORDERED:
            assert got(store, key) == key.encode()

    def test_start_after_goes_on_behind_a_key(self, store: ObjectStore) -> None:
        for key in self.ORDERED:
            put(store, key)
        expected = sorted(self.ORDERED, key=str.encode)
        for after in (*expected, "t/b/", "t/b", "t/b0/", "t/b/y", "a", "u"):
            behind = [key for key in expected if key.encode() > after.encode()]
            assert keys(store, "t/", start_after=after) == behind

    def test_a_prefix_is_of_the_key_not_of_a_folder(self, store: ObjectStore) -> None:
        for key in ("x/ab/1", "x/abc", "x/a", "x/b", "xx"):
            put(store, key)
        assert keys(store, "x/ab") == ["x/ab/1", "x/abc"]
        assert keys(store, "x/ab/") == ["x/ab/1"]
        assert keys(store, "x") == ["x/a", "x/ab/1", "x/abc", "x/b", "xx"]
        assert keys(store, "nothing/here") == []

    def test_a_listing_returns_size_etag_and_time(self, store: ObjectStore) -> None:
        written = put(store, "a/k", b"12345")
        (info,) = store.list("a/")
        assert (info.key, info.size, info.etag) == ("a/k", 5, written.etag)
        head = store.head("a/k")
        assert isinstance(head, Head)
        assert info.modified_us == head.info.modified_us

    def test_a_listing_is_longer_than_a_page(self, store: ObjectStore) -> None:
        expected = [f"many/{n:05d}" for n in range(1_003)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda key: put(store, key, b""), expected))
        assert keys(store, "many/") == expected
        # … and so is a delete: 1,000 keys is the most one request takes.
        assert list(store.delete([*expected, "many/never-there"])) == []
        assert keys(store, "many/") == []

    def test_common_prefixes_are_one_level_below(self, store: ObjectStore) -> None:
        for key in ("t/a/1", "t/a/2/3", "t/b.c/1", "t/b/1", "t/file", "u/x"):
            put(store, key)
        assert list(store.list_prefixes("t/")) == ["t/a/", "t/b.c/", "t/b/"]
        assert list(store.list_prefixes("")) == ["t/", "u/"]
        assert list(store.list_prefixes("none/")) == []

    def test_a_prefix_without_objects_is_no_prefix(self, store: ObjectStore) -> None:
        put(store, "t/a/1")
        put(store, "t/b/1")
        store.delete(["t/a/1"])
        assert list(store.list_prefixes("t/")) == ["t/b/"]
        assert keys(store, "t/") == ["t/b/1"]


class TestKeys:
    SAFE = (
        "sp ace/pl+us/per%cent/per%2Fcent",
        "quo'te/dou\"ble/am&p/<angle>",
        "ünï/日本/😀",
        "question?mark#hash",
        "semi;colon=equals,comma",
        "..leading/trailing../..",
        ".hidden/~tilde",
        "back\\slash",
    )

    def test_awkward_keys_work_everywhere(self, subject: Subject) -> None:
        store = subject.store
        all_work = subject.any_key and subject.dots
        names = [key for key in self.SAFE if all_work or not key.endswith("/..")]
        if not subject.dots:
            names.remove("back\\slash")
        for key in names:
            put(store, key, key.encode())
            assert isinstance(store.copy(subject.at(key), f"copy of {key}"), Written)
        for key in names:
            assert got(store, key) == key.encode()
            assert got(store, f"copy of {key}") == key.encode()
            assert keys(store, key) == [key]
            assert isinstance(store.head(key), Head)
        assert list(store.delete(names)) == []
        assert [key for key in keys(store) if not key.startswith("copy of ")] == []

    def test_dots_and_empty_segments_are_names_or_refused(self, subject: Subject) -> None:
        for key in ("a/../b", "a/./b", "a//b", "../up", "a/"):
            dots = not {".", ".."}.isdisjoint(key.split("/"))
            if subject.any_key and (subject.dots or not dots):
                put(subject.store, key, key.encode())
                assert got(subject.store, key) == key.encode()
                assert key in keys(subject.store, key)
            else:
                with pytest.raises(InvalidRequest):
                    subject.store.put(key, b"x")
                with pytest.raises(InvalidRequest):
                    subject.store.get(key)
                with pytest.raises(InvalidRequest):
                    subject.store.delete([key])

    def test_an_object_beside_a_folder_of_its_name(self, subject: Subject) -> None:
        put(subject.store, "a")
        if subject.any_key:
            put(subject.store, "a/b")
            assert keys(subject.store) == ["a", "a/b"]
        else:
            with pytest.raises(InvalidRequest):
                subject.store.put("a/b", b"x")
            put(subject.store, "d/e")
            with pytest.raises(InvalidRequest):
                subject.store.put("d", b"x")

    def test_no_key_and_too_long_a_key_are_refused(self, store: ObjectStore) -> None:
        for key in ("", "k" * 1025):
            with pytest.raises(InvalidRequest):
                store.put(key, b"x")


class TestDeleting:
    def test_deleting_what_is_not_there_succeeds(self, store: ObjectStore) -> None:
        put(store, "k")
        assert list(store.delete(["k", "never", "deep/never"])) == []
        assert isinstance(store.get("k"), Missing)
        assert list(store.delete([])) == []


class TestCopying:
    def test_a_copy_has_bytes_metadata_and_type(self, subject: Subject) -> None:
        store = subject.store
        store.put("src", b"bytes", metadata={"a": "b"}, headers={"ContentType": "text/csv"})
        copied = store.copy(subject.at("src"), "deep/dst")
        assert isinstance(copied, Written)
        answer = store.head("deep/dst")
        assert isinstance(answer, Head)
        assert answer.info.etag == copied.etag
        assert answer.info.metadata == {"a": "b"}
        assert answer.info.headers["ContentType"] == "text/csv"
        assert got(store, "deep/dst") == b"bytes"

    def test_a_bare_copy_has_the_bytes_alone(self, subject: Subject) -> None:
        store = subject.store
        headers = {"ContentType": "text/csv", "ContentDisposition": "inline"}
        if subject.tags:
            headers["Tagging"] = "a=b"
        store.put("src", b"bytes", metadata={"a": "b"}, headers=headers)
        assert isinstance(store.copy(subject.at("src"), "dst", bare=True), Written)
        answer = store.head("dst")
        assert isinstance(answer, Head)
        assert dict(answer.info.metadata) == {}
        assert answer.info.headers.get("ContentType") != "text/csv"
        assert not {"ContentDisposition", "Tagging"} & set(answer.info.headers)
        assert got(store, "dst") == b"bytes"

    def test_a_copy_is_its_own_object(self, subject: Subject) -> None:
        put(subject.store, "src", b"before")
        subject.store.copy(subject.at("src"), "dst")
        put(subject.store, "src", b"after!")
        assert got(subject.store, "dst") == b"before"

    def test_a_copy_of_a_changed_source_is_refused(self, subject: Subject) -> None:
        first = put(subject.store, "src", b"1")
        pinned = subject.store.copy(subject.at("src"), "dst", if_source_match=first.etag)
        assert isinstance(pinned, Written)
        put(subject.store, "src", b"2")
        refused = subject.store.copy(subject.at("src"), "dst2", if_source_match=first.etag)
        assert isinstance(refused, Refused)
        assert refused.reason == "exists"
        assert isinstance(subject.store.get("dst2"), Missing)

    def test_a_copy_of_nothing_is_missing(self, subject: Subject) -> None:
        assert isinstance(subject.store.copy(subject.at("nothing"), "dst"), Missing)
        assert isinstance(subject.store.get("dst"), Missing)

    def test_a_copy_honours_the_condition_on_its_target(self, subject: Subject) -> None:
        put(subject.store, "src", b"new")
        old = put(subject.store, "dst", b"old")
        refused = subject.store.copy(subject.at("src"), "dst", condition=IF_ABSENT)
        assert isinstance(refused, Refused)
        assert got(subject.store, "dst") == b"old"
        swapped = subject.store.copy(subject.at("src"), "dst", condition=IfMatch(old.etag))
        assert isinstance(swapped, Written)
        assert got(subject.store, "dst") == b"new"

    def test_a_copy_comes_from_another_bucket(self, subject: Subject) -> None:
        if subject.other is None:
            pytest.skip("a store without buckets")
        put(subject.other, "src", b"elsewhere")
        source = Location(subject.other.scheme, subject.other.bucket, "src")
        assert isinstance(subject.store.copy(source, "dst"), Written)
        assert got(subject.store, "dst") == b"elsewhere"


BIG = bytes(range(256)) * (MIN_PART_BYTES // 256)  # 5 MiB


class TestMultipart:
    def test_parts_become_one_object(self, store: ObjectStore) -> None:
        upload = store.create_multipart(
            "big", metadata={"a": "b"}, headers={"ContentType": "text/x"}
        )
        second = store.upload_part("big", upload, 2, b"tail")
        first = store.upload_part("big", upload, 1, BIG)
        assert isinstance(store.get("big"), Missing)
        assert keys(store) == []
        written = store.complete_multipart("big", upload, [first, second])
        assert isinstance(written, Written)
        answer = store.head("big")
        assert isinstance(answer, Head)
        assert (answer.info.etag, answer.info.size) == (written.etag, MIN_PART_BYTES + 4)
        assert answer.info.metadata == {"a": "b"}
        assert answer.info.headers["ContentType"] == "text/x"
        assert got(store, "big") == BIG + b"tail"
        assert [info.etag for info in store.list("big")] == [written.etag]
        assert list(store.list_uploads("")) == []

    def test_a_part_uploaded_again_replaces_the_first(self, subject: Subject) -> None:
        store = subject.store
        upload = store.create_multipart("k")
        stale = store.upload_part("k", upload, 1, b"old")
        part = store.upload_part("k", upload, 1, b"new!")
        if subject.uploads:
            with pytest.raises(InvalidRequest):
                store.complete_multipart("k", upload, [stale])
        assert isinstance(store.complete_multipart("k", upload, [part]), Written)
        assert got(store, "k") == b"new!"

    def test_a_part_that_is_not_listed_is_left_out(self, store: ObjectStore) -> None:
        upload = store.create_multipart("k")
        store.upload_part("k", upload, 1, b"unused")
        part = store.upload_part("k", upload, 7, b"used")
        assert isinstance(store.complete_multipart("k", upload, [part]), Written)
        assert got(store, "k") == b"used"

    def test_small_parts_wrong_order_and_no_parts_are_refused(self, store: ObjectStore) -> None:
        upload = store.create_multipart("k")
        small = store.upload_part("k", upload, 1, b"small")
        large = store.upload_part("k", upload, 2, BIG)
        last = store.upload_part("k", upload, 3, b"last")
        for parts in (
            [small, large],  # all but the last need 5 MiB
            [last, large],  # descending
            [large, large],  # twice
            [Part(9, last.etag)],  # never uploaded
            [Part(3, large.etag)],  # another part's ETag
            [],
        ):
            with pytest.raises(InvalidRequest):
                store.complete_multipart("k", upload, parts)
        assert isinstance(store.get("k"), Missing)
        assert isinstance(store.complete_multipart("k", upload, [large, last]), Written)

    def test_part_numbers_are_bounded(self, store: ObjectStore) -> None:
        upload = store.create_multipart("k")
        for number in (0, 10_001):
            with pytest.raises(InvalidRequest):
                store.upload_part("k", upload, number, b"x")

    def test_ranges_of_objects_become_parts(self, subject: Subject) -> None:
        store = subject.store
        if not store.copies_ranges:
            pytest.skip("a store without copies of ranges")
        source = put(store, "src", BIG + BIG + b"the end")
        upload = store.create_multipart("dst")
        head = store.upload_part_copy(
            "dst",
            upload,
            1,
            source=subject.at("src"),
            byte_range=ByteRange(7, 7 + MIN_PART_BYTES),
            if_source_match=source.etag,
        )
        tail = store.upload_part_copy(
            "dst",
            upload,
            2,
            source=subject.at("src"),
            byte_range=ByteRange(2 * MIN_PART_BYTES, 2 * MIN_PART_BYTES + 7),
            if_source_match=source.etag,
        )
        assert isinstance(head, Part)
        assert isinstance(tail, Part)
        assert isinstance(store.complete_multipart("dst", upload, [head, tail]), Written)
        assert got(store, "dst") == (BIG + BIG)[7 : 7 + MIN_PART_BYTES] + b"the end"

    def test_a_range_of_a_changed_or_gone_source_is_no_part(self, subject: Subject) -> None:
        store = subject.store
        if not store.copies_ranges:
            pytest.skip("a store without copies of ranges")
        put(store, "src", BIG + b"1")
        upload = store.create_multipart("dst")

        def copy(source: str, etag: str, end: int = 10) -> Part | Refused | Missing:
            return store.upload_part_copy(
                "dst",
                upload,
                1,
                source=subject.at(source),
                byte_range=ByteRange(0, end),
                if_source_match=etag,
            )

        now = put(store, "src", BIG + b"2")
        stale = copy("src", "0" * 32)
        assert isinstance(stale, Refused)
        assert stale.reason == "exists"
        assert isinstance(copy("nothing", now.etag), Missing)
        with pytest.raises(InvalidRequest):  # S3 does not cut this one at the end
            copy("src", now.etag, end=MIN_PART_BYTES + 2)
        assert isinstance(copy("src", now.etag, end=MIN_PART_BYTES + 1), Part)

    def test_a_range_of_a_small_source_is_refused(self, subject: Subject) -> None:
        source = put(subject.store, "src", BIG)
        upload = subject.store.create_multipart("dst")
        with pytest.raises(InvalidRequest):
            subject.store.upload_part_copy(
                "dst",
                upload,
                1,
                source=subject.at("src"),
                byte_range=ByteRange(0, 10),
                if_source_match=source.etag,
            )

    def test_an_aborted_upload_is_gone(self, subject: Subject) -> None:
        store = subject.store
        upload = store.create_multipart("k")
        part = store.upload_part("k", upload, 1, b"x")
        store.abort_multipart("k", upload)
        store.abort_multipart("k", upload)  # a repeated abort is not an error
        assert list(store.list_uploads("")) == []
        if subject.uploads:
            with pytest.raises(StaleUpload):
                store.upload_part("k", upload, 1, b"x")
        else:  # found out when it is completed; until then it is listed and can be aborted
            store.upload_part("k", upload, 2, b"x")
            assert [each.key for each in store.list_uploads("")] == ["k"]
        assert isinstance(store.complete_multipart("k", upload, [part]), Missing)
        assert isinstance(store.get("k"), Missing)

    def test_completing_twice_says_missing(self, store: ObjectStore) -> None:
        upload = store.create_multipart("k")
        part = store.upload_part("k", upload, 1, b"x")
        assert isinstance(store.complete_multipart("k", upload, [part]), Written)
        assert isinstance(store.complete_multipart("k", upload, [part]), Missing)
        assert got(store, "k") == b"x"

    def test_completing_honours_its_condition_and_keeps_the_upload(
        self, store: ObjectStore
    ) -> None:
        old = put(store, "k", b"old")
        upload = store.create_multipart("k")
        part = store.upload_part("k", upload, 1, b"new")
        for condition in (IF_ABSENT, IfMatch("0" * 32)):
            refused = store.complete_multipart("k", upload, [part], condition=condition)
            assert isinstance(refused, Refused)
            assert refused.reason == "exists"
        assert got(store, "k") == b"old"
        done = store.complete_multipart("k", upload, [part], condition=IfMatch(old.etag))
        assert isinstance(done, Written)
        assert got(store, "k") == b"new"

        upload = store.create_multipart("new")
        part = store.upload_part("new", upload, 1, b"1")
        gone = store.complete_multipart("new", upload, [part], condition=IfMatch(old.etag))
        assert isinstance(gone, Refused)
        assert gone.reason == "missing"
        done = store.complete_multipart("new", upload, [part], condition=IF_ABSENT)
        assert isinstance(done, Written)

    def test_unfinished_uploads_are_listed_in_key_order(self, store: ObjectStore) -> None:
        uploads = {
            key: store.create_multipart(key) for key in ("t/b", "t/a/deep", "t/a.b", "other/x")
        }
        listed = list(store.list_uploads("t/"))
        assert [(each.key, each.upload_id) for each in listed] == [
            (key, uploads[key]) for key in ("t/a.b", "t/a/deep", "t/b")
        ]
        put(store, "t/after")
        head = store.head("t/after")
        assert isinstance(head, Head)
        assert all(each.started_us <= head.date_us for each in listed)

    def test_a_multipart_object_is_as_old_as_the_start_of_its_upload(
        self, subject: Subject
    ) -> None:
        store = subject.store
        upload = store.create_multipart("k")
        (listed,) = store.list_uploads("k")
        part = store.upload_part("k", upload, 1, b"x")
        store.complete_multipart("k", upload, [part])
        head = store.head("k")
        assert isinstance(head, Head)
        if subject.uploads:
            assert head.info.modified_us == listed.started_us
        # Never older: what collectors delete by its age is not deleted too early.
        assert listed.started_us <= head.info.modified_us <= head.date_us


class TestVersions:
    @pytest.fixture
    def versioned(self, subject: Subject) -> ObjectStore:
        if subject.enable_versioning is None:
            pytest.skip("a store without versions")
        subject.enable_versioning()
        return subject.store

    def test_without_versioning_each_object_is_listed_once(self, subject: Subject) -> None:
        store = subject.store
        put(store, "a", b"1")
        written = put(store, "a", b"22"), put(store, "b/c")
        ids = [str(w.version_id) if subject.own_ids else "null" for w in written]
        listed = list(store.list_versions(""))
        assert [(v.key, v.version_id, v.size, v.is_latest, v.marker) for v in listed] == [
            ("a", ids[0], 2, True, False),
            ("b/c", ids[1], 1, True, False),
        ]
        assert list(store.delete_versions(zip(("a", "b/c"), ids, strict=True))) == []
        assert list(store.list_versions("")) == []
        assert isinstance(store.get("a"), Missing)

    def test_what_was_overwritten_is_not_deleted_by_its_old_content(self, subject: Subject) -> None:
        store = subject.store
        old, other = put(store, "a", b"1"), put(store, "b", b"2")
        put(store, "a", b"22")
        named = [("a", old.etag), ("b", other.etag), ("c", other.etag)]
        assert list(store.delete_unchanged(named)) == []
        assert got(store, "a") == b"22"
        assert isinstance(store.head("b"), Missing)

    def test_an_overwritten_version_can_still_be_copied_and_its_end_read(
        self, versioned: ObjectStore, subject: Subject
    ) -> None:
        body = bytes(range(256)) * (MIN_PART_BYTES // 256 + 1)
        first = put(versioned, "k", body)
        put(versioned, "k", b"22")
        old = replace(subject.at("k"), version_id=first.version_id)

        tail = versioned.get_suffix("k", 3, version_id=first.version_id)
        assert isinstance(tail, Got)
        assert (tail.body, tail.size, tail.etag) == (body[-3:], len(body), first.etag)

        assert isinstance(versioned.copy(old, "whole", if_source_match=first.etag), Written)
        assert got(versioned, "whole") == body

        if versioned.copies_ranges:
            upload = versioned.create_multipart("part")
            part = versioned.upload_part_copy(
                "part",
                upload,
                1,
                source=old,
                byte_range=ByteRange(0, 9),
                if_source_match=first.etag,
            )
            assert isinstance(part, Part)
            assert isinstance(versioned.complete_multipart("part", upload, [part]), Written)
            assert got(versioned, "part") == body[:9]

        listed = {v.version_id: v.etag for v in versioned.list_versions("k")}
        assert listed[str(first.version_id)] == first.etag

    def test_a_version_that_is_gone_is_missing(
        self, versioned: ObjectStore, subject: Subject
    ) -> None:
        first = put(versioned, "k", b"1")
        put(versioned, "k", b"22")
        versioned.delete_versions([("k", str(first.version_id))])
        old = replace(subject.at("k"), version_id=first.version_id)
        assert isinstance(versioned.get_suffix("k", 3, version_id=first.version_id), Missing)
        assert isinstance(versioned.copy(old, "copy"), Missing)

    def test_an_overwritten_version_can_still_be_read(self, versioned: ObjectStore) -> None:
        first, second = put(versioned, "k", b"1"), put(versioned, "k", b"22")
        assert first.version_id is not None
        assert first.version_id != second.version_id
        old = versioned.get("k", version_id=first.version_id)
        assert isinstance(old, Got)
        assert old.body == b"1"
        head = versioned.head("k", version_id=first.version_id)
        assert isinstance(head, Head)
        assert head.info.size == 1
        assert got(versioned, "k") == b"22"

    def test_a_delete_hides_and_deleting_the_marker_brings_back(
        self, versioned: ObjectStore, subject: Subject
    ) -> None:
        written = put(versioned, "k", b"1")
        versioned.delete(["k"])
        assert isinstance(versioned.get("k"), Missing)
        assert keys(versioned) == []
        *markers, data = list(versioned.list_versions("k"))
        if not subject.markers:
            assert markers == []
            assert (data.marker, data.is_latest, data.version_id) == (
                False,
                False,
                written.version_id,
            )
            return
        (marker,) = markers
        assert (marker.marker, marker.is_latest) == (True, True)
        assert (data.marker, data.is_latest, data.version_id) == (False, False, written.version_id)
        # A condition looks at what a GET would see.
        refused = versioned.put("k", b"2", condition=IfMatch(written.etag))
        assert isinstance(refused, Refused)
        assert refused.reason == "missing"
        assert list(versioned.delete_versions([("k", marker.version_id)])) == []
        assert got(versioned, "k") == b"1"

    def test_parts_leave_no_version(self, versioned: ObjectStore) -> None:
        upload = versioned.create_multipart("t/k")
        versioned.upload_part("t/k", upload, 1, b"first try")
        part = versioned.upload_part("t/k", upload, 1, b"again")
        assert list(versioned.list_versions("")) == []
        assert isinstance(versioned.complete_multipart("t/k", upload, [part]), Written)
        assert [v.key for v in versioned.list_versions("")] == ["t/k"]
        upload = versioned.create_multipart("t/k")
        for _ in range(2):
            versioned.upload_part("t/k", upload, 1, b"x")
        versioned.abort_multipart("t/k", upload)
        assert list(versioned.list_uploads("")) == []
        assert [v.key for v in versioned.list_versions("")] == ["t/k"]

    def test_a_key_behind_a_marker_can_be_created(self, versioned: ObjectStore) -> None:
        put(versioned, "k", b"1")
        versioned.delete(["k"])
        assert isinstance(versioned.put("k", b"2", condition=IF_ABSENT), Written)
        assert got(versioned, "k") == b"2"

    def test_deleting_every_version_leaves_nothing(
        self, versioned: ObjectStore, subject: Subject
    ) -> None:
        for n in range(3):
            put(versioned, "t/k", b"%d" % n)
        versioned.delete(["t/k"])
        put(versioned, "t/k", b"again")
        put(versioned, "other", b"stays")
        listed = list(versioned.list_versions("t/"))
        # Within a key the newest comes first; no answer shows the order of the others.
        markers = [True] if subject.markers else []
        assert sorted(v.marker for v in listed) == [False, False, False, False, *markers]
        assert [v.is_latest for v in listed] == [
            True,
            False,
            False,
            False,
            *(not m for m in markers),
        ]
        assert list(versioned.delete_versions((v.key, v.version_id) for v in listed)) == []
        assert [v.key for v in versioned.list_versions("")] == ["other"]
        assert list(versioned.delete_versions([("t/k", "null")])) == []

    def test_a_version_that_never_was_is_missing(self, versioned: ObjectStore) -> None:
        first, other = put(versioned, "k"), put(versioned, "other")
        assert other.version_id is not None
        versioned.delete_versions([("k", str(first.version_id))])
        assert isinstance(versioned.get("k", version_id=first.version_id), Missing)
        assert isinstance(versioned.head("k", version_id=first.version_id), Missing)
