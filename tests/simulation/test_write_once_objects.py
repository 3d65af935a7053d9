"""Every kind of object that is written once, under every fate of a conditional write.

Each is made at a size that takes it out of the pointer: the object itself must be written. After the
operation the rows are right, and `verify` finds every object that the metadata names.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from tests.clock import Ticking
from tests.simulator.faults import Fate, FaultyStore

import inlay
from inlay.format import keys
from inlay.format.keys import ObjectKind, classify
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import load_pointer
from inlay.plan.change import Change, Request
from inlay.storage.memory import MemoryStore

ROOT = "tables/t"
URI = f"memory://b/{ROOT}"
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
CONDITIONAL = (Fate.UNSENT, Fate.LOST, Fate.RACE, Fate.TWICE)
ROWS = 600


# The store's and the process's.
CLOCK = Ticking(1_780_000_000_000_000, step_us=10_000)


def new_store() -> MemoryStore:
    return MemoryStore("b", now_us=CLOCK.now_us)


def context(store) -> Context:
    return Context(
        store=store,
        root=ROOT,
        uri=URI,
        executor=InlineExecutor(),
        clock=CLOCK,
        random=random.Random(1),
    )


def rows(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "name": [f"n{n}" for n in range(count)]}, schema=SCHEMA)


def open_table(ctx: Context):
    return inlay.open(URI, context=ctx)


def many_events(ctx: Context) -> None:
    """More than an inline ledger holds: its records go into a segment."""
    events = tuple(Request.of(uuid.uuid4().hex) for _ in range(400))
    commit(ctx, Change(operation="ingest", events=events))


def add_many_columns(ctx: Context) -> None:
    """More schemas than a pointer carries: they go into an object of their own."""
    columns = {f"c{uuid.uuid4().hex}": pa.int64() for _ in range(90)}
    open_table(ctx).alter(add=columns)


def finish_erasure(ctx: Context) -> None:
    for _ in range(4):
        CLOCK.sleep(5)
        open_table(ctx).maintain.rewrite()
        done = open_table(ctx).maintain.collect_garbage(life_seconds=0, hmac_key=b"k")
        if done.receipts:
            return
    raise AssertionError(f"the erasure does not end: {done.waiting}")


def nothing(ctx: Context) -> None:
    return None


@dataclass(frozen=True)
class Case:
    """`run` writes an object of `kind`; `left` rows are in the table afterwards."""

    kind: ObjectKind
    run: Callable[[Context], object]
    left: int = ROWS
    before: Callable[[Context], object] = nothing
    suffix: str = ""


CASES = {
    "archive": Case(
        ObjectKind.ARCHIVE, lambda c: open_table(c).set_properties(**{"history.days": 30})
    ),
    "ledger segment": Case(ObjectKind.SEGMENT, many_events),
    "schemas object": Case(ObjectKind.SEGMENT, add_many_columns),
    "head of a branch": Case(
        ObjectKind.SEGMENT,
        lambda c: inlay.open(URI, context=c, ref="b").append(rows(0, 5)),
        before=lambda c: open_table(c).refs.branch("b"),
    ),
    "data file": Case(
        ObjectKind.DATA, lambda c: open_table(c).append(rows(ROWS, 10)), left=ROWS + 10
    ),
    "rewritten file": Case(
        ObjectKind.DATA,
        lambda c: open_table(c).delete("id < 100", mode="rewrite"),
        left=ROWS - 100,
    ),
    "file of a surgery": Case(
        ObjectKind.DATA,
        lambda c: open_table(c).delete("id < 100", mode="surgery"),
        left=ROWS - 100,
    ),
    "file of keys": Case(
        ObjectKind.TOMBSTONE,
        lambda c: open_table(c).delete(keys={"id": list(range(200))}),
        left=ROWS - 200,
        suffix=".del",
    ),
    "deletion vector": Case(
        ObjectKind.TOMBSTONE,
        lambda c: open_table(c).delete("id < 300", mode="vector"),
        left=ROWS // 2,
        suffix=".puffin",
    ),
    "compacted file": Case(
        ObjectKind.DATA,
        lambda c: open_table(c).maintain.compact(),
        left=ROWS + 6,
        before=lambda c: [open_table(c).append(rows(ROWS + n, 1)) for n in range(6)],
    ),
    "receipt": Case(
        ObjectKind.RECEIPT,
        finish_erasure,
        left=ROWS - 10,
        before=lambda c: open_table(c).delete("id < 10", mode="erase", request_id="e"),
    ),
}


def play(case: Case, fate: Fate) -> int:
    """How many objects of the kind met the fate."""
    store = new_store()
    plain = context(store)
    inlay.create(URI, SCHEMA, primary_key=["id"], context=plain).append(rows(0, ROWS))
    case.before(plain)
    met = []

    def plan(sent):
        name = sent.key.removeprefix(f"{ROOT}/")
        is_it = sent.verb == "put" and classify(name) is case.kind and name.endswith(case.suffix)
        # Each object's first request; what is sent again goes well.
        if is_it and fate in sent.possible and name not in met:
            met.append(name)
            return fate
        return Fate.DONE

    case.run(context(FaultyStore(store, plan)))
    table = open_table(plain)
    assert table.count() == case.left
    assert table.scan().to_arrow().num_rows == case.left
    found = table.maintain.verify(depth="pages")
    assert not found.errors
    for name in met:
        assert store.head(f"{ROOT}/{name}"), name
    return len(met)


@pytest.mark.parametrize("fate", CONDITIONAL, ids=lambda f: f.name.lower())
@pytest.mark.parametrize("name", CASES)
def test_an_object_that_is_named_is_there(name, fate):
    assert play(CASES[name], fate) > 0, f"no {name} was written"


@pytest.mark.parametrize("fate", CONDITIONAL, ids=lambda f: f.name.lower())
def test_the_first_pointer_is_the_creators(fate):
    store = new_store()
    met = []

    def plan(sent):
        if sent.verb == "put" and not met:
            met.append(sent.key)
            return fate
        return Fate.DONE

    table = inlay.create(URI, SCHEMA, context=context(FaultyStore(store, plan)))
    assert met == [f"{ROOT}/{keys.POINTER}"]
    assert table.snapshot.table_id == load_pointer(context(store)).snapshot.table_id


def test_a_receipt_of_another_table_is_not_taken_for_ones_own():
    """The table was removed but for its receipts, and created again; the same id is used again."""
    store = new_store()
    ctx = context(store)
    inlay.create(URI, SCHEMA, primary_key=["id"], context=ctx).append(rows(0, ROWS))
    open_table(ctx).delete("id < 10", mode="erase", request_id="e")
    finish_erasure(ctx)
    receipt = store.get(f"{ROOT}/{keys.receipt_key('e')}").body
    receipts = {o.key for o in store.list(ROOT) if "erasure/" in o.key}
    store.delete([o.key for o in store.list(ROOT) if o.key not in receipts])
    inlay.create(URI, SCHEMA, primary_key=["id"], context=ctx).append(rows(0, ROWS))
    with pytest.raises(inlay.errors.InvalidRequest, match="its receipt is there"):
        open_table(ctx).delete("id < 10", mode="erase", request_id="e")
    # One that comes while the erasure is open is not overwritten either.
    store.delete(receipts)
    open_table(ctx).delete("id < 10", mode="erase", request_id="e")
    store.put(f"{ROOT}/{keys.receipt_key('e')}", receipt)
    with pytest.raises(inlay.errors.InlayError) as refused:
        finish_erasure(ctx)
    assert keys.receipt_key("e") in str(refused.value)
    assert store.get(f"{ROOT}/{keys.receipt_key('e')}").body == receipt
