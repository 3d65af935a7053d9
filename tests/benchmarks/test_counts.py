"""The benchmarks, on a small table: what they count is the same as what `docs/benchmarks` says.

`make bench-counts` writes them again when a change is meant.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from counting_server import CountingServer, Logged, usage_of  # noqa: E402


def test_requests_are_those_that_are_stored() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "bench.py", "--counts"]
    path = {"PYTHONPATH": str(ROOT / "layers" / "inlay")}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **path})
    assert done.returncode == 0, done.stderr[-2000:]
    stored = json.loads((ROOT / "docs" / "benchmarks" / "counts.json").read_text("utf-8"))
    assert json.loads(done.stdout) == stored


@pytest.mark.parametrize(
    ("spans", "depth"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 2), (1, 3)], 1),
        ([(0, 1), (1, 2), (1, 4), (2, 3)], 3),
        ([(0, 5), (1, 2), (3, 4), (5, 6)], 3),
    ],
)
def test_depth_is_the_longest_chain(spans: list[tuple[float, float]], depth: int) -> None:
    log = [Logged("GetObject", "k", 0, 1, began, ended) for began, ended in spans]
    assert usage_of(log).depth == depth


def test_the_server_counts_and_keeps_conditions() -> None:
    with CountingServer() as server:

        def send(method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            request = urllib.request.Request(
                server.endpoint + path, data=body or None, method=method, headers=named
            )
            try:
                with urllib.request.urlopen(request) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, b""

        assert send("PUT", "/b/k", b"0123456789", If_None_Match="*")[0] == 200
        assert send("PUT", "/b/k", b"other", If_None_Match="*")[0] == 412
        assert send("GET", "/b/k", Range="bytes=2-4") == (206, b"234")
        assert send("GET", "/b/k", Range="bytes=-3") == (206, b"789")
        assert send("GET", "/b/none")[0] == 404
        used = server.usage()
        assert used.requests == {"PutObject": 2, "GetObject": 3}
        assert (used.bytes_up, used.depth) == (15, 5)
        assert used.bytes_down >= 6
        server.clear()
        assert server.usage().total == 0
        server.set_latency(30)
        started = time.monotonic()
        send("GET", "/b/k")
        assert time.monotonic() - started >= 0.03
