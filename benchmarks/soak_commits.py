"""Many tables, many processes, faults on the wire, kills and an operator: is everything as acknowledged?

    make soak-commits MINUTES=10
    make soak-commits MINUTES=3 CONTROL=1        # a store that ignores If-Match: must be found out
    python benchmarks/soak_commits.py --minutes 10 --seed 1 --endpoint-url http://127.0.0.1:4566

Processes, half of them forked and half spawned, append, delete, update, erase, merge branches, restore,
compact, expire and collect garbage on a few tables, over HTTP through a fault proxy, and are killed by
SIGKILL at random. An operator puts pointers back, repairs, removes tables and creates them again. Half of
the tables are in a bucket with versioning.

Every process notes in a journal what it is about to do, under which request id, and what was acknowledged.
A historian, beside the proxy, reads every version as it comes: its commit, its request, its rows. At the
end `judge` holds one against the other: each version has exactly the rows that its request makes of the
version before it; each acknowledged commit is a version of the table; no version has become another; no
row is there twice; what was erased is gone; what is still retained reads as it did when it was new; and
`verify` finds no error. The one thing that may be missing is what stood in the pointer alone when the
operator overwrote it, in a bucket without versioning: he notes which commit that was.

The control drops `If-Match` on the way to the store. Everything else stays as it is, and the judge must
find what was lost: its exit code is 0 when it did, 1 when it saw nothing. Prints the figures as JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from botocore.exceptions import ClientError

import inlay
from inlay.engine import POINTER, load_pointer, open_store
from inlay.errors import ForeignArchives, InlayError, TableNotFound
from inlay.local.s3server import AwsProcess

# The proxy is of the tests, which are found from the root of the clone.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulator.fault_proxy import FAULTS, Fault, FaultProxy, Passing

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
TABLES = 4
PROCESSES = 4
# One request in so many meets a fault.
FAULT_EVERY = 40
# One listing in so many is late: there are few of them. Garbage is then left and an erasure may have to
# be finished again, but nothing may be lost (docs/GUARANTEES.md).
LATE_EVERY = 4
# Long enough that a process has started and changed something, on a busy machine too.
KILL_SECONDS = (4.0, 12.0)
OPERATE_SECONDS = (12.0, 30.0)
WATCH_SECONDS = 0.5
# Each life of a process has ids of its own; an hour has more than a hundred lives.
IDS_OF_A_LIFE = 100_000
IDS_OF_A_PROCESS = 10_000 * IDS_OF_A_LIFE
Row = tuple[int, int]
Note = dict[str, Any]


# -- the processes --------------------------------------------------------------------------------


def work(process: int, life: int, uris: list[str], folder: str, seed: int) -> None:
    """Change tables until killed."""
    rng = random.Random(f"{seed} {process} {life}")
    path = Path(folder) / f"{process}.{life}.jsonl"
    first = process * IDS_OF_A_PROCESS + life * IDS_OF_A_LIFE
    with path.open("a", buffering=1) as journal:
        for n in range(IDS_OF_A_LIFE):
            uri = rng.choice(uris if n % 2 else uris[:: len(uris) - 1])  # two of them are crowded
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
    if kind == "restore":
        note["to"] = max(1, table.version - rng.randrange(1, 4))
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
            branch = table.refs.branch(name)
            branch.append(row(number))
            done = table.refs.merge(name, request_id=request)
            table.refs.drop(name)
        case "restore":
            done = table.refs.restore(version=note["to"])
        case "compact":
            table.maintain.compact()
            return
        case "expire":
            table.maintain.expire(days=0, min_versions=40)
            return
        case _:
            table.maintain.collect_garbage(grace=timedelta(minutes=2))
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


# -- the historian --------------------------------------------------------------------------------


def watch(uris: list[str], folder: str, ended: Any) -> None:
    """Note every version of every table as it comes, until `ended` is set; once more after that."""
    seen: dict[tuple[str, int], str] = {}  # the commit of each version of each table, as last read
    with (Path(folder) / "versions.jsonl").open("a", buffering=1) as out:
        last = False
        while not last:
            last = ended.wait(WATCH_SECONDS)
            for uri in uris:
                for note in new_versions(uri, seen):
                    print(json.dumps(note), file=out)


def new_versions(uri: str, seen: dict[tuple[str, int], str]) -> list[Note]:
    """What has come since the last look, oldest first; nothing where an operator is at work: the next look
    finds it all."""
    found: list[Note] = []
    try:
        table = inlay.open(uri)
        table_id = table.snapshot.table_id
        for version in range(table.version, table.snapshot.oldest_version - 1, -1):
            at = table if version == table.version else inlay.open(uri, version=version)
            commit = at.snapshot.commit
            if seen.get((table_id, version)) == commit.id:
                break
            note: Note = {"uri": uri, "table": at.snapshot.table_id, "version": version}
            note |= {"commit": commit.id, "operation": commit.operation}
            note |= {"request": commit.request, "branch": commit.branch}
            note["oldest"] = table.snapshot.oldest_version
            found.append(note | {"rows": sorted(rows_of(at).elements())})
    except InlayError:
        return []
    if any(note["table"] != table_id for note in found):
        return []
    seen |= {(table_id, note["version"]): note["commit"] for note in found}
    return found[::-1]


def rows_of(table: Any) -> Counter[Row]:
    found = table.scan().to_arrow()
    return Counter(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


# -- the operator ---------------------------------------------------------------------------------


@dataclass
class Operator:
    """Works beside the proxy, on the server itself. `lost`: commits that stood in a pointer alone which he
    overwrote. `went_on`: the version on which a repair made another, of a table."""

    rng: random.Random
    lost: set[str] = field(default_factory=set)
    went_on: dict[tuple[str, int], int] = field(default_factory=dict)
    deeds: Counter[str] = field(default_factory=Counter)

    def act(self, uris: list[str]) -> None:
        uri = self.rng.choice(uris)
        if self.rng.random() < 0.25:
            self.create_again(uri)
        else:
            self.put_back(uri)
        for each in uris:  # somebody calls when a table cannot be written to
            try:
                inlay.open(each).set_properties(**{"soak.deeds": str(self.deeds.total())})
            except ForeignArchives:
                self.mend(each)
            except InlayError:
                continue

    def put_back(self, uri: str) -> None:
        ctx = inlay.connect(uri)
        try:
            pointer = load_pointer(ctx)
        except TableNotFound:
            return
        there = pointer.snapshot
        target = max(there.oldest_version, there.version - self.rng.randrange(2, 6))
        if target > there.version - 2:
            return
        bucket, client = ctx.store.bucket, client_of(uri)
        archive = ctx.key(f"manifest/v{target:08d}.json")
        try:
            old = client.get_object(Bucket=bucket, Key=archive)["Body"].read()
            client.put_object(
                Bucket=bucket, Key=ctx.key(POINTER), Body=old, IfMatch=f'"{pointer.etag}"'
            )
        except ClientError:
            return  # there is no such archive any more, or somebody has committed meanwhile
        self.deeds["put back"] += 1
        if not ctx.store.bucket.endswith(VERSIONED):
            self.lost.add(there.commit.id)
        time.sleep(self.rng.uniform(0, 2))
        self.mend(uri)

    def mend(self, uri: str) -> None:
        for _ in range(20):
            try:
                done = inlay.repair(uri, dry_run=False)
                table_id = inlay.open(uri).snapshot.table_id
            except InlayError:
                time.sleep(0.2)  # a writer was quicker
                continue
            self.deeds["repairs"] += 1
            for mend in done.mends:
                on = re.search(r"from version (\d+).*, as version (\d+)$", mend.what)
                if on is not None:
                    self.went_on[table_id, int(on[2])] = int(on[1])
                    self.deeds["numbers skipped"] += int(on[2]) - int(on[1]) - 1
            return

    def create_again(self, uri: str) -> None:
        ctx = inlay.connect(uri)
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


def entries(paths: Iterable[Path]) -> Iterator[Note]:
    for path in sorted(paths):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue  # the process was killed while it wrote


# Requests that change rows of main by the version that bears them.
CHANGING = frozenset({"append", "delete", "vector", "update", "merge"})


def judge(
    journal: list[Note],
    versions: list[Note],
    *,
    lost: frozenset[str] = frozenset(),
    went_on: Mapping[tuple[str, int], int] | None = None,
    kept: Mapping[tuple[str, int], Counter[Row]] | None = None,
) -> list[str]:
    """What is not as it was acknowledged. `versions` are the historian's notes in the order in which he
    made them, `kept` the rows of the versions that can be read at the end."""
    wrong: list[str] = []
    asked = {n["request"]: n for n in journal if n.get("about")}
    erased = {n["id"] for n in asked.values() if n["kind"] == "erase"}
    restores = [n for n in asked.values() if n["kind"] == "restore"]
    told = {n["commit"]: n for n in journal if n.get("committed")}
    stands = {commit: note for commit, note in told.items() if commit not in lost}
    held: dict[tuple[str, int], Note] = {}
    rows: dict[tuple[str, int], Counter[Row]] = {}
    newest: dict[str, int] = {}
    oldest: dict[str, int] = {}
    for note in versions:
        table, version = note["table"], note["version"]
        name = f"{note['uri']} version {version} ({note['operation']} {note['request']})"
        before = held.get((table, version))
        if before is not None and before["commit"] not in lost:
            wrong.append(f"{name}: it was the commit {before['commit']}, and is {note['commit']}")
        held[table, version] = note
        newest[table] = max(version, newest.get(table, 0))
        oldest[table] = max(note["oldest"], oldest.get(table, 0))
        found = left(Counter((i, v) for i, v in note["rows"]), erased)
        rows[table, version] = found
        twice = [i for i, times in Counter(i for i, _ in found.elements()).items() if times > 1]
        if twice:
            wrong.append(f"{name}: {twice[:5]} are there twice")
        if note["operation"] == "restore":
            mine = told.get(note["commit"])
            sources = [mine] if mine else [n for n in restores if n["base"] < version]
            of_table = [n["to"] for n in sources if n["table"] == table]
            expected = [rows[table, to] for to in of_table if (table, to) in rows]
            if len(expected) < len(of_table):
                continue  # one of those that it may be was not read
        elif note["operation"] == "repair" and (table, version) in (went_on or {}):
            source = (table, (went_on or {})[table, version])
            expected = [rows[source]] if source in rows else []
        else:
            last = max((v for t, v in rows if t == table and v < version), default=version)
            base = rows.get((table, last))
            expected, found = follow(base, last, note, found, asked, stands, erased)
        if expected and found not in expected:
            wrong.append(f"{name}: {difference(found, expected[0])}")
    for commit, note in stands.items():
        table, version = note["table"], note["version"]
        there = held.get((table, version))
        if version > newest.get(table, 0):
            continue  # the table was removed before anybody read that version
        if there is None and version < oldest[table]:
            continue  # an erasure has ended it before it was read: `follow` has looked for its rows
        if there is None or there["commit"] != commit:
            there_is = "nothing was read there" if there is None else f"there is {there['commit']}"
            wrong.append(f"{note['uri']}: acknowledged and lost: {note}; {there_is}")
    applied = Counter((n["table"], n["request"]) for n in held.values() if n["request"])
    wrong += [
        f"{request} was applied {times} times"
        for (_, request), times in applied.items()
        if times > 1 and asked.get(request, {}).get("kind") in CHANGING
    ]
    gone = {(n["table"], n["id"]) for n in told.values() if n["kind"] == "erase"}
    for (table, version), found in (kept or {}).items():
        if {(table, i) for i, _ in found} & gone and version == newest[table]:
            wrong.append(f"{table} version {version}: erased rows are there")
        found = left(found, erased)
        if (table, version) in rows and rows[table, version] != found:
            was = difference(found, rows[table, version])
            wrong.append(f"{table} version {version} has changed since it was new: {was}")
    return wrong


def follow(
    base: Counter[Row] | None,
    last: int,
    version: Note,
    found: Counter[Row],
    asked: Mapping[str, Note],
    told: Mapping[str, Note],
    erased: set[int],
) -> tuple[list[Counter[Row]], Counter[Row]]:
    """The rows that a version must have, by those of the last one before it that was read, and of those it
    has the ones that this is known of. Nearly always it was read itself. Where it had ended before, what
    was acknowledged in between is applied, and nothing is said of rows whose requests were not
    acknowledged."""
    if base is None:
        return [], found
    if last == version["version"] - 1:
        return [left(apply(base, asked.get(version["request"]), version), erased)], found
    mine = [n for n in asked.values() if n["table"] == version["table"]]
    answered = {n["request"] for n in told.values()}
    between = sorted(
        (n for n in told.values() if n["table"] == version["table"]), key=lambda n: n["version"]
    )
    between = [n for n in between if last < n["version"] <= version["version"]]
    open_ones = [n for n in mine if n["request"] not in answered]
    restored = [n for n in (*between, *open_ones) if n["kind"] == "restore"]
    if any(n["base"] < version["version"] for n in restored):
        return [], found
    for note in between:
        base = apply(base, note, {"branch": None})
    doubtful = erased | {n["id"] for n in open_ones}
    return [left(base, doubtful)], left(found, doubtful)


def apply(base: Counter[Row], note: Note | None, version: Note) -> Counter[Row]:
    """The rows after a request, which `version` bears."""
    if note is None or version["branch"] is not None:
        return base
    found = [r for r in base if r[0] == note["id"]]
    match note["kind"]:
        case "append" | "merge":
            return base + Counter([(note["id"], note["value"])])
        case "delete" | "vector":
            return base - Counter({r: base[r] for r in found})
        case "update":
            changed = {r: base[r] for r in found}
            after = Counter[Row]()
            after[note["id"], note["value"]] = sum(changed.values())
            return base - Counter(changed) + after
        case _:  # what only maintains, or moves refs, changes no rows
            return base


def left(rows: Counter[Row], erased: set[int]) -> Counter[Row]:
    """An erasure hides its rows from older versions as well, at some time after it was asked for."""
    return Counter({row: times for row, times in rows.items() if row[0] not in erased})


def difference(found: Counter[Row], expected: Counter[Row]) -> str:
    more, less = list((found - expected).elements()), list((expected - found).elements())
    return f"{more[:3]} too many, {less[:3]} missing"


# -- the run --------------------------------------------------------------------------------------


VERSIONED = "versioned"


@contextmanager
def server(endpoint_url: str | None) -> Iterator[dict[str, str]]:
    """The environment in which an SDK finds the embedded S3, or another (credentials are the caller's)."""
    if endpoint_url is not None:
        yield {"AWS_ENDPOINT_URL_S3": endpoint_url, "AWS_ENDPOINT_URL": endpoint_url}
        return
    with AwsProcess(["s3"]) as aws:
        yield dict(aws.env())


def soak_parser(doc: str) -> argparse.ArgumentParser:
    """What each soak is asked for."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--endpoint-url", help="another S3; http:// only. Its buckets are left behind"
    )
    parser.add_argument("--plain", action="store_true", help="no bucket has versioning")
    return parser


def client_of(uri: str) -> Any:
    """The SDK's client of a location's S3."""
    store: Any = open_store(uri)[0]
    return store.client


def make_buckets(name: str, *, plain: bool) -> list[str]:
    """Two new ones of which the second has versioning, unless both are `plain`."""
    run = uuid.uuid4().hex[:8]
    buckets = [f"{name}-{run}-plain", f"{name}-{run}-{'plain-2' if plain else VERSIONED}"]
    for bucket in buckets:
        client = client_of(f"s3://{bucket}")
        client.create_bucket(Bucket=bucket)
        if bucket.endswith(VERSIONED):
            client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
    return buckets


def main(arguments: list[str] | None = None) -> int:
    parser = soak_parser(__doc__ or "")
    parser.add_argument("--keep", help="a new folder for the journals, when anything is wrong")
    parser.add_argument("--control", action="store_true", help="a store that ignores If-Match")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the processes it has started
    rng = random.Random(options.seed)
    fates = random.Random(options.seed + 1)
    on = [True]

    def plan(passing: Passing) -> Fault | None:
        if passing.is_listing and on[0] and not fates.randrange(LATE_EVERY):
            return "late_listing"
        return fates.choice(FAULTS) if on[0] and not fates.randrange(FAULT_EVERY) else None

    with (
        tempfile.TemporaryDirectory() as folder,
        server(options.endpoint_url) as direct,
        FaultProxy(
            direct["AWS_ENDPOINT_URL_S3"],
            plan,
            dropped=("if-match",) if options.control else (),
        ) as proxy,
    ):
        os.environ.update(direct)
        uris = []
        for bucket in make_buckets("soak", plain=options.plain):
            for n in range(TABLES // 2):
                uris.append(f"s3://{bucket}/tables/t{n}")
                inlay.create(uris[-1], SCHEMA, primary_key="id")
        spawning = multiprocessing.get_context("spawn")
        ended = spawning.Event()
        historian = spawning.Process(target=watch, args=(uris, folder, ended), daemon=True)
        historian.start()
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
            context: Any = multiprocessing.get_context(method)
            alive[process] = context.Process(
                target=work, args=(process, life, uris, folder, options.seed), daemon=True
            )
            alive[process].start()
            os.environ.update(direct)

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
                operator.act(uris)
                next_deed = spent + rng.uniform(*OPERATE_SECONDS)
        for each in alive.values():
            each.kill()
            each.join()
        on[0] = False
        wrong: list[str] = []
        for uri in uris:
            try:
                inlay.open(uri).set_properties(**{"soak.ended": "yes"})
            except TableNotFound:
                wrong.append(f"{uri} is gone")
            except InlayError:
                operator.mend(uri)
        ended.set()
        historian.join()
        if historian.exitcode:
            wrong.append(f"the historian ended with {historian.exitcode}")
        versions = list(entries([Path(folder) / "versions.jsonl"]))
        journal = list(entries(Path(folder).glob("*.*.jsonl")))
        bare = Counter(n["bare"] for n in journal if "bare" in n)
        wrong += [f"{times} times a bare error: {error}" for error, times in bare.items()]
        wrong += judge(
            journal,
            versions,
            lost=frozenset(operator.lost),
            went_on=operator.went_on,
            kept=dict(retained(uris, wrong)),
        )
        figures = {
            "minutes": round((time.monotonic() - began) / 60, 1),
            "requests": len(proxy.passed),
            "faults": dict(Counter(proxy.faults)),
            "killed": kills,
            "acknowledged": sum(1 for n in journal if n.get("committed")),
            "by_kind": dict(Counter(n["kind"] for n in journal if n.get("committed"))),
            "errors": dict(Counter(n["error"] for n in journal if "error" in n)),
            "operator": dict(operator.deeds),
            "versions_read": len(versions),
            "acknowledged_unread": len(
                {n["commit"] for n in journal if n.get("committed")}
                - {n["commit"] for n in versions}
            ),
            "wrong": len(wrong),
        }
        print(json.dumps(figures, indent=2))
        for each in wrong[:20]:
            print("WRONG", each)
        if wrong and options.keep is not None:
            shutil.copytree(folder, options.keep)
    if options.control:
        lost = [each for each in wrong if "acknowledged and lost" in each]
        print(f"the control was {'found out' if lost else 'NOT found out'}: {len(lost)} lost")
        return 0 if lost else 1
    return 1 if wrong else 0


def retained(uris: list[str], wrong: list[str]) -> Iterator[tuple[tuple[str, int], Counter[Row]]]:
    """The rows of each version that can be read; what `verify` finds goes to `wrong`."""
    for uri in uris:
        try:
            table = inlay.open(uri)
            for version in range(table.snapshot.oldest_version, table.version + 1):
                at = inlay.open(uri, version=version)
                yield (at.snapshot.table_id, version), rows_of(at)
            errors = table.maintain.verify().errors
            wrong += [f"{uri}: verify: {error}" for error in errors[:5]]
        except InlayError as error:
            wrong.append(f"{uri}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
