"""Assignments over Arrow batches: the new values of an update.

Promise: integers and decimals are calculated exactly, as 76-digit decimals; where a floating column
or a division takes part, everything is double. A result that the column cannot hold as it is
(overflow, lost digits, NULL where values are required) is refused by column, never bent.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import SchemaMismatch
from inlay.format.assignment import (
    Arithmetic,
    Assigned,
    Assignments,
    ColumnValue,
    Expression,
    NumberValue,
    Operand,
)
from inlay.format.schema import Field, Primitive, Schema
from inlay.parquet.arrow.evaluate import Columns, column_at, columns_of
from inlay.parquet.arrow.literals import to_scalar
from inlay.parquet.arrow.types import arrow_type, to_arrow_scalar

_KERNELS: dict[str, Callable[..., pa.Array]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
    "/": pc.divide,
}
# The widest decimal there is: what does not fit is refused by Arrow.
_WIDEST_DIGITS = 76


def assign(assignments: Assignments, batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """`batch`, laid out as `schema`, with the assigned columns replaced.

    All values are taken from the rows as they were: `{"a": "b", "b": "a"}` swaps.
    """
    columns = columns_of(schema)
    arrays = list(batch.columns)
    places = {field.id: at for at, field in enumerate(schema.fields)}
    for assignment in assignments:
        at = places[assignment.field_id]
        arrays[at] = _value(assignment.expression, schema.fields[at], batch, columns)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _value(
    expression: Expression, field: Field, batch: pa.RecordBatch, columns: Columns
) -> pa.Array:
    wanted = batch.schema.field(field.name).type
    try:
        match expression:
            case Assigned(None):
                found = pa.nulls(batch.num_rows, wanted)
            case Assigned(value):
                assert isinstance(field.type, Primitive)
                found = pa.repeat(to_arrow_scalar(field.type, value), batch.num_rows)
            case ColumnValue(field_id):
                found = column_at(columns[field_id], batch).cast(wanted)
            case Arithmetic():
                found = _calculate(expression, batch, columns).cast(wanted)
    except pa.ArrowInvalid:
        raise SchemaMismatch(
            f"an update gives values that column {field.name!r} of type "
            f"{arrow_type(field.type)} cannot hold exactly",
            next_step="Restrict the update by its WHERE, or choose another value",
        ) from None
    if found.null_count and not field.nullable:
        raise SchemaMismatch(
            f"an update gives NULL for column {field.name!r}, which is required",
            next_step="Add IS NOT NULL to its WHERE, or make the column nullable",
        )
    return found


def _calculate(node: Operand, batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    inexact = _is_floating(node, batch, columns)
    return _operand(node, batch, columns, inexact)


def _is_floating(node: Operand, batch: pa.RecordBatch, columns: Columns) -> bool:
    match node:
        case Arithmetic(op, left, right):
            sides = (left, right)
            return op == "/" or any(_is_floating(side, batch, columns) for side in sides)
        case ColumnValue(field_id):
            return bool(pa.types.is_floating(column_at(columns[field_id], batch).type))
        case NumberValue():
            return False


def _operand(node: Operand, batch: pa.RecordBatch, columns: Columns, inexact: bool) -> pa.Array:
    match node:
        case Arithmetic(op, left, right):
            sides = [_operand(side, batch, columns, inexact) for side in (left, right)]
            return _KERNELS[op](*sides)
        case ColumnValue(field_id):
            array = column_at(columns[field_id], batch)
            return array.cast(pa.float64()) if inexact else _exact(array)
        case NumberValue(value):
            scalar = pa.scalar(float(value)) if inexact else _exact_scalar(value)
            return pa.repeat(scalar, batch.num_rows)


def _exact(array: pa.Array) -> pa.Array:
    """Integers and decimals as 256-bit decimals of no more digits than they need."""
    if pa.types.is_decimal(array.type):
        return array.cast(pa.decimal256(array.type.precision, array.type.scale))
    digits = {8: 3, 16: 5, 32: 10, 64: 20}[array.type.bit_width]
    return array.cast(pa.decimal128(digits, 0)).cast(pa.decimal256(digits, 0))


def _exact_scalar(value: Decimal) -> pa.Scalar:
    exponent = int(value.as_tuple().exponent)
    digits = max(len(value.as_tuple().digits) + max(exponent, 0), -exponent, 1)
    if digits > _WIDEST_DIGITS:
        raise pa.ArrowInvalid("a number has too many digits")
    return to_scalar(value, pa.decimal256(digits, max(-exponent, 0)))
