"""Tables as the commands open them: with a progress bar where somebody is watching."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from inlay.cli.progress import watching

if TYPE_CHECKING:
    from inlay.ops.context import Context
    from inlay.table import Table


@contextmanager
def connected(uri: str, *, quiet: bool = False) -> Iterator[Context]:
    """A context for `uri` that reports progress, unless it is to be quiet."""
    from inlay.table import connect

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

    with connected(uri, quiet=quiet) as context:
        yield inlay.open(uri, version=version, as_of=as_of, ref=ref, context=context)
