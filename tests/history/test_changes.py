"""The change feed: exactly the rows that each version added and removed."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inlay
from inlay.errors import InvalidRequest, VersionNotFound
from inlay.plan.feed import MAINTENANCE

from .histories import (
    Op,
    applied,
    histories,
    multiset_of,
    new_table,
    play,
    rows,
    split,
    state,
    tiny_segments,
)


def test_of_a_file_that_goes_only_live_rows_are_removed_however_its_deletes_are_stored() -> None:
    with tiny_segments():
        t = new_table()
        t.append(rows([(n, 1) for n in range(40)]))
        for n in range(0, 24, 2):
            t.delete(f"id = {n}")
        assert "markers" in t.inspect.segments()["tier"].to_pylist()
        before = state(t, t.version)
        t.overwrite(rows([(50, 1)]))
        told = inlay.open(t.uri).changes(t.version - 1).to_arrow()
    assert told.num_rows == 28 + 1
    assert applied(before, told) == state(t, t.version)


@settings(deadline=None, max_examples=8)
@given(histories())
def test_changes_of_any_history_make_each_version_of_the_one_before(ops: list[Op]) -> None:
    t = new_table()
    play(t, ops)
    told = t.changes(0).to_arrow()
    assert told["_commit_version"].to_pylist() == sorted(told["_commit_version"].to_pylist())
    versions = {v["version"]: v for v in t.inspect.history().to_pylist()}
    for version in range(1, t.version + 1):
        step = told.filter(pc.equal(told["_commit_version"], version))
        assert applied(state(t, version - 1), step) == state(t, version)
        assert t.changes(version - 1, version).to_arrow().equals(step)
        if versions[version]["operation"] in MAINTENANCE:
            assert step.num_rows == 0
        if step.num_rows:
            assert set(step["_commit_timestamp"].to_pylist()) == {versions[version]["time"]}
    # No row comes and goes in one version but those that an update put in the place of themselves.
    removed, added = split(
        told.filter(pc.is_in(told["_change_type"], pa.array(["insert", "delete"])))
    )
    assert state(t, t.version) == applied(Counter(), told)
    assert bool(told.num_rows) or not (removed or added)


@settings(deadline=None, max_examples=12)
@given(histories(), st.integers(0, 9), st.integers(0, 9))
def test_net_changes_between_any_two_versions_have_no_row_on_both_sides(
    ops: list[Op], one: int, other: int
) -> None:
    t = new_table()
    play(t, ops)
    since, to = sorted((one % (t.version + 1), max(other % (t.version + 1), 1)))
    told = t.changes(since, to, net=True).to_arrow()
    removed, added = split(told)
    assert removed == state(t, since) - state(t, to)
    assert added == state(t, to) - state(t, since)


@settings(deadline=None, max_examples=4)
@given(histories())
def test_changes_are_reported_over_trees_of_metadata(ops: list[Op]) -> None:
    with tiny_segments():
        t = new_table()
        for n in range(24):
            t.append(rows([(n, n % 5), (n + 1, 1)]))
        first = t.version
        assert max(t.inspect.segments()["level"].to_pylist()) == 1
        play(t, ops)
        told = t.changes(first).to_arrow()
        seen = state(t, first)
        for version in range(first + 1, t.version + 1):
            step = told.filter(pc.equal(told["_commit_version"], version))
            seen = applied(seen, step)
            assert seen == state(t, version)


def test_one_append_and_one_delete_are_found_in_a_tree_of_metadata() -> None:
    with tiny_segments():
        t = new_table()
        for n in range(24):
            t.append(rows([(n, n % 5)]))
        first = t.version
        t.append(rows([(99, 1)]))
        t.delete("id = 3")
        t.maintain.compact(small_bytes=1 << 30)
        told = t.changes(first).to_arrow()
        assert max(inlay.open(t.uri, version=first).inspect.segments()["level"].to_pylist()) == 1
    assert told["id"].to_pylist() == [99, 3]
    assert told["_change_type"].to_pylist() == ["insert", "delete"]


@settings(deadline=None, max_examples=8)
@given(histories(), st.sampled_from(["v < 3", "id > 4 AND v <> 2", "at.x >= 1.0"]), st.booleans())
def test_a_filter_reports_what_enters_and_leaves_its_rows(
    ops: list[Op], where: str, as_arrow: bool
) -> None:
    t = new_table()
    play(t, ops)
    columns = ["v", "id"]
    filtered: Any = pc.field("v") < 3 if as_arrow else where
    told = t.changes(0, columns=columns, where=filtered).to_arrow()
    assert told.schema.names[:2] == columns
    assert applied(Counter(), told) == state(t, t.version, columns=columns, where=filtered)


def test_an_append_reads_the_new_file_and_nothing_else() -> None:
    t = new_table()
    for n in range(5):
        t.append(rows([(i, i) for i in range(n * 10, n * 10 + 10)]))
    before = t.version
    t.append(rows([(99, 1)]))
    feed = t.changes(before)
    [step] = feed.steps()
    [unit] = step.units
    assert (len(unit.before), len(unit.after)) == (0, 1)
    usage = t.usage
    assert feed.to_arrow()["id"].to_pylist() == [99]
    # The archive of the version before and the new file, which comes with its footer.
    assert (t.usage - usage).total <= 3


@pytest.mark.parametrize("column", ["kept", "dropped before"])
def test_maintenance_is_passed_over_without_a_look_at_its_files(column: str) -> None:
    t = new_table()
    for n in range(5):
        t.append(rows([(i, i) for i in range(n * 10, n * 10 + 10)]))
    t.delete("id = 23")
    if column == "dropped before":
        t.alter(drop=["tags"])
    before = t.version
    t.maintain.rewrite()
    t.maintain.compact(small_bytes=1 << 30)
    assert (t.version, t.snapshot.totals.files) == (before + 2, 1)
    usage = t.usage
    assert t.changes(before).to_arrow().num_rows == 0
    # The archives of the two versions before this one.
    assert (t.usage - usage).requests == {"get": 2}


def test_a_delete_by_range_reads_only_the_files_it_can_hit() -> None:
    t = new_table()
    for n in range(5):
        t.append(rows([(i, i) for i in range(n * 10, n * 10 + 10)]))
    t.delete("id = 23")
    [step] = t.changes(t.version - 1).steps()
    assert len(step.units) == 1
    told = t.changes(t.version - 1).to_arrow()
    assert (told["id"].to_pylist(), told["_change_type"].to_pylist()) == ([23], ["delete"])


def test_steps_pickle() -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2)]))
    t.delete("id = 1")
    steps = list(t.changes(0).steps())
    assert pickle.loads(pickle.dumps(steps)) == steps
    assert len(steps) == 2


@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery", "rewrite"])
def test_updates_are_reported_as_before_and_after(mode: str) -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2), (None, 2)]))
    t.update({"v": "7"}, where="v = 2", mode=mode)
    told = t.changes(t.version - 1, columns=["v"]).to_arrow()
    assert told.select(["v", "_change_type"]).to_pylist() == [
        # A row without a key has no pre-image.
        {"v": 2, "_change_type": "update_preimage"},
        {"v": 2, "_change_type": "delete"},
        {"v": 7, "_change_type": "update_postimage"},
        {"v": 7, "_change_type": "insert"},
    ]


def test_an_upsert_distinguishes_new_keys_from_old_ones() -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2)]))
    t.upsert(rows([(2, 5), (3, 5)]))
    told = t.changes(t.version - 1).to_arrow()
    assert told.select(["id", "v", "_change_type"]).to_pylist() == [
        {"id": 2, "v": 2, "_change_type": "update_preimage"},
        {"id": 2, "v": 5, "_change_type": "update_postimage"},
        {"id": 3, "v": 5, "_change_type": "insert"},
    ]


def test_without_a_primary_key_an_update_is_a_delete_and_an_insert() -> None:
    t = new_table(primary_key=())
    t.append(rows([(1, 1)]))
    t.update({"v": "2"})
    told = t.changes(t.version - 1).to_arrow()
    assert told["_change_type"].to_pylist() == ["delete", "insert"]


def test_a_copy_on_write_delete_reports_the_removed_rows() -> None:
    t = new_table()
    t.append(rows([(i % 7, i % 5) for i in range(40)]))
    for mode in ("surgery", "rewrite"):
        before = state(t, t.version)
        t.delete("id = 3" if mode == "surgery" else "v = 1", mode=mode)
        [step] = t.changes(t.version - 1).steps()
        assert [unit.in_order for unit in step.units] == [True]
        told = t.changes(t.version - 1).to_arrow()
        assert set(told["_change_type"].to_pylist()) == {"delete"}
        assert applied(before, told) == state(t, t.version)


def test_the_feed_is_an_arrow_stream() -> None:
    t = new_table()
    t.append(rows([(1, 1), (2, 2)]))
    feed = t.changes(0)
    assert pa.table(feed).equals(feed.to_arrow())
    assert feed.to_reader().schema == feed.schema
    assert t.changes(t.version).to_arrow().num_rows == 0


def test_rows_are_reported_in_the_columns_of_the_last_version() -> None:
    t = new_table()
    t.append(rows([(1, 1)]))
    old = t.version
    t.append(rows([(2, 2)]))
    feed = t.changes(0, old)
    assert multiset_of(feed.to_arrow().select(["id", "v"])) == {(1, 1): 1}
    assert inlay.open(t.uri, version=old).changes(0).to_arrow().equals(feed.to_arrow())


# -- what cannot be told --------------------------------------------------------------------------


def test_expired_versions_are_refused_by_the_oldest_that_can_be_read() -> None:
    t = new_table()
    for n in range(4):
        t.append(rows([(n, n)]))
    t.maintain.expire(days=0, min_versions=2)
    oldest = t.snapshot.oldest_version
    assert oldest > 1
    with pytest.raises(VersionNotFound, match=f"before {oldest} have expired"):
        t.changes(0)
    with pytest.raises(VersionNotFound):
        t.changes(oldest - 1)
    assert t.changes(oldest).to_arrow().num_rows >= 0


@pytest.mark.parametrize("since", [-1, 99])
def test_versions_that_never_were_are_refused(since: int) -> None:
    t = new_table()
    with pytest.raises(InvalidRequest, match=f"from version {since} to"):
        t.changes(since)


def test_a_column_of_the_feeds_own_names_is_refused_by_name() -> None:
    t = new_table(schema=pa.schema([("id", pa.int64()), ("_change_type", pa.string())]))
    with pytest.raises(InvalidRequest, match="_change_type"):
        t.changes(0)
    t.append(pa.table({"id": [1], "_change_type": ["x"]}))
    assert t.changes(0, columns=["id"]).to_arrow()["id"].to_pylist() == [1]
