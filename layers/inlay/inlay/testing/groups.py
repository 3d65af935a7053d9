"""Groups: processes whose threads share swaps (`ops.commit.group`), beside those that commit alone.

Threads are none of the simulator's: what a turn of them commits is given to `commit_all` by one actor.
How threads come together is tested with real ones (`tests/commit/test_group.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from inlay.errors import InlayError, Kind, OutcomeUnknown, StoreUnavailable
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.commit.group import commit_all
from inlay.ops.context import Context
from inlay.ops.data.data_files import write_data
from inlay.ops.metadata.load import load_pointer
from inlay.ops.write.append import append
from inlay.plan.change import AddFiles, Change, Request
from inlay.testing import cast, model
from inlay.testing.model import Row
from inlay.testing.stage import DAY_US, Simulation


def group_cast(sim: Simulation) -> None:
    acts = {
        "group-0": group_appender,
        "group-1": group_appender,
        "append": cast.appender,
        "tombstone": cast.tombstone_deleter,
        "compact": cast.kinds()["compact"][0],
    }
    for name, act in acts.items():
        sim.spawn(name, partial(act, sim, name))


def group_appender(sim: Simulation, name: str) -> None:
    """Several appends as one commit; now and then one of them is delivered to another process too."""
    for n in range(cast.ROUNDS):
        rows = {f"{name}:{n}.{i}": cast.some_rows(sim, 3) for i in range(sim.rng.randint(2, 4))}
        for request, its_rows in rows.items():
            sim.model.intend(request, model.insert(its_rows))
        sent_us = sim.scheduler.now_us
        requests = {r: Request.of(r, body=r, time_us=sent_us) for r in rows}
        if sim.rng.random() < 0.5:
            twin = sim.rng.choice(sorted(rows))
            deliver = partial(_append_alone, cast.as_table(rows[twin]), requests[twin])
            sim.spawn(f"{name}-twin", partial(sim.attempt, f"{name}-twin", twin, deliver))
        sim.attempt(name, None, partial(_append_together, sim, dict(rows), requests))


def _append_alone(table: object, request: Request, ctx: Context) -> Committed | Skipped:
    return append(ctx, table, request=request)


def _append_together(
    sim: Simulation, left: dict[str, list[Row]], requests: Mapping[str, Request], ctx: Context
) -> None:
    """Append those of `left`; whatever was answered is taken out, whatever was not is tried again."""
    if not left:
        return
    changes: dict[str, Change] = {}
    for name, rows in left.items():
        seen = load_pointer(ctx)
        changes[name] = Change(
            operation="append",
            uploaded_us=seen.date_us,
            request=requests[name],
            updates=(
                AddFiles(
                    tuple(write_data(ctx, seen.snapshot, cast.as_table(rows), time_us=seen.date_us))
                ),
            ),
        )
        # Who is first at a turn waits for it, now and then for longer than any grace.
        if sim.rng.random() < 0.1:
            sim.scheduler.sleep(sim.rng.uniform(0, 12 * DAY_US / 1e6))
    base = load_pointer(ctx)
    try:
        answers = commit_all(ctx, list(changes.values()), base=base)
    except OutcomeUnknown as error:
        raise StoreUnavailable("delivered again, as its requests have ids") from error
    for name, answer in zip(changes, answers, strict=True):
        if isinstance(answer, Committed | Skipped):
            if isinstance(answer, Committed):
                sim.model.acknowledge(name, answer.loaded.snapshot.version)
            elif answer.version is not None:
                sim.model.acknowledge(name, answer.version)
            del left[name]
    for answer in answers:
        if isinstance(answer, InlayError) and answer.kind in (Kind.RETRY, Kind.REBASE):
            raise answer
