"""Clustering makes lookups open few files, keeps every row, and terminates."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import InvalidRequest
from inlay.format.entry import ColumnStats, DataFile
from inlay.ops.commit.driver import commit
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.in_order import morton
from inlay.ops.write.append import append
from inlay.plan.change import Change, SetProperties
from inlay.plan.maintain.clustering import MIN_RUNS, cluster_units, runs_of
from inlay.plan.maintain.order import Order, order_of

from .bench import Bench, id_is, new_bench

SORTED = (("compact.strategy", "sort"), ("compact.columns", "id"))


def _shuffled(bench: Bench, files: int, rows: int) -> None:
    """Files that each hold keys from everywhere."""
    ids = list(range(files * rows))
    random.Random(1).shuffle(ids)
    for n in range(files):
        part = ids[n * rows : (n + 1) * rows]
        bench.time.sleep(1)
        append(bench.ctx, pa.table({"id": part, "name": [f"v{i}" for i in part]}))


def _files_at(bench: Bench, key: int) -> int:
    return sum(f.stats[1].lower <= key <= f.stats[1].upper for f in bench.load().state.files())


def test_sorting_leaves_one_file_where_a_lookup_opened_them_all() -> None:
    bench = new_bench(properties=(*SORTED, ("write.target_file_bytes", 4096)))
    _shuffled(bench, files=8, rows=500)
    before = sorted(bench.rows())
    assert _files_at(bench, 1000) == 8
    result = compact(bench.ctx, small_bytes=0)
    assert (result.units, result.input_files) == (1, 8)
    assert result.output_files > 1
    assert max(_files_at(bench, key) for key in range(0, 4000, 37)) == 1
    assert sorted(bench.rows()) == before
    assert bench.ids() == sorted(bench.ids())


def test_a_clustered_table_is_left_alone() -> None:
    bench = new_bench(properties=(*SORTED, ("write.target_file_bytes", 4096)))
    _shuffled(bench, files=8, rows=500)
    version = compact(bench.ctx, small_bytes=0).version
    assert compact(bench.ctx, small_bytes=0).version == version


def test_files_of_one_run_that_are_packed_are_still_that_run_and_others_are_none() -> None:
    bench = new_bench(properties=(*SORTED, ("write.target_file_bytes", 4096)))
    _shuffled(bench, files=8, rows=500)
    compact(bench.ctx, small_bytes=0)
    [run] = {f.cluster for f in bench.load().state.files()}
    assert run is not None
    compact(bench.ctx, small_bytes=1 << 30, target_bytes=1 << 30)
    [file] = bench.load().state.files()
    assert file.cluster == run
    _shuffled(bench, files=MIN_RUNS - 1, rows=500)
    compact(bench.ctx, small_bytes=1 << 30, target_bytes=1 << 30)
    assert {f.cluster for f in bench.load().state.files()} == {None}


def test_even_when_one_key_fills_many_files_it_is_left_alone() -> None:
    bench = new_bench(properties=(*SORTED, ("write.target_file_bytes", 1024)))
    noise = random.Random(2)
    for _ in range(6):
        names = [str(noise.random()) for _ in range(2_000)]
        append(bench.ctx, pa.table({"id": [7] * 2_000, "name": names}))
    first = compact(bench.ctx, small_bytes=0)
    assert first.units == 1 and first.output_files > MIN_RUNS
    assert compact(bench.ctx, small_bytes=0).units == 0


def test_fewer_runs_than_that_are_not_worth_it() -> None:
    bench = new_bench(properties=SORTED)
    _shuffled(bench, files=MIN_RUNS - 1, rows=50)
    assert compact(bench.ctx, small_bytes=0).units == 0


def test_a_unit_is_no_larger_than_its_memory_allows() -> None:
    bench = new_bench(properties=SORTED)
    _shuffled(bench, files=12, rows=200)
    size = max(f.size for f in bench.load().state.files())
    memory = 10 * 6 * size
    result = compact(bench.ctx, small_bytes=0, memory_bytes=memory, dry_run=True)
    assert result.plan is not None
    assert [len(u.inputs) for u in result.plan.units] == [6, 6]
    assert compact(bench.ctx, small_bytes=0, memory_bytes=10 * 2 * size).units == 0


def test_z_order_serves_lookups_by_either_column() -> None:
    bench = new_bench(
        properties=(
            ("compact.strategy", "zorder"),
            ("compact.columns", "id, name"),
            ("write.target_file_bytes", 2048),
        )
    )
    chance = random.Random(3)
    pairs = [(n, f"{chance.randrange(1000):03}") for n in range(16_000)]
    chance.shuffle(pairs)
    for n in range(8):
        part = pairs[n * 2_000 : (n + 1) * 2_000]
        append(bench.ctx, pa.table({"id": [p[0] for p in part], "name": [p[1] for p in part]}))
    before = sorted(bench.rows())
    compact(bench.ctx, small_bytes=0)
    files = list(bench.load().state.files())
    by_id = [
        sum(f.stats[1].lower <= k <= f.stats[1].upper for f in files) for k in range(0, 16_000, 391)
    ]
    texts = [f"{k:03}" for k in range(0, 1000, 37)]
    by_name = [sum(f.stats[2].lower <= k <= f.stats[2].upper for f in files) for k in texts]
    # A sort by id would leave every file to a lookup by name.
    assert len(files) >= 8
    assert sum(by_id) / len(by_id) < len(files) * 0.6
    assert sum(by_name) / len(by_name) < len(files) * 0.6
    assert sorted(bench.rows()) == before
    assert compact(bench.ctx, small_bytes=0).units == 0


def test_deletes_are_folded_in_on_the_way() -> None:
    bench = new_bench(properties=SORTED)
    _shuffled(bench, files=5, rows=20)
    bench.delete(id_is(3, 14))
    bench.delete(id_is(25), mode="vector")
    result = compact(bench.ctx, small_bytes=0)
    assert result.removed_rows == 3
    assert bench.ids() == [i for i in range(100) if i not in (3, 14, 25)]
    assert list(bench.load().state.markers()) == []


def test_time_that_is_too_short_leaves_the_unit_and_hands_it_over() -> None:
    bench = new_bench(properties=(*SORTED, ("compact.handover_bytes", 1)))
    _shuffled(bench, files=5, rows=20)
    result = compact(bench.ctx, small_bytes=0, deadline_seconds=1e-9)
    assert (result.units, result.left, result.hand_over) == (0, 1, True)
    assert result.left_bytes == sum(f.size for f in bench.load().state.files())
    assert not compact(bench.ctx, small_bytes=0).hand_over


@pytest.mark.parametrize(
    ("strategy", "columns"), [("sort", "nosuch"), ("zorder", "id"), ("sort", "")]
)
def test_an_impossible_order_is_reported(strategy: str, columns: str) -> None:
    bench = new_bench()
    update = SetProperties({"compact.strategy": strategy, "compact.columns": columns})
    snapshot = commit(
        bench.ctx, Change(operation="set_properties", updates=(update,))
    ).loaded.snapshot
    with pytest.raises(InvalidRequest, match=r"compact\."):
        order_of(snapshot)


def test_morton_keys_interleave_ranks_and_put_nulls_last() -> None:
    keys = morton(pa.table({"a": [0, 0, 1, 1], "b": ["x", "y", "x", "y"]})).to_pylist()
    assert [key >> 62 for key in keys] == [0b00, 0b01, 0b10, 0b11]
    keys = morton(pa.table({"a": [5, None, 3], "b": [1.0, float("nan"), 0.5]})).to_pylist()
    assert sorted(range(3), key=keys.__getitem__) == [2, 0, 1]


_intervals = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(1, 9)), max_size=40
)


@settings(deadline=None, max_examples=150)
@given(_intervals, st.integers(10, 60))
def test_units_meet_in_a_point_and_clustering_ends(
    intervals: list[tuple[int, int, int]], unit_bytes: int
) -> None:
    snapshot = new_bench().load().snapshot
    order = Order("sort", (1,))
    files = [
        _file(f"f{n}", low, low + length, size) for n, (low, length, size) in enumerate(intervals)
    ]
    before = _deepest(files)
    for step in range(200):
        units = list(cluster_units(files, order, snapshot, unit_bytes=unit_bytes))
        taken = Counter(f.key for unit in units for f in unit)
        assert not taken or max(taken.values()) == 1
        if not units:
            return
        for at, unit in enumerate(units):
            assert sum(f.size for f in unit) <= unit_bytes
            assert runs_of(unit) >= MIN_RUNS
            assert max(f.stats[1].lower for f in unit) <= min(f.stats[1].upper for f in unit)
            files = [f for f in files if f not in unit] + _written(
                unit, f"{step}-{at}", step * 99 + at
            )
        assert _deepest(files) <= before
    raise AssertionError("clustering does not come to rest")


def _file(key: str, low: int, high: int, size: int, cluster: int | None = None) -> DataFile:
    return DataFile(
        key=key,
        size=size,
        footer_size=1,
        rows=1,
        row_groups=1,
        schema_id=0,
        stats={1: ColumnStats(low, high, 0)},
        cluster=cluster,
    )


def _written(unit: list[DataFile], name: str, cluster: int) -> list[DataFile]:
    """What a unit becomes: two files that share an edge."""
    low = min(f.stats[1].lower for f in unit)
    high = max(f.stats[1].upper for f in unit)
    size, middle = sum(f.size for f in unit), (low + high) // 2
    return [
        _file(f"{name}a", low, middle, size // 2, cluster),
        _file(f"{name}b", middle, high, size - size // 2, cluster),
    ]


def _deepest(files: list[DataFile]) -> int:
    return max(
        (runs_of(f for f in files if f.stats[1].lower <= p <= f.stats[1].upper) for p in range(50)),
        default=0,
    )
