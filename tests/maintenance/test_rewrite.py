"""Rewriting turns delete markers into absent rows, and loses neither rows nor deletes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap, BitMap64

from inlay.errors import InvalidRequest
from inlay.format.entry import Marker, RowGroups, Rows
from inlay.ops.commit.driver import Committed, commit
from inlay.ops.maintain import rewrite as rewrite_module
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.maintain.rewrite_file import kept_in_groups, rewrite_task
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.write.append import append
from inlay.plan.change import AddMarkers, Change, DropMarkers, ReplaceFiles, Unit
from inlay.plan.positions import PositionMap
from inlay.plan.scan import FileTask
from inlay.storage.base import ByteRange, Got
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore

from .bench import Bench, id_below, id_is


def _rewritten(bench: Bench, base: LoadedTable, extra: BitMap64 | None = None) -> Unit:
    """The only file of the table, without its deleted rows, and those at the positions `extra`."""
    [entry] = base.state.files()
    schema = base.snapshot.schema_by_id(entry.schema_id)
    task = FileTask(file=entry, schema=schema, markers=tuple(base.state.markers()))
    return rewrite_task(bench.ctx, base, task, extra=extra)[1].unit


def test_deleted_rows_are_gone_from_the_files_and_the_markers_from_the_table(bench: Bench) -> None:
    bench.append(10)
    bench.append(10)
    bench.delete(id_is(3, 14))
    before = bench.rows()

    result = rewrite(bench.ctx)

    assert bench.rows() == before
    state = bench.load().state
    assert list(state.markers()) == []
    assert sum(f.rows for f in state.files()) == 18
    assert (result.files, result.removed_rows, result.removed_markers) == (2, 2, 1)
    assert all(not f.data_change and f.origin for f in state.files())


def test_a_table_without_markers_is_left_as_it_is(bench: Bench) -> None:
    bench.append(10)
    version = bench.load().snapshot.version
    result = rewrite(bench.ctx)
    assert (result.version, result.commits, result.files) == (version, 0, 0)


def test_rewriting_twice_does_nothing_the_second_time(bench: Bench) -> None:
    bench.append(10)
    bench.delete(id_is(3))
    first = rewrite(bench.ctx)
    assert rewrite(bench.ctx).version == first.version


def test_a_file_without_a_live_row_leaves_the_table_unread(bench: Bench) -> None:
    bench.append(10)
    bench.append(10)
    [first, _] = bench.load().state.files()
    commit(
        bench.ctx,
        Change(
            operation="delete",
            updates=(AddMarkers((Marker(id="m", body=Rows(tuple(range(10))), file=first.key),)),),
        ),
    )
    bench.store.delete([bench.ctx.key(first.key)])
    result = rewrite(bench.ctx)
    assert (result.dropped, result.removed_rows) == (1, 10)
    assert bench.ids() == list(range(10, 20))
    assert list(bench.load().state.markers()) == []


def test_a_file_whose_rows_turn_out_deleted_one_by_one_is_dropped(bench: Bench) -> None:
    bench.append(4)
    bench.delete(id_is(0, 1))
    bench.delete(id_is(2, 3))
    result = rewrite(bench.ctx)
    assert (result.dropped, result.rewritten) == (1, 0)
    assert bench.load().snapshot.totals.rows == 0


def test_restamping_keeps_the_object_and_drops_the_marker(bench: Bench) -> None:
    bench.append(1, start=0)
    bench.append(1, start=2)
    compact(bench.ctx)  # one file with 0 and 2: its bounds cannot exclude 1
    [before] = bench.load().state.files()
    bench.delete(id_is(1))
    assert len(list(bench.load().state.markers())) == 1

    result = rewrite(bench.ctx)

    [after] = bench.load().state.files()
    assert (result.restamped, result.rewritten, result.written_bytes) == (1, 0, 0)
    assert after == before, "no delete is left that a newer sequence would rule out"
    assert list(bench.load().state.markers()) == []
    assert bench.ids() == [0, 2]
    assert bench.load().snapshot.totals.files == 1


def test_a_row_delete_that_lands_during_a_rewrite_is_moved_to_the_new_file(bench: Bench) -> None:
    bench.append(10)
    bench.delete(id_is(0, 5))
    base = bench.load()
    [entry] = base.state.files()
    unit = _rewritten(bench, base)
    # Rows 7 and 0 by position, while the rewrite is under way: one is still there, one is not.
    _land(bench, Marker(id="late", body=Rows((0, 7)), file=entry.key))

    done = commit(
        bench.ctx,
        Change(operation="rewrite", uploaded_us=base.date_us, updates=(ReplaceFiles((unit,)),)),
        base=base,
    )

    assert isinstance(done, Committed) and done.skipped == ()
    [moved] = [m for m in bench.load().state.markers() if m.file is not None]
    assert moved.body == Rows((5,))
    assert bench.ids() == [1, 2, 3, 4, 6, 8, 9]


def test_a_table_wide_delete_that_lands_during_a_rewrite_hits_the_new_file(bench: Bench) -> None:
    bench.append(10)
    bench.delete(id_is(0))
    base = bench.load()
    unit = _rewritten(bench, base)
    bench.delete(id_is(7))
    commit(bench.ctx, Change(operation="rewrite", updates=(ReplaceFiles((unit,)),)), base=base)
    assert bench.ids() == [1, 2, 3, 4, 5, 6, 8, 9]


def test_a_restamp_leaves_alone_a_row_delete_that_landed_meanwhile(bench: Bench) -> None:
    _append(bench, 0, 2)  # the bounds of this file cannot exclude 1
    bench.delete(id_is(1))
    base = bench.load()
    [entry] = base.state.files()
    _land(bench, Marker(id="late", body=Rows((1,)), file=entry.key))
    done = commit(bench.ctx, _restamp(base), base=base)
    assert isinstance(done, Committed) and done.skipped == ()
    assert [m.id for m in bench.load().state.markers()] == ["late"]
    assert bench.ids() == [0]


def _append(bench: Bench, *ids: int) -> None:
    append(bench.ctx, pa.table({"id": ids, "name": [f"v{i}" for i in ids]}))


def _restamp(base: LoadedTable, *only: str) -> Change:
    """What a rewrite commits that found these files (all) clean of every delete."""
    version = base.snapshot.version
    units = tuple(
        Unit((f.key,), (replace(f, sequence=version, data_change=False),), version)
        for f in base.state.files()
        if not only or f.key in only
    )
    markers = tuple(m.id for m in base.state.markers())
    return Change(operation="rewrite", updates=(ReplaceFiles(units), DropMarkers(markers)))


def test_a_restamp_moves_an_entry_only_where_a_delete_is_left_to_rule_out(bench: Bench) -> None:
    _append(bench, 0, 2)
    _append(bench, 10, 12)
    bench.delete(id_is(1, 11))
    base = bench.load()
    first, second = sorted(base.state.files(), key=lambda f: f.sequence or 0)
    commit(bench.ctx, _restamp(base, first.key), base=base)
    held = bench.load()
    assert len(list(held.state.markers())) == 1, "it may hit the second file"
    now = {f.key: f for f in held.state.files()}
    assert now[second.key] == second
    assert now[first.key].sequence == base.snapshot.version
    commit(bench.ctx, _restamp(held, second.key), base=held)
    after = bench.load()
    assert list(after.state.markers()) == []
    assert {f.key: f for f in after.state.files()}[second.key] == second
    assert sorted(bench.ids()) == [0, 2, 10, 12]


def test_a_delete_that_lands_during_a_restamp_hits_the_file_wherever_its_entry_is(
    bench: Bench,
) -> None:
    _append(bench, 0, 2)
    bench.delete(id_is(1))
    base = bench.load()
    [entry] = base.state.files()
    bench.delete(id_is(2))
    commit(bench.ctx, _restamp(base), base=base)
    assert list(bench.load().state.files()) == [entry]
    assert len(list(bench.load().state.markers())) == 1
    assert bench.ids() == [0]


def test_rows_deleted_by_the_same_commit_make_the_output_a_change_of_data(bench: Bench) -> None:
    bench.append(10)
    bench.delete(id_is(0))
    base = bench.load()
    [entry] = base.state.files()
    unit = _rewritten(bench, base, extra=BitMap64([3, 4]))
    commit(bench.ctx, Change(operation="delete", updates=(ReplaceFiles((unit,)),)), base=base)
    assert bench.ids() == [1, 2, 5, 6, 7, 8, 9]
    [output] = unit.outputs
    assert output.data_change and output.origin == entry.key


def test_a_unit_that_others_got_in_the_way_of_is_planned_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(10)
    bench.append(10)
    bench.delete(id_is(3, 14))
    import inlay.ops.maintain.rewrite_file as module

    real = module._as_a_whole
    fired: list[str] = []

    def interrupted(ctx, loaded, task, looked):  # type: ignore[no-untyped-def]
        if not fired:
            fired.append(task.file.key)
            # Whole row groups cannot be moved to the new file: the unit is lost.
            _land(bench, Marker(id="late", body=RowGroups((0,)), file=task.file.key))
        return real(ctx, loaded, task, looked)

    monkeypatch.setattr(module, "_as_a_whole", interrupted)
    result = rewrite(bench.ctx)
    assert result.skipped == 1
    assert bench.ids() == [i for i in range(10, 20) if i != 14]
    assert list(bench.load().state.markers()) == []


def test_only_files_that_may_hold_the_predicate_are_rewritten(bench: Bench) -> None:
    bench.append(10)
    bench.append(10)
    bench.delete(id_is(3, 14))
    result = rewrite(bench.ctx, where=id_below(5))
    assert result.files == 1
    # The other file still needs the marker.
    assert len(list(bench.load().state.markers())) == 1
    assert 14 not in bench.ids() and 3 not in bench.ids()


def test_the_budget_leaves_the_rest_for_the_next_run(bench: Bench) -> None:
    for _ in range(4):
        bench.append(10)
    bench.delete(id_is(1, 11, 21, 31))
    first = rewrite(bench.ctx, max_bytes=1)
    assert (first.files, first.left) == (1, 3)
    second = rewrite(bench.ctx)
    assert (second.files, second.left) == (3, 0)
    assert len(bench.ids()) == 36


def test_a_deadline_stops_between_files(bench: Bench) -> None:
    for _ in range(3):
        bench.append(10)
    bench.delete(id_is(1, 11, 21))
    result = rewrite(bench.ctx, deadline_seconds=0)
    assert (result.files, result.left) == (1, 2)


def test_a_dry_run_says_what_it_would_do_and_does_nothing(bench: Bench) -> None:
    bench.append(10)
    bench.delete(id_is(1))
    version = bench.load().snapshot.version
    result = rewrite(bench.ctx, dry_run=True)
    assert bench.load().snapshot.version == version
    [(key, choice)] = result.choices
    assert key.startswith("data/") and choice.method == "rewrite" and "small" in choice.reason


def test_a_file_that_cannot_be_read_does_not_stop_the_others(bench: Bench) -> None:
    bench.append(10)
    bench.append(10)
    bench.delete(id_is(3, 14))
    [first, _] = bench.load().state.files()
    whole = bench.store.get(bench.ctx.key(first.key)).body
    bench.store.put(bench.ctx.key(first.key), whole[:-20] + bytes(20))
    result = rewrite(bench.ctx)
    assert [f.key for f in result.failures] == [first.key]
    assert result.files == 1
    assert len(list(bench.load().state.markers())) == 1  # still needed by the broken file


def test_an_unknown_strategy_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidRequest, match="auto, surgery, rewrite"):
        rewrite(bench.ctx, strategy="magic")  # type: ignore[arg-type]


def test_the_position_map_of_a_rewrite_follows_the_kept_rows() -> None:
    found = PositionMap.of([3, 2, 2], kept_in_groups(BitMap([0, 2, 5, 6]), [3, 2, 2]))
    assert found.map([0, 2, 5, 6]) == [0, 1, 2, 3]
    assert found.map([1, 3, 4]) == []


def _land(bench: Bench, marker: Marker) -> None:
    done = commit(
        bench.ctx,
        Change(operation="delete", updates=(AddMarkers((marker,)),)),
        base=load_pointer(bench.ctx),
    )
    assert isinstance(done, Committed)


def test_ranges_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is just as long as what is left of the bound is; whoever only looks adds none."""
    monkeypatch.setattr(rewrite_module, "REMEMBERED_BYTES", 30)
    store = MeteredStore(MemoryStore("b"))
    store.put("o", bytes(range(100)))
    remembered = rewrite_module._RememberedRanges(store)

    def asks(start: int, end: int, of: Any = remembered) -> int:
        before = store.usage().requests.get("get", 0)
        got = of.get("o", byte_range=ByteRange(start, end))
        assert isinstance(got, Got) and got.body == bytes(range(start, end))
        return store.usage().requests.get("get", 0) - before

    aside = remembered.as_it_is()
    assert [asks(94, 95, aside), asks(94, 95, aside)] == [1, 1]
    assert [asks(0, 20), asks(20, 30), asks(30, 31)] == [1, 1, 1]
    assert [asks(0, 20), asks(5, 20), asks(21, 25), asks(19, 21), asks(30, 31)] == [0, 0, 0, 1, 1]
    assert asks(0, 5, remembered.as_it_is()) == 0
