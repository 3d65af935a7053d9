"""Fresh: the base that an operation begins on.

Promise: a base is never so old that the GC boundary may have passed what is uploaded on it, nor another
table's; and what was said in names is never taken for the columns of another schema.
"""

from __future__ import annotations

from inlay.errors import ConcurrentChange, TableReplaced
from inlay.ops.context import Context
from inlay.ops.metadata.load import LoadedTable, load_pointer

# A base older than this is read again before an upload: the boundary may have moved by days.
FRESH_SECONDS = 3600.0


def fresh_base(ctx: Context, base: LoadedTable | None) -> LoadedTable:
    """`base`, or the pointer as it is now when there is none or it is old."""
    if base is None or not base.etag:
        return load_pointer(ctx, carried=None if base is None else base.state.contents)
    if ctx.clock.monotonic() - base.read_at > FRESH_SECONDS:
        return load_pointer(ctx, carried=base.state.contents)
    return base


def current_base(ctx: Context, base: LoadedTable | None) -> LoadedTable:
    """The pointer as it is now. For changes that look at rows or files: a table object that was opened
    an hour ago would not see what arrived since, and leave it there without a word."""
    loaded = load_pointer(ctx, carried=None if base is None else base.state.contents)
    if base is not None and loaded.snapshot.table_id != base.snapshot.table_id:
        raise TableReplaced(f"{ctx.uri} is another table now", table=ctx.uri)
    return loaded


def check_same_schema(ctx: Context, planned_on: LoadedTable, now: LoadedTable) -> None:
    """For changes that are planned again with what names meant the first time: under another schema the
    same names may be other columns."""
    if now.snapshot.schema_id != planned_on.snapshot.schema_id:
        raise ConcurrentChange(
            "the schema was changed by another commit since this table was read",
            next_step="Call refresh(), look at the schema, and do it again",
            table=ctx.uri,
            version=now.snapshot.version,
        )
