"""Columns whose values are in the names of folders, as Hive, Spark, pyarrow and DuckDB write partitions:
`month=2/part-0.parquet`.

Promise: a file that lacks a column of the table which its folder names is refused. Its rows would get NULL,
or the default of the column, where the folder says otherwise, and nobody would notice. So is one whose
folder says NULL: appending the whole folder instead would add its rows twice.
"""

from __future__ import annotations

from collections.abc import Container
from urllib.parse import unquote

from inlay.errors import SchemaMismatch


def check_folders(path: str, has: Container[str], wanted: Container[str]) -> None:
    """`has` are the columns of the file at `path`, `wanted` those of the table: a folder that names none of
    these only puts files in order. Raises `SchemaMismatch`."""
    for folder in path.split("/")[:-1]:
        escaped, _, value = folder.partition("=")
        name = unquote(escaped)
        if value and name in wanted and name not in has:
            raise SchemaMismatch(
                f"the file has no column {name!r}: its value is only in the name of its folder",
                next_step="Append the rows with their folders' values: t.append(pyarrow.dataset.dataset("
                "FOLDER, partitioning='hive').scanner().to_reader()); or write the column into the files",
            )
