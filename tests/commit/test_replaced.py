"""A table that was removed and created again is another table: whoever had opened the first one gets
`TableReplaced`, whatever it does, and the second stays as it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import StaleUpload, TableReplaced
from inlay.ops.commit import driver
from inlay.ops.metadata.load import load_pointer

SCHEMA = pa.schema([("id", pa.int64())])

OPERATIONS: dict[str, Callable[[inlay.Table], Any]] = {
    "append": lambda t: t.append(rows(3)),
    "append once": lambda t: t.append(rows(3), request_id="r"),
    "upsert": lambda t: t.upsert(rows(1)),
    "delete": lambda t: t.delete("id = 1"),
    "delete by vector": lambda t: t.delete("id = 1", mode="vector"),
    "delete keys": lambda t: t.delete(keys=rows(1)),
    "rewrite delete": lambda t: t.delete("id = 1", mode="rewrite"),
    "erase": lambda t: t.delete("id = 1", mode="erase", request_id="r"),
    "update": lambda t: t.update({"id": "7"}, where="id = 2"),
    "properties": lambda t: t.set_properties(**{"team.owner": "me"}),
    "add column": lambda t: t.alter(add={"more": pa.string()}),
    "partition": lambda t: t.set_partitioning("id"),
    "tag": lambda t: t.refs.tag("other"),
    "branch": lambda t: t.refs.branch("other"),
    "drop ref": lambda t: t.refs.drop("tagged"),
    "hold": lambda t: t.refs.set_hold("tagged"),
    "merge": lambda t: t.refs.merge("branched"),
    "fast forward": lambda t: t.refs.fast_forward("branched"),
    "restore": lambda t: t.refs.restore(version=2),
    "restore a tag": lambda t: t.refs.restore(ref="tagged"),
    "compact": lambda t: t.maintain.compact(),
    "rewrite": lambda t: t.maintain.rewrite(),
    "settle": lambda t: t.maintain.settle(),
    "expire": lambda t: t.maintain.expire(days=0, min_versions=1),
    "collect garbage": lambda t: t.maintain.collect_garbage(),
    "publish": lambda t: t.publish(),
    "repair": lambda t: t.maintain.repair(dry_run=False),
    "verify": lambda t: t.maintain.verify(),
    "history": lambda t: t.inspect.history(),
    "refresh": lambda t: t.refresh(),
}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids}, SCHEMA)


def made(uri: str) -> inlay.Table:
    """A table with refs and deletes, on which each operation has something to do."""
    table = inlay.create(uri, SCHEMA, primary_key="id")
    table.append(rows(1))
    table.append(rows(2))
    table.refs.tag("tagged")
    table.refs.branch("branched").append(rows(77))
    table.refresh()
    table.append(rows(5))
    table.delete("id = 5")
    return table


def remove(uri: str) -> None:
    ctx = inlay.connect(uri)
    ctx.store.delete([found.key for found in ctx.store.list(f"{ctx.root}/")])


def objects(uri: str) -> dict[str, str]:
    ctx = inlay.connect(uri)
    return {found.key: found.etag for found in ctx.store.list(f"{ctx.root}/")}


@pytest.mark.parametrize("state", ["as opened", "after a race", "branch"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_whoever_had_opened_the_first_changes_nothing_of_the_second(
    tmp_path: Any, name: str, state: str
) -> None:
    uri = f"file://{tmp_path}/t"
    opened = made(uri)
    if state == "branch":
        opened = inlay.open(uri, ref="branched")
    if state == "after a race":
        opened._loaded = replace(opened._loaded, raced_at=time.monotonic())
    remove(uri)
    made(uri)
    before = objects(uri)
    try:
        OPERATIONS[name](opened)
    except TableReplaced:
        pass
    except inlay.errors.InvalidRequest:
        assert state == "branch"  # of main alone, and refused before anything is read
    else:
        pytest.fail("no error")
    after = objects(uri)
    # Data that was uploaded before the table was found to be another is garbage, as after any failure.
    assert {key: after.get(key) for key in before} == before
    assert all("/data/" in key or "/manifest/" in key for key in after.keys() - before.keys())


def test_an_upload_that_is_too_old_is_not_repeated_on_another_table(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"file://{tmp_path}/t"
    opened = made(uri)
    submitted: list[str] = []

    def stale(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        submitted.append("once")
        remove(uri)
        made(uri)
        raise StaleUpload("objects of this write are too old", table=uri)

    monkeypatch.setattr(driver, "commit", stale)
    with pytest.raises(TableReplaced):
        opened.delete("id = 1")
    assert submitted == ["once"]


def test_a_context_without_a_table_reads_whatever_is_there(tmp_path: Any) -> None:
    uri = f"file://{tmp_path}/t"
    first = made(uri)
    remove(uri)
    second = made(uri)
    found = load_pointer(inlay.connect(uri)).snapshot.table_id
    assert found == second.snapshot.table_id != first.snapshot.table_id
