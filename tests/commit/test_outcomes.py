"""What was committed is never reported as an error: whatever comes after the swap, on every way to change a
table. An error other than `OutcomeUnknown` says that nothing was done."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.simulator.faults import Fate, FaultyStore, Sent

import inlay
from inlay.errors import AccessDenied, InlayError, OutcomeUnknown
from inlay.format import keys
from inlay.format.codec import decode_snapshot
from inlay.ops.metadata.load import schemas_of
from inlay.ops.verify.repair import repair
from inlay.storage.base import Got
from inlay.storage.memory import MemoryStore

from .conftest import POINTER, ROOT, context

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": list(ids)}, SCHEMA)


def ingested(table: inlay.Table) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(rows(7), sink)
    MemoryStore.put(plain(table), "landing/a.parquet", sink.getvalue().to_pybytes())
    return table.ingest(["memory://b/landing/a.parquet"])


def plain(table: inlay.Table) -> MemoryStore:
    store = table._ctx.store
    while not isinstance(store, MemoryStore):
        store = store.inner  # type: ignore[attr-defined]
    return store


def on_branch(table: inlay.Table) -> inlay.Table:
    return inlay.open(table.uri, ref="b", context=table._ctx)


# Every way to commit once, under an id where there can be one.
VERBS: dict[str, Callable[[inlay.Table], Any]] = {
    "append": lambda t: t.append(rows(9), request_id="r"),
    "append nothing known": lambda t: t.append(rows(9)),
    "ingest": ingested,
    "upsert": lambda t: t.upsert(rows(1, 9), request_id="r"),
    "update": lambda t: t.update({"v": "0"}, where="id = 1", request_id="r"),
    "update by rewrite": lambda t: t.update({"v": "0"}, where="id = 1", mode="rewrite"),
    "tombstone": lambda t: t.delete("id = 1", request_id="r"),
    "keys": lambda t: t.delete(keys=rows(1).select(["id"]), request_id="r"),
    "vector": lambda t: t.delete("id = 1", mode="vector", request_id="r"),
    "erase": lambda t: t.delete("id = 1", mode="erase", request_id="r"),
    "erase on a branch": lambda t: on_branch(t).delete("id = 1", mode="erase", request_id="r"),
    "row group": lambda t: t.maintain.delete_row_groups(
        t.inspect.entries()[0][0].key, [0], request_id="r"
    ),
    "alter": lambda t: t.alter(add={"w": pa.int64()}, request_id="r"),
    "partition": lambda t: t.set_partitioning("bucket(4, id)", request_id="r"),
    "properties": lambda t: t.set_properties(delete__mode="vector"),
    "tag": lambda t: t.refs.tag("x"),
    "tag of a version": lambda t: t.refs.tag("x", 2),
    "branch": lambda t: t.refs.branch("c"),
    "branch of a version": lambda t: t.refs.branch("c", 2),
    "branch of a branch": lambda t: on_branch(t).refs.branch("c"),
    "append on a branch": lambda t: on_branch(t).append(rows(9), request_id="r"),
    "tag on a branch": lambda t: on_branch(t).refs.tag("x"),
    "drop a tag": lambda t: t.refs.drop("t"),
    "drop the branch that is open": lambda t: on_branch(t).refs.drop("b"),
    "hold": lambda t: t.refs.set_hold("t"),
    "merge": lambda t: t.refs.merge("b", request_id="r"),
    "fast-forward": lambda t: t.refs.fast_forward("even"),
    "restore": lambda t: t.refs.restore(version=2),
    "restore a branch": lambda t: on_branch(t).refs.restore(version=2),
    "compact": lambda t: t.maintain.compact(small_bytes=1 << 20),
    "rewrite": lambda t: t.maintain.rewrite(),
    "expire": lambda t: t.maintain.expire(days=0, min_versions=1),
    "settle": lambda t: t.maintain.settle(),
}


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore("b", now_us=lambda: 1_780_000_000_000_000)
    table = inlay.create(f"memory://b/{ROOT}", SCHEMA, primary_key="id", context=context(store))
    table.append(rows(1, 2, 3))
    table.append(rows(4))
    table.refs.branch("b").append(rows(5))
    table.delete("id = 2")
    table.refs.tag("t", 3)
    table.refs.branch("even").append(rows(6))
    return store


def commit_of(store: MemoryStore) -> str:
    got = store.get(POINTER)
    assert isinstance(got, Got)
    found = decode_snapshot(got.body, key=keys.POINTER, apart=schemas_of(context(store)))
    return found.commit.id


def denied_from_the_swap_on(store: MemoryStore, fate: Fate) -> tuple[inlay.Table, list[str]]:
    """A table whose first swap meets `fate`, and after which every request is denied."""
    swapped: list[str] = []

    def before(sent: Sent) -> None:
        if swapped:
            raise AccessDenied("not any more", key=sent.key)

    def plan(sent: Sent) -> Fate:
        if (sent.verb, sent.key) != ("put", POINTER):
            return Fate.DONE
        swapped.append(sent.key)
        return fate

    ctx = context(FaultyStore(store, plan, before=before))
    return inlay.open(f"memory://b/{ROOT}", context=ctx), swapped


@pytest.mark.parametrize("verb", VERBS)
def test_a_swap_that_was_answered_is_a_success_whatever_fails_after_it(store, verb):
    was = commit_of(store)
    table, swapped = denied_from_the_swap_on(store, Fate.DONE)
    VERBS[verb](table)
    assert swapped
    assert commit_of(store) != was


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNSENT])
def test_a_swap_without_an_answer_that_cannot_be_looked_for_is_unknown(store, verb, fate):
    was = commit_of(store)
    table, swapped = denied_from_the_swap_on(store, fate)
    with pytest.raises(OutcomeUnknown) as raised:
        VERBS[verb](table)
    assert swapped
    assert isinstance(raised.value.__cause__, AccessDenied)
    assert (commit_of(store) != was) == (fate is Fate.LOST)


@pytest.mark.parametrize("verb", VERBS)
def test_what_was_made_can_be_gone_on_with(store, verb):
    """Without a read after the commit a table knows no less."""
    table = inlay.open(f"memory://b/{ROOT}", context=context(store))
    VERBS[verb](table)
    held = table._loaded.pointer
    assert held.version <= inlay.open(table.uri, context=context(store)).version
    there = sorted(
        inlay.open(table.uri, context=context(store)).scan().to_arrow()["id"].to_pylist()
    )
    table.append(rows(100))
    ids = sorted(table.scan().to_arrow()["id"].to_pylist())
    assert ids == [*there, 100] or verb == "row group"
    assert table.maintain.verify().ok
    table.maintain.collect_garbage(grace=timedelta(0))
    assert table.refresh().maintain.verify().ok


def test_a_repair_that_is_done_is_not_reported_as_an_error(store):
    store.delete([POINTER])
    assert repair(context(store), dry_run=False).ok


def test_a_branch_is_returned_as_it_was_made_although_main_goes_on(store):
    """What it holds is read before it is made, and is that of the version it is on."""
    table = inlay.open(f"memory://b/{ROOT}", context=context(store))
    stale = inlay.open(table.uri, context=context(store))
    table.append(rows(50))
    made = stale.refs.branch("c")
    again = inlay.open(table.uri, ref="c", context=context(store))
    assert made.scan().to_arrow().equals(again.scan().to_arrow())
    assert 50 not in made.scan().to_arrow()["id"].to_pylist()
    made.append(rows(51))
    with pytest.raises(InlayError):
        stale.refs.branch("c")
