"""Progress of long work as bars: by rich or tqdm, whichever is installed, else as lines of the log.

Promise: nothing is drawn before work reports, and a bar disappears when its work is done; calls may come
from any thread. `inlay.open(uri, progress=True)` and the command line draw by this.
"""

from __future__ import annotations

import logging
import threading
from importlib.util import find_spec
from typing import Any

from inlay.ops.context import Progress as Progress
from inlay.ops.context import no_progress as no_progress
from inlay.storage.wrapped import PerProcess

_LOG = logging.getLogger("inlay.progress")


class Bars:
    """One bar for each kind of work that is reported. A forked process draws its own."""

    def __init__(self) -> None:
        self._drawing = PerProcess(_Drawing)

    def __call__(self, what: str, done: int, total: int | None) -> None:
        mine = self._drawing.get()
        with mine.lock:
            if mine.draw is None:
                mine.draw = _Rich() if find_spec("rich") else _Tqdm()
            mine.draw.update(what, done, total)

    def close(self) -> None:
        """Take away what is drawn."""
        mine = self._drawing.get()
        with mine.lock:
            if mine.draw is not None:
                mine.draw.close()
                mine.draw = None


class _Drawing:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.draw: _Rich | _Tqdm | None = None


class _Rich:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Drawn

        self._bars = Drawn(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, Any] = {}

    def update(self, what: str, done: int, total: int | None) -> None:
        if not self._tasks:
            self._bars.start()
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)
        if total is not None and done >= total:
            self._bars.remove_task(self._tasks.pop(what))
            if not self._tasks:
                self._bars.stop()

    def close(self) -> None:
        self._tasks.clear()
        self._bars.stop()


class _Tqdm:
    """By tqdm, which draws in notebooks as well; without it, lines of the log."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}

    def update(self, what: str, done: int, total: int | None) -> None:
        if not find_spec("tqdm"):
            _LOG.info("%s: %d of %s", what, done, total if total is not None else "?")
            return
        from tqdm.auto import tqdm

        bar = self._bars.get(what)
        if bar is None:
            bar = self._bars[what] = tqdm(desc=what, total=total, leave=False)
        bar.total = total
        bar.update(done - bar.n)
        if total is not None and done >= total:
            self._bars.pop(what).close()

    def close(self) -> None:
        for bar in self._bars.values():
            bar.close()
        self._bars.clear()
