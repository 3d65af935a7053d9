"""What reading waits for and computes: requests, bytes, waves and CPU, beside the limit of each.

    python benchmarks/reading.py --write       # docs/benchmarks/reading.md; `make bench` does that
    python benchmarks/reading.py --joined      # besides: how far apart ranges may be to come by one request

TPC-H lineitem as `bench.py` has it, each request answered after 20 ms. Requests and bytes are exact; waves
are the longest chain of requests that the server saw, at least one more where the machine is busy; CPU is
of this process (user and system), wall the least of `--repeat`.

Ranges of a file are joined over the gaps that `parquet.read.ranges.NETWORK` makes worth it: `--joined`
asks, at three latencies and 90 MB/s of each connection, for the ten rows with the highest price by what
latency may be taken to be, and for a row of smaller files by its key by how near is one request.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
import page
from bench import FILES, KEY, SF1_ROWS, Asked, fill, lineitem, uri
from counting_server import CountingServer, Measured
from inlay.engine import Got
from inlay.local.stack import environment
from inlay.parquet.read import ranges

STORED = "reading.json"
PAGE = page.PLACE / "reading.md"
LATENCY_MS = 20.0
# Network by the latency that ranges are joined for, in ms; 0 joins over no gap but the smallest.
JOINED_FOR = (0, 5, 20, 100)
# Bytes over which ranges are one request, also where a connection is free for each.
NEAR = (0, 16_000, ranges.GAP_BYTES, 64_000, 256_000)
# A table of smaller files: rows, files.
SMALL, SMALL_ROWS, SMALL_FILES = "small", 120_000, 2
TOP_10 = {"order_by": "l_extendedprice DESC", "limit": 10}

# What is measured: what was to be reached, and what is in the way where it is not.
ROWS = {
    "top 10 by a value": (
        "60 requests, 15 MB",
        """a row of 16 columns is in 16 places of a file, and these ten are in ten files: the pointer, the
ends of eleven files, then at once the pages of all columns that bounds promise most of, joined over gaps
that take longer to wait for than to fetch. These are 268 places, with dictionaries: joined over the
smallest gaps, whatever file they are in, 96 requests take 14.3 MB, 60 take 25.7, 40 take 35 (last table
but one). With
`write.row_group_bytes` of 4 MB it is 41 requests and 11.6 MB, two columns are 181 requests in place of 61,
and the count below 182 in place of 62.""",
    ),
    ".02 % of rows, everywhere": (
        ".6 s of CPU",
        """of the pages two in three have such a row, so all is fetched, and decoded by Arrow, which cannot
skip values within a page. Texts with a dictionary are read as references to it. To hand Arrow only the two
pages in three takes as much CPU: what it spares goes into putting these together. What Arrow alone takes is
in the second table.""",
    ),
    "all columns": (
        "as pyarrow",
        """what Arrow alone takes is in the second table. Rows are decoded into, and kept in, memory of the
system's allocator; `ARROW_DEFAULT_MEMORY_POOL` or `pyarrow.set_memory_pool` choose another. These 1.2 GB
take it .2 to .6 s of system time, jemalloc .7, Arrow's default, mimalloc, 1.7 to 3.""",
    ),
    "point by key": (
        "3 waves, 18 requests, .3 MB",
        """the pointer, the end of two files (the key's rows are at a border of two here), a page of each
column in each. With 60,000 rows in a file it is 16 requests and .28 MB (last table).""",
    ),
    "delete of one key in 60": (
        "",
        "100,000 keys. The goal was .25 MB; Lance sends .20, and reads 14.6.",
    ),
    "count under these keys": (
        "25 requests, 4 waves",
        """the pointer, the keys, the end of each file and its two key columns, 1.1 MB apart in it: as one
range they would be 42 requests and 26 MB. Fewer would need the key beside the footer, or to know whether a
key is in a file without looking; keys are not enforced.""",
    ),
}


def scanned(**asked: Any) -> Callable[[], int]:
    return lambda: int(inlay.open(uri()).scan(**asked).to_arrow().num_rows)


def least(server: CountingServer, action: Callable[[], int], repeat: int) -> Measured:
    """The least of CPU, wall and waves."""
    found = [server.measure(action) for _ in range(repeat)]
    names = ("cpu_s", "wall_s", "depth")
    return replace(
        found[-1], **{name: min(getattr(each, name) for each in found) for name in names}
    )


def asked(server: CountingServer, data: pa.Table, repeat: int) -> Iterator[tuple[str, Measured]]:
    of = Asked.of(data)
    actions = {
        "top 10 by a value": scanned(**TOP_10),
        ".02 % of rows, everywhere": scanned(where=f"l_partkey < {of.parts}"),
        "all columns": scanned(),
        "point by key": scanned(where=f"l_orderkey = {of.key}"),
    }
    for name, action in actions.items():
        action()
        yield name, least(server, action, repeat)
    keys = data.select(KEY).take(pa.array(range(0, data.num_rows, 60)))
    table = inlay.open(uri())
    yield "delete of one key in 60", server.measure(lambda: table.delete(keys=keys) and 0)
    yield "count under these keys", least(server, lambda: int(inlay.open(uri()).count()), repeat)


# -- what Arrow takes for the same chunks ---------------------------------------------------------


def decoded(data: pa.Table) -> dict[str, float]:
    """CPU of pyarrow alone, from memory, in one thread: of the same columns, least of three."""
    table = inlay.open(uri())
    store, objects = table._ctx.store, table._ctx.objects
    tasks = table.scan().plan.tasks
    found = [store.get(objects.source(task.file.key).key) for task in tasks]
    bodies = [got.body for got in found if isinstance(got, Got)]
    texts = [f.name for f in data.schema if pa.types.is_string(f.type) and f.name != "l_comment"]

    def read(columns: Sequence[str] | None = None, codes: Sequence[str] = ()) -> None:
        for body in bodies:
            pq.ParquetFile(
                pa.BufferReader(body),
                read_dictionary=list(codes),
                pre_buffer=False,
                page_checksum_verification=True,
            ).read(columns=columns, use_threads=False)

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())  # as scans do
    try:
        return {
            "all columns": _cpu(read),
            "all columns, four texts as references to their dictionaries": _cpu(
                lambda: read(codes=texts)
            ),
            "the column of the condition": _cpu(lambda: read(["l_partkey"])),
            "l_comment": _cpu(lambda: read(["l_comment"])),
        }
    finally:
        pa.set_memory_pool(before)


def _cpu(action: Callable[[], object]) -> float:
    found = []
    for _ in range(3):
        before = time.process_time()
        action()
        found.append(time.process_time() - before)
    return round(min(found), 3)


# -- a fresh process ------------------------------------------------------------------------------

STARTS = {
    "count": f"import inlay; inlay.open({uri()!r}).count()",
    "point by key": f"import inlay; inlay.open({uri()!r}).scan(where='l_orderkey = 3000000').to_arrow()",
    "import of inlay alone": "import inlay",
    "import of pyarrow, its compute functions and its reader": "import pyarrow.compute, pyarrow.parquet",
    "import of urllib3": "import urllib3",
    "import of botocore.session": "import botocore.session",
    "one GET by botocore": "import botocore.session as s; c = s.get_session().create_client('s3'); "
    "c.get_object(Bucket='bench', Key='lineitem/_latest_manifest')['Body'].read()",
    "one GET by boto3": "import boto3; "
    "boto3.client('s3').get_object(Bucket='bench', Key='lineitem/_latest_manifest')['Body'].read()",
}


def starts(server: CountingServer, repeat: int) -> dict[str, tuple[float, int]]:
    """CPU of a process that does only this, and its modules. Compiled before; boto3 where it is."""
    found = {}
    for name, program in STARTS.items():
        program += "; import os, sys; print(sum(os.times()[:2]), len(sys.modules))"
        runs = []
        for _ in range(repeat + 1):
            env = {**os.environ, **server.env(), "PYTHONDONTWRITEBYTECODE": ""}
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, env=env
            )
            if done.returncode == 0:
                seconds, modules = done.stdout.split()
                runs.append((float(seconds), int(modules)))
        if runs:
            found[name] = min(runs)
    return found


# -- how far apart ranges may be ------------------------------------------------------------------


def joined(
    server: CountingServer, latencies: Sequence[float], repeat: int
) -> Iterator[list[float]]:
    """Latency, what ranges are joined for, the gap in KB, requests, MB, wall."""
    for latency in latencies:
        server.set_latency(latency)
        for joined_for in JOINED_FOR:
            network = replace(ranges.NETWORK, latency_seconds=joined_for / 1_000)
            with mock.patch.object(ranges, "NETWORK", network):
                used = least(server, scanned(**TOP_10), repeat)
            yield [latency, joined_for, round(network.gap_bytes / 1e3), *_cells(used)]
    server.set_latency(LATENCY_MS)


def near(
    server: CountingServer, data: pa.Table, latencies: Sequence[float], repeat: int
) -> Iterator[list[float]]:
    """Latency, KB over which ranges are one request, requests, MB, wall: of a row by its key."""
    if not latencies:
        return
    rows = data.slice(0, SMALL_ROWS)
    fill(rows, SMALL_FILES, SMALL)
    key = rows["l_orderkey"][rows.num_rows * 3 // 4 + 1_000].as_py()

    def ask() -> int:
        found = inlay.open(uri(SMALL)).scan(where=f"l_orderkey = {key}")
        return int(found.to_arrow().num_rows)

    for latency in latencies:
        server.set_latency(latency)
        for gap in NEAR:
            with mock.patch.dict(ranges.merge_ranges.__kwdefaults__, gap=gap):
                used = least(server, ask, repeat)
            yield [latency, round(gap / 1e3), *_cells(used)]
    server.set_latency(LATENCY_MS)


def _cells(used: Measured) -> list[float]:
    return [used.requests, round(used.bytes_down / 1e6, 2), round(used.wall_s, 3)]


# -- the page -------------------------------------------------------------------------------------

HEAD = """# What reading waits for

Made by `benchmarks/reading.py --write` (`make bench` does that) of the figures in `reading.json`. {about}

Requests and MB are exact, and the same on each machine. Waves are the longest chain of requests that the
server saw, each begun after the one before was answered; on a busy machine there are more than latency
alone makes. CPU and wall are of this machine, good for ratios within the page. Beside other libraries,
with their waves: [Measurements](index.md), Queries."""
MODEL = """## How far apart ranges may be

`parquet.read.ranges.Network`: a first byte comes after 20 ms, 32 requests are waited for side by side, one
connection brings 90 MB/s and all of them 200, and for each request Python computes .3 ms, one after the
other. So where a connection is free for each range, those are one request that are {near} KB apart or less:
what is between them takes one connection as long as Python another request. A request that waits for a
connection takes as long as {gap} KB: where there are more ranges than connections, the nearest are joined
over gaps up to that. By S3's price fewer requests would be better still, up to 24 ms of a function of 1 GB
for a GET; where bytes leave the region a GET costs as much as 4 KB."""
NEAR_HEAD = """A row by its key of 60,000 rows and 16 columns in a file, by how near is one request: the
pointer, the end of a file and the pages. One connection brings 90 MB/s, here and above."""
FRESH = """## A fresh process

CPU from the interpreter's start to the answer, and modules: least of the runs. The goal for a count is
.25 s. Keys in variables, as here and in Lambda, need no botocore session and no client
(`storage/s3_environment.py`); a profile, or a role of the machine, does, which is the difference to the
line of botocore. The rest is urllib3 and this library's own modules; Arrow and numpy are not imported.

The goal for a point is .25 s of wall. Arrow, which imports numpy, is most of that; three waves are .07 s.
About a third of the rest is to make the classes of plain values that reading and conditions consist of,
half a millisecond each. What only commits is not imported, and nothing is collected meanwhile
(`inlay.lazy`)."""
GARBAGE = """## What garbage collection asks for

5,000 orphans and two expired archives take 20 requests. By arithmetic 12 of them are 6 pages of the listing
and 6 deletes, of 1,000 keys each; none of the others can go without a promise that goes with it:

{requests}

The goal of 14 would be without history, uploads, the last archive and the look, of which
[FORMAT.md](../FORMAT.md), section 11, requires the last two. Without history it is 18: one delete and one
version less. `inlay.open`, and a handle that moves on to what was committed, read the pointer once more.
`tests/maintenance/test_garbage.py` holds each of them."""
GARBAGE_ROWS = (
    ("1", "the pointer", "nobody knows what is needed"),
    ("2", "a version for each that is retained", "what it alone needs is deleted"),
    ("1", "uploads that never ended", "they stay for ever, and are paid for"),
    (
        "2",
        "the boundary: the archive of its base, as of every commit, and the swap",
        "a writer in progress commits an orphan that is being deleted",
    ),
    (
        "1",
        "the archive of the boundary's own version",
        "a pointer put back by one version forgets the boundary, and nobody notices",
    ),
    (
        "1",
        "a look at the pointer, right before the deletes",
        "so does one that was put back meanwhile; a new table at this place loses archives",
    ),
)


def page_of(stored: Mapping[str, Any]) -> str:
    rows = []
    limits = []
    for name, used in stored["rows"].items():
        goal, limit = ROWS[name]
        moved = used["bytes_up"] + used["bytes_down"]
        cells = [str(used["requests"]), f"{moved / 1e6:.2f}", str(used["depth"])]
        rows.append([name, *cells, f"{used['cpu_s']:.2f}", f"{used['wall_s']:.2f}", goal])
        if limit:
            limits.append(f"- **{name}**: {limit}")
    head = ["", "requests", "MB", "waves", "CPU s", "wall s", "goal"]
    parts = ["\n".join(page.table(head, rows)), "\n".join(limits)]
    parts += [
        "## Arrow's decoder alone\n\nThe same files from memory, in one thread, pages checked: CPU s.",
        "\n".join(page.table(["", "CPU s"], [[k, f"{v:.2f}"] for k, v in stored["arrow"].items()])),
        FRESH,
        "\n".join(
            page.table(
                ["", "CPU s", "modules"],
                [[k, f"{cpu:.2f}", str(modules)] for k, (cpu, modules) in stored["starts"].items()],
            )
        ),
        MODEL.format(
            near=round(ranges.NETWORK.near_bytes / 1e3), gap=round(ranges.NETWORK.gap_bytes / 1e3)
        ),
    ]
    if stored["joined"]:
        head = ["answered after, ms", "joined for, ms", "gap, KB", "requests", "MB", "wall, s"]
        found = [[f"{cell:g}" for cell in row] for row in stored["joined"]]
        parts.append("\n".join(page.table(head, found)))
        head = ["answered after, ms", "near, KB", "requests", "MB", "wall, s"]
        found = [[f"{cell:g}" for cell in row] for row in stored["near"]]
        parts += [NEAR_HEAD, "\n".join(page.table(head, found))]
    head = ["requests", "what for", "without it"]
    parts.append(GARBAGE.format(requests="\n".join(page.table(head, GARBAGE_ROWS))))
    return "\n\n".join([HEAD.format(about=stored["about"]), *parts]) + "\n"


def measure(
    server: CountingServer,
    data: pa.Table,
    files: int,
    *,
    repeat: int,
    latencies: Sequence[float],
) -> dict[str, Any]:
    """All figures, as they are stored."""
    server.set_stream(ranges.NETWORK.stream_bytes_a_second)
    apart = list(joined(server, latencies, repeat))
    beside = list(near(server, data, latencies, repeat))
    server.set_stream(0)
    arrow = decoded(data)
    fresh = starts(server, repeat)
    found = {name: asdict(used) for name, used in asked(server, data, repeat)}
    about = (
        f"TPC-H lineitem, {data.num_rows:,} rows in {files} files, each request answered after "
        f"{LATENCY_MS:g} ms; Python {platform.python_version()}, pyarrow {pa.__version__}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.0f}."
    )
    return {
        "about": about,
        "rows": found,
        "arrow": arrow,
        "starts": fresh,
        "joined": apart,
        "near": beside,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=SF1_ROWS)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--joined", type=float, nargs="*", help="latencies in ms; none: 5, 20, 100")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks/reading.md")
    options = parser.parse_args(arguments)
    data = lineitem(options.rows)
    latencies = () if options.joined is None else options.joined or (5.0, 20.0, 100.0)
    with CountingServer() as server, environment(server.env()):
        fill(data, options.files)
        server.set_latency(LATENCY_MS)
        stored = measure(server, data, options.files, repeat=options.repeat, latencies=latencies)
    text = page_of(stored)
    if options.write:
        (page.PLACE / STORED).write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
        PAGE.write_text(text, "utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
