"""Scans and deletes on files, decided from metadata: which files are read, which a marker may hit.

Promise: `marker_may_hit` is False only when the marker certainly deletes no row of the file, by statistics
that scans rely on, too (for erasures: by trusted ones). `marker_hits_all` is True only when it deletes
every row, whatever another writer's statistics say.

Planning a scan: every row that is live in the snapshot and for which the predicate is TRUE is in exactly
one task; a task may hold other rows too, which its markers and its predicate remove when it is read. Files
are left out only by proof from their statistics and partition values. Another writer's statistics leave
files out; they never replace a look at the rows. Tasks are in the order of the given files.

Pure. `parquet.read.reader` reads a task; a task is a frozen value that pickles, so another process can read
it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Literal

from inlay.format.entry import (
    ColumnStats,
    DataFile,
    KeyRange,
    Keys,
    Marker,
    RowGroups,
    Rows,
    Vector,
    Where,
)
from inlay.format.file_entries import FileEntries, StatsColumn
from inlay.format.predicate import TRUE, And, Comparison, In, Predicate, field_ids
from inlay.format.schema import Primitive, Schema, Value
from inlay.format.snapshot import Segment
from inlay.format.values import is_nan
from inlay.plan.metadata.state import State, live_entries
from inlay.plan.pruning.partitions import PartitionedStats, with_partition_values
from inlay.plan.pruning.prune import (
    Evidence,
    Stats,
    all_match,
    coverage,
    keys_may_match,
    may_match,
    range_predicate,
)
from inlay.record import Record, replace


def marker_predicate(marker: Marker, schema: Schema) -> Predicate | None:
    """The predicate of a range or predicate marker; None for the other kinds."""
    match marker.body:
        case Where(predicate):
            return predicate
        case KeyRange() as key_range:
            kind = schema.types.get(key_range.field_id)
            return None if kind is None else range_predicate(key_range, key_range.kind or kind)
        case RowGroups() | Keys() | Vector() | Rows():
            return None


def fields_of_marker(marker: Marker) -> frozenset[int]:
    """Field ids that a delete reads."""
    match marker.body:
        case KeyRange(field_id=field_id):
            return frozenset((field_id,))
        case Where(predicate):
            return field_ids(predicate)
        case Keys(field_ids=ids):
            return frozenset(ids)
        case RowGroups() | Vector() | Rows():
            return frozenset()


def reference_may_hit(marker: Marker, segment: Segment, evidence: Evidence) -> bool:
    """The same for all files under a reference."""
    # A marker of which statistics say nothing may hit anything, whatever its kind.
    if isinstance(marker.body, Keys):
        return keys_may_match(marker.body, segment.stats, segment.rows)
    predicate = marker_predicate(marker, evidence.schema)
    return predicate is None or may_match(predicate, segment.stats, segment.rows)


def marker_may_hit(marker: Marker, entry: DataFile, evidence: Evidence) -> bool:
    """Decided by file, sequence (docs/FORMAT.md, section 8: a table-wide marker at S hits sequence < S) and
    evidence."""
    if marker.file is not None:
        return marker.file == entry.key
    committed_later = marker.sequence is None or (entry.sequence or 0) < marker.sequence
    if not committed_later:
        return False
    # An erasure leaves nothing out because of another writer's statistics.
    known = evidence.of(entry) if marker.erasure is None else evidence.trusted(entry)
    if isinstance(marker.body, Keys):
        return keys_may_match(marker.body, known, entry.rows)
    predicate = marker_predicate(marker, evidence.schema)
    return predicate is None or may_match(predicate, known, entry.rows)


def marker_hits_all(marker: Marker, entry: DataFile, evidence: Evidence) -> bool:
    """Whether a range or predicate marker that applies to a file certainly deletes every row of it."""
    predicate = marker_predicate(marker, evidence.schema)
    return predicate is not None and all_match(predicate, evidence.trusted(entry), entry.rows)


class FileTask(Record, kw_only=True):
    """One data file to read at one snapshot.

    `schema` is the one its entry records, by which the file's names are interpreted. `predicate` is what
    must still be checked on its rows; `row_groups` None is all of them. `only`, unless empty, keeps just
    the rows that at least one of these markers deletes (for `plan.feed`). `by_rows`: `predicate` is
    decided by the rows alone, whatever the file's statistics say. `int96` is the unit in which times stored
    as INT96 are read (`parquet.read.old_times`).
    """

    file: DataFile
    schema: Schema
    markers: tuple[Marker, ...] = ()
    only: tuple[Marker, ...] = ()
    predicate: Predicate = TRUE
    row_groups: tuple[int, ...] | None = None
    by_rows: bool = False
    int96: str = "ns"

    def with_values(self, schema: Schema) -> Schema:
        """`schema` with the values of columns that stand in the file's partition alone, as defaults."""
        if not self.schema.in_partition:
            return schema
        return with_partition_values(schema, self.schema, self.file.partition)

    @property
    def decides_by_rows(self) -> bool:
        """Whether its deletes are decided by its rows alone: an erasure does not rely on another writer's
        statistics."""
        markers = (*self.markers, *self.only)
        return self.file.is_foreign and any(marker.erasure is not None for marker in markers)

    @property
    def live_rows(self) -> int | None:
        """How many rows the task has, where metadata says it."""
        if self.whole:
            return self.file.rows
        if self.only or self.predicate != TRUE or self.row_groups is not None:
            return None
        match [marker.body for marker in self.markers]:
            case [Vector(rows=deleted)]:
                return self.file.rows - deleted
            case [Rows(positions)]:
                return self.file.rows - len(set(positions))
            case _:  # several, or by value: only reading counts them
                return None

    def deletes(self, schema: Schema) -> tuple[tuple[Predicate, ...], tuple[Keys, ...], bool]:
        """What deletes rows of it: by which predicates, by which keys, and whether by position too."""
        conditions = [marker_predicate(marker, schema) for marker in self.markers]
        where = tuple(predicate for predicate in conditions if predicate is not None)
        keys = tuple(m.body for m in self.markers if isinstance(m.body, Keys))
        return where, keys, len(where) + len(keys) < len(conditions)

    def at(self, positions: Sequence[int]) -> FileTask:
        """The rows at these positions (ascending), which are known to be live and selected."""
        only: tuple[Marker, ...] = ()
        if len(positions) < self.file.rows:
            only = (Marker(id="", body=Rows(tuple(positions)), file=self.file.key),)
        return replace(self, markers=(), only=only, predicate=TRUE)

    @property
    def whole(self) -> bool:
        """Whether every row of the file is a row of the task's result."""
        anything = not self.markers and not self.only and self.predicate == TRUE
        return anything and self.row_groups is None


class ScanPlan(Record, kw_only=True):
    """What a scan will read and what it can skip: the numbers `explain` shows.

    `rows` and `bytes` are those of the files to read: upper bounds of what is returned and fetched.
    """

    tasks: tuple[FileTask, ...]
    files: int
    pruned: int
    deleted: int

    @property
    def rows(self) -> int:
        return sum(task.file.rows for task in self.tasks)

    @property
    def bytes(self) -> int:
        return sum(task.file.size for task in self.tasks)

    @property
    def live_rows(self) -> int | None:
        """How many rows the scan has, where metadata says it of all tasks."""
        counts = [task.live_rows for task in self.tasks]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def markers(self) -> int:
        """Distinct deletes that must be applied."""
        return len({marker.id for task in self.tasks for marker in task.markers})


def loaded_tasks(
    state: State, predicate: Predicate, *, by_rows: bool = False
) -> Sequence[FileTask]:
    """Of the files whose entries are loaded those that may have a live row of `predicate`, each with its
    deletes. `by_rows`: other writers' statistics leave no file out."""
    evidence = Evidence.of_snapshot(state.snapshot)
    files, markers = state.loaded_files(), state.markers()
    return plan_scan(files, markers, predicate, evidence=evidence, by_rows=by_rows).tasks


def plan_scan(
    files: Iterable[DataFile],
    markers: Iterable[Marker],
    predicate: Predicate = TRUE,
    *,
    evidence: Evidence,
    by_rows: bool = False,
) -> ScanPlan:
    """Tasks for the rows of `files` that `markers` leave and `predicate` selects. Predicate and markers are
    bound to the schema of `evidence`, which is that of the files' table. `by_rows`: other
    writers' statistics leave out no file either."""
    of_file: dict[str, list[Marker]] = defaultdict(list)
    of_table: list[Marker] = []
    for marker in markers:
        if marker.file is None:
            of_table.append(marker)
        else:
            of_file[marker.file].append(marker)
    nearby = _Nearby(of_table)
    everything = predicate == TRUE
    alike = everything and not by_rows and not of_table
    tasks: list[FileTask] = []
    total = pruned = deleted = 0
    for entry in files:
        total += 1
        if alike and entry.rows and entry.key not in of_file:
            tasks.append(FileTask(file=entry, schema=evidence.schemas[entry.schema_id]))
            continue
        stats = evidence.of(entry)
        sure = evidence.trusted(entry) if entry.is_foreign else stats
        believed = sure if by_rows else stats
        covered = "all" if everything and entry.rows else coverage(predicate, believed, entry.rows)
        if covered == "none":
            pruned += 1
            continue
        hits: list[Marker] = []
        near = nearby.of(stats) if of_table else []
        near += [(marker, "unknown") for marker in of_file.get(entry.key, ())]
        for marker, relation in near:
            if relation in ("overlaps", "covers"):
                applies = (entry.sequence or 0) < (marker.sequence or math.inf)
            else:
                applies = marker_may_hit(marker, entry, evidence)
            if applies and relation != "overlaps" and _deletes_all(marker, entry, evidence):
                deleted += 1
                break
            if applies:
                hits.append(marker)
        else:
            rest: Predicate = TRUE
            if covered != "all" or sure is not believed:
                rest = residual(predicate, sure, entry.rows)
            task = FileTask(
                file=entry,
                schema=evidence.schemas[entry.schema_id],
                markers=tuple(hits),
                predicate=rest,
                by_rows=by_rows and entry.is_foreign,
            )
            tasks.append(task)
    return ScanPlan(tasks=tuple(tasks), files=total, pruned=pruned, deleted=deleted)


def leaf_candidates(
    leaf: Segment, entries: Sequence[DataFile], predicate: Predicate
) -> tuple[list[DataFile], int]:
    """The live entries of a leaf that may match, by whole columns of bounds, and the number of the
    others. `plan_scan` checks those that are left one by one, by everything known."""
    if not isinstance(entries, FileEntries) or predicate == TRUE:
        return [entry for _, entry in live_entries(leaf, entries)], 0
    alive = set(range(len(entries))).difference(leaf.dead)
    live = len(alive)
    for field_id, lower, upper, kind in _all_bounds(predicate):
        for column in entries.stats:
            if column.field_id == field_id and column.kind == kind:
                alive.difference_update(_outside(column, lower, upper))
    picked = sorted(alive)
    entries_hit = [entries.resolved(n, leaf.sequence) for n in picked]
    return entries_hit, live - len(entries_hit)


def _outside(column: StatsColumn, lower: Value | None, upper: Value | None) -> Iterator[int]:
    """Ordinals of entries whose values are certainly all below `lower` or above `upper`."""
    if column.kind.is_float:
        return  # NaN lies outside of the bounds, and above every number
    if lower is not None:
        for n, most in enumerate(column.upper):
            if most is not None and most < lower and column.flags[n] is not None:  # type: ignore[operator]
                yield n
    if upper is not None:
        for n, least in enumerate(column.lower):
            if least is not None and least > upper and column.flags[n] is not None:  # type: ignore[operator]
                yield n


def residual(predicate: Predicate, stats: Stats, rows: int) -> Predicate:
    """The part of `predicate` that rows with these statistics can still fail."""
    if all_match(predicate, stats, rows):
        return TRUE
    if isinstance(predicate, And):
        # A row is selected where every part is TRUE, so parts that are certainly TRUE can be dropped.
        undecided = tuple(p for p in predicate.parts if not all_match(p, stats, rows))
        return undecided[0] if len(undecided) == 1 else And(undecided)
    return predicate


_Relation = Literal["overlaps", "covers", "unknown"]


class _Nearby:
    """Finds the table-wide markers that are near a file: a quick check before the exact one. Many deletes
    times many files are many pairs, nearly all of them far apart."""

    def __init__(self, markers: Iterable[Marker]) -> None:
        # Field and type of the bounds → (place, marker, bounds on every row that it hits).
        self._columns: dict[tuple[int, Primitive | None], list[_Bounded]] = defaultdict(list)
        self._others: list[tuple[int, Marker]] = []
        for n, marker in enumerate(markers):
            bounds = _bounds_of(marker)
            if bounds is None:
                self._others.append((n, marker))
                continue
            field_id, lower, upper, kind = bounds
            self._columns[field_id, kind].append((n, marker, lower, upper))

    def of(self, known: Stats) -> list[tuple[Marker, _Relation]]:
        """Those that are not certainly apart from rows with these statistics, in their order. Only a
        delete by range "overlaps" (it hits a row, as far as bounds can tell) or "covers" all rows; others,
        and those that share a bound with the rows, are "unknown"."""
        near: list[tuple[int, Marker, _Relation]] = [(n, m, "unknown") for n, m in self._others]
        for (field_id, kind), column in self._columns.items():
            near += _near(column, known.get(field_id), kind)
        if len(self._columns) + bool(self._others) > 1:
            near.sort(key=itemgetter(0))
        return [(marker, relation) for _, marker, relation in near]


_Bounded = tuple[int, Marker, Value | None, Value | None]


def _near(
    column: Sequence[_Bounded], stats: ColumnStats | None, kind: Primitive | None
) -> Iterator[tuple[int, Marker, _Relation]]:
    least = most = None
    if stats is not None:
        widened = stats.kind is not None and stats.kind.is_temporal and stats.kind != kind
        # NaN is outside the file's bounds and above every number.
        may_be_nan = isinstance(stats.lower, float) and stats.has_nan is not False
        if not widened and not may_be_nan:  # else the exact check compares them
            least, most = stats.lower, stats.upper
    if least is None or most is None:
        yield from ((n, marker, "unknown") for n, marker, _, _ in column)
        return
    by_range = not isinstance(stats, PartitionedStats)
    for n, marker, lower, upper in column:
        if lower is not None and most < lower:  # type: ignore[operator]
            continue
        if upper is not None and least > upper:  # type: ignore[operator]
            continue
        inside = (lower is not None and lower > least) or (upper is not None and upper < most)  # type: ignore[operator]
        shared = lower in (least, most) or upper in (least, most)
        # The bounds of another kind hold for the rows it hits, and do not say that it hits them all.
        if not by_range or shared or not isinstance(marker.body, KeyRange):
            yield n, marker, "unknown"
        elif inside:
            yield n, marker, "overlaps"
        else:
            yield n, marker, "covers"


# A field, the least and the greatest value, and their type.
_Range = tuple[int, Value | None, Value | None, Primitive | None]


def _bounds_of(marker: Marker) -> _Range | None:
    """A field and bounds that hold for each row that a marker hits; None for none known. An erasure asks
    more than statistics."""
    if marker.erasure is not None:
        return None
    limits: _Range | None
    match marker.body:
        case KeyRange(field_id=field_id, lower=lower, upper=upper, kind=kind):
            limits = (field_id, lower, upper, kind)
        case Keys(field_ids=(field_id, *_), stats=stats) if field_id in stats:
            bounds = stats[field_id]
            limits = (field_id, bounds.lower, bounds.upper, bounds.kind)
        case Where(predicate):
            limits = _bounds(predicate)
        case _:  # without bounds every file is compared with it
            limits = None
    # A NaN bounds nothing: it compares false with everything.
    return None if limits is None or is_nan(limits[1]) or is_nan(limits[2]) else limits


def _bounds(predicate: Predicate) -> _Range | None:
    """A field and bounds that hold for it wherever the predicate is TRUE; None for none known."""
    match predicate:
        case Comparison(field_id, "=", literal):
            return field_id, literal.value, literal.value, literal.type
        case Comparison(field_id, "<" | "<=", literal):
            return field_id, None, literal.value, literal.type
        case Comparison(field_id, ">" | ">=", literal):
            return field_id, literal.value, None, literal.type
        case In(field_id, kind, values):
            return field_id, values[0], values[-1], kind
        case And(parts):
            return next(filter(None, map(_bounds, parts)), None)
        case _:  # None bounds nothing
            return None


def _all_bounds(predicate: Predicate) -> Iterator[_Range]:
    """All such fields and bounds, of every part that must be TRUE."""
    parts = predicate.parts if isinstance(predicate, And) else (predicate,)
    for part in parts:
        bounds = _bounds(part)
        if bounds is not None:
            yield bounds


def _deletes_all(marker: Marker, entry: DataFile, evidence: Evidence) -> bool:
    """Whether a marker that applies to a file certainly deletes every row of it."""
    match marker.body:
        case RowGroups(ordinals):
            return len(set(ordinals)) == entry.row_groups
        case Vector(rows=rows):
            return rows == entry.rows
        case Rows(positions):
            return len(positions) == entry.rows
        case KeyRange() | Where() | Keys():
            return marker_hits_all(marker, entry, evidence)
