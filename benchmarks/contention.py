"""What contention costs: many writers appending to one table, against the barest loop there is.

    python benchmarks/contention.py                     # 1, 4, 8, 16 writers as processes, 16 threads
    python benchmarks/contention.py --crowd             # 40 processes as well

The embedded S3 answers after 20 ms. Each writer appends one row after another for some seconds. The bare
loop makes the same sequential requests with the same client and as many bytes, without a table: GET the
pointer, PUT an object, PUT the pointer If-Match, at once again when that was refused. Writer and server
share this machine's cores: with many writers both loops are bound by them, and by each other's requests.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.synchronize import Barrier

import pyarrow as pa

import inlay
from inlay.errors import InlayError
from inlay.ops.commit_queue import Turns
from inlay.storage.base import Got, IfMatch, Written
from inlay.storage.s3 import S3Store

BUCKET = "contention"
LATENCY_MS = 20.0
# A pointer is about this long on the wire.
BODY = os.urandom(2_000)
ROW = pa.table({"id": pa.array([1], pa.int64())})
# Writers start together, once the slowest has imported everything.
START_SECONDS = 120.0

Write = Callable[[], int]  # returns how many tries it took


@dataclass(slots=True)
class Measured:
    """What writers did, together."""

    seconds: float = 0.0
    took: list[float] = field(default_factory=list)
    tries: int = 0
    failed: int = 0

    @property
    def rate(self) -> float:
        return len(self.took) / self.seconds

    def at(self, share: float) -> float:
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def add(self, other: Measured) -> None:
        self.seconds = max(self.seconds, other.seconds)
        self.took += other.took
        self.tries += other.tries
        self.failed += other.failed


def keep_writing(write: Write, seconds: float) -> Measured:
    found = Measured()
    started = time.monotonic()
    while (before := time.monotonic()) - started < seconds:
        try:
            found.tries += write()
        except InlayError:
            found.failed += 1
        else:
            found.took.append(time.monotonic() - before)
    found.seconds = time.monotonic() - started
    return found


def append_writer(name: str) -> Write:
    table = inlay.open(f"s3://{BUCKET}/{name}")
    return lambda: table.append(ROW).attempts


def bare_writer(name: str) -> Write:
    store = S3Store(BUCKET)

    def write() -> int:
        tries = 0
        while True:  # ends: somebody wins each race
            tries += 1
            got = store.get(f"{name}/pointer")
            assert isinstance(got, Got)
            store.put(f"{name}/{uuid.uuid4()}", BODY)
            swapped = store.put(
                f"{name}/pointer", BODY + os.urandom(16), condition=IfMatch(got.etag)
            )
            if isinstance(swapped, Written):
                return tries

    return write


KINDS: dict[str, Callable[[str], Write]] = {"append": append_writer, "bare": bare_writer}


def _process(
    kind: str, name: str, seconds: float, start: Barrier, found: multiprocessing.Queue[Measured]
) -> None:
    write = KINDS[kind](name)
    start.wait(START_SECONDS)
    found.put(keep_writing(write, seconds))


def in_processes(kind: str, name: str, writers: int, seconds: float) -> Measured:
    # Forked from a process that has imported all: forty that import side by side take minutes.
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(["inlay", "inlay.storage.s3", "pyarrow.parquet"])
    start, found = forking.Barrier(writers), forking.Queue()
    running = [
        forking.Process(target=_process, args=(kind, name, seconds, start, found), daemon=True)
        for _ in range(writers)
    ]
    for each in running:
        each.start()
    total = Measured()
    for _ in running:
        total.add(found.get(timeout=START_SECONDS + 10 * seconds))
    for each in running:
        each.join()
    return total


def in_threads(name: str, writers: int, seconds: float, *, together: bool) -> Measured:
    def one() -> None:
        ctx = inlay.connect(f"s3://{BUCKET}/{name}")
        table = inlay.open(ctx.uri, context=ctx if together else replace(ctx, turns=Turns()))
        start.wait()
        done = keep_writing(lambda: table.append(ROW).attempts, seconds)
        with lock:
            total.add(done)

    total, lock, start = Measured(), threading.Lock(), threading.Barrier(writers)
    running = [threading.Thread(target=one) for _ in range(writers)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    return total


@contextmanager
def server() -> Iterator[None]:
    from inlay.local.aws_process import AwsProcess  # slow to import: only here, not in each writer

    with AwsProcess(["s3"], latency_ms=LATENCY_MS) as aws:
        os.environ.update(aws.env())
        S3Store(BUCKET).client.create_bucket(Bucket=BUCKET)
        yield


def new_table(kind: str, name: str) -> None:
    if kind == "bare":
        S3Store(BUCKET).put(f"{name}/pointer", BODY)
    else:
        inlay.create(f"s3://{BUCKET}/{name}", ROW.schema)


def check(name: str, found: Measured) -> None:
    """Every append that was acknowledged is there, once."""
    rows = inlay.open(f"s3://{BUCKET}/{name}").count()
    if rows != len(found.took) and not found.failed:
        raise SystemExit(f"{name}: {len(found.took)} appends were acknowledged, {rows} are there")


def line(what: str, found: Measured, baseline: Measured | None) -> None:
    ratio = "" if baseline is None else f"{found.rate / baseline.rate:6.2f}"
    print(
        f"{what:<24} {found.rate:9.1f} {found.at(0.5):8.3f} {found.at(0.99):8.3f} {found.at(1):8.3f}"
        f" {found.tries / max(1, len(found.took)):7.1f} {found.failed:6} {ratio:>7}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--writers", default="1,4,8,16", help="numbers of processes")
    parser.add_argument("--crowd", action="store_true", help="40 processes as well")
    parser.add_argument("--threads", type=int, default=16, help="threads of one process; 0: none")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    options = parser.parse_args()
    counts = [int(n) for n in options.writers.split(",") if n] + [40] * options.crowd

    print(f"{LATENCY_MS:.0f} ms a request, {options.seconds:.0f} s each; times in seconds")
    print(f"{'writers':<24} {'commits/s':>9} {'median':>8} {'p99':>8} {'worst':>8}", end="")
    print(f" {'tries':>7} {'failed':>6} {'ratio':>7}")
    with server():
        for count in counts:
            found: dict[str, Measured] = {}
            for kind in ("bare", "append"):
                name = f"{kind}-{count}"
                new_table(kind, name)
                found[kind] = in_processes(kind, name, count, options.seconds)
                line(f"{count} processes, {kind}", found[kind], found["bare"])
            check(f"append-{count}", found["append"])
        if options.threads:
            measured: dict[bool, Measured] = {}
            for together in (False, True):
                name = f"threads-{together}"
                new_table("append", name)
                found_here = in_threads(name, options.threads, options.seconds, together=together)
                measured[together] = found_here
                how = "sharing swaps" if together else "each alone"
                line(f"{options.threads} threads, {how}", found_here, measured[False])
                check(name, found_here)


if __name__ == "__main__":
    main()
