"""A bank over three tables: processes that transfer money are killed by SIGKILL, and the sum never changes.

Each transfer takes an amount from one table and gives it to another, in one transaction under its own
request id; a killed process's successor repeats the one that was not acknowledged. Meanwhile and afterwards
the sum over the tables at one moment (`inlay.snapshot`) is what it was, and every transfer has both of its
halves. The control reads one table after the other, and must see money on its way.
"""

from __future__ import annotations

import multiprocessing
import random
import uuid
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from tests.simulation.test_processes import acknowledged

import inlay
from inlay.errors import InlayError

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

SCHEMA = pa.schema([("writer", pa.int64()), ("n", pa.int64()), ("amount", pa.int64())])
ACCOUNTS = 3
PROCESSES = 3
KILLS = 6
LIFE = (0.05, 1.0)
START_SECONDS = 120.0


def transfer(tables: list[inlay.Table], writer: int, n: int) -> None:
    rng = random.Random(f"{writer}/{n}")
    taken, given = rng.sample(tables, 2)
    amount = rng.randrange(1, 100)

    def row(value: int) -> pa.Table:
        return pa.table([[writer], [n], [value]], schema=SCHEMA)

    with inlay.transaction(request_id=f"{writer}/{n}") as tx:
        tx.append(taken, row(-amount))
        tx.append(given, row(amount))


def work(place: str, folder: Path, writer: int, once_more: bool, ready: object) -> None:
    tables = [inlay.open(f"{place}/{n}") for n in range(ACCOUNTS)]
    n = acknowledged(folder, writer)
    until = n + 1 if once_more else float("inf")
    ready.send(True)  # type: ignore[attr-defined]
    with (folder / str(writer)).open("ab", buffering=0) as noted:
        while n < until:
            try:
                transfer(tables, writer, n)
            except InlayError:
                continue  # whatever it was: the same request again
            noted.write(b"%d\n" % n)
            n += 1


def totals(tables: list[inlay.Table]) -> Counter[tuple[int, int]]:
    """By transfer, what has been taken and not been given."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for table in tables:
        rows = table.scan().to_arrow().to_pylist()
        for row in rows:
            found[row["writer"], row["n"]].append(row["amount"])
    return Counter({key: sum(a) for key, a in found.items() if sum(a) or len(a) != 2})


def test_killed_processes_lose_and_make_no_money(tmp_path, monkeypatch, capsys):
    from inlay.local.s3server import AwsProcess
    from inlay.storage.s3 import S3Store

    monkeypatch.setattr("inlay.ops.transaction.DEADLINE_SECONDS", 1)
    with AwsProcess(["s3"], latency_ms=10) as aws:
        for name, value in aws.env().items():
            monkeypatch.setenv(name, value)
        bucket = f"bank-{uuid.uuid4().hex}"
        S3Store(bucket).client.create_bucket(Bucket=bucket)
        place = f"s3://{bucket}/tables"
        for n in range(ACCOUNTS):
            inlay.create(f"{place}/{n}", SCHEMA)
        forking = multiprocessing.get_context("fork")
        inlay.create(f"memory://{uuid.uuid4().hex}/warm", SCHEMA).append(SCHEMA.empty_table())

        def start(writer: int, *, once_more: bool = False):
            ready, tell = forking.Pipe(duplex=False)
            args = (place, tmp_path, writer, once_more, tell)
            each = forking.Process(target=work, args=args, daemon=True)
            each.start()
            return each, ready

        rng, alive, cuts = random.Random(1), [start(w) for w in range(PROCESSES)], 0
        for killed in range(KILLS):
            victim = killed % PROCESSES
            process, ready = alive[victim]
            assert ready.poll(START_SECONDS), "a process does not start"
            process.join(rng.uniform(*LIFE))
            process.kill()  # SIGKILL
            process.join()
            alive[victim] = start(victim)
            try:
                seen = inlay.snapshot([f"{place}/{n}" for n in range(ACCOUNTS)])
            except InlayError:
                continue  # changed faster than they are read
            assert totals(seen) == {}
            cuts += 1
        for process, _ in alive:
            process.kill()
            process.join()
        last = [start(w, once_more=True) for w in range(PROCESSES)]
        for process, _ in last:
            process.join(START_SECONDS)
            assert process.exitcode == 0
        tables = [inlay.open(f"{place}/{n}") for n in range(ACCOUNTS)]
        assert totals(tables) == {}
        there = {
            (row["writer"], row["n"]) for t in tables for row in t.scan().to_arrow().to_pylist()
        }
        made = {(w, n) for w in range(PROCESSES) for n in range(acknowledged(tmp_path, w))}
        assert there == made
        assert all(t.maintain.verify().ok for t in tables)
        assert cuts
        assert len(made) > KILLS
        # A transfer between two reads: what one who reads one table after the other may see.
        first = inlay.open(f"{place}/0")
        moved = 0
        while totals([first, *(inlay.open(f"{place}/{n}") for n in range(1, ACCOUNTS))]) == {}:
            transfer(tables, PROCESSES, moved)
            moved += 1
            assert moved < 100
    with capsys.disabled():
        print(f"\n{KILLS} processes killed, {len(made)} transfers acknowledged, {cuts} cuts read")
