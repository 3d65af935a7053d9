"""Contention by arithmetic: what the backoff of commits does to rate and waiting, on no machine at all.

    python -m tests.measured.backoff

It is for choosing the rules of waiting, with more writers than a machine has cores for. What they cost, CPU
included, is measured by `contention.py`; where the two differ, that is right.

Writers, requests and one server are events on a clock of their own, so that forty writers need neither
forty processes nor a quiet machine. A request is on its way for about 10 ms, waits for the server, is
served, and is 10 ms on its way back. An appending writer makes the round trips of a warm append (PUT data
and PUT archive at once, PUT pointer). Where a racer's archive is there, or the swap is lost, it waits by
`ops.commit.driver.back_off`, reads the pointer and tries again; for some seconds after it has met another,
and after some appends in a row without a read, it reads the pointer before an append. The bare loop makes
GET, PUT, PUT, at once again. "Worst" counts who is still waiting at the end; "requests" is those of a
commit.

A writer of transactions over two tables, one after another without a pause, makes the round trips of two
uploads (with the archives), of preparing and of deciding; meanwhile nobody can swap. What an appending
writer on one of the two gets beside it is shown for the rules as they are; without their wait; and as if
transactions knew nothing of others.

At last a server as S3 is: a swap of a key takes 1/15 s, during which it refuses every other (409), whatever
the ETag. An append then sends the same swap again at once, a few times (`ops.commit.register`).
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from inlay.ops.commit import driver
from inlay.ops.commit.register import RACED_SWAPS

LATENCY = 0.02
SECONDS = 40.0
SEEDS = (1, 2, 3)
ROUNDS = range(16)
WRITERS = (1, 4, 8, 16, 40)
# (seconds a server works on one request, seconds between two swaps): none; about as long as the embedded
# server takes; and as many swaps as S3 admits.
SERVERS = ((0.0, 0.0), (0.0015, 0.0), (0.0, 1 / 15))


@dataclass(slots=True)
class World:
    """`version` is that of the pointer; `undecided`: it is prepared for a transaction."""

    rng: random.Random
    service: float
    interval: float
    swapped_at: float = -1.0
    now: float = 0.0
    version: int = 0
    undecided: bool = False
    archived: set[int] = field(default_factory=set)
    free_at: float = 0.0
    took: list[float] = field(default_factory=list)
    tries: int = 0
    requests: int = 0
    began: dict[int, float] = field(default_factory=dict)
    appends: int = 0
    appended: float = 0.0  # seconds that the slowest took

    @property
    def is_swapping(self) -> bool:
        return self.now - self.swapped_at < self.interval

    def on_its_way(self) -> float:
        return LATENCY / 2 * self.rng.uniform(0.8, 1.4)

    def monotonic(self) -> float:
        return self.now


# A writer yields "sent" (and goes on when it is served), "served" (and goes on when it has the answer), or
# seconds to wait.
Writer = Iterator[str | float]


def swap(world: World, base: int) -> bool:
    if world.is_swapping or world.version != base or world.undecided:
        return False
    world.version += 1
    world.swapped_at = world.now
    return True


def read(world: World) -> Generator[str | float, None, int]:
    """The pointer's version, once no transaction is open on it."""
    while True:
        yield "sent"
        version, undecided = world.version, world.undecided
        yield "served"
        if not undecided:
            return version
        yield world.rng.uniform(0, driver.SETTLE_SECONDS)


def read_after_wait(world: World, me: int, attempt: int) -> Generator[str | float, None, int]:
    yield waiting(world, attempt, world.began[me])
    return (yield from read(world))


def archive(world: World, base: int) -> Generator[str | float, None, bool]:
    """Whether the base has been archived before."""
    yield "sent"
    is_there = base in world.archived
    world.archived.add(base)
    yield "served"
    return is_there


def transacting(world: World, me: int, *, reads: bool = True, waits: bool = True) -> Writer:
    base = yield from read(world)
    raced_at, unread = -driver.CONTENDED_SECONDS, 0
    while True:
        world.began[me] = world.now
        if reads and (
            world.now - raced_at < driver.CONTENDED_SECONDS or unread >= driver.MAX_UNREAD
        ):
            if waits and unread >= driver.MAX_UNREAD:
                yield world.rng.uniform(0, driver.SETTLE_SECONDS)
            current = yield from read(world)
            raced_at, unread = world.now if current != base else raced_at, 0
            base = current
        for attempt in itertools.count(1):
            world.tries += 1
            is_there = yield from archive(world, base)
            if attempt == 1:  # the rows of the other table
                yield from ("sent", "served")
            if is_there:
                current = yield from read_after_wait(world, me, attempt)
                if current != base:
                    base = current
                    continue
            yield "sent"
            won = swap(world, base)
            world.undecided = world.undecided or won
            base += won
            yield "served"
            if won:
                yield "sent"
                world.undecided = False
                yield "served"
                break
            base = yield from read_after_wait(world, me, attempt)
        if attempt > 1:
            raced_at, unread = world.now, 0
        else:
            unread += 1
        world.took.append(world.now - world.began[me])


def bare(world: World, me: int) -> Writer:
    while True:
        world.began[me] = world.now
        won = False
        while not won:
            world.tries += 1
            yield "sent"
            base = world.version
            yield from ("served", "sent", "served", "sent")
            won = swap(world, base)
            yield "served"
        world.took.append(world.now - world.began[me])


def appending(world: World, me: int) -> Writer:
    base = yield from read(world)
    raced_at, unread, ended = -driver.CONTENDED_SECONDS, 0, -driver.CONTENDED_SECONDS
    while True:
        world.began[me] = world.now
        if world.now - raced_at < driver.CONTENDED_SECONDS or unread >= driver.MAX_UNREAD:
            current = yield from read(world)
            has_met, base = current != base, current
            raced_at, unread = world.now if has_met else raced_at, 0
        for attempt in itertools.count(1):
            world.tries += 1
            world.requests += attempt == 1  # the data, beside the archive
            is_there = yield from archive(world, base)
            if is_there:
                current = yield from read_after_wait(world, me, attempt)
                if current != base:
                    base = current
                    continue
                yield from (
                    "sent",
                    "served",
                    "sent",
                    "served",
                )  # this archive, and the one after it
            lost = base + 1
            for tried in itertools.count():  # again, as long as the pointer stays the same
                for _ in range(1 + RACED_SWAPS):
                    yield "sent"
                    raced = world.is_swapping
                    won = swap(world, base)
                    base += won
                    yield "served"
                    if won or not raced:
                        break
                if won:
                    break
                current = yield from read_after_wait(world, me, attempt + tried)
                if current != base:
                    base = current
                    break
                yield waiting(world, attempt + tried, world.began[me])
            if won:
                break
            if base > lost:  # the archive of the lost version, and the pointer again
                world.requests += 1
                base = yield from read(world)
        if attempt > 1:
            raced_at, unread = world.now, 0
        else:
            unread = unread + 1 if world.now - ended < driver.CONTENDED_SECONDS else 0
        ended = world.now
        world.took.append(world.now - world.began[me])
        world.appends += 1
        world.appended = max(world.appended, world.took[-1])


def waiting(world: World, attempt: int, since: float) -> float:
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=world.monotonic, sleep=slept.append)
    ctx: Any = SimpleNamespace(clock=clock, random=world.rng, uri="")
    driver.back_off(ctx, attempt, since)
    return slept[0]


def run(
    kind: Any, writers: int, server: tuple[float, float], seed: int, *, beside: Any = None
) -> World:
    world = World(random.Random(seed), *server)
    events: list[tuple[float, int, int, str]] = []
    order = itertools.count()

    def at(time: float, writer: int, what: str) -> None:
        heapq.heappush(events, (time, next(order), writer, what))

    going = [kind(world, n) for n in range(writers)]
    if beside is not None:
        going.append(beside(world, writers))
    for n in range(len(going)):
        at(world.rng.uniform(0, 0.05), n, "go on")
    while events[0][0] < SECONDS:
        time, _, n, what = heapq.heappop(events)
        if what == "arrives":
            world.free_at = max(time, world.free_at) + world.service
            at(world.free_at, n, "go on")
            continue
        world.now = time
        step = next(going[n])
        if step == "sent":
            world.requests += 1
            at(time + world.on_its_way(), n, "arrives")
        elif step == "served":
            at(time + world.on_its_way(), n, "go on")
        else:
            at(time + step, n, "go on")
    return world


def main() -> None:
    print(
        f"{'writers':<32}{'commits/s':>10}{'median':>8}{'p99':>8}{'worst':>8}{'tries':>7}"
        f"{'requests':>10}{'ratio':>7}"
    )
    for server, writers in itertools.product(SERVERS, WRITERS):
        rates: dict[str, float] = {}
        for kind in (bare, appending):
            worlds = [run(kind, writers, server, seed) for seed in SEEDS]
            took = sorted(t for w in worlds for t in w.took)
            waits = [SECONDS - began for w in worlds for began in w.began.values()]
            rates[kind.__name__] = rate = len(took) / SECONDS / len(worlds)
            way = "15 swaps a second" if server[1] else f"served in {server[0] * 1000:.1f} ms"
            what = f"{writers} {kind.__name__}, {way}"
            print(
                f"{what:<32}{rate:10.1f}{took[len(took) // 2]:8.2f}{took[int(0.99 * len(took))]:8.2f}"
                f"{max(took[-1], *waits):8.2f}{sum(w.tries for w in worlds) / len(took):7.1f}"
                f"{sum(w.requests for w in worlds) / len(took):10.1f}"
                f"{rate / rates['bare']:7.2f}"
            )
    show_beside_transactions()


def show_beside_transactions() -> None:
    print(
        f"\n{'beside writers of transactions':<40}{'alone/s':>9}{'/s':>7}{'appends/s':>11}{'worst':>8}"
    )
    rules = {
        "": transacting,
        ", no wait": partial(transacting, waits=False),
        ", knowing nothing of others": partial(transacting, reads=False),
    }
    for writers, (rule, kind) in itertools.product((1, 4), rules.items()):
        alone = [run(kind, writers, SERVERS[1], seed) for seed in ROUNDS]
        worlds = [run(kind, writers, SERVERS[1], seed, beside=appending) for seed in ROUNDS]
        worst = [max(w.appended, SECONDS - w.began[writers]) for w in worlds]
        per = SECONDS * len(ROUNDS)
        print(
            f"{f'{writers}{rule}':<40}{sum(len(w.took) for w in alone) / per:9.1f}"
            f"{sum(len(w.took) - w.appends for w in worlds) / per:7.1f}"
            f"{sum(w.appends for w in worlds) / per:11.1f}{max(worst):8.1f}"
        )


if __name__ == "__main__":
    main()
