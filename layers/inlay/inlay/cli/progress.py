"""Progress of long work, and waiting: on stderr, only where a person looks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inlay.progress import Bars

if TYPE_CHECKING:
    from inlay.ops.context import Progress


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Progress]:
    """The hook for `Context.progress`. It draws nothing where `quiet` or stderr is no terminal; what is
    waited for is said anyway."""
    from inlay.ops.context import no_progress

    said = _Said(level=logging.WARNING)
    logging.getLogger("inlay").addHandler(said)
    drawn = Bars() if sys.stderr.isatty() and not quiet else None
    try:
        yield no_progress if drawn is None else drawn
    finally:
        logging.getLogger("inlay").removeHandler(said)
        if drawn is not None:
            drawn.close()


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from inlay.cli.output import note

        note(record.getMessage())
