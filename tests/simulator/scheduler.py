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

from tests.simulator.faults import Killed

# A schedule that takes more steps than this does not end: a livelock is a finding, not a wait.
MAX_STEPS = 200_000
# Real seconds an actor may take between two requests: beyond it, it holds a lock across a request.
STUCK_SECONDS = 60
# Simulated time of one request.
STEP_US = 40_000


class Stuck(Exception):
    """A schedule did not come to its end."""


@dataclass(slots=True)
class Actor:
    name: str
    run: Callable[[], None]
    baton: threading.Lock = field(default_factory=threading.Lock)
    wake_us: int = 0
    killed: bool = False
    error: BaseException | None = None
    thread: threading.Thread | None = None


class Scheduler:
    """Runs actors to their end. `now_us` is the time of the world they share.

    The actor that pauses chooses the next one and hands over to it directly, or goes on when that is
    itself: switching threads is what costs. The thread that called `run` sleeps until all is over.
    """

    def __init__(self, rng: random.Random, *, start_us: int) -> None:
        self.rng = rng
        self.now_us = start_us
        self.steps = 0
        self.trace: list[str] = []
        self.before_step: Callable[[], None] = lambda: None
        self._busy: list[Actor] = []
        self._main = threading.Lock()
        self._main.acquire()
        self._current: Actor | None = None
        self._stopping = False
        self._failure: BaseException | None = None

    def spawn(self, name: str, run: Callable[[], None]) -> Actor:
        actor = Actor(name, run)
        actor.baton.acquire()
        actor.thread = threading.Thread(target=self._body, args=(actor,), name=name, daemon=True)
        self._busy.append(actor)
        actor.thread.start()
        return actor

    def run(self) -> None:
        """Until every actor is done. Raises the first error that is not an actor's own business."""
        self._hand_over()
        self._wait()
        self._release_all()
        if self._failure is not None:
            raise self._failure

    def pause(self, what: str = "") -> None:
        """Called by the running actor: others may go on here."""
        actor = self._running()
        if actor is None:
            return  # the world itself (checks, set-up) is not scheduled
        if self._stopping:
            raise Killed
        self.steps += 1
        self.now_us += STEP_US
        if what:
            self.trace.append(f"{actor.name}: {what}")
        if self._hand_over() is not actor:
            actor.baton.acquire()
        if self._stopping:
            raise Killed

    def sleep(self, seconds: float) -> None:
        actor = self._running()
        if actor is not None:
            actor.wake_us = self.now_us + int(seconds * 1_000_000)
            self.pause()

    @property
    def actor_name(self) -> str:
        return self._current.name if self._current is not None else "world"

    @property
    def stopping(self) -> bool:
        """Actors are being ended, whatever they were doing."""
        return self._stopping

    def _running(self) -> Actor | None:
        actor = self._current
        return actor if actor is not None and threading.current_thread() is actor.thread else None

    def _hand_over(self) -> Actor | None:
        """Wake who is next, or the main thread when nobody is."""
        giver, self._current = self._current, None
        following: Actor | None = None
        try:
            following = self._choose()
        except BaseException as error:
            self._failure = error
        self._current = following
        if following is None:
            self._main.release()
        elif following is not giver:
            following.baton.release()
        return following

    def _choose(self) -> Actor | None:
        while self._busy:
            if self.steps >= MAX_STEPS:
                raise Stuck(f"{len(self._busy)} actors still busy after {self.steps} steps")
            self.before_step()
            ready = [a for a in self._busy if a.wake_us <= self.now_us]
            if ready:
                return self.rng.choice(ready)
            self.now_us = min(a.wake_us for a in self._busy)
        return None

    def _wait(self) -> None:
        """Until nobody is next. Raises when an actor takes no step for too long."""
        before = -1
        while not self._main.acquire(timeout=STUCK_SECONDS):
            if self.steps == before:
                name = self.actor_name  # its thread, a daemon, cannot be ended
                raise Stuck(f"{name} waits for something that only another actor can give")
            before = self.steps

    def _body(self, actor: Actor) -> None:
        actor.baton.acquire()
        try:
            if not self._stopping:
                actor.run()
        except Killed:
            actor.killed = True
        except BaseException as error:
            actor.error = error
        if self._stopping:
            self._main.release()
            return
        self._busy.remove(actor)
        if actor.error is None:
            self._hand_over()
        else:
            self._failure, self._current = actor.error, None
            self._main.release()

    def _release_all(self) -> None:
        self._stopping = True
        for actor in self._busy:
            self._current = actor
            actor.baton.release()
            self._main.acquire()
        self._current = None


@dataclass(frozen=True, slots=True)
class SimulatedClock:
    """A host's clock inside the simulation: durations only, and wrong by `skew` (a factor)."""

    scheduler: Scheduler
    skew: float = 1.0

    def monotonic(self) -> float:
        return self.scheduler.now_us / 1_000_000 * self.skew

    def now_us(self) -> int:
        return self.scheduler.now_us

    def sleep(self, seconds: float) -> None:
        self.scheduler.sleep(seconds)
