"""What bounds reading: Arrow's decoder alone, what a fresh process imports, how far apart ranges may be.

    python benchmarks/reading.py                  # `make bench` has it in docs/benchmarks

TPC-H lineitem as `bench.py` has it, each request answered after 20 ms. Requests and bytes are exact; CPU is
of this process (user and system), wall the least of `--repeat`.

Ranges of a file are joined over the gaps that `parquet.read.ranges.NETWORK` makes worth it: asked are, at
three latencies and 90 MB/s of each connection, the ten rows with the highest price by what latency may be
taken to be, and a row of smaller files by its key by how near is one request.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from counting_server import CountingServer, Measured
from data import FILES, SF1_ROWS, lineitem, parts
from inlay.engine import Got
from inlay.local.stack import environment
from inlay.parquet.read import ranges
from libraries import Inlay
from shapes import SMALL_FILES, SMALL_ROWS

TABLE = "inlay"
URI = f"s3://bench/{TABLE}"
LATENCY_MS = 20.0
# Network by the latency that ranges are joined for, in ms; 0 joins over no gap but the smallest.
JOINED_FOR = (0, 5, 20, 100)
# Bytes over which ranges are one request, also where a connection is free for each.
NEAR = (0, 16_000, ranges.GAP_BYTES, 64_000, 256_000)
TOP_10 = {"order_by": "l_extendedprice DESC", "limit": 10}


def scanned(**asked: Any) -> Callable[[], int]:
    return lambda: int(inlay.open(URI).scan(**asked).to_arrow().num_rows)


def least(server: CountingServer, action: Callable[[], int], repeat: int) -> Measured:
    """The least of CPU, wall and waves."""
    found = [server.measure(action) for _ in range(repeat)]
    names = ("cpu_s", "wall_s", "depth")
    return replace(
        found[-1], **{name: min(getattr(each, name) for each in found) for name in names}
    )


# -- what Arrow takes for the same chunks ---------------------------------------------------------


def decoded(data: pa.Table) -> dict[str, float]:
    """CPU of pyarrow alone, from memory, in one thread: of the same columns, least of three."""
    table = inlay.open(URI)
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
    "count": f"import inlay; inlay.open({URI!r}).count()",
    "point by key": f"import inlay; inlay.open({URI!r}).scan(where='l_orderkey = 3000000').to_arrow()",
    "import of inlay alone": "import inlay",
    "import of pyarrow, its compute functions and its reader": "import pyarrow.compute, pyarrow.parquet",
    "import of urllib3": "import urllib3",
    "import of botocore.session": "import botocore.session",
    "one GET by botocore": "import botocore.session as s; c = s.get_session().create_client('s3'); "
    "c.get_object(Bucket='bench', Key='inlay/_latest_manifest')['Body'].read()",
    "one GET by boto3": "import boto3; "
    "boto3.client('s3').get_object(Bucket='bench', Key='inlay/_latest_manifest')['Body'].read()",
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
    Inlay(server.endpoint).fill(parts(rows, SMALL_FILES), "small")
    key = rows["l_orderkey"][rows.num_rows * 3 // 4 + 1_000].as_py()

    def ask() -> int:
        found = inlay.open("s3://bench/small").scan(where=f"l_orderkey = {key}")
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


def measure(
    server: CountingServer, data: pa.Table, *, repeat: int, latencies: Sequence[float]
) -> Iterator[tuple[str, Any]]:
    """The figures, each when it is there."""
    network = ranges.NETWORK
    yield "near_kb", round(network.near_bytes / 1e3)
    yield "gap_kb", round(network.gap_bytes / 1e3)
    server.set_stream(network.stream_bytes_a_second)
    yield "joined", list(joined(server, latencies, repeat))
    yield "near", list(near(server, data, latencies, repeat))
    server.set_stream(0)
    yield "arrow", decoded(data)
    yield "starts", starts(server, repeat)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=SF1_ROWS)
    parser.add_argument("--latencies", type=float, nargs="*", default=[5.0, 20.0, 100.0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the figures, on the last line")
    options = parser.parse_args(arguments)
    data = lineitem(options.rows)
    figures: dict[str, Any] = {}
    with CountingServer() as server, environment(server.env()):
        Inlay(server.endpoint).fill(parts(data, FILES), TABLE)
        server.set_latency(LATENCY_MS)
        for name, figure in measure(
            server, data, repeat=options.repeat, latencies=options.latencies
        ):
            figures[name] = figure
            print(f"{name}: {figure}", flush=True)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
