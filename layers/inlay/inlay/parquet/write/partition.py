"""Partition transforms of columns, and batches split by them.

Promise: `partition_column` gives each row the partition that `format.partition.partition_of` gives its
value, and a `Split` returns every row of a batch exactly once, rows of one partition together, in order.

Cheap transforms are computed over whole columns: days, hours, truncated numbers and texts, hashes of
integers, times, texts and bytes. The others (decimals; years and months, of which there are few) are
computed once for each distinct value. Arrow only: the layer has no NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from inlay.format import partition
from inlay.format.partition import Partition, Transform, Written, parse_transform, partition_of
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import PartitionSpec
from inlay.format.values import NANOS_PER_DAY, NANOS_PER_UNIT, integer_range
from inlay.parquet.arrow.types import floor_divided, to_physical, to_scalar
from inlay.record import Record

_HOUR_NANOS = 3600 * 1_000_000_000


class Partitions(Record):
    """The distinct partition values of a column, as written, and for each row the index of its value."""

    distinct: Sequence[Written | None]
    indices: pa.Array

    def of_row(self, row: int) -> Written | None:
        at: int = self.indices[row].as_py()
        return self.distinct[at]


class Split:
    """Splits batches laid out as `schema` into the partitions of `spec`."""

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._fields: list[tuple[int, Transform, Primitive]] = []
        places = {field.id: at for at, field in enumerate(schema.fields)}
        for field in spec.fields:
            source = schema.fields[places[field.source]].type
            assert isinstance(source, Primitive)  # specs with other columns are refused
            self._fields.append((places[field.source], parse_transform(field.transform), source))

    def __call__(self, batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        if not self._fields or not batch.num_rows:
            yield (None,) * len(self._fields), batch
            return
        columns = [partition_column(t, s, batch.column(at)) for at, t, s in self._fields]
        place = _places(columns)
        order = pc.sort_indices(place)  # stable
        runs = pc.value_counts(place.take(order)).field("counts").to_pylist()
        if len(runs) == 1:
            yield tuple(c.of_row(0) for c in columns), batch
            return
        bounds = [0]
        for count in runs:
            bounds.append(bounds[-1] + count)
        for start, end in pairwise(bounds):
            # A copy of its rows alone: a slice would keep the whole batch in memory.
            rows = order.slice(start, end - start)
            yield tuple(c.of_row(rows[0].as_py()) for c in columns), batch.take(rows)


def _places(columns: list[Partitions]) -> pa.Array:
    """A number for each row, equal for rows of one partition."""
    first, *others = columns
    places = first.indices.cast(pa.int64())
    for column in others:
        both = pc.add(pc.multiply(places, len(column.distinct)), column.indices)
        # Renumbered, so that the product of many columns stays small.
        places = both.dictionary_encode().indices.cast(pa.int64())
    return places


def partition_column(transform: Transform, source: Primitive, values: pa.Array) -> Partitions:
    """The partitions of a column that is laid out as `source`."""
    plain = _in_arrow(transform, source, values)
    if plain is not None:
        encoded = plain.dictionary_encode(null_encoding="encode")
        return Partitions(encoded.dictionary.to_pylist(), encoded.indices)
    if transform.name in ("month", "year"):
        source, values = Primitive("date"), _steps(source, values, NANOS_PER_DAY)
    encoded = values.dictionary_encode(null_encoding="encode")
    # Days are integers already, and may be more than a date can hold.
    distinct = (
        v.as_py() if source.name == "date" else to_physical(v, source) for v in encoded.dictionary
    )
    partitions = [partition_of(transform, source, value) for value in distinct]
    # Values of one partition share its number.
    numbers = {value: number for number, value in enumerate(dict.fromkeys(partitions))}
    shared = pa.array([numbers[value] for value in partitions], pa.int64())
    return Partitions(tuple(numbers), shared.take(encoded.indices))


def _in_arrow(transform: Transform, source: Primitive, values: pa.Array) -> pa.Array | None:
    """Partition values of a column by Arrow alone; None if that is not possible."""
    match transform.name:
        case "day" | "hour":
            return _steps(source, values, NANOS_PER_DAY if transform.name == "day" else _HOUR_NANOS)
        case "bucket" if source.name != "decimal":
            hashes = pc.bit_wise_and(_hashes(source, values), to_scalar(0x7FFFFFFF, pa.uint32()))
            width = to_scalar(transform.width, pa.uint32())
            return pc.subtract(hashes, pc.multiply(pc.divide(hashes, width), width))
        case "truncate" if source.name == "string":
            return pc.utf8_slice_codeunits(values, 0, transform.width)
        case "truncate" if source.is_integer:
            return _truncated(source, values, transform.width)
        case "identity" if source.is_integer or source.is_temporal:
            return _integers(values)
        case "identity" if source.name in ("string", "bool"):
            return values
        case _:  # calculated value by value
            return None


# -- numbers --------------------------------------------------------------------------------------


def _integers(values: pa.Array) -> pa.Array:
    """Integers and times as the integers they are stored as."""
    if pa.types.is_integer(values.type):
        return values
    width = values.type.bit_width
    return values.view(pa.int32() if width == 32 else pa.int64())


def _steps(source: Primitive, values: pa.Array, step_nanos: int) -> pa.Array:
    """Whole steps since 1970 of dates and timestamps, rounded towards the past."""
    unit = NANOS_PER_DAY if source.name == "date" else NANOS_PER_UNIT[source.unit]
    return floor_divided(_integers(values).cast(pa.int64()), step_nanos // unit)


def _truncated(source: Primitive, values: pa.Array, width: int) -> pa.Array:
    limits = integer_range(source)
    assert limits is not None
    if limits[0] == 0:
        wide = values.cast(pa.uint64())
        step = to_scalar(width, pa.uint64())
        return pc.multiply(pc.divide(wide, step), step)
    wide = values.cast(pa.int64())
    truncated = pc.multiply(
        floor_divided(wide, width), width
    )  # may wrap around below the least value
    least = to_scalar(limits[0], pa.int64())
    below = pc.or_(pc.greater(truncated, wide), pc.less(truncated, least))
    return pc.if_else(below, least, truncated)


# -- hashes ---------------------------------------------------------------------------------------


def _hashes(source: Primitive, values: pa.Array) -> pa.Array:
    if source.family in ("text", "bytes"):
        return _hashes_of_bytes(values.cast(pa.large_binary()))
    numbers = _integers(values)
    if source.unit:
        numbers = numbers.cast(pa.int64())
        nanos = NANOS_PER_UNIT[source.unit]
        numbers = (
            floor_divided(numbers, 1_000 // nanos)
            if nanos < 1_000
            else pc.multiply(numbers, nanos // 1_000)
        )
    # As eight bytes, two's complement: two words, the lower first.
    if not pa.types.is_unsigned_integer(numbers.type):
        numbers = numbers.cast(pa.int64()).view(pa.uint64())
    wide = numbers.cast(pa.uint64())
    low = pc.bit_wise_and(wide, to_scalar(partition.MASK, pa.uint64())).cast(pa.uint32())
    high = pc.shift_right(wide, to_scalar(32, pa.uint64())).cast(pa.uint32())
    return _murmur3([low, high], 8)


def _hashes_of_bytes(values: pa.Array) -> pa.Array:
    """Values of one length at a time: their bytes are then words side by side."""
    lengths = pc.binary_length(values)
    hashes: list[pa.Array] = []
    places: list[pa.Array] = []
    for length in pc.unique(lengths.drop_null()).to_pylist():
        at = pc.indices_nonzero(pc.equal(lengths, length))
        words = -(-length // 4)
        if words:
            zeros, nothing = (
                to_scalar(bytes(n), pa.large_binary()) for n in (4 * words - length, 0)
            )
            padded = pc.binary_join_element_wise(values.take(at), zeros, nothing)
            fixed = padded.cast(pa.binary(4 * words))
            flat = pa.Array.from_buffers(
                pa.uint32(),
                len(at) * words,
                [None, fixed.buffers()[1]],
                offset=fixed.offset * words,
            )
            rows = pa.FixedSizeListArray.from_arrays(flat, words)
            blocks = [pc.list_element(rows, n) for n in range(words)]
        else:
            blocks = []
        hashes.append(_murmur3(blocks, length, len(at)))
        places.append(at)
    nulls = pc.indices_nonzero(values.is_null())
    hashes.append(pa.nulls(len(nulls), pa.uint32()))
    places.append(nulls)
    return pa.concat_arrays(hashes).take(pc.sort_indices(pa.concat_arrays(places)))


def _murmur3(blocks: list[pa.Array], length: int, rows: int = 0) -> pa.Array:
    """As `format.partition`, for many values of one length: arithmetic of 32 bits wraps around in Arrow."""
    state = pa.repeat(to_scalar(0, pa.uint32()), len(blocks[0]) if blocks else rows)
    for at, block in enumerate(blocks):
        scrambled = _times(_rotated(_times(block, partition.FIRST), 15), partition.SECOND)
        state = pc.bit_wise_xor(state, scrambled)
        if 4 * at + 4 <= length:
            state = pc.add(_times(_rotated(state, 13), 5), _word(partition.STEP))
    state = pc.bit_wise_xor(state, _word(length & partition.MASK))
    state = _times(_folded(state, 16), partition.LAST)
    state = _times(_folded(state, 13), partition.VERY_LAST)
    return _folded(state, 16)


def _word(value: int) -> pa.Scalar:
    return to_scalar(value, pa.uint32())


def _times(words: pa.Array, by: int) -> pa.Array:
    return pc.multiply(words, _word(by))


def _rotated(words: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(words, _word(by)), pc.shift_right(words, _word(32 - by)))


def _folded(words: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_xor(words, pc.shift_right(words, _word(by)))
