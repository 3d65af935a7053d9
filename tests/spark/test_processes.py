"""The helper processes that Spark starts to plan a query import little."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import inlay

pytestmark = pytest.mark.spark

# What a planning process does for `.load()`: it makes the source, asks for its schema and sends it back.
LOAD = """
import pickle, sys
import pyspark.sql.worker.create_data_source
from inlay.spark.source import InlayDataSource
source = InlayDataSource({"path": sys.argv[1]})
assert source.schema().names == ["id"]
pickle.dumps(source)
heavy = ("pyarrow", "numpy", "pandas", "boto3", "inlay.table", "inlay.parquet.read.decode")
print([name for name in heavy if name in sys.modules])
"""


def run(script: str, *arguments: str) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout.splitlines()[-1]


def test_asking_for_a_schema_imports_nothing_that_reads_data(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = inlay.create(f"file://{tmp_path}/table", rows.schema)
    table.append(rows)
    assert run(LOAD, table.uri) == "[]"
