"""Needs: which segments a change has to look into.

Promise: an append looks into none, nor does a delete by range or predicate; a change that names files
looks into the leaves that hold them, and one that was derived from rows it read into those that have
changed since and may matter. Nothing here decides about the change: whatever is asked for and not found
afterwards is not there.
"""

from __future__ import annotations

from collections.abc import Sequence

from inlay.format.snapshot import Segment
from inlay.plan.change import AlterSchema, Change, MoveErasures, NeedSegments, RecountTotals
from inlay.plan.metadata.state import State
from inlay.plan.metadata.tree import Wanted
from inlay.plan.pruning.prune import may_match
from inlay.plan.schema_conflicts import looks_at


def needed(state: State, change: Change, *, resolved: int = 0) -> NeedSegments | None:
    """What is to be loaded before `change` can be judged.

    `resolved` is a version on whose state all of that was at hand: files that it did not name then are
    not in leaves that are as old (nothing goes into a leaf after it was written).
    """
    files = _files(state, change, resolved)
    markers = _markers(state, change)
    return NeedSegments(files, markers) if files or markers else None


def _files(state: State, change: Change, resolved: int) -> tuple[Segment, ...]:
    shrinks = any(looks_at(state.snapshot, u)[0] for u in change.of(AlterSchema))
    ends = any(e.predicate is None for u in change.of(MoveErasures) for e in u.erasures)
    if change.of(RecountTotals) or shrinks or ends:
        return state.missing_files()
    named = named_files(state, change)
    if not named and change.reads is None:
        return ()
    unfound = named - state.keys_at_hand()
    return state.missing_files(_newer_or(change, resolved if unfound else None))


def named_files(state: State, change: Change) -> set[str]:
    """Files that must be live for the change to mean anything."""
    added = {f.key for f in change.added}
    dropped = change.dropped
    marked = state.markers_at_hand() if dropped else ()
    return {
        *(key for unit in change.units for key in unit.inputs),
        *change.removed,
        *(m.file for m in change.markers if m.file is not None and m.file not in added),
        *(change.reads.files if change.reads is not None else ()),
        *(m.file for m in marked if m.file is not None and m.id in dropped),
    }


def _newer_or(change: Change, resolved: int | None) -> Wanted:
    """Leaves newer than `resolved` (none, if None), and those that may hold what the change would have
    had to read."""
    reads = change.reads

    def wanted(found: Sequence[Segment]) -> list[bool]:
        return [_may_name(s) or _may_have_come(s) for s in found]

    def _may_name(segment: Segment) -> bool:
        # A node is opened whatever its age: leaves known from elsewhere may have been put into it.
        return resolved is not None and (segment.level > 0 or (segment.sequence or 0) > resolved)

    def _may_have_come(segment: Segment) -> bool:
        if reads is None or (segment.sequence or 0) <= reads.version:
            return False
        return reads.predicate is None or may_match(reads.predicate, segment.stats, segment.rows)

    return wanted


def _markers(state: State, change: Change) -> tuple[Segment, ...]:
    replaces_files = bool(change.units or change.removed)
    drops = any(looks_at(state.snapshot, u)[1] for u in change.of(AlterSchema))
    recounts = bool(change.of(RecountTotals))
    if replaces_files or change.dropped or recounts or drops or change.forgotten:
        return state.missing_markers()
    reads = change.reads
    if reads is None:
        return ()
    since = reads.version
    return state.missing_markers(lambda found: [(s.sequence or 0) > since for s in found])
