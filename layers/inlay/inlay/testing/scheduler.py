"""A scheduler for actors: real code, one step at a time, in an order that a seed decides.

Promise: exactly one actor runs at any moment, every store request is a point where another may go on,
and the same seed gives the same interleaving, the same times and the same faults. Nothing waits for
real time: when all actors sleep, the clock jumps.

An actor is an ordinary function on a thread of its own, handed the baton and handing it back; so the
operations run unchanged.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

# A schedule that takes more steps than this does not end: a livelock is a finding, not a wait.
MAX_STEPS = 200_000
# Real seconds an actor may take between two requests: beyond it, it holds a lock across a request.
STUCK_SECONDS = 60
# Simulated time of one request.
STEP_US = 40_000


class Killed(BaseException):
    """The process of this actor is gone. Not an `Exception`: nothing may handle it."""


class Stuck(Exception):
    """A schedule did not come to its end."""


@dataclass(slots=True)
class Actor:
    name: str
    run: Callable[[], None]
    baton: threading.Lock = field(default_factory=threading.Lock)
    wake_us: int = 0
    done: bool = False
    killed: bool = False
    error: BaseException | None = None
    thread: threading.Thread | None = None


class Scheduler:
    """Runs actors to their end. `now_us` is the time of the world they share."""

    def __init__(self, rng: random.Random, *, start_us: int) -> None:
        self.rng = rng
        self.now_us = start_us
        self.steps = 0
        self.trace: list[str] = []
        self.before_step: Callable[[], None] = lambda: None
        self._actors: list[Actor] = []
        self._main = threading.Lock()
        self._main.acquire()
        self._current: Actor | None = None
        self._stopping = False
        self._hung = False

    def spawn(self, name: str, run: Callable[[], None]) -> Actor:
        actor = Actor(name, run)
        actor.baton.acquire()
        actor.thread = threading.Thread(target=self._body, args=(actor,), name=name, daemon=True)
        self._actors.append(actor)
        actor.thread.start()
        return actor

    def run(self) -> None:
        """Until every actor is done. Raises the first error that is not an actor's own business."""
        try:
            while True:
                waiting = [a for a in self._actors if not a.done]
                if not waiting:
                    return
                if self.steps >= MAX_STEPS:
                    raise Stuck(f"{len(waiting)} actors still busy after {self.steps} steps")
                self.before_step()
                ready = [a for a in waiting if a.wake_us <= self.now_us]
                if not ready:
                    self.now_us = min(a.wake_us for a in waiting)
                    continue
                self._hand_over(self.rng.choice(ready))
        finally:
            if not self._hung:
                self._release_all()

    def pause(self, what: str = "") -> None:
        """Called by the running actor: others may go on here."""
        actor = self._current
        if actor is None or threading.current_thread() is not actor.thread:
            return  # the world itself (checks, set-up) is not scheduled
        self.steps += 1
        self.now_us += STEP_US
        if what:
            self.trace.append(f"{actor.name}: {what}")
        self._main.release()
        actor.baton.acquire()
        if self._stopping:
            raise Killed

    def sleep(self, seconds: float) -> None:
        actor = self._current
        if actor is None or threading.current_thread() is not actor.thread:
            return
        actor.wake_us = self.now_us + int(seconds * 1_000_000)
        self.pause()

    @property
    def actor_name(self) -> str:
        return self._current.name if self._current is not None else "world"

    def _hand_over(self, actor: Actor) -> None:
        self._current = actor
        actor.baton.release()
        if not self._main.acquire(timeout=STUCK_SECONDS):
            self._hung = True  # its thread, a daemon, cannot be ended
            raise Stuck(f"{actor.name} waits for something that only another actor can give")
        self._current = None
        if actor.done and actor.error is not None:
            raise actor.error

    def _body(self, actor: Actor) -> None:
        actor.baton.acquire()
        try:
            if not self._stopping:
                actor.run()
        except Killed:
            actor.killed = True
        except BaseException as error:
            actor.error = error
        actor.done = True
        self._main.release()

    def _release_all(self) -> None:
        self._stopping = True
        for actor in self._actors:
            while not actor.done:
                actor.baton.release()
                self._main.acquire()
        for actor in self._actors:
            if actor.thread is not None:
                actor.thread.join()


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    """A host's clock inside the simulation: durations only, and wrong by `skew` (a factor)."""

    scheduler: Scheduler
    skew: float = 1.0

    def monotonic(self) -> float:
        return self.scheduler.now_us / 1_000_000 * self.skew

    def sleep(self, seconds: float) -> None:
        self.scheduler.sleep(seconds)
