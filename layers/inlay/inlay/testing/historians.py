"""Historians: actors who tag, branch, merge, restore and change the schema."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa

from inlay.errors import MergeConflict
from inlay.format.predicate import Predicate
from inlay.format.snapshot import Ref
from inlay.ops.alter import alter, evolution_of
from inlay.ops.append import append
from inlay.ops.compact import compact
from inlay.ops.context import Context
from inlay.ops.delete import delete
from inlay.ops.load import load_pointer
from inlay.ops.merge import fast_forward, merge
from inlay.ops.refs import branch, drop, tag
from inlay.ops.restore import restore
from inlay.ops.rewrite import rewrite
from inlay.ops.update import upsert
from inlay.parse import parse_predicate
from inlay.plan.change import Request
from inlay.testing import model
from inlay.testing.cast import (
    COLUMNS,
    EXTRA_DEFAULT,
    ROUNDS,
    as_table,
    crowd,
    deliver,
    enter,
    some_predicate,
)
from inlay.testing.model import Row
from inlay.testing.stage import DAY_US, Simulation

# How far back somebody looks.
FAR = 4


def historians_cast(sim: Simulation, *, erasing: bool = True) -> None:
    """A crowd, and some of those who work on its history."""
    counts = crowd(sim)
    enter(sim, counts if erasing else {**counts, "erase": 0})
    for kind, act in {
        "tag": tagger,
        "branch": brancher,
        "restore": restorer,
        "alter": alterer,
    }.items():
        for number in range(sim.rng.randint(0, 2)):
            name = f"{kind}-{number}"
            sim.spawn(name, partial(act, sim, name))


def restoring_cast(sim: Simulation) -> None:
    """Older versions become the newest again and again, under those who work on rows they have read."""
    enter(sim, {"append": 3, "rows": 1, "tombstone": 1, "update": 4})
    for number in range(4):
        name = f"restore-{number}"
        sim.spawn(name, partial(restorer, sim, name, times=4, pause=4.0))


def _some_version(sim: Simulation) -> Ref:
    newest = sim.auditor.newest
    return Ref(kind="tag", version=sim.rng.randint(max(1, newest - FAR), newest))


def tagger(sim: Simulation, name: str) -> None:
    for n in range(ROUNDS):
        source, called = _some_version(sim), f"{name}.{n}"
        sim.attempt(name, None, lambda ctx, c=called, s=source: tag(ctx, c, s))  # type: ignore[misc]
        sim.scheduler.sleep(sim.rng.uniform(0, DAY_US * 5 / 1e6))
        if sim.rng.random() < 0.5:
            sim.attempt(name, None, lambda ctx, c=called: drop(ctx, c))  # type: ignore[misc]


def restorer(sim: Simulation, name: str, *, times: int = 2, pause: float = 60.0) -> None:
    """`pause`: the most seconds before each restore."""
    for _ in range(times):
        sim.scheduler.sleep(sim.rng.uniform(0, pause))
        source = _some_version(sim)
        sim.auditor.refs.restoring.add(source.version)
        sim.attempt(name, None, lambda ctx, s=source: restore(ctx, s))  # type: ignore[misc]


def brancher(sim: Simulation, name: str) -> None:
    """Begins a branch, works on it alone, and brings it back, or does not."""
    sim.attempt(name, None, lambda ctx: branch(ctx, name, _some_version(sim)))
    for n in range(2 * ROUNDS):
        _work(sim, name, f"{name}:{n}")
    end = sim.rng.choice([merge, merge, fast_forward, drop])

    def finish(ctx: Context) -> object:
        try:
            return end(ctx, name)
        except MergeConflict:
            return None  # allowed: it says so, and changes nothing

    sim.attempt(name, None, finish)


def _work(sim: Simulation, name: str, request: str) -> None:
    kind = sim.rng.choice(["append", "tombstone", "vector", "upsert", "compact", "rewrite"])
    # Rows that are on this branch alone: so a merge can be told by rows.
    rows: list[Row] = [(sim.rng.randrange(60), request, n) for n in range(2)]
    text, matches = some_predicate(sim)
    if kind in ("compact", "rewrite"):
        tidy = compact if kind == "compact" else rewrite
        sim.attempt(name, None, lambda ctx: tidy(replace(ctx, branch=name)))
        return
    intent = {
        "append": model.insert(rows),
        "upsert": model.upsert(rows[:1], lambda row: row[0]),
    }.get(kind, model.delete(matches))
    sim.model.intend(request, intent)
    act = partial(_perform, kind, name, rows, parse_predicate(text, COLUMNS))
    deliver(sim, name, request, act)


def _perform(
    kind: str, name: str, rows: list[Row], where: Predicate, ctx: Context, request: Request
) -> object:
    on_branch = replace(ctx, branch=name)
    if kind == "append":
        return append(on_branch, as_table(rows), request=request)
    if kind == "upsert":
        return upsert(on_branch, as_table(rows[:1]), request=request)
    return delete(on_branch, where, mode=kind, request=request)


def alterer(sim: Simulation, name: str) -> None:
    """Columns come, get other names, and go; those of the bank stay."""
    for n in range(ROUNDS):
        request, draw = f"{name}:{n}", sim.rng.random()
        sim.model.intend(request, lambda rows: rows)
        deliver(sim, name, request, partial(_alter, f"{name}_{n}", draw))
        sim.scheduler.sleep(sim.rng.uniform(0, 60))


def _alter(fresh: str, draw: float, ctx: Context, request: Request) -> object:
    base = load_pointer(ctx)
    schema = base.snapshot.schema
    extra = [n for n in schema.names if n not in COLUMNS.names]
    if extra and draw < 0.3:
        change = evolution_of(schema, rename={extra[0]: fresh})
    elif extra and draw < 0.6:
        change = evolution_of(schema, drop=extra[:1])
    elif draw < 0.8:
        change = evolution_of(schema, add={fresh: pa.int64()}, defaults={fresh: EXTRA_DEFAULT})
    else:
        change = evolution_of(schema, add={fresh: pa.string()})
    return alter(ctx, change, base=base, request=request)
