"""The stage: the world of one schedule, for actors to act in.

Promise: everything that is not decided by the code under test (who is next, what time it is, what
becomes of a request, which ids are drawn) is decided by the seed.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq
from tests.simulator.auditor import Auditor, find_bytes
from tests.simulator.fates import CALM, Odds, World
from tests.simulator.faults import Killed
from tests.simulator.model import Model, Violation
from tests.simulator.scheduler import Scheduler, SimulatedClock

from inlay.errors import (
    ErrorKind,
    ForeignArchives,
    InlayError,
    OutcomeUnknown,
    TableNotFound,
    TableReplaced,
)
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.context import Context, InlineExecutor
from inlay.ops.erase.request import advance_erasures
from inlay.ops.maintain.expire import expire
from inlay.ops.metadata.load import load_pointer
from inlay.ops.publish.publish import publish
from inlay.ops.schema.create import create
from inlay.ops.verify.table import verify
from inlay.ops.write.append import IngestSource
from inlay.ops.write.ingest import ingest
from inlay.storage.base import Got, Head, Location
from inlay.storage.memory import MemoryRegion, MemoryStore

DAY_US = 86_400_000_000
START_US = 1_780_000_000_000_000  # 2026-05-28
GRACE_DAYS = 7
LIFE_SECONDS = 3_600
# Calls that bring an erasure to its end when nothing else goes on.
ERASURE_ROUNDS = 12
SCHEMA = pa.schema([("id", pa.int64()), ("owner", pa.string()), ("balance", pa.int64())])
ROOT = "tables/bank"
BUCKET = "sim"
# What everybody meets while an operator has the pointer in hand.
BY_HAND = (ForeignArchives, TableNotFound, TableReplaced)
# An actor's own tries of one request, each after whatever error allowed it.
TRIES = 25


@dataclass(slots=True)
class Simulation:
    """The world of one schedule, for actors to act in."""

    seed: int
    odds: Odds = field(default_factory=Odds)
    jumps: bool = True  # now and then days pass
    behind_seconds: float = 0.0  # of the store's LastModified, against its Date

    rng: random.Random = field(init=False)
    scheduler: Scheduler = field(init=False)
    region: MemoryRegion = field(init=False)
    model: Model = field(init=False)
    world: World = field(init=False)
    auditor: Auditor = field(init=False)
    serializable: bool = field(init=False)
    erased: list[str] = field(default_factory=list)  # tokens that must be nowhere at the end
    landed: dict[str, IngestSource] = field(default_factory=dict)  # whose events were sent
    published: bool = False  # whether the table is shown to other engines
    shown: int = 0  # the newest version that one of them was shown
    handles: bool = False  # whether a request is of the table to which it was first sent
    before_settling: Callable[[], None] = lambda: None
    next_id: int = 0
    # To go on from another simulation, under another scheduler (`testing.interleavings`).
    start_from: InitVar[Simulation | None] = None
    under: InitVar[Scheduler | None] = None

    def __post_init__(self, start_from: Simulation | None, under: Scheduler | None) -> None:
        self.rng = random.Random(self.seed)
        self.serializable = self.rng.random() < 0.5
        self.scheduler = under or Scheduler(self.rng, start_us=START_US)
        now_us = lambda: self.scheduler.now_us  # noqa: E731 - one clock for all
        behind_us = int(self.behind_seconds * 1_000_000)
        self.region = (
            start_from.region.copy(now_us)
            if start_from
            else MemoryRegion(now_us, behind_us=behind_us)
        )
        self.model = start_from.model.copy() if start_from else Model()
        plain = self.context(MemoryStore(BUCKET, region=self.region), random.Random(self.seed + 1))
        self.auditor = Auditor(
            plain,
            self.model,
            now_us,
            GRACE_DAYS * DAY_US,
            LIFE_SECONDS * 1_000_000,
        )
        if start_from is not None:
            self.auditor.go_on_from(start_from.auditor)
            self.serializable, self.next_id = start_from.serializable, start_from.next_id
        self.world = World(self.scheduler, self.rng, CALM, self.auditor.after_write)
        self.scheduler.before_step = self._pass_time

    def start(self) -> None:
        """Create the table, calmly; faults begin afterwards."""
        ctx = self.actor_context("creator")
        create(ctx, SCHEMA, primary_key=["id"], properties=self.properties)
        self.world.odds = self.odds

    @property
    def properties(self) -> dict[str, object]:
        """Of every table here."""
        return {
            "history.days": 2,
            "gc.grace_days": GRACE_DAYS,
            "isolation": "serializable" if self.serializable else "snapshot",
        }

    def context(self, store: object, rng: random.Random, skew: float = 1.0) -> Context:
        return Context(
            store=store,  # type: ignore[arg-type]
            root=ROOT,
            uri=f"memory://{BUCKET}/{ROOT}",
            executor=InlineExecutor(),
            clock=SimulatedClock(self.scheduler, skew),
            random=rng,
        )

    def actor_context(self, name: str) -> Context:
        """A process of its own: own cache, own randomness, own (wrong) idea of how fast time goes."""
        store = self.world.process(MemoryStore(BUCKET, region=self.region))
        rng = random.Random(f"{self.seed}/{name}/{self.next_id}")
        self.next_id += 1
        return self.context(store, rng, skew=rng.choice([0.5, 1.0, 1.0, 3.0]))

    def context_for(self, name: str, request: str | None) -> Context:
        """A process that has opened the table, if requests are sent to a table."""
        ctx = self.actor_context(name)
        if not self.handles or request is None:
            return ctx
        return replace(ctx, table_id=self.model.meant.setdefault(request, self.auditor.table_id))

    def land(self, name: str, table: pa.Table) -> IngestSource:
        """Drop a Parquet object into the landing zone; its event is what is returned."""
        sink = io.BytesIO()
        pq.write_table(table, sink)
        key = f"ingest/bank/{name}"
        MemoryStore(BUCKET, region=self.region).put(key, sink.getvalue())
        head = MemoryStore(BUCKET, region=self.region).head(key)
        assert isinstance(head, Head)
        location = Location("memory", BUCKET, key)
        source = IngestSource(location, etag=head.info.etag, event_time_us=self.scheduler.now_us)
        self.auditor.landed_us[source.request.token] = head.info.modified_us
        return source

    def collect(self, ctx: Context) -> object:
        return collect_garbage(ctx, life_seconds=LIFE_SECONDS, hmac_key=b"simulated")

    def spawn(self, name: str, run: Callable[[], None]) -> None:
        self.scheduler.spawn(name, run)

    def attempt(
        self,
        name: str,
        request: str | None,
        operation: Callable[[Context], Committed | Skipped | object],
    ) -> None:
        """Do one request until it is acknowledged, as a queue would: after a kill a new process takes
        the same request up again. Errors that say so end it."""
        ctx = self.context_for(name, request)
        for _ in range(TRIES):
            try:
                outcome = operation(ctx)
            except Killed:
                if self.scheduler.stopping:
                    raise
                ctx = self.context_for(name, request)
            except OutcomeUnknown:
                if request is None:
                    return
            except InlayError as error:
                if ctx.table_id not in (None, self.auditor.table_id):
                    return  # its table is gone
                if self.auditor.operated and isinstance(error, BY_HAND):
                    ctx.clock.sleep(self.rng.uniform(0.5, 5))
                elif error.kind.is_retried:
                    ctx.clock.sleep(self.rng.uniform(0.1, 2))
                elif error.kind is ErrorKind.INPUT:
                    return
                else:
                    raise Violation(f"{name} met {type(error).__name__}: {error}") from error
            else:
                if request is not None:
                    self.acknowledge(request, outcome)
                return

    def acknowledge(self, request: str, outcome: object) -> None:
        """A caller got this answer."""
        if isinstance(outcome, Committed):
            made = outcome.loaded.snapshot
            self.auditor.acknowledge(request, made.version, made.commit.id, made.table_id)
        elif isinstance(outcome, Skipped) and outcome.version is not None:
            there = outcome.loaded.snapshot
            self.auditor.acknowledge(request, outcome.version, None, there.table_id)

    def _pass_time(self) -> None:
        draw = self.rng.random()
        if draw < 0.02:
            self.world.land_one()
        elif self.jumps and draw < 0.0225:
            self.scheduler.now_us += self.rng.randrange(1, 12) * DAY_US

    # -- the end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """When all is over: what was acknowledged is there, and garbage goes."""
        self.world.odds = CALM
        while self.world.in_flight:
            self.world.land_one()
        self.before_settling()
        for model in (*self.auditor.former.values(), self.model):
            model.check_acknowledged()
        self._check_soundness()
        ctx = self.actor_context("janitor")
        # A queue delivers until it is heard: objects that wait in the landing zone hold an erasure up.
        ingest(ctx, list(self.landed.values()))
        self._finish_erasures(ctx)
        self.scheduler.now_us += 100 * DAY_US
        expire(ctx, days=0, min_versions=1)
        if self.published:
            publish(ctx)  # else what was published keeps older versions
        self.collect(ctx)  # the grace of what has just expired begins
        self.scheduler.now_us += (GRACE_DAYS + 1) * DAY_US
        self.collect(ctx)
        newest = load_pointer(ctx).snapshot
        if self.auditor.rows(newest) != self.model.rows_at[newest.version]:
            raise Violation("rows changed by garbage collection")
        self.auditor.check_refs(newest)
        self.auditor.check_reachable()
        left = self.auditor.orphans()
        if left:
            raise Violation(f"{len(left)} orphans are left after GC: {sorted(left)[:3]}")
        self._check_soundness()

    def _check_soundness(self) -> None:
        """`inlay verify` holds every object against the metadata: crashes leave orphans, never damage."""
        found = verify(self.auditor.ctx)
        if found.errors:
            raise Violation(f"verify: {found.errors[0]}")

    def _finish_erasures(self, ctx: Context) -> None:
        for _ in range(ERASURE_ROUNDS):
            if not load_pointer(ctx).snapshot.erasures:
                break
            advance_erasures(ctx)
            self.collect(ctx)
            self.scheduler.now_us += 2 * LIFE_SECONDS * 1_000_000
        else:
            raise Violation("an erasure does not come to its end")
        store = MemoryStore(BUCKET, region=self.region)
        objects = [(o.key, store.get(o.key)) for o in store.list("")]
        for token in self.erased:
            bodies = ((key, got.body) for key, got in objects if isinstance(got, Got))
            left = find_bytes(bodies, token)
            if left:
                raise Violation(f"an erased row is left in {left[:3]}")
