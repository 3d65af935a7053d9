"""What results and the history say of rows adds up to the rows there are."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

import inlay
from inlay.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture
def table() -> Table:
    small = {"write.row_group_rows": 2}
    t = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, properties=small)
    t.append(pa.table({"id": range(6), "name": ["a"] * 6}, schema=SCHEMA))
    return t


@pytest.mark.parametrize("mode", ["vector", "surgery", "rewrite"])
def test_a_delete_that_looks_adds_no_rows(table: Table, mode: str) -> None:
    done = table.delete("id = 1", mode=mode)
    assert (done.added_rows, done.deleted_rows) == (0, 1)


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
def test_an_update_adds_what_it_changes(table: Table, mode: str) -> None:
    done = table.update({"name": "'b'"}, where="id = 1", mode=mode)
    assert (done.added_rows, done.deleted_rows) == (1, 1)


def test_the_history_adds_up(table: Table) -> None:
    table.delete("id = 1", mode="vector")
    table.delete("id = 2", mode="surgery")
    table.update({"name": "'b'"}, where="id > 3", mode="rewrite")
    table.append(pa.table({"id": [9], "name": ["c"]}, schema=SCHEMA))
    table.maintain.rewrite()
    table.maintain.compact()
    history = table.inspect.history()
    added, deleted = (sum(history[n].to_pylist()) for n in ("added_rows", "deleted_rows"))
    assert added - deleted == table.count() == 5
