"""Which rows a step of the feed compares: as few as certain, and never too few."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from pyroaring import FrozenBitMap
from tests.maintenance.bench import new_bench

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Marker, Rows
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct
from inlay.format.snapshot import Segment, Snapshot, Tier
from inlay.plan.change import NeedSegments
from inlay.plan.feed import (
    MAINTENANCE,
    FeedUnit,
    NeedMore,
    Step,
    _is_new,
    _lost,
    _paired,
    _that_may_share_rows,
    _touched,
    keeps_rows,
    plan_step,
    reading_schema,
    reported_schema,
)
from inlay.plan.metadata.state import Contents, State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.refs import MERGE
from inlay.plan.scan import FileTask

LONG, NARROW = Primitive("int64"), Primitive("int32")
SCHEMA = Schema(0, (Field(1, "id", LONG), Field(2, "x", Primitive("double"))))
SPANS = list(itertools.combinations_with_replacement(range(4), 2))


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return replace(new_bench().load().snapshot, primary_key=(1,), sort_by=(), schemas=(SCHEMA,))


def task(key: str, low: Any = 0, high: Any = 0, **options: Any) -> FileTask:
    stats = options.pop("stats", {1: ColumnStats(low, high, 0, kind=LONG)})
    plain = {"size": 9, "footer_size": 9, "rows": 5, "row_groups": 1, "schema_id": 0}
    return FileTask(file=DataFile(key=key, stats=stats, **{**plain, **options}), schema=SCHEMA)


def together(old: Any, new: Any, snapshot: Snapshot) -> set[frozenset[str]]:
    found = list(_that_may_share_rows(old, new, Evidence(SCHEMA), snapshot))
    for before, after in found:
        assert {t.file.key for t in before} <= {t.file.key for t in old}
        assert {t.file.key for t in after} <= {t.file.key for t in new}
    return {frozenset(t.file.key for t in (*before, *after)) for before, after in found}


def test_files_are_compared_with_those_that_may_have_equal_keys(snapshot: Snapshot) -> None:
    """Whatever the order: groups are joined where bounds meet, and only there."""
    for spans in itertools.product(SPANS, repeat=3):
        files = [task(name, *span) for name, span in zip("abc", spans, strict=True)]
        expected = [{name} for name in "abc"]
        for one, other in itertools.combinations("abc", 2):
            (a, b), (c, d) = spans["abc".index(one)], spans["abc".index(other)]
            if a <= d and c <= b:
                left, right = (next(g for g in expected if n in g) for n in (one, other))
                if left is not right:
                    expected.remove(right)
                    left |= right
        assert together(files[:1], files[1:], snapshot) == set(map(frozenset, expected)), spans


@pytest.mark.parametrize(
    "stats",
    [
        {},
        {1: ColumnStats(0, 0, 1, kind=LONG)},
        {1: ColumnStats(0, 0, None, kind=LONG)},
        {1: ColumnStats(None, 0, 0, kind=LONG)},
        {1: ColumnStats(0, None, 0, kind=LONG)},
        {1: ColumnStats(0.0, 0.0, 0, kind=LONG)},
        {1: ColumnStats(0, 0, 0, kind=NARROW)},
    ],
)
def test_a_file_whose_keys_are_not_certain_is_compared_with_all(
    snapshot: Snapshot, stats: Any
) -> None:
    schema = Schema(0, (Field(1, "id", LONG), Field(2, "x", LONG)))
    files = [task("a", 1, 1), task("b", 3, 3)]
    assert len(together(files, [task("c", 5, 5)], snapshot)) == 3
    odd = task("c", stats=stats)
    groups = together(files, [odd], snapshot)
    if stats and stats[1].kind == NARROW:  # in the type that the table has
        assert len(groups) == 3
    else:
        assert groups == {frozenset("abc")}
    by_order = replace(snapshot, primary_key=(), sort_by=(2,), schemas=(schema,))
    assert together(files, [task("c", 5, 5)], by_order) == {frozenset("abc")}
    second = replace(snapshot, primary_key=(2,), sort_by=(1,))
    assert len(together(files, [task("c", 5, 5)], second)) == 3, "by the first column that is known"


def test_keys_of_two_types_that_the_table_has_no_more_are_compared_with_all(
    snapshot: Snapshot,
) -> None:
    """A column of the key that was dropped since: its days and moments have no common order."""
    day, moment = Primitive("date"), Primitive("timestamp", unit="us")
    dropped = Evidence(Schema(1, (Field(2, "x", Primitive("double")),)), (SCHEMA,))

    def groups(*kinds: Primitive) -> int:
        tasks = [
            task(f"{n}", n, n, stats={1: ColumnStats(n, n, 0, kind=kind)})
            for n, kind in enumerate(kinds)
        ]
        return len(list(_that_may_share_rows(tasks[:1], tasks[1:], dropped, snapshot)))

    assert groups(day, day) == groups(moment, moment) == 2
    assert groups(day, moment) == groups(moment, day) == groups(day, day, moment) == 1


def test_a_commit_keeps_all_rows_if_it_is_maintenance_that_counts_none(snapshot: Snapshot) -> None:
    other = replace(snapshot, files=Tier((), (task("a").file,)))
    marked = replace(snapshot, markers=Tier((), (Marker(id="m", body=Rows((1,)), file="a"),)))

    def after(base: Snapshot, **commit: Any) -> Snapshot:
        plain = {"operation": "compact", "added_rows": 0, "removed_rows": 0}
        return replace(base, commit=replace(base.commit, **{**plain, **commit}))

    assert keeps_rows(snapshot, after(snapshot, operation="append", added_rows=5), SCHEMA)
    for changed in (other, marked):
        for operation in MAINTENANCE:
            assert keeps_rows(snapshot, after(changed, operation=operation), SCHEMA)
        assert not keeps_rows(snapshot, after(changed, operation="append"), SCHEMA)
        assert not keeps_rows(snapshot, after(changed, added_rows=1), SCHEMA)
        assert not keeps_rows(snapshot, after(changed, removed_rows=1), SCHEMA)
        assert not keeps_rows(snapshot, after(changed, removed_rows=None), SCHEMA)
    # A column that was dropped by then has lost its values; one that came later has none.
    wide = Schema(0, (*SCHEMA.fields, Field(9, "later", LONG)))
    narrow = replace(after(other), schema_id=0, schemas=(Schema(0, SCHEMA.fields[:1]),))
    assert keeps_rows(snapshot, replace(after(other), last_field_id=8), wide)
    assert not keeps_rows(snapshot, replace(after(other), last_field_id=9), wide)
    assert not keeps_rows(snapshot, replace(narrow, last_field_id=2), SCHEMA)
    assert keeps_rows(snapshot, replace(narrow, last_field_id=2), Schema(0, SCHEMA.fields[:1]))


def test_columns_are_as_wide_as_they_were_before_a_restore(snapshot: Snapshot) -> None:
    def of(kind: Primitive, nullable: bool, default: int | None = None) -> Schema:
        field = Field(1, "a", kind, nullable, default=default)
        nested = (
            Field(2, "s", Struct((replace(field, id=3),))),
            Field(4, "l", ListOf(replace(field, id=5))),
            Field(6, "m", MapOf(replace(field, id=7), replace(field, id=8))),
        )
        return Schema(0, (field, *nested))

    narrow, wide = of(NARROW, False, 7), of(LONG, True)
    now = replace(snapshot, schema_id=0, schemas=(narrow, replace(wide, id=1)), replaced=5)
    assert reported_schema(now, 5) is narrow
    found = reported_schema(now, 4)
    assert found.fields == of(LONG, True, 7).fields and found.id == -1
    same = replace(now, schemas=(wide, replace(narrow, id=1)))
    assert reported_schema(same, 4) is wide, "already as wide"
    text = Schema(1, (Field(1, "a", Primitive("string"), True), Field(99, "z", LONG)))
    other = replace(now, schemas=(Schema(0, (Field(1, "a", LONG, True),)), text))
    assert reported_schema(other, 4) is other.schemas[0]


def test_files_are_paired_with_what_replaced_them(snapshot: Snapshot) -> None:
    now = replace(snapshot, version=9)

    def keys(gone: list[FileTask], come: list[FileTask], mixed: bool = False) -> set[Any]:
        by_key = [{t.file.key: t for t in tasks} for tasks in (gone, come)]
        units = _paired(*by_key, now, Evidence(SCHEMA), mixed=mixed)
        return {
            tuple("".join(sorted(t.file.key for t in side)) for side in (u.before, u.after))
            for u in units
        }

    new = task("n", 0, 0, sequence=9, data_change=True)
    assert keys([task("a")], [task("b", origin="a")]) == {("a", "b")}
    assert keys([task("b", origin="a")], [task("a")]) == {("b", "a")}
    # By what it says, whatever bounds say.
    assert keys([task("b", 5, 5, origin="a")], [task("a", 0, 0)]) == {("b", "a")}
    assert keys([task("a", 5, 5)], [task("b", 0, 0, origin="a")]) == {("a", "b")}
    assert keys([task("a")], [new]) == {("a", ""), ("", "n")}
    assert keys([task("a")], [new], mixed=True) == {("a", "n")}
    assert keys([task("a")], [task("n", 0, 0, sequence=8)]) == {("a", "n")}
    assert keys([task("a")], [task("n", 1, 1, sequence=8)]) == {("a", ""), ("", "n")}
    assert keys([task("a")], [task("b", origin="x")]) == {("a", "b")}
    assert keys([task("a"), task("c")], [task("b", origin="a"), task("d")]) == {
        ("a", "b"),
        ("c", "d"),
    }
    assert keys([task("a"), task("c")], []) == {("a", ""), ("c", "")}, "each is read alone"
    assert keys([], [task("b", sequence=8), task("d", sequence=8)]) == {("", "b"), ("", "d")}
    assert keys([], [task("b", origin="a")]) == {("", "b")} and keys([task("a")], []) == {("a", "")}


def test_a_unit_is_in_order_if_one_file_is_the_rewrite_of_the_other() -> None:
    a, b, c = task("a"), task("b", origin="a"), task("c")
    assert FeedUnit((a,), (b,)).in_order and FeedUnit((b,), (a,)).in_order
    for before, after in (((a,), (c,)), ((a,), ()), ((), (b,)), ((a, c), (b,)), ((a,), (b, c))):
        unit = FeedUnit(before, after)
        assert not unit.in_order
    step = Step(
        version=1, time_us=1, operation="upsert", schema=SCHEMA, units=(FeedUnit((a,), (b,)),)
    )
    assert step.tasks == (a, b) and step.updates
    assert not replace(step, operation="append").updates


def test_rows_are_new_if_their_file_came_with_the_commit(snapshot: Snapshot) -> None:
    now = replace(snapshot, version=9)
    new = task("n", sequence=9, data_change=True).file
    assert _is_new(new, now)
    for old in ({"sequence": 8}, {"data_change": False}, {"origin": "a"}):
        assert not _is_new(replace(new, **old), now)


def test_rows_that_are_lost_are_those_that_more_markers_delete() -> None:
    one, other = (Marker(id=name, body=Rows((1,)), file="a") for name in "mn")
    before = {"a": task("a"), "b": task("b"), "c": replace(task("c"), markers=(one,))}
    after = {
        "a": replace(task("a"), markers=(one, other)),
        "c": replace(task("c"), markers=(one,)),
    }
    lost = list(_lost(before, after))
    assert lost == [replace(before["a"], only=(one, other)), before["b"]]
    assert list(_lost(after, before)) == []
    again = {"c": replace(task("c"), markers=(one, other))}
    assert list(_lost({"c": before["c"]}, again)) == [replace(before["c"], only=(other,))]


def of(base: Snapshot, version: int, files: Any, markers: Any, operation: str = "restore") -> State:
    commit = replace(base.commit, operation=operation)
    content = {"files": Tier((), tuple(t.file for t in files)), "markers": Tier((), tuple(markers))}
    return State(replace(base, version=version, commit=commit, **content))


def test_a_step_applies_to_files_that_come_back_the_deletes_that_both_states_have(
    snapshot: Snapshot,
) -> None:
    kept = Marker(id="m", body=KeyRange(1, upper=5), sequence=5)
    later = Marker(id="n", body=KeyRange(1, upper=2), sequence=9)
    old = task("a", 0, 9, sequence=3, data_change=True)
    new = task("b", 0, 9, sequence=9, data_change=True)
    before = of(snapshot, 8, [], [kept])

    def planned(one: State | None, other: State) -> Any:
        step = plan_step(one, other, SCHEMA)
        assert isinstance(step, Step) and (step.version, step.schema) == (9, SCHEMA)
        units = [
            tuple([(t.file.key, [m.id for m in t.markers], [m.id for m in t.only]) for t in side])
            for unit in step.units
            for side in (unit.before, unit.after)
        ]
        return list(zip(units[::2], units[1::2], strict=True))

    assert planned(before, of(snapshot, 9, [old], [kept])) == [((), (("a", ["m"], []),))]
    assert planned(before, of(snapshot, 9, [new], [kept])) == [((), (("b", [], []),))]
    assert planned(None, of(snapshot, 9, [old, new], [kept])) == [
        ((), (("b", [], []),)),
        ((), (("a", ["m"], []),)),
    ]
    both = of(snapshot, 8, [old], [kept])
    assert planned(both, of(snapshot, 9, [old], [kept, later])) == [
        ((("a", ["m"], ["n"]),), ()),
    ]
    assert planned(both, of(snapshot, 9, [old], [])) == [((), (("a", [], ["m"]),))]
    assert planned(both, of(snapshot, 9, [], [kept])) == [((("a", ["m"], []),), ())]
    assert planned(both, of(snapshot, 9, [old, new], [kept])) == [((), (("b", [], []),))]
    assert planned(both, of(snapshot, 9, [old], [kept])) == []
    # What a merge brings may hold rows of what it replaces; what another commit brings may not.
    assert planned(both, of(snapshot, 9, [new], [kept], MERGE)) == [
        ((("a", ["m"], []),), (("b", [], []),)),
    ]
    assert planned(both, of(snapshot, 9, [new], [kept], "overwrite")) == [
        ((), (("b", [], []),)),
        ((("a", ["m"], []),), ()),
    ]
    # New files have the deletes of their own commit, and of erasures that were opened since.
    of_new = Marker(id="v", body=Rows((1,)), file="b", sequence=9)
    erased = Marker(id="e", body=KeyRange(1, upper=5), sequence=12, erasure="e")
    assert planned(before, of(snapshot, 9, [new], [kept, of_new])) == [((), (("b", ["v"], []),))]
    since = of(snapshot, 8, [], [kept, erased])
    assert planned(since, of(snapshot, 9, [new], [kept, erased])) == [((), (("b", ["e"], []),))]


def test_a_step_loads_the_deletes_that_files_which_come_back_need(snapshot: Snapshot) -> None:
    leaf = Segment(id="m", count=1, size=1, sequence=5)
    marker = Marker(id="m", body=KeyRange(1, upper=5))

    def of_leaf(version: int, *files: FileTask, loaded: bool = False) -> State:
        state = of(snapshot, version, files, [])
        content = replace(state.snapshot, markers=Tier((leaf,), ()))
        return State(content, Contents(markers={"m": (marker,)} if loaded else {}))

    old = task("a", 0, 9, sequence=3, data_change=True)
    new = task("b", 0, 9, sequence=9, data_change=True)
    none, here = NeedSegments(), NeedSegments(markers=(leaf,))
    assert plan_step(of_leaf(8), of_leaf(9, old), SCHEMA) == NeedMore(none, here)
    assert plan_step(of_leaf(8, old), of_leaf(9), SCHEMA) == NeedMore(here, none)
    assert isinstance(plan_step(of_leaf(8), of_leaf(9, new), SCHEMA), Step), (
        "only its own can hit it"
    )
    merged = of_leaf(9, new)
    commit = replace(merged.snapshot.commit, operation=MERGE)
    merged = replace(merged, snapshot=replace(merged.snapshot, commit=commit))
    assert isinstance(plan_step(of_leaf(8), merged, SCHEMA), Step), "it replaces nothing"
    assert plan_step(of_leaf(8, old), merged, SCHEMA) == NeedMore(here, here)
    assert isinstance(plan_step(of_leaf(8, old), of_leaf(9, old), SCHEMA), Step)
    moved = replace(old, file=replace(old.file, sequence=4))
    assert plan_step(of_leaf(8, old), of_leaf(9, moved), SCHEMA) == NeedMore(here, here)
    step = plan_step(of_leaf(8, loaded=True), of_leaf(9, old, loaded=True), SCHEMA)
    assert isinstance(step, Step)
    [came] = step.units[0].after
    assert [m.id for m in came.markers] == ["m"]


def test_files_that_new_deletes_may_hit_are_looked_for_in_leaves_that_any_of_them_may(
    snapshot: Snapshot,
) -> None:
    leaves = tuple(
        Segment(
            id=f"{low}",
            count=1,
            size=1,
            rows=10,
            sequence=3,
            stats={1: ColumnStats(low, low + 9, 0, kind=LONG)},
        )
        for low in (0, 10, 20)
    )
    state = State(replace(snapshot, files=Tier(leaves, (task("i", 0, 9, sequence=4).file,))))
    low, high = (Marker(id=f"{n}", body=KeyRange(1, lower=n, upper=n), sequence=9) for n in (5, 25))

    def needed(*markers: Marker, others: Any = ()) -> Any:
        found = _touched(state, markers, SCHEMA, set(others))
        return [s.id for s in found.after.files] if isinstance(found, NeedMore) else set(found)

    assert needed(low, high) == ["0", "20"] and needed(high) == ["20"] and needed() == set()
    of_file = Marker(id="f", body=Rows((1,)), file="i", sequence=9)
    assert needed(of_file) == {"i"} and needed(of_file, others=["i"]) == set()
    assert needed(replace(of_file, file="x")) == ["0", "10", "20"]
    inline = replace(low, id="inline")
    assert needed(replace(low, sequence=4)) == ["0"], "by bounds, whatever came when"
    both = State(
        replace(
            snapshot, files=Tier((), tuple(t.file for t in (task("i", 0, 9), task("j", 20, 29))))
        )
    )
    assert set(_touched(both, [inline, high], SCHEMA, set())) == {"i", "j"}
    assert set(_touched(both, [inline], SCHEMA, set())) == {"i"}
    far = Marker(id="far", body=KeyRange(1, lower=99), sequence=9)
    assert needed(far) == set() and needed(far, of_file) == {"i"}


def test_segments_that_both_states_have_are_neither_loaded_nor_compared(snapshot: Snapshot) -> None:
    """With the same dead entries; of others what is not loaded is asked for, of either state."""
    shared, one, other = (
        Segment(id=name, count=2, size=9, rows=10, sequence=3)
        for name in ("shared", "one", "other")
    )
    died = replace(shared, dead=FrozenBitMap((1,)))
    files = {
        name: tuple(task(f"{name}{n}", n, n).file for n in range(2))
        for name in ("shared", "one", "other")
    }

    def of_leaves(version: int, leaves: Any, loaded: Any) -> State:
        state = of(snapshot, version, [], [])
        content = replace(state.snapshot, files=Tier(tuple(leaves), ()))
        return State(content, Contents(files={name: files[name] for name in loaded}))

    def step(before: Any, after: Any, loaded: Any = (), more: Any = None) -> Any:
        states = of_leaves(8, before, loaded), of_leaves(9, after, loaded if more is None else more)
        found = plan_step(*states, SCHEMA)
        if isinstance(found, NeedMore):
            return [[s.id for s in side.files] for side in (found.before, found.after)]
        return {
            tuple("".join(t.file.key for t in side) for side in (u.before, u.after))
            for u in found.units
        }

    assert step([shared], [shared]) == set()
    assert step([shared], [shared, other]) == [[], ["other"]]
    assert step([shared, one], [shared]) == [["one"], []]
    assert step([shared, one], [shared, other]) == [["one"], ["other"]]
    assert step([shared, one], [shared, other], ["one"]) == [[], ["other"]]
    assert step([shared], [died]) == [["shared"], ["shared"]]
    assert step([shared], [died], ["shared"], []) == [[], ["shared"]]
    assert step([shared], [died], ["shared"]) == {("shared1", "")}
    assert step([shared], [shared, other], ["other"]) == {("", "other0"), ("", "other1")}
    assert step([shared, one], [shared], ["one"]) == {("one0", ""), ("one1", "")}
    node = Segment(id="node", count=4, size=9, rows=20, sequence=3, level=1)
    assert step([shared], [shared, node]) == [[], ["node"]], "of which nothing is known"
    assert step([node], [node]) == set()


def test_files_are_read_in_the_columns_asked_for_and_those_that_deletes_name(
    snapshot: Snapshot,
) -> None:
    """Also where these were dropped since, at whatever level; the others keep their names."""
    id_, x, struct = (
        Field(1, "id", LONG),
        Field(2, "x", LONG),
        Field(3, "s", Struct((Field(4, "n", LONG),))),
    )
    wide = replace(struct, type=Struct((Field(4, "n", LONG), Field(5, "m", LONG))))
    now = replace(snapshot, schemas=(Schema(1, (id_, struct)),), schema_id=1)
    then = replace(snapshot, schemas=(Schema(0, (id_, x, wide)),), schema_id=0)
    schema = Schema(7, (id_, struct))

    def of_field(*ids: int) -> list[Marker]:
        return [Marker(id=f"{n}", body=KeyRange(n, upper=5), sequence=9) for n in ids]

    for named in ((), (1,), (1, 3), (1, 3, 4)):
        assert reading_schema(schema, of_field(*named), then, now) is schema
    for named in ((2,), (1, 5), (1, 2, 3, 4, 5)):
        found = reading_schema(schema, of_field(*named), then, now)
        assert found.id == -1 and found.fields_by_id.keys() == {1, 2, 3, 4, 5}
        names = {field.id: field.name for field in found.fields_by_id.values()}
        assert [names[n] for n in (1, 3, 4)] == ["id", "s", "n"]
        assert (names[2], names[5]) == ("x (dropped, field 2)", "m (dropped, field 5)")
        assert found.fields[:2] == (id_, replace(wide, type=found.fields[1].type))
