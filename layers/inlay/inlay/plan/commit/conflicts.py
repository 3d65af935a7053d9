"""Conflicts: whether a change still holds on another base than it was planned on.

The matrix (rows: what was planned; columns: what was committed since). `tests/plan/test_conflicts.py` runs
both orders of every pair.

================ ======= ============ ============ ========= ========= ========
planned          append  table delete row delete   update    rewrite   expire
================ ======= ============ ============ ========= ========= ========
append           ok      ok           ok           ok        ok        ok
table delete     ok      ok           ok           ok        ok        ok
row delete       ok (1)  ok           ok: union    again (2) again (2) ok
update, merge    again?3 again?3      again?3      again?3   again (2) ok
upsert by key    ok      ok           ok           ok        ok        ok
change stream    again?3 again?3      again?3      again (9) again (2) ok
rewrite, compact ok      ok           remap/skip 4 skip (4)  skip (4)  ok
expire, GC       ok      ok           ok           ok        ok        ok
partition        ok      ok           ok           ok        ok        ok
================ ======= ============ ============ ========= ========= ========

On one branch. Commits on different branches only share the ledger and refs.

================ ======================= ===================== ==========================
planned          restore, fast-forward   merge of a branch     an edit of the same ref
================ ======================= ===================== ==========================
append           ok                      ok                    ok
table delete     ok: on what is restored ok: hits its rows too ok
upsert by key    ok: on what is restored ok: hits its rows too ok
row delete       again (5)               as append, row delete ok
update, merge    again (5)               as append, row delete ok
rewrite, compact skip (5)                as append, row delete ok
expire, GC       ok                      ok                    ok
restore          ok                      ok                    again (6)
fast-forward     again (7)               again (7)             again (6)
merge of branch  again (7)               again (7)             again (6)
tag, branch, …   ok (8)                  ok (8)                again (6)
================ ======================= ===================== ==========================

A planned restore, fast-forward or merge treats rows committed since as follows: a restore replaces them;
the other two are planned again (7); if what they need has expired they are refused (8).

1 under `serializable` isolation it reads, and is planned again when a file that may match was added
2 when a file it names is no longer live: it is planned again for the replacement
3 when a data-changing file that may match its predicate was added, or a marker that may hit a file it read
4 the unit is remapped (1:1 rewrites, few rows) or given up; other units of the change continue
5 the content was replaced after the version it was planned on (`Snapshot.replaced`): files that are live in
both may
  have other deletes now, and there may be rows that were not seen
6 a ref it changes, or takes content from, has changed (`SetRefs.were`)
7 any row or column of main changed since (`SameMain`)
8 when what it names is still kept (`Retained`)
9 as an update, and beside another change stream with deletes (`SameProperty`): a delete of a key that the
  table does not have leaves no row and no marker (one that hits nothing is not kept), but it is remembered

A change of the partitioning conflicts only with another one, unless they are equal; every change is
compatible with a committed one. `plan.schema_conflicts` covers changes of the schema; an upsert is also
planned again when a column was added (`NoNewColumns`), whose values it then keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, assert_never

from inlay.format.entry import DataFile, Marker, Rows
from inlay.format.predicate import field_ids
from inlay.format.properties import RECEIPT_CHAIN
from inlay.format.snapshot import Segment, Snapshot
from inlay.lazy import LazyModule
from inlay.plan.change import (
    AddFiles,
    AddMarkers,
    AllClean,
    AlterSchema,
    Change,
    CloseErasures,
    Conflict,
    HandOver,
    MoveErasures,
    NeedSegments,
    NoNewColumns,
    OnlyFiles,
    OnlyHolds,
    OnlyRefs,
    OpenErasure,
    Reads,
    RecountTotals,
    RemoveFiles,
    ReplaceFiles,
    Requirement,
    Retained,
    SameContent,
    SameMain,
    SameProperty,
    SameSchema,
    SetPartitioning,
    SetRefs,
    TakeLayout,
    Unconditional,
    Unit,
    Update,
)
from inlay.plan.erasure import legal_holds, validate_clean, validate_phase
from inlay.plan.metadata.state import SegmentFilter, State
from inlay.plan.pruning.compared import uncompared
from inlay.plan.pruning.partitions import repartitioned, validate_spec
from inlay.plan.pruning.prune import Evidence, may_match
from inlay.plan.refs import is_retained, validate_refs
from inlay.plan.scan import fields_of_marker, marker_may_hit
from inlay.record import replace

if TYPE_CHECKING:
    from inlay.plan import schema_conflicts
else:  # most commits alter no schema
    schema_conflicts = LazyModule("inlay.plan.schema_conflicts")


def validate(state: State, change: Change) -> Conflict | None:
    """The first of the change's updates and requirements that does not hold on `state`."""
    for update in change.updates:
        conflict = _against_update(state, change, update)
        if conflict is not None:
            return conflict
    for requirement in change.requires:
        conflict = _against_requirement(state, change, requirement)
        if conflict is not None:
            return conflict
    return None


def _against_update(state: State, change: Change, update: Update) -> Conflict | None:
    """The requirements of an update itself."""
    snapshot = state.snapshot
    match update:
        case AddFiles(files):
            # An engine brings files under the columns that it makes, a merge under those that it takes.
            snapshot = _with_columns(snapshot, change)
            key = next((u.content.primary_key for u in change.of(TakeLayout)), snapshot.primary_key)
            if any(uncompared(snapshot, entry, key, update.compared) for entry in files):
                return Conflict("the key was changed while files of other writers were checked")
            return _validate_added(snapshot, files, derived=change.reads is not None)
        case AddMarkers(markers):
            marked_files = {m.file for m in markers if m.file is not None}
            columns: frozenset[int] = frozenset().union(*map(fields_of_marker, markers))
            added = {f.key for f in change.added}
            return _validate_live(state, marked_files - added) or _validate_columns(
                snapshot, columns
            )
        case RemoveFiles(keys):
            return _validate_live(state, set(keys))
        case AlterSchema():
            return schema_conflicts.validate_schema(_partitioned(state, change), update)
        case SetPartitioning():
            return validate_spec(_with_columns(snapshot, change), update)
        case OpenErasure(erasure):
            columns = field_ids(erasure.predicate) if erasure.predicate else frozenset()
            moved_on = validate_phase(snapshot, [erasure.id], None)
            return moved_on or _validate_columns(snapshot, columns)
        case HandOver():
            return Conflict("an erasure is open") if snapshot.erasures else None
        case MoveErasures(erasures, leaves):
            return validate_phase(snapshot, [e.id for e in erasures], leaves)
        case CloseErasures(ids, leaves, chain):
            moved_on = validate_phase(snapshot, ids, leaves)
            if moved_on is None and chain and chain.was != snapshot.properties.get(RECEIPT_CHAIN):
                return Conflict(
                    "other erasures ended meanwhile, with the next receipts of the chain"
                )
            if moved_on is None and chain and chain.boundary != snapshot.boundary:
                return Conflict("another run has begun to end erasures")
            return moved_on
        case SetRefs():
            return validate_refs(snapshot, update)
        case ReplaceFiles():
            return None  # unit by unit: `units_that_hold`
        case _ if isinstance(update, Unconditional):  # each is listed in that union
            return None
        case _:
            assert_never(update)


def _with_columns(snapshot: Snapshot, change: Change) -> Snapshot:
    """The base with the columns that come with its files."""
    for update in change.of(AlterSchema):
        if update.planned_on == snapshot.schema_id:
            schema = schema_conflicts.evolved(snapshot, update)
            snapshot = schema_conflicts.altered(snapshot, schema, update)
    return snapshot


def _partitioned(state: State, change: Change) -> State:
    """The base with the partitioning that comes with new columns."""
    for update in change.of(SetPartitioning):
        state = replace(state, snapshot=repartitioned(state.snapshot, update))
    return state


def _against_requirement(state: State, change: Change, requirement: Requirement) -> Conflict | None:
    snapshot = state.snapshot
    match requirement:
        case Reads(version=version):
            return _validate_content(snapshot, version) or _validate_reads(state, requirement)
        case NoNewColumns(fields):
            added = snapshot.schema.fields_by_id.keys() - fields
            return Conflict("a column was added, whose values would be lost") if added else None
        case SameContent(version):
            return _validate_content(snapshot, version)
        case SameMain(changed):
            return None if snapshot.changed == changed else Conflict("rows of main changed")
        case Retained(source):
            expired = Conflict(f"version {source.version} has expired")
            return None if is_retained(snapshot, source) else expired
        case AllClean():
            moved = [e.id for u in change.of(MoveErasures) for e in u.erasures]
            return validate_clean(state, moved)
        case OnlyRefs(refs):
            if dict(refs) != dict(snapshot.refs):
                return Conflict("branches or tags changed since they were found clean")
            held = Conflict("a legal hold keeps erasures from ending")
            return held if legal_holds(snapshot) else None
        case OnlyHolds(refs):
            new = [name for name in legal_holds(snapshot) if snapshot.refs[name] != refs.get(name)]
            return Conflict(f"a legal hold was set: {', '.join(new)}") if new else None
        case OnlyFiles(keys):
            came = any(f.key not in keys for f in state.files())
            return Conflict("files were added since the last check") if came else None
        case SameProperty(name, value):
            same = snapshot.properties.get(name) == value
            return None if same else Conflict(f"property {name} changed")
        case SameSchema(schema_id):
            return None if snapshot.schema_id == schema_id else Conflict("the schema was changed")
        case _:
            assert_never(requirement)


def _validate_live(state: State, keys: set[str]) -> Conflict | None:
    missing = keys - state.loaded_file_keys() if keys else keys
    if not missing:
        return None
    return Conflict("files whose rows were to be deleted were replaced", frozenset(missing))


def _validate_content(snapshot: Snapshot, version: int) -> Conflict | None:
    if version >= snapshot.replaced:
        return None
    return Conflict("the content was replaced since: by a restore, a merge or a fast-forward")


def _validate_reads(state: State, reads: Reads) -> Conflict | None:
    """Update and merge insert rows derived from rows they read: none of those may have changed."""
    read: list[DataFile] = []
    evidence = Evidence.of_snapshot(state.snapshot)
    for entry in state.loaded_files():
        if entry.key in reads.files:
            read.append(entry)
            continue
        # Not the file's own age: compaction may have packed a new file with old rows.
        arrived = entry.newest_rows > reads.version
        if not arrived:
            continue
        known = evidence.of(entry)
        if reads.predicate is None or may_match(reads.predicate, known, entry.rows):
            return Conflict(f"{entry.key} was added and may hold rows this operation had to read")
    missing = reads.files - {f.key for f in read}
    if missing:
        return Conflict("files that were read have been replaced", frozenset(missing))
    for marker in state.loaded_markers():
        landed = (marker.sequence or 0) > reads.version
        if landed and any(marker_may_hit(marker, entry, evidence) for entry in read):
            return Conflict("rows that were read have been deleted or changed")
    return None


def units_that_hold(
    state: State, change: Change
) -> tuple[tuple[Unit, ...], tuple[Unit, ...], tuple[Marker, ...]]:
    """(units that still hold, units to give up, markers remapped onto outputs)."""
    if not change.units:
        return (), (), ()
    live = {f.key: f for f in state.loaded_files()}
    by_file: dict[str, list[Marker]] = {}
    for marker in state.loaded_markers():
        if marker.file is not None:
            by_file.setdefault(marker.file, []).append(marker)
    held: list[Unit] = []
    skipped: list[Unit] = []
    remapped: list[Marker] = []
    for unit in change.units:
        landed = [
            m for key in unit.inputs for m in by_file.get(key, ()) if m.id not in unit.applied
        ]
        moved = _remap(unit, landed)
        # The replacement content may have deletes that are older than the unit's version.
        in_place = unit.version >= state.snapshot.replaced
        if in_place and all(key in live for key in unit.inputs) and moved is not None:
            held.append(_with_arrival(unit, [live[key] for key in unit.inputs]))
            remapped.extend((*unit.carried, *moved))
        else:
            skipped.append(unit)
    return tuple(held), tuple(skipped), tuple(remapped)


def _with_arrival(unit: Unit, inputs: Sequence[DataFile]) -> Unit:
    """Its outputs hold rows as new as the newest input's, for the validation of reads."""
    newest = max((f.newest_rows for f in inputs), default=0)
    return replace(
        unit,
        outputs=tuple(f if f.data_change else replace(f, arrived=newest) for f in unit.outputs),
    )


def _remap(unit: Unit, landed: Sequence[Marker]) -> list[Marker] | None:
    """Row markers on the output of a 1:1 rewrite; None when that is not possible."""
    # Without outputs every row of the inputs was deleted, including those deleted since.
    if not landed or is_restamp(unit) or not unit.outputs:
        return []
    if unit.positions is None or len(unit.outputs) != 1:
        return None
    moved: list[Marker] = []
    for marker in landed:
        if not isinstance(marker.body, Rows):
            return None  # whatever its kind: the unit is planned again
        positions = tuple(unit.positions.map(marker.body.positions))
        if positions:
            moved.append(replace(marker, body=Rows(positions), file=unit.outputs[0].key))
    return moved


def is_restamp(unit: Unit) -> bool:
    """The same object under a newer sequence: markers of its rows stay valid."""
    return unit.inputs == tuple(f.key for f in unit.outputs)


# -- what a change has to look into ----------------------------------------------------------------
#
# An append needs no segment, nor does a delete by range or predicate; a change that names files needs the
# leaves that hold them, and one derived from rows it read needs those that have changed since and may
# match. Nothing here decides about the change: what is still missing after loading does not exist.


def needed(state: State, change: Change, *, resolved: int = 0) -> NeedSegments | None:
    """The segments to load before `change` can be decided.

    `resolved` is a version on whose state everything was loaded: files that it did not name then are not in
    leaves that are as old (nothing is added to a leaf after it was written).
    """
    files = _files(state, change, resolved)
    markers = _markers(state, change)
    return NeedSegments(files, markers) if files or markers else None


def _files(state: State, change: Change, resolved: int) -> tuple[Segment, ...]:
    shrinks = any(
        schema_conflicts.needed_entries(state.snapshot, u)[0] for u in change.of(AlterSchema)
    )
    ends = any(e.predicate is None for u in change.of(MoveErasures) for e in u.erasures)
    if change.of(RecountTotals) or shrinks or ends:
        return state.missing_files()
    files = named_files(state, change)
    if not files and change.reads is None:
        return ()
    unfound = files - state.loaded_file_keys()
    return state.missing_files(_newer_or(change, resolved if unfound else None))


def named_files(state: State, change: Change) -> set[str]:
    """Files that must be live for the change to be valid."""
    added = {f.key for f in change.added}
    dropped = change.dropped
    marked = state.loaded_markers() if dropped else ()
    return {
        *(key for unit in change.units for key in unit.inputs),
        *change.removed,
        *(m.file for m in change.markers if m.file is not None and m.file not in added),
        *(change.reads.files if change.reads is not None else ()),
        *(m.file for m in marked if m.file is not None and m.id in dropped),
    }


def _newer_or(change: Change, resolved: int | None) -> SegmentFilter:
    """Leaves newer than `resolved` (none, if None), and those that may hold what the change would have had
    to read."""
    reads = change.reads

    def may_differ(segment: Segment) -> bool:
        sequence = segment.sequence or 0
        # A node is opened whatever its age: leaves from elsewhere may have been added to it.
        if resolved is not None and (segment.level > 0 or sequence > resolved):
            return True
        if reads is None or sequence <= reads.version:
            return False
        return reads.predicate is None or may_match(reads.predicate, segment.stats, segment.rows)

    return lambda segments: [may_differ(segment) for segment in segments]


def _markers(state: State, change: Change) -> tuple[Segment, ...]:
    replaces_files = bool(change.units or change.removed)
    drops = any(
        schema_conflicts.needed_entries(state.snapshot, u)[1] for u in change.of(AlterSchema)
    )
    recounts = bool(change.of(RecountTotals))
    if replaces_files or change.dropped or recounts or drops or change.forgotten:
        return state.missing_markers()
    reads = change.reads
    if reads is None:
        return ()
    since = reads.version
    return state.missing_markers(lambda segments: [(s.sequence or 0) > since for s in segments])


def _validate_columns(snapshot: Snapshot, needed: frozenset[int]) -> Conflict | None:
    """Whether the table has the columns that a delete or an erasure looks at."""
    if needed and not needed <= snapshot.schema.fields_by_id.keys():
        return Conflict("a column that this delete names was dropped")
    return None


def _validate_added(
    snapshot: Snapshot, files: Iterable[DataFile], *, derived: bool
) -> Conflict | None:
    """Whether files that were written under another schema can be read under the current one. Rows that
    were `derived` from rows of the table are not: they would be other rows by now."""
    for entry in files:
        if entry.schema_id != snapshot.schema_id:
            if derived:
                return Conflict("the schema was changed while rows were derived under it")
            recorded = snapshot.schema_by_id(entry.schema_id)
            reason = schema_conflicts.why_unreadable(entry, recorded, snapshot.schema)
            if reason:
                return Conflict(reason)
    return None
