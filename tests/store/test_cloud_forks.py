"""Tables on the stores of Google and Azure in other processes: forked, spawned, started by a fork server,
and by the pickles of schedulers.

As on S3 (`tests/commit/test_forks.py`): connections and tokens are of one process, a pickle holds settings
and no credentials.
"""

from __future__ import annotations

import pickle
import threading
from typing import Any

import pytest
from tests.commit.test_forks import (
    HUNG_SECONDS,
    SCHEMA,
    Committing,
    check_children_lose_nothing,
    ids_of,
    in_fork,
    pool_of_one,
    rows,
)

import inlay
from inlay.storage import azure_account, gcs, rest
from inlay.storage.base import Written
from inlay.table import Table

from .conftest import ACCOUNT_KEY, Cloud


@pytest.fixture
def table(cloud: Cloud) -> Table:
    made = inlay.create(f"{cloud.uri}/t", SCHEMA, primary_key="id")
    made.append(rows(1, 2))
    made.append(rows(3))
    assert ids_of(made) == [1, 2, 3]
    return made


def test_a_forked_child_and_its_child_read_and_write_with_the_table_they_inherited(table):
    def grandchild() -> list[int]:
        table.append(rows(5))
        return ids_of(table)

    def child() -> list[int]:
        table.append(rows(4))
        table.delete("id = 1", mode="vector")
        return in_fork(grandchild)()

    assert in_fork(child)() == [2, 3, 4, 5]
    table.append(rows(6))
    assert ids_of(table) == [2, 3, 4, 5, 6]


def test_children_forked_while_threads_commit_lose_nothing(table):
    check_children_lose_nothing(table, Committing(table, 2))


def test_parent_and_child_never_get_each_others_answers(cloud):
    store = cloud.store
    for number in range(2):
        assert isinstance(store.put(f"k{number}", b"%d" % number * 1000), Written)

    def read(number: int) -> set[bytes]:
        return {store.get(f"k{number}").body[:3] for _ in range(40)}

    child = in_fork(lambda: read(0))
    assert read(1) == {b"111"}
    assert child() == {b"000"}


@pytest.mark.parametrize("module", [gcs._google, azure_account._tokens, rest._pools])
def test_tokens_and_connections_are_of_a_process(module):
    """A renewal under way in a thread of the parent, under its lock, is nobody's in the child."""
    mine = module.get()
    lock = getattr(mine, "_lock", None)
    if lock is None:
        assert in_fork(lambda: module.get() == {})()
        return
    with lock:
        assert in_fork(lambda: module.get()._lock.acquire(timeout=HUNG_SECONDS))()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_every_kind_take_tables_and_scans(table, method):
    with pool_of_one(method) as pool, Committing(table, 1) as parent:
        count = pool.submit(Table.count, table)
        read = pool.submit(inlay.ops.read.scan.Scan.to_arrow, table.scan(where="id < 3"))
        write = pool.submit(Table.append, table, rows(100))
        assert count.result(HUNG_SECONDS) == 3
        assert read.result(HUNG_SECONDS).num_rows == 2
        assert write.result(HUNG_SECONDS).added_rows == 1
    assert ids_of(table.refresh()) == sorted([1, 2, 3, 100, *parent.acknowledged])


def test_a_pickle_holds_no_credentials(table):
    for each in (table, table.scan(), table.changes(0), table._ctx.store):
        pickled = pickle.dumps(each)
        assert ACCOUNT_KEY.encode() not in pickled
        assert len(pickled) < 2000
    assert ids_of(pickle.loads(pickle.dumps(table))) == [1, 2, 3]


def test_closures_of_schedulers_carry_tables(table):
    """As Dask, Ray and Spark send functions: pickled by value, with what they close over, from several
    threads at once."""
    cloudpickle = pytest.importorskip("cloudpickle")
    scan, number = table.scan(where="id > 1", columns=["id"]), 10

    def partition(n: int) -> tuple[int, int]:
        return scan.to_arrow().num_rows, table.append(rows(number + n)).added_rows

    sent = cloudpickle.dumps(partition)
    assert ACCOUNT_KEY.encode() not in sent
    done: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: done.append(pickle.loads(sent)(n))) for n in range(3)
    ]
    for thread in threads:
        thread.start()
    forked = in_fork(lambda: pickle.loads(sent)(3))
    for thread in threads:
        thread.join(HUNG_SECONDS)
    assert [*done, forked()] == [(2, 1)] * 4
    assert ids_of(table.refresh()) == [1, 2, 3, 10, 11, 12, 13]
