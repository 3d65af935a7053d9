"""What a merge brings to main, file by file and delete by delete: the table of `inlay.plan.merge`, line by
line. Main, the branch and the version that both come from are states of a few files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.maintenance.bench import new_bench

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Marker, Rows, Where
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.snapshot import Snapshot, Tier
from inlay.plan.change import Conflict
from inlay.plan.merge import (
    MergePlan,
    contested_conflict,
    layout_conflict,
    merged_layout,
    plan_merge,
)
from inlay.plan.metadata.state import State
from inlay.plan.scan import FileTask

LONG, NARROW = Primitive("int64"), Primitive("int32")
SCHEMA = Schema(0, (Field(1, "id", LONG),))
FORK = 5


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    plain = new_bench().load().snapshot
    return replace(plain, schemas=(SCHEMA,), schema_id=0, primary_key=(1,), sort_by=())


def file(key: str, sequence: int = 1, **options: Any) -> DataFile:
    """Ten rows, with the ids 0 to 9."""
    plain = {"size": 9, "footer_size": 9, "rows": 10, "row_groups": 1, "schema_id": 0}
    stats = {1: ColumnStats(0, 9, 0, kind=LONG)}
    return DataFile(key=key, sequence=sequence, **{"stats": stats, **plain, **options})


def below(name: str, upper: int, sequence: int, **options: Any) -> Marker:
    """A delete of the rows up to an id."""
    body = KeyRange(1, upper=upper, kind=LONG)
    return Marker(id=name, body=body, sequence=sequence, **options)


def of_file(name: str, key: str, sequence: int) -> Marker:
    return Marker(id=name, body=Rows((1,)), file=key, sequence=sequence)


A, B = file("a"), file("b", 2)
# Of `a` again, and of rows that were not there before.
REWRITTEN, NEW = file("r", 7, data_change=False), file("n", 7)
Side = tuple[Sequence[DataFile], Sequence[Marker]]


class Merging:
    """`plan` of states that are given by their files and their deletes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def state(self, side: Side, **options: Any) -> State:
        files, markers = (Tier((), tuple(entries)) for entries in side)
        return State(replace(self.snapshot, files=files, markers=markers, **options))

    def plan(
        self, main: Side, branch: Side, base: Side, *, fork: int = FORK, replaced: int = 0
    ) -> Any:
        states = self.state(main, replaced=replaced), self.state(branch), self.state(base)
        return plan_merge(*states, fork=fork)


@pytest.fixture
def merging(snapshot: Snapshot) -> Merging:
    return Merging(snapshot)


def named(tasks: Sequence[FileTask]) -> dict[str, list[str]]:
    """The deletes that may hit, by file."""
    assert all(task.markers == () and task.schema == SCHEMA for task in tasks)
    return {task.file.key: [m.id for m in task.only] for task in tasks}


def test_a_file_of_the_branch_is_added_less_the_rows_that_its_deletes_hide(
    merging: Merging,
) -> None:
    deletes = [below("old", 9, 7), below("far", -1, 8), below("m", 5, 8), of_file("v", "n", 7)]
    plan = merging.plan(([A], []), ([A, NEW], deletes), ([A], []))
    assert named(plan.added) == {"n": ["m", "v"]} and plan.added[0].file is NEW
    assert named(plan.marked) == {"a": ["old", "m"]} and not plan.is_empty
    # Whenever they were committed: with the first version of a branch of an empty table, too.
    first = merging.plan(([], []), ([file("n", 1)], [of_file("v", "n", 1)]), ([], []), fork=0)
    assert named(first.added) == {"n": ["v"]}


def test_rows_that_the_branch_deleted_since_it_began_are_marked(merging: Merging) -> None:
    before, since = below("before", 5, FORK), below("since", 3, FORK + 1)
    of_a = of_file("v", "a", FORK + 1)
    plan = merging.plan(([A, B], [before]), ([A, B], [before, since, of_a]), ([A, B], [before]))
    assert named(plan.marked) == {"a": ["since", "v"], "b": ["since"]}
    assert (plan.added, plan.contested, plan.removed, plan.on_both) == ((), (), (), ())
    unchanged = merging.plan(([A], [below("main", 5, 6)]), ([A], [before]), ([A], [before]))
    assert unchanged.is_empty and unchanged == MergePlan()


def test_rows_of_a_file_that_main_replaced_are_contested(merging: Merging) -> None:
    plan = merging.plan(([REWRITTEN], []), ([A], [below("m", 5, 6)]), ([A], []))
    assert (named(plan.contested), plan.marked, plan.removed) == ({"a": ["m"]}, (), ())
    assert not plan.is_empty
    for on_main, side in ((frozenset("a"), "replaced on the branch"), ((), "replaced on main")):
        conflict = contested_conflict(A, frozenset(on_main))
        assert f"a was {side}" in conflict.reason and conflict.gone == {"a"}


def test_a_file_that_the_branch_emptied_is_removed(merging: Merging) -> None:
    plan = merging.plan(([A, B], []), ([B], []), ([A, B], []))
    assert plan == MergePlan(removed=("a",)) and not plan.is_empty
    # Emptied on main, too: nothing is left to do.
    assert merging.plan(([B], []), ([B], []), ([A, B], [])).is_empty


@pytest.mark.parametrize("origin", [{"data_change": False}, {"origin": "a"}])
def test_a_file_that_the_branch_emptied_and_main_replaced_is_a_conflict(
    merging: Merging, origin: Any
) -> None:
    rewritten = file("r", 7, **origin)
    for on_main in ([rewritten], [NEW, rewritten], [B, rewritten]):
        conflict = merging.plan((on_main, []), ([B], []), ([A, B], []))
        assert isinstance(conflict, Conflict), on_main
        assert conflict.reason == "a was emptied on the branch, and replaced on main"
        assert conflict.gone == {"a"}
    # What was rewritten before the branch began holds none of its rows, nor does a new file.
    older = file("b", 2, **origin)
    assert merging.plan(([older, NEW], []), ([older], []), ([A, older], [])).removed == ()
    # Nothing that main lacks was emptied.
    assert merging.plan(([A, rewritten], []), ([], []), ([A], [])).removed == ("a",)


@pytest.mark.parametrize("origin", [{"data_change": False}, {"origin": "a"}])
def test_a_file_that_the_branch_replaced_is_removed_unless_main_changed_it(
    merging: Merging, origin: Any
) -> None:
    rewritten = file("r", 7, **origin)
    of_main = [below("before", 5, FORK), below("since", 3, FORK + 1), of_file("v", "b", 8)]
    for on_branch in ([rewritten], [NEW, rewritten]):
        plan = merging.plan(([A, B], []), ([B, *on_branch], []), ([A, B], []))
        assert (plan.removed, plan.contested) == (("a",), ())
        assert list(named(plan.added)) == [f.key for f in on_branch]
        deleted = merging.plan(([A, B], of_main), ([B, *on_branch], []), ([A, B], of_main[:1]))
        assert named(deleted.contested) == {"a": ["since"]} and deleted.removed == ("a",)
        lacked = merging.plan(([B], []), ([B, *on_branch], []), ([A, B], []))
        assert isinstance(lacked, Conflict) and lacked.gone == {"a"}
        assert lacked.reason == "a was replaced on the branch, and replaced or emptied on main"
    # New rows beside it: no row of `a` is in another file.
    fine = merging.plan(([A, B], of_main), ([B, NEW], []), ([A, B], of_main[:1]))
    assert (fine.removed, fine.contested) == (("a",), ())
    assert merging.plan(([B], []), ([B, NEW], []), ([A, B], [])).removed == ()


def test_what_both_sides_changed_may_be_there_twice(merging: Merging) -> None:
    mains = file("m", 6)
    of_main, of_branch = below("main", 3, 7), below("branch", 5, 8)
    gone = file("c", 3, rows=4)
    base = [A, B, gone]
    plan = merging.plan(([A, B, mains], [of_main]), ([A, NEW], [of_branch]), (base, []))
    assert named(plan.marked) == {"a": ["branch"]} and plan.removed == ("b",)
    assert named(plan.on_both) == {"a": ["main"], "b": ["main"]} and plan.emptied == 4
    # Only where both added rows.
    for main, branch in (
        ([A, B], [A, NEW]),
        ([A, B, mains], [A]),
    ):
        plan = merging.plan((main, [of_main]), (branch, [of_branch]), (base, []))
        assert (plan.on_both, plan.emptied) == ((), 0) and plan.removed == ("b",)
    fewer = merging.plan(([A, mains], []), ([A, NEW], []), ([A, B, gone], []))
    assert fewer.emptied == 14 and fewer.on_both == ()


RESTORED = FORK + 4


def test_a_file_that_main_lacks_after_a_restore_and_the_branch_removed_is_a_conflict(
    merging: Merging,
) -> None:
    sides: Any = ([B], []), ([B], []), ([A, B], [])
    conflict = merging.plan(*sides, replaced=RESTORED)
    assert isinstance(conflict, Conflict) and conflict.gone == {"a"}
    assert "on main, which was restored since" in conflict.reason
    for before_the_branch in (FORK, FORK - 1):
        assert merging.plan(*sides, replaced=before_the_branch).is_empty


def test_a_removed_file_of_which_a_restore_brought_rows_back_is_a_conflict(
    merging: Merging,
) -> None:
    for was in (below("was", 5, 4), of_file("was", "a", 1)):
        more = below("more", 7, RESTORED + 1)
        for main in ([], [more]):
            conflict = merging.plan(([A, B], main), ([B], []), ([A, B], [was]), replaced=RESTORED)
            assert isinstance(conflict, Conflict) and conflict.gone == {"a"}
            assert "a restore of main brought rows of it back" in conflict.reason
        # Main has the delete still; and what is kept is as main has it.
        for main in ([was], [was, more]):
            plan = merging.plan(([A, B], main), ([B], []), ([A, B], [was]), replaced=RESTORED)
            assert plan.removed == ("a",)
        assert merging.plan(([A, B], []), ([A, B], []), ([A, B], [was]), replaced=RESTORED).is_empty
    assert merging.plan(([A, B], []), ([B], []), ([A, B], []), replaced=RESTORED).removed == ("a",)


@pytest.mark.parametrize(
    ("main", "taken_back"),
    [
        (([B], []), ("a",)),
        (([], []), ("a", "b")),
        (([A, B], []), ()),
        (([A, B], [of_file("v", "a", RESTORED)]), ("a",)),
        (([A, B], [of_file("v", "a", 1)]), ("a",)),
        (([A, B], [of_file("v", "a", RESTORED + 1)]), ()),
        (([A, B], [of_file("v", "a", RESTORED), of_file("w", "a", RESTORED + 1)]), ("a",)),
        (([A, B], [of_file("was", "a", 4), of_file("w", "b", 9)]), ("b",)),
        (([A, B], [of_file("was", "a", 4)]), ()),
    ],
)
def test_a_merge_names_files_of_which_a_restore_took_rows(
    merging: Merging, main: Side, taken_back: tuple[str, ...]
) -> None:
    """A delete that came to main by the restore, and the branch has not: one since is main's own."""
    base = ([A, B], [of_file("was", "a", 4)])
    plan = merging.plan(main, base, base, replaced=RESTORED)
    assert plan == MergePlan(taken_back=taken_back) and plan.is_empty
    removed = merging.plan(([A, B], base[1]), ([B], []), base, replaced=RESTORED)
    assert removed.taken_back == () and removed.removed == ("a",)
    assert merging.plan(main, base, base, replaced=FORK).taken_back == ()


def test_open_erasures_of_the_branch_hide_rows_of_what_it_adds(merging: Merging) -> None:
    asked = Where(Comparison(1, "=", Literal(LONG, 5)))
    hit, far = (
        Marker(id="e1", body=asked, sequence=8, erasure="e"),
        Marker(
            id="e2",
            body=replace(asked, predicate=Comparison(1, "=", Literal(LONG, 50))),
            sequence=8,
            erasure="f",
        ),
    )
    plan = merging.plan(([A], []), ([A, NEW], [hit, far]), ([A], []))
    assert named(plan.added) == {"n": []} and plan.marked == ()
    assert plan.erasing == (replace(hit, id="e:n", file="n", sequence=None),)


@pytest.mark.parametrize("part", ["added", "marked", "removed", "contested"])
def test_a_merge_is_empty_if_nothing_is_added_marked_removed_or_contested(part: str) -> None:
    one: Any = ("a",) if part == "removed" else (FileTask(file=A, schema=SCHEMA),)
    assert not MergePlan(**{part: one}).is_empty
    assert MergePlan(on_both=(FileTask(file=A, schema=SCHEMA),), taken_back=("a",)).is_empty


def test_columns_are_those_of_the_side_that_changed_them(snapshot: Snapshot) -> None:
    wide = replace(snapshot, sort_by=(1,))
    other = replace(snapshot, primary_key=())
    for main, branch, of in (
        (snapshot, replace(snapshot, version=9), "main"),
        (wide, snapshot, "main"),
        (snapshot, wide, "branch"),
        (wide, replace(wide, version=9), "main"),
        (wide, other, None),
    ):
        found = merged_layout(main, branch, snapshot)
        if of is None:
            assert isinstance(found, Conflict)
        else:
            assert found is (main if of == "main" else branch)


def test_deletes_and_values_have_to_fit_the_columns_of_the_merge(merging: Merging) -> None:
    """A delete that names a dropped column, a value beyond a narrower type."""
    wide = Schema(1, (Field(1, "id", LONG), Field(2, "x", LONG)))
    narrow = Schema(2, (Field(1, "id", NARROW),))
    merging.snapshot = replace(merging.snapshot, schemas=(SCHEMA, wide, narrow))
    shape = merging.snapshot
    by_x = Marker(id="x", body=Where(Comparison(2, "=", Literal(LONG, 5))), sequence=6)
    by_id = below("id", 5, 6)
    base = merging.state(([A], []))

    def why(main: Side, plan: MergePlan | None = None, **options: Any) -> str | None:
        found = layout_conflict(
            replace(shape, **options), plan or MergePlan(), merging.state(main), base
        )
        return None if found is None else found.reason

    assert why(([A], [by_id])) is None and why(([A], [by_x]), schema_id=1) is None
    assert "names a column that the other side dropped" in (why(([A], [by_id, by_x])) or "")
    assert "names a column" in (why(([A], []), MergePlan(erasing=(by_x,))) or "")
    large = file("l", 7, stats={1: ColumnStats(0, 2**40, 0, kind=LONG)})
    assert why(([A, large], [])) is None
    for main, plan in (
        (([A, large], []), MergePlan()),
        (([A], []), MergePlan(added=(FileTask(file=large, schema=SCHEMA),))),
    ):
        reason = why(main, plan, schema_id=2)
        assert reason is not None and reason.startswith("l does not fit the columns of the merge")
    # What both have from before is not looked at again.
    base = merging.state(([large], []))
    assert why(([large], []), schema_id=2) is None
