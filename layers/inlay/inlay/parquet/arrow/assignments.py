"""Assignments over Arrow batches: the new values of an update.

Promise: values are calculated as `parquet.arrow.calculate` does. A result that the column cannot hold
exactly (overflow, lost digits, NULL in a required column) is refused by column name, never approximated.
Where a field of a struct is assigned, its other fields stay; a NULL struct becomes a struct with NULL in
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import SchemaMismatch
from inlay.format.expression import (
    Apply,
    Assigned,
    Assignment,
    Assignments,
    Column,
    Constant,
    Test,
)
from inlay.format.schema import Field, Primitive, Schema, Struct
from inlay.lazy import LazyModule
from inlay.parquet.arrow.evaluate import Columns, columns_of
from inlay.parquet.arrow.pieces import halved, pieces, repeated
from inlay.parquet.arrow.types import arrow_type, to_arrow_scalar

if TYPE_CHECKING:
    from inlay.parquet.arrow import calculate
else:  # most updates assign what is given
    calculate = LazyModule("inlay.parquet.arrow.calculate")


def assigned(
    assignments: Assignments, batch: pa.RecordBatch, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """`assign` for a batch whose new values may take more memory than a batch should, or can."""
    texts = (a.expression.value for a in assignments if isinstance(a.expression, Assigned))
    added = sum(4 * len(text) for text in texts if isinstance(text, str | bytes))
    for piece in pieces(batch, row_bytes=added):
        yield from halved(
            piece,
            lambda rows: assign(assignments, rows, schema),
            (SchemaMismatch, pa.ArrowException),
        )


def assign(assignments: Assignments, batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """`batch`, laid out as `schema`, with the assigned columns replaced.

    All values are computed from the original rows: `{"a": "b", "b": "a"}` swaps.
    """
    columns = columns_of(schema)
    arrays = list(batch.columns)
    for assignment in assignments:
        at, *path = columns[assignment.field_id]
        arrays[at] = _replaced(arrays[at], schema.fields[at], path, assignment, batch, columns)
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _replaced(
    array: pa.Array,
    field: Field,
    path: list[int],
    assignment: Assignment,
    batch: pa.RecordBatch,
    columns: Columns,
) -> pa.Array:
    """The array with the value at `path` in it assigned."""
    if not path:
        return _value(assignment, field, array.type, batch, columns)
    assert isinstance(field.type, Struct)
    children = [pc.struct_field(array, [at]) for at in range(len(field.type.fields))]
    at, *rest = path
    children[at] = _replaced(children[at], field.type.fields[at], rest, assignment, batch, columns)
    for child, values in zip(field.type.fields, children, strict=True):
        _check_required(child, values)
    return pa.StructArray.from_arrays(children, fields=list(array.type))


def _value(
    assignment: Assignment,
    field: Field,
    target: pa.DataType,
    batch: pa.RecordBatch,
    columns: Columns,
) -> pa.Array:
    try:
        match assignment.expression:
            case Assigned(None):
                values = pa.nulls(batch.num_rows, target)
            case Assigned(value):
                assert isinstance(field.type, Primitive)
                values = repeated(to_arrow_scalar(field.type, value), batch.num_rows)
            case Column() | Constant() | Test() | Apply() as expression:
                values = _fitted(calculate.calculate(expression, batch, columns), target)
    except calculate.NotCalculable as error:
        fault = f"the value of column {field.name!r} cannot be calculated: {error}"
    except pa.ArrowInvalid:
        fault = (
            f"an update gives values that column {field.name!r} of type {arrow_type(field.type)} "
            "cannot hold exactly"
        )
    else:
        _check_required(field, values)
        return values
    raise SchemaMismatch(
        fault, next_step="Restrict the update by its WHERE, or choose another value"
    )


def _fitted(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target:
        return values
    # A decimal becomes the nearest double, which Arrow does not call exact; a whole number has to fit.
    if pa.types.is_floating(target) and not pa.types.is_floating(values.type):
        values = values.cast(pa.float64(), safe=pa.types.is_integer(values.type))
    if target == pa.float32():
        values = calculate.to_float(values)
    return values.cast(target)


def _check_required(field: Field, values: pa.Array) -> None:
    if values.null_count and not field.nullable:
        raise SchemaMismatch(
            f"an update gives NULL for column {field.name!r}, which is required",
            next_step="Add IS NOT NULL to its WHERE, or make the column nullable",
        )
