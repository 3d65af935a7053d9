"""The change-data pipeline, end to end, on TPC-H orders: `python -m pipelines.orders_demo`.

    generate    orders, and changes to them: inserts, updates, deletes, some late, some twice
    load        the orders and their line items, sorted, as one commit of both tables
    land        change records as JSON files, a few at a time
    ingest      the landing folder into a table of changes, as a stream  the sink
    merge       that table, as a stream, into the orders                 the source, and merge
    kill        pipelines.merge, in its second batch: the next merge resumes it
    alter       the producer adds a column; the orders get it with the first record that has it
    compact     a few small files between two batches of a merge; at the end all, and pending deletes
    erase       a customer, from orders, line items and changes
    merge both  two streams at once, each with half of the orders
    query       by Spark

After each step that changes the orders they are compared with what DuckDB computes from the same records by
SQL. A difference ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import inlay
from inlay.engine import open_store
from inlay.spark import count, explain, local_session, register, transaction, view
from inlay.spark.maintenance import advance_erasures, compact
from inlay.spark.merge import MergeResult
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
LINES = pa.schema(
    [
        pa.field("orderkey", pa.int64(), nullable=False),
        pa.field("linenumber", pa.int32(), nullable=False),
        pa.field("partkey", pa.int64()),
        pa.field("extendedprice", pa.decimal128(15, 2)),
    ]
)
RECORD = "op string, orderkey bigint, custkey bigint, status string, totalprice decimal(15,2), seq bigint"
# The column that producers add later.
LATER = pa.field("priority", pa.string())
LANDINGS = 4
FILES_PER_LANDING = 4
# Ends a step that hangs, and nothing else.
KILL_SECONDS = 900


class Pipeline:
    """The tables in `lake` (`file://` or `s3://`), their sources in `folder`, and DuckDB beside them as the
    reference."""

    def __init__(self, folder: Path, lake: str) -> None:
        self.spark: Any = None
        self.folder = folder
        self.orders = f"{lake}/orders"
        self.lines = f"{lake}/lineitem"
        self.changes = f"{lake}/order_changes"
        self.landing = folder / "landing"
        self.landing.mkdir(parents=True)
        self.judge = duckdb.connect()
        self.random = random.Random(1)
        self.steps: list[tuple[str, str, float]] = []

    def generate(self, scale: float, changes: int) -> str:
        program = Path(sys.executable).parent / "tpchgen-cli"
        tables = "orders,lineitem"
        arguments = ["parquet", "-s", str(scale), "--tables", tables, "-o", str(self.folder)]
        subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL)
        self.judge.execute(
            f"""CREATE TABLE log AS SELECT 'I' AS op, o_orderkey AS orderkey, o_custkey AS custkey,
                 o_orderstatus AS status, o_totalprice AS totalprice, 0::BIGINT AS seq,
                 NULL::VARCHAR AS priority FROM '{self.folder}/orders.parquet'"""
        )
        self.judge.execute(f"COPY log TO '{self.folder}/initial.parquet'")
        names = ", ".join(f"l_{name} AS {name}" for name in LINES.names)
        self.judge.execute(
            f"CREATE TABLE lines AS SELECT {names} FROM '{self.folder}/lineitem.parquet'"
        )
        self.judge.execute(f"COPY lines TO '{self.folder}/lines.parquet'")
        keys = [row[0] for row in self.judge.execute("SELECT orderkey FROM log").fetchall()]
        self.changes_made = -(-changes // LANDINGS) * LANDINGS
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
                if seq > number // 2:
                    record[LATER.name] = chance.choice(("high", "low"))
            yield record

    # -- the steps ----------------------------------------------------------------------------

    def load(self) -> str:
        rows = self.spark.read.parquet(f"file://{self.folder}/initial.parquet").drop(
            "op", LATER.name
        )
        options = {"primary_key": "orderkey", "sort_by": ["orderkey"]}
        inlay.create(self.orders, ORDERS, properties={"schema.evolve": "add"}, **options)
        inlay.create(self.changes, CHANGES)
        keyed = {"primary_key": ["orderkey", "linenumber"], "sort_by": ["orderkey"]}
        inlay.create(self.lines, LINES, **keyed)
        lines = self.spark.read.parquet(f"file://{self.folder}/lines.parquet")
        with transaction(request_id="initial load") as tx:
            tx.append(rows.repartitionByRange(4, "orderkey"), self.orders)
            tx.append(lines.repartitionByRange(4, "orderkey"), self.lines)
        return f"{count(self.spark, self.orders):,} orders, {self.check_lines():,} line items"

    def check_lines(self) -> int:
        """The line items, which are all there, with their orders at one moment."""
        orders, lines = inlay.snapshot([self.orders, self.lines])
        live = lines.scan().to_arrow()
        self.judge.register("live", live)
        of = f"SELECT {', '.join(LINES.names)} FROM"
        wrong = self.judge.execute(
            f"""SELECT (SELECT count(*) FROM (({of} lines) EXCEPT ALL ({of} live)))
                     + (SELECT count(*) FROM (({of} live) EXCEPT ALL ({of} lines)))"""
        ).fetchall()[0][0]
        self.judge.unregister("live")
        if wrong or not orders.scan().count():
            raise SystemExit(f"{wrong} line items differ from what TPC-H generated")
        return live.num_rows

    def land(self, turn: int) -> str:
        """A share of the changes, out of order and some of them twice."""
        size = self.changes_made // LANDINGS
        share = [
            record for record in self.stream if turn * size < record["seq"] <= (turn + 1) * size
        ]
        older = [record for record in self.stream if record["seq"] <= turn * size]
        records = pa.Table.from_pylist(share, schema=CHANGES.append(LATER))
        self.judge.register("records", records)
        self.judge.execute("INSERT INTO log SELECT * FROM records")
        self.judge.unregister("records")
        sent = share + self.random.sample(share, len(share) // 20)
        if turn:
            # Late: sent again long after newer changes of the same orders were merged.
            sent += self.random.sample(older, len(older) // 20)
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
        columns = inlay.open(self.changes).schema.names
        record = RECORD + (f", {LATER.name} string" if LATER.name in columns else "")
        rows = self.spark.readStream.schema(record).json(f"file://{self.landing}")
        self._drain(rows.writeStream.format("inlay"), "ingest", self.changes)
        return f"{count(self.spark, self.changes):,} records in {self.changes}"

    def merge(self, between: Callable[[], str] = lambda: "") -> str:
        """`between` is done once, after the first batch."""
        done: list[str] = []

        def committed(batch: int, result: MergeResult) -> None:
            if not done:
                done.append(between())

        sink = MergeSink(self.orders, order="seq", on_result=committed)
        records = self.spark.readStream.format("inlay").option("maxFilesPerTrigger", 1)
        self._drain(records.load(self.changes).writeStream.foreachBatch(sink), "merge")
        return _merged(sink) + "".join(done)

    def kill(self) -> str:
        """SIGKILL for a job that merges, after its first commit."""
        before = inlay.open(self.orders).version
        job = f"""-m pipelines.merge --table {self.orders} --source {self.changes} --format inlay
            --order seq --max-files 1 --checkpoint file://{self.folder}/checkpoints/merge"""
        command = [sys.executable, *job.split(), "--schema", RECORD]
        until = time.monotonic() + KILL_SECONDS
        with (self.folder / "killed.log").open("wb") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            while child.poll() is None and time.monotonic() < until:
                if inlay.open(self.orders).version > before:
                    break
                time.sleep(0.05)
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            code = child.wait()
        commits = inlay.open(self.orders).version - before
        if not commits:
            raise SystemExit(f"pipelines.merge merged nothing: {self.folder}/killed.log")
        how = "was killed" if code == -signal.SIGKILL else "had ended"
        return f"pipelines.merge {how} after {commits} commits"

    def alter(self) -> str:
        inlay.open(self.changes).alter(add={LATER.name: LATER.type})
        return f"{self.changes} has the column {LATER.name}"

    def compact_some(self) -> str:
        """Packs the small files; those of the load stay as they are, beside the stream."""
        table = inlay.open(self.orders)
        sizes = sorted(table.inspect.files()["bytes"].to_pylist())
        small = sizes[: len(sizes) // 2 + 1]
        # No more than these are read: the others' deletes are not applied either.
        result = table.maintain.compact(small_bytes=small[-1] + 1, max_bytes=sum(small))
        return f"; compacted between: {result.input_files} of {len(sizes)} files"

    def erase(self) -> str:
        """The orders that a customer has or had, from all tables; its source forgets them, too."""
        whose = """SELECT DISTINCT orderkey FROM log WHERE custkey =
            (SELECT custkey FROM log WHERE op <> 'D' GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1)"""
        keys = sorted(row[0] for row in self.judge.execute(whose).fetchall())
        where = f"orderkey IN ({', '.join(map(str, keys))})"
        self.judge.execute(f"DELETE FROM log WHERE {where}")
        self.stream = [record for record in self.stream if record["orderkey"] not in set(keys)]
        self.judge.execute(f"DELETE FROM lines WHERE {where}")
        files = 0
        with inlay.transaction(request_id="customer") as tx:
            for uri in (self.lines, self.changes):
                tx.delete(inlay.open(uri), where, mode="erase")
        # Apart: the orders remember deletes of the stream, which are erased as well.
        inlay.open(self.orders).delete(where, mode="erase", request_id="customer")
        for uri in (self.orders, self.lines, self.changes):
            files += advance_erasures(self.spark, uri, progress=progress()).files
            if inlay.open(uri).scan(where=where).count():
                raise SystemExit(f"{uri} still has orders of the customer")
        self.check_lines()
        return f"{len(keys)} orders of a customer, {files} files rewritten"

    def merge_both(self) -> str:
        """Each stream merges its half of the orders, from the changes that landed last."""
        version = inlay.open(self.changes).version
        sinks = [MergeSink(self.orders, order="seq") for _ in range(2)]
        queries = []
        for half, sink in enumerate(sinks):
            records = self.spark.readStream.format("inlay").option("startVersion", version)
            rows = records.load(self.changes).where(f"orderkey % 2 = {half}")
            queries.append(self._started(rows.writeStream.foreachBatch(sink), f"half {half}"))
        for query in queries:
            query.awaitTermination()
        return ", ".join(map(_merged, sinks))

    def _drain(self, writer: Any, name: str, *target: str) -> None:
        self._started(writer, name, *target).awaitTermination()

    def _started(self, writer: Any, name: str, *target: str) -> Any:
        checkpoint = f"file://{self.folder}/checkpoints/{name}"
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return query.start(*target)

    def compact(self) -> str:
        result = compact(self.spark, self.orders, progress=progress())
        return (
            f"{result.input_files} files to {result.output_files}, {result.removed_rows:,} deleted "
            f"rows and {result.removed_markers} markers gone"
        )

    def query(self) -> str:
        view(self.spark, "orders", self.orders)
        rows = self.spark.sql(
            "SELECT status, sum(totalprice) FROM orders GROUP BY status ORDER BY status"
        ).collect()
        return ", ".join(f"{row[0]} {row[1]:,}" for row in rows)

    # -- the telling --------------------------------------------------------------------------

    def step(self, name: str, run: Callable[[], str], doing: str = "") -> None:
        print(f"{name:<10}  {doing}…", flush=True)
        started = time.monotonic()
        what = run()
        seconds = time.monotonic() - started
        self.steps.append((name, what, seconds))
        print(f"{'':<10}  {what}  ({seconds:.1f} s)", flush=True)

    def summary(self) -> str:
        lines = [f"{name:<10} {seconds:>6.1f} s  {what}" for name, what, seconds in self.steps]
        return "\n".join(
            [
                "",
                *lines,
                "",
                f"read by     {explain(self.spark, self.orders)}".replace("\n", "\n            "),
            ]
        )

    # -- the judge ----------------------------------------------------------------------------

    def check(self) -> None:
        """Compares the table with the records, row by row."""
        orders = inlay.open(self.orders)
        names = ", ".join(orders.schema.names)
        state = f"""SELECT {names} FROM log QUALIFY op <> 'D'
            AND row_number() OVER (PARTITION BY orderkey ORDER BY seq DESC) = 1"""
        table = orders.scan().to_arrow()
        assert table.num_rows
        self.judge.register("live", table)
        wrong = self.judge.execute(
            f"""SELECT (SELECT count(*) FROM (({state}) EXCEPT ALL (SELECT {names} FROM live)))
                     + (SELECT count(*) FROM ((SELECT {names} FROM live) EXCEPT ALL ({state})))"""
        ).fetchall()[0][0]
        self.judge.unregister("live")
        if wrong:
            raise SystemExit(f"{wrong} rows differ from what DuckDB computes from the same records")
        print(f"            checked: {table.num_rows:,} rows, all as in DuckDB", flush=True)


def _merged(sink: MergeSink) -> str:
    rows, late, gone = (
        sum(getattr(r, f) for r in sink.results) for f in ("rows", "late", "deleted_keys")
    )
    commits = sum(result.committed for result in sink.results)
    return f"{rows:,} rows written, {gone:,} deletes, {late:,} late keys, {commits} commits"


def options(name: str, about: str, *, scale: float, changes: int) -> argparse.ArgumentParser:
    """What both demonstrations of the pipeline ask for."""
    asking = argparse.ArgumentParser(prog=f"python -m pipelines.{name}", description=about)
    orders = f"TPC-H scale; {scale:g} is {int(1_500_000 * scale):,} orders"
    asking.add_argument("--scale", type=float, default=scale, help=orders)
    asking.add_argument("--changes", type=int, default=changes, help="change records to generate")
    asking.add_argument("--keep", type=Path, help="work in this folder, and keep it")
    return asking


def work_folder(stack: ExitStack, keep: Path | None) -> Path:
    """The folder to keep, or one that goes with `stack`."""
    folder = (keep or Path(tempfile.mkdtemp(prefix="inlay-orders-"))).absolute()
    if keep is None:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def main(arguments: list[str] | None = None) -> None:
    about = "The change-data pipeline on TPC-H orders"
    asking = options("orders_demo", about, scale=0.1, changes=30_000)
    asking.add_argument(
        "--s3", action="store_true", help="keep the tables in S3: the embedded one of this machine"
    )
    asked = asking.parse_args(arguments)
    print("the change-data pipeline on TPC-H orders, every step checked against DuckDB", flush=True)
    with ExitStack() as stack:
        folder = work_folder(stack, asked.keep)
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
        step, check = pipeline.step, pipeline.check
        step("start", pipeline.start, "Spark ")
        step("load", pipeline.load, "orders and line items as one commit ")
        check()
        for turn in range(LANDINGS):
            if turn == LANDINGS // 2:
                step("alter", pipeline.alter, "the producer adds a column ")
            step(
                "land", partial(pipeline.land, turn), "records out of order, some late, some twice "
            )
            step("ingest", pipeline.ingest, "the new files, as a stream ")
            match turn:
                case 1:
                    step("kill", pipeline.kill, "a job that merges them, with SIGKILL ")
                    step("merge", pipeline.merge, "the rest, from the job's checkpoint ")
                case 2:
                    merge = partial(pipeline.merge, pipeline.compact_some)
                    step("merge", merge, "them, with a compaction between two batches ")
                    check()
                    step("erase", pipeline.erase, "a customer ")
                case 3:
                    step("merge both", pipeline.merge_both, "them, by two streams at once ")
                case _:  # nothing happens beside the first
                    step("merge", pipeline.merge, "them, as a stream ")
            check()
        step("compact", pipeline.compact, "small files and pending deletes ")
        check()
        step("query", pipeline.query)
        print(pipeline.summary(), flush=True)
    finally:
        if pipeline.spark is not None:
            pipeline.spark.stop()
        # Left to the interpreter's end, DuckDB's connection complains that it was leaked.
        pipeline.judge.close()
        del pipeline.judge


if __name__ == "__main__":
    main()
