"""A merge: what a branch changed since it left main, as a change of main.

Promise: main then has every row it had, less those the branch deleted, and the rows the branch added;
where this cannot be decided by whole files and row positions, it is a conflict that names the file.
Rows are identified by where they are stored, never by their values, so the branch's deletes cannot hit
rows they never saw, and main's deletes cannot hit the rows that the branch adds.

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

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set

from inlay.format.entry import DataFile, Marker
from inlay.format.snapshot import Snapshot
from inlay.plan.change import Conflict
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, fields_of_marker, marker_may_hit
from inlay.record import Record, replace


class MergePlan(Record, kw_only=True):
    """`added` and `marked` name the rows of a file that the branch deleted (`FileTask.only`: those that
    these markers hit); `removed` are files to remove. `contested` must hold no deleted row, otherwise it is
    a conflict. `erasing` are markers of open erasures on added files. Where both sides added rows, what
    both deleted may be there in two new forms: `on_both` are files of which the branch deleted rows, with
    main's deletes since it began, `emptied` counts rows of files that both emptied. `taken_back` are files
    of which the branch still has rows that main lost by a restore; `is_empty`: nothing is to be merged."""

    added: tuple[FileTask, ...] = ()
    marked: tuple[FileTask, ...] = ()
    removed: tuple[str, ...] = ()
    contested: tuple[FileTask, ...] = ()
    erasing: tuple[Marker, ...] = ()
    on_both: tuple[FileTask, ...] = ()
    emptied: int = 0
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
    taken_back: list[str] = []
    removed = sorted(common - kept)
    missing = [key for key in removed if key not in on_main]
    if main.snapshot.replaced > fork:
        # A restore may have reverted what main had done to a file before the branch began.
        if missing:
            return _conflict(
                missing[0], "was removed on the branch, and on main, which was restored since"
            )
        was, now = _Deletes(base, since=0), _Deletes(main, since=0)
        for entry in base.files():
            entry_on_main = on_main.get(entry.key)
            before = {m.id for m in was.of(entry).only}
            after = {} if entry_on_main is None else {m.id: m for m in now.of(entry_on_main).only}
            if entry.key not in kept and not before <= after.keys():
                return _conflict(
                    entry.key,
                    "was removed on the branch, and a restore of main brought rows of it back",
                )
            came = (m for marker_id, m in after.items() if marker_id not in before)
            is_less = any((m.sequence or 0) <= main.snapshot.replaced for m in came)
            if entry.key in kept and (entry_on_main is None or is_less):
                taken_back.append(entry.key)
    since = _Deletes(main, since=fork)
    if any(_is_rewritten(t.file) for t in added):
        # Rows of a removed file may be in others now, where main's deletes would miss them.
        if missing:
            return _conflict(
                missing[0], "was replaced on the branch, and replaced or emptied on main"
            )
        contested += [task for key in removed if (task := since.of(on_main[key])).only]
    elif missing and any(_is_rewritten(f) for f in on_main.values() if f.key not in common):
        return _conflict(missing[0], "was emptied on the branch, and replaced on main")
    both: list[DataFile] = []
    emptied = 0
    if added and on_main.keys() - common:
        both = [*(t.file for t in marked), *(on_main[key] for key in removed if key in on_main)]
        emptied = sum(f.rows for f in base.files() if f.key in missing)
    return MergePlan(
        added=tuple(added),
        marked=tuple(marked),
        removed=tuple(key for key in removed if key in on_main),
        contested=tuple(contested),
        erasing=tuple(erasing),
        on_both=tuple(map(since.of, both)),
        emptied=emptied,
        taken_back=tuple(taken_back),
    )


def _is_rewritten(entry: DataFile) -> bool:
    """Whether it may hold rows of files that existed before."""
    return not entry.data_change or entry.origin is not None


def contested_conflict(entry: DataFile, on_main: Set[str]) -> Conflict:
    """Why a contested file, some of whose rows were deleted, cannot be merged."""
    if entry.key in on_main:
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
    from inlay.plan.schema_conflicts import why_unreadable  # most merges are of the same columns

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
