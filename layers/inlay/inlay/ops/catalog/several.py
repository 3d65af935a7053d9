"""One POST of an engine on several tables: a transaction, each table as `ops.catalog.commit` has it.

Promise: all tables have what the request asks for, or none. What holds only on the version that the engine
has seen is refused where others were first on any of them (`ConcurrentChange`), and the engine begins
again. Once it is committed nothing fails any more, for the answer has no metadata: DuckDB deletes its files
after an answer that says anything else. What could not be published then is by the next load.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from inlay.errors import ConcurrentChange, InvalidRequest
from inlay.iceberg.commit import CommitRequest
from inlay.iceberg.metadata import MAIN
from inlay.ops.catalog.commit import (
    MAX_ROUNDS,
    NotPublished,
    ReadOnce,
    commit_table,
    name_of,
    of_late_files,
    planned,
    published_after,
    published_now,
    refuse_open_erasure,
)
from inlay.ops.commit.driver import already_applied, decided
from inlay.ops.context import Context
from inlay.ops.metadata.load import load_pointer
from inlay.ops.metadata.publication import Found
from inlay.ops.publish.publish import is_current, publish
from inlay.ops.transaction import Part, commit_parts
from inlay.plan.change import Request
from inlay.record import replace


def commit_tables(contexts: Sequence[Context], requests: Sequence[CommitRequest]) -> None:
    """Commits all requests, or none. Raises what `commit_table` raises, and `InvalidRequest` for a table
    that the request would create."""
    if len(requests) == 1:
        with suppress(NotPublished):
            commit_table(contexts[0], requests[0])
        return
    for ctx, request in zip(contexts, requests, strict=True):
        if request.creates:
            raise InvalidRequest(
                "a commit over several tables creates none of them",
                next_step="Create the table by a commit of its own, and then write to all of them",
                table=ctx.uri,
            )
        if request.head is not None and request.head[0] != MAIN:
            raise InvalidRequest(
                f"a commit over several tables is of their main branches, not of {request.head[0][:80]!r}",
                next_step="Commit to the branch by itself",
                table=ctx.uri,
            )
    named = _name_of(requests)
    parts = [_part(ctx, request, named) for ctx, request in zip(contexts, requests, strict=True)]
    shown = [part.ctx.uri for part, seen in parts if seen is None]
    if shown and len(shown) < len(parts):
        raise InvalidRequest(
            f"{shown[0]} has its snapshot of this commit, and another table has not",
            next_step="Nothing was committed. Commit it under other ids of snapshots",
            table=shown[0],
        )
    with of_late_files():
        done = commit_parts([part for part, _ in parts], named)
    for (part, seen), result in zip(parts, done, strict=True):
        with suppress(NotPublished):  # the next load publishes it
            published_after(part.ctx, result.loaded, seen)


def _name_of(requests: Sequence[CommitRequest]) -> Request | None:
    """One name in the ledgers of all tables; None where a client gives none of theirs."""
    names = [name_of(request) for request in requests]
    texts = sorted(name.text for name in names if name is not None)
    if len(texts) < len(names):
        return None
    # As with one table: a key that is used again for something else is refused.
    keyed = [request for request in requests if request.snapshot_id is None]
    asked = json.dumps([[r.requirements, r.updates] for r in requests], sort_keys=True)
    return Request.named(" ".join(texts), asked if keyed else None)


def _part(ctx: Context, request: CommitRequest, named: Request | None) -> tuple[Part, Found | None]:
    """Of one table; without what is published of it where it has the commit already: by its ledger, or by
    what is shown when the ledger has forgotten it."""
    ctx = replace(ctx, branch=None, store=ReadOnce(ctx.store))
    for _ in range(MAX_ROUNDS):
        loaded = decided(ctx, load_pointer(ctx))
        ctx = replace(ctx, table_id=loaded.snapshot.table_id)
        loaded, before = already_applied(ctx, loaded, named)
        if before is not None:
            return Part(ctx, loaded), None
        refuse_open_erasure(loaded)
        published = published_now(ctx)
        if published is not None and published.is_of_an_engine(request.snapshot_id):
            return Part(ctx, loaded), None
        if published is None or not is_current(ctx, loaded.snapshot, published.found.publication):
            publish(ctx, base=loaded)
            continue
        change = planned(ctx, loaded, published.metadata, request)
        return Part(ctx, loaded, change), published.found
    raise ConcurrentChange("others keep committing to the table", table=ctx.uri)
