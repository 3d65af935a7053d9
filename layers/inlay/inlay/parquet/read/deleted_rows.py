"""Which rows of a file are deleted.

Promise: a row is masked exactly when a marker of the task deletes it, whatever the kind:

* `RowGroups`, `Rows`, `Vector` by its position in the file,
* `KeyRange`, `Where` where their predicate is TRUE,
* `Keys` where its columns equal those of a key: NULL equals nothing, NaN equals NaN, -0.0 equals 0.0.

Statistics of a row group decide what they can before a row is read: a marker that cannot hit it is dropped,
one that hits all of it leaves nothing to read (except in a file of another writer).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from typing import assert_never

import pyarrow as pa
from pyroaring import BitMap64

from inlay.errors import CorruptTable, UnreadableFile
from inlay.format.entry import ColumnStats, KeyRange, Keys, Marker, RowGroups, Rows, Vector, Where
from inlay.format.predicate import And, Comparison, In, IsNull, Not, Predicate, field_ids
from inlay.format.schema import Primitive, Schema
from inlay.parquet.arrow.evaluate import cast_or_null, column_at, columns_of, comparable, selected
from inlay.parquet.arrow.functions import pc
from inlay.parquet.arrow.types import arrow_primitive, positions_array, to_array, to_scalar
from inlay.parquet.arrow.words import words_of
from inlay.parquet.read.ranges import Cache, Job, Objects, fetch_marker
from inlay.plan.pruning.prune import all_match, may_match, range_predicate
from inlay.plan.scan import marker_predicate
from inlay.record import Record
from inlay.storage.base import ByteRange

# The end of an interval without a bound: no value of the supported types is beyond it.
_LEAST, _MOST = -(2**63), 2**63 - 1

Interval = tuple[int, int]


class DeletedRanges(Record, dict=True):
    """Rows whose value of `field_id`, a column of type `kind`, is in an interval: `starts` and `ends`, both
    included, ascending, disjoint."""

    field_id: int
    kind: Primitive
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def within(self, stats: Mapping[int, ColumnStats], rows: int) -> DeletedRanges | None:
        """The intervals that `rows` rows with these statistics can be in; None if there are none."""
        known = stats.get(self.field_id)
        if known is not None and known.null_count == rows:
            return None
        bounds = self._bounds(stats)
        if bounds is None:
            return self
        lower, upper = bounds
        first, last = bisect_left(self.ends, lower), bisect_right(self.starts, upper)
        if first >= last:
            return None
        if (first, last) == (0, len(self.starts)):
            return self
        return DeletedRanges(
            self.field_id, self.kind, self.starts[first:last], self.ends[first:last]
        )

    def cover(self, stats: Mapping[int, ColumnStats], rows: int) -> bool:
        """Whether every row with these statistics certainly is in an interval."""
        bounds = self._bounds(stats)
        if bounds is None or not rows or stats[self.field_id].null_count != 0:
            return False
        lower, upper = bounds
        at = bisect_left(self.ends, upper)
        return at < len(self.starts) and self.starts[at] <= lower

    def matches(self, column: pa.Array | None, rows: int) -> pa.BooleanArray:
        """For each row whether its value is in an interval; null without a value."""
        held = comparable(column, self.kind)
        if held is None:
            return pa.nulls(rows, pa.bool_())
        values, indices = held
        starts, ends = self._arrays
        bits = values.type.bit_width
        numbers = values if pa.types.is_integer(values.type) else values.view(f"int{bits}")
        numbers = numbers.cast(pa.int64())
        # The number of intervals that begin at or before the value: it can only be in the last of them.
        begun = pc.search_sorted(starts, numbers, side="right")
        inside = pc.less_equal(numbers, ends.take(begun))
        inside = pc.and_(pc.greater(begun, to_scalar(0, begun.type)), inside)
        return inside if indices is None else inside.take(indices)

    @cached_property
    def _arrays(self) -> tuple[pa.Array, pa.Array]:
        return to_array(self.starts, pa.int64()), to_array((_LEAST, *self.ends), pa.int64())

    def _bounds(self, stats: Mapping[int, ColumnStats]) -> Interval | None:
        bounds = stats.get(self.field_id)
        if bounds is None or bounds.kind not in (None, self.kind):
            return None
        if not isinstance(bounds.lower, int) or not isinstance(bounds.upper, int):
            return None
        return bounds.lower, bounds.upper


def merge_predicates(
    predicates: Sequence[Predicate | KeyRange], schema: Schema
) -> tuple[tuple[DeletedRanges, ...], tuple[Predicate, ...]]:
    """Ranges and predicates that together select what one of `predicates` selects.

    Intervals hold the physical values of integer, date, time and timestamp columns in the column's current
    type, where an open bound has a closed neighbour. Equalities on a column of any other type become one
    IN. Everything else stays a predicate.

    Many deletes by range or value on one column become few: sorted, disjoint intervals, and one IN. Ten
    thousand ranges then cost a row one binary search, and a row group two, not ten thousand comparisons.
    """
    if not predicates:
        return (), ()
    intervals: dict[tuple[int, Primitive], list[Interval]] = defaultdict(list)
    values: dict[tuple[int, Primitive], list[Predicate]] = defaultdict(list)
    bodies: dict[tuple[int, int], list[KeyRange]] = defaultdict(list)
    single: list[Predicate] = []
    for predicate in predicates:
        if isinstance(predicate, KeyRange):
            # By identity: markers that were read together share their kind, and hashing it takes longer.
            bodies[predicate.field_id, id(predicate.kind)].append(predicate)
            continue
        in_column = _intervals(predicate, schema.types)
        if in_column is not None:
            column, inside = in_column
            intervals[column] += inside
        elif isinstance(predicate, In):
            values[predicate.field_id, predicate.type].append(predicate)
        elif isinstance(predicate, Comparison) and predicate.op == "=":
            values[predicate.field_id, predicate.literal.type].append(predicate)
        else:
            single.append(predicate)
    for alike in bodies.values():
        field_id, kind = alike[0].field_id, alike[0].kind or schema.types[alike[0].field_id]
        if _served(field_id, kind, schema.types):
            intervals[field_id, kind] += _of_ranges(alike)
            single += [Not(IsNull(field_id)) for body in alike if body.lower is body.upper is None]
        else:
            rest, others = merge_predicates([range_predicate(body, kind) for body in alike], schema)
            assert not rest
            single += others
    single += [_one_in(*column, parts) for column, parts in values.items()]
    ranges = []
    for column, overlapping in intervals.items():
        disjoint = _disjoint(overlapping)
        if disjoint:
            starts, ends = (tuple(bound) for bound in zip(*disjoint, strict=True))
            ranges.append(DeletedRanges(*column, starts, ends))
    return tuple(ranges), tuple(single)


def _of_ranges(bodies: Iterable[KeyRange]) -> Iterator[Interval]:
    """The intervals of ranges that hold something and have a bound; of whole numbers alone."""
    for body in bodies:
        lower, upper = body.lower, body.upper
        if lower is upper is None:
            continue
        least = lower + (not body.lower_inclusive) if isinstance(lower, int) else _LEAST
        most = upper - (not body.upper_inclusive) if isinstance(upper, int) else _MOST
        if least <= most:
            yield least, most


def _one_in(field_id: int, kind: Primitive, parts: Sequence[Predicate]) -> Predicate:
    if len(parts) == 1:
        return parts[0]
    values = [
        value
        for part in parts
        for value in (part.values if isinstance(part, In) else (part.literal.value,))  # type: ignore[union-attr]
    ]
    return In(field_id, kind, tuple(values))


def _intervals(
    predicate: Predicate, types: Mapping[int, Primitive]
) -> tuple[tuple[int, Primitive], list[Interval]] | None:
    """The column and the intervals of a predicate; None if it has another form."""
    match predicate:
        case Comparison(field_id, op, literal) if op != "!=":
            if not _served(field_id, literal.type, types):
                return None
            value = literal.value
            assert isinstance(value, int)
            lower = value + (op == ">") if op in (">", ">=", "=") else _LEAST
            upper = value - (op == "<") if op in ("<", "<=", "=") else _MOST
            return (field_id, literal.type), [(lower, upper)] if lower <= upper else []
        case In(field_id, kind, values) if _served(field_id, kind, types):
            return (field_id, kind), [(value, value) for value in values if isinstance(value, int)]
        case And((first, second)):
            one, other = _intervals(first, types), _intervals(second, types)
            if one is None or other is None or one[0] != other[0]:
                return None
            both = [
                (max(a, c), min(b, d))
                for a, b in one[1]
                for c, d in other[1]
                if max(a, c) <= min(b, d)
            ]
            return one[0], both
        case _:  # the predicate is evaluated as it is
            return None


def _served(field_id: int, kind: Primitive, types: Mapping[int, Primitive]) -> bool:
    """Whether values of the column are 64-bit numbers in the literal's units."""
    if types.get(field_id) != kind:
        return False
    return kind.is_temporal or (kind.is_integer and kind.name != "uint64")


def _disjoint(intervals: Iterable[Interval]) -> list[Interval]:
    """The same numbers as intervals that neither overlap nor touch, ascending."""
    disjoint: list[Interval] = []
    for lower, upper in sorted(intervals):
        if disjoint and lower <= disjoint[-1][1] + 1:
            disjoint[-1] = (disjoint[-1][0], max(disjoint[-1][1], upper))
        else:
            disjoint.append((lower, upper))
    return disjoint


# From so many deletes by value on, what they say together is remembered.
MANY_MARKERS = 32
# A delete by value in memory, merged with others.
_MARKER_BYTES = 256
# A bitmap in memory, measured against its blob.
_BITMAP_FACTOR = 2
_FALSE = to_scalar(False, pa.bool_())


class KeySet(Record, dict=True):
    """Keys to delete: one array per field, no NULLs, floats normalised."""

    field_ids: tuple[int, ...]
    columns: tuple[pa.Array, ...]

    def within(self, stats: Mapping[int, ColumnStats]) -> KeySet | None:
        """The keys that rows with these statistics can equal; None if there is none.

        Besides avoiding comparisons, this keeps a lookup's hash table as small as the row group's own
        range, however many keys there are.
        """
        if not len(self.columns[0]):
            return None
        keep: pa.Array | None = None
        for field_id, column in zip(self.field_ids, self.columns, strict=True):
            bounds = stats.get(field_id)
            if bounds is None or bounds.lower is None or bounds.upper is None:
                continue
            inside = pc.and_(
                pc.greater_equal(column, to_scalar(bounds.lower, column.type)),
                pc.less_equal(column, to_scalar(bounds.upper, column.type)),
            )
            if pa.types.is_floating(column.type) and bounds.has_nan is not False:
                inside = pc.or_(inside, pc.is_nan(column))
            keep = inside if keep is None else pc.and_(keep, inside)
        if keep is None or keep.true_count == len(keep):
            return self
        if not keep.true_count:
            return None
        return KeySet(self.field_ids, tuple(column.filter(keep) for column in self.columns))

    def matches(self, columns: Sequence[pa.Array]) -> pa.BooleanArray:
        """For each row of `columns` (as many as fields, in their order) whether it equals a key."""
        rows, *more_rows = [normalised(column) for column in columns]
        keys, *more_keys = self.columns
        for next_rows, next_keys in zip(more_rows, more_keys, strict=True):
            rows, keys = _paired(rows, keys, next_rows, next_keys)
        return pc.is_in(rows, value_set=keys)  # no key is NULL

    @cached_property
    def fields(self) -> frozenset[int]:
        return frozenset(self.field_ids)


def _paired(
    rows: pa.Array, keys: pa.Array, next_rows: pa.Array, next_keys: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Two columns as one of integers, equal where both are equal; a value no key has becomes NULL.

    Ordinals among the distinct keys stay below their number, so a pair is below its square and fits
    64 bits for any key file this format allows.
    """
    distinct, next_distinct = keys.unique(), next_keys.unique()
    base = to_scalar(len(next_distinct), pa.int64())

    def pair(left: pa.Array, right: pa.Array) -> pa.Array:
        high = pc.index_in(left, value_set=distinct).cast(pa.int64())
        low = pc.index_in(right, value_set=next_distinct).cast(pa.int64())
        return pc.add(pc.multiply(high, base), low)

    return pair(rows, next_rows), pair(keys, next_keys)


def normalised(column: pa.Array) -> pa.Array:
    """The column with one NaN and one zero: Arrow compares floats in hash tables by their bits."""
    if not pa.types.is_floating(column.type):
        return column
    zero, nan = to_scalar(0.0, column.type), to_scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))


# -- one row group --------------------------------------------------------------------------------


class GroupDeletes(Record):
    """What may delete rows of one row group. `positions` count from the group's first row."""

    positions: pa.Array | None = None
    predicates: tuple[Predicate, ...] = ()
    ranges: tuple[DeletedRanges, ...] = ()
    keys: tuple[KeySet, ...] = ()

    @property
    def any(self) -> bool:
        return self.positions is not None or bool(self.predicates or self.ranges or self.keys)

    @property
    def fields(self) -> frozenset[int]:
        """The fields needed to decide which rows are deleted."""
        fields = frozenset[int]().union(*(field_ids(p) for p in self.predicates))
        fields |= {deleted.field_id for deleted in self.ranges}
        return fields.union(*(keys.fields for keys in self.keys))

    def keep_positions(self, rows: int) -> pa.BooleanArray | None:
        """Which rows no position deletes, over the whole group; None is all."""
        if self.positions is None:
            return None
        return marks_at(self.positions, rows).is_null()

    def keep_values(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray | None:
        """Which rows of a batch no predicate or key deletes; None is all. The batch is laid out as
        `schema` and has every column of `fields`."""
        columns = columns_of(schema)
        deleted = [selected(predicate, batch, columns) for predicate in self.predicates]
        for deleted_ranges in self.ranges:
            path = columns.get(deleted_ranges.field_id)
            column = None if path is None else column_at(path, batch)
            deleted.append(deleted_ranges.matches(column, batch.num_rows).fill_null(_FALSE))
        for keys in self.keys:
            deleted.append(keys.matches([column_at(columns[f], batch) for f in keys.field_ids]))
        if not deleted:
            return None
        return pc.invert(reduce(pc.or_, deleted))


# -- one file -------------------------------------------------------------------------------------


class FileDeletes(Record):
    """Everything that deletes rows of one file, loaded."""

    groups: frozenset[int] = frozenset()
    positions: BitMap64 | None = None
    predicates: tuple[Predicate, ...] = ()
    ranges: tuple[DeletedRanges, ...] = ()
    keys: tuple[KeySet, ...] = ()

    @property
    def fields(self) -> frozenset[int]:
        return GroupDeletes(predicates=self.predicates, ranges=self.ranges, keys=self.keys).fields

    def of_group(
        self,
        ordinal: int,
        first_row: int,
        rows: int,
        stats: Mapping[int, ColumnStats],
        sure: Mapping[int, ColumnStats],
    ) -> GroupDeletes | None:
        """What may delete rows of one row group, by its `stats`; None when `sure`, the statistics that are
        trusted as proof, show that all of it is deleted."""
        if ordinal in self.groups:
            return None
        if any(all_match(predicate, sure, rows) for predicate in self.predicates):
            return None
        if any(deleted.cover(sure, rows) for deleted in self.ranges):
            return None
        positions = self._positions_in(first_row, rows)
        if positions is not None and len(positions) == rows:
            return None
        return GroupDeletes(
            positions,
            tuple(p for p in self.predicates if may_match(p, stats, rows)),
            tuple(
                within
                for deleted in self.ranges
                if (within := deleted.within(stats, rows)) is not None
            ),
            tuple(near for keys in self.keys if (near := keys.within(stats)) is not None),
        )

    def _positions_in(self, first_row: int, rows: int) -> pa.Array | None:
        if self.positions is None:
            return None
        if not self.positions.range_cardinality(first_row, first_row + rows):
            return None
        group = BitMap64()
        group.add_range(first_row, first_row + rows)
        positions = positions_array(self.positions & group)
        return pc.subtract(positions, to_scalar(first_row, pa.int64()))


NO_DELETES = FileDeletes()


# -- loading --------------------------------------------------------------------------------------


def marker_jobs(
    objects: Objects, markers: Sequence[Marker], schema: Schema, file_rows: int
) -> list[Job]:
    """One job per marker object to load; `combine_markers` takes their results in order."""
    jobs: list[Job] = []
    for marker in markers:
        match marker.body:
            case Vector() as vector:
                jobs.append(partial(load_vector, objects, vector, file_rows))
            case Keys() as keys:
                jobs.append(partial(load_keys, objects, keys, schema))
            case RowGroups() | KeyRange() | Where() | Rows():
                pass  # whole in its entry
            case _:
                assert_never(marker.body)
    return jobs


def combine_markers(
    markers: Sequence[Marker],
    loaded: Sequence[BitMap64 | KeySet],
    schema: Schema,
    cache: Cache,
) -> FileDeletes:
    """All markers of one file as one value. What many say together is remembered in `cache`: mostly it is
    the same of many files."""
    groups: set[int] = set()
    bitmaps = [answer for answer in loaded if isinstance(answer, BitMap64)]
    by_value: list[Marker] = []
    for marker in markers:
        match marker.body:
            case RowGroups(ordinals):
                groups.update(ordinals)
            case Rows(positions):
                bitmaps.append(BitMap64(positions))
            case KeyRange() | Where():
                by_value.append(marker)
            case Vector() | Keys():
                pass  # among `loaded`
            case _:
                assert_never(marker.body)
    ranges, others = _merged(by_value, schema, cache)
    return FileDeletes(
        frozenset(groups),
        BitMap64.union(*bitmaps) if len(bitmaps) > 1 else next(iter(bitmaps), None),
        others,
        ranges,
        tuple(answer for answer in loaded if isinstance(answer, KeySet)),
    )


def _merged(
    markers: Sequence[Marker], schema: Schema, cache: Cache
) -> tuple[tuple[DeletedRanges, ...], tuple[Predicate, ...]]:
    name = ""
    if len(markers) >= MANY_MARKERS:
        ids = repr((schema.id, [marker.id for marker in markers]))
        name = f"#deletes {hashlib.blake2b(ids.encode(), digest_size=16).hexdigest()}"
        known: tuple[tuple[DeletedRanges, ...], tuple[Predicate, ...]] | None = cache.get(name)
        if known is not None:
            return known
    predicates: list[Predicate | KeyRange] = []
    for marker in markers:
        body = marker.body
        if isinstance(body, KeyRange) and body.field_id in schema.types:
            predicates.append(body)
            continue
        predicate = marker_predicate(marker, schema)
        if predicate is None:
            raise CorruptTable(f"delete {marker.id} names a field that the table does not have")
        predicates.append(predicate)
    merged = merge_predicates(predicates, schema)
    if name:
        cache.put(name, merged, _MARKER_BYTES * len(markers))
    return merged


def marks_at(positions: pa.Array, rows: int) -> pa.Array:
    """For each row TRUE where it is at one of the positions, else NULL."""
    marks = pa.repeat(to_scalar(True, pa.bool_()), len(positions))
    return pc.scatter(marks, positions, max_index=rows - 1)


def load_vector(objects: Objects, vector: Vector, file_rows: int) -> BitMap64:
    """The positions of a deletion vector: one ranged GET, or the cache."""
    from inlay.format.puffin import decode_vector  # most files have none

    def load() -> tuple[BitMap64, int]:
        place = ByteRange(vector.offset, vector.offset + vector.length)
        body = fetch_marker(objects, objects.source(vector.key), place)
        try:
            positions = decode_vector(body, file_rows=file_rows)
        except CorruptTable as error:
            raise error.about(key=vector.key) from None
        if len(positions) != vector.rows:
            raise CorruptTable(
                f"a deletion vector holds {len(positions)} rows, its entry says {vector.rows}",
                key=vector.key,
            )
        return positions, _BITMAP_FACTOR * vector.length

    return objects.cache.once(f"{vector.key}#{vector.offset}", load)


def load_keys(objects: Objects, keys: Keys, schema: Schema) -> KeySet:
    """The keys of an equality delete: one GET of the whole object, or the cache."""
    types = [_arrow_type_of(schema, field_id) for field_id in keys.field_ids]

    def load() -> tuple[KeySet, int]:
        import pyarrow.parquet as pq  # most tables have no keys to read

        body = fetch_marker(objects, objects.source(keys.key, keys.size), ByteRange(0, keys.size))
        try:
            # Not by `read_table`, which imports pyarrow's datasets.
            table = pq.ParquetFile(pa.BufferReader(body)).read(use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise UnreadableFile(
                f"a file of keys is broken: {words_of(error)}", key=keys.key
            ) from error
        if table.num_columns != len(keys.field_ids):
            raise CorruptTable(
                f"a file of keys has {table.num_columns} columns, its entry {len(keys.field_ids)}",
                key=keys.key,
            )
        columns = [
            cast_or_null(column.combine_chunks(), kind)
            for column, kind in zip(table.columns, types, strict=True)
        ]
        key_values = key_set(keys.field_ids, columns)
        return key_values, sum(column.nbytes for column in key_values.columns)

    # In the types the columns have now: they may have been widened since the keys were written.
    return objects.cache.once(f"{keys.key}#{types}", load)


def key_set(fields: tuple[int, ...], columns: Sequence[pa.Array]) -> KeySet:
    """Keys to look rows up in: a key with a NULL in it equals nothing, and is left out."""
    whole = columns[0].is_valid()
    for column in columns[1:]:
        whole = pc.and_(whole, column.is_valid())
    return KeySet(fields, tuple(normalised(column.filter(whole)) for column in columns))


def _arrow_type_of(schema: Schema, field_id: int) -> pa.DataType:
    field = schema.by_id(field_id)
    if field is None or not isinstance(field.type, Primitive):
        raise CorruptTable(
            f"a delete by keys names field {field_id}, which is not a primitive column"
        )
    return arrow_primitive(field.type)
