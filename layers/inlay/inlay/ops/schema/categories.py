"""Orders of categories that rows bring, appended or in files: kept in the table before the rows are.

Promise: what a scan says of an order is what the data said. A dictionary that contradicts the order of its
column, or does not say where its new entries belong, is refused by column before anything is written.

The order is in the property `arrow.categories`, and one commit of its own changes it: first where a
column gets its first order, later where data brings more entries. Entries are values of rows: an erasure
drops those that no row has (`ops.erase.finish`), and while one is open data brings only entries that its
rows have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from inlay.errors import SchemaMismatch
from inlay.format.entry import DataFile
from inlay.format.properties import ARROW_CATEGORIES, arrow_categories, categories_text
from inlay.format.schema import Primitive, Schema
from inlay.format.snapshot import Snapshot
from inlay.ops.commit.driver import commit_planned
from inlay.ops.context import Context
from inlay.ops.data import reader_of
from inlay.ops.metadata.load import LoadedTable
from inlay.parquet.arrow.categories import (
    MAX_ENTRIES,
    UNORDERED,
    Entries,
    Given,
    as_given,
    contradiction,
    entries_of,
    given_orders,
    merged,
    name_of,
    unused,
)
from inlay.parquet.arrow.declared import ordered_columns
from inlay.parquet.read.reader import Reader
from inlay.parquet.read.selection import Projection, subschema
from inlay.plan.change import Change, SameProperty, SameSchema, SetProperties
from inlay.plan.pruning.prune import Evidence
from inlay.plan.scan import FileTask, plan_scan
from inlay.record import replace

# Of all columns together: they are in the pointer, which every commit rewrites.
MAX_BYTES = 16 * 1024


def admit_orders(ctx: Context, loaded: LoadedTable, data: Any) -> tuple[LoadedTable, Any]:
    """The table with the orders that the data brings, and the data: what can be read only once may have
    been begun. Raises `SchemaMismatch`. Of a stream the first batch counts; the others have to agree."""
    batches, given = _begun(data)
    if not batches:
        return loaded, given

    def orders_of(snapshot: Snapshot) -> Mapping[int, Given]:
        return given_orders(batches, snapshot.schema, ordered_columns(snapshot))

    return _admitted(ctx, loaded, orders_of), given


def with_first_orders(ctx: Context, snapshot: Snapshot, data: Any) -> tuple[Snapshot, Any]:
    """A first snapshot with the orders of the rows that its table begins with, and the rows, as
    `admit_orders` gives them."""
    batches, given = _begun(data)
    text = _text(ctx, snapshot, given_orders(batches, snapshot.schema, ordered_columns(snapshot)))
    properties = {**snapshot.properties, **({ARROW_CATEGORIES: text} if text else {})}
    return replace(snapshot, properties=properties), given


def _begun(data: Any) -> tuple[list[pa.RecordBatch], Any]:
    """The batches whose orders count, none where data has no ordered dictionary; and the data."""
    given = data
    if not isinstance(data, pa.Table | pa.RecordBatch):
        given = reader_of(data)
        if not any(map(_has_order, given.schema)):
            return [], given
        if not isinstance(data, pa.RecordBatchReader):
            given = given.read_all()  # it is in memory as it is
    if not isinstance(given, pa.RecordBatchReader):
        return _batches(given) if isinstance(given, pa.Table) else [given], given
    first = next(iter(given), None)
    if first is None:
        return [], given
    return [first], pa.RecordBatchReader.from_batches(given.schema, chain([first], given))


def admit_file(
    ctx: Context, loaded: LoadedTable, reader: Reader, file: DataFile, orders: Mapping[int, int]
) -> LoadedTable:
    """The table with the orders of a file: those of its dictionaries, whose columns `orders` has by field
    id. Which entries rows have is not looked at. Raises `SchemaMismatch`, and as `Reader.open` does."""
    from inlay.parquet.surgery.residue import dictionary_entries  # appends read no file

    task = FileTask(file=file, schema=loaded.snapshot.schema)
    opened = reader.open(task)
    fields = {leaf: field_id for field_id, leaf in orders.items()}
    given: dict[int, Given] = {}
    for leaf, values in dictionary_entries(opened, ctx.executor, fields):
        field_id = fields[leaf]
        field = loaded.snapshot.schema.by_id(field_id)
        assert field is not None and isinstance(field.type, Primitive)
        entries = entries_of(values.slice(0, MAX_ENTRIES), field.type)
        given.setdefault(field_id, Given(field.type)).orders.setdefault(entries)

    def orders_of(snapshot: Snapshot) -> Mapping[int, Given]:
        return {i: order for i, order in given.items() if i in ordered_columns(snapshot)}

    return _admitted(ctx, loaded, orders_of)


def _admitted(
    ctx: Context, loaded: LoadedTable, orders_of: Callable[[Snapshot], Mapping[int, Given]]
) -> LoadedTable:
    def plan(now: LoadedTable) -> Change | None:
        snapshot = now.snapshot
        text = _text(ctx, snapshot, orders_of(snapshot))
        before = snapshot.properties.get(ARROW_CATEGORIES)
        if text is None:
            return None
        return Change(
            operation="set_properties",
            updates=(SetProperties({ARROW_CATEGORIES: text}),),
            # Entries are values in the form of their column's type, which may become wider meanwhile.
            requires=(
                SameProperty(ARROW_CATEGORIES, before),
                SameSchema(snapshot.schema_id),
            ),
        )

    return commit_planned(ctx, loaded, plan).loaded


def _text(ctx: Context, snapshot: Snapshot, given: Mapping[int, Given]) -> str | None:
    """The property with these orders, too; None where it has them."""
    known = arrow_categories(snapshot.properties)
    orders = given.items()
    new = {**known, **{i: _order(ctx, snapshot, i, g, known.get(i)) for i, g in orders}}
    if new == known:
        return None
    text = categories_text(new)
    if len((text or "").encode()) > MAX_BYTES:
        raise SchemaMismatch(
            f"the ordered categories of the table would take more than {MAX_BYTES // 1024} KiB",
            next_step=f"Remove unused categories; {UNORDERED}",
            table=ctx.uri,
        )
    return text


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Without rows the dictionaries are still there, which Arrow leaves out: so the order of rows that came
    by another way can be told."""
    if table.num_rows:
        return list(table.to_batches())
    chunks = [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns]
    return [pa.RecordBatch.from_arrays(chunks, schema=table.schema)]


def _has_order(column: pa.Field | pa.DataType) -> bool:
    kind = column.type if isinstance(column, pa.Field) else column
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        return bool(kind.ordered)
    return any(_has_order(kind.field(at)) for at in range(kind.num_fields))


def _order(
    ctx: Context, snapshot: Snapshot, field_id: int, given: Given, known: Entries | None
) -> Entries:
    order = known or ()
    for entries in given.orders:
        both = merged(order, as_given(entries, given, order, snapshot))
        if both is None:
            raise contradiction(snapshot, field_id).about(table=ctx.uri)
        order = both
    most = ordered_columns(snapshot)[field_id]
    if len(order) > most:
        raise SchemaMismatch(
            f"column {name_of(snapshot, field_id)!r} has more categories than its dictionary's index can "
            f"number, {most:,}",
            next_step=f"Make a column with a wider index; {UNORDERED}",
            table=ctx.uri,
        )
    return order


def unused_entries(
    ctx: Context, loaded: LoadedTable, orders: Mapping[int, Entries]
) -> dict[int, set[Any]]:
    """By field id the entries that no live row of this content has; its entries are loaded."""
    schema, state = loaded.snapshot.schema, loaded.state
    tops = tuple(
        top.id
        for top in schema.fields
        if any(node.id in orders for _, node in Schema(0, (top,)).walk())
    )
    if not tops:
        return {i: set(entries) for i, entries in orders.items()}
    evidence = Evidence.of_snapshot(loaded.snapshot)
    plan = plan_scan(state.files(), state.markers(), evidence=evidence)
    reading = ctx.reader.rows(plan.tasks, Projection(schema=schema, columns=tops))
    return unused(reading, subschema(schema, tops), orders)
