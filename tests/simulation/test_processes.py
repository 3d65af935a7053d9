"""Real processes over HTTP, killed by SIGKILL at random moments.

Each process runs two threads that append one row after another, each under its own request id, and records
what was acknowledged in a file. The successor of a killed process repeats the request that was not
acknowledged, as a queue would deliver it again. Afterwards every acknowledged row is there once. The
control does the same with a pointer that is written without If-Match, and must be detected.

INLAY_TEST_S3_ENDPOINT (with the usual AWS credentials) runs it against another S3 as well.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import inlay
from inlay.errors import InlayError, KeyTaken
from inlay.format import keys
from inlay.ops.commit import driver as commit_module
from inlay.ops.commit import register as register_module

# Python 3.12 warns of forking beside threads; those of this process are idle.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

SCHEMA = pa.schema([("writer", pa.int64()), ("n", pa.int64())])
PROCESSES = 3
THREADS = 2
KILLS = 9
KILLING_SECONDS = 12.0  # at most
# A process lives this long, in seconds, once it has opened the table: some die before their first append
# lands, some after a few.
LIFE = (0.02, 0.9)
START_SECONDS = 60.0


def acknowledged(folder: Path, writer: int) -> int:
    """How many appends of this writer were acknowledged."""
    noted = folder / str(writer)
    return noted.read_bytes().count(b"\n") if noted.exists() else 0


def write_on(table: inlay.Table, folder: Path, writer: int, until: float) -> None:
    """Append row after row, from the first that was not acknowledged."""
    n = acknowledged(folder, writer)
    with (folder / str(writer)).open("ab", buffering=0) as noted:
        while n < until:
            try:
                row = pa.table([pa.array([v], pa.int64()) for v in (writer, n)], schema=SCHEMA)
                table.append(row, request_id=f"{writer}/{n}")
            except InlayError:
                continue  # whatever it was: the same request again
            noted.write(
                b"%d\n" % n
            )  # one small write: a killed process leaves all of it or nothing
            n += 1


def archive_without_a_look(ctx: Any, loaded: Any, wait: Any) -> int:
    with contextlib.suppress(KeyTaken):
        ctx.write_once(keys.archive_key(loaded.snapshot.version), loaded.raw)
    return int(loaded.date_us)


def live(uri: str, folder: Path, process: int, once_more: bool, locked: bool, ready: Any) -> None:
    if not locked:
        register_module.IfMatch = lambda etag: None  # type: ignore[assignment, misc]
        # Nor may the archive that a racer has written say that the base is superseded.
        commit_module.archive = archive_without_a_look
    threads = []
    for writer in range(process * THREADS, (process + 1) * THREADS):
        until = acknowledged(folder, writer) + 1 if once_more else float("inf")
        args = (inlay.open(uri), folder, writer, until)
        threads.append(threading.Thread(target=write_on, args=args, daemon=True))
    ready.send(True)
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def run(uri: str, folder: Path, seed: int, *, kills: int, locked: bool = True) -> int:
    """Start, kill and restart, then let each finish its request. How many were killed."""
    # Forked, so that they start at once: clients are one for each process, and nothing runs here.
    forking = multiprocessing.get_context("fork")
    rng = random.Random(seed)
    inlay.create(uri, SCHEMA)
    inlay.create(f"memory://{uuid.uuid4().hex}/warm", SCHEMA).append(SCHEMA.empty_table())

    def start(process: int, *, once_more: bool = False) -> tuple[Any, Any]:
        ready, tell = forking.Pipe(duplex=False)
        args = (uri, folder, process, once_more, locked, tell)
        each = forking.Process(target=live, args=args, daemon=True)
        each.start()
        return each, ready

    alive = [start(p) for p in range(PROCESSES)]
    killed, stop = 0, time.monotonic() + KILLING_SECONDS
    while killed < kills and (time.monotonic() < stop or killed < PROCESSES):
        victim = killed % PROCESSES
        process, ready = alive[victim]
        assert ready.poll(START_SECONDS), "a process does not start"
        process.join(rng.uniform(*LIFE))
        process.kill()  # SIGKILL
        process.join()
        killed += 1
        alive[victim] = start(victim)
    for process, _ in alive:
        process.kill()
        process.join()
    if locked:  # without the condition there is no table to continue from
        last = [start(p, once_more=True) for p in range(PROCESSES)]
        for process, _ in last:
            process.join(START_SECONDS)
            assert process.exitcode == 0
    return killed


def wrong(uri: str, folder: Path) -> list[str]:
    """What is not as it was acknowledged."""
    rows = inlay.open(uri).scan().to_arrow()
    found = Counter(zip(rows["writer"].to_pylist(), rows["n"].to_pylist(), strict=True))
    expected = {
        (writer, n)
        for writer in range(PROCESSES * THREADS)
        for n in range(acknowledged(folder, writer))
    }
    return [
        *(f"{row} was acknowledged and is lost" for row in sorted(expected - set(found))),
        *(f"{row} is there {times} times" for row, times in found.items() if times > 1),
        *(f"{row} is there and was not acknowledged" for row in sorted(set(found) - expected)),
    ]


@pytest.fixture(params=["embedded", "endpoint"])
def table_uri(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from inlay.local.s3server import AwsProcess
    from inlay.storage.s3 import S3Store

    bucket = f"killed-{uuid.uuid4().hex}"
    if request.param == "endpoint":
        endpoint = os.environ.get("INLAY_TEST_S3_ENDPOINT")
        if endpoint is None:
            pytest.skip("INLAY_TEST_S3_ENDPOINT is not set")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        store = S3Store(bucket)
        store.client.create_bucket(Bucket=bucket)
        yield f"s3://{bucket}/tables/t"
        store.delete([o.key for o in store.list("")])
        store.client.delete_bucket(Bucket=bucket)
        return
    # Slow enough that a process is killed between two requests as often as not.
    with AwsProcess(["s3"], latency_ms=10) as aws:
        for name, value in aws.env().items():
            monkeypatch.setenv(name, value)
        S3Store(bucket).client.create_bucket(Bucket=bucket)
        yield f"s3://{bucket}/tables/t"


def test_killed_processes_lose_nothing_and_apply_nothing_twice(table_uri, tmp_path, capsys):
    killed = run(table_uri, tmp_path, seed=1, kills=KILLS)
    assert wrong(table_uri, tmp_path) == []
    rows = sum(acknowledged(tmp_path, w) for w in range(PROCESSES * THREADS))
    with capsys.disabled():
        print(f"\n{killed} processes killed, {rows} appends acknowledged, each there once")


def test_without_the_condition_on_the_pointer_appends_are_lost(table_uri, tmp_path):
    run(table_uri, tmp_path, seed=2, kills=KILLS, locked=False)
    assert any("lost" in found for found in wrong(table_uri, tmp_path))
