"""Faults on the wire: real clients, a real server, and between them everything that goes wrong.

Each operation is run once for each of its requests and each fault, from the first request of a process that
opens the table. It is then done, or it raises a typed error and, done again under the same request id, is
done once; the table is sound and holds what it held before or what the operation makes of it, nothing
between.

All of them together are some thousands of runs, and slow tests. A change must pass three operations whole,
and of each other one run with each fault, every time at another request.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

import inlay
from inlay.errors import AccessDenied, InlayError, PageError, RebaseError, RetryError
from inlay.format import keys
from inlay.local.fault_proxy import FATES, FAULTS, Fault, FaultProxy, Passing
from inlay.parquet.write import upload
from inlay.storage import s3
from inlay.storage.base import IF_ABSENT, Got, Location, Written
from inlay.storage.faults import Fate
from inlay.storage.s3 import S3Store

from .wired import OPERATIONS, Operation

if TYPE_CHECKING:
    from inlay.local.aws_process import AwsProcess

# A client that waits for an answer that does not come gives up after this long.
READ_TIMEOUT_SECONDS = 5
# What an operation may raise under a fault; a copy that is refused cannot tell why.
MAY_RAISE: dict[Fault, type[InlayError] | tuple[type[InlayError], ...]] = {
    "expired": AccessDenied,
    "skewed": AccessDenied,
    "not_implemented": PageError,
    "refused": (RetryError, RebaseError),
}
QUICK = ("append", "scan", "delete rows")


@dataclass
class Bench:
    """Tables to copy from, an S3, and a proxy before it."""

    proxy: FaultProxy
    store: S3Store
    fault: Fault | None = None
    number: int = 0
    begun: dict[Callable[[str], None], str] = field(default_factory=dict)

    def plan(self, passing: Passing) -> Fault | None:
        return self.fault if passing.number == self.number else None

    def uri(self, root: str) -> str:
        return f"s3://{self.store.bucket}/{root}"

    def new(self, operation: Operation) -> str:
        """The root of a new table, ready for the operation."""
        if (template := self.begun.get(operation.begin)) is None:
            template = self.begun[operation.begin] = f"templates/{operation.begin.__name__}"
            operation.begin(self.uri(template))
        root = f"tables/{uuid.uuid4().hex}"
        for info in self.store.list(f"{template}/"):
            source = Location("s3", self.store.bucket, info.key)
            self.store.copy(source, f"{root}/{info.key.removeprefix(f'{template}/')}")
        if operation.before is not None:
            operation.before(self.uri(root))
        return root

    @contextmanager
    def wired(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL_S3", self.proxy.endpoint_url)
            self.proxy.restart_count()
            yield


@pytest.fixture(scope="module")
def bench(embedded_aws: AwsProcess) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in embedded_aws.env().items():
            patch.setenv(name, value)
        patch.setattr(s3, "_READ_TIMEOUT_SECONDS", READ_TIMEOUT_SECONDS)
        # As many attempts as ever, with waits that do not add up.
        patch.setattr(s3, "_FIRST_BACKOFF_SECONDS", 0.001)
        # Files that are sent in parts stay small.
        patch.setattr(upload, "PUT_BYTES", 5 << 20)
        patch.setattr(upload, "PART_BYTES", 5 << 20)
        store = S3Store(f"faults-{uuid.uuid4().hex}")
        store.client.create_bucket(Bucket=store.bucket)
        with FaultProxy(embedded_aws.endpoint_url, stall_seconds=0.02) as proxy:
            found = Bench(proxy, store)
            proxy.plan = found.plan
            yield found


def check(bench: Bench, name: str, fault: Fault, number: int) -> None:
    operation = OPERATIONS[name]
    uri = bench.uri(bench.new(operation))
    before = operation.see(uri)
    expected = before if operation.then is None else operation.then
    bench.fault, bench.number = fault, number
    done = False
    try:
        with bench.wired():
            operation.run(uri)
        done = True
    except InlayError as error:
        assert isinstance(error, MAY_RAISE.get(fault, RetryError)), error.fields()
    finally:
        bench.fault = None
    # What was held arrives when its client has done all that it does.
    bench.proxy.deliver()
    found = operation.see(uri)
    if done:
        assert found == expected
    else:
        assert found in (before, expected)
        operation.run(uri)  # the same again, as its caller would
        assert operation.see(uri) == expected
    if operation.verified:
        findings = inlay.open(uri).verify().findings
        assert [f for f in findings if f.severity == "error"] == []


def requests_of(bench: Bench, name: str) -> int:
    operation = OPERATIONS[name]
    uri = bench.uri(bench.new(operation))
    with bench.wired():
        operation.run(uri)
    assert len(bench.proxy.passed) >= 1
    return len(bench.proxy.passed)


def meet(bench: Bench, name: str, fault: Fault, number: int, requests: int) -> None:
    try:
        check(bench, name, fault, number)
    except BaseException as error:
        error.add_note(f"{name}: {fault} at request {number} of {requests}")
        raise


def matrix(bench: Bench, name: str) -> None:
    """The operation, once for each of its requests and each fault."""
    requests = requests_of(bench, name)
    met: Counter[str] = Counter()
    for fault in FAULTS:
        for number in range(1, requests + 1):
            bench.proxy.faults.clear()
            meet(bench, name, fault, number, requests)
            met.update(bench.proxy.faults)
    print(f"{name}: {requests} requests, {requests * len(FAULTS)} runs, {met.total()} faults met")
    # Of others there may be no such request: a listing, or one with a condition.
    assert set(met) >= set(FAULTS) - {"late_listing", "refused"}


@pytest.mark.parametrize("name", QUICK)
def test_operations_under_faults_at_each_request(bench, name):
    matrix(bench, name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in QUICK])
def test_every_operation_under_each_fault(bench, name):
    """A sample of the runs below: each fault once, at requests that are drawn anew for each fault."""
    requests = requests_of(bench, name)
    draw = random.Random(name)
    for fault in FAULTS:
        meet(bench, name, fault, draw.randint(1, requests), requests)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in QUICK])
def test_every_operation_under_faults_at_each_request(bench, name):
    matrix(bench, name)


CHANGES = ("append", "delete", "delete rows", "update")


@pytest.mark.parametrize("name", CHANGES)
def test_no_fault_lets_a_commit_in_on_a_pointer_that_went_back(bench, name):
    """The archive is there, of the very bytes, whatever became of the first try to write it: a client that
    took it for its own, because an earlier try had failed, asked no further, and rows were lost."""
    operation = OPERATIONS[name]
    faults = [fault for fault in FAULTS if fault != "late_listing"]
    number, ended = 0, False
    while not ended:
        number += 1
        for fault in faults:
            root = bench.new(operation)
            pointer = f"{root}/{keys.POINTER}"
            old = bench.store.get(f"{root}/{keys.archive_key(2)}")
            assert isinstance(old, Got)
            bench.store.put(pointer, old.body)
            bench.fault, bench.number = fault, number
            with bench.wired(), pytest.raises(InlayError):
                operation.run(bench.uri(root))
            bench.fault = None
            bench.proxy.deliver()
            ended = len(bench.proxy.passed) < number
            now = bench.store.get(pointer)
            assert isinstance(now, Got)
            assert now.body == old.body, f"{fault} at request {number}"
            if ended:
                break


def test_each_fault_is_what_it_says(bench, monkeypatch):
    """Seen by a client that does not try again."""
    monkeypatch.setattr(s3, "MAX_ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", bench.proxy.endpoint_url)
    store = S3Store(bench.store.bucket)
    body = b"x" * 100_000
    stored = 0
    for fault in FAULTS:
        bench.proxy.restart_count()
        bench.fault, bench.number = fault, 1
        key = f"each/{fault}"
        # Only what has a condition can be refused.
        condition = IF_ABSENT if fault == "refused" else None
        try:
            answered = isinstance(store.put(key, body, condition=condition), Written)
        except InlayError as error:
            answered = False
            assert isinstance(error, MAY_RAISE.get(fault, RetryError))
        bench.fault = None
        if fault == "held":
            assert not list(bench.store.list(key))
            assert bench.proxy.deliver() == 1
        elif FATES[fault] is Fate.LATE:
            time.sleep(0.5)
        assert answered == (FATES[fault] in (Fate.DONE, Fate.TWICE, Fate.RESENT)), fault
        there = bool(list(bench.store.list(key)))
        assert there == (FATES[fault] not in (Fate.UNSENT, Fate.RACE)), fault
        stored += there
    assert len(list(store.list("each/"))) == stored
    bench.proxy.restart_count()
    bench.fault, bench.number = "late_listing", 1
    assert len(list(store.list("each/"))) == stored - 1
    bench.fault = None
