"""Progress of long work: bars on stderr, only where a person looks at them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from inlay.ops.context import Progress


@contextmanager
def watching() -> Iterator[Progress]:
    """The hook for `Context.progress`; it draws nothing unless stderr is a terminal."""
    from inlay.ops.context import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    drawn = _Drawn()
    try:
        yield drawn
    finally:
        drawn.close()


class _Drawn:
    """One bar for each kind of work that is reported, from whichever thread; nothing before that."""

    def __init__(self) -> None:
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        with self._lock:
            if self._bars is None:
                self._bars = _bars()
                self._bars.start()
            if what not in self._tasks:
                self._tasks[what] = self._bars.add_task(what, total=total)
            self._bars.update(self._tasks[what], completed=done, total=total)

    def close(self) -> None:
        with self._lock:
            if self._bars is not None:
                self._bars.stop()


def _bars() -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
