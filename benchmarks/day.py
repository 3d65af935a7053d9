"""The published day, priced: 6 TB in, 2 TB of deletes, 50,000 queries, by a scaled simulation.

    python benchmarks/day.py --peers            # tables of docs/benchmarks/index.md, on stdout
    python benchmarks/day.py --peers --write    # and into that page; the counts into `inlay cost`

The published estimate (shayon.dev, "An MVCC-like columnar table on S3 with constant-time deletes",
October 2025; about $3 in all) has about 380,000 PUTs for $1.88, that is three for each 64 MB of 6 + 2 TB;
and two to four GETs a query where queries are for a short time, forty where they are not. So the day here
has files of 64 MB, 93,750 of them in; 31,250 requests that each delete the rows of one such file by a range
of its key; 50,000 queries, each of a table just opened, for a twentieth of one file by its key.

Two simulations run on the counting server, a day's requests divided by `--scale`:

    functions   the deployed handlers, on the batches in which their queues deliver at the day's rate
    library     a commit for each file and each delete, by Inlay and, in the same order, by delta-rs and
                pyiceberg in an environment of their own

Scaling law. Functions: a batch takes `fixed + n × each` requests and CPU, from batches of two sizes; what
a round of maintenance adds for the size of the table is named where it is added. Library: the day takes its
number of operations times the mean of one, taken from the second half of the run; the ratio of that to the
first half shows how far it is from the truth, which is larger where it is above 1. Files are small, for the
counting server keeps them in memory: one append of a file of the true size shows what that leaves out.
Lambda's time is CPU + round trips × 20 ms + bytes that S3 copies, at `COPY_BYTES_PER_SECOND`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.functions import conftest
from tests.functions.conftest import Functions, fresh, from_queue

import inlay
from bench import peers_python
from counting_server import CountingServer
from inlay.cli.pricing import (
    Day,
    Line,
    Unit,
    day_lines,
    load_prices,
    total,
)
from inlay.engine import open_store
from inlay.functions import observe
from inlay.local.stack import environment
from libraries import DayCount, DayPlan, day_of_library, half_means
from page import keep

ROOT = Path(__file__).parents[1]
UNITS = ROOT / "layers" / "inlay" / "inlay" / "cli" / "assets" / "units.json"
BUCKET, TABLE = "bench", "day"
URI = f"s3://{BUCKET}/tables/{TABLE}"
LATENCY_SECONDS = 0.02
FILES, DELETES, QUERIES = 93_750, 31_250, 50_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("payload", pa.binary())])
LIBRARIES = ("deltalake", "pyiceberg")


class Deployed:
    """The deployed functions on the counting server, one table."""

    def __init__(self, functions: Functions, server: CountingServer, plan: DayPlan) -> None:
        self.functions, self.server, self.plan = functions, server, plan
        self.store, _ = open_store(f"s3://{BUCKET}")
        self.landed = 0
        self.deleted = 0
        self.table = inlay.create(
            URI,
            SCHEMA,
            primary_key="id",
            # Files of the day are larger than what is packed, those here are not.
            properties={"compact.small_file_bytes": 0},
        )

    def land(self, count: int) -> list[dict[str, Any]]:
        """Files under ingest/, and the messages S3 sends."""
        found = []
        (news,) = json.loads((ROOT / "events" / "ingest.direct_s3.json").read_text())["Records"]
        for _ in range(count):
            sink = pa.BufferOutputStream()
            pq.write_table(self.plan.file(self.landed), sink)
            key = f"ingest/{TABLE}/{self.landed}.parquet"
            body = sink.getvalue().to_pybytes()
            put: Any = self.store.put(key, body)  # nobody else writes here
            told = {"key": key, "eTag": put.etag.strip('"'), "size": len(body)}
            s3 = {**news["s3"], "bucket": {"name": BUCKET}, "object": told}
            found.append({"Records": [{**news, "s3": s3}]})
            self.landed += 1
        return found

    def deletes(self, count: int) -> list[dict[str, Any]]:
        found = []
        for _ in range(count):
            low, high = self.plan.span(self.deleted)
            where = f"id BETWEEN {low} AND {high}"
            found.append({"id": f"d{self.deleted}", "table": TABLE, "where": where})
            self.deleted += 1
        return found

    def invoke(self, function: str, event: Any) -> Unit:
        """Requests, and the seconds of a Lambda of one CPU at 20 ms a request."""
        return self.unit(lambda: self.functions.invoke(function, event))

    def unit(self, action: Callable[[], Any]) -> Unit:
        self.server.clear()
        before = time.process_time()
        answer = action()
        cpu = time.process_time() - before
        if isinstance(answer, dict):
            assert not answer.get("batchItemFailures"), answer
        used = self.server.usage()
        made = DayCount.of(used.requests)
        return Unit(made.writes, made.reads, round(cpu + used.depth * LATENCY_SECONDS, 3))


def per_item(small: Unit, large: Unit, more: int) -> tuple[Unit, Unit]:
    """What each further item of a batch takes, and what the batch takes besides (with one item)."""
    each = Unit(
        (large.writes - small.writes) / more,
        (large.reads - small.reads) / more,
        max(0.0, large.seconds - small.seconds) / more,
    )
    fixed = Unit(
        small.writes - each.writes,
        small.reads - each.reads,
        max(0.0, small.seconds - each.seconds),
    )
    return each.rounded(), fixed.rounded()


def measure_functions(server: CountingServer, plan: DayPlan) -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    with fresh() as functions, pytest.MonkeyPatch.context() as patch:
        patch.setenv("INLAY_BUCKET", f"s3://{BUCKET}")
        patch.setenv("INLAY_INGEST_QUEUE", "ingest")
        patch.setenv("POWERTOOLS_METRICS_DISABLED", "true")
        observe.logger.setLevel("CRITICAL")
        conftest._STORE.cache_clear()
        at = Deployed(functions, server, plan)
        # The first of each kind imports.
        at.invoke("ingest", from_queue(*at.land(2)))
        at.invoke("delete", from_queue(*at.deletes(1)))
        at.invoke("rewrite", {"table": TABLE})
        at.invoke("compact", {"table": TABLE})
        one = at.invoke("ingest", from_queue(*at.land(1)))
        eleven = at.invoke("ingest", from_queue(*at.land(11)))
        found["ingest: a file"], found["ingest: a batch"] = per_item(one, eleven, 10)
        for _ in range(6):
            at.invoke("ingest", from_queue(*at.land(6)))
        one = at.invoke("delete", from_queue(*at.deletes(1)))
        six = at.invoke("delete", from_queue(*at.deletes(6)))
        found["delete: a request"], found["delete: a batch"] = per_item(one, six, 5)
        seven = at.invoke("rewrite", {"table": TABLE})
        at.invoke("delete", from_queue(*at.deletes(1)))
        single = at.invoke("rewrite", {"table": TABLE})
        found["rewrite: a delete"], found["rewrite: a turn"] = per_item(single, seven, 6)
        found["compact: a turn"] = at.invoke("compact", {"table": TABLE})
        rng = random.Random(3)

        def query() -> None:
            low, high = plan.part(rng.randrange(at.deleted, at.landed), rng)
            rows = inlay.open(URI).scan(where=f"id BETWEEN {low} AND {high}").to_arrow()
            assert rows.num_rows == high - low + 1, (rows.num_rows, low, high)

        queries = [at.unit(query) for _ in range(20)]
        found["query"] = Unit(
            sum(q.writes for q in queries) / len(queries),
            sum(q.reads for q in queries) / len(queries),
            0.0,
        ).rounded()
        found["append"] = at.unit(lambda: at.table.refresh().append(plan.file(at.landed)))
        at.landed += 1
        found["append"] = replace(found["append"], reads=found["append"].reads - 1)  # of refresh
        versions = at.table.version
        swept = at.unit(lambda: at.table.maintain.collect_garbage())
        found["collect garbage: a version kept"] = Unit(0, round(swept.reads / versions, 3), 0.002)
        at.functions.clock.pass_days(0.1)
        erase = {"id": "e", "table": TABLE, "where": f"id = {plan.span(at.landed - 1)[0]}"}
        found["erasure"] = at.invoke("delete", from_queue({**erase, "mode": "erase"}))
        found["erasure"] += at.invoke("rewrite", {"table": TABLE})
        assert (
            at.table.refresh().count() == sum(plan.rows for _ in range(at.deleted, at.landed)) - 1
        )
    conftest._STORE.cache_clear()
    return found


# -- one commit each, by libraries -----------------------------------------------------------------


class Ours:
    """Inlay's side of `libraries.day_of_library`."""

    def __init__(self) -> None:
        self.uri = f"s3://{BUCKET}/tables/calls"
        self.table = inlay.create(self.uri, SCHEMA, primary_key="id")

    def append(self, data: pa.Table) -> None:
        self.table.append(data)

    def delete(self, low: int, high: int) -> None:
        self.table.delete(f"id BETWEEN {low} AND {high}")

    def query(self, low: int, high: int) -> int:
        found = inlay.open(self.uri).scan(where=f"id BETWEEN {low} AND {high}").to_arrow()
        return int(found.num_rows)


def measure_libraries(
    server: CountingServer, plan: DayPlan, peers: bool
) -> dict[str, dict[str, list[DayCount]]]:
    found = {"Inlay": day_of_library(Ours(), server, plan)}
    for name in LIBRARIES if peers else ():
        done = subprocess.run(
            [
                *(peers_python(), Path(__file__).with_name("libraries.py"), "--day", name),
                *(server.endpoint, json.dumps(asdict(plan))),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, **server.env()},
        )
        if done.returncode:
            raise SystemExit(f"{name}: {done.stderr[-1500:]}")
        made = json.loads(done.stdout.splitlines()[-1])
        found[name] = {what: [DayCount(**each) for each in of] for what, of in made.items()}
    return found


# -- what is shown --------------------------------------------------------------------------------


def table_of_units(units: Mapping[str, Unit]) -> list[str]:
    lines = ["| measured | PUT, COPY, LIST | GET, HEAD | Lambda seconds |", "|---|---|---|---|"]
    return lines + [
        f"| {name} | {u.writes:g} | {u.reads:g} | {u.seconds:g} |" for name, u in units.items()
    ]


def table_of_day(lines: Sequence[Line]) -> list[str]:
    prices = load_prices(None)
    head = "| a day | PUT, COPY, LIST | GET, HEAD | SQS | Lambda GB-s | $ |"
    rows = [head, "|---|---|---|---|---|---|"]
    for line in [*lines, total(lines)]:
        w = line.work
        bold = "**" if line.name == "all" else ""
        rows.append(
            f"| {bold}{line.name}{bold} | {w.writes:,.0f} | {w.reads:,.0f} | {w.messages:,.0f} "
            f"| {w.gb_seconds:,.0f} | {bold}{w.dollars(prices):.2f}{bold} |"
        )
    return rows


def table_of_libraries(found: Mapping[str, Mapping[str, Sequence[DayCount]]]) -> list[str]:
    prices = load_prices(None)
    rows = [
        "| | PUT, COPY, LIST / GET, HEAD: append | of 64 MB | delete | query "
        "| growth: append, delete, query | the day's PUT … | GET … | $ |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, counts in found.items():
        halves = {what: half_means(counts[what]) for what in ("append", "delete", "query")}
        late = {what: second for what, (_, second) in halves.items()}
        (whole,) = counts["append of the true size"]
        grown = [
            (second.writes + second.reads) / max(1e-9, first.writes + first.reads)
            for first, second in halves.values()
        ]
        # The true size's further parts, for each file.
        more = max(0.0, whole.writes - late["append"].writes)
        writes = FILES * (late["append"].writes + more) + DELETES * late["delete"].writes
        writes += QUERIES * late["query"].writes
        reads = FILES * late["append"].reads + DELETES * late["delete"].reads
        reads += QUERIES * late["query"].reads
        cells = [f"{late[w].writes:.1f} / {late[w].reads:.1f}" for w in late]
        cells.insert(1, f"{whole.writes:g} / {whole.reads:g}")
        rows.append(
            f"| {name} | {' | '.join(cells)} | {', '.join(f'{g:.2f}' for g in grown)} "
            f"| {writes:,.0f} | {reads:,.0f} "
            f"| {writes * prices.write_request + reads * prices.read_request:.2f} |"
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", type=int, default=1_000, help="the day's operations, divided")
    parser.add_argument("--peers", action="store_true", help="delta-rs and pyiceberg as well")
    parser.add_argument(
        "--write", action="store_true", help="docs/benchmarks/index.md, and units.json"
    )
    parser.add_argument("--counts", action="store_true", help="print the units' counts as JSON")
    options = parser.parse_args(arguments)
    plan = DayPlan(
        files=max(4, FILES // options.scale),
        deletes=max(2, DELETES // options.scale),
        queries=max(4, QUERIES // options.scale),
    )
    with CountingServer() as server, environment(server.env()):
        units = measure_functions(server, plan)
        if options.counts:
            shown = {name: [u.writes, u.reads] for name, u in units.items()}
            print(json.dumps(shown, indent=1))
            return 0
        libraries = measure_libraries(server, plan, options.peers)
    day = Day(
        ingested_bytes=6 * 10**12,
        file_bytes=64 * 10**6,
        deletes=DELETES,
        queries=QUERIES,
    )
    if options.write:
        measured_by = f"python benchmarks/day.py --scale {options.scale}"
        made = {"measured_by": measured_by, "units": {n: asdict(u) for n, u in units.items()}}
        UNITS.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
    lines = day_lines(day, units)
    text = "\n".join(
        [
            *table_of_units(units),
            "",
            *table_of_day(lines),
            "",
            *table_of_libraries(libraries),
        ]
    )
    print(text)
    if options.write:
        keep("day", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
