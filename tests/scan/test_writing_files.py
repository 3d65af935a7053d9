"""Written files: the rows given, good statistics, the layout asked for, nothing left when it fails."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inlay.errors import StoreUnavailable
from inlay.format.entry import ColumnStats
from inlay.format.values import order_key
from inlay.parquet.arrow.types import schema_from_arrow
from inlay.parquet.read.statistics import BOUND_LENGTH
from inlay.parquet.write import writer
from inlay.parquet.write.writer import Layout, write_files

TABLE = pa.table(
    {
        "k": pa.array([(n * 7919) % 10_000 for n in range(10_000)], pa.int64()),
        "word": pa.array([f"{n:05d}" for n in range(10_000)]),
    }
)
SCHEMA = schema_from_arrow(TABLE.schema)


def parquet(lake: Any, entry: Any) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(lake.body(entry.key)))


def all_rows(lake: Any, entries: Any) -> pa.Table:
    return pa.concat_tables([parquet(lake, e).read() for e in entries])


def test_the_rows_come_back_in_order(lake: Any) -> None:
    entries = lake.write(TABLE, row_group_rows=3000)
    assert all_rows(lake, entries).equals(TABLE)
    [entry] = entries
    assert (entry.rows, entry.row_groups, entry.schema_id) == (10_000, 4, 0)
    assert entry.size == len(lake.body(entry.key)) and entry.sequence is None
    metadata = parquet(lake, entry).metadata
    assert entry.footer_size == metadata.serialized_size + 8


def test_files_have_ids_page_index_and_checksums(lake: Any) -> None:
    [entry] = lake.write(TABLE)
    file = parquet(lake, entry)
    assert [f.metadata[b"PARQUET:field_id"] for f in file.schema_arrow] == [b"1", b"2"]
    chunk = file.metadata.row_group(0).column(0)
    assert chunk.compression == "ZSTD" and chunk.has_offset_index and chunk.has_column_index


def stored_groups(lake: Any, entry: Any) -> list[int]:
    metadata = parquet(lake, entry).metadata
    chunks = [
        [metadata.row_group(g).column(c) for c in range(metadata.num_columns)]
        for g in range(entry.row_groups)
    ]
    return [sum(chunk.total_compressed_size for chunk in group) for group in chunks]


@pytest.mark.parametrize("sort_by", [(), (1,)])
@pytest.mark.parametrize("slice_rows", [77, 10_000])
def test_row_groups_are_bounded_by_stored_bytes(lake: Any, sort_by: Any, slice_rows: int) -> None:
    batches = TABLE.to_batches(max_chunksize=slice_rows)
    layout = Layout(row_group_bytes=8_000, sort_by=sort_by)
    [entry] = write_files(lake.target(), batches, SCHEMA, layout)
    stored = stored_groups(lake, entry)
    assert all(size <= 1.2 * 8_000 for size in stored), stored
    # No remnant at the end.
    assert all(size >= 0.4 * 8_000 for size in stored), stored
    assert len(stored) <= sum(stored) / (0.6 * 8_000) + 1


def test_rows_that_store_small_are_bounded_in_memory(lake: Any) -> None:
    table = pa.table({"k": pa.array([7] * 200_000, pa.int64())})
    [entry] = lake.write(table, row_group_bytes=100_000)
    metadata = parquet(lake, entry).metadata
    rows = [metadata.row_group(n).num_rows for n in range(entry.row_groups)]
    assert all(8 * n <= 400_000 for n in rows)
    assert len(rows) == 4


def test_three_hundred_thousand_order_lines_are_one_row_group(lake: Any) -> None:
    """16 columns as TPC-H's lineitem has them, 8 MB stored and 48 in memory: a column is one request."""
    dice = random.Random(5)
    rows = 300_000
    columns: dict[str, pa.Array] = {"orderkey": pa.array([n // 4 for n in range(rows)], pa.int64())}
    for n in range(10):
        columns[f"n{n}"] = pa.array(dice.choices(range(20_000), k=rows), pa.int64())
    words = [f"{a} {b} {c}" for a in "abcdefgh" for b in "klmnop" for c in "rstuvw"]
    for n in range(5):
        columns[f"s{n}"] = pa.array(dice.choices(words, k=rows))
    [entry] = lake.write(pa.table(columns))
    assert entry.row_groups == 1


def test_what_a_row_takes_may_be_known(lake: Any, monkeypatch: Any) -> None:
    """Of a file that is written again no sample is encoded to find it out."""
    monkeypatch.setattr("inlay.parquet.write.writer._File._sample", None)
    [first] = lake.write(TABLE)
    layout = Layout(row_group_bytes=first.size // 4)
    rows = TABLE.to_batches(1_000)
    known = first.size / first.rows
    [entry] = write_files(lake.target(), rows, SCHEMA, layout, row_bytes=known)
    assert all_rows(lake, [entry]).equals(TABLE)
    assert 4 <= entry.row_groups <= 6


def test_few_of_many_columns_show_how_small_rows_become(lake: Any, monkeypatch: Any) -> None:
    """A third of them are random and all alike wide; one is as wide as thirty others."""
    monkeypatch.setattr("inlay.parquet.write.writer.SAMPLE_COLUMNS", 8)
    dice = random.Random(5)
    columns = {
        f"c{n}": pa.array([dice.getrandbits(60) if n % 3 == 0 else n for _ in range(2_000)])
        for n in range(40)
    }
    columns["text"] = pa.array([dice.randbytes(120).hex() for _ in range(2_000)])
    [entry] = lake.write(pa.table(columns), row_group_bytes=100_000)
    stored = stored_groups(lake, entry)
    assert all(40_000 <= size <= 130_000 for size in stored), stored


@pytest.mark.parametrize("period", [2, 4, 8])
def test_kinds_of_columns_may_take_turns(lake: Any, monkeypatch: Any, period: int) -> None:
    """Half of them are random and all alike wide; one in eight is looked at."""
    monkeypatch.setattr("inlay.parquet.write.writer.SAMPLE_COLUMNS", 50)
    dice = random.Random(6)
    columns = {
        f"c{n}": pa.array(
            [dice.getrandbits(60) if n % period < period // 2 else n for _ in range(500)]
        )
        for n in range(400)
    }
    [entry] = lake.write(pa.table(columns), row_group_bytes=1_200_000)
    [stored] = stored_groups(lake, entry)
    assert 800_000 < stored < 1_000_000


def test_small_batches_become_whole_row_groups(lake: Any) -> None:
    batches = TABLE.to_batches(max_chunksize=77)
    [entry] = write_files(lake.target(), batches, SCHEMA, Layout(row_group_rows=4000))
    metadata = parquet(lake, entry).metadata
    assert [metadata.row_group(n).num_rows for n in range(3)] == [4000, 4000, 2000]
    assert all_rows(lake, [entry]).equals(TABLE)


def test_files_end_near_their_target(lake: Any) -> None:
    entries = lake.write(TABLE, row_group_rows=500, target_file_bytes=15_000)
    assert len(entries) > 2
    assert all(15_000 <= e.size < 22_000 for e in entries[:-1])
    assert all_rows(lake, entries).equals(TABLE)


def test_rows_are_sorted_within_a_file(lake: Any) -> None:
    [entry] = lake.write(TABLE, sort_by=(1,), row_group_rows=3000)
    file = parquet(lake, entry)
    assert file.read()["k"].to_pylist() == sorted(TABLE["k"].to_pylist())
    [column] = file.metadata.row_group(0).sorting_columns
    assert (column.column_index, column.descending) == (0, False)
    bounds = [
        (s.min, s.max)
        for n in range(entry.row_groups)
        for s in [file.metadata.row_group(n).column(0).statistics]
    ]
    assert all(a[1] <= b[0] for a, b in pairwise(bounds))


def test_sorted_rows_split_into_files_keep_every_row(lake: Any) -> None:
    entries = lake.write(TABLE, sort_by=(1,), target_file_bytes=20_000, row_group_rows=1000)
    assert len(entries) > 1
    assert sorted(all_rows(lake, entries)["word"].to_pylist()) == TABLE["word"].to_pylist()


def test_no_rows_make_no_file(lake: Any) -> None:
    assert lake.write(TABLE.slice(0, 0)) == ()
    assert list(lake.store.list("")) == []


# -- statistics -----------------------------------------------------------------------------------

FLOATS = st.none() | st.sampled_from([math.nan, 0.0, -0.0, 1.5, -math.inf, math.inf])
TEXTS = st.none() | st.text(max_size=40) | st.just("\U0010ffff" * 20)


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(st.tuples(FLOATS, TEXTS, st.none() | st.binary(max_size=30)), min_size=1),
    group=st.integers(1, 7),
)
def test_bounds_of_an_entry_bound_every_value(new_lake: Any, rows: Any, group: int) -> None:
    lake = new_lake()
    columns = list(zip(*rows, strict=True))
    table = pa.table(
        {
            "f": pa.array(columns[0], pa.float64()),
            "t": pa.array(columns[1], pa.string()),
            "b": pa.array(columns[2], pa.binary()),
        }
    )
    [entry] = lake.write(table, row_group_rows=group)
    for field_id, values in zip((1, 2, 3), columns, strict=True):
        stats = entry.stats[field_id]
        known = [v for v in values if v is not None]
        assert stats.null_count == len(values) - len(known)
        nan = [v for v in known if isinstance(v, float) and math.isnan(v)]
        assert stats.has_nan is bool(nan)
        for value in known:
            if isinstance(value, float) and math.isnan(value):
                continue
            assert stats.lower is None or order_key(stats.lower) <= order_key(value)
            assert stats.upper is None or order_key(stats.upper) >= order_key(value)
            if stats.exact and stats.lower is not None:
                assert stats.lower in known and stats.upper in known
        for bound in (stats.lower, stats.upper):
            assert not isinstance(bound, str | bytes) or len(bound) <= BOUND_LENGTH


def test_a_group_of_only_nulls_does_not_hide_the_bounds(lake: Any) -> None:
    table = pa.table({"k": pa.array([None, None, 4, 9, math.nan, math.nan], pa.float64())})
    [entry] = lake.write(table, row_group_rows=2)
    # The last group has values and no bounds: NaN has none, and that there are others is unknown.
    assert entry.stats[1] == ColumnStats(None, None, 2, True, True)
    [entry] = lake.write(table.slice(0, 4), row_group_rows=2)
    assert entry.stats[1] == ColumnStats(4.0, 9.0, 2, True, False)


def test_a_column_the_file_lacks_is_known_to_be_null(lake: Any) -> None:
    wider = replace(SCHEMA, fields=(*SCHEMA.fields, replace(SCHEMA.fields[0], id=9, name="new")))
    entry = lake.adopt(lake.body(lake.write(TABLE)[0].key), wider)
    assert entry.stats[9] == ColumnStats(null_count=10_000, has_nan=False)


# -- uploads --------------------------------------------------------------------------------------


@pytest.fixture
def in_parts(monkeypatch: Any) -> None:
    monkeypatch.setattr(writer, "PUT_BYTES", 1024)
    monkeypatch.setattr(writer, "PART_BYTES", 512)
    monkeypatch.setattr("inlay.storage.rules.MIN_PART_BYTES", 1, raising=False)


def test_a_large_file_goes_up_in_parts(lake: Any, in_parts: None, threads: Any) -> None:
    lake.executor = threads
    [entry] = lake.write(TABLE, row_group_rows=500)
    assert all_rows(lake, [entry]).equals(TABLE)
    assert list(lake.store.list_uploads("")) == []


def test_a_failure_leaves_no_object_and_no_upload(lake: Any, in_parts: None) -> None:
    def breaking() -> Any:
        yield from TABLE.to_batches(max_chunksize=1000)
        raise RuntimeError("the source broke")

    layout = Layout(row_group_rows=500)
    with pytest.raises(RuntimeError):
        list(write_files(lake.target(), breaking(), SCHEMA, layout))
    assert list(lake.store.list("")) == []
    assert list(lake.store.list_uploads("")) == []


def test_stopping_early_drops_the_file_in_work(lake: Any, in_parts: None) -> None:
    layout = Layout(row_group_rows=500, target_file_bytes=20_000)
    files = write_files(lake.target(), TABLE.to_batches(max_chunksize=500), SCHEMA, layout)
    first = next(files)
    files.close()  # type: ignore[attr-defined]
    assert [o.key for o in lake.store.list("")] == [f"tables/t/{first.key}"]
    assert list(lake.store.list_uploads("")) == []


def test_a_put_whose_answer_was_lost_is_repeated(lake: Any, monkeypatch: Any) -> None:
    put, lost = lake.store.inner.put, iter([True, False])

    def flaky(*args: Any, **kwargs: Any) -> Any:
        answer = put(*args, **kwargs)
        if next(lost):
            raise StoreUnavailable("connection reset")
        return answer

    monkeypatch.setattr(lake.store, "put", flaky, raising=False)
    [entry] = lake.write(TABLE)
    assert all_rows(lake, [entry]).equals(TABLE)


def test_a_store_that_stays_away_is_an_error(lake: Any, monkeypatch: Any) -> None:
    def away(*args: Any, **kwargs: Any) -> Any:
        raise StoreUnavailable("connection refused")

    monkeypatch.setattr(lake.store, "put", away, raising=False)
    with pytest.raises(StoreUnavailable):
        lake.write(TABLE)
