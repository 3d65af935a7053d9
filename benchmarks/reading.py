"""How far apart ranges of a file may be to come by one request, measured against the model that decides it.

    python benchmarks/reading.py [--rows 6001215] [--latency-ms 5 20 100]

The ten rows of lineitem with the highest price, all columns, of a table just opened, by what
`parquet.read.ranges.NETWORK` may be taken to be: ranges are joined over the gaps that each latency makes
worth it, or never beyond `GAP_BYTES` ("none"). Requests and bytes are exact; wall is the median of
`--repeat`, and good for ratios within a row of the table.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any
from unittest import mock

import inlay
from bench import FILES, SF1_ROWS, fill, lineitem, uri
from counting_server import CountingServer, Measured
from inlay.local.stack import environment
from inlay.parquet.read import ranges

# Network by the latency that ranges are joined for, in ms; 0 joins over no gap but the smallest.
JOINED_FOR = (0, 5, 20, 100)


def top_10() -> int:
    asked: dict[str, Any] = {"order_by": "l_extendedprice DESC", "limit": 10}
    return int(inlay.open(uri()).scan(**asked).to_arrow().num_rows)


def measure(server: CountingServer, joined_for: float, repeat: int) -> tuple[Measured, float]:
    network = ranges.Network(latency_seconds=joined_for / 1_000)
    with mock.patch.object(ranges, "NETWORK", network):
        found = [server.measure(top_10) for _ in range(repeat)]
    return found[-1], statistics.median(each.wall_s for each in found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=SF1_ROWS)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--latency-ms", type=float, nargs="*", default=[5, 20, 100])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(arguments)
    data = lineitem(options.rows)
    print("| answered after | joined for | gap, KB | requests | MB | wall, s |")
    print("|---|---|---|---|---|---|")
    for latency in options.latency_ms:
        with CountingServer(latency) as server, environment(server.env()):
            fill(data, options.files)
            top_10()
            for joined_for in JOINED_FOR:
                used, wall = measure(server, joined_for, options.repeat)
                gap = ranges.Network(latency_seconds=joined_for / 1_000).gap_bytes
                print(
                    f"| {latency:g} ms | {f'{joined_for} ms' if joined_for else 'none'} "
                    f"| {max(gap, ranges.GAP_BYTES) / 1e3:.0f} | {used.requests} "
                    f"| {used.bytes_down / 1e6:.1f} | {wall:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
