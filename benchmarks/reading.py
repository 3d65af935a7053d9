"""What bounds reading: Arrow's decoder alone, a fresh process, small files, how large row groups are.

    python benchmarks/reading.py                  # `make bench` has it in docs/benchmarks

TPC-H lineitem as `bench.py` has it, each request answered after 20 ms. Requests and bytes are exact; CPU is
of this process (user and system), wall the least of `--repeat`.

Of files of a row: a scan of all, their requests by the same store, by urllib3 and by bare sockets, and
Arrow's reader of the same bytes, and of the same rows in files that are not compressed. Of smaller row
groups: what few rows with all columns take, and two columns of all rows.

How far apart ranges may be that are one request is measured by `python -m tests.measured.ranges`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import urllib3

import inlay
from counting_server import CountingServer, Measured
from data import FILES, KEY, SF1_ROWS, TWO, Asked, lineitem, parts, tiny_rows
from inlay.local.stack import environment
from libraries import Inlay

TABLE = "inlay"
URI = f"s3://bench/{TABLE}"
LATENCY_MS = 20.0
TOP_10 = {"order_by": "l_extendedprice DESC", "limit": 10}


def scanned(uri: str, **asked: Any) -> Callable[[], int]:
    return lambda: int(inlay.open(uri).scan(**asked).to_arrow().num_rows)


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
    ctx, tasks = inlay.connect(URI), inlay.open(URI).scan().plan.tasks
    got: list[Any] = [ctx.get(task.file.key) for task in tasks]
    bodies = [each.body for each in got]
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


def _cpu(action: Callable[[], object], repeat: int = 3) -> float:
    found = []
    for _ in range(repeat):
        before = time.process_time()
        action()
        found.append(time.process_time() - before)
    return round(min(found), 3)


# -- a fresh process ------------------------------------------------------------------------------

ARROW = "pyarrow.compute, pyarrow._parquet"  # what scans load of it
STARTS = {
    "count": f"import inlay; inlay.open({URI!r}).count()",
    "point by key": f"import inlay; inlay.open({URI!r}).scan(where='l_orderkey = 3000000').to_arrow()",
    "import of inlay alone": "import inlay",
    "import of pyarrow, its compute functions and its reader": f"import {ARROW}",
    "import of urllib3": "import urllib3",
    "import of botocore.session": "import botocore.session",
    "three GETs by a bare socket, one after the other, and these imports of pyarrow": "import os, socket; "
    "at = os.environ['AWS_ENDPOINT_URL'].rpartition('/')[2].split(':'); "
    "wire = socket.create_connection((at[0], int(at[1]))); "
    "[(wire.sendall(b'GET /bench/inlay/_latest_manifest HTTP/1.1\\r\\n\\r\\n'), wire.recv(1 << 16)) "
    f"for _ in range(3)]; import {ARROW}",
    "one GET by botocore": "import botocore.session as s; c = s.get_session().create_client('s3'); "
    "c.get_object(Bucket='bench', Key='inlay/_latest_manifest')['Body'].read()",
    "one GET by boto3": "import boto3; "
    "boto3.client('s3').get_object(Bucket='bench', Key='inlay/_latest_manifest')['Body'].read()",
}


def starts(server: CountingServer, repeat: int) -> dict[str, tuple[float, int, float]]:
    """CPU of a process that does only this, its modules, and wall from its start to its end: the run of the
    least wall. Compiled before; boto3 where it is."""
    found = {}
    for name, program in STARTS.items():
        program += "; import os, sys; print(sum(os.times()[:2]), len(sys.modules))"
        runs = []
        for _ in range(repeat + 1):
            env = {**os.environ, **server.env(), "PYTHONDONTWRITEBYTECODE": ""}
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, env=env
            )
            wall = round(time.perf_counter() - began, 3)
            if done.returncode == 0:
                seconds, modules = done.stdout.split()
                runs.append((round(float(seconds), 3), int(modules), wall))
        if runs:
            found[name] = min(runs, key=lambda run: run[2])
    return found


# -- files of one row -----------------------------------------------------------------------------

THREADS = 32


def small_files(server: CountingServer, files: int, repeat: int) -> dict[str, float]:
    """CPU in ms of each of `files` files of a row."""
    uri = "s3://bench/tiny"
    server.set_latency(0)
    table = inlay.create(uri, tiny_rows(1)[0].schema, primary_key=["id"])
    for rows in tiny_rows(files):
        table.append(rows)
    server.set_latency(LATENCY_MS)
    ctx = inlay.connect(uri)
    keys = [ctx.key(task.file.key) for task in inlay.open(uri).scan().plan.tasks]

    def side_by_side(get: Callable[[str], Any]) -> list[Any]:
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(get, keys))

    bodies = [got.body for got in side_by_side(ctx.store.get)]
    plain = [plainly_written(body) for body in bodies]
    pool = urllib3.PoolManager(maxsize=THREADS)
    bare = BareSockets(os.environ["AWS_ENDPOINT_URL"])
    place = f"{os.environ['AWS_ENDPOINT_URL']}/bench/"
    opened = inlay.open(uri)
    opened.scan().to_arrow()  # the files are so small that all of each is remembered

    def by_arrow(files: Sequence[bytes]) -> Callable[[], object]:
        return lambda: [
            pq.ParquetFile(pa.BufferReader(body), pre_buffer=False).read(use_threads=False)
            for body in files
        ]

    acts: Mapping[str, Callable[[], object]] = {
        "a scan of all": lambda: inlay.open(uri).scan().to_arrow(),
        "a scan again, which requests nothing": lambda: opened.scan().to_arrow(),
        "their requests alone, as scans send them": lambda: side_by_side(ctx.store.get),
        "their requests alone, by urllib3, not signed": lambda: side_by_side(
            lambda key: pool.request("GET", place + key).data
        ),
        "their requests alone, by bare sockets, not signed": lambda: side_by_side(bare.get),
        "pyarrow's reader alone, from memory": by_arrow(bodies),
        "the same of files that are neither compressed nor have dictionaries": by_arrow(plain),
    }
    return {name: round(1_000 * _cpu(act, repeat) / files, 3) for name, act in acts.items()}


def plainly_written(body: bytes) -> bytes:
    """The rows of a file, in one that needs no decompressor."""
    made = io.BytesIO()
    rows = pq.ParquetFile(pa.BufferReader(body)).read()
    pq.write_table(rows, made, compression="none", use_dictionary=False)
    return made.getvalue()


class BareSockets:
    """One for each thread: what the system and Python take for a request, and nothing else."""

    def __init__(self, endpoint: str) -> None:
        self._host, _, port = endpoint.rpartition("/")[2].partition(":")
        self._port = int(port)
        self._of_thread = threading.local()

    def get(self, key: str) -> bytes:
        wire = getattr(self._of_thread, "wire", None)
        if wire is None:
            wire = self._of_thread.wire = socket.create_connection((self._host, self._port))
        wire.sendall(f"GET /bench/{key} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        got = b""
        while (head := got.find(b"\r\n\r\n")) < 0:
            got += wire.recv(1 << 16)
        length = int(got[:head].rpartition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        while len(got) < head + 4 + length:
            got += wire.recv(1 << 16)
        return got[head + 4 :]


# -- how large row groups are ---------------------------------------------------------------------

GROUP_MIB = (16, 4, 2)


def by_groups(server: CountingServer, data: pa.Table, key: int, repeat: int) -> Iterator[list[Any]]:
    """MiB of a row group, what is asked, requests, MB, wall."""
    asked: Mapping[str, dict[str, Any]] = {
        "the ten rows with the highest price": TOP_10,
        "a row by its key": {"where": f"l_orderkey = {key}"},
        "2 of 16 columns": {"columns": TWO},
    }
    for mib in GROUP_MIB:
        uri = f"s3://bench/groups-{mib}"
        server.set_latency(0)
        table = inlay.create(
            uri,
            data.schema,
            primary_key=KEY,
            sort_by=KEY[0],
            properties={"write.row_group_bytes": str(mib << 20)},
        )
        for piece in parts(data, FILES):
            table.append(piece)
        server.set_latency(LATENCY_MS)
        for name, of in asked.items():
            yield [mib, name, *cells(least(server, scanned(uri, **of), repeat))]


def cells(used: Measured) -> list[float]:
    """Requests, MB, wall."""
    return [used.requests, round(used.bytes_down / 1e6, 2), round(used.wall_s, 3)]


def measure(
    server: CountingServer,
    data: pa.Table,
    *,
    repeat: int,
    files: int,
) -> Iterator[tuple[str, Any]]:
    """The figures, each when it is there."""
    yield "groups", list(by_groups(server, data, Asked.of(data).key, repeat))
    yield "arrow", decoded(data)
    yield "small_files", small_files(server, files, repeat)
    yield "starts", starts(server, repeat)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=SF1_ROWS)
    parser.add_argument("--files", type=int, default=1_000, help="of one row")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the figures, on the last line")
    options = parser.parse_args(arguments)
    data = lineitem(options.rows)
    figures: dict[str, Any] = {}
    with CountingServer() as server, environment(server.env()):
        Inlay(server.endpoint).fill(parts(data, FILES), TABLE)
        server.set_latency(LATENCY_MS)
        for name, figure in measure(
            server,
            data,
            repeat=options.repeat,
            files=options.files,
        ):
            figures[name] = figure
            print(f"{name}: {figure}", flush=True)
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
