"""What a table or a day costs: measured counts times a price list.

Promise: every request is one that was counted (`assets/units.json`, which `benchmarks/day.py` writes) or
listed just now; prices come from one list (`assets/prices.json`, with what a file of the user's changes);
what is assumed is named here and nowhere else. Deletes of objects and bytes within the region are free. Not
in it: bytes that leave the region, engines that read, KMS, old versions of a versioned bucket, alarms and
metrics (docs/benchmarks/index.md, "A month, three sizes").
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlay.cli.command import Example, verb
from inlay.cli.options import AsJson
from inlay.cli.output import console, print_record, print_rows
from inlay.cli.tables import connected
from inlay.cli.values import counted, size_text
from inlay.errors import InvalidRequest

if TYPE_CHECKING:
    from inlay.engine import Context

ASSETS = Path(__file__).with_name("assets")
DAY_SECONDS, MONTH_DAYS = 86_400, 30
LIST_PAGE = 1_000
# As template.yaml has them: rounds a day, messages of a batch and seconds it waits for them, memory.
REWRITES, COMPACTIONS, LOOKS = 96, 24, 48  # looks: for erasures, and for files that no event named
INGEST_BATCH, INGEST_WINDOW = 100, 5
DELETE_BATCH, DELETE_WINDOW = 10, 1
SMALL_GB, LARGE_GB = 1_769 / 1_024, 3_008 / 1_024
# Lambda asks each of six queues with five pollers, each of which waits for 20 s.
IDLE_POLLS = 6 * 5 * DAY_SECONDS / 20
POLLING = "queues polled, once for all tables"
# Assumed: how fast S3 copies within itself, of which a function waits for sixteen at a time.
COPY_BYTES_PER_SECOND, COPIES_AT_ONCE = 100_000_000, 16
# Measured (docs/benchmarks/index.md, "It does not grow with the table"): GETs of a query's plan by files
# of the table, and seconds to load and plan over all of 100,000 entries.
PLAN_REQUESTS = ((500, 0), (5_000, 2), (50_000, 4), (2**63, 6))
PLAN_SECONDS = 2.9 / 100_000
# Entries of a full leaf of the metadata (docs/FORMAT.md, "Tiers and segments").
LEAF_ENTRIES = 1_024

_SIZE = re.compile(r"(?P<count>[0-9]+(\.[0-9]+)?) ?(?P<unit>[kMGTP]?)B?")
_POWERS = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}


def parse_bytes(text: str) -> int:
    """
    >>> parse_bytes("6TB"), parse_bytes("1.5 kB")
    (6000000000000, 1500)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(
            f"{text[:40]!r} is not a size", next_step="Write it as 64MB, 6TB or a number of bytes"
        )
    return int(float(match["count"]) * 10.0 ** _POWERS[match["unit"]])


@dataclass(frozen=True, slots=True)
class Prices:
    """Of one region at one date, for one of each: a request, a GB stored for a month, a message of a queue,
    a Lambda invocation and GB-second, and what CloudWatch and Secrets Manager bill."""

    region: str
    as_of: str
    currency: str
    write_request: float
    read_request: float
    gb_month: float
    message: float
    invocation: float
    gb_second: float
    alarm_month: float
    metric_month: float
    log_gb: float
    secret_month: float

    def months_old(self, today: date) -> int:
        year, month = map(int, self.as_of.split("-")[:2])
        return max(0, (today.year - year) * 12 + today.month - month)


def load_prices(path: str | Path | None = None) -> Prices:
    """The price list of this version, with the changes in the user's file."""
    made: dict[str, Any] = json.loads((ASSETS / "prices.json").read_text("utf-8"))
    if path is not None:
        try:
            changed = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"{path} cannot be read as JSON: {error}") from None
        if not isinstance(changed, dict):
            raise InvalidRequest(f"{path} is not a JSON object")
        for name, value in changed.items():
            is_text = isinstance(made.get(name), str)
            types = str if is_text else (int, float)
            is_price = isinstance(value, types) and not isinstance(value, bool)
            if name not in made or not is_price or (not is_text and not 0 <= value < math.inf):
                raise InvalidRequest(
                    f"{path}: {name!r} is not a price of the list, or its value is not one",
                    next_step=f"The names are: {', '.join(made)}",
                )
        made |= changed
    return Prices(**made)


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of work as measured: requests as S3 bills them (PUT, COPY, POST, LIST; GET, HEAD), and
    seconds of a Lambda of one CPU at 20 ms a request."""

    writes: float
    reads: float
    seconds: float

    def __add__(self, other: Unit) -> Unit:
        return Unit(
            self.writes + other.writes, self.reads + other.reads, self.seconds + other.seconds
        )

    def rounded(self) -> Unit:
        return Unit(round(self.writes, 2), round(self.reads, 2), round(self.seconds, 4))


def load_units() -> Mapping[str, Unit]:
    units = json.loads((ASSETS / "units.json").read_text("utf-8"))["units"]
    return {name: Unit(**unit) for name, unit in units.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Everything that is billed."""

    writes: float = 0.0
    reads: float = 0.0
    messages: float = 0.0
    invocations: float = 0.0
    gb_seconds: float = 0.0
    gb_months: float = 0.0

    @classmethod
    def of(cls, unit: Unit, times: float, *, memory_gb: float = 0.0) -> Work:
        return cls(
            writes=unit.writes * times,
            reads=unit.reads * times,
            gb_seconds=unit.seconds * times * memory_gb,
        )

    def __add__(self, other: Work) -> Work:
        return Work(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    def __mul__(self, times: float) -> Work:
        return Work(**{f.name: getattr(self, f.name) * times for f in fields(self)})

    def dollars(self, prices: Prices) -> float:
        return (
            self.writes * prices.write_request
            + self.reads * prices.read_request
            + self.messages * prices.message
            + self.invocations * prices.invocation
            + self.gb_seconds * prices.gb_second
            + self.gb_months * prices.gb_month
        )


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    work: Work

    def record(self, prices: Prices) -> dict[str, Any]:
        numbers = {name: round(value, 3) for name, value in asdict(self.work).items()}
        return {"what": self.name, **numbers, "dollars": round(self.work.dollars(prices), 4)}


def total(lines: Sequence[Line]) -> Line:
    return Line("all", sum((line.work for line in lines), Work()))


# -- a day ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One table, through the deployed functions, evenly over 24 hours. Queries ask for rows of one file, of
    a table just opened; deletes name whole files' rows by a range or condition; `table_files` are those of
    the table in the evening."""

    ingested_bytes: int = 0
    file_bytes: int = 64_000_000
    deletes: int = 0
    queries: int = 0
    erasures: int = 0
    table_files: int | None = None
    history_days: float = 7.0

    @property
    def files(self) -> int:
        return -(-self.ingested_bytes // self.file_bytes)


def batches_of(items: int, most: int, window: int) -> float:
    """How many batches a queue delivers: one in each window, as long as `most` fit it."""
    return max(items / most, min(items, DAY_SECONDS / window))


def day_lines(day: Day, units: Mapping[str, Unit]) -> list[Line]:
    files = day.files
    table_files = max(files, 1) if day.table_files is None else day.table_files
    planned = Unit(0, table_files / LEAF_ENTRIES, table_files * PLAN_SECONDS)
    lines: list[Line] = []
    if files:
        lines += _ingest_lines(day, units)
    if day.deletes:
        lines += _delete_lines(day, units, planned)
    if day.erasures:
        lines.append(
            Line(
                "erasures",
                Work.of(units["erasure"] + planned, day.erasures, memory_gb=LARGE_GB)
                + Work(messages=6 * day.erasures, invocations=3 * day.erasures),
            )
        )
    if day.queries:
        plan = next(gets for most, gets in PLAN_REQUESTS if table_files < most)
        lines.append(Line("queries", Work.of(units["query"] + Unit(0, plan, 0), day.queries)))
    if files or day.deletes:
        lines.append(
            Line(
                "compactions",
                Work.of(units["compact: a turn"] + planned, COMPACTIONS, memory_gb=LARGE_GB)
                + Work(messages=3 * COMPACTIONS, invocations=2 * COMPACTIONS),
            )
        )
        commits = batches_of(files, INGEST_BATCH, INGEST_WINDOW) + day.deletes
        versions = commits * day.history_days
        lines.append(_collected(versions, table_files + versions, units))
    lines.append(Line("looking", Work(reads=LOOKS, invocations=LOOKS)))
    lines.append(Line(POLLING, Work(messages=IDLE_POLLS)))
    return lines


def _ingest_lines(day: Day, units: Mapping[str, Unit]) -> Iterator[Line]:
    files = day.files
    batches = batches_of(files, INGEST_BATCH, INGEST_WINDOW)
    copying = batches * math.ceil(files / batches / COPIES_AT_ONCE)
    copying *= min(day.file_bytes, day.ingested_bytes) / COPY_BYTES_PER_SECOND
    yield Line("files that land", Work(writes=files))
    yield Line(
        "ingest",
        Work.of(units["ingest: a file"], files, memory_gb=SMALL_GB)
        + Work.of(units["ingest: a batch"], batches, memory_gb=SMALL_GB)
        + Work(gb_seconds=copying * SMALL_GB, invocations=batches)
        + Work(messages=files + 2 * batches),
    )


def _delete_lines(day: Day, units: Mapping[str, Unit], planned: Unit) -> Iterator[Line]:
    batches = batches_of(day.deletes, DELETE_BATCH, DELETE_WINDOW)
    yield Line(
        "deletes",
        Work.of(units["delete: a request"], day.deletes, memory_gb=SMALL_GB)
        + Work.of(units["delete: a batch"], batches, memory_gb=SMALL_GB)
        + Work(messages=day.deletes + 2 * batches, invocations=batches),
    )
    yield Line(
        "rewrites",
        Work.of(units["rewrite: a delete"], day.deletes, memory_gb=LARGE_GB)
        + Work.of(units["rewrite: a turn"] + planned, REWRITES, memory_gb=LARGE_GB)
        + Work(messages=3 * REWRITES, invocations=2 * REWRITES),
    )


def _collected(versions: float, objects: float, units: Mapping[str, Unit]) -> Line:
    """Garbage collection once: what it must keep, and a listing."""
    kept = units["collect garbage: a version kept"]
    work = Work.of(kept, versions, memory_gb=SMALL_GB)
    return Line("garbage collection", work + Work(writes=1 + objects / LIST_PAGE, invocations=2))


# -- a table --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a table has under its root, in objects and bytes by folder, and how often it is written to.
    `kept_bytes` are of data files that only older versions, branches or nobody refers to."""

    files: int
    bytes: int
    objects: Mapping[str, int]
    stored: Mapping[str, int]
    kept_bytes: int
    versions: int
    commits_a_day: float


def look_at(ctx: Context) -> Held:
    """Of a listing of the root (a LIST for 1,000 objects), the pointer, and the oldest version there is."""
    import inlay

    table = inlay.open(ctx.uri, context=ctx)
    snapshot = table.snapshot
    objects: dict[str, int] = {}
    stored: dict[str, int] = {}
    root = ctx.key("")
    for listed in ctx.store.list(root):
        folder, slash, _ = listed.key.removeprefix(root).partition("/")
        name = folder if slash else "pointer"
        objects[name] = objects.get(name, 0) + 1
        stored[name] = stored.get(name, 0) + listed.size
    oldest = snapshot.oldest_version
    days = 1.0
    if oldest < snapshot.version:
        then = inlay.open(ctx.uri, version=oldest, context=ctx).snapshot.commit.time_us
        days = max(1.0, (snapshot.commit.time_us - then) / 1e6 / DAY_SECONDS)
    return Held(
        files=snapshot.totals.files,
        bytes=snapshot.totals.bytes,
        objects=objects,
        stored=stored,
        kept_bytes=max(0, stored.get("data", 0) - snapshot.totals.bytes),
        versions=snapshot.version - oldest + 1,
        commits_a_day=(snapshot.version - oldest) / days,
    )


def month_lines(held: Held, units: Mapping[str, Unit]) -> list[Line]:
    """A month of the table as it stands: what is stored, what looks after it on the template's schedules,
    and commits at the rate of the versions that are kept."""

    def stored(count: int) -> Work:
        return Work(gb_months=count / 1e9)

    rest = sum(size for name, size in held.stored.items() if name != "data")
    planned = Unit(0, held.files / LEAF_ENTRIES, held.files * PLAN_SECONDS)
    lines = [
        Line("storage: current data", stored(held.bytes)),
        Line("storage: data of older versions, and garbage", stored(held.kept_bytes)),
        Line("storage: metadata, markers, receipts", stored(rest)),
    ]
    if held.commits_a_day:
        commits = held.commits_a_day * MONTH_DAYS
        lines.append(Line("commits", Work.of(units["append"], commits)))
        care = Work.of(units["rewrite: a turn"] + planned, REWRITES, memory_gb=LARGE_GB)
        care += Work.of(units["compact: a turn"] + planned, COMPACTIONS, memory_gb=LARGE_GB)
        turns = REWRITES + COMPACTIONS
        care += Work(messages=3 * turns, invocations=turns)
        lines.append(Line("rewrite and compact turns", care * MONTH_DAYS))
    collected = _collected(held.versions, sum(held.objects.values()), units)
    lines.append(replace(collected, work=collected.work * MONTH_DAYS))
    looks = LOOKS if held.commits_a_day else LOOKS + REWRITES + COMPACTIONS
    lines.append(Line("looking", Work(reads=looks) * MONTH_DAYS))
    lines.append(Line(POLLING, Work(messages=IDLE_POLLS) * MONTH_DAYS))
    return lines


# -- the verb -------------------------------------------------------------------------------------

PANEL = "Look"


@verb(
    PANEL,
    Example("cost ./people", "a month of the table as it stands"),
    Example("cost --ingest 6TB --deletes 31250 --queries 50000", "a day that you describe"),
    Example("cost ./people --prices ours.json --json", "by your own prices, for a program"),
)
def cost(
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Where the table is; without one, only the described day is priced.",
            show_default=False,
        ),
    ] = None,
    ingest: Annotated[
        str | None, typer.Option("--ingest", metavar="SIZE", help="Of a day: what lands, as 6TB.")
    ] = None,
    file_size: Annotated[
        str, typer.Option("--file-size", metavar="SIZE", help="Of a day: a file that lands.")
    ] = "64MB",
    deletes: Annotated[
        int, typer.Option("--deletes", min=0, help="Of a day: delete requests.")
    ] = 0,
    queries: Annotated[
        int,
        typer.Option("--queries", min=0, help="Of a day: queries by key, each opening the table."),
    ] = 0,
    erasures: Annotated[int, typer.Option("--erasures", min=0, help="Of a day: erasures.")] = 0,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", metavar="FILE", help="A JSON object with your own prices, by name."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Price a table as it stands, for a month, and a day that you describe.

    Counts are measured (docs/COST.md says where), prices are those of one list; --json shows both. A table
    costs a listing: a LIST for a thousand objects.
    """
    described = bool(ingest or deletes or queries or erasures)
    if table is None and not described:
        raise InvalidRequest(
            "there is nothing to price",
            next_step="Name a table, or describe a day: --ingest 6TB --deletes 31250 --queries 50000",
        )
    listed, units = load_prices(prices), load_units()
    answer: dict[str, Any] = {
        "prices": {**asdict(listed), "months_old": listed.months_old(date.today())},
        "units": {n: asdict(u) for n, u in units.items()},
    }
    held = None
    if table is not None:
        with connected(table) as context:
            held = look_at(context)
        lines = month_lines(held, units)
        answer["table"] = asdict(held)
        answer["month"] = _priced(lines, listed)
    if described:
        size = parse_bytes(file_size)
        if size < 1:
            raise InvalidRequest("--file-size must be at least one byte")
        day = Day(
            ingested_bytes=parse_bytes(ingest or "0"),
            file_bytes=size,
            deletes=deletes,
            queries=queries,
            erasures=erasures,
            table_files=None
            if held is None
            else held.files + -(-parse_bytes(ingest or "0") // size),
        )
        answer["day"] = _priced(day_lines(day, units), listed)
    if as_json:
        print_record(answer, as_json=True)
        return
    out = console()
    if held is not None:
        objects = counted(sum(held.objects.values()), "object")
        out.print(
            f"{objects}, {size_text(sum(held.stored.values()))}; {counted(held.versions, 'version')} "
            f"kept, {held.commits_a_day:,.1f} commits a day"
        )
    for period in ("month", "day"):
        if period in answer:
            _print_lines(period, answer[period], listed)


def _priced(lines: Sequence[Line], prices: Prices) -> list[dict[str, Any]]:
    return [line.record(prices) for line in [*lines, total(lines)]]


def _print_lines(period: str, lines: Sequence[Mapping[str, Any]], prices: Prices) -> None:
    rows = [
        {
            f"a {period}": str(line["what"]),
            prices.currency: f"{line['dollars']:,.2f}",
            "PUT, LIST": f"{line['writes']:,.0f}",
            "GET": f"{line['reads']:,.0f}",
            "messages": f"{line['messages']:,.0f}",
            "Lambda GB-s": f"{line['gb_seconds']:,.0f}",
            "GB stored": f"{line['gb_months']:,.2f}",
        }
        for line in lines
    ]
    months = prices.months_old(date.today())
    age = f", {counted(months, 'month')} old: --prices FILE has yours" if months else ""
    console().print(f"\n[bold]{prices.region}, prices of {prices.as_of}[/bold]{age}")
    print_rows(rows, as_json=False)
