"""Rows by key: what upserts and change streams have in common.

Promise: keys are compared as the format compares values: every NaN equals every other, -0.0 equals 0.0, and
NULL equals nothing, or with `nulls="equal"` NULL. What is read for keys is every row of the table that may
have one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.format.entry import DataFile, Marker
from inlay.format.predicate import And, Comparison, IsNull, Or, Predicate
from inlay.format.predicate import Literal as PredicateLiteral
from inlay.format.schema import Field, Primitive, Schema
from inlay.ops.commit.group import archive_beside
from inlay.ops.context import Context
from inlay.ops.data import write_batches
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.write.delete import key_field, key_markers, marker_of
from inlay.parquet.arrow.conform import check_names
from inlay.parquet.arrow.pieces import distinct_rows
from inlay.parquet.arrow.types import beside_within, to_physical

# Whether a NULL in a key equals another one, and so a key of it is replaced.
NullKeys = Literal["distinct", "equal"]
NULL_KEYS: tuple[NullKeys, ...] = get_args(NullKeys)

# Keys with a NULL of one write: they are conditions, which the pointer holds until it rolls.
MAX_LISTED_KEYS = 400
NULL_KEYS_OF_MARKER = 50


def equates_nulls(nulls: NullKeys) -> bool:
    """Whether NULL is a value of a key: a row replaces another one with NULL."""
    match nulls:
        case "distinct":
            return False
        case "equal":
            return True


def key_names(
    ctx: Context, loaded: LoadedTable, on: Sequence[str], operation: str
) -> tuple[str, ...]:
    """The columns of `on`, by default those of the primary key."""
    snapshot = loaded.snapshot
    names_by_id = {field.id: field.name for field in snapshot.schema.fields}
    asked = ((name, snapshot.schema.column_named(name)) for name in on)
    names = tuple(name if column is None else column.name for name, column in asked)
    names = names or tuple(names_by_id[i] for i in snapshot.primary_key if i in names_by_id)
    if not names:
        raise InvalidRequest(
            f"{operation} needs `on=`: the table has no primary key", table=ctx.uri
        )
    missing = [n for n in names if n not in snapshot.schema.names]
    if missing:
        raise SchemaMismatch(
            f"{operation} cannot match on {missing}, which the table does not have",
            next_step=snapshot.schema.other_case(missing[0])
            or f"The columns are: {', '.join(snapshot.schema.names)}",
            table=ctx.uri,
        )
    columns = [snapshot.schema.column(n) for n in names]
    nested = [c.name for c in columns if c is not None and not isinstance(c.type, Primitive)]
    if nested:
        raise InvalidRequest(f"{operation} cannot match on nested columns: {nested}", table=ctx.uri)
    return names


def given_columns(
    ctx: Context, arrow: pa.Schema, schema: Schema, names: Sequence[str], operation: str
) -> Schema:
    """The table's columns that the data has."""
    check_names(arrow, schema)
    absent = [n for n in names if n not in arrow.names]
    if absent:
        raise SchemaMismatch(
            f"the data lacks {absent}, which {operation} matches on",
            next_step="Add the columns to the data, or append it",
            table=ctx.uri,
        )
    there = frozenset(arrow.names)
    given = tuple(field for field in schema.fields if field.name in there)
    for field in given:
        within = _absent_within(arrow.field(field.name), field, field.name)
        if within is not None:
            raise SchemaMismatch(
                f"the data lacks {within!r} within a column that it has",
                next_step=f"Give {field.name!r} with all of its fields, or leave the column out: then "
                "the table's rows keep theirs",
                table=ctx.uri,
            )
    return Schema(schema.id, given, schema.version)


def _absent_within(column: pa.Field, field: Field, path: str) -> str | None:
    """A nested field of the table that the data's column lacks: replacing the column would lose it."""
    for inner, child in beside_within(column.type, field.type):
        if child is not None:
            here = f"{path}.{child.name}"
            within = here if inner is None else _absent_within(inner, child, here)
            if within is not None:
                return within
    return None


class Keys:
    """Keys as whole numbers: equal for equal keys, dense from 0; null where a part is NULL, if NULL equals
    nothing."""

    def __init__(self, columns: Sequence[pa.ChunkedArray], nulls: NullKeys = "distinct") -> None:
        self._distinct: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        # Whether NULL is a value of the column.
        self._nulls = [equates_nulls(nulls) and column.null_count > 0 for column in columns]
        codes = self._learn(columns, 0)
        for at in range(1, len(columns)):
            pairs = self._paired(codes, self._learn(columns, at), at)
            self._pairs.append(pc.unique(pairs).drop_null())
            codes = _codes_of(pairs, self._pairs[-1])
        self.codes: pa.ChunkedArray = codes

    def _learn(self, columns: Sequence[pa.ChunkedArray], at: int) -> Any:
        values = one_bit_pattern(columns[at])
        self._distinct.append(pc.unique(values).drop_null())
        return self._codes(values, at)

    def _codes(self, values: Any, at: int) -> Any:
        codes = _codes_of(values, self._distinct[at])
        if not self._nulls[at]:
            return codes
        return pc.if_else(pc.is_null(values), len(self._distinct[at]), codes)

    def _paired(self, codes: Any, next_codes: Any, at: int) -> Any:
        # At most rows x rows: 64 bits hold the square of any number of rows in memory.
        return pc.add(pc.multiply(codes, len(self._distinct[at]) + 1), next_codes)

    def find(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The codes of other rows; null also for a key that is not among these."""
        codes = self._codes(one_bit_pattern(columns[0]), 0)
        for at, column in enumerate(columns[1:], 1):
            next_codes = self._codes(one_bit_pattern(column), at)
            codes = _codes_of(self._paired(codes, next_codes, at), self._pairs[at - 1])
        return codes


def _codes_of(values: Any, distinct: pa.Array) -> Any:
    return pc.index_in(values, value_set=distinct).cast(pa.int64())


def one_bit_pattern(values: Any) -> Any:
    """Arrow compares floats by their bits, but -0.0 equals 0.0 and every NaN every other. Texts get 64-bit
    offsets: the distinct ones of all batches become one array."""
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_binary(values.type):
        return values.cast(pa.large_binary())
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = (pa.scalar(value, values.type) for value in (0.0, float("nan")))
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def note_of_nulls(keys: pa.Table) -> str:
    """What a result says of rows that have a NULL in their key, where NULL equals nothing."""
    if not any(column.null_count for column in keys.columns):
        return ""
    rows = keys.num_rows - keys.drop_null().num_rows
    were = "row has a NULL in its key and was"
    were = were if rows == 1 else "rows have a NULL in their key and were"
    return f'{rows:,} {were} inserted: NULL equals nothing, unless nulls="equal" is given'


def markers_of_keys(
    ctx: Context, loaded: LoadedTable, keys: pa.Table, nulls: NullKeys = "distinct"
) -> tuple[Marker, ...]:
    """Markers that delete the rows of these keys."""
    if not keys.num_rows:
        return ()
    markers = list(key_markers(ctx, loaded, keys))
    if equates_nulls(nulls):
        markers += _null_markers(ctx, loaded, keys)
    return tuple(markers)


def write_rows_and_markers(
    ctx: Context,
    base: LoadedTable,
    rows: Iterable[pa.RecordBatch],
    keys: pa.Table,
    nulls: NullKeys,
    *,
    upload_bytes: int,
) -> tuple[tuple[DataFile, ...], tuple[Marker, ...], LoadedTable]:
    """Data files of `rows`, markers that delete the older rows of `keys`, and the base to commit both on:
    the files, the objects of the markers and the archive of the base are one round trip, where the rows
    are about `upload_bytes` and those few."""
    with archive_beside(ctx, base, upload_bytes) as uploads:
        uploads.ctx.upload_begins()
        with ctx.beside(partial(markers_of_keys, ctx, base, keys, nulls)) as markers:
            files = tuple(write_batches(ctx, base.snapshot, rows, time_us=base.date_us))
    return files, markers.result(), uploads.base


def _null_markers(ctx: Context, loaded: LoadedTable, keys: pa.Table) -> Iterator[Marker]:
    """Of the keys with a NULL. A list of keys says nothing of NULL, so these are conditions."""
    if not any(column.null_count for column in keys.columns):
        return
    mask = reduce(pc.or_, map(pc.is_null, keys.columns))
    parts = each_key(distinct_rows(keys.filter(mask)), loaded.snapshot.schema)
    if len(parts) > MAX_LISTED_KEYS:
        raise InvalidRequest(
            f"{len(parts):,} keys with a NULL are replaced at once, more than {MAX_LISTED_KEYS}",
            next_step="Write a value in place of NULL, or fewer of these rows at a time",
            table=ctx.uri,
        )
    for start in range(0, len(parts), NULL_KEYS_OF_MARKER):
        some = parts[start : start + NULL_KEYS_OF_MARKER]
        yield marker_of(ctx, loaded, some[0] if len(some) == 1 else Or(tuple(some)))


def each_key(keys: pa.Table, schema: Schema) -> list[Predicate]:
    """For each row of `keys` the condition that selects the rows of this key, and those of no other. Raises
    `SchemaMismatch` for a column that is not a primitive one of the table."""
    parts: list[Predicate] = []
    fields = [key_field(schema, name) for name in keys.column_names]
    for row in zip(*keys.columns, strict=True):
        equals: list[Predicate] = []
        for (column, kind), value in zip(fields, row, strict=True):
            physical = to_physical(value, kind)
            equals.append(
                IsNull(column.id)
                if physical is None
                else Comparison(column.id, "=", PredicateLiteral(kind, physical))
            )
        parts.append(equals[0] if len(equals) == 1 else And(tuple(equals)))
    return parts
