"""Who reads a table that is prepared for a transaction, in each way that rows are read: what was decided,
or the version before; later the same rows."""

from __future__ import annotations

import io
from dataclasses import replace
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from tests.transaction.conftest import content, leave_prepared, rows
from tests.transaction.test_transactions import AFTER, START

import inlay
from inlay.ops.cache import FOLDER_VARIABLE, ObjectCache
from inlay.ops.context import Shared

DECIDED = pytest.mark.parametrize("decided", [True, False, None])


def another(table: inlay.Table) -> inlay.Table:
    """In a process that knows nothing of it."""
    ctx = replace(table._ctx, cache=ObjectCache(), shared=Shared(), table_id=None)
    return inlay.open(table.uri, context=ctx)


def fed(table: inlay.Table, since: int) -> list[tuple[str, int]]:
    found = another(table).changes(since).to_arrow().to_pylist()
    return sorted((row["_change_type"], row["id"]) for row in found)


@DECIDED
def test_the_feed_has_each_change_once_and_in_the_same_version(
    tables, monkeypatch, in_no_time, decided
):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=decided)
    inserted = [("insert", 3)] if decided else []
    assert fed(a, 2) == fed(b, 2) == inserted
    a.append(rows((5, 50)))
    assert fed(a, 2) == [*inserted, ("insert", 5)]
    assert fed(b, 2) == inserted
    assert fed(a, another(b).version) == [("insert", 5)]


@DECIDED
def test_a_cache_on_disk_keeps_nothing_that_is_not_decided(
    tables, monkeypatch, tmp_path, in_no_time, decided
):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=decided)
    wanted = AFTER if decided else START
    for _ in range(2):  # read, and read from the cache
        for table in (a, b):
            found = another(table).scan().to_arrow().to_pylist()
            assert {row["id"]: row["n"] for row in found} == wanted
    a.append(rows((5, 50)))  # which decides, where nobody has
    for table, now in ((a, {**wanted, 5: 50}), (b, wanted)):
        found = another(table).scan().to_arrow().to_pylist()
        assert {row["id"]: row["n"] for row in found} == now
    assert another(a).version == another(b).version + 1


@DECIDED
def test_a_copy_is_of_what_was_decided_and_of_no_transaction(tables, monkeypatch, decided):
    a, b, _ = tables
    leave_prepared([a, b], monkeypatch, decided=decided)
    copied = another(a).copy_to(f"memory://copy-{uuid4()}/t")
    assert content(copied) == (AFTER if decided else START)
    assert copied.append(rows((5, 50))).committed
    assert inlay.verify(copied.uri).ok


def test_files_are_adopted_in_a_transaction(tables):
    a, b, _ = tables
    uri = f"memory://{a._ctx.store.bucket}/landed/x.parquet"
    pq.write_table(rows((3, 30)), sink := io.BytesIO())
    a._ctx.store.put("landed/x.parquet", sink.getvalue())
    for _ in range(2):
        with inlay.transaction(request_id="r") as tx:
            tx.ingest(a, [uri], adopt=True)
            tx.append(b, rows((3, 30)))
    assert (content(a), content(b)) == (AFTER, AFTER)
    assert [f["key"] for f in inlay.open(a.uri).inspect.files().to_pylist()].count(uri) == 1
