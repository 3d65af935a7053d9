"""Clustering: which files to rewrite together in one order, so that a lookup opens fewer of them; and which
leaves of their entries.

Promise: a unit's files all contain one point of the order, come from at least `MIN_RUNS` runs, and are at
most as large as the caller allows; no file is in two units. A unit replaces many runs with one and makes no
point deeper, so clustering a table that is not written to terminates.

A *run* is the output of one unit: files that share `DataFile.cluster` and overlap only at their edges. A
file that no unit wrote is a run of its own. The *depth* at a point is the number of runs with a file there:
the files that a lookup of the point opens. As in a log-structured merge tree, the smallest files at a point
are merged first, so a row is rewritten about log₄(runs) times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from inlay.errors import InvalidRequest
from inlay.format.entry import ColumnStats, DataFile
from inlay.format.schema import Primitive, listed_names
from inlay.format.snapshot import Segment, Snapshot
from inlay.format.values import order_key
from inlay.plan.metadata.state import State, live_entries
from inlay.plan.pruning.prune import Evidence

# Fewer runs at a point are not worth the bytes: all of them would be rewritten to save opening a file.
MIN_RUNS = 4
# A z-order key has 64 bits: with more columns, each has too few bits to be useful.
MAX_ZORDER_COLUMNS = 4
# Overlapping leaves that are not worth more work: those that still grow are among them.
DEPTH = 3
# Leaves of one step, some 3 MB: what one commit reads, holds and writes.
MAX_LEAVES = 32

OrderKind = Literal["sort", "zorder"]


@dataclass(frozen=True, slots=True)
class Order:
    """The order of rows: by columns in turn (`sort`), or interleaved (`zorder`)."""

    kind: OrderKind
    columns: tuple[int, ...]

    @property
    def interleaves(self) -> bool:
        """Whether all columns count alike, so that a file needs bounds for each."""
        match self.kind:
            case "sort":
                return False
            case "zorder":
                return True


def order_of(snapshot: Snapshot) -> Order | None:
    """The order set by the table's properties; None for no clustering.

    Raises `InvalidRequest` when they name columns that cannot be ordered by.
    """
    properties = snapshot.settings
    strategy = properties.text("compact.strategy")
    names = listed_names(properties.text("compact.columns"))
    if strategy == "pack" or (strategy == "auto" and not (names or snapshot.sort_by)):
        return None
    columns = tuple(_column(snapshot, name) for name in names) or snapshot.sort_by
    order = Order("zorder" if strategy == "zorder" else "sort", columns)
    if not columns or (order.interleaves and not 2 <= len(columns) <= MAX_ZORDER_COLUMNS):
        number = f"two to {MAX_ZORDER_COLUMNS} columns" if order.interleaves else "a column"
        raise InvalidRequest(
            f"compact.strategy={strategy} needs {number}, not {len(columns)}",
            next_step='Name them: compact.columns="country, event_time"',
        )
    return order


def _column(snapshot: Snapshot, name: str) -> int:
    field = snapshot.column_named(name)
    if field is not None and isinstance(field.type, Primitive):
        return field.id
    raise InvalidRequest(
        f"compact.columns names {name!r}, which is not a primitive column of this table",
        next_step="Set it anew (inlay set TABLE compact.columns=…). The columns are: "
        + ", ".join(snapshot.schema.names),
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A file and its range in each column of the order: (lowest, highest) as order keys."""

    entry: DataFile
    bounds: tuple[tuple[Any, Any], ...]

    @property
    def run(self) -> int | str:
        return _run_of(self.entry)


def cluster_units(
    files: Iterable[DataFile], order: Order, snapshot: Snapshot, *, unit_bytes: int
) -> Iterator[list[DataFile]]:
    """Units among `files` of one partition, each in the order of its files' lowest values. Files without
    bounds for every column are skipped."""
    evidence = Evidence.of_snapshot(snapshot)
    placed = [p for f in files if (p := _placed(f, order, evidence)) is not None]
    for unit in _sweep(placed, order, 0, unit_bytes):
        yield [p.entry for p in unit]


def runs_of(files: Iterable[DataFile]) -> int:
    """The number of runs that files belong to."""
    return len(set(map(_run_of, files)))


def _run_of(entry: DataFile) -> int | str:
    return entry.key if entry.cluster is None else entry.cluster


def _placed(entry: DataFile, order: Order, evidence: Evidence) -> _Placed | None:
    bounds: list[tuple[Any, Any]] = []
    for column in order.columns:
        span = _span(evidence.column(entry, column))
        if span is None:
            if order.interleaves or not bounds:
                return None
            break  # a sort prunes by its first columns; the others only refine it
        bounds.append(span)
    return _Placed(entry, tuple(bounds))


def _sweep(
    files: Sequence[_Placed], order: Order, column: int, unit_bytes: int
) -> Iterator[list[_Placed]]:
    """Goes along a column from low to high. Just before a file ends, the number of open files is a local
    maximum: if they come from enough runs, they become a unit, and are closed."""
    starts = sorted(files, key=lambda p: (p.bounds[column][0], p.entry.key))
    ends = sorted(files, key=lambda p: (p.bounds[column][1], p.entry.key))
    open_: dict[str, _Placed] = {}
    runs: Counter[int | str] = Counter()
    taken: set[str] = set()
    grown = False
    begun = 0
    for ending in ends:
        high = ending.bounds[column][1]
        while begun < len(starts) and starts[begun].bounds[column][0] <= high:
            at = starts[begun]
            open_[at.entry.key] = at
            runs[at.run] += 1
            begun += 1
            grown = True
        if grown and len(runs) >= MIN_RUNS:
            for unit in _units(list(open_.values()), order, column, unit_bytes):
                for placed in unit:
                    taken.add(placed.entry.key)
                    _close(open_, runs, placed)
                yield sorted(unit, key=lambda p: (p.bounds[0][0], p.entry.key))
        grown = False
        if ending.entry.key not in taken:
            _close(open_, runs, ending)


def _close(open_: dict[str, _Placed], runs: Counter[int | str], placed: _Placed) -> None:
    del open_[placed.entry.key]
    runs[placed.run] -= 1
    if not runs[placed.run]:
        del runs[placed.run]


def _units(
    files: Sequence[_Placed], order: Order, column: int, unit_bytes: int
) -> list[list[_Placed]]:
    """The files to rewrite, of those that overlap in this column: they must overlap in the next one, too,
    if the order interleaves columns, or if this column has the same single value in all of them."""
    following = column + 1
    has_next = all(len(p.bounds) > following for p in files)
    constant = len({bound for p in files for bound in p.bounds[column]}) == 1
    if has_next and (order.interleaves or constant):
        return list(_sweep(files, order, following, unit_bytes))
    return _smallest_first(files, unit_bytes)


def _smallest_first(files: Sequence[_Placed], unit_bytes: int) -> list[list[_Placed]]:
    """Groups that fit, from the smallest files on; groups of too few runs are skipped."""
    pieces: list[list[_Placed]] = [[]]
    size = 0
    for placed in sorted(files, key=lambda p: (p.entry.size, p.entry.key)):
        if size + placed.entry.size > unit_bytes:
            pieces.append([])
            size = 0
        pieces[-1].append(placed)
        size += placed.entry.size
    return [piece for piece in pieces if len({p.run for p in piece}) >= MIN_RUNS]


# -- leaves of entries -----------------------------------------------------------------------------


def cluster_column(snapshot: Snapshot) -> int | None:
    """The column by which leaves are ordered; None when the table has no order."""
    split = [field.source for field in snapshot.spec.fields]
    return next(iter((*split, *snapshot.sort_by, *snapshot.primary_key)), None)


def deepest_overlap(state: State) -> tuple[int, tuple[Segment, ...]]:
    """(the most leaves that share one value, those to pack next; none when there are few). Every node must
    be loaded.

    Leaves of file entries overlap in the order of the key. A step takes leaves that share a value of the
    first column that their references bound, at most MAX_LEAVES of them, and only where more than DEPTH do;
    after their entries are packed by key, they no longer overlap. So an unordered table becomes one where a
    query by key opens a few leaves, in about log₃₂(leaves) passes over its metadata. Where the files
    themselves overlap, packing their entries would not separate them: such leaves are skipped
    (`would_part`), so that the work terminates.
    """
    column = cluster_column(state.snapshot)
    if column is None:
        return 0, ()
    leaves = state.open_files().leaves
    evidence = Evidence.of_snapshot(state.snapshot)
    deepest = _deepest([_span(evidence.of_reference(leaf).get(column)) for leaf in leaves])
    if len(deepest) <= DEPTH:
        return len(deepest), ()
    return len(deepest), tuple(leaves[n] for n in sorted(deepest))[:MAX_LEAVES]


def would_part(state: State, segments: Sequence[Segment]) -> bool:
    """Whether packing the entries of these loaded leaves by key would leave clearly fewer of them sharing
    one value."""
    column = cluster_column(state.snapshot)
    if column is None:
        return False
    evidence = Evidence.of_snapshot(state.snapshot)
    spans: list[tuple[Any, Any]] = []
    for leaf in segments:
        for _, entry in live_entries(leaf, state.contents.files[leaf.id]):
            span = _span(evidence.column(entry, column))
            if span is None:
                return False
            spans.append(span)
    spans.sort()
    pieces = [
        spans[len(spans) * n // len(segments) : len(spans) * (n + 1) // len(segments)]
        for n in range(len(segments))
    ]
    packed = [(piece[0][0], max(high for _, high in piece)) for piece in pieces if piece]
    return len(_deepest(packed)) * 2 <= len(segments)


def _deepest(spans: Sequence[tuple[Any, Any] | None]) -> frozenset[int]:
    """The spans that share the value where most do. Spans of a single value do not count: packing does not
    make them narrower."""
    events: list[tuple[Any, bool, int]] = []
    for n, span in enumerate(spans):
        if span is not None and span[0] != span[1]:
            events += [(span[0], False, n), (span[1], True, n)]
    # Where one ends and another begins, both are open.
    events.sort(key=lambda event: (event[0], event[1]))
    open_: set[int] = set()
    deepest: frozenset[int] = frozenset()
    for _, is_end, n in events:
        if is_end:
            open_.discard(n)
            continue
        open_.add(n)
        if len(open_) > len(deepest):
            deepest = frozenset(open_)
    return deepest


def _span(stats: ColumnStats | None) -> tuple[Any, Any] | None:
    if stats is None or stats.lower is None or stats.upper is None:
        return None
    return order_key(stats.lower), order_key(stats.upper)
