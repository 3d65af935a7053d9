"""Tables on gs:// and az://: everything a table does, eight writers at once, and faults at each request."""

from __future__ import annotations

import io
import multiprocessing
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.simulator.fault_proxy import FAULTS, Fault, FaultProxy, Passing

import inlay
from inlay.errors import AccessDenied, InlayError, InputError, PageError, RetryError
from inlay.storage import rest

from .conftest import Cloud
from .gcs_server import GcsServer
from .test_fault_proxy import MAY_RAISE
from .wired import (
    BEFORE,
    OPERATIONS,
    ROWS_AND_MAINTENANCE,
    SCHEMA,
    Operation,
    content,
    rows,
)

# Python 3.12 warns of forking beside threads; those of this process are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

WRITERS = 8
APPENDS = 4


def test_the_life_of_a_table(cloud: Cloud) -> None:
    uri = f"{cloud.uri}/tables/t"
    table = inlay.create(uri, SCHEMA, primary_key="id")
    for first in (0, 4, 8):
        table.append(rows(*range(first, first + 4)))
    assert content(inlay.open(uri)) == BEFORE
    old = inlay.open(uri).version
    table.delete("id = 3")
    table.delete("id = 5", mode="vector")
    table.delete("id < 2", mode="surgery")
    table.update({"who": "'x'"}, where="id = 4")
    table.upsert(rows(6, 60, who="y"))
    now = [(2, "w"), (4, "x"), (6, "y"), *((i, "w") for i in range(7, 12)), (60, "y")]
    assert content(inlay.open(uri)) == now
    assert content(inlay.open(uri, version=old)) == BEFORE

    branch = table.refs.branch("dev")
    branch.append(rows(70))
    assert content(inlay.open(uri)) == now
    inlay.open(uri).refs.merge("dev")
    now.append((70, "w"))
    assert content(inlay.open(uri)) == now
    inlay.open(uri).refs.drop("dev")

    table = inlay.open(uri)
    table.maintain.compact()
    table.refs.restore(version=old)
    assert content(inlay.open(uri)) == BEFORE
    table = inlay.open(uri)
    table.maintain.expire(days=0)
    before = len(list(cloud.store.list("tables/t/")))
    for _ in range(6):  # what is younger than a second of the store's clock stays for now
        deleted = _collect(uri)
        if deleted.objects and len(list(cloud.store.list("tables/t/"))) < before:
            break
        time.sleep(1.1)
    else:
        raise AssertionError(deleted)
    assert content(inlay.open(uri)) == BEFORE
    assert inlay.open(uri).maintain.verify().errors == ()


def test_landed_files_are_ingested_and_adopted(cloud: Cloud) -> None:
    table = inlay.create(f"{cloud.uri}/tables/t", SCHEMA, primary_key="id")
    for name, row in (("a", 1), ("b", 2)):
        sink = io.BytesIO()
        pq.write_table(rows(row), sink)
        headers = {"ContentType": "text/x"}
        cloud.store.put(
            f"in/{name}.parquet", sink.getvalue(), metadata={"who": name}, headers=headers
        )
    table.ingest([f"{cloud.uri}/in/a.parquet"])
    table.ingest([f"{cloud.uri}/in/b.parquet"], adopt=True)
    assert content(inlay.open(table.uri)) == [(1, "w"), (2, "w")]
    files = inlay.open(table.uri).inspect.files().to_pylist()
    adopted = [f["key"] for f in files if "://" in f["key"]]
    # The whole name, with the account: it does not depend on the environment that reads it.
    assert adopted == [f"{cloud.store.scheme}://{cloud.store.bucket}/in/b.parquet"]
    [copied] = [f["key"] for f in files if "://" not in f["key"]]
    head = cloud.store.head(f"tables/t/{copied}")
    assert dict(head.info.metadata) == {}
    assert head.info.headers.get("ContentType") != "text/x"


def test_published_metadata_names_what_engines_open(cloud: Cloud) -> None:
    table = inlay.create(f"{cloud.uri}/tables/t", SCHEMA, primary_key="id")
    table.append(rows(1, 2))
    table.publish()
    place = f"{cloud.store.scheme}://{cloud.store.bucket}/tables/t"
    texts = [
        cloud.store.get(info.key).body.decode()
        for info in cloud.store.list("tables/t/")
        if info.key.endswith(".metadata.json")
    ]
    assert texts and all(f'"{place}' in text for text in texts)
    if cloud.store.scheme == "abfss":
        assert "@devstoreaccount1.dfs.core.windows.net/" in place


# -- many writers ---------------------------------------------------------------------------------


def _write(uri: str, folder: Path, writer: int) -> None:
    """Appends one row after another, each under its own id, and notes what is acknowledged."""
    random.seed(writer)
    table = inlay.open(uri)
    with (folder / str(writer)).open("a") as noted:
        for n in range(APPENDS):
            while True:
                try:
                    table.append(rows(writer * 1000 + n), request_id=f"{writer}/{n}")
                    break
                except RetryError:
                    continue  # the same request again
            noted.write(f"{writer * 1000 + n}\n")
            noted.flush()


def test_eight_processes_append_and_no_row_is_lost_or_doubled(cloud: Cloud, tmp_path: Path) -> None:
    uri = f"{cloud.uri}/tables/t"
    inlay.create(uri, SCHEMA)
    forking = multiprocessing.get_context("fork")
    writers = [
        forking.Process(target=_write, args=(uri, tmp_path, n), daemon=True) for n in range(WRITERS)
    ]
    for each in writers:
        each.start()
    for each in writers:
        each.join(240)
        assert each.exitcode == 0
    noted = Counter(int(line) for n in range(WRITERS) for line in (tmp_path / str(n)).open())
    assert len(noted) == WRITERS * APPENDS
    assert Counter(i for i, _ in content(inlay.open(uri))) == noted
    assert inlay.open(uri).version >= 2


# -- without copies of ranges ---------------------------------------------------------------------


def test_surgery_moves_what_the_store_does_not_copy(cloud: Cloud) -> None:
    """A file of 12 MiB, of which one of three row groups changes: the others are downloaded and sent."""
    uri = f"{cloud.uri}/tables/t"
    schema = pa.schema([("id", pa.int64()), ("noise", pa.binary())])
    table = inlay.create(uri, schema, properties={"write.row_group_rows": 128})
    noise = random.Random(3)
    bodies = [noise.randbytes(32 * 1024) for _ in range(384)]
    table.append(pa.table({"id": range(384), "noise": bodies}, schema))
    [before] = inlay.open(uri).inspect.files().to_pylist()
    table = inlay.open(uri)
    done = table.delete("id = 200", mode="surgery")
    usage = done.usage
    assert usage.requests.get("upload_part_copy", 0) == 0
    assert usage.requests.get("upload_part", 0) >= 1 or usage.requests["put"] >= 1
    [after] = inlay.open(uri).inspect.files().to_pylist()
    assert after["key"] != before["key"]
    # All of it once down and once up, and little more.
    assert before["bytes"] * 0.9 < usage.bytes_up < before["bytes"] * 1.2
    assert before["bytes"] * 0.9 < usage.bytes_down < before["bytes"] * 1.2
    found = inlay.open(uri).scan().to_arrow()
    assert found["id"].to_pylist() == [n for n in range(384) if n != 200]
    assert found["noise"].to_pylist() == [b for n, b in enumerate(bodies) if n != 200]
    assert list(cloud.store.list_uploads("")) == []


# -- erasure --------------------------------------------------------------------------------------


def _erase(uri: str, where: str) -> None:
    inlay.open(uri).delete(where, mode="erase", request_id="case-1")
    inlay.open(uri).maintain.compact()


def _collect(uri: str) -> Any:
    none = timedelta(0)
    return inlay.open(uri).maintain.collect_garbage(
        grace=none, life_seconds=0, clock_margin_seconds=0
    )


def _finished(uri: str) -> Any:
    """Collects until there is a receipt or the rounds, each a second of the store's clock, are over."""
    for _ in range(6):
        result = _collect(uri)
        if result.receipts:
            return result
        time.sleep(1.1)
    return result


def test_an_erasure_ends_with_a_receipt_and_without_the_bytes(cloud: Cloud) -> None:
    uri = f"{cloud.uri}/tables/t"
    table = inlay.create(uri, SCHEMA, primary_key="id")
    table.append(rows(1, who="Ada Lovelace of Marylebone"))
    table.append(rows(2, 3))
    # What a crash left: parts of an upload, with the same bytes.
    upload = cloud.store.create_multipart("tables/t/data/2026/01/01/00/x.parquet")
    secret = b"Ada Lovelace of Marylebone"
    cloud.store.upload_part("tables/t/data/2026/01/01/00/x.parquet", upload, 1, secret)
    _erase(uri, "id = 1")
    result = _finished(uri)
    assert result.receipts == ("erasure/case-1.json",), result.waiting
    left = [v.key for v in cloud.store.list_versions("tables/t/")]
    assert left and all(secret not in cloud.store.get(key).body for key in left)
    assert list(cloud.store.list_uploads("")) == []
    assert content(inlay.open(uri)) == [(2, "w"), (3, "w")]


def test_an_erasure_stays_open_while_soft_deleted_bytes_are_kept(
    gcs_store: Any, gcs_server: GcsServer
) -> None:
    uri = f"gs://{gcs_store.bucket}/tables/t"
    policy = b'{"softDeletePolicy": {"retentionDurationSeconds": "604800"}}'
    gcs_store._ask("PATCH", f"/storage/v1/b/{gcs_store.bucket}", body=policy)
    table = inlay.create(uri, SCHEMA, primary_key="id")
    table.append(rows(1, who="Ada Lovelace of Marylebone"))
    table.append(rows(2, 3))
    _erase(uri, "id = 1")
    result = _finished(uri)
    assert result.receipts == ()
    reasons = {w.reason for _, w in result.waiting if w.what == "object"}
    assert reasons and all("soft delete policy keeps it until" in r for r in reasons)
    kept = [v for v in gcs_store.list_versions("tables/t/") if v.version_id.startswith("soft-")]
    assert kept and not any(v.is_latest for v in kept)

    # The policy ends, and the days pass.
    bucket = gcs_server.service.buckets[gcs_store.bucket]
    bucket.soft_seconds = 0
    bucket.soft.clear()
    result = _finished(uri)
    assert result.receipts == ("erasure/case-1.json",), result.waiting


# -- faults ---------------------------------------------------------------------------------------

# Operations whose every request meets every fault; the others in the slow tests.
QUICK = ("append",)
# These are answers of S3.
ALLOWED = MAY_RAISE | {"expired": (AccessDenied, InputError), "moved": PageError}
# In the quick tests, the faults in which rows could be lost or doubled.
LOSING: tuple[Fault, ...] = ("reset_after", "truncate", "conflict", "internal_error", "duplicate")


class Faulty:
    """A table behind a proxy."""

    def __init__(self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cloud, self.monkeypatch = cloud, monkeypatch
        self.fault: Fault | None = None
        self.number = 0
        parts = urlsplit(cloud.endpoint)
        self.path = parts.path
        self.proxy = FaultProxy(f"{parts.scheme}://{parts.netloc}", self.plan, stall_seconds=0.02)

    def plan(self, passing: Passing) -> Fault | None:
        return self.fault if passing.number == self.number else None

    def new(self, operation: Operation) -> str:
        uri = f"{self.cloud.uri}/tables/{uuid.uuid4().hex}"
        operation.begin(uri)
        if operation.before is not None:
            operation.before(uri)
        return uri

    @contextmanager
    def wired(self) -> Iterator[None]:
        with self.monkeypatch.context() as patch:
            patch.setenv(self.cloud.variable, self.proxy.endpoint_url + self.path)
            self.proxy.restart_count()
            yield

    def check(self, name: str, fault: Fault, number: int) -> None:
        operation = OPERATIONS[name]
        uri = self.new(operation)
        before = operation.see(uri)
        expected = before if operation.then is None else operation.then
        self.fault, self.number = fault, number
        done = False
        try:
            with self.wired():
                operation.run(uri)
            done = True
        except InlayError as error:
            assert isinstance(error, ALLOWED.get(fault, RetryError)), error.fields()
        finally:
            self.fault = None
        found = operation.see(uri)
        if done:
            assert found == expected
        else:
            assert found in (before, expected)
            operation.run(uri)  # the same again, as its caller would
            assert operation.see(uri) == expected
        assert inlay.open(uri).maintain.verify().errors == ()

    def matrix(self, name: str, faults: tuple[Fault, ...]) -> None:
        operation = OPERATIONS[name]
        with self.proxy:
            uri = self.new(operation)
            with self.wired():
                operation.run(uri)
            requests = len(self.proxy.passed)
            assert requests >= 1
            for fault in faults:
                for number in range(1, requests + 1):
                    try:
                        self.check(name, fault, number)
                    except BaseException as error:
                        error.add_note(f"{name}: {fault} at request {number} of {requests}")
                        raise


@pytest.fixture
def faulty(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Faulty:
    # As many attempts as ever, with waits that do not add up.
    monkeypatch.setattr(rest, "_FIRST_BACKOFF_SECONDS", 0.001)
    return Faulty(cloud, monkeypatch)


@pytest.mark.parametrize("name", QUICK)
def test_operations_under_faults_at_each_request(faulty: Faulty, name: str) -> None:
    faulty.matrix(name, LOSING)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ROWS_AND_MAINTENANCE)
def test_every_operation_under_faults_at_each_request(faulty: Faulty, name: str) -> None:
    # Their own 404s, of a download and of an emulator, may have no code either.
    faulty.matrix(name, tuple(f for f in FAULTS if f not in ("late_listing", "not_there")))
