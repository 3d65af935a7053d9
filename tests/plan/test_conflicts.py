"""The conflict matrix of docs/FORMAT.md, section 10: every pair of operations, in both orders.

Each test plans two changes on one base, commits the first, then the second on top of it, and looks at
the outcome and at which rows are live afterwards.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pyarrow as pa
import pytest
from pyroaring import BitMap

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Marker, Rows, Vector, Where
from inlay.format.predicate import Comparison, Literal, Predicate
from inlay.format.schema import Field, Primitive
from inlay.format.snapshot import Erasure, PartitionField, Segment, Tier
from inlay.ops.commit.driver import Committed, Conflicted, Skipped, commit
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import LoadedTable, load_entries, load_pointer
from inlay.ops.schema.create import create
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AlterSchema,
    Change,
    CloseErasures,
    DropMarkers,
    ExpireThrough,
    MoveErasures,
    NeedSegments,
    NextReceipts,
    OnlyFiles,
    OpenErasure,
    PackMetadata,
    Proposal,
    Reads,
    RecountTotals,
    RemoveFiles,
    ReplaceFiles,
    Request,
    SameContent,
    SetPartitioning,
    SetProperties,
    Unchanged,
    Unit,
)
from inlay.plan.commit.apply import apply
from inlay.plan.commit.conflicts import (
    _newer_or,
    named_files,
    needed,
    units_that_hold,
    validate,
)
from inlay.plan.metadata.state import Contents, State
from inlay.plan.positions import PositionMap
from inlay.plan.schema_evolution import Evolution
from inlay.storage.memory import MemoryStore

INT = Primitive("int64")


@pytest.fixture
def ctx() -> Context:
    return Context(
        store=MemoryStore("b"),
        root="tables/t",
        uri="memory://b/tables/t",
        executor=InlineExecutor(),
        random=random.Random(1),
    )


@pytest.fixture
def base(ctx: Context) -> LoadedTable:
    """Files a (ids 0…9) and b (ids 10…19), ten rows each."""
    loaded = create(ctx, pa.schema([("id", pa.int64())]), primary_key=["id"])
    return done(
        commit(
            ctx,
            Change(operation="append", updates=(AddFiles((file("a", 0), file("b", 10))),)),
            base=loaded,
        )
    )


def file(key: str, low: int, rows: int = 10, **more) -> DataFile:
    stats = {1: ColumnStats(lower=low, upper=low + rows - 1, null_count=0)}
    return DataFile(
        key=key, size=100, footer_size=50, rows=rows, row_groups=1, schema_id=0, stats=stats, **more
    )


def done(result) -> LoadedTable:
    assert isinstance(result, Committed), result
    return result.loaded


def below(n: int) -> Comparison:
    return Comparison(1, "<", Literal(INT, n))


def append(_: LoadedTable, key: str = "new", low: int = 3) -> Change:
    return Change(operation="append", updates=(AddFiles((file(key, low),)),))


def table_delete(_: LoadedTable) -> Change:
    marker = Marker(id="range", body=KeyRange(1, 3, 6))
    return Change(operation="delete", deleted_rows=None, updates=(AddMarkers((marker,)),))


def row_delete(_: LoadedTable, marker: str = "rows", positions=(1, 2)) -> Change:
    return Change(
        operation="delete",
        deleted_rows=len(positions),
        updates=(AddMarkers((Marker(id=marker, body=Rows(tuple(positions)), file="a"),)),),
    )


def update(base: LoadedTable, key: str = "updated") -> Change:
    """Rows below 5 were read from file a and are inserted again."""
    return Change(
        operation="update",
        updates=(
            AddFiles((file(key, 0, rows=5),)),
            AddMarkers((Marker(id=f"w-{key}", body=Where(below(5))),)),
        ),
        requires=(Reads(below(5), base.snapshot.version, frozenset({"a"})),),
    )


def upsert(_: LoadedTable, key: str = "upserted") -> Change:
    return Change(
        operation="upsert",
        updates=(
            AddFiles((file(key, 3, rows=1),)),
            AddMarkers((Marker(id=f"k-{key}", body=KeyRange(1, 3, 3)),)),
        ),
    )


def rewrite(base: LoadedTable, key: str = "rewritten") -> Change:
    output = file(key, 0, data_change=False, sequence=base.snapshot.version, origin="a")
    unit = Unit(("a",), (output,), base.snapshot.version, positions=PositionMap.of([10], {}))
    return Change(operation="rewrite", updates=(ReplaceFiles((unit,)),))


def compact(base: LoadedTable, key: str = "packed") -> Change:
    output = file(key, 0, rows=20, data_change=False, sequence=base.snapshot.version)
    return Change(
        operation="compact",
        updates=(ReplaceFiles((Unit(("a", "b"), (output,), base.snapshot.version),)),),
    )


def expire(base: LoadedTable) -> Change:
    update = ExpireThrough(base.snapshot.version - 1)
    return Change(operation="expire", updates=(update,))


def partition(base: LoadedTable, buckets: int = 4) -> Change:
    fields = (PartitionField(1, f"bucket[{buckets}]", "id_bucket"),)
    update = SetPartitioning(base.snapshot.spec_id, fields)
    return Change(operation="set_partitioning", updates=(update,))


PLANNERS = {
    "append": append,
    "table delete": table_delete,
    "row delete": row_delete,
    "update": update,
    "upsert": upsert,
    "rewrite": rewrite,
    "compact": compact,
    "expire": expire,
    "partition": partition,
}

OK, AGAIN, SKIP, REMAP = "ok", "plan again", "unit given up", "remapped"

# (landed, planned) → what becomes of the planned one. Whatever is not listed is OK.
MATRIX: dict[tuple[str, str], str] = {
    # row deletes name file a
    ("rewrite", "row delete"): AGAIN,
    ("compact", "row delete"): AGAIN,
    # updates read file a, rows below 5
    ("append", "update"): AGAIN,
    ("table delete", "update"): AGAIN,
    ("row delete", "update"): AGAIN,
    ("update", "update"): AGAIN,
    ("upsert", "update"): AGAIN,
    ("rewrite", "update"): AGAIN,
    ("compact", "update"): AGAIN,
    # units need their inputs unchanged
    ("row delete", "rewrite"): REMAP,
    ("row delete", "compact"): SKIP,
    ("rewrite", "rewrite"): SKIP,
    ("rewrite", "compact"): SKIP,
    ("compact", "rewrite"): SKIP,
    ("compact", "compact"): SKIP,
    # into as many buckets as nobody else wants
    ("partition", "partition"): AGAIN,
}


@pytest.mark.parametrize(("landed", "planned"), list(itertools.product(PLANNERS, PLANNERS)))
def test_the_matrix_holds_for_every_pair(ctx, base, landed, planned):
    first, second = PLANNERS[landed](base), PLANNERS[planned](base)
    if landed == planned and second.added:
        other = AddFiles((replace(second.added[0], key="second"),))
        kept = (u for u in second.updates if not isinstance(u, AddFiles))
        second = replace(second, updates=(other, *kept))
    if landed == planned == "partition":
        second = partition(base, buckets=8)
    done(commit(ctx, first, base=base))
    before = load_pointer(ctx).snapshot

    result = commit(ctx, second, base=base)

    after = load_pointer(ctx).snapshot
    expected = MATRIX.get((landed, planned), OK)
    if expected == AGAIN:
        assert isinstance(result, Conflicted)
        assert after == before, "a conflict must leave no trace"
    elif expected == SKIP:
        assert isinstance(result, Skipped)
        assert result.skipped == second.units
        assert after == before
    else:
        assert isinstance(result, Committed)
        assert after.version == before.version + 1
        assert after.commit.id == result.loaded.snapshot.commit.id
    if expected == REMAP:
        (marker,) = [m for m in load_entries(ctx, result.loaded.state).markers() if m.file]
        assert (marker.file, marker.body) == ("rewritten", Rows((1, 2)))


def test_appends_of_disjoint_key_ranges_do_not_disturb_an_update(ctx, base):
    done(commit(ctx, append(base, low=100), base=base))
    assert isinstance(commit(ctx, update(base), base=base), Committed)


def test_a_delete_that_cannot_hit_what_was_read_does_not_disturb_an_update(ctx, base):
    far = Marker(id="far", body=KeyRange(1, 15, 16))
    done(commit(ctx, Change(operation="delete", updates=(AddMarkers((far,)),)), base=base))
    assert isinstance(commit(ctx, update(base), base=base), Committed)


def test_compaction_outputs_are_no_arrivals(ctx, base):
    """A file without a change of data may match the predicate of an update and still add no rows."""
    moved = file("c2", 100, data_change=False, sequence=2)
    done(commit(ctx, append(base, key="c", low=100), base=base))
    now = load_pointer(ctx)
    unit = Unit(("c",), (moved,), now.snapshot.version)
    done(commit(ctx, Change(operation="compact", updates=(ReplaceFiles((unit,)),)), base=now))
    assert isinstance(commit(ctx, update(base), base=base), Committed)


def test_an_arrival_that_was_packed_with_old_rows_is_still_an_arrival(ctx, base):
    """The simulator found it (seed 1037): compaction laundered a row that an update had to read."""
    arrived = done(commit(ctx, append(base, key="c", low=0), base=base))
    packed = file("cb", 0, rows=20, data_change=False, sequence=arrived.snapshot.version)
    unit = Unit(("b", "c"), (packed,), arrived.snapshot.version)
    done(commit(ctx, Change(operation="compact", updates=(ReplaceFiles((unit,)),)), base=arrived))
    assert isinstance(commit(ctx, update(base), base=base), Conflicted)


def test_serializable_deletes_conflict_with_arrivals_and_snapshot_ones_do_not(ctx, base):
    reads = Reads(below(5), base.snapshot.version, frozenset({"a"}))
    done(commit(ctx, append(base, low=0), base=base))
    assert isinstance(
        commit(ctx, replace(row_delete(base), requires=(reads,)), base=base), Conflicted
    )
    assert isinstance(commit(ctx, row_delete(base), base=base), Committed)


def test_row_deletes_of_one_file_unite(ctx, base):
    done(commit(ctx, row_delete(base, "one", (1, 2)), base=base))
    after = done(commit(ctx, row_delete(base, "two", (2, 7)), base=base))
    found = {p for m in after.state.markers() for p in m.body.positions}
    assert found == {1, 2, 7}


def test_a_remapped_marker_follows_its_rows(ctx, base):
    """Rows 0…4 of file a are rewritten away; rows 3 and 8 are deleted meanwhile."""
    done(commit(ctx, row_delete(base, positions=(3, 8)), base=base))
    kept = PositionMap.of([5, 5], {0: BitMap()})
    output = file("rewritten", 5, rows=5, sequence=base.snapshot.version, origin="a")
    unit = Unit(("a",), (output,), base.snapshot.version, positions=kept)
    after = done(
        commit(ctx, Change(operation="rewrite", updates=(ReplaceFiles((unit,)),)), base=base)
    )
    (marker,) = after.state.markers()
    assert marker.body == Rows((3,)), "old position 8 is the fourth row kept; row 3 is gone"


def test_vectors_in_objects_are_not_remapped_but_cost_the_unit(ctx, base):
    vector = Marker(id="v", body=Vector("tombstone/x.puffin", 4, 40, 2), file="a")
    done(commit(ctx, Change(operation="delete", updates=(AddMarkers((vector,)),)), base=base))
    result = commit(ctx, rewrite(base), base=base)
    assert isinstance(result, Skipped) and result.skipped


def test_one_unit_failing_costs_only_that_unit(ctx, base):
    done(commit(ctx, row_delete(base), base=base))
    version = base.snapshot.version
    bad = Unit(("a",), (file("a2", 0, sequence=version),), version)
    good = Unit(("b",), (file("b2", 10, sequence=version),), version)
    result = commit(
        ctx, Change(operation="compact", updates=(ReplaceFiles((bad, good)),)), base=base
    )
    assert isinstance(result, Committed) and result.skipped == (bad,)
    assert {f.key for f in result.loaded.state.files()} == {"a", "b2"}


def test_a_delete_by_copy_on_write_is_whole_or_not_at_all(ctx, base):
    done(commit(ctx, row_delete(base), base=base))
    version = base.snapshot.version
    units = (
        Unit(("a",), (file("a2", 0, rows=9),), version),
        Unit(("b",), (file("b2", 10, rows=9),), version),
    )
    before = load_pointer(ctx).snapshot
    for more in ((), (ReplaceFiles(()),)):
        updates = (ReplaceFiles(units, whole=True), *more)
        result = commit(ctx, Change(operation="delete", updates=updates), base=base)
        assert isinstance(result, Conflicted) and result.conflict.gone == {"a"}
        assert load_pointer(ctx).snapshot == before


@pytest.mark.parametrize(
    "other",
    [
        {"request": Request.of("r")},
        {"updates": (AddFiles((file("new", 20),)),)},
        {"updates": (AddMarkers((Marker(id="on b", body=Rows((1,)), file="b"),)),)},
        {"updates": (RemoveFiles(("b",)),)},
        {"updates": (DropMarkers(("of nothing",)),)},
        {"updates": (PackMetadata(),)},
        {"updates": (SetProperties({"user.a": "1"}),)},
    ],
    ids=str,
)
def test_what_comes_beside_units_that_are_given_up_is_committed(ctx, base, other):
    idle = Marker(id="of nothing", body=Rows((1,)), file="gone", sequence=2)
    markers = Tier((), (idle,))
    base = replace(base, state=State(replace(base.snapshot, markers=markers), Contents()))
    given_up = Unit(("gone",), (file("a2", 0, sequence=2),), base.snapshot.version)
    units = ReplaceFiles((given_up,))

    def applied(updates=(), **more):
        change = Change(operation="compact", updates=(units, *updates), **more)
        return apply(base.state, change, commit_id="c", name=lambda data: data.hex())

    assert applied() == Unchanged((given_up,))
    found = applied(**other)
    assert isinstance(found, Proposal) and found.skipped == (given_up,)
    assert found.snapshot.version == base.snapshot.version + 1


def test_a_tombstone_misses_what_is_inserted_after_it_and_what_is_inserted_with_it(ctx, base):
    from inlay.plan.pruning.prune import Evidence
    from inlay.plan.scan import marker_may_hit

    after = done(commit(ctx, update(base), base=base))
    later = done(commit(ctx, append(after, low=0), base=after))
    (tombstone,) = later.state.markers()
    evidence = Evidence.of_snapshot(later.snapshot)
    hit = {f.key for f in later.state.files() if marker_may_hit(tombstone, f, evidence)}
    assert hit == {"a"}, "neither the updated rows nor the later append may be hit"


def test_covered_files_leave_by_metadata_alone_and_an_idle_marker_is_not_kept(ctx, base):
    wide = Marker(id="wide", body=KeyRange(1, None, 9))
    after = done(
        commit(
            ctx,
            Change(operation="delete", deleted_rows=None, updates=(AddMarkers((wide,)),)),
            base=base,
        )
    )
    assert [f.key for f in after.state.files()] == ["b"]
    assert list(after.state.markers()) == []
    assert after.snapshot.commit.removed_rows == 10
    assert after.snapshot.totals.rows == 10


def test_a_file_with_nulls_is_not_covered(ctx, base):
    nulls = replace(file("n", 0), stats={1: ColumnStats(lower=0, upper=9, null_count=1)})
    after = done(commit(ctx, Change(operation="append", updates=(AddFiles((nulls,)),)), base=base))
    wide = Marker(id="wide", body=Where(below(100)))
    after = done(
        commit(
            ctx,
            Change(operation="delete", deleted_rows=None, updates=(AddMarkers((wide,)),)),
            base=after,
        )
    )
    assert [f.key for f in after.state.files()] == ["n"]
    assert [m.id for m in after.state.markers()] == ["wide"]
    assert after.snapshot.commit.removed_rows is None


def test_a_marker_is_dropped_only_when_no_file_can_be_hit(ctx, base):
    marked = done(commit(ctx, table_delete(base), base=base))
    drop = Change(operation="compact", updates=(DropMarkers(("range",)),))
    kept = done(commit(ctx, replace(drop, updates=(*drop.updates, PackMetadata())), base=marked))
    assert [m.id for m in kept.state.markers()] == ["range"], "file a is still to be hit"
    clean = Unit(("a",), (file("a", 0, sequence=kept.snapshot.version),), kept.snapshot.version)
    restamped = done(
        commit(ctx, replace(drop, updates=(*drop.updates, ReplaceFiles((clean,)))), base=kept)
    )
    assert list(restamped.state.markers()) == []


def test_a_request_applied_on_the_base_that_won_is_not_applied_again(ctx, base):
    """Two functions with one event: the ledger is asked again on the rebase, not only at the start."""
    request = Request.of("message-1", body="x")
    first = replace(append(base, key="one"), request=request)
    second = replace(append(base, key="two"), request=request)
    done(commit(ctx, first, base=base))
    result = commit(ctx, second, base=base)
    assert isinstance(result, Skipped) and result.version == base.snapshot.version + 1
    assert "two" not in {f.key for f in load_entries(ctx, load_pointer(ctx).state).files()}


def test_a_restamp_settles_the_markers_its_file_was_found_clean_of(ctx, base):
    """The simulator found it: an erasure's marker on one file, which held no such row, never went, and
    the erasure waited for that file for ever."""
    marker = Marker(id="late", body=Where(below(-5)), file="a")
    marked = done(
        commit(ctx, Change(operation="delete", updates=(AddMarkers((marker,)),)), base=base)
    )
    version = marked.snapshot.version
    clean = file("a", 0, sequence=version, data_change=False)
    unit = Unit(("a",), (clean,), version, applied=frozenset({"late"}))
    after = done(
        commit(ctx, Change(operation="rewrite", updates=(ReplaceFiles((unit,)),)), base=marked)
    )
    assert list(after.state.markers()) == []
    assert {f.key for f in after.state.files()} == {"a", "b"}


def test_an_erasure_is_opened_once_and_by_columns_that_there_are(
    ctx: Context, base: LoadedTable
) -> None:
    def opening(name: str, predicate: Predicate | None) -> Change:
        erasure = Erasure(
            id=name, predicate=predicate, text="", phase="rewrite", opened_version=0, opened_us=0
        )
        marker = Marker(id=name, body=Where(below(5)), erasure=name)
        return Change(operation="erase", updates=(OpenErasure(erasure), AddMarkers((marker,))))

    loaded = done(commit(ctx, opening("one", below(5)), base=base))
    assert validate(loaded.state, opening("one", below(5))) is not None
    assert validate(loaded.state, opening("two", below(5))) is None
    elsewhere = Comparison(77, "<", Literal(INT, 1))
    assert validate(loaded.state, opening("two", elsewhere)) is not None


def test_what_a_change_has_to_look_into_is_what_came_since_and_may_match() -> None:
    def segment(sequence: int | None, *, level: int = 0, low: int = 0) -> Segment:
        stats = {1: ColumnStats(low, low + 9, 0)}
        return Segment(
            id="s", count=1, size=1, sequence=sequence, rows=10, stats=stats, level=level
        )

    nothing = Change(operation="delete", updates=(RemoveFiles(("gone",)),))
    ages = [segment(s) for s in (None, 4, 5, 6)]
    assert _newer_or(nothing, None)(ages) == [False, False, False, False]
    assert _newer_or(nothing, 5)(ages) == [False, False, False, True]
    assert _newer_or(nothing, 0)(ages) == [False, True, True, True]
    # A node may have got leaves that are older.
    assert _newer_or(nothing, 5)([segment(4, level=1), segment(6, level=1)]) == [True, True]
    assert _newer_or(nothing, None)([segment(6, level=1)]) == [False]

    reads = replace(nothing, requires=(Reads(below(5), 5),))
    assert _newer_or(reads, None)(ages) == [False, False, False, True]
    assert _newer_or(reads, None)([segment(6, low=5), segment(6, low=4)]) == [False, True]
    assert _newer_or(reads, 5)([segment(6, low=5), segment(5)]) == [True, False]
    every = replace(nothing, requires=(Reads(None, 5),))
    assert _newer_or(every, None)([segment(6, low=5), segment(5)]) == [True, False]


def test_the_files_that_a_change_names(ctx: Context, base: LoadedTable) -> None:
    on_a = Marker(id="a1", body=Rows((1,)), file="a")
    on_b = Marker(id="b1", body=Rows((1,)), file="b")
    wide = Marker(id="w", body=Where(below(3)))
    marking = Change(operation="delete", updates=(AddMarkers((on_a, on_b, wide)),))
    assert named_files(base.state, marking) == {"a", "b"}
    state = done(commit(ctx, marking, base=base)).state
    for ids, files in (
        (("a1",), {"a"}),
        (("w",), set()),
        (("a1", "b1", "w"), {"a", "b"}),
        ((), set()),
    ):
        assert named_files(state, Change(operation="compact", updates=(DropMarkers(ids),))) == files
    new = Marker(id="n1", body=Rows((1,)), file="new")
    adding = Change(
        operation="update", updates=(AddFiles((file("new", 0),)), AddMarkers((new, on_b)))
    )
    assert named_files(state, adding) == {"b"}
    removing = Change(operation="delete", updates=(RemoveFiles(("a",)),))
    assert named_files(state, removing) == {"a"}
    reading = Change(operation="update", requires=(Reads(None, 1, frozenset({"b"})),))
    assert named_files(state, reading) == {"b"}


@pytest.mark.parametrize(
    ("searched", "goes_on"),
    [({"a", "b"}, True), ({"a", "b", "gone"}, True), ({"a"}, False), (set(), False)],
)
def test_a_step_that_searched_files_needs_that_there_are_no_others(
    ctx: Context, base: LoadedTable, searched: set[str], goes_on: bool
) -> None:
    """An erasure would end over a file that nobody has looked into."""
    requires = (OnlyFiles(frozenset(searched)),)
    change = Change(operation="erase", updates=(ExpireThrough(0),), requires=requires)
    state = load_entries(ctx, base.state)
    found = validate(state, change)
    assert (found is None) is goes_on
    assert goes_on or "files were added since the last check" in str(found)


def test_receipts_go_on_only_from_the_chain_and_the_boundary_that_they_were_written_on(
    ctx: Context, base: LoadedTable
) -> None:
    """Another run that has begun since may have written over them."""
    state = load_entries(ctx, base.state)
    snapshot = state.snapshot
    other = replace(snapshot.boundary, version=snapshot.boundary.version + 1)

    def closing(chain: NextReceipts | None, *ids: str) -> str | None:
        change = Change(operation="erase", updates=(CloseErasures(ids, "sweep", chain),))
        found = validate(state, change)
        return None if found is None else str(found)

    assert closing(None) is None
    assert closing(NextReceipts(None, "1", snapshot.boundary)) is None
    assert "other erasures ended" in (closing(NextReceipts("0", "1", snapshot.boundary)) or "")
    assert "another run has begun" in (closing(NextReceipts(None, "1", other)) or "")
    assert "no longer in phase" in (closing(NextReceipts(None, "1", snapshot.boundary), "x") or "")


# -- at the limits ----------------------------------------------------------------------------------


def partly_loaded(base: LoadedTable) -> State:
    """Leaves of version 3, which are loaded, and of 5, 6 and 8, which are not; the rest is inline."""

    def leaves(name: str) -> tuple[Segment, ...]:
        return tuple(
            Segment(
                id=f"{name}{sequence}",
                count=1,
                size=1,
                sequence=sequence,
                rows=10,
                stats={1: ColumnStats(low, low + 9, 0)},
            )
            for sequence, low in ((3, 0), (5, 0), (6, 0), (8, 50))
        )

    inline = Marker(id="m", body=Rows((1,)), file="inline", sequence=7)
    snapshot = replace(
        base.snapshot,
        files=Tier(leaves("f"), (file("inline", 0, sequence=7),)),
        markers=Tier(leaves("m"), (inline,)),
    )
    return State(
        snapshot,
        Contents(
            files={"f3": (file("old", 0),)},
            markers={"m3": (Marker(id="o", body=Rows(()), file="old"),)},
        ),
    )


@pytest.mark.parametrize(
    ("updates", "requires", "resolved", "files", "markers"),
    [
        ((AddFiles((file("n", 0),)),), (), 5, "", ""),
        ((AddMarkers((Marker(id="w", body=Where(below(3))),)),), (), 5, "", ""),
        ((AddMarkers((Marker(id="r", body=Rows((1,)), file="x"),)),), (), 5, "68", ""),
        ((AddMarkers((Marker(id="r", body=Rows((1,)), file="inline"),)),), (), 5, "", ""),
        ((RemoveFiles(("x",)),), (), 5, "68", "568"),
        ((RemoveFiles(("x",)),), (), 8, "", "568"),
        ((RemoveFiles(("x",)),), (), 0, "568", "568"),
        ((RemoveFiles(("inline", "old")),), (), 5, "", "568"),
        ((ReplaceFiles((Unit(("x",), (), 5),)),), (), 5, "68", "568"),
        ((DropMarkers(("m",)),), (), 5, "", "568"),
        ((DropMarkers(("none",)),), (), 5, "", "568"),
        ((RecountTotals(),), (), 5, "568", "568"),
        ((CloseErasures(("e",), "sweep", None),), (), 5, "", "568"),
        ((), (Reads(None, 5),), 5, "68", "68"),
        ((), (Reads(None, 6),), 5, "8", "8"),
        ((), (Reads(below(20), 5),), 5, "6", "68"),
        ((), (Reads(below(20), 5, frozenset({"inline"})),), 0, "6", "68"),
        ((), (Reads(below(20), 5, frozenset({"x"})),), 3, "568", "68"),
    ],
    ids=str,
)
def test_what_is_loaded_for_a_change_is_what_can_decide_it(
    base: LoadedTable, updates, requires, resolved: int, files: str, markers: str
) -> None:
    change = Change(operation="o", updates=updates, requires=requires)
    found = needed(partly_loaded(base), change, resolved=resolved) or NeedSegments()
    assert [s.id for s in found.files] == [f"f{n}" for n in files]
    assert [s.id for s in found.markers] == [f"m{n}" for n in markers]


@pytest.mark.parametrize(
    ("evolution", "files", "markers"),
    [
        (Evolution(rename=((("id",), "number"),)), "", ""),
        (Evolution(key=()), "", ""),
        (Evolution(key=("id", "other")), "568", ""),
        (Evolution(drop=(("other",),)), "", "568"),
        (Evolution(drop=(("other",),), key=("id", "third")), "568", "568"),
    ],
    ids=str,
)
def test_a_new_key_looks_into_every_file_and_a_dropped_column_into_every_delete(
    base: LoadedTable, evolution: Evolution, files: str, markers: str
) -> None:
    state = partly_loaded(base)
    more = (Field(2, "other", INT, nullable=False), Field(3, "third", INT, nullable=False))
    schema = replace(state.snapshot.schema, fields=(*state.snapshot.schema.fields, *more))
    state = replace(state, snapshot=replace(state.snapshot, schemas=(schema,)))
    change = Change(operation="alter", updates=(AlterSchema(schema.id, evolution),))
    found = needed(state, change) or NeedSegments()
    assert [s.id for s in found.files] == [f"f{n}" for n in files]
    assert [s.id for s in found.markers] == [f"m{n}" for n in markers]


@pytest.mark.parametrize(("planned_on", "holds"), [(0, True), (5, False)])
def test_files_come_under_the_columns_that_come_with_them(
    base: LoadedTable, planned_on: int, holds: bool
) -> None:
    evolution = Evolution(add=(((), Field(0, "more", INT)),))
    columns = AlterSchema(planned_on, evolution)
    files = AddFiles((replace(file("n", 0), schema_id=1),))
    read = Reads(below(0), base.snapshot.version)
    change = Change(operation="o", updates=(files, columns), requires=(read,))
    found = validate(base.state, change)
    assert found is None if holds else found is not None


@pytest.mark.parametrize("ended", [False, True])
def test_only_an_erasure_that_forgets_its_condition_looks_into_every_file(
    base: LoadedTable, ended: bool
) -> None:
    erasure = Erasure(
        id="e",
        predicate=None if ended else below(3),
        text="",
        phase="rewrite",
        opened_version=0,
        opened_us=0,
    )
    change = Change(operation="erase", updates=(MoveErasures((erasure,), "rewrite"),))
    found = needed(partly_loaded(base), change)
    assert (found is not None and len(found.files) == 3) is ended


@pytest.mark.parametrize(
    ("entry", "read", "holds"),
    [
        (file("n", 0, sequence=5), (), True),
        (file("n", 0, sequence=6), (), False),
        (file("n", 5, sequence=6), (), True),  # it cannot match
        (file("n", 4, sequence=6), (), False),
        (file("n", 0, sequence=6, arrived=5), (), True),  # packed with old rows
        (file("n", 0, sequence=6, arrived=6), (), False),
        (file("n", 0, sequence=6), ("n",), True),
        (file("n", 0, sequence=5), ("n", "gone"), False),
    ],
    ids=str,
)
def test_reads_hold_unless_a_file_arrived_that_may_match_or_one_is_gone(
    base: LoadedTable, entry: DataFile, read, holds: bool
) -> None:
    state = State(replace(base.snapshot, files=Tier((), (entry,)), markers=Tier()))
    change = Change(operation="update", requires=(Reads(below(5), 5, frozenset(read)),))
    assert (validate(state, change) is None) is holds
    everything = Change(operation="update", requires=(Reads(None, 5, frozenset(read)),))
    arrived = entry.newest_rows > 5 and entry.key not in read
    assert (validate(state, everything) is None) is (not arrived and "gone" not in read)


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        (Marker(id="m", body=Rows((1,)), file="n", sequence=5), True),
        (Marker(id="m", body=Rows((1,)), file="n", sequence=6), False),
        (Marker(id="m", body=Rows((1,)), file="other", sequence=6), True),
        (Marker(id="m", body=Where(below(1)), sequence=6), False),
        (Marker(id="m", body=Where(below(0)), sequence=6), True),
        (Marker(id="m", body=Where(below(1)), sequence=5), True),
    ],
    ids=str,
)
def test_reads_hold_unless_a_delete_landed_that_may_hit_what_was_read(
    base: LoadedTable, marker: Marker, holds: bool
) -> None:
    files = (file("n", 0, sequence=4), file("p", 50, sequence=4))
    state = State(replace(base.snapshot, files=Tier((), files), markers=Tier((), (marker,))))
    change = Change(operation="update", requires=(Reads(below(5), 5, frozenset({"n", "p"})),))
    assert (validate(state, change) is None) is holds


@pytest.mark.parametrize(("replaced", "holds"), [(4, True), (5, True), (6, False)])
def test_what_was_read_of_a_content_that_was_replaced_holds_no_more(
    base: LoadedTable, replaced: int, holds: bool
) -> None:
    state = State(
        replace(base.snapshot, replaced=replaced, files=Tier((), (file("n", 0, sequence=4),)))
    )
    for requirement in (SameContent(5), Reads(None, 5)):
        change = Change(operation="delete", requires=(requirement,))
        assert (validate(state, change) is None) is holds
    change = Change(operation="compact", updates=(ReplaceFiles((Unit(("n",), (), 5),)),))
    held, skipped, _ = units_that_hold(state, change)
    assert (len(held), len(skipped)) == ((1, 0) if holds else (0, 1))


@pytest.mark.parametrize(
    ("options", "landed", "moved"),
    [
        ({}, None, []),
        ({}, Rows((1, 4)), [(0, 2)]),  # positions 0 and 3 are gone
        ({}, Rows((0, 3)), []),
        ({}, Rows((0, 4)), [(2,)]),
        ({}, Vector("v", 0, 1, 1), None),
        ({"positions": None}, Rows((1,)), None),
        ({"positions": None, "applied": frozenset({"m"})}, Rows((1,)), []),
        ({"applied": frozenset({"m"})}, Vector("v", 0, 1, 1), []),
        ({"outputs": ()}, Rows((1,)), []),
        ({"outputs": (file("n", 0),)}, Rows((1,)), []),  # a restamp: they stay valid
        ({"outputs": (file("o", 0), file("p", 0))}, Rows((1,)), None),
        ({"inputs": ("n", "gone")}, None, None),
    ],
    ids=str,
)
def test_a_unit_holds_if_what_landed_on_its_inputs_can_be_moved(
    base: LoadedTable, options, landed, moved
) -> None:
    plain = {
        "inputs": ("n",),
        "outputs": (file("o", 0, rows=8),),
        "version": 5,
        "positions": PositionMap.of((10,), {0: BitMap([1, 2, 4, 5, 6, 7, 8, 9])}),
        "carried": (Marker(id="c", body=Rows((7,)), file="o"),),
    }
    unit = Unit(**{**plain, **options})
    here = () if landed is None else (Marker(id="m", body=landed, file="n", sequence=6),)
    elsewhere = Marker(id="e", body=Rows((1,)), file="z", sequence=6)
    of_table = Marker(id="t", body=Where(below(3)), sequence=6)
    tiers = {
        "files": Tier((), (file("n", 0, sequence=4),)),
        "markers": Tier((), (*here, elsewhere, of_table)),
    }
    state = State(replace(base.snapshot, **tiers))
    change = Change(operation="compact", updates=(ReplaceFiles((unit,)),))
    held, skipped, remapped = units_that_hold(state, change)
    if moved is None:
        assert (held, skipped, remapped) == ((), (unit,), ())
        return
    assert len(held) == 1 and skipped == ()
    assert remapped[0].id == "c"
    assert [(m.id, m.file, m.body) for m in remapped[1:]] == [("m", "o", Rows(p)) for p in moved]
