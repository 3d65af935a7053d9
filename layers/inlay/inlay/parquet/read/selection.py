"""Selection: which columns and which rows are read.

Promise: values only, which pickle if the filter does. A filter gives two answers: what statistics alone
decide, and which rows of a batch are selected; any object with both may be one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from inlay.format.entry import ColumnStats, Marker
from inlay.format.predicate import And, Comparison, In, Or, Predicate, field_ids
from inlay.format.schema import Field, Primitive, Schema, Struct, Value
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.parquet.footer.bloom import BLOCK_BYTES, block_of, may_hold, plain_bytes, xxh64
from inlay.parquet.footer.fields import ColumnIndex, Physical
from inlay.parquet.footer.footer import Footer
from inlay.parquet.footer.pages import BLOOM_HEADER_BYTES
from inlay.parquet.footer.thrift import ThriftError, decode_struct
from inlay.parquet.read.single_pages import Page, pages_of
from inlay.parquet.read.statistics import Leaf, bounds_of
from inlay.plan.pruning.prune import Coverage, coverage, may_match
from inlay.plan.scan import FileTask, fields_of_marker
from inlay.record import Record, replace
from inlay.storage.base import ByteRange

POSITION_COLUMN = "_pos"
FILE_COLUMN = "_file"
FILE_TYPE = pa.dictionary(pa.int32(), pa.string())


class RowFilter(Protocol):
    """Selects rows, by the format's predicates or in any other way."""

    @property
    def fields(self) -> frozenset[int]:
        """Ids of the fields it reads."""
        ...

    @property
    def of_live_rows(self) -> bool:
        """Whether it may be applied to live rows only: a value of a deleted row could make it fail."""
        ...

    @property
    def prunes(self) -> bool:
        """Whether statistics can exclude rows."""
        ...

    def coverage(self, stats: Mapping[int, ColumnStats], rows: int) -> Coverage:
        """How many of `rows` rows are selected, as far as statistics alone show."""
        ...

    def may_match(self, parts: Sequence[tuple[Mapping[int, ColumnStats], int]]) -> Sequence[bool]:
        """For each part (statistics and number of rows) whether it may hold a selected row."""
        ...

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        """Which rows of a batch laid out as `schema` are selected; no NULLs."""
        ...


class PredicateFilter(Record):
    """Rows for which a predicate is TRUE."""

    predicate: Predicate

    @property
    def of_live_rows(self) -> bool:
        return False

    @property
    def prunes(self) -> bool:
        return True

    @property
    def fields(self) -> frozenset[int]:
        return field_ids(self.predicate)

    def coverage(self, stats: Mapping[int, ColumnStats], rows: int) -> Coverage:
        return coverage(self.predicate, stats, rows)

    def may_match(self, parts: Sequence[tuple[Mapping[int, ColumnStats], int]]) -> Sequence[bool]:
        return [may_match(self.predicate, stats, rows) for stats, rows in parts]

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        return selected(self.predicate, batch, columns_of(schema))


class Projection(Record, dict=True, kw_only=True):
    """What to read of each task: columns, and what the rows are cut down to.

    `schema` is the snapshot's; `columns` are ids of its top-level fields, in the order of the result.
    `fields` are ids of what is used of these, where it is not all: the rest of structs may be left out.
    `where` is asked besides each task's own predicate. `position` and `file` append the columns
    `_pos` (the row's place in its file, from 0) and `_file` (the file's key). `limit`: no more rows than
    that will be used, so that more need not be read. `index`: single rows will be read afterwards, so the
    page index comes with the footer.
    """

    schema: Schema
    columns: tuple[int, ...]
    fields: frozenset[int] | None = None
    where: RowFilter | None = None
    position: bool = False
    file: bool = False
    limit: int | None = None
    index: bool = False

    def of(self, task: FileTask) -> Projection:
        """The same of one file: with the values of columns that stand in its partition alone."""
        schema = task.with_values(self.schema)
        return self if schema is self.schema else replace(self, schema=schema)

    @cached_property
    def result(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        result = schema_to_arrow(subschema(self.schema, self.columns), with_ids=False)
        if self.position:
            result = result.append(pa.field(POSITION_COLUMN, pa.int64(), nullable=False))
        if self.file:
            result = result.append(pa.field(FILE_COLUMN, FILE_TYPE, nullable=False))
        return result


def narrowed(projection: Projection, tasks: Iterable[FileTask]) -> Projection:
    """`projection` with structs cut down to what the result, a filter or a delete of `tasks` looks at."""
    if not any(isinstance(field.type, Struct) for field in projection.schema.fields):
        return projection
    used = set(projection.columns if projection.fields is None else projection.fields)
    if projection.where is not None:
        used |= projection.where.fields
    predicates: dict[int, Predicate] = {}
    markers: dict[str, Marker] = {}
    for task in tasks:
        predicates[id(task.predicate)] = task.predicate
        markers.update((marker.id, marker) for marker in (*task.markers, *task.only))
    used.update(*(field_ids(predicate) for predicate in predicates.values()))
    used.update(*(fields_of_marker(marker) for marker in markers.values()))
    fields = tuple(_cut(field, used) for field in projection.schema.fields)
    return replace(projection, schema=Schema(projection.schema.id, fields))


def _cut(field: Field, used: set[int]) -> Field:
    if field.id in used or not isinstance(field.type, Struct):
        return field
    kept = tuple(
        _cut(child, used)
        for child in field.type.fields
        if any(inner.id in used for _, inner in Schema(0, (child,)).walk())
    )
    return replace(field, type=Struct(kept)) if kept else field


def subschema(schema: Schema, columns: Iterable[int]) -> Schema:
    """The schema with only these top-level fields, in this order."""
    by_id = {field.id: field for field in schema.fields}
    return Schema(schema.id, tuple(by_id[column] for column in columns))


def top_columns(schema: Schema, fields: Iterable[int]) -> tuple[int, ...]:
    """The top-level columns that hold `fields`, in the schema's order."""
    names = {path[0] for field_id in fields if (path := schema.path_of(field_id)) is not None}
    return tuple(field.id for field in schema.fields if field.name in names)


# Above this many values, reading the column costs no more than asking its filter for each.
MAX_ASKED = 16

# How Thrift's compact protocol writes TRUE in a list.
_TRUE_IN_LIST = 1
_FIXED = {Physical.INT32: "<i", Physical.INT64: "<q", Physical.FLOAT: "<f", Physical.DOUBLE: "<d"}

Interval = tuple[int, int]


class ColumnPages(Record):
    """The pages of a column chunk and what is known of the values in each."""

    pages: Sequence[Page]
    stats: Sequence[ColumnStats]


def column_pages(
    footer: Footer, group: int, leaf: Leaf, column_index: bytes, offset_index: bytes
) -> ColumnPages | None:
    """None where the indexes cannot be read, or say nothing."""
    row_group = footer.row_group(group)
    pages = pages_of(offset_index, row_group.column(leaf.ordinal), row_group.num_rows)
    try:
        tree, _ = decode_struct(column_index)
        empty, lower, upper, nulls = (
            tree[key]
            for key in (
                ColumnIndex.NULL_PAGES,
                ColumnIndex.MIN,
                ColumnIndex.MAX,
                ColumnIndex.NULLS,
            )
        )
        if not len(pages) == len(empty) == len(lower) == len(upper) == len(nulls):
            return None
        physical = footer.leaves[leaf.ordinal].type
        stats = [
            ColumnStats(null_count=page.rows, has_nan=False, kind=leaf.type)
            if is_null == _TRUE_IN_LIST
            else bounds_of(leaf, _value(physical, low), _value(physical, high), count)
            for page, is_null, low, high, count in zip(
                pages, empty, lower, upper, nulls, strict=True
            )
        ]
    except (ThriftError, KeyError, TypeError, struct.error):
        return None
    return ColumnPages(pages, stats)


def _value(physical: Physical, raw: bytes) -> Any:
    """A PLAIN value as pyarrow shows the bound of a chunk."""
    layout = _FIXED.get(physical)
    if physical is Physical.BOOLEAN:
        return bool(raw[0]) if raw else None
    return raw if layout is None else struct.unpack(layout, raw)[0]


def candidates(
    filters: Iterable[RowFilter],
    columns: Mapping[int, ColumnPages],
    stats: Mapping[int, ColumnStats] = {},
    *,
    rows: int,
) -> list[Interval]:
    """The rows of a group of `rows` rows that all of `filters` may select, ascending, not touching.
    `stats` are those of the whole group.

    By the page index: a row left out is surely not selected. What statistics settle for a page is settled
    by the same code as for a row group. Only for files that this library wrote as they are: what other
    writers put into their indexes is not relied on.
    """
    starts = sorted({0, rows}.union(*({p.first_row for p in c.pages} for c in columns.values())))
    whole = {field_id: _of_part(column, rows) for field_id, column in stats.items()}
    at = dict.fromkeys(columns, 0)
    parts: list[tuple[Mapping[int, ColumnStats], int]] = []
    for start, end in pairwise(starts):
        known = dict(whole)
        for field_id, column in columns.items():
            n = at[field_id]
            while n + 1 < len(column.pages) and column.pages[n + 1].first_row <= start:
                n += 1
            at[field_id] = n
            known[field_id] = _of_part(column.stats[n], column.pages[n].rows, end - start)
        parts.append((known, end - start))
    intervals: list[Interval] = []
    judged = [row_filter.may_match(parts) for row_filter in filters]
    for (start, end), *may in zip(pairwise(starts), *judged, strict=True):
        if not all(may):
            continue
        if intervals and intervals[-1][1] == start:
            intervals[-1] = (intervals[-1][0], end)
        else:
            intervals.append((start, end))
    return intervals


def _of_part(stats: ColumnStats, rows: int, part: int | None = None) -> ColumnStats:
    """What is known of a part of `rows` rows (`part`, None: any number): of NULLs only all or none."""
    nulls = stats.null_count
    if nulls in (None, 0) or part == rows:
        return stats
    return replace(stats, null_count=part if nulls == rows and part is not None else None)


# -- Bloom filters --------------------------------------------------------------------------------

Absent = Callable[[int, Primitive, Value], bool]


def surely_false(predicate: Predicate, absent: Absent) -> bool:
    """Whether no row can be selected, by which values (of a field, of a type) are surely in no row."""
    match predicate:
        case And(parts):
            return any(surely_false(part, absent) for part in parts)
        case Or(parts):
            return all(surely_false(part, absent) for part in parts)
        case Comparison(field_id, "=", literal):
            return absent(field_id, literal.type, literal.value)
        case In(field_id, kind, values) if len(values) <= MAX_ASKED:
            return all(absent(field_id, kind, value) for value in values)
        case _:  # nothing is sure
            return False


class Block(Record):
    """The only block of a chunk's Bloom filter that says whether the chunk may hold a value."""

    place: ByteRange
    hashed: int

    def is_absent(self, block: bytes) -> bool:
        return not may_hold(block, self.hashed)


def bloom_block(
    footer: Footer, group: int, ordinal: int, kind: Primitive, value: Value
) -> Block | None:
    """None where the chunk has no filter, or a value of this type cannot be looked up in it."""
    chunk = footer.row_group(group).column(ordinal)
    at, length = chunk.bloom_offset, chunk.bloom_length
    raw = plain_bytes(footer.leaves[ordinal].type, kind, value)
    if at is None or length is None or raw is None or at + length > footer.start:
        return None
    # Header and bits; pyarrow's filters have a power of two of bytes.
    bits = 1 << (length.bit_length() - 1)
    if not (bits >= BLOCK_BYTES and 0 < length - bits <= BLOOM_HEADER_BYTES):
        return None
    hashed = xxh64(raw)
    start = at + length - bits + block_of(hashed, bits // BLOCK_BYTES) * BLOCK_BYTES
    return Block(ByteRange(start, start + BLOCK_BYTES), hashed)
