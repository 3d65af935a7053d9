"""Many tables, many processes, faults on the wire, kills and an operator: is everything as acknowledged?

    make soak-commits MINUTES=10
    python benchmarks/soak_commits.py --minutes 10 --seed 1

Processes, half of them forked and half spawned, append, delete, update, erase, merge branches, restore,
compact, expire and collect garbage on a few tables, over HTTP through a fault proxy, and are killed by
SIGKILL at random. An operator puts pointers back, repairs, removes tables and creates them again. Half of
the tables are in a bucket with versioning.

Every process notes in a journal what it is about to do and what was acknowledged, as (table id, version,
commit id). At the end a plain model applies the acknowledged changes in the order of their versions: each
retained version of each table must have the model's rows, each acknowledged row is there exactly once, and
`verify` finds no error. What an operator's own deed took away is told by his journal, and nothing else may
be missing. Prints the figures as JSON; exit code 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import inlay
from inlay.errors import InlayError, TableNotFound
from inlay.format import keys
from inlay.local.aws_process import AwsProcess
from inlay.local.fault_proxy import FAULTS, Fault, FaultProxy, Passing
from inlay.ops.verify.repair import repair
from inlay.storage.base import Got, IfMatch, Written
from inlay.storage.s3 import S3Store

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
TABLES = 4
PROCESSES = 4
# One request in so many meets a fault.
FAULT_EVERY = 40
# A late listing is outside of every promise (docs/FORMAT.md, section 2).
WIRE: tuple[Fault, ...] = tuple(f for f in FAULTS if f not in ("late_listing", "expired"))
# Long enough that a process has started and changed something, on a busy machine too.
KILL_SECONDS = (4.0, 12.0)
OPERATE_SECONDS = (12.0, 30.0)
IDS_OF_A_PROCESS = 10_000_000
Row = tuple[int, int]


# -- the processes --------------------------------------------------------------------------------


def work(process: int, life: int, uris: list[str], folder: str, seed: int) -> None:
    """Change tables until killed."""
    rng = random.Random(f"{seed} {process} {life}")
    path = Path(folder) / f"{process}.{life}.jsonl"
    first = process * IDS_OF_A_PROCESS + life * 100_000
    with path.open("a", buffering=1) as journal:
        for n in range(100_000):
            uri = rng.choice(uris)
            note: dict[str, Any] = {"uri": uri, "request": f"{process}/{life}/{n}"}
            try:
                table = inlay.open(uri)
                note |= {"table": table.snapshot.table_id, "base": table.version}
                change(rng, table, note, first + n, process, journal)
            except InlayError as error:
                print(json.dumps(note | {"error": type(error).__name__}), file=journal)
            except Exception:
                print(json.dumps(note | {"bare": traceback.format_exc()[-2000:]}), file=journal)


def change(
    rng: random.Random, table: Any, note: dict[str, Any], number: int, process: int, journal: Any
) -> None:
    mine: list[int] = []
    if rng.random() < 0.5:
        where = f"id >= {process * IDS_OF_A_PROCESS} AND id < {(process + 1) * IDS_OF_A_PROCESS}"
        mine = table.scan(columns=["id"], where=where, limit=40).to_arrow()["id"].to_pylist()
    kinds = ["append"] * 6 + ["compact", "expire", "collect"]
    kinds += ["delete", "update", "vector", "erase"] if mine else []
    kinds += ["merge", "restore"] if process == 0 else []
    kind = rng.choice(kinds)
    target = rng.choice(mine) if mine else 0
    note |= {"kind": kind, "id": number if kind in ("append", "merge") else target, "value": number}
    print(json.dumps(note | {"about": True}), file=journal)
    done: Any
    request = note["request"]
    match kind:
        case "append":
            done = again(table, lambda t: t.append(row(number), request_id=request))
        case "delete" | "vector":
            mode = "vector" if kind == "vector" else "tombstone"
            done = again(table, lambda t: t.delete(f"id = {target}", mode=mode, request_id=request))
        case "update":
            done = again(
                table,
                lambda t: t.update(
                    {"value": str(number)}, where=f"id = {target}", request_id=request
                ),
            )
        case "erase":
            done = again(
                table, lambda t: t.delete(f"id = {target}", mode="erase", request_id=request)
            )
        case "merge":
            name = f"b{number}"
            branch = table.branch(name)
            branch.append(row(number))
            done = table.merge(name)
            table.drop_ref(name)
        case "restore":
            note["to"] = max(1, table.version - rng.randrange(1, 4))
            done = table.restore(version=note["to"])
        case "compact":
            table.compact()
            return
        case "expire":
            table.expire(days=0, min_versions=40)
            return
        case _:
            table.collect_garbage(grace=timedelta(minutes=2))
            return
    told = {"committed": done.committed, "version": done.version, "commit": done.commit_id}
    print(json.dumps(note | told), file=journal)


def again(table: Any, run: Any) -> Any:
    """Once more under the same request id when nothing is known, as a queue would."""
    for attempt in range(4):
        try:
            return run(table)
        except InlayError as error:
            if error.kind.value != "retry" or attempt == 3:
                raise
            table.refresh()
    raise AssertionError("unreachable")


def row(number: int) -> pa.Table:
    return pa.table({"id": [number], "value": [number]}, SCHEMA)


# -- the operator ---------------------------------------------------------------------------------


@dataclass
class Operator:
    """Works beside the proxy, on the server itself. `lost`: (table, first, last), between which versions
    acknowledged commits may be gone by his deed; `gone`: tables that were removed."""

    rng: random.Random
    lost: list[tuple[str, int, int]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    deeds: Counter[str] = field(default_factory=Counter)

    def act(self, uri: str) -> None:
        if self.rng.random() < 0.25:
            self.create_again(uri)
        else:
            self.put_back(uri)

    def put_back(self, uri: str) -> None:
        ctx = inlay.connect(uri)
        key = ctx.key(keys.POINTER)
        got = ctx.store.get(key)
        if not isinstance(got, Got):
            return
        table = inlay.open(uri)
        target = max(table.snapshot.oldest_version, table.version - self.rng.randrange(2, 6))
        old = ctx.store.get(ctx.key(keys.archive_key(target)))
        if target > table.version - 2 or not isinstance(old, Got):
            return
        put = ctx.store.put(key, old.body, condition=IfMatch(got.etag))
        if not isinstance(put, Written):
            return  # somebody has committed meanwhile
        self.deeds["put back"] += 1
        time.sleep(self.rng.uniform(0, 2))
        self.mend(uri)
        self.lost.append((table.snapshot.table_id, target, inlay.open(uri).version))

    def mend(self, uri: str) -> None:
        for _ in range(20):
            try:
                repair(inlay.connect(uri), dry_run=False)
                self.deeds["repairs"] += 1
                return
            except InlayError:
                time.sleep(0.2)  # a writer was quicker

    def create_again(self, uri: str) -> None:
        ctx = inlay.connect(uri)
        try:
            self.gone.add(inlay.open(uri).snapshot.table_id)
        except InlayError:
            return
        for _ in range(20):
            ctx.store.delete([o.key for o in ctx.store.list(f"{ctx.root}/")])
            try:
                inlay.create(uri, SCHEMA, primary_key="id")
            except InlayError:
                continue  # a writer that had been under way has written an archive
            self.deeds["created again"] += 1
            return
        raise AssertionError(f"{uri} cannot be created again")


# -- what must be at the end ----------------------------------------------------------------------


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # the process was killed while it wrote


def judge(uri: str, journal: list[dict[str, Any]], operator: Operator) -> list[str]:
    """What is not as it was acknowledged."""
    wrong: list[str] = []
    table = inlay.open(uri)
    table_id = table.snapshot.table_id
    of_table = [n for n in journal if n.get("table") == table_id]
    acknowledged = {}
    for note in of_table:
        if note.get("committed") and note.get("version"):
            acknowledged.setdefault(note["version"], []).append(note)
    history = {
        h["version"]: h
        for h in table.history(limit=100_000)
        .select(["version", "commit_id", "operation"])
        .to_pylist()
    }
    erased = {n["id"] for n in of_table if n.get("kind") == "erase"}
    before: Counter[Row] | None = None
    excused = [(low, high) for lost_in, low, high in operator.lost if lost_in == table_id]
    for version in sorted(history):
        at = inlay.open(uri, version=version).scan().to_arrow()
        pairs = zip(at["id"].to_pylist(), at["value"].to_pylist(), strict=True)
        found = Counter(pair for pair in pairs if pair[0] not in erased)
        twice = [i for i, times in Counter(i for i, _ in found.elements()).items() if times > 1]
        if twice:
            wrong.append(f"{uri} version {version}: {twice[:5]} are there twice")
        notes = [
            n for n in acknowledged.get(version, ()) if n["commit"] == history[version]["commit_id"]
        ]
        if (
            before is not None
            and history[version]["operation"] not in UNTOLD
            and version - 1 in history
        ):
            expected = Counter(before)
            for note in notes:
                apply(expected, note)
            expected = Counter({r: times for r, times in expected.items() if r[0] not in erased})
            unknown = [n for n in of_table if n.get("about") and n["base"] < version]
            # One that died, or was told that nothing is known, may be in it all the same.
            if found != +expected and notes:
                wrong.append(
                    f"{uri} version {version}: {difference(found, expected)} after {notes}"
                )
            elif found != +expected:
                ids = {n["id"] for n in unknown}
                if not {i for i, _ in (found - expected) + (expected - found)} <= ids:
                    wrong.append(f"{uri} version {version}: {difference(found, expected)} unasked")
        before = found
    known = {h["commit_id"] for h in history.values()}
    oldest = min(history)
    for version, notes in acknowledged.items():
        taken = version < oldest or any(low < version <= high for low, high in excused)
        for note in notes:
            if not taken and note["commit"] not in known:
                wrong.append(f"{uri}: acknowledged and lost: {note}")
    wrong += missing_at_the_end(uri, of_table, before or Counter(), excused)
    errors = [f for f in table.verify().findings if f.severity == "error"]
    wrong += [f"{uri}: verify: {error}" for error in errors[:5]]
    return wrong


def missing_at_the_end(
    uri: str, notes: list[dict[str, Any]], found: Counter[Row], excused: list[tuple[int, int]]
) -> list[str]:
    """Acknowledged appends, of versions that have expired too, that nobody asked to take away."""
    asked = {n["id"] for n in notes if n.get("kind") in ("delete", "vector", "erase")}
    # A restore takes away what came since; one that died may have landed within the next versions.
    gone = [*excused, *((n["to"], n["base"] + 40) for n in notes if "to" in n)]
    there = {i for i, _ in found}
    return [
        f"{uri}: acknowledged and not there at the end: {n}"
        for n in notes
        if n.get("kind") == "append" and n.get("committed") and n["id"] not in asked | there
        if not any(low < n["version"] <= high for low, high in gone)
    ]


# Versions whose rows the journal does not tell: restores and merges of branches.
UNTOLD = frozenset({"restore", "merge_branch", "merge", "fast_forward", "repair"})


def apply(rows: Counter[Row], note: dict[str, Any]) -> None:
    match note["kind"]:
        case "append":
            rows[note["id"], note["value"]] += 1
        case "delete" | "vector" | "erase":
            for found in [r for r in rows if r[0] == note["id"]]:
                del rows[found]
        case "update":
            for found in [r for r in rows if r[0] == note["id"]]:
                rows[found[0], note["value"]] += rows.pop(found)


def difference(found: Counter[Row], expected: Counter[Row]) -> str:
    more, less = list((found - expected).elements()), list((expected - found).elements())
    return f"{more[:3]} too many, {less[:3]} missing"


# -- the run --------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    fates = random.Random(options.seed + 1)
    on = [True]

    def plan(passing: Passing) -> Fault | None:
        return fates.choice(WIRE) if on[0] and not fates.randrange(FAULT_EVERY) else None

    with (
        tempfile.TemporaryDirectory() as folder,
        AwsProcess(["s3"]) as aws,
        FaultProxy(aws.endpoint_url, plan) as proxy,
    ):
        os.environ.update(aws.env())
        uris = []
        for bucket in ("plain", "versioned"):
            store = S3Store(bucket)
            store.client.create_bucket(Bucket=bucket)
            if bucket == "versioned":
                store.client.put_bucket_versioning(
                    Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
                )
            for n in range(TABLES // 2):
                uris.append(f"s3://{bucket}/tables/t{n}")
                inlay.create(uris[-1], SCHEMA, primary_key="id")
        operator = Operator(rng)
        began = time.monotonic()
        kills = 0
        lives = Counter[int]()
        alive: dict[int, Any] = {}

        def start(process: int) -> None:
            life = lives[process]
            lives[process] += 1
            method = "fork" if process % 2 else "spawn"
            # The child finds the proxy where this process finds the server.
            os.environ["AWS_ENDPOINT_URL_S3"] = os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint_url
            alive[process] = multiprocessing.get_context(method).Process(
                target=work, args=(process, life, uris, folder, options.seed), daemon=True
            )
            alive[process].start()
            os.environ.update(aws.env())

        for process in range(PROCESSES):
            start(process)
        next_deed = rng.uniform(*OPERATE_SECONDS)
        while (spent := time.monotonic() - began) < options.minutes * 60:
            time.sleep(rng.uniform(*KILL_SECONDS))
            victim = rng.randrange(PROCESSES)
            alive[victim].kill()
            alive[victim].join()
            kills += 1
            start(victim)
            if spent > next_deed:
                operator.act(rng.choice(uris))
                next_deed = spent + rng.uniform(*OPERATE_SECONDS)
        for each in alive.values():
            each.kill()
            each.join()
        on[0] = False
        journal = list(entries(Path(folder)))
        wrong = [f"a bare error: {n['bare']}" for n in journal if "bare" in n]
        for uri in uris:
            try:
                inlay.open(uri).set_properties(**{"soak.ended": "yes"})
            except TableNotFound:
                wrong.append(f"{uri} is gone")
                continue
            except InlayError:
                operator.mend(uri)
            wrong += judge(uri, journal, operator)
        figures = {
            "minutes": round((time.monotonic() - began) / 60, 1),
            "requests": len(proxy.passed),
            "killed": kills,
            "acknowledged": sum(1 for n in journal if n.get("committed")),
            "by_kind": dict(Counter(n["kind"] for n in journal if n.get("committed"))),
            "errors": dict(Counter(n["error"] for n in journal if "error" in n)),
            "operator": dict(operator.deeds),
            "versions": {uri: inlay.open(uri).version for uri in uris},
            "wrong": len(wrong),
        }
        print(json.dumps(figures, indent=2))
        for each in wrong[:20]:
            print("WRONG", each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
