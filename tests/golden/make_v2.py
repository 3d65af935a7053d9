"""Make the golden lake of format version 2: three tables of one transaction, in each state it can have.

    python tests/golden/make_v2.py

writes `tests/golden/v2/<state>/`, the objects of a bucket, and `expected.json` beside them: the version and
the rows of each table. It is made once; every later library must read it, and go on from it byte for byte.

::

    prepared     nobody has decided
    committed    the decision is true        aborted    it is false
    finished     … and each table went on    ended      … and each table went on
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from tests.golden.make import Time, plain

import inlay
from inlay.ops import transaction as transaction_module
from inlay.ops.cache import ObjectCache
from inlay.ops.context import Context, InlineExecutor, Shared
from inlay.storage.base import Got
from inlay.storage.memory import MemoryStore

HERE = Path(__file__).parent / "v2"
BUCKET = "golden"
# `a` gets rows, `b` loses one, `c` is read.
TABLES = ("a", "b", "c")
STATES = ("prepared", "committed", "aborted", "finished", "ended")
# What the states begin from: the store's time of the next commit, and the randomness of whoever makes it.
LATER = Time.seconds + 3_600
AFTER = {"committed": "finished", "aborted": "ended"}


class Died(BaseException):
    """The coordinator's process."""


def lake(store: MemoryStore, time: Time, seed: str) -> dict[str, Context]:
    """A process with each table of the lake in `store`."""
    shared = random.Random(seed)
    return {
        name: Context(
            store=store,
            root=f"tables/{name}",
            uri=f"memory://{BUCKET}/tables/{name}",
            executor=InlineExecutor(),
            clock=time,
            random=shared,
            cache=ObjectCache(),
            shared=Shared(),
        )
        for name in TABLES
    }


def rows(*ids: int) -> pa.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    return pa.table([list(ids), [f"n{i}" for i in ids]], schema=schema)


def build(state: str) -> tuple[MemoryStore, Time]:
    time = Time()
    store = MemoryStore(BUCKET, now_us=time.now_us)
    tables = {
        name: inlay.create(ctx.uri, rows().schema, primary_key="id", context=ctx)
        for name, ctx in lake(store, time, "begin").items()
    }
    for table in tables.values():
        time.sleep(60)
        table.append(rows(1, 2, 3))
    time.sleep(60)
    decide = transaction_module.decide

    def decided(ctx: Context, transaction: Any, *, committed: bool) -> Any:
        if state == "prepared":
            raise Died
        if state in ("aborted", "ended"):
            decide(ctx, transaction, committed=False)
            raise Died
        return decide(ctx, transaction, committed=committed)

    with patch.object(transaction_module, "decide", decided):
        try:
            with inlay.transaction(request_id="move-2") as tx:
                tx.append(tables["a"], rows(4))
                tx.delete(tables["b"], "id = 2", mode="tombstone")
                tx.read(tables["c"])
        except Died:
            pass
    if state in AFTER.values():
        go_on(store, time)
    return store, time


def go_on(store: MemoryStore, time: Time) -> None:
    """The next commit on each table: without Parquet, so its bytes are the same for every pyarrow."""
    time.seconds = LATER
    for ctx in lake(store, time, "go on").values():
        inlay.open(ctx.uri, context=ctx).set_properties({"history.days": 9})
        time.sleep(60)


def objects(store: MemoryStore) -> dict[str, bytes]:
    found = {}
    for info in store.list(""):
        got = store.get(info.key)
        assert isinstance(got, Got)
        found[info.key] = bytes(got.body)
    return found


def golden(state: str) -> dict[str, bytes]:
    """What was written down, key by key."""
    folder = HERE / state
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def opened(state: str) -> tuple[MemoryStore, Time]:
    """The golden lake in a store."""
    time = Time()
    time.seconds = LATER
    store = MemoryStore(BUCKET, now_us=time.now_us)
    for key, body in golden(state).items():
        store.put(key, body)
    return store, time


def seen(store: MemoryStore, time: Time) -> dict[str, dict[str, Any]]:
    found = {}
    for name, ctx in lake(store, time, "see").items():
        table = inlay.open(ctx.uri, context=ctx)
        found[name] = {"version": table.version, "rows": plain(table.scan().to_arrow())}
    return found


def expected() -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = json.loads((HERE / "expected.json").read_text())
    return found


def write() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    found = {}
    for state in STATES:
        store, time = build(state)
        found[state] = seen(store, time)
        for key, body in objects(store).items():
            path = HERE / state / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
    text = (
        json.dumps(found, separators=(",", ":")).replace('"a":', '\n"a":').replace('"b":', '\n"b":')
    )
    (HERE / "expected.json").write_text(text.replace('"c":', '\n"c":') + "\n")


if __name__ == "__main__":
    write()
