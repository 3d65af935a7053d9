"""Entries that stay columns until they are read: the same entries, and the same plans."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import FrozenBitMap
from test_rows_against_a_model import LEAVES, NEW, OLD, PREDICATES, bounds, value_of

from inlay.format.entry import ColumnStats, DataFile, KeyRange, Marker, Rows, Types, Where
from inlay.format.file_entries import FileEntries
from inlay.format.leaves import decode_files, encode_files
from inlay.format.predicate import TRUE, And, Comparison, Literal
from inlay.format.schema import Primitive
from inlay.format.snapshot import Segment
from inlay.ops.cache import ObjectCache
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read.ranges import Objects
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection
from inlay.plan.metadata.state import live_entries
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import leaf_candidates, plan_scan

OF_OLD = {field.id: field.type for _, field in OLD.walk()}


@st.composite
def entries(draw: Any) -> DataFile:
    schema = draw(st.sampled_from([OLD, NEW]))
    stats: dict[int, ColumnStats] = {}
    for field_id in LEAVES:
        kind = LEAVES[field_id] if schema is NEW else OF_OLD.get(field_id)
        if not isinstance(kind, Primitive) or draw(st.booleans()):
            continue
        known = bounds(draw(st.lists(st.none() | value_of(kind), max_size=4)))
        stats[field_id] = draw(
            st.sampled_from([replace(known, kind=kind), ColumnStats(kind=kind, has_nan=None)])
        )
    return DataFile(
        key=f"data/{draw(st.integers(0, 99))}.parquet",
        size=draw(st.integers(1, 2**40)),
        footer_size=9,
        rows=4,
        row_groups=1,
        schema_id=schema.id,
        sequence=draw(st.none() | st.integers(1, 3)),
        event=draw(st.none() | st.just("e")),
        data_change=draw(st.booleans()),
        stats=stats,
    )


@settings(deadline=None, max_examples=120)
@given(
    found=st.lists(entries(), min_size=1, max_size=8),
    predicate=st.just(TRUE) | PREDICATES,
    marker=st.just(None) | PREDICATES,
    dead=st.sets(st.integers(0, 7)),
)
def test_a_plan_from_columns_is_the_plan_from_entries(
    found: list[DataFile], predicate: Any, marker: Any, dead: set[int]
) -> None:
    data = encode_files(found, Types((OLD, NEW)))
    made = decode_files(data, key="k")
    leaf = Segment(id="l", count=len(found), size=1, sequence=2, dead=FrozenBitMap(dead))
    evidence = Evidence(NEW, [OLD])
    markers = [] if marker is None else [Marker(id="m", body=Where(marker), sequence=9)]
    left, others = leaf_candidates(leaf, made, predicate)
    assert len(left) + others == sum(n not in dead for n in range(len(found)))
    of_columns = plan_scan(left, markers, predicate, evidence=evidence)
    whole = [entry for _, entry in live_entries(leaf, found)]
    of_entries = plan_scan(whole, markers, predicate, evidence=evidence)
    assert of_columns.tasks == of_entries.tasks
    assert of_columns.pruned + others == of_entries.pruned
    assert of_columns.deleted == of_entries.deleted
    # And they are the entries that were written, however they are asked for.
    assert list(made) == found and made[0] == found[0] and made[1:] == tuple(found[1:])
    assert encode_files(made, Types((OLD, NEW))) == data


def test_only_entries_that_may_match_become_objects() -> None:
    long = Primitive("int64")
    found = [
        DataFile(
            key=f"{n}.parquet",
            size=1,
            footer_size=9,
            rows=4,
            row_groups=1,
            schema_id=1,
            stats={1: ColumnStats(n, n, 0, kind=long)},
        )
        for n in range(1000)
    ]
    made = decode_files(encode_files(found, Types((NEW,))), key="k")
    leaf = Segment(id="l", count=1000, size=1, sequence=2)
    left, others = leaf_candidates(leaf, made, Comparison(1, "=", Literal(long, 77)))
    assert [entry.key for entry in left] == ["77.parquet"] and others == 999
    assert len(made._made) == 1
    every = decode_files(encode_files(found, Types((NEW,))), key="k")
    kept, others = leaf_candidates(replace(leaf, dead=FrozenBitMap([5])), every, TRUE)
    assert (len(kept), others) == (999, 0)
    # Entries that are objects already are all looked at by everything known.
    some = replace(leaf, count=3, dead=FrozenBitMap([1]))
    for predicate in (TRUE, Comparison(1, "=", Literal(long, 77))):
        objects, others = leaf_candidates(some, tuple(found[:3]), predicate)
        assert ([entry.key for entry in objects], others) == (["0.parquet", "2.parquet"], 0)
    # An entry that goes elsewhere does not take the others along.
    assert pickle.loads(pickle.dumps(left)) == left
    assert len(pickle.dumps(left)) < 1_000


def test_entries_are_left_out_by_the_columns_that_the_condition_names() -> None:
    """Not by others of the same type, nor by bounds that are NaN's neighbours."""
    text, double = Primitive("string"), Primitive("double")
    low, high = ColumnStats("a", "b", 0), ColumnStats("x", "z", 0)
    numbers = ColumnStats(1.0, 2.0, 0, has_nan=None)
    plain: dict[str, Any] = {"size": 1, "footer_size": 9, "rows": 4, "row_groups": 1}
    found = [
        DataFile(key="0", schema_id=1, stats={3: low, 8: high, 2: numbers}, **plain),
        DataFile(key="1", schema_id=1, stats={3: high, 8: low}, **plain),
        DataFile(key="2", schema_id=1, stats={8: low}, **plain),
    ]
    made = decode_files(encode_files(found, Types((NEW,))), key="k")
    leaf = Segment(id="l", count=3, size=1, sequence=2)
    for predicate, keys in (
        (Comparison(3, "=", Literal(text, "a")), "02"),
        (Comparison(3, "<=", Literal(text, "x")), "012"),
        (Comparison(3, "<=", Literal(text, "w")), "02"),
        (Comparison(3, ">=", Literal(text, "b")), "012"),
        (Comparison(3, ">=", Literal(text, "c")), "12"),
        (Comparison(8, "=", Literal(text, "a")), "12"),
        (
            And((Comparison(8, "=", Literal(text, "a")), Comparison(3, ">", Literal(text, "m")))),
            "12",
        ),
        (Comparison(2, "=", Literal(double, 9.0)), "012"),
    ):
        left, others = leaf_candidates(leaf, made, predicate)
        assert ("".join(entry.key for entry in left), others) == (keys, 3 - len(keys)), predicate


RANGES = st.builds(
    KeyRange,
    st.just(1),
    st.none() | st.integers(-5, 12),
    st.none() | st.integers(-5, 12),
    st.booleans(),
    st.booleans(),
)


@settings(deadline=None, max_examples=200)
@given(
    bodies=st.lists(RANGES, max_size=6),
    values=st.lists(st.none() | st.integers(0, 8), min_size=1, max_size=6),
)
def test_deletes_by_range_hit_the_files_that_have_such_rows(
    bodies: list[KeyRange], values: list[Any]
) -> None:
    """A plan names each delete that hits a row, and drops a file only when all of it is deleted."""
    stats = {1: replace(bounds(values), kind=Primitive("int64"))}
    entry = DataFile(
        key="f",
        size=1,
        footer_size=9,
        rows=len(values),
        row_groups=1,
        schema_id=1,
        sequence=1,
        stats=stats,
    )
    markers = [Marker(id=str(n), body=body, sequence=2) for n, body in enumerate(bodies)]
    plan = plan_scan([entry], markers, evidence=Evidence(NEW, [OLD]))
    hit = [{v for v in values if v is not None and _inside(body, v)} for body in bodies]
    if plan.deleted:
        assert any(found == set(values) for found in hit)
    else:
        [task] = plan.tasks
        named = {marker.id for marker in task.markers}
        assert {str(n) for n, found in enumerate(hit) if found} <= named


def _inside(body: KeyRange, value: int) -> bool:
    low, high = body.lower, body.upper
    above = low is None or value > low or (body.lower_inclusive and value == low)
    below = high is None or value < high or (body.upper_inclusive and value == high)
    return above and below


def test_a_count_is_made_once(lake: Any, committed: Any) -> None:
    table = pa.table(
        {"id": pa.array(range(50_000), pa.int64()), "v": [str(n) for n in range(50_000)]}
    )
    schema = schema_from_arrow(table.schema)
    files = committed(lake.write(table))
    objects = Objects(lake.store, "tables/t", ObjectCache())
    projection = Projection(schema=schema, columns=())
    far = Marker(id="a", body=KeyRange(1, 10, 19), sequence=2)
    near = Marker(id="b", body=KeyRange(1, 15, 24), sequence=2)
    for markers, expected in (([far], 10), ([far, near], 15)):
        plan = lake.plan(files, schema, markers)
        counts = []
        for _ in range(2):
            lake.store.reads.clear()
            found = Reader(objects, lake.executor).counts(plan.tasks, projection)
            counts.append((sum(rows for _, rows in found), len(lake.store.reads) > 0))
        assert counts == [(50_000 - expected, True), (50_000 - expected, False)]


def test_metadata_counts_what_a_vector_deletes(lake: Any, committed: Any) -> None:
    table = pa.table({"id": pa.array(range(100), pa.int64())})
    schema = schema_from_arrow(table.schema)
    [file] = committed(lake.write(table))
    one = Marker(id="a", body=Rows((1, 5, 9)), file=file.key)
    [task] = lake.plan([file], schema, [one]).tasks
    assert task.live_rows == 97
    # Two may name the same row.
    two = Marker(id="b", body=Rows((5, 6)), file=file.key)
    [task] = lake.plan([file], schema, [one, two]).tasks
    assert task.live_rows is None
    assert replace(task, markers=()).live_rows == 100


def test_a_column_cut_short_is_an_error_and_not_fewer_files() -> None:
    numbers = ("flags", "sequence", "size", "footer", "rows", "groups", "schema", "spec", "arrived")
    columns = {name: [1, 1] for name in (*numbers, "cluster")}
    texts = {name: [None, None] for name in ("etag", "event", "origin")}
    cut = FileEntries({**columns, **texts, "partition": [(), ()], "key": ["data/1"]}, (), 2)
    assert len(cut) == 2
    with pytest.raises(IndexError):
        list(cut)
