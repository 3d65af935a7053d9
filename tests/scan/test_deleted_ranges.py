"""Many deletes of one column, merged: they select the rows that they select separately."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.format.entry import ColumnStats, KeyRange
from inlay.format.predicate import And, Comparison, In, IsNull, Literal, Predicate
from inlay.format.schema import Field, Primitive, Schema
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.parquet.arrow.types import schema_to_arrow, to_arrow_array
from inlay.parquet.read.deleted_rows import (
    DeletedRanges,
    FileDeletes,
    GroupDeletes,
    merge_predicates,
)
from inlay.plan.pruning.prune import range_predicate

sys.path.insert(0, str(Path(__file__).parents[1] / "predicate"))
from predicate_strategies import TYPES, values

ID = 7


def literals(kind: Primitive) -> st.SearchStrategy[Literal]:
    return values(kind).map(lambda value: Literal(kind, value))


def deletes(kind: Primitive) -> st.SearchStrategy:
    comparison = st.builds(
        Comparison, st.just(ID), st.sampled_from(["=", "<", "<=", ">", ">=", "!="]), literals(kind)
    )
    between = st.tuples(comparison, comparison).map(And)
    listed = st.lists(values(kind), min_size=1, max_size=5).map(lambda v: In(ID, kind, tuple(v)))
    return st.lists(comparison | between | listed | st.just(IsNull(ID)), max_size=8)


def unequal(predicates: Sequence[Predicate]) -> list[Predicate]:
    return [p for p in predicates if isinstance(p, Comparison) and p.op == "!="]


# A column's type, and that of the literals it is compared with: of deletes from before it became a time.
NUMBERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} - {"uint64"}
AS_INTERVALS = NUMBERS | {"date", "time", "timestamp", "timestamptz"}
COMPARED = [
    *((kind, kind) for kind in TYPES),
    (Primitive("timestamp", unit="us"), Primitive("date")),
]


@pytest.mark.parametrize(("kind", "was"), COMPARED, ids=str)
def test_merged_deletes_select_what_each_selects(kind: Primitive, was: Primitive) -> None:
    schema = Schema(0, (Field(ID, "c", kind, True),))
    arrow = schema_to_arrow(schema)
    columns = columns_of(schema)

    @settings(max_examples=15)
    @given(deletes(was), st.lists(st.none() | values(kind), max_size=12))
    def check(predicates, rows):
        batch = pa.record_batch([to_arrow_array(kind, rows)], schema=arrow)
        ranges, left = merge_predicates(predicates, schema)
        separate = [p for p in left if isinstance(p, In | Comparison) and p not in unequal(left)]
        assert not (separate if kind.name in AS_INTERVALS and kind == was else ranges)
        keep = GroupDeletes(predicates=left, ranges=ranges).keep_values(batch, schema)
        found = [False] * len(rows) if keep is None else pc.invert(keep).to_pylist()
        each = [selected(predicate, batch, columns).to_pylist() for predicate in predicates]
        assert found == reduce(
            lambda one, other: [a or b for a, b in zip(one, other, strict=True)],
            each,
            [False] * len(rows),
        )

    check()


@given(
    deletes(Primitive("int64")),
    st.lists(st.none() | st.integers(-4, 4), min_size=1),
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
)
def test_statistics_settle_only_what_holds_for_every_row(
    predicates, rows, below, above, counted
) -> None:
    """Bounds may be loose, and nothing be said of NULLs: a group is dropped, or an interval left out, only
    where no row is against it."""
    kind = Primitive("int64")
    schema = Schema(0, (Field(ID, "c", kind, True),))
    batch = pa.record_batch([pa.array(rows, pa.int64())], schema=schema_to_arrow(schema))
    columns = columns_of(schema)
    values = [row for row in rows if row is not None]
    bounds = (min(values) - below, max(values) + above) if values else (None, None)
    nulls = len(rows) - len(values) if counted else None
    stats = {ID: ColumnStats(*bounds, nulls, kind=kind)}
    ranges, left = merge_predicates(predicates, schema)
    deleted = [
        any(at)
        for at in zip(*(selected(p, batch, columns).to_pylist() for p in predicates), strict=True)
    ]
    deleted = deleted or [False] * len(rows)
    group = FileDeletes(predicates=left, ranges=ranges).of_group(0, 0, len(rows), stats, stats)
    if group is None:
        assert all(deleted)
        return
    keep = group.keep_values(batch, schema)
    found = [False] * len(rows) if keep is None else pc.invert(keep).to_pylist()
    assert found == deleted


BOUND = st.none() | st.sampled_from([-(2**63), -3, 0, 1, 2, 2**63 - 1])


@given(
    st.lists(st.builds(KeyRange, st.just(ID), BOUND, BOUND, st.booleans(), st.booleans())),
    st.lists(st.none() | st.sampled_from([-(2**63), -4, -3, 0, 1, 2, 3, 2**63 - 1])),
)
def test_ranges_merge_as_the_predicates_that_they_are(bodies, rows) -> None:
    kind = Primitive("int64")
    schema = Schema(0, (Field(ID, "c", kind, True),))
    batch = pa.record_batch([pa.array(rows, pa.int64())], schema=schema_to_arrow(schema))
    ranges, left = merge_predicates(bodies, schema)
    keep = GroupDeletes(predicates=left, ranges=ranges).keep_values(batch, schema)
    found = [False] * len(rows) if keep is None else pc.invert(keep).to_pylist()
    each = [
        selected(range_predicate(body, kind), batch, columns_of(schema)).to_pylist()
        for body in bodies
    ]
    assert found == [any(at) for at in zip(*each, strict=True)] if each else not any(found)


def test_ten_thousand_ranges_are_one_pass() -> None:
    kind = Primitive("int64")
    schema = Schema(0, (Field(ID, "c", kind, True),))
    predicates = [
        And((Comparison(ID, ">=", Literal(kind, at)), Comparison(ID, "<", Literal(kind, at + 2))))
        for at in range(0, 40_000, 4)
    ]
    ranges, left = merge_predicates(predicates, schema)
    assert left == ()
    assert [len(each.starts) for each in ranges] == [10_000]
    near = ranges[0].within({ID: ColumnStats(100, 107, 0, kind=kind)}, 9)
    assert near is not None
    assert (near.starts, near.ends) == ((100, 104), (101, 105))


@pytest.mark.parametrize("nulls", [0, 1, 5, None])
def test_a_range_covers_only_rows_that_all_have_a_value(nulls: int | None) -> None:
    """A NULL is in no range, so it is not deleted."""
    ranges = DeletedRanges(ID, Primitive("int64"), (0, 10), (4, 19))
    for low, high, inside in (
        (0, 4, True),
        (11, 19, True),
        (0, 5, False),
        (-1, 3, False),
        (3, 11, False),
    ):
        stats = {ID: ColumnStats(low, high, nulls)}
        assert ranges.cover(stats, 5) is (inside and nulls == 0)
        assert not ranges.cover(stats, 0) and not ranges.cover({}, 5)
