"""Upsert: insert rows, replacing those with the same key.

Promise: readers see the old rows or the new ones, never both and never neither; the commit's own marker
does not hit the rows that it inserts (docs/design/design.md, section 4). No value is lost that the data
does not contain: columns that the data lacks keep the table's values, and two rows with one key are refused
unless the caller says which of them counts.

With every column given, nothing is read and nothing derived: the last writer of a key wins, in constant
time. With columns missing, the table's rows of these keys are read, and what was read is validated on every
rebase, as for an update. That counts when the commit is made: a column that is added meanwhile is missing.

Keys are compared as the format compares values: every NaN equals every other, -0.0 equals 0.0, NULL equals
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.format.predicate import FALSE, And, Comparison, In, Literal, Predicate
from inlay.format.schema import Field, ListOf, MapOf, Primitive, Schema, Struct
from inlay.format.values import order_key
from inlay.ops.commit.driver import (
    Committed,
    Planned,
    Skipped,
    already_applied,
    check_same_schema,
    commit_planned,
    current_base,
    recent_base,
)
from inlay.ops.context import Context
from inlay.ops.data import reader_of, write_batches
from inlay.ops.metadata.load import LoadedTable, load_matching
from inlay.ops.schema.categories import admit_orders
from inlay.ops.write.delete import key_markers
from inlay.parquet.arrow.categories import checked_orders
from inlay.parquet.arrow.conform import check_names, conformed
from inlay.parquet.arrow.declared import Declared
from inlay.parquet.arrow.pieces import take_rows
from inlay.parquet.arrow.types import is_list, plain_type, schema_to_arrow, to_physical
from inlay.parquet.read.reader import read_tasks
from inlay.parquet.read.selection import Wanted
from inlay.plan.change import AddFiles, AddMarkers, Change, NoNewColumns, Reads, Request
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import plan_scan

# Key values that a read looks up one by one; of more only their bounds prune.
LISTED_KEYS = 1000
ON_DUPLICATE = ("refuse", "last")


def upsert(
    ctx: Context,
    data: Any,
    *,
    on: Sequence[str] = (),
    on_duplicate: str = "refuse",
    order: str | None = None,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Inserts rows, replacing those with the same values of `on` (default: the primary key).

    Columns that the data lacks keep their values in existing rows (in each row, where the table has a key
    more than once) and have their default, else NULL, in new ones. Rows of `data` with the same key are
    refused, or with `on_duplicate="last"` the one with the greatest `order` counts, of equals the last.
    Raises `SchemaMismatch`, `InvalidRequest`.
    """
    _check_options(on_duplicate, order)
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    names = _key_names(ctx, loaded, on)
    loaded, data = admit_orders(ctx, loaded, data)
    schema = loaded.snapshot.schema
    reader = reader_of(data)
    given = _given(ctx, reader.schema, schema, names)
    if order is not None and order not in given.names:
        raise SchemaMismatch(
            f"the data lacks {order!r}, which defines the order of its rows",
            next_step=f"The columns of the data are: {', '.join(given.names)[:500]}",
            table=ctx.uri,
        )
    declared = Declared.of(loaded.snapshot)
    declared.check_meaning(reader.schema)
    rows = pa.Table.from_batches(
        conformed(checked_orders(loaded.snapshot, reader), schema, given, by_value=True),
        schema=schema_to_arrow(given),
    )
    for batch in rows.to_batches():
        declared.check(batch)
    rows = _one_of_each_key(rows, names, on_duplicate, order, ctx.uri)
    if rows.num_rows == 0 and request is None:
        return Skipped(loaded)
    named_on = loaded
    if len(given.fields) < len(schema.fields):
        loaded = current_base(ctx, loaded)

    def plan(now: LoadedTable) -> Change | Planned:
        found, on = _renamed(ctx, rows, names, given, named_on, now)
        ids = {field.id for field in given.fields}
        kept = tuple(field for field in now.snapshot.schema.fields if field.id not in ids)
        if kept:
            return _plan_partial(ctx, now, found, on, kept, request)
        found = found.select(now.snapshot.schema.names)
        added = write_batches(ctx, now.snapshot, found.to_batches(), time_us=now.date_us)
        return Change(
            operation="upsert",
            request=request,
            uploaded_us=now.date_us,
            deleted_rows=None,
            updates=(AddFiles(tuple(added)), AddMarkers(_markers(ctx, now, found, on))),
            requires=(NoNewColumns(frozenset(now.snapshot.schema.fields_by_id)),),
        )

    return commit_planned(ctx, loaded, plan)


def _renamed(
    ctx: Context,
    rows: pa.Table,
    names: tuple[str, ...],
    given: Schema,
    named_on: LoadedTable,
    loaded: LoadedTable,
) -> tuple[pa.Table, tuple[str, ...]]:
    """Rows and key columns under the current names of the fields of `given`. Raises `ConcurrentChange`
    where one was dropped or has another type: the names are those of the schema they were read under."""
    newest = [loaded.snapshot.schema.by_id(field.id) for field in given.fields]
    now = [
        field.name
        for field, was in zip(newest, given.fields, strict=True)
        if field is not None and field.type == was.type
    ]
    if len(now) < len(newest):
        check_same_schema(ctx, named_on, loaded)
    by_name = dict(zip(given.names, now, strict=True))
    renamed = rows.rename_columns([by_name[name] for name in rows.column_names])
    return renamed, tuple(by_name[name] for name in names)


def _markers(
    ctx: Context, loaded: LoadedTable, rows: pa.Table, names: Sequence[str]
) -> tuple[Any, ...]:
    return tuple(key_markers(ctx, loaded, rows.select(list(names)))) if rows.num_rows else ()


# -- what is asked --------------------------------------------------------------------------------


def _check_options(on_duplicate: str, order: str | None) -> None:
    if on_duplicate not in ON_DUPLICATE:
        raise InvalidRequest(
            f"on_duplicate cannot be {str(on_duplicate)[:50]!r}",
            next_step=f"It is one of {', '.join(ON_DUPLICATE)}",
        )
    if order is not None and on_duplicate != "last":
        raise InvalidRequest(
            "order needs on_duplicate: it decides which of several rows of a key is the last",
            next_step='Give on_duplicate="last" with it',
        )


def _key_names(ctx: Context, loaded: LoadedTable, on: Sequence[str]) -> tuple[str, ...]:
    snapshot = loaded.snapshot
    names_by_id = {field.id: field.name for field in snapshot.schema.fields}
    names = tuple(on) or tuple(names_by_id[i] for i in snapshot.primary_key if i in names_by_id)
    if not names:
        raise InvalidRequest("upsert needs `on=`: the table has no primary key", table=ctx.uri)
    missing = [n for n in names if n not in snapshot.schema.names]
    if missing:
        raise SchemaMismatch(
            f"upsert cannot match on {missing}, which the table does not have",
            next_step=f"The columns are: {', '.join(snapshot.schema.names)}",
            table=ctx.uri,
        )
    columns = [snapshot.schema.column(n) for n in names]
    nested = [c.name for c in columns if c is not None and not isinstance(c.type, Primitive)]
    if nested:
        raise InvalidRequest(f"upsert cannot match on nested columns: {nested}", table=ctx.uri)
    return names


def _given(ctx: Context, arrow: pa.Schema, schema: Schema, names: Sequence[str]) -> Schema:
    """The table's columns that the data has."""
    check_names(arrow, schema)
    absent = [n for n in names if n not in arrow.names]
    if absent:
        raise SchemaMismatch(
            f"the data lacks {absent}, which upsert matches on",
            next_step="Add the columns to the data, or append it",
            table=ctx.uri,
        )
    given = tuple(field for field in schema.fields if field.name in arrow.names)
    for field in given:
        within = _absent_within(arrow.field(field.name).type, field, field.name)
        if within is not None:
            raise SchemaMismatch(
                f"the data lacks {within!r} within a column that it has",
                next_step=f"Give {field.name!r} with all of its fields, or leave the column out: then "
                "the table's rows keep theirs",
                table=ctx.uri,
            )
    return Schema(schema.id, given, schema.version)


def _absent_within(arrow: pa.DataType, field: Field, path: str) -> str | None:
    """A nested field of the table that the data's column lacks: replacing the column would lose it."""
    arrow = plain_type(arrow)
    pairs: list[tuple[pa.DataType | None, Field]] = []
    match field.type:
        case Struct(fields) if pa.types.is_struct(arrow):
            at = {arrow.field(n).name: arrow.field(n).type for n in range(arrow.num_fields)}
            pairs = [(at.get(child.name), child) for child in fields]
        case ListOf(element) if is_list(arrow):
            pairs = [(arrow.value_type, replace(element, name="element"))]
        case MapOf(key, value) if pa.types.is_map(arrow):
            pairs = [
                (arrow.key_type, replace(key, name="key")),
                (arrow.item_type, replace(value, name="value")),
            ]
    for found, child in pairs:
        here = f"{path}.{child.name}"
        within = here if found is None else _absent_within(found, child, here)
        if within is not None:
            return within
    return None


# -- keys -----------------------------------------------------------------------------------------


class _Keys:
    """Keys as whole numbers: equal for equal keys, dense from 0; null where a part is NULL."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._distinct: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes = self._learn(self._distinct, columns[0])
        for column in columns[1:]:
            next_codes = self._learn(self._distinct, column)
            pairs = self._paired(codes, next_codes, len(self._distinct) - 1)
            codes = self._learn(self._pairs, pairs)
        self.codes: pa.ChunkedArray = codes

    @staticmethod
    def _learn(learnt: list[pa.Array], values: pa.ChunkedArray) -> pa.ChunkedArray:
        values = _one_bit_pattern(values)
        learnt.append(pc.unique(values).drop_null())
        return _codes_of(values, learnt[-1])

    def _paired(self, codes: Any, next_codes: Any, at: int) -> Any:
        # At most rows x rows: 64 bits hold the square of any number of rows in memory.
        return pc.add(pc.multiply(codes, max(1, len(self._distinct[at]))), next_codes)

    def find(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The codes of other rows; null also for a key that is not among these."""
        codes = _codes_of(_one_bit_pattern(columns[0]), self._distinct[0])
        for at, column in enumerate(columns[1:], 1):
            next_codes = _codes_of(_one_bit_pattern(column), self._distinct[at])
            codes = _codes_of(self._paired(codes, next_codes, at), self._pairs[at - 1])
        return codes


def _codes_of(values: Any, distinct: pa.Array) -> Any:
    return pc.index_in(values, value_set=distinct).cast(pa.int64())


def _one_bit_pattern(values: Any) -> Any:
    """Arrow compares floats by their bits, but -0.0 equals 0.0 and every NaN every other. Texts get 64-bit
    offsets: the distinct ones of all batches become one array."""
    if pa.types.is_string(values.type):
        return values.cast(pa.large_string())
    if pa.types.is_binary(values.type):
        return values.cast(pa.large_binary())
    if not pa.types.is_floating(values.type):
        return values
    zero, nan = (pa.scalar(each, values.type) for each in (0.0, float("nan")))
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def _one_of_each_key(
    rows: pa.Table, names: Sequence[str], on_duplicate: str, order: str | None, table: str
) -> pa.Table:
    """A row with a NULL key equals no other row: each one is inserted."""
    codes = _Keys([rows.column(name) for name in names]).codes
    numbers = pa.array(range(rows.num_rows), pa.int64())
    # Generated names: the table may have columns of any name.
    keyed = pa.table({"key": codes, "rank": _ranks(rows, order), "row": numbers})
    unkeyed = keyed.filter(pc.is_null(keyed["key"]))
    keyed = keyed.filter(pc.is_valid(keyed["key"]))
    groups = keyed.group_by("key", use_threads=False).aggregate([("rank", "max"), ("row", "count")])
    if groups.num_rows == keyed.num_rows:
        return rows
    if on_duplicate == "refuse":
        several = pc.sum(pc.greater(groups["row_count"], 1)).as_py()
        rows_of = keyed.num_rows - groups.num_rows + several
        raise InvalidRequest(
            f"the data has {rows_of:,} rows for {several:,} "
            f"{'key' if several == 1 else 'keys'} of {', '.join(names)}: one row of each is needed",
            next_step='Keep one row of each key, or give on_duplicate="last", with order="column" '
            "if the greatest value of a column should count in place of the last row",
            table=table,
        )
    last = keyed.filter(pc.is_in(keyed["rank"], value_set=groups["rank_max"].combine_chunks()))
    kept = pa.concat_arrays([*last["row"].chunks, *unkeyed["row"].chunks, pa.array([], pa.int64())])
    # Not by `take`, which joins the batches of a column: beyond 2 GiB of text it cannot.
    return rows.filter(pc.is_in(numbers, value_set=kept))


def _ranks(rows: pa.Table, order: str | None) -> pa.Array:
    """The rank of each row by `order`: NULL first, NaN last, equals in the given order."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    if order is None:
        return numbers
    values = rows.column(order)
    if pa.types.is_nested(values.type):
        raise InvalidRequest(f"rows cannot be ordered by {order!r}, which is nested")
    is_nan = pc.is_nan(values) if pa.types.is_floating(values.type) else pc.is_null(values)
    # 0 for NULL, 1 for a value, 2 for NaN: Arrow would put NULL and NaN on one side.
    kind = pc.if_else(pc.is_null(values), 0, pc.if_else(is_nan, 2, 1))
    by = pa.table({"kind": kind, "value": values, "row": numbers})
    keys = [("kind", "ascending"), ("value", "ascending"), ("row", "ascending")]
    sorted_rows = pc.sort_indices(by, sort_keys=keys)
    return pc.sort_indices(sorted_rows).cast(pa.int64())  # the permutation's inverse


# -- columns that the data lacks ------------------------------------------------------------------


@dataclass(slots=True)
class _Merge:
    """Rows of the data with the values of the table's rows of the same keys in the columns it lacks."""

    rows: pa.Table
    names: tuple[str, ...]
    kept: tuple[Field, ...]
    schema: Schema
    files: set[str]
    replaced: int = 0

    def batches(self, old: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """`old` are batches of the key columns, those in `kept`, and the file, in this order."""
        keys = _Keys([self.rows.column(name) for name in self.names])
        # Which row has each code; a code is in one row only. Nulls are sorted to the end.
        order = pc.sort_indices(keys.codes).cast(pa.int64())
        row_of = order.slice(0, len(keys.codes) - keys.codes.null_count)
        matched = [pa.array([], pa.int64())]
        arrow = schema_to_arrow(self.schema)
        for batch in old:
            columns, file = batch.columns[:-1], batch.columns[-1]
            codes = keys.find(columns[: len(self.names)])
            found = pc.is_valid(codes)
            if not pc.any(found, min_count=0).as_py():
                continue
            at = row_of.take(codes.filter(found))
            self.files.add(file[0].as_py())
            self.replaced += len(at)
            matched.append(pc.unique(at))
            old_rows = [column.filter(found) for column in columns[len(self.names) :]]
            done = 0
            for new in take_rows(self.rows, at, at_a_time=max(1, len(at))):
                values = dict(zip(new.schema.names, new.columns, strict=True))
                for field, column in zip(self.kept, old_rows, strict=True):
                    values[field.name] = column.slice(done, new.num_rows)
                done += new.num_rows
                yield pa.RecordBatch.from_arrays(
                    [values[name] for name in arrow.names], schema=arrow
                )
        numbers = pa.array(range(self.rows.num_rows), pa.int64())
        there = pc.is_in(numbers, value_set=pa.concat_arrays(matched))
        new = self.rows.filter(pc.invert(there))
        yield from conformed(new.to_batches(), self.schema, self.schema)


def _plan_partial(
    ctx: Context,
    loaded: LoadedTable,
    rows: pa.Table,
    names: tuple[str, ...],
    kept: tuple[Field, ...],
    request: Request | None,
) -> Planned:
    snapshot = loaded.snapshot
    schema = snapshot.schema
    predicate = _reads(rows, names, schema)
    loaded = replace(loaded, state=load_matching(ctx, loaded.state, predicate))
    plan = plan_scan(
        loaded.state.loaded_files(),
        loaded.state.markers(),
        predicate,
        evidence=Evidence.of_snapshot(snapshot),
    )
    ids = {field.name: field.id for field in schema.fields}
    wanted = Wanted(
        schema=schema,
        columns=(*(ids[name] for name in names), *(field.id for field in kept)),
        file=True,
    )
    merge = _Merge(rows, names, kept, schema, set())
    old = read_tasks(ctx.objects, plan.tasks, wanted, ctx.executor)
    # Now: what the change says of the old rows is known when they have been read.
    added = tuple(
        write_batches(
            ctx,
            snapshot,
            merge.batches(batch for batch in old if batch.num_rows),
            time_us=loaded.date_us,
        )
    )
    change = Change(
        operation="upsert",
        request=request,
        uploaded_us=loaded.date_us,
        deleted_rows=merge.replaced,
        updates=(
            AddFiles(added),
            AddMarkers(_markers(ctx, loaded, rows, names)),
        ),
        requires=(Reads(predicate, snapshot.version, frozenset(merge.files)),),
    )
    return Planned(change, loaded)


def _reads(rows: pa.Table, names: Sequence[str], schema: Schema) -> Predicate:
    """A condition that holds for every row of the table with one of these keys."""
    parts: list[Predicate] = []
    for name in names:
        field = schema.column(name)
        assert field is not None and isinstance(field.type, Primitive)
        values = pc.unique(_one_bit_pattern(rows.column(name))).drop_null()
        if not len(values):
            return FALSE
        if len(values) <= LISTED_KEYS:
            listed = {to_physical(value, field.type) for value in values}
            ordered = sorted((v for v in listed if v is not None), key=order_key)
            distinct = {order_key(v): v for v in ordered}
            parts.append(In(field.id, field.type, tuple(distinct.values())))
        elif not field.type.is_float:
            bounds = pc.min_max(values)
            for op, bound in ((">=", bounds["min"]), ("<=", bounds["max"])):
                value = to_physical(bound, field.type)
                assert value is not None
                parts.append(Comparison(field.id, op, Literal(field.type, value)))  # type: ignore[arg-type]
    return And(tuple(parts))
