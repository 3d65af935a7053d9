"""The rows that a table has under the keys of a write: a condition for them, and the read by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from inlay.format.predicate import FALSE, And, Comparison, In, IsNull, Or, Predicate
from inlay.format.predicate import Literal as PredicateLiteral
from inlay.format.schema import Schema
from inlay.format.values import order_key
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_matching
from inlay.ops.write.delete import key_field
from inlay.ops.write.keyed_rows import NullKeys, equates_nulls, one_bit_pattern
from inlay.parquet.arrow.types import to_physical
from inlay.parquet.read.selection import Projection
from inlay.plan.scan import loaded_tasks
from inlay.record import replace

# Key values that a read looks up one by one; of more only their bounds prune.
LISTED_KEYS = 1000


def read_matching(
    ctx: Context, loaded: LoadedTable, predicate: Predicate, columns: Sequence[int]
) -> tuple[LoadedTable, Iterator[pa.RecordBatch]]:
    """Batches of these columns, and the file, of the live rows for which `predicate` is TRUE; the
    table with the entries that were loaded for it."""
    loaded = replace(loaded, state=load_matching(ctx, loaded.state, predicate))
    projection = Projection(schema=loaded.snapshot.schema, columns=tuple(columns), file=True)
    batches = ctx.reader.rows(loaded_tasks(loaded.state, predicate), projection)
    return loaded, (batch for batch in batches if batch.num_rows)


def keys_predicate(
    rows: pa.Table, names: Sequence[str], schema: Schema, nulls: NullKeys = "distinct"
) -> Predicate:
    """A condition that holds for every row of the table with one of these keys. `names` are the columns of
    `rows`, and of the schema."""
    parts: list[Predicate] = []
    for name in names:
        field, kind = key_field(schema, name)
        field_id, column = field.id, rows.column(name)
        values = pc.unique(one_bit_pattern(column)).drop_null()
        some: list[Predicate] = []
        if equates_nulls(nulls) and column.null_count:
            some.append(IsNull(field_id))
        if not len(values) and not some:
            return FALSE
        if len(values) > LISTED_KEYS and kind.is_float:
            continue
        if len(values) > LISTED_KEYS:
            bounds = pc.min_max(values)
            low, high = (to_physical(bounds[end], kind) for end in ("min", "max"))
            assert low is not None and high is not None
            least = Comparison(field_id, ">=", PredicateLiteral(kind, low))
            some.append(And((least, Comparison(field_id, "<=", PredicateLiteral(kind, high)))))
        elif len(values):
            listed = {to_physical(value, kind) for value in values}
            ordered = sorted((v for v in listed if v is not None), key=order_key)
            distinct = {order_key(v): v for v in ordered}
            some.append(In(field_id, kind, tuple(distinct.values())))
        if len(some) > 1:
            parts.append(Or(tuple(some)))
        elif isinstance(some[0], And):
            parts += some[0].parts
        else:
            parts += some
    return And(tuple(parts))
