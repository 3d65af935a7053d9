"""What a process pays before its first row: the modules it imports."""

import subprocess
import sys

import pyarrow as pa
import pytest

import inlay

PROGRAM = """
import sys
import pyarrow as pa
import inlay

table = inlay.open(sys.argv[1])
conditions = ["id > 990 and s = 'x995'", "d < 3.5", "s like 'x99%'", "id in (1, 5, 995)", "s is null"]
found = [table.scan(where=each).to_arrow().num_rows for each in conditions]
assert found == [1, 8, 11, 2, 0], found
assert "pandas" not in sys.modules, "pandas was imported"
"""


def test_opening_and_filtering_a_table_with_deletes_does_not_import_pandas(tmp_path):
    pytest.importorskip("pandas")
    rows = range(1000)
    data = pa.table(
        {"id": list(rows), "s": [f"x{i}" for i in rows], "d": [i / 3 for i in rows]},
    )
    table = inlay.create(tmp_path / "t", data.schema, primary_key=["id"])
    table.append(data)
    table.delete(keys=pa.table({"id": [5, 7]}))
    table.delete(where="s = 'x6'")
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "t")]
    subprocess.run(program, check=True)


READ_ONLY = """
import sys
import inlay

inlay.open(sys.argv[1]).scan(where="id > 1").to_arrow()
rooms = ["ops.erase", "ops.inspect", "ops.maintain", "ops.verify", "ops.write", "parquet.surgery"]
rooms = tuple("inlay." + room for room in rooms)
loaded = [name for name in sys.modules if name.startswith(rooms)]
assert loaded == [], loaded
"""


def test_a_process_that_only_reads_imports_nothing_that_writes_or_inspects(tmp_path):
    inlay.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    subprocess.run([sys.executable, "-c", READ_ONLY, str(tmp_path / "t")], check=True)
