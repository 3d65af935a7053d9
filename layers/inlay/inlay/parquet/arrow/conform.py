"""Batches of a file converted to batches of the table, by the schema the file was recorded under.

Promise: a column of a file is found by its *name under the schema its entry records*, and from there by
field id; a name that a later schema reuses never reads old data. Values are only ever widened: a conversion
that could change or lose a value is refused by column name, with both types.

Field ids inside a file are not used. In files of this library they agree with the recorded schema; files of
others have ids of other tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from inlay.errors import SchemaMismatch
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, right_case
from inlay.format.values import widens
from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.pieces import (
    OFFSETS_END,
    PAGE_END,
    bytes_at_most,
    is_one_piece,
    lies_within,
    narrow,
    pieces,
    repeated,
)
from inlay.parquet.arrow.types import (
    arrow_primitive,
    arrow_type,
    as_stored,
    is_list,
    nested_as,
    paired,
    plain_type,
    primitive_from_arrow,
    schema_to_arrow,
    to_arrow_scalar,
    to_scalar,
)
from inlay.parquet.arrow.words import words_of
from inlay.record import replace

Path = tuple[str, ...]
# How pandas calls the index of a frame that was filtered or sorted.
_PANDAS_INDEX = "__index_level_"


# -- checks before data is taken -------------------------------------------------------------------


def check_names(arrow: pa.Schema, schema: Schema) -> None:
    """Raises SchemaMismatch for columns and nested fields the table lacks, and for duplicate names.
    `conformed` checks the types, by the values."""
    known_by_name(list(arrow), schema.fields, (), extra=False)
    for path, column, field, _ in paired(arrow, schema.fields):
        kind = plain_type(column.type)
        if isinstance(field.type, Struct) and pa.types.is_struct(kind):
            known_by_name(list(kind), field.type.fields, path, extra=False)


def known_by_name(
    given: list[pa.Field], fields: tuple[Field, ...], path: Path, *, extra: bool
) -> dict[str, pa.Field]:
    by_name = {field.name: field for field in given}
    if len(by_name) < len(given):
        within = f" within {'.'.join(path)!r}" if path else ""
        raise SchemaMismatch(
            f"the data has two columns of the same name{within}",
            next_step="Rename one of them",
        )
    unknown = sorted(by_name.keys() - {field.name for field in fields})
    if unknown and not extra:
        names = ", ".join(repr(".".join((*path, name))) for name in unknown[:5])
        absent = [".".join((*path, f.name)) for f in fields if f.name not in by_name]
        cases = (right_case(".".join((*path, name)), absent) for name in unknown)
        of_pandas = any(name.startswith(_PANDAS_INDEX) for name in unknown)
        raise SchemaMismatch(
            f"the data has {'a column' if len(unknown) == 1 else f'{len(unknown)} columns'} that the table "
            f"lacks: {names}",
            next_step="The index of a pandas frame is one: give frame.reset_index(drop=True)"
            if of_pandas
            else next(filter(None, cases), "")
            or "Drop them from the data, or add them to the table first",
        )
    return by_name


def missing(path: Path) -> SchemaMismatch:
    return SchemaMismatch(
        f"the data lacks column {'.'.join(path)!r}, which the table requires",
        next_step="Add the column to the data, or make it nullable in the table",
    )


def mismatch(path: Path, arrow: pa.DataType, field: Field) -> SchemaMismatch:
    if pa.types.is_run_end_encoded(arrow):
        return runs_refused(path)
    has, target = str(arrow)[:80], str(arrow_type(field.type))[:80]
    whole = isinstance(field.type, Primitive) and field.type.is_integer
    from_pandas = pa.types.is_floating(arrow) and whole
    return SchemaMismatch(
        f"column {'.'.join(path)!r} is {has} in the data and {target} in the table",
        next_step=f"Cast it to {target} before writing; only widening casts are automatic"
        + (
            ". pandas has whole numbers beside NULL as doubles: frame.astype({'"
            + path[-1]
            + "': 'Int64'}) keeps them"
            if from_pandas
            else ""
        ),
    )


def runs_refused(path: Path) -> SchemaMismatch:
    """Arrow neither casts nor takes them."""
    return SchemaMismatch(
        f"column {'.'.join(path)!r} is run-end encoded in the data",
        next_step="Decode it with pyarrow.compute.run_end_decode",
    )


# -- reading --------------------------------------------------------------------------------------


def conformed(
    batches: Iterable[pa.RecordBatch], recorded: Schema, target: Schema, *, by_value: bool = False
) -> Iterator[pa.RecordBatch]:
    """`batches`, laid out as in a file recorded under `recorded`, as rows of `target`: of each batch one,
    or several where its values take much memory (`parquet.arrow.pieces`).

    Columns are selected by id, ordered, widened; a column the file lacks has its default, or is null. The
    result's schema is `schema_to_arrow(target)`. `by_value` also accepts narrower types if these values
    survive (an int64 array of small numbers for an int32 column): for data given in memory. Raises
    SchemaMismatch.
    """
    arrow = schema_to_arrow(target)
    defaults = sum(len(f.default) for f in target.fields if isinstance(f.default, str | bytes))
    there = {f.id: (f.name, f.type) for f in recorded.fields if f.in_partition is None}
    # With the ids of what is nested: a name that is used again is another field.
    same_fields = not by_value and all(there.get(f.id) == (f.name, f.type) for f in target.fields)
    for batch in batches:
        if same_fields and batch.schema.equals(arrow) and is_one_piece(batch):
            # So most files are, and of small ones a look at each column takes a third of the time.
            for field, array in zip(target.fields, batch.columns, strict=True):
                _require(array, field, (field.name,))
            yield pa.RecordBatch.from_arrays(batch.columns, schema=arrow)
            continue
        try:
            # Of a character, 4 bytes at most.
            for piece in pieces(batch, row_bytes=4 * defaults):
                columns = dict(zip(piece.schema.names, piece.columns, strict=True))
                try:
                    arrays = _conform_fields(
                        columns, recorded.fields, target.fields, piece.num_rows, (), by_value
                    )
                except (pa.ArrowCapacityError, pa.ArrowInvalid):
                    _check_size(piece)
                    raise
                yield pa.RecordBatch.from_arrays(arrays, schema=arrow)
        except (pa.ArrowInvalid, pa.ArrowIndexError):
            if by_value:
                check_whole(batch)
            raise


def check_whole(batch: pa.RecordBatch) -> None:
    """Raises SchemaMismatch for a column that breaks Arrow's own rules."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise SchemaMismatch(
                f"column {name!r} of the data is not valid Arrow: {words_of(error)}",
                next_step="Whatever made or sent it has damaged it: make it again. "
                "pyarrow's validate(full=True) says the same",
            ) from None


def _check_size(row: pa.RecordBatch) -> None:
    """Raises SchemaMismatch where a column has more in one row than Arrow's text and lists hold."""
    for name, column in zip(row.schema.names, row.columns, strict=True):
        if row.num_rows == 1 and bytes_at_most(column) > OFFSETS_END:
            raise _too_large(name) from None


def _too_large(name: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"column {name!r} has a value of more than {PAGE_END >> 20:,} MiB in one row",
        next_step="Store such a value as objects of its own, and their location in the column",
    )


def _conform_fields(
    arrays: dict[str, pa.Array],
    recorded: tuple[Field, ...],
    target: tuple[Field, ...],
    rows: int,
    path: Path,
    by_value: bool,
) -> list[pa.Array]:
    old = {field.id: field for field in recorded if field.in_partition is None}
    conformed = []
    for field in target:
        was = old.get(field.id)
        array = arrays.get(was.name) if was is not None else None
        here = (*path, field.name)
        if was is not None and array is not None:
            conformed.append(_conform_array(array, was, field, here, by_value))
        elif field.default is not None and isinstance(field.type, Primitive):
            conformed.append(repeated(to_arrow_scalar(field.type, field.default), rows))
        elif field.nullable:
            conformed.append(_nulls(rows, arrow_type(field.type, with_ids=True)))
        else:
            raise missing(here)
    return conformed


def _conform_array(
    array: pa.Array, was: Field, field: Field, path: Path, by_value: bool
) -> pa.Array:
    array = decoded(array)
    if pa.types.is_null(array.type):
        array = _nulls(len(array), arrow_type(field.type, with_ids=True))
    elif isinstance(field.type, Primitive):
        array = _conform_leaf(array, field, field.type, path, by_value)
        if by_value:
            _check_values(array, field.type, path)
    else:
        array, target = as_stored(array), arrow_type(field.type, with_ids=True)
        try:
            array = _conform_nested(array, was, field, target, path, by_value)
        except pa.ArrowNotImplementedError:
            raise mismatch(path, array.type, field) from None
    _require(array, field, path)
    return array


def decoded(array: pa.Array) -> pa.Array:
    """The values of each row, without the dictionaries and extension types around them. Arrow cannot take
    from views, which Polars has in its categories: their values become large ones, which have room for
    all that a dictionary holds."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not pa.types.is_dictionary(array.type):
        return array
    values = decoded(array.dictionary)
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def _check_values(array: pa.Array, kind: Primitive, path: Path) -> None:
    """Arrow keeps any bytes as text, which most readers of Parquet then fail at, and any number as a time
    of day or a decimal. What no page holds it fails at when it is written, after it took many times the
    memory; only a piece of one row can have it."""
    size = bytes_at_most(array) if kind.name in ("string", "binary") else 0
    if size > PAGE_END:
        raise _too_large(path[0])

    def are_values(start: int, end: int) -> bool:
        try:
            array.slice(start, end - start).validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True

    if kind.family not in ("text", "time", "decimal"):
        return
    is_much = kind.family == "text" and size > _ASCII_BYTES
    if (is_much and _is_ascii(array)) or are_values(0, len(array)):
        return
    start, end = 0, len(array)
    while end - start > 1:
        middle = (start + end) // 2
        start, end = (middle, end) if are_values(start, middle) else (start, middle)
    place = f"value {start} of a batch of {len(array)}"
    if kind.family == "text":
        raise SchemaMismatch(
            f"column {'.'.join(path)!r} has text that is not UTF-8: {place}",
            next_step="Repair it, as by `value.decode('utf-8', 'replace')`, or make the column binary",
        )
    raise SchemaMismatch(
        f"column {'.'.join(path)!r} has a number that is no {kind}: {place}",
        next_step="Correct it where the data is made",
    )


# Copied at a time: it stays in the processor's cache.
_ASCII_BYTES = 256 * 1024


def _is_ascii(array: pa.StringArray) -> bool:
    """Of many bytes several times as fast as validation, which costs an append of text a sixth of its CPU.
    False for texts that do not lie within their bytes, which validation then refuses."""
    if not lies_within(array):
        return False
    _, offsets, body = array.buffers()
    if not len(array) or body is None:
        return True
    ends = memoryview(offsets).cast("i")
    first, last = ends[array.offset], ends[array.offset + len(array)]
    held = memoryview(body)
    return all(
        held[at : min(at + _ASCII_BYTES, last)].tobytes().isascii()
        for at in range(first, last, _ASCII_BYTES)
    )


def _require(array: pa.Array, field: Field, path: Path) -> None:
    if array.null_count and not field.nullable:
        raise SchemaMismatch(
            f"column {'.'.join(path)!r} holds nulls but is required in the table",
            next_step="Fill the nulls, or make the column nullable in the table",
        )


def _conform_leaf(
    array: pa.Array, field: Field, target: Primitive, path: Path, by_value: bool
) -> pa.Array:
    kind = arrow_primitive(target)
    if array.type == kind:
        return array
    if by_value and pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
        if array.type == kind:
            return array
    source = primitive_from_arrow(array.type)
    if source is None:
        raise mismatch(path, array.type, field)
    # Parquet has no seconds: timestamp(s) files of this library are read in milliseconds.
    from_seconds = target.unit == "s" and source.name == target.name and source.unit == "ms"
    if not (widens(source, target) or from_seconds or (by_value and _related(source, target))):
        raise mismatch(path, array.type, field)
    array = narrow(array)
    try:
        return array.cast(kind)
    except pa.ArrowException:
        raise mismatch(path, array.type, field) from None


def _related(source: Primitive, target: Primitive) -> bool:
    """Types between which Arrow's safe cast keeps each value or fails."""
    numbers = source.is_integer and (
        target.is_integer or target.is_float or target.name == "decimal"
    )
    same = source.name == target.name and source.name in (
        "decimal",
        "time",
        "timestamp",
        "timestamptz",
    )
    # Spark has unsigned integers of 64 bits as decimals.
    whole = source.name == "decimal" and target.is_integer
    return numbers or whole or same or (source.name, target.name) == ("binary", "fixed")


def _conform_nested(
    array: pa.Array, was: Field, field: Field, arrow: pa.DataType, path: Path, by_value: bool
) -> pa.Array:
    match was.type, field.type:
        case Struct(recorded), Struct(target) if pa.types.is_struct(array.type):
            names = [child.name for child in array.type]
            # A child under a null parent may be anything: flatten makes it null.
            children = dict(zip(names, array.flatten(), strict=True))
            optional = tuple(replace(f, nullable=True) for f in target)
            converted = _conform_fields(children, recorded, optional, len(array), path, by_value)
            for at, field in enumerate(target):
                if not field.nullable:
                    converted[at] = _fill_under(array, converted[at])
                    _require(converted[at], field, (*path, field.name))
            return pa.StructArray.from_arrays(converted, fields=list(arrow), mask=array.is_null())
        case ListOf(was_element), ListOf(element) if is_list(array.type):
            sides = [(was_element, element)]
        case MapOf(was_key, was_value), MapOf(key, value) if pa.types.is_map(array.type):
            sides = [(was_key, key), (was_value, value)]
        case _:
            raise mismatch(path, array.type, field)

    def convert(inner: pa.Array, n: int) -> pa.Array:
        return _conform_array(inner, *sides[n], (*path, sides[n][1].name), by_value)

    return nested_as(array, arrow, convert)


def _fill_under(parents: pa.Array, children: pa.Array) -> pa.Array:
    """Required children under null parents: any value but null, which Parquet would not write."""
    if not parents.null_count:
        return children
    return pc.if_else(parents.is_null(), _blanks(len(parents), children.type), children)


def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """Nulls whose required children are not null, unlike those of `pa.nulls`."""
    if pa.types.is_struct(kind):
        mask = pa.repeat(to_scalar(True, pa.bool_()), rows)
        return pa.StructArray.from_arrays(_children(rows, kind), fields=list(kind), mask=mask)
    return pa.nulls(rows, kind)


def _blanks(rows: int, kind: pa.DataType) -> pa.Array:
    """Placeholder values of a type, which are never visible: zero, empty."""
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(_children(rows, kind), fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return pa.array([[]] * rows, kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([bytes(kind.byte_width)] * rows, kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.repeat(to_scalar("" if pa.types.is_string(kind) else b"", kind), rows)
    return pa.repeat(to_scalar(False if pa.types.is_boolean(kind) else 0, kind), rows)


def _children(rows: int, kind: pa.StructType) -> list[pa.Array]:
    return [(_nulls if child.nullable else _blanks)(rows, child.type) for child in kind]
