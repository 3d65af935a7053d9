"""A delete drops whole what metadata proves to be hit, without loading it, and nothing that another writer
merely says is hit."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Keys, Marker, Rows, Where
from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.schema import Primitive
from inlay.format.snapshot import Erasure
from inlay.ops.commit.driver import commit
from inlay.plan.change import AddFiles, AddMarkers, Change, MoveErasures, OpenErasure, Reads
from inlay.plan.commit.conflicts import needed
from inlay.plan.metadata.state import count_totals
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import reference_may_hit

from .tables import Table

LONG = Primitive("int64")
# The column that a file of another writer is compared by, when it comes.
KEY = frozenset({1})


def rolled(*, files: int = 3000, foreign: int | None = None) -> Table:
    """Keys 0, 10, 20 … by file, in segments of which nothing is loaded. `foreign` is another writer's."""
    t = Table()
    made = [t.file(10 * n) for n in range(files)]
    if foreign is not None:
        made[foreign] = replace(made[foreign], event="landed")
    for start in range(0, files, 1000):
        t.commit(
            Change(
                operation="append",
                updates=(AddFiles(tuple(made[start : start + 1000]), compared=KEY),),
            )
        )
    t.tidy()
    t.forget()
    assert t.loaded.snapshot.files.segments and not t.loaded.state.contents.files
    return t


def at_least(low: int) -> Predicate:
    return Comparison(1, ">=", Literal(LONG, low))


def below(high: int) -> Predicate:
    return Comparison(1, "<", Literal(LONG, high))


def live(t: Table) -> list[DataFile]:
    return list(t.load().files())


def delete(t: Table, body: Any) -> Any:
    marker = Marker(id=t.ctx.new_id(), body=body)
    done = commit(
        t.ctx, Change(operation="delete", updates=(AddMarkers((marker,)),)), base=t.loaded
    )
    t.loaded = done.loaded
    return done


@pytest.mark.parametrize(
    "body",
    [Where(below(25_000)), KeyRange(1, None, 25_000, True, False)],
    ids=["predicate", "range"],
)
def test_segments_that_a_delete_empties_are_dropped_unread(body: Any) -> None:
    t = rolled()
    before = {f.key: f for f in live(t)}
    segments = {s.id: s for s in t.loaded.snapshot.files.segments}
    t.forget()
    delete(t, body)
    snapshot = t.loaded.snapshot
    gone = [s for i, s in segments.items() if i not in {k.id for k in snapshot.files.segments}]
    assert gone, "no segment was dropped"
    assert snapshot.commit.removed_files == sum(s.live for s in gone) > 0
    left = live(t)
    assert {f.key for f in left} < set(before)
    assert all(
        f.stats[1].lower < 25_000 for k, f in before.items() if k not in {x.key for x in left}
    )
    # All that matches is dropped or hit by the marker that stays for the rest.
    state = t.load()
    assert snapshot.totals == count_totals(state.files(), state.markers())
    assert not list(t.unsound())


@pytest.mark.parametrize("foreign", [0, 7, 999])
def test_a_segment_with_another_writers_file_is_not_dropped_by_its_bounds(foreign: int) -> None:
    """Its rows may be others than its footer says: the marker stays, and so does the file."""
    t = rolled(files=1000, foreign=foreign)
    [of] = [f for f in live(t) if f.is_foreign]
    t.forget()
    delete(t, Where(at_least(0)))
    assert of.key in {f.key for f in live(t)}
    assert [m.body for m in t.load().markers()] == [Where(at_least(0))]


def test_a_segment_that_is_partly_dead_is_not_counted_twice() -> None:
    t = rolled(files=1000)
    keys = [f.key for f in live(t)][:10]
    t.loaded = replace(t.loaded, state=t.load())
    t.replace(tuple(keys), [])
    assert any(s.live < s.count for s in t.loaded.snapshot.files.segments)
    t.forget()
    delete(t, Where(at_least(0)))
    state = t.load()
    assert t.loaded.snapshot.totals == count_totals(state.files(), state.markers())
    assert not list(t.unsound())


@pytest.mark.parametrize("read", [False, True])
def test_markers_of_files_go_with_a_segment_that_was_read(read: bool) -> None:
    """Nobody knows the files of a segment that is dropped unread: readers ignore their markers."""
    t = rolled(files=1000)
    marker = Marker(id=t.ctx.new_id(), body=Rows((0,)), file=live(t)[3].key)
    change = Change(operation="delete", updates=(AddMarkers((marker,)),))
    t.loaded = commit(t.ctx, change, base=replace(t.loaded, state=t.load())).loaded
    t.forget()
    if read:
        t.loaded = replace(t.loaded, state=t.load())
    delete(t, Where(at_least(0)))
    assert live(t) == []
    assert t.loaded.snapshot.totals.markers == (0 if read else 1)


@pytest.mark.parametrize("own", [0, 1, 5])
def test_bounds_over_many_files_are_sure_only_if_all_are_ours(own: int) -> None:
    dice = random.Random(own)
    t = Table()
    ours = [t.file(n) for n in range(own)]
    theirs = [replace(t.file(100 + n), event="landed") for n in range(2)]
    evidence = Evidence.of_snapshot(t.loaded.snapshot)
    mixed = [*ours, *theirs]
    dice.shuffle(mixed)
    _, found = evidence.of_files(mixed, [1])
    assert found[1].sure is False
    if ours:
        _, found = evidence.of_files(ours, [1])
        assert found[1].sure is True


def test_a_delete_elsewhere_opens_no_segment() -> None:
    """Whatever its kind: by a range, a condition or keys below everything that there is."""
    t = rolled(files=1000)
    [segment] = t.loaded.snapshot.files.segments
    evidence = Evidence.of_snapshot(t.loaded.snapshot)
    keys = keys_of(Primitive("int64"), [-7])
    for apart, near in (
        (Where(below(0)), Where(below(1))),
        (KeyRange(1, None, -1), KeyRange(1, None, 0)),
        (KeyRange(1, 50_000, None), KeyRange(1, 9_000, None)),
        (keys, keys_of(Primitive("int64"), [40])),
    ):
        assert not reference_may_hit(Marker(id="m", body=apart), segment, evidence)
        assert reference_may_hit(Marker(id="m", body=near), segment, evidence)
        delete(t, apart)
        assert t.loaded.snapshot.markers.inline == (), "a marker that hits nothing is kept"


def test_rows_of_a_file_in_a_segment_that_is_not_loaded_can_be_deleted() -> None:
    t = rolled(files=1000)
    key = live(t)[500].key
    t.forget()
    [marker] = t.mark([key])
    assert [m.id for m in t.load().markers()] == [marker]
    t.forget()
    t.replace((key,), [])
    assert key not in {f.key for f in live(t)} and not list(t.load().markers())


def keys_of(kind: Primitive, values: list[int]) -> Keys:
    stats = {1: ColumnStats(min(values), max(values), 0, kind=kind)}
    return Keys((1,), "k", 1, len(values), stats)


def test_only_the_step_that_forgets_an_erasure_looks_into_every_file() -> None:
    t = rolled(files=1000)
    for predicate, whole in ((None, True), (below(5), False)):
        moved = Erasure(
            id="e", predicate=predicate, text="", phase="purge", opened_version=1, opened_us=1
        )
        change = Change(operation="erase", updates=(MoveErasures((moved,), "rewrite"),))
        asked = needed(t.loaded.state, change)
        missing = t.loaded.snapshot.files.segments if whole else ()
        assert (asked.files if asked is not None else ()) == missing


def test_what_names_no_marker_opens_no_segment_of_markers() -> None:
    t = rolled(files=3000)
    t.loaded = replace(t.loaded, state=t.load())
    for start in range(0, 3000, 1000):
        t.mark([f.key for f in live(t)][start : start + 1000])
    t.tidy()
    t.forget()
    segments = t.loaded.snapshot.markers.segments
    assert segments and not t.loaded.state.contents.markers
    append = Change(operation="append", updates=(AddFiles((t.file(5),)),))
    assert needed(t.loaded.state, append) is None
    below_all = Marker(id="m", body=Where(below(-5)))
    assert (
        needed(t.loaded.state, Change(operation="delete", updates=(AddMarkers((below_all,)),)))
        is None
    )
    version = t.loaded.snapshot.version
    for since, asked in ((version, ()), (0, segments)):
        reads = Change(operation="update", requires=(Reads(at_least(10**9), since),))
        found = needed(t.loaded.state, reads)
        assert (found.markers if found is not None else ()) == asked


def test_an_erasure_that_drops_nothing_has_counted_nothing() -> None:
    table = Table()
    table.append(table.files(3))
    opened = Erasure(
        id="e", predicate=None, text="", phase="rewrite", opened_version=0, opened_us=1
    )
    table.commit(Change(operation="delete", updates=(OpenErasure(opened),)))
    [erasure] = table.loaded.snapshot.erasures
    assert (erasure.objects, erasure.rows) == (0, 0)
    assert erasure.opened_version == erasure.phase_version == table.loaded.snapshot.version
