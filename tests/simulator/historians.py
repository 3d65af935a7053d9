"""Historians: actors who tag, branch, merge, restore and change the schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa
from tests.simulator import model
from tests.simulator.cast import (
    COLUMNS,
    EXTRA_DEFAULT,
    ROUNDS,
    Requested,
    as_table,
    crowd,
    deliver,
    enter,
    some_predicate,
    upsert_whole,
)
from tests.simulator.model import Row, Violation
from tests.simulator.stage import DAY_US, Simulation

from inlay.errors import MergeConflict
from inlay.format.snapshot import Ref, Snapshot
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.context import Context
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.refs import branch, drop, fast_forward, merge, restore, tag
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.schema.create import set_partitioning
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parse import parse_predicate
from inlay.plan.change import Request

# Ways in which the bank may be partitioned.
PARTITIONINGS: tuple[tuple[str, ...], ...] = (
    (),
    ("owner",),
    ("bucket(3, id)",),
    ("truncate(20, id)", "owner"),
    ("bucket(2, owner)", "truncate(1, owner)"),
)
LOOK_LASTS_US = 60_000_000
# How far back somebody looks.
FAR = 4
# What is done on a branch; a vector is modelled as what nobody else's work on the branch can cross.
WORK = ("append", "tombstone", "vector", "upsert", "compact", "rewrite")


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
        work_on_branch(sim, name, f"{name}:{n}")
    end = sim.rng.choice([merge, merge, fast_forward, drop])
    sim.attempt(name, None, partial(unless_in_conflict, end, name))


def unless_in_conflict(end: Callable[[Context, str], object], branch: str, ctx: Context) -> object:
    """A conflict is allowed: it says so, and changes nothing."""
    with suppress(MergeConflict):
        return end(ctx, branch)
    return None


def work_on_branch(sim: Simulation, name: str, request: str, choice: Sequence[str] = WORK) -> None:
    kind = sim.rng.choice(choice)
    # Rows that are on this branch alone: so a merge can be recognised by rows.
    rows: list[Row] = [(sim.rng.randrange(60), request, n) for n in range(2)]
    text, matches = some_predicate(sim)
    if kind in ("compact", "rewrite"):
        tidy = compact if kind == "compact" else rewrite
        sim.attempt(name, None, lambda ctx: tidy(replace(ctx, branch=name)))
        return
    act: Requested
    if kind == "append":
        intent, act = model.insert(rows), partial(append, data=as_table(rows))
    elif kind == "upsert":
        intent = model.upsert(rows[:1], lambda row: row[0])
        act = partial(upsert_whole, table=as_table(rows[:1]))
    else:
        intent = model.delete(matches)
        act = partial(delete, condition=parse_predicate(text, COLUMNS), mode=kind)
    deliver(sim, name, request, intent, partial(_on_branch, act, name))


def _on_branch(act: Requested, name: str, ctx: Context, *, request: Request) -> object:
    return act(replace(ctx, branch=name), request=request)


def alterer(sim: Simulation, name: str, *, pause: float = 60.0) -> None:
    """Columns come, get other names, and go; those of the bank stay."""
    for n in range(ROUNDS):
        request, draw = f"{name}:{n}", sim.rng.random()
        act = partial(_alter, sim, f"{name}_{n}", draw)
        deliver(sim, name, request, lambda rows: rows, act)
        sim.scheduler.sleep(sim.rng.uniform(0, pause))


def _alter(sim: Simulation, fresh: str, draw: float, ctx: Context, *, request: Request) -> object:
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
    done = alter(ctx, change, base=base, request=request)
    _check_was_as_seen(sim, base, done, lambda snapshot: snapshot.schema_id)
    return done


def partitioner(sim: Simulation, name: str, *, pause: float = 3600.0) -> None:
    """What is written is cut into files in ever other ways."""
    for n in range(2 * ROUNDS):
        request = f"{name}:{n}"
        texts = sim.rng.choice(PARTITIONINGS)
        sim.model.intend(request, lambda rows: rows)
        identity = Request.of(request, body=request, time_us=sim.scheduler.now_us)
        sim.attempt(name, request, partial(_partition, sim, texts, identity))
        sim.scheduler.sleep(sim.rng.uniform(0, pause))


def _partition(sim: Simulation, texts: Sequence[str], request: Request, ctx: Context) -> object:
    base = load_pointer(ctx)
    done = set_partitioning(ctx, texts, base=base, request=request)
    _check_was_as_seen(sim, base, done, lambda snapshot: snapshot.spec_id)
    return done


def _check_was_as_seen(
    sim: Simulation, base: LoadedTable, done: Committed | Skipped, what: Callable[[Snapshot], int]
) -> None:
    """Who changes what he has looked at changes that, and nothing that came since. An old look is made
    again by the operation itself."""
    if not isinstance(done, Committed) or sim.scheduler.now_us > base.date_us + LOOK_LASTS_US:
        return
    version = done.loaded.snapshot.version
    if what(sim.auditor.snapshots[version - 1]) != what(base.snapshot):
        raise Violation(f"version {version} changes what had been changed since it was looked at")
