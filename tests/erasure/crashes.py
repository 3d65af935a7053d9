"""Erasures whose process dies, or loses an answer, at any request."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.simulator.faults import Fate, FaultyStore, Killed, Sent

from inlay.errors import RetryError

from .people import People


def process_on(people: People, store: object, seed: int) -> People:
    """Another process at work on the same table: its own store, randomness and memory."""
    ctx = replace(
        people.ctx,
        store=store,  # type: ignore[arg-type]
        random=random.Random(seed),
        cache=type(people.ctx.cache)(),
    )
    return replace(people, ctx=ctx)


def run_functions(process: People) -> None:
    """What the functions do, one after another; the delete message is delivered again each time."""
    process.erase()
    process.advance()
    for _ in range(4):
        process.collect()
        process.time.sleep(1000)


@dataclass(frozen=True, slots=True)
class Scene:
    """A table, what its functions do, which may be done again, and what must be true at the end."""

    prepared: Callable[[bool], People]  # the bucket's versioning
    script: Callable[[People], None]
    holds: Callable[[People], None]

    def requests(self, versioned: bool) -> int:
        numbers: list[int] = []

        def count(sent: Sent) -> Fate:
            numbers.append(sent.number)
            return Fate.DONE

        people = self.prepared(versioned)
        self.script(process_on(people, FaultyStore(people.store, count), 1))
        self.holds(people)
        return numbers[-1]

    def strike(
        self, versioned: bool, fates: tuple[Fate, ...], stride: int, *, first: int = 1
    ) -> None:
        """Each fate at every `stride`-th request, each in a table of its own."""
        for number in range(first, self.requests(versioned) + 1, stride):
            for fate in fates:
                people = self.prepared(versioned)
                struck = process_on(people, FaultyStore(people.store, strikes(number, fate)), 1)
                try:
                    self.script(struck)
                except (Killed, RetryError):
                    # The platform starts another process; the queue delivers its messages again.
                    self.script(process_on(people, people.store, 2))
                self.holds(people)


def strikes(number: int, fate: Fate) -> Callable[[Sent], Fate]:
    return lambda sent: fate if sent.number == number and fate in sent.possible else Fate.DONE
