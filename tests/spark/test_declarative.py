"""The example of Spark Declarative Pipelines moves new rows from one table to another, once each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

import inlay
from inlay.spark.sessions import java_home

EXAMPLE = Path(__file__).parents[2] / "pipelines" / "declarative"
SCHEMA = pa.schema([pa.field("order_id", pa.int64()), pa.field("status", pa.string())])


@pytest.mark.timeout(290)
def test_a_run_takes_the_rows_of_the_source(tmp_path: Path) -> None:
    orders, opened = _tables(tmp_path)
    orders.append(pa.table({"order_id": [1, 2, 3], "status": ["O", "F", "O"]}, schema=SCHEMA))
    _run(tmp_path)
    assert _ids(opened) == [1, 3]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_next_run_takes_only_what_is_new(tmp_path: Path) -> None:
    orders, opened = _tables(tmp_path)
    orders.append(pa.table({"order_id": [1, 2, 3], "status": ["O", "F", "O"]}, schema=SCHEMA))
    _run(tmp_path)
    orders.append(pa.table({"order_id": [4, 5], "status": ["F", "O"]}, schema=SCHEMA))
    _run(tmp_path)
    assert _ids(opened) == [1, 3, 5]


def _tables(folder: Path) -> tuple[inlay.Table, inlay.Table]:
    return inlay.create(folder / "orders", SCHEMA), inlay.create(folder / "open_orders", SCHEMA)


def _ids(table: inlay.Table) -> list[int]:
    return sorted(table.refresh().scan(columns=["order_id"]).to_arrow()["order_id"].to_pylist())


def _run(folder: Path) -> None:
    """`spark-pipelines run`, as a user would, with checkpoints in `folder`."""
    pipeline = folder / "pipeline"
    shutil.copytree(EXAMPLE, pipeline, dirs_exist_ok=True)
    spec = pipeline / "spark-pipeline.yml"
    text = spec.read_text()
    text = text.replace("s3://bucket/pipelines/open_orders", f"file://{folder}/storage")
    spec.write_text(text.replace("s3://bucket/tables", f"file://{folder}"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    home = Path(pyspark.__file__).parent
    done = subprocess.run(
        [str(home / "bin" / "spark-pipelines"), "--remote", "local[2]", "run"]
        + ["--spec", str(spec)]
        + [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")],
        env={
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
