"""The change-data pipeline, end to end, on TPC-H orders: `python -m pipelines.orders_demo`.

    generate    orders, and changes to them: inserts, updates, deletes, some late, some twice
    load        the orders, sorted, as one commit                       pipelines.bulk_load
    land        change records as JSON files, a few at a time
    ingest      the landing folder into a table of changes, as a stream  the sink
    merge       that table, as a stream, into the orders                 the source, and merge
    compact     small files and pending deletes
    query       by Spark

After each step the table is compared with what DuckDB computes from the same records by SQL. A difference
ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import inlay
from inlay.engine import open_store
from inlay.spark import append, count, explain, local_session, register, view
from inlay.spark.maintenance import compact
from inlay.spark.merge_sink import MergeSink
from pipelines.job import progress

ORDERS = pa.schema(
    [
        pa.field("orderkey", pa.int64(), nullable=False),
        pa.field("custkey", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("totalprice", pa.decimal128(15, 2)),
        pa.field("seq", pa.int64(), nullable=False),
    ]
)
CHANGES = pa.schema([pa.field("op", pa.string(), nullable=False), *ORDERS])
RECORD = "op string, orderkey bigint, custkey bigint, status string, totalprice decimal(15,2), seq bigint"
LANDINGS = 3
FILES_PER_LANDING = 4


class Pipeline:
    """The tables in `lake` (`file://` or `s3://`), their sources in `folder`, and DuckDB beside them as the
    reference."""

    def __init__(self, folder: Path, lake: str) -> None:
        self.spark: Any = None
        self.folder = folder
        self.orders = f"{lake}/orders"
        self.changes = f"{lake}/order_changes"
        self.landing = folder / "landing"
        self.landing.mkdir(parents=True)
        self.judge = duckdb.connect()
        self.random = random.Random(1)
        self.steps: list[tuple[str, str, float]] = []

    def generate(self, scale: float, changes: int) -> str:
        program = Path(sys.executable).parent / "tpchgen-cli"
        arguments = ["parquet", "-s", str(scale), "--tables", "orders", "-o", str(self.folder)]
        subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL)
        self.judge.execute(
            f"""CREATE TABLE log AS SELECT 'I' AS op, o_orderkey AS orderkey, o_custkey AS custkey,
                 o_orderstatus AS status, o_totalprice AS totalprice, 0::BIGINT AS seq
                 FROM '{self.folder}/orders.parquet'"""
        )
        self.judge.execute(f"COPY log TO '{self.folder}/initial.parquet'")
        keys = [row[0] for row in self.judge.execute("SELECT orderkey FROM log").fetchall()]
        self.stream = list(self._changes(keys, changes))
        return f"{len(keys):,} orders, {changes:,} changes to them"

    def start(self) -> str:
        self.spark = local_session(app="inlay orders pipeline")
        register(self.spark)
        return f"Spark {self.spark.version} on this machine"

    def _changes(self, keys: list[int], number: int) -> Iterator[dict[str, Any]]:
        chance = self.random
        last = max(keys)
        for seq in range(1, number + 1):
            op = chance.choices("IUD", weights=(2, 6, 2))[0]
            key = last + seq if op == "I" else chance.choice(keys)
            record: dict[str, Any] = {"op": op, "orderkey": key, "seq": seq}
            if op != "D":
                record |= {
                    "custkey": chance.randrange(1, 150_000),
                    "status": chance.choice("FOP"),
                    "totalprice": Decimal(chance.randrange(100_000, 50_000_000)).scaleb(-2),
                }
            yield record

    # -- the steps ----------------------------------------------------------------------------

    def load(self) -> str:
        rows = self.spark.read.parquet(f"file://{self.folder}/initial.parquet").drop("op")
        inlay.create(self.orders, ORDERS, primary_key="orderkey", sort_by=["orderkey"])
        inlay.create(self.changes, CHANGES)
        append(rows.repartitionByRange(4, "orderkey"), self.orders, request_id="initial load")
        return f"{count(self.spark, self.orders):,} orders"

    def land(self, turn: int) -> str:
        """A share of the changes, out of order and some of them twice."""
        size = -(-len(self.stream) // LANDINGS)
        share = self.stream[turn * size : (turn + 1) * size]
        records = pa.Table.from_pylist(share, schema=CHANGES)
        self.judge.register("records", records)
        self.judge.execute("INSERT INTO log SELECT * FROM records")
        self.judge.unregister("records")
        sent = share + self.random.sample(share, len(share) // 20)
        if turn:
            # Late: sent again long after newer changes of the same orders were merged.
            sent += self.random.sample(self.stream[: turn * size], size // 20)
        self.random.shuffle(sent)
        for n in range(FILES_PER_LANDING):
            lines = (
                json.dumps(record, default=str) + "\n" for record in sent[n::FILES_PER_LANDING]
            )
            hidden = self.landing / f".{turn}-{n}.json"
            hidden.write_text("".join(lines))
            hidden.rename(self.landing / f"{turn}-{n}.json")
        return f"{len(sent):,} records in {FILES_PER_LANDING} files"

    def ingest(self) -> str:
        rows = self.spark.readStream.schema(RECORD).json(f"file://{self.landing}")
        self._drain(rows.writeStream.format("inlay"), "ingest", self.changes)
        return f"{count(self.spark, self.changes):,} records in {self.changes}"

    def merge(self) -> str:
        sink = MergeSink(self.orders, order="seq")
        records = self.spark.readStream.format("inlay").load(self.changes)
        self._drain(records.writeStream.foreachBatch(sink), "merge")
        rows, late, gone = (
            sum(getattr(r, f) for r in sink.results) for f in ("rows", "late", "deleted_keys")
        )
        return f"{rows:,} rows written, {gone:,} deletes, {late:,} late keys, {len(sink.results)} commits"

    def _drain(self, writer: Any, name: str, *target: str) -> None:
        checkpoint = f"file://{self.folder}/checkpoints/{name}"
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start(*target).awaitTermination()

    def compact(self) -> str:
        result = compact(self.spark, self.orders, progress=progress())
        return (
            f"{result.input_files} files to {result.output_files}, {result.removed_rows:,} deleted "
            f"rows and {result.removed_markers} markers gone"
        )

    def query(self) -> str:
        view(self.spark, "orders", self.orders)
        found = self.spark.sql(
            "SELECT status, sum(totalprice) FROM orders GROUP BY status ORDER BY status"
        ).collect()
        return ", ".join(f"{row[0]} {row[1]:,}" for row in found)

    # -- the telling --------------------------------------------------------------------------

    def step(self, name: str, run: Callable[[], str], doing: str = "") -> None:
        print(f"{name:<9}  {doing}…", flush=True)
        started = time.monotonic()
        what = run()
        seconds = time.monotonic() - started
        self.steps.append((name, what, seconds))
        print(f"{'':<9}  {what}  ({seconds:.1f} s)", flush=True)

    def summary(self) -> str:
        lines = [f"{name:<9} {seconds:>6.1f} s  {what}" for name, what, seconds in self.steps]
        return "\n".join(
            [
                "",
                *lines,
                "",
                f"read by    {explain(self.spark, self.orders)}".replace("\n", "\n           "),
            ]
        )

    # -- the judge ----------------------------------------------------------------------------

    def check(self) -> None:
        """Compares the table with the records, row by row."""
        names = ", ".join(ORDERS.names)
        state = f"""SELECT {names} FROM log QUALIFY op <> 'D'
            AND row_number() OVER (PARTITION BY orderkey ORDER BY seq DESC) = 1"""
        table = inlay.open(self.orders).scan().to_arrow()
        assert table.num_rows
        self.judge.register("live", table)
        wrong = self.judge.execute(
            f"""SELECT (SELECT count(*) FROM (({state}) EXCEPT ALL (SELECT {names} FROM live)))
                     + (SELECT count(*) FROM ((SELECT {names} FROM live) EXCEPT ALL ({state})))"""
        ).fetchall()[0][0]
        self.judge.unregister("live")
        if wrong:
            raise SystemExit(f"{wrong} rows differ from what DuckDB computes from the same records")
        print(f"           checked: {table.num_rows:,} rows, all as in DuckDB", flush=True)


def main(arguments: list[str] | None = None) -> None:
    asking = argparse.ArgumentParser(description="The change-data pipeline on TPC-H orders")
    asking.add_argument(
        "--scale", type=float, default=0.1, help="TPC-H scale; 0.1 is 150,000 orders"
    )
    asking.add_argument("--changes", type=int, default=30_000, help="change records to generate")
    asking.add_argument("--keep", type=Path, help="work in this folder, and keep it")
    asking.add_argument(
        "--s3", action="store_true", help="keep the tables in S3: the embedded one of this machine"
    )
    asked = asking.parse_args(arguments)
    print("the change-data pipeline on TPC-H orders, every step checked against DuckDB", flush=True)
    folder = (asked.keep or Path(tempfile.mkdtemp(prefix="inlay-orders-"))).absolute()
    with ExitStack() as stack:
        if asked.keep is None:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        lake = _embedded_s3(stack) if asked.s3 else f"file://{folder}/tables"
        _run(Pipeline(folder, lake), asked)
    print(
        "\nNext: python -m pipelines.orders_demo --keep here, then in Python:\n"
        "  from inlay.spark import session, view\n"
        "  spark = session(); view(spark, 'orders', 'here/tables/orders')\n"
        "  spark.sql('SELECT * FROM orders').show()\n"
        "or python -m pipelines.merge --help; docs/SPARK.md has the rest",
        flush=True,
    )


def _embedded_s3(stack: ExitStack) -> str:
    """Where tables go in an S3 that runs while `stack` is open, found through the environment."""
    from inlay.local.s3server import AwsProcess

    aws = stack.enter_context(AwsProcess(["s3"]))
    os.environ.update(aws.env())
    store, _ = open_store("s3://orders-demo/tables")
    store.client.create_bucket(Bucket="orders-demo")  # type: ignore[attr-defined]
    return "s3://orders-demo/tables"


def _run(pipeline: Pipeline, asked: argparse.Namespace) -> None:
    try:
        pipeline.step(
            "generate",
            lambda: pipeline.generate(asked.scale, asked.changes),
            f"TPC-H orders at scale {asked.scale:g}, and {asked.changes:,} changes to them ",
        )
        pipeline.step("start", pipeline.start)
        pipeline.step("load", pipeline.load)
        pipeline.check()
        for turn in range(LANDINGS):
            pipeline.step("land", partial(pipeline.land, turn))
            pipeline.step("ingest", pipeline.ingest)
            pipeline.step("merge", pipeline.merge)
            pipeline.check()
        pipeline.step("compact", pipeline.compact)
        pipeline.check()
        pipeline.step("query", pipeline.query)
        print(pipeline.summary(), flush=True)
    finally:
        if pipeline.spark is not None:
            pipeline.spark.stop()
        # Left to the interpreter's end, DuckDB's connection complains that it was leaked.
        pipeline.judge.close()
        del pipeline.judge


if __name__ == "__main__":
    main()
