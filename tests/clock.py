"""A clock under the control of a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """The store's clock and its callers' durations, in one. Nothing waits: sleeping moves it forward."""

    seconds: float = 1_800_000_000.0

    def now_us(self) -> int:
        return int(self.seconds * 1_000_000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Ticking:
    """The same, of whole microseconds, of which each look at it takes some: nothing happens at one time."""

    us: int
    step_us: int

    def now_us(self) -> int:
        self.us += self.step_us
        return self.us

    def monotonic(self) -> float:
        return self.us / 1e6

    def sleep(self, seconds: float) -> None:
        self.us += int(seconds * 1e6)
