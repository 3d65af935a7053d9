"""The memory of deletes: what maintenance, erasure and drop do with it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import timedelta
from unittest import mock

import pyarrow as pa
import pytest
from tests.changes.streams import table_of

import inlay
from inlay.errors import CorruptTable, InvalidRequest
from inlay.ops.context import Context, connect
from inlay.ops.erase import request
from inlay.ops.erase.request import advance_erasures, erase_status
from inlay.storage.base import Head

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string()), ("lsn", pa.int64())])
NUMBER = itertools.count()


def new_table() -> inlay.Table:
    uri = f"memory://memory-{next(NUMBER)}/t"
    return inlay.create(uri, SCHEMA, primary_key="id")


def apply(t: inlay.Table, *records) -> object:
    return t.apply_changes(table_of(records), order="lsn", op="op")


def remembered(t: inlay.Table) -> list[int]:
    rows = inlay.open(f"{t.uri}/changes").scan().to_arrow().to_pylist()
    return sorted(row["f1"] for row in rows)


def everything(t: inlay.Table) -> dict[str, bytes]:
    ctx = connect(t.uri)
    keys = [info.key for info in ctx.store.list(ctx.key(""))]
    return {key: ctx.store.get(key).body for key in keys}


def test_a_stream_without_deletes_makes_and_reads_no_memory() -> None:
    t = new_table()
    apply(t, ("c", 1, "a", 1))
    before = t.usage.total
    assert apply(t, ("u", 1, "b", 2)).requests == t.usage.total - before
    assert not any("/changes/" in key for key in everything(t))


def test_a_delete_that_comes_again_is_remembered_once() -> None:
    t = new_table()
    for _ in range(3):
        apply(t, ("d", 1, None, 5), ("d", 1, None, 4))
    assert remembered(t) == [1]
    assert not apply(t, ("d", 1, None, 5)).committed


def test_old_entries_are_forgotten_by_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    t = new_table()
    apply(t, ("d", 1, None, 5))
    t.maintain.collect_garbage(grace=timedelta(0))
    assert remembered(t) == [1]
    memory = inlay.open(f"{t.uri}/changes")
    old = memory.scan().to_arrow()
    at = pa.array([old["at"][0].as_py() - timedelta(days=8)], old["at"].type)
    memory.append(old.set_column(0, "f1", [[2]]).set_column(2, "at", at))
    t.maintain.collect_garbage(grace=timedelta(0))
    assert remembered(t) == [1]
    t.set_properties(changes__remember_days=1_000)
    memory.refresh().append(old.set_column(0, "f1", [[3]]).set_column(2, "at", at))
    t.maintain.collect_garbage(grace=timedelta(0))
    assert remembered(t) == [1, 3]


def test_compaction_and_rewriting_reach_the_memory() -> None:
    t = new_table()
    for key in range(6):
        apply(t, ("d", key, None, 5))
    assert len(inlay.open(f"{t.uri}/changes").inspect.files()) == 6
    t.maintain.compact()
    assert len(inlay.open(f"{t.uri}/changes").inspect.files()) == 1
    inlay.open(f"{t.uri}/changes").delete("f1 = 3")
    t.maintain.rewrite()
    assert inlay.open(f"{t.uri}/changes").snapshot.totals.rows == 5
    assert remembered(t) == [0, 1, 2, 4, 5]


def test_drop_takes_the_memory_along() -> None:
    t = new_table()
    apply(t, ("d", 1, None, 5))
    inlay.drop(t.uri, grace=timedelta(0))
    assert everything(t) == {}


def test_a_memory_that_is_gone_is_said_and_can_be_begun_anew() -> None:
    t = new_table()
    apply(t, ("d", 1, None, 5))
    inlay.drop(f"{t.uri}/changes", grace=timedelta(0))
    with pytest.raises(CorruptTable, match="remembered are gone"):
        apply(t, ("u", 1, "late", 4))
    t.maintain.collect_garbage(grace=timedelta(0))
    t.set_properties(changes__remembered=None)
    assert apply(t, ("u", 1, "late", 4)).inserted == 1
    with pytest.raises(InvalidRequest, match="maintained by the library"):
        t.set_properties(changes__remembered="x")


def has_ended(t: inlay.Table, ctx: Context) -> bool:
    """Whether the erasures have, after so many rounds of maintenance as they need at most."""
    for _ in range(12):
        advance_erasures(ctx)
        t.maintain.collect_garbage(
            grace=timedelta(0), life_seconds=0, clock_margin_seconds=0, landing=""
        )
        if not erase_status(ctx, landing=""):
            return True
    return False


@pytest.mark.parametrize("where", ["id = 71717", "value = 'secret' OR id = 71717"])
def test_an_erasure_reaches_what_is_remembered(where: str) -> None:
    t = new_table()
    apply(t, ("c", 71717, "secret", 1), ("c", 2, "other", 1))
    apply(t, ("d", 71717, None, 5), ("d", 2, None, 5))
    apply(t, ("c", 71717, "secret", 6))  # the person came back
    assert remembered(t) == [2, 71717]
    t.delete(where, mode="erase", request_id="forget")
    ctx = connect(t.uri)
    key = ctx.key("erasure/forget.json")
    with mock.patch.object(request, "has_memory", return_value=False):
        has_ended(t, ctx)
    assert remembered(t) == [2] and not isinstance(ctx.store.head(key), Head), (
        "there is no receipt before the memory is clean"
    )
    assert has_ended(t, ctx)
    assert remembered(t) == [2]
    frame = json.loads(ctx.store.get(key).body)
    receipt = frame.get("body", frame)
    assert receipt["remembered_deletes"]["receipt"] == "changes/erasure/forget.json"
    assert isinstance(ctx.store.head(ctx.key("changes/erasure/forget.json")).info.size, int)
    secret = (71717).to_bytes(8, "little")
    left = [key for key, body in everything(t).items() if secret in body or b"71717" in body]
    assert left == []
    # What comes later finds no memory of it.
    assert apply(t, ("u", 71717, "late", 2)).inserted == 1
    assert replace(ctx).uri == t.uri
