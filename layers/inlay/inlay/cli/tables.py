"""Tables as the commands open them, with a progress bar where somebody is watching: on stderr, only on a
terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING

from inlay.progress import Bars

if TYPE_CHECKING:
    from inlay import Table
    from inlay.engine import Context
    from inlay.progress import Progress


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Progress]:
    """The hook for `Context.progress`. It draws nothing with `quiet`, or where stderr is not a terminal;
    warnings about waiting are printed anyway."""
    from inlay.progress import no_progress

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


@contextmanager
def connected(uri: str, *, quiet: bool = False) -> Iterator[Context]:
    """A context for `uri` that reports progress, unless it is to be quiet."""
    from inlay import connect

    with watching(quiet=quiet) as progress:
        yield connect(uri, progress=progress)


@contextmanager
def opened(
    uri: str,
    *,
    version: int | None = None,
    as_of: str | None = None,
    ref: str | None = None,
    quiet: bool = False,
) -> Iterator[Table]:
    """The table at `uri`, newest or in the past."""
    import inlay
    from inlay.errors import TableNotFound

    with connected(uri, quiet=quiet) as context:
        try:
            table = inlay.open(uri, version=version, as_of=as_of, ref=ref, context=context)
        except TableNotFound as error:
            if near := _near(context):
                error.next_step = (
                    f"Did you mean {uri.rstrip('/').rpartition('/')[0] or '.'}/{near}?"
                )
            raise
        yield table


def _near(context: Context) -> str | None:
    """A folder beside the table whose name is spelled much like its, of the first page of a listing."""
    from inlay.errors import InlayError

    parent, _, name = context.root.rpartition("/")
    with suppress(InlayError):
        beside = islice(context.store.list_prefixes(f"{parent}/" if parent else ""), 1_000)
        names = [uri.rstrip("/").rpartition("/")[2] for uri in beside]
        return next(iter(get_close_matches(name, names, n=1)), None)
    return None
