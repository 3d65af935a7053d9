"""A query whose processes are killed, with SIGKILL, around its commit: each row is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import inlay

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seq", pa.int64())])

QUERY = """
import sys
from inlay.spark import local_session
from inlay.spark.merge_sink import MergeSink

sink, table, folder = sys.argv[1:]
spark = local_session(app="killed")
rows = spark.readStream.schema("id bigint, seq bigint").json(f"{folder}/in")
if sink == "merge":
    writer, target = rows.writeStream.foreachBatch(MergeSink(table, order="seq", op=None)), ()
else:
    writer, target = rows.writeStream.format("inlay"), (table,)
writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
writer.start(*target).awaitTermination()
spark.stop()
"""

# In every Python process of the query, also the one that Spark starts for committing.
KILLER = """
import os, signal
if "KILL_GROUP" in os.environ:
    import inlay.ops.commit.driver as module
    real = module.commit
    def commit(*arguments, **named):
        if os.environ["KILL"] == "after":
            real(*arguments, **named)
        os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    module.commit = commit
"""
# Names the group it is in, and becomes the query.
START = """
import os, sys
os.environ["KILL_GROUP"] = str(os.getpgrp())
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize("sink", ["append", "merge"])
def test_a_query_that_is_killed_around_its_commit_adds_each_row_once(
    tmp_path: Path, sink: str
) -> None:
    table = inlay.create(f"file://{tmp_path}/table", SCHEMA, primary_key="id")
    (tmp_path / "in").mkdir()
    (tmp_path / "query.py").write_text(QUERY)
    (tmp_path / "sitecustomize.py").write_text(KILLER)

    def run(kill: str | None = None) -> int:
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path, "KILL": kill or ""}
        query = [str(tmp_path / "query.py"), sink, table.uri, str(tmp_path)]
        start = [sys.executable, "-c", START] if kill else [sys.executable]
        return subprocess.run([*start, *query], env=environment, start_new_session=True).returncode

    def drop(seq: int) -> None:
        (tmp_path / "in" / f"{seq}.json").write_text(f'{{"id": {seq}, "seq": {seq}}}\n')

    def ids() -> list[int]:
        return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())

    drop(1)
    assert run("before") == -signal.SIGKILL
    assert ids() == []
    assert list((tmp_path / "table" / "data").rglob("*.parquet"))  # its data had been written
    assert run("after") == -signal.SIGKILL
    assert ids() == [1]
    assert not list((tmp_path / "checkpoint" / "commits").glob("0"))  # Spark knows nothing of it
    drop(2)
    assert run() == 0
    assert ids() == [1, 2]
    assert table.version == 3
