"""Clustering: which files to rewrite together in one order, so that a lookup opens fewer of them.

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
from typing import Any

from inlay.format.entry import DataFile
from inlay.format.snapshot import Snapshot
from inlay.plan.maintain.order import Order, span_of
from inlay.plan.pruning.prune import Evidence
from inlay.record import Record

# Fewer runs at a point are not worth the bytes: all of them would be rewritten to save opening a file.
MIN_RUNS = 4


class _Placed(Record):
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
        span = span_of(evidence.column(entry, column))
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
