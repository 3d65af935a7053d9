"""Compaction: which files are worth rewriting, in which units, in which order.

Promise: every unit can be done and committed on its own, reads at most about one target file, mixes no
partitions, and comes before every unit that gains less for the bytes it reads. A file is in at most one
unit. The plan of a table that needs nothing is empty. Packing ends: each pack leaves fewer files, and each
byte is in a file half as large again or larger (so it is packed at most log(target / size) / log 1.5
times); and where packed files are as large as their inputs together, the next plan packs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from inlay.format.entry import DataFile, Marker, RowGroups, Rows, Vector
from inlay.format.snapshot import SEGMENT_MAX_ENTRIES, Segment, Snapshot
from inlay.format.values import order_key
from inlay.plan.maintain.order import order_of
from inlay.plan.metadata.state import State
from inlay.plan.pruning.partitions import GroupKey, group_key, spans_partitions
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, plan_scan
from inlay.record import Record

# A row group that has lost more than this share of its rows is rewritten: the others carry what they lost
# to every reader.
DELETED_SHARE = 0.5
# What a delete that must be evaluated costs every scan, in files: little next to a file to open.
EVALUATED_DELETE = 0.25
# One scan in four is assumed to look up a range of the order: the others gain nothing by clustering.
LOOKUP_SHARE = 0.25
# Files take up a larger neighbour only if they add this share of its size: it would save opening one file,
# at the price of rewriting it for a few rows in every run.
WORTH_SHARE = 1 / 2
# What a file in several partitions costs a scan of one of them, in files.
CUT = 1.0
# Segments beyond what the entries need, before metadata is merged.
SPARE_SEGMENTS = 3

# Work on a file of this size is downloading, decoding, encoding and uploading it, one after the other.
SECONDS_PER_MIB = 0.05

UnitKind = Literal["drop", "pack", "fold", "cluster"]


class CompactionUnit(Record):
    """`inputs` become one file (`pack`), a file without its deleted rows (`fold`), files in one order
    (`cluster`), or nothing (`drop`). `bytes` are read; `score` is the gain, in files that a scan need not
    open, per MiB read."""

    kind: UnitKind
    inputs: tuple[str, ...]
    bytes: int
    score: float
    rows: int = 0

    @property
    def seconds(self) -> float:
        """Estimated time for one worker."""
        return self.bytes / 2**20 * SECONDS_PER_MIB


class CompactionPlan(Record):
    """Units, best first; `idle` are markers that can hit nothing any more; `metadata`: segments are worth
    merging."""

    units: tuple[CompactionUnit, ...]
    idle: tuple[str, ...] = ()
    metadata: bool = False

    @property
    def bytes(self) -> int:
        return sum(unit.bytes for unit in self.units)

    @property
    def empty(self) -> bool:
        return not (self.units or self.idle or self.metadata)


def plan_compaction(
    state: State,
    *,
    target_bytes: int | None = None,
    small_bytes: int | None = None,
    max_bytes: int | None = None,
    unit_bytes: int | None = None,
    only: frozenset[str] | None = None,
) -> CompactionPlan:
    """What to compact in `state`, whose entries must all be loaded.

    `target_bytes` and `small_bytes` default to the table's properties. `max_bytes` bounds what all units
    read together; the best come first, and one unit is always allowed. `unit_bytes` bounds what one unit
    sorts in memory. `only` restricts the plan to these files.
    """
    snapshot = state.snapshot
    properties = snapshot.settings
    target = target_bytes or properties.number("write.target_file_bytes")
    small = properties.number("compact.small_file_bytes") if small_bytes is None else small_bytes
    markers = tuple(state.markers())
    entries = tuple(f for f in state.files() if only is None or f.key in only)
    tasks = live_tasks(state, entries, markers)
    dead = [f for f in entries if f.key not in tasks]
    units = [CompactionUnit("drop", (f.key,), 0, float("inf"), f.rows) for f in dead]
    packed: set[str] = set()
    for task in tasks.values() if snapshot.spec.fields else ():
        # Files in no single partition, such as large landing files, which a query for one partition has to
        # open, too. An adopted file stays where it is on purpose.
        if spans_partitions(task.file, snapshot.specs) and not task.file.adopted:
            packed.add(task.file.key)
            units.append(_unit("pack", [task.file], CUT))
    whole = [t for t in tasks.values() if t.file.key not in packed]
    for bin_ in _bins(whole, snapshot, target=target, small=min(small, target)):
        packed.update(f.key for f in bin_)
        units.append(_unit("pack", bin_, len(bin_) - 1))
    order = order_of(snapshot)
    if order is not None:
        # Most tables have no order.
        from inlay.plan.maintain.clustering import cluster_units, runs_of

        bound = min(unit_bytes or 2**62, properties.number("compact.unit_bytes"))
        rest = [t.file for t in tasks.values() if t.file.key not in packed]
        for files in _by_partition(rest).values():
            for unit in cluster_units(files, order, snapshot, unit_bytes=bound):
                packed.update(f.key for f in unit)
                units.append(_unit("cluster", unit, LOOKUP_SHARE * (runs_of(unit) - 1)))
    for task in tasks.values():
        if task.file.key not in packed and _worth_folding(task):
            share = deleted_at_least(task) / max(task.file.rows, 1)
            gain = EVALUATED_DELETE * len(task.markers) + share
            units.append(_unit("fold", [task.file], gain))
    # Ties by key: equal states give equal plans.
    units.sort(key=lambda u: (-u.score, u.inputs))
    everything = live_tasks(state, state.files(), markers) if only is not None else tasks
    return CompactionPlan(
        units=tuple(_within(units, max_bytes)),
        idle=idle_markers(everything.values(), markers, units),
        metadata=worth_merging(snapshot),
    )


def live_tasks(
    state: State, entries: Iterable[DataFile], markers: Iterable[Marker]
) -> Mapping[str, FileTask]:
    """By key, the files that may have live rows, each with the markers that may hit it."""
    plan = plan_scan(entries, markers, evidence=Evidence.of_snapshot(state.snapshot))
    return {task.file.key: task for task in plan.tasks}


def idle_markers(
    tasks: Iterable[FileTask], markers: Iterable[Marker], units: Sequence[CompactionUnit]
) -> tuple[str, ...]:
    """Markers that can hit none of the files that `units` leave; an erasure drops its own. The commit
    checks again, on the base it replaces, that they are idle."""
    rewritten = {key for unit in units for key in unit.inputs}
    hitting = {m.id for t in tasks if t.file.key not in rewritten for m in t.markers}
    return tuple(m.id for m in markers if m.id not in hitting and m.erasure is None)


def deleted_at_least(task: FileTask) -> int:
    """Rows of the file that are certainly deleted by position (markers may overlap: the largest counts). A
    kind that does not count its rows adds none that is certain."""
    return max(
        (
            marker.body.rows if isinstance(marker.body, Vector) else len(marker.body.positions)
            for marker in task.markers
            if isinstance(marker.body, Vector | Rows)
        ),
        default=0,
    )


def worth_merging(snapshot: Snapshot) -> bool:
    """Whether a tier has clearly more segments, or more dead entries, than it needs."""
    tiers = (snapshot.files, snapshot.markers, snapshot.ledger.records)
    return any(_sprawls(tier.segments) for tier in tiers)


def _sprawls(segments: tuple[Segment, ...]) -> bool:
    live = sum(s.live for s in segments)
    needed = -(-live // SEGMENT_MAX_ENTRIES)
    mostly_dead = live < sum(s.count for s in segments) * DELETED_SHARE
    return len(segments) > needed + SPARE_SEGMENTS or (mostly_dead and len(segments) > 0)


def _unit(kind: UnitKind, files: Sequence[DataFile], gain: float) -> CompactionUnit:
    size = sum(f.size for f in files)
    return CompactionUnit(
        kind,
        tuple(f.key for f in files),
        size,
        gain / (1 + size / 2**20),
        sum(f.rows for f in files),
    )


def _bins(
    tasks: Iterable[FileTask], snapshot: Snapshot, *, target: int, small: int
) -> Iterator[list[DataFile]]:
    """Small files of one partition, adjacent in sort order or age, together up to `target` bytes. The next
    bins are none if what a bin becomes is as large as its files: no neighbours that are left, packed or
    not, are worth packing (a file that is not small any more is no neighbour)."""
    few = (task.file for task in tasks if task.file.size < small)
    for files in _by_partition(few).values():
        files.sort(key=lambda f: _place(f, snapshot))
        waiting: list[_Run] = []
        for run in _filled(files, target):
            waiting.append(run)
            while waiting:
                if waiting[-1].bytes >= small:
                    yield from waiting.pop().packed()
                elif (count := _worth_joining(waiting, target)) > 1:
                    # Only what ends with the newest has to be tried: the others were, when they came.
                    waiting[-count:] = [_Run.of(f for run in waiting[-count:] for f in run.files)]
                else:
                    break
        for run in waiting:
            yield from run.packed()


class _Run(Record):
    """Neighbours that become one file, or one file that stays."""

    files: tuple[DataFile, ...]
    bytes: int

    @staticmethod
    def of(files: Iterable[DataFile]) -> _Run:
        files = tuple(files)
        return _Run(files, sum(f.size for f in files))

    def packed(self) -> Iterator[list[DataFile]]:
        if len(self.files) > 1:
            yield list(self.files)


def _filled(files: Sequence[DataFile], target: int) -> Iterator[_Run]:
    """All the files: as many neighbours together as `target` holds."""
    bin_: list[DataFile] = []
    size = 0
    for entry in files:
        if bin_ and size + entry.size > target:
            yield from _worth_packing(bin_)
            bin_, size = [], 0
        bin_.append(entry)
        size += entry.size
    yield from _worth_packing(bin_)


def _worth_joining(runs: Sequence[_Run], target: int) -> int:
    """How many of the last runs are worth one file, most if there is a choice. Runs that are not, within
    one target, are few: the largest is more than twice the others together, on either side of it again."""
    count = size = largest = 0
    for n, run in enumerate(reversed(runs), 1):
        size, largest = size + run.bytes, max(largest, run.bytes)
        if size > target:
            break
        if size - largest >= largest * WORTH_SHARE:
            count = n
    return count


def _by_partition(files: Iterable[DataFile]) -> Mapping[GroupKey, list[DataFile]]:
    groups: dict[GroupKey, list[DataFile]] = defaultdict(list)
    for entry in files:
        groups[group_key(entry)].append(entry)
    return groups


def _place(entry: DataFile, snapshot: Snapshot) -> tuple[bool, object, int, str]:
    """Sort key: files without a bound, or of another schema, come by age after those with one."""
    lower = None
    if snapshot.sort_by and entry.schema_id == snapshot.schema_id:
        stats = entry.stats.get(snapshot.sort_by[0])
        lower = None if stats is None else stats.lower
    has_none = lower is None
    return has_none, 0 if lower is None else order_key(lower), entry.newest_rows, entry.key


def _worth_packing(bin_: list[DataFile]) -> Iterator[_Run]:
    """The bin, or a file that is too large for the rest of it between what is on either side: the sides
    keep their places in the order."""
    if not bin_:
        return
    at = max(range(len(bin_)), key=lambda n: bin_[n].size)
    largest = bin_[at].size
    if sum(f.size for f in bin_) - largest >= largest * WORTH_SHARE:
        yield _Run.of(bin_)
    else:  # the rest is at most half of the largest: the recursion is as deep as sizes have bits
        yield from _worth_packing(bin_[:at])
        yield _Run.of(bin_[at : at + 1])
        yield from _worth_packing(bin_[at + 1 :])


def _worth_folding(task: FileTask) -> bool:
    if not task.markers:
        return False
    by_value = any(not m.is_positional for m in task.markers)
    group_lost = any(isinstance(m.body, RowGroups) for m in task.markers)
    # A group can be half deleted only if this many rows of the file are.
    half_a_group = DELETED_SHARE * task.file.rows / max(task.file.row_groups, 1)
    return by_value or group_lost or deleted_at_least(task) >= half_a_group


def _within(units: Iterable[CompactionUnit], max_bytes: int | None) -> Iterator[CompactionUnit]:
    used = 0
    taken = False
    for unit in units:
        if max_bytes is not None and taken and used + unit.bytes > max_bytes:
            continue
        used += unit.bytes
        taken = True
        yield unit
