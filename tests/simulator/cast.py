"""The cast: who acts in a simulation.

Each actor is a handful of requests against the table, chosen by the schedule's seed: appenders with
duplicate deliveries, deleters of every kind with redelivery, updaters (bank transfers keep the sum of
balances), upserters, rewriter, compactor, expirer, collector, readers pinned to a snapshot.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from tests.simulator import model
from tests.simulator.fates import DAY_SECONDS
from tests.simulator.model import Intent, Row, SnapshotDelete, Violation
from tests.simulator.stage import BY_HAND, LIFE_SECONDS, SCHEMA, Simulation

from inlay.errors import ErrorKind, InlayError, SnapshotGone, StoreUnavailable
from inlay.format.predicate import Predicate
from inlay.format.schema import Schema
from inlay.ops.commit.driver import Planned
from inlay.ops.context import Context
from inlay.ops.erase.request import advance_erasures, open_erasure
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import load_pointer
from inlay.ops.read.scan import Scan
from inlay.ops.schema.create import create
from inlay.ops.write import partial_upsert as partial_module
from inlay.ops.write import upsert as upsert_module
from inlay.ops.write.append import IngestSource, append
from inlay.ops.write.delete import delete, delete_keys
from inlay.ops.write.ingest import Retry, ingest
from inlay.ops.write.update import update
from inlay.parquet.arrow.types import schema_from_arrow, schema_to_arrow
from inlay.parse import parse_assignments, parse_predicate
from inlay.plan.change import Request

OWNERS = ("ada", "bob", "cy", None)
COLUMNS: Schema = schema_from_arrow(SCHEMA)
# Of columns that come later (`testing.historians`), where they have one.
EXTRA_DEFAULT = 7
# Rounds of work of one actor in a schedule: enough to meet the others, few enough to be fast.
ROUNDS = 3


Act = Callable[[Simulation, str], None]


class Requested(Protocol):
    """An operation that may be delivered more than once."""

    def __call__(self, ctx: Context, *, request: Request) -> object: ...


def kinds() -> dict[str, tuple[Act, int]]:
    """Every kind of actor, and how many of it there are at most in a crowd."""
    return {
        "append": (appender, 2),
        "ingest": (ingester, 2),
        "unnamed": (unnamed_appender, 1),
        "tombstone": (tombstone_deleter, 2),
        "rows": (row_deleter, 2),
        "keys": (key_deleter, 1),
        "update": (updater, 2),
        "upsert": (upserter, 1),
        "rewrite": (tidier(rewrite, pause=20), 1),
        "compact": (tidier(compact, pause=20), 1),
        "expire": (tidier(expire, pause=3 * DAY_SECONDS), 1),
        "collect": (collector, 1),
        "erase": (eraser, 1),
        "create": (creator, 1),
        "read": (reader, 2),
    }


def full_cast(sim: Simulation) -> None:
    """Every other schedule is a crowd of some of everybody; the others put a few kinds of actor, several
    of each, on one another's toes."""
    counts = crowd(sim)
    if sim.seed % 2:
        few = sim.rng.sample(sorted(counts), 3)
        counts = dict.fromkeys(few, 2)
    counts["append"] = max(1, counts.get("append", 0))
    enter(sim, counts)


def crowd(sim: Simulation) -> dict[str, int]:
    """How many there are of each kind."""
    return {name: sim.rng.randint(0, most) for name, (_, most) in kinds().items()}


def enter(sim: Simulation, counts: Mapping[str, int]) -> None:
    acts = kinds()
    for name, count in counts.items():
        for number in range(count):
            full = f"{name}-{number}"
            sim.spawn(full, partial(acts[name][0], sim, full))


def some_rows(sim: Simulation, count: int) -> list[Row]:
    rng = sim.rng
    return [(rng.randrange(60), rng.choice(OWNERS), rng.randrange(100)) for _ in range(count)]


def as_table(rows: list[Row]) -> pa.Table:
    arrays = [pa.array([r[n] for r in rows], f.type) for n, f in enumerate(SCHEMA)]
    return pa.table(arrays, schema=SCHEMA)


def deliver(
    sim: Simulation,
    name: str,
    request: str,
    intent: Intent | SnapshotDelete,
    operation: Requested,
) -> None:
    """A request, delivered as queues do: at least once, sometimes again later, sometimes to two at a
    time."""
    sim.model.intend(request, intent)
    # By when it was sent, a request that is too old for the ledger is known from a new one.
    identity = Request.of(request, body=request, time_us=sim.scheduler.now_us)

    def once(who: str) -> None:
        sim.attempt(who, request, partial(operation, request=identity))

    if sim.rng.random() < 0.25:
        sim.spawn(f"{name}-twin", lambda: once(f"{name}-twin"))
    once(name)
    if sim.rng.random() < 0.25:
        sim.scheduler.sleep(sim.rng.uniform(0, 3600))
        once(name)


def appender(sim: Simulation, name: str) -> None:
    for n in range(ROUNDS):
        deliver_rows(sim, name, f"{name}:{n}", some_rows(sim, sim.rng.randint(1, 12)))


def deliver_rows(sim: Simulation, name: str, request: str, rows: list[Row]) -> None:
    deliver(sim, name, request, model.insert(rows), partial(append, data=as_table(rows)))


def ingester(sim: Simulation, name: str) -> None:
    """Parquet objects land, and their events are delivered in batches, at least once, to any process."""
    landed: list[IngestSource] = []
    for n in range(ROUNDS):
        rows = some_rows(sim, sim.rng.randint(1, 6))
        source = sim.land(f"{name}-{n}.parquet", as_table(rows))
        sim.model.landing[source.request.token] = Counter(rows)
        landed.append(source)
        batch = sim.rng.sample(landed, sim.rng.randint(1, len(landed)))
        if sim.rng.random() < 0.3:
            sim.spawn(f"{name}-twin", partial(deliver_events, sim, f"{name}-twin", batch))
        deliver_events(sim, name, batch)
    deliver_events(sim, name, landed)


def deliver_events(sim: Simulation, name: str, batch: list[IngestSource]) -> None:
    """What is to be tried again is delivered again, as a queue does."""
    left = list(batch)
    sim.landed.update({source.request.token: source for source in batch})

    def run(ctx: Context) -> None:
        outcomes = ingest(ctx, left).outcomes
        left[:] = [o.source for o in outcomes if isinstance(o, Retry)]
        if left:
            raise StoreUnavailable("events are left")

    sim.attempt(name, None, run)


def unnamed_appender(sim: Simulation, name: str) -> None:
    """Appends without a request id: nothing but the commit protocol keeps them from landing twice. Sent
    once; whoever gets the answer that it failed does not know whether it did, and leaves it."""
    for n in range(ROUNDS):
        request = f"{name}:{n}"
        rows = [*some_rows(sim, 3), (sim.rng.randrange(60), request, 1)]
        sim.model.unnamed[request] = Counter(rows)
        table = as_table(rows)
        ctx = sim.actor_context(name)
        try:
            done = append(ctx, table)
        except InlayError as error:
            by_hand = sim.auditor.operated and isinstance(error, BY_HAND)
            if not by_hand and error.kind not in (ErrorKind.RETRY, ErrorKind.REBASE):
                raise Violation(f"{name} met {type(error).__name__}: {error}") from error
        else:
            sim.acknowledge(request, done)


def some_predicate(sim: Simulation) -> tuple[str, Callable[[Row], bool]]:
    """SQL and what it means, row by row. NULL owners are there to be kept by `owner <> …`."""
    rng = sim.rng
    low = rng.randrange(60)
    high = low + rng.randrange(25)
    owner = rng.choice(OWNERS[:3])
    return rng.choice(
        [
            (f"id BETWEEN {low} AND {high}", lambda r: low <= r[0] <= high),
            (f"id >= {low} AND id < {high + 1}", lambda r: low <= r[0] <= high),
            (f"owner = '{owner}' AND id < {high}", lambda r: r[1] == owner and r[0] < high),
            (f"owner <> '{owner}'", lambda r: r[1] is not None and r[1] != owner),
            (f"owner IS NULL AND balance < {high}", lambda r: r[1] is None and r[2] < high),
            (f"id IN ({low}, {high})", lambda r: r[0] in (low, high)),
        ]
    )


def tombstone_deleter(sim: Simulation, name: str) -> None:
    for n in range(ROUNDS):
        text, matches = some_predicate(sim)
        act = partial(delete, condition=parse_predicate(text, COLUMNS), mode="tombstone")
        deliver(sim, name, f"{name}:{n}", model.delete(matches), act)


def reading_delete(sim: Simulation, matches: Callable[[Row], bool]) -> Intent | SnapshotDelete:
    """A delete that reads may miss what arrives meanwhile, unless isolation is serializable."""
    if sim.serializable:
        return model.delete(matches)
    return SnapshotDelete(matches, sim.auditor.newest)


def row_deleter(sim: Simulation, name: str) -> None:
    for n in range(ROUNDS):
        text, matches = some_predicate(sim)
        mode = sim.rng.choice(["vector", "vector", "surgery", "rewrite"])
        act = partial(delete, condition=parse_predicate(text, COLUMNS), mode=mode)
        deliver(sim, name, f"{name}:{n}", reading_delete(sim, matches), act)


def key_deleter(sim: Simulation, name: str) -> None:
    for n in range(ROUNDS):
        ids = {sim.rng.randrange(60) for _ in range(sim.rng.choice([3, 80]))}
        intent = model.delete(lambda r, ids=ids: r[0] in ids)  # type: ignore[misc]
        table = pa.table({"id": pa.array(sorted(ids), pa.int64())})
        deliver(sim, name, f"{name}:{n}", intent, partial(delete_keys, keys=table))


def updater(sim: Simulation, name: str) -> None:
    for n in range(ROUNDS):
        text, matches = some_predicate(sim)
        mode = sim.rng.choice(["tombstone", "vector", "rewrite"])
        intent, act = paying(matches, parse_predicate(text, COLUMNS), mode)
        deliver(sim, name, f"{name}:{n}", intent, act)


def paying(matches: Callable[[Row], bool], where: Predicate, mode: str) -> tuple[Intent, Requested]:
    """An update that takes 7 off the balance of some rows: what it means, and how it is done."""
    assignments = parse_assignments({"balance": "balance - 7"}, COLUMNS)
    return (
        model.update(matches, lambda r: (r[0], r[1], r[2] - 7)),
        partial(update, assignments=assignments, condition=where, mode=mode),
    )


def upserter(sim: Simulation, name: str) -> None:
    for n in range(ROUNDS):
        by_id = {r[0]: r for r in some_rows(sim, sim.rng.choice([2, 6]))}
        rows = list(by_id.values())
        intent = model.upsert(rows, lambda r: r[0])
        deliver(sim, name, f"{name}:{n}", intent, partial(upsert_whole, table=as_table(rows)))


class _ColumnAdded(Exception):
    """Whole rows lack a column by now."""


_whole = threading.local()
plan_partial = partial_module.plan_partial


def _plan_partial_unless_whole(*arguments: Any) -> Planned:
    if getattr(_whole, "rows", False):
        raise _ColumnAdded
    return plan_partial(*arguments)


partial_module.plan_partial = _plan_partial_unless_whole  # type: ignore[assignment]


def upsert_whole(ctx: Context, table: pa.Table, *, request: Request) -> object:
    """Upsert rows with a NULL for every column that somebody has added meanwhile, again for each that comes
    while it runs: data that lacks one would keep each old row of a key, with its value there, and the model
    knows the bank's columns only."""
    while True:
        base = load_pointer(ctx)
        for field in schema_to_arrow(base.snapshot.schema):
            if field.name not in table.column_names:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        _whole.rows = True
        try:
            return upsert_module.upsert(ctx, table, base=base, request=request)
        except _ColumnAdded:
            continue
        finally:
            _whole.rows = False


def tidier(operation: Callable[[Context], object], *, times: int = ROUNDS, pause: float) -> Act:
    """Somebody who does the same again and again. `pause`: the most seconds after each time."""

    def act(sim: Simulation, name: str) -> None:
        for _ in range(times):
            sim.attempt(name, None, operation)
            sim.scheduler.sleep(sim.rng.uniform(0, pause))

    return act


def collector(sim: Simulation, name: str) -> None:
    tidier(sim.collect, pause=3 * DAY_SECONDS)(sim, name)


def land_late(sim: Simulation, name: str, rows: list[Row]) -> None:
    """A file of these rows lands, and its event comes whenever."""
    source = sim.land(f"{name}.parquet", as_table(rows))
    sim.model.landing[source.request.token] = Counter(rows)
    sim.spawn(f"{name}-event", partial(deliver_late, sim, f"{name}-event", source))


def open_for(
    sim: Simulation, name: str, request: str, token: str, begin: Callable[..., Any]
) -> None:
    """Opens an erasure of the rows of this owner by `begin`, until it is acknowledged or the actor ends."""
    matches: Callable[[Row], bool] = lambda row: row[1] == token  # noqa: E731
    sim.model.erasing[request] = matches
    predicate = parse_predicate(f"owner = '{token}'", COLUMNS)
    deliver(sim, name, request, model.delete(matches), partial(begin, predicate=predicate))
    if request in sim.model.acknowledged:
        sim.erased.append(token)


def eraser(sim: Simulation, name: str) -> None:
    """Rows of one person come, are used by nobody, and must leave every byte. Some come from an object
    that landed before the erasure was opened, and whose event may be delivered long after."""
    token = f"secret-{sim.rng.getrandbits(64):016x}"
    rows: list[Row] = [(n, token, n) for n in range(3)]
    if sim.rng.random() < 0.5:
        land_late(sim, name, rows)
    else:
        deliver_rows(sim, name, f"{name}:came", rows)
    sim.scheduler.sleep(sim.rng.uniform(0, 30))
    open_for(sim, name, f"{name}:erased", token, open_erasure)
    for _ in range(ROUNDS):
        sim.attempt(name, None, advance_erasures)
        sim.attempt(name, None, sim.collect)
        sim.scheduler.sleep(sim.rng.uniform(0, 2 * LIFE_SECONDS))


def deliver_late(sim: Simulation, name: str, source: IngestSource) -> None:
    sim.scheduler.sleep(sim.rng.choice([0, sim.rng.uniform(0, 30), sim.rng.uniform(0, 20_000)]))
    deliver_events(sim, name, [source])


def creator(sim: Simulation, name: str) -> None:
    """Somebody who does not know that the table exists."""
    sim.scheduler.sleep(sim.rng.uniform(0, 30))

    def try_to(ctx: Context) -> None:
        create(ctx, SCHEMA)
        raise Violation("a table was created where there is one")

    sim.attempt(name, None, try_to)


def reader(sim: Simulation, name: str) -> None:
    """Opens a snapshot, dawdles, and must still see exactly that snapshot."""
    for _ in range(ROUNDS):
        sim.scheduler.sleep(sim.rng.uniform(0, 60))
        sim.attempt(name, None, lambda ctx: _read(sim, ctx))


def _read(sim: Simulation, ctx: Context) -> None:
    loaded = load_pointer(ctx)
    version = loaded.snapshot.version
    opened_us = sim.scheduler.now_us
    try:
        table = Scan(ctx, loaded.state).to_arrow()
    except InlayError as error:
        allowed_us = sim.auditor.grace_of(version)
        too_slow = sim.scheduler.now_us - opened_us > allowed_us
        network = error.kind is ErrorKind.RETRY and not isinstance(error, SnapshotGone)
        if not network and not too_slow:
            raise Violation(f"a reader of version {version} met {error}") from error
        return
    known = [table[name].to_pylist() for name in COLUMNS.names]
    if Counter(zip(*known, strict=True)) != sim.model.rows_at[version]:
        raise Violation(f"a reader of version {version} saw other rows than that version has")
    for name in set(table.column_names) - set(COLUMNS.names):
        # Nobody writes to columns that came later.
        if not set(table[name].to_pylist()) <= {None, EXTRA_DEFAULT}:
            raise Violation(f"a reader of version {version} saw values nobody wrote in {name}")
