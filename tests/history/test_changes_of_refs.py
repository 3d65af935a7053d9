"""The change feed over restores, branches and erasures: it says what a reader of each version sees."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from tests.simulator.model import INTO_MAIN

import inlay
from inlay.errors import VersionNotFound
from inlay.table import Table

from .histories import (
    Op,
    applied,
    histories_with_refs,
    new_table,
    operations_on_rows_once_written,
    play,
    rows,
    split,
    state,
)


@settings(deadline=None, max_examples=10)
@given(histories_with_refs())
def test_changes_report_restores_and_merges_exactly(ops: list[Op]) -> None:
    t = new_table()
    play(t, ops)
    _check(t)


@settings(deadline=None, max_examples=10)
@given(histories_with_refs(operations_on_rows_once_written))
def test_restores_and_merges_report_no_row_that_was_there_and_is_there(ops: list[Op]) -> None:
    """Where a row was deleted and an equal one written, both are told; no row here equals another."""
    t = new_table()
    play(t, ops)
    told = _check(t)
    operations = {row["version"]: row["operation"] for row in t.inspect.history().to_pylist()}
    for version in range(1, t.version + 1):
        if operations[version] in INTO_MAIN:
            removed, added = split(told.filter(pc.equal(told["_commit_version"], version)))
            assert not removed & added, operations[version]


def _check(t: Table) -> pa.Table:
    """The changes of each version, which are also those between the scans."""
    told = t.changes(0).to_arrow()
    seen = Counter[tuple[object, ...]]()
    for version in range(1, t.version + 1):
        seen = applied(seen, told.filter(pc.equal(told["_commit_version"], version)))
        assert seen == state(t, version)
    removed, added = split(t.changes(3, net=True).to_arrow())
    assert removed == state(t, 3) - seen
    assert added == seen - state(t, 3)
    return told


def test_an_equal_row_that_was_written_again_is_reported_both_ways() -> None:
    """Whichever of the two a reader had is gone: they are two rows, one of which a delete was told of."""
    for back in ("merge", "fast_forward", "restore"):
        t = new_table()
        t.append(rows([(0, 0), (1, 1)]))
        before = t.version
        work = t if back == "restore" else t.refs.branch("dev")
        work.delete("id = 0", mode="vector")
        work.append(rows([(0, 0)]))
        if back == "restore":
            t.refs.restore(version=before)
        else:
            getattr(t.refs, back)("dev")
        told = t.changes(t.version - 1).to_arrow().select(["id", "_change_type"]).to_pylist()
        assert sorted(r["_change_type"] for r in told if r["id"] == 0) == ["delete", "insert"]
        assert len(told) == 2


def test_going_back_over_a_compaction_reports_only_rows_that_differ() -> None:
    t = new_table(properties={"compact.small_file_bytes": 1 << 30})
    for n in range(10):
        t.append(rows([(i, i) for i in range(n * 10, n * 10 + 10)]))
    before = t.version
    t.delete("id = 7")
    t.maintain.compact()
    assert t.inspect.files().num_rows == 1
    t.refs.restore(version=before)
    [step] = t.changes(t.version - 1).steps()
    assert [(len(u.before), len(u.after)) for u in step.units] == [(1, 10)]
    told = t.changes(t.version - 1).to_arrow()
    assert told.select(["id", "_change_type"]).to_pylist() == [{"id": 7, "_change_type": "insert"}]


def test_replaced_files_are_compared_only_where_their_keys_touch() -> None:
    options = {"partition_by": ["truncate(40, id)"]}
    t = new_table(properties={"compact.small_file_bytes": 1 << 30}, **options)
    for n in range(8):
        t.append(rows([(i, i) for i in range(n * 10, n * 10 + 10)]))
    before = t.version
    t.delete("id IN (3, 43)")
    t.maintain.compact()
    t.refs.restore(version=before)
    [step] = t.changes(t.version - 1).steps()
    assert [(len(u.before), len(u.after)) for u in step.units] == [(1, 4), (1, 4)]
    assert sorted(t.changes(t.version - 1).to_arrow()["id"].to_pylist()) == [3, 43]


@pytest.mark.parametrize(
    ("kind", "apart"),
    [(pa.int64(), None), (pa.float64(), math.nan), (pa.string(), "\U0010ffff" * 100)],
    ids=["null", "nan", "no-upper-bound"],
)
def test_rows_that_no_bound_places_cancel_wherever_they_lie(kind: pa.DataType, apart: Any) -> None:
    """NULL, NaN, and text whose upper bound cannot be told: with keys of other files between."""
    low, high = pa.array(["0", "9"]).cast(kind).to_pylist()
    t = new_table(schema=pa.schema([("id", kind)]), primary_key=(), sort_by="id")

    def write(*files: list[Any]) -> int:
        for ids in files:
            t.append(pa.table({"id": pa.array(ids, kind)}))
        return t.version

    before = write([low, apart], [high])
    t.delete("TRUE")
    write([low], [high, apart])
    t.refs.restore(version=before)
    assert t.changes(t.version - 1).to_arrow().num_rows == 0


def test_going_back_over_surgery_compares_the_two_files_in_order() -> None:
    t = new_table()
    t.append(rows([(i, i) for i in range(40)]))
    before = t.version
    t.delete("id IN (3, 17)", mode="surgery")
    t.refs.restore(version=before)
    [step] = t.changes(t.version - 1).steps()
    assert [unit.in_order for unit in step.units] == [True]
    told = t.changes(t.version - 1).to_arrow()
    assert sorted(told["id"].to_pylist()) == [3, 17]
    assert set(told["_change_type"].to_pylist()) == {"insert"}


def test_a_merged_branch_that_was_compacted_reports_only_rows_that_differ() -> None:
    t = new_table(properties={"compact.small_file_bytes": 1 << 30})
    t.append(rows([(1, 1), (2, 2)]))
    t.append(rows([(3, 3), (4, 4)]))
    branch = t.refs.branch("dev")
    branch.append(rows([(5, 5)]))
    branch.maintain.compact()
    branch.refresh().delete("id = 2", mode="vector")
    branch.append(rows([(6, 6)]))
    t.refresh().append(rows([(7, 7)]))  # so main cannot just become what the branch is
    before = t.version
    assert t.refs.merge("dev").removed_files == 2
    told = t.changes(before).to_arrow().select(["_change_type", "id"]).to_pylist()
    assert sorted(tuple(row.values()) for row in told) == [
        ("delete", 2),
        ("insert", 5),
        ("insert", 6),
    ]


def test_a_branch_reports_its_own_changes() -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2)]))
    branch = t.refs.branch("dev")
    began = branch.version
    branch.append(rows([(3, 3)]))
    t.append(rows([(9, 9)]))
    branch.delete("id = 1")
    branch.refresh()
    told = branch.changes(began).to_arrow().select(["id", "_change_type"]).to_pylist()
    assert told == [{"id": 3, "_change_type": "insert"}, {"id": 1, "_change_type": "delete"}]
    t.refresh()
    assert t.changes(began).to_arrow()["id"].to_pylist() == [9]
    with pytest.raises(VersionNotFound, match=r"branch 'dev' .* did not exist at version 1"):
        branch.changes(0).to_arrow()


def test_a_merge_reports_what_the_branch_did_once() -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2)]))
    branch = t.refs.branch("dev")
    branch.append(rows([(3, 3)]))
    branch.delete("id = 1", mode="vector")
    t.append(rows([(9, 9)]))
    t.refs.merge("dev")
    told = t.changes(t.version - 1).to_arrow()
    kinds = dict(zip(told["id"].to_pylist(), told["_change_type"].to_pylist(), strict=True))
    assert kinds == {1: "delete", 3: "insert"}


def test_rows_under_erasure_are_reported_by_no_version() -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2)]))
    t.append(rows([(42, 1), (3, 3)]))
    t.delete("id = 42", mode="erase")
    told = t.changes(0).to_arrow()
    assert sorted(told["id"].to_pylist()) == [1, 2, 3]
    assert t.changes(2, 3).to_arrow()["id"].to_pylist() == [3]
    assert applied(state(t, 2), t.changes(2).to_arrow()) == state(t, t.version)


def test_net_changes_reach_back_to_a_version_that_only_a_tag_holds() -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2)]))
    t.refs.tag("month-end")
    held = inlay.open(t.uri, ref="month-end").version
    for n in range(5):
        t.append(rows([(10 + n, n)]))
    t.delete("id IN (1, 10)")
    t.maintain.expire(days=0, min_versions=1)
    assert t.snapshot.oldest_version > held
    with pytest.raises(VersionNotFound):
        t.changes(held)
    told = t.changes(held, net=True).to_arrow()
    kinds = dict(zip(told["id"].to_pylist(), told["_change_type"].to_pylist(), strict=True))
    assert kinds == {1: "delete", 11: "insert", 12: "insert", 13: "insert", 14: "insert"}
