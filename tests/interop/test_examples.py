"""The examples of docs/TOOLS.md run, with Ibis and dbt in an environment of their own.

`make examples` sets up `.tools/examples`; INLAY_EXAMPLES names another Python that has them. Where there is
none these tests are skipped, but not where `CI` is set: there a missing environment is a failure.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import inlay

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("INLAY_EXAMPLES") or ROOT / ".tools" / "examples" / "bin" / "python")
PAGE = ROOT / "docs" / "TOOLS.md"
SECTION = PAGE.read_text(encoding="utf-8").split("\n## dbt\n")[1]


@pytest.fixture(autouse=True)
def examples_python() -> None:
    if not PYTHON.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{PYTHON} is missing: run `make examples`")
        pytest.skip("no environment of Ibis and dbt: run `make examples`")


def run(folder: Path, *arguments: str) -> str:
    """What a Python of that environment prints, with Inlay and `folder` on its path."""
    path = os.pathsep.join(map(str, (folder, ROOT / "layers" / "inlay")))
    done = subprocess.run(
        [PYTHON, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "DO_NOT_TRACK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def has_dbt(folder: Path) -> bool:
    """`.ci/examples-requirements.in` says why not on every Python."""
    return bool(json.loads(run(folder, "-c", "import sys; print(int(sys.version_info < (3, 14)))")))


# -- the page's Python ------------------------------------------------------------------------------

BLOCKS = """
import re, sys
from importlib.util import find_spec

text = open(sys.argv[1], encoding="utf-8").read()
own = {}
for block in re.finditer(r"^```python(?: (\\w+))?\\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
    if block[1] and find_spec(block[1]) is None:
        continue
    line = text.count("\\n", 0, block.start(2))
    exec(compile("\\n" * line + block[2], sys.argv[1], "exec"), own)
    print(block[1] or "")
"""


def test_the_pages_python_runs_in_order(tmp_path: Path) -> None:
    """`tests/cli/test_readme.py` runs the rest where Ibis and dbt are not installed."""
    ran = run(tmp_path, "-c", BLOCKS, str(PAGE)).split()
    assert {"duckdb", "polars", "pandas", "ibis"} <= set(ran)
    assert ("dbt" in ran) == has_dbt(tmp_path)


# -- dbt --------------------------------------------------------------------------------------------


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
    if not has_dbt(tmp_path):
        pytest.skip("dbt-core 1.11 does not run on Python 3.14")
    project(tmp_path)
    t = inlay.create(
        str(tmp_path / "tables" / "trips"),
        pa.schema([("id", pa.int64()), ("city", pa.string()), ("km", pa.float64())]),
    )
    t.append(pa.table({"id": [1, 2, 3], "city": ["Bern", "Chur", "Bern"], "km": [3.5, 4.0, 7.5]}))
    t.delete("id = 3")
    assert models(tmp_path) == [("Bern", 3.5), ("Chur", 4.0)]

    t.update({"km": "km + 1"}, where="city = 'Chur'")
    assert models(tmp_path) == [("Bern", 3.5), ("Chur", 5.0)]


def models(folder: Path) -> Sequence[tuple[str, float]]:
    run(
        folder,
        "-c",
        "from dbt.cli.main import dbtRunner\n"
        "import sys\n"
        "sys.exit(0 if dbtRunner().invoke(['run']).success else 1)\n",
    )
    said = run(
        folder,
        "-c",
        "import duckdb, json\n"
        "found = duckdb.connect('demo.duckdb').sql('SELECT * FROM by_city ORDER BY city')\n"
        "print(json.dumps(found.fetchall()))\n",
    )
    return [(city, km) for city, km in json.loads(said)]
