"""Files of a partitioned folder, `month=2/part-0.parquet`, lack the column that the folder names: as rows
of a table they would have NULL there, without a word."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import inlay
from inlay.errors import SchemaMismatch
from inlay.ops.local_files import read_files
from inlay.ops.write.folders import folder_columns
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
    table.maintain.compact()
    table.delete("id = 1")
    assert table.refresh().count() == 3


def test_so_are_local_files_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    paths = [str(path) for path in sorted(folder.glob("*/*.parquet"))]
    with pytest.raises(SchemaMismatch, match="'month'"):
        read_files(paths, ROWS.schema)
    assert read_files(paths, ROWS.schema.remove(1)).read_all().num_rows == 4


# -- with the property that says so ---------------------------------------------------------------

WRITE = {"ingest.folders": "spark"}


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("partitioned", [False, True])
def test_the_folders_values_come_with_the_rows(
    folder: Path, tmp_path: Path, partitioned: bool, required: bool
) -> None:
    by = ["month"] if partitioned else []
    schema = ROWS.schema.set(1, pa.field("month", pa.int64(), nullable=not required))
    table = inlay.create(str(tmp_path / "t"), schema, partition_by=by, properties=WRITE)
    outcomes = table.ingest(files(folder)).outcomes
    assert sum(isinstance(each, Rejected) for each in outcomes) == required  # the folder of NULL
    assert rows(table) == ROWS.to_pylist()[: 4 - required]
    assert table.refresh().scan(where="month = 2").to_arrow().num_rows == 2
    assert table.maintain.verify().ok


def test_what_cannot_be_written_again_is_refused(folder: Path, tmp_path: Path) -> None:
    table = inlay.create(str(tmp_path / "t"), ROWS.schema, properties=WRITE)
    found = table.ingest(files(folder), adopt=True).outcomes
    table.set_properties(ingest__split_bytes=0)
    found += table.refresh().ingest(files(folder)).outcomes
    assert [type(each.error) for each in found if isinstance(each, Rejected)] == [
        SchemaMismatch
    ] * 6
    assert rows(table) == []


TYPED = pa.schema(
    {
        "s": pa.string(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "n": pa.decimal128(9, 2),
        "f": pa.float64(),
    }
)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("s", "a%3Db %2F", "a=b /"),
        ("s", "007", "007"),
        ("b", "true", True),
        ("d", "2026-11-25", dt.date(2026, 11, 25)),
        ("at", "2026-11-25 10%3A00%3A00", dt.datetime(2026, 11, 25, 10, tzinfo=dt.UTC)),
        ("n", "1.50", Decimal("1.50")),
        ("f", "2", 2.0),
        ("s", "__HIVE_DEFAULT_PARTITION__", None),
    ],
)
def test_values_have_the_types_of_their_columns(
    tmp_path: Path, name: str, text: str, value: object
) -> None:
    path = tmp_path / f"{name}={text}" / "x.parquet"
    path.parent.mkdir()
    pq.write_table(ROWS.select(["id"]), path)
    schema = pa.schema([ROWS.schema.field("id"), TYPED.field(name)])
    table = inlay.create(str(tmp_path / "t"), schema, properties=WRITE)
    uri = f"file://{tmp_path}/{name}={quote(text)}/x.parquet"
    assert table.ingest([uri]).write.added_rows == 4
    assert table.refresh().scan().to_arrow()[name].to_pylist() == [value] * 4


@pytest.mark.parametrize(
    ("text", "spark", "by_pyarrow"),
    [
        ("2", pa.int32(), pa.int32()),
        ("3000000000", pa.int64(), pa.string()),
        ("9" * 25, pa.decimal128(38, 0), pa.string()),
        ("1.5", pa.float64(), pa.string()),
        ("2026-11-25", pa.date32(), pa.string()),
        ("2026-11-25 10:00:00", pa.timestamp("us", "UTC"), pa.string()),
        ("eu", pa.string(), pa.string()),
        ("__HIVE_DEFAULT_PARTITION__", pa.string(), pa.string()),
    ],
)
def test_columns_of_a_new_table_are_typed_as_readers_infer(
    tmp_path: Path, text: str, spark: pa.DataType, by_pyarrow: pa.DataType
) -> None:
    path = f"t/k={quote(text)}/x.parquet"
    assert folder_columns(path, (), "spark") == [pa.field("k", spark)]
    assert folder_columns(path, (), "pyarrow") == [pa.field("k", by_pyarrow)]
    assert folder_columns(path, (), "text") == [pa.field("k", pa.string())]
    assert folder_columns(path, ("k",), "spark") == []
    (tmp_path / f"k={quote(text)}").mkdir()
    pq.write_table(ROWS, tmp_path / f"k={quote(text)}" / "x.parquet")
    if text != "__HIVE_DEFAULT_PARTITION__":
        read = pyarrow.dataset.dataset(tmp_path, partitioning="hive").schema.field("k").type
        assert read == by_pyarrow
