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
