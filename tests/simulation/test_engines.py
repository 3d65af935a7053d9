"""A commit of an engine: each request of the catalog, reads among them, fails, is doubled or its last.

The engine asks again with the same words until it has an answer. The table then holds once what it asked
for, the publication shows that, and no request more than once does it.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from tests.simulator import model
from tests.simulator.cast import as_table
from tests.simulator.engines import Statement
from tests.simulator.fates import CALM
from tests.simulator.faults import Fate
from tests.simulator.model import Violation
from tests.simulator.publishers import look_by_iceberg, published, rows_of
from tests.simulator.stage import Simulation

from inlay.errors import InlayError
from inlay.ops.metadata.load import load_pointer
from inlay.ops.publish.publish import publish
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parse import parse_predicate
from inlay.plan.change import Request

START = [(n, "ada" if n % 2 else None, 10 * n) for n in range(6)]
MORE = [(100 + n, "bob", n) for n in range(3)]


def prepared() -> Simulation:
    """A published table of a file, which a vector hits, and a version that is not published."""
    sim = Simulation(1, CALM, jumps=False)
    sim.start()
    published(sim)
    ctx = sim.actor_context("prepare")
    sim.model.intend("p1", model.insert(START))
    append(ctx, as_table(START), request=Request.of("p1", body="p1"))
    sim.model.intend("p2", model.delete(lambda r: r[0] == 4))
    columns = load_pointer(ctx).snapshot.schema
    gone = parse_predicate("id = 4", columns)
    delete(ctx, gone, mode="vector", request=Request.of("p2", body="p2"))
    publish(ctx)
    return sim


def statement(sim: Simulation, kind: str) -> Statement:
    if kind == "insert":
        return Statement(sim, model.insert(MORE), lambda ctx, metadata: MORE, adds=True)
    return Statement(
        sim,
        model.delete(lambda r: r[1] is None),
        lambda ctx, metadata: [r for r in rows_of(ctx, metadata) if r[1] is not None],
        adds=False,
    )


def play(kind: str, number: int, fate: Fate | None) -> list[tuple[Fate, ...]]:
    """One commit whose request of this number meets the fate. What each could meet."""
    sim = prepared()
    asked = statement(sim, kind)
    asked.prepare(sim.actor_context("engine"))
    sim.world.planned = {} if fate is None else {("actor", number): fate}
    sim.world.counts.clear()
    sim.world.possible.clear()
    sim.spawn("actor", partial(sim.attempt, "actor", None, asked.run))
    sim.scheduler.run()
    made = sim.world.counts.get("actor", 0)
    possible = [sim.world.possible["actor", n] for n in range(1, made + 1)]
    sim.world.planned = {}
    assert asked.name in sim.model.acknowledged
    before = Counter(r for r in START if r[0] != 4)
    now = sim.model.rows_at[sim.auditor.newest]
    assert now == asked.intent(before)
    sim.shown = 0
    look_by_iceberg(sim, sim.actor_context("reader"))
    assert sim.shown == sim.auditor.newest, "what is committed is published"
    return possible


@pytest.mark.parametrize("kind", ["insert", "delete"])
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.wide)])
def test_whatever_becomes_of_any_request_of_a_catalog_an_engines_commit_is_there_once(
    kind: str, every: bool
) -> None:
    """In the short tier each request meets one fate, in turn."""
    requests = play(kind, 0, None)
    assert len(requests) > 10
    for number, possible in enumerate(requests, start=1):
        fates = [each for each in possible if each is not Fate.DONE]
        for fate in fates if every else fates[number % len(fates) :][:1]:
            try:
                play(kind, number, fate)
            except (Violation, InlayError, AssertionError) as error:
                raise AssertionError(f"{kind}: request {number} {fate.name}: {error}") from error
