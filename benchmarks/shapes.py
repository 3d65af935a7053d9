"""What is measured of a library: the same questions and tables for each (`libraries.py`).

    queries     of lineitem in 20 files: each of a table just opened, and once more
    shapes      a fresh process, small and tiny files, thousands of columns, many keys deleted and counted
                under, objects that nothing needs, one person's rows removed for good
    compaction  of one large file and 20 small ones
    planning    of entries of files that do not exist
    operations  what Inlay's own verbs ask for

Tables are filled without latency, and nothing of that is measured. Requests and bytes are the server's. So
are waves, the longest chain of requests each of which began after the one before was answered; what only
reads is asked once more with answers after `WAVES_MS`, for at 20 ms a busy client's own computing makes
chains of requests that do not wait for each other. CPU and wall are those of this process, or of a fresh
one.
"""

from __future__ import annotations

import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from counting_server import CountingServer, Measured
from data import (
    FILES,
    KEY,
    ORDERS,
    TWO,
    WIDE_ROWS,
    Asked,
    events,
    lineitem,
    parts,
    tiny_rows,
    uneven,
    wide_rows,
)

if TYPE_CHECKING:
    from libraries import Library

FEW = 10
# Of smaller files: rows, files.
SMALL_ROWS, SMALL_FILES = 120_000, 2
KEYS_EVERY = 60
# Of the table from which one person is removed: columns, and the rows that a person has.
EVENT_COLUMNS, PERSON_ROWS = 50, 10
WAVES_MS = 100.0
# Longer chains are not measured again: latency is all that makes them.
LONG = 100

PLANNED_ROWS = 10_000


def bounds(file: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Of a planned file's columns: the lowest and highest values, and the number of nulls."""
    first = file * PLANNED_ROWS
    low = {"id": first, "customer": 0, "amount": 0, "status": "closed", "country": "DE"}
    high = {"id": first + PLANNED_ROWS - 1, "customer": 4_999, "amount": 999.99, "status": "open"}
    more = {"quantity": 0, "note": "note 00000000"}, {"quantity": 49, "note": "note ffffffff"}
    at = {"at": "2026-01-01T00:00:00Z"}, {"at": "2026-01-01T02:46:39Z"}
    return (
        {**low, **more[0], **at[0]},
        {**high, "country": "PL", **more[1], **at[1]},
        dict.fromkeys(ORDERS.names, 0),
    )


def _next_second() -> None:
    """Listings tell an object's age in whole seconds: none that is there is of this one afterwards, so
    garbage collection without grace takes it."""
    time.sleep(1.1)


@dataclass(frozen=True)
class Scale:
    """How much of each."""

    rows: int = 6_001_215
    files: int = FILES
    latency_ms: float = 20.0
    columns: int = 5_000
    tiny: int = 1_000
    orphans: int = 5_000
    event_rows: int = 600_000
    planned: int = 100_000


@dataclass(frozen=True)
class Case:
    """One measured act; `again` is of the same open table, where that makes sense."""

    section: str
    name: str
    library: str
    first: Measured
    again: Measured | None = None


class Steps:
    """What fails is said on standard error, and left out."""

    def __init__(self, library: Library, server: CountingServer, scale: Scale) -> None:
        self.library, self.server, self.scale = library, server, scale
        self.section = ""

    @cached_property
    def data(self) -> pa.Table:
        return lineitem(self.scale.rows)

    @cached_property
    def asked(self) -> Asked:
        return Asked.of(self.data)

    def of(self, part: str) -> Iterator[Case]:
        steps: Mapping[str, tuple[Callable[[], Iterator[Case]], ...]] = {
            "queries": (self.queries,),
            "shapes": (
                self.fresh,
                self.small,
                self.tiny,
                self.wide,
                self.keys,
                self.orphans,
                self.erased,
            ),
            "compaction": (self.compaction,),
            "planning": (self.planning,),
            "operations": (self.operations,),
        }
        self.section = part
        for step in steps[part]:
            try:
                yield from step()
            except NotImplementedError:
                pass
            except Exception:
                print(self.library.name, step.__name__, file=sys.stderr)
                traceback.print_exc(limit=2)
            self.server.set_latency(self.scale.latency_ms)

    # -- how it is measured -------------------------------------------------------------------

    def once(self, name: str, act: Callable[[], Any]) -> Case:
        return Case(self.section, name, self.library.name, self.server.measure(act))

    def repeated(self, name: str, act: Callable[[], Any]) -> Case:
        """What may be done again: with its waves."""
        return replace(self.once(name, act), first=self.waved(act, self.server.measure(act)))

    def waved(self, act: Callable[[], Any], measured: Measured) -> Measured:
        if not self.scale.latency_ms or measured.depth > LONG:
            return measured
        self.server.set_latency(WAVES_MS)
        self.server.clear()
        act()
        depth = self.server.usage().depth
        self.server.set_latency(self.scale.latency_ms)
        return replace(measured, depth=min(depth, measured.depth))

    def query(self, name: str, ask: Callable[[Any], int], open_: Callable[[], Any]) -> Case:
        """Of a table just opened (opening included), and of the same once more."""
        opened: list[Any] = []

        def first() -> int:
            opened.append(open_())
            return ask(opened[0])

        cold = self.server.measure(first)
        again = self.server.measure(lambda: ask(opened[0]))
        waved = self.waved(lambda: ask(open_()), cold)
        return Case(self.section, name, self.library.name, waved, again)

    def filled(self, pieces: list[pa.Table], name: str = "") -> str:
        """The table's name."""
        name = f"{self.library.name}-{name}" if name else self.library.name
        self.server.set_latency(0)
        self.library.fill(pieces, name)
        self.server.set_latency(self.scale.latency_ms)
        return name

    @cached_property
    def table(self) -> str:
        """lineitem."""
        return self.filled(parts(self.data, self.scale.files))

    # -- queries ------------------------------------------------------------------------------

    def queries(self) -> Iterator[Case]:
        name = self.table
        self.library.open(name)((["l_tax"], "l_orderkey = 1", 1, None))  # imports are not measured
        for what, query in self.asked.queries().items():
            try:
                yield self.query(what, lambda ask, q=query: ask(q), lambda: self.library.open(name))
            except NotImplementedError:
                continue
        if self.library.name == "inlay":
            import inlay

            def opened() -> Any:
                return inlay.open(self.library.uri(name))

            yield self.query("count", lambda t: int(t.count()), opened)
            air = "l_shipmode = 'AIR'"
            yield self.query("count where", lambda t: int(t.count(where=air)), opened)

    # -- other shapes -------------------------------------------------------------------------

    def fresh(self) -> Iterator[Case]:
        for what, program in self.library.fresh(self.table, self.asked.key).items():
            self.server.measure_process(program)  # compiles it
            used = [self.server.measure_process(program) for _ in range(3)]
            least = min(used, key=lambda each: each.wall_s)
            yield Case(self.section, f"{what}, fresh process", self.library.name, least)

    def small(self) -> Iterator[Case]:
        rows = self.data.slice(0, SMALL_ROWS)
        pieces = parts(rows, SMALL_FILES)
        name = self.filled(pieces, "small")
        key = rows["l_orderkey"][min(rows.num_rows - 1, rows.num_rows * 3 // 4 + 1_000)].as_py()
        asked = (None, f"l_orderkey = {key}", None, None)
        yield self.repeated(
            f"point by key, {pieces[0].num_rows:,} rows a file",
            lambda: self.library.open(name)(asked),
        )

    def tiny(self) -> Iterator[Case]:
        name = self.filled(tiny_rows(self.scale.tiny), "tiny")
        yield self.repeated(
            f"{self.scale.tiny:,} files of a row, scanned",
            lambda: self.library.open(name)((None, None, None, None)),
        )

    def wide(self) -> Iterator[Case]:
        rows, of = wide_rows(self.scale.columns), f"{self.scale.columns:,} columns"
        name = f"{self.library.name}-wide"
        yield self.once(
            f"{of}: created with {WIDE_ROWS:,} rows", lambda: self.library.fill([rows], name)
        )
        yield self.repeated(
            f"{of}: scanned", lambda: self.library.open(name)((None, None, None, None))
        )
        for what, act in self.library.wide(name, rows).items():
            yield self.once(f"{of}: {what}", act)

    def keys(self) -> Iterator[Case]:
        every = pa.array(range(0, self.data.num_rows, KEYS_EVERY))
        keys = self.data.select(KEY).take(every)
        table = self.table
        yield self.once(
            f"delete of one key in {KEYS_EVERY}", lambda: self.library.delete_keys(table, keys)
        )
        yield self.repeated("count under these deletes", lambda: self.library.count(table))

    def orphans(self) -> Iterator[Case]:
        if not self.library.orphan:
            return
        from libraries import put

        table, number = self.table, self.scale.orphans
        self.server.set_latency(0)
        keys = [f"{table}/{self.library.orphan.format(uuid.uuid4())}" for _ in range(number)]
        with ThreadPoolExecutor(8) as workers:
            list(workers.map(lambda key: put(self.server.endpoint, key, b"orphan"), keys))
        self.server.set_latency(self.scale.latency_ms)
        _next_second()
        yield self.once(f"{number:,} orphans collected", lambda: self.library.collect(table))

    def erased(self) -> Iterator[Case]:
        name = self.filled([events(self.scale.event_rows, EVENT_COLUMNS)], "events")
        first = self.scale.event_rows // 2
        person = f"id >= {first} AND id <= {first + PERSON_ROWS - 1}"
        _next_second()
        yield self.once(
            f"one person of {self.scale.event_rows:,} rows removed for good",
            lambda: self.library.erase(name, person),
        )
        rest = self.library.open(name)((["id"], None, None, None))
        assert rest == self.scale.event_rows - PERSON_ROWS, rest

    # -- the others ---------------------------------------------------------------------------

    def compaction(self) -> Iterator[Case]:
        name = self.filled(uneven(self.data), "uneven")
        yield self.once("compact", lambda: self.library.compact(name))

    def planning(self) -> Iterator[Case]:
        self.server.set_latency(0)
        acts = self.library.plan(self.scale.planned)
        self.server.set_latency(self.scale.latency_ms)
        for what, act in acts.items():
            act()  # imports are not measured
            yield self.repeated(f"{self.scale.planned:,} files: {what}", act)

    def operations(self) -> Iterator[Case]:
        """Inlay's own."""
        import inlay

        data, asked, uri = self.data, self.asked, self.library.uri
        self.library.open(self.table)((["l_tax"], "l_orderkey = 1", 1, None))
        some = data.slice(0, min(50_000, data.num_rows))
        new = uri("writes")
        yield self.once(
            "writes: create", lambda: inlay.create(new, data.schema, primary_key=KEY) and 0
        )
        table = inlay.open(new)
        key, line = (some[name][5].as_py() for name in KEY)
        one = f"l_orderkey = {key} AND l_linenumber = {line}"
        writes: dict[str, Callable[[], Any]] = {
            f"append {some.num_rows:,} rows": lambda: table.append(some),
            "append 1 row": lambda: table.append(data.slice(0, 1)),
            "upsert 1,000 rows": lambda: table.upsert(some.slice(0, 1_000)),
            "update 1 row": lambda: table.update({"l_tax": "0"}, where=one),
        }
        for name, act in writes.items():
            yield self.once(f"writes: {name}", act)
        lines = inlay.open(uri(self.table))
        keys = data.select(KEY).take(pa.array(range(0, data.num_rows, KEYS_EVERY)))
        # Predicate or keys, and what it is done by.
        deletes: dict[str, dict[str, Any]] = {
            "by key range": {"where": f"l_orderkey < {asked.key // 100}"},
            "by condition": {"where": "l_shipmode = 'FOB' AND l_tax > 0.07"},
            "10 keys": {"keys": keys.slice(0, 10)},
            f"{keys.num_rows:,} keys": {"keys": keys},
            "1 row's key by vector": {"where": f"l_orderkey = {asked.key}", "mode": "vector"},
            "scattered by vector": {"where": "l_linenumber = 3", "mode": "vector"},
            "1 row's key by surgery": {"where": f"l_orderkey = {asked.until}", "mode": "surgery"},
        }
        for name, how in deletes.items():
            yield self.once(f"deletes: {name}", lambda how=how: lines.delete(**how))
        asks: dict[str, Callable[[Any], int]] = {
            "2 of 16 columns": lambda t: int(t.scan(columns=TWO).to_arrow().num_rows),
            "count": lambda t: int(t.count()),
        }
        for name, ask in asks.items():
            yield self.query(f"under these: {name}", ask, lambda: inlay.open(uri(self.table)))
        maintain = lines.maintain
        acts: dict[str, Callable[[], Any]] = {
            "rewrite": maintain.rewrite,
            "compact": maintain.compact,
            "expire": lambda: maintain.expire(days=0),
            "collect garbage, only looking": lambda: maintain.collect_garbage(dry_run=True),
        }
        for name, act in acts.items():
            yield self.once(f"maintenance: {name}", act)
