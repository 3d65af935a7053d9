"""What erasures ask of S3: requests and bytes, counted in front of the reference store, and dollars.

    python benchmarks/erasure.py            # tables of docs/benchmarks/index.md, on stdout; about 5 minutes
    python benchmarks/erasure.py --write    # and into that page

The files that hold the person are of full size. The others have as many row groups, each further from the
next than requests are merged over, but fewer rows: their requests are those of full files, their bytes are
not.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from unittest import mock

import pyarrow as pa

import inlay
from inlay import Usage
from inlay.cli.pricing import load_prices
from inlay.engine import Context, advance_erasures, collect_garbage
from page import keep

# Deletes are free.
PRICES = load_prices()
CHEAP = ("get", "head")
FREE = ("delete", "abort_multipart", "delete_versions")

GROUPS = 6
SMALL_ROWS, FULL_ROWS = 1_200, 102_400  # of 1 KiB: 1.2 and 100 MiB
KEYS = 1 << 40
URI = "memory://b/tables/t"


@dataclass
class Clock:
    """Of those who ask, and of the store, which takes its time from the process (`main`)."""

    seconds: float = 1_800_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def now_us(self) -> int:
        return int(self.seconds) * 1_000_000

    def time_ns(self) -> int:
        return self.now_us() * 1_000


CLOCK = Clock()


class Bench:
    """A new table in memory, the only one."""

    def __init__(self) -> None:
        self.clock = CLOCK
        ctx = inlay.connect(URI, executor=ThreadPoolExecutor(8))
        ctx.store.delete([old.key for old in ctx.store.list("")])
        self.ctx = replace(ctx.metered(), clock=self.clock, random=random.Random(1))

    def make(self, files: list[list[int]]) -> None:
        """A table of one file for each list of keys."""
        schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("payload", pa.binary())])
        settings = {
            "write.compression": "none",
            "write.target_file_bytes": 1 << 30,
            "write.row_group_bytes": 1 << 30,
            "write.row_group_rows": SMALL_ROWS // GROUPS,
        }
        table = inlay.create(URI, schema, properties=settings, context=self.ctx)
        for ids in files:
            self.clock.sleep(1)
            arrays = [
                pa.array(ids, pa.int64()),
                pa.array(range(len(ids)), pa.int64()),
                pa.array([os.urandom(1000) for _ in ids], pa.binary()),
            ]
            if len(ids) == FULL_ROWS:
                table.set_properties({"write.row_group_rows": FULL_ROWS // GROUPS})
            table.append(pa.table(arrays, schema=schema))

    def fresh(self) -> Context:
        """As a function that starts cold."""
        return replace(self.ctx, cache=type(self.ctx.cache)())

    def erase(self, name: str, where: str) -> None:
        self.clock.sleep(1)
        inlay.open(URI, context=self.fresh()).delete(where, mode="erase", request_id=name)

    def finish(self) -> list[tuple[str, Usage]]:
        """What each step asked for, up to the receipts."""
        steps = []
        before = self.ctx.usage

        def step(name: str) -> None:
            nonlocal before
            now = self.ctx.usage
            steps.append((name, now - before))
            before = now

        self.clock.sleep(60)
        advance_erasures(self.fresh())
        step("rewrite")
        for name in ("last look and purge", "first sweep", "last sweep and receipt"):
            collected = collect_garbage(self.fresh(), life_seconds=900, hmac_key=b"k", landing="")
            step(name)
            self.clock.sleep(1_000)
        assert collected.receipts, "no receipt"
        return steps


def dollars(usage: Usage) -> float:
    return sum(
        many * (PRICES.read_request if verb in CHEAP else PRICES.write_request)
        for verb, many in usage.requests.items()
        if verb not in FREE
    )


def row(name: str, usage: Usage) -> str:
    reads = sum(usage.requests.get(verb, 0) for verb in CHEAP)
    free = sum(usage.requests.get(verb, 0) for verb in FREE)
    return (
        f"| {name} | {reads:,} | {usage.total - reads - free:,} | {usage.bytes_up / 1e6:,.1f} | "
        f"{usage.bytes_down / 1e6:,.1f} | {dollars(usage):.4f} |"
    )


HEAD = "| | GET, HEAD | PUT, COPY, LIST | MB up | MB down | $ |\n|---|---|---|---|---|---|"


def one_of_many(files: int, *, in_order: bool) -> list[str]:
    rng = random.Random(7)
    who = KEYS // 2 + 1
    lists = []
    for n in range(files):
        full = n % (files // 3) == 0 and n // (files // 3) < 3
        rows = FULL_ROWS if full else SMALL_ROWS
        span = range(n * (KEYS // files), (n + 1) * (KEYS // files)) if in_order else range(KEYS)
        ids = sorted(rng.sample(span, rows))
        if full:
            ids[rows // 2] = who
        lists.append(ids)
    # Appended small files first: the row groups of the full ones are another size.
    lists.sort(key=len)
    bench = Bench()
    bench.make(lists)
    before = bench.ctx.usage
    bench.erase("one", f"id = {who}")
    opened = bench.ctx.usage - before
    steps = [("open", opened), *bench.finish()]
    total = bench.ctx.usage - before
    assert inlay.open(URI, context=bench.ctx).inspect.check_receipt("one").problems == ()
    return [HEAD, *(row(name, usage) for name, usage in steps), row("**all**", total)]


def a_day(files: int, people: int, batches: int) -> tuple[list[str], Usage]:
    """`people` erasures in `batches` over a table of small files; each person has rows in three."""
    rng = random.Random(9)
    lists = [list(range(n * SMALL_ROWS, (n + 1) * SMALL_ROWS)) for n in range(files)]
    bench = Bench()
    bench.make(lists)
    free = rng.sample(range(files * SMALL_ROWS), 3 * people)
    before = bench.ctx.usage
    left = people
    for batch in range(batches):
        for n in range(left // (batches - batch)):
            left -= 1
            ids = sorted(free.pop() for _ in range(3))
            bench.erase(f"case {batch} {n}", f"id IN ({', '.join(map(str, ids))})")
        bench.finish()
        bench.clock.sleep(600)
    total = bench.ctx.usage - before
    return [row(f"{people:,} erasures in {batches} batches", total)], total


def page(files: int, people: int) -> str:
    text = [f"### One key out of {files:,} files of 100 MiB, 3 of which hold it", ""]
    text += ["Keys in order: bounds rule out the others.", ""]
    text += one_of_many(files, in_order=True)
    text += ["", "Keys in no order: every file has to be judged by its rows.", ""]
    text += one_of_many(files, in_order=False)
    text += ["", f"### {people:,} erasures in a day against 1, in a table of 100 files", "", HEAD]
    one, usage = a_day(100, 1, 1)
    many, all_ = a_day(100, people, min(24, people))
    text += [*one, *many]
    share = all_.total / people / usage.total
    up = all_.bytes_up / people / usage.bytes_up
    text += [
        "",
        f"An erasure of the {people:,} takes {share:.3f} of the requests and {up:.3f} of the bytes up that "
        "one by itself takes.",
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--people", type=int, default=1_000)
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks/index.md")
    asked = parser.parse_args()
    with mock.patch.object(time, "time_ns", CLOCK.time_ns):
        text = page(asked.files, asked.people)
    print(text)
    if asked.write:
        keep("erasure", text)


if __name__ == "__main__":
    main()
