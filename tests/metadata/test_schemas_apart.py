"""Wide or many schemas are kept apart from the pointer, and everything goes on as before."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.errors import CorruptTable
from inlay.format import keys
from inlay.format.snapshot import MAX_SCHEMA_OBJECTS, SCHEMAS_INLINE_BYTES

WIDE = pa.schema([("id", pa.int64()), *((f"measurement_{n}", pa.float64()) for n in range(800))])


def _row(key: int) -> pa.Table:
    return pa.table({"id": [key]})


def _wide(folder: Path) -> inlay.Table:
    table = inlay.create(folder, WIDE, primary_key="id")
    table.append(_row(1))
    return table


def test_a_wide_schema_costs_an_append_nothing_after_the_first(tmp_path: Path) -> None:
    table = _wide(tmp_path)
    [kept] = table.snapshot.schema_objects
    assert kept.ids == (0,) and kept.size > SCHEMAS_INLINE_BYTES
    done = table.append(_row(2))
    assert (done.requests, done.added_files) == (3, 1)
    metadata = done.bytes_up - table.inspect.files()["bytes"].to_pylist()[-1]
    assert metadata < 10_100
    assert table.snapshot.schema_objects == (kept,)


def test_opening_takes_one_request_more_and_that_once(tmp_path: Path) -> None:
    _wide(tmp_path)
    table = inlay.open(tmp_path)
    assert table.usage.requests == {"get": 2}
    table.refresh()
    assert table.usage.requests == {"get": 3}
    assert table.schema == WIDE
    assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [1]


def test_a_small_schema_stays_where_one_request_finds_it(tmp_path: Path) -> None:
    table = inlay.create(tmp_path, pa.schema([("id", pa.int64())]))
    table.append(_row(1))
    assert table.snapshot.schema_objects == ()
    assert inlay.open(tmp_path).usage.requests == {"get": 1}


def test_many_changes_of_columns_gather_in_few_objects(tmp_path: Path) -> None:
    table = _wide(tmp_path)
    changes = 2 * MAX_SCHEMA_OBJECTS + 3
    for n in range(changes):
        table.alter(rename={f"measurement_{n}": f"reading_{n}"})
    snapshot = table.snapshot
    assert len(snapshot.schema_objects) <= MAX_SCHEMA_OBJECTS
    assert [s.id for s in snapshot.schemas] == list(range(changes + 1))
    again = inlay.open(tmp_path)
    assert again.snapshot == snapshot
    assert again.schema.names[1] == "reading_0"
    assert inlay.open(tmp_path, version=2).schema.names[1] == "measurement_0"


def test_branches_collection_and_verify_know_of_them(tmp_path: Path) -> None:
    table = _wide(tmp_path)
    branch = table.refs.branch("b")
    branch.append(_row(2))
    branch.alter(drop=["measurement_5"])
    assert branch.count() == 2 and table.refresh().count() == 1
    table.refs.merge("b")
    table.maintain.expire(days=0, min_versions=1)
    table.maintain.collect_garbage(grace=timedelta(0), clock_margin_seconds=0)
    assert inlay.open(tmp_path).count() == 2
    assert inlay.open(tmp_path, ref="b").schema.names == table.refresh().schema.names
    verified = table.maintain.verify()
    assert verified.ok, verified.findings


def test_an_object_that_is_gone_or_another_is_named(tmp_path: Path) -> None:
    table = _wide(tmp_path)
    [kept] = table.snapshot.schema_objects
    place = tmp_path / keys.segment_key(kept.id)
    whole = place.read_bytes()
    place.write_bytes(whole[:-40])
    with pytest.raises(CorruptTable, match=kept.id):
        inlay.open(tmp_path)
    place.unlink()
    with pytest.raises(CorruptTable, match=kept.id):
        inlay.open(tmp_path)
    table.alter(rename={"measurement_1": "other"})
    [_, other] = table.snapshot.schema_objects
    place.write_bytes((tmp_path / keys.segment_key(other.id)).read_bytes())
    with pytest.raises(CorruptTable, match=kept.id):
        inlay.open(tmp_path)
