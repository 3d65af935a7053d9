"""Finishing erasures: deletion, and the receipt (docs/ERASURE.md).

Promise: each step can be repeated after a crash at any request. Phases change by commits that name the
phase they leave; what is deleted was unreachable before; the receipt is written once and last, when a check
after the deletions found nothing. Erasures in one phase take a step together: one listing, one pass over
the files, one commit, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from inlay.errors import CorruptTable, KeyTaken, NewerFormat, RefNotFound, TableNotFound
from inlay.format import keys
from inlay.format.codec import decode_frame
from inlay.format.entry import FORGOTTEN, Marker, Where
from inlay.format.keys import MEMORY, ObjectKind, classify
from inlay.format.properties import (
    ARROW_CATEGORIES,
    RECEIPT_CHAIN,
    arrow_categories,
    categories_text,
)
from inlay.format.snapshot import Erasure, Snapshot
from inlay.ops.commit.driver import (
    Committed,
    Conflicted,
    archive_at_once,
    commit,
    expect_committed,
)
from inlay.ops.context import Context
from inlay.ops.erase.landing import (
    check_landing,
    clear_landing,
    shut_out,
    what_ended_meanwhile,
)
from inlay.ops.erase.last_look import (
    Findings,
    Landing,
    LastCheck,
    find_originals,
    findings_of,
    named_by_older_files,
    search_files,
    shown_name,
)
from inlay.ops.erase.receipt import (
    RECEIPT_KIND,
    Facts,
    Lists,
    encode_receipt,
    is_about,
    receipt_of,
    write_pass,
)
from inlay.ops.erase.signing import Signer
from inlay.ops.maintain.expire import History, Listing, Roots, check_deletable
from inlay.ops.maintain.units import with_entries
from inlay.ops.metadata.load import LoadedTable, load_again, load_pointer
from inlay.ops.metadata.memory import has_memory, memory_context
from inlay.ops.refs import RefContents, each_content
from inlay.plan.change import (
    AddMarkers,
    AllClean,
    Change,
    CloseErasures,
    DropMarkers,
    ExpireAll,
    ForgetContents,
    MoveBoundary,
    MoveErasures,
    NextReceipts,
    OnlyFiles,
    OnlyRefs,
    PackMetadata,
    ReplaceFiles,
    Requirement,
    SameProperty,
    SetProperties,
    Unit,
    Update,
)
from inlay.plan.erasure import (
    PURGE,
    REWRITE,
    SWEEP,
    Waiting,
    concerns,
    is_purged,
    legal_holds,
    predicate_digest,
    ref_suffix,
    unclean_files,
)
from inlay.plan.maintain.roots import cutoff_with_margin
from inlay.plan.pruning.literals import texts_of
from inlay.plan.receipt_chain import Chain
from inlay.record import Mutable, Record, field, replace, secret
from inlay.storage.base import NULL_VERSION, DeleteFailure, ObjectVersion, Upload

if TYPE_CHECKING:
    from inlay.ops.erase.copies import LockedCopies

# Steps of one run: three phases for as many erasures as a pointer can hold, and lost races.
MAX_STEPS = 400
# With a life below this the run waits itself, a second for the store's clock and the clock margin.
SHORT_WAIT_SECONDS = 2.0
# How long deletes committed after phase `rewrite` are waited for, in lives and at least in seconds: a table
# with a constant stream of pending deletes must end its erasures, too.
PATIENCE_LIVES = 4
PATIENCE_SECONDS = 3_600
# Names of files that an erasure waits for; all are counted.
MAX_WAITING = 100

Waits = dict[str, list[Waiting]]


class SweepResult(Record, kw_only=True):
    """`receipts` are keys of erasures that ended; `waiting` is what keeps the others open."""

    deleted: int = 0
    receipts: tuple[str, ...] = ()
    waiting: tuple[tuple[str, Waiting], ...] = ()
    failures: tuple[DeleteFailure, ...] = ()


@secret("hmac_key")
class FinishOptions(Record, kw_only=True):
    """How erasures are ended, and what their receipts say: see `ops.collect_garbage`. `margin_us`: how far
    an object's LastModified may be behind the `Date` of answers; `landing` None: no object lands;
    `retention_days`: how long places outside the table keep data, by the names of
    `receipt.OUT_OF_REACH`."""

    life_us: int
    margin_us: int
    hmac_key: bytes | None
    signer: Signer | None
    copies: LockedCopies | None
    landing: str | None
    retention_days: Mapping[str, float]


class _Due(Mutable):
    """Erasures of one phase that take a step together: those that are `ready` go on, the others wait."""

    ready: Sequence[Erasure]
    waits: Waits = field(default_factory=dict)

    def wait(self, waits: Waits) -> bool:
        """Keeps back those that wait for something; whether any goes on."""
        self.waits |= {name: waiting for name, waiting in waits.items() if waiting}
        self.ready = [e for e in self.ready if e.id not in self.waits]
        return bool(self.ready)

    def all_wait(self, *waiting: Waiting) -> Waits:
        """Keeps back the others, too: what each waits for."""
        self.wait({e.id: [*waiting] for e in self.ready})
        return self.waits


class _Sweeper(Mutable):
    """One run over all open erasures. `history`: what the caller's run has read of older versions, and will
    read again. `looks` are the last checks that were begun."""

    ctx: Context
    options: FinishOptions
    history: History
    lists: Lists
    deleted: int = 0
    failures: tuple[DeleteFailure, ...] = ()
    receipts: list[str] = field(default_factory=list)
    looks: dict[frozenset[str], LastCheck] = field(default_factory=dict)  # by erasures
    after: LoadedTable | None = None  # the table, where this step ended with a commit of its own
    left_us: int = 0  # the longest remaining time that it waits for

    def step(self, loaded: LoadedTable, erasures: Sequence[Erasure]) -> Waits:
        """Takes erasures of one phase a step further; returns what those wait for that did not move,
        without those for which more can be done at once."""
        due = _Due(erasures)
        match erasures[0].phase:
            case "rewrite":
                return self._purge(loaded, due)
            case "purge":
                return self._first_sweep(loaded, due)
            case "sweep":
                return self._last_sweep(loaded, due)

    def _purge(self, loaded: LoadedTable, due: _Due) -> Waits:
        """No file and no landing object holds a row any more: the predicates are forgotten, with every
        marker as old, every older version, and every segment with statistics of a dead entry."""
        refs, contents = loaded.snapshot.refs, self._contents(loaded)
        reason = "the rewrite function has to rewrite it"
        waits = _waits_for_files(contents, due.ready, reason)
        holds = legal_holds(loaded.snapshot)
        for waiting in waits.values():
            waiting += [Waiting("hold", n, "a legal hold keeps old versions") for n in holds]
        landed = {e.id: Landing() for e in due.ready}
        if self.options.landing is not None:
            landed = self._clear_landing(loaded, due.ready, self.options.landing, waits)
        if not due.wait(waits):
            return due.waits
        ready = due.ready
        predicates = {e.id: e.predicate for e in ready if e.predicate is not None}
        look = LastCheck(predicates, {e.id: e.opened_version for e in ready}, loaded)
        look = self.looks.setdefault(frozenset(predicates), look)
        look.table, look.landed = loaded, landed
        search_files(self.ctx, look, contents)
        live = frozenset(look.files)
        if (
            self._mark_residue(contents, look)
            or self._forget_origins(contents, live)
            or self._forget_categories(loaded, contents, live)
            or self._purge_refs(loaded, contents, ready)
        ):
            return {}
        self._look_at_objects(contents, look)
        forgotten = tuple(self._without_condition(loaded, erasure) for erasure in ready)
        change = Change(
            operation="erase",
            updates=(
                DropMarkers(_plain_markers(loaded, ready)),
                PackMetadata(),
                ForgetContents(),
                MoveErasures(forgotten, leaves=REWRITE),
                ExpireAll(),
            ),
            requires=(AllClean(), OnlyRefs(refs), OnlyFiles(live)),
            events=shut_out(self.ctx, (landed[e.id] for e in ready)),
        )
        # A conflict is not a failure: a file or a hold was added, or another process was faster. Read
        # again.
        self._end(change, loaded)
        return due.waits

    def _look_at_objects(self, contents: RefContents, look: LastCheck) -> None:
        """What the table still holds is searched for what is erased, and what it shows is written down."""
        since_us = look.table.date_us - self.options.life_us
        look.originals = find_originals(self.ctx, look, since_us, self.history)
        findings = findings_of(self.ctx, look)
        if look.table.snapshot.settings.text("erasure.search") == "yes":
            findings = self._with_rows(contents, look, findings)
        self.lists.write_looks(look, findings)

    def _without_condition(self, loaded: LoadedTable, erasure: Erasure) -> Erasure:
        """The erasure in phase `purge`: a digest stands for the condition, which is personal data."""
        table, key = loaded.snapshot.table_id, self.options.hmac_key
        return replace(
            erasure,
            phase=PURGE,
            predicate=None,
            text="",
            digest=predicate_digest(erasure.text, key, table=table, erasure=erasure.id),
            deleted=erasure.deleted + self.deleted,
        )

    def _clear_landing(
        self, loaded: LoadedTable, erasures: Sequence[Erasure], prefix: str, waits: Waits
    ) -> dict[str, Landing]:
        """What is left of the landing zone, by erasure; what it waits for there is added to `waits`."""
        landed = check_landing(self.ctx, loaded, erasures, prefix)
        # Only how many are about to be deleted: the keys of landed objects may contain names.
        versions = {v for landing in landed.values() for v in (*landing.dead, *landing.ingested)}
        uploads = {u for landing in landed.values() for u in landing.uploads}
        if versions or uploads:
            version = loaded.snapshot.version
            self.lists.write_gone(version, landed, versions, len(uploads))
        deleted, failures = clear_landing(self.ctx, landed.values())
        self.deleted += deleted
        self.failures += failures
        if uploads:
            landed = check_landing(self.ctx, loaded, erasures, prefix)
        for erasure_id, landing in landed.items():
            waits[erasure_id] += what_ended_meanwhile(landing) if uploads else landing.waiting
            waits[erasure_id] += [Waiting("landing", f.key, f.reason) for f in failures]
        return landed

    def _end(self, change: Change, base: LoadedTable) -> bool:
        """Whether the commit that ends this step is made: then the next begins with the table after it."""
        outcome = commit(self.ctx, change, base=base)
        self.after = outcome.loaded if isinstance(outcome, Committed) else None
        return not isinstance(outcome, Conflicted)

    def _with_rows(
        self, contents: RefContents, look: LastCheck, findings: Mapping[str, Findings]
    ) -> dict[str, Findings]:
        """With the rows that have a text of the condition in any column, where it names one."""
        from inlay.ops.erase.subject import search_for_each  # only where it is asked for

        texts = {name: own for name, by in look.asked.items() if (own := texts_of(by))}
        rows = search_for_each(self.ctx, contents, texts, look.rows) if texts else {}
        shown = dict(findings)
        for name, places in rows.items():
            rows_with = tuple((shown_name(c, look.texts), n, files) for c, n, files in places)
            shown[name] = replace(findings[name], rows_with=rows_with)
        return shown

    def _mark_residue(self, contents: RefContents, look: LastCheck) -> bool:
        """Marks files that still name erased values, beside rows that are all older: the next rewrite then
        writes them again. The marker hits none of their rows."""
        doomed = named_by_older_files(self.ctx, look)

        def marked(content: LoadedTable) -> AddMarkers | None:
            markers = tuple(
                Marker(id=f"{e}:{f.key}", body=Where(look.asked[e]), file=f.key, erasure=e)
                for f in content.state.files()
                for e in doomed.get(f.key, ())
            )
            return AddMarkers(markers) if markers else None

        return bool(doomed) and self._commit_to_each(contents, marked)

    def _forget_origins(self, contents: RefContents, live: frozenset[str]) -> bool:
        """Whether a content named a file that was adopted, and that rewrites have replaced: its key is not
        the table's own and may be data (`mail=…/`). What needed it, changes between versions, ends."""

        def forgotten(content: LoadedTable) -> ReplaceFiles | None:
            units = tuple(
                Unit((f.key,), (replace(f, origin=FORGOTTEN),), content.snapshot.version)
                for f in content.state.files()
                if "://" in (f.origin or "") and f.origin not in live
            )
            return ReplaceFiles(units) if units else None

        return self._commit_to_each(contents, forgotten)

    def _commit_to_each(
        self, contents: RefContents, update_of: Callable[[LoadedTable], Update | None]
    ) -> bool:
        """Whether any of the contents needed an update, which each then has got: look again."""
        is_needed = False
        for name, content in contents:
            update = update_of(content)
            if update is not None:
                change = Change(operation="erase", updates=(update,))
                commit(replace(self.ctx, branch=name), change, base=content)
                is_needed = True
        return is_needed

    def _forget_categories(
        self, loaded: LoadedTable, contents: RefContents, live: frozenset[str]
    ) -> bool:
        """Whether the order of a category had entries that no row has any more: they may have been values
        of the erased rows alone. Reads these columns as far as it takes to find a row of each entry."""
        before = loaded.snapshot.properties.get(ARROW_CATEGORIES)
        orders = arrow_categories(loaded.snapshot.properties)
        if before is None:
            return False
        from inlay.ops.schema.categories import unused_entries  # few tables have an order

        unused = {i: set(entries) for i, entries in orders.items()}
        for _, content in contents if orders else ():
            missing = {i: tuple(e for e in orders[i] if e in unused[i]) for i in orders}
            unused = unused_entries(self.ctx, content, missing)
        if orders and not any(unused.values()):
            return False
        kept = {i: tuple(e for e in orders[i] if e not in unused[i]) for i in orders}
        change = Change(
            operation="erase",
            updates=(SetProperties({ARROW_CATEGORIES: categories_text(kept)}),),
            requires=(
                SameProperty(ARROW_CATEGORIES, before),
                OnlyRefs(loaded.snapshot.refs),
                OnlyFiles(live),
            ),
        )
        # A conflict is not a failure, as above: it is looked at again.
        commit(self.ctx, change, base=loaded)
        return True

    def _publication_waits(self, loaded: LoadedTable) -> Waiting | None:
        from inlay.ops.publish.status import publication_waits  # only where an erasure ends

        return publication_waits(self.ctx, loaded.snapshot)

    def _memory_waits(self, loaded: LoadedTable, erasures: Sequence[Erasure]) -> Waiting | None:
        """What change streams remember of the rows is erased by an erasure of the same id."""
        if not has_memory(loaded.snapshot):
            return None
        with suppress(TableNotFound):
            memory = load_pointer(memory_context(self.ctx))
            if {e.id for e in memory.snapshot.erasures} & {e.id for e in erasures}:
                return Waiting("memory", MEMORY, "it is rewritten and collected with the table")
        return None

    def _first_sweep(self, loaded: LoadedTable, due: _Due) -> Waits:
        stale = self._publication_waits(loaded)
        if stale is not None:
            return due.all_wait(stale)
        since: dict[str, int] = {}
        for erasure in due.ready:
            # The expiry of this erasure, not a later one, with which the wait would start over.
            through = erasure.phase_version - 1
            expired = [e for e in loaded.snapshot.expired if e.through >= through]
            since[erasure.id] = min((e.time_us or 0 for e in expired), default=0)
        if not due.wait(self._wait(loaded, since, "readers of old versions may still be running")):
            if loaded.has_open_times:
                # The wait begins when a commit records that the expiry was seen.
                self.after = self._move_boundary(loaded)
            return due.waits
        contents = self._contents(loaded)
        late = self._late(contents, due.ready)
        patience_us = loaded.date_us - self._patience_us
        if not due.wait({name: w for name, w in late.items() if since[name] >= patience_us}):
            return due.waits
        # Deletes committed since the purge may name the person: their versions are expired, too.
        names_more = bool(self._deletes_since(loaded, min(e.phase_version for e in due.ready)))
        # What was not applied is no longer waited for.
        if names_more and not late and self._purge_refs(loaded, contents, due.ready):
            return {}
        deleted = self._delete_all(loaded, due)
        if deleted is None:
            return due.waits
        loaded, _ = deleted
        swept = tuple(
            replace(e, phase=SWEEP, swept_us=0, deleted=e.deleted + self.deleted) for e in due.ready
        )
        # Late deletes that were not applied are no longer waited for.
        requires = () if late else (AllClean(),)
        self._step(loaded, MoveErasures(swept, leaves=PURGE), requires, forgets=names_more)
        return due.waits

    @property
    def _patience_us(self) -> int:
        return max(PATIENCE_LIVES * self.options.life_us, PATIENCE_SECONDS * 1_000_000)

    def _contents(self, loaded: LoadedTable) -> RefContents:
        held = legal_holds(loaded.snapshot)
        return [(n, c) for n, c in each_content(self.ctx, loaded) if n not in held]

    def _late(self, contents: RefContents, erasures: Sequence[Erasure]) -> Waits:
        """Files that deletes which came since may still hit, of those erasures that there are any for."""
        reason = "a delete committed since has to be applied"
        return {n: w for n, w in _waits_for_files(contents, erasures, reason).items() if w}

    def _purge_refs(
        self, loaded: LoadedTable, contents: RefContents, erasures: Sequence[Erasure]
    ) -> bool:
        """Whether a branch or tag had to be cleaned: then look again."""
        refs = loaded.snapshot.refs
        for name, content in contents:
            if name is None or all(is_purged(content.state, refs[name], e) for e in erasures):
                continue
            # It gets a head of its own that says nothing of the erasures.
            old = tuple(
                m.id for m in content.state.markers() if any(concerns(m, e) for e in erasures)
            )
            change = Change(operation="erase", updates=(DropMarkers(old), PackMetadata()))
            with suppress(RefNotFound):  # dropped meanwhile
                commit(replace(self.ctx, branch=name), change, base=content)
            return True
        return False

    def _step(
        self,
        loaded: LoadedTable,
        move: MoveErasures,
        requires: tuple[Requirement, ...],
        *,
        forgets: bool,
    ) -> None:
        """Commit a step; `forgets` also what deletes that came since say of rows."""
        updates: list[Update] = [move]
        if forgets:
            # A commit since these were read may have stored markers away from the pointer.
            loaded = with_entries(self.ctx, loaded)
            dropped = DropMarkers(_plain_markers(loaded, move.erasures))
            updates += [dropped, PackMetadata(), ForgetContents(), ExpireAll()]
        self._end(Change(operation="erase", updates=tuple(updates), requires=requires), loaded)

    def _deletes_since(self, loaded: LoadedTable, since_version: int) -> list[tuple[int, str]]:
        """(version, operation) of deletes committed in `since_version` or later, and of those not applied
        by then. One GET for each version since that this run has not read."""
        current = loaded.snapshot
        deletes: list[tuple[int, str]] = []
        versions = range(max(since_version, current.oldest_version), current.version)
        archived = list(self.ctx.map(self.history.find, versions))
        for snapshot in [s for s in archived if s is not None] + [current]:
            if _names_rows(snapshot, first=snapshot.version == since_version):
                deletes.append((snapshot.version, snapshot.commit.operation))
        return deletes

    def _last_sweep(self, loaded: LoadedTable, due: _Due) -> Waits:
        # What such a writer uploaded may look younger than it is, by the margin; what looks younger than
        # that was uploaded after the writer's life.
        since = {e.id: (e.swept_us or 0) + self.options.margin_us for e in due.ready}
        reason = "a writer from before the opening may still be running"
        if not due.wait(self._wait(loaded, since, reason)):
            return due.waits
        later = self._deletes_since(loaded, min(e.phase_version for e in due.ready))
        if held := self._held(loaded, due.ready) if later else []:
            contents = self._contents(loaded)
            due.wait(self._late(contents, held))
            held = [e for e in held if e.id not in due.waits]
            if held:
                if not self._purge_refs(loaded, contents, held):
                    again = MoveErasures(tuple(replace(e, swept_us=0) for e in held), leaves=SWEEP)
                    self._step(loaded, again, (AllClean(),), forgets=True)
                return {}
        deleted = self._delete_all(loaded, due) if due.ready else None
        if deleted is None:
            return due.waits
        loaded, listing = deleted
        stale = self._publication_waits(loaded) or self._memory_waits(loaded, due.ready)
        if stale is not None:
            return due.all_wait(stale)
        if listing is None:  # list again, rather than trust the deletions
            listing = Listing.of(self.ctx)
            doomed, uploads = self._doomed(loaded, listing)
            remaining = [*(v.key for v in doomed), *(u.key for u in uploads)]
            if remaining:
                return due.all_wait(
                    *(Waiting("object", name, "it is still there") for name in remaining)
                )
        self.history.listing = listing
        return self._close(loaded, due, listing)

    def _close(self, loaded: LoadedTable, due: _Due, listing: Listing) -> Waits:
        """Writes the receipts of erasures of which nothing is left in `listing`, and ends them."""
        versions, version = listing.versions, loaded.snapshot.version
        names = [e.id for e in due.ready]
        facts = Facts(
            versions=versions,
            left=self.lists.write_left(version, names, versions),
            lists=self.lists.since(
                min(e.opened_version for e in due.ready),
                (listed.key for listed in listing.current(self.ctx)),
            ),
            later=self._deletes_since(loaded, min(e.phase_version for e in due.ready)),
            pending=[m.id for m in loaded.state.markers() if m.erasure is None],
            landing=self._left_in_landing(max(e.opened_us for e in due.ready)),
            retention_days=self.options.retention_days,
            deleted=self.deleted,
            ending=len(names),
        )
        before = Chain.of(loaded.snapshot.properties)
        receipts = self._write_receipts(loaded, due.ready, facts, before)
        if receipts is None:
            return due.all_wait(self._another_run)
        after = write_pass(self.ctx, loaded, before, receipts, self.options.signer)
        if self.options.copies is not None:
            from inlay.ops.erase.copies import copy_pass  # few keep copies elsewhere

            made_by, now_us = after.made_by or "", loaded.date_us
            failed = copy_pass(self.ctx, self.options.copies, receipts, made_by, now_us)
            if failed is not None:
                # The next try writes its own, and the receipts again: each hour's lists would stay.
                self.ctx.store.delete([self.ctx.key(key) for key in (made_by, facts.left.key)])
                return due.all_wait(failed)
        closed = CloseErasures(
            tuple(names),
            leaves=SWEEP,
            chain=NextReceipts(
                loaded.snapshot.properties.get(RECEIPT_CHAIN),
                after.as_property,
                loaded.snapshot.boundary,
            ),
        )
        if self._end(Change(operation="erase", updates=(closed,)), loaded):
            self.receipts += [keys.receipt_key(name) for name in receipts]
        return due.waits

    def _held(self, loaded: LoadedTable, erasures: Sequence[Erasure]) -> list[Erasure]:
        """Those for which deletes that came after the first sweep are still waited for: they are carried
        out, and the versions that had them end like the older ones. Patience counts from the look."""
        since_version = min(e.opened_version for e in erasures)
        looked_us = {
            erasure.id: body["looked_us"]
            for _, body in self.lists.since(since_version)
            if body["step"] == "look"
            for erasure in erasures
            if is_about(body, erasure.id)
        }
        patience_us = loaded.date_us - self._patience_us
        return [e for e in erasures if looked_us.get(e.id, e.opened_us) >= patience_us]

    def _left_in_landing(self, opened_us: int) -> int | None:
        if self.options.landing is None:
            return None
        versions = self.ctx.store.list_versions(self.options.landing)
        return sum(v.modified_us <= opened_us for v in versions)

    @property
    def _another_run(self) -> Waiting:
        return Waiting("time", f"{self.options.life_us / 1e6:.0f} s", "another run is ending it")

    def _wait(self, loaded: LoadedTable, since_us: Mapping[str, int], reason: str) -> Waits:
        """The erasures since whose time no `life` has passed: strictly, because times are truncated to
        seconds."""
        waits: Waits = {}
        for name, us in since_us.items():
            left_us = us + self.options.life_us - loaded.date_us
            if left_us >= 0:
                self.left_us = max(self.left_us, left_us)
                waits[name] = [Waiting("time", f"{left_us / 1e6 + 1:.0f} s", reason)]
        return waits

    def _move_boundary(self, loaded: LoadedTable) -> LoadedTable:
        """No commit may add anything uploaded before now."""
        change = Change(operation="erase", updates=(MoveBoundary(loaded.date_us),))
        moved = expect_committed(self.ctx, commit(self.ctx, change, base=loaded)).loaded
        self.history.note(moved)
        return moved

    def _delete_all(
        self, loaded: LoadedTable, due: _Due
    ) -> tuple[LoadedTable, Listing | None] | None:
        """The table, whose boundary was moved for it; and the listing, where nothing had to be deleted.
        None where something could not be deleted, which all wait for.

        Nothing is deleted where another run has moved the boundary since. So whatever is deleted while that
        one lists has a list from before it began, which it finds on the way."""
        loaded = self._move_boundary(loaded)
        boundary = loaded.snapshot.boundary
        if boundary.version != loaded.snapshot.version:
            due.all_wait(self._another_run)
            return None
        listing = Listing.of(self.ctx)
        versions, uploads = self._doomed(loaded, listing)
        if not versions and not uploads:
            return loaded, listing
        # First record what will be deleted: a crash in between must not leave it unrecorded.
        names, version = [e.id for e in due.ready], loaded.snapshot.version
        self.lists.write_gone(version, names, versions, len(uploads))
        # Its look at the pointer is also the one that the table is still there, right before the deletion.
        loaded, now = archive_at_once(self.ctx, loaded)
        if now.boundary != boundary:
            due.all_wait(self._another_run)
            return None
        version_ids = [(v.key, v.version_id) for v in versions]
        failures = tuple(self.ctx.store.delete_versions(version_ids)) if version_ids else ()
        for upload in uploads:
            self.ctx.store.abort_multipart(upload.key, upload.upload_id)
        self.failures += failures
        self.deleted += len(version_ids) + len(uploads) - len(failures)
        if self.failures:
            due.all_wait(*(Waiting("object", f.key, f.reason) for f in self.failures))
            return None
        return loaded, None

    def _doomed(
        self, loaded: LoadedTable, listing: Listing
    ) -> tuple[list[ObjectVersion], list[Upload]]:
        """Of everything that exists what may hold an erased byte and that nothing needs: unreachable
        objects, whatever they hold, noncurrent object versions, and unfinished uploads."""
        ctx = self.ctx
        before_us = cutoff_with_margin(
            loaded.snapshot.boundary.time_us or 0, self.options.margin_us
        )
        roots = Roots(ctx, loaded.date_us - self.options.life_us, self.history)
        roots.add(loaded.state)
        plan = roots.plan(listing.current(ctx), before_us)
        check_deletable(ctx, loaded.snapshot, plan.seen, self.options.margin_us)
        unneeded = {ctx.key(i.key) for i in plan.doomed}

        def goes(version: ObjectVersion) -> bool:
            ours = classify(ctx.relative(version.key)) is not ObjectKind.UNKNOWN
            superseded = version.marker or not version.is_latest
            behind = version.modified_us < before_us
            return version.key in unneeded or (ours and superseded and behind)

        return [v for v in listing.versions if goes(v)], listing.uploads_before(before_us)

    def _write_receipts(
        self, loaded: LoadedTable, erasures: Sequence[Erasure], facts: Facts, chain: Chain
    ) -> dict[str, bytes] | None:
        """The receipts of these erasures, in the order of the chain; None where another run is writing
        them.

        Until its erasure is closed a receipt is not part of the chain. One that is there was left by a run
        that crashed, or put there by whoever may write to the bucket: which of them is not known, so what
        it says is not taken. It is written over, once such a run can no longer close its erasure: the
        boundary was moved since it wrote the receipt (`NextReceipts`). Never is one deleted or written over
        by its name alone: by then it may be another run's, and in the chain.
        """
        live = {v.key: v for v in facts.versions if v.is_latest and not v.marker}
        leftover = [e for e in erasures if self.ctx.key(keys.receipt_key(e.id)) in live]
        stale = {e.id: live[self.ctx.key(keys.receipt_key(e.id))] for e in leftover}
        for erasure, table in zip(leftover, self.ctx.map(self._table_of, leftover), strict=True):
            if table not in (None, loaded.snapshot.table_id):
                key = keys.receipt_key(erasure.id)
                raise KeyTaken(f"{key} is there already, of another table", key=self.ctx.key(key))
        moved_us = loaded.snapshot.boundary.time_us or 0
        if any(v.modified_us + self.options.life_us >= moved_us for v in stale.values()):
            return None
        receipts: dict[str, bytes] = {}
        fresh: list[tuple[str, bytes, str | None]] = []
        for erasure in erasures:
            data = encode_receipt(receipt_of(self.ctx, loaded, erasure, facts, chain))
            receipts[erasure.id], chain = data, chain.with_receipt(data)
            over = stale[erasure.id].etag if erasure.id in stale else None
            fresh.append((keys.receipt_key(erasure.id), data, over))

        def write(receipt: tuple[str, bytes, str | None]) -> None:
            key, data, over = receipt
            self.ctx.write_once(key, data, over=over)

        try:
            list(self.ctx.map(write, fresh))
        except KeyTaken:
            return None
        replaced = [(v.key, v.version_id) for v in stale.values() if v.version_id != NULL_VERSION]
        self.failures += tuple(self.ctx.store.delete_versions(replaced)) if replaced else ()
        return receipts

    def _table_of(self, erasure: Erasure) -> str | None:
        """Of the receipt that is there; None where it is none."""
        key = keys.receipt_key(erasure.id)
        answer = self.ctx.get(key)
        if answer is not None:
            with suppress(CorruptTable, NewerFormat):
                return str(decode_frame(RECEIPT_KIND, answer.body, key=key).get("table"))
        return None


def _waits_for_files(contents: RefContents, erasures: Sequence[Erasure], reason: str) -> Waits:
    waits: Waits = {e.id: [] for e in erasures}
    for name, content in contents:
        for erasure_id, files in unclean_files(content.state, erasures).items():
            listed = waits[erasure_id]
            for key in list(files)[: MAX_WAITING - len(listed)]:
                listed.append(Waiting("file", key, reason + ref_suffix(name)))
    return waits


def _plain_markers(loaded: LoadedTable, erasures: Sequence[Erasure]) -> tuple[str, ...]:
    """Markers of deletes that must be forgotten with the step; those that may still hit a file stay."""
    return tuple(
        m.id
        for m in loaded.state.markers()
        if m.erasure is None and any(concerns(m, e) for e in erasures)
    )


_DELETE = ("delete", "update", "upsert", "merge", "overwrite")


def _names_rows(snapshot: Snapshot, *, first: bool) -> bool:
    """Whether a version, or the commit that made it, may contain values that a delete named. Of the `first`
    only its content counts: its commit was the step itself."""
    markers, made_by = snapshot.markers, snapshot.commit
    if any(m.erasure is None for m in markers.inline) or any(s.live for s in markers.segments):
        return True
    if first or made_by.operation == "erase":
        return False
    return made_by.added_markers > 0 or made_by.operation in _DELETE


def finish_erasures(
    ctx: Context, options: FinishOptions, *, history: History, base: LoadedTable
) -> tuple[SweepResult, LoadedTable]:
    """Takes every open erasure as far as possible without rewriting files; returns also the table as it is
    then. `base`: the table as it was just now."""
    waiting: Waits = {}
    sweeper = _Sweeper(ctx, options, history, Lists(ctx))
    deleted, failures = 0, ()
    loaded = base
    for _ in range(MAX_STEPS):
        loaded = with_entries(ctx, loaded)
        history.note(loaded)
        open_ = [e for e in loaded.snapshot.erasures if e.id not in waiting]
        if not open_:
            break
        together = [e for e in open_ if e.phase == open_[0].phase]
        sweeper.deleted, sweeper.failures, sweeper.left_us = 0, (), 0
        sweeper.after = None
        step_waits = sweeper.step(loaded, together)
        deleted += sweeper.deleted
        failures += sweeper.failures
        only_time = all(w.what == "time" for waits in step_waits.values() for w in waits)
        if step_waits and only_time and options.life_us < SHORT_WAIT_SECONDS * 1_000_000:
            ctx.clock.sleep(1.0 + sweeper.left_us / 1e6)
            loaded = load_again(ctx, loaded)
            continue
        waiting |= step_waits
        if sweeper.after is not None:
            loaded = sweeper.after
        elif not step_waits:  # something was done beside, or another run was faster
            loaded = load_again(ctx, loaded)
    result = SweepResult(
        deleted=deleted,
        receipts=tuple(sweeper.receipts),
        waiting=tuple((name, w) for name, waits in waiting.items() for w in waits),
        failures=failures,
    )
    return result, loaded
