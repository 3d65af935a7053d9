"""Repair: repairs what can be repaired without guessing, and explains why not otherwise.

Promise: nothing is deleted and no sound object is overwritten. Every write is conditional on the damage
that was read, so a repair that races a writer or another repair loses. A dry run, which is the default,
writes nothing and reports what would be done.

What can be repaired

pointer    from the newest whole version of it that the bucket keeps, or one before that which is beyond
           the newest archive; without those from that archive. The rebuilt pointer is a commit of its own
           on top of that state, not the old bytes again: a writer that stalled before the damage must not
           find its ETag. It moves the GC boundary to now: what the lost commits knew of deleted objects
           is gone. It is archived before it is written: its number may have been that of a lost version,
           and a writer that stalled since then would store the archive of that.
history    a pointer that went back (archives beyond it follow on it) goes on from the newest of them. Where
           archives beyond it are of another history (a table that was here before, or commits on a pointer
           that had gone back), the pointer's own number included, the table skips their numbers: it keeps
           what it holds and what follows on that, and no older version can be opened any more
archives   of the current version from the pointer, over what is no snapshot of that version; of older ones
           from the object versions that the bucket keeps of the archive or of the pointer
totals     counted again, and markers of files that are not live dropped, by an ordinary commit

What an archive cannot restore: the archive of N is written before the swap to N+1. When the pointer is lost
and the newest archive is N, the table was at N or at N+1, and the changes of N+1 existed only in the
pointer. Its writer had the answer that it is committed; the rebuilt table does not have it.

Where the pointer is lost, and the newest archive does not go on from those below it (a late writer of a
table that was removed has left it), nothing says which table was lost: `ForeignArchives`.
"""

from __future__ import annotations

import re
import shlex
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote

from inlay.errors import (
    ConcurrentChange,
    CorruptTable,
    ForeignArchives,
    InlayError,
    KeyTaken,
    OutcomeUnknown,
    StoreUnavailable,
    TableNotFound,
)
from inlay.format import keys
from inlay.format.codec import decode_snapshot, encode_snapshot
from inlay.format.keys import archive_key, archive_version
from inlay.format.snapshot import Snapshot, thin_time_index, with_open_times
from inlay.ops.commit.driver import commit, decided, expect_committed
from inlay.ops.context import Context
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, frame_of, load_pointer, schemas_of
from inlay.ops.verify.table import (
    BrokenPointer,
    Verified,
    archived_versions,
    check_archive,
    read_pointer,
    verify,
)
from inlay.plan.change import (
    Change,
    DropMarkers,
    ExpireAll,
    MoveBoundary,
    Proposal,
    RecountTotals,
    Update,
)
from inlay.plan.commit.apply import seal
from inlay.plan.commit.draft import Draft
from inlay.plan.metadata.state import State
from inlay.plan.verify import Finding, Severity, check_state
from inlay.storage.base import Got, ObjectVersion

if TYPE_CHECKING:
    from inlay.format.transaction import Transaction

REPAIR = "repair"
# Object versions of one key that are read, newest first: a GET each.
MAX_OBJECT_VERSIONS = 1_000

# Findings whose object is looked for among the versions that the bucket keeps, one request each.
MAX_ADVISED = 100

_OF_OBJECTS = frozenset(
    f"{what}_{how}"
    for what in ("segment", "file", "marker")
    for how in ("missing", "corrupt", "changed", "unreadable", "contradicts")
)
_OF_ARCHIVES = frozenset({"archive_missing", "archive_corrupt"})
_NO_ARCHIVE = (
    "The bucket keeps no whole version of it: restore it from a backup, or expire the versions up to it "
    "(`inlay expire`)"
)
_MENDABLE = ("archive_missing", "archive_corrupt", "archive_differs")
_COUNTS = ("totals_wrong", "dangling_marker")
_VERSION = re.compile(rb'"version":(\d{1,18})[,}]')


@dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """One repair that was made, or in a dry run would be. `lost` is what cannot be restored."""

    kind: str
    key: str
    what: str
    lost: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """`refused` are the errors and warnings that were not repaired. `version` is the table's afterwards; 0
    while there is no pointer."""

    version: int
    dry_run: bool
    mends: tuple[Mend, ...] = ()
    refused: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(f.severity is Severity.ERROR for f in self.refused)


def repair(ctx: Context, *, dry_run: bool = True) -> Repaired:
    """Repairs the table at `ctx`, or reports what would be done.

    Raises `TableNotFound` where there is neither pointer nor archive, `NewerFormat`, `ForeignArchives`
    where a lost pointer may have been of either of two tables, `ConcurrentChange` when something else
    changed what was to be repaired.
    """
    mends: list[Mend] = []
    read = read_pointer(ctx)
    if isinstance(read, BrokenPointer):
        source = _newest_state(ctx, read)
        if source is None:
            return _refuse_pointer(ctx, read, dry_run)
        mends.append(_pointer_mend(read, source))
        if dry_run:
            return Repaired(version=0, dry_run=True, mends=tuple(mends))
        _rebuild(ctx, read, source)
        read = _mended_pointer(ctx)
    if read.open_for is not None:
        ended = _end_transaction(ctx, read.open_for, read.snapshot.version, dry_run=dry_run)
        if ended is not None:
            return replace(ended, mends=(*mends, *ended.mends))
    behind = _mend_history(ctx, read, dry_run=dry_run)
    if behind is not None:
        mends.append(behind)
        read = _mended_pointer(ctx)
    seen = verify(ctx, depth="metadata")
    if behind is not None and dry_run:
        # Further findings depend on the history that the table continues with.
        mendable = ("pointer_behind", *_MENDABLE)
        return Repaired(
            version=seen.version,
            dry_run=True,
            mends=tuple(mends),
            refused=tuple(
                f for f in seen.findings if f.severity is Severity.ERROR and f.kind not in mendable
            ),
        )
    mended = list(_mend_archives(ctx, read, seen, dry_run=dry_run))
    mends += mended
    mends += _mend_counts(ctx, seen, dry_run=dry_run)
    if mends and not dry_run:
        seen = verify(ctx, depth="metadata")
        mended = []
    done = {m.key for m in mended}
    refused = tuple(
        f
        for f in seen.findings
        if f.severity is not Severity.NOTE
        and f.kind not in _COUNTS
        and not (f.kind in _MENDABLE and f.key in done)
    )
    return Repaired(
        version=seen.version,
        dry_run=dry_run,
        mends=tuple(mends),
        refused=tuple(_advised(ctx, refused)),
    )


def _end_transaction(
    ctx: Context, transaction: Transaction, version: int, *, dry_run: bool
) -> Repaired | None:
    """The repair of a table at `version` that is prepared for a transaction, which ends first; None for a
    dry run where its decision is not lost."""
    from inlay.ops.metadata.decision import decide
    from inlay.ops.metadata.lost_decision import gone_on

    lost = gone_on(ctx, transaction)
    if lost is None:
        if dry_run:
            return None
        decided(ctx, load_pointer(ctx))
        return repair(ctx, dry_run=False)
    what = f"written again as committed, as {lost.uri} shows"
    mend = Mend(kind="decision_missing", key=transaction.decision, what=what)
    if dry_run:
        return Repaired(version=version, dry_run=True, mends=(mend,))
    decide(ctx, transaction, committed=True)
    rest = repair(ctx, dry_run=False)
    return replace(rest, mends=(mend, *rest.mends))


def _mended_pointer(ctx: Context) -> LoadedTable:
    read = read_pointer(ctx)
    if isinstance(read, BrokenPointer):
        raise ConcurrentChange(f"the pointer of {ctx.uri} was damaged again", table=ctx.uri)
    return read


def _advised(ctx: Context, refused: Iterable[Finding]) -> Iterator[Finding]:
    """The findings with the next step that the bucket allows: which earlier version it keeps of an object
    that is lost or damaged. Whether that is the right one is not for a repair to say."""
    looked_up = 0
    for finding in refused:
        if finding.key is None or "://" in finding.key or looked_up == MAX_ADVISED:
            yield finding
        elif finding.kind in _OF_ARCHIVES:
            yield replace(finding, next_step=_NO_ARCHIVE)
        elif finding.kind in _OF_OBJECTS:
            looked_up += 1
            kept = _earlier_version(ctx, finding.key)
            yield finding if kept is None else replace(finding, next_step=_bring_back(ctx, kept))
        else:
            yield finding


def _earlier_version(ctx: Context, relative: str) -> ObjectVersion | None:
    """The newest that is not current; None where there is none, or it may not be asked for."""
    key = ctx.key(relative)
    with suppress(InlayError):
        versions = (v for v in ctx.store.list_versions(key) if v.key == key)
        return next((v for v in versions if not (v.marker or v.is_latest)), None)
    return None


def _bring_back(ctx: Context, kept: ObjectVersion) -> str:
    how = "make it the current one"
    if ctx.store.scheme == "s3":
        bucket, source = ctx.store.bucket, quote(kept.key)
        how += (
            f" (aws s3api copy-object --bucket {bucket} --key {shlex.quote(kept.key)} --copy-source "
            f"{shlex.quote(f'{bucket}/{source}?versionId={kept.version_id}')})"
        )
    return (
        f"The bucket keeps an earlier version of it, {kept.version_id}, of {kept.size:,} bytes: {how}, and "
        "verify again"
    )


@dataclass(frozen=True, slots=True)
class _WholeState:
    """A state that the pointer can be rebuilt on, and the bytes it was read from."""

    snapshot: Snapshot
    raw: bytes
    is_archive: bool
    open_for: Transaction | None = None  # undecided


def _newest_state(ctx: Context, broken: BrokenPointer) -> _WholeState | None:
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


def _pointer_mend(broken: BrokenPointer, source: _WholeState) -> Mend:
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


def _rebuild(
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


def _mend_history(ctx: Context, pointer: LoadedTable, *, dry_run: bool) -> Mend | None:
    """Go on from the newest archive that follows on the pointer, or from the pointer where none does; past
    the numbers that archives of other histories have. None when there is no sign that the pointer went
    back, or an archive that may follow is broken."""
    now = pointer.snapshot
    beyond = [v for v in reversed(archived_versions(ctx)) if v >= now.version]
    if not beyond:
        return None
    newest = beyond[0]
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
        _rebuild(ctx, pointer, source, beyond=newest)
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
        _rebuild(ctx, pointer, source)
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


def _refuse_pointer(ctx: Context, broken: BrokenPointer, dry_run: bool) -> Repaired:
    if broken.etag is None and broken.newest_archive is None:
        raise TableNotFound(f"there is no table at {ctx.uri}", table=ctx.uri)
    seen = verify(ctx, depth="metadata")
    advice = (
        "There is no whole archive or object version to rebuild it from: restore one from a backup"
    )
    return Repaired(
        version=0,
        dry_run=dry_run,
        refused=tuple(replace(f, next_step=advice) for f in seen.findings),
    )


def _mend_archives(
    ctx: Context, pointer: LoadedTable, seen: Verified, *, dry_run: bool
) -> Iterator[Mend]:
    kept: dict[int, bytes] | None = None
    for finding in seen.findings:
        version = archive_version(finding.key or "")
        if finding.kind not in _MENDABLE or finding.key is None or version is None:
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


def _mend_counts(ctx: Context, seen: Verified, *, dry_run: bool) -> list[Mend]:
    """Of main, and of each branch or tag with content of its own."""
    if not any(f.kind in _COUNTS for f in seen.findings):
        return []
    main = load_pointer(ctx)
    written = (name for name, ref in main.snapshot.refs.items() if ref.head is not None)
    mends: list[Mend] = []
    for branch in (None, *sorted(written)):
        mends += _mend_content(replace(ctx, branch=branch), dry_run=dry_run)
    return mends


def _mend_content(ctx: Context, *, dry_run: bool) -> Iterator[Mend]:
    loaded = with_entries(ctx, load_pointer(ctx))
    state = loaded.state
    kinds = {f.kind for f in check_state(state)}
    if not kinds.intersection(_COUNTS):
        return
    live = {f.key for f in state.files()}
    dangling = tuple(m.id for m in state.markers() if m.file is not None and m.file not in live)
    if not dry_run:
        change = Change(operation=REPAIR, updates=(DropMarkers(dangling), RecountTotals()))
        expect_committed(ctx, commit(ctx, change, base=loaded))
    of = "" if ctx.branch is None else f" of {ctx.branch}"
    if "totals_wrong" in kinds:
        yield Mend(kind="totals_wrong", key=keys.POINTER, what=f"count the totals{of} again")
    if dangling:
        what = f"drop {len(dangling)} markers{of} of files that are not live"
        yield Mend(kind="dangling_marker", key=keys.POINTER, what=what)


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
