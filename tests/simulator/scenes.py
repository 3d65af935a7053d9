"""Scenes: who meets whom, where a rule of the protocol is needed.

Promise: each brings its actors, and the fates of their requests, to where one kind of mistake shows in
a few short schedules; a crowd would come there once in hundreds. Without a mistake every schedule of a
scene holds every promise.

Groups are processes whose threads share swaps (`ops.commit.group`), beside those that commit alone.

The simulator has no threads of one process: what a group commits is given to `commit_all` by one actor.
How threads come together is tested with real ones (`tests/commit/test_group.py`).

Replacers are people who remove the table and create another one at its place while everybody works.
Promise: nothing that was meant for one table changes another, each request that was acknowledged is in the
one table that it was sent to, and each version of either is what the model says. Half of the work has a
handle: a request is of the table that was there when it was first sent. The rest (rounds of maintenance,
landed objects) begins on what it finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tests.simulator import cast, model
from tests.simulator.cast import (
    COLUMNS,
    OWNERS,
    ROUNDS,
    Act,
    as_table,
    deliver,
    deliver_events,
    deliver_rows,
    enter,
    full_cast,
    paying,
    reading_delete,
    some_rows,
    tidier,
)
from tests.simulator.engines import engine, engines_cast
from tests.simulator.fates import DAY_SECONDS, Odds
from tests.simulator.historians import (
    alterer,
    partitioner,
    restorer,
    tagger,
    unless_in_conflict,
    work_on_branch,
)
from tests.simulator.model import Row
from tests.simulator.operators import expect_operator, mend, operators_cast, undoer
from tests.simulator.publishers import iceberg_reader, published, show
from tests.simulator.stage import BUCKET, DAY_US, LIFE_SECONDS, ROOT, SCHEMA, Simulation

from inlay.errors import ErrorKind, InlayError, OutcomeUnknown, StoreUnavailable
from inlay.format.snapshot import Ref
from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.commit.driver import Committed, Skipped
from inlay.ops.commit.group import commit_all
from inlay.ops.context import Context
from inlay.ops.data import write_data
from inlay.ops.erase.request import advance_erasures
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.expire import expire
from inlay.ops.maintain.rewrite import rewrite
from inlay.ops.metadata.load import load_pointer
from inlay.ops.publish.publish import publish
from inlay.ops.refs import branch, fast_forward, merge, tag
from inlay.ops.schema.create import create
from inlay.ops.write.append import append
from inlay.ops.write.delete import delete
from inlay.parse import parse_predicate
from inlay.plan.change import AddFiles, Change, Request
from inlay.storage.memory import MemoryStore


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
            alone = partial(append, data=cast.as_table(rows[twin]), request=requests[twin])
            sim.spawn(f"{name}-twin", partial(sim.attempt, f"{name}-twin", twin, alone))
        sim.attempt(name, None, partial(_append_together, sim, dict(rows), requests))


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
        if isinstance(answer, InlayError) and answer.kind.is_retried:
            raise answer


# Tables that come one after the other in a schedule.
TABLES = 4


def _begin_replacing(sim: Simulation) -> None:
    """Before anybody works."""
    expect_operator(sim, "replacer")
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


Cast = Callable[[Simulation], None]


@dataclass(frozen=True, slots=True)
class Scene:
    """`cast` None: that of any schedule."""

    cast: Cast | None = None
    odds: Odds = field(default_factory=Odds)
    # How far the store's LastModified is behind its Date.
    behind_seconds: float = 0.0


def of(counts: Mapping[str, int], **acts: Act) -> Cast:
    """Some of the kinds that a crowd has, and others, by name, one of each."""

    def cast(sim: Simulation) -> None:
        enter(sim, counts)
        for name, act in acts.items():
            sim.spawn(name, partial(act, sim, name))

    return cast


HASTY_REWRITER = tidier(rewrite, times=8, pause=1)
HASTY_COMPACTOR = tidier(compact, times=8, pause=1)

CROWD = Scene(full_cast)
OPERATED = Scene(operators_cast, Odds(slow=0.1, lost=0.05))
# The same where clients have to send most of what they create again.
RESENT = Scene(operators_cast, Odds(slow=0.1, lost=0.05, resent=0.3))


def _replaced(counts: Mapping[str, int], **acts: Act) -> Cast:
    def cast(sim: Simulation) -> None:
        _begin_replacing(sim)
        of(counts, **acts)(sim)

    return cast


# Another table is created at the place of the first, while writers, maintenance and branches work.
REPLACED = Scene(
    _replaced(
        {
            "append": 2,
            "unnamed": 2,
            "ingest": 1,
            "tombstone": 1,
            "keys": 1,
            "upsert": 1,
            "compact": 1,
        }
        | {"erase": 1, "collect": 1},
    ),
    Odds(slow=0.1, late=0, ghost=0),
)

# Nothing but the look after the swap keeps their rows from coming twice, or from being lost.
UNNAMED = Scene(of({"unnamed": 5}), Odds(lost=0.2, twice=0.1, slow=0.25))


def _row_picker(
    sim: Simulation, name: str, modes: Sequence[str] = ("vector", "surgery", "rewrite")
) -> None:
    """Deletes a few rows at a time, so that there are always more."""
    for n in range(2 * ROUNDS):
        low = sim.rng.randrange(60)
        intent = reading_delete(sim, lambda r, low=low: low <= r[0] <= low + 3)  # type: ignore[misc]
        where = parse_predicate(f"id BETWEEN {low} AND {low + 3}", COLUMNS)
        act = partial(delete, condition=where, mode=sim.rng.choice(modes))
        deliver(sim, name, f"{name}:{n}", intent, act)


def _after_planting(**acts: Act) -> Cast:
    """These, when there is a file that all of them will want."""

    def plant(sim: Simulation, name: str) -> None:
        rows: list[Row] = [(n, sim.rng.choice(OWNERS), n) for n in range(60)]
        deliver_rows(sim, name, name, rows)
        for who, act in acts.items():
            sim.spawn(who, partial(act, sim, who))

    return of({}, plant=plant)


def _shown_to_others(sim: Simulation) -> None:
    """Deletes, rewrites and collections while the table is published, by two at a time, and read."""
    published(sim)
    enter(sim, {"append": 2, "rows": 1, "tombstone": 1, "rewrite": 1, "expire": 1, "collect": 2})
    show(sim)


def _published_in_haste(sim: Simulation) -> None:
    """Publishers who overtake one another, each commit soon after the last, and who look all the time."""
    published(sim)
    enter(sim, {"append": 3})
    for n in range(3):
        hasty = tidier(publish, times=6, pause=2)
        sim.spawn(f"publish-{n}", partial(hasty, sim, f"publish-{n}"))
        look = partial(iceberg_reader, sim, f"look-{n}", times=20, pause=2)
        sim.spawn(f"look-{n}", look)


# Publishers stall between their look and their swap, and days pass.
def _engines(sim: Simulation) -> None:
    """Three engines and who else writes, while requests are lost."""
    published(sim)
    enter(sim, {"append": 1, "rows": 1, "compact": 1})
    for n in range(3):
        sim.spawn(f"engine-{n}", partial(engine, sim, f"engine-{n}"))


ENGINES = Scene(_engines, Odds(lost=0.05, killed=0.01, slow=0.1))
PUBLISHED = Scene(_shown_to_others, Odds(slow=0.2))
ENGINES_IN_A_CROWD = Scene(engines_cast)
PUBLISHED_IN_HASTE = Scene(_published_in_haste, Odds(slow=0.4))


# Rows of a file that somebody else rewrites all the time.
ROWS = Scene(
    _after_planting(
        **{f"rows_{n}": _row_picker for n in range(3)},
        **{f"rewrite_{n}": HASTY_REWRITER for n in range(2)},
    )
)
# The same, by marks alone, which are carried over to what takes the file's place.
MARKS = Scene(
    _after_planting(
        **{f"rows_{n}": partial(_row_picker, modes=("vector",)) for n in range(4)},
        **{f"rewrite_{n}": HASTY_REWRITER for n in range(2)},
    )
)

# Deletes that land while files are packed.
TOMBSTONES = Scene(
    of({"append": 3, "tombstone": 3}, **{f"compact_{n}": HASTY_COMPACTOR for n in range(2)})
)


def _meeting(sim: Simulation, name: str) -> None:
    """A row comes while somebody updates what he has found of it."""
    for n in range(2 * ROUNDS):
        number = sim.rng.randrange(100, 1_000_000)
        rows: list[Row] = [(number, "cy", n)]
        came, changed = f"{name}:came-{n}", f"{name}:changed-{n}"
        sim.spawn(came, partial(deliver_rows, sim, came, came, rows))
        where = parse_predicate(f"id = {number}", COLUMNS)
        intent, act = paying(lambda r, at=number: r[0] == at, where, "vector")  # type: ignore[misc]
        deliver(sim, name, changed, intent, act)


# Rows that come, and are packed with others, while somebody updates what he has read.
ARRIVALS = Scene(
    of(
        {},
        **{f"meet_{n}": _meeting for n in range(3)},
        **{f"compact_{n}": HASTY_COMPACTOR for n in range(2)},
    ),
    Odds(slow=0.1),
)


def _files_of_an_owner(sim: Simulation, name: str) -> None:
    """Files whose bounds are within what others delete, except for a row whose owner is NULL."""
    for n in range(2 * ROUNDS):
        owner = sim.rng.choice(OWNERS[:3])
        rows: list[Row] = [(n, owner, 1), (n, None, 2), (n + 1, owner, 3)]
        deliver_rows(sim, name, f"{name}:{n}", rows)


NULLS = Scene(of({"tombstone": 3}, append_0=_files_of_an_owner, append_1=_files_of_an_owner))


# Processes that are suspended between two requests for longer than the grace.
def _daily_collector(sim: Simulation, name: str) -> None:
    tidier(sim.collect, times=20, pause=2 * DAY_SECONDS)(sim, name)


def _steady_collector(sim: Simulation, name: str) -> None:
    """Collects while others are suspended."""
    sim.world.spared.add(name)
    _daily_collector(sim, name)


_DAILY_EXPIRER = tidier(expire, times=10, pause=2 * DAY_SECONDS)
STALLED = Scene(
    of({"append": 3, "rows": 1}, collect_0=_steady_collector, collect_1=_steady_collector),
    Odds(stalled=0.03),
)
# An operator puts the pointer back by a collection, while writers are suspended that are too old for it.
UNDONE = Scene(
    of({"append": 4}, collect=_steady_collector, operator=undoer), Odds(stalled=0.06, killed=0)
)
STALLED_DELETES = Scene(
    of(
        {"append": 1, "tombstone": 2},
        expire=_DAILY_EXPIRER,
        **{f"collect_{n}": _daily_collector for n in range(4)},
    ),
    Odds(stalled=0.15),
)
STALLED_EXPIRY = Scene(
    of(
        {"append": 1, "rows": 2, "read": 2, "rewrite": 1},
        expire=_DAILY_EXPIRER,
        collect_0=_daily_collector,
        collect_1=_daily_collector,
    ),
    Odds(stalled=0.03),
)


def _hasty_collector(sim: Simulation, name: str) -> None:
    """Takes what is a few seconds old: longer than a request, shorter than what the clocks differ by."""
    collect = partial(collect_garbage, grace_seconds=5)
    tidier(collect, times=40, pause=10)(sim, name)


# The store's two clocks are nearly as far apart as they may be.
SKEWED = Scene(
    of({"append": 3}, collect_0=_hasty_collector, collect_1=_hasty_collector),
    Odds(slow=0.3),
    behind_seconds=50,
)


def _sweeping(sim: Simulation, name: str) -> None:
    """Erasures that wait for no reader (there is none), so that there is one sweep after the other."""
    sim.auditor.life_us = -1
    sweep = partial(collect_garbage, life_seconds=0, hmac_key=b"simulated")
    for _ in range(2 * ROUNDS):
        sim.attempt(name, None, advance_erasures)
        sim.attempt(name, None, sweep)
        sim.scheduler.sleep(sim.rng.uniform(0, 10))


SKEWED_ERASING = Scene(
    of({"erase": 2, "append": 6, "tombstone": 2}, sweep_0=_sweeping, sweep_1=_sweeping),
    Odds(slow=0.5),
    behind_seconds=50,
)
GROUPS = Scene(group_cast)
STALLED_GROUPS = Scene(
    of(
        {},
        group_0=group_appender,
        group_1=group_appender,
        collect_0=_steady_collector,
        collect_1=_steady_collector,
    ),
    Odds(stalled=0.03),
)

# An expiry that its writer cannot have seen for longer than the grace.
UNSEEN_EXPIRY = Scene(
    of(
        {"append": 1, "tombstone": 1},
        expire=tidier(partial(expire, days=0, min_versions=1), times=25, pause=2 * DAY_SECONDS),
        collect=_daily_collector,
    ),
    Odds(stalled=0.1),
)

ERASING = Scene(of({"erase": 2, "append": 1, "read": 2, "compact": 1}))


# Older versions become the newest again and again, under those who work on rows they have read.
RESTORING = Scene(
    of(
        {"append": 3, "rows": 1, "tombstone": 1, "update": 4},
        **{f"restore_{n}": partial(restorer, times=4, pause=4) for n in range(4)},
    )
)


TRUNK = "trunk"


def _shared_branch(sim: Simulation, name: str) -> None:
    """One branch, on which several work, and which others bring back while they do."""
    source = Ref(kind="tag", version=sim.auditor.newest)
    sim.attempt(name, None, lambda ctx: branch(ctx, TRUNK, source))
    acts = {f"{name}-{n}": _branch_worker for n in range(2)} | {f"{name}-merge": _merger}
    for who, act in acts.items():
        sim.spawn(who, partial(act, sim, who))


def _branch_worker(sim: Simulation, name: str) -> None:
    for n in range(2 * ROUNDS):
        work_on_branch(sim, TRUNK, f"{name}:{n}", ("append", "append", "tombstone", "upsert"))


def _merger(sim: Simulation, name: str) -> None:
    for _ in range(2 * ROUNDS):
        sim.scheduler.sleep(sim.rng.uniform(0, 3))
        end = sim.rng.choice((merge, merge, fast_forward))
        sim.attempt(name, None, partial(unless_in_conflict, end, TRUNK))


BRANCHING = Scene(of({"append": 1, "tombstone": 1}, branch=_shared_branch))
COLLECTED_BRANCHES = Scene(
    of({"append": 1, "expire": 1, "compact": 1}, branch=_shared_branch, collect=_steady_collector)
)


def _forwarder(sim: Simulation, name: str) -> None:
    """Branches of one append each, which main is to become at once."""
    for n in range(2 * ROUNDS):
        called = f"{name}.{n}"
        source = Ref(kind="tag", version=sim.auditor.newest)
        sim.attempt(name, None, lambda ctx, c=called, s=source: branch(ctx, c, s))  # type: ignore[misc]
        work_on_branch(sim, called, f"{name}:{n}", ("append",))
        sim.attempt(name, None, partial(unless_in_conflict, fast_forward, called))


FORWARDING = Scene(of({"append": 1, "upsert": 1}, **{f"forward_{n}": _forwarder for n in range(3)}))


def _antiquary(sim: Simulation, name: str) -> None:
    """Tags what is about to expire."""
    for n in range(2 * ROUNDS):
        oldest = Ref(kind="tag", version=sim.auditor.snapshots[sim.auditor.newest].oldest_version)
        called = f"{name}.{n}"
        sim.attempt(name, None, lambda ctx, c=called, s=oldest: tag(ctx, c, s))  # type: ignore[misc]
        sim.scheduler.sleep(sim.rng.uniform(0, 1))


EXPIRING = Scene(
    of(
        {"append": 2},
        tag_0=_antiquary,
        tag_1=_antiquary,
        expire=tidier(partial(expire, days=0, min_versions=1), times=10, pause=1),
    ),
    Odds(slow=0.1),
)
TAGGING = Scene(of({"append": 2, "rows": 1, "expire": 1, "collect": 2}, tag_0=tagger, tag_1=tagger))
ERASING_REFS = Scene(of({"erase": 2, "append": 1}, tag_0=tagger, branch=_shared_branch))


def _sweeper(sim: Simulation, name: str) -> None:
    """Takes erasures on, while somebody tags what there is."""
    for n in range(2 * ROUNDS):
        sim.attempt(name, None, advance_erasures)
        for number in range(2):
            called = f"{name}.{n}.{number}"
            source = Ref(kind="tag", version=sim.auditor.newest)
            tagging = partial(tag, name=called, source=source)
            sim.spawn(called, partial(sim.attempt, called, None, tagging))
        sim.attempt(name, None, sim.collect)
        sim.scheduler.sleep(sim.rng.uniform(0, LIFE_SECONDS))


ERASING_TAGGED = Scene(of({"erase": 2}, sweep_0=_sweeper, sweep_1=_sweeper))
ERASING_RESTORED = Scene(
    of(
        {"erase": 3, "append": 1},
        **{f"restore_{n}": partial(restorer, times=6, pause=15) for n in range(3)},
    )
)


ALTERING = Scene(
    of({"append": 1, "update": 1}, **{f"alter_{n}": partial(alterer, pause=1) for n in range(4)})
)
PARTITIONING = Scene(
    of({"append": 1}, **{f"partition_{n}": partial(partitioner, pause=1) for n in range(3)})
)


def _overwriter(sim: Simulation, name: str) -> None:
    """What has landed is overwritten, while events of both contents are delivered."""
    for n in range(2 * ROUNDS):
        for _ in range(2):
            rows = some_rows(sim, 3)
            source = sim.land(f"{name}-{n}.parquet", as_table(rows))
            sim.model.landing[source.request.token] = Counter(rows)
            event = f"{name}-{n}-event"
            sim.spawn(event, partial(deliver_events, sim, event, [source]))
            sim.scheduler.sleep(sim.rng.uniform(0, 0.5))


OVERWRITTEN = Scene(of({}, land_0=_overwriter, land_1=_overwriter))
SERIALIZABLE = Scene(
    of({"append": 4}, **{f"rows_{n}": _row_picker for n in range(3)}), Odds(slow=0.1)
)
