"""Changes of the key, where statistics of other writers' files are not true of it.

Promise: after `alter` and `merge` no file of another writer has statistics of the key that leave out one
of its rows. Such a file is written again, by this library, before the change, as an ingest does that finds
one: the same rows, in a commit of its own. An adopted file is refused by name, for it stays where it is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from inlay.errors import UntrueStatistics
from inlay.ops import refs
from inlay.ops.commit.driver import Committed, Skipped, check_same_schema
from inlay.ops.context import Context
from inlay.ops.maintain.compact import repack
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.plan.change import Request
from inlay.record import replace

if TYPE_CHECKING:
    from inlay.plan.schema_evolution import Evolution

# Files of other writers that come meanwhile are compared with the old key, and may need another try.
MAX_TRIES = 4


def alter(
    ctx: Context,
    evolution: Evolution,
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """As `ops.schema.alter`. Raises `UntrueStatistics` for adopted files only."""
    from inlay.ops.schema import alter as schema  # a merge changes none

    tried = 1
    while True:  # ends: tries are bounded
        try:
            return schema.alter(ctx, evolution, base=base, request=request)
        except UntrueStatistics as error:
            now = _written_again(ctx, error, last=tried == MAX_TRIES)
            if base is not None:
                check_same_schema(ctx, base, now)
            base, tried = now, tried + 1


def merge(ctx: Context, name: str, request: Request | None = None) -> Committed | Skipped:
    """As `ops.refs.merge`. Raises `UntrueStatistics` for adopted files only."""
    tried = 1
    while True:  # ends: tries are bounded
        try:
            return refs.merge(ctx, name, request)
        except UntrueStatistics as error:
            _written_again(replace(ctx, branch=error.ref), error, last=tried == MAX_TRIES)
            tried += 1


def _written_again(ctx: Context, error: UntrueStatistics, *, last: bool) -> LoadedTable:
    """The table after the files that `error` names were written again. Raises it for adopted ones."""
    if last or any("://" in key for key in error.files):
        raise error
    run = repack(ctx, load_pointer(ctx), frozenset(error.files), max_bytes=sys.maxsize)
    for failure in run.failures:
        raise failure.error from error
    return run.loaded
