"""Many deletes of one column, merged: they select the rows that they select separately."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from inlay.errors import CorruptTable
from inlay.format.entry import ColumnStats, KeyRange, Marker, RowGroups, Rows, Vector, Where
from inlay.format.predicate import And, Comparison, In, IsNull, Literal, Predicate
from inlay.format.puffin import encode_vector
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.ops.cache import ObjectCache
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.parquet.arrow.types import schema_to_arrow, to_arrow_array
from inlay.parquet.read import deleted_rows as module
from inlay.parquet.read.deleted_rows import (
    MANY_MARKERS,
    DeletedRanges,
    FileDeletes,
    GroupDeletes,
    KeySet,
    combine_markers,
    key_set,
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


# -- every small case ------------------------------------------------------------------------------

INT, REAL = Primitive("int64"), Primitive("double")
PLACES = range(5)


def all_disjoint() -> Iterator[list[tuple[int, int]]]:
    """Intervals among five places that neither overlap nor touch."""
    for marked in itertools.product([False, True], repeat=len(PLACES)):
        runs: list[tuple[int, int]] = []
        for place in PLACES:
            if marked[place] and runs and runs[-1][1] == place - 1:
                runs[-1] = (runs[-1][0], place)
            elif marked[place]:
                runs.append((place, place))
        yield runs


def of_intervals(runs: Sequence[tuple[int, int]]) -> DeletedRanges:
    return DeletedRanges(ID, INT, tuple(a for a, _ in runs), tuple(b for _, b in runs))


def test_intervals_are_cut_to_what_bounds_allow_and_cover_what_is_within_one() -> None:
    for runs in all_disjoint():
        deleted = of_intervals(runs)
        for low, high in itertools.combinations_with_replacement(range(-1, 6), 2):
            known = {ID: ColumnStats(low, high, 0, kind=INT)}
            within = deleted.within(known, 3)
            left = [] if within is None else list(zip(within.starts, within.ends, strict=True))
            if runs:
                assert left == [(a, b) for a, b in runs if a <= high and low <= b]
            covered = any(a <= low and high <= b for a, b in runs)
            assert deleted.cover(known, 3) is covered
            assert not deleted.cover(known, 0)
            for nulls in (None, 1, 3):
                some = {ID: ColumnStats(low, high, nulls, kind=INT)}
                assert not deleted.cover(some, 3)
                assert (deleted.within(some, 3) is None) is (nulls == 3 or within is None)


def test_bounds_of_another_type_or_on_one_side_say_nothing() -> None:
    deleted = of_intervals([(2, 3)])
    for known in (
        {},
        {ID: ColumnStats(7, None, 0, kind=INT)},
        {ID: ColumnStats(None, 0, 0, kind=INT)},
        {ID: ColumnStats(7, 9, 0, kind=Primitive("date"))},
        {ID + 1: ColumnStats(7, 9, 0, kind=INT)},
    ):
        assert deleted.within(known, 3) is deleted and not deleted.cover(known, 3)
    assert deleted.within({ID: ColumnStats(7, 9, 0)}, 3) is None
    assert deleted.cover({ID: ColumnStats(2, 3, 0)}, 3)


@pytest.mark.parametrize("arrow", [pa.int8(), pa.int64(), pa.date32(), pa.timestamp("us")], ids=str)
def test_a_value_is_in_an_interval_if_it_is_between_its_ends(arrow: pa.DataType) -> None:
    numbers = [None, *range(-2, 7), None]
    kind = {"int8": "int8", "int64": "int64", "date32[day]": "date"}.get(str(arrow), "timestamp")
    row_kind = Primitive(kind, unit="us" if kind == "timestamp" else "")  # type: ignore[arg-type]
    column = pa.array(numbers, pa.int64()).cast(pa.int32() if kind == "date" else pa.int64())
    for runs in all_disjoint():
        if runs:
            starts, ends = zip(*runs, strict=True)
            found = DeletedRanges(ID, row_kind, starts, ends).matches(column.cast(arrow), 11)
            assert found.to_pylist() == [
                None if n is None else any(a <= n <= b for a, b in runs) for n in numbers
            ]
    assert of_intervals([(0, 1)]).matches(None, 3).to_pylist() == [None] * 3


def every_range() -> Iterator[KeyRange]:
    ends = [None, 0, 1, 2]
    for lower, upper in itertools.product(ends, ends):
        for above, below in itertools.product([False, True], repeat=2):
            yield KeyRange(
                ID, lower=lower, upper=upper, lower_inclusive=above, upper_inclusive=below
            )


def test_merged_ranges_hold_the_numbers_of_each_and_neither_overlap_nor_touch() -> None:
    schema = Schema(0, (Field(ID, "c", INT, True),))
    numbers = [None, *range(-1, 4)]
    batch = pa.record_batch([pa.array(numbers, pa.int64())], schema=schema_to_arrow(schema))
    columns = columns_of(schema)

    def selects(body: KeyRange) -> list[bool]:
        found = selected(range_predicate(body, INT), batch, columns)
        return [bool(v) for v in found.to_pylist()]

    bodies = [(body, selects(body)) for body in every_range()]
    for (one, by_one), (other, by_other) in itertools.product(bodies, repeat=2):
        ranges, left = merge_predicates([one, other], schema)
        keep = GroupDeletes(predicates=left, ranges=ranges).keep_values(batch, schema)
        gone = [False] * len(numbers) if keep is None else pc.invert(keep).to_pylist()
        assert gone == [a or b for a, b in zip(by_one, by_other, strict=True)], (one, other)
        for deleted in ranges:
            assert all(a <= b for a, b in zip(deleted.starts, deleted.ends, strict=True))
            gaps = zip(deleted.ends, deleted.starts[1:], strict=False)
            assert all(end + 1 < start for end, start in gaps)


OPS = ["=", "<", "<=", ">", ">=", "!="]


def test_comparisons_of_whole_numbers_are_intervals() -> None:
    schema = Schema(0, (Field(ID, "c", INT, True),))
    numbers = [None, *range(-1, 4)]
    batch = pa.record_batch([pa.array(numbers, pa.int64())], schema=schema_to_arrow(schema))
    columns = columns_of(schema)
    single: list[Predicate] = [
        Comparison(ID, op, Literal(INT, n))  # type: ignore[arg-type]
        for op in OPS
        for n in (0, 1, 2)
    ]
    single += [In(ID, INT, (0, 2)), In(ID, INT, (1, 2, 3)), IsNull(ID)]
    for predicate in [*single, *map(And, itertools.product(single, repeat=2))]:
        ranges, left = merge_predicates([predicate], schema)
        keep = GroupDeletes(predicates=left, ranges=ranges).keep_values(batch, schema)
        gone = [False] * len(numbers) if keep is None else pc.invert(keep).to_pylist()
        assert gone == [bool(v) for v in selected(predicate, batch, columns).to_pylist()]
        parts = getattr(predicate, "parts", [predicate])
        odd = any(part in unequal(single) or part == IsNull(ID) for part in parts)
        assert bool(left) is odd, "only what is no interval is evaluated for each row"


def test_two_bounds_of_one_column_are_one_interval_or_none() -> None:
    schema = Schema(0, (Field(ID, "c", INT, True), Field(ID + 1, "d", INT, True)))

    def both(low: int, high: int, other: int = ID) -> Predicate:
        least, most = Literal(INT, low), Literal(INT, high)
        return And((Comparison(ID, ">=", least), Comparison(other, "<=", most)))

    assert merge_predicates([both(9, 1)], schema) == ((), ())
    assert merge_predicates([both(5, 5)], schema) == ((of_intervals([(5, 5)]),), ())
    # What is in no interval is not among those that are searched.
    many = [both(1, 3), both(9, 2), both(11, 12)]
    assert merge_predicates(many, schema) == ((of_intervals([(1, 3), (11, 12)]),), ())
    apart = both(1, 3, other=ID + 1)
    assert merge_predicates([apart], schema) == ((), (apart,))


@pytest.mark.parametrize("has_nan", [False, True, None])
def test_keys_are_cut_to_those_that_rows_within_bounds_can_equal(has_nan: bool | None) -> None:
    firsts, seconds = [0, 1, 2, 2], [1.0, math.nan, -1.0, 3.0]
    keys = KeySet((1, 2), (pa.array(firsts, pa.int64()), pa.array(seconds, pa.float64())))
    ends = [None, -1, 0, 1, 2, 3]
    for low, high, below, above in itertools.product(ends, repeat=4):
        stats = {
            1: ColumnStats(low, high, 0, kind=INT),
            2: ColumnStats(
                None if below is None else float(below),
                None if above is None else float(above),
                0,
                has_nan=has_nan,
                kind=REAL,
            ),
        }
        whole = low is None or high is None
        open_ = below is None or above is None
        expected = [
            (a, repr(b))
            for a, b in zip(firsts, seconds, strict=True)
            if (whole or low <= a <= high)
            and (open_ or below <= b <= above or (math.isnan(b) and has_nan is not False))
        ]
        near = keys.within(stats)
        found = (
            []
            if near is None
            else [
                (a, repr(b))
                for a, b in zip(*(column.to_pylist() for column in near.columns), strict=True)
            ]
        )
        assert found == expected
    assert KeySet((1,), (pa.array([], pa.int64()),)).within({}) is None
    assert keys.within({}) is keys


def test_a_row_equals_a_key_if_all_its_columns_do() -> None:
    """NULL equals nothing, NaN itself, and the zeros each other."""
    firsts, seconds = [0, 1, 2, None], [0.0, 1.5, math.nan, None, -0.0]
    rows = list(itertools.product(firsts, seconds))
    columns = [
        pa.array([a for a, _ in rows], pa.int64()),
        pa.array([b for _, b in rows], pa.float64()),
    ]

    def same(one: Any, other: Any) -> bool:
        pairs = list(zip(one, other, strict=True))
        return all(
            None not in pair and (pair[0] == pair[1] or (pair[0] != pair[0] and pair[1] != pair[1]))
            for pair in pairs
        )

    for listed in itertools.combinations(rows, 2):
        keys = key_set(
            (1, 2),
            [
                pa.array([a for a, _ in listed], pa.int64()),
                pa.array([b for _, b in listed], pa.float64()),
            ],
        )
        found = [bool(v) for v in keys.matches(columns).to_pylist()]
        assert found == [any(same(row, key) for key in listed) for row in rows], listed


def test_positions_are_those_within_the_group() -> None:
    for positions in itertools.chain.from_iterable(
        itertools.combinations(range(5), n) for n in range(6)
    ):
        deletes = FileDeletes(positions=BitMap64(positions), groups=frozenset((7,)))
        assert deletes.of_group(7, 1, 3, {}, {}) is None
        group = deletes.of_group(0, 1, 3, {}, {})
        inside = [p - 1 for p in positions if 1 <= p < 4]
        if len(inside) == 3:
            assert group is None
            continue
        assert group is not None
        found = [] if group.positions is None else group.positions.to_pylist()
        assert found == inside and group.any is bool(inside)
        keep = group.keep_positions(3)
        kept = [True] * 3 if keep is None else keep.to_pylist()
        assert kept == [n not in inside for n in range(3)]
    assert FileDeletes().of_group(0, 0, 3, {}, {}) == GroupDeletes()


def test_markers_of_a_file_are_one_value() -> None:
    schema = Schema(0, (Field(ID, "c", INT, True),))
    at = [Marker(id=f"r{n}", body=Rows((n, n + 1)), file="f") for n in (1, 5)]
    groups = [Marker(id=f"g{n}", body=RowGroups((n,)), file="f") for n in (0, 2)]
    by_value = [
        Marker(id="w", body=Where(IsNull(ID))),
        Marker(id="k", body=KeyRange(ID, lower=1, upper=2)),
        Marker(id="l", body=KeyRange(ID, lower=3, upper=4)),
    ]
    found = combine_markers([*at, *groups, *by_value], [], schema, Mock())
    assert found.positions is not None and set(found.positions) == {1, 2, 5, 6}
    assert found.groups == {0, 2} and found.predicates == (IsNull(ID),)
    assert [(r.starts, r.ends) for r in found.ranges] == [((1,), (4,))]
    loaded = BitMap64([7])
    assert set(combine_markers(at[:1], [loaded], schema, Mock()).positions or ()) == {1, 2, 7}
    assert combine_markers([], [loaded], schema, Mock()).positions is loaded
    assert combine_markers([], [], schema, Mock()) == FileDeletes()
    with pytest.raises(CorruptTable, match="delete x names a field"):
        combine_markers([Marker(id="x", body=KeyRange(99, lower=1))], [], schema, Mock())


@pytest.mark.parametrize("number", [MANY_MARKERS - 1, MANY_MARKERS])
def test_what_many_markers_say_together_is_remembered(number: int) -> None:
    schema = Schema(0, (Field(ID, "c", INT, True),))
    markers = [
        Marker(id=f"{n}", body=KeyRange(ID, lower=10 * n, upper=10 * n)) for n in range(number)
    ]
    cache = ObjectCache()
    with patch.object(module, "merge_predicates", wraps=merge_predicates) as merged:
        found = [combine_markers(markers, [], schema, cache) for _ in range(2)]
        assert found[0] == found[1] and len(found[0].ranges[0].starts) == number
        assert merged.call_count == (1 if number >= MANY_MARKERS else 2)
        other = combine_markers([*markers[1:], markers[0]], [], replace(schema, id=1), cache)
        assert other.ranges == found[0].ranges


def test_what_is_kept_in_memory_is_weighed_by_its_markers_and_its_bitmap() -> None:
    schema = Schema(0, (Field(ID, "c", INT, True),))
    markers = [Marker(id=f"{n}", body=KeyRange(ID, lower=n, upper=n)) for n in range(MANY_MARKERS)]
    cache = Mock()
    cache.get.return_value = None
    combine_markers(markers, [], schema, cache)
    assert cache.put.call_args.args[2] == 256 * MANY_MARKERS
    blob = encode_vector(BitMap64([1, 5, 9]))
    objects = Mock()
    objects.cache.once.side_effect = lambda name, load: load()
    with patch.object(module, "fetch_marker", lambda objects, source, place: blob):
        found, weight = module.load_vector(objects, Vector("v", 4, len(blob), 3), 10)  # type: ignore[misc]
    assert set(found) == {1, 5, 9} and weight == 2 * len(blob)


def test_a_key_with_a_null_in_any_column_equals_nothing() -> None:
    columns = [
        pa.array(values, pa.int64())
        for values in ([1, None, 3, 4, 5], [1, 2, None, 4, 5], [1, 2, 3, None, 5])
    ]
    for width in (1, 2, 3):
        keys = key_set(tuple(range(width)), columns[:width])
        whole = [
            row
            for row in zip(*(c.to_pylist() for c in columns[:width]), strict=True)
            if None not in row
        ]
        assert list(zip(*(c.to_pylist() for c in keys.columns), strict=True)) == whole
        held = [pa.array([1, None, 5, 9], pa.int64())] * width
        assert keys.matches(held).to_pylist() == [True, False, True, False]


def test_keys_of_what_is_no_column_of_values_are_damage() -> None:
    nested = Field(1, "s", Struct((Field(2, "a", INT),)))
    schema = Schema(0, (nested, Field(3, "b", INT)))
    assert module._arrow_type_of(schema, 2) == module._arrow_type_of(schema, 3) == pa.int64()
    for field_id in (1, 99):
        with pytest.raises(CorruptTable, match=f"names field {field_id}, which is not a primitive"):
            module._arrow_type_of(schema, field_id)
