"""What a deployment costs a month, for three sizes: requests measured, list prices, all assumptions named.

    python benchmarks/monthly.py           # tables of docs/benchmarks/index.md, on stdout
    python benchmarks/monthly.py --write   # and into that page

The deployed handlers run in this process on a store that counts: a round of each schedule over idle
tables, a batch of landed files, a batch of deletes, a publication, an erasure from its request to its
receipt. Alarms, queues and metrics are counted in `template.yaml`. What functions take of a Lambda is the
one thing not measured but assumed (`SECONDS`): put the figures of your own REPORT lines there.
"""

from __future__ import annotations

import argparse
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.functions.conftest import BUCKET, ORDERS, Functions, fresh, from_queue

import inlay
from inlay.cli.pricing import load_prices
from inlay.functions import tables
from inlay.local.template import read_body
from page import keep

PRICES = load_prices()
ROOT = Path(__file__).parents[1]
DEAR_VERBS = {"put", "copy", "list", "list_versions", "list_uploads", "create_multipart"}
DEAR_VERBS |= {"upload_part", "upload_part_copy", "complete_multipart"}
FREE_VERBS = {"delete", "delete_versions", "abort_multipart"}
# Assumed: seconds and MiB of one invocation, by what it does.
SECONDS = {"look at one table": 0.1, "a table's turn": 1.0, "a batch": 2.0, "an erasure": 60.0}
MEMORY = {"small": 1_769 / 1_024, "large": 3_008 / 1_024}
LOG_BYTES = 2_000
DAYS = 30
# Rounds a day, as the template has them.
ROUNDS = {
    "rewrite": 96,
    "compact": 24,
    "publish": 96,
    "collect_garbage": 1,
    "erasures": 24,
    "landing": 24,
}
BATCH, DELETES = 100, 10


@dataclass(frozen=True, slots=True)
class Size:
    """`active` tables are written to all day; files, deletes, erasures and lookups are by day."""

    name: str
    tables: int
    active: int
    files: int
    batches: int
    deletes: int
    erasures: int
    lookups: int
    gigabytes: int


SIZES = (
    Size("small", 5, 2, 1_000, 300, 100, 1, 1_000, 50),
    Size("medium", 100, 20, 50_000, 5_000, 5_000, 20, 100_000, 5_000),
    Size("large", 1_000, 200, 1_000_000, 30_000, 50_000, 200, 1_000_000, 200_000),
)


@dataclass(frozen=True, slots=True)
class Used:
    dear: float
    cheap: float

    @classmethod
    def of(cls, requests: Mapping[str, int], divide: int = 1) -> Used:
        dear = sum(n for verb, n in requests.items() if verb in DEAR_VERBS)
        cheap = sum(n for verb, n in requests.items() if verb not in DEAR_VERBS | FREE_VERBS)
        return cls(dear / divide, cheap / divide)

    @property
    def dollars(self) -> float:
        return self.dear * PRICES.write_request + self.cheap * PRICES.read_request


def measure() -> dict[str, Used]:
    """Requests of each piece of work."""
    found: dict[str, Used] = {}
    with fresh() as functions, pytest.MonkeyPatch.context() as patch:
        counted_here = inlay.connect(f"memory://{BUCKET}")
        patch.setattr(tables, "store", lambda: counted_here.store)
        patch.setenv("INLAY_INGEST_QUEUE", "ingest")

        def counted(name: str, function: str, event: Any, divide: int = 1) -> None:
            before = counted_here.usage
            functions.invoke(function, event)
            found[name] = Used.of((counted_here.usage - before).requests, divide)

        idle = 50
        for n in range(idle):
            table = inlay.create(f"memory://{BUCKET}/tables/t{n:03}", schema())
            table.append(pq.read_table(pa.BufferReader(ORDERS)))
        for name, event in (
            ("rewrite", {}),
            ("compact", {}),
            ("publish", {}),
            ("erasures", {"erasures_only": True}),
        ):
            function = "collect_garbage" if name == "erasures" else name
            counted(f"round: {name}", function, event, idle)
            functions.queues.sent.clear()
        counted("turn: collect_garbage", "collect_garbage", {"table": "t000"})
        counted("turn: landing", "collect_garbage", {"table": "t000", "landing_only": True})
        orders = functions.create_orders(**{"publish.format": "v3"})
        bodies = [landed(functions, n) for n in range(BATCH)]
        counted("ingest: a batch", "ingest", from_queue(*bodies))
        counted("publish: after a commit", "publish", {"table": "orders"})
        asked = [{"table": "orders", "where": f"order_id = {n}"} for n in range(DELETES)]
        counted("delete: a batch", "delete", from_queue(*asked))
        counted("turn: rewrite", "rewrite", {"table": "orders"})
        counted("turn: compact", "compact", {"table": "orders"})
        counted("publish: settling", "publish", {"table": "orders"})
        functions.clock.pass_days(0.1)
        before = counted_here.usage
        erase = {"id": "e", "table": "orders", "where": "customer_id = 7", "mode": "erase"}
        functions.invoke("delete", from_queue(erase))
        assert orders.refresh().snapshot.erasures
        functions.invoke("rewrite", {"table": "orders"})
        while orders.refresh().snapshot.erasures:
            functions.clock.pass_days(0.05)
            functions.invoke("collect_garbage", {"table": "orders", "erasures_only": True})
        found["an erasure, to its receipt"] = Used.of((counted_here.usage - before).requests)
    found["a point lookup (benchmarks/cost.py)"] = Used(0, 5)
    return found


def schema() -> pa.Schema:
    return pq.read_schema(pa.BufferReader(ORDERS))


def landed(functions: Functions, n: int) -> dict[str, Any]:
    orders = pq.read_table(pa.BufferReader(ORDERS)).slice(n % 90, 10)
    sink = io.BytesIO()
    pq.write_table(orders, sink)
    key = f"ingest/orders/{n}.parquet"
    etag = functions.store.put(key, sink.getvalue()).etag  # type: ignore[union-attr]
    news = json.loads((ROOT / "events" / "ingest.direct_s3.json").read_text())
    news["Records"][0]["s3"]["object"] = {"key": key, "eTag": etag, "size": 1}
    return dict(news)


def month(size: Size, used: Mapping[str, Used]) -> dict[str, float]:
    """Dollars a month, by what they are for."""
    turns = {name: size.active * ROUNDS[name] for name in ("rewrite", "compact")}
    published = size.batches  # each table that is published, once for each commit at most
    s3 = {
        # The producers' PUT of each file; a batch's two commits of metadata, and the rest by its files.
        "files that land": size.files * PRICES.write_request
        + size.files / BATCH * used["ingest: a batch"].dollars
        + (size.batches - size.files / BATCH) * 2 * PRICES.write_request,
        "deletes": size.deletes / DELETES * used["delete: a batch"].dollars,
        "erasures": size.erasures * used["an erasure, to its receipt"].dollars,
        "looking at tables": size.tables
        * sum(
            ROUNDS[n] * used[f"round: {n}"].dollars
            for n in ("rewrite", "compact", "publish", "erasures")
        )
        + size.tables * used["turn: collect_garbage"].dollars
        + size.active * ROUNDS["landing"] * used["turn: landing"].dollars,
        "rewriting and compacting": sum(
            n * used[f"turn: {what}"].dollars for what, n in turns.items()
        ),
        "publishing": published * used["publish: after a commit"].dollars,
        "lookups": size.lookups * used["a point lookup (benchmarks/cost.py)"].dollars,
    }
    deletes = size.deletes / DELETES
    turned = sum(turns.values()) + size.tables + size.active * ROUNDS["landing"]
    large = sum(turns.values()) * SECONDS["a table's turn"] + size.erasures * SECONDS["an erasure"]
    small = (
        (size.batches + deletes + published) * SECONDS["a batch"]
        + (size.tables + size.active * ROUNDS["landing"]) * SECONDS["a table's turn"]
        + sum(ROUNDS.values()) * size.tables * SECONDS["look at one table"] / 16  # sixteen at once
    )
    invocations = size.batches + deletes + published + turned + sum(ROUNDS.values())
    messages = size.files / 10 + size.files + deletes * 2 + published * 3 + turned * 3
    return {
        **{f"S3: {name}": DAYS * dollars for name, dollars in s3.items()},
        "Lambda": DAYS * (large * MEMORY["large"] + small * MEMORY["small"]) * PRICES.gb_second
        + DAYS * invocations * PRICES.invocation,
        "SQS": DAYS * messages * PRICES.message,
        "CloudWatch: alarms": PRICES.alarm_month * alarms(),
        "CloudWatch: metrics": PRICES.metric_month * 45,
        "CloudWatch: logs": DAYS * invocations * LOG_BYTES / 1e9 * PRICES.log_gb,
        "secret": PRICES.secret_month,
        "storage": size.gigabytes * PRICES.gb_month,
    }


def alarms() -> int:
    kinds = Counter(r["Type"] for r in read_body(ROOT / "template.yaml")["Resources"].values())
    return kinds["AWS::CloudWatch::Alarm"]


def text() -> str:
    used = measure()
    lines = ["| measured | PUT, COPY, LIST | GET, HEAD |", "|---|---|---|"]
    lines += [f"| {name} | {each.dear:.4g} | {each.cheap:.4g} |" for name, each in used.items()]
    lines += [
        "",
        "| a day | " + " | ".join(s.name for s in SIZES) + " |",
        "|---|" + "---|" * len(SIZES),
    ]
    for what in (
        "tables",
        "active",
        "files",
        "batches",
        "deletes",
        "erasures",
        "lookups",
        "gigabytes",
    ):
        lines.append(f"| {what} | " + " | ".join(f"{getattr(s, what):,}" for s in SIZES) + " |")
    months = [month(size, used) for size in SIZES]
    lines += ["", "| dollars a month | " + " | ".join(s.name for s in SIZES) + " |"]
    lines.append("|---|" + "---|" * len(SIZES))
    for name in months[0]:
        lines.append(f"| {name} | " + " | ".join(f"{m[name]:,.2f}" for m in months) + " |")
    lines.append("| **all** | " + " | ".join(f"**{sum(m.values()):,.2f}**" for m in months) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks/index.md")
    made = text()
    print(made)
    if parser.parse_args().write:
        keep("month", made)


if __name__ == "__main__":
    main()
