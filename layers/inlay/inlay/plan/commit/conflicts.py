"""Conflicts: whether a change still holds on a base it was not planned on.

The matrix (rows: what was planned; columns: what landed since). `tests/plan/test_conflicts.py` runs
both orders of every pair.

================ ======= ============ ============ ========= ========= ========
planned          append  table delete row delete   update    rewrite   expire
================ ======= ============ ============ ========= ========= ========
append           ok      ok           ok           ok        ok        ok
table delete     ok      ok           ok           ok        ok        ok
row delete       ok (1)  ok           ok: union    again (2) again (2) ok
update, merge    again?3 again?3      again?3      again?3   again (2) ok
upsert by key    ok      ok           ok           ok        ok        ok
rewrite, compact ok      ok           remap/skip 4 skip (4)  skip (4)  ok
expire, GC       ok      ok           ok           ok        ok        ok
partition        ok      ok           ok           ok        ok        ok
================ ======= ============ ============ ========= ========= ========

On one branch. Commits on different branches meet in nothing but the ledger and refs.

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

A restore, fast-forward or merge that was planned meets rows that landed since as follows: a restore
replaces them; the other two are planned again (7); an expiry of what they take over refuses them (8).

1 under `serializable` isolation it reads, and so is planned again when a file that may match arrived
2 when a file it names is no longer live: it is planned again for what took its place
3 when a data-changing file that may match its predicate arrived, or a marker that may hit a file
  it read
4 the unit is remapped (1:1 rewrites, few rows) or given up; other units of the change go on
5 the content was replaced after the version it was planned on (`Snapshot.replaced`): files that are
  live in both may be under other deletes now, and rows may be there that were not seen
6 a ref it changes, or takes a content from, is not what it was (`Edit.refs_were`)
7 any row or column of main changed since (`Edit.changed_was`)
8 when what it names is still kept (`Edit.source`)

A change of the partitioning conflicts with another one only, unless they are equal; everything goes with
one that landed. What goes with changes of the schema is in `plan.schema_conflicts`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from inlay.format.entry import DataFile, Marker, Rows
from inlay.plan.change import Change, Conflict, Reads, Unit
from inlay.plan.erasure import validate_erasure
from inlay.plan.metadata.state import State
from inlay.plan.pruning.evidence import Evidence
from inlay.plan.pruning.partitions import validate_spec
from inlay.plan.pruning.prune import may_match
from inlay.plan.refs.refs import validate_refs
from inlay.plan.scan.marker_scope import marker_may_hit
from inlay.plan.schema_conflicts import validate_schema


def validate(state: State, change: Change) -> Conflict | None:
    moved = validate_refs(state.snapshot, change.edit)
    if moved is not None:
        return moved
    planned = change.planned if change.reads is None else change.reads.version
    if planned is not None and planned < state.snapshot.replaced:
        return Conflict("the content was replaced since: by a restore, a merge or a fast-forward")
    named = {m.file for m in change.add_markers if m.file is not None} | set(change.remove)
    named -= {f.key for f in change.add}
    if named:
        gone = named - state.loaded_file_keys()
        if gone:
            return Conflict("files whose rows were to be deleted were replaced", frozenset(gone))
    moved_on = (
        validate_erasure(state, change.edit)
        or validate_schema(state, change)
        or validate_spec(state.snapshot, change.edit.spec)
    )
    if moved_on is not None:
        return moved_on
    if change.reads is not None:
        return _validate_reads(state, change.reads)
    return None


def _validate_reads(state: State, reads: Reads) -> Conflict | None:
    """Update and merge insert rows derived from rows they read: nothing of that may have changed."""
    read: list[DataFile] = []
    evidence = Evidence.of_snapshot(state.snapshot)
    for entry in state.loaded_files():
        if entry.key in reads.files:
            read.append(entry)
            continue
        # Not the file's own age: compaction may have packed an arrival together with old rows.
        arrived = entry.newest_rows > reads.version
        if not arrived:
            continue
        known = evidence.of(entry)
        if reads.predicate is None or may_match(reads.predicate, known, entry.rows):
            return Conflict(f"{entry.key} arrived and may hold rows this operation had to read")
    gone = reads.files - {f.key for f in read}
    if gone:
        return Conflict("files that were read have been replaced", frozenset(gone))
    for marker in state.loaded_markers():
        landed = (marker.sequence or 0) > reads.version
        if landed and any(marker_may_hit(marker, entry, evidence) for entry in read):
            return Conflict("rows that were read have been deleted or changed")
    return None


def settle_units(
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
        # What replaced the content may have brought deletes that are older than the unit's version.
        in_place = unit.version >= state.snapshot.replaced
        if in_place and all(key in live for key in unit.inputs) and moved is not None:
            held.append(_with_arrival(unit, [live[key] for key in unit.inputs]))
            remapped.extend((*unit.carried, *moved))
        else:
            skipped.append(unit)
    return tuple(held), tuple(skipped), tuple(remapped)


def _with_arrival(unit: Unit, inputs: Sequence[DataFile]) -> Unit:
    """Its outputs hold rows as new as the newest input's: whoever validates what it read must see
    that."""
    newest = max((f.newest_rows for f in inputs), default=0)
    return dataclasses.replace(
        unit,
        outputs=tuple(
            f if f.data_change else dataclasses.replace(f, arrived=newest) for f in unit.outputs
        ),
    )


def _remap(unit: Unit, landed: Sequence[Marker]) -> list[Marker] | None:
    """Row markers on the output of a 1:1 rewrite; None when that cannot be done here."""
    if not landed or _is_restamp(unit):
        return []
    if not unit.outputs:
        # Every row of the inputs was deleted: what was deleted since is gone as well.
        return []
    if unit.positions is None or len(unit.outputs) != 1:
        return None
    moved: list[Marker] = []
    for marker in landed:
        if not isinstance(marker.body, Rows):
            return None
        positions = tuple(unit.positions.map(marker.body.positions))
        if positions:
            moved.append(
                dataclasses.replace(marker, body=Rows(positions), file=unit.outputs[0].key)
            )
    return moved


def _is_restamp(unit: Unit) -> bool:
    """The same object under a newer sequence: what marks its rows goes on marking them."""
    return unit.inputs == tuple(f.key for f in unit.outputs)
