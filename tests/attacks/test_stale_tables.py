"""A table object that was opened long ago writes to the table as it is."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

import inlay
from inlay.errors import StaleUpload
from inlay.table import Table
from inlay.table.maintain import Maintain

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
MODES = ["tombstone", "vector", "surgery", "rewrite"]
CHANGES: dict[str, Callable[[Table], object]] = {
    **{f"delete by {m}": lambda t, m=m: t.delete("id = 2", mode=m) for m in MODES},
    "delete by keys": lambda t: t.delete(keys={"id": [2]}),
    "delete by many keys": lambda t: t.delete(keys={"id": [2, *range(1000, 2000)]}),
    **{
        f"update by {m}": lambda t, m=m: t.update({"id": "22"}, where="id = 2", mode=m)
        for m in MODES
    },
    "upsert": lambda t: t.upsert(pa.table({"id": [2], "name": ["z"]}, schema=SCHEMA)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("before", [0, 1], ids=["it was empty", "it had a row"])
def test_rows_that_arrived_since_are_changed(
    before: int, change: Callable[[Table], object]
) -> None:
    stale = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    if before:
        stale.append(pa.table({"id": [1], "name": ["a"]}, schema=SCHEMA))
    other = inlay.open(stale.uri)
    other.append(pa.table({"id": [2, 3], "name": ["b", "c"]}, schema=SCHEMA))
    change(stale)
    left = inlay.open(stale.uri).scan(where="id = 2 AND name = 'b'").to_arrow()
    assert left.num_rows == 0
    assert inlay.open(stale.uri).count(where="id = 3") == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_file_that_arrived_since_can_be_named(mode: str) -> None:
    stale = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    other = inlay.open(stale.uri)
    other.append(pa.table({"id": [2, 3], "name": ["b", "c"]}, schema=SCHEMA))
    [file] = other.inspect.entries()[0]
    stale.delete("id = 2", file=file.key, mode=mode)
    assert inlay.open(stale.uri).count() == 1


def test_row_groups_of_a_file_that_arrived_since_can_be_named() -> None:
    stale = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    other = inlay.open(stale.uri)
    other.append(pa.table({"id": [2, 3], "name": ["b", "c"]}, schema=SCHEMA))
    [file] = other.inspect.entries()[0]
    stale.maintain.delete_row_groups(file.key, [0])
    assert inlay.open(stale.uri).count() == 0


def test_nothing_to_delete_costs_one_look() -> None:
    t = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    t.append(pa.table({"id": [2, 3], "name": ["b", "c"]}, schema=SCHEMA))
    done = t.delete("id = 99")
    assert (done.committed, dict(done.usage.requests)) == (False, {"get": 1})


@pytest.mark.parametrize(
    "maintain", [Maintain.rewrite, Maintain.compact], ids=["rewrite", "compact"]
)
def test_maintenance_sees_what_was_deleted_since(maintain: Callable[[Maintain], object]) -> None:
    stale = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    stale.append(pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=SCHEMA))
    inlay.open(stale.uri).delete("id = 1")
    maintain(stale.maintain)
    files, markers = inlay.open(stale.uri).inspect.entries()
    assert ([f.rows for f in files], markers) == ([1], ())


def _overtaken() -> tuple[Table, Table]:
    """A table object that garbage collection has overtaken, and one that has not."""
    stale = inlay.create(f"memory://attacks/{uuid.uuid4().hex}", SCHEMA, primary_key="id")
    stale.append(pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=SCHEMA))
    stale._loaded = replace(stale._loaded, date_us=stale._loaded.date_us - 60_000_000)
    other = inlay.open(stale.uri)
    other.update({"name": "'c'"}, where="id = 2", mode="rewrite")
    other.maintain.expire(days=0)
    other.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    return stale, other


def test_what_garbage_collection_overtook_is_uploaded_again() -> None:
    stale, _ = _overtaken()
    stale.upsert(pa.table({"id": [1], "name": ["z"]}, schema=SCHEMA))
    assert stale.scan(where="id = 1").to_arrow()["name"].to_pylist() == ["z"]
    stale, _ = _overtaken()
    stale.delete(keys={"id": list(range(2, 500))})
    assert stale.scan().to_arrow()["id"].to_pylist() == [1]


def test_a_stream_that_garbage_collection_overtook_knows_the_table_next_time() -> None:
    stale, other = _overtaken()
    rows = pa.table({"id": [3], "name": ["z"]}, schema=SCHEMA)
    with pytest.raises(StaleUpload):
        stale.append(rows.to_reader())
    assert stale.version == other.version
    stale.append(rows.to_reader())
    assert stale.count() == 3
