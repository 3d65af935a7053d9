"""A copy is the rows of one version, and nothing else: not what was deleted, not what comes later."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import SnapshotGone, TableExists

NUMBER = itertools.count()
SCHEMA = pa.schema(
    [("id", pa.int64()), ("word", pa.string()), ("at", pa.struct([("x", pa.float64())]))]
)
STEPS = ["append", "tombstone", "vector", "surgery", "update", "upsert", "rename", "add", "erase"]


def rows(first: int, count: int = 20) -> pa.Table:
    ids = range(first, first + count)
    return pa.Table.from_pylist(
        [{"id": n, "word": f"w{n % 3}", "at": {"x": n / 2}} for n in ids], SCHEMA
    )


def new_table(where: str = "memory") -> inlay.Table:
    t = inlay.create(
        f"memory://copies-{next(NUMBER)}/t", SCHEMA, primary_key="id", partition_by=["word"]
    )
    return t.append(rows(0)) and t


def do(t: inlay.Table, step: str, n: int) -> None:
    low = n * 7 % 25
    names = t.columns
    match step:
        case "append":
            t.append(rows(100 + 20 * n).rename_columns(names[:3]))
        case "tombstone" | "vector" | "surgery" | "erase":
            t.delete(f"{names[0]} BETWEEN {low} AND {low + 4}", mode=step)
        case "update":
            t.update({names[1]: "'changed'"}, where=f"{names[0]} % 5 = {n % 5}")
        case "upsert":
            t.upsert(rows(low, 5).rename_columns(names[:3]), on=names[0])
        case "rename":
            t.alter(rename={names[0]: f"id{n}"})
        case _:
            t.alter(add={f"added{n}": pa.int32()})


def shown(t: inlay.Table) -> list[str]:
    return sorted(map(repr, t.scan().to_arrow().to_pylist()))


@settings(max_examples=15)
@given(st.lists(st.sampled_from(STEPS), max_size=5))
def test_a_copy_shows_what_its_source_shows_and_needs_nothing_of_it(steps: list[str]) -> None:
    t = new_table()
    for n, step in enumerate(steps):
        do(t, step, n)
    expected, schema = shown(t), t.schema
    then = t.copy_to(f"memory://copies-{next(NUMBER)}/then")
    assert then.version == 1 and then.schema == schema and shown(then) == expected
    assert not then.snapshot.totals.markers and not then.snapshot.erasures
    t.delete("TRUE", mode="rewrite")
    then = inlay.open(then.uri)
    assert shown(then) == expected
    assert not then.maintain.verify(depth="pages").findings
    do(then, "tombstone", 1)
    do(then, "append", 9)
    assert then.count() == len(shown(then))


def test_a_past_version_is_copied_and_to_another_store(tmp_path: Path) -> None:
    t = new_table()
    then = shown(t)
    t.refs.tag("then")
    t.delete("id < 10")
    past = inlay.open(t.uri, ref="then", context=t._ctx)
    copied = past.copy_to(tmp_path / "then")
    assert shown(copied) == then
    with pytest.raises(TableExists):
        past.copy_to(tmp_path / "then")
    again = copied.copy_to(tmp_path / "again")
    assert shown(again) == then


def test_rows_that_were_deleted_are_in_no_object_of_the_copy(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", pa.table({"id": [1, 2], "name": ["Ada Lovelace", "Bo"]}))
    t.delete("id = 1")
    t.copy_to(tmp_path / "copy")
    bytes_of = [p.read_bytes() for p in (tmp_path / "copy").rglob("*") if p.is_file()]
    assert bytes_of and not any(b"Lovelace" in each for each in bytes_of)


def test_a_file_that_is_gone_leaves_no_table(tmp_path: Path) -> None:
    t = inlay.create(tmp_path / "t", pa.table({"id": [1, 2]}))
    for file in (tmp_path / "t" / "data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(SnapshotGone):
        t.copy_to(tmp_path / "copy")
    assert not inlay.exists(tmp_path / "copy")
