"""The table's types in Spark, and batches in the form Spark expects.

Promise: a value reaches Spark unchanged or not at all. Types that Spark lacks are widened to one that holds
every value (unsigned integers, `fixed`, coarser times); where there is none, `UnsupportedType` names the
column: nanoseconds, decimals of more than 38 digits.

Spark reads a source's batches by buffer layout, so the Arrow schema of a batch must be exactly the one that
Spark derives from its own schema: `arrow_for` gives that schema.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING

from pyspark.sql import types as st

from inlay.engine import Field, Primitive, Schema, TypeFold
from inlay.errors import SchemaMismatch, UnsupportedType

if TYPE_CHECKING:
    import pyarrow as pa

# The process that Spark starts to ask for a source's schema needs no pyarrow: it is imported on use.

MAX_DECIMAL_DIGITS = 38


@dataclass(frozen=True, slots=True)
class SparkLeaf:
    """One of the format's types in Spark.

    `type` is Spark's; None where it depends on arguments. `physical` is the type of Parquet in which Spark
    reads it as the format does ("" for none, or one that depends on arguments), `written` whether Spark
    writes it as the format means it. Keys of it are `joined` with rows by Spark as the format compares
    them, or looked up between the `bounds` of files, in physical form.
    """

    type: st.DataType | None
    physical: str = ""
    written: bool = False
    joined: bool = False
    bounds: bool = False


@cache
def spark_leaf(kind: Primitive) -> SparkLeaf:
    match kind.name:
        case "bool":
            return SparkLeaf(st.BooleanType(), "BOOLEAN", written=True, joined=True)
        case "int8":
            return _whole(st.ByteType(), "INT32")
        case "int16":
            return _whole(st.ShortType(), "INT32")
        case "int32":
            return _whole(st.IntegerType(), "INT32")
        case "int64":
            return _whole(st.LongType(), "INT64")
        # As Spark reads unsigned Parquet columns: the next type that holds every value.
        case "uint8":
            return SparkLeaf(st.ShortType())
        case "uint16":
            return SparkLeaf(st.IntegerType())
        case "uint32":
            return SparkLeaf(st.LongType())
        case "uint64":
            return SparkLeaf(st.DecimalType(20, 0))
        case "float":
            return SparkLeaf(st.FloatType(), "FLOAT", written=True)
        case "double":
            return SparkLeaf(st.DoubleType(), "DOUBLE", written=True)
        case "decimal":
            return SparkLeaf(None, written=True, joined=True, bounds=True)
        case "string":
            return _whole(st.StringType(), "BYTE_ARRAY")
        case "binary":
            return SparkLeaf(st.BinaryType(), "BYTE_ARRAY", written=True, joined=True)
        case "fixed":
            return SparkLeaf(st.BinaryType())
        case "date":
            return _whole(st.DateType(), "INT32")
        case "time":
            # Since 4.1.
            return SparkLeaf(st.TimeType(6) if hasattr(st, "TimeType") else None)
        case "timestamp":
            return SparkLeaf(st.TimestampNTZType(), "INT64", written=True, bounds=True)
        case "timestamptz":
            return SparkLeaf(st.TimestampType(), "INT64", written=True, bounds=True)


def physical_type(kind: Primitive) -> str:
    return spark_leaf(kind).physical


def _whole(kind: st.DataType, physical: str) -> SparkLeaf:
    """A type that Spark treats as the format does in everything."""
    return SparkLeaf(kind, physical, written=True, joined=True, bounds=True)


# -- schemas --------------------------------------------------------------------------------------


def column_ids(schema: Schema, names: Sequence[str]) -> tuple[int, ...]:
    """The ids of columns by their names in Spark. Raises `SchemaMismatch`."""
    return tuple(_column(schema, name).id for name in names)


def named_as_in(schema: Schema, names: Sequence[str]) -> list[str]:
    """Names of data to be written, as the table spells them; unknown names unchanged. Where two names of
    the data would match one column, only the exact match does."""
    columns = [column_named(schema, name) for name in names]
    spelled = [
        name if field is None else field.name for name, field in zip(names, columns, strict=True)
    ]
    return [
        name if spelled.count(spelling) > 1 else spelling
        for name, spelling in zip(names, spelled, strict=True)
    ]


def spark_schema(schema: Schema, columns: Sequence[str] | None = None) -> st.StructType:
    """The Spark schema of a table, or of some of its columns in the requested order.

    Raises `UnsupportedType` for a requested column that Spark cannot hold.
    """
    names = schema.names if columns is None else tuple(columns)
    return st.StructType([_struct_field(_column(schema, name), (name,)) for name in names])


def spelled(name: str, names: Sequence[str]) -> str | None:
    """The one of `names` that Spark's name refers to: an exact match, else the only one that differs by
    case alone."""
    if name in names:
        return name
    alike = [other for other in names if other.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def has_twins(schema: Schema) -> bool:
    """Whether two names of columns, or within a struct at any level, differ by case alone: in most sessions
    Spark's own reader and writer refuse them."""
    paths = [(*path[:-1], path[-1].lower()) for path, _ in schema.walk()]
    return len(set(paths)) < len(paths)


def column_named(schema: Schema, name: str) -> Field | None:
    """The column that Spark's name refers to (`spelled`)."""
    spelling = spelled(name, schema.names)
    return None if spelling is None else schema.column(spelling)


def _column(schema: Schema, name: str) -> Field:
    field = column_named(schema, name)
    if field is None:
        raise SchemaMismatch(
            f"the table has no column {name[:100]!r}",
            next_step=f"It has: {', '.join(schema.names)[:500]}",
        )
    return field


def _struct_field(field: Field, path: tuple[str, ...]) -> st.StructField:
    return st.StructField(field.name, SPARK_TYPES.of(field.type, path), field.nullable)


class _SparkTypes(TypeFold[st.DataType]):
    def leaf(self, kind: Primitive, path: tuple[str, ...]) -> st.DataType:
        leaf = spark_leaf(kind).type
        if leaf is None and kind.name == "decimal" and kind.precision <= MAX_DECIMAL_DIGITS:
            leaf = st.DecimalType(kind.precision, kind.scale)
        if leaf is not None and kind.unit != "ns":
            return leaf
        raise UnsupportedType(
            f"column {'.'.join(path)!r} is {kind}, which Spark cannot hold",
            next_step="Leave it out: name the other columns with columns=[…] or .schema(…)",
        )

    def struct(self, fields: Sequence[tuple[Field, st.DataType]]) -> st.DataType:
        return st.StructType([st.StructField(f.name, kind, f.nullable) for f, kind in fields])

    def list_of(self, element: tuple[Field, st.DataType]) -> st.DataType:
        field, kind = element
        return st.ArrayType(kind, containsNull=field.nullable)

    def map_of(
        self, key: tuple[Field, st.DataType], value: tuple[Field, st.DataType]
    ) -> st.DataType:
        field, kind = value
        return st.MapType(key[1], kind, valueContainsNull=field.nullable)


SPARK_TYPES = _SparkTypes()


def arrow_for(schema: st.StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches with this Spark schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2: in UTC unless told otherwise


def arrow_for_new(data: st.StructType) -> pa.Schema:
    """The Arrow schema of columns that a write of this data adds to a table, or creates one with.

    Raises `UnsupportedType` for a column of which the table would not keep the type, or the meaning.
    """
    import pyarrow as pa

    check_written(data)
    for field in data:
        kind = _find(field.dataType, _is_collated)
        if kind is not None:
            raise UnsupportedType(
                f"column {field.name!r} is {kind.simpleString()}, and a table compares bytes",
                next_step="Write collate(column, 'UTF8_BINARY'); queries can collate it again",
            )
    arrow = arrow_for(data)
    return pa.schema([field.with_type(_in_microseconds(field.type)) for field in arrow])


def check_written(data: st.StructType) -> None:
    """Raises `UnsupportedType` for a column that would be stored as another type than it is: Spark itself
    hands some to a source as structs, unannounced."""
    for field in data:
        kind = _find(field.dataType, _is_foreign)
        if kind is not None:
            raise UnsupportedType(
                f"column {field.name!r} is {kind.simpleString()}, which a table cannot hold",
                next_step=f"{_INSTEAD.get(type(kind).__name__, _CONVERT)}, or leave the column out",
            )


_CONVERT = "Convert it to plain types"
_INSTEAD = {
    "CalendarIntervalType": "Write its months, days and seconds as numbers",
    "CharType": "Write CAST(column AS STRING)",
    "DayTimeIntervalType": "Write CAST(CAST(column AS INTERVAL SECOND) AS DECIMAL(18, 6))",
    "GeographyType": "Write st_asbinary(column)",
    "GeometryType": "Write st_asbinary(column)",
    "VarcharType": "Write CAST(column AS STRING)",
    "VariantType": "Write to_json(column), or the values by variant_get",
    "YearMonthIntervalType": "Write CAST(CAST(column AS INTERVAL MONTH) AS INT)",
}


def _is_foreign(kind: st.DataType) -> bool:
    return type(kind).__name__ in _INSTEAD or isinstance(kind, st.UserDefinedType)


def _is_collated(kind: st.DataType) -> bool:
    return isinstance(kind, st.StringType) and kind.collation != "UTF8_BINARY"


def _find(kind: st.DataType, is_it: Callable[[st.DataType], bool]) -> st.DataType | None:
    """The first type, at any level, of which this is true."""
    if is_it(kind):
        return kind
    inner = (_find(part.dataType, is_it) for part in _parts(kind))
    return next((hit for hit in inner if hit is not None), None)


def _parts(kind: st.DataType) -> list[st.StructField]:
    """What a nested type of Spark's consists of; nothing for another one."""
    match kind:
        case st.StructType():
            return list(kind.fields)
        case st.ArrayType():
            return [st.StructField("element", kind.elementType, kind.containsNull)]
        case st.MapType():
            value = st.StructField("value", kind.valueType, kind.valueContainsNull)
            return [st.StructField("key", kind.keyType, False), value]
        case _:  # the set of Spark's types is open
            return []


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """Spark's times of day have microseconds, and go through Arrow in nanoseconds, which it cannot read."""
    import pyarrow as pa

    def stored(field: pa.Field) -> pa.Field:
        return field.with_type(_in_microseconds(field.type))

    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_struct(kind):
        return pa.struct([stored(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(stored(kind.key_field), stored(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(stored(kind.value_field))
    return kind


def check_asked(asked: st.StructType, schema: Schema) -> None:
    """Raises `SchemaMismatch` unless a `.schema(…)` names columns of the table with their types.

    A column may be requested as nullable though it is required in the table, but not the reverse: Spark
    compiles a promise of no nulls into code that reads garbage where there is one.
    """
    if not asked.fields:
        # Batches without columns do not say how many rows they have.
        raise SchemaMismatch("the requested schema has no column", next_step="Name at least one")
    for field in asked.fields:
        has = _struct_field(_column(schema, field.name), (field.name,))
        if nullable(field.dataType) != nullable(has.dataType):
            raise SchemaMismatch(
                f"column {field.name!r} is {has.dataType.simpleString()} in the table, "
                f"{field.dataType.simpleString()} in the requested schema",
                next_step="Request the table's type and cast in the query",
            )
        if not _as_nullable(has, field):
            raise SchemaMismatch(
                f"column {field.name!r} may hold nulls in the table, not in the requested schema",
                next_step="Declare it nullable",
            )


def nullable(kind: st.DataType) -> st.DataType:
    """The type with nulls allowed everywhere."""
    match kind:
        case st.StructType():
            return st.StructType([st.StructField(f.name, nullable(f.dataType)) for f in kind])
        case st.ArrayType():
            return st.ArrayType(nullable(kind.elementType))
        case st.MapType():
            return st.MapType(nullable(kind.keyType), nullable(kind.valueType))
        case _:  # the set of Spark's types is open
            return kind


def _as_nullable(has: st.StructField, asked: st.StructField) -> bool:
    """Whether `asked` allows nulls wherever `has`, of the same types, does, at every level."""
    if has.nullable and not asked.nullable:
        return False
    return all(map(_as_nullable, _parts(has.dataType), _parts(asked.dataType)))


# -- batches --------------------------------------------------------------------------------------


def to_spark(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """A batch of the table's columns, in the order of `target`, in the form Spark expects."""
    import pyarrow as pa

    columns = [
        array if array.type == field.type else _widened(array, field)
        for array, field in zip(batch.columns, target, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _widened(array: pa.Array, field: pa.Field) -> pa.Array:
    import pyarrow as pa

    try:
        return _cast(array, field.type)
    except pa.ArrowException as error:
        raise UnsupportedType(
            f"column {field.name!r} has a value that Spark's {field.type} cannot hold: "
            f"{str(error).splitlines()[0][:200]}",
            next_step="Leave the column out: name the others with columns=[…] or .schema(…)",
        ) from error


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Arrow's safe cast; by hand where Arrow has none: for nested types that differ in nulls."""
    import pyarrow as pa

    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [_cast(child, kind.field(at).type) for at, child in enumerate(array.flatten())]
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
    if pa.types.is_map(kind):
        array = _unsliced(array)
        keys, items = _cast(array.keys, kind.key_type), _cast(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, kind, mask=array.is_null())
    if pa.types.is_list(kind):
        array = _unsliced(array)
        values = _cast(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, kind, mask=array.is_null())
    if pa.types.is_decimal(kind) and pa.types.is_integer(array.type):
        # Arrow requires room for any 64-bit integer, and 20 digits are just enough for unsigned ones.
        return array.cast(pa.decimal128(MAX_DECIMAL_DIGITS, 0)).cast(kind)
    return array.cast(kind)


def _unsliced(array: pa.Array) -> pa.Array:
    """The same lists with offsets from 0: `from_arrays` does not accept a mask with sliced offsets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not array.offset and not (len(array.offsets) and array.offsets[0].as_py()):
        return array
    return array.take(pc.indices_nonzero(pa.repeat(pa.scalar(True), len(array))))
