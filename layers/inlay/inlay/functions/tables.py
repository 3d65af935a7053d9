"""The tables a function works on: all in one bucket, `<prefix>tables/<table>`.

Promise: store, connections and threads are created once per process, when first needed; invocations of one
process share them, functions share nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from inlay.engine import (
    Context,
    ObjectStore,
    Snapshot,
    Workers,
    load_pointer,
    open_store,
)
from inlay.functions import settings

TABLES = "tables/"
LANDING = "ingest/"
# Concurrent requests. One CPU's worth of a Lambda keeps about this many busy.
_PARALLEL = 16


def table_context(table: str) -> Context:
    """A new context for one piece of work on a table, which may not exist."""
    return Context(
        store=store(),
        root=f"{settings.prefix()}{TABLES}{table}",
        uri=f"{settings.bucket_uri()}/{settings.prefix()}{TABLES}{table}",
        executor=executor(),
        parallel=_PARALLEL,
        adopt_from=settings.adopt_from(),
    ).metered()


def current_snapshot(table: str) -> Snapshot:
    """Of a table that has work to be looked for. Raises `TableHandedOver`, which rounds leave out."""
    ctx = table_context(table)
    loaded = load_pointer(ctx)
    loaded.refuse_handed_over(ctx)
    return loaded.snapshot


def table_names() -> Iterator[str]:
    """Every name under the tables' prefix; not each is a table's."""
    return _names(TABLES)


def landing_names() -> Iterator[str]:
    """Every name under which files landed; not each is a table's."""
    return _names(LANDING)


def _names(zone: str) -> Iterator[str]:
    folder = f"{settings.prefix()}{zone}"
    for prefix in store().list_prefixes(folder):
        yield prefix.removeprefix(folder).removesuffix("/")


@cache
def store() -> ObjectStore:
    opened, _ = open_store(settings.bucket_uri())
    return opened


@cache
def executor() -> Workers:
    return Workers(_PARALLEL)
