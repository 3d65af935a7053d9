"""Selection: which columns and which rows are read.

Promise: values only, which pickle if the filter does. A filter gives two answers: what statistics alone
decide, and which rows of a batch are selected; any object with both may be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from inlay.format.entry import (
    ColumnStats,
    KeyRange,
    Keys,
    Marker,
    RowGroups,
    Rows,
    Vector,
    Where,
)
from inlay.format.predicate import Predicate, field_ids
from inlay.format.schema import Field, Schema, Struct
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.plan.pruning.prune import Settled, may_match, settle
from inlay.plan.scan.scan import FileTask

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

    def settle(self, stats: Mapping[int, ColumnStats], rows: int) -> Settled:
        """What statistics alone decide for `rows` rows."""
        ...

    def may_match(self, parts: Sequence[tuple[Mapping[int, ColumnStats], int]]) -> Sequence[bool]:
        """For each part (statistics and number of rows) whether it may hold a selected row."""
        ...

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        """Which rows of a batch laid out as `schema` are selected; no NULLs."""
        ...


@dataclass(frozen=True, slots=True)
class PredicateFilter:
    """Rows for which a predicate is TRUE."""

    predicate: Predicate

    @property
    def of_live_rows(self) -> bool:
        return False

    @property
    def fields(self) -> frozenset[int]:
        return field_ids(self.predicate)

    def settle(self, stats: Mapping[int, ColumnStats], rows: int) -> Settled:
        return settle(self.predicate, stats, rows)

    def may_match(self, parts: Sequence[tuple[Mapping[int, ColumnStats], int]]) -> Sequence[bool]:
        return [may_match(self.predicate, stats, rows) for stats, rows in parts]

    def selected(self, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
        return selected(self.predicate, batch, columns_of(schema))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns and rows to read.

    `schema` is the snapshot's; `columns` are ids of its top-level fields, in the order of the result.
    `fields` are ids of what of these is wanted, where it is not all: the rest of their structs may be left
    out.
    `where` is asked besides each task's own predicate. `position` and `file` append the columns
    `_pos` (the row's place in its file, from 0) and `_file` (the file's key). `limit`: no more rows than
    that will be used, so that more need not be read.
    """

    schema: Schema
    columns: tuple[int, ...]
    fields: frozenset[int] | None = None
    where: RowFilter | None = None
    position: bool = False
    file: bool = False
    limit: int | None = None

    @property
    def result(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        fields = list(schema_to_arrow(subschema(self.schema, self.columns), with_ids=False))
        if self.position:
            fields.append(pa.field(POSITION_COLUMN, pa.int64(), nullable=False))
        if self.file:
            fields.append(pa.field(FILE_COLUMN, FILE_TYPE, nullable=False))
        return pa.schema(fields)


def narrowed(wanted: Wanted, tasks: Iterable[FileTask]) -> Wanted:
    """`wanted` with structs cut down to what the result, a filter or a delete of `tasks` looks at."""
    if not any(isinstance(field.type, Struct) for field in wanted.schema.fields):
        return wanted
    used = set(wanted.columns if wanted.fields is None else wanted.fields)
    if wanted.where is not None:
        used |= wanted.where.fields
    predicates: dict[int, Predicate] = {}
    markers: dict[str, Marker] = {}
    for task in tasks:
        predicates[id(task.predicate)] = task.predicate
        markers.update((marker.id, marker) for marker in (*task.markers, *task.only))
    used.update(*(field_ids(predicate) for predicate in predicates.values()))
    used.update(*(_looked_at(marker) for marker in markers.values()))
    fields = tuple(_cut(field, used) for field in wanted.schema.fields)
    return replace(wanted, schema=Schema(wanted.schema.id, fields))


def _looked_at(marker: Marker) -> Iterable[int]:
    match marker.body:
        case KeyRange(field_id):
            return (field_id,)
        case Where(predicate):
            return field_ids(predicate)
        case Keys(ids):
            return ids
        case RowGroups() | Vector() | Rows():
            return ()


def _cut(field: Field, used: set[int]) -> Field:
    if field.id in used or not isinstance(field.type, Struct):
        return field
    kept = tuple(_cut(child, used) for child in field.type.fields if _holds(child, used))
    return replace(field, type=Struct(kept)) if kept else field


def _holds(field: Field, used: set[int]) -> bool:
    return any(found.id in used for _, found in Schema(0, (field,)).walk())


def subschema(schema: Schema, columns: Iterable[int]) -> Schema:
    """The schema with only these top-level fields, in this order."""
    by_id = {field.id: field for field in schema.fields}
    return Schema(schema.id, tuple(by_id[column] for column in columns))


def top_columns(schema: Schema, fields: Iterable[int]) -> tuple[int, ...]:
    """The top-level columns that hold `fields`, in the schema's order."""
    asked = frozenset(fields)
    names = {path[0] for path, field in schema.walk() if field.id in asked} if asked else ()
    return tuple(field.id for field in schema.fields if field.name in names)
