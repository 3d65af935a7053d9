"""How a Spark process reaches a table: the driver's planning processes and the executors' workers.

Promise: one connection (store client, threads, cache of footers) for each table and process, however
many tasks the process runs. What is cached is immutable, so no task sees an older table than it should.
"""

from __future__ import annotations

from functools import lru_cache

from inlay.errors import InvalidRequest
from inlay.ops.context import Context, Workers
from inlay.ops.load import load_as_of, load_pointer, load_version
from inlay.plan.state import State
from inlay.storage.open import open_store

# A task shares its executor with others, each in a process of its own: fewer requests in flight than a
# process that has the machine for itself.
THREADS = 8
# Tables a worker process keeps connections to.
TABLES = 8


@lru_cache(maxsize=TABLES)
def connect(uri: str) -> Context:
    """The context of a table in this process."""
    if uri.startswith("memory:"):
        raise InvalidRequest(
            f"{uri} lives in one process, and Spark runs in several",
            next_step="Use s3:// or file:///",
        )
    store, root = open_store(uri)
    return Context(
        store=store,
        root=root,
        uri=uri.rstrip("/"),
        executor=Workers(THREADS),
        parallel=THREADS,
    )


def load_state(uri: str, *, version: int | None = None, as_of_us: int | None = None) -> State:
    """The newest snapshot, or the one of a version or a time. One GET, two for the past."""
    ctx = connect(uri)
    current = load_pointer(ctx).state
    if version is not None:
        return State(load_version(ctx, current.snapshot, version))
    if as_of_us is not None:
        return State(load_as_of(ctx, current.snapshot, as_of_us))
    return current
