"""Change streams side by side, and beside maintenance, at any order of their requests."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.changes.streams import START_US, Record, Streams, expected
from tests.simulator.fates import Odds
from tests.simulator.interleavings import Interleaver
from tests.simulator.scheduler import Scheduler

from inlay.ops.collect_garbage import collect_garbage
from inlay.ops.maintain.compact import compact
from inlay.ops.maintain.rewrite import rewrite

KEPT: list[Record] = [("c", 1, "first", 1), ("c", 2, "second", 1), ("c", 3, "third", 1)]

PAIRS: dict[str, tuple[list[Record], list[Record]]] = {
    "a delete of an absent key beside an older row": (
        [("d", 9, None, 10)],
        [("u", 9, "late", 7)],
    ),
    "a delete beside an older update": ([("d", 1, None, 10)], [("u", 1, "late", 7)]),
    "a delete beside a newer update": ([("d", 1, None, 7)], [("u", 1, "new", 10)]),
    "two updates of one key": ([("u", 1, "old", 7)], [("u", 1, "new", 10)]),
    "two inserts of one key": ([("c", 9, "old", 7)], [("c", 9, "new", 10)]),
    "two deletes of one key and rows": (
        [("d", 1, None, 7), ("u", 2, "new", 9)],
        [("d", 1, None, 8), ("u", 2, "old", 8), ("c", 9, "own", 2)],
    ),
    "a delete and a row of one order": ([("d", 9, None, 7)], [("u", 9, "late", 7)]),
}


def played(streams_of, prefix) -> Interleaver:
    """One schedule."""
    scheduler = Interleaver(START_US, prefix)
    world = Streams(1, scheduler)
    world.apply("start", KEPT)
    for name, batch in zip(("first", "second"), streams_of, strict=True):
        world.spawn_stream(name, [batch])
    scheduler.run()
    rows = world.rows()
    assert dict(rows) == expected([KEPT, *streams_of]), "".join(map(str, scheduler.taken))
    assert len(rows) == len(dict(rows))
    return scheduler


@pytest.mark.parametrize("name", PAIRS)
def test_two_batches_at_every_order_with_two_switches(name: str) -> None:
    left: list[tuple[int, ...]] = [(), (1,)]
    count = 0
    while left:
        prefix = left.pop()
        taken = tuple(played(PAIRS[name], prefix).taken)
        count += 1
        for at in range(max(1, len(prefix)), len(taken)):
            longer = (*taken[:at], 1 - taken[at])
            if sum(a != b for a, b in itertools.pairwise(longer)) <= 2:
                left.append(longer)
    assert count > 20


ODDS = Odds(
    unsent=0.01, lost=0.02, twice=0.02, race=0.01, late=0.01, slow=0.02, killed=0.01, resent=0.01
)


def random_stream(rng: random.Random, keys: int) -> list[Record]:
    return [
        (rng.choice("uud"), key, f"v{number}", rng.choice([None, *range(8)]))
        for number, key in ((n, rng.randrange(keys)) for n in range(rng.randrange(4, 24)))
    ]


def without_ties(rng: random.Random, records: list[Record]) -> list[Record]:
    """Side by side nobody can say which of two equal orders comes first: each key has each order once."""
    used: set[tuple[int, int]] = set()
    found: list[Record] = []
    for op, key, value, _ in records:
        order = rng.randrange(100)
        if (key, order) not in used:
            used.add((key, order))
            found.append((op, key, value, order))
    return found


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 25))]
)
def test_streams_beside_maintenance_with_faults(seed: int) -> None:
    rng = random.Random(seed)
    records = without_ties(rng, random_stream(rng, 6) + random_stream(rng, 6))
    repeated = [*records, *rng.sample(records, len(records) // 2)]
    rng.shuffle(repeated)
    cuts = sorted(rng.sample(range(len(repeated) + 1), min(5, len(repeated))))
    batches = [repeated[a:b] for a, b in itertools.pairwise([0, *cuts, len(repeated)])]
    scheduler = Scheduler(rng, start_us=START_US)
    world = Streams(seed, scheduler, odds=ODDS)
    shares: list[list[list[Record]]] = [[], [], []]
    for batch in batches:
        rng.choice(shares).append(batch)
    for number, share in enumerate(shares):
        world.spawn_stream(f"stream{number}", share)
    acts = [compact, rewrite, lambda ctx: collect_garbage(ctx, grace_seconds=3600)]
    world.spawn("maintenance", *[rng.choice(acts) for _ in range(4)])
    scheduler.run()
    rows = world.rows()
    # Repetitions carry the same values, so any order of arrival gives the same rows.
    assert dict(rows) == expected(batches)
    assert len(rows) == len(dict(rows))
