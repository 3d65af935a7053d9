"""What operations ask of S3: requests and bytes, counted at the server, against budgets.

    python benchmarks/cost.py                    # tables of docs/benchmarks/index.md, on stdout
    python benchmarks/cost.py --write            # and into that page
    python benchmarks/cost.py --metadata-files 0 # without the large table; a quarter of the time

A table of small files on the embedded S3, then one with many files whose entries alone exist. Every
request is counted by the server's access log. Ends with 1 when an operation goes over its budget.

Not named after requests: Python would find this file where moto looks for that library.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from data import ORDERS
from inlay.cli.pricing import load_prices
from inlay.engine import PartedWrite, load_pointer
from inlay.local.s3server import AwsProcess
from inlay.local.stack import environment
from page import keep

BUCKET = "cost"
# Deletes cost nothing, nor do bytes within the region.
PRICES = load_prices()
FREE = ("DeleteObject", "DeleteObjects", "AbortMultipartUpload")

METADATA_BYTES, PER_ITEM_BYTES = 10_000, 100
SMALL_ROWS, FILES, APPENDS = 10_000, 20, 50


def rows(first: int, count: int) -> pa.Table:
    """Rows with ids from `first`; ids ascend, so that files have ranges of their own."""
    ids = range(first, first + count)
    start = datetime(2026, 1, 1)
    epoch = (start - datetime(1970, 1, 1)).days * 86_400_000_000
    columns = [
        list(ids),
        [n * 7919 % 5_000 for n in ids],
        [epoch + n * 1_000_000 for n in ids],
        [Decimal(n * 31 % 100_000) / 100 for n in ids],
        [("open", "closed", "lost")[n % 3] for n in ids],
        [("DE", "FR", "IT", "ES", "PL")[n * 3 % 5] for n in ids],
        [n % 50 for n in ids],
        [f"note {n * 2654435761 % 2**32:08x}" for n in ids],
    ]
    arrays = [pa.array(v, f.type) for v, f in zip(columns, ORDERS, strict=True)]
    return pa.table(arrays, schema=ORDERS)


# -- counting -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """Requests by operation; bytes up of metadata and of everything else, bytes down."""

    requests: Counter[str]
    metadata: int
    other: int
    down: int

    @property
    def total(self) -> int:
        return self.requests.total()

    @property
    def puts(self) -> int:
        return self.total - self.reads - sum(self.requests[name] for name in FREE)

    @property
    def reads(self) -> int:
        return sum(n for name, n in self.requests.items() if name.startswith(("Get", "Head")))

    @property
    def dollars_per_million(self) -> float:
        return (self.puts * PRICES.write_request + self.reads * PRICES.read_request) * 1_000_000


@dataclass(frozen=True)
class Line:
    """One measured operation; `over` says how it broke its budget, if it did."""

    section: str
    name: str
    count: Count
    budget: str = ""
    over: str = ""


class Server:
    def __init__(self, aws: AwsProcess) -> None:
        self._aws = aws
        self._seen = 0
        self.section = ""
        self.lines: list[Line] = []

    def count(self, action: Callable[[], Any]) -> Count:
        self._new()
        action()
        found = self._new()
        metadata = [r for r in found if "/manifest/" in r.key or r.key.endswith("_latest_manifest")]
        return Count(
            Counter(r.operation for r in found),
            sum(r.bytes_in for r in metadata),
            sum(r.bytes_in for r in found if r not in metadata),
            sum(r.bytes_out for r in found),
        )

    def _new(self) -> Sequence[Any]:
        found = [r for r in self._aws.requests(after=self._seen) if r.service == "s3"]
        self._seen = max((r.number for r in found), default=self._seen)
        return found

    def measure(
        self,
        name: str,
        action: Callable[[], Any],
        *,
        requests: int | None = None,
        items: int | None = None,
    ) -> Count:
        """Measure, and hold to `requests` and to the metadata of a commit that adds `items`."""
        return self.add(name, self.count(action), requests=requests, items=items)

    def add(
        self, name: str, count: Count, *, requests: int | None = None, items: int | None = None
    ) -> Count:
        allowed, over = [], []
        if requests is not None:
            allowed.append(f"{requests} requests")
            if count.total > requests:
                over.append(f"{count.total} requests")
        if items is not None:
            most = METADATA_BYTES + PER_ITEM_BYTES * items
            allowed.append(f"{most / 1000:g} kB metadata")
            if count.metadata > most:
                over.append(f"{count.metadata:,} bytes of metadata")
        self.lines.append(Line(self.section, name, count, ", ".join(allowed), ", ".join(over)))
        return count


# -- what is measured -----------------------------------------------------------------------------


def measure_operations(server: Server) -> None:
    """Every operation on a table of 20 files of 10,000 rows."""
    uri = f"s3://{BUCKET}/tables/small"
    server.section = "Opening and writing"
    # A LIST for archives of a table that was there, the HEAD for the clock, the PUT.
    server.measure("create", lambda: make(uri), requests=4, items=0)
    t = inlay.open(uri)
    for n in range(FILES):
        t.append(rows(n * SMALL_ROWS, SMALL_ROWS))
    measure_writes(server, t, uri)
    server.section = "Deleting"
    measure_deletes(server, t)
    server.section = "Reading"
    measure_reads(server, uri)
    server.measure("history of 20 versions", lambda: t.inspect.history(limit=20))
    server.section = "Maintaining"
    files = t.snapshot.totals.files
    server.measure(f"rewrite {files} files with the deletes above", t.maintain.rewrite)
    server.measure("compact after that", t.maintain.compact)
    server.measure("expire", lambda: t.maintain.expire(days=0))
    server.measure(
        "collect garbage, only looking", lambda: t.maintain.collect_garbage(dry_run=True)
    )


def measure_writes(server: Server, t: inlay.Table, uri: str) -> None:
    top = FILES * SMALL_ROWS
    server.measure("open", lambda: inlay.open(uri), requests=1)
    # One request more: the pointer knows how far back the version is.
    server.measure("open an earlier version", lambda: inlay.open(uri, version=3), requests=2)
    server.measure("append 50,000 rows", lambda: t.append(rows(top, 50_000)), requests=3, items=1)
    measure_appends(server, t, top + 50_000)
    landed = [f"s3://{BUCKET}/in/{n}.parquet" for n in range(FILES)]
    server.measure(
        "ingest 20 objects",
        lambda: t.ingest(landed),
        requests=2 * FILES + 3,
        items=2 * FILES,
    )
    server.measure("update 1 row", lambda: t.update({"status": "'lost'"}, where="id = 777"))
    server.measure("upsert 1,000 rows", lambda: t.upsert(rows(1_000, 1_000)), items=3)


def measure_appends(server: Server, t: inlay.Table, first: int) -> None:
    """Many small appends: now and then one rolls a segment and takes a request more."""
    counts = [server.count(lambda n=n: t.append(rows(first + n, 1))) for n in range(APPENDS)]
    rolled = [c for c in counts if c.total > 3]
    plain = max((c for c in counts if c.total <= 3), key=lambda c: c.metadata)
    server.add("append 1 row: dearest that rolls no segment", plain, requests=3, items=1)
    dearest = max(counts, key=lambda c: (c.total, c.metadata))
    server.add(f"append 1 row: dearest of {APPENDS}, {len(rolled)} rolled", dearest)
    mean = Count(
        Counter({"PutObject": round(sum(c.total for c in counts) / APPENDS)}),
        sum(c.metadata for c in counts) // APPENDS,
        sum(c.other for c in counts) // APPENDS,
        sum(c.down for c in counts) // APPENDS,
    )
    server.add(f"append 1 row: mean of {APPENDS}", mean, items=1)


def measure_deletes(server: Server, t: inlay.Table) -> None:
    keys = pa.table({"id": pa.array(range(0, 200_000, 2), pa.int64())})
    few = pa.table({"id": pa.array(range(1, 20, 2), pa.int64())})
    for name, action in (
        ("delete a key range", lambda: t.delete("id BETWEEN 5000 AND 5999")),
        ("delete by a predicate", lambda: t.delete("country = 'DE' AND note LIKE 'note f%'")),
        ("delete 10 keys", lambda: t.delete(keys=few)),
        ("delete 100,000 keys", lambda: t.delete(keys=keys)),
    ):
        server.measure(name, action, requests=3, items=1)
    server.measure(
        "delete by vector: 1 row", lambda: t.delete("id = 150001", mode="vector"), items=1
    )


def measure_reads(server: Server, uri: str) -> None:
    files = inlay.open(uri).snapshot.totals.files
    for name, action in (
        (
            f"scan 2 of 8 columns of {files} files",
            lambda t: t.scan(columns=["id", "amount"]).to_arrow(),
        ),
        ("scan 1 row by key", lambda t: t.scan(where="id = 77777").to_arrow()),
        ("count", lambda t: t.count()),
        ("count by a condition", lambda t: t.count(where="status = 'open'")),
        ("explain", lambda t: t.scan(where="id = 77777").explain()),
    ):
        server.measure(f"open and {name}", lambda action=action: action(inlay.open(uri)))


def measure_metadata(server: Server, files: int) -> None:
    """The same writes on a table with many files: what they cost must not grow with it."""
    server.section = "It does not grow with the table"
    uri = f"s3://{BUCKET}/tables/large"
    t = make(uri)
    t.append(rows(0, SMALL_ROWS))
    fill(t, files)
    t = inlay.open(uri)
    server.measure(f"open, {files:,} files", lambda: inlay.open(uri), requests=1)
    server.measure(f"append, {files:,} files", lambda: t.append(rows(0, 100)), items=1)
    for name, where in (("range", "id BETWEEN 5 AND 6"), ("predicate", "note LIKE 'x%'")):
        server.measure(
            f"delete by {name}, {files:,} files",
            lambda where=where: t.delete(where),
            requests=3,
            items=1,
        )
    server.measure(
        f"open and explain 1 row by key, {files:,} files",
        lambda: inlay.open(uri).scan(where="id = 9999999").explain(),
    )


def fill(t: inlay.Table, files: int, *, batch: int = 500) -> None:
    """Commit entries of files that do not exist, with ranges of ids of their own."""
    (entry,), _ = t.inspect.entries()
    field = t.snapshot.primary_key[0]
    for start in range(1, files, batch):
        added = []
        for n in range(start, min(start + batch, files)):
            low = n * SMALL_ROWS
            bounds = replace(entry.stats[field], lower=low, upper=low + SMALL_ROWS - 1)
            key = f"data/2026/01/01/00/{n:08x}-0000-4000-8000-{n * 2654435761 % 2**48:012x}.parquet"
            stats = {**entry.stats, field: bounds}
            added.append(replace(entry, key=key, sequence=None, stats=stats))
        ctx = inlay.connect(t.uri)
        loaded = load_pointer(ctx)
        PartedWrite(table=loaded.without_entries()).commit(ctx, added, base=loaded)


def make(uri: str) -> inlay.Table:
    return inlay.create(uri, ORDERS, primary_key="id", sort_by="id")


# -- the run --------------------------------------------------------------------------------------


@contextmanager
def embedded() -> Iterator[Server]:
    """A server with the bucket, and files to ingest."""
    import boto3

    with AwsProcess(["s3"]) as aws, environment(dict(aws.env())):
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        with tempfile.TemporaryDirectory() as folder:
            for n in range(FILES):
                file = Path(folder) / f"{n}.parquet"
                pq.write_table(rows(1_000_000 + n * 1_000, 1_000), file)
                s3.upload_file(str(file), BUCKET, f"in/{n}.parquet")
        yield Server(aws)


def table_of(lines: Sequence[Line], section: str) -> list[str]:
    """The lines of a section as a Markdown table; a star is a budget."""
    found = [
        "| operation | requests | metadata up | other up | down | $ per million |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        if line.section != section:
            continue
        c = line.count
        verbs: Counter[str] = Counter()
        for name, n in c.requests.items():
            verbs[verb(name)] += n
        kinds = ", ".join(f"{n} {name}" for name, n in verbs.items())
        star = " ★" if line.budget else ""
        found.append(
            f"| {line.name}{star} | {kinds} | {c.metadata:,} | {c.other:,} | {c.down:,} "
            f"| {c.dollars_per_million:,.2f} |"
        )
    return found


def verb(operation: str) -> str:
    return "LIST" if operation.startswith("List") else operation.removesuffix("Object").upper()


def sections(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(line.section for line in lines))


def tables(lines: Sequence[Line], head: str) -> str:
    """A table under each section's name."""
    parts = [[f"{head} {section}", "", *table_of(lines, section)] for section in sections(lines)]
    return "\n\n".join("\n".join(part) for part in parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--metadata-files", type=int, default=10_000)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks/index.md")
    options = parser.parse_args(arguments)
    with embedded() as server:
        measure_operations(server)
        if options.metadata_files:
            measure_metadata(server, options.metadata_files)
    print(tables(server.lines, "##"))
    if options.write:
        keep("operations", tables(server.lines, "###"))
    over = [line for line in server.lines if line.over]
    for line in over:
        print(f"over budget: {line.name}: {line.over} (budget {line.budget})", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
