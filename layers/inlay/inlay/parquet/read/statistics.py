"""The columns of a table in a data file, and their statistics, by its Parquet footer.

Promise: a bound given here bounds every non-null, non-NaN value of the column, in the physical form of the
*table's* type; what is missing, not trusted, or not comparable is None. Long strings are truncated, the
lower bound downwards and the upper one upwards.

Arrow applies Parquet's rules about which statistics to trust (sort order of the type); NaN bounds, which
some writers leave, are dropped here, and what known writers got wrong (`parquet.footer.writers`).
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inlay.format.entry import ColumnStats, DataFile
from inlay.format.schema import Field, Primitive, Schema, Struct, Value
from inlay.format.values import (
    EXACT,
    NANOS_PER_DAY,
    NANOS_PER_UNIT,
    compare,
    integer_range,
    is_nan,
    is_value,
    scaled,
)
from inlay.parquet.arrow.types import Pair, beside, beside_within, fields_below, leaf_count
from inlay.parquet.footer.writers import Stored, Writer, is_doubted
from inlay.plan.pruning.prune import Absent, absent_column, combined_stats, shortened
from inlay.record import Record, field, replace

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Bounds of strings and binaries keep this many code points or bytes: an entry must stay small.
BOUND_LENGTH = 16

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_ENCODED_UNITS = {
    "TIMESTAMP_MILLIS": "ms",
    "TIME_MILLIS": "ms",
    "TIMESTAMP_MICROS": "us",
    "TIME_MICROS": "us",
}


class FileColumn(Record):
    """A top-level column of a file: its ordinal and its leaves (column chunks)."""

    ordinal: int
    leaves: Sequence[int]


class FileColumns(Record):
    """`tops`: field id of a top-level column → its place. `leaves`: field id of a primitive, reached
    through structs only → its leaf, which is what has statistics. Absent means that the file does not have
    the field: every row of it is NULL."""

    tops: Mapping[int, FileColumn] = field(default_factory=dict)
    leaves: Mapping[int, int] = field(default_factory=dict)


def locate_columns(file: pa.Schema, recorded: Schema) -> FileColumns:
    """The places of the fields of `recorded` in a file whose Arrow schema is `file`.

    A field of the table is found in the file by *name under the schema the file's entry records*, so a name
    that is reused later never reads old data (the rule of `parquet.arrow.conform`). Field ids inside the
    file are not used: files of others have ids of other tables.
    """
    spans = list(_spans(beside(file, recorded.fields), 0))
    tops = {of.id: FileColumn(ordinal, own) for ordinal, of, _, own in spans}
    leaves: dict[int, int] = {}
    while spans:
        _, of, kind, own = spans.pop()
        if isinstance(of.type, Struct):
            spans += _spans(beside_within(kind, of.type), own.start)
        elif isinstance(of.type, Primitive) and len(own) == 1 and not pa.types.is_nested(kind):
            leaves[of.id] = own.start
    return FileColumns(tops, leaves)


def _spans(pairs: Iterable[Pair], first: int) -> Iterator[tuple[int, Field, pa.DataType, range]]:
    """Of columns, the first of which begins with that leaf, those that a file has of the table: the
    ordinal, the field, the type in the file, and the leaves."""
    for ordinal, (column, of) in enumerate(pairs):
        if column is None:
            return  # the others are the table's alone
        kind = column.type
        own = range(first, first + leaf_count(kind))
        if of is not None and of.in_partition is None:
            yield ordinal, of, kind, own
        first = own.stop


def cut_to(columns: FileColumns, schema: Schema) -> FileColumns:
    """`columns` with only the leaves of structs that `schema` has. A struct that lacks one of them in the
    file keeps all: a leaf has to say where the struct is NULL. So does one with lists or maps."""
    tops = dict(columns.tops)
    for top in schema.fields:
        if top.id not in tops or not isinstance(top.type, Struct):
            continue
        fields = [of for _, of in Schema(0, (top,)).walk() if not isinstance(of.type, Struct)]
        if all(of.id in columns.leaves for of in fields):
            leaves = tuple(sorted(columns.leaves[of.id] for of in fields))
            tops[top.id] = FileColumn(tops[top.id].ordinal, leaves)
    return FileColumns(tops, columns.leaves)


Reader = Callable[[Any, bool], Value | None]


class Leaf(Record):
    """A primitive field and how a file stores it: enough to read its statistics.

    `read` turns a raw minimum, or (True) a raw maximum, into the table's physical form; None if file and
    table type have no common order.
    """

    ordinal: int
    type: Primitive
    read: Reader
    exact: bool
    # Whether its writer is not known to state wrong bounds, or numbers of NULLs, of such columns.
    bounded: bool = True
    counted: bool = True
    # False where no value of the file is NaN: of parts of it Parquet does not tell.
    has_nan: bool | None = None


def leaves_of(
    metadata: pq.FileMetaData,
    columns: FileColumns,
    schema: Schema,
    field_ids: Iterable[int],
    known: Mapping[int, ColumnStats] = {},
) -> Mapping[int, Leaf]:
    """The leaves of `field_ids` that this file has, ready to read statistics from. `known` are those of the
    whole file, where its entry has them."""
    by_id: dict[int, Leaf] = {}
    writer = Writer.of(_created_by(metadata))
    for field_id in field_ids:
        ordinal = columns.leaves.get(field_id)
        field = schema.by_id(field_id)
        if ordinal is not None and field is not None and isinstance(field.type, Primitive):
            of_file = known.get(field_id)
            no_nan = not field.type.is_float or (of_file is not None and of_file.has_nan is False)
            has_nan = False if no_nan else None
            by_id[field_id] = _leaf(ordinal, metadata, field.type, writer, has_nan)
    return by_id


def group_stats(
    metadata: pq.FileMetaData,
    ordinal: int,
    leaves: Mapping[int, Leaf],
    absent: Mapping[int, Absent] = {},
) -> dict[int, ColumnStats]:
    """Statistics of one row group, of columns it has and of columns it lacks."""
    stats: dict[int, ColumnStats] = {}
    if not leaves and not absent:
        return stats
    group = metadata.row_group(ordinal)
    for field_id, leaf in leaves.items():
        stats[field_id] = _chunk_stats(group.column(leaf.ordinal), leaf)
    for field_id, absence in absent.items():
        stats[field_id] = absence.stats(group.num_rows)
    return stats


def entry_of_file(
    metadata: pq.FileMetaData,
    *,
    key: str,
    size: int,
    schema: Schema,
    stats_columns: Collection[int],
    footer_size: int,
) -> DataFile:
    """The entry of a data file that is read under `schema`, from its footer. `footer_size` is the length of
    the thrift footer and its trailer."""
    columns = locate_columns(metadata.schema.to_arrow_schema(), schema)
    return DataFile(
        key=key,
        size=size,
        footer_size=footer_size,
        rows=total_rows(metadata),
        row_groups=metadata.num_row_groups,
        schema_id=schema.id,
        stats=recorded_stats(whole_stats(metadata, columns, schema, stats_columns)),
    )


def recorded_stats(whole: Mapping[int, ColumnStats]) -> dict[int, ColumnStats]:
    """As an entry has them: without bounds that are not values of the column's type, such as a time before
    midnight, and with long ones truncated.

    >>> recorded_stats({1: ColumnStats("a" * 20, "b" * 20)})[1].upper
    'bbbbbbbbbbbbbbbc'
    """
    recorded: dict[int, ColumnStats] = {}
    for field_id, stats in whole.items():
        known = [bound for bound in (stats.lower, stats.upper) if bound is not None]
        if stats.kind is not None and not all(is_value(stats.kind, bound) for bound in known):
            stats = replace(stats, lower=None, upper=None)
        recorded[field_id] = shortened(stats, BOUND_LENGTH)
    return recorded


def whole_stats(
    metadata: pq.FileMetaData, columns: FileColumns, schema: Schema, field_ids: Collection[int]
) -> dict[int, ColumnStats]:
    """Statistics of a whole file, with bounds of full length."""
    leaves = leaves_of(metadata, columns, schema, field_ids)
    whole = combined_stats(
        (group_stats(metadata, ordinal, leaves), metadata.row_group(ordinal).num_rows)
        for ordinal in range(metadata.num_row_groups)
    )
    for field_id, absence in absent_fields(columns, schema, field_ids).items():
        whole[field_id] = absence.stats(total_rows(metadata))
    return whole


def total_rows(metadata: pq.FileMetaData) -> int:
    """Rows of all row groups. The footer's own total is not used: old writers left it wrong, and every
    reader uses the row groups."""
    return sum(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))


def absent_fields(
    columns: FileColumns, schema: Schema, field_ids: Iterable[int]
) -> dict[int, Absent]:
    """Those of `field_ids` whose column the file does not have, with the value of each of its rows."""
    tops = {field.id for field in schema.fields}
    absent = {
        field_id: absent_column(
            schema, field_id, lambda f: f.id not in tops or f.id in columns.tops
        )
        for field_id in field_ids
    }
    return {field_id: stats for field_id, stats in absent.items() if stats is not None}


# -- one chunk ------------------------------------------------------------------------------------


def _chunk_stats(chunk: pq.ColumnChunkMetaData, leaf: Leaf) -> ColumnStats:
    if chunk.num_values == 0:
        return ColumnStats(null_count=0, has_nan=False, kind=leaf.type)
    raw = chunk.statistics if chunk.is_stats_set else None
    if raw is None:
        return ColumnStats(has_nan=leaf.has_nan, kind=leaf.type)
    nulls = raw.null_count  # None where the footer does not say
    if nulls is not None and not (leaf.counted and 0 <= nulls <= chunk.num_values):
        nulls = None  # not trusted
    if nulls == chunk.num_values:
        return ColumnStats(null_count=nulls, has_nan=False, kind=leaf.type)
    if not raw.has_min_max:
        return ColumnStats(null_count=nulls, has_nan=leaf.has_nan, kind=leaf.type)
    return bounds_of(leaf, raw.min_raw, raw.max_raw, nulls)


def bounds_of(leaf: Leaf, least: Any, most: Any, nulls: int | None) -> ColumnStats:
    """Statistics of values that have these bounds, in the file's physical form."""
    has_nan = leaf.has_nan
    nulls = nulls if leaf.counted else None
    if not leaf.bounded:
        return ColumnStats(null_count=nulls, has_nan=has_nan, kind=leaf.type)
    lower, upper = leaf.read(least, False), leaf.read(most, True)
    broken = lower is None or upper is None or is_nan(lower) or is_nan(upper)
    if broken or compare(leaf.type, lower, upper) > 0:  # type: ignore[arg-type]
        # Unusable bounds, or two that contradict each other: neither is trusted.
        return ColumnStats(null_count=nulls, has_nan=has_nan, kind=leaf.type)
    return ColumnStats(lower, upper, nulls, leaf.exact, has_nan, leaf.type)


# -- how a file stores a value --------------------------------------------------------------------


def _leaf(
    ordinal: int,
    metadata: pq.FileMetaData,
    kind: Primitive,
    writer: Writer,
    has_nan: bool | None,
) -> Leaf:
    column = metadata.schema.column(ordinal)
    # Some writers truncate the bounds of byte arrays and record that in a field Arrow does not expose.
    # Arrow itself never truncates them.
    cut = column.physical_type == "BYTE_ARRAY" and "cpp-arrow" not in writer.name
    stored = _stored(column, metadata, writer)
    return Leaf(
        ordinal,
        kind,
        _reader(column, kind),
        exact=not cut,
        bounded=not is_doubted(writer, "bounds", stored),
        counted=not is_doubted(writer, "nulls", stored),
        has_nan=has_nan,
    )


def has_known_faults(metadata: pq.FileMetaData, ordinal: int) -> bool:
    """Whether the writer of a file is known to state wrong bounds or numbers of NULLs of such a column."""
    writer = Writer.of(_created_by(metadata))
    stored = _stored(metadata.schema.column(ordinal), metadata, writer)
    return is_doubted(writer, "bounds", stored) or is_doubted(writer, "nulls", stored)


def _created_by(metadata: pq.FileMetaData) -> str:
    try:
        return metadata.created_by or ""
    except UnicodeDecodeError:  # any writer may store anything there
        return ""


def _stored(column: pq.ColumnSchema, metadata: pq.FileMetaData, writer: Writer) -> Stored:
    # Arrow tells a type by its newer name, too, in the older form.
    converted = column.converted_type or ""
    stored = Stored(
        column.physical_type,
        decimal=converted == "DECIMAL",
        unsigned=converted.startswith("UINT"),
    )
    if not is_doubted(writer, "nulls", replace(stored, dictionary=True)):
        return stored  # nobody asks
    return replace(stored, dictionary=_was_dictionary(column.path, metadata))


def _was_dictionary(path: str, metadata: pq.FileMetaData) -> bool | None:
    """Whether Arrow's writer had the column as a dictionary, by the schema that it left; None without."""
    try:
        schema = b64decode((metadata.metadata or {})[b"ARROW:schema"])
        fields = list(pa.ipc.read_schema(pa.BufferReader(schema)))
    except (KeyError, ValueError, OSError, pa.ArrowException):
        return None
    own = [f for f in fields if path == f.name or path.startswith(f"{f.name}.")]
    return any(pa.types.is_dictionary(f.type) for _, f in fields_below(own)) if own else None


def _reader(column: pq.ColumnSchema, kind: Primitive) -> Reader:
    physical = column.physical_type
    logical = json.loads(column.logical_type.to_json()) if column.logical_type else {}
    annotation = logical.get("Type", "None")
    is_integer = physical in ("INT32", "INT64")
    if kind.name == "bool" and physical == "BOOLEAN":
        return _same
    if kind.is_integer and is_integer and annotation in ("None", "Int"):
        return _integer_reader(kind, physical, signed=logical.get("isSigned", True))
    if kind.is_float and physical in ("FLOAT", "DOUBLE"):
        # A double read as float rounds, and so would its bounds.
        return _same if kind.name == "double" or physical == "FLOAT" else _unknown
    if kind.name == "decimal" and annotation == "Decimal":
        return _decimal_reader(kind, column.scale)
    if kind.name == "date" and annotation == "Date":
        return _same
    if kind.name == "timestamp" and annotation == "Date":
        return lambda days, _: int(days) * NANOS_PER_DAY // NANOS_PER_UNIT[kind.unit]
    if kind.name in ("time", "timestamp", "timestamptz") and is_integer:
        unit = _UNITS.get(logical.get("timeUnit", "")) or _ENCODED_UNITS.get(column.converted_type)
        return _unit_reader(unit, kind.unit) if unit else _unknown
    if kind.name == "string" and physical == "BYTE_ARRAY":
        return _text
    if kind.name == "binary" and physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return _same if annotation in ("None", "String") else _unknown
    if kind.name == "fixed" and physical == "FIXED_LEN_BYTE_ARRAY":
        return _same if column.length == kind.precision else _unknown
    return _unknown


def _same(raw: Any, _: bool) -> Value | None:
    return raw  # type: ignore[no-any-return]


def _unknown(raw: Any, _: bool) -> Value | None:
    return None


def _text(raw: Any, _: bool) -> Value | None:
    try:
        return bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        return None


def _integer_reader(kind: Primitive, physical: str, *, signed: bool) -> Reader:
    limits = integer_range(kind)
    modulus = 1 << (32 if physical == "INT32" else 64)

    def read(raw: Any, _: bool) -> Value | None:
        # Arrow shows the bits as signed, whatever the annotation.
        value = int(raw) if signed else int(raw) % modulus
        fits = limits is not None and limits[0] <= value <= limits[1]
        return value if fits else None

    return read


def _decimal_reader(kind: Primitive, scale: int) -> Reader:
    def read(raw: Any, _: bool) -> Value | None:
        unscaled = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
        return scaled(Decimal(unscaled).scaleb(-scale, context=EXACT), kind.scale)

    return read


def _unit_reader(unit: str, target: str) -> Reader:
    """From the file's unit to the table's; truncation widens the bound."""
    multiply, divide = NANOS_PER_UNIT[unit], NANOS_PER_UNIT[target]

    def read(raw: Any, upwards: bool) -> Value | None:
        nanos = int(raw) * multiply
        return -(-nanos // divide) if upwards else nanos // divide

    return read
