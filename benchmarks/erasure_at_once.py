"""One person, and a thousand by one request, erased from files of another writer: CPU, memory, requests.

    python benchmarks/erasure_at_once.py                  # 1.46 GB in 16 files; 5 GB of disk, minutes
    python benchmarks/erasure_at_once.py --peers  # beside delta-rs and rewriting whole objects

Everything lies in a directory. Each cell is a process of its own over a fresh copy: its CPU, user and
system, from the first request to erase up to the last receipt, and the most memory it ever held. Inlay's
has every step in it, the waits between them shortened to seconds: the rewrite, deletion of the landed
originals, the last look through every file, 1,000 receipts. delta-rs deletes and vacuums; "rewriting" is
pyarrow that filters each object and writes it again. Neither looks afterwards, nor says what it did.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve()
FILES, GROUPS, GROUP_ROWS = 16, 18, 20_000
MANY = 1_000
PEERS = ("delta-rs", "rewriting")
THREADS = 2
TABLE, LANDING, KEYS = "tables/people", "ingest/people/", "keys/people.csv"
# Whose requests are counted apart: rows, and what there is one of for each person.
APART = {f"{TABLE}/data/": "data", LANDING: "data", f"{TABLE}/erasure/": "receipts"}


def write_files(folder: Path, groups: int) -> int:
    """`FILES` files of `groups` row groups of 5 MB each, ids in no order; returns the rows."""
    import numpy as np

    dice = np.random.default_rng(7)
    rows = groups * GROUP_ROWS
    ids = dice.permutation(FILES * rows)
    towns = pa.array([f"town {n:04}" for n in range(2_000)])
    folder.mkdir()
    for n in range(FILES):
        own = pa.array(ids[n * rows : (n + 1) * rows])
        note = dice.bytes(228 * rows)
        table = pa.table(
            {
                "id": own,
                "email": [f"person{i}@example.org" for i in own.to_pylist()],
                "town": towns.take(pa.array(dice.integers(0, 2_000, rows))),
                "amount": dice.integers(0, 100_000, rows),
                "note": pa.Array.from_buffers(pa.binary(228), rows, [None, pa.py_buffer(note)]),
            }
        )
        pq.write_table(table, folder / f"{n:02}.parquet", row_group_size=GROUP_ROWS)
    return FILES * rows


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# -- a table of them ------------------------------------------------------------------------------


def context(folder: Path) -> tuple[Any, Counter[str]]:
    """Of the table in a directory, and what is asked of it from now on: requests by what they are of."""
    import inlay
    from inlay.engine import open_store
    from store_requests import count_requests

    uri = f"file://{folder}/{TABLE}"
    own = inlay.connect(uri)
    counts: Counter[str] = Counter()

    def sent(key: str, bytes_up: int) -> None:
        key = key.removeprefix(f"{folder}/".removeprefix("/"))
        counts[next((kind for at, kind in APART.items() if key.startswith(at)), "others")] += 1
        counts["bytes up"] += bytes_up

    count_requests(open_store(uri)[0], sent)
    return replace(own, executor=ThreadPoolExecutor(THREADS)), counts


def make_table(folder: Path) -> None:
    import inlay

    landed = sorted(str(path) for path in (folder / LANDING).iterdir())
    table = inlay.create(f"file://{folder}/{TABLE}", pq.read_schema(landed[0]))
    table.ingest([f"file://{path}" for path in landed])


# -- the three ways -------------------------------------------------------------------------------


def by_inlay(folder: Path, who: Sequence[int]) -> dict[str, Any]:
    from inlay.engine import Request, advance_erasures, collect_garbage, erase_from_file

    ctx, counts = context(folder)
    base = str(folder).removeprefix("/")
    seconds: dict[str, float] = {}
    began = cpu_seconds()
    request = Request.of("all", body="all")
    erase_from_file(ctx, f"file:///{base}/{KEYS}", request, prefix=f"{base}/")
    seconds["open"] = cpu_seconds() - began
    advance_erasures(ctx, memory_bytes=400 << 20)
    seconds["rewrite"] = cpu_seconds() - began - sum(seconds.values())
    receipts: list[str] = []
    while len(receipts) < len(who):
        receipts += collect_garbage(
            ctx,
            life_seconds=1,
            clock_margin_seconds=1,
            landing=f"{base}/{LANDING}",
            hmac_key=b"k",
        ).receipts
    seconds["look and end"] = cpu_seconds() - began - sum(seconds.values())
    return {"requests": counts, "phases": seconds}


def by_delta(folder: Path, who: Sequence[int]) -> dict[str, Any]:
    from deltalake import DeltaTable

    table = DeltaTable(str(folder / LANDING))
    table.delete(f"id IN ({', '.join(map(str, who))})")
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    return {}


def by_rewriting(folder: Path, who: Sequence[int]) -> dict[str, Any]:
    import pyarrow.compute as pc

    gone = pa.array(who, pa.int64())
    for path in sorted((folder / LANDING).iterdir()):
        table = pq.read_table(path)
        left = table.filter(pc.invert(pc.is_in(table["id"], value_set=gone)))
        if left.num_rows < table.num_rows:
            pq.write_table(left, path, row_group_size=GROUP_ROWS)
    return {}


WAYS: dict[str, Callable[[Path, Sequence[int]], dict[str, Any]]] = {
    "inlay": by_inlay,
    "delta-rs": by_delta,
    "rewriting": by_rewriting,
}


# -- each in a process of its own -----------------------------------------------------------------


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def write_as_delta(folder: Path) -> None:
    from deltalake import write_deltalake

    place = folder / LANDING
    for path in sorted(place.glob("*.parquet")):
        write_deltalake(str(place), pq.read_table(path), mode="append")
        path.unlink()


def set_up(way: str, source: Path, folder: Path, who: Sequence[int]) -> None:
    shutil.copytree(source, folder / LANDING)
    if way == "inlay":
        make_table(folder)
        (folder / KEYS).parent.mkdir()
        (folder / KEYS).write_text("id\n" + "".join(f"{i}\n" for i in who))
    elif way == "delta-rs":
        write_as_delta(folder)


def run_one(way: str, folder: Path, who: Sequence[int]) -> dict[str, Any]:
    began = cpu_seconds()
    found = WAYS[way](folder, who)
    return {"cpu": cpu_seconds() - began, "peak": peak_bytes(), **found}


def peak_bytes() -> int:
    """Not `ru_maxrss`, in which a process that was just begun has the most that its parent ever held."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmHWM:"))


def child(python: Path | str, *asked: str) -> dict[str, Any]:
    done = subprocess.run([str(python), str(HERE), *asked], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout or b"{}")
    return found


def measure(way: str, source: Path, who: Sequence[int]) -> dict[str, Any]:
    python: Path | str = sys.executable
    if way == "delta-rs":
        from bench import peers_python

        python = peers_python()
    with tempfile.TemporaryDirectory(dir=source.parent) as name:
        asked = [name, json.dumps([int(i) for i in who])]
        child(python, "--set-up", way, str(source), *asked)
        return child(python, "--run", way, str(source), *asked)


def row(way: str, found: dict[str, Any]) -> list[str]:
    cells = [way, f"{found['cpu']:.1f}", f"{found['peak'] / 2**20:.0f}"]
    counts = found.get("requests")
    if counts is None:
        return [*cells, "", ""]
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["phases"].items())
    asked = f"{counts['others']} / {counts['data']:,} / {counts['receipts']:,}"
    return [*cells, f"{asked}; {counts['bytes up'] / 1e6:,.0f} MB up", phases]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--groups", type=int, default=GROUPS, help="row groups of 5 MB in each file"
    )
    parser.add_argument("--people", type=int, nargs="*", default=[1, MANY])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--folder", help="where: by default the system's")
    parser.add_argument("--set-up", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.set_up or asked.run:
        way, source, folder, who = asked.set_up or asked.run
        if asked.set_up:
            set_up(way, Path(source), Path(folder), json.loads(who))
        else:
            print(json.dumps(run_one(way, Path(folder), json.loads(who))))
        return
    rows = []
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        source = Path(name) / "source"
        many = write_files(source, asked.groups)
        size = bytes_in(source)
        about = f"{size / 1e9:.2f} GB, {many:,} rows in {FILES} files of {asked.groups} row groups."
        print(about, flush=True)
        for people in asked.people:
            who = random.Random(5).sample(range(many), people)
            for way in ("inlay", *(PEERS if asked.peers else ())):
                rows.append(row(f"{people:,}: {way}", measure(way, source, who)))
                print("| " + " | ".join(rows[-1]) + " |", flush=True)


if __name__ == "__main__":
    main()
