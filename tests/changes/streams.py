"""Change streams against a plain model, under a scheduler that decides who goes on at each request."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from tests.simulator.fates import CALM, Odds, World
from tests.simulator.faults import Killed
from tests.simulator.scheduler import Scheduler, SimulatedClock

from inlay.errors import ErrorKind, InlayError
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.metadata.load import load_pointer
from inlay.ops.read.scan import Scan
from inlay.ops.schema.create import create
from inlay.ops.write.apply_changes import Applied, Rules, apply_changes
from inlay.plan.change import Request
from inlay.plan.change_records import COMMON, counts_over, rank
from inlay.storage.memory import MemoryRegion, MemoryStore

START_US = 1_780_000_000_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string()), ("lsn", pa.int64())])
TRIES = 60

# (operation, key, value, order)
Record = tuple[str, int, str | None, int | None]


def table_of(records: Sequence[Record]) -> pa.Table:
    ops, ids, values, orders = zip(*records, strict=True) if records else ((), (), (), ())
    return pa.table(
        {
            "op": pa.array(ops, pa.string()),
            "id": pa.array(ids, pa.int64()),
            "value": pa.array(values, pa.string()),
            "lsn": pa.array(orders, pa.int64()),
        }
    )


def expected(batches: Sequence[Sequence[Record]]) -> dict[int, tuple[str | None, int | None]]:
    """What the table shows after batches in the order of their arrival."""
    newest: dict[int, tuple[tuple, Record]] = {}
    for record in (record for batch in batches for record in batch):
        op, key, _, order = record
        found = rank([order], is_delete=op == "d")
        if key not in newest or counts_over(found, newest[key][0]):
            newest[key] = (found, record)
    return {key: (r[2], r[3]) for key, (_, r) in newest.items() if r[0] != "d"}


RULES = Rules(order=("lsn",), operations=COMMON)


@dataclass
class Streams:
    """Actors that apply batches to one table, each until it is acknowledged."""

    seed: int
    scheduler: Scheduler
    odds: Odds = CALM
    rules: Rules = RULES
    applied: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.region = MemoryRegion(lambda: self.scheduler.now_us)
        self.world = World(self.scheduler, self.rng, CALM, lambda verb, key: None)
        self.processes = 0
        create(self.context(), SCHEMA, primary_key=["id"], properties={"history.days": 0})
        self.world.odds = self.odds
        self.scheduler.before_step = self._land

    def _land(self) -> None:
        if self.odds != CALM and self.rng.random() < 0.02:
            self.world.land_one()

    def context(self) -> Context:
        """Of a process of its own."""
        self.processes += 1
        return Context(
            store=self.world.process(MemoryStore("sim", region=self.region)),
            root="tables/t",
            uri="memory://sim/tables/t",
            executor=InlineExecutor(),
            clock=SimulatedClock(self.scheduler),
            random=random.Random(f"{self.seed}/{self.processes}"),
        )

    def apply(self, name: str, records: Sequence[Record]) -> None:
        self.until_done(
            lambda ctx: apply_changes(
                ctx, table_of(records), self.rules, request=Request.of(name, body=name)
            )
        )

    def until_done(self, act: Callable[[Context], object]) -> object:
        ctx = self.context()
        for _ in range(TRIES):
            try:
                return act(ctx)
            except Killed:
                if self.scheduler.stopping:
                    raise
                ctx = self.context()
            except InlayError as error:
                if error.kind not in (ErrorKind.RETRY, ErrorKind.REBASE):
                    raise
                ctx.clock.sleep(self.rng.uniform(0.1, 2))
        raise AssertionError("not done after many tries")

    def spawn_stream(self, name: str, batches: Sequence[Sequence[Record]]) -> None:
        def run() -> None:
            for number, batch in enumerate(batches):
                self.apply(f"{name}-{number}", batch)

        self.scheduler.spawn(name, run)

    def spawn(self, name: str, *acts: Callable[[Context], object]) -> None:
        def run() -> None:
            for act in acts:
                self.until_done(act)

        self.scheduler.spawn(name, run)

    def rows(self) -> list[tuple[int, tuple[str | None, int | None]]]:
        self.world.odds = CALM
        while self.world.in_flight:
            self.world.land_one()
        ctx = self.context()
        shown = Scan(ctx, load_pointer(ctx).state).to_arrow().to_pylist()
        return sorted((row["id"], (row["value"], row["lsn"])) for row in shown)


def applied(done: object) -> Applied:
    assert isinstance(done, Applied)
    return done
