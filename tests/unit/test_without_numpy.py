"""The layer has pyarrow without NumPy and pandas, and so have many who install the package."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
for absent in ("numpy", "pandas", "polars", "duckdb"):
    sys.modules[absent] = None

import pyarrow as pa
import inlay

schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
t = inlay.create("memory://bare/t", schema, primary_key="id", sort_by=["id"])
rows = pa.table({"id": range(1000), "name": [f"name {n % 7}" for n in range(1000)]}, schema=schema)
t.append(rows)
for number, mode in enumerate(("tombstone", "vector", "surgery", "rewrite", "erase")):
    t.delete(f"id = {number}", mode=mode)
t.delete(keys=pa.table({"id": range(10, 200)}))
t.update({"name": "'new'"}, where="id = 300")
t.upsert(pa.table({"id": [301, 5000], "name": ["a", "b"]}))
t.scan(where=pa.compute.field("id") > 500).to_arrow()
t.append(rows)
t.maintain.rewrite()
t.maintain.compact()
t.maintain.collect_garbage()
assert t.maintain.verify(depth="pages").ok
print(t.count())
"""


def test_every_operation_runs_without_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == (1000 - 5 - 190 + 1) + 1000
