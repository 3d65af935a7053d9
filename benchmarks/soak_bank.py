"""A bank over four tables in two buckets: processes that transfer money are killed, faults are on the wire;
does the sum hold in every snapshot at one cut?

    make soak-bank MINUTES=10
    python benchmarks/soak_bank.py --minutes 10 --seed 1 --endpoint-url http://127.0.0.1:4566

Each transfer is one transaction over three tables: it takes an amount from an account in one, gives it to
an account in another, and notes both in a log. Processes, half of them forked and half spawned, make them
over HTTP through a fault proxy, beside commits on one table alone, erasures, compactions, expiry and
garbage collection; they are killed by SIGKILL at random, and whoever comes after one repeats the transfer
that was not acknowledged, under its request id.

Readers, through the proxy as well, open all tables at one moment (`inlay.snapshot`). At each such cut every
account must be what its log says, and the sum what it was: so money on its way is seen, and a transfer that
was made twice. They also read one table after the other, and count how often that is wrong, or the bank
would show nothing. At the end each acknowledged transfer must be in the log, once, and `verify` must find
no error. Prints the figures as JSON; the exit code is 1 when anything was wrong.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import inlay
from inlay.errors import InlayError

# The proxy is of the tests, which are found from the root of the clone.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulator.fault_proxy import FAULTS, Fault, FaultProxy, Passing

from soak_commits import FAULT_EVERY, entries, make_buckets, server, soak_parser

ACCOUNTS = pa.schema([("id", pa.int64()), ("balance", pa.int64())])
LOG = pa.schema(
    [
        ("request", pa.string()),
        ("taken", pa.int64()),
        ("given", pa.int64()),
        ("amount", pa.int64()),
    ]
)
# An account has the number `table * 100 + n`; rows from NOISE on are nobody's, and hold no money.
TABLES = 3
IN_EACH = 4
START = 1_000
NOISE = 1_000_000
PROCESSES = 3
READERS = 2
KILL_SECONDS = (3.0, 9.0)
FIRST = {table * 100 + n: START for table in range(TABLES) for n in range(IN_EACH)}


def work(process: int, life: int, uris: list[str], folder: str, seed: int) -> None:
    """Make transfers until killed; first the one that the life before this has left open."""
    rng = random.Random(f"{seed} {process} {life}")
    mine = list(entries(Path(folder).glob(f"work.{process}.*.jsonl")))
    ended = {note["request"] for note in mine if note.get("done")}
    left = [n for n in mine if n.get("about") and n["request"] not in ended]
    with (Path(folder) / f"work.{process}.{life:05}.jsonl").open("a", buffering=1) as journal:
        n = 0
        while True:
            n += 1
            try:
                if left or rng.random() < 0.7:
                    note = left.pop() if left else transfer_of(rng, f"{process}/{life}/{n}")
                    print(json.dumps(note | {"about": True}), file=journal)
                    until_done(uris, note, journal)
                else:
                    alone(rng, inlay.open(rng.choice(uris)), NOISE + rng.randrange(10**9))
            except InlayError as error:
                print(json.dumps({"error": type(error).__name__}), file=journal)
            except Exception:
                print(json.dumps({"bare": traceback.format_exc()[-2000:]}), file=journal)


def transfer_of(rng: random.Random, request: str) -> dict[str, Any]:
    taken, given = rng.sample(range(TABLES), 2)
    return {
        "request": request,
        "taken": taken * 100 + rng.randrange(IN_EACH),
        "given": given * 100 + rng.randrange(IN_EACH),
        "amount": rng.randrange(1, 100),
        "reads": rng.random() < 0.3,
    }


def until_done(uris: list[str], note: dict[str, Any], journal: Any) -> None:
    """Repeats a transfer under its request id, whatever becomes of it, as a queue would."""
    while True:
        try:
            transfer(uris, note)
        except InlayError as error:
            print(json.dumps({"error": type(error).__name__}), file=journal)
            continue
        print(json.dumps({"request": note["request"], "done": True}), file=journal)
        return


def transfer(uris: list[str], note: dict[str, Any]) -> None:
    taken, given, amount = note["taken"], note["given"], note["amount"]
    line = pa.table([[note["request"]], [taken], [given], [amount]], schema=LOG)
    with inlay.transaction(request_id=note["request"]) as tx:
        for account, by in ((taken, -amount), (given, amount)):
            table = inlay.open(uris[account // 100])
            if note["reads"]:
                seen = tx.read(table).scan(where=f"id = {account}").to_arrow()
                after = pa.table([[account], [seen["balance"][0].as_py() + by]], schema=ACCOUNTS)
                tx.upsert(table, after)
            else:
                tx.update(table, {"balance": f"balance + {by}"}, where=f"id = {account}")
        tx.append(inlay.open(uris[TABLES]), line)


def alone(rng: random.Random, table: Any, number: int) -> None:
    """Something on one table, as others do."""
    is_log = "request" in table.schema.names
    kind = rng.choice(["append", "append", "erase", "compact", "expire", "collect"])
    if kind in ("append", "erase") and not is_log:
        table.append(pa.table([[number], [0]], schema=ACCOUNTS))
        if kind == "erase":
            table.delete(f"id = {number}", mode="erase", request_id=f"erase {number}")
    elif kind == "compact":
        table.maintain.compact()
    elif kind == "expire":
        table.maintain.expire(days=0, min_versions=30)
    elif kind == "collect":
        table.maintain.collect_garbage(grace=timedelta(minutes=2))


def read(reader: int, uris: list[str], folder: str, ended: Any) -> None:
    """Look at all tables at one moment, and at one after the other, until `ended` is set."""
    with (Path(folder) / f"read.{reader}.jsonl").open("a", buffering=1) as journal:
        while not ended.is_set():
            try:
                wrong = differences(inlay.snapshot(uris))
                print(json.dumps({"cut": wrong}), file=journal)
                if not reader:
                    print(
                        json.dumps({"apart": differences([inlay.open(u) for u in uris])}),
                        file=journal,
                    )
            except InlayError as error:
                print(json.dumps({"error": type(error).__name__}), file=journal)
            except Exception:
                print(json.dumps({"bare": traceback.format_exc()[-2000:]}), file=journal)


def differences(tables: list[Any]) -> list[str]:
    """What of these tables is not as their log says."""
    found, log = balances(tables), tables[TABLES].scan().to_arrow().to_pylist()
    wrong = [f"{name} is in the log {n} times" for name, n in requests(log).items() if n > 1]
    if sum(found.values()) != START * len(FIRST):
        wrong.append(f"the sum is {sum(found.values())}")
    expected = Counter(FIRST)
    for line in log:
        expected[line["taken"]] -= line["amount"]
        expected[line["given"]] += line["amount"]
    return wrong + [
        f"account {a}: {found.get(a)}, the log says {n}"
        for a, n in expected.items()
        if found.get(a) != n
    ]


def balances(tables: list[Any]) -> dict[int, int]:
    found: Counter[int] = Counter()
    for table in tables[:TABLES]:
        rows = table.scan(where=f"id < {NOISE}").to_arrow()
        for account, balance in zip(
            rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True
        ):
            found[account] += balance
    return dict(found)


def requests(log: list[dict[str, Any]]) -> Counter[str]:
    return Counter(line["request"] for line in log)


def main(arguments: list[str] | None = None) -> int:
    options = soak_parser(__doc__ or "").parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the processes it has started
    rng = random.Random(options.seed)
    fates = random.Random(options.seed + 1)
    on = [True]

    def plan(passing: Passing) -> Fault | None:
        return fates.choice(FAULTS) if on[0] and not fates.randrange(FAULT_EVERY) else None

    with (
        tempfile.TemporaryDirectory() as folder,
        server(options.endpoint_url) as direct,
        FaultProxy(direct["AWS_ENDPOINT_URL_S3"], plan) as proxy,
    ):
        os.environ.update(direct)
        buckets = make_buckets("bank", plain=options.plain)
        uris = [f"s3://{buckets[n % 2]}/tables/t{n}" for n in range(TABLES + 1)]
        for n, uri in enumerate(uris):
            table = inlay.create(
                uri, LOG if n == TABLES else ACCOUNTS, primary_key=() if n == TABLES else "id"
            )
            if n < TABLES:
                mine = [a for a in FIRST if a // 100 == n]
                table.append(pa.table([mine, [START] * len(mine)], schema=ACCOUNTS))
        ended = multiprocessing.get_context("spawn").Event()
        began, kills, lives = time.monotonic(), 0, Counter[int]()
        alive: dict[int, Any] = {}

        def spawned(method: str, target: Any, *given: Any) -> Any:
            # The child finds the proxy where this process finds the server.
            os.environ["AWS_ENDPOINT_URL_S3"] = os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint_url
            context: Any = multiprocessing.get_context(method)
            made = context.Process(target=target, args=given, daemon=True)
            made.start()
            os.environ.update(direct)
            return made

        def start(process: int) -> None:
            life = lives[process]
            lives[process] += 1
            method = "fork" if process % 2 else "spawn"
            alive[process] = spawned(method, work, process, life, uris, folder, options.seed)

        readers = [spawned("spawn", read, n, uris, folder, ended) for n in range(READERS)]
        for process in range(PROCESSES):
            start(process)
        while time.monotonic() - began < options.minutes * 60:
            time.sleep(rng.uniform(*KILL_SECONDS))
            victim = rng.randrange(PROCESSES)
            alive[victim].kill()
            alive[victim].join()
            kills += 1
            start(victim)
        for each in alive.values():
            each.kill()
            each.join()
        on[0] = False
        ended.set()
        for each in readers:
            each.join()
        journal = list(entries(Path(folder).glob("work.*.jsonl")))
        looks = list(entries(Path(folder).glob("read.*.jsonl")))
        done = {note["request"] for note in journal if note.get("done")}
        tables = inlay.snapshot(uris)
        wrong = [f"at a cut: {each}" for note in looks for each in note.get("cut", ())]
        wrong += [f"at the end: {each}" for each in differences(tables)]
        log = requests(tables[TABLES].scan().to_arrow().to_pylist())
        wrong += [f"{each} was acknowledged, and is not in the log" for each in done - log.keys()]
        wrong += [f"a bare error: {note['bare']}" for note in journal + looks if "bare" in note]
        for table in tables:
            wrong += [f"{table.uri}: {error}" for error in table.maintain.verify().errors]
        cuts = [note for note in looks if "cut" in note]
        apart = [note for note in looks if "apart" in note]
        figures = {
            "minutes": round((time.monotonic() - began) / 60, 1),
            "requests": len(proxy.passed),
            "faults": dict(Counter(proxy.faults)),
            "killed": kills,
            "transfers_acknowledged": len(done),
            "transfers_in_the_log": len(log),
            "versions": {table.uri.rpartition("/")[2]: table.version for table in tables},
            "cuts_read": len(cuts),
            "read_apart": len(apart),
            "wrong_where_read_apart": sum(bool(note["apart"]) for note in apart),
            "errors": dict(Counter(n["error"] for n in journal + looks if "error" in n)),
            "wrong": len(wrong),
        }
        print(json.dumps(figures, indent=2))
        for each in wrong[:20]:
            print("WRONG", each)
    return 1 if wrong or not cuts else 0


if __name__ == "__main__":
    sys.exit(main())
