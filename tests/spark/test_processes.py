"""The helper processes of a query: none for what Spark reads itself, else few that import little."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

import inlay
from inlay.spark import sessions

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

# Notes each Python process of an application, forked ones included, in a folder, with what it runs.
NOTE = """
import os, sys
def note():
    with open(os.path.join(os.environ["NOTED"], str(os.getpid())), "w") as file:
        file.write(sys.orig_argv[-1])
if "NOTED" in os.environ:
    note()
    os.register_at_fork(after_in_child=note)
"""
QUERIES = """
import json, os, sys
from pathlib import Path
from typing import Any
from inlay.spark import InlayTable, append, count, local_session, read, view
uri = sys.argv[1]
spark = local_session(app="processes")
def started():
    return {file.name: file.read_text() for file in Path(os.environ["NOTED"]).iterdir()}
found = {}
def step(name, work):
    before = started()
    work()
    found[name] = sorted(kind for n, kind in started().items() if n not in before)
step("read", lambda: read(spark, uri).groupBy("id").count().collect())
view(spark, "v", uri)
step("view", lambda: spark.sql("SELECT sum(id) FROM v").collect())
step("count", lambda: count(spark, uri))
step("append", lambda: append(spark.range(3, 5, 1, 1), uri))
step("format", lambda: spark.read.format("inlay").load(uri).collect())
step("format again", lambda: spark.read.format("inlay").load(uri).collect())
print(json.dumps(found))
spark.stop()
"""


def run(script: str, *arguments: str, **environment: str) -> str:
    path = os.pathsep.join([environment.pop("path", ""), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
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


def test_workers_are_forked_from_a_process_that_has_imported_what_they_need(spark: Any) -> None:
    def found(_: Any) -> list[tuple[list[str], bool, str, str]]:
        imported = {"pandas", "inlay.spark.dml"} <= sys.modules.keys()
        return [(sys.orig_argv[-2:], imported, pyspark.__file__, sys.executable)]

    ran = spark.sparkContext.parallelize([1], 1).mapPartitions(found).collect()
    # Compiled, not out of an archive of sources.
    of_driver = (pyspark.__file__, sys.executable)
    assert ran == [(["inlay.spark.daemon", "pyspark.worker"], True, *of_driver)]


def test_workers_find_a_package_that_is_on_the_path_of_the_driver_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = str(Path(inlay.__file__).parents[1])
    for before, after in (("", home), ("/jobs", f"/jobs{os.pathsep}{home}")):
        monkeypatch.setenv("PYTHONPATH", before)
        for _ in range(2):
            sessions._name_package()
            assert os.environ["PYTHONPATH"] == after


@pytest.mark.slow
def test_what_spark_reads_and_writes_itself_needs_no_python_process(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    table = inlay.create(f"file://{tmp_path}/table", rows.schema)
    table.append(rows)
    (tmp_path / "sitecustomize.py").write_text(NOTE)
    (tmp_path / "noted").mkdir()
    found = json.loads(run(QUERIES, table.uri, path=str(tmp_path), NOTED=str(tmp_path / "noted")))
    by_spark = ("read", "view", "count", "append")
    assert {name: found[name] for name in by_spark} == {name: [] for name in by_spark}
    # Of each kind the process that Spark keeps, and the one that is forked from it. Spark also asks the
    # program for its version.
    kinds = Counter(kind for kind in found["format"] if kind.startswith("pyspark."))
    assert kinds == {
        "pyspark.sql.worker.lookup_data_sources": 2,
        "pyspark.sql.worker.create_data_source": 2,
        "pyspark.sql.worker.plan_data_source_read": 2,
        "pyspark.worker": 2,
    }
    # They are used again, unless Spark has ended one that was idle for a minute.
    assert max(Counter(found["format again"]).values(), default=0) <= 1
