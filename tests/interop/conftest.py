"""Engines of other makers, each as a program in an environment of its own.

The main environment has a DuckDB of another version and no pyiceberg. `make engines` sets up
`.tools/engines`; INLAY_ENGINES names another Python that has them. Where there is none these tests are
skipped, but not where `CI` is set: there a missing environment is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

PYTHON = Path(
    os.environ.get("INLAY_ENGINES")
    or Path(__file__).parents[2] / ".tools" / "engines" / "bin" / "python"
)
PROGRAM = Path(__file__).with_name("read_by_engine.py")
ENGINES = ("duckdb", "pyiceberg", "polars")

Rows = list[str]


class Refused(Exception):
    """An engine said that it cannot read the table."""


@pytest.fixture(scope="session")
def engines_python() -> Path:
    if not PYTHON.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{PYTHON} is missing: run `make engines`")
        pytest.skip("no environment of other engines: run `make engines`")
    return PYTHON


@pytest.fixture
def read_by(engines_python: Path, tmp_path: Path) -> Callable[[str, Path], pa.Table]:
    """(engine, root of a published table on this disk) → its rows."""

    def read(engine: str, root: Path) -> pa.Table:
        pointer = json.loads((root / "metadata" / "latest.json").read_text())
        out = tmp_path / f"{engine}.arrow"
        done = subprocess.run(
            [engines_python, PROGRAM, engine, pointer["metadata-location"], out],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 3:
            raise Refused(done.stdout.strip())
        if done.returncode:
            raise AssertionError(f"{engine}: {done.stdout}\n{done.stderr}")
        return pa.ipc.open_file(out).read_all()

    return read


def as_multiset(rows: pa.Table) -> Rows:
    """Rows as texts that are equal where the rows are, in one order."""
    return sorted(map(str, rows.to_pylist()))
