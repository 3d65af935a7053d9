"""Tags and branches: what they cost, what they hold, what gets in whose way."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import inlay
from inlay.errors import (
    InvalidRequest,
    MergeConflict,
    RefExists,
    RefHeld,
    RefNotFound,
    VersionNotFound,
)
from inlay.format import keys
from inlay.format.codec import encode_snapshot
from inlay.format.snapshot import thin_time_index

from .place import Place, ids, rows


def gets(table: inlay.Table) -> int:
    assert set(table.usage.requests) == {"get"}
    return table.usage.requests["get"]


# -- requests -------------------------------------------------------------------------------------


def test_any_of_ten_thousand_versions_is_opened_in_two_requests_and_as_of_a_time_in_six(
    place: Place,
) -> None:
    now = place.table.snapshot
    times: dict[int, int] = {}
    points: tuple[tuple[int, int], ...] = ()
    start = now.commit.time_us
    for version in range(1, 10_001):
        times[version] = start + version * 1_000_000 + version % 7
        points = thin_time_index((*points, (version, times[version])), version)
        commit = replace(now.commit, time_us=times[version])
        made = replace(now, version=version, commit=commit, time_index=points)
        key = keys.POINTER if version == 10_000 else keys.archive_key(version)
        place.store.put(f"tables/t/{key}", encode_snapshot(made))
    for version in (1, 2, 17, 255, 256, 4_095, 4_096, 5_000, 9_983, 9_999, 10_000):
        found = place.open(version=version)
        assert (found.version, gets(found) <= 2) == (version, True)
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=times[version] + 3)
        found = place.open(as_of=at)
        assert found.version == version
        assert gets(found) <= 6


def test_tags_and_branches_are_opened_in_two_requests(place: Place) -> None:
    place.table.append(rows([1]))
    place.table.refs.tag("release")
    branch = place.table.refs.branch("work")
    branch.append(rows([2]))
    place.table.refresh().append(rows([3]))
    assert [gets(place.open(ref=name)) for name in ("release", "work", "main")] == [2, 2, 1]
    assert [ids(place.open(ref=n)) for n in ("release", "work", "main")] == [[1], [1, 2], [1, 3]]


def test_a_commit_on_a_branch_costs_one_request_more(place: Place) -> None:
    main = place.table.append(rows([1]))
    branch = place.table.refs.branch("work")
    first = branch.append(rows([2]))
    second = branch.append(rows([3]))
    assert first.requests == second.requests == main.requests + 1


# -- what they are --------------------------------------------------------------------------------


def test_a_branch_does_everything_on_its_own(place: Place) -> None:
    place.table.append(rows(range(10)))
    branch = place.table.refs.branch("work")
    branch.append(rows([20]))
    branch.delete("id = 1")
    branch.update({"mark": "5"}, where="id = 2", mode="vector")
    branch.upsert(rows([3], mark=7), on="id")
    branch.maintain.rewrite()
    branch.maintain.compact()
    branch.alter(add={"note": inlay.table.pa.string()})
    assert branch.schema.names == ["id", "mark", "note"]
    assert ids(branch) == [0, *range(2, 10), 20]
    assert ids(place.open()) == list(range(10))
    assert place.open().schema.names == ["id", "mark"]
    assert place.open().maintain.verify(depth="pages").errors == ()


def test_a_request_that_was_applied_on_a_branch_was_applied(place: Place) -> None:
    branch = place.table.refs.branch("work")
    branch.append(rows([1]), request_id="once")
    assert place.open().append(rows([1]), request_id="once").committed is False


def test_names_and_numbers_that_are_none_are_refused(place: Place) -> None:
    t = place.table
    t.refs.tag("release")
    assert t.refs.tag("release", version=1).committed is False
    with pytest.raises(RefExists):
        t.refs.branch("release")
    for name in ("main", "", "-x", "a b", "a" * 101, None):
        with pytest.raises(InvalidRequest):
            t.refs.tag(name)
    with pytest.raises(VersionNotFound):
        t.refs.tag("later", version=99)
    with pytest.raises(RefNotFound):
        place.open(ref="nothing")
    with pytest.raises(RefNotFound):
        t.refs.drop("nothing")
    with pytest.raises(InvalidRequest, match="is a tag"):
        t.refs.merge("release")
    with pytest.raises(InvalidRequest, match="in the past"):
        place.open(ref="release").append(rows([1]))


def test_a_hold_keeps_its_tag_until_it_is_lifted(place: Place) -> None:
    place.table.refs.tag("evidence", hold=True)
    with pytest.raises(RefHeld):
        place.table.refs.drop("evidence")
    place.table.refs.set_hold("evidence", False)
    place.table.refs.drop("evidence")
    with pytest.raises(InvalidRequest, match="is a branch"):
        place.table.refs.branch("work")
        place.table.refs.set_hold("work")


def test_a_table_takes_sixty_four_refs_and_stays_small(place: Place) -> None:
    for n in range(64):
        place.table.refs.tag(f"tag-{n}")
    with pytest.raises(InvalidRequest, match="at most 64"):
        place.table.refs.tag("one-more")
    pointer = place.store.get("tables/t/_latest_manifest")
    assert len(pointer.body) < 4_600


def test_what_a_branch_or_tag_needs_outlives_expiry_and_collection(place: Place) -> None:
    place.table.append(rows(range(10)))
    tagged = place.table.refs.branch("work")
    tagged.append(rows([20]))
    place.open().refs.tag("old", version=2)
    place.open().delete("id < 10", mode="rewrite")
    place.open(ref="work").delete("id = 20", mode="rewrite")
    for _ in range(3):
        place.time.sleep(1000)
        t = place.open()
        t.maintain.expire(days=0, min_versions=1)
        t.maintain.collect_garbage(grace=timedelta(seconds=10))
    assert ids(place.open(ref="old")) == list(range(10))
    assert ids(place.open(ref="work")) == list(range(10))
    place.open().refs.merge("work")
    assert place.open().maintain.verify().errors == ()
    for name in ("old", "work"):
        place.open().refs.drop(name)
    for _ in range(3):
        place.time.sleep(1000)
        t = place.open()
        t.maintain.expire(days=0, min_versions=1)
        t.maintain.collect_garbage(grace=timedelta(seconds=10))
    assert list(place.store.list("tables/t/data/")) == []


# -- merges ---------------------------------------------------------------------------------------


def test_deletes_of_a_branch_hit_only_rows_that_they_saw(place: Place) -> None:
    place.table.append(rows([1, 2, 3]))
    branch = place.table.refs.branch("work")
    branch.delete("id <= 2")
    branch.append(rows([4]))
    place.open().append(rows([1, 5]))
    place.open().delete("id = 4")
    place.open().refs.merge("work")
    assert ids(place.open()) == [1, 3, 4, 5]
    assert ids(place.open(ref="work")) == [1, 3, 4, 5]


@pytest.mark.parametrize("change", ["update", "upsert"])
@pytest.mark.parametrize(
    ("on_branch", "on_main"),
    [([1, 2], [2, 3]), ([1, 2, 3], [2]), ([1, 2, 3],) * 2],
)
def test_a_row_that_both_sides_changed_is_there_as_each_made_it(
    place: Place, change: str, on_branch: list[int], on_main: list[int]
) -> None:
    """And the merge says so. Rows are told apart by where they are."""
    place.table.append(rows([1, 2, 3]))
    branch = place.table.refs.branch("work")
    for side, mark, changed in ((branch, 7, on_branch), (place.open(), 8, on_main)):
        if change == "update":
            within = ", ".join(map(str, changed))
            side.update({"mark": mark}, where=f"id IN ({within})", mode="vector")
        else:
            side.upsert(rows(changed, mark=mark), on="id")
    done = place.open().refs.merge("work")
    twice = len({*on_branch} & {*on_main})
    assert f"rows (up to {twice}) were changed or deleted on main and on 'work'" in done.note
    merged = place.open().scan().to_arrow().to_pylist()
    made = {(i, 7) for i in on_branch} | {(i, 8) for i in on_main}
    assert {(row["id"], row["mark"]) for row in merged} == made
    assert len(merged) == len(made)


def test_a_row_that_both_sides_deleted_is_nothing_to_speak_of(place: Place) -> None:
    place.table.append(rows([1, 2, 3]))
    branch = place.table.refs.branch("work")
    for side in (branch, place.open()):
        side.delete("id = 1", mode="vector")
    branch.append(rows([4]))
    done = place.open().refs.merge("work")
    assert (done.note, ids(place.open())) == ("", [2, 3, 4])


def test_a_file_rewritten_on_both_sides_is_a_conflict_that_changes_nothing(place: Place) -> None:
    place.table.append(rows(range(20)))
    [file] = [f.key for f in place.table.inspect.entries()[0]]
    branch = place.table.refs.branch("work")
    branch.delete("id = 1", mode="surgery")
    place.open().delete("id = 2", mode="surgery")
    before = place.open().version
    with pytest.raises(MergeConflict, match=file):
        place.open().refs.merge("work")
    assert place.open().version == before


def test_main_is_fast_forwarded_unless_it_changed(place: Place) -> None:
    place.table.append(rows([1]))
    branch = place.table.refs.branch("work")
    branch.append(rows([2]))
    place.open().set_properties(delete__mode="vector")
    assert place.open().refs.fast_forward("work").committed
    assert ids(place.open()) == [1, 2]
    branch.refresh().append(rows([3]))
    place.open().append(rows([4]))
    with pytest.raises(MergeConflict, match="main has changed"):
        place.open().refs.fast_forward("work")
    place.open().refs.branch("untouched")
    place.open().append(rows([5]))
    assert (
        not place.open().refs.fast_forward("untouched").committed
    )  # main is ahead of it, and stays


def test_columns_added_on_a_branch_come_with_the_merge(place: Place) -> None:
    place.table.append(rows([1]))
    branch = place.table.refs.branch("work")
    branch.alter(add={"note": inlay.table.pa.string()})
    place.open().append(rows([2]))
    place.open().refs.merge("work")
    assert place.open().schema.names == ["id", "mark", "note"]
    assert ids(place.open()) == [1, 2]


@pytest.mark.parametrize(
    "delete",
    [{"where": "mark BETWEEN 1 AND 3"}, {"where": "mark = 1 AND id > 0"}, {"keys": {"mark": [1]}}],
)
def test_a_delete_by_a_column_that_a_branch_dropped_stands_in_the_way_of_its_merge(
    place: Place, delete: dict
) -> None:
    place.table.append(pa.concat_tables([rows([1, 2], mark=1), rows([3], mark=9)]))
    branch = place.table.refs.branch("work")
    branch.alter(drop=["mark"])
    place.open().delete(**delete)
    with pytest.raises(MergeConflict, match="a column that the other side dropped"):
        place.open().refs.merge("work")
    place.open().maintain.rewrite()
    place.open().refs.merge("work")
    assert place.open().schema.names == ["id"]
    assert ids(place.open()) == [3]


@pytest.mark.parametrize("widens", ["work", "main"])
def test_values_that_a_column_widened_on_the_other_side_does_not_reach_stand_in_the_way(
    place: Place, widens: str
) -> None:
    def day(number: int) -> pa.Table:
        return pa.table({"id": [7], "day": pa.array([number], pa.int32()).cast(pa.date32())})

    place.table.alter(add={"day": pa.date32()})
    place.table.refs.branch("work")
    place.open(ref=widens).alter(widen={"day": pa.timestamp("us")})
    other = place.open(ref="main" if widens == "work" else "work")
    other.append(day(100))
    other.append(day(2**30))
    with pytest.raises(MergeConflict, match="'day' may hold values"):
        place.open().refs.merge("work")
    other.refresh().delete("day > DATE '2000-01-01'", mode="rewrite")
    place.open().refs.merge("work")
    assert ids(place.open()) == [7]
    assert place.open().schema.field("day").type == pa.timestamp("us")


def test_branches_without_a_common_past_are_not_merged(place: Place) -> None:
    place.table.append(rows([1]))
    one = place.table.refs.branch("one")
    one.append(rows([2]))
    two = one.refs.branch("two")
    two.append(rows([3]))
    with pytest.raises(MergeConflict, match="made from another branch"):
        place.open().refs.merge("two")
    place.open().refs.restore(ref="two")
    assert ids(place.open()) == [1, 2, 3]
    with pytest.raises(MergeConflict, match="main was restored"):
        place.open().refs.merge("one")


@pytest.mark.parametrize("mode", ["tombstone", "vector"])
@pytest.mark.parametrize("act", ["compact", "delete"])
def test_a_merge_loses_no_row_that_a_restore_of_main_brought_back(
    place: Place, mode: str, act: str
) -> None:
    place.table.append(rows([1, 2, 3]))
    before = place.open().version
    place.open().delete("id = 1", mode=mode)
    branch = place.table.refresh().refs.branch("work")
    if act == "compact":
        branch.append(rows([4]))
        branch.maintain.compact(small_bytes=1 << 30)
    else:
        branch.delete("id > 1", mode="rewrite")
    place.open().refs.restore(version=before)
    with pytest.raises(MergeConflict, match="a restore of main brought rows of it back"):
        place.open().refs.merge("work")
    assert ids(place.open()) == [1, 2, 3]


def test_a_merge_forgets_no_delete_of_rows_that_main_has_in_older_files_again(place: Place) -> None:
    place.table.append(rows([1, 2]))
    place.table.append(rows([3]))
    before = place.open().version
    place.open().maintain.compact(small_bytes=1 << 30)
    branch = place.table.refresh().refs.branch("work")
    branch.delete("id > 0", mode="rewrite")
    place.open().refs.restore(version=before)
    with pytest.raises(MergeConflict, match="on main, which was restored since"):
        place.open().refs.merge("work")
    place.open().refs.restore(ref="work")
    assert ids(place.open()) == []


def test_a_merge_that_would_only_take_back_what_a_restore_took_is_refused(place: Place) -> None:
    place.table.append(rows([1, 2]))
    before = place.open().version
    place.table.refs.branch("work").append(rows([3]))
    place.open().refs.restore(ref="work")
    assert not place.open().refs.merge("work").committed, "both are even"
    place.open().refs.restore(version=before)
    with pytest.raises(MergeConflict, match="a restore of main took back") as refused:
        place.open().refs.merge("work")
    assert "restore with ref='work'" in refused.value.next_step
    assert (ids(place.open()), ids(place.open(ref="work"))) == ([1, 2], [1, 2, 3])
    place.open().refs.restore(ref="work")
    assert ids(place.open()) == ids(place.open(ref="work")) == [1, 2, 3]


@pytest.mark.parametrize("taken", ["a file", "by a delete"])
def test_a_merge_says_which_rows_a_restore_took_from_both(place: Place, taken: str) -> None:
    if taken == "a file":
        place.table.append(rows([1, 2]))
        before = place.open().version
        place.open().append(rows([3]))
    else:
        place.table.append(rows([1, 2, 3]))
        place.open().delete("id = 3", mode="vector")
        before = place.open().version
        place.open().refs.restore(version=before - 1)
    branch = place.open().refs.branch("work")
    place.open().refs.restore(version=before)
    branch.append(rows([4]))
    done = place.open().refs.merge("work")
    assert done.committed and "main was restored since 'work' began" in done.note
    assert ids(place.open()) == ids(place.open(ref="work")) == [1, 2, 4]
    again = place.open().refs.branch("other")
    again.append(rows([5]))
    place.open().append(rows([6]))
    assert place.open().refs.merge("other").note == "", "of a restore that was before"


@pytest.mark.parametrize(
    ("back_to", "later", "removes", "expected", "says_so"),
    [
        ("fork", False, False, [2, 3, 4], False),
        ("fork", False, True, [], False),
        ("fork", True, False, [2, 4], False),  # deleted after the restore: no restore took it
        ("before", False, False, [1, 2, 3, 4], False),
        ("after", False, False, [3, 4], True),
        ("after", False, True, [], False),
        ("after", True, False, [4], True),
    ],
)
def test_a_merge_over_a_restore_of_main_has_what_each_side_did(
    place: Place, back_to: str, later: bool, removes: bool, expected: list[int], says_so: bool
) -> None:
    """Main is restored to the version that the branch began with, or to one with a delete less or more."""
    versions = {}
    place.table.append(rows([1, 2, 3]))
    for name, where in (("before", "id = 1"), ("fork", "id = 2"), ("after", None)):
        versions[name] = place.open().version
        if name == "fork":
            branch = place.open().refs.branch("work")
        if where is not None:
            place.open().delete(where, mode="vector")
    if removes:
        branch.delete("TRUE", mode="rewrite")
    else:
        branch.append(rows([4]))
    place.open().append(rows([9]))
    place.open().refs.restore(version=versions[back_to])
    if later:
        place.open().delete("id = 3", mode="vector")
    done = place.open().refs.merge("work")
    assert done.committed and ("main was restored since" in done.note) is says_so
    assert ids(place.open()) == expected


@pytest.mark.parametrize("more", [False, True])
def test_a_file_that_the_branch_emptied_and_main_replaced_is_a_conflict(
    place: Place, more: bool
) -> None:
    """Whether or not main has files besides that hold only new rows."""
    place.table.append(rows([1, 2]))
    place.table.append(rows([3]))
    branch = place.table.refs.branch("work")
    branch.delete("id < 3", mode="rewrite")
    place.open().maintain.compact(small_bytes=1 << 30)
    if more:
        place.open().append(rows([9]))
    with pytest.raises(MergeConflict, match="was emptied on the branch, and replaced on main"):
        place.open().refs.merge("work")
    assert ids(place.open()) == [1, 2, 3, *([9] if more else [])]


def test_a_branch_of_a_restored_main_is_not_told_of_that_restore(place: Place) -> None:
    place.table.append(rows([1, 2]))
    before = place.open().version
    place.open().append(rows([3]))
    place.open().refs.restore(version=before)
    place.open().refs.branch("work").append(rows([4]))
    place.open().delete("id = 1", mode="rewrite")
    done = place.open().refs.merge("work")
    assert done.committed and done.note == ""
    assert ids(place.open()) == [2, 4]


# -- others get in the way ------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["restore", "fast_forward", "merge"])
@pytest.mark.parametrize("mode", ["tombstone", "vector", "surgery"])
def test_an_update_planned_before_the_content_was_replaced_is_planned_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, act: str, mode: str
) -> None:
    from inlay.ops.commit import driver

    place.table.append(rows([1, 2]))
    branch = place.table.refs.branch("work")
    branch.append(rows([3]))
    if act == "merge":
        place.open().append(rows([9]))
    real, acted = driver.commit, []

    def commit(ctx, change, *, base):
        if not acted:
            acted.append(act)
            other = place.open()
            other.refs.restore(ref="work") if act == "restore" else getattr(other.refs, act)("work")
        return real(ctx, change, base=base)

    table = place.open()
    monkeypatch.setattr(driver, "commit", commit)
    table.update({"mark": "7"}, where="id > 0", mode=mode)
    found = place.open().scan().to_arrow().to_pylist()
    assert {r["mark"] for r in found} == {7}
    assert 3 in [r["id"] for r in found]


def test_a_merge_beside_commits_on_main_is_planned_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inlay.ops import diverged

    place.table.append(rows(range(10)))
    branch = place.table.refs.branch("work")
    branch.delete("id = 1")
    place.open().append(rows([30]))
    real, left = diverged.plan_merge, [3]

    def plan(*states, fork):
        if left[0]:
            left[0] -= 1
            place.open().append(rows([40 + left[0]]))
        return real(*states, fork=fork)

    monkeypatch.setattr(diverged, "plan_merge", plan)
    place.open().refs.merge("work")
    assert ids(place.open()) == [0, *range(2, 10), 30, 40, 41, 42]


def test_a_tag_of_a_version_that_expires_meanwhile_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inlay.ops import refs

    for n in range(3):
        place.table.append(rows([n]))
    real, first = refs.load_pointer, [True]

    def load(ctx, **how):
        found = real(ctx, **how)
        if first.pop() if first else False:
            place.time.sleep(10)
            place.open().maintain.expire(days=0, min_versions=1)
        return found

    table = place.open()
    monkeypatch.setattr(refs, "load_pointer", load)
    with pytest.raises(VersionNotFound):
        table.refs.tag("old", version=2)
