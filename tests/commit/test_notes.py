"""Messages and metadata of commits: part of the version that they are of, and of no other."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.simulator.faults import FaultyStore

import inlay
from inlay.errors import InvalidRequest
from inlay.format.properties import COMMIT_NOTE
from inlay.format.snapshot import MAX_NOTE_BYTES, Note, make_note, note_of, with_note
from inlay.ops.commit.driver import commit
from inlay.ops.commit.group import may_join
from inlay.ops.context import Context, InlineExecutor, Workers
from inlay.ops.metadata.load import load_pointer
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.plan.change import AddFiles, Change, SetProperties
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore
from inlay.table import Table

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})
WHY = {"message": "because ü", "metadata": {"ticket": "OPS-7", "job": "17"}}


def said(table: Table) -> dict[int, tuple[str | None, dict[str, str]]]:
    """What was said of each version that can be read."""
    return {
        each["version"]: (each["message"], dict(each["metadata"] or ()))
        for each in table.inspect.history().to_pylist()
        if each["message"] or each["metadata"]
    }


def test_every_write_says_why_of_its_own_version_alone(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", ROWS.schema, primary_key="id")
    landed = tmp_path / "landed.parquet"
    pq.write_table(ROWS, landed)
    writes: dict[str, Any] = {
        "append": lambda **why: t.append(ROWS, **why),
        "ingest": lambda **why: t.ingest([landed], **why).write,
        "delete": lambda **why: t.delete("id = 1", **why),
        "delete keys": lambda **why: t.delete(keys={"id": [2]}, **why),
        "delete groups": lambda **why: t.maintain.delete_row_groups(
            t.inspect.files()["key"][0].as_py(), [0], **why
        ),
        "update": lambda **why: t.update({"name": "'z'"}, where="id = 3", **why),
        "upsert": lambda **why: t.upsert(ROWS, **why),
        "alter": lambda **why: t.alter(add={"n": pa.int32()}, **why),
        "partition": lambda **why: t.set_partitioning("bucket(4, id)", **why),
        "properties": lambda **why: t.set_properties(my__owner="me", **why),
        "restore": lambda **why: t.refs.restore(version=2, **why),
        "erase": lambda **why: t.delete("id = 3", mode="erase", **why),
    }
    expected = {}
    for name, write in writes.items():
        result = write(message=name, metadata={"of": name})
        assert result.committed, name
        expected[result.version] = (name, {"of": name})
        t.set_properties(my__other=name)  # says nothing, and carries nothing on
    assert said(t) == expected
    assert said(inlay.open(tmp_path / "t")) == expected
    assert t.properties == {"my.owner": "me", "my.other": "erase"}


def test_commits_of_branches_and_merges_say_why(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", ROWS.schema)
    trial = t.refs.branch("trial")
    first = trial.append(ROWS, message="on trial").version
    merged = t.refs.merge("trial", message="it was good").version
    trial = inlay.open(tmp_path / "t", ref="trial")
    second = trial.append(ROWS, message="more").version
    forward = t.refs.fast_forward("trial", **WHY).version
    expected = {
        first: ("on trial", {}),
        merged: ("it was good", {}),
        second: ("more", {}),
        forward: (WHY["message"], WHY["metadata"]),
    }
    assert said(t.refresh()) == expected
    assert said(inlay.open(tmp_path / "t", ref="trial")) == expected


def metered(name: str) -> Context:
    return Context(
        store=MeteredStore(MemoryStore(name)),
        root="t",
        uri=f"memory://{name}/t",
        executor=InlineExecutor(),
    )


def test_a_note_costs_no_request_and_moves_nothing_out_of_the_pointer() -> None:
    """Ninety appends roll entries several times: with notes of the greatest size at the same commits."""
    costs = []
    for note in (None, Note("m" * 1_000, {"k": "v" * (MAX_NOTE_BYTES - 1_100)})):
        ctx = metered("b")
        loaded = create(ctx, ROWS.schema, primary_key=["id"])
        for _ in range(90):
            before = ctx.store.usage()  # type: ignore[attr-defined]
            loaded = append(replace(ctx, note=note), ROWS, base=loaded).loaded
            costs.append(ctx.store.usage() - before)  # type: ignore[attr-defined]
    plain, noted = costs[:90], costs[90:]
    assert [c.requests for c in noted] == [c.requests for c in plain]
    # A commit that reads the pointer (one in a row of them) reads the note that is in it, and nothing else.
    more = [
        after.bytes_down - before.bytes_down for before, after in zip(plain, noted, strict=True)
    ]
    assert {before.bytes_down == 0 for before in plain} == {True, False}
    assert all(
        0 <= m <= MAX_NOTE_BYTES * (before.bytes_down > 0)
        for m, before in zip(more, plain, strict=True)
    )
    # In the pointer and in the archive of the version before, each compressed or not.
    more = [after.bytes_up - before.bytes_up for before, after in zip(plain, noted, strict=True)]
    assert 0 < max(more) <= 3 * MAX_NOTE_BYTES


def test_a_request_done_before_keeps_what_was_said_of_it_then(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", ROWS.schema)
    t.append(ROWS, request_id="r", message="first")
    again = t.append(ROWS, request_id="r", message="second")
    assert not again.committed
    assert said(t) == {2: ("first", {})}


def test_a_loser_says_why_of_the_version_that_it_gets() -> None:
    store = MemoryStore("b")
    plain = Context(store=store, root="t", uri="memory://b/t", executor=InlineExecutor())
    base = create(plain, ROWS.schema)
    append(plain, ROWS, base=base)
    noted = replace(plain, note=Note("late"))
    done = append(noted, ROWS, base=base)
    assert done.loaded.snapshot.version == 3
    assert said(Table(plain, load_pointer(plain))) == {3: ("late", {})}


def test_appends_with_messages_do_not_share_a_version() -> None:
    store = MemoryStore("b")
    base = create(
        Context(store=store, root="t", uri="memory://b/t", executor=InlineExecutor()), ROWS.schema
    )
    slow = threading.Event()
    ctx = Context(
        store=FaultyStore(store, before=lambda sent: slow.wait(0.01) and None),
        root="t",
        uri="memory://b/t",
        executor=Workers(8),
    )
    threads = [
        threading.Thread(
            target=lambda n=n: append(
                replace(ctx, note=Note(f"by {n}") if n % 2 else None), ROWS, base=base
            )
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = Table(ctx, load_pointer(ctx))
    assert table.count() == 8 * ROWS.num_rows
    assert sorted(message for message, _ in said(table).values()) == [
        f"by {n}" for n in (1, 3, 5, 7)
    ]
    alone = Change(operation="append", updates=(AddFiles(()),))
    assert may_join([alone], alone)
    assert not may_join([replace(alone, note=Note("x"))], alone)
    assert not may_join([alone], replace(alone, note=Note("x")))


def test_a_note_that_an_older_library_carried_on_is_of_its_version_still() -> None:
    ctx = metered("c")
    loaded = create(ctx, ROWS.schema)
    done = append(replace(ctx, note=Note("mine")), ROWS, base=loaded).loaded.snapshot
    assert note_of(done) == Note("mine")
    assert note_of(replace(done, version=done.version + 1)) == Note()
    # The next commit of this library is rid of it.
    after = commit(ctx, Change(operation="touch", updates=(SetProperties({"my.x": "1"}),)))
    assert COMMIT_NOTE not in after.loaded.snapshot.properties


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "3", '{"version":1}', '{"version":1,"message":7,"metadata":[]}', "[" * 50_000],
)
def test_a_property_that_is_no_note_says_nothing(text: str) -> None:
    ctx = metered("d")
    snapshot = create(ctx, ROWS.schema).snapshot
    assert note_of(replace(snapshot, properties={COMMIT_NOTE: text})) == Note()


def test_what_cannot_be_kept_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", ROWS.schema)
    for wrong in (
        {"message": 7},
        {"message": "x" * MAX_NOTE_BYTES},
        {"message": "é" * (MAX_NOTE_BYTES // 2)},
        {"message": "\ud800"},
        {"metadata": "a=b"},
        {"metadata": {"": "x"}},
        {"metadata": {1: "x"}},
        {"metadata": {"x": None}},
        {"metadata": {"x": ["y"]}},
    ):
        with pytest.raises(InvalidRequest):
            t.append(ROWS, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        t.set_properties(**{COMMIT_NOTE: "mine"})
    assert t.refresh().version == 1
    assert make_note("", {}) is None
    longest = "x" * (MAX_NOTE_BYTES - len('{"version":0,"message":""}'))
    assert make_note(longest) == Note(longest)
    with pytest.raises(InvalidRequest):
        make_note(longest + "x")
    t.append(ROWS, metadata={"n": 7, "share": 0.5, "dry": False})
    assert said(t) == {2: (None, {"n": "7", "share": "0.5", "dry": "False"})}


def test_properties_without_a_note_are_the_very_same() -> None:
    values = {"my.x": "1"}
    assert with_note(values, None, 3) is values
    noted = with_note(values, Note("why"), 3)
    assert json.loads(noted[COMMIT_NOTE]) == {"version": 3, "message": "why"}
    assert with_note(noted, None, 4) == values
