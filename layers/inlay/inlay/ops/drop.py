"""Drop: the end of a table, in two steps with a grace between them.

Promise: the first step removes only the pointer, so that nobody can open the table; until the grace has
passed `inlay repair` brings the table back as it was. The second step, the same call again, deletes every
object of the table, all their versions and unfinished uploads. A legal hold or an open erasure refuses.
Receipts of erasures stay, for they are proof, and so does every object that is not of the format, and files
that were adopted in place: they are somebody else's. So does the decision of a transaction that another
table may still need.

Writers should have stopped: one that commits between the last look at the pointer and its removal loses its
commit. A table that somebody creates at the place meanwhile is not deleted with the dropped one.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlay.errors import (
    ConcurrentChange,
    InvalidRequest,
    RefHeld,
    StoreUnavailable,
    TableNotFound,
    TableReplaced,
)
from inlay.format import keys
from inlay.format.keys import ObjectKind, classify
from inlay.ops.commit.driver import decided
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_again, load_pointer
from inlay.ops.metadata.needed_decisions import needed_decisions
from inlay.plan.change import Request
from inlay.record import Record
from inlay.storage.base import Got, Head, ObjectInfo

# Beside the format: when the table was dropped is when this object was written.
DROPPED = "_dropped"
_TEXT = b"This table was dropped; see inlay drop --help.\n"
GRACE_SECONDS = 7 * 86_400.0
_BATCH = 1_000
_KEPT = (ObjectKind.RECEIPT, ObjectKind.UNKNOWN)


class Dropped(Record, kw_only=True):
    """What a drop did, or (`dry_run`) would do. `objects` and `bytes` are what the table has; they are
    `deleted`, or will be by a call after `due_us` (microseconds since 1970, the store's clock). `kept`
    objects stay: receipts and what is not the table's."""

    table: str
    deleted: bool
    due_us: int
    objects: int
    bytes: int
    kept: tuple[str, ...] = ()
    dry_run: bool = False


def drop(
    ctx: Context,
    *,
    grace_seconds: float = GRACE_SECONDS,
    dry_run: bool = False,
    request: Request | None = None,
) -> Dropped:
    """Drop the table, or end one that was dropped before. `request` names the drop (`was_dropped`). Raises
    `TableNotFound`, `RefHeld`, `InvalidRequest` for an open erasure, `ConcurrentChange` while others
    commit, `TableReplaced` when one was created here meanwhile, `StoreUnavailable` where objects were not
    deleted: drop again."""
    marker = ctx.store.head(ctx.key(DROPPED))
    pointer = ctx.store.head(ctx.key(keys.POINTER))
    if isinstance(pointer, Head):
        loaded = load_pointer(ctx) if dry_run else decided(ctx, load_pointer(ctx))
        loaded.refuse_handed_over(ctx)
        _refuse_holds(ctx, loaded)
        since_us = loaded.date_us
        if not dry_run:
            since_us = _hide(ctx, loaded, request, renew=isinstance(marker, Head))
    elif isinstance(marker, Head):
        since_us = marker.info.modified_us
    else:
        raise TableNotFound(f"no table at {ctx.uri}", table=ctx.uri)
    due_us = since_us + round(grace_seconds * 1_000_000)
    ours, kept = _objects(ctx)
    over = due_us <= pointer.date_us or grace_seconds == 0
    dropped = Dropped(
        table=ctx.uri,
        deleted=over and not dry_run,
        due_us=due_us,
        objects=len(ours),
        bytes=sum(info.size for info in ours),
        kept=tuple(info.key for info in kept),
        dry_run=dry_run,
    )
    if dropped.deleted:
        _delete(ctx, {info.key for info in kept})
    return dropped


def _refuse_holds(ctx: Context, loaded: LoadedTable) -> None:
    for name in sorted(name for name, ref in loaded.snapshot.refs.items() if ref.hold):
        raise RefHeld(
            f"the legal hold {name!r} keeps a version of {ctx.uri}",
            next_step="Lift the hold first: `inlay tag TABLE NAME --release`, t.refs.set_hold(name, False)",
            table=ctx.uri,
        )
    if loaded.snapshot.erasures:
        raise InvalidRequest(
            f"an erasure of {ctx.uri} is under way, and has no receipt yet",
            next_step="Bring it to its end (inlay rewrite, inlay gc), then drop the table",
            table=ctx.uri,
        )


def was_dropped(ctx: Context, request: Request) -> bool:
    """Whether the last drop here was this request, and was done: one that died before is not. One or two
    GETs."""
    answer = ctx.store.get(ctx.key(DROPPED))
    name = f"{request.token} ".encode()
    text = answer.body.removeprefix(_TEXT) if isinstance(answer, Got) else b""
    if not text.startswith(name):
        return False
    try:
        return load_pointer(ctx).pointer.commit.id.encode() != text.removeprefix(name)
    except TableNotFound:
        return True


def _hide(ctx: Context, loaded: LoadedTable, request: Request | None, *, renew: bool) -> int:
    """Say so, and whose request it was, of which version; archive the newest version, so that it can be
    repaired; take the pointer away."""
    if renew:  # of a drop that was taken back: the grace begins now
        ctx.store.delete([ctx.key(DROPPED)])
    named = "" if request is None else f"{request.token} {loaded.pointer.commit.id}"
    written = ctx.write_once(DROPPED, _TEXT + named.encode())
    ctx.write_once(keys.archive_key(loaded.pointer.version), loaded.raw)
    if load_again(ctx, loaded).etag != loaded.etag:
        raise ConcurrentChange(
            f"others still commit to {ctx.uri}",
            next_step="Stop the writers, then drop it again",
            table=ctx.uri,
        )
    _checked(ctx, ctx.store.delete([ctx.key(keys.POINTER)]))
    return written.date_us


def _objects(ctx: Context) -> tuple[list[ObjectInfo], list[ObjectInfo]]:
    """The table's objects, and those under its prefix that stay."""
    ours: list[ObjectInfo] = []
    kept: list[ObjectInfo] = []
    decisions: dict[str, ObjectInfo] = {}
    for info in ctx.store.list(ctx.key("")):
        relative = ctx.relative(info.key)
        kind = classify(relative)
        if kind is ObjectKind.DECISION:
            decisions[relative] = info
        else:
            (kept if relative != DROPPED and kind in _KEPT else ours).append(info)
    # Other tables may be prepared for what it decides.
    needed = frozenset(needed_decisions(ctx, list(decisions), dropped=True))
    for relative, info in decisions.items():
        (kept if relative in needed else ours).append(info)
    return ours, kept


def _delete(ctx: Context, kept: set[str]) -> None:
    root = ctx.key("")
    for upload in ctx.store.list_uploads(root):
        ctx.store.abort_multipart(upload.key, upload.upload_id)
    marker = ctx.key(DROPPED)
    gone = ((v.key, v.version_id) for v in ctx.store.list_versions(root) if v.key not in kept)
    # The marker last: as long as something is left, the same call goes on.
    last: list[tuple[str, str]] = []
    for batch in _batches(gone):
        if isinstance(ctx.store.head(ctx.key(keys.POINTER)), Head):
            raise TableReplaced(f"another table was created at {ctx.uri}", table=ctx.uri)
        last += [version for version in batch if version[0] == marker]
        _checked(
            ctx, ctx.store.delete_versions([version for version in batch if version[0] != marker])
        )
    _checked(ctx, ctx.store.delete_versions(last))


def _batches(items: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    batch: list[tuple[str, str]] = []
    for item in items:
        batch.append(item)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch


def _checked(ctx: Context, failures: object) -> None:
    if failures:
        raise StoreUnavailable(
            f"objects of {ctx.uri} could not be deleted", next_step="Drop it again", table=ctx.uri
        )
