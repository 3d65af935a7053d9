"""Compaction keeps every row, and leaves fewer files, markers and segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import inlay.ops.maintain.compact as module
from inlay.format.entry import Marker, MarkerBody, RowGroups, Rows, Where
from inlay.ops.commit.driver import commit
from inlay.ops.maintain.compact import compact
from inlay.ops.metadata.load import load_entries
from inlay.plan.change import AddMarkers, Change, RemoveFiles
from inlay.plan.maintain.compaction import (
    CompactionUnit,
    _Run,
    _worth_joining,
    plan_compaction,
    worth_merging,
)
from inlay.plan.metadata.state import State

from .bench import Bench, id_below, id_is, new_bench


def test_small_files_become_one(bench: Bench) -> None:
    for _ in range(5):
        bench.append(10)
    before = sorted(bench.rows())
    result = compact(bench.ctx)
    assert (result.units, result.input_files, result.output_files) == (1, 5, 1)
    assert sorted(bench.rows()) == before
    [entry] = bench.load().state.files()
    assert not entry.data_change
    assert bench.load().snapshot.totals.files == 1


def test_compacting_a_compacted_table_does_nothing(bench: Bench) -> None:
    for _ in range(5):
        bench.append(10)
    first = compact(bench.ctx)
    second = compact(bench.ctx)
    assert (second.version, second.commits) == (first.version, 0)


def test_deletes_are_folded_into_the_files_that_are_packed(bench: Bench) -> None:
    for _ in range(3):
        bench.append(10)
    bench.delete(id_is(3, 14))
    bench.delete(id_is(25), mode="vector")
    before = sorted(bench.rows())
    result = compact(bench.ctx)
    assert result.removed_rows == 3
    assert list(bench.load().state.markers()) == []
    assert sorted(bench.rows()) == before
    assert bench.load().snapshot.totals.rows == 27


@pytest.mark.parametrize(
    ("groups", "deletes", "folded"),
    [
        (2, [], False),
        (2, [Rows((0,))], False),
        (2, [Rows((0, 5))], True),  # half of a row group may be gone
        (1, [Rows((0, 5))], False),
        (2, [Rows((0,)), Rows((5,))], False),  # they may be the same row
        (2, [RowGroups((1,)), Rows((0,))], True),
        (2, [Where(id_below(1)), Rows((0,))], True),  # evaluated by each scan
    ],
)
def test_deletes_are_folded_where_scans_pay_for_them(
    groups: int, deletes: list[MarkerBody], folded: bool
) -> None:
    """Of a file of eight rows that is large enough."""
    bench = new_bench(properties=[("write.row_group_rows", 8 // groups)])
    bench.append(8)
    [entry] = bench.load().state.files()
    assert entry.row_groups == groups
    for body in deletes:
        marker = Marker(id=bench.ctx.new_id(), body=body, file=entry.key)
        commit(bench.ctx, Change(operation="delete", updates=(AddMarkers((marker,)),)))
    units = plan_compaction(bench.load().state, small_bytes=1).units
    assert [unit.kind for unit in units] == ["fold"] * folded


@given(st.lists(st.integers(1, 9), max_size=7), st.integers(1, 30))
def test_runs_are_joined_unless_one_is_most_of_them(sizes: list[int], target: int) -> None:
    """As many of the last as one file holds, of which the largest is at most two thirds."""
    ends = [sizes[-n:] for n in range(2, len(sizes) + 1)]
    worth = [e for e in ends if sum(e) <= target and 3 * max(e) <= 2 * sum(e)]
    joined = _worth_joining([_Run((), size) for size in sizes], target)
    assert joined == max(map(len, worth), default=0)


def test_a_file_whose_rows_are_all_deleted_is_dropped_unread(bench: Bench) -> None:
    bench.append(10)
    bench.append(10)
    [first, _] = bench.load().state.files()
    _mark(bench, first.key, tuple(range(10)))
    bench.store.delete([bench.ctx.key(first.key)])
    result = compact(bench.ctx)
    assert (result.units, result.input_bytes) == (1, 0)
    assert bench.ids() == list(range(10, 20))


@pytest.mark.parametrize("bad", [1, 4])
def test_a_file_that_cannot_be_read_keeps_no_other_from_being_packed(
    bench: Bench, bad: int
) -> None:
    """It was planned together with its neighbours, in every run: they failed with it, for ever."""
    for _ in range(8):
        bench.append(10)
    damaged = {f.key: f.size for f in list(bench.load().state.files())[::2][:bad]}
    for key, size in damaged.items():
        bench.store.put(bench.ctx.key(key), bytes(size))
    result = compact(bench.ctx)
    assert sorted(f.key for f in result.failures) == sorted(damaged)
    assert (result.units, result.input_files) == (1, 8 - bad)
    assert {f.key for f in bench.load().state.files()} > damaged.keys()
    again = compact(bench.ctx)
    assert (again.units, again.left) == (0, 0)


def test_a_large_file_with_few_deleted_rows_is_left_and_with_many_rewritten(bench: Bench) -> None:
    bench.append(100)
    [entry] = bench.load().state.files()
    _mark(bench, entry.key, (1, 2, 3))
    assert compact(bench.ctx, small_bytes=0).units == 0
    _mark(bench, entry.key, tuple(range(60)))
    result = compact(bench.ctx, small_bytes=0)
    assert (result.units, result.removed_rows) == (1, 60)
    assert bench.ids() == list(range(60, 100))


def test_rows_stay_in_sort_order_within_outputs() -> None:
    bench = new_bench(sort_by=("id",))
    for start in (50, 10, 30, 0):
        bench.append(10, start=start)
    compact(bench.ctx)
    assert bench.ids() == sorted(bench.ids())
    assert len(bench.ids()) == 40


def test_packing_stops_at_the_target_size() -> None:
    bench = new_bench()
    for _ in range(6):
        bench.append(50)
    size = max(f.size for f in bench.load().state.files())
    plan = plan_compaction(bench.load().state, target_bytes=2 * size + 2, small_bytes=1 << 30)
    assert [len(u.inputs) for u in plan.units] == [2, 2, 2]


def test_the_best_units_are_taken_within_the_budget() -> None:
    bench = new_bench()
    for _ in range(6):
        bench.append(50)
    size = max(f.size for f in bench.load().state.files())
    result = compact(bench.ctx, target_bytes=2 * size + 2, max_bytes=2 * size + 2)
    assert (result.units, result.left) == (1, 2)
    assert len(bench.ids()) == 300


def test_a_large_file_is_not_rewritten_for_a_few_new_rows(bench: Bench) -> None:
    bench.append(20_000)
    bench.append(1)
    assert plan_compaction(bench.load().state).units == ()


def test_many_small_files_do_not_take_up_a_large_neighbour(bench: Bench) -> None:
    bench.append(10)
    bench.append(60_000)
    for _ in range(12):
        bench.append(10)
    before = bench.rows()
    [_, large, *_] = (f.key for f in bench.load().state.files())
    result = compact(bench.ctx)
    assert (result.units, result.input_files, result.output_files) == (1, 12, 1)
    assert large in {f.key for f in bench.load().state.files()}
    assert bench.rows() == before
    assert plan_compaction(bench.load().state).empty


@given(
    sizes=st.lists(
        st.integers(0, 24).map(lambda n: 3**n // 2**n + 100) | st.integers(1, 600),
        min_size=1,
        max_size=40,
    ),
    target=st.integers(200, 40_000) | st.integers(200, 2_000),
    below=st.integers(1, 4),
)
@example(sizes=[101] * 11 + [229, 294, 101, 107, 101, 101], target=502, below=1)
def test_packing_is_worth_what_it_reads_and_ends(sizes: list[int], target: int, below: int) -> None:
    """By sizes alone: what a pack makes is as large as its inputs together."""
    loaded = SIZED.load().state
    [entry] = loaded.files()
    small = target // below

    def plan_of(files: list[tuple[str, int, int]]) -> list[list[str]]:
        entries = (
            replace(entry, key=key, size=size, sequence=100, arrived=n) for key, size, n in files
        )
        tier = replace(loaded.snapshot.files, inline=tuple(entries))
        state = State(replace(loaded.snapshot, files=tier))
        units = plan_compaction(state, target_bytes=target, small_bytes=small).units
        return [list(unit.inputs) for unit in units]

    files = [(f"f{n:03}", size, n) for n, size in enumerate(sizes, 1)]
    size_of = {key: size for key, size, _ in files}
    order = list(size_of)
    units = plan_of(files)
    packed = [key for unit in units for key in unit]
    assert len(packed) == len(set(packed))
    full = {k for unit in units if sum(size_of[k] for k in unit) >= small for k in unit}
    for unit in units:
        inputs = [size_of[key] for key in unit]
        assert len(unit) > 1 and sum(inputs) <= target
        assert sum(inputs) - max(inputs) >= max(inputs) / 2
        between = order[order.index(unit[0]) : order.index(unit[-1]) + 1]
        assert unit == [k for k in between if size_of[k] < small and (k in unit or k not in full)]
    unit_of = {unit[-1]: unit for unit in units}
    after = [
        (key, sum(size_of[k] for k in unit_of[key]) if key in unit_of else size, n)
        for key, size, n in files
        if key not in packed or key in unit_of
    ]
    assert plan_of(after) == []


SIZED = new_bench()
SIZED.append(1)


def test_a_dry_run_returns_the_plan(bench: Bench) -> None:
    bench.append(10)
    bench.append(10)
    version = bench.load().snapshot.version
    result = compact(bench.ctx, dry_run=True)
    assert result.plan is not None and [u.kind for u in result.plan.units] == ["pack"]
    assert bench.load().snapshot.version == version


def _after_the_first_unit(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[CompactionUnit], object]
) -> None:
    """Somebody else changes the table after the first unit is written, before it is committed."""
    real = module.carry_out
    fired: list[int] = []

    def interrupted(ctx, loaded, unit, target_bytes):  # type: ignore[no-untyped-def]
        done = real(ctx, loaded, unit, target_bytes)
        if not fired:
            fired.append(1)
            change(unit)
        return done

    monkeypatch.setattr(module, "carry_out", interrupted)


def test_a_unit_whose_input_was_marked_meanwhile_is_planned_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(10)
    bench.append(10)

    def change(unit: CompactionUnit) -> None:
        bench.append(5)
        _mark(bench, unit.inputs[0], (4,))

    _after_the_first_unit(monkeypatch, change)
    result = compact(bench.ctx)
    assert (result.skipped, result.units) == (1, 1)
    assert sorted(bench.ids()) == [i for i in range(25) if i != 4]


def test_a_table_wide_delete_during_compaction_hits_its_output(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(10)
    bench.append(10)
    _after_the_first_unit(monkeypatch, lambda unit: bench.delete(id_is(4, 14)))
    compact(bench.ctx)
    assert bench.ids() == [i for i in range(20) if i not in (4, 14)]


def test_the_ledger_is_not_touched(bench: Bench) -> None:
    for _ in range(60):
        bench.append(3)
    ledger = bench.load().snapshot.ledger
    compact(bench.ctx)
    assert bench.load().snapshot.ledger.horizon_us == ledger.horizon_us


def test_appends_alone_never_leave_metadata_worth_merging() -> None:
    bench = new_bench()
    for _ in range(120):
        assert not worth_merging(bench.append(1).snapshot)


def test_leaves_that_are_mostly_dead_are_written_again() -> None:
    bench = new_bench()
    while sum(s.count for s in bench.load().snapshot.files.segments) < 30:
        bench.append(1)
    oldest = [f.key for f in load_entries(bench.ctx, bench.load().state).files()]
    commit(
        bench.ctx,
        Change(operation="delete", updates=(RemoveFiles(tuple(oldest[: len(oldest) * 3 // 4])),)),
    )
    before = bench.rows()
    assert worth_merging(bench.load().snapshot)
    result = compact(bench.ctx, small_bytes=0)
    assert result.merged_metadata and result.units == 0
    after = bench.load().snapshot
    assert not worth_merging(after) and not any(s.dead for s in after.files.segments)
    assert bench.rows() == before


def test_covered_rows_of_a_retention_delete_leave_by_metadata_alone(bench: Bench) -> None:
    bench.append(10)
    bench.append(10)
    bench.delete(id_below(10))
    assert bench.ids() == list(range(10, 20))
    assert bench.load().snapshot.totals.files == 1


def _mark(bench: Bench, file: str, positions: tuple[int, ...]) -> None:
    marker = Marker(id=bench.ctx.new_id(), body=Rows(positions), file=file)
    commit(bench.ctx, Change(operation="delete", updates=(AddMarkers((marker,)),)))
