"""The snapshot that a change makes of its base: what goes, what stays, what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyroaring import FrozenBitMap
from tests.maintenance.bench import new_bench

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Marker, Rows, Where
from inlay.format.predicate import Comparison, Literal
from inlay.format.schema import Primitive
from inlay.format.snapshot import (
    Boundary,
    Erasure,
    Expiration,
    Ref,
    Segment,
    Snapshot,
    Tier,
    Totals,
)
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AdvanceStream,
    Change,
    CloseErasures,
    DropMarkers,
    ExpireAll,
    ExpireThrough,
    ForgetExpirations,
    MoveBoundary,
    OpenErasure,
    PackMetadata,
    RemoveFiles,
    ReplaceFiles,
    Request,
    SetProperties,
    Unit,
)
from inlay.plan.commit.draft import Draft, always_commits
from inlay.plan.metadata.state import Contents, State

LONG = Primitive("int64")


def file(key: str, low: int, rows: int = 10, **more: Any) -> DataFile:
    stats = {1: ColumnStats(low, low + 9, 0, kind=LONG)}
    plain = {"size": 100, "footer_size": 50, "row_groups": 1, "schema_id": 0, "sequence": 3}
    return DataFile(key=key, rows=rows, stats=stats, **{**plain, **more})


def below(value: int) -> Comparison:
    return Comparison(1, "<", Literal(LONG, value))


@pytest.fixture(scope="module")
def base() -> Snapshot:
    """Files a (ids 0 to 9) and b (10 to 19)."""
    return replace(
        new_bench().load().snapshot,
        version=7,
        files=Tier((), (file("a", 0), file("b", 10))),
        markers=Tier(),
        totals=Totals(2, 20, 200, 0),
        changed=4,
        replaced=2,
    )


def built(
    base: Snapshot, *updates: Any, contents: Contents | None = None, **options: Any
) -> Snapshot | None:
    units = options.pop("units", ())
    change = Change(**{"operation": "o", "updates": updates, **options})
    state = State(base, contents or Contents())
    return Draft(state, change, units, (), "id", "salt").build()


def keys(snapshot: Snapshot | None) -> list[str]:
    assert snapshot is not None
    return [f.key for f in snapshot.files.inline]


@pytest.mark.parametrize(
    ("body", "left", "kept"),
    [
        (KeyRange(1, upper=9), ["b"], 0),
        (KeyRange(1, upper=8), ["a", "b"], 1),
        (KeyRange(1, upper=10), ["b"], 1),
        (KeyRange(1, upper=19), [], 0),
        (Where(below(10)), ["b"], 0),
        (KeyRange(1, lower=20), ["a", "b"], 0),
    ],
    ids=str,
)
def test_a_delete_takes_whole_files_and_is_kept_while_it_may_hit_another(
    base: Snapshot, body: Any, left: list[str], kept: int
) -> None:
    found = built(base, AddMarkers((Marker(id="m", body=body),)), deleted_rows=None)
    gone = 2 - len(left)
    if not gone and not kept:
        assert found is None
        return
    assert found is not None and keys(found) == left and len(found.markers.inline) == kept
    assert found.totals == Totals(len(left), 10 * len(left), 100 * len(left), kept)
    commit = found.commit
    assert (commit.removed_files, commit.added_markers, commit.added_files) == (gone, kept, 0)
    assert commit.removed_rows == (None if kept else 10 * gone)
    assert (found.changed, found.replaced, found.version) == (8, 2, 8)
    assert all(m.sequence == 8 for m in found.markers.inline)


@pytest.mark.parametrize(
    ("loaded", "upper", "kept"), [(True, 5, 1), (True, -1, 0), (False, 5, 1), (False, -1, 0)]
)
def test_a_delete_is_kept_while_it_may_hit_one_file_of_a_leaf(
    base: Snapshot, loaded: bool, upper: int, kept: int
) -> None:
    stats = {1: ColumnStats(0, 19, 0, kind=LONG)}
    leaf = Segment(id="s", count=2, size=1, sequence=3, rows=20, stats=stats)
    base = replace(base, files=Tier((leaf,), ()))
    for entries in ((file("a", 0), file("b", 10)), (file("b", 10), file("a", 0))):
        contents = Contents(files={"s": entries} if loaded else {})
        marker = AddMarkers((Marker(id="m", body=KeyRange(1, upper=upper)),))
        found = built(base, marker, PackMetadata(), contents=contents)
        assert found is not None and len(found.markers.inline) == kept


def test_rows_of_dropped_files_are_counted_unless_some_were_deleted_before(base: Snapshot) -> None:
    marker = AddMarkers((Marker(id="m", body=KeyRange(1, upper=9)),))
    for markers, count in ((0, 10), (1, None)):
        totals = replace(base.totals, markers=markers)
        found = built(replace(base, totals=totals), marker, deleted_rows=None)
        assert found is not None and found.commit.removed_rows == count
    for known in (0, 4):
        found = built(base, marker, deleted_rows=known)
        assert found is not None and found.commit.removed_rows == known
    empty = replace(base, files=Tier((), (file("a", 0, rows=0), file("c", 0, rows=1))))
    assert keys(built(empty, marker, deleted_rows=None)) == ["a"]


def test_a_delete_of_one_file_takes_no_file_and_is_kept(base: Snapshot) -> None:
    found = built(base, AddMarkers((Marker(id="m", body=KeyRange(1, upper=99), file="a"),)))
    assert keys(found) == ["a", "b"] and found is not None and len(found.markers.inline) == 1


@pytest.mark.parametrize(
    ("change", "goes"),
    [
        ({}, True),
        ({"dead": [0]}, False),  # the sums are of all entries
        ({"stats": {1: ColumnStats(0, 9, 0, sure=False)}}, False),
        ({"stats": {1: ColumnStats(0, 10, 0, sure=True)}}, False),
        ({"stats": {1: ColumnStats(0, 9, 1, sure=True)}}, False),
        ({"level": 1}, True),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_a_segment_that_was_not_read_goes_whole_where_its_bounds_are_sure(
    base: Snapshot, change: dict[str, Any], goes: bool, known: bool
) -> None:
    plain: dict[str, Any] = {"count": 3, "size": 1, "rows": 30, "bytes": 300}
    plain |= {"stats": {1: ColumnStats(0, 9, 0, sure=True)}, **change}
    plain["dead"] = FrozenBitMap(change.get("dead", ()))
    segment = Segment(id="s", **plain)
    totals = Totals(5, 50, 500, 0)
    snapshot = replace(base, files=Tier((segment,), base.files.inline), totals=totals)
    contents = Contents(files={"s": tuple(file(f"s{n}", 50) for n in range(3))} if known else {})
    marker = Marker(id="m", body=KeyRange(1, upper=9))
    found = built(snapshot, AddMarkers((marker,)), contents=contents, deleted_rows=None)
    assert found is not None
    gone = goes and not known
    assert (len(found.files.segments), found.totals.files) == ((0, 1) if gone else (1, 4))
    assert found.totals.rows == (10 if gone else 40)
    erasing = replace(marker, erasure="e")
    looked = built(snapshot, AddMarkers((erasing,)), contents=contents, deleted_rows=None)
    assert looked is not None and len(looked.files.segments) == 1, (
        "an erasure counts what it removes"
    )


def test_only_a_change_makes_a_version(base: Snapshot) -> None:
    assert built(base) is None and built(base, AddFiles(())) is None
    assert built(base, SetProperties({})) is None and built(base, RemoveFiles(())) is None
    assert built(base, DropMarkers(("none",))) is None
    for updates, options in (
        ((AddFiles((file("c", 0, sequence=None),)),), {}),
        ((SetProperties({"a": "b"}),), {}),
        ((PackMetadata(),), {}),
        ((), {"request": Request.of("r")}),
        ((), {"events": (Request.of("r"),)}),
        ((RemoveFiles(("a",)),), {}),
    ):
        found = built(base, *updates, **options)
        assert found is not None and found.version == 8


def test_rows_that_are_kept_are_not_counted_as_new(base: Snapshot) -> None:
    new = AddFiles((file("c", 0, rows=3, sequence=None),))
    packed = Unit(("a",), (file("d", 0, rows=9, sequence=None, data_change=False),), 7)
    found = built(
        base, new, ReplaceFiles((packed,)), units=(packed,), request=Request.of("r" * 300)
    )
    assert found is not None and keys(found) == ["b", "c", "d"]
    commit = found.commit
    assert (commit.added_files, commit.added_rows, commit.added_bytes) == (2, 3, 200)
    assert (commit.removed_files, commit.request) == (1, "r" * 200)
    assert [f.sequence for f in found.files.inline] == [3, 8, 8]
    assert found.totals == Totals(3, 22, 300, 0)


def test_markers_go_with_their_file_and_what_is_idle_where_it_is_to_be_dropped(
    base: Snapshot,
) -> None:
    on_a, on_b = (Marker(id=k, body=Rows((1,)), file=k, sequence=5) for k in "ab")
    on_gone = Marker(id="g", body=Rows((1,)), file="gone", sequence=5)
    idle = Marker(id="idle", body=KeyRange(1, upper=5), sequence=3)  # not older than the files
    busy = Marker(id="busy", body=KeyRange(1, upper=5), sequence=4)
    inline = (on_a, on_b, on_gone, idle, busy)
    snapshot = replace(base, markers=Tier((), inline), totals=replace(base.totals, markers=5))

    def left(*updates: Any, **options: Any) -> list[str]:
        found = built(snapshot, *updates, **options)
        assert found is not None and found.totals.markers == len(found.markers.inline)
        assert found.commit.removed_markers == 5 - len(found.markers.inline)
        return [m.id for m in found.markers.inline]

    everything = [m.id for m in inline]
    assert left(PackMetadata()) == everything
    assert left(RemoveFiles(("a",))) == ["b", "g", "idle", "busy"]
    assert left(DropMarkers(tuple(everything))) == ["a", "b", "busy"]
    assert left(DropMarkers(("g",))) == ["a", "b", "idle", "busy"]
    unit = Unit(("a",), (file("a", 0, sequence=6),), 7, applied=frozenset(("a",)))
    assert left(ReplaceFiles((unit,)), units=(unit,)) == ["b", "g", "idle", "busy"]
    # What was not read may hold its file.
    leaf = Segment(id="s", count=2, size=1, sequence=3, rows=20)
    snapshot = replace(snapshot, files=Tier((leaf,), base.files.inline))
    assert left(DropMarkers(("g",)), PackMetadata()) == everything


def test_an_idle_marker_of_an_erasure_goes_with_it(base: Snapshot) -> None:
    """At its end; what may still hit a row stays, and so do those of others."""
    inline = tuple(
        Marker(id=name, body=KeyRange(1, upper=upper), erasure=name, sequence=5)
        for name, upper in (("ended", -1), ("other", -1), ("busy", 5))
    )
    snapshot = replace(base, markers=Tier((), inline))
    for ids, kept in ((("ended",), ["other", "busy"]), (("busy",), ["ended", "other", "busy"])):
        found = built(snapshot, CloseErasures(ids, "sweep", None))
        assert found is not None and [m.id for m in found.markers.inline] == kept


@pytest.mark.parametrize(
    ("time_us", "moved"), [(None, (8, None)), (49, (3, 50)), (50, (3, 50)), (51, (8, 51))]
)
def test_the_boundary_moves_forward_alone(base: Snapshot, time_us: Any, moved: Any) -> None:
    snapshot = replace(base, boundary=Boundary(3, 50))
    found = built(snapshot, MoveBoundary(time_us))
    assert found is not None and (found.boundary.version, found.boundary.time_us) == moved
    first = built(replace(base, boundary=Boundary()), MoveBoundary(1))
    assert first is not None and first.boundary == Boundary(8, 1)


def test_versions_expire_once_and_what_says_where_they_end_stays(base: Snapshot) -> None:
    snapshot = replace(base, expired=(Expiration(2, 10), Expiration(4, 20), Expiration(5, None)))
    assert snapshot.oldest_version == 6
    for last, new in ((5, False), (6, True), (7, True)):
        found = built(snapshot, ExpireThrough(last))
        assert found is not None
        assert found.expired == (*snapshot.expired, *([Expiration(last, None)] if new else []))
    refs = {"b": Ref(kind="branch", version=5, base=4)}
    found = built(replace(snapshot, refs=refs), ExpireAll())
    assert found is not None and found.expired[-1] == Expiration(7, None)
    assert found.refs == {"b": Ref(kind="branch", version=5, base=0)}
    for before_us, left in ((10, [2, 4, 5]), (11, [2, 4, 5]), (20, [2, 4, 5]), (21, [4, 5])):
        found = built(snapshot, ForgetExpirations(before_us))
        assert found is not None and [e.through for e in found.expired] == left


def test_a_stream_advances_beside_the_others(base: Snapshot) -> None:
    first = built(base, AdvanceStream("q", 4))
    assert first is not None and dict(first.ledger.streams) == {"q": 4}
    second = built(replace(base, ledger=first.ledger), AdvanceStream("r", 0))
    assert second is not None and dict(second.ledger.streams) == {"q": 4, "r": 0}


def test_an_erasure_is_opened_with_what_its_marker_dropped(base: Snapshot) -> None:
    erasure = Erasure(
        id="e", predicate=below(10), text="", phase="rewrite", opened_version=0, opened_us=0
    )
    marker = Marker(id="e", body=Where(below(10)), erasure="e")
    found = built(base, OpenErasure(erasure), AddMarkers((marker,)), deleted_rows=None)
    assert found is not None and keys(found) == ["b"] and len(found.markers.inline) == 1
    [opened] = found.erasures
    assert (opened.objects, opened.rows) == (1, 10)
    assert (opened.opened_version, opened.phase_version) == (8, 8)
    nothing = built(base, OpenErasure(replace(erasure, id="f")))
    assert nothing is not None and (nothing.erasures[0].objects, nothing.erasures[0].rows) == (0, 0)
    unit = Unit(("b",), (file("d", 10, sequence=None),), 7, erased=(("e", 2, 3), ("none", 9, 9)))
    more = built(replace(base, erasures=(opened,)), ReplaceFiles((unit,)), units=(unit,))
    assert more is not None and (more.erasures[0].objects, more.erasures[0].rows) == (3, 13)


def test_a_version_that_changes_no_row_and_no_column_is_no_change(base: Snapshot) -> None:
    for update, changed in (
        (SetProperties({"a": "b"}), 4),
        (AddFiles((file("c", 0, sequence=None),)), 8),
        (RemoveFiles(("a",)), 8),
    ):
        found = built(base, update)
        assert found is not None and found.changed == changed
    removed = built(replace(base, properties={"a": "b", "c": "d"}), SetProperties({"a": None}))
    assert removed is not None and removed.properties == {"c": "d"}


def test_what_adds_or_takes_entries_depends_on_the_base() -> None:
    for update in (
        AddFiles(()),
        AddMarkers(()),
        RemoveFiles(()),
        ReplaceFiles(()),
        DropMarkers(()),
    ):
        assert not always_commits(update)
    assert not always_commits(SetProperties({})) and always_commits(SetProperties({"a": None}))
    assert always_commits(PackMetadata()) and always_commits(MoveBoundary(None))
    assert always_commits(AdvanceStream("q", 1)) and always_commits(ExpireThrough(0))


def test_the_columns_with_statistics_are_chosen_again_with_their_number(base: Snapshot) -> None:
    few = SetProperties({"stats.columns": "1"})
    snapshot = replace(base, stats_columns=(1, 2))
    for updates, columns in (
        ((few,), (1,)),
        ((few, AdvanceStream("q", 1)), (1,)),
        ((AdvanceStream("q", 1), few), (1,)),
        ((SetProperties({"a": "b"}),), (1, 2)),
    ):
        found = built(snapshot, *updates)
        assert found is not None and found.stats_columns == columns


def test_a_restamped_file_stays_where_it_is_unless_its_age_is_asked_for(base: Snapshot) -> None:
    """By an erasure that is open, or a marker of the table that comes with it."""
    unit = Unit(("a",), (file("a", 0, sequence=6),), 7)
    erasure = Erasure(
        id="e", predicate=below(1), text="", phase="rewrite", opened_version=3, opened_us=1
    )
    busy = Marker(id="busy", body=KeyRange(1, upper=5), sequence=4)
    new = AddMarkers((Marker(id="new", body=KeyRange(1, upper=5)),))
    for snapshot, more, sequence in (
        (base, (PackMetadata(),), 3),
        (replace(base, erasures=(erasure,)), (PackMetadata(),), 6),
        (base, (new,), 6),
        (replace(base, erasures=(erasure,)), (new,), 6),
        # A delete that is left, and would hit what is older than it.
        (replace(base, markers=Tier((), (busy,))), (PackMetadata(),), 6),
        (replace(base, markers=Tier((), (replace(busy, sequence=7),))), (PackMetadata(),), 3),
    ):
        found = built(snapshot, ReplaceFiles((unit,)), *more, units=(unit,))
        assert found is not None
        assert {f.key: f.sequence for f in found.files.inline} == {"a": sequence, "b": 3}
