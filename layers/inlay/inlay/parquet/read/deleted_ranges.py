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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from inlay.format.entry import ColumnStats
from inlay.format.predicate import And, Comparison, In, Predicate
from inlay.format.schema import Primitive, Schema
from inlay.parquet.arrow.evaluate import on_values
from inlay.parquet.arrow.literals import to_array, to_scalar

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

    def within(self, stats: Mapping[int, ColumnStats]) -> DeletedRanges | None:
        """The intervals that rows with these statistics can be in; None if there are none."""
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
        return on_values(column, self.kind, self._inside, rows)

    @cached_property
    def _arrays(self) -> tuple[pa.Array, pa.Array]:
        return to_array(self.starts, pa.int64()), to_array((_LEAST, *self.ends), pa.int64())

    def _inside(self, values: pa.Array) -> pa.BooleanArray:
        starts, ends = self._arrays
        bits = values.type.bit_width
        numbers = values if pa.types.is_integer(values.type) else values.view(f"int{bits}")
        numbers = numbers.cast(pa.int64())
        # The number of intervals that begin at or before the value: it can only be in the last of them.
        begun = pc.search_sorted(starts, numbers, side="right")
        inside = pc.less_equal(numbers, ends.take(begun))
        return pc.and_(pc.greater(begun, to_scalar(0, begun.type)), inside)

    def _bounds(self, stats: Mapping[int, ColumnStats]) -> Interval | None:
        found = stats.get(self.field_id)
        if found is None or found.kind not in (None, self.kind):
            return None
        if not isinstance(found.lower, int) or not isinstance(found.upper, int):
            return None
        return found.lower, found.upper


def merge_predicates(
    predicates: Sequence[Predicate], schema: Schema
) -> tuple[tuple[DeletedRanges, ...], tuple[Predicate, ...]]:
    """Ranges and predicates that together select what one of `predicates` selects."""
    intervals: dict[tuple[int, Primitive], list[Interval]] = defaultdict(list)
    values: dict[tuple[int, Primitive], list[Predicate]] = defaultdict(list)
    left: list[Predicate] = []
    for predicate in predicates:
        found = _intervals(predicate, schema)
        if found is not None:
            column, inside = found
            intervals[column] += inside
        elif isinstance(predicate, In):
            values[predicate.field_id, predicate.type].append(predicate)
        elif isinstance(predicate, Comparison) and predicate.op == "=":
            values[predicate.field_id, predicate.literal.type].append(predicate)
        else:
            left.append(predicate)
    left += [_one_in(*column, found) for column, found in values.items()]
    ranges = [
        DeletedRanges(*column, *zip(*_disjoint(found), strict=True))
        for column, found in intervals.items()
        if found
    ]
    return tuple(ranges), tuple(left)


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
    predicate: Predicate, schema: Schema
) -> tuple[tuple[int, Primitive], list[Interval]] | None:
    """The column and the intervals of a predicate; None if it has another form."""
    match predicate:
        case Comparison(field_id, op, literal) if op != "!=":
            if not _served(field_id, literal.type, schema):
                return None
            value = literal.value
            assert isinstance(value, int)
            lower = value + (op == ">") if op in (">", ">=", "=") else _LEAST
            upper = value - (op == "<") if op in ("<", "<=", "=") else _MOST
            return (field_id, literal.type), [(lower, upper)] if lower <= upper else []
        case In(field_id, kind, values) if _served(field_id, kind, schema):
            return (field_id, kind), [(value, value) for value in values if isinstance(value, int)]
        case And((first, second)):
            one, other = _intervals(first, schema), _intervals(second, schema)
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


def _served(field_id: int, kind: Primitive, schema: Schema) -> bool:
    """Whether values of the column are 64-bit numbers in the literal's units."""
    column = schema.by_id(field_id)
    if column is None or column.type != kind:
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
