"""What large tables cost Spark, on real worker processes and a driver of 1 GB.

    python benchmarks/spark_scale.py --rows 2000000 8000000 --files 1000 10000 100000

Two executors (`local-cluster[2,1,1024]`), and `spark.driver.maxResultSize` so low that a job which sent
rows to the driver would fail. Two kinds of tables are made, each in several sizes:

rows    generated rows (250 bytes, on disk 85): loaded, merged into, compacted, clustered, erased from
files   as many small files, which are links to few real ones: what counts is their number. Opened,
        planned, counted, appended to, looked up in, erased from, garbage collected; compacted only up to
        `--compact-files`, because that reads every one of them
partitions  rows of `--partitioned-rows` in this many partitions: written, replaced, read, compacted
skew    records of which nine in ten are of one key, merged into such rows beside evenly spread ones; and a
        join by a column of which nine in ten rows have one value

Each step prints its time, the requests of all Python processes (Spark's own Parquet reader is not among
them), what it shuffled, and the driver's memory: of the JVM's heap after a collection, and of the Python
process at its highest.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import inlay
import spark_requests  # before whatever opens stores
from inlay.engine import PartedWrite, load_pointer
from inlay.spark import InlayTable, append, count, explain, local_session, read
from inlay.spark.cluster import cluster
from inlay.spark.connect import connect
from inlay.spark.garbage import collect_garbage
from inlay.spark.maintenance import advance_erasures, compact, materialize_deletes
from inlay.spark.merge import merge

MASTER = "local-cluster[2,1,1024]"
SETTINGS = {
    "spark.driver.memory": "1g",
    # Of all tasks of a job together: entries fit, rows do not.
    "spark.driver.maxResultSize": "8m",
    "spark.sql.shuffle.partitions": "8",
}
# Real files that small ones are links to, and rows of each.
REAL_FILES = 50
REAL_ROWS = 200
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        ("country", pa.string()),
        ("amount", pa.float64()),
        ("text", pa.string()),
    ]
)


class Report:
    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        started, before = time.perf_counter(), spark_requests.total()
        shuffled = self._shuffled()
        told = work()
        seconds, requests = time.perf_counter() - started, spark_requests.total() - before
        shuffled = self._shuffled() - shuffled
        print(
            f"{name:<24}{seconds:>8.1f} s {requests:>8,} requests {shuffled:>14,} bytes shuffled "
            f"{self._memory()}  {told}",
            flush=True,
        )
        return told

    def _shuffled(self) -> int:
        """Bytes that all tasks so far have written for other tasks."""
        executors = self.spark._jsc.sc().statusStore().executorList(False)
        places = range(executors.length())
        return sum(executors.apply(place).totalShuffleWrite() for place in places)

    def _memory(self) -> str:
        self.spark._jvm.System.gc()
        runtime = self.spark._jvm.Runtime.getRuntime()
        heap = (runtime.totalMemory() - runtime.freeMemory()) >> 20
        python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return f"{heap:>5} MB heap {python:>5} MB Python"


def generated(spark: Any, start: int, rows: int, seq: int) -> Any:
    """Rows whose text does not compress away."""
    return spark.range(start, start + rows).selectExpr(
        "id",
        f"cast({seq} as bigint) AS seq",
        "concat('c', pmod(hash(id), 60)) AS country",
        "pmod(hash(id, 1), 100000) / 100.0D AS amount",
        "concat(sha2(cast(id as string), 512), md5(cast(id as string))) AS text",
    )


def large(report: Report, folder: Path, rows: int) -> None:
    spark = report.spark
    uri = f"file://{folder}/rows-{rows}"
    table = inlay.create(uri, SCHEMA, primary_key="id", sort_by=["id"])

    def load() -> str:
        frame = generated(spark, 0, rows, 0).repartitionByRange(8, "id")
        frame.write.format("inlay").mode("append").save(uri)
        files = table.refresh().inspect.files()
        size = sum(files.column("bytes").to_pylist())
        return f"{rows:,} rows, {size / 2**20:,.0f} MB in {files.num_rows} files"

    def merged() -> str:
        # One row in 100, over the whole table, and as many new ones.
        old = generated(spark, 0, rows, 1).where("id % 100 = 7")
        new = generated(spark, rows, rows // 100, 1)
        told = merge(old.union(new), uri, order="seq", op=None)
        return f"{told.rows:,} rows written, {told.keys - rows // 100:,} of them replace one"

    def compacted() -> str:
        told = compact(spark, uri)
        return f"{told.input_files} files to {told.output_files}, {told.removed_rows:,} rows gone"

    def clustered() -> str:
        order = {"compact__strategy": "zorder", "compact__columns": "country, amount"}
        changed = table.refresh().set_properties(**order).version
        told = cluster(spark, uri, older_than=changed)
        return f"{told.input_files} files to {told.output_files}, {told.written_bytes >> 20:,} MB"

    def materialized() -> str:
        table.refresh().delete(f"id < {rows // 50}")
        table.refresh().delete("country = 'c7'")
        told = materialize_deletes(spark, uri)
        return f"{told.removed_rows:,} rows gone from {told.files} files"

    def erased() -> str:
        table.refresh().delete("country = 'c8'", mode="erase")
        told = advance_erasures(spark, uri)
        return f"{told.removed_rows:,} rows gone from {told.files} files"

    report.step("load", load)
    report.step("merge 2 rows in 100", merged)
    report.step("compact", compacted)
    report.step("cluster by z-order", clustered)
    report.step("delete and materialise", materialized)
    report.step("erase 1 row in 60", erased)
    report.step("count", lambda: f"{count(spark, uri):,} rows")
    report.step("sum by country", lambda: f"{_countries(spark, uri)} countries")


def _countries(spark: Any, uri: str) -> int:
    frame = read(spark, uri, columns=["country", "amount"])
    return len(frame.groupBy("country").sum("amount").collect())


def small_rows(start: int) -> pa.Table:
    ids = range(start, start + REAL_ROWS)
    return pa.table(
        {
            "id": ids,
            "seq": [0] * REAL_ROWS,
            "country": [f"c{i % 60}" for i in ids],
            "amount": [i / 4 for i in ids],
            "text": ["x" * 20] * REAL_ROWS,
        },
        schema=SCHEMA,
    )


def many(report: Report, folder: Path, files: int, *, compacting: bool) -> None:
    spark = report.spark
    place = folder / f"files-{files}"
    uri = f"file://{place}"
    table = inlay.create(uri, SCHEMA, primary_key="id")
    for n in range(REAL_FILES):
        table.append(small_rows(n * REAL_ROWS))
    real = table.inspect.entries()[0]

    def adopt() -> str:
        ctx = connect(uri)
        loaded = load_pointer(ctx)
        links = []
        for n in range(files - len(real)):
            entry = real[n % len(real)]
            key = f"data/2026/01/01/00/{uuid.uuid4()}.parquet"
            (place / key).parent.mkdir(parents=True, exist_ok=True)
            (place / key).hardlink_to(place / entry.key)
            links.append(replace(entry, key=key, sequence=None))
        PartedWrite(table=loaded.without_entries()).commit(ctx, links, base=loaded)
        return f"{files:,} files in one commit"

    def looked_up() -> str:
        frame = read(spark, uri, where="id = 7", columns=["id"])
        plan = explain(spark, uri, where="id = 7", columns=["id"])
        return f"{frame.count():,} rows from {plan.native_files + plan.source_files:,} files"

    def own_file() -> str:
        result = inlay.open(uri).append(small_rows(1_000_000))
        return f"{result.requests} requests, {result.bytes_up:,} bytes up"

    def merged() -> str:
        told = merge(generated(spark, 1_000_000, 100, 1), uri, order="seq", op=None)
        return f"{told.rows} rows written"

    def erased() -> str:
        inlay.open(uri).delete("id BETWEEN 1000150 AND 1000160", mode="erase")
        told = advance_erasures(spark, uri)
        return f"{told.removed_rows} rows gone from {told.files} files"

    def collected() -> str:
        told = collect_garbage(spark, uri, dry_run=True)
        return f"{told.objects} of {files:,} objects to delete"

    def compacted() -> str:
        told = compact(spark, uri)
        return f"{told.input_files:,} files to {told.output_files} in {told.commits} commits"

    report.step("files by metadata", adopt)
    report.step("open", lambda: f"version {inlay.open(uri).version}")
    report.step("plan a scan of all", lambda: f"{len(inlay.open(uri).scan().plan.tasks):,} files")
    report.step("count", lambda: f"{count(spark, uri):,} rows")
    report.step("append", own_file)
    report.step("look 1 key up", looked_up)
    report.step("merge 100 rows", merged)
    report.step("erase 11 rows", erased)
    report.step("list for garbage", collected)
    if compacting:
        report.step("compact", compacted)


def partitioned(report: Report, folder: Path, partitions: int, rows: int) -> None:
    spark = report.spark
    uri = f"file://{folder}/partitions-{partitions}"
    schema = SCHEMA.append(pa.field("part", pa.int32()))
    table = inlay.create(uri, schema, primary_key="id", partition_by=["part"])
    frame = generated(spark, 0, rows, 0).selectExpr("*", f"cast(id % {partitions} AS int) AS part")

    def write(frame: Any) -> str:
        frame.write.format("inlay").mode("append").save(uri)
        return f"{table.refresh().inspect.files().num_rows:,} files"

    def replaced() -> str:
        few = frame.where("part IN (3, 7)")
        overwrite = few.write.format("inlay").mode("overwrite")
        overwrite.option("partitionOverwriteMode", "dynamic").save(uri)
        return f"{count(spark, uri):,} rows"

    def one() -> str:
        found = read(spark, uri, where="part = 5")
        return f"{found.count():,} rows from {explain(spark, uri, where='part = 5').native_files} files"

    def compacted() -> str:
        told = compact(spark, uri)
        return f"{told.input_files:,} files to {told.output_files:,} in {told.commits} commits"

    report.step("load, by partition", lambda: write(frame.repartition(8, "part")))
    report.step("load, spread", lambda: write(frame.repartition(8)))
    report.step("read one", one)
    report.step("read all", lambda: f"{_countries(spark, uri)} countries")
    report.step("replace two", replaced)
    report.step("compact", compacted)
    report.step("read all again", lambda: f"{_countries(spark, uri)} countries")


def skewed(report: Report, folder: Path, rows: int) -> None:
    spark = report.spark
    records = rows // 5

    def table(name: str) -> str:
        uri = f"file://{folder}/skew-{rows}-{name}"
        made = inlay.create(uri, SCHEMA, primary_key="id", sort_by=["id"])
        even = generated(spark, 0, rows, 0).repartitionByRange(8, "id")
        if name == "joined":
            even = even.selectExpr(
                "id", "seq", "if(id % 10 > 0, 'c0', country) country", "amount", "text"
            )
        append(even, made.uri)
        return uri

    def merged(name: str, key: str) -> str:
        found = spark.range(records).selectExpr(f"{key} AS id", "id + 1 AS seq")
        text = ("'c1' AS country", "0.5D AS amount", "sha2(cast(id AS string), 512) AS text")
        told = merge(found.selectExpr("id", "seq", *text), places[name], order="seq", op=None)
        return f"{told.records:,} records of {told.keys:,} keys"

    def joined() -> str:
        countries = spark.range(60).selectExpr("concat('c', id) AS country", "id AS n")
        target = InlayTable(spark, places["joined"]).alias("t")
        found = target.merge(countries.alias("s"), "t.country = s.country")
        told = found.whenMatchedUpdate("t.id % 100 = 1", set={"amount": "s.n"}).execute()
        return f"{told.updated:,} rows updated"

    places = {name: table(name) for name in ("even", "skewed", "joined")}
    report.step("merge, even", lambda: merged("even", f"id * {rows // records}"))
    one = f"if(id % 10 > 0, 7, id * {rows // records})"
    report.step("merge, 9 in 10 one key", lambda: merged("skewed", one))
    report.step("join, 9 in 10 one value", joined)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    report.step("... without broadcast", joined)
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


@contextmanager
def session(scratch: Path) -> Iterator[Any]:
    requests = scratch / "requests"
    requests.mkdir()
    os.environ["PYTHONPATH"] = spark_requests.on_path(requests)
    settings = {
        **SETTINGS,
        "spark.local.dir": str(scratch / "spark"),
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        f"spark.executorEnv.{spark_requests.FOLDER}": os.environ[spark_requests.FOLDER],
    }
    spark = local_session(app="inlay scale", master=MASTER, quick_start=False, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="What large tables cost Spark")
    parser.add_argument("--rows", type=int, nargs="*", default=[2_000_000, 8_000_000])
    parser.add_argument("--files", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--compact-files", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, nargs="*", default=[])
    parser.add_argument("--partitioned-rows", type=int, default=2_000_000)
    parser.add_argument("--skew", type=int, nargs="*", default=[], help="rows of the table")
    parser.add_argument("--folder", type=Path, help="work in this folder (a temporary one)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder, session(Path(folder)) as spark:
        scratch = Path(folder)
        report = Report(spark)
        report.step("start of executors", lambda: spark.range(2).repartition(2).count())
        for rows in asked.rows:
            print(f"-- {rows:,} rows")
            large(report, scratch, rows)
        for files in asked.files:
            print(f"-- {files:,} files")
            many(report, scratch, files, compacting=files <= asked.compact_files)
        for partitions in asked.partitions:
            print(f"-- {partitions:,} partitions")
            partitioned(report, scratch, partitions, asked.partitioned_rows)
        for rows in asked.skew:
            print(f"-- {rows:,} rows, records of one key")
            skewed(report, scratch, rows)


if __name__ == "__main__":
    main()
