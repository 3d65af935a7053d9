"""A table that begins with rows: all kinds of data that `append` takes, in one version."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import InlayError, InvalidRequest, SchemaMismatch, TableExists

NUMBER = count()
ROWS = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"], "x": [1.5, 2.5, None]})


def uri() -> str:
    return f"memory://with-rows-{next(NUMBER)}/t"


def polars(rows: pa.Table) -> Any:
    return pytest.importorskip("polars").from_arrow(rows)


def pandas(rows: pa.Table) -> Any:
    pytest.importorskip("pandas")
    return rows.to_pandas()


def duckdb(rows: pa.Table) -> Any:
    return pytest.importorskip("duckdb").connect().from_arrow(rows)


def dataset_of_files(rows: pa.Table, folder: Path = Path("parts")) -> Any:
    for n in range(rows.num_rows):
        (folder / f"n={n % 2}").mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.slice(n, 1), folder / f"n={n % 2}" / f"{n}.parquet")
    return ds.dataset(folder, partitioning="hive")


KINDS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda rows: rows,
    "batch": lambda rows: rows.to_batches()[0],
    "reader": lambda rows: rows.to_reader(),
    "dataset": ds.dataset,
    "files": dataset_of_files,
    "scanner": lambda rows: ds.dataset(rows).scanner(columns=["id", "name", "x"]),
    "polars": polars,
    "pandas": pandas,
    "duckdb": duckdb,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rows(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    t = inlay.create(uri(), KINDS[kind](ROWS), primary_key="id", partition_by="bucket(2, id)")
    assert t.version == 1
    other = inlay.create(uri(), t.schema, primary_key="id")
    other.append(KINDS[kind](ROWS))
    for made in (inlay.open(t.uri), other):
        rows = made.scan(columns=ROWS.schema.names).to_arrow().to_pylist()
        assert sorted(rows, key=lambda row: row["id"]) == ROWS.to_pylist()
    assert t.schema.names == [*ROWS.schema.names, *(["n"] if kind == "files" else [])]
    assert not t.maintain.verify().errors


def test_the_first_version_is_as_any_other() -> None:
    t = inlay.create(uri(), ROWS)
    [version] = t.inspect.history().to_pylist()
    assert (version["operation"], version["added_rows"]) == ("create", 3)
    assert t.changes(0).to_arrow().num_rows == 3
    t.append(ROWS, request_id="a")
    t.delete("id = 1")
    assert (t.count(), inlay.open(t.uri, version=1).count()) == (4, 3)
    t.maintain.compact()
    t.maintain.rewrite()
    assert t.count() == 4 and not t.maintain.verify().errors


def test_no_rows_are_an_empty_table() -> None:
    t = inlay.create(uri(), ROWS.slice(0, 0))
    assert (t.version, t.count(), t.schema.names) == (1, 0, ROWS.schema.names)


def test_a_second_creator_adds_nothing() -> None:
    t = inlay.create(uri(), ROWS)
    with pytest.raises(TableExists):
        inlay.create(t.uri, ROWS)
    with pytest.raises(InvalidRequest, match="exist_ok"):
        inlay.create(t.uri, ROWS, exist_ok=True)
    assert inlay.open(t.uri).count() == 3


def test_rows_that_cannot_be_read_leave_no_table() -> None:
    def broken() -> Any:
        yield ROWS.to_batches()[0]
        raise OSError("the source is gone")

    at = uri()
    with pytest.raises(OSError, match="gone"):
        inlay.create(at, pa.RecordBatchReader.from_batches(ROWS.schema, broken()))
    required = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    null = pa.RecordBatch.from_arrays([pa.array([None], pa.int64())], schema=required)
    with pytest.raises(SchemaMismatch):
        inlay.create(at, null)
    for refused in ({"id": [1]}, [1], "a.parquet", Path("a.parquet"), 7):
        with pytest.raises(InvalidRequest) as caught:
            inlay.create(at, refused)
        assert isinstance(caught.value, InlayError) and caught.value.next_step
    assert not inlay.exists(at)
    assert inlay.create(at, ROWS).count() == 3
