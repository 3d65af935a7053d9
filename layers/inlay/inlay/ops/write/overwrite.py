"""Overwrite: rows in place of those that a condition selects, in one commit.

Promise: readers see the old rows or the new ones. What the condition selects of the table as it is when the
commit is made is replaced, rows that were committed a moment before included; nothing is read, and it
conflicts with nothing that an append or a constant-time delete does not conflict with. Every new row makes
the condition TRUE, else nothing is committed: an overwrite that is repeated replaces itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from inlay.errors import InvalidPredicate, InvalidRequest
from inlay.format.expression import Condition
from inlay.format.predicate import TRUE
from inlay.ops.commit.driver import (
    Committed,
    Skipped,
    already_applied,
    check_same_schema,
    commit_planned,
    recent_base,
)
from inlay.ops.context import Context
from inlay.ops.data import write_data
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.admit import admit_rows
from inlay.ops.write.delete import marker_of
from inlay.parquet.arrow.evaluate import columns_of, selected
from inlay.plan.change import AddFiles, AddMarkers, Change, Request


def overwrite(
    ctx: Context,
    data: Any,
    condition: Condition,
    *,
    base: LoadedTable | None = None,
    request: Request | None = None,
) -> Committed | Skipped:
    """Replaces the rows for which the condition is TRUE by `data`. Raises `InvalidPredicate` for a
    condition that calculates, `InvalidRequest` for a row that it does not select, `SchemaMismatch`."""
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    if condition.calculated is not None:
        raise InvalidPredicate(
            "overwrite keeps its condition, and one that calculates cannot be kept",
            next_step="Compare columns with literals",
            text=condition.text,
            table=ctx.uri,
        )
    loaded, data = admit_rows(ctx, loaded, data)
    bound, predicate = loaded, condition.predicate

    def plan(now: LoadedTable) -> Change:
        check_same_schema(ctx, bound, now)
        columns = columns_of(now.snapshot.schema)

        def inside(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                outside = 0
                if predicate != TRUE:
                    outside = batch.num_rows - selected(predicate, batch, columns).true_count
                if outside:
                    raise InvalidRequest(
                        f"{outside:,} rows of a batch are not among those that the condition selects: "
                        "they would stay when this is repeated",
                        next_step="Leave them out, or widen the condition",
                        table=ctx.uri,
                    )
                yield batch

        files = tuple(write_data(ctx, now.snapshot, data, time_us=now.date_us, only=inside))
        return Change(
            operation="overwrite",
            request=request,
            uploaded_us=now.date_us,
            deleted_rows=None,
            updates=(AddFiles(files), AddMarkers((marker_of(ctx, now, predicate),))),
        )

    return commit_planned(ctx, loaded, plan, once=isinstance(data, pa.RecordBatchReader))
