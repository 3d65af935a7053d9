"""What tables cost: requests, bytes, waves, CPU, wall, memory, beside other libraries.

    python benchmarks/bench.py                                  # small, Inlay alone, printed: minutes
    python benchmarks/bench.py --peers --write                  # `make bench PEERS=1`: docs/benchmarks
    python benchmarks/bench.py --peers --write --steps queries shapes/lance       # parts of it
    python benchmarks/bench.py --peers --write --resume         # what is not yet of today
    python benchmarks/bench.py --counts                         # a small table; only what is counted

Each step is a process with a server of its own, and is stored when it has ended, with the machine's load
and when that was; the page is made of what is stored (`page.py`). `--list` names the steps. Requests and
bytes are counted at the server, which answers after 20 ms, and are the same on every machine; CPU and wall
are of this one, and good for ratios between steps of one run on a machine without other work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import goals
import page
from counting_server import CountingServer
from data import generated, lineitem, parts
from shapes import Scale

HERE = Path(__file__).parent
PEERS = ("pyarrow", "duckdb", "polars", "deltalake", "pyiceberg", "lance")
# Of the peers' environment. DuckDB's extensions come as wheels for 1.5 (docs/INTEROP.md).
PEER_PACKAGES = (
    *("pyarrow", "polars", "deltalake", "pylance", "pyiceberg[sql-sqlite,pyarrow,s3fs]"),
    *("duckdb==1.5.5", "duckdb-extension-httpfs"),
)
# What is measured, and of which libraries besides Inlay.
PARTS: Mapping[str, Sequence[str]] = {
    "queries": PEERS,
    "shapes": PEERS,
    "compaction": ("deltalake", "lance"),
    "planning": ("deltalake", "pyiceberg", "lance"),
    "operations": (),
}
# Of `contention.py`.
WRITERS: Mapping[str, Sequence[str]] = {
    "4": ["--writers", "4"],
    "16": ["--writers", "16"],
    "16-swaps": ["--writers", "16", "--swaps", "15"],
    "16-load": ["--writers", "16", "--busy", "30", "--rounds", "2"],
}
WHOLE = Scale()
SMALL = Scale(1_500_303, columns=1_000, tiny=200, orphans=1_100, event_rows=100_000, planned=10_000)
# Of the counts that tests hold.
COUNTED = Scale(90_000, 3, 0.0, planned=2_000)
RESUMED = timedelta(hours=12)
STEP_SECONDS = 15 * 60

Step = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Run:
    scale: Scale
    peers: Sequence[str]
    is_whole: bool

    def steps(self) -> dict[str, Step]:
        """By name, in order: each gives what is stored of it."""
        made: dict[str, Step] = {}
        for part, others in PARTS.items():
            for library in ("inlay", *(name for name in others if name in self.peers)):
                made[f"{part}/{library}"] = lambda p=part, of=library: self.library(p, of)
        once = [] if self.is_whole else ["--rounds", "1"]
        peers = ["--peers"] if self.peers else []
        for name, more in WRITERS.items():
            command = ["contention.py", "--threads", "0", "--rounds", "3", "--seconds", "6"]
            made[f"writers/{name}"] = self.script(*command, *more, *peers, *once)
        size = [] if self.is_whole else ["--size", "32"]
        made["surgery"] = self.script("tests.measured.surgery", *size)
        rows = ["--rows", str(self.scale.rows)]
        latencies = [] if self.is_whole else ["--latencies", "20"]
        limits = self.script("reading.py", *rows)
        ranges = self.script("tests.measured.ranges", *rows, *latencies)
        made["reading"] = lambda: ranges() | limits()
        return made

    def library(self, part: str, library: str) -> dict[str, Any]:
        """The cases of one library, in a process of its own environment."""
        python = Path(sys.executable) if library == "inlay" else peers_python()
        cases = []
        if self.scale.rows >= 100_000:
            generated(self.scale.rows)  # by this environment, for all
        with CountingServer(self.scale.latency_ms) as server:
            scale = json.dumps(asdict(self.scale))
            command: list[str | Path] = [python, HERE / "libraries.py", part, library]
            try:
                for line in lines_of([*command, server.endpoint, scale], server.env()):
                    case = json.loads(line)
                    cases.append(case)
                    tell(page.figures(case))
            except subprocess.CalledProcessError as error:
                tell(f"{part}/{library} ended early: {error}")
                if not cases:
                    raise
        return {"cases": cases}

    def script(self, name: str, *arguments: str) -> Step:
        """A benchmark, or a module of the tests that measures a part of the engine: prints what it does,
        and at last its figures, as JSON."""
        what: list[str | Path] = [HERE / name] if name.endswith(".py") else ["-m", name]

        def step() -> dict[str, Any]:
            last = "{}"
            command = [sys.executable, *what, *arguments, "--json"]
            for last in lines_of(command, {"PYTHONPATH": str(HERE.parent)}):
                if not last.startswith("{"):
                    tell(last)
            return dict(json.loads(last))

        return step


def lines_of(command: Sequence[str | Path], env: Mapping[str, str]) -> Iterator[str]:
    """What a process prints, as it does; an error when it fails, or takes longer than any step should."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    assert process.stdout is not None
    timer = threading.Timer(STEP_SECONDS, process.kill)
    timer.start()
    with process:
        for line in process.stdout:
            if line.strip():
                yield line.rstrip()
    timer.cancel()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


BEGAN = time.monotonic()


def tell(text: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - BEGAN), 60)
    print(f"{minutes:3}:{seconds:02}  {text}", file=sys.stderr, flush=True)


def peers_python() -> Path:
    """An environment with the other libraries, made when it is not there; INLAY_PEERS names the Python of
    another."""
    if other := os.environ.get("INLAY_PEERS"):
        return Path(other)
    folder = HERE.parent / ".tools" / "peers"
    python = folder / "bin" / "python"
    if not python.exists():
        uv = HERE.parent / ".tools" / "uv" / "bin" / "uv"
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, folder], check=True)
        install: list[str | Path] = [uv, "pip", "install", "-q", "--python", python]
        subprocess.run([*install, *PEER_PACKAGES], check=True)
    return python


def about(scale: Scale) -> dict[str, Any]:
    """The circumstances of a step that begins now."""
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"Python {platform.python_version()}, pyarrow {pa.__version__}, "
        f"{os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "scale": asdict(scale),
    }


def measure(
    run: Run, names: Sequence[str], minutes: float, keep: Callable[[str, dict[str, Any]], None]
) -> None:
    steps = run.steps()
    for number, name in enumerate(names, 1):
        if time.monotonic() - BEGAN > 60 * minutes:
            tell(f"{len(names) - number + 1} steps remain: --resume")
            return
        tell(f"[{number} of {len(names)}] {name}")
        circumstances, began = about(run.scale), time.monotonic()
        try:
            figures = steps[name]()
        except subprocess.CalledProcessError as error:
            tell(f"{name} failed: {error}")
            continue
        seconds = round(time.monotonic() - began)
        keep(name, {**circumstances, "seconds": seconds, **figures})


def chosen(steps: Sequence[str], asked: Sequence[str]) -> list[str]:
    """Those that are named, or whose part is."""
    unknown = [
        name for name in asked if not any(s == name or s.split("/")[0] == name for s in steps)
    ]
    if unknown:
        raise SystemExit(f"no such step: {', '.join(unknown)}; there are {', '.join(steps)}")
    return [s for s in steps if not asked or s in asked or s.split("/")[0] in asked]


# -- what tests hold ------------------------------------------------------------------------------


def counts(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is the same on every machine."""
    return {
        f"{c['section']}: {c['name']}": {
            "requests": [c["first"]["requests"], *([c["again"]["requests"]] if c["again"] else [])],
            "rows": c["first"]["rows"],
        }
        for c in cases
    }


def cpu_ratios(cases: Sequence[Mapping[str, Any]], scale: Scale) -> dict[str, float]:
    """CPU of each warm query to that of pyarrow's decoding everything from memory, in one thread."""
    bodies = []
    for part in parts(lineitem(scale.rows), scale.files):
        sink = pa.BufferOutputStream()
        pq.write_table(part, sink, compression="zstd")
        bodies.append(sink.getvalue())
    began = time.process_time()
    for body in bodies:
        pq.read_table(pa.BufferReader(body), use_threads=False)
    whole = max(time.process_time() - began, 1e-3)
    return {c["name"]: round((c["again"] or c["first"])["cpu_s"] / whole, 3) for c in cases}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="all, or those named")
    parser.add_argument("--whole", action="store_true", help="sizes of the page, without peers")
    parser.add_argument(
        "--steps", nargs="+", default=(), help="parts, or steps of them: queries/lance"
    )
    parser.add_argument("--list", action="store_true", help="name the steps")
    parser.add_argument("--resume", action="store_true", help="leave out what was stored today")
    parser.add_argument("--minutes", type=float, default=600, help="after which no step begins")
    for name in ("rows", "columns", "tiny", "orphans", "event-rows", "planned"):
        parser.add_argument(f"--{name}", type=int, help="instead of the size's own")
    parser.add_argument("--counts", action="store_true", help="print what is counted, as JSON")
    parser.add_argument("--ratios", action="store_true", help="print CPU to pyarrow's, as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks")
    options = parser.parse_args(arguments)
    peers = options.peers if options.peers is None or options.peers else list(PEERS)
    is_whole = options.peers is not None or options.whole
    scale = WHOLE if is_whole else SMALL
    if options.counts or options.ratios:
        scale = COUNTED
    sizes = {n: getattr(options, n) for n in ("rows", "columns", "tiny", "orphans", "event_rows")}
    sizes["planned"] = options.planned
    scale = replace(scale, **{name: value for name, value in sizes.items() if value is not None})
    run = Run(scale, peers or (), is_whole)
    if options.counts:
        cases = [
            c
            for p in ("queries", "operations", "planning")
            for c in run.library(p, "inlay")["cases"]
        ]
        print(json.dumps(counts(cases), indent=1))
        return 0
    if options.ratios:
        print(json.dumps(cpu_ratios(run.library("queries", "inlay")["cases"], scale), indent=1))
        return 0
    names = chosen(list(run.steps()), options.steps)
    stored: dict[str, Any] = page.stored(page.RESULTS) if options.write else {}
    if options.resume:
        since = (datetime.now(UTC) - RESUMED).isoformat()
        names = [name for name in names if stored.get(name, {}).get("began", "") < since]
    if options.list:
        print("\n".join(names))
        return 0

    def keep(name: str, figures: dict[str, Any]) -> None:
        stored[name] = figures
        if options.write:
            page.keep_results(stored)

    measure(run, names, options.minutes, keep)
    print("\n".join(page.measured(stored)))
    missing = [name for name in names if name not in stored]  # failed, or not begun
    if missing or options.steps:
        return 1 if missing else 0
    shown = {row[0] for row in goals.rows(goals.Figures(stored))}
    for goal in goals.GOALS:
        if goal.what not in shown:
            tell(f"not measured: {goal.what}")
    return 0 if len(shown) == len(goals.GOALS) else 1


if __name__ == "__main__":
    sys.exit(main())
