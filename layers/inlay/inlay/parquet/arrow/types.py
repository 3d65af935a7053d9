"""The table's types in Arrow, and Arrow's types as the table's.

Promise: `schema_from_arrow(schema_to_arrow(s))` has the types of `s`, and a value goes to Arrow and
back unchanged. Encodings of one type (dictionary, large and view layouts, 32 and 64 bit decimals,
date64, extension types) are the type they encode; what Parquet or the format cannot hold is refused
by column name.

Zones: an Arrow timestamp with any zone is an instant, so it is `timestamptz` and shown in UTC.
"""

from __future__ import annotations

import struct
from array import array as packed
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, time
from decimal import Decimal
from functools import lru_cache, partial
from itertools import count
from types import NoneType
from typing import Any

import pyarrow as pa
from pyroaring import BitMap, BitMap64

from inlay.errors import InvalidRequest, SchemaMismatch, UnsupportedType, a_type
from inlay.format.leaf_types import LEAF_TYPES
from inlay.format.schema import (
    Field,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    Value,
)
from inlay.format.values import physical, to_float32
from inlay.parquet.arrow.functions import pc

# One value as a struct code, little-endian (Arrow columnar format, "Fixed-Size Primitive Layout").
_CODES: dict[pa.DataType, str] = {
    pa.int8(): "b",
    pa.int16(): "h",
    pa.int32(): "i",
    pa.int64(): "q",
    pa.uint8(): "B",
    pa.uint16(): "H",
    pa.uint32(): "I",
    pa.uint64(): "Q",
    pa.float32(): "f",
    pa.float64(): "d",
    pa.date32(): "i",
}
_OFFSETS_END = 2**31 - 1


def to_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """`value` as a scalar of type `kind`. Raises what pyarrow raises where it does not fit."""
    return to_array((value,), kind)[0]


def to_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """`values` as an array of type `kind`. Raises what pyarrow raises where one does not fit.

    By hand for the types a table has: `to_array(values, kind)` and `to_scalar(value, kind)` equal
    `pa.array(values, kind)` and `pa.scalar(value, kind)`, for physical values: int (dates, times and
    timestamps are their counts), float, bool, str, bytes, Decimal, None.

    Why not pyarrow's own conversion: its first call imports pandas where pandas is installed, to check
    whether the value is a pandas object. That is one to two seconds of CPU before the first filtered row of
    a process. Values of any other form, and types that are not listed here, still use it.
    """
    try:
        buffers = _buffers(values, kind)
    except (struct.error, TypeError, ValueError, OverflowError, AttributeError):
        buffers = None  # another form of the value, or one that does not fit: pyarrow reports it
    if buffers is None:
        return pa.array(values, kind)
    nulls = sum(value is None for value in values)
    validity = _bits([value is not None for value in values]) if nulls else None
    return pa.Array.from_buffers(kind, len(values), [validity, *buffers], nulls)


def positions_array(positions: BitMap | BitMap64) -> pa.Array:
    """The numbers of a bitmap, ascending, as int64, without creating Python integers."""
    held = positions.to_array()
    narrow = pa.uint64() if held.itemsize == 8 else pa.uint32()
    return pa.Array.from_buffers(narrow, len(held), [None, pa.py_buffer(held)]).cast(pa.int64())


def positions_bitmap(positions: pa.Int64Array) -> BitMap64:
    """The inverse: a bitmap of numbers that ascend, none of them NULL."""
    if not len(positions):
        return BitMap64()
    first, last = positions[0].as_py(), positions[-1].as_py()
    if last - first + 1 == len(positions):
        return BitMap64(range(first, last + 1))
    held = packed("Q")
    held.frombytes(memoryview(positions.buffers()[1])[8 * positions.offset :][: 8 * len(positions)])
    return BitMap64(held)


def _buffers(values: Sequence[Any], kind: pa.DataType) -> list[pa.Buffer] | None:
    """The buffers after the validity bitmap; None for a type that is not laid out here."""
    code = _CODES.get(kind)
    if code is None and pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        code = "i" if kind.bit_width == 32 else "q"
    if code is not None:
        # Only the physical form: no bool as a number, no text, and no fraction for a count.
        types = set(map(type, values)) - {NoneType}
        if not types <= ({int, float} if code in "fd" else {int}):
            return None
        whole = [value for value in values if type(value) is int] if code in "fd" else []
        if any(int(float(value)) != value for value in whole):
            return None
        held = [0 if value is None else value for value in values]
        return [pa.py_buffer(struct.pack(f"<{len(held)}{code}", *held))]
    if kind == pa.bool_():
        if not all(value is None or type(value) is bool for value in values):
            return None
        return [_bits([value is True for value in values])]
    if kind == pa.string():
        return _variable([b"" if value is None else value.encode() for value in values])
    if kind == pa.binary():
        return _variable(
            [b"" if value is None else memoryview(value).tobytes() for value in values]
        )
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        width = kind.byte_width
        unscaled = [0 if value is None else _unscaled(value, kind) for value in values]
        return [pa.py_buffer(b"".join(n.to_bytes(width, "little", signed=True) for n in unscaled))]
    return None


def _unscaled(value: Any, kind: pa.Decimal128Type | pa.Decimal256Type) -> int:
    if type(value) is not Decimal or not value.is_finite():
        raise TypeError
    sign, digits, exponent = value.as_tuple()
    shift = int(exponent) + kind.scale
    if shift < 0 or len(digits) + shift > kind.precision:
        raise ValueError
    number: int = int("".join(map(str, digits))) * 10**shift
    return -number if sign else number


def _variable(encoded: list[bytes]) -> list[pa.Buffer]:
    offsets, end = packed("i", [0]), 0
    for text in encoded:
        end += len(text)
        if end > _OFFSETS_END:
            raise OverflowError
        offsets.append(end)
    return [pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(encoded))]


def _bits(flags: list[bool]) -> pa.Buffer:
    """Bit i of the buffer is `flags[i]`, least significant bit first."""
    octets = bytearray((len(flags) + 7) // 8)
    for i, flag in enumerate(flags):
        if flag:
            octets[i >> 3] |= 1 << (i & 7)
    return pa.py_buffer(bytes(octets))


COMMENT = b"comment"  # of a column, in Arrow's metadata of its field
FIELD_ID = b"PARQUET:field_id"  # the key pyarrow reads and writes Parquet field ids under

# Arrow nests types without a bound; every function that walks one here is recursive.
MAX_NESTING = 64

_FROM_SIMPLE = {
    pa.large_string(): Primitive("string"),
    pa.string_view(): Primitive("string"),
    pa.large_binary(): Primitive("binary"),
    pa.binary_view(): Primitive("binary"),
    pa.date64(): Primitive("date"),
}


# -- to Arrow -------------------------------------------------------------------------------------


def arrow_primitive(kind: Primitive) -> pa.DataType:
    """The one Arrow type batches of this library use for a leaf type."""
    match kind.name:
        case "int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "uint64":
            return getattr(pa, kind.name)()
        case "float":
            return pa.float32()
        case "double":
            return pa.float64()
        case "bool":
            return pa.bool_()
        case "string":
            return pa.string()
        case "binary":
            return pa.binary()
        case "date":
            return pa.date32()
        case "decimal":
            width = pa.decimal128 if kind.precision <= 38 else pa.decimal256
            return width(kind.precision, kind.scale)
        case "fixed":
            return pa.binary(kind.precision)
        case "time":
            return pa.time32("ms") if kind.unit == "ms" else pa.time64(kind.unit)
        case "timestamp":
            return pa.timestamp(kind.unit)
        case "timestamptz":
            return pa.timestamp(kind.unit, tz="UTC")


_SIMPLE = tuple(Primitive(name) for name, row in LEAF_TYPES.items() if not row.arguments)
_FROM_SIMPLE |= {arrow_primitive(kind): kind for kind in _SIMPLE}


def arrow_type(kind: Type, *, with_ids: bool = False) -> pa.DataType:
    return arrow_type_of(kind, partial(arrow_field, with_ids=with_ids))


def arrow_type_of(kind: Type, inner: Callable[..., pa.Field]) -> pa.DataType:
    """The Arrow type with what `inner` makes of the fields within: of elements, keys and values it is given
    the name that they have in Arrow, too."""
    match kind:
        case Primitive():
            return arrow_primitive(kind)
        case Struct(fields):
            return pa.struct(list(map(inner, fields)))
        case ListOf(element):
            return pa.list_(inner(element, "element"))
        case MapOf(key, value):
            return pa.map_(inner(key, "key").with_nullable(False), inner(value, "value"))


def arrow_field(field: Field, name: str | None = None, *, with_ids: bool = False) -> pa.Field:
    metadata = {FIELD_ID: str(field.id).encode()} if with_ids else None
    kind = arrow_type_of(field.type, partial(arrow_field, with_ids=with_ids))
    return pa.field(name or field.name, kind, field.nullable, metadata)


@lru_cache(maxsize=32)
def schema_to_arrow(schema: Schema, with_ids: bool = True) -> pa.Schema:
    """`with_ids` stores each field's id where pyarrow's Parquet writer expects it."""
    return pa.schema([arrow_field(f, with_ids=with_ids) for f in schema.fields])


# -- from Arrow -----------------------------------------------------------------------------------


def schema_from_arrow(arrow: pa.Schema) -> Schema:
    """A new schema, of id 0, with new field ids from 1, depth first.

    Ids in the Arrow metadata are ignored: they are the file writer's. Raises UnsupportedType by column
    name, SchemaMismatch for duplicate names.
    """
    return Schema(0, _fields_from_arrow(list(arrow), (), count(1)))


def _fields_from_arrow(
    arrow: list[pa.Field], path: tuple[str, ...], ids: Iterator[int]
) -> tuple[Field, ...]:
    names = [field.name for field in arrow]
    if len(set(names)) < len(names):
        twice = next(name for at, name in enumerate(names) if name in names[:at])
        raise SchemaMismatch(
            f"two columns are called {'.'.join((*path, twice))!r}", next_step="Rename one of them"
        )
    return tuple(_field_from_arrow(field, (*path, field.name), ids) for field in arrow)


def _field_from_arrow(
    arrow: pa.Field, path: tuple[str, ...], ids: Iterator[int], name: str | None = None
) -> Field:
    own_id = next(ids)  # before the children's: depth first
    kind = _type_from_arrow(arrow.type, path, ids)
    doc = (arrow.metadata or {}).get(COMMENT, b"").decode("utf-8", "replace")
    return Field(own_id, arrow.name if name is None else name, kind, arrow.nullable, doc)


def _type_from_arrow(arrow: pa.DataType, path: tuple[str, ...], ids: Iterator[int]) -> Type:
    if len(path) > MAX_NESTING:
        raise UnsupportedType(
            f"column {path[0]!r} is nested deeper than {MAX_NESTING} levels",
            next_step="Flatten it, or store it as a JSON string",
        )
    arrow = plain_type(arrow)
    if pa.types.is_struct(arrow) and arrow.num_fields:
        return Struct(_fields_from_arrow(list(arrow), path, ids))
    if is_list(arrow):
        element = _field_from_arrow(arrow.value_field, (*path, "element"), ids, "element")
        return ListOf(element)
    if pa.types.is_map(arrow):
        return MapOf(
            _field_from_arrow(arrow.key_field, (*path, "key"), ids, "key"),
            _field_from_arrow(arrow.item_field, (*path, "value"), ids, "value"),
        )
    if pa.types.is_float16(arrow):
        return Primitive("float")  # it holds every half; `declared` restores the type
    kind = primitive_from_arrow(arrow)
    if kind is None:
        raise unsupported(arrow, path)
    return kind


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """Without the dictionary or extension around it."""
    while True:
        if pa.types.is_dictionary(arrow):
            arrow = arrow.value_type
        elif isinstance(arrow, pa.BaseExtensionType):
            arrow = arrow.storage_type
        else:
            return arrow


def storage_type(arrow: pa.DataType) -> pa.DataType:
    """Without extension types around it or within lists, structs and maps (but list views, which Arrow
    does not cast); the very same object where there is none."""
    if isinstance(arrow, pa.BaseExtensionType):
        return storage_type(arrow.storage_type)
    views = pa.types.is_list_view(arrow) or pa.types.is_large_list_view(arrow)
    if views:
        return arrow
    return with_inner(arrow, lambda field: field.with_type(storage_type(field.type)))


def inner_fields(arrow: pa.DataType) -> list[pa.Field]:
    """What is directly within a struct, list or map, in the order of `fields_within`; else nothing."""
    if pa.types.is_map(arrow):
        return [arrow.key_field, arrow.item_field]
    if not (pa.types.is_struct(arrow) or is_list(arrow)):
        return []
    return [arrow.field(n) for n in range(arrow.num_fields)]


# By the kind of list, how it is made of its field of elements.
_LISTS: dict[type[pa.DataType], Callable[[pa.Field], pa.DataType]] = {
    pa.ListType: pa.list_,
    pa.LargeListType: pa.large_list,
    pa.ListViewType: pa.list_view,
    pa.LargeListViewType: pa.large_list_view,
}


def with_inner(arrow: pa.DataType, change: Callable[[pa.Field], pa.Field]) -> pa.DataType:
    """The type with the fields directly within it changed; the very same object where nothing changes."""
    before = inner_fields(arrow)
    fields = [change(field) for field in before]
    if all(new.equals(old, check_metadata=True) for new, old in zip(fields, before, strict=True)):
        return arrow
    if pa.types.is_struct(arrow):
        return pa.struct(fields)
    if pa.types.is_map(arrow):
        return pa.map_(*fields, keys_sorted=arrow.keys_sorted)
    if pa.types.is_fixed_size_list(arrow):
        return pa.list_(fields[0], arrow.list_size)
    return _LISTS[type(arrow)](fields[0])


def inner_arrays(array: pa.Array) -> list[pa.Array]:
    """What the rows of a struct, list or map hold, in the order of `inner_fields`; else nothing. A child of
    a NULL struct is NULL, and NULL lists hold nothing."""
    if not inner_fields(array.type):
        return []
    if pa.types.is_map(array.type):
        return inner_arrays(pairs_of(array).flatten())
    return array.flatten() if pa.types.is_struct(array.type) else [array.flatten()]


def nested_as(
    array: pa.Array, target: pa.DataType, convert: Callable[[pa.Array, int], pa.Array]
) -> pa.Array:
    """A struct, list or map in another type of the same shape. `convert` is given what is within, by its
    place in `inner_fields`. Raises pa.ArrowException for a list of another length than `target` has."""
    mask = array.is_null() if array.null_count else None
    if pa.types.is_fixed_size_list(target):
        values = convert(_in_slots(array, target.list_size), 0)
        return pa.FixedSizeListArray.from_arrays(values, type=target, mask=mask)
    children = [convert(child, n) for n, child in enumerate(inner_arrays(array))]
    if pa.types.is_struct(target):
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_map(target):
        ends = list_offsets(pairs_of(array)).cast(pa.int32())
        return pa.MapArray.from_arrays(ends, *children, target, mask=mask)
    [values], offsets = children, list_offsets(array)
    if pa.types.is_large_list(target):
        return pa.LargeListArray.from_arrays(offsets, values, target, mask=mask)
    narrow = offsets.cast(pa.int32())
    if pa.types.is_list(target):
        return pa.ListArray.from_arrays(narrow, values, target, mask=mask)
    wide = pa.types.is_large_list_view(target)
    view_type = pa.LargeListViewArray if wide else pa.ListViewArray
    starts = (offsets if wide else narrow).slice(0, len(array))
    sizes = pc.list_value_length(array).fill_null(0).cast(starts.type)
    return view_type.from_arrays(starts, sizes, values, target, mask=array.is_null())


def pairs_of(array: pa.MapArray) -> pa.ListArray:
    """A map as a list of structs, which Arrow can access: the same bytes."""
    return array.view(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


def _in_slots(array: pa.Array, size: int) -> pa.Array:
    """The elements of lists that all have `size`, with as many slots, of any value, for each null list."""
    if pa.types.is_fixed_size_list(array.type) and array.type.list_size == size:
        return array.values.slice(array.offset * size, len(array) * size)
    if not pc.all(pc.equal(pc.list_value_length(array), size), min_count=0).as_py():
        raise pa.ArrowInvalid("a list has another length")
    values = array.flatten()
    if not array.null_count:
        return values
    valid = array.is_valid()
    place = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    dense = pa.FixedSizeListArray.from_arrays(values, size)
    return dense.take(pc.if_else(valid, place, to_scalar(None, pa.int64()))).values


def as_stored(array: pa.Array) -> pa.Array:
    """The same values without extension types at any depth: Arrow supports lists of them only in part."""
    plain = storage_type(array.type)
    return array if plain is array.type else array.cast(plain)


# A column of data and the table's beside it; None where the other side has none of its name.
Pair = tuple[pa.Field | None, Field | None]


def beside(columns: Iterable[pa.Field], fields: Iterable[Field]) -> list[Pair]:
    """The columns, in their order, and then the fields that none of them is."""
    by_name = {field.name: field for field in fields}
    columns = list(columns)
    names = [column.name for column in columns]
    there = frozenset(names)
    absent = [(None, field) for name, field in by_name.items() if name not in there]
    return [*zip(columns, map(by_name.get, names), strict=True), *absent]


def beside_within(arrow: pa.DataType, kind: Type) -> list[Pair]:
    """The same of what is directly within a column and the table's, in lists and maps by place. Nothing
    where the two have different structures."""
    arrow = plain_type(arrow)
    match kind:
        case Struct(fields) if pa.types.is_struct(arrow):
            return beside(arrow, fields)
        case ListOf(element) if is_list(arrow):
            return [(arrow.value_field, element)]
        case MapOf(key, value) if pa.types.is_map(arrow):
            return [(arrow.key_field, key), (arrow.item_field, value)]
        case Primitive() | Struct() | ListOf() | MapOf():
            return []


def paired(
    columns: Iterable[pa.Field], fields: Iterable[Field]
) -> Iterator[tuple[tuple[str, ...], pa.Field, Field, int]]:
    """The columns that `fields` have by name, with what is within them, depth first: the path, the field of
    either side, and the first leaf of the column in a file of `columns`."""
    return _all_paired(beside(columns, fields), (), 0)


def _all_paired(
    pairs: Iterable[Pair], path: tuple[str, ...], leaf: int
) -> Iterator[tuple[tuple[str, ...], pa.Field, Field, int]]:
    for column, field in pairs:
        if column is not None and field is not None:
            here = (*path, field.name)
            yield here, column, field, leaf
            yield from _all_paired(beside_within(column.type, field.type), here, leaf)
        leaf += 0 if column is None else leaf_count(column.type)


def fields_below(
    fields: Iterable[pa.Field], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.Field]]:
    """Arrow's fields and all within them, depth first, with their paths."""
    for field in fields:
        here, kind = (*path, field.name), field.type
        yield here, field
        yield from fields_below((kind.field(n) for n in range(kind.num_fields)), here)


def leaf_count(kind: pa.DataType) -> int:
    """The number of column chunks of a value of this type.

    >>> leaf_count(pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.int8()))]))
    3
    """
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_count(kind.storage_type)
    fields = kind.num_fields
    if not fields:  # of nearly every column
        return leaf_count(kind.value_type) if pa.types.is_dictionary(kind) else 1
    return sum(leaf_count(kind.field(n).type) for n in range(fields))


def floor_divided(values: pa.Int64Array, by: int) -> pa.Int64Array:
    """Rounded down; Arrow rounds towards zero."""
    if by == 1:
        return values
    quotient = pc.divide(values, by)
    early = pc.less(values, pc.multiply(quotient, by)).cast(pa.int64())
    return pc.subtract(quotient, early)


def list_offsets(array: pa.Array) -> pa.Int64Array:
    """The start of each list in `array.flatten()`, which skips null lists, and the end."""
    lengths = pc.list_value_length(array).cast(pa.int64()).fill_null(to_scalar(0, pa.int64()))
    return running_sums(lengths)


def running_sums(values: pa.Int64Array) -> pa.Int64Array:
    """The sum of those before each, and of all."""
    return pa.concat_arrays([to_array([0], pa.int64()), pc.cumulative_sum(values)])


def is_list(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
        or pa.types.is_list_view(arrow)
        or pa.types.is_large_list_view(arrow)
    )


def primitive_from_arrow(arrow: pa.DataType) -> Primitive | None:
    """The leaf type that an Arrow type stands for; None for nested and unsupported types."""
    arrow = plain_type(arrow)
    if (simple := _FROM_SIMPLE.get(arrow)) is not None:
        return simple
    if pa.types.is_decimal(arrow) and 0 <= arrow.scale <= arrow.precision:
        return Primitive("decimal", precision=arrow.precision, scale=arrow.scale)
    if pa.types.is_fixed_size_binary(arrow) and arrow.byte_width:
        return Primitive("fixed", precision=arrow.byte_width)
    if pa.types.is_time(arrow):
        # The format has no time in seconds, Parquet neither.
        return Primitive("time", unit="ms" if arrow.unit == "s" else arrow.unit)
    if pa.types.is_timestamp(arrow):
        return Primitive("timestamp" if arrow.tz is None else "timestamptz", unit=arrow.unit)
    return None


_INSTEAD = (
    (pa.types.is_float16, "Append its rows: files with half floats are not ingested as they are"),
    (pa.types.is_duration, "Cast it to int64 and put the unit into the name"),
    (pa.types.is_interval, "Store months, days and nanoseconds as integers"),
    (pa.types.is_union, "Use a struct with one nullable field per variant"),
    (pa.types.is_null, "Give the column a type: a column of only nulls has none"),
    (pa.types.is_run_end_encoded, "Decode it with pyarrow.compute.run_end_decode"),
    (pa.types.is_decimal, "Cast it: Parquet has only scales from 0 to the precision"),
    (pa.types.is_struct, "Drop it: Parquet cannot hold a struct without fields"),
)


def unsupported(arrow: pa.DataType, path: tuple[str, ...]) -> UnsupportedType:
    return UnsupportedType(
        f"column {'.'.join(path)!r} has Arrow type {str(arrow)[:80]}, which a table cannot hold",
        next_step=next((step for test, step in _INSTEAD if test(arrow)), "Cast or drop it"),
    )


# -- single values --------------------------------------------------------------------------------


def to_physical(value: pa.Scalar | Any, kind: Primitive) -> Value | None:
    """A Python object or Arrow scalar as the physical value of `kind`; None stays None.

    Accepts what converts without loss (dates, datetimes, other integer widths, coarser units); a fraction
    becomes the nearest value of a floating type. Anything else is InvalidRequest.
    """
    try:
        if isinstance(value, pa.ExtensionScalar):
            value = value.value
        if isinstance(value, pa.DictionaryScalar):
            value = value.dictionary[value.index.as_py()] if value.is_valid else None
        if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
            return None
        if kind.is_temporal:
            return physical(kind, _temporal(value, kind))
        plain = value.as_py() if isinstance(value, pa.Scalar) else value
        return physical(kind, _plain(plain, kind))
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        raise InvalidRequest(
            f"{a_type(value)} cannot be read as type {kind} without loss"
        ) from None


def _temporal(value: Any, kind: Primitive) -> int:
    if kind.name == "date" and isinstance(value, datetime) and value.time() != time():
        raise ValueError
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    target = arrow_primitive(kind)
    if pa.types.is_integer(scalar.type):
        return int(scalar.as_py())  # physical form already
    if not pa.types.is_temporal(scalar.type):
        raise TypeError
    if pa.types.is_timestamp(scalar.type) and (scalar.type.tz is None) != (
        kind.name != "timestamptz"
    ):
        raise TypeError  # an instant is not a local time
    return int((scalar if scalar.type == target else scalar.cast(target)).value)


def _plain(value: Any, kind: Primitive) -> Any:
    if isinstance(value, bool) or kind.name == "bool":
        return value
    if kind.is_integer and value == int(value):
        return int(value)
    if kind.name == "decimal" and isinstance(value, int):
        return Decimal(value)
    if kind.is_float and not isinstance(value, int):
        return to_float32(float(value)) if kind.name == "float" else float(value)
    return value


def to_arrow_scalar(kind: Primitive, value: Value | None) -> pa.Scalar:
    """The physical value as a scalar of `arrow_primitive(kind)`."""
    return to_scalar(value, arrow_primitive(kind))


def to_arrow_array(kind: Primitive, values: Iterable[Value | None]) -> pa.Array:
    """Physical values as an array of `arrow_primitive(kind)`."""
    return to_array(list(values), arrow_primitive(kind))
