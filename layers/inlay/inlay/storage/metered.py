"""Counts the requests to a store by verb, and bytes up and down.

Promise: one count per HTTP request that S3 would see (see `wrapped.py`, also for the verbs), counted before
it is sent, so that a failed request counts as well. Bytes are those of bodies, not of headers or listings.
An attempt that the store repeats itself counts once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from inlay.storage.base import Got, ObjectStore
from inlay.storage.process import PerProcess
from inlay.storage.wrapped import Asked, WrappedStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests and bytes over some time; subtract an earlier value for the difference."""

    requests: Mapping[str, int]
    bytes_up: int
    bytes_down: int

    @property
    def total(self) -> int:
        """All requests."""
        return sum(self.requests.values())

    def __add__(self, other: Usage) -> Usage:
        return _combined(self, other, 1)

    def __sub__(self, earlier: Usage) -> Usage:
        return _combined(self, earlier, -1)


NO_USAGE: Final = Usage({}, 0, 0)


def _combined(one: Usage, other: Usage, sign: int) -> Usage:
    """`one ± other`, without verbs whose counts are zero."""
    counts = dict(one.requests)
    for verb, count in other.requests.items():
        counts[verb] = counts.get(verb, 0) + sign * count
    return Usage(
        {verb: count for verb, count in counts.items() if count},
        one.bytes_up + sign * other.bytes_up,
        one.bytes_down + sign * other.bytes_down,
    )


@dataclass(slots=True)
class _Counters:
    lock: threading.Lock = field(default_factory=threading.Lock)
    requests: dict[str, int] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0


class Meter:
    """Counters that several stores, and several threads of one process, may share. A forked process
    counts from zero."""

    def __init__(self) -> None:
        self._counters = PerProcess(_Counters)

    def sent(self, verb: str, bytes_up: int = 0) -> None:
        counters = self._counters.get()
        with counters.lock:
            counters.requests[verb] = counters.requests.get(verb, 0) + 1
            counters.bytes_up += bytes_up

    def received(self, bytes_down: int) -> None:
        counters = self._counters.get()
        with counters.lock:
            counters.bytes_down += bytes_down

    def snapshot(self) -> Usage:
        counters = self._counters.get()
        with counters.lock:
            return Usage(dict(counters.requests), counters.bytes_up, counters.bytes_down)


class MeteredStore(WrappedStore):
    """`inner`, counted. Give several stores one meter to count them together."""

    def __init__(self, inner: ObjectStore, meter: Meter | None = None) -> None:
        super().__init__(inner)
        self.meter: Final = meter or Meter()

    def __reduce__(self) -> tuple[object, ...]:
        return MeteredStore, (self.inner,)

    def usage(self) -> Usage:
        """Everything counted so far."""
        return self.meter.snapshot()

    def at(self, bucket: str) -> MeteredStore:
        """Another bucket, counted by the same meter."""
        return MeteredStore(self.inner.at(bucket), self.meter)

    def _ask(self, asked: Asked, send: Callable[[], T]) -> T:
        self.meter.sent(asked.verb, asked.bytes_up)
        answer = send()
        if isinstance(answer, Got):
            self.meter.received(len(answer.body))
        return answer
