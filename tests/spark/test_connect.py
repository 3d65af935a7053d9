"""What works through Spark Connect, and what is refused by type: the table in docs/SPARK.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inlay.spark.sessions import java_home

PAGE = Path(__file__).parents[2] / "docs" / "SPARK.md"

# A separate process: one Python process has a classic session or a client, not both.
SCRIPT = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
import inlay
from inlay.spark import InlayTable, count, explain, read, sql, view, views
from inlay.spark import cluster, garbage, maintenance, transaction
from inlay.spark.merge_sink import MergeSink

folder = sys.argv[1]
uri = f"file://{folder}/lake/t"
table = inlay.create(uri, pa.schema([("id", pa.int64())]), primary_key="id", sort_by="id")
table.append(pa.table({"id": [1, 2, 3]}))
table.append(pa.table({"id": [4]}))
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
source = spark.createDataFrame([(1,)], "id long").alias("s")
rows = spark.readStream.format("inlay").load(uri)

def stream(name, writer):
    checkpoint = f"file://{folder}/checkpoints/{name}"
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    return query

def into(name):
    inlay.create(f"file://{folder}/lake/{name}", pa.schema([("id", pa.int64())]))
    query = stream(name, rows.writeStream.format("inlay")).start(f"file://{folder}/lake/{name}")
    query.awaitTermination()
    assert inlay.open(f"file://{folder}/lake/{name}").count() == 4

def insert():
    spark.sql(f"CREATE TEMPORARY VIEW v USING inlay OPTIONS (path '{uri}')")
    spark.sql("INSERT INTO v VALUES (9)").collect()
    assert table.refresh().count() == 5
    table.delete("id = 9")

def write():
    source.write.format("inlay").mode("append").save(uri)
    table.refresh().delete("id = 1")
    source.write.format("inlay").mode("append").save(uri)

def expect(found, wanted):
    assert found == wanted, (found, wanted)

def together(verb, **options):
    with transaction() as tx:
        getattr(tx, verb)(source, uri, **options)

verbs = {
    "transaction": lambda: together("append"),
    "transaction of merges": lambda: together("merge", order="id"),
    "read.format": lambda: expect(spark.read.format("inlay").load(uri).where("id < 3").count(), 2),
    "stream": lambda: into("streamed"),
    "read": lambda: expect(read(spark, uri, where="id > 1").count(), 3),
    "count": lambda: expect(count(spark, uri, where="id > 1"), 3),
    "explain": lambda: explain(spark, uri),
    "insert": insert,
    "write": write,
    "view": lambda: view(spark, "t", uri),
    "views": lambda: views(spark, f"file://{folder}/lake"),
    "sql": lambda: sql(spark, "DELETE FROM t"),
    "update": lambda: InlayTable(spark, uri).update({"id": "id + 1"}),
    "delete": lambda: InlayTable(spark, uri).delete("id = 1"),
    "merge": lambda: InlayTable(spark, uri).alias("t").merge(source, "t.id = s.id")
        .whenMatchedDelete().execute(),
    "compact": lambda: maintenance.compact(spark, uri),
    "materialize_deletes": lambda: maintenance.materialize_deletes(spark, uri),
    "advance_erasures": lambda: maintenance.advance_erasures(spark, uri),
    "cluster": lambda: cluster.cluster(spark, uri),
    "collect_garbage": lambda: garbage.collect_garbage(spark, uri),
    "MergeSink": lambda: stream(
        "sink", rows.writeStream.foreachBatch(MergeSink(uri, order="id"))
    ).start().awaitTermination(),
}
found = {}
for name, run in verbs.items():
    try:
        run()
        found[name] = "yes"
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
spark.stop()
"""

REFUSED = {
    *("view", "views", "sql", "update", "delete", "merge", "compact", "materialize_deletes"),
    *("advance_erasures", "cluster", "collect_garbage", "MergeSink"),
    *("transaction", "transaction of merges"),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_verb_works_or_is_refused_by_type(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    refused = {name: why for name, why in found.items() if why != "yes"}
    assert refused.keys() == REFUSED, refused
    for name, why in refused.items():
        assert "InvalidRequest" in why and "Spark Connect" in why, (name, why)


def test_the_page_names_every_verb_that_is_refused() -> None:
    page = PAGE.read_text()
    refused = [line for line in page.splitlines() if "| refused: `InvalidRequest` |" in line]
    for name in REFUSED - {"update", "delete", "merge", "transaction of merges"}:
        assert any(f"`{name}" in line for line in refused), name
    assert any("`InlayTable.update`, `delete`, `merge`" in line for line in refused)
