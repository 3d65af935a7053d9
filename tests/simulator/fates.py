"""Chance: which fate (`tests.simulator.faults`) a request of the simulation meets, and when.

Promise: every request is a point where another actor may go on, and the same seed gives each the same
fate. Beside the fates a request may be slow (others have many turns before it) or stalled (days pass
before it, because its process was suspended).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeVar

from tests.simulator.faults import Fate, FaultyStore, Request, Sent
from tests.simulator.scheduler import Scheduler

from inlay.storage.base import ObjectStore
from inlay.storage.wrapped import READS, Asked, WrappedStore

T = TypeVar("T")

DAY_SECONDS = 86_400
# Longer than the grace of garbage collection in a simulation, more often than not.
MAX_STALL_DAYS = 20
# A request that has not arrived by then never will: connections do not last for ever. What an erasure
# waits for (the longest life of a writer) is longer.
MAX_FLIGHT_US = 15 * 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class Odds:
    """Probability of what becomes of one request; the rest goes well."""

    unsent: float = 0.01
    lost: float = 0.02
    twice: float = 0.02
    race: float = 0.01
    late: float = 0.01
    slow: float = 0.02
    killed: float = 0.002
    resent: float = 0.01
    ghost: float = 0.01
    # Those who wait for nobody, such as an erasure for the life of a writer, cannot bear it.
    stalled: float = 0.0


CALM = Odds(0, 0, 0, 0, 0, 0, 0, 0, 0)
NAMES = tuple(field.name for field in fields(Odds))
_FATES = {
    "unsent": Fate.UNSENT,
    "lost": Fate.LOST,
    "twice": Fate.TWICE,
    "race": Fate.RACE,
    "late": Fate.LATE,
    "killed": Fate.KILLED_BEFORE,
    "resent": Fate.RESENT,
    "ghost": Fate.GHOST,
}


class _Watched(WrappedStore):
    """A store that reports each write that was done, also one that arrives late or twice."""

    def __init__(self, inner: ObjectStore, after_write: Callable[[str, str], None]) -> None:
        super().__init__(inner)
        self._after_write = after_write

    def at(self, bucket: str) -> _Watched:
        return _Watched(self.inner.at(bucket), self._after_write)

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        answer = send()
        if asked.verb not in READS:
            self._after_write(asked.verb, asked.key)
        return answer


@dataclass(slots=True)
class World:
    """What all stores of one simulation share: the schedule, the odds, requests still in flight."""

    scheduler: Scheduler
    rng: random.Random
    odds: Odds
    after_write: Callable[[str, str], None]
    in_flight: list[tuple[int, Request]] = field(default_factory=list)  # (when sent, request)
    requests: int = 0
    # For exhaustive runs: the fate of the n-th request of one actor, instead of chance.
    planned: dict[tuple[str, int], Fate] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    # What each of them could meet.
    possible: dict[tuple[str, int], tuple[Fate, ...]] = field(default_factory=dict)
    landing: bool = False  # what is applied was sent by somebody who has given it up
    # Actors whose requests meet no fate.
    spared: set[str] = field(default_factory=set)
    sending: list[Sent] = field(default_factory=list)  # whose senders wait for their turn

    def process(self, store: ObjectStore) -> FaultyStore:
        """The store as a process of this world sees it."""
        return FaultyStore(
            _Watched(store, self.after_write),
            self._fate_of,
            again=self._send_again,
            later=lambda request: self.in_flight.append((self.scheduler.now_us, request)),
        )

    def _fate_of(self, sent: Sent) -> Fate:
        """Chosen first, met after others had their turns."""
        drawn = self._draw(sent)
        self.sending.append(sent)
        try:
            self._wait_for_turn(sent, drawn)
        finally:
            self.sending.remove(sent)
        return drawn if isinstance(drawn, Fate) else Fate.DONE

    def _send_again(self, sent: Sent) -> None:
        self.sending.append(sent)
        try:
            self.scheduler.pause()
        finally:
            self.sending.remove(sent)

    def _wait_for_turn(self, sent: Sent, drawn: Fate | str) -> None:
        noted = (
            "" if drawn is Fate.DONE else f" ⟵ {drawn if isinstance(drawn, str) else drawn.name}"
        )
        self.scheduler.pause(f"{sent.verb} {sent.key}{noted}")
        if drawn == "slow":
            for _ in range(self.rng.randrange(3, 30)):
                self.scheduler.pause()
        if drawn == "stalled":
            self.scheduler.sleep(self.rng.uniform(0, MAX_STALL_DAYS * DAY_SECONDS))

    def _draw(self, sent: Sent) -> Fate | str:
        name = self.scheduler.actor_name
        count = self.counts[name] = self.counts.get(name, 0) + 1
        self.requests += 1
        self.possible[name, count] = sent.possible
        if self.planned or self.odds == CALM or name in self.spared:
            return self.planned.get((name, count), Fate.DONE)
        draw = self.rng.random()
        for drawn in NAMES:
            draw -= getattr(self.odds, drawn)
            if draw < 0:
                fate = _FATES.get(drawn)
                if fate is None:
                    return drawn
                # A read whose answer is lost is one that failed: chance has that already.
                fits = fate in sent.possible and not (fate is Fate.LOST and sent.is_read)
                return fate if fits else Fate.DONE
        return Fate.DONE

    def land_one(self) -> None:
        """A request that its sender gave up long ago arrives."""
        if self.in_flight:
            sent_us, request = self.in_flight.pop(self.rng.randrange(len(self.in_flight)))
            if self.scheduler.now_us - sent_us <= MAX_FLIGHT_US:
                self.landing = True
                request()
                self.landing = False
