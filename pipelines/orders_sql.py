"""The change-data pipeline of `orders_demo` in plain Spark SQL: `python -m pipelines.orders_sql`.

    serve      the catalog that takes commits (`inlay serve --write`), in a process of its own
    load       CREATE TABLE, INSERT: orders and line items
    insert     the landed change records, INSERT into a table of changes
    merge      MERGE INTO the orders: the newest record of each of them
    kill       the catalog, with SIGKILL, during a MERGE: another one goes on where it was
    alter      ALTER TABLE: the producer adds a column
    compact    by Inlay, beside the session: small files, pending deletes
    erase      a customer, by Inlay
    query      by Spark

Spark knows nothing of Inlay here: it has Iceberg's own runtime, and the URI of the catalog. After each step
that changes the orders they are compared with what DuckDB computes from the same records, in a scan by
Inlay and in Spark. A difference ends the run with exit code 1.

`--session` is a program that runs statements: a JSON string a line, answered by a line, the rows as JSON
objects or `{"error": …}`. The URI of the catalog, in which `lake` is its name, is its last argument. `make
pipeline-sql` has one, from `make iceberg-java`.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import inlay
from pipelines.orders_demo import LANDINGS, LATER, RECORD, Pipeline, options, work_folder

COLUMNS = "orderkey BIGINT NOT NULL, custkey BIGINT, status STRING, totalprice DECIMAL(15,2)"
LINES = (
    "orderkey BIGINT NOT NULL, linenumber INT NOT NULL, partkey BIGINT, extendedprice DECIMAL(15,2)"
)
MERGE_ON_READ = ", ".join(
    f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge")
)
# When a request is being answered: the catalog is killed this long after a MERGE has begun, at the latest.
KILL_SECONDS = 60.0


class Refused(Exception):
    """What Spark says of a statement that failed."""


class SqlPipeline(Pipeline):
    """The same tables and records, written by Spark's SQL alone."""

    def __init__(self, folder: Path, session: Sequence[str]) -> None:
        super().__init__(folder, f"file://{folder}/tables")
        (folder / "tables").mkdir()
        self.command = session
        self.catalog: subprocess.Popen[str] | None = None
        self.session: subprocess.Popen[str] | None = None
        self.port = 0

    # -- processes ----------------------------------------------------------------------------

    def serve(self) -> str:
        """At the port of the one before it, if there was one."""
        program = Path(sys.executable).parent / "inlay"
        command = [str(program), "serve", f"file://{self.folder}/tables", "--write"]
        command += ["--port", str(self.port)]
        self.catalog = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.catalog.stderr is not None
        for line in self.catalog.stderr:
            if "http://" in line:
                self.uri = next(word for word in line.split() if word.startswith("http://"))
                self.port = int(self.uri.rpartition(":")[2])
                return line.strip()
        raise SystemExit("the catalog did not start")

    def start(self) -> str:
        self.session = subprocess.Popen(
            [*self.command, self.uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "session.log").open("w"),
            text=True,
        )
        [row] = self.sql("SELECT version() AS version")
        return f"Spark {row['version'].split()[0]} with Iceberg's runtime, on {self.uri}"

    def begin(self, statement: str) -> None:
        assert self.session is not None and self.session.stdin is not None
        self.session.stdin.write(json.dumps(statement) + "\n")
        self.session.stdin.flush()

    def end(self) -> list[dict[str, Any]]:
        assert self.session is not None and self.session.stdout is not None
        line = self.session.stdout.readline()
        if not line:
            raise SystemExit(f"the session ended: {self.folder}/session.log")
        answer = json.loads(line)
        if not isinstance(answer, list):
            raise Refused(answer["error"])
        return answer

    def sql(self, statement: str) -> list[dict[str, Any]]:
        self.begin(statement)
        return self.end()

    def close(self) -> None:
        for process in (self.session, self.catalog):
            if process is not None:
                process.kill()
                process.communicate()
        self.judge.close()

    # -- the steps ----------------------------------------------------------------------------

    def load(self) -> str:
        for name, columns in (
            ("orders", f"{COLUMNS}, seq BIGINT NOT NULL"),
            ("order_changes", f"op STRING NOT NULL, {COLUMNS}, seq BIGINT NOT NULL"),
            ("lineitem", LINES),
        ):
            self.sql(
                f"CREATE TABLE lake.tables.{name} ({columns}) USING iceberg "
                f"TBLPROPERTIES ('format-version' = '3', {MERGE_ON_READ})"
            )
        self.sql("ALTER TABLE lake.tables.orders SET IDENTIFIER FIELDS orderkey")
        self.sql("ALTER TABLE lake.tables.lineitem SET IDENTIFIER FIELDS orderkey, linenumber")
        self.sql(
            "INSERT INTO lake.tables.orders SELECT orderkey, custkey, status, totalprice, seq "
            f"FROM parquet.`{self.folder}/initial.parquet`"
        )
        self.sql(
            f"INSERT INTO lake.tables.lineitem SELECT * FROM parquet.`{self.folder}/lines.parquet`"
        )
        [row] = self.sql("SELECT count(*) AS n FROM lake.tables.orders")
        return f"{row['n']:,} orders, {self.check_lines():,} line items"

    def _later(self, table: str) -> str:
        """The columns of a table that producers added."""
        names = inlay.open(table).schema.names
        return f", {LATER.name}" if LATER.name in names else ""

    def insert(self, turn: int) -> str:
        later = self._later(self.changes)
        self.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW landed ({RECORD}, {LATER.name} string) USING json "
            f"OPTIONS (path '{self.landing}/{turn}-*.json')"
        )
        names = f"op, orderkey, custkey, status, totalprice, seq{later}"
        self.sql(f"INSERT INTO lake.tables.order_changes ({names}) SELECT {names} FROM landed")
        [row] = self.sql("SELECT count(*) AS n FROM lake.tables.order_changes")
        return f"{row['n']:,} records in {self.changes}"

    def _merge(self) -> str:
        """The newest record of each order: one that comes late, or twice, changes nothing."""
        names = f"orderkey, custkey, status, totalprice, seq{self._later(self.orders)}"
        values = ", ".join(f"c.{name.strip()}" for name in names.split(","))
        given = ", ".join(f"o.{n.strip()} = c.{n.strip()}" for n in names.split(","))
        newest = "row_number() OVER (PARTITION BY orderkey ORDER BY seq DESC)"
        return f"""MERGE INTO lake.tables.orders o
            USING (SELECT * FROM (SELECT *, {newest} AS nth FROM lake.tables.order_changes) WHERE nth = 1) c
            ON o.orderkey = c.orderkey
            WHEN MATCHED AND c.op = 'D' THEN DELETE
            WHEN MATCHED AND c.seq > o.seq THEN UPDATE SET {given}
            WHEN NOT MATCHED AND c.op <> 'D' THEN INSERT ({names}) VALUES ({values})"""

    def merge_sql(self) -> str:
        before = inlay.open(self.orders).version
        self.sql(self._merge())
        return f"version {before} to {inlay.open(self.orders).version} of the orders"

    def kill_catalog(self) -> str:
        """With SIGKILL, after the MERGE has begun: the next catalog knows all that was committed."""
        assert self.catalog is not None
        before = {path.name for path in (self.folder / "tables/orders/metadata").iterdir()}
        self.begin(self._merge())
        until = time.monotonic() + KILL_SECONDS
        while time.monotonic() < until:  # until Spark has written what it will ask the catalog for
            now = {path.name for path in (self.folder / "tables/orders/metadata").iterdir()}
            if any(name.startswith("snap-") for name in now - before):
                break
            time.sleep(0.01)
        self.catalog.send_signal(signal.SIGKILL)
        self.catalog.wait()
        self.serve()
        try:
            self.end()
            return "the MERGE was answered all the same"
        except Refused as refused:
            text = str(refused).partition("\n")[0][:80]
            return f"the MERGE failed ({text}…) in version {inlay.open(self.orders).version}"

    def alter(self) -> str:
        for name in ("order_changes", "orders"):
            self.sql(f"ALTER TABLE lake.tables.{name} ADD COLUMN {LATER.name} STRING")
        return f"orders and {self.changes} have the column {LATER.name}"

    def compact(self) -> str:
        result = inlay.open(self.orders).maintain.compact()
        return f"{result.input_files} files to {result.output_files}, by Inlay"

    def erase(self) -> str:
        whose = """SELECT DISTINCT orderkey FROM log WHERE custkey =
            (SELECT custkey FROM log WHERE op <> 'D' GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1)"""
        keys = sorted(row[0] for row in self.judge.execute(whose).fetchall())
        where = f"orderkey IN ({', '.join(map(str, keys))})"
        for name in ("log", "lines"):
            self.judge.execute(f"DELETE FROM {name} WHERE {where}")
        files = 0
        for uri in (self.orders, self.lines, self.changes):
            table = inlay.open(uri)
            table.delete(where, mode="erase", request_id="customer")
            files += table.maintain.rewrite().files
            [seen] = self.sql(
                f"SELECT count(*) AS n FROM lake.tables.{uri.rpartition('/')[2]} WHERE {where}"
            )
            if seen["n"]:
                raise SystemExit(f"Spark still sees {seen['n']} rows of the customer in {uri}")
        self.check_lines()
        return f"{len(keys)} orders of a customer, {files} files rewritten, none seen by Spark"

    def query(self) -> str:
        rows = self.sql(
            "SELECT status, sum(totalprice) AS total FROM lake.tables.orders GROUP BY 1 ORDER BY 1"
        )
        return ", ".join(f"{row['status']} {row['total']}" for row in rows)

    def check(self) -> None:
        """As Inlay scans it, row by row; and what Spark makes of all rows."""
        super().check()
        hashed = "count(*) AS n, sum(orderkey * 7 + seq) AS keys, sum(totalprice) AS total"
        [row] = self.sql(f"SELECT {hashed} FROM lake.tables.orders")
        table = inlay.open(self.orders).scan().to_arrow()
        self.judge.register("live", table)
        [expected] = self.judge.execute(f"SELECT {hashed} FROM live").fetchall()
        self.judge.unregister("live")
        if tuple(map(str, row.values())) != tuple(map(str, expected)):
            raise SystemExit(f"Spark has {row}, a scan {expected}")

    def summary(self) -> str:
        lines = [f"{name:<10} {seconds:>6.1f} s  {what}" for name, what, seconds in self.steps]
        return "\n".join(["", *lines])


def _run(pipeline: SqlPipeline, asked: argparse.Namespace) -> None:
    step, check = pipeline.step, pipeline.check
    what = f"TPC-H orders at scale {asked.scale:g}, and {asked.changes:,} changes to them "
    step("generate", lambda: pipeline.generate(asked.scale, asked.changes), what)
    step("serve", pipeline.serve, "the catalog ")
    step("start", pipeline.start, "Spark ")
    step("load", pipeline.load, "orders and line items ")
    check()
    for turn in range(LANDINGS):
        if turn == LANDINGS // 2:
            step("alter", pipeline.alter, "the producer adds a column ")
        step("land", partial(pipeline.land, turn), "records out of order, some late, some twice ")
        step("insert", partial(pipeline.insert, turn), "the new files ")
        if turn == 1:
            step("kill", pipeline.kill_catalog, "the catalog, during a MERGE ")
        step("merge", pipeline.merge_sql, "them into the orders ")
        check()
        if turn == LANDINGS // 2:
            step("compact", pipeline.compact, "small files and pending deletes ")
            check()
    step("erase", pipeline.erase, "a customer ")
    check()
    step("query", pipeline.query)
    print(pipeline.summary(), flush=True)


def main(arguments: list[str] | None = None) -> None:
    about = "The change-data pipeline in plain Spark SQL"
    asking = options("orders_sql", about, scale=0.01, changes=4_000)
    asking.add_argument(
        "--session", required=True, help="the program that runs statements, on a catalog's URI"
    )
    asked = asking.parse_args(arguments)
    with ExitStack() as stack:
        folder = work_folder(stack, asked.keep)
        pipeline = SqlPipeline(folder, shlex.split(asked.session))
        stack.callback(pipeline.close)
        with suppress(BrokenPipeError):
            _run(pipeline, asked)


if __name__ == "__main__":
    main()
