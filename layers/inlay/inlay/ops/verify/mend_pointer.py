"""Repair of the pointer, and of archives, from what the bucket has of them.

What an archive cannot restore: the archive of N is written before the swap to N+1. When the pointer is lost
and the newest archive is N, the table was at N or at N+1, and the changes of N+1 existed only in the
pointer. Its writer had the answer that it is committed; the rebuilt table does not have it.

Where the pointer is lost, and the newest archive does not go on from those below it (a late writer of a
table that was removed has left it), nothing says which table was lost: `ForeignArchives`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from inlay.errors import (
    ConcurrentChange,
    CorruptTable,
    ForeignArchives,
    KeyTaken,
    OutcomeUnknown,
    StoreUnavailable,
    TableNotFound,
)
from inlay.format import keys
from inlay.format.codec import decode_snapshot, encode_snapshot
from inlay.format.keys import archive_key, archive_version
from inlay.format.snapshot import Snapshot, thin_time_index, with_open_times
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, frame_of, schemas_of
from inlay.ops.verify.table import (
    BrokenPointer,
    Verified,
    archived_versions,
    check_archive,
    read_pointer,
    verify,
)
from inlay.plan.change import Change, ExpireAll, MoveBoundary, Proposal, Update
from inlay.plan.commit.apply import seal
from inlay.plan.commit.draft import Draft
from inlay.plan.metadata.state import State
from inlay.plan.verify import MENDABLE, REPAIR, Finding, Mend
from inlay.record import Record, replace
from inlay.storage.base import Got

if TYPE_CHECKING:
    from inlay.format.transaction import Transaction

# Object versions of one key that are read, newest first: a GET each.
MAX_OBJECT_VERSIONS = 1_000
_VERSION = re.compile(rb'"version":(\d{1,18})[,}]')


class _WholeState(Record):
    """A state that the pointer can be rebuilt on, and the bytes it was read from."""

    snapshot: Snapshot
    raw: bytes
    is_archive: bool
    open_for: Transaction | None = None  # undecided


def newest_state(ctx: Context, broken: BrokenPointer) -> _WholeState | None:
    """The newest whole state; None when it cannot be determined."""
    newest = broken.newest_archive
    kept = _kept_pointers(ctx)
    last = next(kept, None)
    if newest is None or (last is not None and last.snapshot.version > newest):
        return last
    if last is not None and last.snapshot.version == newest:
        source = last
    else:
        state = _archive(ctx, newest)
        if state is None or state.snapshot.version != newest:
            # An older archive would lose what was certainly committed.
            return None
        if last is not None and last.snapshot.table_id != state.snapshot.table_id:
            return None
        _check_one_table(ctx, state.snapshot)
        source = state
    # If the pointer went back before it was lost, what it was then may be kept, too.
    return next((s for s in kept if _is_beyond(s.snapshot, source.snapshot)), source)


def _archive(ctx: Context, version: int) -> _WholeState | None:
    """What is whole under the name of the archive of `version`."""
    key = archive_key(version)
    answer = ctx.get(key)
    with suppress(CorruptTable):
        if answer is not None:
            snapshot = decode_snapshot(answer.body, key=key, apart=schemas_of(ctx))
            return _WholeState(snapshot, answer.body, is_archive=True)
    return None


def _check_one_table(ctx: Context, newest: Snapshot) -> None:
    """Raises `ForeignArchives` unless the newest archive goes on from those below it, a GET each: a writer
    that stalled while its table was removed may have left it beside the archives of another."""
    foreign: int | None = None  # a version whose archive is another table's
    # It names none below it, or one of them is there.
    goes_on = newest.version == newest.oldest_version
    for version in archived_versions(ctx):
        archive = _archive(ctx, version) if version < newest.version else None
        if archive is None:
            continue  # damage of one version is not another table
        below, is_named = archive.snapshot, version >= newest.oldest_version
        if below.table_id == newest.table_id:
            goes_on = goes_on or is_named
        # What the newest no longer names may be of another history, which a repair has passed.
        elif is_named or below.commit.time_us >= newest.commit.time_us:
            foreign = version
    if foreign is not None:
        why = f"the archive of version {foreign} is another table's"
    elif not goes_on:
        why = f"of the versions that it names, from {newest.oldest_version} on, none is there"
    else:
        return
    key = archive_key(newest.version)
    raise ForeignArchives(
        f"the pointer of {ctx.uri} is lost, and the newest archive, {key}, may not be of it: {why}",
        next_step="If a writer of a table that was removed has left it, delete it and repair again; if it "
        f"is what was lost, copy it to {ctx.key(keys.POINTER)}",
        table=ctx.uri,
        key=ctx.key(key),
        version=newest.version,
    )


def _kept_pointers(ctx: Context) -> Iterator[_WholeState]:
    """Whole versions of the pointer object, the newest first."""
    for body in _object_versions(ctx, keys.POINTER):
        with suppress(CorruptTable):
            raw, transaction, committed = frame_of(ctx, body)
            snapshot = decode_snapshot(raw, key=keys.POINTER, apart=schemas_of(ctx))
            open_for = transaction if committed is None else None
            yield _WholeState(snapshot, raw, is_archive=False, open_for=open_for)


def _object_versions(ctx: Context, relative: str) -> Iterator[bytes]:
    """The object versions of one key in the bucket, newest first; without versioning, the current
    object."""
    key = ctx.key(relative)
    looked = 0
    for version in ctx.store.list_versions(key):
        if version.key != key or version.marker:
            continue
        looked += 1
        if looked > MAX_OBJECT_VERSIONS:
            return
        answer = ctx.store.get(key, version_id=version.version_id)
        if isinstance(answer, Got):
            yield answer.body


def pointer_mend(broken: BrokenPointer, source: _WholeState) -> Mend:
    version, lost = source.snapshot.version, None
    where = "the newest archive" if source.is_archive else "the newest whole object version of it"
    shown = legible_version(broken.raw)
    if source.is_archive and shown != version:
        sure = f"the damaged pointer shows version {shown}" if shown else "if there was one"
        lost = (
            f"version {version + 1}, {sure}: its changes were in the pointer alone. Have its writer send "
            "them again; files it uploaded are orphans until garbage collection deletes them"
        )
    return Mend(
        kind="pointer_missing" if broken.etag is None else "pointer_corrupt",
        key=keys.POINTER,
        what=f"rebuild the pointer on version {version}, from {where}, as version {version + 1}",
        lost=lost,
    )


def legible_version(raw: bytes) -> int | None:
    """The version that damaged bytes still show: for people, never to be relied on."""
    plain = raw
    if raw[:2] == b"\x1f\x8b":
        with suppress(zlib.error):
            plain = zlib.decompressobj(wbits=31).decompress(raw, 1 << 20)
    match = _VERSION.search(plain)
    return int(match.group(1)) if match else None


def rebuild(
    ctx: Context,
    pointer: BrokenPointer | LoadedTable,
    source: _WholeState,
    *,
    beyond: int | None = None,
) -> None:
    """Makes a commit on `source` the pointer, in place of exactly what was read. With `beyond` its number
    is the next after that, and nothing older can be opened."""
    if read_pointer(ctx).etag != pointer.etag:
        # What was found may be of commits made since. An archive left for a swap that loses would stop
        # everybody.
        raise _changed(ctx, ctx.key(keys.POINTER))
    if source.open_for is not None:
        from inlay.ops.metadata.decision import decide

        if decide(ctx, source.open_for, committed=False) is None:
            raise _changed(ctx, ctx.key(keys.POINTER))  # it was committed: that is what was lost
    base = with_open_times(source.snapshot, pointer.date_us)
    updates: tuple[Update, ...] = (MoveBoundary(None),)
    if beyond is not None:
        base = replace(base, version=beyond)
        updates += (ExpireAll(),)
    elif not source.is_archive:
        _put(ctx, archive_key(base.version), source.raw, None)
    change = Change(operation=REPAIR, updates=updates)
    commit_id = ctx.new_id()
    draft = Draft(State(base), change, (), (), commit_id, "").build()
    assert draft is not None  # moving the boundary always makes a draft
    snapshot = seal(Proposal(draft, ()), date_us=pointer.date_us, previous_us=base.commit.time_us)
    body = encode_snapshot(snapshot)
    # The archive first: if only the pointer were written, a writer stalled since before the damage could
    # put the lost version of this number beside it. If it has done so by now, this repair fails, and the
    # next one continues from what that writer has saved.
    _put(ctx, archive_key(snapshot.version), body, None)
    _put(ctx, keys.POINTER, body, pointer.etag)


def mend_history(
    ctx: Context, pointer: LoadedTable, beyond: Sequence[int], *, dry_run: bool
) -> Mend | None:
    """Go on from the newest archive that follows on the pointer, or from the pointer where none does; past
    the numbers that archives of other histories have. `beyond` are the archives of its version and later
    ones, the newest first. None when there is no sign that the pointer went back, or an archive that may
    follow is broken."""
    now, newest = pointer.snapshot, beyond[0]
    if newest > now.version and read_pointer(ctx).etag != pointer.etag:
        return None  # who committed since has archived what was read
    source: _WholeState | None = None
    for version in beyond:  # the newest first, a GET each
        archive = _archive(ctx, version)
        if archive is None:
            return None  # its table is unknown
        if archive.raw == pointer.raw:
            if version == newest:
                # What stood in the pointer alone is nowhere else: only the bucket may have kept it.
                overwritten = next(islice(_kept_pointers(ctx), 1, 2), None)
                if overwritten is None or not _is_beyond(overwritten.snapshot, now):
                    return None
                return _go_on(ctx, pointer, overwritten, dry_run=dry_run)
            break
        if archive.snapshot.version != version:
            if newest == now.version:
                return None  # no such version: the pointer's bytes take its place
        elif _is_beyond(archive.snapshot, now) and _follows(ctx, pointer, archive.snapshot):
            source = archive
            break
    if source is None:
        source = _WholeState(now, pointer.raw, is_archive=False)
    elif source.snapshot.version == newest:
        kept = (s for s in _kept_pointers(ctx) if _is_beyond(s.snapshot, source.snapshot))
        return _go_on(ctx, pointer, next(kept, source), dry_run=dry_run)
    if not dry_run:
        rebuild(ctx, pointer, source, beyond=newest)
    return Mend(
        kind="pointer_behind",
        key=keys.POINTER,
        what=f"continue from version {source.snapshot.version}: archives up to {newest} are of another "
        f"history, as version {newest + 1}",
        lost="no older version can be opened any more",
    )


def _go_on(ctx: Context, pointer: LoadedTable, source: _WholeState, *, dry_run: bool) -> Mend:
    """Mend a pointer that went back, from a version that it had been."""
    now, version = pointer.snapshot, source.snapshot.version
    lost = f"the changes after version {now.version} are back; restore it if they are not wanted"
    if source.is_archive:
        lost += (
            f". Version {version + 1}, if there was one, was in the pointer alone: have its writer "
            "send it again"
        )
    if not dry_run:
        rebuild(ctx, pointer, source)
    what = f"continue from version {version}, of which the pointer went back to {now.version}"
    return Mend(
        kind="pointer_behind",
        key=keys.POINTER,
        what=f"{what}, as version {version + 1}",
        lost=lost,
    )


def _is_beyond(snapshot: Snapshot, of: Snapshot) -> bool:
    return snapshot.table_id == of.table_id and snapshot.version > of.version


def _follows(ctx: Context, pointer: LoadedTable, newest: Snapshot) -> bool:
    """Whether the history of `newest` leads through the pointer's version: by the archive of that version
    if there is one, and by the times of versions. It must know each that the pointer knows and that is
    kept for so long: a repair that passed over numbers, and then lost its swap to commits below those, has
    left an archive that knows nothing of them."""
    now = pointer.snapshot
    own = ctx.get(archive_key(now.version))
    if own is not None and own.body != pointer.raw:
        return False
    times = dict(newest.time_index)
    known = thin_time_index(now.time_index, newest.version)
    is_later = newest.commit.time_us > now.commit.time_us
    return is_later and all(times.get(v) == us for v, us in known)


def mend_archives(
    ctx: Context, pointer: LoadedTable, seen: Verified, *, dry_run: bool
) -> Iterator[Mend]:
    kept: dict[int, bytes] | None = None
    for finding in seen.findings:
        version = archive_version(finding.key or "")
        if finding.kind not in MENDABLE or finding.key is None or version is None:
            continue
        is_it = partial(_is_archive, ctx, pointer, version)
        if version == pointer.snapshot.version:
            body: bytes | None = pointer.raw
        else:
            body = next(filter(is_it, _object_versions(ctx, finding.key)), None)
        if body is None:
            if kept is None:
                kept = {s.snapshot.version: s.raw for s in reversed(list(_kept_pointers(ctx)))}
            body = kept.get(version)
            if body is None or not is_it(body):
                continue
        if not dry_run:
            answer = ctx.get(finding.key)
            _put(ctx, finding.key, body, None if answer is None else answer.etag)
        yield Mend(
            kind=finding.kind, key=finding.key, what=f"write the archive of version {version}"
        )


def _is_archive(ctx: Context, pointer: LoadedTable, version: int, body: bytes) -> bool:
    return isinstance(check_archive(ctx, body, version, pointer.snapshot.table_id), Snapshot)


def _put(ctx: Context, relative: str, body: bytes, etag: str | None) -> None:
    """Write over exactly what was looked at (None: nothing was there); whatever the answer but success,
    a look shows whether it landed."""
    key = ctx.key(relative)
    try:
        ctx.write_once(relative, body, over=etag)
    except KeyTaken as error:
        raise _changed(ctx, key) from error
    except StoreUnavailable as error:
        raise OutcomeUnknown(
            f"{key} could not be written: no try was answered", table=ctx.uri, key=key
        ) from error


def _changed(ctx: Context, key: str) -> ConcurrentChange:
    return ConcurrentChange(
        f"{key} changed while it was being repaired",
        next_step="Run `inlay verify` again and check what changed",
        table=ctx.uri,
        key=key,
    )


def refused_pointer(ctx: Context, broken: BrokenPointer) -> tuple[Finding, ...]:
    """Why nothing can be made of it. Raises `TableNotFound` where there is no sign of a table."""
    if broken.etag is None and broken.newest_archive is None:
        raise TableNotFound(f"there is no table at {ctx.uri}", table=ctx.uri)
    seen = verify(ctx, depth="metadata")
    advice = (
        "There is no whole archive or object version to rebuild it from: restore one from a backup"
    )
    return tuple(replace(f, next_step=advice) for f in seen.findings)
