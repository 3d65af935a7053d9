"""Columns, values and partition specs in Iceberg's terms, or the reason why a table cannot be published.

Promise: a column that is translated here means the same to every reader of Iceberg: its type holds exactly
the values of Inlay's type, and bounds and partition values are in Iceberg's single-value form (Iceberg
specification, appendix D). A column that some engine would read wrongly is refused by name (`refusals`),
never approximated: unsigned integers of 32 and 64 bits, decimals above 38 digits, and times in other units
than microseconds: every engine tested but pyiceberg truncates nanoseconds silently, and Iceberg Java takes
dictionary-encoded milliseconds for microseconds (apache/iceberg, issue 17135).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

from inlay.format.entry import ColumnStats
from inlay.format.partition import (
    CALENDAR,
    Transform,
    decode_partition,
    parse_transform,
    result_type,
)
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, Type, Value
from inlay.format.snapshot import PartitionSpec
from inlay.record import Record

MAX_DECIMAL_DIGITS = 38
# Ids of Iceberg's partition fields start here.
FIRST_PARTITION_ID = 1000
# Enough digits for any decimal; the default context would round.
_EXACT = Context(prec=100)
# Metadata columns of every table ("Reserved Field IDs"): DataFusion gives the file's path for a column
# `_file`, Iceberg Java refuses a table with such a column.
RESERVED = frozenset(
    (
        *("_file", "_pos", "_deleted", "_spec_id", "_partition"),
        *("_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    )
)


# -- types ----------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def iceberg_type(kind: Primitive) -> str | None:
    """Iceberg's name for a type; None for one that cannot be published. What else this module knows of
    types goes by Iceberg's names and by families."""
    match kind.name:
        case "bool":
            return "boolean"
        case "int8" | "int16" | "int32" | "uint8" | "uint16":
            return "int"
        case "int64":
            return "long"
        case "uint32" | "uint64":
            return None
        case "float" | "double" | "string" | "binary" | "date":
            return kind.name
        case "decimal":
            fits = kind.precision <= MAX_DECIMAL_DIGITS and kind.scale >= 0
            return f"decimal({kind.precision}, {kind.scale})" if fits else None
        case "fixed":
            return f"fixed[{kind.precision}]"
        case "time" | "timestamp" | "timestamptz":
            return kind.name if kind.unit == "us" else None


def refusals(schema: Schema, *, format_version: int) -> tuple[str, ...]:
    """Why the columns of a table cannot be published, by name; empty if they can."""
    reasons: list[str] = []
    names: dict[str, str] = {}
    for path, field in schema.walk():
        name = ".".join(path)
        if name.casefold() in names:
            reasons.append(
                f"columns {names[name.casefold()]!r} and {name!r} are the same to engines that ignore case"
            )
        names[name.casefold()] = name
        if len(path) == 1 and name.casefold() in RESERVED:
            reasons.append(
                f"column {name!r} has the name of a metadata column of Iceberg: rename it"
            )
        if not field.name or "\0" in field.name:
            reasons.append(f"column {name!r} has a name that engines change: rename it")
        if isinstance(field.type, Primitive) and iceberg_type(field.type) is None:
            reasons.append(f"column {name!r} has type {field.type}: {_why(field.type)}")
        if isinstance(field.type, Struct) and not field.type.fields:
            reasons.append(f"column {name!r} is a struct without fields")
        if field.default is not None and format_version < 3:
            reasons.append(
                f"column {name!r} has a default, which Iceberg supports from version 3 on"
            )
        if isinstance(field.default, float) and not math.isfinite(field.default):
            reasons.append(f"column {name!r} has the default {field.default}, which JSON lacks")
    return tuple(reasons)


def ends_early(location: str) -> bool:
    """Whether engines cut a location short: it is no URI to Iceberg, but pyiceberg and Polars parse one,
    and neither reads the characters when they are escaped.

    >>> ends_early("s3://lake/tables/a#b"), ends_early("s3://lake/tables/a b")
    (True, False)
    """
    return "#" in location or "?" in location


def _why(kind: Primitive) -> str:
    if kind.name in ("uint32", "uint64"):
        return "Iceberg has no unsigned integers, and engines would read it as signed"
    if kind.name == "decimal":
        return f"Iceberg's decimals have at most {MAX_DECIMAL_DIGITS} digits"
    if kind.unit == "ns":
        return "engines truncate nanoseconds silently"
    return (
        f"Iceberg has microseconds only, and engines misread others: widen it to {kind.name}(us), and "
        "publishing rewrites the files that are there"
    )


def schema_to_iceberg(
    schema: Schema, *, format_version: int, primary_key: Collection[int] = ()
) -> dict[str, Any]:
    """`primary_key`, field ids, are the identifier fields where Iceberg allows that (specification,
    "Identifier Field IDs"): all are required columns, and no floats. A part of a key identifies nothing."""
    body: dict[str, Any] = {
        "type": "struct",
        "schema-id": schema.id,
        "fields": [_field(f, format_version) for f in schema.fields],
    }
    top = {f.id: f for f in schema.fields}
    columns = [top.get(i) for i in primary_key]
    if columns and all(
        column is not None
        and not column.nullable
        and isinstance(column.type, Primitive)
        and not column.type.is_float
        for column in columns
    ):
        body["identifier-field-ids"] = list(primary_key)
    return body


def _field(field: Field, format_version: int) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": field.id,
        "name": field.name,
        "required": not field.nullable,
        "type": _type(field.type, format_version),
    }
    if field.doc:
        body["doc"] = field.doc
    if field.default is not None and format_version >= 3:
        assert isinstance(field.type, Primitive)
        body["initial-default"] = body["write-default"] = json_value(field.type, field.default)
    return body


def _type(kind: Type, format_version: int) -> Any:
    match kind:
        case Primitive():
            named = iceberg_type(kind)
            assert named is not None, kind
            return named
        case Struct(fields):
            return {"type": "struct", "fields": [_field(f, format_version) for f in fields]}
        case ListOf(element):
            return {
                "type": "list",
                "element-id": element.id,
                "element-required": not element.nullable,
                "element": _type(element.type, format_version),
            }
        case MapOf(key, value):
            return {
                "type": "map",
                "key-id": key.id,
                "key": _type(key.type, format_version),
                "value-id": value.id,
                "value-required": not value.nullable,
                "value": _type(value.type, format_version),
            }


# -- single values --------------------------------------------------------------------------------


def json_value(kind: Primitive, value: Value) -> Any:
    """A value in the JSON single-value form (appendix D): a column's default."""
    match kind.family:
        case "decimal":
            assert isinstance(value, Decimal)
            return f"{value:f}"
        case "bytes":
            assert isinstance(value, bytes)
            return value.hex()
        case "date":
            return _date_text(_whole(value))
        case "time":
            return _time_text(_whole(value))
        case "timestamp":
            days, rest = divmod(_whole(value), 86_400_000_000)
            zone = "+00:00" if kind.name == "timestamptz" else ""
            return f"{_date_text(days)}T{_time_text(rest)}{zone}"
        case "bool" | "integer" | "float" | "text":
            return value


def _whole(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _date_text(days: int) -> str:
    # Python has no dates beyond year 9999 or before 1; the calendar repeats every 400 years.
    from datetime import date, timedelta

    cycles, rest = divmod(days + 719_162, 146_097)
    day = date(1, 1, 1) + timedelta(days=rest)
    return f"{day.year + 400 * cycles:04d}-{day.month:02d}-{day.day:02d}"


def _time_text(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


# Of Iceberg's types whose binary form has one length.
_PACKED: Mapping[str | None, str] = {
    **dict.fromkeys(("int", "date"), "<i"),
    **dict.fromkeys(("long", "time", "timestamp", "timestamptz"), "<q"),
    "boolean": "?",
    "float": "<f",
    "double": "<d",
}


def binary_value(kind: Primitive, value: Value) -> bytes:
    """A value in the binary single-value form (appendix D)."""
    packed = _PACKED.get(iceberg_type(kind))
    if packed is not None:
        return struct.pack(packed, value)
    if kind.family == "decimal":
        # The fewest bytes of the unscaled value, big-endian, two's complement.
        number = _unscaled(kind, value)
        length = (number if number >= 0 else ~number).bit_length() // 8 + 1
        return number.to_bytes(length, "big", signed=True)
    if isinstance(value, str):
        return value.encode()
    assert isinstance(value, bytes)
    return value


def _unscaled(kind: Primitive, value: Value) -> int:
    assert isinstance(value, Decimal)
    shifted: Decimal = value.scaleb(kind.scale, _EXACT)
    return int(shifted)


class Bounds(Record):
    """Bounds of one column in one file; None where none is certain for every engine."""

    lower: bytes | None = None
    upper: bytes | None = None
    nulls: int | None = None
    nans: int | None = None


def bounds_of(kind: Primitive, stats: ColumnStats) -> Bounds:
    """A column's statistics. Floats have bounds only where there certainly is no NaN: SQL engines sort NaN
    above every number, and would skip a file by an upper bound that ignores it. Times beyond 64 bits of
    microseconds have none either."""
    lower, upper = stats.lower, stats.upper
    nans = None
    if kind.is_float:
        nans = 0 if stats.has_nan is False else None
        if nans is None:
            lower = upper = None
        if lower == 0:
            lower = -0.0
        if upper == 0:
            upper = 0.0
    return Bounds(_bound(kind, lower), _bound(kind, upper), stats.null_count, nans)


def _bound(kind: Primitive, value: Value | None) -> bytes | None:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    try:
        return binary_value(kind, value)
    except struct.error:
        return None


# -- partitions -----------------------------------------------------------------------------------


class PartitionColumn(Record):
    """One field of a published spec. `kind` is the type of its values."""

    source: int
    field_id: int
    name: str
    transform: Transform
    source_kind: Primitive
    kind: Primitive

    def is_doubtful(self, written: Value | None) -> bool:
        """Whether engines compute another partition for some value in it, and would skip its files: DuckDB
        1.5 rounds times before 1970 up; truncating a number near the least of its type wraps around, or
        gives a decimal of one digit more, where Inlay keeps the least."""
        value = decode_partition(self.transform, self.source_kind, written)
        if self.transform.name in CALENDAR:
            return isinstance(value, int) and value < 0
        if self.transform.name != "truncate":
            return False
        if isinstance(value, Decimal):
            value = _unscaled(self.source_kind, value)
        return isinstance(value, int) and value % self.transform.width != 0

    @property
    def avro_type(self) -> Any:
        return avro_type(self.kind, f"p{self.field_id}")

    def value(self, written: Value | None) -> Any:
        """A partition value of an entry, as Avro encodes it."""
        value = decode_partition(self.transform, self.source_kind, written)
        return None if value is None else avro_value(self.kind, value)


class Spec(Record):
    """A published partition spec; without columns it is the spec of files in no single partition."""

    id: int
    columns: tuple[PartitionColumn, ...] = ()

    def fields_json(self) -> list[dict[str, Any]]:
        return [
            {
                "source-id": c.source,
                "field-id": c.field_id,
                "name": c.name,
                "transform": str(c.transform),
            }
            for c in self.columns
        ]

    def to_json(self) -> dict[str, Any]:
        return {"spec-id": self.id, "fields": self.fields_json()}

    def avro_record(self) -> dict[str, Any]:
        return {
            "type": "record",
            "name": "r102",
            "fields": [
                {
                    "name": c.name,
                    "type": ["null", c.avro_type],
                    "default": None,
                    "field-id": c.field_id,
                }
                for c in self.columns
            ],
        }

    def values(self, partition: tuple[Value | None, ...]) -> dict[str, Any]:
        return {c.name: c.value(v) for c, v in zip(self.columns, partition, strict=True)}


UNPARTITIONED = Spec(0)


class Specs(Record):
    """The specs of a table, as far as Iceberg can express them with the table's current columns. A file of
    another spec, whose values had another meaning when it was written, or on whose partition engines do not
    agree, is published in no partition."""

    by_id: Mapping[int, Spec]

    def of(self, spec_id: int, partition: tuple[Any, ...], recorded: Mapping[int, Field]) -> Spec:
        """The spec under which a file is published. `recorded` are the fields of its schema, by id."""
        spec = self.by_id.get(spec_id)
        if spec is None or not spec.columns or len(partition) != len(spec.columns):
            return UNPARTITIONED
        for column, value in zip(spec.columns, partition, strict=True):
            was = recorded.get(column.source)
            if was is None or was.type != column.source_kind or column.is_doubtful(value):
                return UNPARTITIONED
        return spec

    @property
    def last_partition_id(self) -> int:
        ids = [c.field_id for s in self.by_id.values() for c in s.columns]
        return max(ids, default=FIRST_PARTITION_ID - 1)


def specs_to_iceberg(specs: Collection[PartitionSpec], schema: Schema) -> Specs:
    """Field ids of partition columns follow from the table's specs alone: as Iceberg requires, equal
    (source, transform) have one id in all specs, in the order in which the table added them."""
    fields = schema.fields_by_id
    taken = {name.casefold() for name in schema.names}
    ids: dict[tuple[int, str], int] = {}
    specs_by_id: dict[int, Spec] = {0: UNPARTITIONED}
    for spec in sorted(specs, key=lambda s: s.id):
        columns: list[PartitionColumn] = []
        for part in spec.fields:
            field_id = ids.setdefault((part.source, part.transform), FIRST_PARTITION_ID + len(ids))
            source = fields.get(part.source)
            if source is None or not isinstance(source.type, Primitive):
                break  # the column was dropped: its files are published in no partition
            transform = parse_transform(part.transform)
            kind = result_type(transform, source.type)
            if kind is None or iceberg_type(kind) is None or iceberg_type(source.type) is None:
                break
            if kind.is_float:
                break  # engines differ in how they treat NaN and zeros as partition values
            if source.type.name == "decimal" and transform.width:
                break  # DuckDB loses rows by truncate, Daft by bucket: they compute other values
            name = _partition_name(transform, part.source)
            while name.casefold() in taken:
                name += "_"
            columns.append(
                PartitionColumn(part.source, field_id, name, transform, source.type, kind)
            )
        if len(columns) == len(spec.fields) and columns:
            specs_by_id[spec.id] = Spec(spec.id, tuple(columns))
    return Specs(specs_by_id)


def _partition_name(transform: Transform, source: int) -> str:
    """By id: names of columns change, and need not be valid names in Avro."""
    return f"p{source}_{transform.name}" + (f"_{transform.width}" if transform.width else "")


def avro_type(kind: Primitive, name: str) -> Any:
    match iceberg_type(kind):
        case "boolean" | "int" | "long" | "string" as same:
            return same
        case "binary":
            return "bytes"
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "time":
            return {"type": "long", "logicalType": "time-micros"}
        case "timestamp" | "timestamptz":
            return {
                "type": "long",
                "logicalType": "timestamp-micros",
                "adjust-to-utc": kind.name == "timestamptz",
            }
        case str() if kind.family == "bytes":
            return {"type": "fixed", "name": name, "size": kind.precision}
        case str() if kind.family == "decimal":
            return {
                "type": "fixed",
                "name": name,
                "size": _decimal_bytes(kind.precision),
                "logicalType": "decimal",
                "precision": kind.precision,
                "scale": kind.scale,
            }
        case _:
            raise ValueError(f"no partition value: {kind}")


def _decimal_bytes(precision: int) -> int:
    greatest: int = 10**precision - 1
    return (greatest.bit_length() + 8) // 8


def avro_value(kind: Primitive, value: Value) -> Any:
    if kind.family == "decimal":
        size = _decimal_bytes(kind.precision)
        return _unscaled(kind, value).to_bytes(size, "big", signed=True)
    return value


def summaries(spec: Spec, partitions: Collection[tuple[Value | None, ...]]) -> list[dict[str, Any]]:
    """The summary of a manifest's partition values for its list, one record for each column."""

    def records() -> Iterator[dict[str, Any]]:
        for at, column in enumerate(spec.columns):
            values = [
                decode_partition(column.transform, column.source_kind, p[at]) for p in partitions
            ]
            known = [v for v in values if v is not None]
            yield {
                "contains_null": len(known) < len(values),
                "contains_nan": False,
                "lower_bound": binary_value(column.kind, min(known)) if known else None,
                "upper_bound": binary_value(column.kind, max(known)) if known else None,
            }

    return list(records())
