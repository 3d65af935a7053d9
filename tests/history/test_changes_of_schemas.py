"""The change feed over schema changes: rows are reported in the columns of the last version."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import inlay
from inlay.table import Table

from .histories import RowCounts, applied, multiset_of, new_table

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


def multiset(table: pa.Table, columns: dict[str, str]) -> RowCounts:
    """Rows by the names that columns have at last; `columns` says what they were called then."""
    found = [
        tuple(row.get(columns.get(name, name)) for name in ("id", "w")) for row in table.to_pylist()
    ]
    return Counter(found)


def check(t: Table, renamed_at: int) -> None:
    """Each version follows from the one before, in the columns that were always there."""
    told = t.changes(0, columns=["id", "w"]).to_arrow()
    seen: RowCounts = Counter()
    for version in range(1, t.version + 1):
        seen = applied(seen, told.filter(pc.equal(told["_commit_version"], version)))
        names = {"w": "v"} if version < renamed_at else {}
        assert seen == multiset(inlay.open(t.uri, version=version).scan().to_arrow(), names), (
            version
        )


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
def test_columns_that_were_renamed_widened_and_dropped(mode: str) -> None:
    t = new_table(schema=SCHEMA)
    t.append(rows(*range(20)))
    t.delete("note = 'n1' AND id < 10", mode=mode)
    t.delete("at.y = 'y1' AND id > 15", mode=mode)
    t.maintain.rewrite()
    t.alter(widen={"v": pa.int64()})
    t.delete("v = 3", mode=mode)
    t.alter(rename={"v": "w"})
    renamed_at = t.version
    t.update({"w": "5000000000"}, where="id = 2", mode="tombstone" if mode == "surgery" else mode)
    t.maintain.rewrite()
    t.alter(drop=["note", "at.y"])
    t.append(pa.table({"id": [30], "w": [1]}))
    t.delete("w = 1", mode=mode)
    check(t, renamed_at)


def test_a_column_is_as_wide_as_it_ever_was_whatever_came_after_a_restore() -> None:
    """The schema that was gone back to, and those made of it, are newer than the wide one."""
    t = new_table(schema=SCHEMA)
    narrow = t.version
    t.alter(widen={"v": pa.int64(), "at.x": pa.int64()})
    wide = {"id": 1, "v": 5_000_000_000, "note": None, "at": {"x": 6_000_000_000, "y": "y"}}
    t.append(pa.Table.from_pylist([wide], schema=t.schema))
    t.refs.restore(version=narrow)
    t.alter(add={"more": pa.string()})
    told = t.changes(0).to_arrow()
    assert (told["_change_type"].to_pylist(), told["v"].to_pylist()) == (
        ["insert", "delete"],
        [5_000_000_000] * 2,
    )
    assert told["at"].to_pylist() == [wide["at"]] * 2


def test_deletes_on_a_column_that_was_dropped_since_are_reported() -> None:
    t = new_table(schema=SCHEMA)
    t.append(rows(*range(6)))
    t.delete("note = 'n1'")
    t.delete("at.y = 'y0' AND id = 2")
    t.maintain.rewrite()
    t.alter(drop=["note", "at.y"])
    told = t.changes(2).to_arrow()
    assert told.schema.names == ["id", "v", "at", *told.schema.names[-3:]]
    assert sorted(told["id"].to_pylist()) == [1, 2, 4]
    # Nothing of the dropped field comes along.
    assert told["at"].to_pylist()[0].keys() == {"x"}


def test_a_name_that_is_used_again_reports_no_old_value() -> None:
    t = new_table(schema=SCHEMA)
    t.append(rows(1, 2))
    t.alter(drop=["note"])
    t.alter(add=pa.schema([("note", pa.int64())]))
    added: Any = t.changes(0).to_arrow()
    assert added["note"].to_pylist() == [None, None]
    assert t.changes(2).to_arrow().num_rows == 0


@pytest.mark.parametrize("done", ["compact", "rewrite"])
@pytest.mark.parametrize("path", ["note", "at.x"])
def test_going_back_past_a_drop_after_files_were_rewritten_without_the_column(
    done: str, path: str
) -> None:
    t = new_table(schema=SCHEMA)
    t.append(rows(1, 2, 3))
    t.append(rows(4, 5))
    before = t.version
    t.delete("id = 3")
    t.alter(drop=[path])
    getattr(t.maintain, done)()
    t.refs.restore(version=before)
    there = multiset_of(t.scan().to_arrow())
    assert applied(Counter(), t.changes(0).to_arrow()) == there
    assert applied(Counter(), t.changes(0, net=True).to_arrow()) == there
    assert t.changes(before, net=True).to_arrow().num_rows == 0


@pytest.mark.parametrize("mode", ["tombstone", "vector", "rewrite"])
def test_going_back_past_a_widening_reports_what_narrow_columns_cannot_hold(mode: str) -> None:
    narrow = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("born", pa.date32()),
            ("at", pa.struct([("x", pa.float32())])),
            ("all", pa.list_(pa.int8())),
        ]
    )
    t = new_table(schema=narrow)

    def row(i: int | None, **values: Any) -> dict[str, Any]:
        return {"id": i, "born": None, "at": {"x": 0.5}, "all": [1], **values}

    t.append(pa.Table.from_pylist([row(1), row(2)], schema=narrow))
    before = t.version
    t.alter(widen={"id": pa.int64(), "at.x": pa.float64(), "all.element": pa.int32()})
    t.alter(widen={"born": pa.timestamp("us")})
    wide = t.schema
    t.append(pa.Table.from_pylist([row(2**40, at={"x": 0.1}, all=[300])], schema=wide))
    t.delete("id = 1", mode=mode)
    t.refs.restore(version=before)
    t.append(pa.Table.from_pylist([row(7)], schema=narrow))
    assert t.schema.field("id").type == pa.int32()

    changes = t.changes(0)
    assert changes.schema.field("id").type == pa.int64()
    assert changes.schema.field("born").type == wide.field("born").type
    told = changes.to_arrow()
    columns = t.schema.names
    seen: Counter[str] = Counter()
    for version in range(1, t.version + 1):
        for sign in ("delete", "insert"):
            some = told.filter(pc.equal(told["_commit_version"], version))
            some = some.filter(pc.equal(some["_change_type"], sign)).select(columns)
            for each in some.to_pylist():
                seen[_said(each)] += 1 if sign == "insert" else -1
        there = inlay.open(t.uri, version=version).scan().to_arrow().to_pylist()
        assert +seen == Counter(map(_said, there)), version
        assert min(seen.values(), default=0) >= 0
    assert t.changes(0, where="id > 100").to_arrow().num_rows == 2
    # Nothing was wide since: the table's own columns.
    assert t.changes(t.version - 1).schema.field("id").type == pa.int32()


def _said(row: dict[str, Any]) -> str:
    return str({**row, "at": {"x": round(row["at"]["x"], 3)}})


def test_a_column_that_is_reported_wider_keeps_its_default_and_its_nulls() -> None:
    """Rows of files without the column have the default in each version, before and after the restore."""
    t = new_table(schema=pa.schema([("id", pa.int64())]))
    t.append(pa.table({"id": [1]}))
    t.alter(add={"n": pa.field("n", pa.int32(), nullable=False)}, defaults={"n": 7})
    before = t.version
    t.alter(widen={"n": pa.int64()}, optional=["n"])
    t.append(pa.table({"id": [2, 3], "n": [2**40, None]}))
    t.refs.restore(version=before)
    t.append(pa.table({"id": [4], "n": [4]}, pa.schema([("id", pa.int64()), ("n", pa.int32())])))
    changes = t.changes(0).to_arrow()
    assert changes.schema.field("n") == pa.field("n", pa.int64())
    assert [tuple(r.values()) for r in changes.select(["_change_type", "id", "n"]).to_pylist()] == [
        ("insert", 1, 7),
        ("insert", 2, 2**40),
        ("insert", 3, None),
        ("delete", 2, 2**40),
        ("delete", 3, None),
        ("insert", 4, 4),
    ]
