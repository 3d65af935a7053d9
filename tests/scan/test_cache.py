"""The cache loads a value once for all threads that ask, keeps none waiting for another value, and changes
no answer."""

from __future__ import annotations

import multiprocessing
import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.ops.cache import ObjectCache

SECONDS = 60.0  # only a test that fails waits so long


class Slow:
    """A load that goes on when it is let: how often it was begun, and what it ends with."""

    def __init__(self, ends: Callable[[int], tuple[str, int]] = lambda n: ("value", 1)) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.times = 0
        self.ends = ends

    def __call__(self) -> tuple[str, int]:
        self.times += 1
        n = self.times
        self.begun.release()
        assert self.go_on.acquire(timeout=SECONDS)
        return self.ends(n)


def ask(cache: ObjectCache, load: Slow, threads: int) -> list[Future[str]]:
    """As many threads, of which the first has begun to load."""
    pool = ThreadPoolExecutor(threads)
    first = pool.submit(cache.once, "key", load)
    assert load.begun.acquire(timeout=SECONDS)
    futures = [first, *(pool.submit(cache.once, "key", load) for _ in range(threads - 1))]
    pool.shutdown(wait=False)
    return futures


@pytest.mark.parametrize("limit_bytes", [100, 0], ids=["kept", "too large to be kept"])
def test_threads_that_ask_at_once_share_one_load(limit_bytes, monkeypatch):
    cache, load = ObjectCache(limit_bytes), Slow()
    waiting = threading.Semaphore(0)
    wait = threading.Event.wait

    def wait_and_say(event: threading.Event, timeout: float | None = None) -> bool:
        waiting.release()
        return wait(event, timeout)

    monkeypatch.setattr("inlay.ops.cache.Event.wait", wait_and_say)
    asked = ask(cache, load, 8)
    for _ in range(7):
        assert waiting.acquire(timeout=SECONDS)
    load.go_on.release()
    assert [each.result(SECONDS) for each in asked] == ["value"] * 8
    assert load.times == 1
    assert cache.get("key") == (None if limit_bytes == 0 else "value")


def test_a_load_keeps_no_other_value_waiting():
    """Whatever its name: there were 64 locks once, one of which many names had."""
    cache, load = ObjectCache(), Slow()
    (first,) = ask(cache, load, 1)
    for n in range(1_000):
        assert cache.once(f"other {n}", lambda n=n: (n, 1)) == n
        assert cache.get("key") is None
    other = ObjectCache()
    assert other.once("key", lambda: ("of another table", 1)) == "of another table"
    load.go_on.release()
    assert first.result(SECONDS) == "value"


class Killed(BaseException):
    """What no handler of errors takes."""


@pytest.mark.parametrize("error", [ValueError, Killed])
def test_a_load_that_fails_fails_where_it_ran_and_the_next_thread_loads(error):
    def ends(n: int) -> tuple[str, int]:
        if n == 1:
            raise error
        return "value", 1

    cache, load = ObjectCache(), Slow(ends)
    first, *others = ask(cache, load, 4)
    for _ in range(2):
        load.go_on.release()
    with pytest.raises(error):
        first.result(SECONDS)
    assert [each.result(SECONDS) for each in others] == ["value"] * 3
    assert load.times == 2


def in_child(cache: ObjectCache, tell: Any) -> None:
    tell.send((os.getpid(), cache.once("key", lambda: ("the child's", 1))))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_during_a_load_loads_for_itself():
    cache, load = ObjectCache(), Slow()
    (first,) = ask(cache, load, 1)
    forking = multiprocessing.get_context("fork")
    hear, tell = forking.Pipe(duplex=False)
    child = forking.Process(target=in_child, args=(cache, tell), daemon=True)
    child.start()
    assert hear.poll(SECONDS), "the child waits for a thread that it does not have"
    assert hear.recv() == (child.pid, "the child's")
    child.join(SECONDS)
    load.go_on.release()
    assert first.result(SECONDS) == "value"


CONDITIONS = [
    None,
    "n >= 0",
    "n > 40",
    "n + 1 > 41",
    "n % 2 = 0",
    "n > 40 AND n % 2 = 0",
    "length(s) = 1",
    "s IN ('7', '70')",
    "x IS NULL",
    pc.field("n") > 40,
    pc.field("s").isin(["7", "70"]),
    pc.field("x").is_null(),
]
ASKED = [
    *(lambda t, w=w: t.count(w) for w in CONDITIONS),
    *(lambda t, w=w: t.scan(where=w).count() for w in CONDITIONS),
    *(lambda t, w=w: t.scan(where=w, limit=3).to_arrow() for w in CONDITIONS),
    *(lambda t, w=w: t.scan(where=w, columns=["s"]).to_arrow() for w in CONDITIONS),
    *(lambda t, w=w: t.scan(where=w, order_by="x DESC", limit=5).to_arrow() for w in CONDITIONS),
]


@pytest.fixture(scope="module")
def answered() -> tuple[str, list[Any]]:
    """A table, and what each question gets that is the first to be asked."""
    uri = f"memory://asked/{uuid.uuid4().hex}"
    schema = pa.schema([("n", pa.int64()), ("s", pa.string()), ("x", pa.float64())])
    table = inlay.create(uri, schema, properties={"write.row_group_rows": 30})
    for first in (0, 100):
        rows = range(first, first + 100)
        table.append(
            pa.table(
                [list(rows), [str(n) for n in rows], [None if n % 7 else n / 3 for n in rows]],
                schema=schema,
            )
        )
    table.delete("n = 5")
    table.delete("n BETWEEN 100 AND 110 OR x > 60")
    table.delete("n = 45", mode="vector")
    return uri, [ask_for(inlay.open(uri)) for ask_for in ASKED]


@settings(deadline=None, max_examples=40)
@given(order=st.lists(st.sampled_from(range(len(ASKED))), min_size=2, max_size=12))
def test_an_answer_does_not_depend_on_what_was_asked_before(
    answered: tuple[str, list[Any]], order: list[int]
) -> None:
    uri, expected = answered
    table = inlay.open(uri)
    for n in order:
        assert ASKED[n](table) == expected[n]


def test_a_count_of_all_rows_is_not_that_of_some(answered: tuple[str, list[Any]]) -> None:
    table = inlay.open(answered[0])
    everything = table.count()
    assert everything == len(table.scan().to_arrow())
    assert table.count(where="n + 1 > 41") == len(table.scan(where="n > 40").to_arrow())
    assert table.scan(where=pc.field("n") > 40).count() == table.count(where="n > 40")
    assert table.count() == everything
