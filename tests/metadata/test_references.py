"""What a reference says is compared with what the object holds, and what a state says of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from pyroaring import FrozenBitMap

from inlay.format.codec import encode_schemas
from inlay.format.entry import ColumnStats, DataFile, LedgerRecord, Types
from inlay.format.leaves import decode_files, encode_files
from inlay.format.properties import HANDED_OVER
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.snapshot import (
    MAX_SCHEMA_OBJECTS,
    Erasure,
    HeadObject,
    Ledger,
    PartitionField,
    PartitionSpec,
    SchemaObject,
    Segment,
    Tier,
    content_of,
)
from inlay.plan.change import (
    AddFiles,
    Change,
    ClusterLeaves,
    HandedOver,
    HandOver,
    PackMetadata,
    Proposal,
    RemoveFiles,
    Request,
    Stale,
)
from inlay.plan.commit import apply as apply_module
from inlay.plan.commit.apply import (
    Admitted,
    _Files,
    _Records,
    _to_rebuild,
    _with_schemas_apart,
    admit,
    seal,
)
from inlay.plan.metadata.leaves import Writer
from inlay.plan.metadata.state import (
    CLOCK_SKEW_US,
    DAY_US,
    AlreadyApplied,
    LedgerSalt,
    RequestRefused,
    State,
    choose_stats_columns,
    forgotten_before,
    head_fault,
    horizon,
    live_entries,
    look_up,
    resolved_record,
    segment_fault,
)
from inlay.plan.pruning.prune import Evidence

from .tables import Table

LONG = Primitive("int64")


def segment_of(name: str, count: int, size: int, **more: Any) -> Segment:
    return Segment(id=name, count=count, size=size, **more)


def file(key: str = "a", **more: Any) -> DataFile:
    plain = {"size": 9, "footer_size": 9, "rows": 5, "row_groups": 1, "schema_id": 0}
    return DataFile(key=key, **{**plain, **more})


@pytest.mark.parametrize(
    ("kind", "segment", "entries", "size", "fault"),
    [
        ("files", {}, [file(), file("b")], 70, ""),
        ("files", {}, [file()], 70, "holds 1 entries"),
        ("files", {}, [file(), file("b")], 71, "has 71 bytes"),
        ("files", {}, [file(), file("b", rows=6)], 70, "holds 11 rows in 18 bytes"),
        ("files", {}, [file(), file("b", size=8)], 70, "holds 10 rows in 17 bytes"),
        ("files", {}, [file(), file("b", schema_id=7)], 70, "names schema 7 for b"),
        ("files", {}, [file(), file("b", spec_id=7)], 70, "names spec 7 for b"),
        ("markers", {"rows": 1}, [0, 1], 70, ""),
        ("markers", {}, [0], 70, "holds 1 entries"),
        ("nodes", {"level": 1}, [segment_of("x", 2, 1, rows=10, bytes=18)], 70, ""),
        ("nodes", {"level": 1}, [segment_of("x", 1, 1, rows=10, bytes=18)], 70, "holds 1 entries"),
        ("nodes", {"level": 1}, [segment_of("x", 2, 1, rows=9, bytes=18)], 70, "holds 9 rows"),
        ("nodes", {"level": 1}, [segment_of("x", 2, 1, rows=10, bytes=7)], 70, "in 7 bytes"),
        (
            "nodes",
            {"level": 1},
            [segment_of("x", 2, 1, rows=10, bytes=18, level=1)],
            70,
            "like itself",
        ),
        (
            "nodes",
            {"level": 1},
            [segment_of(n, 1, 1, rows=5, bytes=9, level=n == "y") for n in "xy"],
            70,
            "like itself",
        ),
    ],
)
def test_an_object_that_its_reference_does_not_describe_is_told(
    kind: Any, segment: dict[str, Any], entries: Sequence[Any], size: int, fault: str
) -> None:
    snapshot = Table().load().snapshot
    reference = replace(segment_of("s", 2, 70, rows=10, bytes=18), **segment)
    found = segment_fault(snapshot, kind, reference, entries, size)
    assert fault in found and bool(fault) is bool(found)


def test_a_head_that_is_of_another_table_or_later_is_told() -> None:
    snapshot = Table().load().snapshot
    head, content = HeadObject(id="h", size=70), content_of(snapshot)
    assert head_fault(snapshot, head, content, 70) == ""
    assert "has 71 bytes" in head_fault(snapshot, head, content, 71)
    newer = replace(content, version=snapshot.version + 1)
    assert "is of version" in head_fault(snapshot, head, newer, 70)
    assert "names schema 7" in head_fault(snapshot, head, replace(content, schema_id=7), 70)
    assert "partition spec 7" in head_fault(snapshot, head, replace(content, spec_id=7), 70)
    strange = replace(content, files=Tier((), (file(schema_id=7),)))
    assert "schema 7 for a" in head_fault(snapshot, head, strange, 70)


def test_the_bounds_of_many_references_are_in_the_types_of_the_newest() -> None:
    old, new = (Schema(n, (Field(1, "a", Primitive(t)),)) for n, t in ((0, "int8"), (1, "int64")))  # type: ignore[arg-type]
    stats = {1: ColumnStats(1, 5, 0, kind=LONG)}
    first = segment_of("f", 1, 1, rows=5, schema_id=0, stats={1: ColumnStats(2, 9, 0)})
    second = segment_of("s", 1, 1, rows=5, schema_id=1, stats=stats)
    evidence = Evidence(new, (old, new))
    for both in ((first, second), (second, first)):
        assert evidence.of_references(both) == (1, {1: ColumnStats(1, 9, 0, kind=LONG)})
    entries = [file(schema_id=n, stats={1: ColumnStats(n, n + 4, 0)}) for n in (0, 1)]
    newest, found = evidence.of_files(entries, (1, 2))
    assert newest == 1 and found == {1: ColumnStats(0, 5, 0, kind=LONG, sure=True)}
    _, foreign = evidence.of_files([entries[0], replace(entries[1], event="e")], (1,))
    assert (foreign[1].exact, foreign[1].sure) == (False, False)


def test_leaves_to_rewrite_are_those_chosen_or_untidy() -> None:
    state = Table().load()
    packs: Any = {"files": _Files(state, state.snapshot), "markers": _Files(state, state.snapshot)}
    full = segment_of("full", packs["files"].most, 1)
    dead = replace(full, id="dead", dead=FrozenBitMap([1]))
    small = segment_of("small", 1, 1)
    leaves = [full, dead, small]

    def chosen(*updates: Any) -> dict[str, list[str]]:
        change = Change(operation="compact", updates=updates)
        return {
            tier: [s.id for s in leaves if is_one(s)] for tier, is_one in _to_rebuild(change, packs)
        }

    untidy = ["dead", "small"]
    assert chosen() == {} and chosen(PackMetadata()) == {"files": untidy, "markers": untidy}
    assert chosen(ClusterLeaves(frozenset({"full"}))) == {"files": ["full"]}
    assert chosen(PackMetadata(), ClusterLeaves(frozenset({"full"}))) == {"files": ["full"]}


def test_entries_of_a_leaf_lie_by_partition_then_by_key_and_what_is_unknown_comes_last() -> None:
    snapshot = replace(
        Table().load().snapshot,
        specs=(PartitionSpec(0, (PartitionField(1, "identity", "k"),)),),
    )
    files = _Files(State(snapshot), snapshot)

    def entry(key: str, low: int | None, *partition: Any) -> DataFile:
        stats = {} if low is None else {1: ColumnStats(low, low, 0)}
        return file(key, stats=stats, partition=partition, spec_id=9)

    expected = [
        entry("a", 1, 1, 5),
        entry("b", 2, 1, 5),
        entry("c", None, 1, 5),
        entry("d", 0, 2, 5),
        entry("e", 0, 2, "x"),
        entry("f", 0, 2, None),
        entry("g", 1, None, 5),
    ]
    assert files.in_order(expected[::-1]) == expected
    bare = replace(snapshot, sort_by=(), primary_key=(), specs=(PartitionSpec(0),))
    assert _Files(State(bare), bare).in_order(expected[::-1]) == expected[::-1]


def test_records_are_gathered_once_their_time_is_known_and_dropped_once_forgotten() -> None:
    snapshot = Table().load().snapshot
    records = _Records(State(snapshot), snapshot)
    at = records.forgotten_us
    for last_us, gathers, needed in ((None, False, True), (at - 1, True, False), (at, True, True)):
        leaf = segment_of("s", 1, 1, last_us=last_us)
        assert (records.may_gather(leaf), records.is_needed(leaf)) == (gathers, needed)
    old, young, open_ = (
        LedgerRecord(id=bytes([n]), body=None, version=n, time_us=t)
        for n, t in ((1, at - 1), (2, at), (3, None))
    )
    leaf = segment_of("s", 3, 1, sequence=7, last_us=None)
    assert records.live(leaf) is None
    records.loaded = {"s": (old, young, open_)}
    assert records.live(leaf) == [young, open_]
    written = records.summarize(leaf, [old, young])
    assert (written.first_us, written.last_us) == (at - 1, at)
    committed = records.summarize(leaf, [old, replace(young, version=None, time_us=None)])
    assert (committed.first_us, committed.last_us) == (at - 1, None)
    assert records.summarize(leaf, []) == replace(leaf, first_us=None, last_us=None)


def test_a_record_has_the_version_and_the_time_of_its_leaf_unless_it_has_its_own() -> None:
    leaf = segment_of("s", 2, 1, sequence=7, last_us=99)
    own = LedgerRecord(id=b"a", body=None, version=3, time_us=5)
    assert resolved_record(leaf, own) is own
    assert resolved_record(leaf, LedgerRecord(id=b"a")) == LedgerRecord(
        id=b"a", body=None, version=7, time_us=99
    )
    entries = [file("a"), file("b", sequence=3), file("c")]
    found = list(live_entries(replace(leaf, dead=FrozenBitMap([2])), entries))
    assert [(n, e.key, e.sequence) for n, e in found] == [(0, "a", 7), (1, "b", 3)]


@pytest.mark.parametrize("days", [1, 30])
def test_what_is_forgotten_is_older_than_the_horizon_by_what_clocks_run_ahead(days: int) -> None:
    snapshot = replace(Table().load().snapshot, properties={"ledger.days": f"{days}"})
    cutoff = snapshot.commit.time_us - days * DAY_US
    assert forgotten_before(snapshot) == cutoff - CLOCK_SKEW_US

    def at(was: int, *begins: int | None) -> int:
        segments = tuple(segment_of(f"{n}", 1, 1, first_us=us) for n, us in enumerate(begins))
        ledger = Ledger(records=Tier(segments, ()), horizon_us=was)
        return horizon(replace(snapshot, ledger=ledger))

    assert at(5) == 5 and at(5, None) == 5
    assert at(5, cutoff) == 5 and at(5, cutoff - 1) == cutoff
    assert at(5, cutoff + 9, None, cutoff - 1) == cutoff, "by the first record that there is"
    assert at(cutoff + 7, cutoff - 1) == cutoff + 7, "it never goes back"


def test_the_columns_with_statistics_are_those_of_order_key_and_partitions_first() -> None:
    schema = Schema(0, tuple(Field(n, f"c{n}", LONG) for n in range(1, 7)))

    def chosen(most: int) -> tuple[int, ...]:
        properties = {"stats.columns": f"{most}"}
        return choose_stats_columns(schema, (3, 5), (5,), properties, partitioned_by=(4, 3))

    assert chosen(9) == (5, 3, 4, 1, 2, 6) and chosen(4) == (5, 3, 4, 1) and chosen(1) == (5,)


SALT = LedgerSalt("salt", since=8, plain_before=5)


@pytest.mark.parametrize(
    ("version", "kept", "same"),
    [
        (4, b"a", True),
        (4, b"b", False),
        (4, SALT.digest(b"a"), False),
        (5, b"b", True),  # the salt of then is lost: nothing can be compared
        (7, b"b", True),
        (8, b"b", False),
        (8, SALT.digest(b"a"), True),
        (8, SALT.digest(b"b"), False),
        (8, b"a", True),
        (8, None, True),
    ],
)
def test_an_id_is_reused_only_with_another_content(
    version: int, kept: bytes | None, same: bool
) -> None:
    state = Table().load()
    request = replace(Request.of("r"), body=b"a")
    record = LedgerRecord(id=request.id, body=kept, version=version, time_us=1)
    snapshot = replace(
        state.snapshot,
        ledger=Ledger(records=Tier((), (record,))),
        properties={**state.snapshot.properties, "ledger.salt": SALT.as_property},
    )
    assert LedgerSalt.of(snapshot.properties) == SALT
    found = look_up(State(snapshot), request)
    if same:
        assert found == AlreadyApplied(version)
    else:
        assert isinstance(found, RequestRefused) and found.kind == "reused"
    assert look_up(State(snapshot), replace(request, body=None)) == AlreadyApplied(version)


def test_events_are_applied_before_one_by_one_or_all() -> None:
    snapshot = Table().load().snapshot
    a, b, c = (Request.of(name) for name in "abc")
    records = (
        LedgerRecord(id=a.id, body=None, version=3, time_us=1),
        LedgerRecord(id=b.id, body=None, version=5, time_us=1),
    )
    ledger = Ledger(records=Tier((), records), horizon_us=50)
    state = State(replace(snapshot, ledger=ledger))
    assert look_up(state, None, [a, c]) == {a.id} and look_up(state, c, [a, c]) == {a.id}
    assert look_up(state, None, [a, b]) == AlreadyApplied(5, frozenset((a.id, b.id)))
    assert look_up(state, None, [a, a]) == AlreadyApplied(3, frozenset((a.id,)))
    assert look_up(state, None, [c]) == frozenset() and look_up(state, None) == frozenset()
    old, young = (replace(c, time_us=at) for at in (49, 50))
    assert isinstance(look_up(state, None, [a, old]), RequestRefused)
    assert look_up(state, None, [a, young]) == {a.id}
    assert look_up(state, None, [replace(a, time_us=49), c]) == {a.id}, "applied, however old"


def test_a_proposal_is_sealed_with_the_time_of_its_commit() -> None:
    """After its parent's, whatever the store's clock says."""
    snapshot = Table().load().snapshot
    open_record, old_record = LedgerRecord(id=b"a"), LedgerRecord(id=b"b", version=1, time_us=3)
    leaves = (
        segment_of("new", 1, 1),
        segment_of("grown", 1, 1, first_us=4),
        segment_of("old", 1, 1, first_us=1, last_us=3),
    )
    erasures = tuple(
        Erasure(
            id=f"{n}", predicate=None, text="", phase="sweep", opened_version=1,
            opened_us=opened, swept_us=swept,
        )
        for n, (opened, swept) in enumerate(((0, None), (5, 0), (5, 1), (1, 6)))
    )  # fmt: skip
    draft = replace(
        snapshot,
        version=9,
        ledger=replace(snapshot.ledger, records=Tier(leaves, (open_record, old_record))),
        erasures=erasures,
    )
    for date_us, time_us in ((200, 200), (101, 101), (100, 101), (50, 101)):
        sealed = seal(Proposal(draft, ()), date_us=date_us, previous_us=100)
        assert sealed.commit.time_us == time_us and sealed.time_index[-1] == (9, time_us)
        assert sealed.ledger.records.inline == (
            replace(open_record, version=9, time_us=time_us),
            old_record,
        )
        spans = [(s.first_us, s.last_us) for s in sealed.ledger.records.segments]
        assert spans == [(time_us, time_us), (4, time_us), (1, 3)]
        times = [(e.opened_us, e.swept_us) for e in sealed.erasures]
        assert times == [(time_us, None), (5, time_us), (5, 1), (1, 6)]


@pytest.mark.parametrize(("uploaded_us", "stale"), [(49, True), (50, False), (None, False)])
def test_objects_from_before_the_boundary_are_stale(uploaded_us: int | None, stale: bool) -> None:
    state = Table().load()
    snapshot = replace(state.snapshot, boundary=replace(state.snapshot.boundary, time_us=50))
    change = Change(operation="append", uploaded_us=uploaded_us)
    assert isinstance(admit(replace(state, snapshot=snapshot), change), Stale) is stale
    assert isinstance(admit(state, change), Admitted), "without a boundary none is"


def test_rows_of_an_object_or_of_a_live_file_are_added_once() -> None:
    a, b, c = (Request.of(name) for name in "abc")
    records = tuple(LedgerRecord(id=r.id, version=3, time_us=1) for r in (a, b))
    snapshot = Table().load().snapshot
    snapshot = replace(
        snapshot,
        ledger=replace(snapshot.ledger, records=Tier((), records)),
        files=Tier((), (file("live", sequence=3),)),
    )
    change = Change(operation="ingest")
    for objects, refused in (((c, a), "a"), ((b,), "b"), ((c,), None), ((), None)):
        found = admit(State(snapshot), replace(change, objects=objects))
        assert (found.reason if isinstance(found, RequestRefused) else None) == (
            refused and f"they came in {refused}"
        )
    for updates, twice in (
        ((AddFiles((file("new"), file("live"))),), True),
        ((AddFiles((file("live"),)), RemoveFiles(("live",))), False),
        ((AddFiles((file("new"),)),), False),
    ):
        found = admit(State(snapshot), replace(change, updates=updates))
        assert isinstance(found, RequestRefused) is twice


@pytest.mark.parametrize("mark", ["7", "nobody can read it", None])
def test_a_table_that_was_handed_over_takes_nothing_but_its_way_back(mark: str | None) -> None:
    snapshot = Table().load().snapshot
    if mark is not None:
        snapshot = replace(snapshot, properties={HANDED_OVER: mark})
    for updates, admitted in (
        ((), mark is None),
        ((AddFiles((file("new"),)),), mark is None),
        ((HandOver(None),), True),
    ):
        found = admit(State(snapshot), Change(operation="o", updates=updates))
        assert isinstance(found, Admitted if admitted else HandedOver)


@pytest.mark.parametrize(("over", "apart"), [(0, False), (-1, True)])
def test_schemas_leave_the_pointer_that_are_larger_than_it_has_room_for(
    over: int, apart: bool
) -> None:
    snapshot = Table().load().snapshot
    size = len(encode_schemas(snapshot.schemas))
    writer = Writer(2, lambda data: "new")
    with patch.object(apply_module, "SCHEMAS_INLINE_BYTES", size + over):
        found = _with_schemas_apart(snapshot, writer)
    assert (found != snapshot, len(writer.written)) == (apart, int(apart))
    assert [o.ids for o in found.schema_objects] == ([(0,)] if apart else [])


@pytest.mark.parametrize("full", [False, True])
def test_schemas_apart_gather_in_one_object_once_there_are_as_many_as_may_be(full: bool) -> None:
    snapshot = Table().load().snapshot
    schemas = tuple(replace(snapshot.schema, id=n) for n in range(MAX_SCHEMA_OBJECTS + 1))
    objects = tuple(
        SchemaObject(f"{n}", 1, (n,)) for n in range(MAX_SCHEMA_OBJECTS - (0 if full else 1))
    )
    snapshot = replace(snapshot, schemas=schemas, schema_objects=objects)
    with patch.object(apply_module, "SCHEMAS_INLINE_BYTES", 1):
        found = _with_schemas_apart(snapshot, Writer(2, lambda data: "new"))
    all_ids = tuple(s.id for s in schemas)
    new = SchemaObject("new", found.schema_objects[-1].size, all_ids if full else all_ids[-2:])
    assert found.schema_objects == ((new,) if full else (*objects, new))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"spec_id": 3}, ""),
        ({"schema_id": 7}, "names schema 7 for b"),
        ({"spec_id": 7}, "names spec 7 for b"),
        ({"schema_id": 7, "spec_id": 7}, "names schema 7 for b"),
    ],
)
def test_entries_name_schemas_and_specs_that_the_table_has(
    change: dict[str, int], fault: str
) -> None:
    """Whether they are held as entries or in columns."""
    snapshot = Table().load().snapshot
    snapshot = replace(snapshot, specs=(*snapshot.specs, PartitionSpec(3)))
    known = Types((*snapshot.schemas, Schema(7, snapshot.schema.fields)))
    reference = segment_of("s", 2, 70, rows=10, bytes=18)
    for first in ({}, change):
        entries: list[DataFile] = [file("b", **first), file("b", **change)]
        for held in (entries, decode_files(encode_files(entries, known), key="k")):
            found = segment_fault(snapshot, "files", reference, held, 70)
            assert found.startswith(fault) and bool(found) is bool(fault)
