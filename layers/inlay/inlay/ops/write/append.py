"""Append: rows become data files, then one commit.

Promise: the rows are in the table once, or the call fails and they are not; repeated with the same
request id it changes nothing. Appends commute with everything, so a lost race costs two requests.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from inlay.ops.commit.base import already_applied, check_same_schema, recent_base
from inlay.ops.commit.driver import Committed, Skipped, commit_planned
from inlay.ops.commit.group import commit_together
from inlay.ops.context import Context
from inlay.ops.data.data_files import reader_of, write_data
from inlay.ops.metadata.load import LoadedTable
from inlay.ops.schema.alter import adds_columns, admit_columns
from inlay.plan.change import AddFiles, Change, Request


def append(
    ctx: Context, data: Any, *, base: LoadedTable | None = None, request: Request | None = None
) -> Committed | Skipped:
    """Appends any Arrow data (`ops.data.data_files`). Raises `SchemaMismatch` before anything is written
    when the data does not fit, `StaleUpload` when GC overtook the upload and the data can be read only
    once."""
    loaded, before = already_applied(ctx, recent_base(ctx, base), request)
    if before is not None:
        return before
    if adds_columns(loaded):
        # Only a table or batch can be inspected before it is read.
        data = data if isinstance(data, pa.Table | pa.RecordBatch) else reader_of(data)
        loaded = admit_columns(ctx, loaded, [data.schema])

    bound = loaded

    def plan(loaded: LoadedTable) -> Change | None:
        check_same_schema(ctx, bound, loaded)
        files = tuple(write_data(ctx, loaded.snapshot, data, time_us=loaded.date_us))
        if not files and request is None:
            return None
        return Change(
            operation="append",
            request=request,
            uploaded_us=loaded.date_us,
            updates=(AddFiles(files),),
        )

    if isinstance(data, pa.RecordBatchReader):
        return commit_planned(ctx, loaded, plan, plans=1, uploads=1, submit=commit_together)
    return commit_planned(ctx, loaded, plan, submit=commit_together)
