"""Files against the table's columns, by their types alone: no value is looked at.

Promise: a file that passes can be read as the table's schema, given what its footer states where that is
returned; others are refused by column name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from inlay.errors import SchemaMismatch, UnsupportedType
from inlay.format.entry import ColumnStats
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct
from inlay.format.values import is_value, widens
from inlay.parquet.arrow.conform import Path, known_by_name, mismatch, missing
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.types import is_list, plain_type, primitive_from_arrow, unsupported

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Evidence = Callable[[int], ColumnStats | None]


def check_fits(
    arrow: pa.Schema,
    schema: Schema,
    *,
    evidence: Evidence = lambda _: None,
    extra_columns: bool = False,
) -> frozenset[int]:
    """Raises SchemaMismatch unless every file of this Arrow schema can be read as `schema`.

    Order does not matter; columns that are nullable or have a default may be absent. `evidence` gives the
    footer's statistics of a field: a nullable column fits a required one if its null count is 0, and a
    coarser timestamp fits one in nanoseconds if its bounds do. Returns the ids of these fields: they can be
    read only if that evidence is true. `extra_columns` True allows columns that the table lacks; they are
    then never read.
    """
    return frozenset(_check_fields(list(arrow), schema.fields, (), evidence, extra_columns))


def _check_fields(
    given: list[pa.Field], fields: tuple[Field, ...], path: Path, evidence: Evidence, extra: bool
) -> Iterator[int]:
    by_name = known_by_name(given, fields, path, extra=extra)
    for field in fields:
        source = by_name.get(field.name)
        if source is not None:
            yield from _check_field(source, field, (*path, field.name), evidence, extra)
        elif not field.nullable and field.default is None:
            raise missing((*path, field.name))


def _check_field(
    source: pa.Field, field: Field, path: Path, evidence: Evidence, extra: bool
) -> Iterator[int]:
    if source.nullable and not field.nullable:
        stats = evidence(field.id)
        if stats is None or stats.null_count != 0:
            raise SchemaMismatch(
                f"column {'.'.join(path)!r} may hold nulls in the data, but is required in the table",
                next_step="Fill the nulls and declare the column not null, or make it nullable",
            )
        yield field.id
    arrow = plain_type(source.type)
    match field.type:
        case Struct(fields) if pa.types.is_struct(arrow):
            yield from _check_fields(list(arrow), fields, path, evidence, extra)
        case ListOf(element) if is_list(arrow):
            yield from _check_field(arrow.value_field, element, (*path, "element"), evidence, extra)
        case MapOf(key, value) if pa.types.is_map(arrow):
            yield from _check_field(arrow.key_field, key, (*path, "key"), evidence, extra)
            yield from _check_field(arrow.item_field, value, (*path, "value"), evidence, extra)
        case Primitive() as target:
            yield from _check_leaf(arrow, field, target, path, evidence)
        case _:
            raise mismatch(path, source.type, field)


def _check_leaf(
    arrow: pa.DataType, field: Field, target: Primitive, path: Path, evidence: Evidence
) -> Iterator[int]:
    if pa.types.is_null(arrow):
        return  # nothing but nulls; nullability was checked
    source = primitive_from_arrow(arrow)
    if source is None and not pa.types.is_nested(arrow):
        raise unsupported(arrow, path)
    if source is None or not widens(source, target):
        raise mismatch(path, arrow, field)
    stats = evidence(field.id) or ColumnStats()
    bounds = [bound for bound in (stats.lower, stats.upper) if bound is not None]
    if not all(is_value(target, bound) for bound in bounds):
        raise SchemaMismatch(
            f"column {'.'.join(path)!r} has values in the data that {target} does not have",
            next_step="Correct them, or give the column a wider type",
        )
    gets_nanoseconds = source.unit != target.unit == "ns" and target.name != "time"
    if gets_nanoseconds:
        if len(bounds) < 2:
            raise mismatch(path, arrow, field)
        yield field.id


def check_declared(declared: Declared, actual: pa.Schema) -> None:
    """Raises `SchemaMismatch` for a file whose types do not prove that its values fit."""
    declared.check_meaning(actual)
    for field in declared.schema.fields:
        at = actual.get_field_index(field.name)
        kind = declared.arrow.field(field.name).type
        if at >= 0 and declared.is_strict(field) and not actual.field(at).type.equals(kind):
            raise SchemaMismatch(
                f"column {field.name!r} is {kind} in the table and "
                f"{str(actual.field(at).type)[:80]} in the file, whose values have not been checked",
                next_step="Append the file's rows instead: then each value is checked",
            )


def check_parquet_types(schema: pq.ParquetSchema, leaves: Collection[int] | None = None) -> None:
    """Refuses what Arrow does not say of a file's columns, or of its `leaves`: Parquet's INTERVAL, which
    DuckDB writes, is read as 12 bytes, and their meaning would be lost. Raises
    `UnsupportedType`."""
    for leaf in range(len(schema)) if leaves is None else leaves:
        column = schema.column(leaf)
        if column.converted_type == "INTERVAL":
            raise UnsupportedType(
                f"column {column.path[:80]!r} is an INTERVAL of Parquet, which a table cannot hold",
                next_step="Store months, days and microseconds as integers, or the text; in DuckDB "
                "epoch_us(i) or CAST(i AS VARCHAR)",
            )
