"""What one process opened, another one uses: forked, spawned, started by a fork server.

A child that hangs is the fault looked for here, so every wait has an end; it is long, because a busy
machine is none.
"""

from __future__ import annotations

import gc
import inspect
import io
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from botocore.client import BaseClient
from tests.tiers import in_short

import inlay
from inlay import errors
from inlay.errors import (
    InlayError,
    InvalidRequest,
    TableNotFound,
    TableReplaced,
    VersionNotFound,
)
from inlay.ops.context import InlineExecutor
from inlay.storage.s3 import S3Store
from inlay.storage.s3_client import connect
from inlay.storage.wrapped import PerProcess
from inlay.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("who", pa.string())])
HUNG_SECONDS = 120


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "who": [f"w{i}" for i in ids]}, SCHEMA)


def ids_of(table: Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def in_fork(run: Callable[[], Any]) -> Callable[[], Any]:
    """Start `run` in a forked child; what is returned waits for its result, or raises its error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            try:
                answer: Any = run()
            except BaseException as error:
                answer = error
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(write)

    def result() -> Any:
        body = io.BytesIO()
        with os.fdopen(read, "rb", buffering=0) as pipe:
            while True:
                if not select.select([pipe], [], [], HUNG_SECONDS)[0]:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    raise AssertionError("the child hangs")
                if not (more := pipe.read(65536)):
                    break
                body.write(more)
        os.waitpid(child, 0)
        answer = pickle.loads(body.getvalue())
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return result


@pytest.fixture(params=in_short(["s3", "file"], ["s3"]))
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('s3_bucket')}/tables/t"
    return f"{tmp_path}/t"


@pytest.fixture
def table(uri: str) -> Table:
    """With its pool of threads and its connections in use."""
    made = inlay.create(uri, SCHEMA, primary_key="id")
    made.append(rows(1, 2))
    made.append(rows(3))
    assert ids_of(made) == [1, 2, 3]
    return made


class Committing:
    """Threads of this process that append to a table, one id each time, until the block ends."""

    def __init__(self, table: Table, threads: int = 4) -> None:
        self._uri = table.uri
        self._end = threading.Event()
        self.acknowledged: list[int] = []
        self._failed: list[BaseException] = []
        self._busy = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._run, args=(1000 * (n + 1),)) for n in range(threads)
        ]

    def _run(self, first: int) -> None:
        try:
            mine = inlay.open(self._uri)
            for number in range(first, first + 1000):
                if self._end.is_set():
                    return
                mine.append(rows(number))
                self.acknowledged.append(number)
                self._busy.release()
        except BaseException as error:
            self._failed.append(error)
            self._busy.release()

    def wait(self, commits: int) -> None:
        for _ in range(commits):
            assert self._busy.acquire(timeout=HUNG_SECONDS)

    def __enter__(self) -> Committing:
        for thread in self._threads:
            thread.start()
        self.wait(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(HUNG_SECONDS)
        assert self._failed == []


# -- forked ---------------------------------------------------------------------------------------


def test_a_forked_child_reads_and_writes_with_the_table_it_inherited(table):
    def child() -> list[int]:
        before = ids_of(table)
        table.append(rows(4))
        table.delete("id = 1", mode="vector")
        return [*before, -1, *ids_of(table)]

    assert in_fork(child)() == [1, 2, 3, -1, 2, 3, 4]
    assert ids_of(table) == [1, 2, 3]
    table.append(rows(5))
    assert ids_of(table) == [2, 3, 4, 5]


def test_a_child_of_a_child_does_too(table):
    def grandchild() -> list[int]:
        table.append(rows(5))
        return ids_of(table)

    def child() -> list[int]:
        table.append(rows(4))
        return in_fork(grandchild)()

    assert in_fork(child)() == [1, 2, 3, 4, 5]


def check_children_lose_nothing(table: Table, parent: Committing) -> None:
    """Children that are forked while threads of `parent` commit, and commit themselves."""
    children = []
    with parent:
        for n in range(4):

            def child(n: int = n) -> int:
                inherited = table.append(rows(100 + n)).added_rows
                opened = inlay.open(table.uri)
                assert len(ids_of(opened)) >= 4
                return inherited + opened.append(rows(200 + n)).added_rows

            children.append(in_fork(child))
            parent.wait(1)
        assert [result() for result in children] == [2] * 4
    expected = [1, 2, 3, *parent.acknowledged, *range(100, 104), *range(200, 204)]
    assert ids_of(table.refresh()) == sorted(expected)


def test_children_forked_while_threads_commit_lose_nothing(table):
    check_children_lose_nothing(table, Committing(table))


def test_parent_and_child_never_get_each_others_answers(s3_bucket):
    tables = [inlay.create(f"s3://{s3_bucket}/tables/{name}", SCHEMA) for name in "ab"]
    for number, each in enumerate(tables):
        each.append(rows(number))

    def read(number: int) -> list[list[int]]:
        return [ids_of(inlay.open(tables[number].uri)) for _ in range(40)]

    child = in_fork(lambda: read(0))
    assert read(1) == [[1]] * 40
    assert child() == [[0]] * 40


def test_a_stream_that_was_begun_before_the_fork_is_refused_and_does_not_hang(uri):
    table = inlay.create(uri, SCHEMA)
    for n in range(8):
        table.append(rows(*range(100 * n, 100 * n + 50)))
    batches = iter(table.scan().to_reader())
    first = next(batches).num_rows

    def child() -> list[int]:
        with pytest.raises(InvalidRequest, match="forked"):
            next(batches)
        return ids_of(table)

    assert len(in_fork(child)()) == 400
    # A child that only ends, and with it the stream, ends too.
    assert in_fork(lambda: gc.collect() and None)() is None
    assert first + sum(batch.num_rows for batch in batches) == 400


def test_what_the_caller_has_made_for_one_process_is_refused_in_a_child(tmp_path, aws_env):
    with ThreadPoolExecutor(2) as pool:
        ctx = inlay.connect(f"{tmp_path}/t", executor=pool)
        table = inlay.create(f"{tmp_path}/t", SCHEMA, context=ctx)
        table.append(rows(1))
        assert ids_of(table) == [1]
        with pytest.raises(InvalidRequest, match="executor"):
            in_fork(lambda: ids_of(table))()

    store = S3Store("lake", client=connect(endpoint_url=aws_env.endpoint_url))
    with pytest.raises(InvalidRequest, match="client"):
        in_fork(lambda: store.get("k"))()
    with pytest.raises(InvalidRequest, match="client"):
        pickle.dumps(store)


def test_a_child_forked_while_its_parent_draws_progress_draws_its_own(uri, monkeypatch):
    made = inlay.create(uri, SCHEMA)
    for n in range(2):
        made.append(rows(n))
    table = inlay.open(uri, progress=True)
    report = table._ctx.progress
    parent, drawing, go_on = os.getpid(), threading.Event(), threading.Event()

    class Drawn:
        def update(self, what: str, done: int, total: int | None) -> None:
            if os.getpid() == parent:
                drawing.set()
                go_on.wait(HUNG_SECONDS)

    for name in ("_Rich", "_Tqdm"):
        monkeypatch.setattr(f"inlay.progress.{name}", Drawn)
    working = threading.Thread(target=report, args=("files read", 1, 2))
    working.start()
    assert drawing.wait(HUNG_SECONDS)

    def child() -> list[int]:
        report("files read", 1, 2)
        return ids_of(table)

    try:
        assert in_fork(child)() == [0, 1]
    finally:
        go_on.set()
        working.join(HUNG_SECONDS)


def test_memory_is_of_one_process():
    table = inlay.create(f"memory://{uuid.uuid4().hex}/t", SCHEMA)
    table.append(rows(1))
    with pytest.raises(InvalidRequest, match="memory"):
        in_fork(lambda: table.append(rows(2)).version)()
    with pytest.raises(InvalidRequest, match="memory"):
        in_fork(lambda: ids_of(table))()
    with pytest.raises(TableNotFound):
        in_fork(lambda: ids_of(inlay.open(table.uri)))()
    assert ids_of(pickle.loads(pickle.dumps(table))) == [1]


def test_a_forked_process_counts_its_own_requests(table):
    assert table.usage.total > 0
    assert in_fork(lambda: table.usage.total)() == 0
    assert in_fork(lambda: table.append(rows(9)).requests)() in (3, 4)


OF_A_PROCESS = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Thread,
    threading.Event,
    threading.Condition,
    Executor,
    socket.socket,
    BaseClient,
)
# An executor that has nothing of a process but through `PerProcess` itself.
SAFE = (PerProcess, InlineExecutor)


def held_by(start: object) -> Iterator[tuple[object, str]]:
    """Everything reachable from `start` without passing through a `PerProcess`, each with how."""
    seen: set[int] = set()
    left: list[tuple[object, str]] = [(start, type(start).__name__)]
    while left:
        thing, path = left.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType, *SAFE)):
            continue
        if inspect.isroutine(thing) and not isinstance(thing, types.MethodType):
            continue
        seen.add(id(thing))
        yield thing, path
        left += [(other, f"{path} → {type(other).__name__}") for other in gc.get_referents(thing)]


def test_all_that_a_table_holds_of_a_process_it_holds_through_per_process(table):
    table.refs.branch("b")
    scan, feed = table.scan(where="id > 1"), table.changes(0)
    assert scan.to_arrow().num_rows == 2
    assert feed.to_arrow().num_rows == 3
    for each in (table, scan, feed):
        found = [
            path
            for thing, path in held_by(each)
            if isinstance(thing, OF_A_PROCESS)
            and type(thing).__name__ != "Workers"
            # The interpreter's own locals of a thread are per thread.
            and not path.endswith("_local → lock")
        ]
        assert found == []


# -- pickled --------------------------------------------------------------------------------------


def pool_of_one(method: str) -> ProcessPoolExecutor:
    """One process started by `method`, with this process's environment as it is now.

    A fork server has the environment, and so the credentials, of whoever started it: the first test that
    used one.
    """
    given = ("import os; os.environ.clear(); os.environ.update(given)", {"given": dict(os.environ)})
    context = multiprocessing.get_context(method)
    return ProcessPoolExecutor(1, mp_context=context, initializer=exec, initargs=given)


@pytest.mark.parametrize(
    ("uri", "method"),
    [
        ("s3", "fork"),
        pytest.param("file", "fork", marks=pytest.mark.wide),
        ("s3", "spawn"),
        pytest.param("s3", "forkserver", marks=pytest.mark.wide),
    ],
    indirect=["uri"],
)
def test_pools_of_every_kind_take_tables_and_scans(table, method):
    with pool_of_one(method) as pool, Committing(table, 2) as parent:
        counts = [pool.submit(Table.count, table) for _ in range(3)]
        read = pool.submit(inlay.ops.read.scan.Scan.to_arrow, table.scan(where="id < 3"))
        writes = [pool.submit(Table.append, table, rows(n)) for n in (100, 101, 102)]
        assert [f.result(HUNG_SECONDS) for f in counts] == [3, 3, 3]
        assert read.result(HUNG_SECONDS).num_rows == 2
        assert [f.result(HUNG_SECONDS).added_rows for f in writes] == [1, 1, 1]
        with pytest.raises(errors.InvalidPredicate, match="nope"):
            pool.submit(Table.count, table, where="nope = 1").result(HUNG_SECONDS)
    expected = [1, 2, 3, 100, 101, 102, *parent.acknowledged]
    assert ids_of(table.refresh()) == sorted(expected)


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def test_a_pickled_table_shows_the_snapshot_that_it_had(table):
    table.refs.tag("first")
    branch = table.refs.branch("work")
    branch.append(rows(50))
    past = inlay.open(table.uri, version=2)
    tag = inlay.open(table.uri, ref="first")
    before = {"main": table, "branch": branch, "past": past, "tag": tag}
    scans = {
        "everything": table.scan(),
        "where": table.scan(columns=["id"], where="id >= 2", limit=1),
        "expression": table.scan(where=pc.field("id") > 1),
        "scan of the past": past.scan(),
        "scan of the branch": branch.scan(),
        "changes": table.changes(0),
        "net": table.changes(1, 2, columns=["id"], where="id = 1", net=True),
    }
    pickled = {name: pickle.dumps(each) for name, each in {**before, **scans}.items()}
    shown = {name: ids_of(each) for name, each in before.items()}
    read = {name: each.to_arrow() for name, each in scans.items()}
    inlay.open(table.uri).append(rows(60))
    inlay.open(table.uri, ref="work").delete("id = 2")

    for name, each in before.items():
        found = pickle.loads(pickled[name])
        assert ids_of(found) == shown[name]
        assert (found.version, found.ref, found.uri) == (each.version, each.ref, each.uri)
        assert found.snapshot.commit.id == each.snapshot.commit.id
        assert ids_of(again(found)) == shown[name]
    for name in scans:
        assert pickle.loads(pickled[name]).to_arrow().equals(read[name])

    mine = pickle.loads(pickled["main"])
    mine.append(rows(61))
    assert ids_of(mine) == [1, 2, 3, 60, 61]
    assert pickle.loads(pickled["branch"]).append(rows(51)).committed
    assert ids_of(inlay.open(table.uri, ref="work")) == [1, 3, 50, 51]
    with pytest.raises(InvalidRequest, match="past"):
        pickle.loads(pickled["tag"]).append(rows(1))


def test_what_is_there_no_more_is_said(table):
    old = pickle.dumps(table)
    table.append(rows(4))
    time.sleep(1.1)  # the clock of a store counts whole seconds
    table.maintain.expire(days=0, min_versions=1)
    with pytest.raises(VersionNotFound):
        pickle.loads(old)
    table._ctx.store.delete([o.key for o in table._ctx.store.list(table._ctx.root + "/")])
    with pytest.raises(TableNotFound):
        pickle.loads(old)
    inlay.create(table.uri, SCHEMA)
    with pytest.raises(TableReplaced):
        pickle.loads(old)


def test_a_pickle_holds_settings_but_neither_credentials_nor_rows(s3_bucket, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTOKEN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRETTOKEN")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "SESSIONTOKEN")
    table = inlay.create(f"s3://{s3_bucket}/tables/t", SCHEMA, primary_key="id")
    table.append(pa.table({"id": [1], "who": ["ROWTOKEN"]}, SCHEMA))
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    for each in (table, table.scan(), table.changes(0)):
        each.to_arrow() if not isinstance(each, Table) else each.count()
        pickled = pickle.dumps(each)
        assert b"TOKEN" not in pickled
        assert len(pickled) < 2000
        # The endpoint and region are settings: another process need not have them.
        with monkeypatch.context() as elsewhere:
            elsewhere.delenv("AWS_ENDPOINT_URL_S3")
            elsewhere.delenv("AWS_ENDPOINT_URL")
            elsewhere.setenv("AWS_REGION", "eu-west-1")
            found = pickle.loads(pickled)
            assert found._ctx.store.inner.client.meta.endpoint_url == endpoint
            assert found._ctx.store.inner.client.meta.region_name == "us-east-1"
            assert (found.count() if isinstance(found, Table) else found.to_arrow().num_rows) == 1
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint.replace("//", "//user:SECRETTOKEN@"))
    with pytest.raises(InvalidRequest, match="credentials"):
        pickle.dumps(S3Store("lake"))


def test_results_pickle(table):
    t = table
    results = [
        t.append(rows(4, 5)),
        t.delete("id = 1"),
        t.update({"who": "'x'"}, where="id = 2"),
        t.upsert(rows(3, 9)),
        t.alter(add={"extra": pa.int32()}),
        t.set_properties(stats__columns=1),
        t.refs.tag("tagged"),
        t.maintain.rewrite(),
        t.maintain.compact(),
        t.maintain.expire(),
        t.maintain.collect_garbage(),
        t.maintain.verify(),
        t.maintain.repair(),
        t.delete("id = 5", mode="erase"),
        t.scan(where="id > 1").explain(),
    ]
    for result in results:
        assert again(result) == result


def every_error(kind: type[InlayError] = InlayError) -> Iterator[type[InlayError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from every_error(below)


@pytest.mark.parametrize("kind", sorted(set(every_error()), key=lambda k: k.__name__))
def test_errors_pickle(kind):
    """One that does not makes a pool of processes hang or die where it is raised."""
    error = kind("what is wrong", next_step="do this", table="t")
    error.about(key="k")
    found = again(error)
    assert (type(found), str(found), found.fields()) == (kind, str(error), error.fields())


def test_an_error_with_a_place_in_a_text_pickles():
    with pytest.raises(errors.InvalidPredicate) as caught:
        inlay.create(f"memory://{uuid.uuid4().hex}/t", SCHEMA).count(where="id = ")
    assert str(again(caught.value)) == str(caught.value)


if sys.version_info >= (3, 12):
    pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
