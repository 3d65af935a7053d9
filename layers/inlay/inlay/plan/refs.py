"""Refs: what tags and branches hold, what a commit changes in them, and what a merge brings to main.

Promise: a ref never gets content that may be gone, and a commit on a branch changes the branch's content
and nothing of main's. The conditions on refs are checked against the base that is swapped out: a ref that
moved since the change was planned is a conflict, and the change is planned again.

A merge is what a branch changed since it left main, as a change of main. Promise: main then has every row
it had, less those the branch deleted, and the rows the branch added; where this cannot be decided by whole
files and row positions, it is a conflict that names the file. Rows are identified by where they are stored,
never by their values, so the branch's deletes cannot hit rows they never saw, and main's deletes cannot hit
the rows that the branch adds.

Three states decide: main, the branch, and the version of main that both come from.

============ ================= ==============================================================
in common    on the branch     becomes, on main
============ ================= ==============================================================
no           live              added, less the rows its deletes hide
yes          live, rows        these rows marked; a conflict when main has replaced the file
             deleted
yes          emptied           removed; a conflict when main has replaced it
yes          replaced          removed; a conflict when main has replaced it too, or has deleted
                               rows of it
yes          emptied,          a conflict when main was restored since, and lacks the file or
             replaced          deletes of it that the common version had
yes          as it was         what main has of it: where a restore took rows of it away from
                               main they are on neither side then (`MergePlan.taken_back`)
============ ================= ==============================================================
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inlay.errors import InvalidRequest
from inlay.format.entry import DataFile, Marker, Where
from inlay.format.snapshot import (
    MAX_REFS,
    Commit,
    Content,
    HeadObject,
    Ref,
    Snapshot,
    Tier,
    Totals,
    content_of,
    with_content,
)
from inlay.plan.change import THIS_VERSION, Conflict, SetRefs
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence, for_content, may_match
from inlay.plan.scan import FileTask, fields_of_marker, marker_may_hit
from inlay.plan.schema_conflicts import why_unreadable

MAIN = "main"
# Names are used in command lines, URIs and file names.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")


def ref_records(table: Snapshot) -> list[dict[str, Any]]:
    """Main, then tags and branches by name. `base` is the version of main that a branch can be merged on,
    `written` is whether it has content of its own, `since` when it was created or last merged."""
    main = Ref(kind="branch", version=table.version)
    return [
        {
            "name": name,
            "kind": ref.kind,
            "version": ref.version,
            "hold": ref.hold,
            "base": ref.base or None,
            "since": ref.since or None,
            "written": ref.head is not None,
        }
        for name, ref in [(MAIN, main), *sorted(table.refs.items())]
    ]


def check_name(name: object) -> str:
    """`name`, if it is valid for a ref. Raises `InvalidRequest`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == MAIN:
        raise InvalidRequest(
            f"{str(name)[:100]!r} is not a valid name for a ref",
            next_step="Up to 100 letters, digits and `._/-`, the first a letter or digit; `main` is taken",
        )
    return name


# -- what a ref shows -----------------------------------------------------------------------------


def ref_view(table: Snapshot, content: Content, since: int = 0) -> Snapshot:
    """`table` with this content, as readers see it: without the rows of erasures opened after the content
    was made. Content that nobody has written to since cannot carry the marker itself."""
    added = tuple(_later_erasures(table, content))
    markers, totals = content.markers, content.totals
    if added:
        markers = Tier(markers.segments, (*markers.inline, *added))
        totals = replace(totals, markers=totals.markers + len(added))
    replaced = max(content.replaced, since)
    return with_content(table, replace(content, markers=markers, totals=totals, replaced=replaced))


def past_view(past: Snapshot, current: Snapshot) -> Snapshot:
    """A past version as readers see it now: without the rows of erasures opened since."""
    content = content_of(ref_view(current, content_of(past)))
    return with_content(past, replace(content, replaced=past.replaced))


def _later_erasures(table: Snapshot, content: Content) -> Iterator[Marker]:
    """The markers of erasures opened after the content was made, as far as they can hit its rows: the
    content may be from before a column of the condition was added."""
    for erasure in table.erasures:
        if erasure.predicate is None or erasure.opened_version <= content.version:
            continue
        predicate = for_content(erasure.predicate, content.schema_id, table.schemas)
        if may_match(predicate, {}, 1):
            yield Marker(
                id=erasure.id,
                body=Where(predicate),
                sequence=erasure.opened_version,
                erasure=erasure.id,
            )


def with_head(committed: Snapshot, table: Snapshot, name: str, head: HeadObject) -> Snapshot:
    """The pointer after a commit on a ref: main's content from `table`, and the ref's new head. A tag keeps
    naming the version it was made from."""
    ref = committed.refs[name]
    version = committed.version if ref.kind == "branch" else ref.version
    return with_content(
        replace(
            committed,
            refs={**committed.refs, name: replace(ref, version=version, head=head)},
            commit=replace(committed.commit, branch=name),
        ),
        content_of(table),
    )


# -- what refs hold -------------------------------------------------------------------------------


def held_versions(snapshot: Snapshot) -> frozenset[int]:
    """Versions of main that refs need: as their content, or to compare it with main's."""
    contents = {r.version for r in snapshot.refs.values() if r.head is None}
    return frozenset(contents | {r.base for r in snapshot.refs.values() if r.base})


def heads(snapshot: Snapshot) -> frozenset[HeadObject]:
    return frozenset(r.head for r in snapshot.refs.values() if r.head is not None)


def is_retained(snapshot: Snapshot, ref: Ref) -> bool:
    """Whether the content of `ref`, read earlier, is still kept: by a ref, or by the version that made
    it."""
    if ref.head is None and ref.version in held_versions(snapshot):
        return True
    if ref.head is not None and ref.head in heads(snapshot):
        return True
    return snapshot.oldest_version <= ref.version <= snapshot.version


# -- what a commit makes of them ------------------------------------------------------------------


def validate_refs(snapshot: Snapshot, update: SetRefs) -> Conflict | None:
    """Whether a change of refs still fits this base."""
    for name, ref in update.were.items():
        if snapshot.refs.get(name) != ref:
            return Conflict(f"the ref {name} was changed by another commit")
    if len(edited_refs(snapshot, update)) > max(MAX_REFS, len(snapshot.refs)):
        return Conflict(f"a table has at most {MAX_REFS} refs")
    return None


def edited_refs(snapshot: Snapshot, update: SetRefs) -> dict[str, Ref]:
    refs = {**snapshot.refs, **update.refs}
    return {name: _dated(ref, snapshot.version) for name, ref in refs.items() if ref is not None}


def _dated(ref: Ref, version: int) -> Ref:
    def known(planned: int) -> int:
        return version if planned == THIS_VERSION else planned

    return replace(ref, version=known(ref.version), base=known(ref.base), since=known(ref.since))


def with_layout_of(snapshot: Snapshot, content: Content) -> Snapshot:
    """With the columns and the layout of `content`, and its own files."""
    return replace(
        snapshot,
        schema_id=content.schema_id,
        spec_id=content.spec_id,
        primary_key=content.primary_key,
        sort_by=content.sort_by,
        stats_columns=content.stats_columns,
    )


def net_counts(commit: Commit, before: Totals, after: Totals) -> Commit:
    """The counts of a commit that replaces the content: the differences to before."""
    return replace(
        commit,
        added_files=max(after.files - before.files, 0),
        removed_files=max(before.files - after.files, 0),
        added_rows=None,
        removed_rows=None,
        added_markers=max(after.markers - before.markers, 0),
        removed_markers=max(before.markers - after.markers, 0),
    )


# The operation. Not "merge": in the history that is a merge of rows by key.
MERGE = "merge_branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """`added` and `marked` name the rows of a file that the branch deleted (`FileTask.only`: those that
    these markers hit); `removed` are files to remove. `contested` must hold no deleted row, otherwise it is
    a conflict. `erasing` are markers of open erasures on added files. `taken_back` are files of which the
    branch still has rows that main lost by a restore; `is_empty`: the branch itself changed nothing."""

    added: tuple[FileTask, ...] = ()
    marked: tuple[FileTask, ...] = ()
    removed: tuple[str, ...] = ()
    contested: tuple[FileTask, ...] = ()
    erasing: tuple[Marker, ...] = ()
    taken_back: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.marked or self.removed or self.contested)


def plan_merge(main: State, branch: State, base: State, *, fork: int) -> MergePlan | Conflict:
    """All three states with their entries loaded; `fork` is the version of `base`."""
    common = {f.key for f in base.files()}
    on_main = {f.key: f for f in main.files()}
    deletes = _Deletes(branch, since=0)
    own = _Deletes(branch, since=fork)
    added: list[FileTask] = []
    marked: list[FileTask] = []
    contested: list[FileTask] = []
    erasing: list[Marker] = []
    kept: set[str] = set()
    for entry in branch.files():
        kept.add(entry.key)
        if entry.key not in common:
            added.append(deletes.of(entry))
            erasing.extend(deletes.erasing(entry))
            continue
        task = own.of(entry)
        if task.only:
            (marked if entry.key in on_main else contested).append(task)
    removed = sorted(common - kept)
    gone = [key for key in removed if key not in on_main]
    if main.snapshot.replaced > fork:
        # A restore may have reverted what main had done to a file before the branch began.
        if gone:
            return _conflict(
                gone[0], "was removed on the branch, and on main, which was restored since"
            )
        was, now = _Deletes(base, since=0), _Deletes(main, since=0)
        for entry in base.files():
            if entry.key in kept:
                continue
            deleted = {m.id for m in now.of(on_main[entry.key]).only}
            if any(m.id not in deleted for m in was.of(entry).only):
                return _conflict(
                    entry.key,
                    "was removed on the branch, and a restore of main brought rows of it back",
                )
    if any(_is_rewritten(t.file) for t in added):
        # Rows of a removed file may be in others now, where main's deletes would miss them.
        if gone:
            return _conflict(gone[0], "was replaced on the branch, and replaced or emptied on main")
        since = _Deletes(main, since=fork)
        contested += [task for key in removed if (task := since.of(on_main[key])).only]
    elif gone and any(_is_rewritten(f) for f in on_main.values() if f.key not in common):
        return _conflict(gone[0], "was emptied on the branch, and replaced on main")
    return MergePlan(
        added=tuple(added),
        marked=tuple(marked),
        removed=tuple(key for key in removed if key in on_main),
        contested=tuple(contested),
        erasing=tuple(erasing),
        taken_back=tuple(_taken_back(main, branch, base)) if main.snapshot.replaced > fork else (),
    )


def _taken_back(main: State, branch: State, base: State) -> Iterator[str]:
    """Files that the branch has as the common version did, of which a restore of main since has taken rows
    away: whole, or by deletes that came with the content it brought back."""
    common = {f.key for f in base.files()}
    on_main = {f.key: f for f in main.files()}
    was, now = _Deletes(base, since=0), _Deletes(main, since=0)
    for entry in branch.files():
        if entry.key not in common:
            continue
        if entry.key not in on_main:
            yield entry.key
            continue
        known = {m.id for m in was.of(entry).only}
        came = (m for m in now.of(on_main[entry.key]).only if m.id not in known)
        if any((m.sequence or 0) <= main.snapshot.replaced for m in came):
            yield entry.key


def _is_rewritten(entry: DataFile) -> bool:
    """Whether it may hold rows of files that existed before."""
    return not entry.data_change or entry.origin is not None


def contested_conflict(entry: DataFile, on_main: Iterable[str]) -> Conflict:
    """Why a contested file, some of whose rows were deleted, cannot be merged."""
    if entry.key in set(on_main):
        return _conflict(
            entry.key, "was replaced on the branch, and rows of it were deleted on main"
        )
    return _conflict(entry.key, "was replaced on main, and rows of it were deleted on the branch")


def _conflict(key: str, what: str) -> Conflict:
    return Conflict(f"{key} {what}", frozenset((key,)))


def merged_layout(main: Snapshot, branch: Snapshot, base: Snapshot) -> Snapshot | Conflict:
    """The snapshot whose columns and layout the merge has: that of the side that changed them."""
    if _shape(branch) in (_shape(base), _shape(main)):
        return main
    if _shape(main) == _shape(base):
        return branch
    return Conflict("the columns, or the layout of files, were changed on the branch and on main")


def layout_conflict(shape: Snapshot, plan: MergePlan, main: State, base: State) -> Conflict | None:
    """Why something that main or the branch did cannot be read in the columns of the merge: deletes that
    name a column the other side dropped, values that do not fit its wider type."""
    schema = shape.schema
    known = schema.fields_by_id.keys()
    for marker in (*main.markers(), *plan.erasing):
        if not fields_of_marker(marker) <= known:
            return Conflict(
                "a delete names a column that the other side dropped, and a rewrite has to apply it"
            )
    common = {f.key for f in base.files()}
    new = (f for f in main.files() if f.key not in common)
    for entry in (*new, *(task.file for task in plan.added)):
        reason = why_unreadable(entry, shape.schema_by_id(entry.schema_id), schema)
        if reason:
            return _conflict(entry.key, f"does not fit the columns of the merge: {reason}")
    return None


def _shape(snapshot: Snapshot) -> tuple[object, ...]:
    return (snapshot.schema_id, snapshot.spec_id, snapshot.primary_key, snapshot.sort_by)


class _Deletes:
    """The deletes of one state that were committed after `since`."""

    def __init__(self, state: State, *, since: int) -> None:
        self.evidence = Evidence.of_snapshot(state.snapshot)
        self.of_file: dict[str, list[Marker]] = defaultdict(list)
        self.of_table: list[Marker] = []
        self.erasures: list[Marker] = []
        for marker in state.markers():
            if marker.erasure is not None:
                self.erasures.append(marker)
            elif (marker.sequence or 0) <= since:
                continue
            elif marker.file is not None:
                self.of_file[marker.file].append(marker)
            else:
                self.of_table.append(marker)

    def of(self, entry: DataFile) -> FileTask:
        """The file, and which of the deletes may hit it."""
        return FileTask(
            file=entry,
            schema=self.evidence.schemas[entry.schema_id],
            only=tuple(self._hits([*self.of_table, *self.of_file.get(entry.key, ())], entry)),
        )

    def erasing(self, entry: DataFile) -> Sequence[Marker]:
        """Markers that hide rows of open erasures once the file has the sequence of the merge."""
        return [
            replace(m, id=f"{m.erasure}:{entry.key}", file=entry.key, sequence=None)
            for m in self._hits(self.erasures, entry)
        ]

    def _hits(self, markers: Iterable[Marker], entry: DataFile) -> Iterable[Marker]:
        return (m for m in markers if marker_may_hit(m, entry, self.evidence))
