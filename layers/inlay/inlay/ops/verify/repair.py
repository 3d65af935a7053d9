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
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from inlay.errors import ConcurrentChange, InlayError
from inlay.format import keys
from inlay.ops.commit.driver import commit, decided, expect_committed
from inlay.ops.context import Context
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, load_pointer
from inlay.ops.verify.table import (
    BrokenPointer,
    Verified,
    archived_versions,
    read_pointer,
    verify,
)
from inlay.plan.change import Change, DropMarkers, RecountTotals
from inlay.plan.verify import MENDABLE, REPAIR, Finding, Mend, Severity, check_state
from inlay.record import Record, replace
from inlay.storage.base import ObjectVersion

if TYPE_CHECKING:
    from inlay.format.transaction import Transaction

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
_COUNTS = ("totals_wrong", "dangling_marker")


class Repaired(Record, kw_only=True):
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
        from inlay.ops.verify.mend_pointer import (
            newest_state,
            pointer_mend,
            rebuild,
            refused_pointer,
        )

        source = newest_state(ctx, read)
        if source is None:
            return Repaired(version=0, dry_run=dry_run, refused=refused_pointer(ctx, read))
        mends.append(pointer_mend(read, source))
        if dry_run:
            return Repaired(version=0, dry_run=True, mends=tuple(mends))
        rebuild(ctx, read, source)
        read = _mended_pointer(ctx)
    if read.open_for is not None:
        ended = _end_transaction(ctx, read.open_for, read.snapshot.version, dry_run=dry_run)
        if ended is not None:
            return replace(ended, mends=(*mends, *ended.mends))
    # A table whose pointer never went back has none: its version is archived by the next commit.
    beyond = [v for v in reversed(archived_versions(ctx)) if v >= read.snapshot.version]
    if beyond:
        from inlay.ops.verify.mend_pointer import mend_history

        behind = mend_history(ctx, read, beyond, dry_run=dry_run)
        if behind is not None:
            mends.append(behind)
            read = _mended_pointer(ctx)
            if dry_run:  # further findings depend on the history that the table continues with
                return _before_history(verify(ctx, depth="metadata"), mends)
    seen = verify(ctx, depth="metadata")
    of_archives: list[Mend] = []
    if any(f.kind in MENDABLE for f in seen.findings):
        from inlay.ops.verify.mend_pointer import mend_archives

        of_archives += mend_archives(ctx, read, seen, dry_run=dry_run)
    mends += of_archives
    mends += _mend_counts(ctx, seen, dry_run=dry_run)
    if mends and not dry_run:
        seen = verify(ctx, depth="metadata")
    done = {m.key for m in of_archives} if dry_run else set()
    refused = tuple(
        f
        for f in seen.findings
        if f.severity is not Severity.NOTE
        and f.kind not in _COUNTS
        and not (f.kind in MENDABLE and f.key in done)
    )
    return Repaired(
        version=seen.version,
        dry_run=dry_run,
        mends=tuple(mends),
        refused=tuple(_advised(ctx, refused)),
    )


def _before_history(seen: Verified, mends: Iterable[Mend]) -> Repaired:
    """A dry run that ends where the table goes back to its history."""
    errors = (f for f in seen.findings if f.severity is Severity.ERROR)
    refused = tuple(f for f in errors if f.kind not in ("pointer_behind", *MENDABLE))
    return Repaired(version=seen.version, dry_run=True, mends=tuple(mends), refused=refused)


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
