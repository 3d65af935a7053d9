"""Connect: what an operation is given for the table at a place, with this process's environment.

Promise: one pool of threads and one set of connections serve all tables of a process, so a thousand open
ones take no more than one; a process forked from this one has its own. Pickled, a context is its place
and its settings: the process that reads the pickle takes credentials from its own environment.
"""

from __future__ import annotations

from concurrent.futures import Executor
from functools import cache

from inlay.ops.commit.group import shared_turns
from inlay.ops.context import Context, OfThisProcess, Progress, Workers, no_progress
from inlay.storage.base import ObjectStore
from inlay.storage.metered import MeteredStore
from inlay.storage.open import open_store

# Requests of one process in flight; S3 serves each in tens of milliseconds, so this many keep a
# connection pool busy and bound memory.
THREADS = 16


def connect(
    uri: str, *, executor: Executor | None = None, progress: Progress = no_progress
) -> Context:
    """A context for the table at `uri`."""
    store, root = open_store(uri)
    return Context(
        store=MeteredStore(store),
        root=root,
        uri=uri.rstrip("/"),
        executor=_workers() if executor is None else OfThisProcess(executor),
        progress=progress,
        turns=shared_turns(store, root),
    )


def reconnect(
    store: ObjectStore, root: str, uri: str, parallel: int, branch: str | None
) -> Context:
    """A context as another process has pickled it. An executor or `progress` that was given there is of
    that process."""
    shared = store.inner if isinstance(store, MeteredStore) else store
    return Context(
        store=store,
        root=root,
        uri=uri,
        executor=_workers(),
        parallel=parallel,
        branch=branch,
        turns=shared_turns(shared, root),
    )


@cache
def _workers() -> Workers:
    """Tasks never wait for other tasks of the pool, so tables do not block each other."""
    return Workers(THREADS)
