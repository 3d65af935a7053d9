"""Erasures of what change streams remember of deletes."""

from __future__ import annotations

import pyarrow as pa

from inlay.errors import InvalidRequest
from inlay.format.predicate import FALSE, Or, Predicate, field_ids, mapped
from inlay.format.schema import Schema
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.metadata.memory import column_of
from inlay.ops.write.keyed_rows import MAX_LISTED_KEYS, each_key
from inlay.ops.write.old_rows import read_matching
from inlay.parquet.arrow.pieces import distinct_rows
from inlay.parquet.arrow.types import schema_to_arrow
from inlay.record import replace


def remembered_by(
    ctx: Context, loaded: LoadedTable, memory: LoadedTable, predicate: Predicate
) -> Predicate:
    """The condition of an erasure of what change streams remember of such rows, in `memory`: the same where
    it asks for the key only, else the keys of the rows that it selects now."""
    schema, named = loaded.snapshot.schema, memory.snapshot.schema
    by_id = {field.id: field.name for field in named.fields}
    key_names = {by_id[i] for i in memory.snapshot.primary_key}
    keys = [field for field in schema.fields if column_of(field.id) in key_names]
    ids = {field.id: named.fields[named.names.index(column_of(field.id))].id for field in keys}
    if field_ids(predicate) <= ids.keys():
        return mapped(predicate, lambda node: replace(node, field_id=ids[node.field_id]))
    _, batches = read_matching(ctx, loaded, predicate, tuple(ids))
    names = [column_of(field_id) for field_id in ids]
    kinds = schema_to_arrow(Schema(0, tuple(keys)), with_ids=False)
    rows = [pa.record_batch(batch.columns[:-1], schema=kinds) for batch in batches]
    selected = pa.Table.from_batches(rows, kinds).rename_columns(names)
    parts = each_key(distinct_rows(selected), named)
    if len(parts) > MAX_LISTED_KEYS:
        raise InvalidRequest(
            f"the condition selects rows of {len(parts):,} keys, more than {MAX_LISTED_KEYS}: what "
            "change streams remember of deletes is erased by key",
            next_step=f"Erase by the key ({', '.join(f.name for f in keys)}), or in several steps",
            table=ctx.uri,
        )
    return Or(tuple(parts)) if len(parts) > 1 else parts[0] if parts else FALSE
