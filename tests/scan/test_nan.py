"""Other engines find rows with NaN in this library's files: Parquet's bounds leave NaN out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.footer.pages import find_gaps, page_locations, read_layout

NAN = math.nan
KIND = pa.struct([("a", pa.string()), ("e", pa.float64())])
SCHEMA = pa.schema([("id", pa.int64()), ("f", pa.float32()), ("g", pa.float64()), ("s", KIND)])


def rows(count: int) -> pa.Table:
    """NaN in the second quarter of `f`, in the last row of `s.e`, and nowhere in `g`."""
    fourth = count // 4
    return pa.table(
        {
            "id": range(count),
            "f": [NAN if fourth <= n < 2 * fourth and n % 9 == 0 else n / 2 for n in range(count)],
            "g": [float(n) for n in range(count)],
            "s": [{"a": str(n), "e": NAN if n == count - 1 else -float(n)} for n in range(count)],
        },
        schema=SCHEMA,
    )


@pytest.mark.parametrize("options", [{}, {"sort_by": ["id"]}])
def test_chunks_with_nan_have_no_bounds_and_others_do(tmp_path: Path, options: Any) -> None:
    table = inlay.create(tmp_path / "t", SCHEMA, **options)
    table.set_properties(write__row_group_rows=500)
    table.append(rows(2_000))
    [entry] = table.inspect.entries()[0]
    path = tmp_path / "t" / entry.key
    assert path.stat().st_size == entry.size
    data = pq.read_metadata(path)
    assert data.num_row_groups == 4
    bounds = {
        name: [data.row_group(g).column(n).statistics.has_min_max for g in range(4)]
        for n, name in enumerate(["id", "f", "g", "s.a", "s.e"])
    }
    assert bounds["f"] == [True, False, True, True] and bounds["s.e"] == [True, True, True, False]
    assert all(all(bounds[name]) for name in ("id", "g", "s.a"))
    for n, name in enumerate(bounds):
        for g in range(4):
            chunk = data.row_group(g).column(n)
            assert chunk.has_column_index == bounds[name][g] and chunk.has_offset_index
            assert chunk.statistics.null_count == 0
    # Nothing is left over between what the footer points at, and the indexes are found.
    body = path.read_bytes()
    footer = decode_footer(body, file_size=len(body))
    assert not list(find_gaps(footer, read_layout(footer)))
    for group in footer.row_groups:
        for chunk in group.columns:
            assert chunk.offset_index is not None
            places = page_locations(body[slice(*chunk.offset_index)])
            assert sum(size for _, size, _ in places) <= chunk.compressed_size
            assert all(chunk.start <= at < chunk.end for at, _, _ in places)
    first = duckdb.sql(f"SELECT f FROM read_parquet('{path}') WHERE id = 1999").fetchall()
    assert first == [(999.5,)] and table.scan(where="id = 1999").to_arrow()["f"].to_pylist() == [
        999.5
    ]
    # Inlay's own metadata keeps the bounds of the other values.
    field = table.snapshot.schema.column("f")
    assert field is not None
    stats = entry.stats[field.id]
    assert (stats.lower, stats.upper, stats.has_nan) == (-0.0, 999.5, True)
    assert not table.maintain.verify().findings


FILTERS = ("f > 1000", "f >= 10", "s.e > 0", "g > 800", "f <> 2", "f < 5", "s.e <= -5")


def check_filters(root: Path, table: inlay.Table) -> None:
    """DuckDB and Polars select in each file what they select of its rows in memory, and Inlay the same."""
    live = set(table.scan().to_arrow()["id"].to_pylist())
    for where in FILTERS:
        theirs: set[int] = set()
        for entry in table.inspect.entries()[0]:
            query = f"SELECT id FROM read_parquet('{root / entry.key}') WHERE {where}"
            theirs |= {n for (n,) in duckdb.sql(query).fetchall()}
        ours = set(table.scan(where=where).to_arrow()["id"].to_pylist())
        assert ours == theirs & live and ours, where
    above = pl.col("f") > 1_000
    for entry in table.inspect.entries()[0]:
        found = pl.scan_parquet(root / entry.key).filter(above).collect()
        assert found.equals(pl.read_parquet(root / entry.key).filter(above), null_equal=True)


@pytest.mark.parametrize("mode", ["append", "surgery"])
def test_filters_of_other_engines_find_rows_with_nan(tmp_path: Path, mode: str) -> None:
    table = inlay.create(tmp_path / "t", SCHEMA)
    table.append(rows(900))
    if mode == "surgery":
        table.delete("id = 300", mode="surgery")
    check_filters(tmp_path / "t", table)


@pytest.mark.parametrize("when", ["ingested", "published"])
def test_landed_files_lose_bounds_that_may_stand_beside_nan(tmp_path: Path, when: str) -> None:
    """By a footer of their own: at ingest where ids are stamped, else by the first publication."""
    pq.write_table(rows(900), tmp_path / "landed.parquet", write_page_index=True)
    table = inlay.create(tmp_path / "t", SCHEMA)
    if when == "ingested":
        table.set_properties(ingest__field_ids="stamp")
    table.ingest([tmp_path / "landed.parquet"])
    if when == "published":
        assert bounded(tmp_path / "t", table) == {"id", "f", "g", "s.a", "s.e"}
        table.publish()
    assert bounded(tmp_path / "t", table) == {"id", "s.a"}
    check_filters(tmp_path / "t", table)
    assert not table.maintain.verify().findings
    table.publish()
    version = table.version
    table.publish()
    assert table.version == version


def bounded(root: Path, table: inlay.Table) -> set[str]:
    [entry] = table.inspect.entries()[0]
    group = pq.read_metadata(root / entry.key).row_group(0)
    chunks = [group.column(n) for n in range(group.num_columns)]
    assert all(c.statistics.null_count == 0 for c in chunks)
    assert all(c.statistics.has_min_max == c.has_column_index for c in chunks)
    return {c.path_in_schema for c in chunks if c.statistics.has_min_max}
