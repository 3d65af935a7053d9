"""Faults on the wire: real clients, a real server, and between them everything that goes wrong.

Each operation is run once for each of its requests and each fault, from the first request of a process that
opens the table. It is then done, or it raises a typed error and, done again under the same request id, is
done once; the table is sound and holds what it held before or what the operation makes of it, nothing
between.

All of them together are some thousands of runs, and slow tests. A change must pass three operations whole,
and of each other five runs.
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
from tests.simulator.fault_proxy import FATES, FAULTS, Fault, FaultProxy, Passing
from tests.simulator.faults import Fate

import inlay
from inlay.errors import AccessDenied, InlayError, PageError, RebaseError, RetryError
from inlay.format import keys
from inlay.parquet.write import writer
from inlay.storage import s3, s3_environment
from inlay.storage.base import IF_ABSENT, Got, Written
from inlay.storage.s3 import S3Store

from .wired import OPERATIONS, Operation

if TYPE_CHECKING:
    from inlay.local.s3server import AwsProcess

# A client that waits for an answer that does not come gives up after this long.
READ_TIMEOUT_SECONDS = 5
# What an operation may raise under a fault. Who repairs from a listing without the newest archive meets it.
MAY_RAISE: dict[Fault, type[InlayError] | tuple[type[InlayError], ...]] = {
    "expired": AccessDenied,
    "skewed": AccessDenied,
    "not_implemented": PageError,
    "sign_in": PageError,
    "refused": (RetryError, RebaseError),
    "late_listing": (RetryError, RebaseError),
}
QUICK = ("append", "scan", "delete rows")


@dataclass
class Bench:
    """Tables to copy from, an S3, and a proxy before it."""

    proxy: FaultProxy
    store: S3Store
    fault: Fault | None = None
    number: int = 0
    begun: dict[Callable[[str], None], list[tuple[str, bytes]]] = field(default_factory=dict)

    def plan(self, passing: Passing) -> Fault | None:
        return self.fault if passing.number == self.number else None

    def uri(self, root: str) -> str:
        return f"s3://{self.store.bucket}/{root}"

    def template(self, begin: Callable[[str], None]) -> list[tuple[str, bytes]]:
        """The objects of the table that `begin` makes, by their names in it."""
        if begin not in self.begun:
            root = f"templates/{begin.__name__}"
            begin(self.uri(root))
            infos = list(self.store.list(f"{root}/"))
            found = [(info.key.removeprefix(root), self.store.get(info.key)) for info in infos]
            self.begun[begin] = [(name, got.body) for name, got in found if isinstance(got, Got)]
        return self.begun[begin]

    def new(self, operation: Operation) -> str:
        """The URI of a new table, ready for the operation."""
        root = f"tables/{uuid.uuid4().hex}"
        for name, body in self.template(operation.begin):
            self.store.put(f"{root}{name}", body)
        if operation.before is not None:
            operation.before(self.uri(root))
        return self.uri(root)

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
        patch.setattr(s3_environment, "READ_TIMEOUT_SECONDS", READ_TIMEOUT_SECONDS)
        # As many attempts as ever, with waits that do not add up.
        patch.setattr(s3, "_FIRST_BACKOFF_SECONDS", 0.001)
        # Files that are sent in parts stay small.
        patch.setattr(writer, "PUT_BYTES", 5 << 20)
        patch.setattr(writer, "PART_BYTES", 5 << 20)
        store = S3Store(f"faults-{uuid.uuid4().hex}")
        store.client.create_bucket(Bucket=store.bucket)
        with FaultProxy(embedded_aws.endpoint_url, stall_seconds=0.02) as proxy:
            found = Bench(proxy, store)
            proxy.plan = found.plan
            yield found


@dataclass(frozen=True)
class Known:
    """An operation on a wire without faults: its requests, and what is seen before and after it."""

    requests: int
    before: object
    after: object


def without_faults(bench: Bench, name: str) -> Known:
    operation = OPERATIONS[name]
    uri = bench.new(operation)
    before = operation.see(uri)
    with bench.wired():
        operation.run(uri)
    requests = len(bench.proxy.passed)
    assert requests >= 1
    expected = before if operation.then is None else operation.then
    assert operation.see(uri) == expected
    return Known(requests, before, expected)


def check(bench: Bench, name: str, known: Known, fault: Fault, number: int) -> None:
    operation = OPERATIONS[name]
    uri = bench.new(operation)
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
    assert bench.proxy.deliver() == (fault == "held")
    found = operation.see(uri)
    # What a late listing does not show is not repaired, dropped or collected yet, and that is no error;
    # what was sent twice may come once more, where a table was.
    late = FATES[fault] is Fate.LATE and found in operation.between
    if done and fault != "late_listing" and not late:
        assert found == known.after
    else:
        assert found in (known.before, known.after, *operation.between), found
        operation.run(uri)  # the same again, as its caller would
        assert operation.see(uri) == known.after or late
    if operation.verified:
        assert inlay.open(uri).maintain.verify().errors == ()


def meet(bench: Bench, name: str, known: Known, fault: Fault, number: int) -> None:
    try:
        check(bench, name, known, fault, number)
    except BaseException as error:
        error.add_note(f"{name}: {fault} at request {number} of {known.requests}")
        raise


def matrix(bench: Bench, name: str) -> None:
    """The operation, once for each of its requests and each fault."""
    known = without_faults(bench, name)
    met: Counter[str] = Counter()
    for fault in FAULTS:
        for number in range(1, known.requests + 1):
            bench.proxy.faults.clear()
            meet(bench, name, known, fault, number)
            met.update(bench.proxy.faults)
    runs = known.requests * len(FAULTS)
    print(f"{name}: {known.requests} requests, {runs} runs, {met.total()} faults met")
    # Of others there may be no such request: a listing, one with a condition, or of a range.
    assert set(met) >= set(FAULTS) - {"late_listing", "refused", "other_range"}


def first_of(names):
    """The first in the short tier: the others meet the same faults."""
    return [names[0], *(pytest.param(name, marks=pytest.mark.wide) for name in names[1:])]


@pytest.mark.parametrize("name", first_of(QUICK))
def test_operations_under_faults_at_each_request(bench, name):
    matrix(bench, name)


SOME = 5


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in QUICK])
def test_every_operation_under_some_faults(bench, name):
    """A sample of the runs below, the same each time: no two operations have the same."""
    known = without_faults(bench, name)
    draw = random.Random(name)
    for fault in draw.sample(FAULTS, SOME):
        meet(bench, name, known, fault, draw.randint(1, known.requests))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in QUICK])
def test_every_operation_under_faults_at_each_request(bench, name):
    matrix(bench, name)


def test_expired_credentials_are_no_file_that_stands_in_the_way_of_a_publication(bench):
    """Its caller would change the file, which is sound (`Unpublishable`)."""
    known = without_faults(bench, "publish")
    for number in range(1, known.requests + 1):
        meet(bench, "publish", known, "expired", number)


CHANGES = ("append", "delete", "delete rows", "update")


@pytest.mark.parametrize("name", first_of(CHANGES))
def test_no_fault_lets_a_commit_in_on_a_pointer_that_went_back(bench, name):
    """The archive is there, of the very bytes, whatever became of the first try to write it: a client that
    took it for its own, because an earlier try had failed, asked no further, and rows were lost."""
    operation = OPERATIONS[name]
    faults = [fault for fault in FAULTS if fault != "late_listing"]
    number, ended = 0, False
    while not ended:
        number += 1
        for fault in faults:
            uri = bench.new(operation)
            root = uri.removeprefix(bench.uri(""))
            pointer = f"{root}/{keys.POINTER}"
            old = bench.store.get(f"{root}/{keys.archive_key(2)}")
            assert isinstance(old, Got)
            bench.store.put(pointer, old.body)
            bench.fault, bench.number = fault, number
            with bench.wired(), pytest.raises(InlayError):
                operation.run(uri)
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
