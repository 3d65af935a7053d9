"""Engines of other vendors, each as a program in a separate environment.

The main environment has a DuckDB of another version and no pyiceberg. `make engines` sets up
`.tools/engines`; INLAY_ENGINES names another Python that has them. Where there is none these tests are
skipped, but not where `CI` is set: there a missing environment is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

PYTHON = Path(
    os.environ.get("INLAY_ENGINES")
    or Path(__file__).parents[2] / ".tools" / "engines" / "bin" / "python"
)
PROGRAM = Path(__file__).with_name("read_by_engine.py")
ENGINES = ("duckdb", "pyiceberg", "polars")
# Engines that only an environment named by INLAY_ENGINES has, and the modules that read by them.
OTHERS = {
    "daft": "daft",
    "datafusion": "datafusion, pyiceberg_core",
    "clickhouse": "chdb",
    "sail": "pysail.spark, pyspark.sql",
}

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


def need(python: Path, engine: str) -> None:
    """Skips the test without the engine, one of `OTHERS`."""
    code = f"import {OTHERS[engine]}"
    if subprocess.run([python, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip(f"{engine} is not installed: INLAY_ENGINES names an environment that has it")


@pytest.fixture
def read_all(
    engines_python: Path, tmp_path: Path
) -> Callable[[str, Sequence[str]], list[pa.Table | Refused]]:
    """(engine, metadata files of published tables) → the rows of each, or why the engine refuses it."""

    def read(engine: str, metadata: Sequence[str]) -> list[pa.Table | Refused]:
        outs = [str(tmp_path / f"{engine}-{n}.arrow") for n in range(len(metadata))]
        pairs = [text for pair in zip(metadata, outs, strict=True) for text in pair]
        done = subprocess.run(
            [engines_python, PROGRAM, engine, *pairs], capture_output=True, text=True, check=False
        )
        assert not done.returncode, f"{engine}: {done.stdout}\n{done.stderr}"
        found: list[pa.Table | Refused] = []
        for out in outs:
            reason = Path(out + ".refused")
            if reason.exists():
                found.append(Refused(reason.read_text()))
                reason.unlink()
            else:
                found.append(pa.ipc.open_file(out).read_all())
        return found

    return read


@pytest.fixture
def read_by(
    read_all: Callable[[str, Sequence[str]], list[pa.Table | Refused]],
) -> Callable[[str, Path], pa.Table]:
    """(engine, root of a published table on this disk) → its rows."""

    def read(engine: str, root: Path) -> pa.Table:
        pointer = json.loads((root / "metadata" / "latest.json").read_text())
        [found] = read_all(engine, [pointer["metadata-location"]])
        if isinstance(found, Refused):
            raise found
        return found

    return read


def as_multiset(rows: pa.Table) -> Rows:
    """Rows as texts that are equal where the rows are, in one order."""
    return sorted(str(_plain(row)) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    """Instants in one zone object: engines name UTC in several ways."""
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value
