"""Queries and writes whose processes are killed, with SIGKILL: each row is there once.

On `local-cluster` the executors are processes of their own, which the cluster starts again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import inlay
from inlay.spark.sessions import LOCAL_MASTER

CLUSTER = "local-cluster[2,1,1024]"

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("seq", pa.int64())])

QUERY = """
import sys
from inlay.spark import local_session
from inlay.spark.merge_sink import MergeSink

sink, table, folder, master = sys.argv[1:]
spark = local_session(app="killed", master=master)
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


@pytest.mark.parametrize(
    ("sink", "master"),
    [("append", LOCAL_MASTER), ("merge", LOCAL_MASTER), ("append", CLUSTER), ("merge", CLUSTER)],
)
def test_a_query_that_is_killed_around_its_commit_adds_each_row_once(
    tmp_path: Path, sink: str, master: str
) -> None:
    table = inlay.create(f"file://{tmp_path}/table", SCHEMA, primary_key="id")
    (tmp_path / "in").mkdir()
    (tmp_path / "query.py").write_text(QUERY)
    (tmp_path / "sitecustomize.py").write_text(KILLER)

    def run(kill: str | None = None) -> int:
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path, "KILL": kill or ""}
        query = [str(tmp_path / "query.py"), sink, table.uri, str(tmp_path), master]
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


# Every way to write, each from tasks of which one takes its executor with it when it has handed over
# half of its rows. What a lost executor had written stays; Spark runs its tasks again, some twice.
WAYS = """
import json, os, signal, sys
from pathlib import Path
import pyarrow as pa
from inlay.spark import InlayTable, append, local_session
from inlay.spark.merge import merge
from inlay.spark.merge_sink import MergeSink

root, folder = sys.argv[1:]
spark = local_session(
    app="executors",
    master="local-cluster[2,1,1024]",
    settings={
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "0ms",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.quantile": "0.5",
    },
)

def executor():
    process = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{process}/cmdline").read_bytes():
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
        process = int(stat.split()[1])
    return process

def deadly(way):
    mark = f"{folder}/{way}.killed"
    def rows(batches):
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if batch.num_rows > 1:
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    os.kill(executor(), signal.SIGKILL)
                    signal.pause()
            yield batch.slice(half)
    return rows

DDL = "id bigint, seq bigint"

def frame(way):
    return spark.range(0, 1000, 1, 4).selectExpr("id", "2L AS seq").mapInArrow(deadly(way), DDL)

def stream(way):
    found = spark.readStream.schema(DDL).json(f"{folder}/in").mapInArrow(deadly(way), DDL)
    return found.writeStream.option("checkpointLocation", f"{folder}/{way}").trigger(availableNow=True)

def twin(way, uri):
    target = InlayTable(spark, uri).alias("t").merge(frame(way).alias("s"), "t.id = s.id")
    target.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

def sink(way, uri):
    merging = MergeSink(uri, order="seq", op=None)
    stream(way).foreachBatch(merging).start().awaitTermination()

ways = {
    "append": lambda way, uri: append(frame(way), uri),
    "source": lambda way, uri: append(frame(way), uri, native="never"),
    "twin": twin,
    "merge": lambda way, uri: merge(frame(way), uri, order="seq", op=None),
    "stream": lambda way, uri: stream(way).format("inlay").start(uri).awaitTermination(),
    "sink": sink,
}
for way, write in ways.items():
    write(way, f"{root}/{way}")
    assert os.path.exists(f"{folder}/{way}.killed"), way
    print(way, flush=True)
spark.stop()
"""


def test_a_write_that_loses_an_executor_adds_each_row_once(tmp_path: Path) -> None:
    ways = ("append", "source", "twin", "merge", "stream", "sink")
    old = pa.table({"id": range(100), "seq": [1] * 100}, schema=SCHEMA)
    for way in ways:
        table = inlay.create(f"file://{tmp_path}/tables/{way}", SCHEMA, primary_key="id")
        if way in ("twin", "merge", "sink"):
            table.append(old)
    (tmp_path / "in").mkdir()
    lines = [f'{{"id": {n}, "seq": 2}}\n' for n in range(1000)]
    for part in range(4):
        (tmp_path / "in" / f"{part}.json").write_text("".join(lines[part::4]))
    script = tmp_path / "ways.py"
    script.write_text(WAYS)
    run = [sys.executable, str(script), f"file://{tmp_path}/tables", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr[-5000:])
    for way in ways:
        table = inlay.open(f"file://{tmp_path}/tables/{way}")
        found = table.scan().to_arrow().sort_by("id").to_pydict()
        assert found == {"id": list(range(1000)), "seq": [2] * 1000}, way
