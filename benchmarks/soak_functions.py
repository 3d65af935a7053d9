"""The deployed functions under everything that AWS may do to them: is each landed row there once?

    make soak MINUTES=10
    python benchmarks/soak_functions.py --minutes 10 --seed 1

On the local AWS, files land, groups of rows are deleted and people erased, all through the queues, while
the schedules run a minute for an hour. Function processes are killed at random, messages are sent twice
(deletes also long after, when new rows match them), and messages of landed files are stolen from the
queue: what no event brings in, the sweep of the landing zone has to find.

The truth is kept beside it: a group is deleted when all of its rows were seen in the table, and takes new
rows only when they were seen to be gone, so that every delete has one right outcome. At the end each table
must hold the rows it should, each once; every erasure must have its receipt; letters of ingest, delete and
erase are sent again, as an operator would, and must then be done. Prints the figures as JSON, with the lag
from landing to being read and the most memory of each function; exit code 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import inlay
from inlay.engine import EmbeddedS3
from inlay.errors import InlayError, StoreUnavailable
from inlay.functions.dead_letters import drop, read_letters, redrive
from inlay.local.runtime_api import Failed
from inlay.local.stack import LocalOptions, LocalStack, environment

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("value", pa.float64())])
TABLES = ("plain", "keyed", "shown")
GROUPS = 60
ROWS = 20
# Every so many seconds, on average, unless the machine is slower.
LAND, DELETE, ERASE, KILL, STEAL = 0.15, 1.0, 20.0, 5.0, 1.0
DOUBLE, SWEEP, COLLECT, LOOK = 0.5, 15.0, 20.0, 2.0
# No writer, reader or event here takes longer; what a deployment gives days.
GRACE_SECONDS, LIFE_SECONDS, SETTLE_SECONDS = 120.0, 40.0, 20.0
LETTERS = {"IngestQueue", "DeleteQueue", "EraseQueue"}


@dataclass(slots=True)
class Truth:
    """What one table must hold. `groups` are the rows of each group; a group that is being deleted is
    `closed`, and takes no rows until it was seen empty."""

    uri: str
    groups: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    landed: dict[int, float] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    closed: dict[int, set[int]] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)

    @property
    def rows(self) -> set[int]:
        return {each for group in self.groups.values() for each in group}


@dataclass(slots=True)
class Soak:
    stack: LocalStack
    rng: random.Random
    tables: dict[str, Truth] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    stopping: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    lags: list[float] = field(default_factory=list)
    memory: Counter[str] = field(default_factory=Counter)
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    ids: int = 0

    # -- what happens to the product ------------------------------------------------------------

    def land(self) -> None:
        name = self.rng.choice(TABLES)
        truth = self.tables[name]
        with self.lock:
            open_ = [g for g in range(GROUPS) if g not in truth.closed]
            group = self.rng.choice(open_)
            ids = range(self.ids, self.ids + ROWS)
            self.ids += ROWS
            truth.groups[group] |= set(ids)
            truth.landed |= dict.fromkeys(ids, time.monotonic())
        rows = pa.table({"id": list(ids), "part": [group] * ROWS, "value": [0.5] * ROWS}, SCHEMA)
        sink = io.BytesIO()
        pq.write_table(rows, sink)
        # Some keys are written over, by other rows: each version counts.
        key = f"ingest/{name}/{self.rng.randrange(5_000)}.parquet"
        body = sink.getvalue()
        written = self.stack.s3.put_object(Bucket=self.stack.bucket, Key=key, Body=body)
        put: dict[str, Any] = {**written, "Size": len(body), "LastModified": datetime.now(UTC)}
        said = EmbeddedS3.event_of(self.stack.bucket, key, put, version_id=put["VersionId"])
        with self.lock:
            self.files.append(dict(said))
        self.counts["landings"] += 1

    def delete(self) -> None:
        self._take("DeleteQueue", {"mode": self.rng.choice([None, "vector", "rewrite"])}, "deletes")

    def erase(self) -> None:
        self._take("EraseQueue", {"mode": "erase"}, "erasures")

    def _take(self, queue: str, more: dict[str, Any], what: str) -> None:
        truth = self.tables[name := self.rng.choice(TABLES)]
        with self.lock:
            whole = [
                g
                for g, ids in truth.groups.items()
                if ids and g not in truth.closed and ids <= truth.seen
            ]
            if not whole:
                return
            group = self.rng.choice(whole)
            truth.closed[group] = truth.groups.pop(group)
            self.counts[what] += 1
            request = f"{what}-{self.counts[what]}"
            asked = {"id": request, "table": name, "where": f"part = {group}"}
            asked |= {key: value for key, value in more.items() if value}
            if what == "erasures":
                truth.erased.append(request)
            self.sent.append((queue, asked))
        self.stack.send(queue, asked)

    def double(self) -> None:
        """A message comes again: that of a file, or a request, of now or of long ago."""
        with self.lock:
            file = self.rng.choice(self.files) if self.files else None
            request = self.rng.choice(self.sent) if self.sent else None
        if file is not None:
            self.stack.send("IngestQueue", file)
        if request is not None:
            self.stack.send(*request)
        self.counts["doubled"] += 2

    def steal(self) -> None:
        """The message of a landed file is lost."""
        url = self.stack.queue_url("IngestQueue")
        for message in self.stack.sqs.receive_message(QueueUrl=url).get("Messages", []):
            self.stack.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            self.counts["lost"] += 1

    def kill(self) -> None:
        self.stack.functions[self.rng.choice(list(self.stack.functions))].kill()
        self.counts["kills"] += 1

    def sweep(self, settle: float = SETTLE_SECONDS) -> int:
        """Send what no event brought in; how many contents wait."""
        waiting = 0
        for name in TABLES:
            asked = {"table": name, "landing_only": True, "settle_seconds": settle}
            found = self.stack.invoke("collect_garbage", asked)
            if isinstance(found, Failed):
                waiting += 1
                continue
            told = found.payload[name]["landing"]
            waiting += told.get("pending", 0)
            self.counts["sent_again"] += told["sent"]
        return waiting

    def collect(self) -> None:
        for name in TABLES:
            self.stack.invoke(
                "collect_garbage",
                {
                    "table": name,
                    "grace_days": GRACE_SECONDS / 86_400,
                    "life_seconds": LIFE_SECONDS,
                    "clock_margin_seconds": 2,
                },
            )

    # -- looking -----------------------------------------------------------------------------------

    def look(self) -> None:
        for name, pool in self.stack.functions.items():
            for process in list(pool._processes):
                self.memory[name] = max(self.memory[name], resident_mb(process.leashed.pid))
        for name, truth in self.tables.items():
            try:
                rows = inlay.open(truth.uri).scan(columns=["id", "part"]).to_arrow()
            except StoreUnavailable:
                continue
            now = time.monotonic()
            ids = rows["id"].to_pylist()
            there = set(ids)
            if len(ids) != len(there):
                self.wrong.append(f"{name} holds {len(ids) - len(there)} rows twice")
                self.stopping.set()
            with self.lock:
                for each in there - truth.seen:
                    self.lags.append(now - truth.landed[each])
                truth.seen |= there
                for group, gone in list(truth.closed.items()):
                    if not gone & there:
                        del truth.closed[group]

    def run(self, minutes: float) -> None:
        deeds: list[tuple[Callable[[], object], float]] = [
            *((self.land, LAND), (self.delete, DELETE), (self.erase, ERASE), (self.kill, KILL)),
            *((self.steal, STEAL), (self.double, DOUBLE), (self.sweep, SWEEP)),
            *((self.collect, COLLECT), (self.look, LOOK)),
        ]
        threads = [threading.Thread(target=self._repeat, args=deed) for deed in deeds]
        for thread in threads:
            thread.start()
        self.stopping.wait(minutes * 60)
        self.stopping.set()
        for thread in threads:
            thread.join()

    def _repeat(self, deed: Callable[[], object], seconds: float) -> None:
        pause = random.Random(f"{deed.__name__}")
        while not self.stopping.wait(pause.expovariate(1 / seconds)):
            try:
                deed()
            except InlayError as error:
                self.counts[f"{deed.__name__}_{type(error).__name__}"] += 1
            except Exception as error:
                self.wrong.append(f"{deed.__name__}: {error!r}")
                self.stopping.set()

    # -- the end -----------------------------------------------------------------------------------

    def judge(self) -> None:
        for _ in range(20):
            self.stack.drain(timeout_seconds=900)
            again = self._redrive()
            if not again and not self.sweep(0.0):
                break
        self.stack.drain(timeout_seconds=900)
        self.look()
        for name, truth in self.tables.items():
            found = Counter(inlay.open(truth.uri).scan(columns=["id"]).to_arrow()["id"].to_pylist())
            lost, extra = truth.rows - found.keys(), found.keys() - truth.rows
            doubled = sum(number - 1 for number in found.values())
            self.counts["rows"] += len(truth.rows)
            if lost or extra or doubled:
                self.wrong.append(
                    f"{name}: {len(lost)} lost, {len(extra)} too many, {doubled} doubled"
                )
        self._end_erasures()

    def _redrive(self) -> int:
        """Letters of requests are sent again, to the queue that they came from; how many. Those of rounds,
        whose queues share one place for letters, are dropped: the next round asks for the same work."""
        again = 0
        targets = {queue.dead_letters: queue.logical_id for queue in self.stack.template.queues}
        for dead_letters, target in targets.items():
            if dead_letters is None:
                continue
            source = self.stack.queue_url(dead_letters)
            for letter in list(read_letters(self.stack.sqs, source)):
                self.counts[f"letters_{dead_letters}"] += 1
                if letter.reasons:
                    self.wrong.append(f"{dead_letters}: {letter.reasons}, {dict(letter.about)}")
                if target in LETTERS:
                    url = self.stack.queue_url(target)
                    redrive(self.stack.sqs, letter, source=source, target=url)
                    again += 1
                else:
                    drop(self.stack.sqs, letter, source=source)
        return again

    def _end_erasures(self) -> None:
        """Rewrites and collections until every erasure has its receipt."""
        began = time.monotonic()
        while time.monotonic() - began < 1_800:
            waiting = 0
            for name, truth in self.tables.items():
                self.stack.invoke("rewrite", {"table": name})
                waiting += len(inlay.open(truth.uri).snapshot.erasures)
            if not waiting:
                break
            self.collect()
            time.sleep(5)
        for name, truth in self.tables.items():
            receipts = sum(
                len(page.get("Contents", []))
                for page in self.stack.s3.get_paginator("list_objects_v2").paginate(
                    Bucket=self.stack.bucket, Prefix=f"tables/{name}/erasure/"
                )
            )
            self.counts["receipts"] += receipts
            left = len(inlay.open(truth.uri).snapshot.erasures)
            if receipts != len(truth.erased) or left:
                self.wrong.append(
                    f"{name}: {len(truth.erased)} erasures, {receipts} receipts, {left} open"
                )


def resident_mb(session: int) -> int:
    """Of all processes of a session, in MiB."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                total += int((folder / "statm").read_text().split()[1]) * 4
        except (OSError, ValueError):
            continue
    return total // 1_024


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", type=Path, default=Path(tempfile.gettempdir()) / "inlay-soak")
    asked = parser.parse_args()
    options = LocalOptions(
        schedule_speed=60, processes=2, home=asked.home, parameters={"GraceDays": "1"}
    )
    with LocalStack(options) as stack, environment(stack.environment):
        soak = Soak(stack, random.Random(asked.seed))
        for name in TABLES:
            table = inlay.create(
                stack.table_uri(name),
                SCHEMA,
                primary_key="id" if name == "keyed" else (),
                properties={"publish.format": "v3"} if name == "shown" else {},
            )
            soak.tables[name] = Truth(table.uri)
        began = time.monotonic()
        soak.run(asked.minutes)
        ran = time.monotonic() - began
        if not soak.wrong:
            soak.judge()
    lags = sorted(soak.lags) or [0.0]
    figures = {
        "minutes": round(ran / 60, 1),
        **dict(sorted(soak.counts.items())),
        "lag_seconds": {
            "median": round(statistics.median(lags), 1),
            "p99": round(lags[int(len(lags) * 0.99)], 1),
            "most": round(lags[-1], 1),
        },
        "memory_mb": dict(sorted(soak.memory.items())),
        "wrong": soak.wrong,
    }
    print(json.dumps(figures, indent=2))
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
