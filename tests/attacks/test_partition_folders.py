"""Files of a partitioned folder, `month=2/part-0.parquet`, lack the column that the folder names: as rows
of a table they would have NULL there, without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.cli.data import read_files
from inlay.errors import SchemaMismatch
from inlay.ops.write.ingest import Rejected

ROWS = pa.table({"id": [1, 2, 3, 4], "month": [1, 2, 2, None], "name": ["a", "b", "c", "d"]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As pyarrow writes it, and Spark's `partitionBy("month")`."""
    by_month = pyarrow.dataset.partitioning(pa.schema([("month", pa.int64())]), flavor="hive")
    pyarrow.dataset.write_dataset(ROWS, tmp_path / "src", format="parquet", partitioning=by_month)
    return tmp_path / "src"


def files(folder: Path) -> list[str]:
    return [f"file://{path}" for path in sorted(folder.glob("*/*.parquet"))]


def rows(table: inlay.Table) -> list[dict[str, Any]]:
    return table.refresh().scan().to_arrow().sort_by("id").to_pylist()


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("partitioned", [False, True])
def test_a_file_without_the_column_of_its_folder_is_refused(
    folder: Path, tmp_path: Path, adopt: bool, partitioned: bool
) -> None:
    by = ["month"] if partitioned else []
    table = inlay.create(str(tmp_path / "t"), ROWS.schema, partition_by=by)
    found = table.ingest(files(folder), adopt=adopt).outcomes
    errors = [each.error for each in found if isinstance(each, Rejected)]
    assert [type(each) for each in errors] == [SchemaMismatch] * 3  # of two months, and of none
    assert "'month'" in errors[0].message
    assert rows(table) == []


def test_the_next_step_that_the_error_names_takes_the_rows_with_their_months(
    folder: Path, tmp_path: Path
) -> None:
    table = inlay.create(str(tmp_path / "t"), ROWS.schema)
    [first, *_] = table.ingest(files(folder)).outcomes
    assert isinstance(first, Rejected)
    step = first.error.next_step.partition(": ")[2].partition(";")[0]
    eval(step, {"t": table, "pyarrow": pa, "FOLDER": folder})
    assert rows(table) == ROWS.to_pylist()


@pytest.mark.parametrize(
    "name", ["month=2/x.parquet", "other=2/x.parquet", "month=/x.parquet", "=2/x.parquet"]
)
def test_files_that_have_their_columns_are_taken_wherever_they_are(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    pq.write_table(ROWS, path)
    table = inlay.create(str(tmp_path / "t"), ROWS.schema)
    assert table.ingest([f"file://{path}"]).write.added_rows == 4


def test_names_in_folders_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "the%20month=2" / "x.parquet"
    path.parent.mkdir()
    pq.write_table(ROWS.select(["id"]), path)
    table = inlay.create(
        str(tmp_path / "t"), pa.schema({"id": pa.int64(), "the month": pa.int64()})
    )
    [found] = table.ingest([f"file://{path}"]).outcomes
    assert isinstance(found, Rejected)


def test_a_table_in_such_a_folder_writes_its_own_files(tmp_path: Path) -> None:
    table = inlay.create(str(tmp_path / "month=2" / "t"), ROWS.schema)
    table.append(ROWS.select(["id"]))
    table.compact()
    table.delete("id = 1")
    assert table.refresh().count() == 3


def test_so_are_local_files_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    paths = [str(path) for path in sorted(folder.glob("*/*.parquet"))]
    with pytest.raises(SchemaMismatch, match="'month'"):
        read_files(paths, ROWS.schema)
    assert read_files(paths, ROWS.schema.remove(1)).read_all().num_rows == 4
