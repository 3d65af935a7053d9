"""The project of docs/TOOLS.md runs: dbt's models read tables of Inlay."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

import inlay

PAGE = (Path(__file__).parents[2] / "docs" / "TOOLS.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## dbt\n")[1]

pytestmark = pytest.mark.skipif(
    find_spec("dbt") is None or find_spec("dbt.adapters.duckdb") is None,
    reason="needs dbt-core and dbt-duckdb",
)


def project(folder: Path) -> None:
    """Writes the files of the page, the tables' prefix exchanged."""
    plugin = re.search(r"```python dbt\n(.*?)```", SECTION, re.DOTALL)
    assert plugin is not None
    (folder / "inlay_dbt.py").write_text(plugin[1])
    named = re.findall(r"```(?:yaml|sql)\n(?:#|--) (\S+)\n(.*?)```", SECTION, re.DOTALL)
    assert [name for name, _ in named] == [
        "profiles.yml",
        "models/sources.yml",
        "models/by_city.sql",
    ]
    for name, text in named:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text.replace("s3://lake/tables", str(folder / "tables")))
    (folder / "dbt_project.yml").write_text("name: demo\nversion: '1.0'\nprofile: demo\n")


def test_a_model_reads_the_newest_rows_at_each_run(tmp_path: Path) -> None:
    project(tmp_path)
    t = inlay.create(
        str(tmp_path / "tables" / "trips"),
        pa.schema([("id", pa.int64()), ("city", pa.string()), ("km", pa.float64())]),
    )
    t.append(pa.table({"id": [1, 2, 3], "city": ["Bern", "Chur", "Bern"], "km": [3.5, 4.0, 7.5]}))
    t.delete("id = 3")
    assert run(tmp_path) == [("Bern", 3.5), ("Chur", 4.0)]

    t.update({"km": "km + 1"}, where="city = 'Chur'")
    assert run(tmp_path) == [("Bern", 3.5), ("Chur", 5.0)]


def run(folder: Path) -> list[tuple[str, float]]:
    import duckdb

    script = (
        "from dbt.cli.main import dbtRunner\n"
        "import sys\n"
        "sys.exit(0 if dbtRunner().invoke(['run']).success else 1)\n"
    )
    # A process of its own: dbt takes over logging.
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "DO_NOT_TRACK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with duckdb.connect(folder / "demo.duckdb") as found:
        return found.sql("SELECT * FROM by_city ORDER BY city").fetchall()
