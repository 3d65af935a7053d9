"""Pairs: the operations whose every meeting is looked at, on a table small enough for that.

Promise: each operation has work to do on the table it is made for, and says what it does to rows and
who may make it do its work again: nobody else may cost it more than metadata. `testing.interleavings`
runs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from tests.simulator import model
from tests.simulator.cast import COLUMNS, as_table, paying, reading_delete
from tests.simulator.fates import CALM
from tests.simulator.historians import unless_in_conflict
from tests.simulator.model import Intent, Row, SnapshotDelete
from tests.simulator.publishers import allow_publishing
from tests.simulator.stage import DAY_US, Simulation

from inlay.errors import StoreUnavailable
from inlay.format.properties import is_published
from inlay.format.snapshot import Ref
from inlay.ops.commit.driver import commit, expect_committed
from inlay.ops.context import Context
from inlay.ops.erase.request import advance_erasures, open_erasure
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import load_pointer
from inlay.ops.publish.publish import publish
from inlay.ops.refs import branch, merge, restore, tag
from inlay.ops.schema.alter import alter, evolution_of
from inlay.ops.schema.create import set_partitioning
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete, delete_keys
from inlay.ops.write.ingest import Retry, ingest
from inlay.ops.write.upsert import upsert
from inlay.parse import parse_predicate
from inlay.plan.change import Change, Request, SetProperties

START: list[Row] = [(n, "ada" if n % 2 else None, 10 * n) for n in range(8)]
SECRET: Row = (70, "secret", 7)


@dataclass(frozen=True, slots=True)
class Operation:
    """`intent` None: it has no request id, and changes no row. `redone_by`: who may make it write data
    objects again; after anybody else's commit it goes on with those it has uploaded."""

    run: Callable[[Context, Request], object]
    intent: Intent | SnapshotDelete | None = None
    redone_by: frozenset[str] = frozenset()


Make = Callable[[Simulation, int], Operation]
OPERATIONS: dict[str, Make] = {}
# Two of a kind that are the same request, delivered twice.
REDELIVERED = ("append", "delete rows", "update rewrite", "upsert")

# What takes files out of the table, and puts others there, or may bring back what was there before.
REPLACING = frozenset(
    {"delete surgery", "delete rewrite", "update rewrite", "rewrite", "compact", "erase steps"}
    | {"restore", "merge"}
)
UPDATES = frozenset(("update tombstone", "update vector", "update rewrite"))
# What gives files vectors: publishing settles deletes first.
VECTORS = frozenset(("delete rows", "publish", "transfer of rows"))
DELETES = VECTORS | {"delete range", "delete where", "delete keys", "erase"}
ARRIVALS = frozenset(("append", "ingest", "upsert", "partial upsert", "transfer"))
# What moves the boundary of garbage collection to now: uploads that began before are refused.
BOUNDARY = frozenset(("erase", "erase steps"))


def operation(make: Make) -> Make:
    OPERATIONS[make.__name__.strip("_").replace("_", " ")] = make
    return make


def prepared(*, serializable: bool = False) -> Simulation:
    """Two small files, one of them rewritten before, deletes of two kinds, history and garbage."""
    sim = Simulation(1, CALM, jumps=False)
    sim.serializable = serializable
    sim.start()
    ctx = sim.actor_context("prepare")

    def do(name: str, intent: Intent, run: Callable[[Request], object]) -> None:
        sim.model.intend(name, intent)
        run(Request.of(name, body=name))

    def remove(number: int, mode: str) -> None:
        where = parse_predicate(f"id = {number}", COLUMNS)
        do(
            f"gone-{number}",
            model.delete(lambda row: row[0] == number),
            lambda r: delete(ctx, where, mode=mode, request=r),
        )

    do("p1", model.insert(START[:4]), lambda r: append(ctx, as_table(START[:4]), request=r))
    do("p2", model.insert(START[4:]), lambda r: append(ctx, as_table(START[4:]), request=r))
    remove(4, "rewrite")
    remove(6, "tombstone")
    remove(1, "vector")
    expire(ctx, days=0, min_versions=2)
    sim.scheduler.now_us += 30 * DAY_US
    return sim


def _delete(sim: Simulation, number: int, mode: str, redone_by: frozenset[str]) -> Operation:
    """Of one file one row, of the other all that is left."""
    low, high = (3, 7) if number == 0 else (2, 5)
    where = parse_predicate(f"id >= {low} AND id <= {high}", COLUMNS)
    if sim.serializable and mode != "tombstone":
        redone_by |= ARRIVALS | DELETES
    matches: Callable[[Row], bool] = lambda row: low <= row[0] <= high  # noqa: E731
    return Operation(
        lambda ctx, r: delete(ctx, where, mode=mode, request=r),
        model.delete(matches) if mode == "tombstone" else reading_delete(sim, matches),
        redone_by,
    )


def _update(number: int, mode: str) -> Operation:
    high = 3 + number
    where = parse_predicate(f"id <= {high}", COLUMNS)
    intent, act = paying(lambda row: row[0] <= high, where, mode)
    return Operation(
        lambda ctx, r: act(ctx, request=r),
        intent,
        REPLACING | UPDATES | DELETES | ARRIVALS | BOUNDARY | {"alter"},
    )


@operation
def _append(sim: Simulation, number: int) -> Operation:
    rows: list[Row] = [(100 + number, "bob", 1), (2, "bob", number)]
    table = as_table(rows)
    return Operation(lambda ctx, r: append(ctx, table, request=r), model.insert(rows), BOUNDARY)


@operation
def _ingest(sim: Simulation, number: int) -> Operation:
    rows: list[Row] = [(200 + number, "cy", 1), (3, "cy", number)]
    source = sim.land(f"{number}.parquet", as_table(rows))
    sim.model.landing[source.request.token] = Counter(rows)

    def run(ctx: Context, _: Request) -> None:
        if any(isinstance(o, Retry) for o in ingest(ctx, [source]).outcomes):
            raise StoreUnavailable("an event is left")

    return Operation(run, redone_by=BOUNDARY)


@operation
def _delete_range(sim: Simulation, number: int) -> Operation:
    return _delete(sim, number, "tombstone", frozenset())


@operation
def _delete_where(sim: Simulation, number: int) -> Operation:
    where = parse_predicate("owner IS NULL AND balance >= 20", COLUMNS)
    return Operation(
        lambda ctx, r: delete(ctx, where, mode="tombstone", request=r),
        model.delete(lambda row: row[1] is None and row[2] >= 20),
    )


@operation
def _delete_keys(sim: Simulation, number: int) -> Operation:
    gone = {0, 5, *range(1_000 + number, 1_060 + number)}  # too many for a list in the pointer
    table = pa.table({"id": pa.array(sorted(gone), pa.int64())})
    return Operation(
        lambda ctx, r: delete_keys(ctx, table, request=r),
        model.delete(lambda row: row[0] in gone),
        BOUNDARY,
    )


@operation
def _delete_rows(sim: Simulation, number: int) -> Operation:
    return _delete(sim, number, "vector", REPLACING | UPDATES)


@operation
def _delete_surgery(sim: Simulation, number: int) -> Operation:
    return _delete(sim, number, "surgery", REPLACING | UPDATES | BOUNDARY | VECTORS)


@operation
def _delete_rewrite(sim: Simulation, number: int) -> Operation:
    return _delete(sim, number, "rewrite", REPLACING | UPDATES | BOUNDARY | VECTORS)


@operation
def _update_tombstone(sim: Simulation, number: int) -> Operation:
    return _update(number, "tombstone")


@operation
def _update_vector(sim: Simulation, number: int) -> Operation:
    return _update(number, "vector")


@operation
def _update_rewrite(sim: Simulation, number: int) -> Operation:
    return _update(number, "rewrite")


@operation
def _upsert(sim: Simulation, number: int) -> Operation:
    rows: list[Row] = [(3, "cy", number), (300 + number, "cy", 2)]
    table = as_table(rows)
    return Operation(
        lambda ctx, r: upsert(ctx, table, request=r),
        model.upsert(rows, lambda row: row[0]),
        BOUNDARY,
    )


@operation
def _partial_upsert(sim: Simulation, number: int) -> Operation:
    """The rows keep their balance, whatever becomes of it meanwhile."""
    rows: list[Row] = [(3, f"cy-{number}"), (300 + number, "cy")]
    table = as_table([(*row, None) for row in rows]).select([0, 1])
    return Operation(
        lambda ctx, r: upsert(ctx, table, request=r),
        model.partial_upsert(rows, lambda row: row[0]),
        REPLACING | UPDATES | DELETES | ARRIVALS | BOUNDARY | {"alter"},
    )


@operation
def _rewrite(sim: Simulation, number: int) -> Operation:
    return Operation(lambda ctx, r: rewrite(ctx), redone_by=frozenset(OPERATIONS))


@operation
def _compact(sim: Simulation, number: int) -> Operation:
    return Operation(lambda ctx, r: compact(ctx), redone_by=frozenset(OPERATIONS))


@operation
def _publish(sim: Simulation, number: int) -> Operation:
    def run(ctx: Context, request: Request) -> None:
        if not is_published(load_pointer(ctx).snapshot.properties):
            allow_publishing(ctx)
        publish(ctx)

    return Operation(run, redone_by=frozenset(OPERATIONS))


@operation
def _expire(sim: Simulation, number: int) -> Operation:
    return Operation(lambda ctx, r: expire(ctx, days=0, min_versions=1))


@operation
def _collect_garbage(sim: Simulation, number: int) -> Operation:
    return Operation(lambda ctx, r: sim.collect(ctx))


@operation
def _erase(sim: Simulation, number: int) -> Operation:
    where = parse_predicate("owner = 'ada' AND id > 3", COLUMNS)
    matches: Callable[[Row], bool] = lambda row: row[1] == "ada" and row[0] > 3  # noqa: E731
    sim.model.erasing[f"erase {number + 1}"] = matches  # the name of its request
    return Operation(lambda ctx, r: open_erasure(ctx, where, request=r), model.delete(matches))


@operation
def _erase_steps(sim: Simulation, number: int) -> Operation:
    """What follows the opening: rewrite what holds the rows, end old versions, collect."""
    if "secret" not in sim.model.intents:
        ctx = sim.actor_context("opener")
        sim.model.intend("secret", model.insert([SECRET]))
        append(ctx, as_table([SECRET]), request=Request.of("secret", body="secret"))
        sim.model.erasing["forget"] = lambda row: row[1] == "secret"
        sim.model.intend("forget", model.delete(sim.model.erasing["forget"]))
        where = parse_predicate("owner = 'secret'", COLUMNS)
        open_erasure(ctx, where, request=Request.of("forget", body="forget"))

    def run(ctx: Context, _: Request) -> None:
        advance_erasures(ctx)
        sim.collect(ctx)

    return Operation(run, redone_by=frozenset(OPERATIONS))


@operation
def _set_properties(sim: Simulation, number: int) -> Operation:
    update = SetProperties({"compact.small_file_bytes": str(1_000_000 + number)})
    change = Change(operation="set_properties", updates=(update,))
    return Operation(lambda ctx, r: expect_committed(ctx, commit(ctx, change)))


@operation
def _alter(sim: Simulation, number: int) -> Operation:
    def run(ctx: Context, request: Request) -> object:
        base = load_pointer(ctx)
        evolution = evolution_of(base.snapshot.schema, add={f"note_{number}": pa.string()})
        return alter(ctx, evolution, base=base, request=request)

    return Operation(run, lambda rows: rows)


@operation
def _tag(sim: Simulation, number: int) -> Operation:
    source = Ref(kind="tag", version=sim.auditor.newest)
    return Operation(lambda ctx, r: tag(ctx, f"release-{number}", source))


@operation
def _restore(sim: Simulation, number: int) -> Operation:
    """Of the version before the newest, which has a row less."""
    rows: list[Row] = [(50, "bob", 5)]
    if "newest" not in sim.model.intents:
        sim.auditor.refs.restoring.add(sim.auditor.newest)
        sim.model.intend("newest", model.insert(rows))
        ctx = sim.actor_context("newest")
        append(ctx, as_table(rows), request=Request.of("newest", body="newest"))
    source = Ref(kind="tag", version=max(sim.auditor.refs.restoring))
    return Operation(lambda ctx, r: restore(ctx, source))


@operation
def _merge(sim: Simulation, number: int) -> Operation:
    """Of a branch that has a row more, and a row of a file that both have less."""
    rows: list[Row] = [(60, "trial", 6)]
    if "tried" not in sim.model.intents:
        ctx = sim.actor_context("brancher")
        branch(ctx, "trial", Ref(kind="tag", version=sim.auditor.newest))
        trial = replace(ctx, branch="trial")
        sim.model.intend("tried", model.insert(rows))
        append(trial, as_table(rows), request=Request.of("tried", body="tried"))
        sim.model.intend("tidied", model.delete(lambda row: row[0] == 2))
        where = parse_predicate("id = 2", COLUMNS)
        delete(trial, where, mode="tombstone", request=Request.of("tidied", body="tidied"))

    end = partial(unless_in_conflict, merge, "trial")
    return Operation(lambda ctx, r: end(ctx), redone_by=frozenset(OPERATIONS))


@operation
def _set_partitioning(sim: Simulation, number: int) -> Operation:
    texts = ("owner",) if number == 0 else ("bucket(3, id)",)
    return Operation(
        lambda ctx, r: set_partitioning(ctx, texts, request=r),
        lambda rows: rows,
    )
