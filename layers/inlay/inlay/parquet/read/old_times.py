"""Times of old writers: read exactly, or refused by their value.

INT96 is a day and nanoseconds of it, deprecated in Parquet, and what Spark writes by
default. pyarrow reads it as local time in nanoseconds, or in another unit if asked, and whatever does not
fit wraps around, or loses digits, without a word: the year 9999 becomes 1816.

Spark before version 3, and Hive, count days before 15 October 1582 in the Julian calendar, and instants
before 1900 by the local times of then. They, and newer ones, shift such values when they read a file that
says who wrote it; all other engines read what is stored. So readers disagree about the values of such a
file.

A column in a finer unit than the file's has fewer years, and a footer without bounds does not say whether
these are enough. A file in a finer unit than the column's (pandas writes nanoseconds, whatever it has) fits
if each value is whole in the column's, as those are that are appended.

Promise: `check_times` passes a file only if the columns of its table hold each value exactly, and every
reader takes it for the same. A `timestamp(ns)` reads a file with INT96 as it is. For the other types it is
written again (`rewrite`): its times are then read as `unit` and `read_as` say, and are UTC where the column
is an instant, as Spark means them. So is a file in a finer unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import UnsupportedFile
from inlay.format.entry import DataFile
from inlay.format.schema import Field, Primitive, Schema, Type, with_fields
from inlay.format.values import covered_range, widens
from inlay.parquet.arrow.types import (
    arrow_primitive,
    paired,
    plain_type,
    primitive_from_arrow,
    to_scalar,
)
from inlay.parquet.footer.fields import Physical, Stats
from inlay.parquet.footer.footer import MAGIC, ColumnChunk, Footer
from inlay.parquet.read.data_file import FooterOf
from inlay.parquet.read.ranges import RangeFile
from inlay.parquet.read.single_column import Pages, check_pages_fit, in_batches
from inlay.record import Record, field, replace
from inlay.storage.base import ByteRange

if TYPE_CHECKING:
    from inlay.parquet.read.reader import Reader

BATCH_ROWS = 131_072
_EPOCH_DAY = 2_440_588  # 1970-01-01 as a Julian day
_DAY_NANOS = 86_400 * 10**9
_NANOS = {"us": 1_000, "ns": 1}
# Keys of a footer (Spark: `DataSourceUtils`; Hive: `DataWritableWriteSupport`).
_SPARK, _OLD_SPARK = b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"
_LEGACY_INT96, _LEGACY_DATES = b"org.apache.spark.legacyINT96", b"org.apache.spark.legacyDateTime"
_HIVE_PROLEPTIC = b"writer.date.proleptic"
# Older instants are shifted by some readers, and older dates.
INSTANTS_SINCE_DAY = -25_567  # 1900-01-01
DATES_SINCE_DAY = -141_427  # 1582-10-15
_LEAVE = (
    "Correct the value where the file is written, or leave the file out; columns in microseconds have the "
    "most years"
)
NEXT_STEP = "Write it again with spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"
_PROLEPTIC = (
    "Write the file again by Spark 3 or later with "
    "spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
)
_SHIFTED = (
    "which the old writer of the file means otherwise than it is stored, and engines differ in that"
)


class Times(Record):
    """The columns of a file whose values have to be looked at: the field of each, and its dotted name, by
    leaf. `fields` are stored as INT96, their oldest values shifted by some readers if `int96_shifts`;
    `shifted` are other dates and instants of which that is true; `unbounded` may be beyond their column;
    `finer` are stored in a finer unit than the column's."""

    fields: Mapping[int, tuple[Field, str]]
    shifted: Mapping[int, tuple[Field, str]] = field(default_factory=dict)
    int96_shifts: bool = False
    unbounded: Mapping[int, tuple[Field, str]] = field(default_factory=dict)
    finer: Mapping[int, tuple[Field, str, Primitive]] = field(default_factory=dict)

    @staticmethod
    def of(footer: Footer, arrow: pa.Schema, schema: Schema, *, finer: bool = False) -> Times:
        """Those that are times in `schema`, under which the file is recorded. Another type of column does
        not fit, as for every file; with `finer` a finer unit does."""
        pairs = arrow.metadata or {}
        int96 = {leaf.index for leaf in footer.leaves if leaf.type is Physical.INT96}
        shifts = shifts_dates(pairs)
        leaves = [
            (leaf, (field, ".".join(path)), plain_type(column.type))
            for path, column, field, leaf in paired(arrow, schema.fields)
            if isinstance(field.type, Primitive) and not pa.types.is_nested(plain_type(column.type))
        ]
        others = [leaf for leaf in leaves if leaf[0] not in int96]
        return Times(
            {n: at for n, at, _ in leaves if n in int96 and _is_time(at[0].type)},
            {n: at for n, at, kind in others if shifts and _is_shifted(kind)},
            _shifts_int96(pairs),
            {n: at for n, at, kind in others if _may_exceed(footer, n, kind, at[0].type)},
            {
                n: (*at, source)
                for n, at, kind in (others if finer else ())
                if (source := _finer(kind, at[0].type)) is not None
            },
        )

    def __bool__(self) -> bool:
        return bool(self.fields or self.shifted or self.unbounded or self.finer)

    @property
    def rewrite(self) -> bool:
        """Whether the file has to be written again."""
        int96 = any(f.type != Primitive("timestamp", unit="ns") for f, _ in self.fields.values())
        return int96 or bool(self.finer)

    @property
    def as_what(self) -> str:
        """The columns for which the file is written again, and how they are stored."""
        finer = ", ".join(repr(name) for _, name, _ in self.finer.values())
        return f"{self.names} is stored as INT96" if self.fields else f"{finer} in a finer unit"

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(field.id for field, _ in self.fields.values())

    @property
    def names(self) -> str:
        return ", ".join(repr(name) for _, name in self.fields.values())

    def as_stored(self, schema: Schema) -> Schema:
        """`schema` as pyarrow sees the file's footer."""
        return self._typed(schema, "ns")

    @property
    def unit(self) -> str:
        """That of the columns. Raises `UnsupportedFile` if they have two: pyarrow reads a file in one."""
        units = {f.type.unit for f, _ in self.fields.values() if isinstance(f.type, Primitive)}
        if len(units) > 1:
            raise UnsupportedFile(
                f"INT96 times of columns {self.names} are microseconds and nanoseconds in the table",
                next_step=NEXT_STEP,
            )
        return units.pop() if units else "ns"

    def read_as(self, schema: Schema) -> Schema:
        """`schema` as a file that is written again is read: INT96 as local times, in the columns' unit."""
        return self._typed(schema, self.unit)

    def _typed(self, schema: Schema, unit: str) -> Schema:
        kinds = dict.fromkeys(self.ids, Primitive("timestamp", unit=unit))
        return retyped(schema, kinds | {f.id: source for f, _, source in self.finer.values()})


NO_TIMES = Times({})


def _finer(kind: pa.DataType, target: Type) -> Primitive | None:
    """The type of a column as a file has it, if its unit is finer than the wanted one's."""
    source = primitive_from_arrow(kind)
    if source is None or not isinstance(target, Primitive) or source.name != target.name:
        return None
    timed = target.name in ("timestamp", "timestamptz")
    units = ("s", "ms", "us", "ns")
    return source if timed and units.index(source.unit) > units.index(target.unit) else None


def _is_time(kind: Type) -> bool:
    if not isinstance(kind, Primitive):
        return False
    return kind.name in ("timestamp", "timestamptz") and kind.unit in _NANOS


def retyped(schema: Schema, kinds: Mapping[int, Primitive]) -> Schema:
    """The schema with these fields, at any depth, of other types, as a file has them."""
    if not kinds:
        return schema
    return replace(schema, fields=tuple(_with(f, kinds) for f in schema.fields))


def _with(field: Field, kinds: Mapping[int, Primitive]) -> Field:
    if not isinstance(field.type, Primitive):
        return replace(field, type=with_fields(field.type, lambda inner: _with(inner, kinds)))
    kind = kinds.get(field.id)
    return field if kind is None else replace(field, type=kind, default=None)


def _is_shifted(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)


def _may_exceed(footer: Footer, leaf: int, kind: pa.DataType, target: Type) -> bool:
    """Whether the column has more years than the table's, and the footer does not bound its values."""
    source = primitive_from_arrow(kind)
    if source is None or not isinstance(target, Primitive) or not widens(source, target):
        return False
    covered = covered_range(source, target)
    if covered is None:
        return False

    def is_covered(chunk: ColumnChunk) -> bool:
        stats = chunk.statistics or {}
        bounds = [stats.get(key) for key in (Stats.MIN, Stats.MAX)]
        return all(
            raw is not None
            and covered[0] <= int.from_bytes(raw, "little", signed=True) <= covered[1]
            for raw in bounds
        )

    return not all(is_covered(group.column(leaf)) for group in footer.row_groups)


def as_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches read by `Times.read_as` in the table's own types."""
    for batch in batches:
        arrays = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def shifts_dates(pairs: Mapping[bytes, bytes]) -> bool:
    """Whether the writer of a file with these key-values meant its oldest dates and instants otherwise than
    they are stored (`datetimeRebaseSpec` in Spark's `DataSourceUtils`)."""
    before_3 = _spark_version(pairs) < [3]
    return before_3 or _LEGACY_DATES in pairs or pairs.get(_HIVE_PROLEPTIC) == b"false"


def _shifts_int96(pairs: Mapping[bytes, bytes]) -> bool:
    """The same for INT96 (`int96RebaseSpec`)."""
    return _spark_version(pairs) < [3, 1] or _LEGACY_INT96 in pairs


def _spark_version(pairs: Mapping[bytes, bytes]) -> list[int]:
    """The first numbers of it; before 2.4.6 Spark wrote none. Of other writers: a new one."""
    if _SPARK not in pairs:
        return [2] if _OLD_SPARK in pairs else [9]
    text = pairs[_SPARK].decode("ascii", "replace")
    return [int(n) for n in re.findall(r"\d+", text)][:2]


# -- values ---------------------------------------------------------------------------------------


def check_times(reader: Reader, entry: DataFile, times: Times, footer: FooterOf) -> None:
    """Reads the columns, a row group at a time, of a file whose footer is known. Raises `UnsupportedFile`,
    which names the column (no value: it reaches logs), where one does not fit, or some readers take it for
    another."""
    decoded = footer.footer
    finer = {n: (field, name) for n, (field, name, _) in times.finer.items()}
    columns = {**times.fields, **times.shifted, **times.unbounded, **finer}
    if decoded is None:
        names = ", ".join(repr(name) for _, name in columns.values())
        raise UnsupportedFile(
            f"the times of columns {names} cannot be checked: the footer is too large",
            next_step=NEXT_STEP,
        )
    source = reader.objects.source(entry.key, entry.size, footer.etag)
    for group in decoded.row_groups:
        held = RangeFile(source, entry.size)
        held.add([(entry.size - len(footer.tail), footer.tail)])
        chunks = {n: group.column(n) for n in columns}
        places = {n: ByteRange(c.start, c.end) for n, c in chunks.items() if c.start < c.end}
        held.prefetch(places.values(), reader.executor)
        for n, place in places.items():
            field, name = columns[n]
            leaf = decoded.leaves[n]
            body = bytes(memoryview(held.slice(place)))
            check_pages_fit(decoded, group.num_rows, [Pages(leaf, chunks[n], memoryview(body))])
            for values in in_batches(
                decoded,
                leaf,
                chunks[n],
                group.num_rows,
                MAGIC + body,
                batch_rows=BATCH_ROWS,
                stored=n in times.fields,
            ):
                if n in times.fields:
                    assert isinstance(field.type, Primitive)
                    _check_int96(values, name, field.type, times.int96_shifts)
                if n in times.shifted:
                    _check_shifted(values, name)
                if n in times.unbounded or n in finer:
                    _check_fits(values, name, field.type)


def _check_shifted(values: pa.Array, name: str) -> None:
    """That none is so old that some readers shift it."""
    oldest = pc.min(values)
    if not oldest.is_valid:
        return
    is_date = pa.types.is_date(values.type)
    day = pa.scalar(DATES_SINCE_DAY if is_date else INSTANTS_SINCE_DAY, pa.int32())
    since = day.cast(pa.date32()).cast(values.type if is_date else pa.timestamp(values.type.unit))
    oldest_there = oldest if is_date else oldest.cast(pa.timestamp(values.type.unit))
    if pc.less(oldest_there, since).as_py():
        kind = "date" if is_date else "time"
        raise UnsupportedFile(
            f"column {name!r} has an old {kind}, {_SHIFTED}",
            next_step=_PROLEPTIC,
        )


def _check_fits(values: pa.Array, name: str, kind: Type) -> None:
    assert isinstance(kind, Primitive)
    try:
        values.cast(arrow_primitive(kind))
    except pa.ArrowInvalid:
        raise UnsupportedFile(
            f"column {name!r} has values that {kind} does not have", next_step=_LEAVE
        ) from None


def _check_int96(values: pa.Array, name: str, kind: Primitive, shifts: bool) -> None:
    days, nanos = _split(values.drop_null())
    is_day = pc.greater_equal(days, _number(-_EPOCH_DAY))
    is_time = pc.and_(is_day, _between(nanos, -_DAY_NANOS, _DAY_NANOS))
    unit = _number(_NANOS[kind.unit])
    whole = pc.equal(pc.multiply(pc.divide(nanos, unit), unit), nanos)
    checks = [
        (is_time, "that is not a time of day", _LEAVE),
        (_in_range(days, nanos, kind.unit), f"beyond the years that {kind} has", _LEAVE),
        (whole, f"with nanoseconds, which {kind} lacks", NEXT_STEP),
    ]
    if shifts:
        checks.append((pc.greater(days, _number(INSTANTS_SINCE_DAY)), _SHIFTED, _PROLEPTIC))
    for fits, why, next_step in checks:
        if pc.index(fits, to_scalar(False, pa.bool_())).as_py() >= 0:
            raise UnsupportedFile(
                f"column {name!r} has an INT96 time {why}",
                next_step=next_step,
            )


def _split(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Days since 1970 and nanoseconds of them: the last four bytes of each, and the first eight."""
    count, buffer = 3 * len(values), values.buffers()[1]

    def part(n: int, kind: pa.DataType) -> pa.Array:
        words = pa.Array.from_buffers(kind, count, [None, buffer], offset=3 * values.offset)
        triples = pa.FixedSizeListArray.from_arrays(words, 3)
        return pc.list_element(triples, n).cast(pa.int64())

    days = pc.subtract(part(2, pa.int32()), _number(_EPOCH_DAY))
    high = pc.multiply(part(1, pa.int32()), _number(2**32))
    return days, pc.add(part(0, pa.uint32()), high)


def _in_range(days: pa.Array, nanos: pa.Array, unit: str) -> pa.Array:
    """Whether each is within 64 bits of the unit."""
    most = (2**63 - 1) // (_DAY_NANOS // _NANOS[unit])
    surely = _between(days, 1 - most, most - 1)
    if unit == "us":
        return surely  # but for the last day, in the year 294247
    # Near the ends the sum wraps around, or it does not: then it has the sign of the days.
    total = pc.add(pc.multiply(days, _number(_DAY_NANOS)), nanos)
    same = pc.equal(pc.less(total, _number(0)), pc.less(days, _number(0)))
    return pc.or_(surely, pc.and_(_between(days, -most - 2, most + 2), same))


def _between(values: pa.Array, least: int, most: int) -> pa.Array:
    return pc.and_(pc.greater_equal(values, _number(least)), pc.less_equal(values, _number(most)))


def _number(value: int) -> pa.Scalar:
    return to_scalar(value, pa.int64())
