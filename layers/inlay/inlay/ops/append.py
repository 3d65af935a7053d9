"""Append: rows become data files, then one commit.

Promise: the rows are in the table once, or the call fails and they are not; repeated with the same
request id it changes nothing. Appends commute with everything, so a lost race costs two requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from inlay.errors import StaleUpload, TableReplaced
from inlay.format.entry import DataFile
from inlay.ops.commit import Committed, Skipped, expect_committed
from inlay.ops.context import Context
from inlay.ops.group import commit_together
from inlay.ops.load import Loaded, load_pointer
from inlay.ops.once import already_applied
from inlay.ops.write import write_data
from inlay.plan.change import Change, Request

# A base older than this is read again before an upload: the boundary may have moved by days.
FRESH_SECONDS = 3600.0


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


def fresh_base(ctx: Context, base: Loaded | None) -> Loaded:
    """`base`, or the pointer as it is now when there is none or it is old."""
    if base is None or not base.etag:
        return load_pointer(ctx, carried=None if base is None else base.state.contents)
    if ctx.clock.monotonic() - base.read_at > FRESH_SECONDS:
        return load_pointer(ctx, carried=base.state.contents)
    return base


def current_base(ctx: Context, base: Loaded | None) -> Loaded:
    """The pointer as it is now. For changes that look at rows or files: a table object that was opened
    an hour ago would not see what arrived since, and leave it there without a word."""
    loaded = load_pointer(ctx, carried=None if base is None else base.state.contents)
    if base is not None and loaded.snapshot.table_id != base.snapshot.table_id:
        raise TableReplaced(f"{ctx.uri} is another table now", table=ctx.uri)
    return loaded


def _write(ctx: Context, loaded: Loaded, data: Any) -> tuple[DataFile, ...]:
    return tuple(write_data(ctx, loaded.snapshot, data, time_us=loaded.date_us))
