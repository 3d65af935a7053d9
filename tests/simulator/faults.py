"""A store whose requests fail as they do on S3, at will, at any request.

Promise: every request meets the fate that a plan chooses for it, and the fates are all that a client can
experience. There is one vocabulary of them (`Fate`) for the simulator, for the tests that fail every
request in turn, and for the proxy that does it on the wire (`tests.simulator.fault_proxy`). After its
death a process sends nothing more: every later request raises `Killed` too, so that a `finally` in the code
under test cannot clean up what a real crash would leave.

One request is one HTTP request: each page of a listing and each batch of a delete meets its own fate. A
plan is called in the thread that sends; it may sleep there, or let others go first. `before` and `after`
run around each request; a scheduler can switch between actors there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NoReturn, TypeVar

from inlay.errors import StoreUnavailable
from inlay.storage.base import ObjectStore, Refused
from inlay.storage.wrapped import READS, Asked, WrappedStore

T = TypeVar("T")


class Killed(BaseException):
    """The process died. Not an `Exception`: only the code that started the process may handle it."""


class Fate(Enum):
    """What happens to a request."""

    DONE = "done and answered"
    UNSENT = "failed before it arrived"
    LOST = "done, the answer lost"
    TWICE = "done, the answer lost, sent again by the SDK, which reports the second answer"
    RESENT = "failed before it arrived, sent again by the client, which reports the second answer"
    GHOST = "on its way, sent again by the client, which reports that answer; done again later"
    RACE = "409: refused in a race, nothing done"
    LATE = "given up by its sender, done some time later"
    KILLED_BEFORE = "the process died before it was sent"
    KILLED_AFTER = "done, then the process died"


_ANY: Final = (Fate.DONE, Fate.UNSENT, Fate.LOST, Fate.KILLED_BEFORE, Fate.KILLED_AFTER)
# Requests that an SDK repeats, and whose second answer matters.
_REPEATED: Final = frozenset({"put", "copy", "delete", "complete_multipart"})
# Requests whose answer is not needed to continue, so that they can be delayed for long.
_LATE: Final = frozenset({"put", "copy", "delete"})
# For those that a client repeats under a condition, the second answer may be about what others did.
_GHOSTS: Final = frozenset({"put", "copy"})


@dataclass(frozen=True, slots=True)
class Sent:
    """A request about to be sent. `number` counts from 1; `verb` and `key` as in `wrapped.py`; `possible`
    are the fates it can meet: only a conditional write is refused in a race."""

    number: int
    verb: str
    key: str
    possible: tuple[Fate, ...] = _ANY

    @property
    def is_read(self) -> bool:
        return self.verb in READS


Plan = Callable[[Sent], Fate]
Hook = Callable[[Sent], None]
Request = Callable[[], object]


# -- plans ----------------------------------------------------------------------------------------


def all_goes_well(sent: Sent) -> Fate:
    return Fate.DONE


def once(fate: Fate, *, verb: str | None = None, key: str | None = None) -> Plan:
    """`fate` for the first request of this verb and key (any, when not given) that can meet it."""
    left = [fate]

    def plan(sent: Sent) -> Fate:
        is_it = verb in (None, sent.verb) and key in (None, sent.key) and fate in sent.possible
        return left.pop() if left and is_it else Fate.DONE

    return plan


# -- the store ------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Process:
    """Shared by the buckets of one process: its plan, its count of requests, its life."""

    plan: Plan
    before: Hook | None
    after: Hook | None
    again: Hook | None
    later: Callable[[Request], None] | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    number: int = 0
    dead: bool = False

    def send(self, asked: Asked) -> Sent:
        possible = (
            *_ANY,
            *((Fate.TWICE,) if asked.verb in _REPEATED else ()),
            *((Fate.RACE, Fate.RESENT) if asked.conditional else ()),
            *((Fate.LATE,) if self.later is not None and asked.verb in _LATE else ()),
            *((Fate.GHOST,) if self._may_haunt(asked) else ()),
        )
        with self.lock:
            if self.dead:
                raise Killed
            self.number += 1
            return Sent(self.number, asked.verb, asked.key, possible)

    def _may_haunt(self, asked: Asked) -> bool:
        return self.later is not None and asked.conditional and asked.verb in _GHOSTS

    def die(self) -> NoReturn:
        with self.lock:
            self.dead = True
        raise Killed


class FaultyStore(WrappedStore):
    """`inner` as one process sees it. Give each simulated process its own `FaultyStore`.

    `again` runs before the second sending of `TWICE`, `RESENT` and `GHOST`; `later` takes the request of a
    `LATE` or `GHOST`, which is called when it arrives: without it no request is late.
    """

    def __init__(
        self,
        inner: ObjectStore,
        plan: Plan = all_goes_well,
        *,
        before: Hook | None = None,
        after: Hook | None = None,
        again: Hook | None = None,
        later: Callable[[Request], None] | None = None,
        process: _Process | None = None,
    ) -> None:
        super().__init__(inner)
        self._process = process or _Process(plan, before, after, again, later)

    def at(self, bucket: str) -> FaultyStore:
        return FaultyStore(self.inner.at(bucket), process=self._process)

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        process = self._process
        sent = process.send(asked)
        if process.before is not None:
            process.before(sent)
        try:
            fate = process.plan(sent)
            if fate not in sent.possible:
                raise ValueError(f"a {sent.verb} cannot meet {fate}")
            return self._meet(fate, sent, send)
        finally:
            if process.after is not None:
                process.after(sent)

    def _meet(self, fate: Fate, sent: Sent, send: Callable[[], T]) -> T:
        process = self._process
        match fate:
            case Fate.UNSENT:
                raise StoreUnavailable("the request failed before it was sent", key=sent.key)
            case Fate.KILLED_BEFORE:
                process.die()
            case Fate.RACE:
                now = self.inner.head(sent.key).date_us  # the store's clock
                refused: object = Refused("race", now)
                return refused  # type: ignore[return-value]  # a conditional write may answer so
            case Fate.LATE:
                assert process.later is not None
                process.later(send)
                raise StoreUnavailable("the request is still on its way", key=sent.key)
            case Fate.RESENT:
                return self._resend(sent, send)
            case Fate.GHOST:
                assert process.later is not None
                process.later(send)
                return self._resend(sent, send)
            case Fate.DONE | Fate.LOST | Fate.TWICE | Fate.KILLED_AFTER:
                pass  # met once it is answered
        answer = send()
        match fate:
            case Fate.LOST:
                raise StoreUnavailable("the answer was lost", key=sent.key)
            case Fate.KILLED_AFTER:
                process.die()
            case Fate.TWICE:
                return self._resend(sent, send)
            case _:  # the others were met before it was sent
                pass
        return answer

    def _resend(self, sent: Sent, send: Callable[[], T]) -> T:
        """A further attempt of the client's own, of which the caller knows nothing."""
        if self._process.again is not None:
            self._process.again(sent)
        return send()
