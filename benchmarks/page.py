"""The page of measurements, docs/benchmarks/index.md, from what the benchmarks have stored beside it.

    python benchmarks/page.py        # what `make bench` does at its end

`tests/benchmarks/test_page.py` holds that the page is what this makes of the stored figures.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import goals

PLACE = Path(__file__).parents[1] / "docs" / "benchmarks"
PAGE = PLACE / "index.md"
TABLES = "tables.json"
RESULTS = "results.json"
HEAD = """# Measurements

Made by `benchmarks/page.py` from stored figures. `make bench PEERS=1` measures again the tables up to
that of [reading](#what-reading-waits-for); the others name their commands. Those of Spark, of erasing
many and of soaks were copied by hand from a run (`recorded.json`). Requests and bytes are exact; CPU
and wall time are of one machine, and good for ratios within a table. For the bill see
[cost](../COST.md)."""
USUAL = "Where a section has `--steps`: `python benchmarks/bench.py --peers --write --steps …`;"
GOALS = """Each cell, here and in the tables that compare libraries: requests / MB both ways / waves;
seconds of CPU / wall, opening the table included; then CPU / wall of the same again on the open table.
Waves are the longest chain of requests that the server saw, each begun after the one before was
answered. Beside ours is what the goal names, or the fastest other library; the tables below have all.
Libraries have what `pip` installs and their own defaults; pyarrow, Polars and DuckDB read plain files
by pyarrow. What a library cannot do is left out."""
QUERIES = """A row of 16 columns is in 16 places of a file: a lookup sends a request for those far apart."""
SHAPES = """A fresh process is measured from its start to its end, the least wall of three. "Delete of
one key in 60": delta-rs and Lance by a merge. Of 5,000 columns the tables are created with their rows;
pyarrow, Polars and DuckDB write plain files with pyarrow. Orphans were put beside the table's files,
and go without a grace; ours come with a commit. "Removed for good" is, of ten rows by their id in a
file of 50 columns: Inlay by surgery, expiry and garbage collection; delta-rs by delete and vacuum;
Lance by delete, compaction and cleanup; pyarrow by writing the object again; pyiceberg by delete, which
leaves the old file."""
WRITERS = """Processes that append row after row, beside a bare loop of GET, PUT and PUT If-Match in the
same round; medians of the rounds, and of the ratios within a round. A server of 15 swaps refuses others
of the same key meanwhile, as S3 does; load 30 is as many processes that compute. delta-rs and Lance
give up after some tries, as is their default. The bare loop of these figures sent its requests by this
library's store; since then it sends as many by urllib3, signed by botocore, with up to a tenth more CPU
each."""
READING = """The model (`parquet.read.ranges.Network`): a first byte comes after 20 ms, 32 requests are
waited for side by side, one connection brings 90 MB/s and all of them 200, and each request costs
Python .3 ms. Where a connection is free for each range, those {near_kb} KB apart or less are one
request: what is between them takes as long as another request. Where there are more ranges than
connections, the nearest are joined over gaps up to {gap_kb} KB, as long as a request that waits. By
S3's price fewer requests would be better still, up to 24 ms of a function of 1 GB for a GET. Measured
at three latencies and 90 MB/s of each connection."""
ARROW = """The same files from memory, in one thread, pages checked: CPU s, least of three."""
FRESH = """From the interpreter's start to the answer: the run of the least wall. Keys in variables, as
here and in Lambda, need no botocore; a profile, or a role of the machine, does, which is the difference
to its line. What counts imports neither Arrow nor numpy."""
SMALL = (
    """A scan sends a request for each from 32 threads, and decodes what comes in the caller's."""
)
GROUPS = (
    """By `write.row_group_bytes`, 16 MiB unless a table says otherwise: requests / MB / wall, s."""
)
SURGERY = """CPU of surgery of one of 20 row groups of a file of 256 MiB, to decoding, filtering and
encoding that group by pyarrow: least of twenty turns of each, in memory. What is above 1 is the footer
and the page index (alone: where the group is dropped as a whole), and that texts of dictionaries are
measured before they are decoded, since a file may hold more of them than memory does. Of 50 columns, a
thousand column chunks in the file: 4.8 ms to move the page index, 3.4 to encode the footer, 2.5 to check
the layout before and after, 3 for the new group's own footer and page headers, 5 for those texts: five
dictionaries of 1 MB are decompressed twice, for where the longest text is shows only then."""
PLANNING = """Of entries of files that do not exist: Inlay's with statistics of eight columns by its own
commits, delta-rs's the same in one commit and its checkpoint, pyiceberg's of whole numbers in one
commit, Lance's without."""
GARBAGE = """5,000 orphans and two expired archives take 20 requests: 12 are 6 pages of the listing and
6 deletes, of 1,000 keys each; none of the others can go without a promise that goes with it
(`tests/maintenance/test_garbage.py`):

{requests}

The goal of 14 would be without history, uploads, the last archive and the look, of which
[FORMAT.md](../FORMAT.md), section 11, requires the last two. `inlay.open`, and a handle that moves on,
read the pointer once more."""
GARBAGE_ROWS = (
    ("1", "the pointer", "nobody knows what is needed"),
    (
        "2",
        "a version for each that is retained",
        "what it alone needs is deleted, or what was restored from a backup under a later date",
    ),
    ("1", "uploads that never ended", "they stay for ever, and are paid for"),
    (
        "2",
        "the boundary: the archive of its base, as of every commit, and the swap",
        "a writer in progress commits an orphan that is being deleted",
    ),
    (
        "1",
        "the archive of the boundary's own version",
        "a pointer put back by one version forgets the boundary, and nobody notices",
    ),
    (
        "1",
        "a look at the pointer, right before the deletes",
        "so does one that was put back meanwhile; a new table at this place loses archives",
    ),
)
COMPACTION = "As the libraries' defaults have it."
LIMITS = "What bounds the rows above that read."
METADATA = """Entries with statistics of ten columns, through the real planner and commit: requests / KB
up / KB down / ms of CPU, means of many commits, segments that roll included.

`python -m tests.measured.metadata` (`make bench-metadata WRITE=1`; budgets are checked)"""

# Title: the name under which a benchmark keeps its tables, and what has to be said of them.
COSTS = {
    "What operations ask of S3": (
        "operations",
        """`python benchmarks/cost.py --write`. Counted by the server, on a table of 8 columns that starts
with 20 files of 10,000 rows; the operations run in this order, and each update and upsert before the
deletes adds a marker that readers apply. The starred ones are held to budgets by a test. "Metadata"
is what goes into the pointer, archives and segments; "other" is data files and markers. Writes are
measured warm: a cold one adds 1 GET. [Prices](../COST.md).""",
    ),
    "Erasures": (
        "erasure",
        """`python benchmarks/erasure.py --write`, up to the receipt. Only the three files that hold the
person are of 100 MiB; the others have as many row groups, so requests are those of full files, bytes
are not.""",
    ),
    "A day": (
        "day",
        """`python benchmarks/day.py --peers --write`: 93,750 files of 64 MB land (6 TB); 31,250
requests each delete the rows of one of them by a range of its key; each of 50,000 queries opens the
table, cold, and reads a twentieth of one file by its key. A thousandth of it is simulated. The first
two tables are for the deployed functions, `fixed + n × each` from batches of two sizes. Added, because
the day's table is larger: a GET for each leaf of 1,024 entries and 29 µs per entry where a turn plans
over all files, 6 GETs for a query's plan, a GET for each version of 7 days in garbage collection.
Lambda seconds are CPU + round trips × 20 ms, at 1,769 and 3,008 MiB, and S3's copies at an assumed 100
MB/s, without cold starts, logs and metrics.

The third table is one commit for each file and each delete, by calls of each library, in one run:
operations times their mean in its second half; "growth" is that mean divided by the first half's.
Neither pyiceberg's catalog nor any maintenance of the others is counted.""",
    ),
    "A month, three sizes": (
        "month",
        """`python benchmarks/monthly.py --write` runs the deployed handlers on a store that counts, and
multiplies by [list prices](../COST.md) and the template's schedules. Requests are measured, on tables
of small files, of which `orders` is published and holds the hundred files of the batch. Assumed: 0.1 s
of a function to check one table in a round (sixteen at once), 1 s for a table's turn, 2 s for a batch,
60 s for an erasure, at 1,769 and 3,008 MiB; 45 metrics; 2 KB of log per invocation. Not included: data
that leaves the region, engines that read, KMS, VPC endpoints, old versions of objects.""",
    ),
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def side_by_side(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each case, a column for each library."""
    libraries = list(dict.fromkeys(case["library"] for case in cases))
    rows = []
    for name in dict.fromkeys(case["name"] for case in cases):
        cells = {c["library"]: goals.cell(c) for c in cases if c["name"] == name}
        rows.append([name, *(cells.get(library, "") for library in libraries)])
    return table(["", *libraries], rows)


def operations(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    """Ours that change something or maintain it."""
    rows = []
    for case in cases:
        m = case["first"]
        cells = [str(m["requests"]), f"{goals.megabytes(m):.2f}", str(m["depth"])]
        seconds = [f"{m['cpu_s']:.2f}", f"{m['wall_s']:.2f}"]
        rows.append([case["name"], *cells, *seconds, f"{m['peak_mb']:.0f}"])
    return table(["", "requests", "MB", "waves", "CPU s", "wall s", "peak MB"], rows)


def compactions(cases: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = []
    for case in cases:
        m = case["first"]
        megabytes = [f"{m[way] / 1e6:.1f}" for way in ("bytes_down", "bytes_up")]
        seconds = [f"{m['cpu_s']:.2f}", f"{m['wall_s']:.2f}"]
        rows.append([case["library"], str(m["requests"]), *megabytes, str(m["rows"]), *seconds])
    head = ["", "requests", "MB down", "MB up", "files afterwards", "CPU s", "wall s"]
    return table(head, rows)


def writers(figures: goals.Figures) -> list[str]:
    """What each did, and its rate to that of the bare loop of the same round."""
    rows = []
    ways = {"4": "4", "16": "16", "16-swaps": "16, 15 swaps a second", "16-load": "16, load 30"}
    for how, name in ways.items():
        loops = figures.writers(how)
        for loop, rounds in loops.items():
            rows.append([name, *_writers(loop, rounds, loops["bare"])])
    head = ["writers", "", "commits a second", "to the bare loop", "requests a commit"]
    return table([*head, "CPU ms a commit", "slowest, s", "gave up"], rows)


def _writers(
    loop: str, rounds: Sequence[Mapping[str, Any]], bare: Sequence[Mapping[str, Any]]
) -> list[str]:
    cells = [
        f"{statistics.median(row[name] for row in rounds):.1f}"
        for name in ("commits_per_second", "requests_each", "cpu_ms_each", "slowest")
    ]
    cells.insert(1, f"{goals.rate_ratio(rounds, bare):.2f}")
    failed = str(sum(row["failed"] for row in rounds))
    return ["inlay" if loop == "append" else loop, *cells, failed]


def edited(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    head = [
        "columns",
        "row group, MiB",
        "requests",
        "MB down",
        "MB up",
        "CPU s",
        "pyarrow alone",
        "footer and page index alone",
        "to pyarrow",
    ]
    cells = [
        [
            *(str(row["columns"]), f"{row['group_mib']:.1f}", str(row["requests"])),
            *(f"{row[way] / 1e6:.1f}" for way in ("down", "up")),
            *(f"{row['cpu_s']:.3f}", f"{row['alone_s']:.3f}"),
            *(f"{row['index_s']:.3f}" if "index_s" in row else "", f"{row['ratio']:.2f}"),
        ]
        for row in rows
    ]
    return table(head, cells)


def reading(found: Mapping[str, Any]) -> list[str]:
    """What Arrow's decoder, a fresh process and small files take alone, how far apart ranges may be, how
    large row groups."""
    arrow = [[name, f"{seconds:.2f}"] for name, seconds in found["arrow"].items()]
    starts = [
        [name, f"{cpu:.2f}", f"{wall:.2f}", str(modules)]
        for name, (cpu, modules, wall) in found["starts"].items()
    ]
    small = [[name, f"{ms:.2f}"] for name, ms in found["small_files"].items()]
    whats = list(dict.fromkeys(row[1] for row in found["groups"]))
    groups: dict[str, list[str]] = {}
    for mib, _, *figures in found["groups"]:
        groups.setdefault(str(mib), []).append(" / ".join(map(str, figures)))
    starts_head = ["", "CPU s", "wall s", "modules"]
    return [
        *("### Arrow's decoder alone", "", ARROW, "", *table(["", "CPU s"], arrow), ""),
        *("### A fresh process", "", FRESH, "", *table(starts_head, starts), ""),
        *("### Files of one row", "", SMALL, "", *table(["", "CPU ms a file"], small), ""),
        *("### How far apart ranges may be", "", READING.format_map(found), ""),
        *("The ten rows with the highest price, by what latency ranges are joined for:", ""),
        *by_latency(["joined for, ms", "gap, KB"], found["joined"]),
        "",
        *(
            "A row by its key, of 60,000 rows and 16 columns in a file, by how near is one request:",
            "",
        ),
        *by_latency(["near, KB"], found["near"]),
        "",
        *("### How large row groups are", "", GROUPS, ""),
        *table(["row groups of, MiB", *whats], [[mib, *cells] for mib, cells in groups.items()]),
    ]


def by_latency(names: Sequence[str], found: Iterable[Sequence[float]]) -> list[str]:
    """A row for each choice (`names`) with what it asks for, and its wall after each latency."""
    walls: dict[tuple[float, ...], dict[float, float]] = {}
    for latency, *choice, wall in found:
        walls.setdefault(tuple(choice), {})[latency] = wall
    latencies = list(dict.fromkeys(latency for by in walls.values() for latency in by))
    head = [*names, "requests", "MB", *(f"wall after {latency:g} ms, s" for latency in latencies)]
    return table(
        head,
        [
            [f"{cell:g}" for cell in choice]
            + [f"{by[latency]:g}" if latency in by else "" for latency in latencies]
            for choice, by in walls.items()
        ],
    )


def metadata(found: Mapping[str, Any]) -> list[str]:
    sizes = [t for t in found["tables"] if t["title"].endswith(" files")]
    others = [t for t in found["tables"] if not t["title"].endswith(" files")]
    names = list(dict.fromkeys(row["what"] for t in sizes for row in t["rows"]))
    rows = []
    for name in names:
        cells = [name]
        for size in sizes:
            last = [row for row in size["rows"] if row["what"] == name][-1:]
            cells += [_metadata(row) for row in last] or [""]
        rows.append(cells)
    lines = table(["", *(t["title"] for t in sizes)], rows)
    more = [
        [f"{t['title'][0].lower()}{t['title'][1:]}: {row['what']}", _metadata(row)]
        for t in others
        for row in t["rows"]
    ]
    more += [
        [f"an append to {c['what']} of {c['files']:,} files", f"1 / {c['bytes'] / 1000:,.0f} / / "]
        for c in found["one_object"]
    ]
    return [*lines, "", *table(["", ""], more)]


def _metadata(row: Mapping[str, Any]) -> str:
    up, down = row["up"] / 1000, row["down"] / 1000
    return f"{row['requests']:.2f} / {up:,.1f} / {down:,.1f} / {row['cpu_ms']:,.1f}"


def recorded(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a benchmark only prints, and somebody wrote down."""
    parts: list[str] = []
    for each in found:
        rows = [[str(cell) for cell in row] for row in each["rows"]]
        parts += [f"## {each['title']}", "", each["about"], "", f"`{each['command']}`", ""]
        parts += [*table(each["columns"], rows), ""]
    return parts


def setting(step: Mapping[str, Any]) -> str:
    """What a step ran on."""
    rows = step["scale"]
    return (
        f"TPC-H lineitem, {rows['rows']:,} rows in {rows['files']} files; each request answered after "
        f"{rows['latency_ms']:g} ms; {step['machine']}"
    )


def circumstances(steps: Mapping[str, Mapping[str, Any]], usual: str) -> str:
    """How these steps are measured again, and when they were; what they ran on, where that is not usual."""
    loads = [step["load"] for step in steps.values()]
    days = sorted({step["began"][:10] for step in steps.values()})
    names = " ".join(dict.fromkeys(name.split("/")[0] for name in steps))
    load = " to ".join(dict.fromkeys((f"{min(loads):.1f}", f"{max(loads):.1f}")))
    parts = [f"`--steps {names}`", f"load {load} when they began"]
    parts += [each for each in dict.fromkeys(map(setting, steps.values())) if each != usual]
    return "; ".join([*parts, " to ".join(dict.fromkeys((days[0], days[-1])))]) + "."


def measured(results: goals.Stored) -> list[str]:
    """The sections of what `bench.py` measures; those that it has not are left out."""
    figures = goals.Figures(results)
    settings = [setting(step) for step in results.values()]
    usual = max(settings, key=settings.count, default="")

    def steps(*parts: str) -> dict[str, Mapping[str, Any]]:
        return {n: step for n, step in results.items() if n.split("/")[0] in parts}

    def section(title: str, text: str, lines: Callable[[], list[str]], *parts: str) -> list[str]:
        ran = steps(*parts)
        return (
            [f"## {title}", "", text, "", circumstances(ran, usual), "", *lines(), ""]
            if ran
            else []
        )

    def cases(part: str) -> list[Mapping[str, Any]]:
        return list(figures.cases(part))

    head = ["", "goal", "reached", "Inlay", "beside it"]
    every = ("queries", "shapes", "planning", "writers", "surgery")
    return [
        *([f"{USUAL} {usual}.", ""] if usual else []),
        *section("Goals", GOALS, lambda: table(head, goals.rows(figures)), *every),
        *([*goals.limits(figures), ""] if steps(*every) else []),
        *section("Queries", QUERIES, lambda: side_by_side(cases("queries")), "queries"),
        *section("Other shapes", SHAPES, lambda: side_by_side(cases("shapes")), "shapes"),
        *section("Planning", PLANNING, lambda: side_by_side(cases("planning")), "planning"),
        *section("Many writers", WRITERS, lambda: writers(figures), "writers"),
        *section(
            *("Row groups edited", SURGERY, lambda: edited(results["surgery"]["rows"]), "surgery")
        ),
        *section(
            *("Compaction of one large file and 20 small ones", COMPACTION),
            *(lambda: compactions(cases("compaction")), "compaction"),
        ),
        *section(
            "Operations",
            "On the same table.",
            lambda: operations(cases("operations")),
            "operations",
        ),
        *section("What reading waits for", LIMITS, lambda: reading(results["reading"]), "reading"),
    ]


def page(read: Callable[[str], Any]) -> str:
    """`read` gives what is stored under a name."""
    parts = [HEAD, "", *measured(read(RESULTS))]
    requests = "\n".join(table(["requests", "what for", "without it"], GARBAGE_ROWS))
    parts += ["## What garbage collection asks for", "", GARBAGE.format(requests=requests), ""]
    for title, (name, about) in COSTS.items():
        parts += [f"## {title}", "", about, "", *read(TABLES)[name], ""]
    parts += ["## Metadata, by the number of files", "", METADATA, ""]
    parts += [*metadata(read("metadata.json")), "", *recorded(read("recorded.json"))]
    return "\n".join(parts)


def stored(name: str) -> Any:
    return json.loads((PLACE / name).read_text("utf-8"))


def keep(name: str, text: str) -> None:
    """Store tables that a benchmark has made as text, and make the page with them."""
    kept = {**stored(TABLES), name: text.split("\n")}
    (PLACE / TABLES).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(stored), "utf-8")


def keep_results(results: goals.Stored) -> None:
    """Store what `bench.py` measured, and make the page with it."""
    (PLACE / RESULTS).write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    main()


def figures(case: Mapping[str, Any]) -> str:
    """One case, in a line."""
    return f"{case['name']}: {goals.cell(case)}"


def main() -> None:
    PAGE.write_text(page(stored), "utf-8")


if __name__ == "__main__":
    main()
