"""What belongs to one process: connections, threads, locks, and what they protect.

Promise: a forked process never waits for a thread that it does not have, never takes a lock that a thread
of its parent holds, and never uses its parent's sockets. Such things are held through `PerProcess`, so that
a child creates its own.

A process is identified by the number of forks between it and the first one, not by its id: memory is only
inherited along that line, while the system may give a grandchild the id of its dead grandparent.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from inlay.errors import InvalidRequest

T = TypeVar("T")

_forks = 0


def current() -> int:
    """This process, among those that share memory by descent."""
    return _forks


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class PerProcess(Generic[T]):
    """A value that each process creates on first use. Several threads may call `make` at once; all get the
    value of one of them."""

    __slots__ = ("_make", "_values")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[int, T] = {}

    def get(self) -> T:
        found = self._values.get(_forks)
        if found is None:
            # One step under the interpreter's lock: no lock of ours that a fork could leave locked.
            found = self._values.setdefault(_forks, self._make())
        return found


def check_same(began: int, what: str) -> None:
    """Raises `InvalidRequest` if something that cannot be used after a fork was forked."""
    if began != _forks:
        raise InvalidRequest(
            f"{what} belongs to the process that this one was forked from",
            next_step="Create it in the process that uses it: open the table there, or start again there",
        )


@contextmanager
def without_gc() -> Iterator[None]:
    """No cycle collection inside, where many objects are made that have no cycles (a footer's tree, the
    entries of a plan): to look through all of them again and again takes as long as making them, or four
    times as long. Threads may be inside at once: when the last has left, collection is as it was."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
