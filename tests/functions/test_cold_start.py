"""What a cold start loads: a function's first message waits for it, 0.3 to 0.5 s of CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import ROOT

# What each function needs for its everyday message, or never, is loaded later or not at all.
LATER = {
    "ingest": ("inlay.parse", "inlay.ops.schema.create", "inlay.ops.maintain"),
    "delete": ("inlay.ops.write.ingest", "inlay.ops.maintain", "inlay.ops.erase"),
    "rewrite": ("inlay.ops.write.ingest", "inlay.ops.maintain.compact", "inlay.ops.publish"),
    "compact": ("inlay.ops.write", "inlay.ops.publish", "inlay.ops.erase", "inlay.parse"),
    "publish": ("inlay.ops.write", "inlay.ops.maintain.compact", "inlay.ops.erase", "inlay.parse"),
    "catalog": ("pyarrow", "inlay.parquet.read.reader", "inlay.ops.write"),
    "collect_garbage": (
        "inlay.ops.write.ingest",
        "inlay.ops.publish",
        "inlay.ops.maintain.compact",
        "inlay.iceberg",
    ),
}


def loaded_by(function: str) -> set[str]:
    script = "import sys, handler; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT / "functions" / function,
        env={"POWERTOOLS_SERVICE_NAME": function, "POWERTOOLS_METRICS_NAMESPACE": "Inlay"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("function", sorted(LATER))
def test_a_cold_start_loads_nothing_of_other_work(function: str) -> None:
    loaded = loaded_by(function)
    unwanted = ("boto3", "numpy.random", "pandas", "moto", *LATER[function])
    assert (
        sorted(
            module
            for module in loaded
            if any(module == each or module.startswith(f"{each}.") for each in unwanted)
        )
        == []
    )


def test_every_function_is_looked_at() -> None:
    assert set(LATER) == {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
