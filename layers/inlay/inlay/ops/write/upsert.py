"""Upsert: insert rows, replacing those with the same key.

Promise: readers see the old rows or the new ones, never both and never neither; the commit's own marker
does not hit the rows that it inserts (docs/FORMAT.md, section 8). No value is lost that the data
does not contain: columns that the data lacks keep the table's values, and two rows with one key are refused
unless the caller says which of them counts.

With every column given, nothing is read and nothing derived: the last writer of a key wins, in constant
time. With columns missing, the table's rows of these keys are read, and what was read is validated on every
rebase, as for an update. That counts when the commit is made: a column that is added meanwhile is missing.

A row with a NULL in its key replaces none, and each one is inserted, unless NULL is said to equal NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inlay.arguments import one_of
from inlay.errors import InvalidRequest, SchemaMismatch
from inlay.format.schema import Schema
from inlay.format.snapshot import Snapshot
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
from inlay.ops.data import reader_of
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.admit import admit_orders
from inlay.ops.write.keyed_rows import (
    NULL_KEYS,
    Keys,
    NullKeys,
    equates_nulls,
    given_columns,
    key_names,
    note_of_nulls,
    write_rows_and_markers,
)
from inlay.parquet.arrow.conform import conformed
from inlay.parquet.arrow.declared import Declared, checked_orders
from inlay.parquet.arrow.newest_rows import newest, ranks
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.plan.change import AddFiles, AddMarkers, Change, NoNewColumns, Request
from inlay.record import replace

ON_DUPLICATE = ("refuse", "last")


def upsert(
    ctx: Context,
    data: Any,
    *,
    on: Sequence[str] = (),
    on_duplicate: str = "refuse",
    order: str | None = None,
    nulls: NullKeys = "distinct",
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Inserts rows, replacing those with the same values of `on` (default: the primary key).

    Columns that the data lacks keep their values in existing rows (in each row, where the table has a key
    more than once) and have their default, else NULL, in new ones. Rows of `data` with the same key are
    refused, or with `on_duplicate="last"` the one with the greatest `order` counts, of equals the last.
    `nulls`: whether a NULL in a key equals another one.
    Raises `SchemaMismatch`, `InvalidRequest`.
    """
    one_of(nulls, "nulls", NULL_KEYS)
    one_of(on_duplicate, "on_duplicate", ON_DUPLICATE)
    if order is not None and on_duplicate != "last":
        raise InvalidRequest(
            "order needs on_duplicate: it decides which of several rows of a key is the last",
            next_step='Give on_duplicate="last" with it',
        )
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    names = key_names(ctx, loaded, on, "upsert")
    loaded, data = admit_orders(ctx, loaded, data)
    snapshot, reader = loaded.snapshot, reader_of(data)
    given = given_columns(ctx, reader.schema, snapshot.schema, names, "upsert")
    order = None if order is None else _order_column(ctx, snapshot.schema, given, order)
    rows = _read(snapshot, reader, given)
    rows = _one_of_each_key(rows, names, on_duplicate, order, nulls, ctx.uri)
    if rows.num_rows == 0 and request is None:
        return Skipped(loaded)
    named_on = loaded
    if len(given.fields) < len(snapshot.schema.fields):
        loaded = current_base(ctx, loaded)

    def plan(now: LoadedTable) -> Planned:
        rows_now, on = _renamed(ctx, rows, names, given, named_on, now)
        ids = {field.id for field in given.fields}
        kept = tuple(field for field in now.snapshot.schema.fields if field.id not in ids)
        if kept:
            from inlay.ops.write.partial_upsert import plan_partial  # most data has all columns

            return plan_partial(ctx, now, rows_now, on, kept, nulls, request)
        rows_now = rows_now.select(now.snapshot.schema.names)
        keys = rows_now.select(list(on))
        added, markers, now = write_rows_and_markers(
            ctx, now, rows_now.to_batches(), keys, nulls, upload_bytes=rows_now.nbytes
        )
        change = Change(
            operation="upsert",
            request=request,
            uploaded_us=now.date_us,
            deleted_rows=None,
            updates=(AddFiles(added), AddMarkers(markers)),
            requires=(NoNewColumns(frozenset(now.snapshot.schema.fields_by_id)),),
        )
        return Planned(change, now)

    outcome = commit_planned(ctx, loaded, plan)
    if isinstance(outcome, Skipped) or equates_nulls(nulls):
        return outcome
    return replace(outcome, note=note_of_nulls(rows.select(list(names))))


def _read(snapshot: Snapshot, reader: pa.RecordBatchReader, given: Schema) -> pa.Table:
    """The rows in the table's types, `given` being their columns. Raises `SchemaMismatch`."""
    declared = Declared.of(snapshot)
    declared.check_meaning(reader.schema)
    batches = conformed(checked_orders(snapshot, reader), snapshot.schema, given, by_value=True)
    return pa.Table.from_batches(declared.checked(batches), schema=schema_to_arrow(given))


def _order_column(ctx: Context, schema: Schema, given: Schema, order: str) -> str:
    """The name of the column `order`, which the data has. Raises `SchemaMismatch`."""
    field = schema.column_named(order)
    order = order if field is None else field.name
    if order not in given.names:
        raise SchemaMismatch(
            f"the data lacks {order!r}, which defines the order of its rows",
            next_step=f"The columns of the data are: {', '.join(given.names)[:500]}",
            table=ctx.uri,
        )
    return order


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


def _one_of_each_key(
    rows: pa.Table,
    names: Sequence[str],
    on_duplicate: str,
    order: str | None,
    nulls: NullKeys,
    table: str,
) -> pa.Table:
    codes = Keys([rows.column(name) for name in names], nulls).codes
    by_order = [] if order is None else [rows.column(order)]
    kept = newest(codes, ranks(by_order, None, rows.num_rows))
    superseded = rows.num_rows - kept.true_count
    if not superseded:
        return rows
    if on_duplicate == "refuse":
        counts = pc.value_counts(codes.drop_null()).field("counts")
        several = pc.sum(pc.greater(counts, 1)).as_py()
        rows_of = superseded + several
        raise InvalidRequest(
            f"the data has {rows_of:,} rows for {several:,} "
            f"{'key' if several == 1 else 'keys'} of {', '.join(names)}: one row of each is needed",
            next_step='Keep one row of each key, or give on_duplicate="last", with order="column" '
            "if the greatest value of a column should count in place of the last row",
            table=table,
        )
    return rows.filter(kept)
