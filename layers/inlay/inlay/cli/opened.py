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
def connected(uri: str) -> Iterator[Context]:
    """A context for `uri` that reports progress."""
    from inlay.table import connect

    with watching() as progress:
        yield connect(uri, progress=progress)


@contextmanager
def opened(
    uri: str, *, version: int | None = None, as_of: str | None = None, ref: str | None = None
) -> Iterator[Table]:
    """The table at `uri`, newest or in the past."""
    import inlay

    with connected(uri) as context:
        yield inlay.open(uri, version=version, as_of=as_of, ref=ref, context=context)
