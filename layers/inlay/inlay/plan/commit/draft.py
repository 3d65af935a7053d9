"""Draft: the snapshot that a valid change makes of its base.

Promise: the draft differs from its base by the change and nothing else; counts and totals follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, TypeVar, assert_never

from inlay.format.entry import DataFile, LedgerRecord, Marker, Where
from inlay.format.predicate import Predicate
from inlay.format.properties import (
    ARROW_CATEGORIES,
    HANDED_OVER,
    LEDGER_SALT,
    RECEIPT_CHAIN,
    arrow_categories,
    categories_text,
    with_arrow_types,
)
from inlay.format.schema import Field, Primitive, Schema
from inlay.format.snapshot import (
    Boundary,
    Commit,
    Erasure,
    Expiration,
    Ledger,
    Segment,
    Snapshot,
    Tier,
    Totals,
    with_note,
)
from inlay.format.values import decode_value, encode_value, is_value, widened
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AdvanceStream,
    AlterSchema,
    Change,
    CloseErasures,
    ClusterLeaves,
    DropMarkers,
    ExpireAll,
    ExpireThrough,
    ForgetContents,
    ForgetExpirations,
    HandOver,
    MoveBoundary,
    MoveErasures,
    OpenErasure,
    PackMetadata,
    RecountTotals,
    RemoveFiles,
    ReplaceContent,
    ReplaceFiles,
    SetPartitioning,
    SetProperties,
    SetRefs,
    TakeLayout,
    Unit,
    Update,
)
from inlay.plan.commit.conflicts import is_restamp
from inlay.plan.metadata.state import (
    LedgerSalt,
    State,
    choose_stats_columns,
    count_totals,
    forgotten_before,
    horizon,
    live_entries,
    mark_dead,
    open_tree,
)
from inlay.plan.pruning.partitions import repartitioned
from inlay.plan.pruning.prune import Evidence, all_match, trusted_under
from inlay.plan.refs import edited_refs, net_counts, ref_view, with_layout_of
from inlay.plan.scan import (
    marker_may_hit,
    marker_predicate,
    plan_scan,
    reference_may_hit,
)
from inlay.record import replace

E = TypeVar("E", bound=DataFile | Marker)


class Draft:
    """Builds the snapshot that a valid change makes of its base."""

    def __init__(
        self,
        state: State,
        change: Change,
        units: tuple[Unit, ...],
        remapped: tuple[Marker, ...],
        commit_id: str,
        salt: str,
    ) -> None:
        self.state = state
        self.base = state.snapshot
        self.evidence = Evidence.of_snapshot(state.snapshot)
        self.change = change
        self.units = units
        self.remapped = remapped
        self.commit_id = commit_id
        self.salt = next_salt(state.snapshot, change, salt)
        self.restamped = self._may_stay()
        # What leaves the table: files and markers; of whole segments there are only the sums.
        self.dropped = Totals()
        self.dropped_keys: set[str] = set()
        # By erasure that is opened: files and rows that its marker drops by metadata alone.
        self.emptied: dict[str, tuple[int, int]] = {}

    def build(self) -> Snapshot | None:
        base, change = self.base, self.change
        outputs = [f for u in self.units for f in u.outputs]
        gone = {key for u in self.units for key in u.inputs} | set(change.removed)
        files = self._without(base.files, gone - self.restamped.keys())
        files = self._drop_covered(files)
        new_markers = (
            *self._worth_keeping(Tier(files.segments, (*files.inline, *outputs)), change.markers),
            *self.remapped,
            *self._late(),
        )
        markers = self._remove_markers(base.markers, files, outputs)
        in_place = self._in_place(markers)
        files = self._without(files, self.restamped.keys() - in_place)
        added = (*change.added, *(f for f in outputs if f.key not in in_place))
        did_something = bool(
            added
            or new_markers
            or self.dropped.files
            or self.dropped.markers
            or change.request
            or change.events
            or any(map(always_commits, change.updates))
        )
        if not did_something:
            return None
        version = base.version + 1
        snapshot = replace(
            base,
            version=version,
            commit=self._commit(added, new_markers),
            properties=with_note(base.properties, None, version),
            files=Tier(files.segments, _stamped((*files.inline, *added), version)),
            markers=Tier(markers.segments, _stamped((*markers.inline, *new_markers), version)),
            ledger=self._ledger(),
            erasures=self._counted(),
            totals=base.totals + count_totals(added, new_markers) + -self.dropped,
        )
        for update in change.updates:
            snapshot = self._updated(snapshot, update)
        return self._follow(self._finished(snapshot))

    def _commit(self, added: Sequence[DataFile], new_markers: Sequence[Marker]) -> Commit:
        change = self.change
        return Commit(
            id=self.commit_id,
            operation=change.operation,
            request=change.request.text[:200] if change.request else None,
            added_files=len(added),
            removed_files=self.dropped.files,
            # Rows that surgery or compaction kept were in the table before.
            added_rows=sum(f.rows for f in change.added),
            removed_rows=self._deleted_rows(new_markers),
            added_bytes=sum(f.size for f in added),
            added_markers=len(new_markers),
            removed_markers=self.dropped.markers,
        )

    def _follow(self, snapshot: Snapshot) -> Snapshot:
        """With `changed` and `replaced`, the versions that last changed the content."""
        if self.change.of(ReplaceContent):
            version = snapshot.version
            return replace(snapshot, changed=version, replaced=version)
        if _rows_and_columns(snapshot) == _rows_and_columns(self.base):
            return snapshot
        return replace(snapshot, changed=snapshot.version)

    def _deleted_rows(self, kept: Sequence[Marker]) -> int | None:
        """The operation's count; for a constant-time delete what metadata proves, else unknown."""
        if self.change.deleted_rows is not None:
            return self.change.deleted_rows
        # A dropped file may have had rows deleted before: they would be counted twice.
        return self.dropped.rows if not kept and self.base.totals.markers == 0 else None

    def _without(self, tier: Tier[DataFile], gone: Set[str]) -> Tier[DataFile]:
        """The tier without the files of `gone`; those of them that it had are dropped."""
        if not gone:
            return tier
        kept, removed = self._parted(tier, self.state.contents.files, lambda f: f.key in gone)
        self._drop(removed)
        return kept

    def _drop(self, files: Sequence[DataFile]) -> Totals:
        """Counts files that leave the table; their sums."""
        sums = count_totals(files, ())
        self.dropped += sums
        self.dropped_keys.update(f.key for f in files)
        return sums

    def _parted(
        self,
        tier: Tier[E],
        loaded: Mapping[str, Sequence[E]],
        goes: Callable[[E], bool],
        may_go: Callable[[Segment], bool] = lambda _: True,
    ) -> tuple[Tier[E], list[E]]:
        """The tier without the entries that go, and these. What is not loaded stays, and so does what is in
        leaves of which none `may_go`."""
        nodes = self.state.contents.nodes
        dead: dict[str, list[int]] = {}
        gone: list[E] = []
        for leaf in open_tree(tier.segments, nodes).leaves:
            if leaf.id not in loaded or not may_go(leaf):
                continue
            for ordinal, entry in live_entries(leaf, loaded[leaf.id]):
                if goes(entry):
                    dead.setdefault(leaf.id, []).append(ordinal)
                    gone.append(entry)
        kept: list[E] = []
        for entry in tier.inline:
            (gone if goes(entry) else kept).append(entry)
        return Tier(mark_dead(tier.segments, nodes, dead), tuple(kept)), gone

    def _may_stay(self) -> Mapping[str, DataFile]:
        """The restamped files whose entries may stay where they are, by key. Not while an erasure is open,
        which asks which files are older, nor beside a new marker of the table, which may drop them."""
        of_table = any(marker.file is None for marker in self.change.markers)
        if self.base.erasures or of_table:
            return {}
        return {u.outputs[0].key: u.outputs[0] for u in self.units if is_restamp(u)}

    def _in_place(self, markers: Tier[Marker]) -> Set[str]:
        """Restamped files whose entries stay where they are. A restamp gives a file the sequence of the
        version that was read, for the deletes up to it; where none is left in `markers` that may hit the
        file, the old sequence means the same. So settling one delete of many files rewrites no leaf, and no
        manifest of a publication."""
        restamped = self.restamped
        if not restamped:
            return frozenset()
        remaining = State(replace(self.base, markers=markers), self.state.contents)
        others = [m for m in remaining.markers() if m.file is None]
        before = [f for f in self.state.loaded_files() if f.key in restamped]
        tasks = plan_scan(before, others, evidence=self.evidence).tasks
        return {
            t.file.key
            for t in tasks
            if all(marker_may_hit(m, restamped[t.file.key], self.evidence) for m in t.markers)
        }

    def _drop_covered(self, tier: Tier[DataFile]) -> Tier[DataFile]:
        """Drops files that a new table-wide range or predicate certainly empties, by metadata alone. Only
        loaded entries are checked, so that the delete stays constant in time; compaction finds the rest."""
        for marker in self.change.markers:
            predicate = marker_predicate(marker, self.base.schema)
            if marker.file is not None or predicate is None:
                continue
            if marker.erasure is None:  # an erasure counts what it removes
                kept = (s for s in tier.segments if not self._drops_whole(s, predicate))
                tier = Tier(tuple(kept), tier.inline)
            tier, covered = self._parted(
                tier,
                self.state.contents.files,
                partial(self._is_emptied, predicate),
                partial(reference_may_hit, marker, evidence=self.evidence),
            )
            emptied = self._drop(covered)
            if marker.erasure is not None:
                self.emptied[marker.erasure] = emptied.files, emptied.rows
        return tier

    def _drops_whole(self, segment: Segment, predicate: Predicate) -> bool:
        """Counts and drops whole segments, where the sums are those of live entries."""
        known = segment.id in self.state.contents.files or segment.id in self.state.contents.nodes
        is_whole = segment.live == segment.count
        if known or not is_whole or not all_match(predicate, trusted_under(segment), segment.rows):
            return False
        self.dropped += Totals(segment.count, segment.rows, segment.bytes)
        return True

    def _is_emptied(self, predicate: Predicate, entry: DataFile) -> bool:
        return entry.rows > 0 and all_match(predicate, self.evidence.trusted(entry), entry.rows)

    def _worth_keeping(
        self, files: Tier[DataFile], markers: tuple[Marker, ...]
    ) -> tuple[Marker, ...]:
        """New table-wide markers that may still hit a file: the others have no effect any more. An erasure
        keeps its marker until its end."""
        kept: list[Marker] = []
        for marker in markers:
            of_one = marker.file is not None or marker.erasure is not None
            if of_one or self._may_have(files, *self._hits(marker)):
                kept.append(marker)
        return tuple(kept)

    def _hits(self, marker: Marker) -> tuple[Callable[[DataFile], bool], Callable[[Segment], bool]]:
        """Whether the marker may hit a file, and a file under a reference."""
        return (
            partial(marker_may_hit, marker, evidence=self.evidence),
            partial(reference_may_hit, marker, evidence=self.evidence),
        )

    def _may_have(
        self,
        files: Tier[DataFile],
        is_one: Callable[[DataFile], bool],
        may_have: Callable[[Segment], bool],
    ) -> bool:
        """Whether a file, as it is after the change, is one, or a reference to what is not loaded may have
        one."""

        def as_they_are(entries: Iterable[DataFile]) -> Iterator[DataFile]:
            return (self.restamped.get(f.key, f) for f in entries)

        if any(map(is_one, as_they_are(files.inline))):
            return True
        loaded = self.state.contents.files
        opened = open_tree(files.segments, self.state.contents.nodes)
        return any(map(may_have, opened.closed)) or any(
            leaf.id not in loaded
            or any(map(is_one, as_they_are(f for _, f in live_entries(leaf, loaded[leaf.id]))))
            for leaf in opened.leaves
            if may_have(leaf)
        )

    def _remove_markers(
        self, tier: Tier[Marker], files: Tier[DataFile], outputs: Sequence[DataFile]
    ) -> Tier[Marker]:
        """Without the markers of removed files, those to be dropped that are idle, and those of a closed
        erasure. `files` are the other files, beside `outputs`; a file that is its own output (a restamp)
        was not removed."""
        files = Tier(files.segments, (*files.inline, *outputs))
        removed = self.dropped_keys - {f.key for f in outputs}
        # A restamped file keeps its key and loses the markers that were found not to hit it.
        applied = {i for u in self.units for i in u.applied}
        to_drop = self.change.dropped
        closed = self.change.forgotten
        if not removed and not applied and not to_drop and not closed:
            return tier

        def goes(marker: Marker) -> bool:
            if marker.id in applied or (marker.file is not None and marker.file in removed):
                return True
            if marker.id not in to_drop and marker.erasure not in closed:
                return False
            if marker.file is not None:
                return not self._may_have(files, lambda f: f.key == marker.file, lambda _: True)
            return not self._may_have(files, *self._hits(marker))

        # Readers ignore markers of missing files that are not loaded; compaction drops them.
        kept, gone = self._parted(tier, self.state.contents.markers, goes)
        self.dropped += Totals(markers=len(gone))
        return kept

    def _ledger(self) -> Ledger:
        salt, ledger = self.salt, self.base.ledger
        records = tuple(
            LedgerRecord(id=r.id, body=salt.digest(r.body) if salt and r.body else r.body)
            for r in (self.change.request, *self.change.events, *self.change.objects)
            if r is not None
        )
        before_us = forgotten_before(self.base)
        kept = tuple(
            s for s in ledger.records.segments if s.last_us is None or s.last_us >= before_us
        )
        return Ledger(
            records=Tier(kept, (*ledger.records.inline, *records)),
            horizon_us=horizon(self.base),
            streams=ledger.streams,
        )

    def _late(self) -> tuple[Marker, ...]:
        """Markers for files made from objects that are older than an open erasure: their rows existed when
        it was opened, and would become visible again with the sequence of this commit."""
        uploads = [source for u in self.change.of(AddFiles) for source in u.sources_us.items()]
        return tuple(
            Marker(id=f"{e.id}:{key}", body=Where(e.predicate), file=key, erasure=e.id)
            for key, made_us in uploads
            for e in self.base.erasures
            if e.predicate is not None and made_us <= e.opened_us
        )

    def _counted(self) -> tuple[Erasure, ...]:
        """The erasures of the base, with the units' counts added."""
        by_id = {erasure.id: erasure for erasure in self.base.erasures}
        for name, objects, rows in (gone for unit in self.units for gone in unit.erased):
            if name in by_id:
                before = by_id[name]
                objects, rows = before.objects + objects, before.rows + rows
                by_id[name] = replace(before, objects=objects, rows=rows)
        return tuple(by_id.values())

    def _updated(self, snapshot: Snapshot, update: Update) -> Snapshot:
        """What an update changes other than entries."""
        version = snapshot.version
        match update:
            case AddFiles() | AddMarkers() | RemoveFiles() | ReplaceFiles() | DropMarkers():
                return snapshot  # `build` has changed the entries
            case PackMetadata() | ClusterLeaves():
                return snapshot  # where entries are is `apply.fit_pointer`'s
            case SetProperties(properties):
                return _with_properties(snapshot, properties)
            case HandOver(at):
                return _with_properties(snapshot, {HANDED_OVER: None if at is None else str(at)})
            case AlterSchema(evolution=evolution):
                from inlay.plan.schema_conflicts import altered, evolved
                from inlay.plan.schema_evolution import field_at

                schema = evolved(self.base, update)
                declared = {field_at(schema, path).id: t for path, t in evolution.declared}
                types = with_arrow_types(_with_widened_orders(snapshot, schema), declared)
                return replace(altered(snapshot, schema, update), properties=types)
            case SetPartitioning():
                return repartitioned(snapshot, update)
            case MoveBoundary(time_us):
                is_later = time_us is None or time_us > (snapshot.boundary.time_us or 0)
                boundary = Boundary(version, time_us) if is_later else snapshot.boundary
                return replace(snapshot, boundary=boundary)
            case ExpireThrough(last):
                new = (Expiration(last, None),) if last >= snapshot.oldest_version else ()
                return replace(snapshot, expired=(*snapshot.expired, *new))
            case ExpireAll():
                return replace(
                    snapshot,
                    expired=(*snapshot.expired, Expiration(self.base.version, None)),
                    refs={k: replace(r, base=0) for k, r in snapshot.refs.items()},
                )
            case ForgetExpirations(before_us):
                # The newest of those past their grace stays: it records up to where versions are gone and,
                # when it is the only one, which version is the oldest.
                expired = snapshot.expired
                past = [e for e in expired if e.time_us is not None and e.time_us < before_us]
                young = [e for e in expired if e not in past]
                return replace(snapshot, expired=(*past[-1:], *young))
            case OpenErasure() | MoveErasures() | CloseErasures():
                return self._with_erasures(snapshot, update)
            case SetRefs():
                return replace(snapshot, refs=edited_refs(snapshot, update))
            case ReplaceContent(content):
                commit = net_counts(snapshot.commit, self.base.totals, content.totals)
                return replace(ref_view(snapshot, content), commit=commit)
            case TakeLayout(content):
                return with_layout_of(snapshot, content)
            case AdvanceStream(query, batch):
                streams = {**snapshot.ledger.streams, query: batch}
                ledger = replace(snapshot.ledger, streams=streams)
                return replace(snapshot, ledger=ledger)
            case RecountTotals():
                live = State(snapshot, self.state.contents)
                totals = count_totals(live.files(), live.markers())
                return replace(snapshot, totals=totals)
            case ForgetContents():
                return snapshot  # by the salt: `_finished`
            case _:
                assert_never(update)

    def _with_erasures(
        self, snapshot: Snapshot, update: OpenErasure | MoveErasures | CloseErasures
    ) -> Snapshot:
        """With the erasures as they are after an update of them."""
        before, version = snapshot.erasures, snapshot.version
        match update:
            case OpenErasure(erasure):
                # Files that its marker empties by metadata alone have left in this commit.
                objects, rows = self.emptied.get(erasure.id, (0, 0))
                opened = replace(erasure, opened_version=version)
                after = (*before, _in_phase(opened, version, objects, rows))
            case MoveErasures(erasures):
                # Counts are the base's: the planner may not have seen the last ones.
                moved = {e.id: e for e in erasures}
                after = tuple(
                    _in_phase(moved[e.id], version, e.objects, e.rows) if e.id in moved else e
                    for e in before
                )
            case CloseErasures(ids, _, chain):
                after = tuple(e for e in before if e.id not in ids)
                if chain is not None:
                    snapshot = _with_properties(snapshot, {RECEIPT_CHAIN: chain.becomes})
        return replace(snapshot, erasures=after)

    def _finished(self, snapshot: Snapshot) -> Snapshot:
        """With what follows from several updates."""
        if self.salt is not None:
            snapshot = _with_properties(snapshot, {LEDGER_SALT: self.salt.as_property})
        if any(map(_chooses_columns, self.change.updates)):
            columns = choose_stats_columns(
                snapshot.schema,
                snapshot.primary_key,
                snapshot.sort_by,
                snapshot.properties,
                partitioned_by=tuple(f.source for f in snapshot.spec.fields),
            )
            snapshot = replace(snapshot, stats_columns=columns)
        return snapshot


def _with_properties(snapshot: Snapshot, changed: Mapping[str, str | None]) -> Snapshot:
    """With these properties changed; None takes one away."""
    merged = {**snapshot.properties, **changed}
    return replace(
        snapshot, properties={name: value for name, value in merged.items() if value is not None}
    )


def _in_phase(erasure: Erasure, version: int, objects: int, rows: int) -> Erasure:
    """The erasure, which enters its phase with these counts."""
    return replace(erasure, phase_version=version, objects=objects, rows=rows)


def _chooses_columns(update: Update) -> bool:
    """Whether it can change the columns that have statistics."""
    if isinstance(update, SetProperties):
        return "stats.columns" in update.properties
    return isinstance(update, AlterSchema | SetPartitioning)


def always_commits(update: Update) -> bool:
    """Whether an update alone makes a commit. For entries that depends on the base."""
    match update:
        case AddFiles() | AddMarkers() | RemoveFiles() | ReplaceFiles() | DropMarkers():
            return False
        case SetProperties(properties):
            return bool(properties)
        case PackMetadata() | ClusterLeaves() | AlterSchema() | SetPartitioning() | SetRefs():
            return True
        case OpenErasure() | MoveErasures() | CloseErasures() | ForgetContents() | HandOver():
            return True
        case MoveBoundary() | ExpireThrough() | ExpireAll() | ForgetExpirations():
            return True
        case ReplaceContent() | TakeLayout() | AdvanceStream() | RecountTotals():
            return True


def _with_widened_orders(snapshot: Snapshot, schema: Schema) -> Mapping[str, str]:
    """The properties of a snapshot that gets this schema: entries of ordered categories are values in the
    form of their column's type, which may have become wider."""
    orders = arrow_categories(snapshot.properties)
    text = categories_text(
        {
            i: _widened_entries(o, snapshot.schema.by_id(i), schema.by_id(i))
            for i, o in orders.items()
        }
    )
    if text is None or categories_text(orders) == text:
        return snapshot.properties
    return {**snapshot.properties, ARROW_CATEGORIES: text}


def _widened_entries(
    entries: tuple[Any, ...], before: Field | None, after: Field | None
) -> tuple[Any, ...]:
    """No row has an entry that the wider type cannot hold (a day outside of its years): it is left out."""
    kinds = (before and before.type, after and after.type)
    match kinds:
        case (Primitive() as source, Primitive() as target) if source != target:
            values = (widened(decode_value(source, e), source, target) for e in entries)
            return tuple(encode_value(target, v) for v in values if is_value(target, v))
        case _:  # of the type they had, or no longer a column of values
            return entries


def _rows_and_columns(snapshot: Snapshot) -> tuple[object, ...]:
    shape = (snapshot.schema_id, snapshot.spec_id, snapshot.primary_key, snapshot.sort_by)
    return (*shape, snapshot.files, snapshot.markers)


def _stamped(entries: Iterable[E], version: int) -> tuple[E, ...]:
    """Inline entries being committed have their version from here on."""
    return tuple(
        entry if entry.sequence is not None else replace(entry, sequence=version)
        for entry in entries
    )


def next_salt(base: Snapshot, change: Change, fresh: str) -> LedgerSalt | None:
    """The salt from the commit of `change` on. The first request with a content introduces the first salt,
    `ForgetContents` another."""
    current = LedgerSalt.of(base.properties)
    version = base.version + 1
    forgets = bool(change.of(ForgetContents))
    if current is not None:
        return LedgerSalt(fresh, version, current.plain_before) if forgets else current
    requests = (change.request, *change.events)
    if forgets or any(r is not None and r.body is not None for r in requests):
        return LedgerSalt(fresh, version, version)
    return None
