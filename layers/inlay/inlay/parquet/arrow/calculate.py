"""Expressions over Arrow batches: functions, arithmetic, comparisons of columns with columns.

Promise: `calculate` gives the values that docs/SQL.md defines, or raises `NotCalculable`, which names the
function and no value: nothing overflows, wraps or is truncated. Branches that a CASE does not choose, and
operands after a FALSE in an AND, are not calculated, so `x <> 0 AND 10 % x = 1` never divides by zero.

Whole numbers are calculated in 64 bits as long as they fit and as decimals of up to 76 digits otherwise;
doubles follow IEEE 754, except that comparisons treat NaN as equal to itself and greater than every number,
as predicates do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidPredicate
from inlay.format.entry import ColumnStats
from inlay.format.expression import Apply, Column, Constant, Expression, Test, looked_at
from inlay.format.predicate import Operator
from inlay.format.schema import ListOf, MapOf, Primitive, Schema, Type
from inlay.format.values import NANOS_PER_DAY, NANOS_PER_UNIT
from inlay.parquet.arrow.conform import decoded
from inlay.parquet.arrow.evaluate import (
    COMPARE,
    Columns,
    column_at,
    columns_of,
    compare_floats,
    evaluate,
    like,
)
from inlay.parquet.arrow.pieces import halved, narrow, repeated
from inlay.parquet.arrow.types import (
    arrow_primitive,
    arrow_type,
    floor_divided,
    running_sums,
    to_arrow_scalar,
    to_scalar,
)
from inlay.record import Record

if TYPE_CHECKING:
    from inlay.parse.date_format import DateFormat

_WIDEST_DIGITS = 76
_ARITHMETIC: dict[str, tuple[Callable[..., pa.Array], Callable[..., pa.Array]]] = {
    "+": (pc.add, pc.add_checked),
    "-": (pc.subtract, pc.subtract_checked),
    "*": (pc.multiply, pc.multiply_checked),
}
_STEP = "Leave such rows out first: WHERE … AND, or CASE WHEN … THEN"


class NotCalculable(Exception):
    """A row has a value that a function does not accept. Contains nothing of the value."""


class CalculatedFilter(Record, dict=True):
    """Rows for which a calculated condition is TRUE."""

    expression: Expression

    @property
    def of_live_rows(self) -> bool:
        return True

    @property
    def prunes(self) -> bool:
        return False  # what it implies is asked as a predicate

    @property
    def fields(self) -> frozenset[int]:
        return looked_at(self.expression)

    def coverage(
        self, stats: Mapping[int, ColumnStats], rows: int
    ) -> Literal["none", "some", "all"]:
        return "some"

    def may_match(self, parts: Sequence[object]) -> list[bool]:
        return [True] * len(parts)

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        columns = columns_of(schema)

        def of_rows(part: pa.RecordBatch) -> pa.Array:
            flags = _flags(calculate(self.expression, part, columns))
            return flags.fill_null(to_scalar(False, pa.bool_()))

        try:
            # A text in between may be too large for all rows together.
            parts = list(halved(batch, of_rows, (NotCalculable, pa.ArrowException)))
        except NotCalculable as error:
            raise InvalidPredicate(f"the condition fails: {error}", next_step=_STEP) from None
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def calculate(node: Expression, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """The expression's value for each row. Numbers may come in any type that holds them."""
    match node:
        case Column(field_id, kind):
            return _of_column(field_id, kind, batch, columns)
        case Constant(value, kind):
            return repeated(_scalar(value, kind), batch.num_rows)
        case Test(predicate):
            return evaluate(predicate, batch, columns)
        case Apply("and" | "or" as joined, parts):
            return _joined(joined, parts, batch, columns)
        case Apply("case", parts):
            return _case(node, parts, batch, columns)
        case Apply(function, arguments):
            values = [calculate(argument, batch, columns) for argument in arguments]
            if function not in _OF_NULL and any(pa.types.is_null(v.type) for v in values):
                return pa.nulls(batch.num_rows)  # of no type yet, as what made it so
            try:
                return _FUNCTIONS[function](node, values)
            except (pa.ArrowException, OverflowError):
                raise NotCalculable(
                    f"a row has a value that {_called(node)} does not accept"
                ) from None


def _called(node: Apply) -> str:
    shown = {"cast": f"CAST to {node.type}", "later": "adding an interval"}
    return shown.get(node.function, node.function.upper())


def _of_column(field_id: int, kind: Type, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    path = columns.get(field_id)
    if path is None:
        return pa.nulls(batch.num_rows, arrow_type(kind))
    return _widened(decoded(column_at(path, batch)))


def _widened(array: pa.Array) -> pa.Array:
    """Floating numbers as doubles, as expressions have them."""
    narrow = pa.types.is_float32(array.type) or pa.types.is_float16(array.type)
    return array.cast(pa.float64()) if narrow else array


def _scalar(value: Any, kind: Type | None) -> pa.Scalar:
    if kind is None:
        return pa.scalar(None)
    if isinstance(value, Decimal):
        return _exact_scalar(value)
    if not isinstance(kind, Primitive):
        return pa.scalar(None, arrow_type(kind))
    if value is None:
        return pa.scalar(None, arrow_primitive(kind))
    return to_arrow_scalar(kind, value)


def _exact_scalar(value: Decimal) -> pa.Scalar:
    exponent = int(value.as_tuple().exponent)
    if exponent >= 0 and abs(value) < 2**63 and not (value == 0 and value.is_signed()):
        return to_scalar(int(value), pa.int64())
    digits = max(len(value.as_tuple().digits) + max(exponent, 0), -exponent, 1)
    if digits > _WIDEST_DIGITS:
        raise NotCalculable(f"a number has more than {_WIDEST_DIGITS} digits")
    return to_scalar(value, pa.decimal256(digits, max(-exponent, 0)))


# -- AND, OR, CASE: row by row, not further than needed ---------------------------------------------


def _joined(
    joined: str, parts: tuple[Expression, ...], batch: pa.RecordBatch, columns: Columns
) -> pa.Array:
    """Each operand is evaluated only for rows that those before have not decided."""
    combine, decided = (pc.and_kleene, False) if joined == "and" else (pc.or_kleene, True)
    flags = _flags(calculate(parts[0], batch, columns))
    for part in parts[1:]:
        is_open = pc.fill_null(pc.not_equal(flags, to_scalar(decided, pa.bool_())), True)
        if is_open.true_count == len(is_open):
            flags = combine(flags, _flags(calculate(part, batch, columns)))
        elif is_open.true_count:
            rows = pc.indices_nonzero(is_open).cast(pa.int64())
            there = _flags(calculate(part, batch.take(rows), columns))
            spread = pa.nulls(batch.num_rows, pa.bool_())
            spread = pc.replace_with_mask(spread, is_open, there)
            flags = pc.if_else(is_open, combine(flags, spread), flags)
    return flags


def _flags(array: pa.Array) -> pa.Array:
    return array.cast(pa.bool_()) if pa.types.is_null(array.type) else array


def _case(
    node: Apply, parts: tuple[Expression, ...], batch: pa.RecordBatch, columns: Columns
) -> pa.Array:
    *branches, otherwise = parts
    pending = pa.arange(0, batch.num_rows)
    places: list[pa.Array] = []
    values: list[pa.Array] = []
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        rows = batch.take(pending)
        hit = _flags(calculate(condition, rows, columns)).fill_null(to_scalar(False, pa.bool_()))
        chosen = pending.filter(hit)
        if len(chosen):
            places.append(chosen)
            values.append(calculate(value, batch.take(chosen), columns))
        pending = pending.filter(pc.invert(hit))
        if not len(pending):
            break
    if len(pending) or not places:
        places.append(pending)
        values.append(calculate(otherwise, batch.take(pending), columns))
    whole = pa.concat_arrays(_as_one(values, node.type))
    return whole.take(pc.sort_indices(pa.concat_arrays(places)))


def _as_one(values: list[pa.Array], kind: Type | None) -> list[pa.Array]:
    """Arrays of one Arrow type, the narrowest that holds all of them."""
    if isinstance(kind, Primitive) and kind.is_float:
        return [_doubles(value) for value in values]
    if isinstance(kind, Primitive) and kind.is_numeric:
        if all(pa.types.is_integer(v.type) or pa.types.is_null(v.type) for v in values):
            try:
                return [value.cast(pa.int64()) for value in values]
            except pa.ArrowInvalid:
                pass  # beyond 63 bits: as decimals
        exact = [_exact(value) for value in values]
        scale = max(value.type.scale for value in exact)
        digits = max(value.type.precision - value.type.scale for value in exact) + scale
        if digits > _WIDEST_DIGITS:
            raise NotCalculable(
                f"numbers of these types together need more than {_WIDEST_DIGITS} digits"
            )
        return [value.cast(pa.decimal256(digits, scale)) for value in exact]
    target = pa.null() if kind is None else arrow_type(kind)
    try:
        return [value if value.type == target else value.cast(target) for value in values]
    except pa.ArrowInvalid:
        raise NotCalculable("a row has a time out of range of the finest unit") from None


# -- numbers ----------------------------------------------------------------------------------------


def _doubles(array: pa.Array) -> pa.Array:
    return array if pa.types.is_float64(array.type) else array.cast(pa.float64(), safe=False)


def _exact(array: pa.Array) -> pa.Array:
    """Integers and decimals as 256-bit decimals of no more digits than they need."""
    if pa.types.is_decimal(array.type):
        return array.cast(pa.decimal256(array.type.precision, array.type.scale))
    if pa.types.is_null(array.type):
        return array.cast(pa.decimal256(1, 0))
    digits = {8: 3, 16: 5, 32: 10, 64: 20}[array.type.bit_width]
    return array.cast(pa.decimal128(digits, 0)).cast(pa.decimal256(digits, 0))


def _arithmetic(node: Apply, values: list[pa.Array]) -> pa.Array:
    kernel, checked = _ARITHMETIC[node.function]
    if node.type == Primitive("double"):
        return kernel(*(_doubles(value) for value in values))
    if all(pa.types.is_integer(value.type) for value in values):
        try:
            return checked(*(value.cast(pa.int64()) for value in values))
        except pa.ArrowInvalid:
            pass  # beyond 63 bits: as decimals
    try:
        return kernel(*(_exact(value) for value in values))
    except pa.ArrowException:
        raise NotCalculable(
            f"a result of {node.function} has more than {_WIDEST_DIGITS} digits"
        ) from None


def _remainder(node: Apply, values: list[pa.Array]) -> pa.Array:
    values = [_whole_number(value) for value in values]
    if any(pa.types.is_uint64(value.type) for value in values):
        return _large_remainder(values)
    one, other = (value.cast(pa.int64()) for value in values)
    is_zero = pc.equal(other, to_scalar(0, pa.int64()))
    if pc.and_(one.is_valid(), is_zero).true_count:
        raise NotCalculable("a row divides by zero in %")
    # The least number has no opposite: the remainder by -1 is that by 1.
    as_by_one = pc.or_(is_zero, pc.equal(other, to_scalar(-1, pa.int64())))
    other = pc.if_else(as_by_one, to_scalar(1, pa.int64()), other)
    return pc.subtract(one, pc.multiply(pc.divide(one, other), other))


def _whole_number(value: pa.Array) -> pa.Array:
    """Of 64 bits, with or without a sign: a literal is a decimal."""
    if not pa.types.is_decimal(value.type):
        return value
    for kind in (pa.int64(), pa.uint64()):
        with suppress(pa.ArrowInvalid):
            return value.cast(kind)
    raise NotCalculable("a number beside % is beyond the whole numbers of 64 bits")


def _large_remainder(values: list[pa.Array]) -> pa.Array:
    """Where one side has more whole numbers than int64: of the magnitudes, with the sign of the first."""
    one, other = (_magnitude(value) for value in values)
    is_zero = pc.equal(other, to_scalar(0, pa.uint64()))
    if pc.and_(one.is_valid(), is_zero).true_count:
        raise NotCalculable("a row divides by zero in %")
    other = pc.if_else(is_zero, to_scalar(1, pa.uint64()), other)
    remainder = pc.subtract(one, pc.multiply(pc.divide(one, other), other))
    try:
        remainder = remainder.cast(pa.int64())
    except pa.ArrowInvalid:
        raise NotCalculable("a remainder of % is above the whole numbers of 64 bits") from None
    if pa.types.is_uint64(values[0].type):
        return remainder
    negative = pc.less(values[0].cast(pa.int64()), to_scalar(0, pa.int64()))
    return pc.if_else(negative, pc.negate(remainder), remainder)


def _magnitude(value: pa.Array) -> pa.Array:
    if pa.types.is_uint64(value.type):
        return value
    signed = value.cast(pa.int64())
    # Without checks: the bits of a negative number, and their opposite.
    bits = signed.cast(pa.uint64(), safe=False)
    negative = pc.less(signed, to_scalar(0, pa.int64()))
    return pc.if_else(negative, pc.subtract(to_scalar(0, pa.uint64()), bits), bits)


def _absolute(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value] = values
    if pa.types.is_integer(value.type) and pa.types.is_signed_integer(value.type):
        try:
            return pc.abs_checked(value.cast(pa.int64()))
        except pa.ArrowInvalid:
            value = _exact(value)
    return pc.abs(value)


def _rounded(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value], digits = values, node.detail
    assert isinstance(digits, int)
    if pa.types.is_floating(value.type):
        return pc.round(value, ndigits=digits, round_mode="half_towards_infinity")
    if pa.types.is_integer(value.type) and digits >= 0:
        return value
    value = _exact(value)
    if digits >= value.type.scale:
        return value
    wider = _with_a_digit_more(value)
    if -digits > wider.type.precision - wider.type.scale:
        zeros = _exact(pa.repeat(to_scalar(0, pa.int64()), len(value)))
        return pc.multiply(value, zeros).cast(wider.type)
    return pc.round(wider, ndigits=digits, round_mode="half_towards_infinity")


def _with_a_digit_more(value: pa.Array) -> pa.Array:
    """A decimal for rounding: 9.9 becomes 10, and Arrow does not widen the type on its own."""
    exact = _exact(value)
    digits = min(exact.type.precision + 1, _WIDEST_DIGITS)
    return exact.cast(pa.decimal256(digits, exact.type.scale))


def _to_whole(
    kernel: Callable[[pa.Array], pa.Array],
) -> Callable[[Apply, list[pa.Array]], pa.Array]:
    def rounded(node: Apply, values: list[pa.Array]) -> pa.Array:
        [value] = values
        if pa.types.is_integer(value.type):
            return value
        return kernel(_with_a_digit_more(value) if pa.types.is_decimal(value.type) else value)

    return rounded


# -- comparisons ------------------------------------------------------------------------------------


def _compared(node: Apply, values: list[pa.Array]) -> pa.Array:
    left, right = values
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.nulls(len(left), pa.bool_())
    kernel = getattr(pc, COMPARE[node.function])
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return compare_floats(cast(Operator, node.function), _doubles(left), _doubles(right))
    if _is_exact(left) and _is_exact(right):
        same = left.type == right.type or all(
            pa.types.is_signed_integer(side.type) for side in values
        )
        return kernel(left, right) if same else kernel(*_as_one(values, Primitive("decimal")))
    if pa.types.is_temporal(left.type) and left.type != right.type:
        left, right = _same_unit(left, right)
    elif left.type != right.type:  # fixed compared with binary
        left, right = (side.cast(pa.large_binary()) for side in values)
    return kernel(left, right)


def _is_exact(array: pa.Array) -> bool:
    return bool(pa.types.is_integer(array.type) or pa.types.is_decimal(array.type))


def _same_unit(*arrays: pa.Array) -> list[pa.Array]:
    """Dates, times and timestamps in the finest of their units; zones are all UTC."""
    kinds = [array.type for array in arrays]
    if pa.types.is_time(kinds[0]):
        finest = pa.time64("ns")
        return [array.cast(finest) for array in arrays]
    units = [kind.unit for kind in kinds if pa.types.is_timestamp(kind)]
    finest = pa.timestamp(min(units, key=lambda unit: NANOS_PER_UNIT[unit]))
    return [_naive(array).cast(finest) for array in arrays]


def _naive(array: pa.Array) -> pa.Array:
    """An instant as the time of day in UTC; no time zone database is needed."""
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        return array.view(pa.timestamp(array.type.unit))
    return array


def _one_of(node: Apply, values: list[pa.Array]) -> pa.Array:
    subject, *items = values
    equal = Apply("=", node.arguments[:2], node.type)
    return reduce(pc.or_kleene, (_compared(equal, [subject, item]) for item in items))


def _in(node: Apply, values: list[pa.Array]) -> pa.Array:
    subject, listed = values[0], node.arguments[1:]
    values_of = (item.value for item in listed if isinstance(item, Constant))
    texts = [value for value in values_of if isinstance(value, str)]
    if len(texts) < len(listed) or not pa.types.is_string(subject.type):
        return _one_of(node, values)
    hit = pc.is_in(subject, pa.array(texts, pa.string()))
    return pc.if_else(subject.is_valid(), hit, to_scalar(None, pa.bool_()))


def _matches(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value] = values
    pattern = str(node.detail)
    if node.function == "ilike":
        value = pc.utf8_lower(value)
        pattern = pc.utf8_lower(pa.scalar(pattern)).as_py()
    return like(value, pattern)


def _regular(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value], (pattern, whole, any_case) = values, cast(tuple[str, bool, bool], node.detail)
    # \A and \z, not ^ and $, which the pattern could make mean lines.
    pattern = rf"\A(?:{_closed(pattern)})\z" if whole else pattern
    return pc.match_substring_regex(value, pattern, ignore_case=any_case)


def _closed(pattern: str) -> str:
    r"""A pattern whose quotation by \Q does not go on behind it.

    >>> _closed(r"a\Q.b"), _closed(r"\\Q")
    ('a\\Q.b\\E', '\\\\Q')
    """
    at = 0
    while at < len(pattern):
        if pattern.startswith(r"\Q", at):
            end = pattern.find(r"\E", at + 2)
            if end < 0:
                return pattern + r"\E"
            at = end + 2
        else:
            at += 2 if pattern[at] == "\\" else 1
    return pattern


def _distinct(node: Apply, values: list[pa.Array]) -> pa.Array:
    one, other = (value.is_null() for value in values)
    different = _compared(Apply("!=", node.arguments, node.type), values)
    return pc.if_else(pc.or_(one, other), pc.xor(one, other), _flags(different))


# -- dates and times --------------------------------------------------------------------------------


def _part(kernel: Callable[[pa.Array], pa.Array]) -> Callable[[Apply, list[pa.Array]], pa.Array]:
    def part(node: Apply, values: list[pa.Array]) -> pa.Array:
        return kernel(_in_calendar(values[0])).cast(pa.int64())

    return part


# Arrow's calendar counts years in 16 bits and takes days beyond for others; these are January 1 of the year
# -32,766 and December 31 of 32,766.
_FIRST_DAY, _LAST_DAY = -12_687_063, 11_248_372


def _in_calendar(value: pa.Array) -> pa.Array:
    """Dates and timestamps, in UTC, that Arrow's calendar knows."""
    naive = _naive(value)
    days = naive.cast(pa.int32()) if pa.types.is_date(naive.type) else _whole_days(naive)
    ends = pc.min_max(days)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and (least < _FIRST_DAY or greatest > _LAST_DAY):
        raise pa.ArrowInvalid("beyond the calendar")
    return naive


def _whole_days(moments: pa.Array) -> pa.Int64Array:
    """Days since 1970 of timestamps, all of them. (Arrow's rounding down wraps near the least one.)"""
    day = NANOS_PER_DAY // NANOS_PER_UNIT[moments.type.unit]
    count = moments.cast(pa.int64())
    return floor_divided(count, day)


def _time_of_day(moments: pa.Array) -> pa.Int64Array:
    """Units since midnight."""
    day = NANOS_PER_DAY // NANOS_PER_UNIT[moments.type.unit]
    count = moments.cast(pa.int64())
    past = pc.subtract(count, pc.multiply(pc.divide(count, day), day))
    return pc.if_else(pc.less(past, 0), pc.add(past, day), past)


def _floored(value: pa.Array, unit: str) -> pa.Array:
    floored = pc.floor_temporal(_in_calendar(value), unit=unit)
    if pc.any(pc.greater(floored, value), min_count=0).as_py():
        raise pa.ArrowInvalid("the start of the unit is before the first moment")
    return floored


_WITHIN_DAYS = ("hour", "minute", "second", "millisecond", "microsecond")


def _truncated(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value] = values
    unit = str(node.detail)
    if pa.types.is_date(value.type) and unit in _WITHIN_DAYS:
        return value
    naive = _naive(value)
    floored = _monday(naive) if unit == "week" else _floored(naive, unit).cast(naive.type)
    return floored.view(value.type)


def _monday(value: pa.Array) -> pa.Array:
    """The start of the week. (Arrow's wraps near the last moment as well.)"""
    dated = pa.types.is_date(value.type)
    days = value.cast(pa.int32()).cast(pa.int64()) if dated else _whole_days(value)
    # 1970 began on a Thursday.
    start = pc.subtract(pc.multiply(floor_divided(pc.add(days, 3), 7), 7), 3)
    if dated:
        return start.cast(pa.int32()).cast(value.type)
    day = NANOS_PER_DAY // NANOS_PER_UNIT[value.type.unit]
    return pc.multiply_checked(start, day).cast(value.type)


def _days_later(node: Apply, values: list[pa.Array]) -> pa.Array:
    days, count = values[0].cast(pa.int32()).cast(pa.int64()), values[1].cast(pa.int64())
    add = pc.add_checked if node.detail == "+" else pc.subtract_checked
    return add(days, count).cast(pa.int32()).cast(pa.date32())


def _days_between(node: Apply, values: list[pa.Array]) -> pa.Array:
    one, other = (value.cast(pa.int32()).cast(pa.int64()) for value in values)
    return pc.subtract(one, other)


def _later(node: Apply, values: list[pa.Array]) -> pa.Array:
    kind = node.type
    assert isinstance(kind, Primitive)
    months, nanos = cast(tuple[int, int], node.detail)
    target = arrow_primitive(kind)
    naive = _naive(values[0]).cast(pa.timestamp(kind.unit))
    start = _months_later(naive, months) if months else naive.cast(pa.int64())
    moved = pc.add_checked(start, nanos // NANOS_PER_UNIT[kind.unit])
    return moved.view(target)


def _months_later(moments: pa.Array, months: int) -> pa.Array:
    """Units since 1970; a day that its month lacks becomes the month's last."""
    day = NANOS_PER_DAY // NANOS_PER_UNIT[moments.type.unit]
    moments = _in_calendar(moments)
    year, month = pc.year(moments), pc.month(moments)
    # Counted from 400,000 years back, where no division rounds up.
    count = pc.add(pc.add(pc.multiply(pc.add(year, _SHIFT), 12), pc.subtract(month, 1)), months)
    if pc.any(pc.less(count, 12), min_count=0).as_py():
        raise pa.ArrowInvalid("too early")
    first, following = _first_of_month(count), _first_of_month(pc.add(count, 1))
    last = pc.subtract(pc.subtract(following, first), 1)
    moved = pc.add(
        first, pc.min_element_wise(pc.subtract(pc.day(moments), 1), last, skip_nulls=False)
    )
    return pc.add_checked(pc.multiply_checked(moved, day), _time_of_day(moments))


_SHIFT = 400_000


def _first_of_month(count: pa.Array) -> pa.Array:
    """Days since 1970 of the first of a month, which is counted from January of the year -400,000. The
    year begins in March, so that February, whose length varies, is its end."""
    year, month = pc.divide(count, 12), pc.subtract(count, pc.multiply(pc.divide(count, 12), 12))
    early = pc.less(month, 2).cast(pa.int64())
    year = pc.subtract(year, early)
    month = pc.add(pc.subtract(month, 2), pc.multiply(early, 12))
    leaps = pc.add(pc.subtract(pc.divide(year, 4), pc.divide(year, 100)), pc.divide(year, 400))
    of_year = pc.divide(pc.add(pc.multiply(month, 153), 2), 5)
    days = pc.add(pc.add(pc.multiply(year, 365), leaps), of_year)
    return pc.subtract(days, 719_468 + _SHIFT // 400 * 146_097)


# -- texts ------------------------------------------------------------------------------------------


def _text(kernel: Callable[..., pa.Array]) -> Callable[[Apply, list[pa.Array]], pa.Array]:
    """A function of one text, whose detail is the kernel's argument."""

    def applied(node: Apply, values: list[pa.Array]) -> pa.Array:
        [value] = values
        return kernel(value) if node.detail is None else kernel(value, node.detail)

    return applied


def _with_replaced(value: pa.Array, texts: tuple[str, str]) -> pa.Array:
    """In 64-bit offsets, because the function wraps narrow ones without an error."""
    wide, (pattern, replacement) = value.cast(pa.large_string()), texts
    return narrow(pc.replace_substring(wide, pattern=pattern, replacement=replacement))


def _slice(value: pa.Array, bounds: tuple[int, int | None]) -> pa.Array:
    start, stop = bounds
    if stop is not None and stop < 0 <= start:  # LEFT without the last
        return pc.utf8_slice_codeunits(value, start=start, stop=stop)
    if start < 0 and stop is None:
        return pc.utf8_slice_codeunits(value, start=start)
    if stop is not None and stop <= start:
        return pc.if_else(value.is_valid(), "", to_scalar(None, pa.string()))
    return pc.utf8_slice_codeunits(value, start=start, stop=stop)


def _place(node: Apply, values: list[pa.Array]) -> pa.Array:
    """The place of the first character of a text in another, from 1; 0 where it is not there."""
    [value], part = values, str(node.detail)
    if not part:
        return pc.add(pc.multiply(pc.utf8_length(value).cast(pa.int64()), 0), 1)
    before = pc.list_element(pc.split_pattern(value, pattern=part, max_splits=1), 0)
    place = pc.add(pc.utf8_length(before).cast(pa.int64()), 1)
    return pc.if_else(pc.match_substring(value, pattern=part), place, 0)


def _length(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value] = values
    match node.arguments[0].type:
        case ListOf() | MapOf():
            return pc.list_value_length(value).cast(pa.int64())
        case Primitive("string"):
            return pc.utf8_length(value).cast(pa.int64())
        case _:  # bytes: `Calculator` lets nothing else have a length
            return pc.binary_length(value).cast(pa.int64())


# -- lists, maps, structs ---------------------------------------------------------------------------


def _element(node: Apply, values: list[pa.Array]) -> pa.Array:
    """The nth element, from the end if n is negative; NULL where there is none."""
    [value], at = values, node.detail
    assert isinstance(at, int)
    lengths = pc.list_value_length(value).cast(pa.int64())
    offsets = value.offsets.cast(pa.int64())
    start = offsets.slice(0, len(value))
    place = pc.add(start, at - 1) if at > 0 else pc.add(pc.add(start, lengths), at)
    within = pc.and_(pc.greater_equal(lengths, abs(at)), at != 0)
    return value.values.take(pc.if_else(within, place, to_scalar(None, pa.int64())))


def _lookup(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value], key = values, node.detail
    assert isinstance(key, Constant) and isinstance(key.type, Primitive)
    return pc.map_lookup(value, to_arrow_scalar(key.type, key.value), "first")


def _holds(node: Apply, values: list[pa.Array]) -> pa.Array:
    """Whether a list has a value; NULL for a NULL list, and NULL elements equal nothing."""
    [value], element = values, node.detail
    if element is None:
        return pc.if_else(value.is_valid(), False, to_scalar(None, pa.bool_()))
    assert isinstance(element, Constant)
    held = value.values
    column = Column(0, element.type) if element.type is not None else Constant(None, None)
    equal = Apply("=", (column, element), Primitive("bool"))
    hit = _compared(
        equal, [_widened(held), pa.repeat(_scalar(element.value, element.type), len(held))]
    )
    counts = running_sums(hit.fill_null(False).cast(pa.int64()))
    offsets = value.offsets.cast(pa.int64())
    before = counts.take(offsets.slice(0, len(value)))
    after = counts.take(offsets.slice(1, len(value)))
    return pc.if_else(value.is_valid(), pc.greater(after, before), to_scalar(None, pa.bool_()))


# -- CAST -------------------------------------------------------------------------------------------

_WHOLE_TEXT = r"^[+-]?[0-9]+$"
_NUMBER_TEXT = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DOUBLE_TEXT = r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))$"
_DATE_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?$"
_CLOCK_TEXT = r"^[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?$"
_ZONE_TEXT = r":[0-9.]+([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$"
_INSTANT_TEXT = _MOMENT_TEXT.replace(")?)?$", r")?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?)?$")
_YES, _NO = ("true", "t", "1"), ("false", "f", "0")


def _cast(node: Apply, values: list[pa.Array]) -> pa.Array:
    [value], to = values, node.type
    source = node.arguments[0].type
    assert isinstance(to, Primitive) and isinstance(source, Primitive)
    target = arrow_primitive(to)
    if source.name == "string":
        return _from_text(value, to)
    if to.is_float:
        doubles = _doubles(value.cast(pa.int8()) if pa.types.is_boolean(value.type) else value)
        return doubles if to.name == "double" else to_float(doubles)
    if to.is_integer:
        return _to_integer(value, target)
    if to.name == "decimal":
        return _to_decimal(value, target)
    if to.name == "bool":
        return pc.not_equal(value, to_scalar(0, value.type)) if source.is_integer else value
    if to.name == "string":
        return _to_text(value, source)
    if to.name == "time" and source.name != "time":
        naive = _naive(value)
        of_day = pc.multiply(_time_of_day(naive), NANOS_PER_UNIT[naive.type.unit])
        nanos = of_day.cast(pa.time64("ns"))
        return nanos.cast(target, safe=False)
    if to.name in ("date", "timestamp", "timestamptz"):
        naive = _naive(value)
        if to.name == "date":
            dated = pa.types.is_date(naive.type)
            return naive if dated else _whole_days(naive).cast(pa.int32()).cast(target)
        plain = pa.timestamp(to.unit)
        coarser = pa.types.is_timestamp(naive.type) and (
            NANOS_PER_UNIT[naive.type.unit] < NANOS_PER_UNIT[to.unit]
        )
        names = {"s": "second", "ms": "millisecond", "us": "microsecond"}
        naive = _floored(naive, names[to.unit]) if coarser else naive
        return naive.cast(plain).view(target)
    return value.cast(target)


def _to_integer(value: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(value.type):
        if value.type.scale > 0:
            value = _with_a_digit_more(value)
            value = pc.round(value, ndigits=0, round_mode="half_towards_infinity")
        return _exact(value).cast(target)
    if pa.types.is_floating(value.type):
        return pc.round(value, ndigits=0, round_mode="half_to_even").cast(target)
    return value.cast(target)


def _to_decimal(value: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_floating(value.type):
        return _rounded_to_decimal(_doubles(value), target)
    exact = _exact(value)
    if exact.type.scale > target.scale:
        wider = _with_a_digit_more(exact)
        exact = pc.round(wider, ndigits=target.scale, round_mode="half_towards_infinity")
    return exact.cast(target)


def _rounded_to_decimal(doubles: pa.Array, target: pa.DataType) -> pa.Array:
    """Halves away from zero. Arrow rounds them to even, so it is given twenty digits more: a double and a
    half that it is not differ in the first seventeen. One too large for these has no fraction to round."""
    scale = min(target.scale + 20, _WIDEST_DIGITS)
    small = pc.fill_null(pc.less(pc.abs(doubles), 10.0 ** (_WIDEST_DIGITS - 1 - scale)), True)
    fine = pc.if_else(small, doubles, 0.0).cast(pa.decimal256(_WIDEST_DIGITS, scale))
    near = pc.round(fine, ndigits=target.scale, round_mode="half_towards_infinity").cast(target)
    return pc.if_else(small, near, pc.if_else(small, 0.0, doubles).cast(target))


def to_float(doubles: pa.Array) -> pa.Array:
    """The nearest floats, as doubles. Raises `ArrowInvalid` for a number that is beyond them."""
    floats = doubles.cast(pa.float32(), safe=False).cast(pa.float64())
    overflown = pc.and_(pc.is_inf(floats), pc.is_finite(doubles))
    if pc.any(overflown, min_count=0).as_py():
        raise pa.ArrowInvalid("beyond the range of a float")
    return floats


def _to_text(value: pa.Array, source: Primitive) -> pa.Array:
    if source.name == "bool":
        return pc.if_else(value, "true", "false")
    if not source.is_temporal:
        return value.cast(pa.string())
    naive = _naive(value) if source.name == "time" else _of_four_digits(value)
    texts = naive.cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1")
    texts = pc.replace_substring_regex(texts, r"\.$", "")
    zone = "+00" if source.name == "timestamptz" else ""
    return pc.binary_join_element_wise(texts, zone, "") if zone else texts


def _of_four_digits(value: pa.Array) -> pa.Array:
    """Dates and timestamps, in UTC, whose years have four digits."""
    naive = _in_calendar(value)
    years = pc.year(naive)
    if pc.any(pc.or_(pc.less(years, 1), pc.greater(years, 9999)), min_count=0).as_py():
        raise pa.ArrowInvalid("a year of other than four digits")
    return naive


def _from_text(value: pa.Array, to: Primitive) -> pa.Array:
    target = arrow_primitive(to)
    if to.name in ("string", "binary"):
        return value.cast(target)
    value = pc.utf8_trim_whitespace(value)
    if to.name == "bool":
        lower = pc.utf8_lower(value)
        yes = pc.is_in(lower, pa.array(_YES, pa.string()))
        _all_are(pc.or_(yes, pc.is_in(lower, pa.array(_NO, pa.string()))), lower)
        return pc.if_else(value.is_valid(), yes, to_scalar(None, pa.bool_()))
    if to.name in ("time", "timestamptz"):
        form = _CLOCK_TEXT if to.name == "time" else _INSTANT_TEXT
        _all_are(pc.match_substring_regex(value, form), value)
        return _clocks(value, target) if to.name == "time" else _instants(value, target)
    forms = {"date": _DATE_TEXT, "timestamp": _MOMENT_TEXT, "decimal": _NUMBER_TEXT}
    form = _WHOLE_TEXT if to.is_integer else _DOUBLE_TEXT if to.is_float else forms[to.name]
    _all_are(pc.match_substring_regex(value, form), value)
    if to.is_integer or to.is_float or to.name == "decimal":
        value = pc.replace_substring_regex(value, r"^\+", "")
    if to.is_float:
        doubles = value.cast(pa.float64())
        return doubles if to.name == "double" else to_float(doubles)
    if to.name == "decimal":
        return _to_decimal(value.cast(pa.decimal256(_WIDEST_DIGITS, 38)), target)
    return value.cast(target)


def _parsed(node: Apply, values: list[pa.Array]) -> pa.Array:
    from inlay.parquet.arrow.date_text import existing  # a cold start seldom needs the formats

    form, is_lenient = cast("tuple[DateFormat, bool]", node.detail)
    assert isinstance(node.type, Primitive)
    texts = pc.utf8_trim_whitespace(values[0].cast(pa.string()))
    iso = existing(texts, form)
    if not is_lenient:
        _all_are(iso.is_valid(), texts)
    return _from_text(iso, node.type)


def _formatted(node: Apply, values: list[pa.Array]) -> pa.Array:
    from inlay.parquet.arrow.date_text import written

    return written(_of_four_digits(values[0]), cast(str, node.detail))


def _clocks(value: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow reads no times of day, but those of a date.
    moments = pc.binary_join_element_wise("1970-01-01 ", value, "").cast(pa.timestamp("ns"))
    return moments.cast(pa.int64()).cast(pa.time64("ns")).cast(target)


def _instants(value: pa.Array, target: pa.DataType) -> pa.Array:
    """A text without a zone is UTC."""
    dated = pc.match_substring_regex(value, _DATE_TEXT)
    value = pc.if_else(dated, pc.binary_join_element_wise(value, "00:00:00Z", " "), value)
    zoned = pc.match_substring_regex(value, _ZONE_TEXT)
    return pc.if_else(zoned, value, pc.binary_join_element_wise(value, "Z", "")).cast(target)


def _all_are(fine: pa.Array, values: pa.Array) -> None:
    if pc.any(pc.and_(values.is_valid(), pc.invert(fine)), min_count=0).as_py():
        raise pa.ArrowInvalid("a text is none")


# Of a NULL that has no type all others give NULL.
_OF_NULL = frozenset({"is null", "is", "in", "distinct"})
_Function = Callable[[Apply, list[pa.Array]], pa.Array]
_FUNCTIONS: dict[str, _Function] = {
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(COMPARE, _compared),
    "/": lambda node, values: pc.divide(*(_doubles(value) for value in values)),
    "%": _remainder,
    "not": lambda node, values: pc.invert(values[0]),
    "is null": lambda node, values: values[0].is_null(),
    "is": lambda node, values: pc.fill_null(
        pc.equal(_flags(values[0]), to_scalar(node.detail, pa.bool_())), False
    ),
    "in": _in,
    "distinct": _distinct,
    "regexp": _regular,
    "like": _matches,
    "ilike": _matches,
    "abs": _absolute,
    "round": _rounded,
    "isnan": lambda node, values: pc.is_nan(_doubles(values[0])),
    "sqrt": lambda node, values: pc.sqrt_checked(_doubles(values[0])),
    "exp": lambda node, values: pc.exp(_doubles(values[0])),
    "ln": lambda node, values: pc.ln_checked(_doubles(values[0])),
    "power": lambda node, values: pc.power(*(_doubles(value) for value in values)),
    "strpos": _place,
    "floor": _to_whole(pc.floor),
    "ceil": _to_whole(pc.ceil),
    "lower": _text(pc.utf8_lower),
    "upper": _text(pc.utf8_upper),
    "trim": _text(lambda value, characters: pc.utf8_trim(value, characters=characters)),
    "ltrim": _text(lambda value, characters: pc.utf8_ltrim(value, characters=characters)),
    "rtrim": _text(lambda value, characters: pc.utf8_rtrim(value, characters=characters)),
    "starts_with": _text(lambda value, pattern: pc.starts_with(value, pattern=pattern)),
    "ends_with": _text(lambda value, pattern: pc.ends_with(value, pattern=pattern)),
    "contains": _text(lambda value, pattern: pc.match_substring(value, pattern=pattern)),
    "replace": _text(_with_replaced),
    "substr": _text(_slice),
    "concat": lambda node, values: pc.binary_join_element_wise(
        *(value.cast(pa.string()) for value in values),
        to_scalar("", pa.string()),
        null_handling="emit_null",
    ),
    "length": _length,
    "year": _part(pc.year),
    "quarter": _part(pc.quarter),
    "month": _part(pc.month),
    "week": _part(pc.iso_week),
    "day": _part(pc.day),
    "dayofweek": _part(lambda v: pc.day_of_week(v, count_from_zero=True, week_start=7)),
    "dayofyear": _part(pc.day_of_year),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "date_trunc": _truncated,
    "days later": _days_later,
    "days between": _days_between,
    "later": _later,
    "element": _element,
    "lookup": _lookup,
    "member": lambda node, values: pc.struct_field(values[0], [node.detail]),
    "holds": _holds,
    "cast": _cast,
    "strptime": _parsed,
    "strftime": _formatted,
}
