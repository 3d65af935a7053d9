"""Exhaustive: for every operation, each of its requests fails, is lost, is doubled or is its last.

After each such run a new process takes the same request up again, and the table must hold exactly what
the operation done once makes of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from tests.simulator import model
from tests.simulator.cast import COLUMNS, as_table
from tests.simulator.fates import CALM
from tests.simulator.faults import Fate
from tests.simulator.model import Violation
from tests.simulator.stage import DAY_US, Simulation
from tests.tiers import in_short

from inlay.errors import ErrorKind, InlayError
from inlay.format.snapshot import Note, note_of
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import find_version, load_pointer
from inlay.ops.write.append import append
from inlay.ops.write.apply_changes import Rules, apply_changes
from inlay.ops.write.delete import delete, delete_keys
from inlay.ops.write.update import update
from inlay.ops.write.upsert import upsert
from inlay.parse import parse_assignments, parse_predicate
from inlay.plan.change import Request
from inlay.plan.change_records import COMMON

START = [(n, "ada" if n % 2 else None, 10 * n) for n in range(12)]
MORE = [(100 + n, "bob", n) for n in range(3)]
# Enough that what deletes them does not fit into the pointer.
MANY = [(1_000 + n, "cy", n) for n in range(300)]
WHY = Note("late rows", {"ticket": "OPS-7"})


# The same requests in another mode, or more of them: in the wide tier.
AGAIN = {
    "append with a message",
    "delete vector",
    "delete rewrite",
    "delete many keys",
    "delete many rows",
    "update vector",
    "update rewrite",
    "partial upsert",
    "compact",
}

CHANGE_STREAM = "a change stream"  # of many requests: a test of its own


@dataclass(frozen=True)
class Case:
    intent: object
    run: object
    more: tuple = ()  # rows of one more file that the table begins with
    note: Note | None = None


def where(text):
    return parse_predicate(text, COLUMNS)


# An update, an insert, a delete of a key that is there and of one that is not, and what comes too late.
CHANGES = pa.table(
    {
        "op": ["u", "c", "d", "d", "u", "d"],
        "id": pa.array([3, 300, 5, 400, 7, 8], pa.int64()),
        "owner": ["cy", "cy", None, None, "late", None],
        "balance": pa.array([1_000, 2, 1_000, 7, 1, 1], pa.int64()),
    }
)
RULES = Rules(order=("balance",), operations=COMMON)


def below_five(row):
    return row[0] < 5


CASES = {
    "append": Case(model.insert(MORE), lambda c, r: append(c, as_table(MORE), request=r)),
    "append with a message": Case(
        model.insert(MORE),
        lambda c, r: append(replace(c, note=WHY), as_table(MORE), request=r),
        note=WHY,
    ),
    **{
        f"delete {mode}": Case(
            model.delete(below_five),
            lambda c, r, m=mode: delete(c, where("id < 5"), mode=m, request=r),
        )
        for mode in ("tombstone", "vector", "surgery", "rewrite")
    },
    "delete keys": Case(
        model.delete(below_five),
        lambda c, r: delete_keys(
            c, as_table([(n, None, 0) for n in range(5)]).select(["id"]), request=r
        ),
    ),
    "delete many keys": Case(
        model.delete(lambda row: row[0] >= 1_000),
        lambda c, r: delete_keys(c, as_table(MANY).select(["id"]), request=r),
        more=MANY,
    ),
    "delete many rows": Case(
        model.delete(lambda row: row[0] >= 1_000),
        lambda c, r: delete(c, where("id >= 1000"), mode="vector", request=r),
        more=MANY,
    ),
    **{
        f"update {mode}": Case(
            model.update(below_five, lambda row: (row[0], row[1], row[2] - 7)),
            lambda c, r, m=mode: update(
                c,
                parse_assignments({"balance": "balance - 7"}, COLUMNS),
                where("id < 5"),
                mode=m,
                request=r,
            ),
        )
        for mode in ("tombstone", "vector", "rewrite")
    },
    "upsert": Case(
        model.upsert([(3, "cy", 1), (300, "cy", 2)], lambda row: row[0]),
        lambda c, r: upsert(c, as_table([(3, "cy", 1), (300, "cy", 2)]), request=r),
    ),
    "partial upsert": Case(
        model.partial_upsert([(3, "cy"), (300, "cy")], lambda row: row[0]),
        lambda c, r: upsert(
            c, as_table([(3, "cy", None), (300, "cy", None)]).select([0, 1]), request=r
        ),
    ),
    CHANGE_STREAM: Case(
        model.Replace(
            model.delete(lambda row: row[0] in (3, 5)),
            lambda rows: Counter([(3, "cy", 1_000), (300, "cy", 2)]),
        ),
        lambda c, r: apply_changes(c, CHANGES, RULES, request=r).outcome,
    ),
    "rewrite": Case(None, lambda c, r: rewrite(c)),
    "compact": Case(None, lambda c, r: compact(c)),
    "expire": Case(None, lambda c, r: expire(c, days=0, min_versions=1)),
    "collect garbage": Case(None, lambda c, r: collect_garbage(c)),
}


def prepared(more: list = ()) -> Simulation:
    """A table with two files (three with `more`), deletes of two kinds, history and garbage."""
    sim = Simulation(1, CALM, jumps=False)
    sim.start()
    ctx = sim.actor_context("prepare")
    for name, intent, run in (
        ("p1", model.insert(START[:6]), lambda r: append(ctx, as_table(START[:6]), request=r)),
        ("p2", model.insert(START[6:]), lambda r: append(ctx, as_table(START[6:]), request=r)),
        (
            "p3",
            model.delete(lambda r: r[0] == 4),
            lambda r: delete(ctx, where("id = 4"), request=r),
        ),
        (
            "p4",
            model.delete(lambda r: r[0] in (2, 9)),
            lambda r: delete(ctx, where("id IN (2, 9)"), mode="vector", request=r),
        ),
        ("p5", model.insert(more), lambda r: append(ctx, as_table(more), request=r)),
    ):
        if name == "p5" and not more:
            continue
        sim.model.intend(name, intent)
        run(Request.of(name, body=name))
    expire(ctx, days=0, min_versions=2)
    sim.scheduler.now_us += 30 * DAY_US
    return sim


def play(case: Case, planned: dict[tuple[str, int], Fate]) -> list[tuple[Fate, ...]]:
    """One run with the planned fate, then a second process until it is acknowledged. Returns the requests
    that were made: what each could meet."""
    sim = prepared(case.more)
    request = "the request"
    if case.intent is not None:
        sim.model.intend(request, case.intent)
    identity = Request.of(request, body=request)
    sim.world.planned = planned
    sim.world.counts.clear()
    sim.world.possible.clear()
    sim.spawn(
        "actor",
        lambda: sim.attempt(
            "actor",
            request if case.intent is not None else None,
            lambda ctx: case.run(ctx, identity),
        ),
    )
    sim.scheduler.run()
    count = sim.world.counts.get("actor", 0)
    made = [sim.world.possible["actor", number] for number in range(1, count + 1)]
    before = sim.model.rows_at[sim.auditor.newest]
    if case.intent is not None:
        assert sim.model.applied.get(request) == sim.model.acknowledged.get(request) is not None
    else:
        assert before == Counter(r for r in START if r[0] not in (2, 4, 9))
    sim.world.planned = {}
    if case.note is not None:
        assert said(sim) == {sim.model.applied[request]: case.note}
    sim.settle()
    return made


def said(sim: Simulation) -> dict[int, Note]:
    """What was said of each version that is there."""
    ctx = sim.auditor.ctx
    newest = load_pointer(ctx).snapshot
    before = (find_version(ctx, version) for version in range(1, newest.version))
    found = {each.version: note_of(each) for each in (*before, newest) if each is not None}
    return {version: note for version, note in found.items() if note != Note()}


def check(name, one_in=1, first=0):
    requests = enumerate(play(CASES[name], {}), start=1)
    fates = [(number, fate) for number, met in requests for fate in met if fate is not Fate.DONE]
    assert fates
    for number, fate in fates[first::one_in]:
        try:
            play(CASES[name], {("actor", number): fate})
        except (Violation, InlayError, AssertionError) as error:
            raise AssertionError(f"{name}: request {number} {fate.name}: {error}") from error


@pytest.mark.parametrize(
    "name", in_short([n for n in CASES if n != CHANGE_STREAM], CASES.keys() - AGAIN)
)
def test_whatever_becomes_of_any_request_the_operation_is_done_once(name):
    check(name)


@pytest.mark.parametrize("part", in_short(range(3), [0]))
def test_whatever_becomes_of_any_request_a_change_stream_is_applied_once(part):
    """Each meets some of its fates; the others in the wide tier."""
    check(CHANGE_STREAM, one_in=3, first=part)


def test_an_error_that_may_be_retried_says_so():
    """The simulation leans on it: an operation met by a fault raises RETRY or REBASE, nothing else."""
    sim = prepared()
    sim.world.planned = {("world", n): Fate.UNSENT for n in range(1, 60)}
    sim.world.counts.clear()
    with pytest.raises(InlayError) as caught:
        append(sim.actor_context("world"), as_table(MORE))
    assert caught.value.kind in (ErrorKind.RETRY, ErrorKind.REBASE)
    assert load_pointer(sim.auditor.ctx).snapshot.version == sim.auditor.newest
