"""One process with many tables, threads and copies of results."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.ops.context import THREADS
from inlay.table import Table

SCHEMA = pa.schema([("id", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


@pytest.fixture
def table() -> Table:
    t = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    t.append(rows(*range(100)))
    return t


def test_many_open_tables_share_their_threads(table: Table) -> None:
    others = threading.active_count()
    tables = [inlay.open(table.uri) for _ in range(50)]
    assert {t.count(where="id < 50") for t in tables} == {50}
    assert threading.active_count() <= others + THREADS


def _count(location: str, answer: Any) -> None:
    answer.send(inlay.open(location).count(where="id < 2"))


def test_a_forked_child_has_threads_of_its_own(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", SCHEMA)
    t.append(rows(1, 2))
    assert t.count(where="id < 2") == 1  # the pool has threads now
    parent, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_count, args=(str(tmp_path / "t"), child)
    )
    process.start()
    try:
        assert parent.poll(60), "the child waits for threads that it does not have"
        assert parent.recv() == 1
    finally:
        process.kill()
        process.join()


def test_threads_may_write_through_one_table_object(table: Table) -> None:
    errors: list[BaseException] = []

    def write(thread: int) -> None:
        try:
            for n in range(5):
                table.append(rows(1000 * (thread + 1) + n))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert inlay.open(table.uri).count() == 120


def test_one_request_from_many_threads_is_applied_once(table: Table) -> None:
    tables = [table, *(inlay.open(table.uri) for _ in range(4))]
    applied: list[bool] = []

    def write(t: Table) -> None:
        applied.append(t.append(rows(7000), request_id="once").committed)

    threads = [threading.Thread(target=write, args=(t,)) for t in [*tables, table, table]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [False] * 6 + [True]
    assert inlay.open(table.uri).count(where="id = 7000") == 1


def test_results_and_plans_can_be_pickled(table: Table) -> None:
    result = table.delete("id = 1", mode="vector")
    assert pickle.loads(pickle.dumps(result)) == result
    plan = table.scan(where="id > 3").plan
    assert pickle.loads(pickle.dumps(plan)) == plan
