"""What metadata costs as a table grows: requests, bytes and CPU, held to their budgets.

    python -m tests.measured.metadata [--files 1000 10000 100000 1000000] [--step 1000] [--events 10000000]
        [--write]

Builds tables of these many files with entries that say what files of TPC-H lineitem would (statistics
of ten columns), through the real planner and commit, over a store in memory that counts requests. No
data file is written: one PUT is added for it. Each size is the last one grown further, so a million
files take a few minutes. `--write` stores them in docs/benchmarks, for `benchmarks/page.py`. Ends with 1
when a budget is broken.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from inlay import Usage
from inlay.engine import Context, DataFile, LoadedTable, Request, load_pointer, parse_predicate
from inlay.format.entry import ColumnStats, KeyRange, Marker, Types, file_to_json
from inlay.ops.commit.driver import Committed, commit, known_requests
from inlay.ops.context import InlineExecutor
from inlay.ops.maintain.compact import cluster_metadata
from inlay.ops.metadata.load import load_entries, load_matching
from inlay.ops.read.scan import Scan
from inlay.plan.change import AddFiles, AddMarkers, Change, RemoveFiles
from inlay.storage.memory import MemoryStore
from inlay.storage.wrapped import MeteredStore

STORED = Path(__file__).parents[2] / "docs" / "benchmarks"
BULK = 1_000
# Commits over which an average is taken: several times what fills a leaf with single files.
COMMITS = 1_200
BULK_COMMITS = 20
ROWS = 4_000
DAY_US = 86_400_000_000

SCHEMA = pa.schema(
    [
        pa.field("orderkey", pa.int64(), nullable=False),
        ("partkey", pa.int64()),
        ("suppkey", pa.int64()),
        ("linenumber", pa.int32()),
        ("quantity", pa.decimal128(12, 2)),
        ("extendedprice", pa.decimal128(12, 2)),
        ("discount", pa.decimal128(4, 2)),
        ("shipdate", pa.date32()),
        ("receiptdate", pa.timestamp("us")),
        ("comment", pa.string()),
    ]
)


class Clock:
    """The store's clock: each request takes a millisecond, so that nothing waits."""

    def __init__(self) -> None:
        self.us = 1_790_000_000_000_000

    def now_us(self) -> int:
        self.us += 1_000
        return self.us

    def monotonic(self) -> float:
        return self.us / 1e6

    def sleep(self, seconds: float) -> None:
        self.us += int(seconds * 1e6)


@dataclass(slots=True)
class Bench:
    """One table that grows. Keys rise with every file, unless it is `scattered`."""

    scattered: bool = False
    step: int = BULK  # files of one commit as the table grows
    clock: Clock = field(default_factory=Clock)
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    store: MeteredStore = field(init=False)
    ctx: Context = field(init=False)
    loaded: LoadedTable = field(init=False)
    made: int = 0

    def __post_init__(self) -> None:
        self.store = MeteredStore(MemoryStore("bench", now_us=self.clock.now_us))
        self.ctx = self.fresh()
        key = ["orderkey"]
        inlay.create(self.ctx.uri, SCHEMA, primary_key=key, sort_by=key, context=self.ctx)
        self.loaded = load_pointer(self.ctx)

    def fresh(self) -> Context:
        """A process that has read nothing yet."""
        return Context(
            store=self.store,
            root="tables/t",
            uri="memory://bench/tables/t",
            executor=InlineExecutor(),
            clock=self.clock,
            random=self.rng,
        )

    def files(self, count: int) -> tuple[DataFile, ...]:
        return tuple(self.file() for _ in range(count))

    def file(self) -> DataFile:
        rng, n = self.rng, self.made
        self.made += 1
        place = rng.randrange(10_000_000) if self.scattered else n
        low = 1_000_000 + place * ROWS * 4
        day = 8_000 + n // 400
        bounds: list[tuple[Any, Any]] = [
            (low, low + ROWS * 4 - rng.randrange(1, 9)),
            (rng.randrange(1, 60), 200_000 - rng.randrange(60)),
            (rng.randrange(1, 5), 10_000 - rng.randrange(5)),
            (1, 7),
            (Decimal("1.00"), Decimal("50.00")),
            (
                Decimal(rng.randrange(90_000, 91_000)) / 100,
                Decimal(rng.randrange(10_400_000, 10_494_950)) / 100,
            ),
            (Decimal("0.00"), Decimal("0.10")),
            (day - rng.randrange(3), day + rng.randrange(1, 90)),
            (day * DAY_US + rng.randrange(DAY_US), (day + 90) * DAY_US + rng.randrange(DAY_US)),
            (f"a{rng.choice('abcdefgh')} {rng.randrange(100)}", f"zz{rng.randrange(1000)} x"),
        ]
        name = uuid.UUID(int=rng.getrandbits(128), version=4)
        return DataFile(
            key=f"data/2026/11/{1 + n // 40_000 % 28:02}/{n // 2_000 % 24:02}/{name}.parquet",
            size=rng.randrange(90_000, 130_000),
            footer_size=rng.randrange(2_900, 3_000),
            rows=ROWS,
            row_groups=1,
            schema_id=0,
            stats={i + 1: ColumnStats(a, b, 0) for i, (a, b) in enumerate(bounds)},
        )

    def commit(self, change: Change, *, cold: bool = False) -> LoadedTable:
        base = load_pointer(self.fresh()) if cold else self.loaded
        done = commit(self.ctx, change, base=base)
        assert isinstance(done, Committed)
        self.loaded = done.loaded
        return done.loaded

    def append(self, count: int, *, cold: bool = False) -> None:
        self.commit(Change(operation="append", updates=(AddFiles(self.files(count)),)), cold=cold)

    def delete(self, *, cold: bool = False) -> None:
        low = 1_000_000 + self.rng.randrange(max(self.made, 1)) * ROWS * 4
        marker = Marker(id=self.ctx.new_id(), body=KeyRange(1, low, low + 3))
        self.commit(Change(operation="delete", updates=(AddMarkers((marker,)),)), cold=cold)

    def replace_file(self, *, cold: bool = False) -> None:
        """What a delete that rewrites files does, where it finds one."""
        base = load_pointer(self.fresh()) if cold else self.loaded
        schema = base.snapshot.schema
        while True:  # some were replaced before
            low = 1_000_000 + self.rng.randrange(self.made) * ROWS * 4 + 7
            where = parse_predicate(f"orderkey = {low}", schema)
            state = load_matching(self.ctx, base.state, where)
            tasks = Scan(self.ctx, state, where=where).plan.tasks
            if tasks:
                break
        self.loaded = replace(base, state=state)
        self.commit(
            Change(
                operation="delete",
                updates=(
                    RemoveFiles((tasks[0].file.key,)),
                    AddFiles(self.files(1)),
                ),
            )
        )

    def grow(self, total: int) -> None:
        while self.made < total:
            self.append(min(self.step, total - self.made))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report; a budget is None where there is none."""

    what: str
    requests: float
    up: float
    down: float
    cpu_ms: float
    budget: str = ""
    is_over: bool = False


def measure(bench: Bench, times: int, act: Callable[[], None]) -> tuple[Usage, float]:
    """What `times` calls asked of the store, and the CPU of one in milliseconds."""
    gc.collect()
    before, began = bench.store.usage(), time.process_time()
    for _ in range(times):
        act()
    return bench.store.usage() - before, (time.process_time() - began) * 1000 / times


def written(bench: Bench, what: str, times: int, files: int, act: Callable[[], None]) -> Row:
    """A write: on average, with one PUT for its data."""
    used, cpu = measure(bench, times, act)
    most = 10_000 + 100 * files
    requests = used.total / times + (1 if files else 0)
    up = used.bytes_up / times
    return Row(
        what,
        requests,
        up,
        used.bytes_down / times,
        cpu,
        f"4.3 requests, {most:,} bytes",
        requests > 4.3 or up > most,
    )


def query(bench: Bench, what: str, where: str) -> Row:
    """Opening and planning, from nothing."""
    before, began = bench.store.usage(), time.process_time()
    ctx = bench.fresh()
    plan = Scan(ctx, load_pointer(ctx).state, where=where).plan
    cpu = (time.process_time() - began) * 1000
    used = bench.store.usage() - before
    assert plan.tasks, where
    over = used.total > 6 or used.bytes_down > 1_000_000 or cpu > 150
    return Row(
        what, used.total, 0, used.bytes_down, cpu, "6 requests, 1,000,000 bytes, 150 ms", over
    )


def opening(bench: Bench) -> Row:
    used, cpu = measure(bench, 1, lambda: void(load_pointer(bench.fresh())))
    return Row("open", used.total, 0, used.bytes_down, cpu, "1 request", used.total > 1)


def void(_: object) -> None:
    return None


def report(bench: Bench) -> Iterator[Row]:
    """The table as it is, then written to, in this order."""
    yield opening(bench)
    key = 1_000_000 + bench.made // 2 * ROWS * 4 + 5
    yield query(bench, "plan a query on the key", f"orderkey = {key}")
    yield written(bench, "append 1,000 files", BULK_COMMITS, BULK, lambda: bench.append(BULK))
    yield written(bench, "append 1 file", COMMITS, 1, lambda: bench.append(1))
    yield written(
        bench, "append 1 file, each from a cold start", 400, 1, lambda: bench.append(1, cold=True)
    )
    yield query(bench, "plan a query on the key", f"orderkey = {key}")
    yield written(bench, "delete by range", 400, 0, bench.delete)
    yield written(
        bench, "delete by range, each from a cold start", 200, 0, lambda: bench.delete(cold=True)
    )
    yield written(bench, "replace 1 file", 100, 1, bench.replace_file)


# -- the ledger -----------------------------------------------------------------------------------


def ledger(events: int, days: float = 13.0) -> Iterator[Row]:
    """Batches of 1,000 events, spread over `days`, then checks of the newest 1,000."""
    bench = Bench()
    step_us = int(days * DAY_US * BULK / events)
    batch: list[Request] = []
    before, began = bench.store.usage(), time.process_time()
    for n in range(events // BULK):
        bench.clock.us += step_us
        at = bench.clock.us
        batch = [Request.of(f"s3://landing/{n}/{i}@e", time_us=at) for i in range(BULK)]
        bench.commit(Change(operation="ingest", events=tuple(batch)))
    used = bench.store.usage() - before
    cpu = (time.process_time() - began) * 1000 / (events // BULK)
    commits = events // BULK
    yield Row(
        f"commit 1,000 events, {events:,} in the ledger",
        used.total / commits,
        used.bytes_up / commits,
        used.bytes_down / commits,
        cpu,
        "110,000 bytes",
        used.bytes_up / commits > 110_000,
    )
    stored = sum(_ledger_sizes(bench)) / events
    yield Row("an event as stored", 0, stored, 0, 0, "20 bytes", stored > 20)
    ctx = bench.fresh()
    cold = load_pointer(ctx)
    for what, most in (("cold", 4), ("warm", 0)):
        before, began = bench.store.usage(), time.process_time()
        cold, known = known_requests(ctx, cold, batch)
        cpu = (time.process_time() - began) * 1000
        assert len(known) == BULK
        used = bench.store.usage() - before
        yield Row(
            f"check the newest 1,000 events, {what}",
            used.total,
            0,
            used.bytes_down,
            cpu,
            f"{most} requests",
            used.total > most,
        )


def _ledger_sizes(bench: Bench) -> Iterator[int]:
    from inlay.ops.metadata.load import load_ledger
    from inlay.plan.metadata.state import open_tree

    state = load_ledger(bench.ctx, load_pointer(bench.ctx).state)
    records = state.snapshot.ledger.records.segments
    yield from (s.size for s in open_tree(records, state.contents.nodes).leaves)
    yield from (s.size for s in records if s.level)


# -- the same information otherwise ---------------------------------------------------------------


def as_one_object(bench: Bench) -> Iterator[dict[str, object]]:
    """The bytes of an append of one file where the list of files is one object."""
    entries = list(load_entries(bench.fresh(), load_pointer(bench.fresh()).state).files())
    types = Types(bench.loaded.snapshot.schemas)
    rows = [file_to_json(e, types) for e in entries]
    inline = len(json.dumps(rows, separators=(",", ":")).encode())
    columns: dict[str, list[object]] = {
        "key": [e.key for e in entries],
        "size": [e.size for e in entries],
        "footer": [e.footer_size for e in entries],
        "rows": [e.rows for e in entries],
        "sequence": [e.sequence for e in entries],
    }
    for i in range(1, 11):
        columns[f"low{i}"] = [e.stats[i].lower for e in entries]
        columns[f"high{i}"] = [e.stats[i].upper for e in entries]
        columns[f"nulls{i}"] = [e.stats[i].null_count for e in entries]
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    used, _ = measure(bench, 200, lambda: bench.append(1))
    mine = used.bytes_up / 200
    for what, size in (("one JSON list", inline), ("one Parquet file", sink.tell())):
        yield {"what": what, "files": len(entries), "bytes": size, "here": round(mine)}


# -- the report -----------------------------------------------------------------------------------


def lines(title: str, rows: list[Row]) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    yield "| operation | requests | bytes up | bytes down | CPU, ms | budget |"
    yield "|---|---|---|---|---|---|"
    for r in rows:
        mark = " **over**" if r.is_over else ""
        yield (
            f"| {r.what} | {r.requests:.2f} | {r.up:,.0f} | {r.down:,.0f} | {r.cpu_ms:,.1f} "
            f"| {r.budget}{mark} |"
        )
    yield ""


def scattered(files: int) -> list[Row]:
    """A table whose files come in no order of the key, before and after its metadata is clustered."""
    bench = Bench(scattered=True)
    bench.grow(files)
    some = bench.file()
    bench.commit(Change(operation="append", updates=(AddFiles((some,)),)))
    where = f"orderkey = {some.stats[1].lower!r}"
    before = query(bench, "plan a query on the key", where)
    used, cpu = measure(bench, 1, lambda: void(cluster_metadata(bench.fresh())))
    moved = Row(
        "cluster the metadata, all at once", used.total, used.bytes_up, used.bytes_down, cpu
    )
    return [
        Row(before.what, before.requests, 0, before.down, before.cpu_ms),
        moved,
        query(bench, "plan it again", where),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--step", type=int, default=BULK, help="files of one commit as it grows")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--scattered", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help="store them in docs/benchmarks")
    asked = parser.parse_args()
    stored: list[dict[str, object]] = []
    one_object: list[dict[str, object]] = []
    is_over = False
    bench = Bench(step=asked.step)

    def tell(title: str, rows: list[Row]) -> None:
        nonlocal is_over
        is_over |= any(r.is_over for r in rows)
        print("\n".join(lines(title, rows)), flush=True)
        figures = [
            {
                "what": r.what,
                "requests": round(r.requests, 2),
                "up": round(r.up),
                "down": round(r.down),
                "cpu_ms": round(r.cpu_ms, 1),
                "budget": r.budget,
            }
            for r in rows
        ]
        stored.append({"title": title, "rows": figures})

    for size in sorted(asked.files):
        bench.grow(size)
        tell(f"{size:,} files", list(report(bench)))
        if size <= 100_000:
            one_object = list(as_one_object(bench))
    if asked.scattered:
        tell(f"{asked.scattered:,} files in no order", scattered(asked.scattered))
    if asked.events:
        tell(f"A ledger of {asked.events:,} events", list(ledger(asked.events)))
    print("An append of one file, if the list of files were one object:", *one_object, sep="\n")
    if asked.write:
        made = json.dumps({"tables": stored, "one_object": one_object}, indent=1)
        (STORED / "metadata.json").write_text(f"{made}\n", "utf-8")
    return 1 if is_over else 0


if __name__ == "__main__":
    sys.exit(main())
