"""The layout: the columns that files are ordered by, with the place of each file in them.

Promise: a place is a number from 0 to 1, in the order of the values; what has no bounds has no place.
Places follow the values if these have distances and are not concentrated in one corner, else their ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate

from inlay.format.entry import DataFile
from inlay.format.schema import Primitive, Value
from inlay.format.values import is_nan, order_key
from inlay.ops.inspect.columns import value_text
from inlay.plan.metadata.state import State
from inlay.plan.pruning.prune import Evidence
from inlay.record import Record

# Columns that are shown as axes.
MAX_AXES = 4
# Places along an axis at which files are counted.
BUCKETS = 160
TICKS = 5
# An axis is by rank, not by value, when this share of the files would be on this share of it.
CROWD, CORNER = 0.5, 0.02


class Axis(Record, kw_only=True):
    """A column that files are ordered by. `ticks` are (place from 0 to 1, value as text); `by_rank`: places
    are ranks of the bounds, not values. `depth` is the number of files at each of `BUCKETS` places: those
    that a lookup of a value there opens."""

    column: str
    type: str
    by_rank: bool
    ticks: tuple[tuple[float, str], ...]
    depth: tuple[int, ...]
    unknown: int  # files without bounds

    @property
    def mean_depth(self) -> float:
        """Over the places where there are files: nobody looks up what no file has."""
        there = [files for files in self.depth if files]
        return sum(there) / max(1, len(there))


def axes_of(
    state: State, files: Sequence[DataFile]
) -> tuple[tuple[Axis, ...], list[Mapping[str, tuple[float, float]]]]:
    """The columns worth showing, and the place of each file in them."""
    snapshot = state.snapshot
    evidence = Evidence.of_snapshot(snapshot)
    order = (
        *snapshot.sort_by,
        *snapshot.primary_key,
        *(f.source for f in snapshot.spec.fields),
        *snapshot.stats_columns,
    )
    axes: list[Axis] = []
    places: list[Mapping[str, tuple[float, float]]] = []
    for field_id in dict.fromkeys(order):
        field, path = snapshot.schema.by_id(field_id), snapshot.schema.path_of(field_id)
        if field is None or path is None or not isinstance(field.type, Primitive):
            continue
        bounds = _known_bounds(evidence, files, field_id, field.type)
        if not bounds:
            continue
        axis, spans = _axis(".".join(path), field.type, bounds, len(files))
        axes.append(axis)
        places.append(spans)
        if len(axes) == MAX_AXES:
            break
    return tuple(axes), places


def _known_bounds(
    evidence: Evidence, files: Sequence[DataFile], field_id: int, kind: Primitive
) -> dict[str, tuple[Value, Value]]:
    bounds: dict[str, tuple[Value, Value]] = {}
    for entry in files:
        column = evidence.of(entry).get(field_id)
        if column is None or column.lower is None or column.upper is None:
            continue
        if column.kind not in (None, kind) or is_nan(column.lower) or is_nan(column.upper):
            continue
        bounds[entry.key] = (column.lower, column.upper)
    return bounds


def _axis(
    name: str, kind: Primitive, bounds: Mapping[str, tuple[Value, Value]], files: int
) -> tuple[Axis, Mapping[str, tuple[float, float]]]:
    values = sorted({v for pair in bounds.values() for v in pair}, key=order_key)
    scale = _by_value(values)
    by_rank = scale is None or _crowded([scale[v] for pair in bounds.values() for v in pair])
    if by_rank or scale is None:
        last = max(1, len(values) - 1)
        scale = {value: at / last for at, value in enumerate(values)}
    places = {key: (scale[low], scale[high]) for key, (low, high) in bounds.items()}
    axis = Axis(
        column=name,
        type=str(kind),
        by_rank=by_rank,
        ticks=_ticks(kind, values, scale),
        depth=_depth_counts(places.values()),
        unknown=files - len(bounds),
    )
    return axis, {key: (round(a, 4), round(b, 4)) for key, (a, b) in places.items()}


def _by_value(values: Sequence[Value]) -> dict[Value, float] | None:
    """Places of numbers and times; None for values without distances."""
    if any(isinstance(v, bool) or not isinstance(v, int | float | Decimal) for v in values):
        return None
    least, most = float(values[0]), float(values[-1])
    width = most - least
    if not 0 < width < float("inf"):
        return None
    return {value: (float(value) - least) / width for value in values}


def _crowded(places: Sequence[float]) -> bool:
    counts = Counter(int(place / CORNER) for place in places)
    return len(places) > 8 and max(counts.values()) > CROWD * len(places)


def _ticks(
    kind: Primitive, values: Sequence[Value], scale: Mapping[Value, float]
) -> tuple[tuple[float, str], ...]:
    """Values about evenly spaced, including the first and the last."""
    ticks: dict[float, str] = {}
    for n in range(TICKS):
        share = n / (TICKS - 1)
        value = min(values, key=lambda v: abs(scale[v] - share))
        ticks[round(scale[value], 4)] = value_text(kind, value)[:40]
    return tuple(ticks.items())


def _depth_counts(places: Iterable[tuple[float, float]]) -> tuple[int, ...]:
    steps = [0] * (BUCKETS + 1)
    for low, high in places:
        steps[min(int(low * BUCKETS), BUCKETS - 1)] += 1
        steps[min(int(high * BUCKETS), BUCKETS - 1) + 1] -= 1
    return tuple(accumulate(steps[:BUCKETS]))
