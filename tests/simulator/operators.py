"""Operators: people who move the pointer by hand while everybody works, and call for a repair.

Promise: whatever they do at whatever moment, each version that the table then has is what it was; rows
come once; what was acknowledged is there, but for what stood in a pointer alone that was overwritten or
deleted, and for versions that follow on one that was put back when somebody's swap still fitted it
(docs/GUARANTEES.md, 1). The auditor follows the pointer: it knows the state of every commit it has seen.
"""

from __future__ import annotations

from functools import partial

from tests.simulator.cast import ROUNDS, crowd, enter
from tests.simulator.fates import DAY_SECONDS
from tests.simulator.faults import Killed
from tests.simulator.model import Violation
from tests.simulator.stage import BUCKET, ROOT, Simulation

from inlay.errors import ErrorKind, ForeignArchives, InlayError, TableNotFound
from inlay.format import keys
from inlay.format.codec import decode_snapshot
from inlay.ops.commit.driver import commit
from inlay.ops.context import Context
from inlay.ops.verify.repair import repair
from inlay.plan.change import Change, SetProperties
from inlay.storage.base import Got
from inlay.storage.memory import MemoryStore

# Those whose rows follow from their request alone: what a reader saw, or a delete has read, may have been
# taken back meanwhile.
BESIDE = (
    "append",
    "ingest",
    "tombstone",
    "keys",
    "upsert",
    "rewrite",
    "compact",
    "expire",
    "collect",
)
POINTER = f"{ROOT}/{keys.POINTER}"
# How far back a pointer is put, at most.
MOST_BACK = 4
REPAIRS = 60
A_COMMIT = Change(operation="set_properties", updates=(SetProperties({"operator": "was here"}),))


def operators_cast(sim: Simulation) -> None:
    """A crowd with an operator in it."""
    expect_operator(sim, "operator")
    counts = {name: count for name, count in crowd(sim).items() if name in BESIDE}
    counts["append"] = max(1, counts["append"])
    enter(sim, counts)
    sim.spawn("operator", partial(operator, sim, "operator"))


def expect_operator(sim: Simulation, name: str) -> None:
    """From here on `name` moves the pointer by hand, and mends what is left at the end."""
    sim.auditor.expect_operators(lambda: "" if sim.world.landing else sim.scheduler.actor_name)
    sim.before_settling = partial(mend, sim, name)


def operator(sim: Simulation, name: str) -> None:
    for _ in range(ROUNDS):
        sim.scheduler.sleep(sim.rng.uniform(0, 15))
        move_the_pointer(sim)
        sim.scheduler.sleep(sim.rng.uniform(0, 3))
        mend(sim, name)
        # Somebody calls when nothing can be written any more.
        for _ in range(3):
            sim.scheduler.sleep(sim.rng.uniform(0, 5))
            try:
                commit(sim.actor_context(name), A_COMMIT)
            except (ForeignArchives, TableNotFound):
                mend(sim, name)
            except Killed:
                if sim.scheduler.stopping:
                    raise
            except InlayError:
                continue


def undoer(sim: Simulation, name: str) -> None:
    """Puts the pointer back by one version where a garbage collection stands in it, and no swap is on its
    way that would be let in then (docs/GUARANTEES.md, 1)."""
    expect_operator(sim, name)
    store = MemoryStore(BUCKET, region=sim.region)
    for _ in range(40):
        sim.scheduler.sleep(sim.rng.uniform(0, DAY_SECONDS))
        there = store.get(POINTER)
        assert isinstance(there, Got)
        current = decode_snapshot(there.body, key=POINTER)
        before = store.get(f"{ROOT}/{keys.archive_key(current.version - 1)}")
        swaps = any(sent.key == POINTER and sent.verb == "put" for sent in sim.world.sending)
        is_due = current.commit.operation == "collect_garbage" and not (
            swaps or sim.world.in_flight
        )
        if is_due and isinstance(before, Got):
            store.put(POINTER, before.body)
            sim.auditor.moved(decode_snapshot(before.body, key=POINTER).commit.id)
        sim.scheduler.sleep(sim.rng.uniform(0, DAY_SECONDS))
        mend(sim, name)


def move_the_pointer(sim: Simulation) -> None:
    """In one step: put an older one back, by one version or more, or delete it."""
    store = MemoryStore(BUCKET, region=sim.region)
    there = store.get(POINTER)
    if not isinstance(there, Got):
        return
    version = decode_snapshot(there.body, key=POINTER).version
    found = [store.get(f"{ROOT}/{keys.archive_key(v)}") for v in range(1, version)]
    archived = [got.body for got in found if isinstance(got, Got)]
    if not archived:
        return  # who deletes the first pointer has removed the table: there is nothing to repair it from
    commits = {body: decode_snapshot(body, key=POINTER).commit.id for body in archived}
    # What a repair that died has archived was never a version.
    older = [body for body in archived if commits[body] in sim.auditor.states]
    if sim.rng.random() < 0.2 or not older:
        store.delete([POINTER])
        sim.auditor.moved(None)
        return
    chosen = sim.rng.choice(older[-MOST_BACK:])
    store.put(POINTER, chosen)
    sim.auditor.moved(commits[chosen])


def mend(sim: Simulation, name: str) -> None:
    """`inlay repair`, until it says that it is done."""
    ctx: Context = sim.actor_context(name)
    for _ in range(REPAIRS):
        try:
            repair(ctx, dry_run=False)
            return
        except Killed:
            if sim.scheduler.stopping:
                raise
            ctx = sim.actor_context(name)
        except InlayError as error:
            if error.kind is ErrorKind.INPUT:
                raise Violation(f"a repair met {type(error).__name__}: {error}") from error
            ctx.clock.sleep(sim.rng.uniform(0.1, 1))
    raise Violation("a repair does not come to its end")
