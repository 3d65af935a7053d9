"""The change feed over changes of the schema: rows are told in the columns of the last version."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import inlay
from inlay.table import Table

from .histories import Heap, applied, new_table

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.int32()),
        ("note", pa.string()),
        ("at", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": i, "v": i % 4, "note": f"n{i % 3}", "at": {"x": i, "y": f"y{i % 2}"}} for i in ids],
        schema=SCHEMA,
    )


def heap(table: pa.Table, columns: dict[str, str]) -> Heap:
    """Rows by the names that columns have at last; `columns` says what they were called then."""
    found = [
        tuple(row.get(columns.get(name, name)) for name in ("id", "w")) for row in table.to_pylist()
    ]
    return Counter(found)


def check(t: Table, renamed_at: int) -> None:
    """Each version follows from the one before, in the columns that were always there."""
    told = t.changes(0, columns=["id", "w"]).to_arrow()
    seen: Heap = Counter()
    for version in range(1, t.version + 1):
        seen = applied(seen, told.filter(pc.equal(told["_commit_version"], version)))
        names = {"w": "v"} if version < renamed_at else {}
        assert seen == heap(inlay.open(t.uri, version=version).scan().to_arrow(), names), version


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
def test_columns_that_were_renamed_widened_and_dropped(mode: str) -> None:
    t = new_table(schema=SCHEMA)
    t.append(rows(*range(20)))
    t.delete("note = 'n1' AND id < 10", mode=mode)
    t.delete("at.y = 'y1' AND id > 15", mode=mode)
    t.rewrite()
    t.alter(widen={"v": pa.int64()})
    t.delete("v = 3", mode=mode)
    t.alter(rename={"v": "w"})
    renamed_at = t.version
    t.update({"w": "5000000000"}, where="id = 2", mode="tombstone" if mode == "surgery" else mode)
    t.rewrite()
    t.alter(drop=["note", "at.y"])
    t.append(pa.table({"id": [30], "w": [1]}))
    t.delete("w = 1", mode=mode)
    check(t, renamed_at)


def test_deletes_on_a_column_that_was_dropped_since_are_told() -> None:
    t = new_table(schema=SCHEMA)
    t.append(rows(*range(6)))
    t.delete("note = 'n1'")
    t.delete("at.y = 'y0' AND id = 2")
    t.rewrite()
    t.alter(drop=["note", "at.y"])
    told = t.changes(2).to_arrow()
    assert told.schema.names == ["id", "v", "at", *told.schema.names[-3:]]
    assert sorted(told["id"].to_pylist()) == [1, 2, 4]
    # Nothing of the dropped field comes along.
    assert told["at"].to_pylist()[0].keys() == {"x"}


def test_a_name_that_is_used_again_tells_no_old_value() -> None:
    t = new_table(schema=SCHEMA)
    t.append(rows(1, 2))
    t.alter(drop=["note"])
    t.alter(add=pa.schema([("note", pa.int64())]))
    added: Any = t.changes(0).to_arrow()
    assert added["note"].to_pylist() == [None, None]
    assert t.changes(2).to_arrow().num_rows == 0
