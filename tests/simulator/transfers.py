"""Transfers: transactions over the table of a simulation and another one beside it.

Promise: at each moment, between any two writes to the store, both tables have a transfer or neither has it;
the auditor asks the ledgers of what their pointers stand for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.simulator import model
from tests.simulator.cast import (
    COLUMNS,
    appender,
    as_table,
    collector,
    deliver,
    eraser,
    land_late,
    open_for,
    reading_delete,
    row_deleter,
    some_rows,
    tidier,
    tombstone_deleter,
    updater,
    upserter,
)
from tests.simulator.fates import DAY_SECONDS
from tests.simulator.model import Row, Violation
from tests.simulator.pairs import BOUNDARY, OPERATIONS, REPLACING, UPDATES, VECTORS, Operation
from tests.simulator.stage import ERASURE_ROUNDS, LIFE_SECONDS, SCHEMA, Simulation

from inlay.errors import InlayError
from inlay.format.predicate import Predicate
from inlay.ops.cache import ObjectCache
from inlay.ops.commit.driver import already_applied
from inlay.ops.context import Context, Shared
from inlay.ops.erase.request import advance_erasures, open_erasure
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.schema.create import create
from inlay.ops.transaction import Hold, Part, Planned, Result, commit_parts, load_together
from inlay.ops.verify.table import verify
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parse import parse_predicate
from inlay.plan.change import Request

BESIDE = "tables/beside"
TRANSFER = "transfer"
Run = Callable[[Context, LoadedTable], object]


def beside(ctx: Context) -> Context:
    """The same process, on the other table."""
    return replace(
        ctx,
        root=BESIDE,
        uri=f"memory://sim/{BESIDE}",
        cache=ObjectCache(),
        shared=Shared(),
        table_id=None,
        branch=None,
    )


def part_of(ctx: Context, base: LoadedTable, run: Run) -> Part:
    """A table of a transaction, by an operation that commits on it."""

    def plan(now: LoadedTable) -> Planned | None:
        hold = Hold()
        run(replace(ctx, hold=hold), now)
        return hold.taken

    taken = plan(base)
    if taken is None:
        return Part(ctx, base)
    return Part(ctx, taken.base, taken.change, plan)


def transfer(ctx: Context, request: Request, rows: list[Row], here: Run) -> Result:
    """`rows` go to the other table, and `here` is done on this one."""
    other = beside(ctx)
    mine, its = load_together([ctx, other])

    def there(held: Context, base: LoadedTable) -> object:
        return append(held, as_table(rows), base=base)

    return commit_parts([part_of(ctx, mine, here), part_of(other, its, there)], request)[0]


def prepare(sim: Simulation) -> None:
    """The other table is there, and from now on the auditor looks at it."""
    create(beside(sim.auditor.ctx), SCHEMA, primary_key=["id"], properties=sim.properties)


# -- as an operation that meets others --------------------------------------------------------------


def _meeting(sim: Simulation, here: Run, intent: object, redone_by: frozenset[str]) -> Operation:
    prepare_once(sim)
    rows: list[Row] = [(1, "bob", 1)]
    return Operation(
        lambda ctx, r: transfer(ctx, r, rows, here),
        intent,  # type: ignore[arg-type]
        redone_by,
    )


def prepare_once(sim: Simulation) -> None:
    from inlay.format import keys
    from inlay.storage.base import Head

    ctx = beside(sim.auditor.ctx)
    if not isinstance(ctx.store.head(ctx.key(keys.POINTER)), Head):
        prepare(sim)


def _transfer(sim: Simulation, number: int) -> Operation:
    rows: list[Row] = [(300 + number, "tx", 1), (2, "tx", number)]
    table = as_table(rows)

    def here(held: Context, base: LoadedTable) -> object:
        return append(held, table, base=base)

    return _meeting(sim, here, model.insert(rows), BOUNDARY)


def _transfer_of_rows(sim: Simulation, number: int) -> Operation:
    where = parse_predicate("id <= 5", COLUMNS)  # whatever others delete, some are left

    def here(held: Context, base: LoadedTable) -> object:
        return delete(held, where, mode="vector", base=base)

    found = reading_delete(sim, lambda row: row[0] <= 5)
    return _meeting(sim, here, found, REPLACING | UPDATES | VECTORS | BOUNDARY)


TRANSFERS = {TRANSFER: _transfer, f"{TRANSFER} of rows": _transfer_of_rows}
OPERATIONS.update(TRANSFERS)


# -- in schedules -----------------------------------------------------------------------------------


def transferrer(sim: Simulation, name: str) -> None:
    for n in range(3):
        rows = some_rows(sim, sim.rng.randint(1, 5))
        table = as_table(rows)

        def here(held: Context, base: LoadedTable, table: object = table) -> object:
            return append(held, table, base=base)

        deliver(
            sim,
            name,
            f"{TRANSFER}:{name}:{n}",
            model.insert(rows),
            partial(transfer, rows=rows, here=here),
        )


def erase_both(ctx: Context, request: Request, predicate: Predicate) -> Result:
    """Opens the erasure of the same rows on both tables."""

    def erasing(its: Context, base: LoadedTable) -> Part:
        def run(held: Context, now: LoadedTable) -> object:
            return open_erasure(held, predicate, base=now, request=request)

        try:
            return part_of(its, base, run)
        except InlayError:
            if already_applied(its, base, request)[1] is None:
                raise
            return Part(its, base)  # repeated: it is open there

    contexts = [ctx, beside(ctx)]
    parts = [erasing(*each) for each in zip(contexts, load_together(contexts), strict=True)]
    return commit_parts(parts, request)[0]


def joint_eraser(sim: Simulation, name: str) -> None:
    """Rows of one person come to both tables, and must leave every byte of either."""
    token = f"secret-{sim.rng.getrandbits(64):016x}"
    rows: list[Row] = [(n, token, n) for n in range(3)]
    table = as_table(rows)

    def here(held: Context, base: LoadedTable) -> object:
        return append(held, table, base=base)

    came = partial(transfer, rows=rows, here=here)
    deliver(sim, name, f"{TRANSFER}:{name}:came", model.insert(rows), came)
    land_late(sim, name, rows)  # and more of them to the first
    sim.scheduler.sleep(sim.rng.uniform(0, 30))
    open_for(sim, name, f"{TRANSFER}:{name}:erased", token, erase_both)
    for _ in range(3):
        for tidy in (advance_erasures, sim.collect):
            sim.attempt(name, None, tidy)
            sim.attempt(name, None, partial(_beside, tidy))
        sim.scheduler.sleep(sim.rng.uniform(0, 2 * LIFE_SECONDS))


def looker(sim: Simulation, name: str) -> None:
    """Both tables at one moment have the same transfers, whenever that was."""

    def look(ctx: Context) -> None:
        mine, its = load_together([ctx, beside(ctx)])
        for request in list(sim.model.intents):
            if request.startswith(TRANSFER):
                compare(ctx, mine, its, request)

    for _ in range(4):
        sim.attempt(name, None, look)
        sim.scheduler.sleep(sim.rng.uniform(0, 3_600))


def compare(ctx: Context, mine: LoadedTable, its: LoadedTable, name: str) -> None:
    request = Request.of(name)
    here = already_applied(ctx, mine, request)[1] is not None
    there = already_applied(beside(ctx), its, request)[1] is not None
    forgotten = (its if here else mine).snapshot.ledger.horizon_us > 0
    if here != there and not forgotten:
        raise Violation(f"{name} is in one table only, {'this' if here else 'the other'} one")


def _beside(run: Callable[[Context], object], ctx: Context) -> object:
    return run(beside(ctx))


def neighbour(sim: Simulation, name: str) -> None:
    """Somebody who works on the other table alone."""
    for n in range(3):
        rows, request = as_table(some_rows(sim, 2)), Request.of(f"{name}:{n}")
        sim.attempt(name, None, partial(_beside, partial(append, data=rows, request=request)))
        for tidy in (compact, expire, sim.collect):
            sim.attempt(name, None, partial(_beside, tidy))
            sim.scheduler.sleep(sim.rng.uniform(0, 2 * DAY_SECONDS))


def erasing_cast(sim: Simulation) -> None:
    transfers_cast(sim, erasures=True)


def transfers_cast(sim: Simulation, *, erasures: bool = False) -> None:
    prepare_once(sim)
    acts = {
        "append": appender,
        "tombstone": tombstone_deleter,
        "rows": row_deleter,
        "update": updater,
        "upsert": upserter,
        "compact": tidier(compact, pause=20),
        "expire": tidier(expire, pause=3 * DAY_SECONDS),
        "collect": collector,
    }
    if erasures:
        sim.spawn("both", partial(joint_eraser, sim, "both"))
        acts["erase"] = eraser
    chosen = sim.rng.sample(sorted(acts), 4)
    for name in chosen:
        sim.spawn(name, partial(acts[name], sim, name))
    for number in range(3):
        sim.spawn(f"transfer-{number}", partial(transferrer, sim, f"transfer-{number}"))
    sim.spawn("neighbour", partial(neighbour, sim, "neighbour"))
    sim.spawn("look", partial(looker, sim, "look"))

    def sound() -> None:
        other = beside(sim.actor_context("janitor beside"))
        for _ in range(ERASURE_ROUNDS):
            if load_pointer(other).snapshot.erasures:
                advance_erasures(other)
                sim.collect(other)
                sim.scheduler.now_us += 2 * LIFE_SECONDS * 1_000_000
        found = verify(beside(sim.auditor.ctx))
        if found.errors:
            raise Violation(f"verify beside: {found.errors[0]}")

    sim.before_settling = sound
