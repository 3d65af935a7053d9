"""Rows in place of those that a condition selects."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InputError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
NUMBER = itertools.count()


def rows(*pairs: tuple) -> pa.Table:
    return pa.Table.from_pylist([{"id": a, "day": b} for a, b in pairs], SCHEMA)


def new_table(**options) -> inlay.Table:
    t = inlay.create(f"memory://overwrite-{next(NUMBER)}/t", SCHEMA, primary_key="id", **options)
    t.append(rows((1, "mon"), (2, "mon"), (3, "tue"), (4, None)))
    return t


def shown(t: inlay.Table) -> set[tuple]:
    found = [(r["id"], r["day"]) for r in inlay.open(t.uri).scan().to_arrow().to_pylist()]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("options", [{}, {"partition_by": ["day"]}])
def test_what_the_condition_selects_is_replaced_as_often_as_it_runs(options: dict) -> None:
    t = new_table(**options)
    for number in range(3):
        done = t.overwrite(rows((number, "mon"), (9, "mon")), where="day = ?", params=["mon"])
        assert done.committed and done.added_rows == 2
        assert shown(t) == {(number, "mon"), (9, "mon"), (3, "tue"), (4, None)}
    t.maintain.rewrite()
    t.maintain.compact()
    assert shown(t) == {(2, "mon"), (9, "mon"), (3, "tue"), (4, None)}
    assert not t.maintain.verify().errors


def test_without_a_condition_everything_is_replaced() -> None:
    t = new_table()
    version = t.version
    t.overwrite(rows((7, "sun")))
    assert shown(t) == {(7, "sun")} and t.version == version + 1
    t.overwrite(rows())
    assert shown(t) == set()
    assert inlay.open(t.uri, version=version).count() == 4


def test_what_others_committed_before_is_replaced_and_what_comes_after_stays() -> None:
    t = new_table()
    other = inlay.open(t.uri)
    other.append(rows((5, "mon")))
    t.overwrite(rows((6, "mon")), where="day = 'mon'")
    other.append(rows((8, "mon")))
    assert shown(t) == {(6, "mon"), (8, "mon"), (3, "tue"), (4, None)}


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (rows((1, "tue")), "day = 'mon'"),
        (rows((1, None)), "day = 'mon'"),
        (rows((1, "mon")), "upper(day) = 'MON'"),
        (pa.table({"id": [1], "more": [1]}), "id = 1"),
    ],
)
def test_what_would_not_replace_itself_is_refused(data: pa.Table, where: str) -> None:
    t = new_table()
    before = shown(t)
    with pytest.raises(InputError):
        t.overwrite(data, where=where)
    assert shown(t) == before


def test_a_request_is_done_once() -> None:
    t = new_table()
    t.overwrite(rows((6, "mon")), where="day = 'mon'", request_id="r")
    t.append(rows((7, "mon")))
    again = t.overwrite(rows((6, "mon")), where="day = 'mon'", request_id="r")
    assert again.applied_before and (7, "mon") in shown(t)


def test_the_feed_shows_what_was_replaced() -> None:
    t = new_table()
    version = t.version
    t.overwrite(rows((1, "mon"), (6, "mon")), where="day = 'mon'")
    changes = t.changes(version).to_arrow().to_pylist()
    kinds = sorted((c["_change_type"], c["id"]) for c in changes)
    assert ("insert", 6) in kinds and ("delete", 2) in kinds


def test_a_stream_of_batches() -> None:
    t = new_table()
    t.overwrite(rows((6, "mon")).to_reader(), where="day = 'mon'")
    assert (6, "mon") in shown(t)
