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

PLACE = Path(__file__).parents[1] / "docs" / "benchmarks"
PAGE = PLACE / "index.md"
TABLES = "tables.json"
HEAD = """# Measurements

Made by `benchmarks/page.py` from the figures that the benchmarks store beside this page; `make bench
PEERS=1` measures again. Those of Spark and of edited row groups are printed only: they were copied by
hand from a run (`recorded.json`). Requests and bytes are exact; CPU and wall time are of one machine, and
good for ratios within a table. What follows for a bill is in [cost](../COST.md)."""
QUERIES = """Each cell: cold, opening the table included: requests / MB / waves (the longest chain of
requests that the server saw); then seconds of CPU / wall of the same query again on the open table.
Where decoding is all there is to do, decoders other than Arrow's take less CPU. A row of 16 columns is in
16 places of a file: a lookup sends a request for those far apart. What each row of ours waits for, and
where its limit is: [reading](reading.md)."""
SHAPES = """Each cell: requests / MB both ways / waves; seconds of CPU / wall, opening the table included.
A fresh process is measured from its start to its end. "Delete of one key in 60": delta-rs and Lance by a
merge. Of 5,000 columns the tables are created with their rows; pyarrow, Polars and DuckDB write plain files
with pyarrow, which is what a write is held to. Orphans were put beside the table's files, and go without
a grace; ours come with a commit, whose steps [reading](reading.md) lists.

`--columns`, `--tiny`, `--orphans` and `--rows` make it smaller."""
CONTENTION = """Processes that append row after row at 20 ms a request, beside a bare loop of GET, PUT and
PUT If-Match in the same round; medians of the rounds, and of the ratios within a round.
`benchmarks/backoff.py` computes what rules of waiting would do with more writers than there are cores for;
this is what they did. On a server that takes 15 swaps of a key a second and refuses others meanwhile, as S3
does (`--swaps 15`), two rounds: 16 writers 12.1 commits a second, .89 and .92 of the loop, with .40 of its
requests, 43 ms of CPU a commit for its 35, the slowest after 6.1 s.

`python benchmarks/contention.py --writers 4,16 --threads 0 --rounds 3 --seconds 6`"""
METADATA = """Entries with statistics of ten columns, through the real planner and commit: requests / KB
up / KB down / ms of CPU, means of many commits, segments that roll included.

`python benchmarks/metadata.py` (`make bench-metadata` checks the budgets)"""

# Title: the name under which a benchmark keeps its tables, and what has to be said of them.
COSTS = {
    "What operations ask of S3": (
        "operations",
        """`python benchmarks/cost.py --write`. Counted by the server, on a table of 8 columns that starts
with 20 files of 10,000 rows; the operations run in this order, and each update and upsert before the
deletes adds a marker that readers apply. The starred ones are held to budgets by a test. "Metadata"
is what goes into the pointer, archives and segments; "other" is data files and markers. Writes are
measured warm: a cold one adds 1 GET. Dollars are list prices of S3 Standard in us-east-1, October
2025, for a million such operations: 5.00 for a million PUT, COPY, POST or LIST, 0.40 for a million
GET and HEAD; deletes are free.""",
    ),
    "Erasures": (
        "erasure",
        """`python benchmarks/erasure.py --write`, up to the receipt. The three files that hold the person
are of 100 MiB; the others have as many row groups, but fewer rows: their requests are those of full
files, their bytes are not.""",
    ),
    "A day": (
        "day",
        """`python benchmarks/day.py --peers --write`: 93,750 files of 64 MB land (6 TB); 31,250 requests
each delete the rows of one of them by a range of its key; each of 50,000 queries opens the table, cold,
and reads a twentieth of one file by its key. A thousandth of it is simulated. The first two tables
are for the deployed functions, in batches of the size that queues deliver at this rate (5.4 files;
deletes one by one): `fixed + n × each` from batches of two sizes. Added, because the day's table is
larger: a GET for each leaf of 1,024 entries and 29 µs per entry where a turn plans over all files,
6 GETs for a query's plan, a GET for each version of 7 days in garbage collection. Lambda seconds
are CPU + round trips × 20 ms, at 1,769 and 3,008 MiB, and S3's copies at an assumed 100 MB/s; cold
starts, logs and metrics are not included.

The third table is one commit for each file and each delete, by calls of each library, in one run:
the day is its operations times their mean in the second half of the run, "growth" that mean divided
by the first half's. Deletes of whole files are the best case for all three. The catalog that
pyiceberg needs is not counted, nor is any maintenance of the others.""",
    ),
    "A month, three sizes": (
        "month",
        """`python benchmarks/monthly.py --write` runs the deployed handlers on a store that counts, and
multiplies by list prices of us-east-1 (October 2025) and the template's schedules. Requests are
measured, on tables of small files, of which `orders` is published and holds the hundred files of
the batch. Assumed: 0.1 s of a function to check one table in a round (sixteen at once), 1 s for a
table's turn, 2 s for a batch, 60 s for an erasure, at 1,769 and 3,008 MiB; 45 metrics; 2 KB of log
per invocation; each written table published once for each batch. Not included: data that leaves the
region, engines that read, KMS, VPC endpoints, old versions of objects.""",
    ),
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def by_name(cases: Sequence[Mapping[str, Any]], section: str, library: str) -> dict[str, Any]:
    return {c["name"]: c for c in cases if (c["section"], c["library"]) == (section, library)}


def queries(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    libraries = list(dict.fromkeys(c["library"] for c in cases if c["section"] == "Queries"))
    found = {library: by_name(cases, "Queries", library) for library in libraries}
    rows = []
    for name in found["inlay"]:
        cells = [name]
        for library in libraries:
            case = found[library].get(name)
            cells.append("" if case is None else _query(case))
        if any(cells[2:]):
            rows.append(cells)
    return table(["", *libraries], rows)


def _query(case: Mapping[str, Any]) -> str:
    cold, warm = case["first"], case["again"]
    return (
        f"{cold['requests']} / {cold['bytes_down'] / 1e6:.1f} / {cold['depth']}; "
        f"{warm['cpu_s']:.2f} / {warm['wall_s']:.2f}"
    )


def shapes(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each library was asked besides the queries, once."""
    of = [c for c in cases if c["section"] == "Other shapes"]
    libraries = list(dict.fromkeys(c["library"] for c in of))
    rows = []
    for name in dict.fromkeys(c["name"] for c in of):
        found = {c["library"]: c["first"] for c in of if c["name"] == name}
        rows.append([name, *(_shape(found[each]) if each in found else "" for each in libraries)])
    return table(["", *libraries], rows)


def _shape(m: Mapping[str, Any]) -> str:
    moved = (m["bytes_up"] + m["bytes_down"]) / 1e6
    return f"{m['requests']:,} / {moved:.2f} / {m['depth']}; {m['cpu_s']:.2f} / {m['wall_s']:.2f}"


def operations(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ours that change something or maintain it."""
    rows = []
    for case in cases:
        if case["library"] == "inlay" and case["section"] in ("Writes", "Deletes", "Maintenance"):
            m = case["first"]
            megabytes = (m["bytes_up"] + m["bytes_down"]) / 1e6
            rows.append(
                [
                    f"{case['section'].lower()}: {case['name']}",
                    *(str(m["requests"]), f"{megabytes:.2f}", str(m["depth"])),
                    *(f"{m['cpu_s']:.2f}", f"{m['wall_s']:.2f}", f"{m['peak_mb']:.0f}"),
                ]
            )
    head = ["", "requests", "MB", "longest chain of requests", "CPU s", "wall s", "peak MB"]
    return table(head, rows)


def compactions(cases: Sequence[Mapping[str, Any]], section: str) -> list[str]:
    rows = []
    for case in cases:
        if (case["section"], case["name"]) == (section, "compact"):
            m = case["first"]
            rows.append(
                [
                    *(case["library"], str(m["requests"]), f"{m['bytes_down'] / 1e6:.1f}"),
                    *(f"{m['bytes_up'] / 1e6:.1f}", str(m["rows"])),
                    *(f"{m['cpu_s']:.2f}", f"{m['wall_s']:.2f}"),
                ]
            )
    head = ["", "requests", "MB down", "MB up", "files afterwards", "CPU s", "wall s"]
    return table(head, rows)


def contention(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The append, and its ratio to the bare loop of the same round."""
    rows = []
    for count in dict.fromkeys(row["writers"] for row in found):
        pairs = list(
            zip(
                *([r for r in found if (r["writers"], r["loop"]) == (count, loop)]
                  for loop in ("append", "bare")),
                strict=True,
            )
        )  # fmt: skip
        cells = [str(count)]
        for name in ("commits_per_second", "requests_each", "cpu_ms_each", "slowest"):
            cells.append(f"{statistics.median(a[name] for a, _ in pairs):.1f}")
            cells.append(f"{statistics.median(a[name] / b[name] for a, b in pairs):.2f}")
        rows.append(cells)
    head = [
        "writers",
        "commits a second",
        "ratio",
        "requests a commit",
        "ratio",
        "CPU ms a commit",
        "ratio",
        "slowest, s",
        "ratio",
    ]
    return table(head, rows)


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


def page(read: Callable[[str], Any]) -> str:
    """`read` gives what is stored under a name."""
    results = read("results.json")
    cases = results["cases"]
    compaction = next(c["section"] for c in cases if c["section"].startswith("Compaction"))
    parts = [HEAD, ""]
    for title, (name, about) in COSTS.items():
        parts += [f"## {title}", "", about, "", *read(TABLES)[name], ""]
    parts += ["## Queries", "", f"{results['about']} {QUERIES}", ""]
    parts += [f"`{results['command']}`", "", *queries(cases), "", "![ratios](ratios.svg)", ""]
    parts += [
        "## Other shapes",
        "",
        SHAPES,
        "",
        *_command(results["shapes"]),
        "",
        *shapes(cases),
        "",
    ]
    parts += ["## Operations", "", "On the same table.", "", *operations(cases), ""]
    parts += [f"## {compaction}", "", *compactions(cases, compaction), ""]
    parts += ["## Many writers", "", CONTENTION, "", *contention(read("contention.json")), ""]
    parts += ["## Metadata, by the number of files", "", METADATA, ""]
    parts += [*metadata(read("metadata.json")), "", *recorded(read("recorded.json"))]
    return "\n".join(parts)


def _command(text: str) -> list[str]:
    """A command and what it ran on."""
    command, _, about = text.partition(": ")
    return [about, "", f"`{command}`"]


def stored(name: str) -> Any:
    return json.loads((PLACE / name).read_text("utf-8"))


def keep(name: str, text: str) -> None:
    """Store tables that a benchmark has made as text, and make the page with them."""
    kept = {**stored(TABLES), name: text.split("\n")}
    (PLACE / TABLES).write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PAGE.write_text(page(stored), "utf-8")


def main() -> None:
    PAGE.write_text(page(stored), "utf-8")


if __name__ == "__main__":
    main()
