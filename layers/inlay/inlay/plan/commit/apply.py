"""Apply: a change on a base, as a pure function; what no longer fits into the pointer moves into segments.

Promise: `apply` neither waits nor reads; for the same state and change it returns the same. It is called
again on every rebase, so everything that must hold (the request is new, what was read has not changed,
inputs still exist, no object is older than the boundary) is checked against the base that is then swapped
out.

The pointer stays small, whatever the table's size (`fit_pointer`): a snapshot over the pointer's target has
its largest parts moved into segments, until it fits or until what is left (schemas, a few references) is
neither inline nor worth gathering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from inlay.format.codec import encode_schemas, encode_snapshot, version_of
from inlay.format.entry import ColumnStats, DataFile, LedgerRecord, Marker, Types
from inlay.format.properties import handed_over
from inlay.format.snapshot import (
    LEDGER_MAX_RECORDS,
    MARKERS_MAX_ENTRIES,
    MAX_SCHEMA_OBJECTS,
    PARTITION_VALUES,
    POINTER_TARGET_BYTES,
    SCHEMAS_INLINE_BYTES,
    SEGMENT_MAX_ENTRIES,
    SchemaObject,
    Segment,
    Snapshot,
    Tier,
    thin_time_index,
    with_note,
)
from inlay.format.values import order_key
from inlay.lazy import LazyModule
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AlreadyApplied,
    AlterSchema,
    Change,
    ClusterLeaves,
    Conflict,
    DropMarkers,
    HandedOver,
    HandOver,
    NeedSegments,
    NewSegment,
    Outcome,
    PackMetadata,
    Proposal,
    RemoveFiles,
    ReplaceFiles,
    RequestRefused,
    SetPartitioning,
    Stale,
    TableUpdate,
    Unchanged,
    Update,
)
from inlay.plan.commit.conflicts import needed, units_that_hold, validate
from inlay.plan.commit.draft import Draft
from inlay.plan.metadata.leaves import Packing, Writer, gather, gatherable, rebuild, roll
from inlay.plan.metadata.state import (
    State,
    forgotten_before,
    ledger_records,
    live_entries,
    look_up,
)
from inlay.plan.pruning.partitions import has_partitioning
from inlay.plan.pruning.prune import Evidence
from inlay.record import Record, replace

if TYPE_CHECKING:
    from inlay.format import leaves
    from inlay.plan import schema_conflicts
else:  # most commits write no leaf, and alter no schema
    leaves = LazyModule("inlay.format.leaves")
    schema_conflicts = LazyModule("inlay.plan.schema_conflicts")

E = TypeVar("E", bound=DataFile | Marker)

# Columns bounded in a reference: partition, sort and key columns prune best, and every column costs about
# 30 bytes in each reference.
REFERENCE_COLUMNS = 3
# Bytes of entries and references that a pointer holds before it rolls, however large the rest of it is, so
# that at most one small commit in ten writes a segment.
INLINE_MIN_BYTES = 2_400


class _Entries(Packing[E]):
    """Files or markers. A new one takes its sequence from the reference to its leaf: the version of its
    commit may change on a rebase."""

    def __init__(self, state: State, snapshot: Snapshot, loaded: Mapping[str, Sequence[E]]) -> None:
        self.version = state.snapshot.version + 1
        self.types = Types(snapshot.schemas)
        self.loaded = loaded

    def as_written(self, entries: Sequence[E]) -> Sequence[E]:
        return [replace(e, sequence=None) if self.is_new(e) else e for e in entries]

    def is_new(self, entry: E) -> bool:
        return entry.sequence == self.version

    def live(self, leaf: Segment) -> list[E] | None:
        entries = self.loaded.get(leaf.id)
        return None if entries is None else [e for _, e in live_entries(leaf, entries)]


class _Files(_Entries[DataFile]):
    kind = "files"
    most = SEGMENT_MAX_ENTRIES

    def __init__(self, state: State, snapshot: Snapshot) -> None:
        super().__init__(state, snapshot, state.contents.files)
        self.evidence = Evidence.of_snapshot(snapshot)
        self.keys = (*snapshot.sort_by, *snapshot.primary_key)
        split = [field.source for field in snapshot.spec.fields]
        self.columns = tuple(dict.fromkeys((*split, *self.keys)))[:REFERENCE_COLUMNS]

    def encode(self, entries: Sequence[DataFile]) -> bytes:
        return leaves.encode_files(entries, self.types)

    def summarize(self, leaf: Segment, entries: Sequence[DataFile]) -> Segment:
        schema_id, stats = self.evidence.of_files(entries, self.columns)
        return replace(
            leaf,
            rows=sum(f.rows for f in entries),
            bytes=sum(f.size for f in entries),
            stats=stats,
            schema_id=schema_id,
        )

    def bounds(self, leaves: Sequence[Segment]) -> tuple[int, dict[int, ColumnStats]]:
        return self.evidence.of_references(leaves)

    def in_order(self, entries: Sequence[DataFile]) -> Sequence[DataFile]:
        if not self.columns:
            return entries
        return sorted(entries, key=self._place)

    def _place(self, entry: DataFile) -> tuple[Any, ...]:
        """Sort key: partition, then sort columns, then the key. Unknown values come last; values of another
        type count as unknown, because they may not compare."""
        partition = tuple((v is None, str(type(v)), v) for v in entry.partition)
        lowers = (self.evidence.lower(entry, field_id) for field_id in self.keys)
        return (
            entry.spec_id,
            partition,
            *((True,) if v is None else (False, order_key(v)) for v in lowers),
        )


class _Markers(_Entries[Marker]):
    kind = "markers"
    most = MARKERS_MAX_ENTRIES
    growth = 16  # every scan reads all of them, and they are small

    def encode(self, entries: Sequence[Marker]) -> bytes:
        return leaves.encode_markers(entries, self.types)


class _Records(Packing[LedgerRecord]):
    kind = "ledger"
    most = LEDGER_MAX_RECORDS

    def __init__(self, state: State, snapshot: Snapshot) -> None:
        self.loaded = state.contents.ledger
        self.types = Types(snapshot.schemas)
        self.forgotten_us = forgotten_before(snapshot)

    def encode(self, entries: Sequence[LedgerRecord]) -> bytes:
        return leaves.encode_ledger(entries)

    def is_new(self, entry: LedgerRecord) -> bool:
        return entry.version is None

    def summarize(self, leaf: Segment, entries: Sequence[LedgerRecord]) -> Segment:
        times = [r.time_us for r in entries if r.time_us is not None]
        being_committed = any(r.version is None for r in entries)
        return replace(
            leaf,
            first_us=min(times, default=None),
            last_us=None if being_committed else max(times, default=None),
        )

    def may_gather(self, leaf: Segment) -> bool:
        return leaf.last_us is not None  # the time of the current commit is not known yet

    def is_needed(self, leaf: Segment) -> bool:
        return leaf.last_us is None or leaf.last_us >= self.forgotten_us

    def live(self, leaf: Segment) -> list[LedgerRecord] | None:
        contents = self.loaded.get(leaf.id)
        if contents is None:
            return None
        records = ledger_records(leaf, contents)
        return [r for r in records if r.time_us is None or r.time_us >= self.forgotten_us]


def fit_pointer(
    snapshot: Snapshot, state: State, change: Change, name: Callable[[bytes], str]
) -> tuple[Snapshot, tuple[NewSegment, ...]] | NeedSegments:
    """`snapshot`, which `change` made of `state`, with its pointer within its target."""
    packs: Mapping[str, Packing[Any]] = {
        "files": _Files(state, snapshot),
        "markers": _Markers(state, snapshot, state.contents.markers),
        "ledger": _Records(state, snapshot),
    }
    nodes = state.contents.nodes
    writer = Writer(snapshot.version, name)
    snapshot = _with_schemas_apart(snapshot, writer)
    for tier_name, chosen in _to_rebuild(change, packs):
        packed = rebuild(_tiers(snapshot)[tier_name], packs[tier_name], writer, nodes, chosen)
        if isinstance(packed, NeedSegments):
            return packed
        snapshot = _with_tiers(snapshot, {tier_name: packed})
    size = len(encode_snapshot(snapshot))
    limit = POINTER_TARGET_BYTES
    if size > limit:
        # A wide schema may fill the target on its own: entries then still get room to gather in.
        bare = _with_tiers(snapshot, dict.fromkeys(packs, Tier()))
        limit = max(limit, len(encode_snapshot(bare)) + INLINE_MIN_BYTES)
    while size > limit:
        weights: dict[tuple[str, bool], int] = {}
        tiers = _tiers(snapshot)
        for tier_name, tier in tiers.items():
            pack = packs[tier_name]
            weights[tier_name, False] = len(pack.encode(tier.inline)) if tier.inline else 0
            weights[tier_name, True] = gatherable(tier, pack)
        (tier_name, is_gather), weight = max(weights.items(), key=lambda item: item[1])
        if weight == 0:
            break
        tier, pack = tiers[tier_name], packs[tier_name]
        packed = gather(tier, pack, writer, nodes) if is_gather else roll(tier, pack, writer)
        if isinstance(packed, NeedSegments):
            return packed
        snapshot = _with_tiers(snapshot, {tier_name: packed})
        size = len(encode_snapshot(snapshot))
    return snapshot, tuple(writer.written)


def _with_schemas_apart(snapshot: Snapshot, writer: Writer) -> Snapshot:
    """Schemas that are wide or many leave the pointer, which every commit writes twice."""
    apart = snapshot.separate_schemas
    carried = [s for s in snapshot.schemas if s.id not in apart]
    if len(encode_schemas(carried)) <= SCHEMAS_INLINE_BYTES:
        return snapshot
    kept = snapshot.schema_objects
    if len(kept) >= MAX_SCHEMA_OBJECTS:
        kept, carried = (), list(snapshot.schemas)
    data = encode_schemas(carried)
    schema_object = SchemaObject(writer.name(data), len(data), tuple(s.id for s in carried))
    writer.written.append(NewSegment(schema_object.id, data, "schemas", tuple(carried)))
    return replace(snapshot, schema_objects=(*kept, schema_object))


def _to_rebuild(
    change: Change, packs: Mapping[str, Packing[Any]]
) -> list[tuple[str, Callable[[Segment], bool]]]:
    """(tier, which leaves of it to rewrite)."""
    clustered = {leaf for u in change.of(ClusterLeaves) for leaf in u.leaves}
    if clustered:
        return [("files", lambda leaf: leaf.id in clustered)]
    if not change.of(PackMetadata):
        return []

    def untidy(tier_name: str) -> Callable[[Segment], bool]:
        return lambda leaf: bool(leaf.dead) or not packs[tier_name].is_full(leaf)

    return [(tier_name, untidy(tier_name)) for tier_name in ("files", "markers")]


def _tiers(snapshot: Snapshot) -> dict[str, Tier[Any]]:
    """By the kind of their entries."""
    records = snapshot.ledger.records
    return {"files": snapshot.files, "markers": snapshot.markers, "ledger": records}


def _with_tiers(snapshot: Snapshot, changed: Mapping[str, Tier[Any]]) -> Snapshot:
    tiers = {**_tiers(snapshot), **changed}
    ledger = replace(snapshot.ledger, records=tiers["ledger"])
    return replace(snapshot, files=tiers["files"], markers=tiers["markers"], ledger=ledger)


def apply(
    state: State,
    change: Change,
    *,
    commit_id: str,
    name: Callable[[bytes], str],
    resolved: int = 0,
) -> Outcome:
    """The result of committing `change` on top of `state`. Times must have been filled in
    (`format.snapshot.with_open_times`). `name` gives new segments their ids; `resolved`: see
    `plan.commit.conflicts.needed`."""
    admitted = admit(state, change)
    if not isinstance(admitted, Admitted):
        return admitted
    change = admitted.change

    edits = [u for u in change.of(AlterSchema) if schema_conflicts.is_evolved(state.snapshot, u)]
    layouts = [u for u in change.of(SetPartitioning) if has_partitioning(state.snapshot, u)]
    if edits or layouts:
        if len(edits) + len(layouts) == len(change.updates):
            return Unchanged()
        # What comes with it, rows under the new columns, was planned on the table without them.
        return Conflict("the columns or partitions were changed in the same way by another commit")
    needs = needed(state, change, resolved=resolved)
    if needs is not None:
        return needs

    conflict = validate(state, change)
    if conflict is not None:
        return conflict
    units, skipped, remapped = units_that_hold(state, change)
    if skipped and any(u.whole for u in change.of(ReplaceFiles)):
        skipped_files = frozenset(key for unit in skipped for key in unit.inputs)
        return Conflict(
            "files whose rows were to be deleted were replaced or marked", skipped_files
        )
    draft = Draft(state, change, units, remapped, commit_id, name(b"salt"))
    snapshot = draft.build()
    if snapshot is None:
        return Unchanged(skipped)
    if denies_version(snapshot):
        return Conflict(
            "columns of adopted files are only in their partitions, which is format version "
            f"{PARTITION_VALUES}, and the property format.max_version denies that"
        )
    rolled = fit_pointer(snapshot, state, change, name)
    if isinstance(rolled, NeedSegments):
        return rolled
    snapshot, segments = rolled
    # Afterwards: a note is gone from the next pointer, and nothing is worth moving for it.
    noted = with_note(snapshot.properties, change.note, snapshot.version)
    snapshot = replace(snapshot, properties=noted)
    return Proposal(snapshot, segments, admitted.duplicates, skipped)


def denies_version(snapshot: Snapshot) -> bool:
    """Whether the table's properties deny the format version that it has."""
    version = version_of(snapshot.schemas)
    return version > int(snapshot.settings.text("format.max_version"))


class Admitted(Record):
    """The part of a change that is still to be done; `duplicates` are its events applied before."""

    change: Change
    duplicates: frozenset[bytes]


Admission = Admitted | NeedSegments | AlreadyApplied | RequestRefused | Stale | HandedOver


def admit(state: State, change: Change) -> Admission:
    """Whether a change may be applied at all: its objects are safe from GC, its requests are new, the table
    is this library's. What was applied before stays applied."""
    boundary_us = state.snapshot.boundary.time_us or 0
    if change.uploaded_us is not None and change.uploaded_us < boundary_us:
        return Stale()
    known = look_up(state, change.request, change.events)
    if not isinstance(known, frozenset):
        return known
    twice = _twice(state, change)
    if twice is not None:
        return twice
    if handed_over(state.snapshot.properties) is not None and not change.of(HandOver):
        return HandedOver()
    return Admitted(without_duplicates(change, known), known)


def _twice(state: State, change: Change) -> NeedSegments | RequestRefused | None:
    """Why rows of this change would be in the table twice. An object has its name from whoever wrote it:
    another commit may have brought it meanwhile, and its rows may be in other files by now, so the ledger
    says so. A file of this library may be in the table only if another writer took it for its own."""
    live = {f.key for f in state.snapshot.files.inline}.difference(change.removed)
    repeated = sorted(live.intersection(f.key for f in change.added))
    known = look_up(state, None, change.objects)
    match known:
        case NeedSegments() | RequestRefused():
            return known
        case AlreadyApplied(duplicates=ids):
            repeated += [o.text for o in change.objects if o.id in ids]
        case frozenset():
            repeated += [o.text for o in change.objects if o.id in known]
        case _:
            assert_never(known)
    return RequestRefused(f"they came in {repeated[0][:200]}", "twice") if repeated else None


def seal(proposal: Proposal, *, date_us: int, previous_us: int) -> Snapshot:
    """The proposed snapshot with its commit time: strictly after its parent's, else the store's clock
    (docs/FORMAT.md, section 5)."""
    time_us = max(previous_us + 1, date_us)
    draft = proposal.snapshot

    def stamped(record: LedgerRecord) -> LedgerRecord:
        if record.version is not None:
            return record
        return replace(record, version=draft.version, time_us=time_us)

    def dated(leaf: Segment) -> Segment:
        if leaf.last_us is not None:
            return leaf
        first_us = time_us if leaf.first_us is None else leaf.first_us
        return replace(leaf, first_us=first_us, last_us=time_us)

    records = draft.ledger.records
    return replace(
        draft,
        commit=replace(draft.commit, time_us=time_us),
        ledger=replace(
            draft.ledger,
            records=Tier(tuple(map(dated, records.segments)), tuple(map(stamped, records.inline))),
        ),
        time_index=thin_time_index((*draft.time_index, (draft.version, time_us)), draft.version),
        erasures=tuple(
            replace(
                e,
                opened_us=e.opened_us or time_us,
                swept_us=time_us if e.swept_us == 0 else e.swept_us,
            )
            for e in draft.erasures
        ),
    )


def without_duplicates(change: Change, known: frozenset[bytes]) -> Change:
    if not known:
        return change
    tokens = {r.token for r in change.events if r.id in known}
    dropped = {f.key for f in change.added if f.event in tokens}

    def without(update: Update) -> Update:
        if isinstance(update, TableUpdate):
            return update
        match update:
            case AddFiles(files, sources_us):
                return replace(
                    update,
                    files=tuple(f for f in files if f.key not in dropped),
                    sources_us={k: us for k, us in sources_us.items() if k not in dropped},
                )
            case AddMarkers(markers):
                return AddMarkers(tuple(m for m in markers if m.file not in dropped))
            case RemoveFiles() | ReplaceFiles() | DropMarkers() | PackMetadata() | ClusterLeaves():
                return update  # no event brings them
            case _:
                assert_never(update)

    return replace(
        change,
        events=tuple(r for r in change.events if r.id not in known),
        updates=tuple(map(without, change.updates)),
    )
