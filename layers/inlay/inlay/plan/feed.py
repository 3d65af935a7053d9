"""Feed: the rows that a commit added and removed, computed from the states before and after it.

Two schemas: the one of the reported rows, and the one that files are read under, which has the other
columns that deletes need. Promise: the type of a reported column holds all its values over the range, even
if a restore went back to a narrower type. Every field that a delete of the two states names is included,
even if dropped since, and requested columns keep their ids, so that the others can be removed again by id.

Steps: for a step from one state to another, the rows of all units' `after` less those of their `before`, as
multisets, are exactly the rows of the later state less those of the earlier one. This follows from the
states alone; of the commit, only an operation that by definition changes no row is trusted.

What both states share is not read: segments that both refer to with the same dead ordinals cancel out. Of
files in both states, only those that a new or removed marker may hit are read, and of those only the rows
it hits. Files that added rows are read whole, and nothing else with them. Replaced files are compared with
their replacements.

Pure. A step is a frozen value that pickles, so its units can be read in other processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import TRUE, Predicate
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, Type, Value
from inlay.format.snapshot import Segment, Snapshot, Tier
from inlay.format.values import order_key, widened, widens
from inlay.plan.change import NeedSegments
from inlay.plan.metadata.state import Nodes, State, live_entries, open_tree
from inlay.plan.pruning.prune import Evidence, may_match
from inlay.plan.refs import MERGE
from inlay.plan.scan import (
    FileTask,
    fields_of_marker,
    marker_may_hit,
    marker_predicate,
    plan_scan,
)
from inlay.record import Record, replace

# Of a schema that no commit made.
_NO_ID = -1


def reported_schema(to: Snapshot, since: int) -> Schema:
    """The columns of `to`. Only a restore, or a branch that replaced main, makes columns narrower; after
    one, they are as wide as any schema the table had by then."""
    fields = to.schema.fields
    if to.replaced > since:
        for other in to.schemas:
            fields = tuple(_wide_enough(fields, other.fields))
    return to.schema if fields == to.schema.fields else Schema(_NO_ID, fields)


def _wide_enough(fields: tuple[Field, ...], others: tuple[Field, ...]) -> Iterator[Field]:
    """`fields`, each widened to hold the values of the field of `others` with its id."""
    by_id = {field.id: field for field in others}
    for field in fields:
        other = by_id.get(field.id)
        yield field if other is None else _with_room(field, other)


def _with_room(field: Field, other: Field) -> Field:
    field = replace(field, nullable=field.nullable or other.nullable)
    match field.type, other.type:
        case Primitive() as kind, Primitive() as wider if kind != wider and widens(kind, wider):
            default = None if field.default is None else widened(field.default, kind, wider)
            return replace(field, type=wider, default=default)
        case Struct(fields), Struct(others):
            return replace(field, type=Struct(tuple(_wide_enough(fields, others))))
        case ListOf(element), ListOf(of):
            return replace(field, type=ListOf(_with_room(element, of)))
        case MapOf(key, value), MapOf(of_key, of_value):
            return replace(field, type=MapOf(_with_room(key, of_key), _with_room(value, of_value)))
        case _:  # nothing to widen: a type never becomes one of another structure
            return field


def reading_schema(
    schema: Schema, markers: Iterable[Marker], before: Snapshot, after: Snapshot
) -> Schema:
    """`schema` and, where a delete reads a column that was dropped since, the columns of these states."""
    looked_at = frozenset[int]().union(*map(fields_of_marker, markers))
    if looked_at <= schema.fields_by_id.keys():
        return schema
    fields = schema.fields
    for older in (after.schema, before.schema):
        fields = _union(fields, older.fields)
    return Schema(_NO_ID, fields)


def _union(fields: tuple[Field, ...], older: tuple[Field, ...]) -> tuple[Field, ...]:
    """`fields`, with the fields of `older` that they lack at every level, under unique names."""
    by_id = {field.id: field for field in older}
    columns = [_merged(field, by_id[field.id]) if field.id in by_id else field for field in fields]
    known = {field.id for field in fields}
    dropped = (field for field in older if field.id not in known)
    return (*columns, *(replace(f, name=f"{f.name} (dropped, field {f.id})") for f in dropped))


def _union_of(newer: Type, older: Type) -> Type:
    match newer, older:
        case Struct(fields), Struct(others):
            return Struct(_union(fields, others))
        case ListOf(element), ListOf(other):
            return ListOf(_merged(element, other))
        case MapOf(key, value), MapOf(other_key, other_value):
            return MapOf(_merged(key, other_key), _merged(value, other_value))
        case _:  # no fields within: a type never becomes one of another structure
            return newer


def _merged(newer: Field, older: Field) -> Field:
    return replace(newer, type=_union_of(newer.type, older.type))


# Operations that by definition change no row.
MAINTENANCE = frozenset(("compact", "rewrite", "expire", "collect_garbage", "set_properties"))
# Operations that replace rows: reported as updates where a primary key pairs the rows.
UPDATES = frozenset(("update", "upsert", "merge"))

T = TypeVar("T", bound=DataFile | Marker)


class FeedUnit(Record):
    """Rows to compare: rows of `before` that are not in `after` were removed, rows of `after` that are not
    in `before` were added."""

    before: tuple[FileTask, ...] = ()
    after: tuple[FileTask, ...] = ()

    @property
    def in_order(self) -> bool:
        """Whether one side is a file and the other its 1:1 rewrite: the same rows in the same order, except
        those that one side lacks."""
        if len(self.before) != 1 or len(self.after) != 1:
            return False
        old, new = self.before[0].file, self.after[0].file
        return new.origin == old.key or old.origin == new.key


class Step(Record, kw_only=True):
    """The row changes of one version, or of several as one. `schema` is what tasks are read under: the
    requested one, and the other columns that the deletes need."""

    version: int
    time_us: int
    operation: str
    schema: Schema
    units: tuple[FeedUnit, ...] = ()

    @property
    def updates(self) -> bool:
        return self.operation in UPDATES

    @property
    def tasks(self) -> tuple[FileTask, ...]:
        """All that is read for it."""
        return tuple(t for unit in self.units for t in (*unit.before, *unit.after))


class NeedMore(Record):
    """The plan depends on these segments of the two states: load them and plan again."""

    before: NeedSegments
    after: NeedSegments


def keeps_rows(before: Snapshot, after: Snapshot, schema: Schema) -> bool:
    """Whether the commit of `after` certainly left every row of `before` unchanged in the columns of
    `schema`. Maintenance drops the values of removed columns, and a restore may bring the column back."""
    commit = after.commit
    counts_none = commit.added_rows == 0 and commit.removed_rows == 0
    known = after.schema.fields_by_id
    dropped = any(i <= after.last_field_id and i not in known for i in schema.fields_by_id)
    is_maintenance = commit.operation in MAINTENANCE and counts_none and not dropped
    return is_maintenance or (after.files, after.markers) == (before.files, before.markers)


def plan_step(
    before: State | None, after: State, schema: Schema, predicate: Predicate = TRUE
) -> Step | NeedMore:
    """The step from `before` (None: the empty table) to `after`, for rows that `predicate` selects.

    `schema` is the schema of the feed: that of the newest version, to which `predicate` is bound.
    """
    if before is None:
        before = State(replace(after.snapshot, files=Tier(), markers=Tier()))
    files = _difference("files", _files_of(before), _files_of(after))
    if isinstance(files, NeedMore):
        return files
    markers = _difference("markers", _markers_of(before), _markers_of(after))
    if isinstance(markers, NeedMore):
        return markers
    changed = (*markers.gone.values(), *markers.come.values())
    kept = _touched(after, changed, schema, {*files.gone, *files.come})
    if isinstance(kept, NeedMore):
        return kept
    # A file whose sequence alone changed is the same file, hit by other markers.
    moved = {key for key in files.gone if key in files.come}
    kept_before = {**kept, **{key: files.gone[key] for key in moved}}
    kept_after = {**kept, **{key: files.come[key] for key in moved}}
    removed = [f for key, f in files.gone.items() if key not in moved]
    come = [f for key, f in files.come.items() if key not in moved]

    newest = after.snapshot  # it has every schema and spec of the older one
    # What was compacted on a branch is new to main, and may hold rows of the files that it replaces.
    mixed = newest.commit.operation == MERGE and bool(removed)
    old_rows = [f for f in come if mixed or not _is_new(f, newest)]
    need_before = before.missing_markers() if removed or kept_before else ()
    need_after = after.missing_markers() if old_rows or kept_after else ()
    if need_before or need_after:
        return NeedMore(NeedSegments(markers=need_before), NeedSegments(markers=need_after))

    all_before = list(before.markers()) if removed or kept_before else []
    if old_rows or kept_after:
        all_after = list(after.markers())
    else:
        # New files are hit by the markers of their own commit, and by those of erasures opened since.
        later = (m for m in newest.markers.inline if (m.sequence or 0) > newest.version)
        all_after = [*markers.come.values(), *later]
    reading = reading_schema(schema, (*all_before, *all_after), before.snapshot, after.snapshot)
    evidence = Evidence(reading, newest.schemas, newest.specs)

    def tasks(
        files: Iterable[DataFile], markers: Iterable[Marker], selects: Predicate = predicate
    ) -> dict[str, FileTask]:
        return {t.file.key: t for t in plan_scan(files, markers, selects, evidence=evidence).tasks}

    old, new = (kept_before.values(), all_before), (kept_after.values(), all_after)
    units = [
        # Files of both states: the rows lost to new markers, and those regained from removed ones.
        *(FeedUnit((task,)) for task in _lost(tasks(*old), tasks(*new, TRUE))),
        *(FeedUnit((), (task,)) for task in _lost(tasks(*new), tasks(*old, TRUE))),
        *_paired(tasks(removed, all_before), tasks(come, all_after), newest, evidence, mixed=mixed),
    ]
    commit = after.snapshot.commit
    return Step(
        version=after.snapshot.version,
        time_us=commit.time_us,
        operation=commit.operation,
        schema=reading,
        units=tuple(units),
    )


def _is_new(entry: DataFile, after: Snapshot) -> bool:
    """Whether the rows of a file were certainly added by this commit: only markers that name the file can
    hit it, and none of its rows existed before."""
    return entry.data_change and entry.origin is None and entry.sequence == after.version


# -- what two states do not share -----------------------------------------------------------------


class _Difference(Record, Generic[T]):
    """Entries of one state only, by key or id. An entry that differs between the states is in both."""

    gone: Mapping[str, T]
    come: Mapping[str, T]


class _Side(Record, Generic[T]):
    """The entries of one kind that one state has."""

    tier: Tier[T]
    nodes: Nodes
    loaded: Mapping[str, Sequence[T]]

    def apart(self, shared: set[str]) -> tuple[Segment, ...]:
        """Its leaves, and nodes not loaded, except the segments that both states have."""
        tops = [s for s in self.tier.segments if s.id not in shared]
        opened = open_tree(tops, self.nodes)
        return tuple(s for s in (*opened.closed, *opened.leaves) if s.id not in shared)

    def leaves(self) -> tuple[Segment, ...]:
        return open_tree(self.tier.segments, self.nodes).leaves

    def entries(self, shared: set[str]) -> dict[str, T]:
        """Its entries by name, except those of shared segments."""
        entries = [e for s in self.apart(shared) for _, e in live_entries(s, self.loaded[s.id])]
        return {_name(entry): entry for entry in (*entries, *self.tier.inline)}


def _files_of(state: State) -> _Side[DataFile]:
    return _Side(state.snapshot.files, state.contents.nodes, state.contents.files)


def _markers_of(state: State) -> _Side[Marker]:
    return _Side(state.snapshot.markers, state.contents.nodes, state.contents.markers)


def _difference(
    kind: Literal["files", "markers"], before: _Side[T], after: _Side[T]
) -> _Difference[T] | NeedMore:
    dead = {s.id: s.dead for s in (*before.tier.segments, *before.leaves())}
    shared = {s.id for s in (*after.tier.segments, *after.leaves()) if dead.get(s.id) == s.dead}
    absent = [
        tuple(s for s in side.apart(shared) if s.id not in side.loaded) for side in (before, after)
    ]
    if any(absent):
        return NeedMore(*(NeedSegments(**{kind: segments}) for segments in absent))
    gone, come = before.entries(shared), after.entries(shared)
    same = {name for name, entry in gone.items() if name in come and _same(entry, come[name])}
    return _Difference(
        {name: entry for name, entry in gone.items() if name not in same},
        {name: entry for name, entry in come.items() if name not in same},
    )


def _name(entry: DataFile | Marker) -> str:
    # A rewrite that moves a marker to its output keeps the marker's id.
    return entry.key if isinstance(entry, DataFile) else f"{entry.id} {entry.file}"


def _same(left: DataFile | Marker, right: DataFile | Marker) -> bool:
    """Entries with one name have the same rows or deletes; they can differ only in what they apply to."""
    return left.sequence == right.sequence


def _touched(
    after: State, markers: Iterable[Marker], schema: Schema, others: set[str]
) -> dict[str, DataFile] | NeedMore:
    """The files of both states that one of `markers` may hit; `others` are handled elsewhere."""
    marked_files = {m.file for m in markers if m.file is not None} - others
    of_table = [m for m in markers if m.file is None]
    if not marked_files and not of_table:
        return {}
    touched = {f.key: f for f in after.loaded_files() if f.key not in others}
    predicates = [marker_predicate(marker, schema) or TRUE for marker in of_table]

    def may_hit(segments: Sequence[Segment]) -> list[bool]:
        return [any(may_match(p, s.stats, s.rows) for p in predicates) for s in segments]

    missing = after.missing_files(may_hit if marked_files <= touched.keys() else None)
    if missing:
        return NeedMore(NeedSegments(), NeedSegments(files=missing))
    evidence = Evidence(schema, after.snapshot.schemas, after.snapshot.specs)
    return {
        key: entry
        for key, entry in touched.items()
        if key in marked_files
        or any(marker_may_hit(marker, entry, evidence) for marker in of_table)
    }


# -- units ----------------------------------------------------------------------------------------


def _lost(
    selected: Mapping[str, FileTask], remaining: Mapping[str, FileTask]
) -> Iterator[FileTask]:
    """The selected rows of files of both states that the deletes of the other state, `there`, remove."""
    for key, task in selected.items():
        twin = remaining.get(key)
        if twin is None:  # deleted as a whole in the other state
            yield task
            continue
        applied = {marker.id for marker in task.markers}
        more = tuple(m for m in twin.markers if m.id not in applied)
        if more:
            yield replace(task, only=more)


def _paired(
    gone: Mapping[str, FileTask],
    come: Mapping[str, FileTask],
    after: Snapshot,
    evidence: Evidence,
    *,
    mixed: bool,
) -> list[FeedUnit]:
    """Removed files with the files that replaced them. `mixed`: any file may hold rows of removed ones."""
    units: list[FeedUnit] = []
    by_key = dict(gone)
    rest: list[FileTask] = []
    for task in come.values():
        origin = by_key.pop(task.file.origin, None) if task.file.origin is not None else None
        if origin is not None:
            units.append(FeedUnit((origin,), (task,)))
        elif not mixed and _is_new(task.file, after):
            units.append(FeedUnit((), (task,)))
        else:
            rest.append(task)
    by_origin = {task.file.origin: task for task in by_key.values() if task.file.origin is not None}
    for task in [t for t in rest if t.file.key in by_origin]:
        # The reverse: a file replaces its own rewrite.
        rewrite = by_origin.pop(task.file.key)
        units.append(FeedUnit((by_key.pop(rewrite.file.key),), (task,)))
        rest.remove(task)
    for old, new in _that_may_share_rows([*by_key.values()], rest, evidence, after):
        if old and new:
            units.append(FeedUnit(old, new))
        else:
            units += [FeedUnit((task,)) for task in old]
            units += [FeedUnit((), (task,)) for task in new]
    return units


def _that_may_share_rows(
    gone: list[FileTask], come: list[FileTask], evidence: Evidence, after: Snapshot
) -> Iterator[tuple[tuple[FileTask, ...], tuple[FileTask, ...]]]:
    """The files in groups whose bounds of a key column overlap: equal rows have equal keys, so no row is in
    two groups. This keeps what must be held for a comparison small."""
    tasks = [*gone, *come]
    for field_id in (*after.primary_key, *after.sort_by):
        bounds = [_key_bounds(task, field_id, evidence) for task in tasks]
        known = [b for b in bounds if b is not None]
        if len(known) < len(tasks) or len({kind for _, _, kind in known}) > 1:
            continue
        order = sorted(range(len(tasks)), key=lambda at: order_key(known[at][0]))
        groups: list[list[int]] = []
        highest: Any = None
        for at in order:
            lower, upper = order_key(known[at][0]), order_key(known[at][1])
            if not groups or lower > highest:
                groups.append([])
                highest = upper
            groups[-1].append(at)
            highest = max(highest, upper)
        for group in groups:
            yield (
                tuple(tasks[at] for at in group if at < len(gone)),
                tuple(tasks[at] for at in group if at >= len(gone)),
            )
        return
    yield tuple(gone), tuple(come)


def _key_bounds(
    task: FileTask, field_id: int, evidence: Evidence
) -> tuple[Value, Value, Primitive | None] | None:
    """Bounds of a column over all rows of a file; None where they are not certain."""
    column = evidence.of(task.file).get(field_id)
    if column is None or column.null_count != 0 or isinstance(column.lower, float):
        return None  # a float may be NaN, a NULL has no place in the order
    if column.lower is None or column.upper is None:
        return None
    return column.lower, column.upper, column.kind
