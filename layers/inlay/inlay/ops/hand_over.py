"""Hand over: the table goes on in another catalog, and Inlay keeps its hands off it.

Promise: what was published at the end is the table as it is, row by row, and nothing here changes or
deletes an object of it afterwards: writes, maintenance, erasures, collection and drop refuse by name
(`TableHandedOver`), whichever handle they come from, because the mark is in the snapshot and each commit
looks at it on the base that it swaps out (`plan.commit.apply.admit`). Reads go on, of what was handed over.

1. publish   the table as it is
2. mark      one commit, if no row or column changed since and no erasure is open: else from the beginning

An erasure here could not reach what the other catalog has written, so a table with one under way is not
handed over, and none begins: rows are erased where the table is kept. Libraries from before this mark would
go on writing; none was released.

The way back is a commit as well. What others wrote meanwhile is not in this table and would be garbage,
what they deleted would be missing: both refuse by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from inlay.errors import ConcurrentChange, InvalidRequest
from inlay.format.keys import ObjectKind, classify, is_committed_elsewhere, published_version
from inlay.format.properties import handed_over
from inlay.ops.commit.driver import Conflicted, commit, expect_committed
from inlay.ops.context import Context
from inlay.ops.erase.receipt import is_ours
from inlay.ops.maintain.expire import Roots, list_objects
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.metadata.publication import load_publication
from inlay.ops.publish.publish import publish
from inlay.plan.change import Change, HandOver, SameMain
from inlay.plan.maintain.roots import Listed
from inlay.record import Record, replace

# Others may commit between the publication and the mark.
MAX_ROUNDS = 8
HAND_OVER, TAKE_BACK = "hand_over", "take_back"
_SECOND_US = 1_000_000


class HandOverResult(Record, kw_only=True):
    """`metadata` is the file to register in the other catalog: `published` is its version. `version` is the
    table's with the mark."""

    version: int
    published: int
    metadata: str
    format: str


class TakeBackResult(Record, kw_only=True):
    """`others` objects were written by others meanwhile: nothing in this table names them."""

    version: int
    others: int = 0


def hand_over(ctx: Context) -> HandOverResult:
    """Publishes the table, and marks it. Again: the same answer. Raises `Unpublishable`, `InvalidRequest`
    for an open erasure, `ConcurrentChange` while others keep committing."""
    ctx = replace(ctx, branch=None)
    for _ in range(MAX_ROUNDS):
        loaded = load_pointer(ctx)
        if handed_over(loaded.snapshot.properties) is not None:
            return _result(ctx, loaded)
        if loaded.snapshot.erasures:
            raise InvalidRequest(
                f"an erasure of {ctx.uri} is under way, and could not reach what another catalog writes",
                next_step="Bring it to its end (inlay rewrite, inlay gc), then hand the table over",
                table=ctx.uri,
            )
        published = publish(ctx).version
        loaded = load_pointer(ctx)
        if loaded.snapshot.version != published:
            continue
        change = Change(
            operation=HAND_OVER,
            updates=(HandOver(published),),
            requires=(SameMain(loaded.snapshot.changed),),
        )
        outcome = commit(ctx, change, base=loaded)
        if not isinstance(outcome, Conflicted):
            return _result(ctx, outcome.loaded)
    raise ConcurrentChange(
        f"others still commit to {ctx.uri}",
        next_step="Stop the writers, then hand it over again",
        table=ctx.uri,
    )


def _result(ctx: Context, loaded: LoadedTable) -> HandOverResult:
    publication = load_publication(ctx).publication
    published = handed_over(loaded.snapshot.properties)
    if publication is None or published is None:
        raise InvalidRequest(
            f"{ctx.uri} was handed over, and what was published is gone", table=ctx.uri
        )
    return HandOverResult(
        version=loaded.snapshot.version,
        published=published,
        metadata=publication.location,
        format=f"v{publication.format_version}",
    )


def take_back(ctx: Context, *, discard: bool = False) -> TakeBackResult:
    """The mark goes. Raises `InvalidRequest` for a table that was not handed over, for one whose objects
    others have deleted and, unless `discard`, for one under whose root others have written."""
    ctx = replace(ctx, branch=None)
    loaded = with_entries(ctx, load_pointer(ctx))
    if handed_over(loaded.snapshot.properties) is None:
        raise InvalidRequest(f"{ctx.uri} was not handed over", table=ctx.uri)
    listed = list(list_objects(ctx))
    missing = sorted(_needed(loaded) - {item.key for item in listed})
    if missing:
        raise InvalidRequest(
            f"{len(missing)} objects of the table are gone, {missing[0]} for one: the other catalog's "
            "maintenance has deleted them",
            next_step="Make a table elsewhere of its newest metadata: `inlay adopt --copy`",
            table=ctx.uri,
        )
    others = list(_of_others(ctx, loaded, listed))
    if others and not discard:
        raise InvalidRequest(
            f"{len(others)} objects were written here since the table was handed over, {others[0]} for "
            "one: rows of the other catalog that this table does not have, and would collect as garbage",
            next_step="Make a table elsewhere of that catalog's newest metadata (`inlay adopt --copy`), or "
            "give them up: `inlay hand-over --take-back --discard`",
            table=ctx.uri,
        )
    change = Change(operation=TAKE_BACK, updates=(HandOver(None),))
    done = expect_committed(ctx, commit(ctx, change, base=loaded))
    return TakeBackResult(version=done.loaded.snapshot.version, others=len(others))


def _needed(loaded: LoadedTable) -> set[str]:
    """Objects of main's rows and deletes, but for files of others that were adopted."""
    files = {file.key for file in loaded.state.files() if not file.adopted}
    return files | {key for m in loaded.state.markers() if (key := m.object_key)}


def _of_others(ctx: Context, loaded: LoadedTable, listed: list[Listed]) -> Iterator[str]:
    """What came after the mark, the last commit, and that neither the table nor what is published names:
    this library's own names are those of writers whose commit the mark has refused."""
    marked_us = loaded.snapshot.commit.time_us
    published = handed_over(loaded.snapshot.properties) or 0
    roots = Roots(ctx, marked_us)
    roots.add(loaded.state)
    for item in listed:
        is_young = item.modified_us + _SECOND_US > marked_us
        is_own = _is_named_by_us(classify(item.key)) or is_ours(item.key)
        is_own = is_own or item.key.startswith("metadata/inlay-")
        # A publication of just before; a commit by path takes a number after the newest.
        is_own = is_own or (published_version(item.key) or published + 1) <= published
        if is_committed_elsewhere(item.key) or (
            is_young and not is_own and item.key not in roots.needed
        ):
            yield item.key


def _is_named_by_us(kind: ObjectKind) -> bool:
    """Whether only this library writes such objects, at names that it gives. The memory of change streams
    is a table of Inlay's beside this one: its newest commit may be of the second of the mark."""
    match kind:
        case (
            ObjectKind.POINTER
            | ObjectKind.ARCHIVE
            | ObjectKind.SEGMENT
            | ObjectKind.RECEIPT
            | ObjectKind.DECISION
            | ObjectKind.MEMORY
        ):
            return True
        # Engines write their rows, deletes and manifests at such names as well.
        case ObjectKind.DATA | ObjectKind.TOMBSTONE | ObjectKind.PUBLISHED | ObjectKind.UNKNOWN:
            return False
        case unreachable:
            assert_never(unreachable)
