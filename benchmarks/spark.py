"""Inlay in Spark beside `spark.read.parquet` on the same files.

    python benchmarks/spark.py --scale 1

TPC-H lineitem is written into a table in a local folder. Each query then runs natively on the table's
own Parquet files and on the table, in turns; printed are the best wall times and their ratio. The floor
is a source written in Python that does nothing but yield ready-made batches of the same shape: what is
above it is ours, the rest is Spark's way from Python to the JVM. `--deletes` runs the queries once more
with deletes pending, which native Parquet does not see. `--keys 0.01` runs two aggregates after one row in
100 was deleted by its order, also by CPU. `--writes` appends the rows instead, out of memory and out of
Parquet files, beside `df.write.parquet` with the same codec, also by CPU of the whole tree of processes.
`--maintenance` compacts and clusters them, beside Spark reading the same files, sorting and writing them.
`--changes 100000` merges so many rows by key, first in a new session and then warm, updates 1 %, appends,
and asks for a sum before and after: `--scale 0.334 --changes 100000` are 2M rows. Iceberg does the same in
`benchmarks/spark_changes.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import inlay
from inlay.spark import InlayTable, append, count, local_session, read
from inlay.spark.cluster import cluster
from inlay.spark.maintenance import compact
from inlay.spark.types import arrow_for
from spark_changes import SAME, measure, total, tree_cpu

Run = Callable[[Any, str], Any]

SLOTS = 2
BATCH_ROWS = 131_072
MODES = ["TRUCK", "MAIL", "REG AIR", "SHIP"]
# Rows handed to one append.
APPEND_ROWS = 2_000_000
# What maintenance finds, and the order it makes.
SMALL_FILES = 64
UNORDERED_FILES = 8
ORDER = ["l_shipdate", "l_partkey"]
TARGET_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Query:
    """`native` gets a folder of Parquet files, `ours` a table; `goal` is the ratio aimed at; `floor` is
    the Spark schema that a source of ready-made batches has."""

    name: str
    native: Run
    ours: Run
    goal: float | None = None
    floor: str | None = None


class ReadyMade(DataSource):
    """Batches of `rows` rows in all, made once in each task."""

    @classmethod
    def name(cls) -> str:
        return "readymade"

    def reader(self, schema: Any) -> ReadyMadeReader:
        return ReadyMadeReader(schema, int(self.options["rows"]))


class ReadyMadeReader(DataSourceReader):
    def __init__(self, schema: Any, rows: int) -> None:
        self.schema = schema
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(SLOTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        kinds = {"string": pa.string(), "decimal(15,2)": pa.decimal128(15, 2)}
        columns = []
        for field in self.schema:
            texts = MODES if field.dataType.simpleString() == "string" else ["1.25", "1000.50"]
            values = pa.array(texts * (BATCH_ROWS // len(texts)))
            columns.append(values.cast(kinds[field.dataType.simpleString()]))
        batch = pa.record_batch(columns, names=self.schema.names)
        for _ in range(self.rows // SLOTS // batch.num_rows):
            yield batch


def lineitem(scale: float, folder: Path) -> inlay.Table:
    """A table of all 16 columns, made once per folder."""
    uri = f"file://{folder}/table"
    if (folder / "table" / "_latest_manifest").exists():
        return inlay.open(uri)
    path = folder / "lineitem.parquet"
    if not path.exists():
        program = Path(sys.executable).parent / "tpchgen-cli"
        arguments = ["parquet", "-s", str(scale), "--tables", "lineitem", "-o", str(folder)]
        subprocess.run([program, *arguments], check=True)
    source = pq.ParquetFile(path)
    table = inlay.create(uri, source.schema_arrow, primary_key="l_orderkey")
    batches = list(source.iter_batches(131_072))
    step = APPEND_ROWS // 131_072
    for start in range(0, len(batches), step):
        table.append(pa.Table.from_batches(batches[start : start + step]))
    return table


def parquet(spark: Any, folder: str) -> Any:
    return spark.read.option("recursiveFileLookup", "true").parquet(folder)


def table(spark: Any, uri: str) -> Any:
    return spark.read.format("inlay").load(uri)


def by_mode(frame: Any) -> Any:
    return sorted(frame.groupBy("l_shipmode").count().collect())


def few(frame: Any) -> Any:
    return frame.selectExpr("count(*)", "max(l_comment)", "sum(l_tax)").collect()


PRICES = ["l_extendedprice", "l_quantity"]
PRICES_DDL = "l_extendedprice decimal(15,2), l_quantity decimal(15,2)"
FEW = "l_orderkey BETWEEN 100000 AND 101000 AND l_shipmode = 'AIR'"


def total_natively(spark: Any, folder: str) -> Any:
    return total(parquet(spark, folder))


def modes_natively(spark: Any, folder: str) -> Any:
    return by_mode(parquet(spark, folder))


def few_natively(spark: Any, folder: str) -> Any:
    return few(parquet(spark, folder).where(FEW))


QUERIES = [
    Query(
        "sum of 2 columns, read(columns=)",
        total_natively,
        lambda spark, uri: total(read(spark, uri, columns=PRICES)),
        1.3,
    ),
    Query(
        "sum of 2 of 16 columns, read()", total_natively, lambda s, uri: total(read(s, uri)), 1.3
    ),
    Query(
        "group by string, read(columns=)",
        modes_natively,
        lambda spark, uri: by_mode(read(spark, uri, columns=["l_shipmode"])),
        1.1,
    ),
    Query(
        "selective filter, read(where=)",
        few_natively,
        lambda spark, uri: few(read(spark, uri, where=FEW)),
        1.0,
    ),
    Query("count by metadata", lambda spark, folder: parquet(spark, folder).count(), count, 1.0),
    Query(
        "sum of 2 columns, .schema()",
        total_natively,
        lambda spark, uri: total(spark.read.format("inlay").schema(PRICES_DDL).load(uri)),
        1.3,
        PRICES_DDL,
    ),
    Query(
        "group by string, .schema()",
        modes_natively,
        lambda s, uri: by_mode(s.read.format("inlay").schema("l_shipmode string").load(uri)),
        1.1,
        "l_shipmode string",
    ),
    Query(
        "selective filter, option where",
        few_natively,
        lambda s, uri: few(s.read.format("inlay").option("where", FEW).load(uri)),
        1.0,
    ),
]


def timed(run: Run, spark: Any, uri: str) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = run(spark, uri)
    return time.perf_counter() - started, answer


def compare(spark: Any, uri: str, times: int, *, same_answers: bool) -> None:
    data = f"{uri}/data"
    rows = inlay.open(uri).count()
    header = ("parquet", "inlay", "ratio", "goal", "floor")
    print(f"{'query':<34}" + "".join(f"{name:>9}" for name in header), flush=True)
    for query in QUERIES:
        native, ours, floors = [], [], []
        # In turns, so that all see the same machine; the first round warms them up.
        for warm in range(times + 1):
            seconds, expected = timed(query.native, spark, data)
            our_seconds, answer = timed(query.ours, spark, uri)
            if same_answers and answer != expected:
                raise SystemExit(f"{query.name}: {answer} and not {expected}")
            if query.floor is not None:
                floors.append(timed(partial(floor, query, rows), spark, uri)[0])
            if warm:
                native.append(seconds)
                ours.append(our_seconds)
        ratio = min(ours) / min(native)
        goal = "" if query.goal is None else f"{query.goal:.1f}"
        least = f"{min(floors):.2f}s" if floors else ""
        times_text = f"{min(native):>8.2f}s{min(ours):>8.2f}s"
        print(f"{query.name:<34}{times_text}{ratio:>9.2f}{goal:>9}{least:>9}", flush=True)


def floor(query: Query, rows: int, spark: Any, _: str) -> Any:
    frame = spark.read.format("readymade").schema(query.floor).option("rows", rows).load()
    return total(frame) if len(frame.columns) > 1 else by_mode(frame)


def in_turns(
    ways: Mapping[str, Callable[[int], Any]], times: int
) -> dict[str, tuple[float, float]]:
    """The least seconds and the least CPU seconds of each way, run with the number of the round, all in
    turns so that they see the same machine; round 0 warms up."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for number in range(times + 1):
        for way, run in ways.items():
            started, used = time.perf_counter(), tree_cpu()
            run(number)
            if number:
                found[way].append((time.perf_counter() - started, tree_cpu() - used))
    return {way: (min(s for s, _ in each), min(c for _, c in each)) for way, each in found.items()}


def beside(ours: tuple[float, float], base: tuple[float, float]) -> str:
    """Wall and CPU, each with its ratio to `base`, as four columns."""
    return "".join(f"{a:>8.2f}s{a / b:>9.2f}" for a, b in zip(ours, base, strict=True))


def compare_keys(spark: Any, lines: inlay.Table, share: float, times: int) -> None:
    """Aggregates over a table of which a share of the orders is deleted by key, beside all of its rows; and
    once more with these deletes settled, as a deletion vector for each file."""
    orders = lines.scan(columns=["l_orderkey"]).to_arrow().column(0).unique()
    gone = orders.take(pa.array(range(0, len(orders), round(1 / share))))
    lines.delete(keys=pa.table({"l_orderkey": gone}))
    print(f"{len(gone):,} keys of {len(orders):,} deleted")
    keys = [(key,) for key in gone.to_pylist()]
    spark.createDataFrame(keys, "l_orderkey bigint").createOrReplaceTempView("gone")
    _compare_keys(spark, lines, times)
    lines.maintain.settle()
    print("settled")
    _compare_keys(spark, lines, times)


def _compare_keys(spark: Any, lines: inlay.Table, times: int) -> None:
    """Ratios to all rows of the files. `joined`: Spark joins the same keys and files by itself."""

    def joined(spark: Any, folder: str) -> Any:
        keys = functions.broadcast(spark.table("gone"))
        return parquet(spark, folder).join(keys, "l_orderkey", "left_anti")

    header = ("wall", "ratio", "CPU", "ratio", "joined:", "wall", "ratio", "CPU", "ratio")
    print(f"{'aggregate':<20}" + "".join(f"{name:>9}" for name in header))
    for name, query, ours in (
        ("sum of 2 columns", total, QUERIES[0].ours),
        ("group by string", by_mode, QUERIES[2].ours),
    ):
        ways: dict[str, Callable[[int], Any]] = {
            "parquet": lambda _, query=query: query(parquet(spark, f"{lines.uri}/data")),
            "inlay": lambda _, ours=ours: ours(spark, lines.uri),
            "joined": lambda _, query=query: query(joined(spark, f"{lines.uri}/data")),
        }
        answers = {way: run(0) for way, run in ways.items()}
        assert answers["inlay"] == answers["joined"] != answers["parquet"]
        least = in_turns(ways, times)
        numbers = (beside(least[way], least["parquet"]) for way in ("inlay", "joined"))
        print(f"{name:<20}" + f"{'':>9}".join(numbers), flush=True)


def compare_writes(spark: Any, source: str, folder: Path, times: int) -> None:
    """Appends of all rows, out of Parquet files and out of memory, and a load of them in another order."""
    frame = spark.read.option("recursiveFileLookup", "true").parquet(source)
    _compare_writes(frame, "read and appended", folder / "read", times)
    # As `pipelines.bulk_load` does it: what writes a table sorts each part.
    ordered = frame.repartitionByRange(SLOTS, *ORDER)
    _compare_writes(ordered, "loaded in order", folder / "load", times, sort_by=ORDER)
    # Rows that Spark holds are handed on as they are, unless something is computed of them.
    held = frame.repartition(SLOTS).cache()
    held.count()
    _compare_writes(held, "appended out of memory", folder / "held", times)
    held.unpersist()


def _compare_writes(
    frame: Any, what: str, folder: Path, times: int, sort_by: Sequence[str] = ()
) -> None:
    """By Spark alone, by `append`, by the source."""
    schema = arrow_for(frame.schema)
    rows = frame.count()
    alone = frame.sortWithinPartitions(*sort_by) if sort_by else frame

    tables = {
        (way, n): inlay.create(f"file://{folder}/{way} {n}", schema, sort_by=list(sort_by)).uri
        for way in ("native", "source")
        for n in range(times + 1)
    }
    ways: dict[str, Callable[[int], Any]] = {
        "df.write.parquet": lambda n: alone.write.option("compression", "zstd").parquet(
            f"{folder}/parquet {n}"
        ),
        "inlay.spark.append": lambda n: append(frame, tables["native", n]),
        'format("inlay")': lambda n: append(frame, tables["source", n], native="never"),
    }
    least = in_turns(ways, times)
    header = ("wall", "ratio", "CPU", "ratio")
    print(f"{f'{rows:,} rows {what}':<42}" + "".join(f"{name:>9}" for name in header))
    for way in ways:
        print(f"{way:<42}{beside(least[way], least['df.write.parquet'])}", flush=True)


@dataclass(frozen=True)
class Lines:
    """The table, for `spark_changes`."""

    spark: Any
    uri: str

    def rows(self) -> Any:
        return read(self.spark, self.uri)

    def merge(self, changes: Any) -> None:
        merge = InlayTable(self.spark, self.uri).alias("t").merge(changes.alias("s"), SAME)
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    def update(self, where: str) -> None:
        InlayTable(self.spark, self.uri).update({"l_tax": "l_tax + 1"}, where)

    def append(self, rows: Any) -> None:
        append(rows, self.uri)


def in_files(lines: inlay.Table, place: Path, number: int, strategy: str) -> inlay.Table:
    """The rows of `lines`, in this number of files of another table."""
    rows = lines.scan().to_arrow()
    order = {"compact.columns": ", ".join(ORDER)} if strategy != "pack" else {}
    table = inlay.create(
        f"file://{place}",
        rows.schema,
        primary_key="l_orderkey",
        properties={"compact.strategy": strategy, **order},
    )
    step = -(-rows.num_rows // number)
    for start in range(0, rows.num_rows, step):
        table.append(rows.slice(start, step))
    return table


def linked(table: inlay.Table, place: Path) -> str:
    """The same table elsewhere, which can be changed: what is written once is a link."""
    folder = Path(table.uri.removeprefix("file://"))
    shutil.copytree(folder, place, copy_function=os.link)
    (place / "_latest_manifest").unlink()
    shutil.copy(folder / "_latest_manifest", place)
    return f"file://{place}"


def by_spark(spark: Any, table: inlay.Table, strategy: str, place: Path) -> None:
    """The table's files read, sorted and written by Spark alone."""
    rows = parquet(spark, f"{table.uri}/data")
    files = max(1, -(-sum(table.inspect.files()["bytes"].to_pylist()) // TARGET_BYTES))
    if strategy == "pack":
        rows = rows.coalesce(files)
    else:
        rows = rows.repartitionByRange(files, *ORDER).sortWithinPartitions(*ORDER)
    rows.write.option("compression", "zstd").parquet(str(place))
    shutil.rmtree(place)


def compare_maintenance(spark: Any, lines: inlay.Table, folder: Path, times: int) -> None:
    print(
        f"{'':<34}" + "".join(f"{name:>9}" for name in ("spark", "inlay", "ratio", "CPU", "ratio"))
    )
    for name, files, strategy, verb in (
        ("pack small files", SMALL_FILES, "pack", compact),
        ("sort all rows", UNORDERED_FILES, "sort", cluster),
        ("z-order all rows", UNORDERED_FILES, "zorder", cluster),
    ):
        table = in_files(lines, folder / strategy, files, strategy)
        copies = [linked(table, folder / f"{strategy} {n}") for n in range(times + 1)]
        ways: dict[str, Callable[[int], Any]] = {
            "spark": lambda n, t=table, s=strategy: by_spark(
                spark, t, s, folder / f"spark {s} {n}"
            ),
            "inlay": lambda n, verb=verb, copies=copies: verb(spark, copies[n]),
        }
        least = in_turns(ways, times)
        for copy in copies:
            shutil.rmtree(copy.removeprefix("file://"))
        numbers = beside(least["inlay"], least["spark"])
        print(f"{name:<34}{least['spark'][0]:>8.2f}s{numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Inlay in Spark beside native Parquet")
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale; 1 is 6M rows")
    parser.add_argument("--times", type=int, default=3, help="measured runs of each query")
    parser.add_argument("--folder", type=Path, help="kept, and used again by the next run")
    parser.add_argument("--deletes", action="store_true", help="once more with deletes pending")
    parser.add_argument("--keys", type=float, help="aggregates with this share of keys deleted")
    parser.add_argument("--writes", action="store_true", help="appends instead of queries")
    parser.add_argument(
        "--maintenance", action="store_true", help="compaction and clustering instead"
    )
    parser.add_argument("--changes", type=int, help="merges of so many rows instead")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (asked.folder or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        lines = lineitem(asked.scale, folder)
        spark = local_session(
            app="inlay benchmark", quick_start=False, settings={"spark.driver.memory": "2g"}
        )
        spark.dataSource.register(ReadyMade)
        print(f"{lines.count():,} rows in {lines.inspect.files().num_rows} files")
        if asked.writes:
            compare_writes(spark, f"{lines.uri}/data", Path(scratch), asked.times)
            return
        if asked.maintenance:
            compare_maintenance(spark, lines, Path(scratch), asked.times)
            return
        if asked.changes:
            measure(spark, Lines(spark, lines.uri), asked.changes, Path(scratch), asked.times)
            return
        if asked.keys:
            compare_keys(spark, lines, asked.keys, asked.times)
            return
        compare(spark, lines.uri, asked.times, same_answers=not lines.inspect.tombstones().num_rows)
        if asked.deletes:
            lines.delete("l_orderkey BETWEEN 200000 AND 300000")
            lines.delete("l_comment LIKE '%unusual requests%'")
            print("with a range and a predicate pending")
            compare(spark, lines.uri, asked.times, same_answers=False)
            lines.delete("l_shipdate < DATE '1992-02-01'", mode="vector")
            print("and with a vector for each file")
            compare(spark, lines.uri, asked.times, same_answers=False)
        spark.stop()


if __name__ == "__main__":
    main()
