"""Faults on the wire: real clients, a real server, and between them everything that goes wrong.

Each operation is run once for each of its requests and each fault. It is then done, or it raises a typed
error and, done again under the same request id, is done once; the table is sound and holds what it held
before or what the operation makes of it, nothing between.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import AccessDenied, InlayError, RetryError
from inlay.format import keys
from inlay.local.fault_proxy import FATES, FAULTS, Fault, FaultProxy, Passing
from inlay.storage import s3
from inlay.storage.base import Got, Location
from inlay.storage.faults import Fate
from inlay.storage.s3 import S3Store
from inlay.table import Table

if TYPE_CHECKING:
    from inlay.local.aws_process import AwsProcess

SCHEMA = pa.schema([("id", pa.int64()), ("who", pa.string())])
# A client that waits for an answer that does not come gives up after this long.
READ_TIMEOUT_SECONDS = 5


def rows(*ids: int, who: str = "w") -> pa.Table:
    return pa.table({"id": list(ids), "who": [who] * len(ids)}, SCHEMA)


def content(table: Table) -> list[tuple[int, str]]:
    found = table.scan().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["who"].to_pylist(), strict=True))


Run = Callable[[Table], Any]


def keep(table: Table, ids: range | tuple[int, ...]) -> list[tuple[int, str]]:
    return [(i, "w") for i in ids]


BEFORE = [(i, "w") for i in range(12)]
# What is done, and the rows that are there afterwards.
OPERATIONS: dict[str, tuple[Run, list[tuple[int, str]]]] = {
    "append": (lambda t: t.append(rows(50), request_id="r"), [*BEFORE, (50, "w")]),
    "scan": (lambda t: content(t) == BEFORE, BEFORE),
    "delete": (lambda t: t.delete("id = 3", request_id="r"), [r for r in BEFORE if r[0] != 3]),
    "delete rows": (
        lambda t: t.delete("id = 3", mode="vector", request_id="r"),
        [r for r in BEFORE if r[0] != 3],
    ),
    "surgery": (
        lambda t: t.delete("id < 3", mode="surgery", request_id="r"),
        [r for r in BEFORE if r[0] >= 3],
    ),
    "update": (
        lambda t: t.update({"who": "'x'"}, where="id = 3", request_id="r"),
        sorted([*[r for r in BEFORE if r[0] != 3], (3, "x")]),
    ),
    "upsert": (
        lambda t: t.upsert(rows(3, 60, who="y"), request_id="r"),
        sorted([*[r for r in BEFORE if r[0] != 3], (3, "y"), (60, "y")]),
    ),
    "compact": (lambda t: t.compact(), BEFORE),
    "expire": (lambda t: t.expire(days=0), BEFORE),
    "collect": (lambda t: t.collect_garbage(), BEFORE),
    "erase": (
        lambda t: t.delete("id = 3", mode="erase", request_id="r"),
        [r for r in BEFORE if r[0] != 3],
    ),
    "alter": (
        lambda t: t.alter(widen={}, optional=(), order=("who", "id"), request_id="r"),
        BEFORE,
    ),
    "restore": (lambda t: t.restore(version=3), BEFORE[:8]),
    "ingest": (lambda t: t.ingest([f"{t.uri.rpartition('/')[0]}/landed.parquet"]), BEFORE),
    "verify": (lambda t: t.verify(), BEFORE),
    "history": (lambda t: t.history(), BEFORE),
}
QUICK = ("append", "scan", "delete rows")


@dataclass
class Bench:
    """A table to copy from, an S3, and a proxy before it."""

    proxy: FaultProxy
    store: S3Store
    fault: Fault | None = None
    number: int = 0

    def plan(self, passing: Passing) -> Fault | None:
        return self.fault if passing.number == self.number else None

    def copy(self) -> str:
        """The root of a new table."""
        root = f"tables/{uuid.uuid4().hex}"
        for info in self.store.list("template/"):
            source = Location("s3", self.store.bucket, info.key)
            self.store.copy(source, f"{root}/{info.key.removeprefix('template/')}")
        return root

    def direct(self, root: str) -> Table:
        return inlay.open(f"s3://{self.store.bucket}/{root}")

    def through(self, root: str, monkeypatch: pytest.MonkeyPatch) -> Table:
        with monkeypatch.context() as wired:
            wired.setenv("AWS_ENDPOINT_URL_S3", self.proxy.endpoint_url)
            return inlay.open(f"s3://{self.store.bucket}/{root}")


@pytest.fixture(scope="module")
def bench(embedded_aws: AwsProcess) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in embedded_aws.env().items():
            patch.setenv(name, value)
        patch.setattr(s3, "_READ_TIMEOUT_SECONDS", READ_TIMEOUT_SECONDS)
        # As many attempts as ever, with waits that do not add up.
        patch.setattr(s3, "_FIRST_BACKOFF_SECONDS", 0.001)
        store = S3Store(f"faults-{uuid.uuid4().hex}")
        store.client.create_bucket(Bucket=store.bucket)
        template = inlay.create(f"s3://{store.bucket}/template", SCHEMA, primary_key="id")
        for first in (0, 4, 8):
            template.append(rows(*range(first, first + 4)))
        with FaultProxy(embedded_aws.endpoint_url, stall_seconds=0.02) as proxy:
            found = Bench(proxy, store)
            proxy.plan = found.plan
            yield found


def check(bench: Bench, name: str, fault: Fault, number: int, monkeypatch: Any) -> None:
    run, expected = OPERATIONS[name]
    root = bench.copy()
    table = bench.through(root, monkeypatch)
    bench.proxy.restart_count()
    bench.fault, bench.number = fault, number
    done = False
    try:
        run(table)
        done = True
    except InlayError as error:
        allowed = AccessDenied if fault == "expired" else RetryError
        assert isinstance(error, allowed), error.fields()
    finally:
        bench.fault = None
    # What was held arrives when its client has done all that it does.
    assert bench.proxy.deliver() == (fault == "held")
    found = content(bench.direct(root))
    if done:
        assert found == expected
    else:
        assert found in (BEFORE, expected)
        run(bench.direct(root))  # the same again, as its caller would
        assert content(bench.direct(root)) == expected
    assert [f for f in bench.direct(root).verify().findings if f.severity == "error"] == []


def requests_of(bench: Bench, name: str, monkeypatch: Any) -> int:
    table = bench.through(bench.copy(), monkeypatch)
    bench.proxy.restart_count()
    OPERATIONS[name][0](table)
    return len(bench.proxy.passed)


def matrix(bench: Bench, name: str, monkeypatch: Any, faults: tuple[Fault, ...] = FAULTS) -> int:
    if name == "ingest":
        import io

        import pyarrow.parquet as pq

        body = io.BytesIO()
        pq.write_table(rows(), body)
        bench.store.put("tables/landed.parquet", body.getvalue())
    requests = requests_of(bench, name, monkeypatch)
    assert requests >= 1
    for fault in faults:
        for number in range(1, requests + 1):
            try:
                check(bench, name, fault, number, monkeypatch)
            except BaseException as error:
                error.add_note(f"{name}: {fault} at request {number} of {requests}")
                raise
    return requests


@pytest.mark.parametrize("name", QUICK)
def test_operations_under_faults_at_each_request(bench, monkeypatch, name):
    matrix(bench, name, monkeypatch)


CHANGES = ("append", "delete", "delete rows", "update")


@pytest.mark.parametrize("name", CHANGES)
def test_no_fault_lets_a_commit_in_on_a_pointer_that_went_back(bench, monkeypatch, name):
    """The archive is there, of the very bytes, whatever became of the first try to write it: a client that
    took it for its own, because an earlier try had failed, asked no further, and rows were lost."""
    run, _ = OPERATIONS[name]
    faults = [fault for fault in FAULTS if fault != "late_listing"]
    number, ended = 0, False
    while not ended:
        number += 1
        for fault in faults:
            root = bench.copy()
            pointer = f"{root}/{keys.POINTER}"
            old = bench.store.get(f"{root}/{keys.archive_key(2)}")
            assert isinstance(old, Got)
            bench.store.put(pointer, old.body)
            table = bench.through(root, monkeypatch)
            bench.proxy.restart_count()
            bench.fault, bench.number = fault, number
            with pytest.raises(InlayError):
                run(table)
            bench.fault = None
            bench.proxy.deliver()
            ended = len(bench.proxy.passed) < number
            now = bench.store.get(pointer)
            assert isinstance(now, Got)
            assert now.body == old.body, f"{fault} at request {number}"
            if ended:
                break


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in QUICK])
def test_every_operation_under_faults_at_each_request(bench, monkeypatch, name):
    matrix(bench, name, monkeypatch)


def test_each_fault_is_what_it_says(bench, monkeypatch):
    """Seen by a client that does not try again."""
    monkeypatch.setattr(s3, "MAX_ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bench.proxy.endpoint_url)
    store = S3Store(bench.store.bucket)
    body = b"x" * 100_000
    for fault in FAULTS:
        bench.proxy.restart_count()
        bench.fault, bench.number = fault, 1
        key = f"each/{fault}"
        try:
            store.put(key, body)
            answered = True
        except InlayError as error:
            answered = False
            assert isinstance(error, AccessDenied if fault == "expired" else RetryError)
        bench.fault = None
        if fault == "held":
            assert not list(bench.store.list(key))
            assert bench.proxy.deliver() == 1
        elif FATES[fault] is Fate.LATE:
            import time

            time.sleep(0.5)
        assert answered == (FATES[fault] in (Fate.DONE, Fate.TWICE))
        there = bool(list(bench.store.list(key)))
        assert there == (FATES[fault] not in (Fate.UNSENT, Fate.RACE)), fault
    assert len(list(store.list("each/"))) == 8
    bench.proxy.restart_count()
    bench.fault, bench.number = "late_listing", 1
    assert len(list(store.list("each/"))) == 7
    bench.fault = None
