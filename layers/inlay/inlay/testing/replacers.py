"""Replacers: people who remove the table and create another one at its place while everybody works.

Promise: nothing that was meant for one table changes another, each request that was acknowledged is in the
one table that it was sent to, and each version of either is what the model says. Half of the work has a
handle: a request is of the table that was there when it was first sent. The rest (rounds of maintenance,
landed objects) begins on what it finds.
"""

from __future__ import annotations

from functools import partial

from inlay.errors import ErrorKind, InlayError
from inlay.ops.schema.create import create
from inlay.storage.memory import MemoryStore
from inlay.testing.operators import mend
from inlay.testing.stage import BUCKET, ROOT, SCHEMA, Simulation

# Tables that come one after the other in a schedule.
TABLES = 4


def begin(sim: Simulation) -> None:
    """Before anybody works."""
    sim.auditor.expect_operators(lambda: "" if sim.world.landing else sim.scheduler.actor_name)
    sim.before_settling = partial(mend, sim, "replacer")
    sim.handles = True
    sim.spawn("replacer", partial(replacer, sim, "replacer"))


def replacer(sim: Simulation, name: str, *, pause: float = 3.0) -> None:
    """`pause`: the most seconds that a table is left alone."""
    sim.world.spared.add(name)
    for _ in range(TABLES):
        for _ in range(4):
            sim.scheduler.sleep(sim.rng.uniform(0, pause / 4))
            mend(sim, name)
        # A delete that is on its way may take what has the same name (docs/GUARANTEES.md, 1).
        while any(sent.verb.startswith("delete") for sent in sim.world.sending):
            sim.scheduler.sleep(0.1)
        _remove(sim)
        if sim.rng.random() < 0.5:
            sim.scheduler.sleep(sim.rng.uniform(0, 2))
        _create(sim, name)


def _remove(sim: Simulation) -> None:
    """In one step."""
    store = MemoryStore(BUCKET, region=sim.region)
    store.delete([found.key for found in store.list(f"{ROOT}/")])
    sim.auditor.replaced()
    sim.erased.clear()


def _create(sim: Simulation, name: str) -> None:
    ctx = sim.actor_context(name)
    while True:
        try:
            create(ctx, SCHEMA, primary_key=["id"], properties=sim.properties)
            return
        except InlayError as error:
            # Somebody has left an archive of the first table there.
            assert error.kind is not ErrorKind.RETRY
            _remove(sim)
