"""How a Spark process reaches a table: the driver's planning processes and the executors' workers.

Promise: one connection (store client, threads, cache of footers) for each table and process, however many
tasks the process runs. Only immutable data is cached, so no task sees an outdated table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache

from inlay.engine import (
    Context,
    LoadedTable,
    Snapshot,
    Workers,
    load_pointer,
    open_store,
)
from inlay.errors import InvalidRequest, TableNotFound

# A task shares its executor with others, each in its own process: fewer concurrent requests than for a
# process that has the machine to itself.
THREADS = 8
# Tables a worker process keeps connections to.
TABLES = 8


# A version or a time behind a location, as Delta's users write it.
_OF_THE_PAST = re.compile(r"(.+)@(?:v(\d+)|\d{17})")
# Separates a table's location from the tag or branch: tasks get both as one text.
_REF = "#ref="


def at_ref(uri: str, ref: str | None) -> str:
    """The table at `uri` with a tag or branch; None or "main" is the table itself."""
    branch = Context.branch_of(ref)
    return uri if branch is None else f"{uri}{_REF}{branch}"


def place(uri: str) -> str:
    """The table's location, without its ref."""
    return uri.partition(_REF)[0]


def ref_of(uri: str) -> str | None:
    """The ref in a URI from `at_ref`."""
    return uri.partition(_REF)[2] or None


@lru_cache(maxsize=TABLES)
def connect(uri: str) -> Context:
    """The context of a table in this process, on the branch that `at_ref` named."""
    uri, _, ref = uri.partition(_REF)
    if uri.startswith("memory:"):
        raise InvalidRequest(
            f"{uri} exists in one process only, and Spark runs in several",
            next_step="Use s3:// or file:///",
        )
    store, root = open_store(uri)
    return Context(
        store=store,
        root=root,
        uri=uri.rstrip("/"),
        executor=Workers(THREADS),
        parallel=THREADS,
        branch=ref or None,
    )


def bound(uri: str, table_id: str | None) -> Context:
    """The context of the table of this id: what is at its place later may be another (`TableReplaced`)."""
    return replace(connect(uri), table_id=table_id)


def load_snapshot(uri: str, *, version: int | None = None, as_of_us: int | None = None) -> Snapshot:
    """As `ScanParts.snapshot`. For the newest one nothing is imported that reads rows."""
    ctx = connect(uri)
    with _with_its_place(ctx):
        if version is None and as_of_us is None:
            return load_pointer(ctx).snapshot
        from inlay.engine import ScanParts

        return ScanParts.snapshot(ctx, version=version, as_of_us=as_of_us)


def load_writable(uri: str, table_id: str | None = None) -> tuple[Context, LoadedTable]:
    """A table to write to: the one of `table_id`, if that is given. Raises `InvalidRequest` for a tag, and
    `TableReplaced`."""
    ctx = bound(uri, table_id)
    with _with_its_place(ctx):
        loaded = load_pointer(ctx)
    check_writable(ctx, loaded)
    return ctx, loaded


@contextmanager
def _with_its_place(ctx: Context) -> Iterator[None]:
    """Raises `InvalidRequest` for the location of a table with a version or a time behind it."""
    try:
        yield
    except TableNotFound:
        if past := _OF_THE_PAST.fullmatch(ctx.uri):
            with suppress(TableNotFound):
                load_pointer(connect(past[1]))
                option, value = ("version", past[2]) if past[2] else ("asOf", '"2026-01-31"')
                raise InvalidRequest(
                    f"{ctx.uri} is no table: the location is {past[1]}, without what is behind the @",
                    next_step=f'Read it with .option("{option}", {value})',
                ) from None
        raise


def is_tag(ctx: Context, loaded: LoadedTable) -> bool:
    return ctx.branch is not None and not loaded.pointer.refs[ctx.branch].is_branch


def check_writable(ctx: Context, loaded: LoadedTable) -> None:
    """A tag is read-only."""
    if is_tag(ctx, loaded):
        raise InvalidRequest(
            f"the tag {ctx.branch!r} of {ctx.uri} cannot be written to",
            next_step="Create a branch there",
            table=ctx.uri,
        )
