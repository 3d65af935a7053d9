"""Merges many deletes by range or value on one column into few: sorted, disjoint intervals, and one IN.

Promise: `merge_predicates(predicates, schema)` selects a row exactly where one of `predicates` is TRUE. Ten
thousand ranges then cost a row one binary search, and a row group two, not ten thousand comparisons.

Intervals hold the physical values of integer, date, time and timestamp columns in the column's current
type, where an open bound has a closed neighbour. Equalities on a column of any other type become one IN.
Everything else stays a predicate.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from inlay.format.entry import ColumnStats, KeyRange
from inlay.format.predicate import And, Comparison, In, IsNull, Not, Predicate
from inlay.format.schema import Primitive, Schema
from inlay.parquet.arrow.evaluate import comparable
from inlay.parquet.arrow.literals import to_array, to_scalar
from inlay.plan.pruning.prune import range_predicate

# The end of an interval without a bound: no value of the supported types is beyond it.
_LEAST, _MOST = -(2**63), 2**63 - 1

Interval = tuple[int, int]


@dataclass(frozen=True)
class DeletedRanges:
    """Rows whose value of `field_id`, a column of type `kind`, is in an interval: `starts` and `ends`, both
    included, ascending, disjoint."""

    field_id: int
    kind: Primitive
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def within(self, stats: Mapping[int, ColumnStats], rows: int) -> DeletedRanges | None:
        """The intervals that `rows` rows with these statistics can be in; None if there are none."""
        known = stats.get(self.field_id)
        if known is not None and known.null_count == rows:
            return None
        bounds = self._bounds(stats)
        if bounds is None:
            return self
        lower, upper = bounds
        first, last = bisect_left(self.ends, lower), bisect_right(self.starts, upper)
        if first >= last:
            return None
        if (first, last) == (0, len(self.starts)):
            return self
        return DeletedRanges(
            self.field_id, self.kind, self.starts[first:last], self.ends[first:last]
        )

    def cover(self, stats: Mapping[int, ColumnStats], rows: int) -> bool:
        """Whether every row with these statistics certainly is in an interval."""
        bounds = self._bounds(stats)
        if bounds is None or not rows or stats[self.field_id].null_count != 0:
            return False
        lower, upper = bounds
        at = bisect_left(self.ends, upper)
        return at < len(self.starts) and self.starts[at] <= lower

    def matches(self, column: pa.Array | None, rows: int) -> pa.BooleanArray:
        """For each row whether its value is in an interval; null without a value."""
        held = comparable(column, self.kind)
        if held is None:
            return pa.nulls(rows, pa.bool_())
        values, indices = held
        starts, ends = self._arrays
        bits = values.type.bit_width
        numbers = values if pa.types.is_integer(values.type) else values.view(f"int{bits}")
        numbers = numbers.cast(pa.int64())
        # The number of intervals that begin at or before the value: it can only be in the last of them.
        begun = pc.search_sorted(starts, numbers, side="right")
        inside = pc.less_equal(numbers, ends.take(begun))
        inside = pc.and_(pc.greater(begun, to_scalar(0, begun.type)), inside)
        return inside if indices is None else inside.take(indices)

    @cached_property
    def _arrays(self) -> tuple[pa.Array, pa.Array]:
        return to_array(self.starts, pa.int64()), to_array((_LEAST, *self.ends), pa.int64())

    def _bounds(self, stats: Mapping[int, ColumnStats]) -> Interval | None:
        found = stats.get(self.field_id)
        if found is None or found.kind not in (None, self.kind):
            return None
        if not isinstance(found.lower, int) or not isinstance(found.upper, int):
            return None
        return found.lower, found.upper


def merge_predicates(
    predicates: Sequence[Predicate | KeyRange], schema: Schema
) -> tuple[tuple[DeletedRanges, ...], tuple[Predicate, ...]]:
    """Ranges and predicates that together select what one of `predicates` selects."""
    if not predicates:
        return (), ()
    intervals: dict[tuple[int, Primitive], list[Interval]] = defaultdict(list)
    values: dict[tuple[int, Primitive], list[Predicate]] = defaultdict(list)
    bodies: dict[tuple[int, int], list[KeyRange]] = defaultdict(list)
    left: list[Predicate] = []
    for predicate in predicates:
        if isinstance(predicate, KeyRange):
            # By identity: markers that were read together share their kind, and hashing it takes longer.
            bodies[predicate.field_id, id(predicate.kind)].append(predicate)
            continue
        found = _intervals(predicate, schema.types)
        if found is not None:
            column, inside = found
            intervals[column] += inside
        elif isinstance(predicate, In):
            values[predicate.field_id, predicate.type].append(predicate)
        elif isinstance(predicate, Comparison) and predicate.op == "=":
            values[predicate.field_id, predicate.literal.type].append(predicate)
        else:
            left.append(predicate)
    for alike in bodies.values():
        field_id, kind = alike[0].field_id, alike[0].kind or schema.types[alike[0].field_id]
        if _served(field_id, kind, schema.types):
            intervals[field_id, kind] += _of_ranges(alike)
            left += [Not(IsNull(field_id)) for body in alike if body.lower is body.upper is None]
        else:
            rest, others = merge_predicates([range_predicate(body, kind) for body in alike], schema)
            assert not rest
            left += others
    left += [_one_in(*column, found) for column, found in values.items()]
    ranges = []
    for column, overlapping in intervals.items():
        disjoint = _disjoint(overlapping)
        if disjoint:
            starts, ends = (tuple(bound) for bound in zip(*disjoint, strict=True))
            ranges.append(DeletedRanges(*column, starts, ends))
    return tuple(ranges), tuple(left)


def _of_ranges(bodies: Iterable[KeyRange]) -> Iterator[Interval]:
    """The intervals of ranges that hold something and have a bound; of whole numbers alone."""
    for body in bodies:
        lower, upper = body.lower, body.upper
        if lower is upper is None:
            continue
        least = lower + (not body.lower_inclusive) if isinstance(lower, int) else _LEAST
        most = upper - (not body.upper_inclusive) if isinstance(upper, int) else _MOST
        if least <= most:
            yield least, most


def _one_in(field_id: int, kind: Primitive, found: Sequence[Predicate]) -> Predicate:
    if len(found) == 1:
        return found[0]
    values = [
        value
        for each in found
        for value in (each.values if isinstance(each, In) else (each.literal.value,))  # type: ignore[union-attr]
    ]
    return In(field_id, kind, tuple(values))


def _intervals(
    predicate: Predicate, types: Mapping[int, Primitive]
) -> tuple[tuple[int, Primitive], list[Interval]] | None:
    """The column and the intervals of a predicate; None if it has another form."""
    match predicate:
        case Comparison(field_id, op, literal) if op != "!=":
            if not _served(field_id, literal.type, types):
                return None
            value = literal.value
            assert isinstance(value, int)
            lower = value + (op == ">") if op in (">", ">=", "=") else _LEAST
            upper = value - (op == "<") if op in ("<", "<=", "=") else _MOST
            return (field_id, literal.type), [(lower, upper)] if lower <= upper else []
        case In(field_id, kind, values) if _served(field_id, kind, types):
            return (field_id, kind), [(value, value) for value in values if isinstance(value, int)]
        case And((first, second)):
            one, other = _intervals(first, types), _intervals(second, types)
            if one is None or other is None or one[0] != other[0]:
                return None
            both = [
                (max(a, c), min(b, d))
                for a, b in one[1]
                for c, d in other[1]
                if max(a, c) <= min(b, d)
            ]
            return one[0], both
        case _:
            return None


def _served(field_id: int, kind: Primitive, types: Mapping[int, Primitive]) -> bool:
    """Whether values of the column are 64-bit numbers in the literal's units."""
    if types.get(field_id) != kind:
        return False
    return kind.is_temporal or (kind.is_integer and kind.name != "uint64")


def _disjoint(intervals: Iterable[Interval]) -> list[Interval]:
    """The same numbers as intervals that neither overlap nor touch, ascending."""
    found: list[Interval] = []
    for lower, upper in sorted(intervals):
        if found and lower <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], upper))
        else:
            found.append((lower, upper))
    return found
