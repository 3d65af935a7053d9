"""The pipeline of `make pipeline` at its smallest, every step of it checked by DuckDB."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import inlay

pytestmark = [pytest.mark.spark, pytest.mark.wide, pytest.mark.timeout(1800)]


def test_the_pipeline_tells_its_story(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    command = [sys.executable, "-m", "pipelines.orders_demo", "--keep", str(folder)]
    done = subprocess.run(
        [*command, "--scale", "0.001", "--changes", "400"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    first = done.stdout.splitlines()[1]
    assert first == "generate    TPC-H orders at scale 0.001, and 400 changes to them …"
    told = done.stdout.partition("\n\n")[2].splitlines()
    steps = ["generate", "start", "load", *["land", "ingest", "merge"], *["land", "ingest"]]
    steps += ["kill", "merge", "alter", "land", "ingest", "merge", "erase"]
    steps += ["land", "ingest", "merge both", "compact", "query"]
    assert [line[:10].strip() for line in told[: len(steps)]] == steps
    # After the load, each merge, the erasure and the last compaction.
    assert done.stdout.count("all as in DuckDB") == 7
    partial = re.search(r"compacted between: (\d+) of (\d+) files", done.stdout)
    assert partial is not None and 1 < int(partial[1]) < int(partial[2])
    orders = inlay.open(f"file://{folder}/tables/orders")
    assert "priority" in orders.schema.names
    assert len(orders.snapshot.erasures) == 1  # its objects wait for the collection of garbage
