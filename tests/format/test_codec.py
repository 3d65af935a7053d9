"""Snapshots, entries and segments survive the trip through bytes exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import FrozenBitMap

from inlay.errors import CorruptTable, InlayError, InvalidRequest, NewerFormat
from inlay.format import codec, columns, leaves
from inlay.format.codec import decode_frame, encode_frame
from inlay.format.entry import (
    ColumnStats,
    DataFile,
    KeyRange,
    Keys,
    LedgerRecord,
    Marker,
    RowGroups,
    Rows,
    Types,
    Vector,
    Where,
    file_to_json,
    marker_to_json,
)
from inlay.format.predicate import Comparison, Literal, Not
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, Value
from inlay.format.snapshot import (
    Boundary,
    Commit,
    Erasure,
    Expiration,
    HeadObject,
    Ledger,
    PartitionField,
    PartitionSpec,
    Ref,
    SchemaObject,
    Segment,
    Snapshot,
    Tier,
    Totals,
    content_of,
    thin_time_index,
    with_content,
)

PRIMITIVES = [
    Primitive("bool"),
    Primitive("int8"),
    Primitive("int64"),
    Primitive("uint64"),
    Primitive("float"),
    Primitive("double"),
    Primitive("string"),
    Primitive("binary"),
    Primitive("date"),
    Primitive("decimal", precision=38, scale=4),
    Primitive("fixed", precision=3),
    Primitive("timestamp", unit="us"),
    Primitive("timestamptz", unit="ns"),
]
SCHEMA = Schema(
    3,
    (
        *(Field(n + 1, f"c{n}", kind) for n, kind in enumerate(PRIMITIVES)),
        Field(40, "s", Struct((Field(41, "x", Primitive("int32"), nullable=False, doc="why"),))),
        Field(42, "l", ListOf(Field(43, "element", Primitive("string")))),
        Field(
            44,
            "m",
            MapOf(Field(45, "key", Primitive("string")), Field(46, "value", Primitive("date"))),
        ),
    ),
)
TYPES = Types((SCHEMA,))

_texts = st.text(max_size=12)
_counts = st.integers(0, 2**40)


def _values(kind: Primitive) -> st.SearchStrategy[object]:
    match kind.name:
        case "bool":
            return st.booleans()
        case "float":
            return st.floats(width=32, allow_nan=False)
        case "double":
            return st.floats(allow_nan=False)
        case "string":
            return st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
        case "binary":
            return st.binary(max_size=8)
        case "fixed":
            return st.binary(min_size=3, max_size=3)
        case "decimal":
            return st.integers(-(10**20), 10**20).map(lambda n: Decimal(n).scaleb(-4))
        case "int8":
            return st.integers(-128, 127)
        case "uint64":
            return st.integers(0, 2**64 - 1)
        case "date":
            return st.integers(-(2**31), 2**31 - 1)
        case _:
            return st.integers(-(2**63), 2**63 - 1)


@st.composite
def stats(draw):
    found = {}
    for number, kind in enumerate(PRIMITIVES):
        if draw(st.booleans()):
            found[number + 1] = ColumnStats(
                lower=draw(st.none() | _values(kind)),
                upper=draw(st.none() | _values(kind)),
                null_count=draw(st.none() | _counts),
                exact=draw(st.booleans()),
                has_nan=draw(st.sampled_from([None, True, False])),
            )
    return found


files = st.builds(
    DataFile,
    key=_texts,
    size=_counts,
    footer_size=_counts,
    rows=_counts,
    row_groups=_counts,
    schema_id=st.just(3),
    sequence=st.none() | _counts,
    spec_id=st.integers(0, 1),
    partition=st.lists(st.none() | st.integers() | _texts, max_size=2).map(tuple),
    stats=stats(),
    etag=st.none() | _texts,
    adopted=st.booleans(),
    event=st.none() | _texts,
    data_change=st.booleans(),
    own=st.booleans(),
    origin=st.none() | _texts,
    arrived=st.none() | _counts,
    cluster=st.none() | _counts,
)
_positions = st.sets(st.integers(0, 2**33), max_size=6).map(lambda s: tuple(sorted(s)))
bodies = st.one_of(
    st.builds(RowGroups, _positions),
    st.builds(Rows, _positions),
    st.builds(Vector, _texts, _counts, _counts, _counts),
    st.builds(
        KeyRange,
        st.just(3),
        st.none() | st.integers(-9, 9),
        st.none() | st.integers(-9, 9),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(Keys, st.just((1, 3)), _texts, _counts, _counts, stats()),
    st.just(Where(Not(Comparison(6, "<", Literal(Primitive("double"), math.inf))))),
)
markers = st.builds(
    Marker,
    id=_texts,
    body=bodies,
    file=st.none() | _texts,
    sequence=st.none() | _counts,
    erasure=st.none() | _texts,
)
records = st.builds(
    LedgerRecord,
    id=st.binary(min_size=12, max_size=12),
    body=st.none() | st.binary(min_size=8, max_size=8),
    version=st.none() | _counts,
    time_us=st.none() | _counts,
)
segments = st.builds(
    Segment,
    id=_texts,
    count=st.integers(1, 99),
    size=_counts,
    dead=st.sets(st.integers(0, 99)).map(FrozenBitMap),
    sequence=st.none() | _counts,
    rows=_counts,
    bytes=_counts,
    first_us=st.none() | _counts,
    last_us=st.none() | _counts,
    stats=stats(),
    schema_id=st.just(3),
)


def tiers(entries):
    return st.builds(
        Tier, st.lists(segments, max_size=2).map(tuple), st.lists(entries, max_size=3).map(tuple)
    )


snapshots = st.builds(
    Snapshot,
    table_id=_texts,
    version=st.integers(1, 2**40),
    commit=st.builds(
        Commit,
        id=_texts,
        operation=_texts,
        time_us=_counts,
        request=st.none() | _texts,
        branch=st.none() | _texts,
        added_rows=st.none() | _counts,
        removed_rows=st.none() | _counts,
        added_files=_counts,
    ),
    schemas=st.just((SCHEMA,)),
    schema_id=st.just(3),
    last_field_id=st.just(46),
    specs=st.just((PartitionSpec(0), PartitionSpec(1, (PartitionField(3, "day", "d"),)))),
    spec_id=st.integers(0, 1),
    primary_key=st.just((3,)),
    sort_by=st.just((9,)),
    stats_columns=st.just((3, 9)),
    properties=st.dictionaries(_texts, _texts, max_size=2),
    refs=st.dictionaries(
        _texts,
        st.builds(
            Ref,
            kind=st.sampled_from(["tag", "branch"]),
            version=_counts,
            hold=st.booleans(),
            head=st.none() | st.builds(HeadObject, _texts, _counts),
            base=_counts,
            since=_counts,
        ),
        max_size=2,
    ),
    files=tiers(files),
    markers=tiers(markers),
    ledger=st.builds(
        Ledger,
        records=tiers(records),
        horizon_us=_counts,
        streams=st.dictionaries(_texts, _counts, max_size=2),
    ),
    erasures=st.just(()),
    boundary=st.builds(Boundary, _counts, _counts),
    expired=st.lists(st.builds(Expiration, _counts, _counts), max_size=2).map(tuple),
    time_index=st.lists(st.tuples(_counts, _counts), max_size=4).map(tuple),
    totals=st.builds(Totals, _counts, _counts, _counts, _counts),
    changed=_counts,
    replaced=_counts,
)


@settings(deadline=None, max_examples=80)
@given(snapshots)
def test_a_snapshot_comes_back_as_it_went(snapshot):
    data = codec.encode_snapshot(snapshot)
    assert codec.decode_snapshot(data, key="k") == snapshot
    assert codec.encode_snapshot(codec.decode_snapshot(data, key="k")) == data


@settings(deadline=None, max_examples=50)
@given(snapshots, st.data())
def test_schemas_that_are_kept_apart_come_back_as_well(snapshot, data):
    ids = [s.id for s in snapshot.schemas]
    kept = tuple(sorted(data.draw(st.sets(st.sampled_from(ids)))))
    there = codec.encode_schemas(s for s in snapshot.schemas if s.id in kept)
    found = SchemaObject("schemas", len(there), kept)
    snapshot = replace(snapshot, schema_objects=(found,) if kept else ())
    written = codec.encode_snapshot(snapshot)

    def apart(asked):
        return codec.decode_schemas(there, asked, key=asked.id)

    assert codec.decode_snapshot(written, key="k", apart=apart) == snapshot
    if kept:
        with pytest.raises(CorruptTable):
            codec.decode_schemas(there, replace(found, ids=(*kept, 99)), key="k")


@settings(deadline=None, max_examples=50)
@given(snapshots)
def test_a_head_comes_back_as_it_went_and_makes_a_snapshot_again(snapshot):
    content = content_of(snapshot)
    data = codec.encode_head(content, TYPES)
    assert codec.decode_head(data, key="k", types=TYPES) == content
    assert (
        with_content(replace(snapshot, files=Tier(), totals=Totals(), changed=0), content)
        == snapshot
    )


@settings(deadline=None, max_examples=100)
@given(st.lists(files, max_size=4), st.lists(markers, max_size=4), st.lists(records, max_size=4))
def test_segments_come_back_as_they_went(some_files, some_markers, some_records):
    data = leaves.encode_files(some_files, TYPES)
    assert leaves.decode_files(data, key="k") == tuple(some_files)
    assert leaves.encode_files(leaves.decode_files(data, key="k"), TYPES) == data
    data = leaves.encode_markers(some_markers, TYPES)
    assert leaves.decode_markers(data, key="k", types=TYPES) == tuple(some_markers)
    data = leaves.encode_ledger(some_records)
    assert leaves.decode_ledger(data, key="k") == tuple(some_records)


def minimal() -> Snapshot:
    return Snapshot(
        table_id="t",
        version=1,
        commit=Commit(id="c", operation="create", time_us=5),
        schemas=(SCHEMA,),
        schema_id=3,
        last_field_id=46,
    )


def test_of_an_earlier_snapshot_those_entries_stay_that_are_as_they_were():
    """An entry with a key that is known and another member, or under another schema, is read anew."""
    entries = tuple(
        DataFile(
            key=key,
            size=9,
            footer_size=8,
            rows=3,
            row_groups=1,
            schema_id=3,
            stats={2: ColumnStats(1, 5, 0)},
        )
        for key in "abc"
    )
    written = replace(minimal(), files=Tier((), entries))
    before = codec.decode_snapshot(codec.encode_snapshot(written), key="k")
    now = replace(written, files=Tier((), (*entries[:2], replace(entries[2], rows=4))))
    data = codec.encode_snapshot(now)
    read = codec.decode_snapshot(data, key="k", before=before)
    assert read == now
    assert codec.encode_snapshot(read) == data
    kept = [old is new for old, new in zip(before.files.inline, read.files.inline, strict=True)]
    assert kept == [True, True, False]
    other = replace(before, schemas=(replace(SCHEMA, id=3, fields=SCHEMA.fields[:-1]),))
    read = codec.decode_snapshot(data, key="k", before=other)
    assert read == now
    assert not any(new in map(id, before.files.inline) for new in map(id, read.files.inline))


def reframed(change) -> bytes:
    """A well-formed frame (right digest) with other content: what a hand, or a later version, makes."""
    body = decode_frame("snapshot", codec.encode_snapshot(minimal()), key="k")
    change(body)
    return encode_frame("snapshot", body)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.pop("files"),
        lambda b: b.update(version=0),
        lambda b: b.update(version="1"),
        lambda b: b.update(schema=9),
        lambda b: b.update(totals=[1, 2]),
        lambda b: b["files"].update(inline=[["k", -1]]),
        lambda b: b["files"].update(inline=[["k", 1, 1, 1, 1, 3, 1, {"99": [1, 2]}]]),
        lambda b: b["files"].update(segments=[["s", 1, 1, "!!"]]),
        lambda b: b["commit"].pop("id"),
        lambda b: b.update(boundary=[1]),
        lambda b: b.update(schemas=[{"id": 3, "fields": [{"id": 1, "name": "x", "type": "int7"}]}]),
    ],
)
def test_content_that_cannot_be_is_refused_by_name(change):
    with pytest.raises(InlayError) as caught:
        codec.decode_snapshot(reframed(change), key="tables/t/_latest_manifest")
    assert "tables/t/_latest_manifest" in str(caught.value)
    assert not isinstance(caught.value, NewerFormat)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.update(surprise=1),
        lambda b: b["markers"].update(inline=[["m", "hologram", {}, 1]]),
        lambda b: b.update(refs={"x": {"kind": "wormhole", "version": 1}}),
    ],
)
def test_parts_of_a_later_format_stop_the_reader(change):
    with pytest.raises(NewerFormat, match="_latest_manifest"):
        codec.decode_snapshot(reframed(change), key="_latest_manifest")


def test_an_erasure_comes_back_as_it_went():
    erasure = Erasure(
        id="e",
        predicate=Comparison(7, "=", Literal(Primitive("string"), "Ada")),
        text="name = 'Ada'",
        phase="rewrite",
        opened_version=4,
        opened_us=9,
    )
    snapshot = replace(minimal(), erasures=(erasure,))
    assert codec.decode_snapshot(codec.encode_snapshot(snapshot), key="k") == snapshot


def test_a_corrupt_table_says_what_to_do():
    with pytest.raises(CorruptTable) as caught:
        codec.decode_snapshot(b"{}", key="k")
    assert caught.value.next_step


def test_the_time_index_stays_short_and_finds_a_sixteenth_with_each_hop():
    kept: dict[int, tuple[tuple[int, int], ...]] = {}
    points: tuple[tuple[int, int], ...] = ()
    for version in range(1, 5000):
        points = kept[version] = thin_time_index((*points, (version, version * 7)), version)
        assert len(points) <= 15 * 4
        assert points[-1] == (version, version * 7)
    for version in range(1, 5000, 97):
        at, hops = 4999, 0
        while version not in (known := [v for v, _ in kept[at]]):
            at = min(v for v in known if v > version) - 1
            hops += 1
        assert hops <= 3, "versions below 16^4"


NOT_VALUES: list[tuple[Primitive, Value]] = [
    (Primitive("int8"), 128),
    (Primitive("uint64"), -1),
    (Primitive("float"), 0.1),
    (Primitive("string"), "\ud800"),
    (Primitive("fixed", precision=2), b"abc"),
    (Primitive("date"), 2**31),
    (Primitive("time", unit="us"), -1),
    (Primitive("time", unit="ms"), 86_400_000),
    (Primitive("timestamp", unit="us"), 2**63),
    (Primitive("decimal", precision=5, scale=2), Decimal("1000.00")),
    (Primitive("decimal", precision=5, scale=2), Decimal("-1000.00")),
]


@pytest.mark.parametrize(("kind", "value"), NOT_VALUES)
@pytest.mark.parametrize("place", ["entry", "leaf", "range", "where"])
def test_what_is_not_read_is_not_written(kind: Primitive, value: Value, place: str) -> None:
    """One such value in a pointer, and the table could not be opened."""
    schema = Schema(1, (Field(1, "c", kind),))
    types = Types((schema,))
    stats = {1: ColumnStats(value, value, kind=kind)}
    entry = DataFile(
        key="k", size=1, footer_size=1, rows=1, row_groups=1, schema_id=1, sequence=1, stats=stats
    )
    with pytest.raises(InvalidRequest, match=r"not a value|does not fit"):
        match place:
            case "entry":
                file_to_json(entry, types)
            case "leaf":
                columns.bounds(kind, [value], [value])
            case "range":
                marker_to_json(Marker(id="m", body=KeyRange(1, value, kind=kind)), types)
            case "where":
                where = Where(Comparison(1, "=", Literal(kind, value)))
                marker_to_json(Marker(id="m", body=where), types)


@pytest.mark.parametrize("name", ["size", "footer_size", "rows", "row_groups"])
def test_no_entry_has_a_negative_number(name: str) -> None:
    numbers = {"size": 1, "footer_size": 1, "rows": 1, "row_groups": 1, name: -1}
    with pytest.raises(ValueError, match="negative"):
        DataFile(key="k", schema_id=1, **numbers)
    with pytest.raises(ValueError, match="negative"):
        ColumnStats(null_count=-1)


@pytest.mark.parametrize("wrong", ["schema", "spec", "both", "of the table"])
def test_a_snapshot_that_names_what_it_does_not_contain_is_damaged(wrong: str) -> None:
    """One file of several: the others, and the table's own, are there."""
    schema = Schema(3, (Field(1, "a", Primitive("int64")),))
    good = DataFile(key="a", size=1, footer_size=1, rows=1, row_groups=1, schema_id=3, sequence=1)
    bad = replace(
        good,
        key="b",
        schema_id=9 if wrong in ("schema", "both") else 3,
        spec_id=9 if wrong in ("spec", "both") else 0,
    )
    snapshot = Snapshot(
        table_id="t",
        version=1,
        commit=Commit(id="c", operation="append", time_us=1),
        schemas=(schema,),
        schema_id=3,
        last_field_id=1,
        primary_key=(),
        sort_by=(),
        specs=(PartitionSpec(0, ()),),
        spec_id=9 if wrong == "of the table" else 0,
        stats_columns=(),
        properties={},
        time_index=(),
        files=Tier((), (good, bad, replace(good, key="c"))),
    )
    with pytest.raises(CorruptTable):
        codec.decode_snapshot(codec.encode_snapshot(snapshot), key="k")
    fine = replace(snapshot, files=Tier((), (good,)), spec_id=0)
    assert codec.decode_snapshot(codec.encode_snapshot(fine), key="k").files.inline == (good,)


@pytest.mark.parametrize(
    "field",
    [
        Field(1, "s", Struct((Field(2, "x", Primitive("int64"), in_partition=0),))),
        Field(1, "s", Struct((Field(2, "x", Primitive("int64")),)), in_partition=0),
        Field(1, "s", ListOf(Field(2, "element", Primitive("int64"))), in_partition=0),
    ],
    ids=["within a struct", "a struct", "a list"],
)
def test_a_nested_column_in_a_partition_is_damage(field: Field) -> None:
    with pytest.raises(CorruptTable, match="nested column in a partition"):
        codec.schema_from_json(codec.schema_to_json(Schema(0, (field,))))
    plain = Schema(0, (Field(1, "x", Primitive("int64"), in_partition=0),))
    assert codec.schema_from_json(codec.schema_to_json(plain)) == plain
