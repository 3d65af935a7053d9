"""A store on which requests go wrong as they do on S3: at will, at any request.

Promise: every request meets the fate a plan chooses for it, and the fates are all that a client can
live through: done and answered; never arrived; done but the answer lost; refused in a race; refused
although an earlier attempt of the SDK had landed; slow; and the death of the process, before or
after. After its death a process sends nothing more: every later request raises `Killed` too, so
that a `finally` in the code under test cannot clean up what a real crash would leave.

One request is one HTTP request: each page of a listing and each batch of a delete meets its own
fate. `before` and `after` run around each, in the thread that sends it; a scheduler can switch
between actors there.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, NoReturn, Protocol, TypeVar

from inlay.errors import StoreUnavailable
from inlay.storage import rules
from inlay.storage.base import (
    ByteRange,
    Condition,
    DeleteFailure,
    Got,
    Head,
    Location,
    Missing,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    Part,
    Refused,
    Upload,
    Written,
)
from inlay.storage.metered import LIST_PAGE_ITEMS

T = TypeVar("T")


class Killed(BaseException):
    """The process died. Not an `Exception`: nothing may handle it but the simulator."""


class Fate(Enum):
    DONE = "done and answered"
    UNSENT = "failed before it arrived"
    LOST = "done, the answer lost"
    RACE = "409: refused in a race, nothing done"
    REFUSED = "done, then refused: the SDK asked twice and told the second answer"
    KILLED_BEFORE = "the process died before it was sent"
    KILLED_AFTER = "done, then the process died"


_ANY: Final = (Fate.DONE, Fate.UNSENT, Fate.LOST, Fate.KILLED_BEFORE, Fate.KILLED_AFTER)


@dataclass(frozen=True, slots=True)
class Slow:
    """The request takes this long and then meets its fate."""

    seconds: float
    then: Fate = Fate.DONE


@dataclass(frozen=True, slots=True)
class Sent:
    """A request about to be sent. `number` counts from 1; `verb` as in `metered`; `key` is the
    prefix for listings and the first key of a delete's batch. `possible` are the fates it can
    meet: only a conditional write is refused in a race."""

    number: int
    verb: str
    key: str
    possible: tuple[Fate, ...] = _ANY


Plan = Callable[[Sent], Fate | Slow]
Hook = Callable[[Sent], None]


class Sleeper(Protocol):
    def sleep(self, seconds: float) -> None: ...


# -- plans ----------------------------------------------------------------------------------------


def all_goes_well(sent: Sent) -> Fate:
    return Fate.DONE


def once(fate: Fate | Slow, *, verb: str | None = None, key: str | None = None) -> Plan:
    """`fate` for the first request of this verb and key (any, when not given) that can meet it."""
    wanted = fate.then if isinstance(fate, Slow) else fate
    left = [fate]

    def plan(sent: Sent) -> Fate | Slow:
        is_it = verb in (None, sent.verb) and key in (None, sent.key) and wanted in sent.possible
        return left.pop() if left and is_it else Fate.DONE

    return plan


def by_chance(source: random.Random, chances: Mapping[Fate, float]) -> Plan:
    """Each fate with its probability; a request that cannot meet the one drawn goes well."""

    def plan(sent: Sent) -> Fate:
        drawn = source.random()  # exactly one draw for each request: a seed is a history
        for fate, chance in chances.items():
            drawn -= chance
            if drawn < 0:
                return fate if fate in sent.possible else Fate.DONE
        return Fate.DONE

    return plan


# -- the store ------------------------------------------------------------------------------------


class _Process:
    """What the buckets of one process share: its plan, its count of requests, its life."""

    def __init__(
        self, plan: Plan, clock: Sleeper | None, before: Hook | None, after: Hook | None
    ) -> None:
        self.plan: Final = plan
        self.clock: Final = clock
        self.before: Final = before
        self.after: Final = after
        self._lock = threading.Lock()
        self._number = 0
        self._dead = False

    def send(self, verb: str, key: str, possible: tuple[Fate, ...]) -> Sent:
        with self._lock:
            if self._dead:
                raise Killed
            self._number += 1
            return Sent(self._number, verb, key, possible)

    def die(self) -> NoReturn:
        with self._lock:
            self._dead = True
        raise Killed


class FaultyStore:
    """`inner` as one process sees it. Give each simulated process a `FaultyStore` of its own."""

    def __init__(
        self,
        inner: ObjectStore,
        plan: Plan = all_goes_well,
        *,
        clock: Sleeper | None = None,
        before: Hook | None = None,
        after: Hook | None = None,
        process: _Process | None = None,
    ) -> None:
        self.inner: Final = inner
        self._process = process or _Process(plan, clock, before, after)

    @property
    def scheme(self) -> str:
        return self.inner.scheme

    @property
    def bucket(self) -> str:
        return self.inner.bucket

    def at(self, bucket: str) -> FaultyStore:
        return FaultyStore(self.inner.at(bucket), process=self._process)

    # -- reads --------------------------------------------------------------------------------

    def get(
        self,
        key: str,
        *,
        byte_range: ByteRange | None = None,
        if_match: str | None = None,
        version_id: str | None = None,
    ) -> Got | Missing | Refused:
        return self._send(
            "get",
            key,
            lambda: self.inner.get(
                key, byte_range=byte_range, if_match=if_match, version_id=version_id
            ),
        )

    def get_suffix(self, key: str, length: int, *, version_id: str | None = None) -> Got | Missing:
        return self._send(
            "get", key, lambda: self.inner.get_suffix(key, length, version_id=version_id)
        )

    def head(self, key: str, *, version_id: str | None = None) -> Head | Missing:
        return self._send("head", key, lambda: self.inner.head(key, version_id=version_id))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._paged("list", prefix, self.inner.list(prefix, start_after=start_after))

    def list_prefixes(self, prefix: str) -> Iterator[str]:
        return self._paged("list", prefix, self.inner.list_prefixes(prefix))

    # -- writes -------------------------------------------------------------------------------

    def put(
        self,
        key: str,
        body: bytes | memoryview,
        *,
        condition: Condition = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Written | Refused:
        def put() -> Written | Refused:
            return self.inner.put(
                key, body, condition=condition, metadata=metadata, headers=headers
            )

        if condition is None:
            return self._send("put", key, put)
        return self._conditional("put", key, put)

    def copy(
        self,
        source: Location,
        key: str,
        *,
        if_source_match: str | None = None,
        condition: Condition = None,
        bare: bool = False,
    ) -> Written | Refused | Missing:
        def copy() -> Written | Refused | Missing:
            return self.inner.copy(
                source, key, if_source_match=if_source_match, condition=condition, bare=bare
            )

        if condition is None:
            return self._send("copy", key, copy)
        return self._conditional("copy", key, copy)

    def delete(self, keys: Iterable[str]) -> Sequence[DeleteFailure]:
        failures: list[DeleteFailure] = []
        for batch in rules.delete_batches(keys):
            failures += self._send("delete", batch[0], partial(self.inner.delete, batch))
        return failures

    # -- multipart ----------------------------------------------------------------------------

    def create_multipart(
        self,
        key: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        return self._send(
            "create_multipart",
            key,
            lambda: self.inner.create_multipart(key, metadata=metadata, headers=headers),
        )

    def upload_part(self, key: str, upload_id: str, number: int, body: bytes | memoryview) -> Part:
        return self._send(
            "upload_part", key, lambda: self.inner.upload_part(key, upload_id, number, body)
        )

    def upload_part_copy(
        self,
        key: str,
        upload_id: str,
        number: int,
        *,
        source: Location,
        byte_range: ByteRange,
        if_source_match: str,
    ) -> Part | Refused | Missing:
        return self._send(
            "upload_part_copy",
            key,
            lambda: self.inner.upload_part_copy(
                key,
                upload_id,
                number,
                source=source,
                byte_range=byte_range,
                if_source_match=if_source_match,
            ),
        )

    def complete_multipart(
        self, key: str, upload_id: str, parts: Sequence[Part]
    ) -> Written | Missing:
        """`Fate.REFUSED` is the NoSuchUpload that a repeated Complete is told."""

        def refused(answer: Written | Missing) -> Written | Missing:
            return Missing(answer.date_us)

        return self._send(
            "complete_multipart",
            key,
            lambda: self.inner.complete_multipart(key, upload_id, parts),
            refused=refused,
        )

    def abort_multipart(self, key: str, upload_id: str) -> None:
        self._send("abort_multipart", key, lambda: self.inner.abort_multipart(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[Upload]:
        return self._paged("list_uploads", prefix, self.inner.list_uploads(prefix))

    # -- versions -----------------------------------------------------------------------------

    def list_versions(self, prefix: str) -> Iterator[ObjectVersion]:
        return self._paged("list_versions", prefix, self.inner.list_versions(prefix))

    def delete_versions(self, versions: Iterable[tuple[str, str]]) -> Sequence[DeleteFailure]:
        failures: list[DeleteFailure] = []
        for batch in rules.delete_batches(versions):
            failures += self._send(
                "delete", batch[0][0], partial(self.inner.delete_versions, batch)
            )
        return failures

    # -- fates --------------------------------------------------------------------------------

    def _conditional(self, verb: str, key: str, call: Callable[[], T]) -> T | Refused:
        def refused(answer: T | Refused) -> T | Refused:
            return Refused("exists", answer.date_us) if isinstance(answer, Written) else answer

        def raced() -> Refused:
            now = self.inner.head(key).date_us  # the store's clock
            return Refused("race", now)

        return self._send(verb, key, call, refused=refused, raced=raced)

    def _paged(self, verb: str, prefix: str, items: Iterator[T]) -> Iterator[T]:
        full = LIST_PAGE_ITEMS
        while full == LIST_PAGE_ITEMS:  # ends with the first page that is not full
            page = self._send(verb, prefix, lambda: list(itertools.islice(items, LIST_PAGE_ITEMS)))
            yield from page
            full = len(page)

    def _send(
        self,
        verb: str,
        key: str,
        call: Callable[[], T],
        *,
        refused: Callable[[T], T] | None = None,
        raced: Callable[[], T] | None = None,
    ) -> T:
        possible = (
            *_ANY,
            *((Fate.REFUSED,) if refused is not None else ()),
            *((Fate.RACE,) if raced is not None else ()),
        )
        process = self._process
        sent = process.send(verb, key, possible)
        if process.before is not None:
            process.before(sent)
        try:
            fate = process.plan(sent)
            if isinstance(fate, Slow):
                if process.clock is None:
                    raise ValueError("a slow request needs a clock to sleep on")
                process.clock.sleep(fate.seconds)
                fate = fate.then
            if fate not in possible:
                raise ValueError(f"a {verb} cannot meet {fate}")
            if fate is Fate.UNSENT:
                raise StoreUnavailable("the request failed before it was sent", key=key)
            if fate is Fate.KILLED_BEFORE:
                process.die()
            if fate is Fate.RACE and raced is not None:
                return raced()
            answer = call()
            if fate is Fate.LOST:
                raise StoreUnavailable("the answer was lost", key=key)
            if fate is Fate.KILLED_AFTER:
                process.die()
            if fate is Fate.REFUSED and refused is not None:
                return refused(answer)
            return answer
        finally:
            if process.after is not None:
                process.after(sent)
