"""Sweep: the deleting half of an erasure, and its end (docs/ERASURE.md).

Promise: each step can be repeated after a crash at any request. Phases change by commits that name the
phase they leave; what is deleted was unreachable before; the receipt is written once and last, when a
look after the deletions found nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inlay.errors import KeyTaken, RefNotFound
from inlay.format import keys
from inlay.format.frame import decode_frame, encode_frame
from inlay.format.keys import ObjectKind, classify
from inlay.format.snapshot import Erasure, Snapshot
from inlay.ops.commit.driver import Conflicted, commit, expect_committed
from inlay.ops.context import Context
from inlay.ops.erase.landing import clear_landing, look_at_landing
from inlay.ops.maintain.roots import Roots, check_deletable
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import Loaded, load_pointer
from inlay.ops.refs.refs import each_content
from inlay.plan.change import Change, Edit
from inlay.plan.erasure import (
    PURGE,
    REWRITE,
    SWEEP,
    Waiting,
    concerns,
    holds,
    is_purged,
    on_ref,
    predicate_digest,
    unclean_files,
)
from inlay.plan.maintain.roots import CLOCK_MARGIN_SECONDS, Listed, surely_before
from inlay.plan.metadata.state import Contents
from inlay.storage.base import DeleteFailure, Got, ObjectVersion, Upload

# Steps of one run: three phases for as many erasures as a pointer can hold, and lost races.
MAX_STEPS = 400
# With a life below this the waits are waited out, a second for the store's clock and the clock margin.
SHORT_WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """`receipts` are keys of erasures that ended; `waiting` says what keeps the others open."""

    deleted: int = 0
    receipts: tuple[str, ...] = ()
    waiting: tuple[tuple[str, Waiting], ...] = ()
    failures: tuple[DeleteFailure, ...] = ()


@dataclass(slots=True)
class _Sweeper:
    ctx: Context
    life_us: int
    margin_us: int
    hmac_key: bytes | None
    landing: str | None
    deleted: int = 0
    failures: tuple[DeleteFailure, ...] = ()
    left_us: int = 0  # what is left of the time it waits for

    # -- one step -----------------------------------------------------------------------------

    def step(self, loaded: Loaded, erasure: Erasure) -> str | list[Waiting] | None:
        """What the erasure waits for; the receipt's key at its end; None when it moved on."""
        if erasure.phase == REWRITE:
            return self._purge(loaded, erasure)
        if erasure.phase == PURGE:
            return self._first_sweep(loaded, erasure)
        return self._last_sweep(loaded, erasure)

    def _purge(self, loaded: Loaded, erasure: Erasure) -> list[Waiting] | None:
        """No file and no landing object holds a row any more: forget the predicate, every marker as
        old, every older version, and every segment that a dead entry's statistics are in."""
        refs, held = loaded.snapshot.refs, holds(loaded.snapshot)
        contents = [(n, c) for n, c in each_content(self.ctx, loaded) if n not in held]
        waiting = [
            Waiting("file", f.key, "the rewrite function has to rewrite it" + on_ref(name))
            for name, each in contents
            for f in unclean_files(each.state, erasure)
        ]
        waiting += [Waiting("hold", name, "a legal hold keeps old versions") for name in held]
        if self.landing is not None:
            found = look_at_landing(self.ctx, loaded, erasure, self.landing)
            cleared = clear_landing(self.ctx, found)
            self.deleted += cleared.deleted
            self.failures += cleared.failures
            waiting += found.waiting
            waiting += [Waiting("landing", f.key, f.reason) for f in cleared.failures]
        if waiting or erasure.predicate is None:
            return waiting
        for name, each in contents:
            if name is not None and not is_purged(each.state, refs[name], erasure):
                self._purge_ref(name, each, erasure)
                return None
        old = tuple(
            m.id
            for m in loaded.state.markers()
            if m.erasure is None and (m.sequence or 0) <= erasure.opened_version
        )
        edit = Edit(
            erasure=replace(
                erasure,
                phase=PURGE,
                predicate=None,
                text="",
                digest=predicate_digest(erasure.predicate, self.hmac_key),
                deleted=erasure.deleted + self.deleted,
            ),
            erasure_phase=REWRITE,
            expire_all=True,
            refs_were=refs,
        )
        change = Change(
            operation="erase",
            drop_markers=old,
            compact_metadata=True,
            forget_contents=True,
            edit=edit,
        )
        # A conflict is no failure: a file or a hold came, or another process was faster. Look again.
        commit(self.ctx, change, base=loaded)
        return None

    def _purge_ref(self, name: str, loaded: Loaded, erasure: Erasure) -> None:
        """What a branch or tag holds in a head of its own, which tells nothing of the erasure."""
        old = tuple(m.id for m in loaded.state.markers() if concerns(m, erasure))
        change = Change(operation="erase", drop_markers=old, compact_metadata=True)
        try:
            commit(replace(self.ctx, branch=name), change, base=loaded)
        except RefNotFound:
            return  # dropped meanwhile: look again

    def _first_sweep(self, loaded: Loaded, erasure: Erasure) -> list[Waiting] | None:
        # The expiry of this erasure, not a later one: each later one would begin the wait anew.
        through = erasure.phase_version - 1
        expired = [e for e in loaded.snapshot.expired if e.through >= through]
        seen_us = min((e.time_us or 0 for e in expired), default=0)
        wait = self._wait(loaded, seen_us, "readers of old versions may still be at work")
        if wait is not None:
            if loaded.has_open_times:
                # The wait begins when a commit writes down that the expiry was seen.
                self._move_boundary(loaded)
            return [wait]
        self._delete_all(self._move_boundary(loaded))
        if self.failures:
            return [Waiting("object", f.key, f.reason) for f in self.failures]
        swept = replace(erasure, phase=SWEEP, swept_us=0, deleted=erasure.deleted + self.deleted)
        change = Change(operation="erase", edit=Edit(erasure=swept, erasure_phase=PURGE))
        commit(self.ctx, change)
        return None

    def _last_sweep(self, loaded: Loaded, erasure: Erasure) -> str | list[Waiting] | None:
        reason = "a writer from before the opening may still be at work"
        # What such a writer uploaded may look younger than it is, by the margin; what looks younger than
        # that is from after its life.
        wait = self._wait(loaded, (erasure.swept_us or 0) + self.margin_us, reason)
        if wait is not None:
            return [wait]
        loaded = self._move_boundary(loaded)
        self._delete_all(loaded)
        if self.failures:
            return [Waiting("object", f.key, f.reason) for f in self.failures]
        # Look again, rather than trust what was just done.
        versions, uploads = self._doomed(loaded)
        left = [*(v.key for v in versions), *(u.key for u in uploads)]
        if left:
            return [Waiting("object", name, "it is still there") for name in left]
        key = self._write_receipt(loaded, erasure)
        change = Change(operation="erase", edit=Edit(close_erasure=erasure.id, erasure_phase=SWEEP))
        outcome = commit(self.ctx, change)
        return None if isinstance(outcome, Conflicted) else key

    def _wait(self, loaded: Loaded, since_us: int, reason: str) -> Waiting | None:
        """Whether `life` has passed since a time: strictly, because times are cut to seconds."""
        left_us = since_us + self.life_us - loaded.date_us
        if left_us < 0:
            return None
        self.left_us = left_us
        return Waiting("time", f"{left_us / 1e6 + 1:.0f} s", reason)

    # -- deleting -----------------------------------------------------------------------------

    def _move_boundary(self, loaded: Loaded) -> Loaded:
        """No commit may add what was uploaded before now."""
        change = Change(operation="erase", edit=Edit(boundary_us=loaded.date_us))
        return expect_committed(self.ctx, commit(self.ctx, change, base=loaded)).loaded

    def _delete_all(self, loaded: Loaded) -> None:
        versions, uploads = self._doomed(loaded)
        named = [(v.key, v.version_id) for v in versions]
        failures = tuple(self.ctx.store.delete_versions(named)) if named else ()
        for upload in uploads:
            self.ctx.store.abort_multipart(upload.key, upload.upload_id)
        self.failures += failures
        self.deleted += len(named) + len(uploads) - len(failures)

    def _doomed(self, loaded: Loaded) -> tuple[list[ObjectVersion], list[Upload]]:
        """Everything that may hold an erased byte and that nothing needs: unreachable objects, whatever
        they hold, what took their place in a bucket with versioning, and unfinished uploads."""
        ctx = self.ctx
        before_us = surely_before(loaded.snapshot.boundary.time_us or 0, self.margin_us)
        prefix = ctx.key("")
        versions = list(ctx.store.list_versions(prefix))
        current = [
            Listed(v.key[len(prefix) :], v.size, v.modified_us)
            for v in versions
            if v.is_latest and not v.marker
        ]
        roots = Roots(ctx, loaded.date_us - self.life_us)
        roots.add(loaded.state)
        plan = roots.plan(current, before_us)
        check_deletable(ctx, loaded.snapshot, plan.seen, self.margin_us)
        unneeded = {ctx.key(i.key) for i in plan.doomed}

        def goes(version: ObjectVersion) -> bool:
            ours = classify(version.key[len(prefix) :]) is not ObjectKind.UNKNOWN
            superseded = version.marker or not version.is_latest
            behind = version.modified_us < before_us
            return version.key in unneeded or (ours and superseded and behind)

        uploads = [u for u in ctx.store.list_uploads(prefix) if u.started_us < before_us]
        return [v for v in versions if goes(v)], uploads

    # -- the end ------------------------------------------------------------------------------

    def _write_receipt(self, loaded: Loaded, erasure: Erasure) -> str:
        key = keys.receipt_key(erasure.id)
        body = encode_frame("erasure", receipt(loaded, erasure, deleted=self.deleted))
        try:
            self.ctx.write_once(key, body)
        except KeyTaken:
            # An earlier run, or one beside this, wrote it and has not closed the erasure yet: what it
            # says about the table at that moment, and its counts, are its own.
            there = self.ctx.store.get(self.ctx.key(key))
            if not isinstance(there, Got) or not _of_one_erasure(there.body, body, key):
                raise
        return key


# What two receipts of one erasure have in common, whoever wrote them and when.
_IDENTITY = ("table", "id", "predicate_hmac_sha256", "opened_version", "opened_us")


def _of_one_erasure(one: bytes, other: bytes, key: str) -> bool:
    first, second = (decode_frame("erasure", data, key=key) for data in (one, other))
    return all(first.get(name) == second.get(name) for name in _IDENTITY)


def receipt(loaded: Loaded, erasure: Erasure, *, deleted: int) -> dict[str, object]:
    """What the receipt says: nothing that was erased."""
    snapshot: Snapshot = loaded.snapshot
    return {
        "table": snapshot.table_id,
        "id": erasure.id,
        "predicate_hmac_sha256": erasure.digest,
        "opened_version": erasure.opened_version,
        "opened_us": erasure.opened_us,
        "swept_us": erasure.swept_us,
        "ended_version": snapshot.version,
        "ended_us": loaded.date_us,
        "rewritten_objects": erasure.objects,
        "removed_rows": erasure.rows,
        "deleted_objects": erasure.deleted + deleted,
        "oldest_version": snapshot.oldest_version,
        "checks": [
            "every file was judged by its rows, hidden ones included",
            "no metadata older than the erasure is left",
            "no unreachable object, old object version or unfinished upload is left",
            "no ingested landing object older than the erasure is left",
        ],
    }


def finish_erasures(
    ctx: Context,
    *,
    life_seconds: float,
    margin_us: int = int(CLOCK_MARGIN_SECONDS * 1_000_000),
    hmac_key: bytes | None = None,
    landing: str | None = None,
) -> SweepResult:
    """Take every open erasure as far as it goes without rewriting files. `margin_us` is how far an
    object's LastModified may be behind the `Date` of answers."""
    receipts: list[str] = []
    waiting: dict[str, list[Waiting]] = {}
    deleted = 0
    failures: tuple[DeleteFailure, ...] = ()
    contents: Contents | None = None
    for _ in range(MAX_STEPS):
        loaded = with_entries(ctx, load_pointer(ctx, carried=contents))
        contents = loaded.state.contents
        open_ = [e for e in loaded.snapshot.erasures if e.id not in waiting]
        if not open_:
            break
        sweeper = _Sweeper(ctx, int(life_seconds * 1_000_000), margin_us, hmac_key, landing)
        found = sweeper.step(loaded, open_[0])
        deleted += sweeper.deleted
        failures += sweeper.failures
        if isinstance(found, str):
            receipts.append(found)
        elif found is not None:
            only_time = all(w.what == "time" for w in found)
            if only_time and life_seconds < SHORT_WAIT_SECONDS:
                ctx.clock.sleep(1.0 + sweeper.left_us / 1e6)
            else:
                waiting[open_[0].id] = found
    return SweepResult(
        deleted=deleted,
        receipts=tuple(receipts),
        waiting=tuple((name, w) for name, found in waiting.items() for w in found),
        failures=failures,
    )
