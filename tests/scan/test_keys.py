"""Equality deletes: a row goes when it equals a key; NULL equals nothing, NaN itself, -0.0 zero."""

from __future__ import annotations

import io
import math
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inlay.errors import CorruptTable, UnreadableFile
from inlay.format.entry import ColumnStats, Keys
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.values import order_key
from inlay.parquet.read.deleted_rows import load_keys

SCHEMA = Schema(
    0,
    (
        Field(1, "n", Primitive("int32")),
        Field(2, "f", Primitive("double")),
        Field(3, "s", Primitive("string")),
        Field(4, "g", Primitive("float")),
    ),
)
ARROW = {1: pa.int32(), 2: pa.float64(), 3: pa.string(), 4: pa.float32()}
# NaN has many bit patterns, and all of them are the one NaN.
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
FLOATS = st.sampled_from([0.0, -0.0, math.nan, OTHER_NAN, 1.5, -math.inf])
VALUES: dict[int, st.SearchStrategy[Any]] = {
    1: st.none() | st.integers(-1, 2),
    2: st.none() | FLOATS,
    3: st.none() | st.sampled_from(["", "a", "b"]),
    4: st.none() | FLOATS,
}


def stored(lake: Any, fields: list[int], rows: list[tuple[Any, ...]]) -> Keys:
    arrays = [pa.array([row[at] for row in rows], ARROW[f]) for at, f in enumerate(fields)]
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays, names=[str(f) for f in fields]), sink)
    lake.put("k.del", sink.getvalue())
    return Keys(tuple(fields), "k.del", len(sink.getvalue()), len(rows))


@st.composite
def cases(draw: Any) -> tuple[list[int], list[Any], list[Any]]:
    fields = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4, unique=True))
    row = st.tuples(*(VALUES[f] for f in fields))
    return fields, draw(st.lists(row, max_size=12)), draw(st.lists(row, min_size=1, max_size=12))


def equals(row: tuple[Any, ...], key: tuple[Any, ...]) -> bool:
    pairs = zip(row, key, strict=True)
    return all(a is not None and b is not None and order_key(a) == order_key(b) for a, b in pairs)


@settings(deadline=None, max_examples=150)
@given(case=cases())
@example(case=([2], [(-0.0,), (0.0,)], [(0.0,), (-0.0,), (None,)]))
@example(case=([2], [(OTHER_NAN,)], [(math.nan,), (1.5,)]))
@example(case=([1, 3], [(None, "a"), (1, None)], [(None, "a"), (1, None), (1, "a")]))
@example(case=([1, 3], [(0, "a"), (1, "b")], [(0, "b"), (1, "a"), (0, "a")]))
def test_a_row_goes_when_it_equals_a_key(new_lake: Any, case: Any) -> None:
    fields, keys, rows = case
    lake = new_lake()
    found = load_keys(lake.objects, stored(lake, fields, keys), SCHEMA)
    columns = [pa.array([row[at] for row in rows], ARROW[f]) for at, f in enumerate(fields)]
    expected = [any(equals(row, key) for key in keys) for row in rows]
    assert found.matches(columns).to_pylist() == expected


@settings(deadline=None, max_examples=150)
@given(case=cases())
@example(case=([2], [(math.nan,)], [(math.nan,), (1.5,)]))
def test_statistics_leave_every_key_that_a_row_can_equal(new_lake: Any, case: Any) -> None:
    fields, keys, rows = case
    lake = new_lake()
    found = load_keys(lake.objects, stored(lake, fields, keys), SCHEMA)
    stats = {}
    for at, field in enumerate(fields):
        values = [row[at] for row in rows if row[at] is not None]
        numbers = [v for v in values if not (isinstance(v, float) and math.isnan(v))]
        if numbers:
            stats[field] = ColumnStats(min(numbers), max(numbers), len(rows) - len(values))
    near = found.within(stats)
    columns = [pa.array([row[at] for row in rows], ARROW[f]) for at, f in enumerate(fields)]
    expected = [any(equals(row, key) for key in keys) for row in rows]
    assert (near.matches(columns).to_pylist() if near else [False] * len(rows)) == expected


def test_keys_outside_of_the_statistics_are_not_looked_up(lake: Any) -> None:
    found = load_keys(lake.objects, stored(lake, [1], [(n,) for n in range(1000)]), SCHEMA)
    near = found.within({1: ColumnStats(10, 19, 0)})
    assert near is not None and near.columns[0].to_pylist() == list(range(10, 20))
    assert found.within({1: ColumnStats(5000, 6000, 0)}) is None


def test_many_keys_are_read_once_and_kept(lake: Any) -> None:
    from inlay.ops.cache import ObjectCache
    from inlay.parquet.read.ranges import Objects

    objects = Objects(lake.store, "tables/t", ObjectCache())
    entry = stored(lake, [1], [(n * 3,) for n in range(100_000)])
    rows = pa.array(range(100_000), pa.int32())
    for _ in range(2):
        hit = load_keys(objects, entry, SCHEMA).matches([rows])
    assert hit.true_count == 33_334
    assert len(lake.store.reads) == 1


def test_a_key_file_that_is_broken_is_named(lake: Any) -> None:
    lake.put("k.del", b"PAR1 not really PAR1")
    with pytest.raises(UnreadableFile, match=r"k\.del"):
        load_keys(lake.objects, Keys((1,), "k.del", 20, 1), SCHEMA)


def test_a_key_file_with_other_columns_than_its_entry_is_refused(lake: Any) -> None:
    entry = stored(lake, [1, 3], [(1, "a")])
    with pytest.raises(CorruptTable, match="2 columns"):
        load_keys(lake.objects, Keys((1,), entry.key, entry.size, 1), SCHEMA)
