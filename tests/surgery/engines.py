"""Readers that share no code with the library, each with its pruning on."""

from __future__ import annotations

import numbers
from pathlib import Path

import datafusion
import duckdb
import fastparquet
import numpy
import polars
import pyarrow as pa
import pyarrow.parquet as pq


def by_pyarrow(path: Path) -> pa.Table:
    return pq.ParquetFile(path, page_checksum_verification=True).read()


def by_duckdb(path: Path) -> pa.Table:
    with duckdb.connect() as base:
        base.execute("SET threads=1; SET preserve_insertion_order=true; SET TimeZone='UTC'")
        return base.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()


def context() -> datafusion.SessionContext:
    settings = {
        "datafusion.execution.target_partitions": "1",
        "datafusion.execution.parquet.enable_page_index": "true",
        "datafusion.execution.parquet.bloom_filter_on_read": "true",
        "datafusion.execution.parquet.pruning": "true",
        "datafusion.execution.parquet.pushdown_filters": "true",
        "datafusion.execution.parquet.reorder_filters": "true",
        # pyarrow cannot take rows of string views.
        "datafusion.execution.parquet.schema_force_view_types": "false",
    }
    config = datafusion.SessionConfig()
    for name, value in settings.items():
        config = config.set(name, value)
    return datafusion.SessionContext(config)


def by_datafusion(path: Path) -> pa.Table:
    return context().read_parquet(str(path)).to_arrow_table()


def by_polars(path: Path) -> pa.Table:
    return polars.read_parquet(path, use_statistics=True).to_arrow()


def by_fastparquet(path: Path) -> pa.Table:
    """Cells as text, numbers as floats: what pandas makes of a column depends on whether a NULL is left
    in it."""

    def text(cell: object) -> str:
        return repr(float(cell) if isinstance(cell, numbers.Number | numpy.bool_) else cell)

    frame = fastparquet.ParquetFile(str(path)).to_pandas()
    return pa.table({str(name): [text(cell) for cell in frame[name]] for name in frame.columns})


READERS = {
    "pyarrow": by_pyarrow,
    "duckdb": by_duckdb,
    "datafusion": by_datafusion,
    "polars": by_polars,
    "fastparquet": by_fastparquet,
}


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal row by row: NaN equals NaN, -0.0 differs from 0.0."""
    if left.schema.types != right.schema.types or left.num_rows != right.num_rows:
        return False
    return all(
        a.equals(b) or repr(a.to_pylist()) == repr(b.to_pylist())
        for a, b in zip(left.columns, right.columns, strict=True)
    )


def counts_where(path: Path, conditions: list[str]) -> dict[str, list[int]]:
    """count(*) for each condition by DuckDB and DataFusion, by pruning and filtering."""
    found: dict[str, list[int]] = {}
    with duckdb.connect() as base:
        base.execute("SET threads=1; SET TimeZone='UTC'")
        found["duckdb"] = [
            base.sql(f"SELECT count(*) FROM read_parquet('{path}') WHERE {where}").fetchall()[0][0]
            for where in conditions
        ]
    ctx = context()
    ctx.register_parquet("t", str(path))
    found["datafusion"] = [
        ctx.sql(f"SELECT count(*) AS n FROM t WHERE {where}").to_arrow_table()["n"][0].as_py()
        for where in conditions
    ]
    return found
