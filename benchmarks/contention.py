"""What contention costs: many writers appending to one table, against the barest loop there is.

    python benchmarks/contention.py                               # 1, 4, 8, 16 processes, 16 threads
    python benchmarks/contention.py --crowd                       # 40 processes as well
    python benchmarks/contention.py --swaps 15                    # as many swaps of a key as S3 takes
    python benchmarks/contention.py --busy 30                     # beside 30 processes that compute
    python benchmarks/contention.py --writers 16 --threads 0 --rounds 3 --peers    # and other libraries
    python benchmarks/contention.py --transactions --writers 1,4,8 --rounds 3

The embedded S3 answers after 20 ms. Each writer appends one row after another for some seconds, in a
process that was started for this measurement and has written once: it has imported what it needs, and is
connected. The loops it is held to send as many bytes without a table, by urllib3, signed by botocore; a
request of theirs takes about as much CPU as one of the library's store (within a tenth):

    bare       GET the pointer, PUT an object, PUT the pointer If-Match; at once again when that was refused
    archiving  the same, with the archive of the base (If-None-Match: *) beside the object: what any
               writer of this format must send, and contended like the pointer

With `--transactions` each writer appends a row to each of two tables by one transaction, held to appends
to one table in the same round; and once more beside a writer that appends to one of the two alone: its
waits are what transactions cost others.

Requests are counted at the server. Each round measures all loops one after the other, on tables of its own;
with several rounds the medians of the ratios within a round are printed as well. Writers and server share
this machine's cores: a round during which they are busy with something else says little. With `--peers`
the libraries whose tables many processes may append to by S3's conditions alone do so, too, as they do by
default.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import inlay
from bench import HERE, peers_python
from inlay.engine import POINTER, Context, open_store
from inlay.errors import InlayError

if TYPE_CHECKING:
    from inlay.local.s3server import AwsProcess

BUCKET = "contention"
LATENCY_MS = 20.0
# A pointer is about this long on the wire.
BODY = os.urandom(2_000)
ROW = pa.table({"id": pa.array([1], pa.int64())})
# Of `libraries.py`: those whose tables many processes may append to by S3's conditions alone.
PEERS = ("deltalake", "lance")
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
    cpu_seconds: float = 0.0  # of the writers' processes
    requests: Counter[str] = field(default_factory=Counter)  # of all, by what was asked for

    @property
    def requests_each(self) -> float:
        return self.requests.total() / max(1, len(self.took))

    @property
    def rate(self) -> float:
        return len(self.took) / self.seconds

    @property
    def cpu_ms_each(self) -> float:
        return 1_000 * self.cpu_seconds / max(1, len(self.took))

    def at(self, share: float) -> float:
        ordered = sorted(self.took)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def add(self, other: Measured) -> None:
        self.seconds = max(self.seconds, other.seconds)
        self.took += other.took
        self.tries += other.tries
        self.failed += other.failed
        self.cpu_seconds += other.cpu_seconds


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


class Line:
    """Requests to the bucket by urllib3, signed by botocore: nothing else is around them."""

    def __init__(self) -> None:
        self._origin = os.environ["AWS_ENDPOINT_URL"]
        self._pool = urllib3.connection_from_url(self._origin, maxsize=2)
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        keys = Credentials(*(os.environ[name] for name in names))
        self._auth = S3SigV4Auth(keys, "s3", os.environ["AWS_REGION"])

    def ask(self, method: str, key: str, body: bytes = b"", **headers: str) -> Any:
        """urllib3's answer. Names of headers have underscores for hyphens."""
        path = f"/{BUCKET}/{key}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = AWSRequest(method, self._origin + path, named, body)
        self._auth.add_auth(request)
        signed = dict(request.headers.items())
        return self._pool.urlopen(method, path, body=body, headers=signed, retries=False)


def bare_writer(name: str, *, archiving: bool = False) -> Write:
    line = Line()
    pointer = f"{name}/{POINTER}"
    pool = ThreadPoolExecutor(1)

    def write() -> int:
        tries = 0
        while True:  # ends: somebody wins each race
            tries += 1
            got = line.ask("GET", pointer)
            version = int.from_bytes(got.data[:8], "big")
            archived = None
            if archiving:
                key = f"{name}/manifest/v{version:08d}.json"
                archived = pool.submit(line.ask, "PUT", key, got.data, If_None_Match="*")
            line.ask("PUT", f"{name}/data/{uuid.uuid4()}", BODY)
            if archived is not None:
                archived.result()  # another's is as good
            new = (version + 1).to_bytes(8, "big") + BODY + os.urandom(16)
            put = line.ask("PUT", pointer, new, If_Match=got.headers["ETag"])
            if put.status == 200:
                return tries
            if put.status not in (409, 412):
                raise RuntimeError(f"the swap was answered by {put.status}")

    return write


def transaction_writer(name: str) -> Write:
    tables = [inlay.open(f"s3://{BUCKET}/{name}{side}") for side in ("", OTHER)]

    def write() -> int:
        with inlay.transaction() as tx:
            for table in tables:
                tx.append(table, ROW)
        return max(result.attempts for result in tx.results)

    return write


KINDS: dict[str, Callable[[str], Write]] = {
    "bare": bare_writer,
    "archiving": partial(bare_writer, archiving=True),
    "append": append_writer,
}
TRANSACTION = "transaction"
OTHER = "-other"


def _process(
    kind: str, name: str, seconds: float, start: Barrier, found: multiprocessing.Queue[Measured]
) -> None:
    write = transaction_writer(name) if kind == TRANSACTION else KINDS[kind](name)
    write()  # imports and connects
    start.wait(START_SECONDS)
    spent = time.process_time()
    done = keep_writing(write, seconds)
    done.cpu_seconds = time.process_time() - spent
    found.put(done)


def in_processes(aws: AwsProcess, kind: str, name: str, writers: int, seconds: float) -> Measured:
    """Of writers that have each written once before they begin together."""
    # Forked from a process that has imported all: forty that import side by side take minutes.
    forking = multiprocessing.get_context("forkserver")
    # (`pyarrow.array` imports pandas, where there is one.)
    forking.set_forkserver_preload(
        ["inlay.table", "inlay.ops.write.append", "inlay.storage.s3", "pandas", "botocore.auth"]
    )
    start, found = forking.Barrier(writers + 1), forking.Queue()
    running = [
        forking.Process(target=_process, args=(kind, name, seconds, start, found), daemon=True)
        for _ in range(writers)
    ]
    for each in running:
        each.start()
    start.wait(START_SECONDS)
    counted(aws)
    total = Measured()
    for _ in running:
        total.add(found.get(timeout=START_SECONDS + 10 * seconds))
    for each in running:
        each.join()
    total.requests = counted(aws)
    return total


def transactions(aws: AwsProcess, count: int, number: int, seconds: float) -> dict[str, Measured]:
    """Two tables by one transaction; and beside one that appends to one of the two alone."""
    alone, name = f"alone-{count}-{number}", f"both-{count}-{number}"
    for each in (alone, name, name + OTHER):
        new_table("append", each)
    one = in_processes(aws, "append", alone, count, seconds)
    line(f"{count} processes, append", one, None)
    two = in_processes(aws, TRANSACTION, name, count, seconds)
    line(f"{count} processes, two tables", two, one)
    check(name, two, before=count)
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(in_processes, aws, TRANSACTION, name, count, seconds)
        other = in_processes(aws, "append", name, 1, seconds)
        # Each takes what was sent until it ended, by both.
        other.requests += beside.result().requests
    line("  an append beside them", other, None)
    return {"append": one, TRANSACTION: two, "beside": other}


def in_threads(name: str, writers: int, seconds: float, *, together: bool) -> Measured:
    def one() -> None:
        ctx = inlay.connect(f"s3://{BUCKET}/{name}")
        if not together:
            ctx = Context(store=ctx.store, root=ctx.root, uri=ctx.uri, executor=ctx.executor)
        table = inlay.open(ctx.uri, context=ctx)
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


def of_peer(aws: AwsProcess, library: str, number: int, writers: int, seconds: float) -> Measured:
    """Another library's processes, each of which appends to one table."""
    name = f"{library}-{number}"
    command: list[str | Path] = [peers_python(), HERE / "libraries.py", "--writers", library]
    place = [aws.env()["AWS_ENDPOINT_URL"], f"s3://{BUCKET}/{name}"]
    process = subprocess.Popen(
        [*command, *place, str(writers), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        process.stdout.readline()  # they begin
        counted(aws)
        text = process.stdout.readline()
        requests = counted(aws)
    if process.returncode:
        raise SystemExit(f"{library} failed")
    total = Measured(requests=requests)
    for took, failed, cpu, lasted in json.loads(text):
        total.add(Measured(lasted, took, len(took), failed, cpu))
    return total


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Beside processes that only compute."""
    computing = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in computing:
            process.kill()
            process.wait()


@contextmanager
def server(latency_ms: float, swaps: float) -> Iterator[AwsProcess]:
    from inlay.local.s3server import AwsProcess  # slow to import: only here, not in each writer

    swap_ms = 1_000 / swaps if swaps else 0.0
    with AwsProcess(["s3"], latency_ms=latency_ms, swap_ms=swap_ms) as aws:
        os.environ.update(aws.env())
        store: Any = open_store(f"s3://{BUCKET}")[0]
        store.client.create_bucket(Bucket=BUCKET)
        yield aws


def new_table(kind: str, name: str) -> None:
    if kind == "append":
        inlay.create(f"s3://{BUCKET}/{name}", ROW.schema)
    else:
        store, _ = open_store(f"s3://{BUCKET}")
        store.put(f"{name}/{POINTER}", bytes(8) + BODY)


def check(name: str, found: Measured, *, before: int = 0) -> None:
    """Every append that was acknowledged is there, once, beside as many before them."""
    rows = inlay.open(f"s3://{BUCKET}/{name}").count() - before
    if rows != len(found.took) and not found.failed:
        raise SystemExit(f"{name}: {len(found.took)} appends were acknowledged, {rows} are there")


def counted(aws: AwsProcess) -> Counter[str]:
    """Requests since the last call, by method and kind of object, and those that were refused."""
    found = Counter[str]()
    for each in aws.requests():
        named = each.key.partition("/")[2]
        what = "pointer" if named == POINTER else named.partition("/")[0] or "bucket"
        refused = " refused" if each.status in (409, 412) else ""
        found[f"{each.method} {what}{refused}"] += 1
    aws.forget_requests()
    return found


HEADINGS = (
    *("writers", "commits/s", "median", "p99", "slowest", "tries", "requests", "CPU ms"),
    "failed",
)


def line(what: str, found: Measured, baseline: Measured | None) -> None:
    ratio = "" if baseline is None else f"{found.rate / baseline.rate:6.2f}"
    print(
        f"{what:<26} {found.rate:9.1f} {found.at(0.5):8.3f} {found.at(0.99):8.3f} {found.at(1):8.3f}"
        f" {found.tries / max(1, len(found.took)):8.1f} {found.requests_each:8.1f}"
        f" {found.cpu_ms_each:8.1f} {found.failed:8}"
        f" {ratio:>6}",
        flush=True,
    )


def ratios(found: Mapping[str, Measured], baseline: str) -> dict[str, float]:
    """Of the append to a loop in the same round."""
    append, loop = found["append"], found[baseline]
    return {
        "rate": append.rate / loop.rate,
        "requests": append.requests_each / loop.requests_each,
        "CPU": append.cpu_ms_each / loop.cpu_ms_each,
        "slowest": append.at(1) / loop.at(1),
    }


def figures_of(writers: int, found: Mapping[str, Measured]) -> list[dict[str, Any]]:
    return [
        {
            "writers": writers,
            "loop": kind,
            "commits_per_second": each.rate,
            "median": each.at(0.5),
            "slowest": each.at(1),
            "failed": each.failed,
            "requests_each": each.requests_each,
            "cpu_ms_each": each.cpu_ms_each,
            "requests": dict(each.requests),
        }
        for kind, each in found.items()
    ]


def measure(
    aws: AwsProcess, count: int, number: int, seconds: float, peers: Sequence[str] = ()
) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for kind in KINDS:
        name = f"{kind}-{count}-{number}"
        new_table(kind, name)
        found[kind] = in_processes(aws, kind, name, count, seconds)
        line(f"{count} processes, {kind}", found[kind], found["bare"])
    check(f"append-{count}-{number}", found["append"], before=count)
    for library in peers:
        found[library] = of_peer(aws, library, number, count, seconds)
        line(f"{count} processes, {library}", found[library], found["bare"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--writers", default="1,4,8,16", help="numbers of processes")
    parser.add_argument("--crowd", action="store_true", help="40 processes as well")
    parser.add_argument("--threads", type=int, default=16, help="threads of one process; 0: none")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument(
        "--transactions", action="store_true", help="over two tables, and only these"
    )
    parser.add_argument("--rounds", type=int, default=1, help="of all loops, for medians of ratios")
    parser.add_argument("--latency-ms", type=float, default=LATENCY_MS, help="of each request")
    parser.add_argument("--swaps", type=float, default=0.0, help="of a key a second; S3: 15")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside it")
    parser.add_argument("--peers", action="store_true", help="other libraries as well")
    parser.add_argument("--json", action="store_true", help="print every figure, on the last line")
    options = parser.parse_args()
    counts = [int(n) for n in options.writers.split(",") if n] + [40] * options.crowd

    print(f"{options.latency_ms:.0f} ms a request, {options.seconds:.0f} s each; times in seconds")
    print(f"{HEADINGS[0]:<26} {HEADINGS[1]:>9}", *(f"{h:>8}" for h in HEADINGS[2:]), " ratio")
    figures: list[dict[str, Any]] = []
    peers = PEERS if options.peers else ()
    with server(options.latency_ms, options.swaps) as aws, busy(options.busy):
        for count in counts if options.transactions else ():
            for number in range(options.rounds):
                figures += figures_of(count, transactions(aws, count, number, options.seconds))
        for count in () if options.transactions else counts:
            rounds = [measure(aws, count, n, options.seconds, peers) for n in range(options.rounds)]
            for found in rounds:
                figures += figures_of(count, found)
            for baseline in ("bare", "archiving"):
                of_all = [ratios(found, baseline) for found in rounds]
                middle = {k: statistics.median(r[k] for r in of_all) for k in of_all[0]}
                print(
                    f"{count} processes, append to {baseline}, median of {len(rounds)}:",
                    ", ".join(f"{k} {v:.2f}" for k, v in middle.items()),
                )
            commits = len(rounds[-1]["append"].took) or 1
            print("  requests of an append:", end=" ")
            each_kind = rounds[-1]["append"].requests.most_common()
            print(", ".join(f"{k} {n / commits:.1f}" for k, n in each_kind), flush=True)
        if options.threads and not options.transactions:
            measured: dict[bool, Measured] = {}
            for together in (False, True):
                name = f"threads-{together}"
                new_table("append", name)
                counted(aws)
                found_here = in_threads(name, options.threads, options.seconds, together=together)
                found_here.requests = counted(aws)
                measured[together] = found_here
                how = "sharing swaps" if together else "each alone"
                line(f"{options.threads} threads, {how}", found_here, measured[False])
                check(name, found_here)
    if options.json:
        print(json.dumps({"rows": figures}))


if __name__ == "__main__":
    main()
