"""What statistics alone prove about a predicate: whether it can be TRUE for a row, whether it must be.

Promise: `may_match` is False only when certainly no row is TRUE, and `all_match` True only when certainly
every row is. Whatever is unknown (a missing bound, null count or NaN flag, a column without statistics)
counts as possible.

For each node of the predicate the possible results (TRUE, FALSE, NULL) over the rows are computed; And, Or
and Not combine those of their parts by three-valued logic. Columns are treated as independent, so the
answer may be too wide, never too narrow.

Bounds cover values that are neither NULL nor NaN; NaN, which is above every number, is handled separately.
A truncated bound (`exact` False) still bounds; no bound is used as a value.

A column may have been widened since the file or the predicate was written. Numbers, texts and bytes of both
types compare directly; dates and timestamps are compared in nanoseconds (`_alike`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from inlay.format.entry import ColumnStats, KeyRange, Keys
from inlay.format.like import like_exact, like_prefix
from inlay.format.predicate import (
    NEGATED,
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
)
from inlay.format.schema import Primitive, Value
from inlay.format.values import compare, is_nan, order_key
from inlay.format.widening import nanos_per_step
from inlay.plan.pruning.partitions import PartitionedStats

Stats = Mapping[int, ColumnStats]

_UNKNOWN = ColumnStats()


@dataclass(frozen=True, slots=True)
class _Outcomes:
    """The possible results over some rows; True that is not certain is only possible."""

    true: bool
    false: bool
    null: bool


Settled = OneOf["none", "some", "all"]


def settle(predicate: Predicate, stats: Stats, rows: int) -> Settled:
    """What statistics decide for these rows: "none" where not `may_match`, "all" where `all_match`."""
    if rows == 0:
        return "none"
    found = _outcomes(predicate, stats, rows)
    if not found.true:
        return "none"
    return "some" if found.false or found.null else "all"


def may_match(predicate: Predicate, stats: Stats, rows: int) -> bool:
    """False only when no row of these `rows` can make the predicate TRUE."""
    return rows > 0 and _outcomes(predicate, stats, rows).true


def all_match(predicate: Predicate, stats: Stats, rows: int) -> bool:
    """True only when each of these `rows` makes the predicate TRUE (also when there are none)."""
    found = _outcomes(predicate, stats, rows)
    return rows == 0 or not (found.false or found.null)


def denied_by(
    field_id: int, kind: Primitive, column: ColumnStats, rows: int
) -> Iterator[Predicate]:
    """The conditions that statistics of a column of `kind` deny to all of `rows` rows, and by which they
    are left out: a row for which one is TRUE shows that the statistics are false. A count of some NULLs
    leaves nothing out, one of more NULLs than rows is false whatever they are."""
    nulls = column.null_count
    if nulls is not None and nulls >= rows:
        yield Not(IsNull(field_id))
    if nulls == 0 or (nulls is not None and nulls > rows):
        yield IsNull(field_id)
    if nulls == rows:
        return
    if column.lower is not None:
        yield Comparison(field_id, "<", Literal(kind, column.lower))
    if column.upper is not None:
        above = Comparison(field_id, ">", Literal(kind, column.upper))
        nan = Literal(kind, float("nan"))  # above every number, and outside the bounds
        yield And((above, Comparison(field_id, "<", nan))) if kind.is_float else above


def range_predicate(body: KeyRange, kind: Primitive) -> Predicate:
    """The rows a key range marks; without any bound, the rows whose key is not NULL."""
    lower, upper = body.lower, body.upper
    closed = body.lower_inclusive and body.upper_inclusive
    if closed and lower is not None and upper is not None and compare(kind, lower, upper) == 0:
        # Not two inequalities: a bucket can only test single values.
        return Comparison(body.field_id, "=", Literal(kind, lower))
    parts: list[Predicate] = []
    if body.lower is not None:
        op: Operator = ">=" if body.lower_inclusive else ">"
        parts.append(Comparison(body.field_id, op, Literal(kind, body.lower)))
    if body.upper is not None:
        op = "<=" if body.upper_inclusive else "<"
        parts.append(Comparison(body.field_id, op, Literal(kind, body.upper)))
    if not parts:
        return Not(IsNull(body.field_id))
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def keys_may_match(keys: Keys, stats: Stats, rows: int) -> bool:
    """False only when no row can equal a key: in some column the value ranges do not meet."""
    return (
        rows > 0
        and keys.rows > 0
        and all(
            _may_meet(keys.stats.get(id_, _UNKNOWN), keys.rows, stats.get(id_, _UNKNOWN), rows)
            for id_ in keys.field_ids
        )
    )


def combined_stats(parts: Iterable[tuple[Stats, int]]) -> dict[int, ColumnStats]:
    """Statistics that hold for the rows of all parts (each with its number of rows) together.

    A column is kept if every part with rows has it, in one type.
    """
    found: dict[int, ColumnStats] | None = None
    total = 0
    for stats, rows in parts:
        if rows == 0:
            continue
        if found is None:
            found = dict(stats)
        else:
            found = {
                field_id: _union(column, total, stats[field_id], rows)
                for field_id, column in found.items()
                if field_id in stats and stats[field_id].kind == column.kind
            }
        total += rows
    return found or {}


# -- one node -------------------------------------------------------------------------------------


def _outcomes(node: Predicate, stats: Stats, rows: int) -> _Outcomes:
    match node:
        case And(parts):
            return _all([_outcomes(part, stats, rows) for part in parts])
        case Or(parts):
            return _not(_all([_not(_outcomes(part, stats, rows)) for part in parts]))
        case Not(part):
            return _not(_outcomes(part, stats, rows))
        case Constant(value):
            return _Outcomes(value is True, value is False, value is None)
        case IsNull(field_id):
            nulls = stats.get(field_id, _UNKNOWN).null_count
            return _Outcomes(nulls != 0, nulls is None or nulls < rows, False)
        case Comparison(field_id, op, literal):
            column = stats.get(field_id, _UNKNOWN)
            true = _some_value(column, op, literal)
            return _of_values(column, rows, true, _some_value(column, NEGATED[op], literal))
        case In(field_id, kind, values):
            column = stats.get(field_id, _UNKNOWN)
            return _of_values(column, rows, *_in(column, kind, values))
        case Like(field_id, pattern):
            column = stats.get(field_id, _UNKNOWN)
            return _of_values(column, rows, *_like(column, pattern))


def _alike(
    column: ColumnStats, kind: Primitive, values: tuple[Value, ...]
) -> tuple[ColumnStats, tuple[Value, ...]]:
    """Bounds and values of `kind` in a form that can be compared."""
    if column.kind is None or column.kind == kind or not kind.is_temporal:
        return column, values
    in_kind = nanos_per_step(kind)
    return in_nanos(column), tuple(v * in_kind for v in values if isinstance(v, int))


def in_nanos(column: ColumnStats) -> ColumnStats:
    """The bounds of a date or timestamp column in nanoseconds; any other column unchanged."""
    if column.kind is None or not column.kind.is_temporal:
        return column
    steps = nanos_per_step(column.kind)
    lower = column.lower * steps if isinstance(column.lower, int) else None
    upper = column.upper * steps if isinstance(column.upper, int) else None
    return replace(column, lower=lower, upper=upper, kind=None)


def _not(found: _Outcomes) -> _Outcomes:
    return _Outcomes(found.false, found.true, found.null)


def _all(parts: list[_Outcomes]) -> _Outcomes:
    """AND: TRUE needs every part TRUE, FALSE one part FALSE, NULL no part FALSE and one NULL."""
    never_false = all(p.true or p.null for p in parts)
    return _Outcomes(
        true=all(p.true for p in parts),
        false=any(p.false for p in parts),
        null=never_false and any(p.null for p in parts),
    )


def _of_values(column: ColumnStats, rows: int, true: bool, false: bool) -> _Outcomes:
    """The possible results of a condition on one column, where `true` and `false` are those of its
    values."""
    has_values = column.null_count is None or column.null_count < rows
    return _Outcomes(has_values and true, has_values and false, column.null_count != 0)


def _some_value(column: ColumnStats, op: Operator, literal: Literal) -> bool:
    """Whether some non-null value of the column can compare this way."""
    kind, wanted = literal.type, literal.value
    may_have_nan = kind.is_float and column.has_nan is not False
    if may_have_nan and _holds(kind, op, float("nan"), wanted):
        return True
    bounds, (value,) = _alike(column, kind, (wanted,))
    low = None if bounds.lower is None else compare(kind, bounds.lower, value)
    high = None if bounds.upper is None else compare(kind, bounds.upper, value)
    if is_nan(wanted):
        low = high = -1  # every number is below NaN, bounded or not
    match op:
        case "=":
            inside = (low is None or low <= 0) and (high is None or high >= 0)
            return inside and _admits(column, kind, (wanted,))
        case "!=":
            return not (low == 0 and high == 0)
        case "<":
            return low is None or low < 0
        case "<=":
            return low is None or low <= 0
        case ">":
            return high is None or high > 0
        case ">=":
            return high is None or high >= 0


def _admits(column: ColumnStats, kind: Primitive, values: tuple[Value, ...]) -> bool:
    """False only when the partition rules out each of these values."""
    facts = column.facts if isinstance(column, PartitionedStats) else ()
    return all(fact.admits_any(kind, values) for fact in facts)


def _holds(kind: Primitive, op: Operator, left: Value, right: Value) -> bool:
    order = compare(kind, left, right)
    match op:
        case "=":
            return order == 0
        case "!=":
            return order != 0
        case "<":
            return order < 0
        case "<=":
            return order <= 0
        case ">":
            return order > 0
        case ">=":
            return order >= 0


def _in(column: ColumnStats, kind: Primitive, values: tuple[Value, ...]) -> tuple[bool, bool]:
    may_have_nan = kind.is_float and column.has_nan is not False
    takes_nan = is_nan(values[-1])  # values are sorted, NaN is last
    bounds, numbers = _alike(column, kind, values[:-1] if takes_nan else values)
    low = bounds.lower
    at = 0 if low is None else bisect_left(numbers, order_key(low), key=order_key)
    inside = at < len(numbers) and (
        bounds.upper is None or compare(kind, numbers[at], bounds.upper) <= 0
    )
    one_value = (
        column.lower is not None
        and column.upper is not None
        and compare(kind, column.lower, column.upper) == 0
    )
    true = (inside or (may_have_nan and takes_nan)) and _admits(column, kind, values)
    false = not (one_value and inside) or (may_have_nan and not takes_nan)
    return true, false


def _like(column: ColumnStats, pattern: str) -> tuple[bool, bool]:
    lower, upper = column.lower, column.upper
    low = lower if isinstance(lower, str) else None
    high = upper if isinstance(upper, str) else None
    exact = like_exact(pattern)
    if exact is not None:
        inside = (low is None or low <= exact) and (high is None or exact <= high)
        inside = inside and _admits(column, Primitive("string"), (exact,))
        return inside, not (low == high == exact)
    prefix, all_with_prefix = like_prefix(pattern)
    # Strings with a prefix are adjacent in the order: comparing as many characters is enough.
    inside = (low is None or low[: len(prefix)] <= prefix) and (high is None or prefix <= high)
    if isinstance(column, PartitionedStats):
        inside = inside and all(fact.admits_prefix(prefix) for fact in column.facts)
    covered = not prefix or (
        low is not None and high is not None and low.startswith(prefix) and high.startswith(prefix)
    )
    return inside, not (all_with_prefix and covered)


# -- two columns ----------------------------------------------------------------------------------


def _may_meet(left: ColumnStats, left_rows: int, right: ColumnStats, right_rows: int) -> bool:
    if left.null_count == left_rows or right.null_count == right_rows:
        return False  # NULL equals nothing
    if left.kind != right.kind and left.kind is not None and right.kind is not None:
        left, right = in_nanos(left), in_nanos(right)
    both_may_have_nan = left.has_nan is not False and right.has_nan is not False
    bounds = (left.lower, left.upper, right.lower, right.upper)
    if both_may_have_nan and any(isinstance(bound, float) for bound in bounds):
        return True
    return not (_below(left.upper, right.lower) or _below(right.upper, left.lower))


def _below(upper: Value | None, lower: Value | None) -> bool:
    return upper is not None and lower is not None and upper < lower  # type: ignore[operator]


def _union(a: ColumnStats, a_rows: int, b: ColumnStats, b_rows: int) -> ColumnStats:
    nulls = None if a.null_count is None or b.null_count is None else a.null_count + b.null_count
    if a.has_nan or b.has_nan:
        has_nan: bool | None = True
    else:
        has_nan = False if a.has_nan is False and b.has_nan is False else None
    if a.null_count == a_rows:
        bounds = b  # a part of only nulls has no bounds and needs none
    elif b.null_count == b_rows:
        bounds = a
    else:
        bounds = ColumnStats(
            lower=_pick(min, a.lower, b.lower),
            upper=_pick(max, a.upper, b.upper),
        )
    exact = a.exact and b.exact
    sure = a.sure and b.sure
    return ColumnStats(bounds.lower, bounds.upper, nulls, exact, has_nan, a.kind, sure)


def _pick(choose: Callable[..., Value], a: Value | None, b: Value | None) -> Value | None:
    return None if a is None or b is None else choose(a, b)
