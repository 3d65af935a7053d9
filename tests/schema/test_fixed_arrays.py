"""Arrays of a fixed size in files of other writers: read as these read them, or refused as they come.

DuckDB writes a NULL array as if it had elements (duckdb/duckdb#24731), which Arrow cannot read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import UnsupportedFile
from inlay.ops.write.ingest import Rejected
from inlay.parquet.footer.footer import decode_footer
from inlay.parquet.read.describe import doubted_lists

ROWS = 10
NULL_OR = "CASE WHEN i % 3 = 0 THEN NULL ELSE {} END"
ARRAY = "[i::FLOAT, i + 1, i + 2]::FLOAT[3]"
UNREADABLE = {
    "top": NULL_OR.format(ARRAY),
    "all NULL": "NULL::BOOLEAN[2]",
    "texts": NULL_OR.format("['a', NULL, 'c']::VARCHAR[3]"),
    "in a struct": f"{{'a': {NULL_OR.format(ARRAY)}}}",
    "in a list": f"[{NULL_OR.format(ARRAY)}]",
    "in a map": f"map([1], [{NULL_OR.format(ARRAY)}])",
    "of arrays": NULL_OR.format("[[i, 1], [2, 3]]::INT[2][2]"),
    "of structs": NULL_OR.format(
        "[{'a': i, 'b': 'x'}, {'a': 1, 'b': NULL}]::STRUCT(a INT, b TEXT)[2]"
    ),
}
READABLE = {
    "no NULL": ARRAY,
    "NULL elements": "[i::FLOAT, NULL, i + 2]::FLOAT[3]",
    "of one": NULL_OR.format("[i]::INT[1]"),
    "lists": NULL_OR.format("[i, NULL]"),
    "lists of lists": NULL_OR.format("[[i, NULL], NULL, []]"),
}


def by_duckdb(path: Path, column: str) -> Path:
    duckdb.sql(
        f"COPY (SELECT i::BIGINT AS id, {column} AS v FROM range({ROWS}) t(i)) TO '{path}' (FORMAT parquet)"
    )
    return path


def doubted(path: Path) -> frozenset[str]:
    body = path.read_bytes()
    return doubted_lists(decode_footer(body, file_size=len(body)))


def empty_for(path: Path, properties: Mapping[str, str] = {}) -> inlay.Table:
    uri = str(path.parent / f"{len(properties)}{''.join(properties.values())}")
    return inlay.create(uri, pq.read_schema(path), properties=properties)


@pytest.mark.parametrize("column", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_null_arrays_of_duckdb_are_refused_by_name_as_they_come(
    tmp_path: Path, column: str
) -> None:
    path = by_duckdb(tmp_path / "a.parquet", column)
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(path)  # once it can, nothing has to be refused
    for properties in ({}, {"ingest.check_pages": "yes"}, {"ingest.split_bytes": "0"}):
        made = empty_for(path, properties)
        [rejected] = made.ingest([str(path)]).outcomes
        assert isinstance(rejected, Rejected)
        assert "'v'" in str(rejected.error)
        assert "as lists" in (rejected.error.next_step or "")
        assert made.count() == 0


def test_null_arrays_are_refused_where_they_are_adopted_in_place(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    by_duckdb(tmp_path / "plain" / "a.parquet", UNREADABLE["top"])
    with pytest.raises(UnsupportedFile, match="'v'"):
        inlay.adopt(str(tmp_path / "plain"), str(tmp_path / "t"))


@pytest.mark.parametrize("column", READABLE.values(), ids=READABLE.keys())
def test_other_lists_of_duckdb_are_what_it_reads(tmp_path: Path, column: str) -> None:
    path = by_duckdb(tmp_path / "a.parquet", column)
    assert rows_of(tmp_path, path) == as_duckdb_reads(path)


def test_lists_of_duckdb_without_null_are_not_read_as_they_come(tmp_path: Path) -> None:
    assert not doubted(by_duckdb(tmp_path / "a.parquet", READABLE["no NULL"]))
    assert not doubted(by_duckdb(tmp_path / "b.parquet", READABLE["of one"]))
    # As many elements as three a row, some of them NULL: only its pages show what they are.
    assert doubted(by_duckdb(tmp_path / "c.parquet", READABLE["NULL elements"])) == {"v"}


def as_polars(rows: list[Any], kind: pl.DataType) -> bytes:
    sink = io.BytesIO()
    pl.DataFrame({"id": range(ROWS), "v": pl.Series(rows, dtype=kind)}).write_parquet(sink)
    return sink.getvalue()


def as_pyarrow(rows: list[Any], kind: pa.DataType) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(range(ROWS)), "v": pa.array(rows, kind)}), sink)
    return sink.getvalue()


ARRAYS: list[list[float] | None] = [None if i % 3 == 0 else [i, i + 1, i + 2] for i in range(ROWS)]
POLARS, ARROW = pl.Array(pl.Float32, 3), pa.list_(pa.float32(), 3)


@pytest.mark.parametrize("writer", ["polars", "pyarrow"])
@pytest.mark.parametrize("shape", ["top", "struct", "list"])
def test_arrays_of_other_writers_are_read_with_their_null(
    tmp_path: Path, writer: str, shape: str
) -> None:
    rows: list[Any] = {
        "top": ARRAYS,
        "struct": [{"a": array} for array in ARRAYS],
        "list": [[array] for array in ARRAYS],
    }[shape]
    make: Callable[[], bytes] = {
        ("polars", "top"): lambda: as_polars(rows, POLARS),
        ("polars", "struct"): lambda: as_polars(rows, pl.Struct({"a": POLARS})),
        ("polars", "list"): lambda: as_polars(rows, pl.List(POLARS)),
        ("pyarrow", "top"): lambda: as_pyarrow(rows, ARROW),
        ("pyarrow", "struct"): lambda: as_pyarrow(rows, pa.struct([("a", ARROW)])),
        ("pyarrow", "list"): lambda: as_pyarrow(rows, pa.list_(ARROW)),
    }[writer, shape]
    path = tmp_path / "a.parquet"
    path.write_bytes(make())
    assert rows_of(tmp_path, path) == rows == as_duckdb_reads(path)


def rows_of(folder: Path, path: Path) -> list[Any]:
    """The column as a table has it that the file was ingested into."""
    made = empty_for(path)
    made.ingest([str(path)])
    return made.scan().to_arrow().sort_by("id").column("v").to_pylist()


def as_duckdb_reads(path: Path) -> list[Any]:
    return [
        list(row) if isinstance(row, tuple) else row
        for (row,) in duckdb.sql(f"SELECT v FROM '{path}' ORDER BY id").fetchall()
    ]
