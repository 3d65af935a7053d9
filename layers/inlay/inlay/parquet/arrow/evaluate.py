"""Predicates over Arrow batches, with three-valued logic.

Promise: `evaluate` gives TRUE, FALSE or NULL per row exactly as `format.predicate` defines it, for every
Arrow layout of a column's type (dictionary, large, view, other decimal widths, narrower types and coarser
units that widen to the column's). Arrow's own kernels differ in three ways, all handled here: in Arrow NaN
is unordered, IN treats NULL as FALSE and -0.0 as different from 0.0, and LIKE has other rules than
`format.predicate`.

A column is found by the path of its field id in `columns`; an id without one is a column the file does not
have: NULL in each row. A child of a NULL struct is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import assert_never

import pyarrow as pa

from inlay.errors import SchemaMismatch
from inlay.format.predicate import (
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
    Wildcard,
    like_matches,
    like_re2,
    parse_like,
)
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.format.values import is_nan, widens
from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.types import (
    arrow_primitive,
    plain_type,
    primitive_from_arrow,
    to_arrow_array,
    to_scalar,
)

# Field id → index of a column of the batch, then of children of structs.
Columns = Mapping[int, tuple[int, ...]]

# Operator → the name of Arrow's function.
COMPARE = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_STRING = Primitive("string")


def columns_of(schema: Schema) -> dict[int, tuple[int, ...]]:
    """The positions of the fields in batches laid out exactly as `schema`."""
    paths: dict[int, tuple[int, ...]] = {}
    pending: list[tuple[tuple[int, ...], Field]] = [
        ((at,), field) for at, field in enumerate(schema.fields)
    ]
    while pending:
        path, field = pending.pop()
        paths[field.id] = path
        if isinstance(field.type, Struct):
            pending.extend(((*path, at), child) for at, child in enumerate(field.type.fields))
    return paths


def selected(predicate: Predicate, batch: pa.RecordBatch, columns: Columns) -> pa.BooleanArray:
    """TRUE for each row the predicate selects, FALSE for the others; no nulls."""
    return evaluate(predicate, batch, columns).fill_null(to_scalar(False, pa.bool_()))


def evaluate(predicate: Predicate, batch: pa.RecordBatch, columns: Columns) -> pa.BooleanArray:
    """TRUE, FALSE or null for each row."""
    judge: Callable[[pa.Array], pa.Array]
    match predicate:
        case And(parts) | Or(parts):
            is_and = isinstance(predicate, And)
            joined: pa.BooleanArray | None = None
            for part in parts:
                selected = evaluate(part, batch, columns)
                if joined is not None:
                    selected = (pc.and_kleene if is_and else pc.or_kleene)(joined, selected)
                joined = selected
            return _constant(is_and, batch.num_rows) if joined is None else joined
        case Not(part):
            return pc.invert(evaluate(part, batch, columns))
        case Constant(value):
            return _constant(value, batch.num_rows)
        case IsNull(field_id):
            array = _column(field_id, batch, columns)
            return _constant(True, batch.num_rows) if array is None else array.is_null()
        case Comparison(field_id, op, literal):
            kind, judge = literal.type, partial(_compare, op=op, literal=literal)
        case In(field_id, kind, _):
            judge = partial(_in, node=predicate)
        case Like(field_id, pattern):
            kind, judge = _STRING, partial(like, pattern=pattern)
        case _:
            assert_never(predicate)
    held = comparable(_column(field_id, batch, columns), kind)
    if held is None:
        return _constant(None, batch.num_rows)
    values, indices = held
    hit = judge(values)
    return hit if indices is None else hit.take(indices)


def _constant(value: bool | None, rows: int) -> pa.BooleanArray:
    return pa.repeat(to_scalar(value, pa.bool_()), rows)


# -- columns --------------------------------------------------------------------------------------


def _column(field_id: int, batch: pa.RecordBatch, columns: Columns) -> pa.Array | None:
    path = columns.get(field_id)
    return None if path is None else column_at(path, batch)


def column_at(path: tuple[int, ...], batch: pa.RecordBatch) -> pa.Array:
    """The column or struct child at a path; null where a parent is."""
    array = batch.column(path[0])
    for child in path[1:]:
        array = pc.struct_field(_storage(array), [child])
    return array


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def comparable(array: pa.Array | None, kind: Primitive) -> tuple[pa.Array, pa.Array | None] | None:
    """The values of a column in a type that holds them and literals of `kind`, the wider of the two, and
    which of them each row has: of a dictionary each distinct one comes once (a null in it or in the indices
    is null), else, with None, there is one for each row. None without a column."""
    if array is None or pa.types.is_null(array.type):
        return None
    array, indices = _storage(array), None
    if pa.types.is_dictionary(array.type):
        array, indices = array.dictionary, array.indices
    target = arrow_primitive(kind)
    if array.type == target:
        return array, indices
    held_as = primitive_from_arrow(array.type)
    if held_as is not None and held_as != kind and widens(kind, held_as):
        target = arrow_primitive(held_as)  # the column was widened after the literal was written
    if array.type != target and (pa.types.is_string(target) or pa.types.is_binary(target)):
        # 32-bit offsets may be too small for what a large or view array holds.
        target = pa.large_string() if pa.types.is_string(target) else pa.large_binary()
    try:
        return array.cast(target), indices
    except pa.ArrowException:
        raise SchemaMismatch(
            f"a column of Arrow type {plain_type(array.type)} cannot be compared as {kind}"
        ) from None


# -- conditions -----------------------------------------------------------------------------------


def _compare(values: pa.Array, op: Operator, literal: Literal) -> pa.Array:
    if is_nan(literal.value):
        return compare_floats(op, values, to_scalar(literal.value, values.type))
    scalar = to_scalar(literal.value, arrow_primitive(literal.type))
    try:
        scalar = scalar.cast(values.type)
    except pa.ArrowInvalid:
        # A timestamp out of range of the column's finer unit, above or below every value.
        is_above = isinstance(literal.value, int) and literal.value > 0
        result = op == "!=" or op in (("<", "<=") if is_above else (">", ">="))
        return _for_values(values, to_scalar(result, pa.bool_()))
    flags = getattr(pc, COMPARE[op])(values, scalar)
    if literal.type.is_float and op in (">", ">="):
        return pc.or_kleene(flags, pc.is_nan(values))
    return flags


def _for_values(values: pa.Array, result: pa.Array | pa.Scalar) -> pa.Array:
    """`result`, but null for null."""
    return pc.if_else(values.is_valid(), result, to_scalar(None, pa.bool_()))


def compare_floats(op: Operator, left: pa.Array, right: pa.Array | pa.Scalar) -> pa.Array:
    """With NaN equal to itself and above every number."""
    compared = getattr(pc, COMPARE[op])(left, right)  # of NaN only != is TRUE
    one, other = pc.is_nan(left), pc.is_nan(right)
    match op:
        case "=":
            return pc.or_(compared, pc.and_(one, other))
        case "!=":
            return pc.and_(compared, pc.invert(pc.and_(one, other)))
        case "<":
            return pc.or_(compared, pc.and_(other, pc.invert(one)))
        case "<=":
            return pc.or_(compared, other)
        case ">":
            return pc.or_(compared, pc.and_(one, pc.invert(other)))
        case ">=":
            return pc.or_(compared, one)


def _in(values: pa.Array, node: In) -> pa.Array:
    numbers = node.values[:-1] if is_nan(node.values[-1]) else node.values  # NaN sorts last
    flags = pc.is_in(values, _value_set(node.type, numbers, values.type))
    if node.type.is_float:
        if 0.0 in numbers:
            flags = pc.or_(flags, pc.equal(values, to_scalar(0.0, values.type)))
        if len(numbers) < len(node.values):
            flags = pc.or_(flags, pc.is_nan(values))
    return _for_values(values, flags)


@lru_cache(maxsize=8)
def _value_set(kind: Primitive, values: tuple[object, ...], target: pa.DataType) -> pa.Array:
    """Kept between the batches of a scan: a long list costs more to convert than to look up."""
    return cast_or_null(to_arrow_array(kind, values), target).drop_null()  # type: ignore[arg-type]


def cast_or_null(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values in another type; NULL for those out of its range (a finer timestamp unit)."""
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        return pa.array([_cast(value, target) for value in values], target)


def _cast(value: pa.Scalar, target: pa.DataType) -> pa.Scalar | None:
    try:
        return value.cast(target)
    except pa.ArrowInvalid:
        return None


def like(values: pa.Array, pattern: str) -> pa.Array:
    """Whether each text matches the pattern; null for null."""
    any_run = Wildcard.ANY_RUN
    match parse_like(pattern):
        case ():
            return pc.equal(values, to_scalar("", values.type))
        case (str(text),):
            return pc.equal(values, to_scalar(text, values.type))
        case (str(text), end) if end is any_run:
            return pc.starts_with(values, pattern=text)
        case (start, str(text)) if start is any_run:
            return pc.ends_with(values, pattern=text)
        case (start, str(text), end) if start is any_run and end is any_run:
            return pc.match_substring(values, pattern=text)
        case _:  # wildcards anywhere
            return _like_by_regex(values, pattern)


def _like_by_regex(values: pa.Array, pattern: str) -> pa.Array:
    """RE2 matches nothing where a text is not UTF-8 (pyarrow does not check what files hold): those are
    compared one by one, each wrong byte as one character."""
    try:
        flags = pc.match_substring_regex(values, pattern=like_re2(pattern))
        values.validate(full=True)
    except pa.ArrowInvalid:  # or the pattern needs more memory than RE2 permits
        raw = values.cast(pa.large_binary()).to_pylist()
        texts = (None if v is None else v.decode("utf-8", "replace") for v in raw)
        return pa.array(
            [None if v is None else like_matches(pattern, v) for v in texts], pa.bool_()
        )
    return flags
