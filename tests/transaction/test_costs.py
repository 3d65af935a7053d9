"""What a transaction over k tables costs: 2k + 1 writes and three round trips besides its rows, and nothing
after the answer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar
from uuid import uuid4

import pytest
from tests.transaction.conftest import SCHEMA, content, rows

import inlay
from inlay.format import keys
from inlay.ops.commit.driver import MAX_UNREAD, SETTLE_SECONDS
from inlay.storage.base import ObjectStore
from inlay.storage.wrapped import Asked, WrappedStore

T = TypeVar("T")
# Far above what it takes: only a test that fails waits for it.
SECONDS = 30.0


class Trips(WrappedStore):
    """Notes every request. Of each kind in `meet` so many must be in flight before one is answered: they
    are one round trip."""

    def __init__(self, inner: ObjectStore, asked: list[tuple[str, str]], meet: dict) -> None:
        super().__init__(inner)
        self.asked, self.meet = asked, meet

    def at(self, bucket: str) -> Trips:
        return Trips(self.inner.at(bucket), self.asked, self.meet)

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        kind = kind_of(asked.key)
        self.asked.append((asked.verb, kind))
        if kind in self.meet:
            self.meet[kind].wait(SECONDS)
        return send()


def kind_of(key: str) -> str:
    name = key.split("/", 2)[2]  # tables/NAME/…
    return name.split("/", 1)[0]


def make(count: int) -> list[inlay.Table]:
    place = f"memory://costs-{uuid4()}/tables"
    return [inlay.create(f"{place}/t{n}", SCHEMA) for n in range(count)]


def watched(tables: list[inlay.Table], meet: dict) -> tuple[list[inlay.Table], list]:
    asked: list[tuple[str, str]] = []
    return [
        inlay.open(t.uri, context=replace(t._ctx, store=Trips(t._ctx.store, asked, meet)))
        for t in tables
    ], asked


@pytest.mark.parametrize("k", [2, 3, 10, 100])
def test_so_many_writes_in_three_round_trips(k):
    tables = make(k)
    meet = {"manifest": threading.Barrier(k), keys.POINTER: threading.Barrier(k)}
    handles, asked = watched(tables, {})
    for handle in handles:
        handle._ctx.store.meet = meet
    asked.clear()
    with inlay.transaction() as tx:
        for handle in handles:
            tx.set_properties(handle, {"history.days": 9})
        assert asked == []
    # Archives at once, then swaps at once, then the decision: no other request, and nothing afterwards.
    assert asked[:k] == [("put", "manifest")] * k
    assert asked[k : 2 * k] == [("put", keys.POINTER)] * k
    assert asked[2 * k :] == [("put", "transaction")]
    assert set(tx.versions.values()) == {2}


@pytest.mark.parametrize("k", [2, 10])
def test_archives_go_with_the_rows(k):
    tables = make(k)
    handles, asked = watched(tables, {})
    asked.clear()
    with inlay.transaction() as tx:
        for handle in handles:
            tx.append(handle, rows((1, 10)))
        assert Counter(asked) == {("put", "data"): k, ("put", "manifest"): k}
        asked.clear()
    assert asked == [("put", keys.POINTER)] * k + [("put", "transaction")]
    assert all(content(t) == {1: 10} for t in tables)


@pytest.mark.parametrize("known", [True, False])
def test_the_next_commit_on_each_makes_two_writes_as_always(known):
    """One more GET for a process that does not know the decision."""
    tables = make(2)
    handles, asked = watched(tables, {})
    with inlay.transaction() as tx:
        for handle in handles:
            tx.append(handle, rows((1, 10)))
    asked.clear()
    for number, table in enumerate(tables):
        handle = handles[number] if known else watched([table], {})[0][0]
        if not known:
            assert handle.version == 2
            handle._ctx.store.asked = asked
        handle.append(rows((2, 20)))
    assert Counter(asked) == {
        ("put", "data"): 2,
        ("put", "manifest"): 2,
        ("put", keys.POINTER): 2,
    }


def test_a_process_reads_a_decision_once():
    tables = make(2)
    with inlay.transaction() as tx:
        for table in tables:
            tx.append(table, rows((1, 10)))
    [handle], asked = watched(tables[:1], {})
    handle.refresh()
    handle.refresh()
    assert Counter(asked) == {("get", keys.POINTER): 3, ("get", "transaction"): 1}


def test_what_is_read_takes_no_archive():
    a, b = make(2)
    handles, asked = watched([a, b], {})
    with inlay.transaction() as tx:
        tx.set_properties(handles[0], {"history.days": len(tx.read(handles[1])) + 5})
        asked.clear()
    assert Counter(asked) == {
        ("put", "manifest"): 1,
        ("put", keys.POINTER): 2,
        ("put", "transaction"): 1,
    }


def test_transactions_in_a_row_leave_others_a_turn(monkeypatch):
    """As commits on one table do: after MAX_UNREAD in a row the pointers are read. Before that it waits,
    for others see only by looks at the pointer that the last transaction has ended."""
    monkeypatch.setattr("inlay.ops.commit.driver.CONTENDED_SECONDS", 1e9)
    tables, asked = watched(make(2), {})
    slept: list[int] = []

    class Clock:
        def __init__(self, inner) -> None:
            self.monotonic = inner.monotonic

        def sleep(self, seconds: float) -> None:
            assert 0 <= seconds <= SETTLE_SECONDS
            slept.append(at)

    for table in tables:
        table._ctx = replace(table._ctx, clock=Clock(table._ctx.clock))
    reads = []
    for at in range(2 * MAX_UNREAD + 2):
        asked.clear()
        with inlay.transaction() as tx:
            for table in tables:
                tx.append(table, rows((at, at)))
        reads += [at] * (asked.count(("get", keys.POINTER)) == 2)
    assert reads == slept == [MAX_UNREAD, 2 * MAX_UNREAD]
    assert all(len(content(table)) == 2 * MAX_UNREAD + 2 for table in tables)


def test_a_transaction_that_met_others_reads_before_the_next():
    tables, asked = watched(make(2), {})
    inlay.open(tables[0].uri).append(rows((1, 1)))
    for at in (2, 3):
        asked.clear()
        with inlay.transaction() as tx:
            for table in tables:
                tx.append(table, rows((at, at)))
    # What it knew was old, so it knows now that it is not alone: each pointer is read beforehand.
    assert asked.count(("get", keys.POINTER)) == 2
    assert asked[0] == ("get", keys.POINTER)
