"""How far apart ranges of a file may be that are one request: requests, bytes and wall, at three latencies.

    python -m tests.measured.ranges               # `make bench` has it in docs/benchmarks

Ranges of a file are joined over the gaps that `parquet.read.ranges.NETWORK` makes worth it: asked are, at
three latencies and 90 MB/s of each connection, the ten rows with the highest price by what latency may be
taken to be, and a row of smaller files by its key by how near is one request. TPC-H lineitem as the
benchmarks have it; wall is the least of `--repeat`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from inlay.local.stack import environment
from inlay.parquet.read import ranges

# Server, rows and queries are those of the benchmarks.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from counting_server import CountingServer
from data import FILES, SF1_ROWS, lineitem, parts
from libraries import Inlay
from reading import TABLE, TOP_10, URI, cells, least, scanned
from shapes import SMALL_FILES, SMALL_ROWS

# Network by the latency that ranges are joined for, in ms; 0 joins over no gap but the smallest.
JOINED_FOR = (0, 5, 20, 100)
# Bytes over which ranges are one request, also where a connection is free for each.
NEAR = (0, 16_000, ranges.GAP_BYTES, 64_000, 256_000)


def joined(
    server: CountingServer, latencies: Sequence[float], repeat: int
) -> Iterator[list[float]]:
    """Latency, what ranges are joined for, the gap in KB, requests, MB, wall."""
    for latency in latencies:
        server.set_latency(latency)
        for joined_for in JOINED_FOR:
            network = replace(ranges.NETWORK, latency_seconds=joined_for / 1_000)
            with mock.patch.object(ranges, "NETWORK", network):
                used = least(server, scanned(URI, **TOP_10), repeat)
            yield [latency, joined_for, round(network.gap_bytes / 1e3), *cells(used)]


def near(
    server: CountingServer, data: pa.Table, latencies: Sequence[float], repeat: int
) -> Iterator[list[float]]:
    """Latency, KB over which ranges are one request, requests, MB, wall: of a row by its key."""
    rows = data.slice(0, SMALL_ROWS)
    server.set_latency(0)
    Inlay(server.endpoint).fill(parts(rows, SMALL_FILES), "small")
    key = rows["l_orderkey"][rows.num_rows * 3 // 4 + 1_000].as_py()
    for latency in latencies:
        server.set_latency(latency)
        for gap in NEAR:
            with mock.patch.dict(ranges.merge_ranges.__kwdefaults__, gap=gap):
                asked = scanned("s3://bench/small", where=f"l_orderkey = {key}")
                used = least(server, asked, repeat)
            yield [latency, round(gap / 1e3), *cells(used)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=SF1_ROWS)
    parser.add_argument("--latencies", type=float, nargs="+", default=[5.0, 20.0, 100.0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the figures, on the last line")
    options = parser.parse_args()
    data = lineitem(options.rows)
    network = ranges.NETWORK
    figures: dict[str, Any] = {
        "near_kb": round(network.near_bytes / 1e3),
        "gap_kb": round(network.gap_bytes / 1e3),
    }
    with CountingServer() as server, environment(server.env()):
        Inlay(server.endpoint).fill(parts(data, FILES), TABLE)
        server.set_stream(network.stream_bytes_a_second)
        figures["joined"] = list(joined(server, options.latencies, options.repeat))
        figures["near"] = list(near(server, data, options.latencies, options.repeat))
    for name, figure in figures.items():
        print(f"{name}: {figure}", flush=True)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
