"""Append: rows become data files, then one commit.

Promise: the rows are in the table once, or the call fails and they are not; repeated with the same
request id it changes nothing. Appends commute with everything, so a lost race costs two requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from inlay.errors import StaleUpload
from inlay.format.entry import DataFile
from inlay.ops.alter import adds_columns, admit_columns
from inlay.ops.commit import Committed, Skipped, expect_committed
from inlay.ops.context import Context
from inlay.ops.fresh import current_base as current_base
from inlay.ops.fresh import fresh_base as fresh_base
from inlay.ops.group import commit_together
from inlay.ops.load import Loaded, load_pointer
from inlay.ops.once import already_applied
from inlay.ops.write import reader_of, write_data
from inlay.plan.change import Change, Request


def append(
    ctx: Context, data: Any, *, base: Loaded | None = None, request: Request | None = None
) -> Committed | Skipped:
    """Append whatever speaks Arrow (`ops.write`). Raises `SchemaMismatch` before anything is
    written when the data does not fit, `StaleUpload` when GC overtook the upload and the data can be
    read only once."""
    loaded = fresh_base(ctx, base)
    loaded, before = already_applied(ctx, loaded, request)
    if before is not None:
        return before
    if adds_columns(loaded):
        # Only a table or batch can be looked at before it is read.
        data = data if isinstance(data, pa.Table | pa.RecordBatch) else reader_of(data)
        loaded = admit_columns(ctx, loaded, [data.schema])
    change = Change(operation="append", request=request, uploaded_us=loaded.date_us)
    files = _write(ctx, loaded, data)
    if not files and request is None:
        return Skipped(loaded)
    try:
        return _commit(ctx, change, files, loaded)
    except StaleUpload:
        if isinstance(data, pa.RecordBatchReader):
            raise
        ctx.clock.sleep(1.0)  # store times are whole seconds
        loaded = load_pointer(ctx, carried=loaded.state.contents)
        change = Change(operation="append", request=request, uploaded_us=loaded.date_us)
        return _commit(ctx, change, _write(ctx, loaded, data), loaded)


def _commit(
    ctx: Context, change: Change, files: tuple[DataFile, ...], loaded: Loaded
) -> Committed | Skipped:
    return expect_committed(ctx, commit_together(ctx, replace(change, add=files), base=loaded))


def _write(ctx: Context, loaded: Loaded, data: Any) -> tuple[DataFile, ...]:
    return tuple(write_data(ctx, loaded.snapshot, data, time_us=loaded.date_us))
