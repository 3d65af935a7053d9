"""What tables cost, measured in one run: requests, bytes, round trips, CPU, wall, memory.

    python benchmarks/bench.py --write                   # what `make bench` does: docs/benchmarks
    python benchmarks/bench.py --peers --write           # beside other libraries (in their own environment)
    python benchmarks/bench.py --endpoint-url URL        # against a server of yours, which is not counted
    python benchmarks/bench.py --rows 90000 --files 3 --counts   # a small table; only what is counted
    python benchmarks/bench.py --shapes --peers          # only the tables of other shapes (`shapes.py`)

TPC-H's lineitem (16 columns, sorted by order key as it is generated) as 20 files. Requests and bytes are
counted at a server in a process of its own that answers each request after `--latency-ms`. Counts are exact
and the same on every machine; CPU and wall are of this one, and good for ratios within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import page
import shapes
from counting_server import CountingServer, Measured
from inlay.local.stack import environment
from peers import COMPACTION, COMPACTIONS, Query, uneven

HERE = Path(__file__).parent
BUCKET = "bench"
FILES = 20
SF1_ROWS = 6_001_215
PEERS = ("pyarrow", "duckdb", "polars", "deltalake", "pyiceberg", "lance")
# Of the peers' environment. DuckDB's extensions come as wheels for 1.5 (docs/INTEROP.md).
PEER_PACKAGES = (
    *("pyarrow", "polars", "deltalake", "pylance", "pyiceberg[sql-sqlite,pyarrow,s3fs]"),
    *("duckdb==1.5.5", "duckdb-extension-httpfs"),
)
SCHEMA = pa.schema(
    [
        *((f"l_{name}", pa.int64()) for name in ("orderkey", "partkey", "suppkey")),
        ("l_linenumber", pa.int32()),
        *(
            (f"l_{name}", pa.decimal128(15, 2))
            for name in ("quantity", "extendedprice", "discount", "tax")
        ),
        *((f"l_{name}", pa.string()) for name in ("returnflag", "linestatus")),
        *((f"l_{name}", pa.date32()) for name in ("shipdate", "commitdate", "receiptdate")),
        *((f"l_{name}", pa.string()) for name in ("shipinstruct", "shipmode", "comment")),
    ]
)


@dataclass(frozen=True)
class Case:
    section: str
    name: str
    first: Measured
    again: Measured | None = None  # of the same open table, where that makes sense
    library: str = "inlay"


@dataclass
class Run:
    server: CountingServer
    cases: list[Case] = field(default_factory=list)
    section: str = ""

    def measure(self, name: str, action: Callable[[], Any]) -> None:
        self.cases.append(Case(self.section, name, self.server.measure(action)))

    def query(self, name: str, ask: Callable[[Any], int]) -> None:
        """Of a table just opened (opening included), and of the same once more."""
        import inlay

        opened: list[Any] = []

        def first() -> int:
            opened.append(inlay.open(uri()))
            return ask(opened[0])

        cold = self.server.measure(first)
        warm = self.server.measure(lambda: ask(opened[0]))
        self.cases.append(Case(self.section, name, cold, warm))


def uri(name: str = "lineitem") -> str:
    return f"s3://{BUCKET}/{name}"


# -- data -----------------------------------------------------------------------------------------


def lineitem(rows: int) -> pa.Table:
    """TPC-H's, by its generator; for a small table made up here, the same wherever it is made."""
    if rows < 100_000:
        return made_up(rows)
    scale = max(0.1, round(rows / SF1_ROWS + 0.005, 2))
    path = Path(tempfile.gettempdir()) / f"inlay-bench-{scale}" / "lineitem.parquet"
    if not path.exists():
        generator = Path(sys.executable).with_name("tpchgen-cli")
        command: list[str | Path] = [generator, "parquet", "-s", str(scale), "--tables=lineitem"]
        subprocess.run(
            [*command, f"--output-dir={path.parent}"], check=True, stdout=subprocess.DEVNULL
        )
    return pq.read_table(path).slice(0, rows).cast(SCHEMA)


def made_up(rows: int) -> pa.Table:
    dice = random.Random(1)
    day = date(1995, 1, 1)
    words = ["deposits", "furiously", "quickly", "requests", "accounts", "ironic", "final", "the"]
    columns: list[list[Any]] = [
        [n // 4 + 1 for n in range(rows)],
        [dice.randrange(1, 200_000) for _ in range(rows)],
        [dice.randrange(1, 10_000) for _ in range(rows)],
        [n % 4 + 1 for n in range(rows)],
        [Decimal(dice.randrange(1, 51)) for _ in range(rows)],
        [Decimal(dice.randrange(90_000, 10_000_000)) / 100 for _ in range(rows)],
        [Decimal(dice.randrange(11)) / 100 for _ in range(rows)],
        [Decimal(dice.randrange(9)) / 100 for _ in range(rows)],
        [dice.choice("ANR") for _ in range(rows)],
        [dice.choice("OF") for _ in range(rows)],
        *([day + timedelta(dice.randrange(2_500)) for _ in range(rows)] for _ in range(3)),
        [dice.choice(["COLLECT COD", "NONE", "TAKE BACK RETURN"]) for _ in range(rows)],
        [dice.choice(["AIR", "MAIL", "RAIL", "SHIP", "TRUCK"]) for _ in range(rows)],
        [" ".join(dice.choices(words, k=5)) + f" {n}" for n in range(rows)],
    ]
    arrays = [pa.array(v, f.type) for v, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


@dataclass(frozen=True)
class Asked:
    """The query table, as conditions that every library understands."""

    key: int
    until: int
    comment: str
    parts: int

    @staticmethod
    def of(data: pa.Table) -> Asked:
        middle = data.num_rows // 2
        key = data["l_orderkey"][middle].as_py()
        # .1 % of the rows; a condition that .02 % of all rows meet, wherever they are.
        last = data["l_orderkey"][min(data.num_rows - 1, middle + data.num_rows // 1000)].as_py()
        return Asked(key, last, data["l_comment"][middle].as_py(), 40)

    def where(self) -> Mapping[str, Query]:
        asked: dict[str, tuple[list[str] | None, str | None, int | None]] = {
            "point by key": (None, f"l_orderkey = {self.key}", None),
            "range of .1 %": (
                None,
                f"l_orderkey >= {self.key} AND l_orderkey <= {self.until}",
                None,
            ),
            "2 of 16 columns": (["l_extendedprice", "l_shipmode"], None, None),
            "text absent": (None, "l_comment = 'no such comment'", None),
            "text present": (None, f"l_comment = '{self.comment}'", None),
            "scattered .02 %": (None, f"l_partkey < {self.parts}", None),
            "all": (None, None, None),
            "limit 10": (None, None, 10),
        }
        found: dict[str, Query] = {name: (*query, None) for name, query in asked.items()}
        return {**found, "top 10": (None, None, 10, "l_extendedprice")}


# -- what is measured -----------------------------------------------------------------------------


def parts(data: pa.Table, files: int) -> list[pa.Table]:
    step = -(-data.num_rows // files)
    return [data.slice(start, step) for start in range(0, data.num_rows, step)]


def fill(data: pa.Table, files: int, name: str = "lineitem") -> None:
    import inlay

    table = inlay.create(
        uri(name),
        data.schema,
        primary_key=["l_orderkey", "l_linenumber"],
        sort_by="l_orderkey",
        properties={"write.bloom_filters": "l_comment"},
    )
    for part in parts(data, files):
        table.append(part)


def measure_queries(run: Run, data: pa.Table) -> None:
    run.section = "Queries"
    for name, (columns, where, limit, order) in Asked.of(data).where().items():
        options: dict[str, Any] = {"columns": columns, "where": where, "limit": limit}
        if order is not None:
            options["order_by"] = f"{order} DESC"
        run.query(name, lambda t, o=options: t.scan(**o).to_arrow().num_rows)
    run.query("count", lambda t: t.count())
    run.query("count where", lambda t: t.count(where="l_shipmode = 'AIR'"))


def measure_writes(run: Run, data: pa.Table) -> None:
    import inlay

    run.section = "Writes"
    some = data.slice(0, min(50_000, data.num_rows))
    run.measure("create", lambda: inlay.create(uri("writes"), data.schema, primary_key=KEY))
    table = inlay.open(uri("writes"))
    run.measure(f"append {some.num_rows:,} rows", lambda: table.append(some))
    run.measure("append 1 row", lambda: table.append(data.slice(0, 1)))
    run.measure("upsert 1,000 rows", lambda: table.upsert(some.slice(0, 1_000)))
    key, line = (some[name][5].as_py() for name in KEY)
    one = f"l_orderkey = {key} AND l_linenumber = {line}"
    run.measure("update 1 row", lambda: table.update({"l_tax": "0"}, where=one))


KEY = shapes.KEY


def measure_deletes(run: Run, data: pa.Table) -> None:
    import inlay

    run.section = "Deletes"
    table = inlay.open(uri())
    asked = Asked.of(data)
    keys = data.select(KEY).take(pa.array(range(0, data.num_rows, 60)))
    low = f"l_orderkey < {asked.key // 100}"
    run.measure("by key range", lambda: table.delete(low))
    run.measure("by condition", lambda: table.delete("l_shipmode = 'FOB' AND l_tax > 0.07"))
    run.measure("10 keys", lambda: table.delete(keys=keys.slice(0, 10)))
    run.measure(f"{keys.num_rows:,} keys", lambda: table.delete(keys=keys))
    of_one = f"l_orderkey = {asked.key}"
    run.measure("1 row's key by vector", lambda: table.delete(of_one, mode="vector"))
    of_all = "l_linenumber = 3"
    run.measure("scattered by vector", lambda: table.delete(of_all, mode="vector"))
    of_next = f"l_orderkey = {asked.until}"
    run.measure("1 row's key by surgery", lambda: table.delete(of_next, mode="surgery"))
    run.section = "Reading under these deletes"
    run.query("2 of 16 columns", lambda t: t.scan(columns=TWO).to_arrow().num_rows)
    run.query("count", lambda t: t.count())
    run.section = "Maintenance"
    run.measure("rewrite", table.maintain.rewrite)
    run.measure("compact", table.maintain.compact)
    run.measure("expire", lambda: table.maintain.expire(days=0))
    run.measure(
        "collect garbage, only looking", lambda: table.maintain.collect_garbage(dry_run=True)
    )


TWO = ["l_extendedprice", "l_shipmode"]


def measure_shapes(run: Run, data: pa.Table, scale: shapes.Scale) -> None:
    import inlay

    def by(pieces: Sequence[pa.Table], endpoint: str, name: str) -> Callable[[], shapes.Ask]:
        names = pieces[0].column_names
        key = [each for each in ("id", *KEY) if each in names]
        table = inlay.create(uri(name), pieces[0].schema, primary_key=key, sort_by=key[0])
        for piece in pieces:
            table.append(piece)

        def opened() -> shapes.Ask:
            found = inlay.open(uri(name))
            return lambda q: int(found.scan(columns=q[0], where=q[1]).to_arrow().num_rows)

        return opened

    of = shapes.Shapes("inlay", run.server, scale, data, shapes.INLAY_ACTS, by)
    run.cases += [Case(shapes.SECTION, name, used) for name, used in of.measured()]


def measure_planning(run: Run, files: int) -> None:
    """Plans over entries of files that do not exist."""
    import cost
    import inlay

    run.section = f"Planning over {files:,} files"
    table = inlay.create(uri("wide"), cost.SCHEMA, primary_key="id", sort_by="id")
    table.append(cost.rows(0, cost.SMALL_ROWS))
    cost.fill(table, files, batch=2_000)
    some = files * cost.SMALL_ROWS // 2
    asked = {"by key": f"id = {some}", "by another column": "customer = -1", "all": None}
    for name, where in asked.items():

        def plan(where: str | None = where) -> int:
            explained = inlay.open(uri("wide")).scan(where=where).explain()
            return int(explained.files_read)

        run.measure(name, plan)


def measure_compaction(run: Run, data: pa.Table) -> None:
    """One file of five sixths of the rows, and the rest in twenty: what gains is the rest."""
    import inlay

    run.section = COMPACTION
    table = inlay.create(uri("compaction"), data.schema, primary_key=KEY, sort_by="l_orderkey")
    for part in uneven(data):
        table.append(part)
    run.measure("compact", lambda: table.maintain.compact() and table.snapshot.totals.files)
    run.measure("compact again", lambda: table.maintain.compact() and table.snapshot.totals.files)
    run.measure("expire", lambda: table.maintain.expire(days=0) and 0)
    # Grace is days: nothing is old enough to go, and everything is looked at.
    run.measure("collect garbage", lambda: table.maintain.collect_garbage() and 0)


def baseline(run: Run, data: pa.Table, files: int) -> None:
    """The same columns decoded by pyarrow, in one thread, from files in memory: what CPU is held to."""
    run.section = "pyarrow from memory"
    bodies = []
    for part in parts(data, files):
        sink = pa.BufferOutputStream()
        pq.write_table(part, sink, compression="zstd")
        bodies.append(sink.getvalue())

    def read(columns: list[str] | None) -> int:
        return sum(
            pq.read_table(pa.BufferReader(b), columns=columns, use_threads=False).num_rows
            for b in bodies
        )

    run.measure("2 of 16 columns", lambda: read(TWO))
    run.measure("all", lambda: read(None))


# -- peers ----------------------------------------------------------------------------------------


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


def measure_peers(
    run: Run,
    data: pa.Table,
    names: Sequence[str],
    queries: Mapping[str, Any],
    scale: shapes.Scale = shapes.Scale(),  # noqa: B008 - frozen
) -> Iterator[Case]:
    asked, more = json.dumps(queries), json.dumps(asdict(scale))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lineitem.parquet"
        pq.write_table(data, path, compression="none")
        for name in names:
            done = subprocess.run(
                [peers_python(), HERE / "peers.py", name, run.server.endpoint, path, asked, more],
                capture_output=True,
                text=True,
                env={**os.environ, **run.server.env()},
            )
            if done.stderr:
                print(f"{name}: {done.stderr.strip()}", file=sys.stderr)
            for line in done.stdout.splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    warm = None if row["again"] is None else Measured(**row["again"])
                    first = Measured(**row["first"])
                    yield Case(row["section"], row["name"], first, warm, name)


# -- what is shown --------------------------------------------------------------------------------


def of_library(cases: Sequence[Case], section: str, library: str = "inlay") -> dict[str, Case]:
    return {c.name: c for c in cases if c.section == section and c.library == library}


def plot(cases: Sequence[Case]) -> str:
    """Bars of warm wall time of each query, ours being 1, on a logarithmic scale."""
    import math

    ours = of_library(cases, "Queries")
    libraries = [n for n in dict.fromkeys(c.library for c in cases) if n != "inlay"]
    colours = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"]
    made: list[str] = []
    at = 40
    for name, case in ours.items():
        made.append(f'<text x="10" y="{at + 12}" font-weight="bold">{name}</text>')
        for library, colour in zip(libraries, colours, strict=False):
            there = of_library(cases, "Queries", library).get(name)
            if there is None or there.again is None or case.again is None:
                continue
            at += 16
            ratio = max(there.again.wall_s, 1e-4) / max(case.again.wall_s, 1e-4)
            width = 120 * math.log10(ratio)
            left = 330 + min(width, 0)
            made.append(
                f'<rect x="{left:.0f}" y="{at}" width="{abs(width):.0f}" height="12" fill="{colour}"/>'
                f'<text x="20" y="{at + 11}">{library} {ratio:.2f}</text>'
            )
        at += 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{at + 20}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>'
        '<text x="10" y="20">Wall time of a warm query, Inlay = 1 (to the right: slower)</text>'
        f'<line x1="330" y1="28" x2="330" y2="{at}" stroke="#888"/>{"".join(made)}</svg>\n'
    )


def cpu_ratios(cases: Sequence[Case]) -> dict[str, float]:
    """CPU of each warm query to that of pyarrow's decoding everything from memory, in the same run."""
    whole = of_library(cases, "pyarrow from memory")["all"].first.cpu_s
    return {
        name: round((case.again or case.first).cpu_s / max(whole, 1e-3), 3)
        for name, case in of_library(cases, "Queries").items()
    }


def counts(cases: Sequence[Case]) -> dict[str, Any]:
    """What is the same on every machine."""
    return {
        f"{c.section}: {c.name}": {
            "requests": [c.first.requests, *([c.again.requests] if c.again else [])],
            "rows": c.first.rows,
        }
        for c in cases
        if c.library == "inlay" and c.section not in ("pyarrow from memory", COMPACTION)
    }


# -- the run --------------------------------------------------------------------------------------


def measure_all(
    server: CountingServer,
    rows: int,
    *,
    files: int = FILES,
    planning: int = 0,
    peers: Sequence[str] = (),
    only_compaction: bool = False,
    only_queries: bool = False,
    only_shapes: bool = False,
    scale: shapes.Scale = shapes.Scale(),  # noqa: B008 - frozen
) -> list[Case]:
    run = Run(server)
    data = lineitem(rows)
    with environment(server.env()):
        import inlay  # noqa: F401 - not part of what is measured

        if only_compaction:
            measure_compaction(run, data)
            run.cases += measure_peers(run, data, [p for p in peers if p in COMPACTIONS], {})
            return run.cases
        if only_shapes:
            fill(data, files)
            measure_shapes(run, data, scale)
            run.cases += measure_peers(run, data, peers, {}, scale)
            return run.cases
        baseline(run, data, files)
        fill(data, files)
        # Imports of the first scan are no part of it.
        Run(server).query("", lambda t: t.scan(limit=1, where="l_tax < 1").to_arrow().num_rows)
        measure_queries(run, data)
        if not only_queries:
            measure_writes(run, data)
            measure_deletes(run, data)
            measure_compaction(run, data)
        if planning:
            measure_planning(run, planning)
        if scale.latency_ms is not None:
            server.clear()
            measure_shapes(run, data, scale)
        run.cases += measure_peers(run, data, peers, Asked.of(data).where(), scale)
    return run.cases


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=SF1_ROWS // 4)
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--planning-files", type=int, default=0)
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="all, or those named")
    parser.add_argument("--compaction", action="store_true", help="print that table, and no other")
    parser.add_argument("--shapes", action="store_true", help="print that table, and no other")
    for name in ("columns", "tiny", "orphans"):
        parser.add_argument(f"--{name}", type=int, default=getattr(shapes.Scale, name))
    parser.add_argument("--endpoint-url", help="a server of the same kind that runs already")
    parser.add_argument("--queries", action="store_true", help="only the queries")
    parser.add_argument("--counts", action="store_true", help="print what is counted, as JSON")
    parser.add_argument("--ratios", action="store_true", help="print CPU to pyarrow's, as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks")
    options = parser.parse_args(arguments)
    counted = options.counts or options.ratios or options.queries or options.compaction
    scale = shapes.Scale(
        None if counted else options.latency_ms, options.columns, options.tiny, options.orphans
    )
    peers = options.peers if options.peers is None or options.peers else list(PEERS)
    with CountingServer(options.latency_ms, endpoint=options.endpoint_url or "") as server:
        cases = measure_all(
            server,
            options.rows,
            files=options.files,
            planning=options.planning_files,
            peers=peers or (),
            only_compaction=options.compaction,
            only_queries=options.queries or options.ratios,
            only_shapes=options.shapes,
            scale=scale,
        )
    if options.compaction:
        print("\n".join(page.compactions([asdict(case) for case in cases], COMPACTION)))
        return 0
    command = f"python benchmarks/bench.py {' '.join(arguments or sys.argv[1:])}"
    about = (
        f"TPC-H lineitem, {options.rows:,} rows in {options.files} files; each request answered after "
        f"{options.latency_ms:g} ms; Python {platform.python_version()}, pyarrow {pa.__version__}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[2]:.0f}."
    )
    if options.shapes:
        print("\n".join(page.shapes([asdict(case) for case in cases])))
        if options.write:
            kept = page.stored("results.json")
            others = [c for c in kept["cases"] if c["section"] != shapes.SECTION]
            kept["shapes"] = f"{command}: {about}"
            kept["cases"] = others + [asdict(c) for c in cases if c.section == shapes.SECTION]
            (page.PLACE / "results.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
            page.main()
        return 0
    if options.counts or options.ratios:
        print(json.dumps(counts(cases) if options.counts else cpu_ratios(cases), indent=1))
        return 0
    results = {
        "command": command,
        "about": about,
        "shapes": f"{command}: {about}",
        "cases": [asdict(case) for case in cases],
    }
    if options.write:
        (page.PLACE / "results.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        (page.PLACE / "ratios.svg").write_text(plot(cases), "utf-8")
        page.main()
    else:
        print(page.page(lambda name: results if name == "results.json" else page.stored(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
