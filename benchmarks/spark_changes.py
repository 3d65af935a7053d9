"""Merges and updates in Spark, and a query beside them: the one course that Inlay and Iceberg run.

    .tools/iceberg-java/bin/python benchmarks/spark_changes.py lineitem.parquet --changes 100000

measures Iceberg (format 3, merge-on-read, deletion vectors) by its Java library on Spark 3.5, in the
environment of `make iceberg-java`; `benchmarks/spark.py --changes 100000` measures Inlay, and prints the
same lines. Figures are wall seconds, and seconds of CPU of the whole tree of processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

SAME = "t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber"
# Queries of one state of the table before those that are measured. Whoever plans a query in another way
# after a merge has Java compile code that is new to the session, which a query before it had done.
WARMING = 15


class Changed(Protocol):
    """A table of lineitem in a format that merges."""

    def rows(self) -> Any:
        """All of them, as a DataFrame."""

    def merge(self, changes: Any) -> None:
        """Rows of `changes` replace those of the same order and line, or are new."""

    def update(self, where: str) -> None:
        """Adds 1 to `l_tax`."""

    def append(self, rows: Any) -> None: ...


def tree_cpu() -> float:
    """CPU seconds of this process and all below it, those that have ended included (Linux)."""
    ticks, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        ticks[process] = sum(map(int, fields[11:15]))
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(ticks[process] for process in found) / os.sysconf("SC_CLK_TCK")


def total(frame: Any) -> Any:
    return frame.selectExpr("sum(l_extendedprice)", "sum(l_quantity)").collect()


def measure(spark: Any, table: Changed, changes: int, folder: Path, times: int) -> None:
    """Seconds and CPU of changes that touch scattered rows, the first of a session apart; of a query before
    and after each, the first after it apart and the others warm; and of an append. Medians at the end."""
    share = max(2, table.rows().count() // changes)
    found: dict[str, list[tuple[float, float]]] = {}

    def measured(name: str, run: Callable[[], Any]) -> None:
        started, used = time.perf_counter(), tree_cpu()
        run()
        one = time.perf_counter() - started, tree_cpu() - used
        found.setdefault(name, []).append(one)
        print(f"{name:<40}{one[0]:>8.2f}s wall{one[1]:>8.2f}s CPU", flush=True)

    def asked(when: str) -> None:
        measured(f"sum of 2 columns, the first {when}", lambda: total(table.rows()))
        for _ in range(WARMING):
            total(table.rows())
        for _ in range(times):
            measured(f"sum of 2 columns, {when}", lambda: total(table.rows()))

    def source(number: int) -> str:
        place = str(folder / f"changes-{number}")
        rows = table.rows().where(f"pmod(hash(l_orderkey), {share}) = {number}")
        rows.selectExpr("*", "l_tax + 1 AS more").drop("l_tax").withColumnRenamed(
            "more", "l_tax"
        ).write.parquet(place)
        return place

    places = [source(number) for number in range(times + 1)]
    asked("before")
    for number, place in enumerate(places):
        rows = spark.read.parquet(place)
        name = "merge, warm" if number else "merge, the session's first"
        measured(name, lambda rows=rows: table.merge(rows))
        asked(f"after merge {number + 1}")
    for number in range(times):
        where = f"pmod(hash(l_orderkey), 100) = {number}"
        measured("UPDATE of 1 %", lambda where=where: table.update(where))
    for place in places:
        measured("append", lambda place=place: table.append(spark.read.parquet(place)))
    print("medians")
    for name, each in found.items():
        wall, cpu = (statistics.median(one[n] for one in each) for n in range(2))
        print(f"{name:<40}{wall:>8.2f}s wall{cpu:>8.2f}s CPU", flush=True)


class Iceberg:
    name = "w.d.lines"

    def __init__(self, spark: Any, source: str) -> None:
        self.spark = spark
        modes = ", ".join(
            f"'write.{what}.mode'='merge-on-read'" for what in ("delete", "update", "merge")
        )
        spark.read.parquet(source).createOrReplaceTempView("lineitem")
        spark.sql(
            f"CREATE TABLE {self.name} USING iceberg TBLPROPERTIES ('format-version'='3', {modes}) "
            "AS SELECT * FROM lineitem"
        )

    def rows(self) -> Any:
        return self.spark.table(self.name)

    def merge(self, changes: Any) -> None:
        changes.createOrReplaceTempView("changes")
        self.spark.sql(
            f"MERGE INTO {self.name} t USING changes s ON {SAME} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def update(self, where: str) -> None:
        self.spark.sql(f"UPDATE {self.name} SET l_tax = l_tax + 1 WHERE {where}")

    def append(self, rows: Any) -> None:
        rows.select(*self.rows().columns).writeTo(self.name).append()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Iceberg's merges and updates in Spark")
    parser.add_argument("source", help="lineitem as a Parquet file")
    parser.add_argument("--changes", type=int, required=True, help="rows of a merge")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args(arguments)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.interop.by_spark import session

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # As `benchmarks/spark.py` starts its own.
        heavy = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": ""}
        spark = session(folder, f"{folder}/warehouse", heavy)
        try:
            table = Iceberg(spark, asked.source)
            measure(spark, table, asked.changes, folder, asked.times)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
