"""Inlay's Spark source beside `spark.read.parquet` on the same files.

    python benchmarks/spark.py --scale 1

TPC-H lineitem is written into a table in a local folder. Each query then runs natively on the table's
own Parquet files and through the source, in turns; printed are the best wall times and their ratio.
`--deletes` runs the queries once more with deletes pending, which native Parquet does not see.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from inlay.spark import count, local_session, read

Run = Callable[[Any, str], Any]

# Rows handed to one append.
APPEND_ROWS = 2_000_000


@dataclass(frozen=True)
class Query:
    """`native` gets a folder of Parquet files, `ours` a table; `goal` is the ratio aimed at."""

    name: str
    native: Run
    ours: Run
    goal: float | None = None


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


def total(frame: Any) -> Any:
    return frame.selectExpr("sum(l_extendedprice)", "sum(l_quantity)").collect()


def by_mode(frame: Any) -> Any:
    return sorted(frame.groupBy("l_shipmode").count().collect())


def few(frame: Any) -> Any:
    near = frame.where("l_orderkey BETWEEN 100000 AND 101000 AND l_shipmode = 'AIR'")
    return near.selectExpr("count(*)", "max(l_comment)", "sum(l_tax)").collect()


QUERIES = [
    Query(
        "sum of 2 columns, columns=",
        lambda spark, folder: total(parquet(spark, folder)),
        lambda spark, uri: total(read(spark, uri, columns=["l_extendedprice", "l_quantity"])),
        1.3,
    ),
    Query(
        "sum of 2 columns, .schema()",
        lambda spark, folder: total(parquet(spark, folder)),
        lambda spark, uri: total(
            spark.read.format("inlay")
            .schema("l_extendedprice decimal(15,2), l_quantity decimal(15,2)")
            .load(uri)
        ),
        1.3,
    ),
    Query(
        "group by string, columns=",
        lambda spark, folder: by_mode(parquet(spark, folder)),
        lambda spark, uri: by_mode(read(spark, uri, columns=["l_shipmode"])),
        1.1,
    ),
    Query(
        "selective filter, pushed",
        lambda spark, folder: few(parquet(spark, folder)),
        lambda spark, uri: few(table(spark, uri)),
        1.0,
    ),
    Query(
        "count by metadata",
        lambda spark, folder: parquet(spark, folder).count(),
        count,
        1.0,
    ),
    Query(
        "sum of 2 columns, unpruned",
        lambda spark, folder: total(parquet(spark, folder)),
        lambda spark, uri: total(table(spark, uri)),
    ),
]


def timed(run: Run, spark: Any, uri: str) -> tuple[float, Any]:
    started = time.perf_counter()
    answer = run(spark, uri)
    return time.perf_counter() - started, answer


def compare(spark: Any, uri: str, times: int, *, same_answers: bool) -> None:
    data = f"{uri}/data"
    print(f"{'query':<30}{'parquet':>10}{'inlay':>10}{'ratio':>8}{'goal':>8}", flush=True)
    for query in QUERIES:
        native, ours = [], []
        # In turns, so that both see the same machine; the first round warms both up.
        for warm in range(times + 1):
            seconds, expected = timed(query.native, spark, data)
            our_seconds, answer = timed(query.ours, spark, uri)
            if same_answers and answer != expected:
                raise SystemExit(f"{query.name}: {answer} and not {expected}")
            if warm:
                native.append(seconds)
                ours.append(our_seconds)
        ratio = min(ours) / min(native)
        goal = "" if query.goal is None else f"{query.goal:.1f}"
        times_text = f"{min(native):>9.2f}s{min(ours):>9.2f}s"
        print(f"{query.name:<30}{times_text}{ratio:>8.2f}{goal:>8}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Inlay's Spark source beside native Parquet")
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale; 1 is 6M rows")
    parser.add_argument("--times", type=int, default=3, help="measured runs of each query")
    parser.add_argument("--folder", type=Path, help="kept, and used again by the next run")
    parser.add_argument("--deletes", action="store_true", help="once more with deletes pending")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (asked.folder or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        lines = lineitem(asked.scale, folder)
        spark = local_session(
            app="inlay benchmark", quick_start=False, settings={"spark.driver.memory": "2g"}
        )
        print(f"{lines.count():,} rows in {lines.files().num_rows} files")
        compare(spark, lines.uri, asked.times, same_answers=not lines.tombstones().num_rows)
        if asked.deletes:
            lines.delete("l_orderkey BETWEEN 200000 AND 300000")
            lines.delete("l_shipdate < DATE '1992-02-01'", mode="vector")
            print("with a range and vectors pending")
            compare(spark, lines.uri, asked.times, same_answers=False)
        spark.stop()


if __name__ == "__main__":
    main()
