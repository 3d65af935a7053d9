"""Fates: what can become of a request, for the simulator.

Promise: whatever the network, the SDK or the process may do to one request is one of these, and a store
wrapped in `FatedStore` applies a request zero, one or two times and answers as a real one would.

======= =======================================================================================
done    answered as usual
failed  never reached the store; the caller sees a timeout
lost    done, but the answer is lost; the caller sees a timeout
twice   done, the answer lost, sent again by the SDK; the caller sees the second answer
race    a conditional write answered 409, not done
late    the caller sees a timeout; the store does it some time later
slow    done after others have had many turns
killed  the caller's process dies before the request, or after it is done
stalled done, but days later: the caller's process was suspended before it
======= =======================================================================================
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from inlay.errors import StoreUnavailable
from inlay.storage.base import Refused
from inlay.testing.scheduler import Killed, Scheduler

DAY_SECONDS = 86_400
# Longer than the grace of garbage collection in a simulation, more often than not.
MAX_STALL_DAYS = 20

READS = ("get", "get_suffix", "head", "list", "list_prefixes", "list_uploads", "list_versions")
WRITES = (
    "put",
    "copy",
    "delete",
    "delete_versions",
    "create_multipart",
    "upload_part",
    "upload_part_copy",
    "complete_multipart",
    "abort_multipart",
)
# Answers a writer may send again without harm by the protocol's own rules; a late one is only possible
# where nothing in the answer is needed.
_LATE = ("put", "delete", "copy")
# A request that has not arrived by then never will: connections do not live for ever. What an erasure
# waits for (the longest life of a writer) is longer.
MAX_FLIGHT_US = 15 * 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class Odds:
    """Probability of each fate of one request; what is left is `done`."""

    failed: float = 0.01
    lost: float = 0.02
    twice: float = 0.02
    race: float = 0.01
    late: float = 0.01
    slow: float = 0.02
    killed: float = 0.002
    # Those who wait for nobody, such as an erasure for the life of a writer, cannot bear it.
    stalled: float = 0.0


CALM = Odds(0, 0, 0, 0, 0, 0, 0)
NAMES = tuple(field.name for field in fields(Odds))


@dataclass(slots=True)
class World:
    """What all stores of one simulation share: the schedule, the odds, requests still in flight."""

    scheduler: Scheduler
    rng: random.Random
    odds: Odds
    after_write: Callable[[str, tuple[Any, ...]], None]
    in_flight: list[tuple[int, Callable[[], None]]] = field(default_factory=list)  # (sent, request)
    requests: int = 0
    # For exhaustive runs: the fate of the n-th request of one actor, instead of chance.
    planned: dict[tuple[str, int], str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    # Which of them were conditional: only those can be refused in a race.
    conditional: set[tuple[str, int]] = field(default_factory=set)
    landing: bool = False  # what is applied was sent by somebody who has given it up
    # Actors whose requests meet no fate.
    spared: set[str] = field(default_factory=set)

    def fate_of(self, method: str, conditional: bool) -> str:
        name = self.scheduler.actor_name
        count = self.counts[name] = self.counts.get(name, 0) + 1
        self.requests += 1
        if conditional:
            self.conditional.add((name, count))
        if self.planned or self.odds == CALM or name in self.spared:
            return self.planned.get((name, count), "done")
        draw = self.rng.random()
        for fate in NAMES:
            draw -= getattr(self.odds, fate)
            if draw < 0:
                break
        else:
            return "done"
        writes = method in WRITES
        fits = {
            "lost": writes,
            "twice": method in ("put", "delete", "copy", "complete_multipart"),
            "race": conditional,
            "late": method in _LATE,
        }.get(fate, True)
        return fate if fits else "done"

    def land_one(self) -> None:
        """A request that its sender gave up long ago arrives."""
        if self.in_flight:
            sent_us, request = self.in_flight.pop(self.rng.randrange(len(self.in_flight)))
            if self.scheduler.now_us - sent_us <= MAX_FLIGHT_US:
                self.landing = True
                request()
                self.landing = False


class FatedStore:
    """A store whose requests are yield points and meet their fates. Reads and writes as the store it
    wraps; everything is applied to that store, never cached."""

    def __init__(self, inner: Any, world: World) -> None:
        self._inner = inner
        self._world = world
        self.scheme: str = inner.scheme
        self.bucket: str = inner.bucket

    def at(self, bucket: str) -> FatedStore:
        return FatedStore(self._inner.at(bucket), self._world)

    def __getattr__(self, name: str) -> Any:
        if name in READS or name in WRITES:
            return lambda *args, **kwargs: self._request(name, args, kwargs)
        raise AttributeError(name)

    def _request(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        world = self._world
        conditional = kwargs.get("condition") is not None
        fate = world.fate_of(method, conditional)
        world.scheduler.pause(f"{method} {_about(args)}{'' if fate == 'done' else ' ⟵ ' + fate}")
        if fate == "slow":
            for _ in range(world.rng.randrange(3, 30)):
                world.scheduler.pause()
        if fate == "stalled":
            world.scheduler.sleep(world.rng.uniform(0, MAX_STALL_DAYS * DAY_SECONDS))
        if fate in ("killed", "killed before"):
            raise Killed
        if fate == "failed":
            raise StoreUnavailable(f"simulated: {method} never arrived")
        if fate == "race":
            return Refused("race", world.scheduler.now_us)
        if fate == "late":
            sent_us = world.scheduler.now_us
            world.in_flight.append((sent_us, lambda: self._apply(method, args, kwargs)))
            raise StoreUnavailable(f"simulated: {method} is still on its way")
        answer = self._apply(method, args, kwargs)
        if fate == "twice":
            world.scheduler.pause()
            answer = self._apply(method, args, kwargs)
        if fate == "lost":
            raise StoreUnavailable(f"simulated: the answer to {method} was lost")
        if fate == "killed after":
            raise Killed
        return answer

    def _apply(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        answer = getattr(self._inner, method)(*args, **kwargs)
        if isinstance(answer, Iterator):
            answer = iter(list(answer))
        if method in WRITES:
            self._world.after_write(method, args)
        return answer


def _about(args: tuple[Any, ...]) -> str:
    first = args[0] if args else ""
    return first if isinstance(first, str) else type(first).__name__
